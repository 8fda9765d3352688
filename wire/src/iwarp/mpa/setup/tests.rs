use super::*;

const ONE: ReadDepth = ReadDepth::new(1);
const ZERO: ReadDepth = ReadDepth::new(0);

fn frame(key: &[u8; 16], rest: &[u8]) -> Vec<u8> {
    [key, rest].concat()
}

fn request(rest: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", rest)
}

fn reply(rest: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", rest)
}

fn parse(kind: SetupKind, bytes: &[u8]) -> Setup<'_> {
    match Setup::parse(kind, bytes) {
        Ok(SetupProgress::Frame(setup, consumed)) => {
            assert_eq!(consumed, bytes.len());
            setup
        }
        other => panic!("{other:?}"),
    }
}

fn emit(setup: &Setup<'_>) -> Vec<u8> {
    let mut buf = vec![];
    setup.emit(&mut buf).unwrap();
    buf
}

/// Frames captured between siw peers, or between siw and a user-space peer.
#[test]
fn frames_of_siw() {
    use SetupKind::{Reply, Request};
    let client_server = Enhanced::new(ONE, ONE);
    let write_rtr = Enhanced { peer_to_peer: true, rtr_write: true, ..client_server };
    let read_rtr = Enhanced { peer_to_peer: true, rtr_read: true, ..client_server };
    let with_crc = Setup { crc: true, ..Setup::new(Reply, client_server, &[]) };
    let greeting = b"DAPL and RDMA rule! Test 4321.";
    let cases: [(Vec<u8>, Setup<'_>, &str); 7] = [
        (
            request(&[0x10, 2, 0, 4, 0, 1, 0, 1]),
            Setup::new(Request, client_server, &[]),
            "MPA request rev=2 ird=1 ord=1 private=0",
        ),
        (
            request(&[&[0x10, 2, 0, 0x22, 0, 4, 0, 4], &greeting[..]].concat()),
            Setup::new(Request, Enhanced::new(ReadDepth::new(4), ReadDepth::new(4)), greeting),
            "MPA request rev=2 ird=4 ord=4 private=30",
        ),
        (
            reply(&[0x50, 2, 0, 4, 0, 1, 0, 1]),
            with_crc,
            "MPA reply rev=2 ird=1 ord=1 crc private=0",
        ),
        (
            reply(&[0x30, 2, 0, 4, 0, 0, 0, 0]),
            Setup { rejected: true, ..Setup::new(Reply, Enhanced::new(ZERO, ZERO), &[]) },
            "MPA reply rev=2 ird=0 ord=0 REJECTED private=0",
        ),
        (
            reply(&[0x10, 2, 0, 4, 0x80, 1, 0x80, 1]),
            Setup::new(Reply, write_rtr, &[]),
            "MPA reply rev=2 ird=1 ord=1 peer-to-peer rtr-write private=0",
        ),
        (
            reply(&[0x10, 2, 0, 4, 0x80, 1, 0x40, 1]),
            Setup::new(Reply, read_rtr, &[]),
            "MPA reply rev=2 ird=1 ord=1 peer-to-peer rtr-read private=0",
        ),
        (
            reply(&[0, 1, 0, 0]),
            Setup { revision: Revision::One, ..Setup::new(Reply, client_server, &[]) },
            "MPA reply rev=1 private=0",
        ),
    ];
    for (bytes, setup, words) in cases {
        assert_eq!(parse(setup.kind, &bytes), setup);
        assert_eq!(emit(&setup), bytes);
        assert_eq!(setup.to_string(), words);
    }
}

#[test]
fn octets_come_one_by_one() {
    let bytes = request(&[0xD8, 2, 0, 7, 0x3F, 0xFF, 0x3F, 0xFF, 1, 2, 3]);
    for len in 0..bytes.len() {
        let needed = if len < 20 { 20 } else { 27 };
        assert_eq!(
            Setup::parse(SetupKind::Request, &bytes[..len]),
            Ok(SetupProgress::Incomplete(needed))
        );
    }
    let setup = parse(SetupKind::Request, &bytes);
    assert!(setup.markers && setup.crc && setup.gso && !setup.rejected);
    let enhanced = setup.enhanced().unwrap();
    assert_eq!((enhanced.ird, enhanced.ord), (ReadDepth::UNNEGOTIATED, ReadDepth::UNNEGOTIATED));
    assert_eq!(setup.private_data, [1, 2, 3]);
    assert_eq!(
        setup.to_string(),
        "MPA request rev=2 ird=unnegotiated ord=unnegotiated markers crc gso private=3"
    );

    // The octets after the frame are not part of the frame.
    let more = [&bytes[..], b"FPDU"].concat();
    assert_eq!(Setup::parse(SetupKind::Request, &more), Ok(SetupProgress::Frame(setup, 27)));
}

/// siw reflects bits of a request that it does not know. The reflected bit must not enable the
/// extension.
#[test]
fn the_answer_to_extended_is_another_bit() {
    let extended = |kind, frame: &[u8]| parse(kind, frame).extended;
    let ask = request(&[0x19, 2, 0, 4, 0, 1, 0, 1]);
    let reflected = reply(&ask[16..]);
    assert!(extended(SetupKind::Request, &ask) && !extended(SetupKind::Reply, &reflected));
    let yes = reply(&[0x1A, 2, 0, 4, 0, 1, 0, 1]);
    assert!(extended(SetupKind::Reply, &yes));
    for (kind, frame) in [(SetupKind::Request, ask), (SetupKind::Reply, yes)] {
        assert_eq!(emit(&parse(kind, &frame)), frame);
    }
}

#[test]
fn revision_two_without_enhanced_data() {
    let bytes = request(&[0, 2, 0, 2, 8, 9]);
    let setup = parse(SetupKind::Request, &bytes);
    assert_eq!((setup.revision, setup.private_data), (Revision::Two(None), &[8, 9][..]));
    assert_eq!(emit(&setup), bytes);
}

/// Reserved bits are ignored (RFC 5044, section 7.1.1). The S flag is reserved in revision 1, and
/// the R flag is reserved in a request.
#[test]
fn reserved_bits_are_not_looked_at() {
    let bytes = request(&[0x37, 1, 0, 0]);
    let setup = parse(SetupKind::Request, &bytes);
    assert_eq!(setup.revision, Revision::One);
    assert!(!setup.rejected);
    assert_eq!(emit(&setup), request(&[0, 1, 0, 0]));
}

#[test]
fn refused_frames() {
    use SetupKind::{Reply, Request};
    let cases: [(SetupKind, Vec<u8>, SetupError, &str); 7] = [
        (
            Request,
            b"GET / HTTP".to_vec(),
            SetupError::Key { expected: Request },
            "not an MPA request frame",
        ),
        (
            Request,
            b"MPA ID Rep".to_vec(),
            SetupError::Key { expected: Request },
            "not an MPA request frame",
        ),
        (Reply, request(&[]), SetupError::Key { expected: Reply }, "not an MPA reply frame"),
        (
            Request,
            request(&[0, 0, 0, 0]),
            SetupError::Revision { revision: 0 },
            "MPA revision 0 is not supported; 1 and 2 are",
        ),
        (
            Request,
            request(&[0, 3, 0, 0]),
            SetupError::Revision { revision: 3 },
            "MPA revision 3 is not supported; 1 and 2 are",
        ),
        (
            Reply,
            reply(&[0x10, 2, 2, 1]),
            SetupError::PrivateData { len: 513 },
            "513 octets of MPA private data; at most 512",
        ),
        (
            Reply,
            reply(&[0x10, 2, 0, 3]),
            SetupError::Enhanced { len: 3 },
            "enhanced MPA setup with 3 octets of private data; at least 4",
        ),
    ];
    for (kind, bytes, error, words) in cases {
        assert_eq!(Setup::parse(kind, &bytes), Err(error));
        assert_eq!((error.cause(), error.to_string().as_str()), (Cause::MPA_SETUP, words));
    }
}

#[test]
fn private_data_has_a_limit() {
    let data = [7; MAX_PRIVATE_DATA + 1];
    let longest =
        Setup::new(SetupKind::Request, Enhanced::new(ONE, ONE), &data[..MAX_PRIVATE_DATA - 4]);
    let bytes = emit(&longest);
    assert_eq!(bytes.len(), MAX_SETUP);
    assert_eq!(parse(SetupKind::Request, &bytes), longest);

    let mut buf = b"before".to_vec();
    let longer = Setup { private_data: &data[..MAX_PRIVATE_DATA - 3], ..longest };
    assert_eq!(longer.emit(&mut buf), Err(SetupError::PrivateData { len: 513 }));
    assert_eq!(buf, b"before");
}

#[test]
fn read_depths() {
    assert_eq!(ReadDepth::new(0).reads(), Some(0));
    assert_eq!(ReadDepth::new(0x3FFE), ReadDepth::MAX);
    assert_eq!(ReadDepth::new(0x3FFF), ReadDepth::MAX);
    assert_eq!(ReadDepth::new(u32::MAX).reads(), Some(0x3FFE));
    assert_eq!(ReadDepth::UNNEGOTIATED.reads(), None);
}
