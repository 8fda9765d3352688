//! Properties of iWARP.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use wire::iwarp::mpa::fpdu::{fpdu_len, write_crc};
use wire::iwarp::mpa::{MAX_PRIVATE_DATA, MAX_SETUP};
use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, BitOrder, Cause, Enhanced, Fpdu, Header, Immediate,
    Placement, ReadDepth, ReadRequest, Revision, Setup, SetupKind, SetupProgress, TaggedOpcode,
    Terminate, TerminatedHeader, UntaggedOpcode,
};

proptest! {
    #[test]
    fn headers_come_back(header in header(), payload in vec(any::<u8>(), 0..8)) {
        let mut bytes = [0; 18];
        let len = header.emit(&mut bytes);
        prop_assert_eq!(len, header.len());
        let ulpdu = [&bytes[..len], &payload].concat();
        prop_assert_eq!(Header::parse(&ulpdu), Ok(Some((header, len))));
        for short in 0..len {
            prop_assert_eq!(Header::parse(&ulpdu[..short]), Ok(None));
        }
    }

    #[test]
    fn any_octets_as_header(bytes in vec(any::<u8>(), 0..24)) {
        let whole = Header::parse(&bytes);
        for len in 0..bytes.len() {
            let part = Header::parse(&bytes[..len]);
            prop_assert!(part == Ok(None) || part == whole, "more octets change {part:?} to \
                {whole:?}");
        }
        match whole {
            Ok(Some((header, len))) => {
                let mut again = [0; 18];
                prop_assert_eq!(header.emit(&mut again), len);
                prop_assert_eq!(Header::parse(&again[..len]), Ok(Some((header, len))));
                prop_assert!(!header.to_string().is_empty());
            }
            Ok(None) => prop_assert!(bytes.len() < 18),
            Err(error) => prop_assert!(Cause::ALL.contains(&error.cause())),
        }
    }

    #[test]
    fn read_requests_come_back(request in read_request()) {
        let mut bytes = [0; ReadRequest::SIZE];
        request.emit(&mut bytes);
        prop_assert_eq!(ReadRequest::parse(&bytes), Some(request));
    }

    #[test]
    fn bodies_of_extensions_come_back(request in atomic_request(), id in any::<u32>(), original in any::<u64>()) {
        let mut bytes = [0; AtomicRequest::SIZE];
        request.emit(&mut bytes);
        prop_assert_eq!(AtomicRequest::parse(&bytes), Some(Ok(request)));
        let response = AtomicResponse { id, original };
        response.emit(&mut bytes);
        prop_assert_eq!(AtomicResponse::parse(&bytes), Some(response));
        Immediate(id).emit(&mut bytes);
        prop_assert_eq!(Immediate::parse(&bytes), Some(Immediate(id)));
    }

    #[test]
    fn any_octets_as_atomic_request(bytes in vec(any::<u8>(), 0..60)) {
        match AtomicRequest::parse(&bytes) {
            None => prop_assert!(bytes.len() < AtomicRequest::SIZE),
            Some(Ok(request)) => {
                let mut again = [0; AtomicRequest::SIZE];
                request.emit(&mut again);
                prop_assert_eq!(AtomicRequest::parse(&again), Some(Ok(request)));
            }
            Some(Err(error)) => prop_assert!(![0, 2].contains(&error.code)),
        }
    }

    /// The sum is compared with the definition in RFC 7306, bit by bit.
    #[test]
    fn masked_addition(original in any::<u64>(), add in any::<u64>(), mask in masks()) {
        let (mut expected, mut carry) = (0, 0);
        for bit in 0..64 {
            let sum = carry + (original >> bit & 1) + (add >> bit & 1);
            expected |= (sum & 1) << bit;
            carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
        }
        prop_assert_eq!(AtomicOp::FetchAdd { add, mask }.apply(original), expected);
    }

    #[test]
    fn setup_frames_come_back(
        (kind, revision) in (select(&[SetupKind::Request, SetupKind::Reply][..]), revision()),
        [markers, crc, rejected, gso, extended] in any::<[bool; 5]>(),
        private_data in vec(any::<u8>(), 0..=MAX_PRIVATE_DATA - Enhanced::SIZE),
        next in vec(any::<u8>(), 0..8),
    ) {
        let rejected = rejected && kind == SetupKind::Reply;
        let extended = extended && matches!(revision, Revision::Two(Some(_)));
        let setup = Setup { kind, markers, crc, rejected, gso, extended, revision, private_data: &private_data };
        let mut bytes = vec![];
        setup.emit(&mut bytes).unwrap();
        let len = bytes.len();
        prop_assert!(len <= MAX_SETUP);
        bytes.extend_from_slice(&next);
        prop_assert_eq!(Setup::parse(kind, &bytes), Ok(SetupProgress::Frame(setup, len)));
        // A reader that follows the announced lengths needs two reads and never reads too far.
        prop_assert_eq!(Setup::parse(kind, &[]), Ok(SetupProgress::Incomplete(20)));
        if len > 20 {
            prop_assert_eq!(Setup::parse(kind, &bytes[..20]), Ok(SetupProgress::Incomplete(len)));
        }
    }

    #[test]
    fn any_octets_as_setup_frame(key_len in 0..=16_usize, tail in vec(any::<u8>(), 0..600)) {
        let bytes = [&b"MPA ID Req Frame"[..key_len], &tail].concat();
        let whole = Setup::parse(SetupKind::Request, &bytes);
        if let Ok(SetupProgress::Frame(setup, len)) = whole {
            prop_assert!(len <= MAX_SETUP && len <= bytes.len() && setup.private_data.len() <= MAX_PRIVATE_DATA);
            let mut again = vec![];
            setup.emit(&mut again).unwrap();
            prop_assert_eq!(Setup::parse(SetupKind::Request, &again), Ok(SetupProgress::Frame(setup, len)));
        }
        for len in [0, 1, 15, 16, 19, 20, 21].into_iter().filter(|&len| len < bytes.len()) {
            match Setup::parse(SetupKind::Request, &bytes[..len]) {
                Ok(SetupProgress::Incomplete(needed)) => prop_assert!(needed > len && needed <= MAX_SETUP),
                part => prop_assert_eq!(part.is_err(), whole.is_err()),
            }
        }
    }

    #[test]
    fn terminates_come_back(
        cause in select(Cause::ALL),
        segment_len in any::<u16>(),
        header in header().prop_map(TerminatedHeader::from),
        read_request in option::of(read_request()),
        mirrored in any::<bool>(),
    ) {
        let terminate = Terminate { cause, segment_len: Some(segment_len), header: Some(header), read_request };
        let mut bytes = [0; Terminate::MAX_SIZE];
        let len = terminate.emit(&mut bytes);
        let order = if mirrored { BitOrder::Mirrored } else { BitOrder::Standard };
        if mirrored {
            bytes[0] = bytes[0].rotate_left(4);
            bytes[2] = bytes[2].reverse_bits();
        }
        prop_assert_eq!(Terminate::parse(&bytes[..len]), Ok((terminate, order)));
    }

    #[test]
    fn any_octets_as_terminate(bytes in vec(any::<u8>(), 0..64)) {
        match Terminate::parse(&bytes) {
            Ok((terminate, _)) => {
                let mut again = [0; Terminate::MAX_SIZE];
                let len = terminate.emit(&mut again);
                prop_assert!(len <= bytes.len());
                let again = Terminate::parse(&again[..len]).unwrap().0;
                // Without headers, the bit order of a cause outside the standards cannot be
                // recognised.
                if terminate.segment_len.is_some() || terminate.header.is_some() || terminate.read_request.is_some() {
                    prop_assert_eq!(again, terminate);
                }
                prop_assert!(!terminate.to_string().is_empty());
            }
            Err(error) => prop_assert_eq!(error.len, bytes.len()),
        }
    }

    #[test]
    fn frames_come_back(ulpdu in vec(any::<u8>(), 0..5000), flip in any::<prop::sample::Index>()) {
        let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
        frame.extend_from_slice(&ulpdu);
        frame.resize(fpdu_len(ulpdu.len()), 0);
        write_crc(&mut frame);

        let fpdu = Fpdu::parse(&frame).unwrap();
        prop_assert_eq!((fpdu.ulpdu(), fpdu.len(), fpdu.check_crc()), (&ulpdu[..], frame.len(), Ok(())));
        prop_assert!(Fpdu::parse(&frame[..frame.len() - 1]).is_none());

        let bit = 16 + flip.index((frame.len() - 2) * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Fpdu::parse(&frame).unwrap().check_crc().is_err());
    }

    #[test]
    fn any_octets_as_frame(bytes in vec(any::<u8>(), 0..300), small in any::<bool>()) {
        let mut bytes = bytes;
        if let (true, Some(high)) = (small, bytes.first_mut()) {
            *high = 0;
        }
        if let Some(fpdu) = Fpdu::parse(&bytes) {
            prop_assert!(fpdu.len() <= bytes.len() && fpdu.len() % 4 == 0 && fpdu.ulpdu().len() + 6 <= fpdu.len());
            prop_assert!(!fpdu.to_string().is_empty());
        }
    }
}

fn header() -> impl Strategy<Value = Header> {
    const PLACEMENTS: [Placement; 3] = [Placement::Unsaid, Placement::Wanted, Placement::Reported];
    let kind = (select(&TaggedOpcode::ALL[..]), select(&PLACEMENTS[..]));
    let tagged = (any::<bool>(), kind, any::<u32>(), any::<u64>()).prop_map(
        |(last, (opcode, placement), stag, to)| Header::Tagged {
            last,
            opcode,
            placement,
            stag,
            to,
        },
    );
    let untagged = (any::<bool>(), select(&UntaggedOpcode::ALL[..]), any::<[u32; 4]>()).prop_map(
        |(last, opcode, [stag, qn, msn, mo])| {
            let invalidate = if opcode.invalidates() { stag } else { 0 };
            Header::Untagged { last, opcode, invalidate, qn, msn, mo }
        },
    );
    prop_oneof![tagged, untagged]
}

fn read_request() -> impl Strategy<Value = ReadRequest> {
    (any::<[u32; 3]>(), any::<[u64; 2]>()).prop_map(
        |([sink_stag, len, source_stag], [sink_to, source_to])| ReadRequest {
            sink_stag,
            sink_to,
            len,
            source_stag,
            source_to,
        },
    )
}

fn revision() -> impl Strategy<Value = Revision> {
    let depth =
        || prop_oneof![(0..=0x3FFE_u32).prop_map(ReadDepth::new), Just(ReadDepth::UNNEGOTIATED)];
    let enhanced = (any::<[bool; 4]>(), depth(), depth()).prop_map(
        |([peer_to_peer, rtr_send, rtr_write, rtr_read], ird, ord)| Enhanced {
            peer_to_peer,
            rtr_send,
            rtr_write,
            rtr_read,
            ird,
            ord,
        },
    );
    prop_oneof![Just(Revision::One), option::of(enhanced).prop_map(Revision::Two)]
}

fn masks() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(0x8080_8080_8080_8080), any::<u64>()]
}

fn atomic_request() -> impl Strategy<Value = AtomicRequest> {
    let fetch_add =
        (any::<u64>(), masks()).prop_map(|(add, mask)| AtomicOp::FetchAdd { add, mask });
    let cmp_swap = any::<[u64; 4]>().prop_map(|[swap, swap_mask, compare, compare_mask]| {
        AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask }
    });
    let place = (any::<u32>(), any::<u32>(), any::<u64>());
    (place, prop_oneof![fetch_add, cmp_swap]).prop_map(|((id, stag, to), op)| AtomicRequest {
        id,
        stag,
        to,
        op,
    })
}
