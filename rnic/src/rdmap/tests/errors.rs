//! Breaks each rule of reception with a frame made by hand, and checks the cause and every octet of
//! the TERMINATE.

use wire::iwarp::mpa::fpdu::{LENGTH_SIZE, fpdu_len};
use wire::iwarp::{
    Cause, Header, Placement, ReadRequest, TaggedOpcode, Terminate, UntaggedOpcode, crc::crc32c,
};

use super::*;

/// Wraps a ULPDU in an FPDU.
pub(super) fn fpdu(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut frame = vec![0; fpdu_len(ulpdu.len())];
    frame[..LENGTH_SIZE].copy_from_slice(&(ulpdu.len() as u16).to_be_bytes());
    frame[LENGTH_SIZE..][..ulpdu.len()].copy_from_slice(ulpdu);
    if crc {
        let (covered, field) = frame.split_last_chunk_mut::<4>().unwrap();
        *field = crc32c(covered).to_le_bytes();
    }
    frame
}

pub(super) fn ulpdu(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; header.len()];
    header.emit(&mut octets);
    octets.extend_from_slice(payload);
    octets
}

pub(super) fn send_frame(msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let opcode = UntaggedOpcode::Send;
    ulpdu(Header::Untagged { last, opcode, invalidate: 0, qn: 0, msn, mo }, payload)
}

pub(super) fn write_frame(stag: u32, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    tagged_frame(TaggedOpcode::Write, Placement::Unsaid, (stag, to), last, payload)
}

/// The frame of a tagged segment for this STag and offset.
pub(super) fn tagged_frame(
    opcode: TaggedOpcode,
    placement: Placement,
    (stag, to): (u32, u64),
    last: bool,
    payload: &[u8],
) -> Vec<u8> {
    ulpdu(Header::Tagged { last, opcode, placement, stag, to }, payload)
}

fn response_frame(stag: u32, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    tagged_frame(TaggedOpcode::ReadResponse, Placement::Unsaid, (stag, to), last, payload)
}

pub(super) fn read_frame(msn: u32, request: ReadRequest) -> Vec<u8> {
    let opcode = UntaggedOpcode::ReadRequest;
    let mut body = [0; ReadRequest::SIZE];
    request.emit(&mut body);
    ulpdu(Header::Untagged { last: true, opcode, invalidate: 0, qn: 1, msn, mo: 0 }, &body)
}

fn request(stag: u32, to: u64, len: u32) -> ReadRequest {
    ReadRequest { sink_stag: 0x5151, sink_to: 0x6000, len, source_stag: stag, source_to: to }
}

/// The parts of the offending segment that the TERMINATE includes.
#[derive(Clone, Copy, PartialEq)]
enum Included {
    Nothing,
    Header,
    Request,
}

/// A stream with a receive of 100 octets, a region of 1000 octets, other regions with fewer rights,
/// and two outstanding reads.
struct Target {
    side: Side,
    open: Buf,
    local: Buf,
    foreign: Buf,
    sink: Buf,
}

impl Target {
    fn new(cfg: StreamCfg) -> Target {
        let side = Side::new(cfg);
        let (open, sink) = (side.buf(1000), side.buf(200));
        let local = Buf::new(&side.keys, side.pd, 1000, LOCAL);
        let foreign = Buf::new(&side.keys, side.keys.pd(), 1000, ALL);
        side.recv(1, &[sink.seg(0, 60), sink.seg(60, 40)]);
        let mut target = Target { side, open, local, foreign, sink };
        target.side.post(read(10, &[target.sink.seg(100, 50)], Remote { addr: 0, key: 9 }));
        target.side.post(read(11, &[target.sink.seg(150, 50)], Remote { addr: 0, key: 9 }));
        let n = target.side.stream.tx(&mut target.side.tx).unwrap();
        target.side.stream.tx_done(&mut target.side.tx, n);
        target
    }

    /// Feeds frames and sends all that is ready. Returns the failure.
    fn run(&mut self, frames: &[Vec<u8>], crc: bool) -> Option<Failure> {
        let octets: Vec<u8> = frames.iter().flat_map(|ulpdu| fpdu(ulpdu, crc)).collect();
        for octet in octets {
            if let Err(failure) = self.side.stream.rx_octets(&[octet]) {
                return Some(failure);
            }
        }
        loop {
            match self.side.stream.tx(&mut self.side.tx) {
                Ok(0) => return None,
                Ok(n) => self.side.stream.tx_done(&mut self.side.tx, n),
                Err(failure) => return Some(failure),
            }
        }
    }
}

const EMPTY: [u8; 100] = [7; 100];

#[test]
fn every_rule_of_reception() {
    use Included::{Header as Head, Nothing, Request};
    type Frames = Box<dyn Fn(&Target) -> Vec<Vec<u8>>>;
    type Rule = (&'static str, (u8, u8, u8), Included, Frames);
    let key = |buf: &Buf| buf.key();
    let patched = |at: usize, value: u8, mut frame: Vec<u8>| {
        frame[at] = value;
        frame
    };
    let sink = |v: &Target| (v.side.stream.reads.sink_stag, 1u64 << 32);

    // The columns are: the name of the rule, the cause, the parts of the segment that the TERMINATE
    // includes, and the frames. The last frame is the offending one.
    #[rustfmt::skip]
    let rules: Vec<Rule> = vec![
        ("DDP version, tagged", (1, 1, 4), Head, Box::new(move |v| vec![patched(0, 0xC2, write_frame(key(&v.open), v.open.addr(), true, &EMPTY))])),
        ("DDP version, untagged", (1, 2, 6), Head, Box::new(move |_| vec![patched(0, 0x40, send_frame(1, 0, true, &EMPTY))])),
        ("RDMAP version", (0, 2, 5), Nothing, Box::new(move |_| vec![patched(1, 0x83, send_frame(1, 0, true, &EMPTY))])),
        ("opcode 9, tagged", (0, 2, 6), Nothing, Box::new(move |_| vec![patched(1, 0x49, write_frame(1, 0, true, &[]))])),
        ("opcode 15, untagged", (0, 2, 6), Nothing, Box::new(move |_| vec![patched(1, 0x4F, send_frame(1, 0, true, &[]))])),
        ("WRITE untagged", (0, 2, 6), Nothing, Box::new(move |_| vec![patched(1, 0x40, send_frame(1, 0, true, &[]))])),
        ("SEND tagged", (0, 2, 6), Nothing, Box::new(move |_| vec![patched(1, 0x43, write_frame(1, 0, true, &[]))])),
        ("immediate data", (0, 2, 6), Nothing, Box::new(move |_| vec![patched(1, 0x48, send_frame(1, 0, true, &[0; 8]))])),
        ("SEND to QN 1", (1, 2, 1), Head, Box::new(move |_| vec![patched(9, 1, send_frame(1, 0, true, &EMPTY))])),
        ("SEND with MSN 2 first", (1, 2, 3), Head, Box::new(|_| vec![send_frame(2, 0, true, &EMPTY)])),
        ("SEND with MSN 1 again", (1, 2, 3), Head, Box::new(|_| vec![send_frame(1, 0, true, &EMPTY), send_frame(1, 0, true, &EMPTY)])),
        ("SEND starting in the middle", (1, 2, 4), Head, Box::new(|_| vec![send_frame(1, 4, true, &EMPTY[..4])])),
        ("SEND going back", (1, 2, 4), Head, Box::new(|_| vec![send_frame(1, 0, false, &EMPTY[..8]), send_frame(1, 4, true, &EMPTY[..4])])),
        ("no receive posted", (1, 2, 2), Head, Box::new(|_| vec![send_frame(1, 0, true, &EMPTY), send_frame(2, 0, true, &[])])),
        ("SEND too long", (1, 2, 5), Head, Box::new(|_| vec![send_frame(1, 0, true, &[0; 101])])),
        ("SEND too long in its second segment", (1, 2, 5), Head, Box::new(|_| vec![send_frame(1, 0, false, &EMPTY[..96]), send_frame(1, 96, true, &EMPTY[..5])])),
        ("WRITE to an unknown STag", (1, 1, 0), Head, Box::new(move |v| vec![write_frame(key(&v.open) ^ 0x100, v.open.addr(), true, &EMPTY)])),
        ("WRITE to STag 0", (1, 1, 0), Head, Box::new(move |v| vec![write_frame(0, v.open.addr(), true, &EMPTY)])),
        ("WRITE beyond the end", (1, 1, 1), Head, Box::new(move |v| vec![write_frame(key(&v.open), v.open.addr() + 901, true, &EMPTY)])),
        ("WRITE before the start", (1, 1, 1), Head, Box::new(move |v| vec![write_frame(key(&v.open), v.open.addr() - 1, true, &EMPTY)])),
        ("WRITE that wraps around the address space", (1, 1, 3), Head, Box::new(move |v| vec![write_frame(key(&v.open), u64::MAX - 9, true, &EMPTY)])),
        ("WRITE to another protection domain", (1, 1, 2), Head, Box::new(move |v| vec![write_frame(key(&v.foreign), v.foreign.addr(), true, &EMPTY)])),
        ("WRITE without the right", (1, 1, 0), Head, Box::new(move |v| vec![write_frame(key(&v.local), v.local.addr(), true, &EMPTY)])),
        ("WRITE to a read's sink", (1, 1, 0), Head, Box::new(move |v| vec![write_frame(sink(v).0, sink(v).1, true, &EMPTY)])),
        ("WRITE that changes its STag", (1, 1, 0), Head, Box::new(move |v| vec![write_frame(key(&v.open), v.open.addr(), false, &EMPTY), write_frame(key(&v.local), v.open.addr() + 100, true, &EMPTY)])),
        ("WRITE that leaves a gap", (1, 1, 1), Head, Box::new(move |v| vec![write_frame(key(&v.open), v.open.addr(), false, &EMPTY), write_frame(key(&v.open), v.open.addr() + 104, true, &EMPTY)])),
        ("READ with MSN 2 first", (1, 2, 3), Head, Box::new(move |v| vec![read_frame(2, request(key(&v.open), v.open.addr(), 10))])),
        ("READ to QN 0", (1, 2, 1), Head, Box::new(move |v| vec![patched(9, 0, read_frame(1, request(key(&v.open), v.open.addr(), 10)))])),
        ("READ not in one segment", (1, 2, 4), Head, Box::new(move |v| vec![patched(0, 0x01, read_frame(1, request(key(&v.open), v.open.addr(), 10)))])),
        ("READ request cut short", (2, 0, 3), Nothing, Box::new(move |_| { let mut f = read_frame(1, request(1, 0, 0)); f.pop(); vec![f] })),
        ("READs beyond IRD", (0, 2, 7), Nothing, Box::new(move |v| (1..=5).map(|msn| read_frame(msn, request(key(&v.open), v.open.addr(), 10))).collect())),
        ("READ of an unknown STag", (0, 1, 0), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.open) ^ 0x100, v.open.addr(), 10))])),
        ("READ beyond the end", (0, 1, 1), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.open), v.open.addr(), 1001))])),
        ("READ without the right", (0, 1, 2), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.local), v.local.addr(), 10))])),
        ("READ of another protection domain", (0, 1, 3), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.foreign), v.foreign.addr(), 10))])),
        ("READ that wraps around the address space", (0, 1, 4), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.open), u64::MAX - 9, 100))])),
        ("bad READ after good ones", (0, 1, 1), Request, Box::new(move |v| vec![read_frame(1, request(key(&v.open), v.open.addr(), 10)), read_frame(2, request(key(&v.open), v.open.addr(), 1001))])),
        ("response with another STag", (1, 1, 0), Head, Box::new(move |v| vec![response_frame(sink(v).0 ^ 2, sink(v).1, true, &EMPTY[..50])])),
        ("response with another offset", (1, 1, 1), Head, Box::new(move |v| vec![response_frame(sink(v).0, sink(v).1 + 1, true, &EMPTY[..50])])),
        ("response to the second read", (1, 1, 1), Head, Box::new(move |v| vec![response_frame(sink(v).0, 2 << 32, true, &EMPTY[..50])])),
        ("response too long", (1, 1, 1), Head, Box::new(move |v| vec![response_frame(sink(v).0, sink(v).1, true, &EMPTY[..51])])),
        ("response too short", (1, 1, 1), Head, Box::new(move |v| vec![response_frame(sink(v).0, sink(v).1, true, &EMPTY[..49])])),
        ("response for which no read waits", (1, 1, 0), Head, Box::new(move |v| (1..4).map(|n| response_frame(sink(v).0, n << 32, true, &EMPTY[..50])).collect())),
        ("invalidating an unknown STag", (0, 2, 9), Head, Box::new(move |v| { let mut f = patched(1, 0x44, send_frame(1, 0, true, &[])); f[2..6].copy_from_slice(&(key(&v.open) ^ 0x100).to_be_bytes()); vec![f] })),
        ("invalidating a region", (0, 1, 9), Head, Box::new(move |v| { let mut f = patched(1, 0x44, send_frame(1, 0, true, &[])); f[2..6].copy_from_slice(&key(&v.open).to_be_bytes()); vec![f] })),
        ("invalidating a region that peers cannot use", (0, 1, 9), Head, Box::new(move |v| { let mut f = patched(1, 0x44, send_frame(1, 0, true, &[])); f[2..6].copy_from_slice(&key(&v.local).to_be_bytes()); vec![f] })),
        ("invalidating an STag of another protection domain", (0, 1, 9), Head, Box::new(move |v| { let mut f = patched(1, 0x46, send_frame(1, 0, true, &[])); f[2..6].copy_from_slice(&key(&v.foreign).to_be_bytes()); vec![f] })),
        ("ULPDU shorter than any header", (2, 0, 3), Nothing, Box::new(|_| vec![vec![0xC1; 13]])),
        ("empty ULPDU", (2, 0, 3), Nothing, Box::new(|_| vec![vec![]])),
        ("ULPDU shorter than its header", (2, 0, 3), Nothing, Box::new(|_| vec![send_frame(1, 0, true, &[])[..17].to_vec()])),
    ];

    for crc in [false, true] {
        for (what, (layer, etype, code), included, frames) in &rules {
            let mut target = Target::new(StreamCfg { crc, ..cfg() });
            let frames = frames(&target);
            let failure = target
                .run(&frames, crc)
                .unwrap_or_else(|| panic!("{what}: the frames must be refused"));
            let cause = Cause { layer: *layer, etype: *etype, code: *code };
            assert_eq!(failure, Failure { by_peer: false, cause }, "{what}");

            let offending = frames.last().unwrap();
            let header =
                if offending.first().is_some_and(|control| control & 0x80 != 0) { 14 } else { 18 };
            let mut payload = vec![layer << 4 | etype, *code, 0, 0];
            if *included != Nothing {
                payload[2] = if *included == Request { 0xE0 } else { 0xC0 };
                payload.extend_from_slice(&(offending.len() as u16).to_be_bytes());
                payload.extend_from_slice(&offending[..header]);
            }
            if *included == Request {
                payload.extend_from_slice(&offending[header..]);
            }
            let terminate =
                [&[0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0], &payload[..]]
                    .concat();
            assert_eq!(target.side.stream.terminate(), fpdu(&terminate, crc), "{what}");
            assert!(
                target.side.stream.terminate().is_empty(),
                "the TERMINATE must be sent only once"
            );
            assert_eq!(target.side.stream.rx_octets(&[0]), Err(failure), "the stream must be dead");

            target.side.stream.flush();
            let statuses =
                target.side.completions().iter().map(|wc| (wc.id, wc.status)).collect::<Vec<_>>();
            let oldest = match what.starts_with("response") {
                true if what.contains("no read waits") => WcStatus::Success,
                true => WcStatus::BadResponse,
                false => WcStatus::Flushed,
            };
            let next = if oldest == WcStatus::Success { oldest } else { WcStatus::Flushed };
            assert_eq!(statuses, [(10, oldest), (11, next)], "{what}");
            for buf in [&target.open, &target.local, &target.foreign, &target.sink] {
                buf.assert_guarded();
            }
            assert!(
                target.local.octets().iter().chain(target.foreign.octets().iter()).all(|&b| b == 0),
                "{what}"
            );
        }
    }
}

#[test]
fn a_message_too_long_completes_its_receive() {
    let mut target = Target::new(cfg());
    target
        .run(&[send_frame(1, 0, false, &EMPTY[..96]), send_frame(1, 96, true, &EMPTY[..5])], false)
        .unwrap();
    assert_eq!(target.side.received(), [wc(1, WcOp::Recv, 101, WcStatus::LocalLength)]);
    assert!(target.sink.octets()[100..].iter().all(|&octet| octet == 0));
}

#[test]
fn addresses_of_empty_messages_are_ignored() {
    let mut target = Target::new(cfg());
    let frames = [write_frame(0xDEAD, 5, true, &[]), read_frame(1, request(0xDEAD, 5, 0))];
    assert_eq!(target.run(&frames, false), None);
    assert!(!target.side.stream.is_mid_message());
}

#[test]
fn a_zero_length_read_may_be_the_first_frame() {
    let mut target = Target::new(StreamCfg { ird: 0, ..cfg() });
    assert_eq!(target.run(&[read_frame(1, request(1, 0, 0))], false), None);
    assert_eq!(
        target.side.stream.stats().tx_messages,
        3,
        "the target must have sent two reads of its own, and the answer"
    );
    let failure = target.run(&[read_frame(2, request(1, 0, 0))], false).unwrap();
    assert_eq!(
        failure.cause,
        Cause::STREAM_CATASTROPHIC,
        "a read must be refused if no depth was agreed on"
    );
}

#[test]
fn a_damaged_frame() {
    let mut target = Target::new(StreamCfg { crc: true, ..cfg() });
    let mut frame = fpdu(&send_frame(1, 0, true, &EMPTY), true);
    frame[60] ^= 1;
    let failure = target.side.stream.rx_octets(&frame).unwrap_err();
    assert_eq!(failure.cause, Cause::MPA_CRC);
    assert!(
        target.sink.octets().iter().all(|&octet| octet == 0),
        "no data may be placed in memory"
    );
    let terminate = target.side.stream.terminate();
    assert_eq!(terminate[20..24], [0x20, 2, 0, 0]);
    // Without CRC, the receiver ignores the field of the CRC.
    let mut target = Target::new(cfg());
    target.side.stream.rx_octets(&frame).unwrap();
    assert_eq!(target.side.received(), [wc(1, WcOp::Recv, 100, WcStatus::Success)]);
}

/// A TERMINATE ends the stream, in whichever bit order the peer writes its control fields. If it
/// reports a refused access, the oldest read also fails.
#[test]
fn the_peer_terminates() {
    for (control, cause, status) in [
        ([0x01, 0x00, 0x00, 0], Cause::PROTECTION_STAG, WcStatus::RemoteAccess),
        ([0x10, 0x01, 0x01, 0], Cause::PROTECTION_BOUNDS, WcStatus::RemoteAccess),
        ([0x11, 0x01, 0x00, 0], Cause::TAGGED_BOUNDS, WcStatus::RemoteAccess),
        ([0x12, 0x02, 0x00, 0], Cause::UNTAGGED_NO_BUFFER, WcStatus::Flushed),
        ([0x02, 0x06, 0x00, 0], Cause::UNEXPECTED_OPCODE, WcStatus::Flushed),
    ] {
        let mut target = Target::new(cfg());
        let opcode = UntaggedOpcode::Terminate;
        let mut body = control.to_vec();
        if control[2] == 1 {
            // siw sets the flag M without the flag D, and then sends the two octets of a length.
            body.extend_from_slice(&[0, 46]);
        }
        let header = Header::Untagged { last: true, opcode, invalidate: 0, qn: 2, msn: 1, mo: 0 };
        let failure = target.run(&[ulpdu(header, &body)], false).unwrap();
        assert_eq!(failure, Failure { by_peer: true, cause });
        assert!(target.side.stream.terminate().is_empty(), "there must be no answer");
        target.side.stream.flush();
        let statuses: Vec<_> = target.side.completions().iter().map(|wc| wc.status).collect();
        assert_eq!(statuses, [status, WcStatus::Flushed]);
    }
}

/// If one end refuses an access, the other end learns why.
#[test]
fn a_refusal_reaches_the_peer() {
    for crc in [false, true] {
        let mut pair = Pair::new(StreamCfg { crc, ..cfg() }, 3);
        let (near, far) = (pair.a.buf(1 << 20), pair.b.buf(100));
        // The refusing end has sent part of a frame of a long write. It sends the rest of this
        // frame before the TERMINATE.
        pair.b.post(write(1, &[far.seg(0, 100)], near.remote(0)));
        let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
        assert!(n > 30);
        let half = gathered(&pair.b.tx, 30);
        pair.b.stream.tx_done(&mut pair.b.tx, 30);
        pair.a.post(read(2, &[near.seg(0, 100)], far.remote(1)));
        pair.a.post(send(3, &[near.seg(0, 1)]));
        let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
        let request_octets = gathered(&pair.a.tx, 52);
        pair.a.stream.tx_done(&mut pair.a.tx, n);

        pair.b.stream.rx_octets(&request_octets).unwrap();
        // Until the rest of the partly sent frame is sent, no other octets are ready to be sent.
        let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
        let rest = gathered(&pair.b.tx, 10);
        assert_eq!(n, 2 + 14 + 100 + 2 + 4 - 2 - 30);
        pair.b.stream.tx_done(&mut pair.b.tx, 10);
        // The stream fails for another reason before the frame is complete.
        let failure =
            pair.b.stream.rx_octets(&fpdu(&write_frame(1, 0, true, &[1]), crc)).unwrap_err();
        assert_eq!(failure.cause, Cause::TAGGED_STAG);
        let terminate = pair.b.stream.terminate();

        pair.a.stream.rx_octets(&half).unwrap();
        pair.a.stream.rx_octets(&rest).unwrap();
        let seen = pair.a.stream.rx_octets(&terminate).unwrap_err();
        assert_eq!(seen, Failure { by_peer: true, cause: Cause::TAGGED_STAG });
        pair.a.stream.flush();
        assert_eq!(
            pair.a.completions(),
            [wc(2, WcOp::Read, 0, WcStatus::RemoteAccess), wc(3, WcOp::Send, 0, WcStatus::Flushed)]
        );
    }
}

/// A region is deregistered while its message is in flight.
#[test]
fn memory_deregistered_meanwhile() {
    let payload = [1; 4000];
    let catastrophic = Failure { by_peer: false, cause: Cause::RDMAP_CATASTROPHIC };

    // The region is a receive buffer.
    let mut side = Side::new(cfg());
    let mut buf = side.buf(4000);
    side.recv(1, &[buf.seg(0, 4000)]);
    let frame = fpdu(&send_frame(1, 0, true, &payload), false);
    side.stream.rx_octets(&frame[..1000]).unwrap();
    buf.mr = None;
    assert_eq!(side.stream.rx(&mut side.rx), Err(catastrophic));
    assert_eq!(side.received(), [wc(1, WcOp::Recv, 1000 - 20, WcStatus::LocalProtection)]);
    assert!(buf.octets()[980..].iter().all(|&octet| octet == 0));

    // The region is the target of a write.
    let mut side = Side::new(cfg());
    let mut buf = side.buf(4000);
    let frame = fpdu(&write_frame(buf.key(), buf.addr(), true, &payload), false);
    side.stream.rx_octets(&frame[..1000]).unwrap();
    buf.mr = None;
    let failure = side.stream.rx_octets(&frame[1000..]).unwrap_err();
    assert_eq!(failure.cause, Cause::TAGGED_STAG);
    assert!(buf.octets()[984..].iter().all(|&octet| octet == 0));

    // The region is the source of a message. It is deregistered before the message is sent, or in
    // the middle of a frame. The octets that come before this region are sent.
    let mut side = Side::new(cfg());
    let (good, mut bad) = (side.buf(100), side.buf(20_000));
    side.post(send(1, &[good.seg(0, 100)]));
    side.post(send(2, &[bad.seg(0, 20_000)]));
    side.post(send(3, &[good.seg(0, 100)]));
    bad.mr = None;
    let n = side.stream.tx(&mut side.tx).unwrap();
    assert_eq!(n, 20 + 100 + 4);
    side.stream.tx_done(&mut side.tx, n);
    assert_eq!(side.completions(), [wc(1, WcOp::Send, 100, WcStatus::Success)]);
    assert_eq!(side.stream.tx(&mut side.tx), Err(catastrophic));
    assert_eq!(side.stream.terminate()[20..24], [0, 0, 0, 0]);
    side.stream.flush();
    assert_eq!(
        side.completions(),
        [wc(2, WcOp::Send, 0, WcStatus::LocalProtection), wc(3, WcOp::Send, 0, WcStatus::Flushed)]
    );

    let mut side = Side::new(cfg());
    let mut bad = side.buf(20_000);
    side.post(send(2, &[bad.seg(0, 20_000)]));
    side.stream.tx(&mut side.tx).unwrap();
    side.stream.tx_done(&mut side.tx, 10_000);
    bad.mr = None;
    assert_eq!(side.stream.tx(&mut side.tx), Err(catastrophic));
    assert!(side.stream.terminate().is_empty(), "no TERMINATE can come in the middle of a frame");

    // The region is the source of the peer's read. It is deregistered after the first frame.
    let mut side = Side::new(StreamCfg { mulpdu: 1442, ..cfg() });
    let mut source = side.buf(20_000);
    let body = request(source.key(), source.addr(), 20_000);
    let frame = fpdu(&read_frame(1, body), false);
    side.stream.rx_octets(&frame).unwrap();
    side.stream.tx(&mut side.tx).unwrap();
    side.stream.tx_done(&mut side.tx, 16 + 1428 + 4);
    source.mr = None;
    let failure = side.stream.tx(&mut side.tx).unwrap_err();
    assert_eq!(failure.cause, Cause::PROTECTION_STAG);
    let terminate = side.stream.terminate();
    let (terminate, _) = Terminate::parse(&terminate[20..]).unwrap();
    assert_eq!(terminate.read_request, Some(body));
}
