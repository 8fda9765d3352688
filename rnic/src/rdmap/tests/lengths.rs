//! The boundaries of each comparison of lengths on the way of received octets, as one table: the
//! FPDU, its header and body, the message, the memory, and what is read straight to its
//! destination.

use wire::iwarp::mpa::fpdu::{MAX_ULPDU, fpdu_len};
use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, Header, Immediate, Placement, ReadRequest,
    TaggedOpcode, Terminate, UntaggedOpcode,
};

use super::super::setup::{Recognition, SIGNATURE};
use super::super::vec::GatherId;
use super::errors::{fpdu, read_frame, send_frame, tagged_frame, ulpdu, write_frame};
use super::extended::{atomic, atomic_response, immediate};
use super::*;

/// The number of octets that are compared with a receive, a region, or the response to a read.
const SOME: usize = 100;

/// What becomes of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They are a part of a frame, and more octets are needed.
    Partial,
    Taken,
    Refused(Cause),
}

use Fate::{Partial, Refused, Taken};

const CRC: Fate = Refused(Cause::MPA_CRC);
const LENGTH: Fate = Refused(Cause::MPA_LENGTH);
const BOUNDS: Fate = Refused(Cause::TAGGED_BOUNDS);

/// A side with a region of `SOME` octets and a receive of that size.
struct Target {
    side: Side,
    buf: Buf,
}

impl Target {
    fn new(crc: bool) -> Target {
        let cfg = StreamCfg { crc, extended: true, ird: 2, ..cfg() };
        let side = Side::new(cfg);
        let buf = side.buf(SOME);
        side.recv(1, &[buf.seg(0, SOME)]);
        Target { side, buf }
    }

    /// Sends a request whose response is the subject.
    fn ask(&mut self, wr: SendWr<'_>) {
        self.side.post(wr);
        let n = self.side.stream.tx(&mut self.side.tx).unwrap();
        self.side.stream.tx_done(&mut self.side.tx, n);
    }

    fn take(&mut self, octets: &[u8]) -> Fate {
        match self.side.stream.rx_octets(octets) {
            Err(failure) => Refused(failure.cause),
            Ok(()) if self.side.stream.is_mid_message() => Partial,
            Ok(()) => Taken,
        }
    }

    /// Feeds a frame with the right CRC, if the stream has CRCs.
    fn frame(&mut self, ulpdu: &[u8]) -> Fate {
        let crc = self.side.stream.crc;
        self.take(&fpdu(ulpdu, crc))
    }
}

/// A whole FPDU with a ULPDU of `len` octets. A bit of one octet has changed: 1 is the last octet.
fn damaged(len: usize, from_end: usize) -> Fate {
    let mut target = Target::new(true);
    let (stag, to) = (target.buf.key(), target.buf.addr());
    let mut octets = fpdu(&write_frame(stag, to, true, &vec![7; len - 14]), true);
    let at = octets.len() - from_end;
    octets[at] ^= 1;
    let fate = target.take(&octets);
    assert_eq!(target.buf.octets(), [0; SOME], "a damaged frame was placed");
    fate
}

/// The first `octets` octets of an FPDU with a ULPDU of `len` octets.
fn begun(crc: bool, len: usize, octets: usize) -> Fate {
    let mut target = Target::new(crc);
    let (stag, to) = (target.buf.key(), target.buf.addr());
    target.take(&fpdu(&write_frame(stag, to, true, &vec![7; len - 14]), crc)[..octets])
}

/// A ULPDU of this length: a WRITE that is cut off, or followed by zeros.
fn ulpdu_of(crc: bool, control: [u8; 2], len: usize) -> Fate {
    let mut target = Target::new(crc);
    let mut ulpdu = vec![0; len];
    for (octet, value) in ulpdu.iter_mut().zip(control) {
        *octet = value;
    }
    if control[0] & 0x80 == 0 && len >= 14 {
        ulpdu[13] = 1;
    }
    target.frame(&ulpdu)
}

/// A message of fixed size whose body is `change` octets longer than it must be.
fn body(crc: bool, frame: impl Fn(&Target) -> Vec<u8>, ask: Asked, change: isize) -> Fate {
    let mut target = Target::new(crc);
    let remote = Remote { addr: 0, key: 1 };
    let sink = [target.buf.seg(0, 8)];
    match ask {
        Asked::Nothing => {}
        Asked::Atomic => target.ask(fetch_add(1, &sink, remote, 1)),
    }
    let mut ulpdu = frame(&target);
    ulpdu.resize(ulpdu.len().strict_add_signed(change), 0);
    target.frame(&ulpdu)
}

#[derive(Clone, Copy)]
enum Asked {
    Nothing,
    Atomic,
}

/// A SEND in frames with these payloads, to a receive of `SOME` octets.
fn sends(crc: bool, payloads: &[usize]) -> Fate {
    let mut target = Target::new(crc);
    let (mut mo, mut fate) = (0, Taken);
    for (n, &len) in payloads.iter().enumerate() {
        let last = n + 1 == payloads.len();
        fate = target.frame(&send_frame(1, mo as u32, last, &vec![1; len]));
        mo += len;
    }
    fate
}

/// A WRITE in frames with these payloads, to the octets of the region from `at` on.
fn writes(crc: bool, at: usize, payloads: &[usize]) -> Fate {
    let mut target = Target::new(crc);
    let (stag, mut to) = (target.buf.key(), target.buf.addr() + at as u64);
    let mut fate = Taken;
    for (n, &len) in payloads.iter().enumerate() {
        let last = n + 1 == payloads.len();
        fate = target.frame(&write_frame(stag, to, last, &vec![1; len]));
        to += len as u64;
    }
    fate
}

/// A READ request for `len` octets from `at` on. It is refused when it is answered.
fn read_of(at: usize, len: usize) -> Fate {
    let mut target = Target::new(false);
    let (source_stag, source_to) = (target.buf.key(), target.buf.addr() + at as u64);
    let request = ReadRequest { sink_stag: 1, sink_to: 0, len: len as u32, source_stag, source_to };
    assert_eq!(target.frame(&read_frame(1, request)), Taken);
    match target.side.stream.tx(&mut target.side.tx) {
        Ok(_) => Taken,
        Err(failure) => Refused(failure.cause),
    }
}

/// A response in frames with these payloads, to a read of `SOME` octets.
fn responses(crc: bool, payloads: &[usize]) -> Fate {
    let mut target = Target::new(crc);
    let segments = [target.buf.seg(0, SOME)];
    target.ask(read(1, &segments, Remote { addr: 0, key: 1 }));
    let (stag, mut to) = (target.side.stream.reads.sink_stag, 1 << 32);
    let mut fate = Taken;
    for (n, &len) in payloads.iter().enumerate() {
        let last = n + 1 == payloads.len();
        let unsaid = Placement::Unsaid;
        let payload = vec![1; len];
        let opcode = TaggedOpcode::ReadResponse;
        fate = target.frame(&tagged_frame(opcode, unsaid, (stag, to), last, &payload));
        to += len as u64;
    }
    fate
}

/// Whether the rest of a WRITE of `len` octets, of which `arrived` have arrived, is read straight
/// to its destination.
fn is_direct(len: usize, arrived: usize) -> bool {
    let mut side = Side::new(cfg());
    let buf = side.buf(len);
    let octets = fpdu(&write_frame(buf.key(), buf.addr(), true, &vec![7; len]), false);
    side.stream.rx_octets(&octets[..2 + 14 + arrived]).unwrap();
    side.stream.rx(&mut side.rx).unwrap();
    let direct = side.rx.direct();
    assert!(direct == 0 || direct == len - arrived, "a part is no reason to read the rest apart");
    direct > 0
}

/// A report of `placed` writes, after `sent` of them were sent.
fn report(sent: u64, placed: u64) -> Fate {
    let mut side = Side::new(StreamCfg { extended: true, completes_placed: true, ..cfg() });
    let buf = side.buf(SOME);
    for id in 0..sent {
        side.post(write(id, &[buf.seg(0, 1)], buf.remote(0)));
    }
    let n = side.stream.tx(&mut side.tx).unwrap();
    side.stream.tx_done(&mut side.tx, n);
    let mut target = Target { side, buf };
    target.frame(&tagged_frame(TaggedOpcode::Write, Placement::Reported, (1, placed), true, &[]))
}

/// READ requests up to and beyond the depth that was agreed on.
fn reads_at_a_time(count: usize) -> Fate {
    let mut target = Target::new(false);
    let mut fate = Taken;
    for msn in 1..=count as u32 {
        let (source_stag, source_to) = (target.buf.key(), target.buf.addr());
        let request = ReadRequest { sink_stag: 1, sink_to: 0, len: 1, source_stag, source_to };
        fate = target.frame(&read_frame(msn, request));
    }
    fate
}

/// What a message of two frames is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Response,
}

/// A message of two frames of 40 octets, at these offsets in the message.
fn at_offsets(crc: bool, kind: Kind, offsets: [i32; 2]) -> Fate {
    let mut target = Target::new(crc);
    let segments = [target.buf.seg(0, 80)];
    if kind == Kind::Response {
        target.ask(read(1, &segments, Remote { addr: 0, key: 1 }));
    }
    let mut fate = Taken;
    for (offset, last) in offsets.into_iter().zip([false, true]) {
        let payload = [1; 40];
        let frame = match kind {
            Kind::Send => send_frame(1, offset as u32, last, &payload),
            Kind::Write => {
                let to = target.buf.addr().strict_add_signed(offset.into());
                write_frame(target.buf.key(), to, last, &payload)
            }
            Kind::Response => {
                let to = (1_u64 << 32).strict_add_signed(offset.into());
                let place = (target.side.stream.reads.sink_stag, to);
                let opcode = TaggedOpcode::ReadResponse;
                tagged_frame(opcode, Placement::Unsaid, place, last, &payload)
            }
        };
        fate = target.frame(&frame);
        if matches!(fate, Refused(_)) {
            break;
        }
    }
    fate
}

/// A message of fixed size at this offset of its message.
fn body_at(opcode: UntaggedOpcode, size: usize, mo: u32) -> Fate {
    let mut target = Target::new(false);
    let (qn, msn) = (opcode.queue().number(), 1);
    let header = Header::Untagged { last: true, opcode, invalidate: 0, qn, msn, mo };
    target.frame(&ulpdu(header, &vec![0; size]))
}

/// A response with `len` octets to a read of none. `stag` and `to` are added to what they must be.
fn response_to_empty_read((stag, to): (u32, u64), last: bool, len: usize) -> Fate {
    let mut target = Target::new(false);
    target.ask(read(1, &[], Remote { addr: 0, key: 1 }));
    let place = (target.side.stream.reads.sink_stag + stag, (1 << 32) + to);
    let opcode = TaggedOpcode::ReadResponse;
    target.frame(&tagged_frame(opcode, Placement::Unsaid, place, last, &vec![1; len]))
}

/// READ requests with these MSNs and lengths, to a side that has agreed on `ird` at a time.
fn reads_beside(ird: u32, requests: &[(u32, u32)]) -> Fate {
    let side = Side::new(StreamCfg { ird, ..cfg() });
    let buf = side.buf(SOME);
    let (source_stag, source_to) = (buf.key(), buf.addr());
    let mut target = Target { side, buf };
    let mut fate = Taken;
    for &(msn, len) in requests {
        let request = ReadRequest { sink_stag: 1, sink_to: 0, len, source_stag, source_to };
        fate = target.frame(&read_frame(msn, request));
    }
    fate
}

/// Two frames of each kind, divided into portions by `divide`. What they say is done, whatever the
/// portions.
fn in_portions(crc: bool, divide: impl Fn(&[u8]) -> Vec<usize>) {
    let mut target = Target::new(crc);
    target.side.recv(2, &[target.buf.seg(50, 5)]);
    target.side.recv(3, &[]);
    let (stag, to) = (target.buf.key(), target.buf.addr());
    let source = ReadRequest { sink_stag: 1, sink_to: 0, len: 7, source_stag: stag, source_to: to };
    let frames = [
        write_frame(stag, to + 60, true, &[1; 6]),
        write_frame(stag, to + 70, true, &[]),
        send_frame(1, 0, true, &[2; 5]),
        send_frame(2, 0, true, &[3; 5]),
        read_frame(1, source),
        read_frame(2, source),
        immediate(3, Immediate(7)),
    ];
    for frame in frames {
        let octets = fpdu(&frame, crc);
        let mut rest = &octets[..];
        for portion in divide(&octets) {
            let (now, later) = rest.split_at(portion);
            let fate = if later.is_empty() { Taken } else { Partial };
            assert_eq!(target.take(now), fate, "{crc}, {} of {}", later.len(), octets.len());
            rest = later;
        }
        assert!(rest.is_empty());
    }
    let bytes = target.buf.octets();
    assert_eq!((&bytes[60..66], &bytes[66..72]), (&[1; 6][..], &[0; 6][..]));
    assert_eq!((&bytes[..6], &bytes[50..56]), (&[2, 2, 2, 2, 2, 0][..], &[3, 3, 3, 3, 3, 0][..]));
    let lengths: Vec<_> = target.side.received().iter().map(|wc| (wc.id, wc.bytes)).collect();
    assert_eq!(lengths, [(1, 5), (2, 5), (3, 0)]);
    assert_eq!(target.side.stream.answers.len(), 2);
}

/// Frames behind a SEND of `waiting` octets, of which `arrived` have arrived when the stream looks
/// ahead: the first `start` of them alone, and then the others. The frames are a WRITE of `between`
/// octets and a report. The report counts with its last octet and not before.
fn report_ahead(crc: bool, waiting: usize, (start, arrived): (usize, usize), between: usize) {
    let cfg = StreamCfg { crc, extended: true, completes_placed: true, waits: true, ..cfg() };
    let mut side = Side::new(cfg);
    let buf = side.buf(SOME);
    side.post(write(1, &[buf.seg(0, 1)], buf.remote(0)));
    let n = side.stream.tx(&mut side.tx).unwrap();
    side.stream.tx_done(&mut side.tx, n);
    let message = fpdu(&send_frame(1, 0, true, &vec![5; waiting]), crc);
    let report = tagged_frame(TaggedOpcode::Write, Placement::Reported, (1, 1), true, &[]);
    let behind = [
        fpdu(&write_frame(buf.key(), buf.addr(), true, &vec![0; between]), crc),
        fpdu(&report, crc),
    ];
    let octets = [message, behind.concat()].concat();
    let (now, ahead) = octets.split_at(arrived);
    side.stream.rx_octets(&now[..start]).unwrap();
    side.stream.rx_octets(&now[start..]).unwrap();
    assert!(side.stream.is_stalled());
    for (n, &octet) in ahead.iter().enumerate() {
        assert!(side.stream.wants_ahead() > 0);
        side.stream.rx_ahead(&[octet]);
        let is_last = n + 1 == ahead.len();
        assert_eq!(
            side.completions().len(),
            usize::from(is_last),
            "{crc}, {waiting}, {start}, {arrived}, {between}, octet {n}"
        );
    }
    side.recv(1, &[buf.seg(0, SOME)]);
    side.stream.resume().unwrap();
    assert_eq!(side.received().len(), 1);
    assert!(!side.stream.is_mid_message());
}

#[test]
fn every_comparison_of_lengths() {
    let tagged = [0xC1, 0x40];
    let untagged = [0x41, 0x43];
    for crc in [false, true] {
        // The length of the ULPDU, compared with the size of its header.
        for (len, fate) in [(0, LENGTH), (1, LENGTH), (13, LENGTH), (14, Taken)] {
            assert_eq!(ulpdu_of(crc, tagged, len), fate, "tagged, {len}, {crc}");
        }
        for (len, fate) in [(0, LENGTH), (1, LENGTH), (14, LENGTH), (17, LENGTH), (18, Taken)] {
            assert_eq!(ulpdu_of(crc, untagged, len), fate, "untagged, {len}, {crc}");
        }
        assert_eq!(ulpdu_of(crc, untagged, 19), Taken, "a SEND of one octet");

        // The octets that have arrived of an FPDU, with each number of octets of pad.
        for len in 14..=18 {
            let whole = fpdu_len(len);
            for octets in 1..=whole {
                let fate = if octets == whole { Taken } else { Partial };
                assert_eq!(begun(crc, len, octets), fate, "{octets} of {whole}, {crc}");
            }
        }

        // The body of a message of fixed size.
        type Frame = fn(&Target) -> Vec<u8>;
        let request: Frame = |target| {
            let (source_stag, source_to) = (target.buf.key(), target.buf.addr());
            let (sink_stag, sink_to) = (1, 0);
            read_frame(1, ReadRequest { sink_stag, sink_to, len: 1, source_stag, source_to })
        };
        let atomic_request: Frame = |target| {
            let (stag, to, op) = (target.buf.key(), target.buf.addr(), AtomicOp::fetch_add(1));
            atomic(1, AtomicRequest { id: 1, stag, to, op })
        };
        let response: Frame = |_| atomic_response(1, AtomicResponse { id: 1, original: 0 });
        let data: Frame = |_| immediate(1, Immediate(7));
        let bodies = [
            (request, Asked::Nothing),
            (atomic_request, Asked::Nothing),
            (response, Asked::Atomic),
            (data, Asked::Nothing),
        ];
        for (n, (frame, asked)) in bodies.into_iter().enumerate() {
            for (change, fate) in [(-1, LENGTH), (0, Taken), (1, LENGTH)] {
                assert_eq!(body(crc, frame, asked, change), fate, "body {n}, {change}, {crc}");
            }
        }

        // A message, compared with its receive.
        let too_long = Refused(Cause::UNTAGGED_TOO_LONG);
        for (len, fate) in
            [(0, Taken), (1, Taken), (SOME - 1, Taken), (SOME, Taken), (SOME + 1, too_long)]
        {
            assert_eq!(sends(crc, &[len]), fate, "SEND of {len}, {crc}");
            if len >= 40 {
                assert_eq!(sends(crc, &[40, len - 40]), fate, "SEND of {len} in two, {crc}");
            }
        }

        // A WRITE, compared with the region.
        for (at, len, fate) in [
            (0, 0, Taken),
            (0, 1, Taken),
            (0, SOME - 1, Taken),
            (0, SOME, Taken),
            (0, SOME + 1, BOUNDS),
            (SOME - 1, 1, Taken),
            (SOME, 0, Taken),
            (SOME, 1, BOUNDS),
        ] {
            assert_eq!(writes(crc, at, &[len]), fate, "WRITE of {len} at {at}, {crc}");
        }
        assert_eq!(writes(crc, 0, &[40, SOME - 40]), Taken);
        assert_eq!(writes(crc, 0, &[40, SOME - 39]), BOUNDS);

        // A response, compared with the read.
        for (payloads, fate) in [
            (&[SOME][..], Taken),
            (&[SOME - 1], BOUNDS),
            (&[SOME + 1], BOUNDS),
            (&[0], BOUNDS),
            (&[40, SOME - 40], Taken),
            (&[40, SOME - 41], BOUNDS),
            (&[40, SOME - 39], BOUNDS),
            (&[SOME, 0], Taken),
            (&[SOME, 1], BOUNDS),
        ] {
            assert_eq!(responses(crc, payloads), fate, "{payloads:?}, {crc}");
        }
    }

    // The CRC, of each length up to the shortest FPDU that a wrong shortcut could leave out.
    for len in 14..=114 {
        for from_end in [1, 4, fpdu_len(len)] {
            // The first octet belongs to the length of the ULPDU. A longer FPDU is incomplete.
            let fate = if from_end == fpdu_len(len) { Partial } else { CRC };
            assert_eq!(
                damaged(len, from_end),
                fate,
                "ULPDU of {len}, octet {from_end} from its end"
            );
        }
        if len > 14 {
            assert_eq!(damaged(len, fpdu_len(len) - 2 - 14), CRC, "the first octet of payload");
        }
    }

    // A READ, compared with the region.
    for (at, len, fate) in [
        (0, 0, Taken),
        (0, 1, Taken),
        (0, SOME - 1, Taken),
        (0, SOME, Taken),
        (0, SOME + 1, Refused(Cause::PROTECTION_BOUNDS)),
        (SOME - 1, 1, Taken),
        (SOME, 1, Refused(Cause::PROTECTION_BOUNDS)),
    ] {
        assert_eq!(read_of(at, len), fate, "READ of {len} at {at}");
    }

    // The requests at a time: two are agreed on.
    let too_many = Refused(Cause::STREAM_CATASTROPHIC);
    for (count, fate) in [(0, Taken), (1, Taken), (2, Taken), (3, too_many)] {
        assert_eq!(reads_at_a_time(count), fate, "{count} READs");
    }

    // The writes that a report says are placed, compared with those that wait for it.
    for (sent, placed, fate) in [
        (0, 0, Taken),
        (0, 1, BOUNDS),
        (1, 0, Taken),
        (1, 1, Taken),
        (1, 2, BOUNDS),
        (3, 2, Taken),
        (3, 3, Taken),
        (3, 4, BOUNDS),
    ] {
        assert_eq!(report(sent, placed), fate, "{placed} of {sent} writes");
    }

    // How many octets of a payload must be missing before they are read directly.
    for (missing, direct) in [(1, false), (2047, false), (2048, true), (2049, true)] {
        assert_eq!(is_direct(4000, 4000 - missing), direct, "{missing} octets are missing");
    }
    // After the start of an FPDU of 16 KiB, any rest is read directly.
    for (ulpdu, direct) in [(16_383, false), (16_384, true), (16_385, true)] {
        assert_eq!(is_direct(ulpdu - 14, ulpdu - 15), direct, "FPDU with a ULPDU of {ulpdu}");
    }

    // The TERMINATE of a peer, with any length.
    for len in [0, 1, 3, 4, Terminate::MAX_SIZE - 1, Terminate::MAX_SIZE, Terminate::MAX_SIZE + 1] {
        let mut target = Target::new(false);
        let mut ulpdu = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        ulpdu.resize(18 + len, 0);
        assert!(matches!(target.frame(&ulpdu), Refused(_)), "TERMINATE with {len} octets");
    }
}

#[test]
fn every_comparison_of_offsets() {
    for crc in [false, true] {
        for (kind, refused) in [
            (Kind::Send, Refused(Cause::UNTAGGED_MO)),
            (Kind::Write, BOUNDS),
            (Kind::Response, BOUNDS),
        ] {
            for (offsets, fate) in
                [([0, 40], Taken), ([0, 39], refused), ([0, 41], refused), ([0, 0], refused)]
            {
                assert_eq!(at_offsets(crc, kind, offsets), fate, "{kind:?} {offsets:?}, {crc}");
            }
        }
        // The first frame. A WRITE begins where it likes.
        assert_eq!(at_offsets(crc, Kind::Send, [1, 41]), Refused(Cause::UNTAGGED_MO));
        assert_eq!(at_offsets(crc, Kind::Write, [1, 41]), Taken);
        assert_eq!(at_offsets(crc, Kind::Response, [1, 41]), BOUNDS);
        assert_eq!(at_offsets(crc, Kind::Response, [-1, 39]), BOUNDS);
    }
    for (opcode, size) in [
        (UntaggedOpcode::ReadRequest, ReadRequest::SIZE),
        (UntaggedOpcode::Immediate, Immediate::SIZE),
    ] {
        for (mo, fate) in [(0, Taken), (1, Refused(Cause::UNTAGGED_MO))] {
            assert_eq!(body_at(opcode, size, mo), fate, "{opcode:?} at {mo}");
        }
    }
}

/// The STag and the offset of an empty response are ignored.
#[test]
fn an_empty_response_and_an_empty_read() {
    let stag = Refused(Cause::TAGGED_STAG);
    for (place, last, len, fate) in [
        ((0, 0), true, 0, Taken),
        ((1, 0), true, 0, Taken),
        ((0, 1), true, 0, Taken),
        ((0, 0), false, 0, Taken),
        ((1, 0), false, 0, stag),
        ((0, 1), false, 0, BOUNDS),
        ((0, 0), true, 1, BOUNDS),
        ((1, 0), true, 1, stag),
    ] {
        assert_eq!(response_to_empty_read(place, last, len), fate, "{place:?} {last} {len}");
    }
    // The first READ may be empty although none was agreed on: it may serve as the RTR frame.
    let too_many = Refused(Cause::STREAM_CATASTROPHIC);
    for (ird, requests, fate) in [
        (0, &[(1, 0)][..], Taken),
        (0, &[(1, 1)], too_many),
        (0, &[(1, 0), (2, 0)], too_many),
        (1, &[(1, 0), (2, 0)], too_many),
        (2, &[(1, 0), (2, 0)], Taken),
    ] {
        assert_eq!(reads_beside(ird, requests), fate, "{requests:?} beside {ird}");
    }
}

#[test]
fn every_division_of_frames() {
    for crc in [false, true] {
        in_portions(crc, |octets| vec![octets.len()]);
        in_portions(crc, |octets| vec![1; octets.len()]);
        for at in (1..70).step_by(if cfg!(miri) { 23 } else { 1 }) {
            in_portions(crc, |octets| {
                let at = at.min(octets.len() - 1);
                vec![at, octets.len() - at]
            });
        }
    }
}

#[test]
fn every_position_of_a_report_behind_a_message() {
    for crc in [false, true] {
        for waiting in (0..5).step_by(if cfg!(miri) { 4 } else { 1 }) {
            // A message without CRC waits as soon as its header has arrived, and one with CRC as
            // soon as its last octet has.
            let whole = fpdu_len(18 + waiting);
            let first = if crc { whole } else { 20 };
            for arrived in first..=whole + 2 {
                for (start, between) in [(0, 0), (0, 1), (0, 2), (1, 0), (3, 0), (3, 1)] {
                    report_ahead(crc, waiting, (start, arrived), between);
                }
            }
        }
    }
}

/// A frame may end where a segment of its receive ends. Nothing looks at that segment again, which
/// the program may have deregistered.
#[test]
fn a_segment_that_is_full_is_not_looked_at() {
    let mut target = Target::new(false);
    let full = target.side.buf(40);
    target.side.recv(2, &[full.seg(0, 40), target.buf.seg(0, 60)]);
    assert_eq!(target.frame(&send_frame(1, 0, true, &[])), Taken);
    assert_eq!(target.frame(&send_frame(2, 0, false, &[7; 40])), Partial);
    let mut full = full;
    full.mr = None;
    assert_eq!(target.frame(&send_frame(2, 40, true, &[8; 60])), Taken);
    assert_eq!(target.buf.octets()[..61], [vec![8; 60], vec![0]].concat());
}

/// The room in the vectors of a system call.
#[test]
fn every_comparison_of_the_vectors() {
    const STAGE: usize = 2 * fpdu_len(MAX_ULPDU);
    const SEGMENT: usize = 100;
    let mut tx = TxVec::new();
    for (staged, elements, has_room) in
        [(STAGE, 1024, true), (STAGE + 1, 0, false), (0, 1025, false)]
    {
        assert_eq!(tx.has_room(staged, elements), has_room, "{staged} {elements}");
    }
    // A trailer of 7 octets lies in one segment of TCP.
    tx.begin(GatherId::default(), SEGMENT, 30);
    assert!(!tx.splits(71, 7), "a first frame is not put off");
    tx.staged(10);
    tx.push_staged(10);
    for (len, splits) in [(59, false), (60, false), (61, true), (66, true), (67, false)] {
        assert_eq!(tx.splits(len, 7), splits, "{len}");
    }
    assert!(tx.has_room(STAGE - 10, 1023) && !tx.has_room(STAGE - 9, 0) && !tx.has_room(0, 1024));
    tx.begin(GatherId::default(), 0, 0);
    assert!(!tx.splits(61, 7) && !tx.ends_record(), "no segments");

    let mut rx = RxVec::new();
    let mut memory = [0; 16];
    for octet in &mut memory {
        assert!(rx.push_direct(octet, 1));
    }
    assert!(!rx.push_direct(&raw mut memory[0], 1) && rx.direct() == 16);
    rx.clear();
    rx.push_direct(&raw mut memory[0], 10);
    rx.push_stage(true);
    assert_eq!((rx.octets(), rx.iov().len()), (10 + 256, 2));
    for (n, direct, staged) in [(0, 0, 0), (9, 9, 0), (10, 10, 0), (11, 10, 1), (266, 10, 256)] {
        let (found, octets) = rx.split(n);
        assert_eq!((found, octets.len()), (direct, staged), "{n}");
    }
}

/// Octets that differ from the signature, even only in the last octet, show that the caller is
/// another implementation. Fewer octets, which agree, decide nothing.
#[test]
fn the_signature_ends_with_its_last_octet() {
    for (changed, read, outcome) in [
        (None, 15, None),
        (None, 16, Some(true)),
        (Some(15), 15, None),
        (Some(15), 16, Some(false)),
        (Some(14), 15, Some(false)),
        (Some(0), 1, Some(false)),
    ] {
        let mut octets = SIGNATURE;
        if let Some(changed) = changed {
            octets[changed] ^= 1;
        }
        let mut first = Recognition::default();
        let found = first.feed(&octets[..read]).map(|(octets, found)| {
            assert_eq!(octets.len(), read);
            found
        });
        assert_eq!(found, outcome, "{changed:?} {read}");
        assert_eq!(first.wants(), 16 - read);
    }
}
