use super::*;
use crate::iwarp::{MAX_HEADER, Placement, TaggedOpcode, UntaggedOpcode};

fn emit(terminate: Terminate) -> Vec<u8> {
    let mut buf = [0xEE; Terminate::MAX_SIZE];
    let len = terminate.emit(&mut buf);
    assert_eq!(len, terminate.len());
    assert!(
        buf[len..].iter().all(|&octet| octet == 0xEE),
        "octets beyond the returned length must stay unchanged"
    );
    buf[..len].to_vec()
}

fn write_header() -> TerminatedHeader {
    Header::Tagged {
        last: true,
        opcode: TaggedOpcode::Write,
        placement: Placement::Unsaid,
        stag: 0xBAD,
        to: 0x1000,
    }
    .into()
}

fn read_header() -> TerminatedHeader {
    let opcode = UntaggedOpcode::ReadRequest;
    Header::Untagged { last: true, opcode, invalidate: 0, qn: 1, msn: 1, mo: 0 }.into()
}

fn send_header() -> TerminatedHeader {
    let opcode = UntaggedOpcode::Send;
    Header::Untagged { last: true, opcode, invalidate: 0, qn: 0, msn: 3, mo: 0 }.into()
}

const READ: ReadRequest =
    ReadRequest { sink_stag: 1, sink_to: 2, len: 3, source_stag: 4, source_to: 5 };

/// TERMINATE messages that were written by hand, field by field, because no capture contains one.
/// Sources: RFC 5041 (sections 4.2 and 4.3: DDP's headers) and RFC 5040 (section 4.1: RDMAP's
/// octet, section 4.4: READ request, section 4.8: TERMINATE).
#[test]
fn octets_of_the_standard() {
    /// The headers of the TERMINATE itself: untagged, last, DDP version 1; RDMAP version 1, opcode
    /// 7; reserved; queue 2, MSN 1, offset 0.
    const MESSAGE: [u8; 18] = [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
    #[rustfmt::skip]
    let cases: [(&[u8], Terminate); 4] = [
        // The cause is LLP (2), MPA (0), CRC (2). No header is included.
        (&[0x20, 0x02, 0b000_00000, 0], Terminate::new(Cause::MPA_CRC)),
        // The cause is DDP (1), tagged buffer (1), invalid STag (0). M and D are set: 78 octets, a
        // WRITE to STag 0xBAD at 0x1000.
        (&[
            0x11, 0x00, 0b110_00000, 0,
            0x00, 0x4E,
            0xC1, 0x40, 0x00, 0x00, 0x0B, 0xAD, 0, 0, 0, 0, 0, 0, 0x10, 0x00,
        ], Terminate { segment_len: Some(78), header: Some(write_header()), ..Terminate::new(Cause::TAGGED_STAG) }),
        // The cause is DDP (1), untagged buffer (2), no buffer (2). D is set without M: the length
        // field is present but has no meaning.
        (&[
            0x12, 0x02, 0b010_00000, 0,
            0x00, 0x00,
            0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,
        ], Terminate { header: Some(send_header()), ..Terminate::new(Cause::UNTAGGED_NO_BUFFER) }),
        // The cause is RDMAP (0), remote protection (1), base and bounds (1). M, D and R are set: a
        // READ request of 46 octets.
        (&[
            0x01, 0x01, 0b111_00000, 0,
            0x00, 0x2E,
            0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0,
            0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5,
        ], Terminate {
            segment_len: Some(46),
            header: Some(read_header()),
            read_request: Some(READ),
            ..Terminate::new(Cause::PROTECTION_BOUNDS)
        }),
    ];
    for (octets, terminate) in cases {
        let ulpdu = [&MESSAGE, octets].concat();
        let (header, size) = Header::parse(&ulpdu).unwrap().unwrap();
        let opcode = UntaggedOpcode::Terminate;
        assert_eq!(
            header,
            Header::Untagged { last: true, opcode, invalidate: 0, qn: 2, msn: 1, mo: 0 }
        );
        assert_eq!(
            Terminate::parse(&ulpdu[size..]),
            Ok((terminate, BitOrder::Standard)),
            "{terminate}"
        );
        let mut emitted = [0xEE; MAX_HEADER];
        assert_eq!(header.emit(&mut emitted), MESSAGE.len());
        assert_eq!(emitted[..MESSAGE.len()], MESSAGE);
        assert_eq!(emit(terminate), octets, "{terminate}");
    }
}

/// Four failures that were observed at a siw peer. Each is given twice: in siw's bit order and in
/// the standard's bit order.
#[test]
fn both_orders() {
    let with_header = |cause, header, read_request| Terminate {
        cause,
        segment_len: Some(0x4E),
        header: Some(header),
        read_request,
    };
    let cases = [
        (
            [0x11, 0, 3, 0],
            [0x11, 0, 0xC0, 0],
            with_header(Cause::TAGGED_STAG, write_header(), None),
        ),
        (
            [0x21, 2, 3, 0],
            [0x12, 2, 0xC0, 0],
            with_header(Cause::UNTAGGED_NO_BUFFER, send_header(), None),
        ),
        (
            [0x10, 0, 7, 0],
            [0x01, 0, 0xE0, 0],
            with_header(Cause::PROTECTION_STAG, read_header(), Some(READ)),
        ),
        ([0x02, 4, 0, 0], [0x20, 4, 0, 0], Terminate::new(Cause::MPA_SETUP)),
    ];
    for (mirrored, standard, terminate) in cases {
        let mut bytes = emit(terminate);
        assert_eq!(bytes[..4], standard);
        assert_eq!(Terminate::parse(&bytes), Ok((terminate, BitOrder::Standard)));
        bytes[..4].copy_from_slice(&mirrored);
        assert_eq!(Terminate::parse(&bytes), Ok((terminate, BitOrder::Mirrored)), "{terminate}");
    }
}

/// Without headers the control word may be ambiguous. The standard order takes precedence.
#[test]
fn ambiguous_orders() {
    let parse =
        |control: [u8; 4]| Terminate::parse(&control).map(|(t, order)| (t.cause, order)).unwrap();
    let (standard, mirrored) = (BitOrder::Standard, BitOrder::Mirrored);
    assert_eq!(parse([0x02, 6, 0, 0]), (Cause::UNEXPECTED_OPCODE, standard));
    assert_eq!(parse([0x02, 4, 0, 0]), (Cause::MPA_SETUP, mirrored));
    assert_eq!(parse([0x20, 6, 0, 0]), (Cause::MPA_IRD, standard));
    assert_eq!(parse([0x20, 9, 0, 0]), (Cause::OPERATION_INVALIDATE, mirrored));
    assert_eq!(parse([0, 0, 0, 0]), (Cause::RDMAP_CATASTROPHIC, standard));
    assert_eq!(parse([0, 0x77, 0, 0]).1, standard);
    assert_eq!(parse([0xF3, 0x77, 0, 0]), (Cause { layer: 15, etype: 3, code: 0x77 }, standard));
}

#[test]
fn whatever_is_included_comes_back() {
    for segment_len in [None, Some(0), Some(65535)] {
        for header in [None, Some(write_header()), Some(read_header())] {
            for read_request in [None, Some(READ)] {
                let terminate = Terminate {
                    cause: Cause::OPERATION_UNSPECIFIED,
                    segment_len,
                    header,
                    read_request,
                };
                let bytes = emit(terminate);
                assert_eq!(Terminate::parse(&bytes), Ok((terminate, BitOrder::Standard)));
                for len in 0..bytes.len() {
                    assert_eq!(Terminate::parse(&bytes[..len]), Err(TerminateError { len }));
                }
            }
        }
    }
    let longest = Terminate {
        cause: Cause::PROTECTION_BOUNDS,
        segment_len: Some(46),
        header: Some(read_header()),
        read_request: Some(READ),
    };
    assert_eq!(emit(longest).len(), Terminate::MAX_SIZE);
    assert_eq!(
        longest.to_string(),
        "RDMAP remote protection: base/bounds violation; in READ request qn=1 msn=1 mo=0 last \
         ulpdu=46 \
         (len=3 source=0x00000004+0x5 sink=0x00000001+0x2)"
    );
}

/// The numbers are those of RFC 5040, figure 9; RFC 5041, section 7.2; RFC 5044, section 8; RFC
/// 6581, section 8.
#[test]
fn causes_have_their_numbers() {
    let numbers = |layer, etype| -> Vec<u8> {
        let of_kind =
            Cause::ALL.iter().filter(|cause| (cause.layer, cause.etype) == (layer, etype));
        of_kind.map(|cause| cause.code).collect()
    };
    assert_eq!(numbers(0, 0), [0]);
    assert_eq!(numbers(0, 1), [0, 1, 2, 3, 4, 9, 0xFF]);
    assert_eq!(numbers(0, 2), [5, 6, 7, 8, 9, 0xFF]);
    assert_eq!(numbers(1, 0), [0]);
    assert_eq!(numbers(1, 1), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(1, 2), [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(2, 0), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(Cause::ALL.len(), 1 + 7 + 6 + 1 + 5 + 6 + 7);
}

#[test]
fn causes_speak() {
    let words = |layer, etype, code| Cause { layer, etype, code }.to_string();
    assert_eq!(words(0, 1, 1), "RDMAP remote protection: base/bounds violation");
    assert_eq!(words(1, 2, 2), "DDP untagged buffer: invalid MSN, no buffer available");
    assert_eq!(words(2, 0, 2), "MPA: CRC mismatch");
    assert_eq!(words(2, 0, 0x2A), "MPA: error code 0x2a");
    assert_eq!(words(0, 0, 7), "RDMAP local catastrophic error: error code 0x07");
    assert_eq!(words(9, 3, 1), "layer 9, error type 3: error code 0x01");
    assert_eq!(format!("{:?}", Cause::MPA_CRC), "Cause(2/0/2: MPA: CRC mismatch)");
}

/// A TERMINATE includes a header unchanged, even if no parser would accept that header.
#[test]
fn bad_headers_are_kept() {
    let ulpdu = [0x42, 0x43, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];
    let header = TerminatedHeader::new(&ulpdu).unwrap();
    assert_eq!(header.as_bytes(), &ulpdu[..18]);
    assert_eq!(header.to_string(), "bad header: DDP version 2; only 1 is known");
    assert_eq!(TerminatedHeader::new(&[0xC2; 13]), None);
    assert_eq!(TerminatedHeader::new(&[0xC2; 14]).unwrap().as_bytes(), [0xC2; 14]);
    assert_eq!(TerminatedHeader::new(&[]), None);
}
