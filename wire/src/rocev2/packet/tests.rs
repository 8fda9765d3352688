use super::*;
use crate::rocev2::{NakCode, Operation, Position, Psn, RnrTimer, SendKind, Syndrome};

fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut buf = [0xEE; 128];
    let len = packet.emit(&mut buf);
    assert!(
        buf[len..].iter().all(|&octet| octet == 0xEE),
        "octets beyond the returned length must stay unchanged"
    );
    buf[..len].to_vec()
}

const RETH: Reth = Reth { va: 0x0102_0304_0506_0708, r_key: 0x1112_1314, len: 0x2122_2324 };
const ATOMIC: AtomicEth = AtomicEth {
    va: 0x0102_0304_0506_0708,
    r_key: 0x1112_1314,
    swap_or_add: 0x2122_2324_2526_2728,
    compare: 0x3132_3334_3536_3738,
};
const DETH: Deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: 0x02_0304 };

/// Each layout is compared with octets that were written by hand from the standard's figures.
#[test]
fn layouts() {
    let bth = |opcode| Bth::new(opcode, 0x01_0203, Psn::new(0x0A_0B0C));
    let nak = Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), msn: 0x01_0203 };
    let all_flags = Bth {
        solicited: true,
        migrated: true,
        p_key: 0x1234,
        fecn: true,
        becn: true,
        ack_request: true,
        ..bth(Opcode::SendOnlyImmediate)
    };
    let cases: [(Bth, Extension, &[u8], &[u8]); 13] = [
        (
            bth(Opcode::SendMiddle),
            Extension::None,
            b"abcd",
            b"\x01\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0Cabcd",
        ),
        (
            all_flags,
            Extension::Immediate(0xDEAD_BEEF),
            b"a",
            b"\x05\xF0\x12\x34\xC0\x01\x02\x03\x80\x0A\x0B\x0C\xDE\xAD\xBE\xEFa\0\0\0",
        ),
        (
            bth(Opcode::SendLastInvalidate),
            Extension::Invalidate(0x1112_1314),
            b"ab",
            b"\x16\x20\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x11\x12\x13\x14ab\0\0",
        ),
        (
            bth(Opcode::WriteFirst),
            Extension::Reth(RETH),
            b"abc",
            b"\x06\x10\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x21\x22\x23\x24abc\0",
        ),
        (
            bth(Opcode::WriteOnlyImmediate),
            Extension::RethImmediate(RETH, 0x3132_3334),
            b"",
            b"\x0B\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x21\x22\x23\x241234",
        ),
        (
            bth(Opcode::Acknowledge),
            Extension::Aeth(nak),
            b"",
            b"\x11\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x62\x01\x02\x03",
        ),
        (
            bth(Opcode::AtomicAcknowledge),
            Extension::AtomicAck(nak, AtomicAckEth { original: 0x2122_2324_2526_2728 }),
            b"",
            b"\x12\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x62\x01\x02\x03\x21\x22\x23\x24\x25\x26\x27\x28",
        ),
        (
            bth(Opcode::CompareSwap),
            Extension::Atomic(ATOMIC),
            b"",
            b"\x13\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x21\x22\x23\x24\x25\x26\x27\x2812345678",
        ),
        (
            bth(Opcode::DatagramSendOnlyImmediate),
            Extension::DethImmediate(DETH, 0x3132_3334),
            b"abcd",
            b"\x65\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x80\x01\0\0\0\x02\x03\x041234abcd",
        ),
        (
            bth(Opcode::UcSendLastImmediate),
            Extension::Immediate(0x3132_3334),
            b"abc",
            b"\x23\x10\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C1234abc\0",
        ),
        (
            bth(Opcode::UcWriteOnly),
            Extension::Reth(RETH),
            b"abcd",
            b"\x2A\x00\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x21\x22\x23\x24abcd",
        ),
        (
            bth(Opcode::DatagramSendOnly),
            Extension::Deth(DETH),
            b"ab",
            b"\x64\x20\xFF\xFF\0\x01\x02\x03\0\x0A\x0B\x0C\x80\x01\0\0\0\x02\x03\x04ab\0\0",
        ),
        (
            Bth { becn: true, ..bth(Opcode::CongestionNotification) },
            Extension::Reserved,
            b"",
            b"\x81\x00\xFF\xFF\x40\x01\x02\x03\0\x0A\x0B\x0C\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ),
    ];
    for (bth, extension, payload, bytes) in cases {
        let packet = Packet { bth, extension, payload };
        assert_eq!(emit(&packet), bytes, "{packet}");
        assert_eq!(Packet::parse(bytes), Ok(packet));
        assert_eq!(packet.len(), bytes.len());
    }
}

#[test]
fn payload_is_gathered_behind_the_headers() {
    let bth = Bth::new(Opcode::WriteOnly, 7, Psn::new(1));
    let mut buf = [0xEE; 64];
    let place = Packet::emit_around(&bth, &Extension::Reth(RETH), 5, &mut buf);
    place.copy_from_slice(b"hello");
    let len = packet_len(Opcode::WriteOnly, 5);
    assert_eq!((len, buf[len - 3..len].to_vec(), buf[len]), (12 + 16 + 8, vec![0; 3], 0xEE));
    assert_eq!(Packet::parse(&buf[..len]).unwrap().payload, b"hello");
}

#[test]
fn what_is_no_packet() {
    let good = emit(&Packet {
        bth: Bth::new(Opcode::WriteFirst, 7, Psn::new(1)),
        extension: Extension::Reth(RETH),
        payload: b"abcd",
    });
    let parse = |bytes: &[u8]| Packet::parse(bytes).map(drop);
    let changed = |at: usize, octet| {
        let mut bytes = good.clone();
        bytes[at] = octet;
        parse(&bytes)
    };
    assert_eq!(parse(&good), Ok(()));
    assert_eq!(parse(&good[..27]), Err(ParseError::Unaligned { len: 27 }));
    for (len, needed) in [(0, 12), (8, 12), (12, 28), (24, 28)] {
        assert_eq!(parse(&good[..len]), Err(ParseError::Short { len, needed }));
    }
    // These codes are not supported: reliable datagram, FLUSH, and the reserved codes 0x15, 0x2C,
    // 0x63 and 0xFF.
    for code in [0x40, 0x1C, 0x15, 0x2C, 0x63, 0xFF] {
        assert_eq!(changed(0, code), Err(ParseError::Opcode { code }));
    }
    assert_eq!(changed(1, 0x01), Err(ParseError::Version { version: 1 }));
    let opcode = Opcode::ReadRequest;
    assert_eq!(changed(0, opcode.code()), Err(ParseError::Payload { opcode, len: 4 }));
    let empty = [&[Opcode::WriteFirst.code(), 0x30], &good[2..28]].concat();
    assert_eq!(parse(&empty), Err(ParseError::Pad { pad: 3, len: 0 }));
}

#[test]
fn reserved_bits_and_pads_are_not_looked_at() {
    let packet = Packet {
        bth: Bth::new(Opcode::SendOnly, 0x01_0203, Psn::new(9)),
        extension: Extension::None,
        payload: b"a",
    };
    let mut bytes = emit(&packet);
    bytes[4] |= 0x3F;
    bytes[8] |= 0x7F;
    bytes[13..].fill(0xFF);
    assert_eq!(Packet::parse(&bytes), Ok(packet));
}

#[test]
#[should_panic]
fn an_extension_of_another_opcode_is_a_bug() {
    let bth = Bth::new(Opcode::SendOnly, 1, Psn::new(1));
    Packet::emit_around(&bth, &Extension::Reth(RETH), 0, &mut [0; 64]);
}

#[test]
fn opcodes() {
    for code in 0..=u8::MAX {
        assert!(Opcode::from_code(code).is_none_or(|opcode| opcode.code() == code));
    }
    assert_eq!((0..=u8::MAX).filter_map(Opcode::from_code).count(), Opcode::ALL.len());
    for opcode in Opcode::ALL {
        assert_eq!(Opcode::from_code(opcode.code()), Some(opcode));
        let (position, kind) = (opcode.position(), opcode.extension_kind());
        let kind = match kind {
            ExtensionKind::Immediate | ExtensionKind::RethImmediate => SendKind::Immediate,
            ExtensionKind::Invalidate => SendKind::Invalidate,
            _ => SendKind::Plain,
        };
        let made = match opcode.operation() {
            Operation::Send => Opcode::send(position, kind),
            Operation::Write => Opcode::write(position, kind == SendKind::Immediate),
            Operation::ReadResponse => Opcode::read_response(position),
            _ => {
                assert_eq!(position, Position::Only);
                opcode
            }
        };
        let rc = Opcode::from_code(opcode.code() & !0x20).filter(|_| opcode.is_uc());
        assert_eq!(made, rc.unwrap_or(opcode));
        assert!(rc.is_none_or(|rc| rc.is_request() && !opcode.is_request()));
        assert_eq!(Position::new(position.starts(), position.ends()), position);
        assert!(!(opcode.is_request() && opcode.is_response()));
    }
}

#[test]
fn partitions() {
    let cases = [
        (0xFFFF, 0xFFFF, true),
        (0xFFFF, 0x7FFF, true),
        (0x7FFF, 0x7FFF, false),
        (0xFFFF, 0xFFFE, false),
        (0x8001, 0x0001, true),
    ];
    for (one, other, same) in cases {
        assert_eq!(Bth::same_partition(one, other), same);
        assert_eq!(Bth::same_partition(other, one), same);
    }
}

#[test]
fn words() {
    let text = |opcode, extension, payload: &[u8]| {
        let bth = Bth { ack_request: true, ..Bth::new(opcode, 0x11, Psn::new(5)) };
        Packet { bth, extension, payload }.to_string()
    };
    assert_eq!(
        text(Opcode::SendOnlyInvalidate, Extension::Invalidate(7), b"abc"),
        "SEND only invalidate qpn=0x000011 psn=5 ack-request invalidate=0x00000007 payload=3"
    );
    assert_eq!(
        text(Opcode::ReadRequest, Extension::Reth(Reth { va: 16, r_key: 1, len: 5000 }), b""),
        "READ request qpn=0x000011 psn=5 ack-request va=0x10 r_key=0x00000001 len=5000"
    );
    assert_eq!(
        text(Opcode::UcSendFirst, Extension::None, b"abc"),
        "UC SEND first qpn=0x000011 psn=5 ack-request payload=3"
    );
    assert_eq!(
        text(Opcode::DatagramSendOnly, Extension::Deth(DETH), b"abc"),
        "UD SEND qpn=0x000011 psn=5 ack-request q_key=0x80010000 source=0x020304 payload=3"
    );
    let syndrome = Syndrome::Rnr(RnrTimer::from_code(1));
    assert_eq!(
        text(Opcode::Acknowledge, Extension::Aeth(Aeth { syndrome, msn: 3 }), b""),
        "ACK qpn=0x000011 psn=5 ack-request RNR NAK 10µs msn=3"
    );
}
