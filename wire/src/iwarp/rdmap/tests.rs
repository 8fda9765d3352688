use super::*;

fn parse(bytes: &[u8]) -> (Header, usize) {
    Header::parse(bytes).unwrap().unwrap()
}

fn emit(header: Header) -> Vec<u8> {
    let mut buf = [0xEE; UNTAGGED_SIZE];
    let len = header.emit(&mut buf);
    assert!(
        buf[len..].iter().all(|&octet| octet == 0xEE),
        "octets beyond the returned length must stay unchanged"
    );
    buf[..len].to_vec()
}

/// The octets are the headers that rping with 64 octets sends, as captured.
#[test]
fn rping_headers() {
    let untagged =
        |opcode, qn| Header::Untagged { last: true, opcode, invalidate: 0, qn, msn: 1, mo: 0 };
    let (stag, to) = (0x5B86_5C00, 0x55A0_F357_7130);
    let tagged = |last, opcode, placement| Header::Tagged { last, opcode, placement, stag, to };
    let cases: [(&[u8], Header, &str); 6] = [
        (
            &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
            untagged(UntaggedOpcode::Send, 0),
            "SEND qn=0 msn=1 mo=0 last",
        ),
        (
            &[0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
            untagged(UntaggedOpcode::ReadRequest, 1),
            "READ request qn=1 msn=1 mo=0 last",
        ),
        (
            &[0xC1, 0x42, 0x5B, 0x86, 0x5C, 0x00, 0, 0, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30],
            tagged(true, TaggedOpcode::ReadResponse, Placement::Unsaid),
            "READ response stag=0x5b865c00 to=0x55a0f3577130 last",
        ),
        (
            &[0x81, 0x40, 0x5B, 0x86, 0x5C, 0x00, 0, 0, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30],
            tagged(false, TaggedOpcode::Write, Placement::Unsaid),
            "WRITE stag=0x5b865c00 to=0x55a0f3577130",
        ),
        (
            &[0xC1, 0x50, 0x5B, 0x86, 0x5C, 0x00, 0, 0, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30],
            tagged(true, TaggedOpcode::Write, Placement::Wanted),
            "WRITE stag=0x5b865c00 to=0x55a0f3577130 report-wanted last",
        ),
        (
            &[0xC1, 0x60, 0x5B, 0x86, 0x5C, 0x00, 0, 0, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30],
            tagged(true, TaggedOpcode::Write, Placement::Reported),
            "WRITE stag=0x5b865c00 to=0x55a0f3577130 report last",
        ),
    ];
    for (bytes, header, words) in cases {
        assert_eq!(parse(bytes), (header, bytes.len()));
        assert_eq!(emit(header), bytes);
        assert_eq!(header.to_string(), words);
    }
}

#[test]
fn every_opcode_has_its_code() {
    for (opcode, code) in TaggedOpcode::ALL.into_iter().zip([0, 2]) {
        let bytes = emit(Header::Tagged {
            last: true,
            opcode,
            placement: Placement::Unsaid,
            stag: 7,
            to: 9,
        });
        assert_eq!(bytes[..2], [0xC1, 0x40 | code]);
    }
    let codes = [1, 3, 4, 5, 6, 7, 8, 9, 0xA, 0xB];
    for (opcode, code) in UntaggedOpcode::ALL.into_iter().zip(codes) {
        let qn = opcode.queue().number();
        let header =
            Header::Untagged { last: false, opcode, invalidate: 0, qn, msn: u32::MAX, mo: 5 };
        let bytes = emit(header);
        assert_eq!(bytes[..2], [0x01, 0x40 | code]);
        assert_eq!(parse(&bytes), (header, 18));
    }
}

/// The expected queues are those of RFC 5040, section 4.1, figure 4, and RFC 7306, figure 2.
#[test]
fn queues_of_opcodes() {
    use UntaggedOpcode::*;
    let queues = [
        (Queue::Send, &[Send, SendInvalidate, SendSolicited, SendSolicitedInvalidate][..]),
        (Queue::Send, &[Immediate, ImmediateSolicited]),
        (Queue::Request, &[ReadRequest, AtomicRequest]),
        (Queue::Terminate, &[Terminate]),
        (Queue::AtomicResponse, &[AtomicResponse]),
    ];
    assert_eq!(
        queues.iter().map(|(_, opcodes)| opcodes.len()).sum::<usize>(),
        UntaggedOpcode::ALL.len()
    );
    for (queue, opcodes) in queues {
        assert!(opcodes.iter().all(|opcode| opcode.queue() == queue), "{queue}");
    }
    for (solicited, invalidate) in [(false, false), (false, true), (true, false), (true, true)] {
        let send = UntaggedOpcode::send(solicited, invalidate);
        assert!(send.is_send());
        assert_eq!((send.solicited(), send.invalidates()), (solicited, invalidate));
    }
}

#[test]
fn the_stag_field_is_of_invalidating_sends_only() {
    let bytes = [0x41, 0x44, 0xCD, 0x1C, 0xB6, 0x00, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 8];
    let invalidate = 0xCD1C_B600;
    let opcode = UntaggedOpcode::SendInvalidate;
    let header = Header::Untagged { last: true, opcode, invalidate, qn: 0, msn: 2, mo: 8 };
    assert_eq!(parse(&bytes).0, header);
    assert_eq!(emit(header), bytes);
    assert_eq!(header.to_string(), "SEND invalidate qn=0 msn=2 mo=8 invalidate=0xcd1cb600 last");

    // In messages other than a SEND with invalidate, the STag field is reserved: ignored when
    // received and zero when sent (RFC 5040, section 4.1).
    let mut send = bytes;
    send[1] = 0x43;
    let opcode = UntaggedOpcode::Send;
    let header = Header::Untagged { last: true, opcode, invalidate: 0, qn: 0, msn: 2, mo: 8 };
    assert_eq!(parse(&send).0, header);
    let junk = Header::Untagged { last: true, opcode, invalidate, qn: 0, msn: 2, mo: 8 };
    assert_eq!(emit(junk), emit(header));
}

const WRITE: Header = Header::Tagged {
    last: true,
    opcode: TaggedOpcode::Write,
    placement: Placement::Unsaid,
    stag: 1,
    to: 2,
};

#[test]
fn reserved_bits_are_not_looked_at() {
    let mut bytes = emit(WRITE);
    let header = parse(&bytes);
    bytes[0] |= 0x3C;
    bytes[1] |= 0x30;
    assert_eq!(parse(&bytes), header);
}

/// Every control field is either accepted or an error with the cause that the standard requires.
#[test]
fn every_control_field() {
    for control in (0..=u16::MAX).step_by(if cfg!(miri) { 251 } else { 1 }) {
        let [ddp_control, rdmap_control] = control.to_be_bytes();
        let mut bytes = [0; UNTAGGED_SIZE];
        bytes[..2].copy_from_slice(&[ddp_control, rdmap_control]);

        let tagged = ddp_control & 0x80 != 0;
        let code = rdmap_control & 0x0F;
        let expected = match () {
            _ if ddp_control & 3 != 1 => Err((1, if tagged { (1, 4) } else { (2, 6) })),
            _ if rdmap_control >> 6 != 1 => Err((0, (2, 5))),
            _ if tagged != matches!(code, 0 | 2) || code > 0xB => Err((0, (2, 6))),
            _ => Ok(if tagged { 14 } else { 18 }),
        };
        let found = match Header::parse(&bytes) {
            Ok(header) => Ok(header.unwrap().1),
            Err(error) => {
                assert_eq!(
                    Header::parse(&bytes[..2]),
                    Err(error),
                    "two octets must be enough to find the error"
                );
                let Cause { layer, etype, code } = error.cause();
                Err((layer, (etype, code)))
            }
        };
        assert_eq!(found, expected, "{control:#06x}");
    }
}

#[test]
fn incomplete_headers_wait() {
    for bytes in [
        &[0xC1, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..],
        &[0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let size = if bytes[0] & 0x80 != 0 { 14 } else { 18 };
        for len in 0..bytes.len().min(size) {
            assert_eq!(Header::parse(&bytes[..len]), Ok(None));
        }
    }
}

#[test]
fn ulpdus_shorter_than_their_header() {
    let header = WRITE;
    assert_eq!(header.payload_len(14), Ok(0));
    assert_eq!(header.payload_len(65535), Ok(65521));
    let error = header.payload_len(13).unwrap_err();
    assert_eq!(error.cause(), Cause::MPA_LENGTH);
    assert_eq!(error.to_string(), "ULPDU of 13 octets is shorter than its header");
}

#[test]
fn errors_speak() {
    let error = |bytes: &[u8]| Header::parse(bytes).unwrap_err().to_string();
    assert_eq!(error(&[0x42, 0x43]), "DDP version 2; only 1 is known");
    assert_eq!(error(&[0x41, 0xC3]), "RDMAP version 3; only 1 is known");
    assert_eq!(error(&[0xC1, 0x43]), "unexpected opcode 0x3 in a tagged segment");
    assert_eq!(error(&[0x41, 0x4C]), "unexpected opcode 0xc in an untagged segment");
}

/// The octets are the READ request of the rping capture.
#[test]
fn read_request() {
    let bytes = [
        0x5B, 0x86, 0x5C, 0x00, 0x00, 0x00, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30, 0x00, 0x00, 0x00,
        0x40, 0x00, 0x00, 0x12, 0x34, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00,
    ];
    let request = ReadRequest {
        sink_stag: 0x5B86_5C00,
        sink_to: 0x55A0_F357_7130,
        len: 64,
        source_stag: 0x1234,
        source_to: 0x1000,
    };
    assert_eq!(ReadRequest::parse(&bytes), Some(request));
    assert_eq!(ReadRequest::parse(&bytes[..27]), None);
    let mut buf = [0; ReadRequest::SIZE];
    assert_eq!(request.emit(&mut buf), 28);
    assert_eq!(buf, bytes);
    assert_eq!(
        request.to_string(),
        "len=64 source=0x00001234+0x1000 sink=0x5b865c00+0x55a0f3577130"
    );
}
