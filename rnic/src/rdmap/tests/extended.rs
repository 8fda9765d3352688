//! Tests of immediate data and atomic operations (RFC 7306).

use std::sync::atomic::AtomicU64;

use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Cause, Header, Immediate, ReadRequest, Terminate,
    UntaggedOpcode,
};

use super::errors::{fpdu, read_frame, send_frame, ulpdu};
use super::*;

fn extended_cfg() -> StreamCfg {
    StreamCfg { extended: true, ..cfg() }
}

fn untagged(opcode: UntaggedOpcode, msn: u32, body: &[u8]) -> Vec<u8> {
    let qn = opcode.queue().number();
    ulpdu(Header::Untagged { last: true, opcode, invalidate: 0, qn, msn, mo: 0 }, body)
}

pub(super) fn immediate(msn: u32, data: Immediate) -> Vec<u8> {
    let mut body = [0; Immediate::SIZE];
    data.emit(&mut body);
    untagged(UntaggedOpcode::Immediate, msn, &body)
}

pub(super) fn atomic(msn: u32, request: AtomicRequest) -> Vec<u8> {
    let mut body = [0; AtomicRequest::SIZE];
    request.emit(&mut body);
    untagged(UntaggedOpcode::AtomicRequest, msn, &body)
}

pub(super) fn atomic_response(msn: u32, response: AtomicResponse) -> Vec<u8> {
    let mut body = [0; AtomicResponse::SIZE];
    response.emit(&mut body);
    untagged(UntaggedOpcode::AtomicResponse, msn, &body)
}

fn arrived(id: u64, octets: usize, immediate: u32) -> Wc {
    Wc { immediate: Some(immediate), ..wc(id, WcOp::Recv, octets, WcStatus::Success) }
}

#[test]
fn a_write_with_immediate_data_is_one_operation() {
    const LARGEST: usize = if cfg!(miri) { 300 } else { 100_000 };
    for (mulpdu, crc) in [(65535, false), (1442, true), (128, false)] {
        let mut pair = Pair::new(StreamCfg { mulpdu, crc, ..extended_cfg() }, mulpdu as u64);
        let sizes = [0, 1, 4, 109, 110, 8193, 65536, LARGEST];
        let (from, to) = (pair.a.buf(LARGEST).filled(&mut pair.rng), pair.b.buf(LARGEST));
        let buffer = pair.b.buf(4);
        for (n, size) in sizes.into_iter().filter(|&size| size <= LARGEST).enumerate() {
            let immediate = 0xFFFF_FFF0 + n as u32;
            // A receive of any size suffices for immediate data, even an empty one.
            pair.b.recv(1, &[buffer.seg(0, n % 5)]);
            pair.a.post(write_imm(2, &[from.seg(0, size)], to.remote(0), immediate));
            pair.drive().unwrap();
            assert_eq!(pair.a.completions(), [wc(2, WcOp::WriteImm, size, WcStatus::Success)]);
            assert_eq!(pair.b.received(), [arrived(1, size, immediate)]);
            assert!(to.octets()[..size] == from.octets()[..size]);
            assert_eq!(buffer.octets(), [0; 4], "the buffer must be consumed but not written");
            to.octets_mut().fill(0);
        }
        assert!(pair.a.stream.is_drained() && !pair.b.stream.is_mid_message());
    }
}

#[test]
fn immediate_data_keep_their_place_among_sends() {
    let mut pair = Pair::new(extended_cfg(), 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100));
    for id in 0..4 {
        pair.b.recv(id, &[far.seg(0, 50)]);
    }
    assert!(arm(&pair.b.recvs, true));
    pair.a.post(send(1, &[near.seg(0, 10)]));
    pair.a.post(write_imm(2, &[near.seg(0, 20)], far.remote(50), 7));
    pair.a.post(SendWr { signalled: false, ..write_imm(3, &[], far.remote(0), 8) });
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 0, "no solicited event may have arrived");
    pair.a.post(SendWr { solicited: true, ..write_imm(4, &[near.seg(0, 1)], far.remote(50), 9) });
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 1);
    let first = wc(0, WcOp::Recv, 10, WcStatus::Success);
    assert_eq!(pair.b.received(), [first, arrived(1, 20, 7), arrived(2, 0, 8), arrived(3, 1, 9)]);
    let ids: Vec<_> = pair.a.completions().iter().map(|wc| wc.id).collect();
    assert_eq!(ids, [1, 2, 4]);
}

#[test]
fn atomic_operations() {
    let mut pair = Pair::new(extended_cfg(), 0);
    let (near, far) = (pair.a.buf(64), pair.b.buf(64));
    far.set_number(16, 40);
    // The original value is placed in the segments, in the byte order of this machine.
    pair.a.post(fetch_add(1, &[near.seg(0, 3), near.seg(10, 5)], far.remote(16), 2));
    pair.a.post(compare_swap(2, &[near.seg(24, 8)], far.remote(16), (42, u64::MAX)));
    pair.a.post(compare_swap(3, &[near.seg(32, 8)], far.remote(16), (42, 0)));
    pair.a.post(fetch_add(4, &[near.seg(40, 8)], far.remote(16), 2));
    pair.drive().unwrap();
    let original = [&near.octets()[..3], &near.octets()[10..15]].concat();
    assert_eq!(original, 40u64.to_ne_bytes());
    assert_eq!([24, 32, 40].map(|at| near.number(at)), [42, u64::MAX, u64::MAX]);
    assert_eq!(far.number(16), 1, "the number must wrap around");
    let done =
        [(1, WcOp::FetchAdd), (2, WcOp::CompareSwap), (3, WcOp::CompareSwap), (4, WcOp::FetchAdd)];
    assert_eq!(pair.a.completions(), done.map(|(id, op)| wc(id, op, 8, WcStatus::Success)));
    assert!(
        pair.b.received().is_empty() && pair.b.completions().is_empty(),
        "the target's program must get no completion"
    );
    assert!(far.octets()[..16].iter().chain(&far.octets()[24..]).all(|&octet| octet == 0));
}

#[test]
fn atomic_operations_work_on_eight_octets() {
    let pair = Pair::new(extended_cfg(), 0);
    let near = pair.a.buf(64);
    let post = |segments: &[Segment]| {
        let wr = fetch_add(1, segments, Remote::default(), 1);
        // SAFETY: the test has one thread, and the buffer outlives the posted request.
        unsafe { pair.a.qp.post_send(&wr) }
    };
    for segments in
        [&[][..], &[near.seg(0, 7)], &[near.seg(0, 16)], &[near.seg(0, 8), near.seg(8, 1)]]
    {
        assert_eq!(post(segments), Err(PostError::Bounds));
    }
    assert!(!pair.a.stream.wants_tx());
}

/// Cuts the output of one end in two parts, at each octet in turn. TCP accepts the parts
/// separately, and the other end receives them separately.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn cut_at_every_octet() {
    for crc in [false, true] {
        let program = || {
            let pair = Pair::new(StreamCfg { mulpdu: 128, crc, ..extended_cfg() }, 0);
            let (near, far) = (pair.a.buf(300).filled(&mut Rng(9)), pair.b.buf(300));
            far.set_number(200, 5);
            pair.b.recv(1, &[]);
            pair.b.recv(2, &[]);
            pair.a.post(write_imm(1, &[near.seg(0, 150)], far.remote(0), 0xABCD));
            pair.a.post(fetch_add(2, &[near.seg(200, 8)], far.remote(200), 1));
            pair.a.post(compare_swap(3, &[near.seg(208, 8)], far.remote(200), (6, 7)));
            pair.a.post(write_imm(4, &[], far.remote(0), 0xEF));
            (pair, near, far)
        };
        let check = |pair: &mut Pair, near: &Buf, far: &Buf| {
            pair.drive().unwrap();
            let completed: Vec<_> =
                pair.a.completions().iter().map(|wc| (wc.id, wc.bytes, wc.status)).collect();
            let done = [(1, 150), (2, 8), (3, 8), (4, 0)]
                .map(|(id, octets)| (id, octets, WcStatus::Success));
            assert_eq!(completed, done);
            assert_eq!(pair.b.received(), [arrived(1, 150, 0xABCD), arrived(2, 0, 0xEF)]);
            assert!(far.octets()[..150] == near.octets()[..150]);
            assert_eq!((far.number(200), near.number(200), near.number(208)), (7, 5, 6));
        };
        let whole = {
            let (mut pair, near, far) = program();
            let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
            let terminate = gathered(&pair.a.tx, n);
            pair.a.stream.tx_done(&mut pair.a.tx, n);
            pair.b.stream.rx_octets(&terminate).unwrap();
            check(&mut pair, &near, &far);
            n
        };
        for cut in 1..whole {
            let (mut pair, near, far) = program();
            let mut terminate = Vec::new();
            for accepted in [cut, whole - cut] {
                pair.a.stream.tx(&mut pair.a.tx).unwrap();
                terminate.extend(gathered(&pair.a.tx, accepted));
                pair.a.stream.tx_done(&mut pair.a.tx, accepted);
            }
            assert_eq!(terminate.len(), whole);
            assert!(!pair.a.stream.wants_tx());
            for part in [&terminate[..cut], &terminate[cut..]] {
                pair.b.stream.rx_octets(part).unwrap();
            }
            // The answers are cut in the same way.
            let answered = pair.b.stream.tx(&mut pair.b.tx).unwrap();
            let first = cut.min(answered);
            for accepted in [first, answered - first] {
                pair.b.stream.tx(&mut pair.b.tx).unwrap();
                let part = gathered(&pair.b.tx, accepted);
                pair.b.stream.tx_done(&mut pair.b.tx, accepted);
                pair.a.stream.rx_octets(&part).unwrap();
            }
            check(&mut pair, &near, &far);
        }
    }
}

#[test]
fn atomic_operations_count_as_reads() {
    let request = 2 + 18 + 52 + 4;
    let mut pair = Pair::new(StreamCfg { ord: 2, ..extended_cfg() }, 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(104));
    pair.a.post(fetch_add(1, &[near.seg(0, 8)], far.remote(0), 1));
    pair.a.post(read(2, &[near.seg(8, 8)], far.remote(0)));
    pair.a.post(fetch_add(3, &[near.seg(16, 8)], far.remote(0), 1));
    assert_eq!(
        pair.a.stream.tx(&mut pair.a.tx).unwrap(),
        request + 2 + 18 + 28 + 4,
        "only two requests may be sent, because ORD is two"
    );
    pair.a.stream.tx_done(&mut pair.a.tx, 0);
    pair.drive().unwrap();
    assert_eq!([0, 8, 16].map(|at| near.number(at)), [0, 1, 1]);
    assert_eq!(pair.a.completions().len(), 3);

    // A fenced write waits for an earlier atomic operation, and completes after it.
    pair.a.post(fetch_add(4, &[near.seg(0, 8)], far.remote(0), 40));
    pair.a.post(SendWr { fence: true, ..write(5, &[near.seg(0, 8)], far.remote(8)) });
    assert_eq!(pair.a.stream.tx(&mut pair.a.tx).unwrap(), request);
    pair.a.stream.tx_done(&mut pair.a.tx, request);
    assert!(pair.a.completions().is_empty() && !pair.a.stream.is_drained());
    let mut pair = Pair::new(extended_cfg(), 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(104));
    far.set_number(0, 33);
    pair.a.post(fetch_add(4, &[near.seg(0, 8)], far.remote(0), 40));
    pair.a.post(SendWr { fence: true, ..write(5, &[near.seg(0, 8)], far.remote(8)) });
    pair.drive().unwrap();
    assert_eq!((far.number(0), far.number(8)), (73, 33));
}

/// A read returns the memory as it was before a later atomic operation, however long the answer to
/// the read takes.
#[test]
fn an_atomic_operation_waits_for_earlier_reads() {
    let mut pair = Pair::new(StreamCfg { mulpdu: 128, ..extended_cfg() }, 0);
    let (near, far) = (pair.a.buf(20_008), pair.b.buf(20_008));
    pair.a.post(read(1, &[near.seg(0, 20_000)], far.remote(0)));
    pair.a.post(fetch_add(2, &[near.seg(20_000, 8)], far.remote(19_992), 1));
    pair.a.post(read(3, &[near.seg(0, 8)], far.remote(19_992)));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    let asked = gathered(&pair.a.tx, n);
    pair.a.stream.tx_done(&mut pair.a.tx, n);
    pair.b.stream.rx_octets(&asked).unwrap();

    let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
    pair.b.stream.tx_done(&mut pair.b.tx, n - 1);
    assert_eq!(far.number(19_992), 0, "an octet of the answer is still to be sent");
    let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
    assert_eq!(n, 1);
    pair.b.stream.tx_done(&mut pair.b.tx, 1);
    assert_eq!(far.number(19_992), 1);
    assert!(pair.b.stream.wants_tx());

    let mut pair = Pair::new(extended_cfg(), 5);
    let (near, far) = (pair.a.buf(20_016), pair.b.buf(20_008));
    for round in 0..20 {
        pair.a.post(read(1, &[near.seg(0, 20_000)], far.remote(0)));
        pair.a.post(fetch_add(2, &[near.seg(20_000, 8)], far.remote(19_992), 1));
        pair.a.post(read(3, &[near.seg(20_008, 8)], far.remote(19_992)));
        pair.drive().unwrap();
        assert_eq!([19_992, 20_000, 20_008].map(|at| near.number(at)), [round, round, round + 1]);
    }
}

/// Atomic operations are atomic with respect to each other and to atomic operations of the
/// processor.
#[test]
fn atomic_towards_everybody() {
    const TIMES: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = || Some((Arc::new(Srq::new(&keys, pd, 1, 1, || {}).unwrap()), pd));
    let target = Buf::new(&keys, pd, 8, ALL);
    let mut pairs = [0, 1].map(|seed| {
        Pair::of(
            Side::new(extended_cfg()),
            Side::with_srq(extended_cfg(), srq(), Arc::clone(&keys)),
            seed,
        )
    });
    let sinks = [0, 1].map(|n: usize| pairs[n].a.buf(8));
    std::thread::scope(|scope| {
        let addr = target.addr() as usize;
        scope.spawn(move || {
            // SAFETY: the target outlives the scope, is aligned, and is accessed atomically only.
            let number = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
            for _ in 0..TIMES {
                number.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..TIMES {
            for (pair, sink) in pairs.iter_mut().zip(&sinks) {
                pair.a.post(fetch_add(round, &[sink.seg(0, 8)], target.remote(0), 1));
            }
            for pair in &mut pairs {
                pair.drive().unwrap();
                assert_eq!(pair.a.completions().len(), 1);
            }
        }
    });
    assert_eq!(target.number(0), 3 * TIMES);
}

#[test]
fn unsupported_operations_are_not_sent() {
    let mut pair = Pair::new(cfg(), 0);
    let (near, far) = (pair.a.buf(8), pair.b.buf(8));
    let segments = [near.seg(0, 8)];
    let all = [
        write_imm(1, &segments, far.remote(0), 1),
        fetch_add(2, &segments, far.remote(0), 1),
        compare_swap(3, &segments, far.remote(0), (0, 1)),
    ];
    for wr in &all {
        // SAFETY: the test has one thread, and the buffers outlive the posted requests.
        assert_eq!(unsafe { pair.a.qp.post_send(wr) }, Err(PostError::Unsupported));
    }
    assert!(!pair.a.stream.wants_tx());
    // RFC 7306 has no immediate data for a send.
    let extended = Pair::new(extended_cfg(), 0);
    let segments = [extended.a.buf(8).seg(0, 8)];
    let send_imm = request(4, SendOp::SendImm { immediate: 1 }, &segments);
    // SAFETY: the request is refused.
    assert_eq!(unsafe { extended.a.qp.post_send(&send_imm) }, Err(PostError::Unsupported));
    assert!(!extended.a.stream.wants_tx());
    // After the end of the connection, every request that is posted is flushed.
    pair.a.stream.flush();
    all.iter().for_each(|&wr| pair.a.post(wr));
    pair.a.stream.flush();
    assert!(pair.a.completions().iter().all(|wc| wc.status == WcStatus::Flushed));
    assert_eq!(far.number(0), 0);
}

/// Breaks each rule for frames of immediate data and atomic operations. Checks the cause, and the
/// part of the frame that the TERMINATE includes.
#[test]
fn frames_that_break_a_rule() {
    type Frames = Box<dyn Fn(&Buf, &Buf, &Buf) -> Vec<Vec<u8>>>;
    type Rule = (&'static str, (u8, u8, u8), bool, Frames);
    let add =
        |buf: &Buf, to| AtomicRequest { id: 1, stag: buf.key(), to, op: AtomicOp::fetch_add(1) };
    let at = |buf: &Buf, offset: u64| buf.addr() + offset;
    let patched = |at: usize, value: u8, mut frame: Vec<u8>| {
        frame[at] = value;
        frame
    };
    let cut = |len: usize, mut frame: Vec<u8>| {
        frame.resize(len, 0);
        frame
    };
    let response = |id| AtomicResponse { id, original: u64::MAX };
    // Whether the TERMINATE names the offending segment.
    let (named, bare) = (true, false);
    #[rustfmt::skip]
    let rules: Vec<Rule> = vec![
        ("no receive for immediate data", (1, 2, 2), named, Box::new(|_, _, _| vec![immediate(1, Immediate(1)), immediate(2, Immediate(2))])),
        ("immediate data with MSN 2 first", (1, 2, 3), named, Box::new(|_, _, _| vec![immediate(2, Immediate(1))])),
        ("immediate data within a SEND", (1, 2, 4), named, Box::new(|_, _, _| vec![send_frame(1, 0, false, &[7; 8]), immediate(1, Immediate(1))])),
        ("immediate data not last", (1, 2, 4), named, Box::new(move |_, _, _| vec![patched(0, 0x01, immediate(1, Immediate(1)))])),
        ("immediate data with an offset other than 0", (1, 2, 4), named, Box::new(move |_, _, _| vec![patched(17, 8, immediate(1, Immediate(1)))])),
        ("immediate data to QN 1", (1, 2, 1), named, Box::new(move |_, _, _| vec![patched(9, 1, immediate(1, Immediate(1)))])),
        ("seven octets of immediate data", (2, 0, 3), bare, Box::new(move |_, _, _| vec![cut(25, immediate(1, Immediate(1)))])),
        ("nine octets of immediate data", (2, 0, 3), bare, Box::new(move |_, _, _| vec![cut(27, immediate(1, Immediate(1)))])),
        ("no immediate data", (2, 0, 3), bare, Box::new(move |_, _, _| vec![cut(18, immediate(1, Immediate(1)))])),
        ("atomic request with MSN 2 first", (1, 2, 3), named, Box::new(move |open, _, _| vec![atomic(2, add(open, at(open, 0)))])),
        ("atomic request to QN 0", (1, 2, 1), named, Box::new(move |open, _, _| vec![patched(9, 0, atomic(1, add(open, at(open, 0))))])),
        ("atomic request not last", (1, 2, 4), named, Box::new(move |open, _, _| vec![patched(0, 0x01, atomic(1, add(open, at(open, 0))))])),
        ("atomic request too short", (2, 0, 3), bare, Box::new(move |open, _, _| vec![cut(69, atomic(1, add(open, at(open, 0))))])),
        ("atomic request too long", (2, 0, 3), bare, Box::new(move |open, _, _| vec![cut(71, atomic(1, add(open, at(open, 0))))])),
        ("reserved atomic operation", (0, 2, 6), named, Box::new(move |open, _, _| vec![patched(21, 1, atomic(1, add(open, at(open, 0))))])),
        ("atomic requests beyond IRD", (0, 2, 7), bare, Box::new(move |open, _, _| (1..=5).map(|msn| atomic(msn, add(open, at(open, 0)))).collect())),
        ("atomic at an unknown STag", (0, 1, 0), named, Box::new(move |open, _, _| vec![atomic(1, AtomicRequest { stag: open.key() ^ 0x100, ..add(open, at(open, 0)) })])),
        ("atomic beyond the end", (0, 1, 1), named, Box::new(move |open, _, _| vec![atomic(1, add(open, at(open, 96)))])),
        ("atomic before the start", (0, 1, 1), named, Box::new(move |open, _, _| vec![atomic(1, add(open, at(open, 0) - 8))])),
        ("atomic that wraps around the address space", (0, 1, 4), named, Box::new(move |open, _, _| vec![atomic(1, add(open, u64::MAX - 6))])),
        ("atomic without the right", (0, 1, 2), named, Box::new(move |_, writable, _| vec![atomic(1, add(writable, at(writable, 0)))])),
        ("atomic on memory of another protection domain", (0, 1, 3), named, Box::new(move |_, _, foreign| vec![atomic(1, add(foreign, at(foreign, 0)))])),
        ("atomic not aligned", (0, 2, 7), named, Box::new(move |open, _, _| vec![atomic(1, add(open, at(open, 4)))])),
        ("bad atomic request after a good one", (0, 2, 7), named, Box::new(move |open, _, _| vec![atomic(1, add(open, at(open, 8))), atomic(2, add(open, at(open, 1)))])),
        ("bad atomic behind a read", (0, 2, 7), named, Box::new(move |open, _, _| {
            let read = ReadRequest { sink_stag: 1, sink_to: 0, len: 8, source_stag: open.key(), source_to: open.addr() };
            vec![read_frame(1, read), atomic(2, add(open, at(open, 1)))]
        })),
        ("response out of turn", (1, 2, 3), named, Box::new(move |_, _, _| vec![atomic_response(2, response(1))])),
        ("response with another id", (0, 2, 0xFF), named, Box::new(move |_, _, _| vec![atomic_response(1, response(2))])),
        ("response too short", (2, 0, 3), bare, Box::new(move |_, _, _| vec![cut(29, atomic_response(1, response(1)))])),
        ("response to a read", (1, 2, 2), named, Box::new(move |_, _, _| vec![atomic_response(1, response(1)), atomic_response(2, response(2))])),
    ];
    for crc in [false, true] {
        for (what, (layer, etype, code), named, frames) in &rules {
            let mut side = Side::new(StreamCfg { crc, ..extended_cfg() });
            let (open, sink) = (side.buf(100), side.buf(200));
            let writable =
                Buf::new(&side.keys, side.pd, 100, Access { remote_atomic: false, ..ALL });
            let foreign = Buf::new(&side.keys, side.keys.pd(), 100, ALL);
            side.recv(1, &[sink.seg(0, 100)]);
            side.post(fetch_add(10, &[sink.seg(100, 8)], Remote { addr: 0, key: 9 }, 1));
            side.post(read(11, &[sink.seg(108, 8)], Remote { addr: 0, key: 9 }));
            let n = side.stream.tx(&mut side.tx).unwrap();
            side.stream.tx_done(&mut side.tx, n);

            let frames = frames(&open, &writable, &foreign);
            let octets: Vec<u8> = frames.iter().flat_map(|ulpdu| fpdu(ulpdu, crc)).collect();
            let fed = octets.iter().try_for_each(|&octet| side.stream.rx_octets(&[octet]));
            let failure = fed.and_then(|()| {
                loop {
                    let n = side.stream.tx(&mut side.tx)?;
                    assert!(n > 0, "{what}: the frames must be refused");
                    side.stream.tx_done(&mut side.tx, n);
                }
                #[expect(unreachable_code, reason = "the loop ends with the failure")]
                Ok::<(), Failure>(())
            });
            let cause = Cause { layer: *layer, etype: *etype, code: *code };
            assert_eq!(failure, Err(Failure { by_peer: false, cause }), "{what}");

            let words = side.stream.terminate();
            let (terminate, _) = Terminate::parse(&words[20..words.len() - 4]).unwrap();
            assert_eq!((terminate.cause, terminate.read_request), (cause, None), "{what}");
            let offending = frames.last().unwrap();
            let header = terminate.header.map(|header| header.as_bytes().to_vec());
            assert_eq!(header, named.then(|| offending[..18].to_vec()), "{what}");
            assert_eq!(terminate.segment_len, named.then_some(offending.len() as u16), "{what}");

            side.stream.flush();
            assert_eq!(side.completions().len(), 2, "{what}");
            assert_eq!(side.received().len(), 1, "{what}");
            for untouched in [&writable, &foreign] {
                assert!(untouched.octets().iter().all(|&octet| octet == 0), "{what}");
            }
            assert!(sink.octets()[108..].iter().all(|&octet| octet == 0), "{what}");
        }
    }
}

/// The requester learns that the target has refused this operation.
#[test]
fn refusals_reach_the_requester() {
    for (offset, status) in
        [(0, None), (1, Some(WcStatus::RemoteResponder)), (96, Some(WcStatus::RemoteAccess))]
    {
        let mut pair = Pair::new(extended_cfg(), 1);
        let (near, far) = (pair.a.buf(16), pair.b.buf(100));
        pair.a.post(fetch_add(1, &[near.seg(0, 8)], far.remote(8), 1));
        pair.a.post(fetch_add(2, &[near.seg(8, 8)], far.remote(offset), 1));
        let Err(failure) = pair.drive() else {
            assert_eq!((status, pair.a.completions().len()), (None, 2));
            continue;
        };
        assert!(!failure.by_peer);
        // The answers to earlier requests arrive first. The TERMINATE comes after them.
        let words = pair.b.stream.terminate();
        while pair.to_a.len() > 0 {
            step_rx(&mut pair.a, &mut pair.to_a, &mut pair.rng, 1 << 20).unwrap();
        }
        assert!(pair.a.stream.rx_octets(&words).unwrap_err().by_peer);
        pair.a.stream.flush();
        let done = wc(1, WcOp::FetchAdd, 8, WcStatus::Success);
        assert_eq!(
            Some(pair.a.completions()),
            status.map(|status| vec![done, wc(2, WcOp::FetchAdd, 0, status)])
        );
        assert_eq!(far.number(8), 1);
    }
}

#[test]
fn the_sink_of_an_atomic_operation_goes_away() {
    let mut side = Side::new(extended_cfg());
    let mut sink = side.buf(8);
    side.post(fetch_add(1, &[sink.seg(0, 8)], Remote { addr: 0, key: 9 }, 1));
    let n = side.stream.tx(&mut side.tx).unwrap();
    side.stream.tx_done(&mut side.tx, n);
    sink.mr = None;
    let answer = atomic_response(1, AtomicResponse { id: 1, original: u64::MAX });
    let failure = side.stream.rx_octets(&fpdu(&answer, false)).unwrap_err();
    assert_eq!(failure.cause, Cause::RDMAP_CATASTROPHIC);
    side.stream.flush();
    assert_eq!(side.completions(), [wc(1, WcOp::FetchAdd, 0, WcStatus::LocalProtection)]);
    assert_eq!(sink.octets(), [0; 8]);
}

#[test]
fn immediate_data_take_a_shared_buffer() {
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = Arc::new(Srq::new(&keys, pd, 4, SEGMENTS, || {}).unwrap());
    let far = Buf::new(&keys, pd, 8, ALL);
    let b = Side::with_srq(extended_cfg(), Some((Arc::clone(&srq), pd)), Arc::clone(&keys));
    let mut pair = Pair::of(Side::new(extended_cfg()), b, 0);
    let near = pair.a.buf(8);
    share(&srq, 5, &[]).unwrap();
    pair.a.post(write_imm(1, &[near.seg(0, 8)], far.remote(0), 3));
    pair.drive().unwrap();
    assert_eq!((pair.b.received(), srq.available()), (vec![arrived(5, 8, 3)], 0));
}
