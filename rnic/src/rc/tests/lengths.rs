//! The boundaries of each comparison of lengths on the way of a received packet, as one table: the
//! datagram, its headers, its payload, the message, the memory, and the numbers of PSNs.

use std::net::SocketAddr;

use wire::rocev2::{Icrc, NakCode, Position, SendKind};

use super::*;
use crate::ud::{DatagramQp, HEADER_SIZE, UdCfg};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is no packet, or it finds no place.
    Dropped,
    Taken,
    /// It is refused as an invalid request.
    Invalid,
    /// It is refused as an access outside the memory that the peer may access.
    NoAccess,
    /// It is no valid response.
    Wrong,
}

use Fate::{Dropped, Invalid, NoAccess, Taken, Wrong};

fn fate(result: Result<(), Failure>) -> Fate {
    match result {
        Ok(()) => Taken,
        Err(Failure::Refusing(NakCode::InvalidRequest)) => Invalid,
        Err(Failure::Refusing(NakCode::RemoteAccess)) => NoAccess,
        Err(Failure::BadResponse) => Wrong,
        Err(other) => panic!("{other}"),
    }
}

/// The number of octets that are compared with the rest of a message, a buffer, or a region.
const SOME: usize = 100;
const MTU_OCTETS: usize = OCTETS;
/// The maximum length of a message, and of a READ with the shortest packets.
const MESSAGE: usize = 1 << 31;
const READ: usize = (1 << 22) * OCTETS;

/// An end with memory of 4 packets for peers, and a receive of this number of octets.
fn end(mtu: PathMtu, receive: usize) -> (Side, Buf) {
    let side = Side::new(RcCfg { mtu, ..cfg(1) }, Instant::now());
    let buf = side.buf(4 * OCTETS);
    side.recv(0, &[buf.seg(0, receive)]);
    (side, buf)
}

/// Passes packets to an end. The last one decides.
fn requests(side: &mut Side, packets: &[(Opcode, Extension, usize)]) -> Fate {
    let mut fate_of_last = Dropped;
    for (psn, (opcode, extension, len)) in packets.iter().enumerate() {
        assert!(psn == 0 || fate_of_last == Taken);
        let octets = packet(*opcode, cfg(1).rq_psn + psn as u32, *extension, &vec![1; *len]);
        fate_of_last = fate(side.take(Instant::now(), &octets));
    }
    fate_of_last
}

fn send(position: Position, len: usize) -> (Opcode, Extension, usize) {
    (Opcode::send(position, SendKind::Plain), Extension::None, len)
}

fn sends(receive: usize, packets: &[(Position, usize)]) -> Fate {
    let (mut side, _buf) = end(MTU, receive);
    let packets: Vec<_> = packets.iter().map(|&(position, len)| send(position, len)).collect();
    requests(&mut side, &packets)
}

/// A WRITE of `announced` octets to the octets from `at` on, in packets with these payloads.
fn writes(at: usize, announced: usize, packets: &[(Position, usize)]) -> Fate {
    let (mut side, buf) = end(MTU, OCTETS);
    let reth = Reth { va: buf.addr() + at as u64, r_key: buf.key(), len: announced as u32 };
    let packets = packets.iter().map(|&(position, len)| {
        let extension = if position.starts() { Extension::Reth(reth) } else { Extension::None };
        (Opcode::write(position, false), extension, len)
    });
    requests(&mut side, &packets.collect::<Vec<_>>())
}

/// A READ of `len` octets from the octets from `at` on.
fn read_of(mtu: PathMtu, at: usize, len: usize) -> Fate {
    let (mut side, buf) = end(mtu, OCTETS);
    let reth = Reth { va: buf.addr() + at as u64, r_key: buf.key(), len: len as u32 };
    requests(&mut side, &[(Opcode::ReadRequest, Extension::Reth(reth), 0)])
}

/// A response of `len` octets to a READ of `asked` octets, after one FIRST packet if it has more
/// than one packet.
fn response(asked: usize, position: Position, len: usize) -> Fate {
    let (mut side, buf) = end(MTU, OCTETS);
    let now = Instant::now();
    side.post(read(0, &[buf.seg(0, asked)], crate::Remote { addr: 0, key: 0 }));
    side.rc.open_window();
    side.rc.transmit(now, &mut side.burst).unwrap();
    let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 });
    let mut take = |index: u32, position, len| {
        let opcode = Opcode::read_response(position);
        let extension = if position == Position::Middle { Extension::None } else { aeth };
        let octets = packet(opcode, cfg(1).sq_psn + index, extension, &vec![1; len]);
        fate(side.take(now, &octets))
    };
    if position.starts() {
        return take(0, position, len);
    }
    assert_eq!(take(0, Position::First, OCTETS), Taken);
    take(1, position, len)
}

/// A datagram of `len` octets with a right checksum, if it can have one.
fn checked(len: usize) -> Fate {
    let [from, to] =
        ["192.0.2.1:4791", "192.0.2.2:4791"].map(|end| end.parse::<SocketAddr>().unwrap());
    let icrc = Icrc::new(from, to).unwrap();
    let mut datagram = vec![0; len];
    if len >= 12 + Icrc::SIZE {
        icrc.seal(0, &mut datagram);
    }
    if icrc.recover(0, &datagram).is_ok() { Taken } else { Dropped }
}

/// A packet of this opcode with `len` octets behind the BTH.
fn parsed(opcode: Opcode, len: usize) -> Fate {
    let mut octets = vec![0; 12 + len];
    octets[0] = opcode.code();
    if Packet::parse(&octets).is_ok() { Taken } else { Dropped }
}

/// A SEND with four octets behind its BTH, or none, and this pad count.
fn padded(octets: usize, pad: usize) -> Fate {
    let mut packet = vec![0; 12 + octets];
    packet[0] = Opcode::SendOnly.code();
    packet[1] = (pad as u8) << 4;
    match Packet::parse(&packet) {
        Ok(packet) => {
            assert_eq!(packet.payload.len(), octets - pad);
            Taken
        }
        Err(_) => Dropped,
    }
}

/// A datagram of UD with a payload of `len` octets, for a buffer of [`SOME`] octets and the header.
fn unreliable(len: usize) -> Fate {
    let (queues, work) = Queues::new(None, Arc::new(Keys::new()));
    let buf = queues.buf(HEADER_SIZE + SOME);
    queues.recv(0, &[buf.seg(0, HEADER_SIZE + SOME)]);
    let (q_key, mtu, host) = (7, PathMtu::Octets4096, std::net::Ipv4Addr::LOCALHOST.into());
    let mut ud = DatagramQp::new(work, UdCfg { q_key, mtu, p_key: Bth::DEFAULT_P_KEY });
    let deth = Extension::Deth(wire::rocev2::Deth { q_key, source_qpn: 1 });
    let octets = packet(Opcode::DatagramSendOnly, Psn::new(0), deth, &vec![1; len]);
    ud.receive(&Packet::parse(&octets).unwrap(), host, &[0; HEADER_SIZE]).unwrap();
    let taken = queues.received();
    assert!(taken.iter().all(|wc| wc.bytes as usize == HEADER_SIZE + len));
    if taken.is_empty() { Dropped } else { Taken }
}

/// A threshold, and the fates with 0, 1, threshold − 1, threshold and threshold + 1.
type Row = (&'static str, fn(usize) -> Fate, usize, [Fate; 5]);

const ROWS: [Row; 31] = {
    use Position::{First, Last, Middle, Only};
    const D: Fate = Dropped;
    const T: Fate = Taken;
    const I: Fate = Invalid;
    const N: Fate = NoAccess;
    const W: Fate = Wrong;
    [
        // The datagram.
        ("shortest datagram", checked, 16, [D, D, D, T, D]),
        ("longest datagram", checked, Icrc::MAX_DATAGRAM, [D, D, D, T, D]),
        ("longest datagram, in words", |n| checked(4 * n), Icrc::MAX_DATAGRAM / 4, [D, D, T, T, D]),
        // Its headers and its pad.
        (
            "BTH",
            |n| if n < 12 { parsed_prefix(n) } else { parsed(Opcode::SendOnly, n - 12) },
            12,
            [D, D, D, T, D],
        ),
        ("RETH", |n| parsed(Opcode::ReadRequest, n), 16, [D, D, D, T, D]),
        ("no payload behind a RETH", |n| parsed(Opcode::ReadRequest, 4 * n), 4, [D, D, D, T, D]),
        ("RETH and ImmDt", |n| parsed(Opcode::WriteOnlyImmediate, 4 * n), 5, [D, D, D, T, T]),
        ("AETH", |n| parsed(Opcode::Acknowledge, n), 4, [D, D, D, T, D]),
        ("AETH and AtomicAckETH", |n| parsed(Opcode::AtomicAcknowledge, 4 * n), 3, [D, D, D, T, D]),
        ("AtomicETH", |n| parsed(Opcode::FetchAdd, 4 * n), 7, [D, D, D, T, D]),
        ("DETH", |n| parsed(Opcode::DatagramSendOnly, 4 * n), 2, [D, D, D, T, T]),
        ("IETH", |n| parsed(Opcode::SendOnlyInvalidate, n), 4, [D, D, D, T, D]),
        ("pad count of an empty packet", |n| padded(0, n), 1, [T, D, T, D, D]),
        ("pad count", |n| padded(4, n), 2, [T, T, T, T, T]),
        // The payload.
        (
            "payload of an ONLY packet",
            |n| sends(4 * OCTETS, &[(Only, n)]),
            MTU_OCTETS,
            [T, T, T, T, I],
        ),
        (
            "payload of a FIRST packet",
            |n| sends(4 * OCTETS, &[(First, n)]),
            MTU_OCTETS,
            [I, I, I, T, I],
        ),
        (
            "payload of a MIDDLE packet",
            |n| sends(4 * OCTETS, &[(First, OCTETS), (Middle, n)]),
            MTU_OCTETS,
            [I, I, I, T, I],
        ),
        (
            "payload of a LAST packet",
            |n| sends(4 * OCTETS, &[(First, OCTETS), (Last, n)]),
            MTU_OCTETS,
            [I, T, T, T, I],
        ),
        (
            "first response to a READ",
            |n| response(3 * OCTETS, First, n),
            MTU_OCTETS,
            [W, W, W, T, W],
        ),
        ("only response to a READ", |n| response(SOME, Only, n), SOME, [W, W, W, T, W]),
        ("last response to a READ", |n| response(OCTETS + SOME, Last, n), SOME, [W, W, W, T, W]),
        // The message and its memory.
        ("message and receive buffer", |n| sends(SOME, &[(Only, n)]), SOME, [T, T, T, T, I]),
        (
            "two packets and receive buffer",
            |n| sends(OCTETS + SOME, &[(First, OCTETS), (Last, n)]),
            SOME,
            [I, T, T, T, I],
        ),
        ("datagram and receive buffer", unreliable, SOME, [T, T, T, T, D]),
        ("WRITE of one packet", |n| writes(0, SOME, &[(Only, n)]), SOME, [I, I, I, T, I]),
        (
            "WRITE of two packets",
            |n| writes(0, OCTETS + SOME, &[(First, OCTETS), (Last, n)]),
            SOME,
            [I, I, I, T, I],
        ),
        (
            "length of a WRITE that continues",
            |n| writes(0, n, &[(First, OCTETS)]),
            MTU_OCTETS,
            [I, I, I, I, T],
        ),
        ("longest WRITE", |n| writes(0, n, &[(First, OCTETS)]), MESSAGE, [I, I, N, N, I]),
        (
            "WRITE at the end of a region",
            |n| writes(4 * OCTETS - SOME, n, &[(Only, n)]),
            SOME,
            [T, T, T, T, N],
        ),
        (
            "READ at the end of a region",
            |n| read_of(MTU, 4 * OCTETS - SOME, n),
            SOME,
            [T, T, T, T, N],
        ),
        (
            "PSNs of a READ, or its length",
            |n| {
                // The longest READ with long packets has fewer PSNs than are permitted.
                let is_short = read_of(PathMtu::Octets4096, 0, n + (MESSAGE - READ));
                let at_short_packets = read_of(MTU, 0, n);
                assert!(n < READ - 1 || is_short == at_short_packets, "{is_short:?}");
                at_short_packets
            },
            READ,
            [T, T, N, N, I],
        ),
    ]
};

/// The first `len` octets of a BTH.
fn parsed_prefix(len: usize) -> Fate {
    let mut octets = [0; 12];
    octets[0] = Opcode::SendOnly.code();
    if Packet::parse(&octets[..len]).is_ok() { Taken } else { Dropped }
}

#[test]
fn the_boundaries_of_lengths() {
    for (row, fate_of, threshold, expected) in &ROWS {
        let lengths = [0, 1, threshold - 1, *threshold, threshold + 1];
        assert_eq!(lengths.map(fate_of), *expected, "{row}: {lengths:?}");
    }
}
