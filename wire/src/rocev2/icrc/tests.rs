use super::*;
use crate::rocev2::{Deth, Extension, Opcode, Packet, Psn};

/// Returns the octets of an IP packet from the hexadecimal text of an example.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Splits an IP packet into its flow, the covered part of its IPv4 header and the UDP payload.
fn parts(ip: &[u8]) -> (Icrc, Identification, &[u8]) {
    let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (header, source, destination) = match ip[0] >> 4 {
        4 => (20, address::<4>(ip, 12), address::<4>(ip, 16)),
        _ => (40, address::<16>(ip, 8), address::<16>(ip, 24)),
    };
    let icrc =
        Icrc::new((source, port(header)).into(), (destination, port(header + 2)).into()).unwrap();
    (icrc, Identification { id: port(4), dont_fragment: ip[6] == 0x40 }, &ip[header + 8..])
}

fn address<const N: usize>(ip: &[u8], at: usize) -> IpAddr
where
    IpAddr: From<[u8; N]>,
{
    IpAddr::from(*ip[at..].first_chunk().unwrap())
}

/// The checksum by definition: computed over all covered octets, bit by bit.
fn by_definition(ip: &[u8]) -> [u8; 4] {
    let mut image = ip[..ip.len() - 4].to_vec();
    let udp = if ip[0] >> 4 == 4 {
        for masked in [1, 8, 10, 11] {
            image[masked] = 0xFF;
        }
        20
    } else {
        image[0] = 0x6F;
        for masked in [1, 2, 3, 7] {
            image[masked] = 0xFF;
        }
        40
    };
    for masked in [udp + 6, udp + 7, udp + 8 + 4] {
        image[masked] = 0xFF;
    }
    let crc = [&[0xFF; 8], &image[..]].concat().into_iter().fold(u32::MAX, |crc, octet| {
        (0..8).fold(crc ^ u32::from(octet), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 }
        })
    });
    (!crc).to_le_bytes()
}

/// Real packets: an ACK of kernel rxe over IPv4, one over IPv6, and a SEND of three octets with ID
/// 0 by this project.
fn examples() -> [Vec<u8>; 3] {
    [
        "4500003026174000401100080a4d00030a4d0002 d07512b7001c0000 1100ffff00000011000a501e \
         1f000001 faa46b27",
        "60000000001c1140fd770000000000000000000000000003fd770000000000000000000000000001
         c94812b7001c0000 1100ffff0000004200b7c617 1f000001 dd244d39",
        "45000030000040004011fb8a0a4d00010a4d0003 12b712b7001c1234 0410ffff0000001180000005 \
         61626300 548e4abe",
    ]
    .map(hex)
}

#[test]
fn known_packets() {
    for ip in examples() {
        let (icrc, identification, datagram) = parts(&ip);
        let packet = &datagram[..datagram.len() - 4];
        assert_eq!(by_definition(&ip), datagram[packet.len()..]);
        assert_eq!(icrc.compute(identification, packet).to_le_bytes(), datagram[packet.len()..]);
        assert_eq!(icrc.verify(identification, datagram), Ok(packet));
        let hint = if ip[0] == 0x60 { Identification::unfragmented(77) } else { identification };
        assert_eq!(icrc.recover(77, datagram), Ok((packet, hint)));
    }
}

#[test]
fn sealing_writes_the_last_four_octets() {
    let ip = &examples()[2];
    let (icrc, _, datagram) = parts(ip);
    let mut ours = datagram.to_vec();
    ours[16..].fill(0xEE);
    icrc.seal(0, &mut ours);
    assert_eq!(ours, datagram);
}

/// For every packet length, every covered octet and both IP versions, the result agrees with the
/// definition.
#[test]
fn every_length_as_defined() {
    let (max, step) = if cfg!(miri) { (300, 92) } else { (Icrc::MAX_DATAGRAM - 4, 4) };
    for example in examples() {
        for len in (12..=max).step_by(step) {
            let ip = resized(&example, len);
            let (icrc, identification, datagram) = parts(&ip);
            let expected = by_definition(&ip);
            assert_eq!(
                icrc.compute(identification, &datagram[..len]).to_le_bytes(),
                expected,
                "{len}"
            );
        }
    }
}

/// Datagrams of the unreliable datagram service, with and without immediate data, at every pad. The
/// checksum covers the DETH, the immediate data and the pad as they are sent.
#[test]
fn unreliable_datagrams_with_pad() {
    let deth = Deth { q_key: 0x0123_4567, source_qpn: 0x02_0304 };
    let kinds = [
        (Opcode::DatagramSendOnly, Extension::Deth(deth), 12 + 8),
        (Opcode::DatagramSendOnlyImmediate, Extension::DethImmediate(deth, 0x21), 12 + 8 + 4),
    ];
    for (opcode, extension, headers) in kinds {
        for payload in ["", "a", "ab", "abc", "abcd"].map(str::as_bytes) {
            for example in examples() {
                let bth = Bth::new(opcode, 0x1F, Psn::new(2));
                let packet = Packet { bth, extension, payload };
                let padded = payload.len().next_multiple_of(4);
                let mut ip = resized(&example, headers + padded);
                let start = ip.len() - (headers + padded + 4);
                assert_eq!(packet.emit(&mut ip[start..]), headers + padded);
                let expected = by_definition(&ip);

                let (icrc, identification, datagram) = parts(&ip);
                let mut datagram = datagram.to_vec();
                icrc.seal(identification.id, &mut datagram);
                assert_eq!(datagram[headers + padded..], expected, "{packet}");
                let ip = Identification::unfragmented(identification.id);
                let received = icrc.verify(ip, &datagram).unwrap();
                assert_eq!(Packet::parse(received), Ok(packet));
                assert_eq!(received[headers + payload.len()..], [0; 3][..padded - payload.len()]);
                // Damage to any octet but the one that switches may mark is found.
                for at in (0..datagram.len()).filter(|&at| at != CONGESTION_OCTET) {
                    let mut damaged = datagram.clone();
                    damaged[at] ^= 0x10;
                    assert_eq!(icrc.verify(ip, &damaged), Err(IcrcError::Mismatch), "{at}");
                }
            }
        }
    }
}

/// Returns the example with another packet length, correct length fields and different octets. Its
/// ICRC is zero.
fn resized(example: &[u8], packet_len: usize) -> Vec<u8> {
    let (header, lengths) = if example[0] >> 4 == 4 { (20, (2, 28)) } else { (40, (4, 8)) };
    let mut ip = example[..header + 8].to_vec();
    ip.extend((0..packet_len).map(|i| (i * 7 + packet_len) as u8));
    ip.extend([0; 4]);
    let total = (packet_len + 4 + lengths.1) as u16;
    ip[lengths.0..][..2].copy_from_slice(&total.to_be_bytes());
    ip[header + 4..][..2].copy_from_slice(&((packet_len + 12) as u16).to_be_bytes());
    ip
}

#[test]
fn every_id_is_recovered_with_and_without_df() {
    let (icrc, _, datagram) = {
        let ip = &examples()[0];
        let (icrc, identification, datagram) = parts(ip);
        (icrc, identification, datagram.to_vec())
    };
    let packet = &datagram[..datagram.len() - 4];
    for id in (0..=u16::MAX).step_by(if cfg!(miri) { 9999 } else { 1 }) {
        for dont_fragment in [false, true] {
            let ip = Identification { id, dont_fragment };
            let sealed = [packet, &icrc.compute(ip, packet).to_le_bytes()].concat();
            for hint in [0, id, id.wrapping_sub(1), !id] {
                assert_eq!(icrc.recover(hint, &sealed), Ok((packet, ip)));
            }
        }
    }
}

/// The ID of a packet is recovered, whatever the packet's length is.
#[test]
fn ids_are_recovered_at_every_length() {
    let (icrc, ..) = parts(&examples()[0]).to_owned();
    let ip = Identification { id: 0xA55A, dont_fragment: true };
    for len in (12..=Icrc::MAX_DATAGRAM - 4).step_by(if cfg!(miri) { 1024 } else { 4 }) {
        let mut datagram = vec![0x5A; len + 4];
        let crc = icrc.compute(ip, &datagram[..len]);
        datagram[len..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(icrc.recover(0, &datagram), Ok((&datagram[..len], ip)));
    }
}

#[test]
fn congestion_marks_are_not_covered() {
    for ip in examples() {
        let (icrc, identification, datagram) = parts(&ip);
        for marks in 0..=u8::MAX {
            let mut datagram = datagram.to_vec();
            datagram[4] = marks;
            assert!(icrc.verify(identification, &datagram).is_ok());
        }
    }
}

#[test]
fn other_lengths_are_no_packets() {
    let ip = &examples()[0];
    let (icrc, identification, _) = parts(ip);
    for len in [0, 1, 4, 12, 15, 17, 18, 19, Icrc::MAX_DATAGRAM + 4, 65507] {
        let datagram = vec![0; len];
        assert_eq!(icrc.verify(identification, &datagram), Err(IcrcError::Length { len }));
        assert_eq!(icrc.recover(0, &datagram), Err(IcrcError::Length { len }));
    }
}

#[test]
fn flows_have_one_ip_version() {
    let v4: SocketAddr = "10.77.0.1:4791".parse().unwrap();
    let mapped: SocketAddr = "[::ffff:10.77.0.1]:4791".parse().unwrap();
    let v6: SocketAddr = "[fd77::1]:4791".parse().unwrap();
    assert_eq!(Icrc::new(v4, v6), None);
    assert_eq!(Icrc::new(v6, mapped), None);
    assert_eq!(Icrc::new(v4, v4), Icrc::new(mapped, v4));
    assert_ne!(Icrc::new(v6, v6), None);
}
