//! Parses a UDP datagram from a stranger. Checks:
//!
//! - The code under test does not panic.
//! - A parsed packet is emitted as the same octets.
//! - An accepted ICRC is correct for the ID that was recovered with it.
//!
//! The first two octets select the flow, the last ID seen on it, and whether the ICRC is corrected.
//! The fuzzer would not find a correct ICRC by chance.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use wire::rocev2::{Extension, Icrc, IcrcError, Identification, Packet, pad};

fuzz_target!(|data: &[u8]| {
    let Some((&[flags, hint], data)) = data.split_first_chunk() else { return };
    let (ipv6, seal, ip) = (
        flags & 1 != 0,
        flags & 2 != 0,
        Identification {
            id: u16::from(flags >> 3) << 11 | u16::from(hint),
            dont_fragment: flags & 4 != 0,
        },
    );
    let icrc = flow(ipv6);
    let hint = u16::from(hint);

    let mut datagram = data.to_vec();
    if let (true, Some((packet, checksum))) =
        (seal && data.len() >= 16, datagram.split_last_chunk_mut())
    {
        *checksum = icrc.compute(ip, packet).to_le_bytes();
    }
    match icrc.recover(hint, &datagram) {
        Ok((packet, found)) => {
            assert_eq!(icrc.verify(found, &datagram), Ok(packet));
            if seal {
                assert_eq!(found, if ipv6 { Identification::unfragmented(hint) } else { ip });
            }
            parse(packet);
        }
        Err(IcrcError::Mismatch) => assert!(!seal),
        Err(IcrcError::Length { len }) => {
            assert!(len < 16 || len % 4 != 0 || len > Icrc::MAX_DATAGRAM)
        }
    }
    parse(data);
});

fn flow(ipv6: bool) -> Icrc {
    let ends = if ipv6 {
        ["[fd77::2]:53322", "[fd77::1]:4791"]
    } else {
        ["10.77.0.2:53322", "10.77.0.1:4791"]
    };
    let [source, destination] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
    Icrc::new(source, destination).unwrap()
}

fn parse(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mut again = vec![0xEE; packet.len()];
    packet.emit(&mut again);
    assert_eq!(Packet::parse(&again), Ok(packet));
    assert!(!packet.to_string().is_empty());

    // Reserved fields of a parsed packet become zero.
    let mut expected = bytes.to_vec();
    expected[4] &= 0xC0;
    expected[8] &= 0x80;
    let payload_end = bytes.len() - pad(packet.payload.len());
    expected[payload_end..].fill(0);
    match packet.extension {
        Extension::Deth(_) | Extension::DethImmediate(..) => expected[16] = 0,
        Extension::Reserved => expected[12..28].fill(0),
        _ => {}
    }
    assert_eq!(again, expected);
}
