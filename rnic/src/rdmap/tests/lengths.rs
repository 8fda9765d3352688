//! The boundaries of each comparison of lengths on the way of received octets, as one table: the
//! FPDU, its header and body, the message, the memory, and what is read straight to its
//! destination.

use wire::iwarp::mpa::fpdu::fpdu_len;
use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, Immediate, Placement, ReadRequest,
    TaggedOpcode, Terminate,
};

use super::errors::{fpdu, read_frame, send_frame, tagged_frame, write_frame};
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
