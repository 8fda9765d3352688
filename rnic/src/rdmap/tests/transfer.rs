//! All messages arrive, however TCP divides the octets into portions.

use std::collections::VecDeque;

use wire::iwarp::Cause;
use wire::iwarp::mpa::fpdu::{fpdu_len, trailer_len};

use super::*;

const SIZES: &[usize] = &[
    0,
    1,
    2,
    3,
    4,
    5,
    63,
    64,
    109,
    110,
    114,
    1423,
    1424,
    1425,
    8191,
    8192,
    8193,
    65459,
    65460,
    65516,
    65517,
    65518,
    65536,
    131_001,
    1 << 20,
    (1 << 20) + 1,
    16 << 20,
];

const LARGEST: usize = if cfg!(miri) { 130 } else { 16 << 20 };

fn configurations() -> impl Iterator<Item = StreamCfg> {
    [65535, 65477, 1442, 128].into_iter().flat_map(|mulpdu| {
        [(false, 0), (true, 0), (true, mulpdu + 6)].map(|(crc, segment)| StreamCfg {
            mulpdu,
            crc,
            segment,
            ..cfg()
        })
    })
}

/// The program changes the memory of a frame that is partly sent. The rest of the frame must be
/// sent with its old octets. If it were sent with the new octets, the CRC would not match, and the
/// peer would consider the frame damaged.
#[test]
fn a_partly_sent_frame_does_not_change() {
    let mut pair = Pair::new(StreamCfg { crc: true, ..cfg() }, 3);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100));
    near.octets_mut().fill(1);
    pair.a.post(write(1, &[near.seg(0, 100)], far.remote(0)));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    let half = gathered(&pair.a.tx, 60);
    pair.a.stream.tx_done(&mut pair.a.tx, 60);
    near.octets_mut().fill(2);
    let left = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    assert_eq!(left, n - 60);
    let rest = gathered(&pair.a.tx, left);
    pair.a.stream.tx_done(&mut pair.a.tx, left);
    pair.b.stream.rx_octets(&half).unwrap();
    pair.b.stream.rx_octets(&rest).unwrap();
    assert_eq!(far.octets(), [1; 100]);
}

#[test]
fn every_operation_of_every_size() {
    for (seed, cfg) in configurations().enumerate() {
        let mut pair = Pair::new(cfg, seed as u64);
        let from = pair.a.buf(LARGEST).filled(&mut pair.rng);
        let to = pair.b.buf(LARGEST);
        // With the smallest frames the largest messages would take long and test nothing new.
        for &size in SIZES.iter().filter(|&&size| size <= LARGEST.min(cfg.mulpdu << 12)) {
            pair.b.recv(1, &[to.seg(0, size)]);
            pair.a.post(send(2, &[from.seg(0, size)]));
            pair.drive().unwrap();
            assert_eq!(pair.a.completions(), [wc(2, WcOp::Send, size, WcStatus::Success)]);
            assert_eq!(pair.b.received(), [wc(1, WcOp::Recv, size, WcStatus::Success)]);
            assert!(to.octets()[..size] == from.octets()[..size], "send {size} {cfg:?}");
            to.octets_mut()[..size].fill(0);

            pair.a.post(write(3, &[from.seg(0, size)], to.remote(0)));
            pair.drive().unwrap();
            assert_eq!(pair.a.completions(), [wc(3, WcOp::Write, size, WcStatus::Success)]);
            assert!(to.octets()[..size] == from.octets()[..size], "write {size} {cfg:?}");
            to.octets_mut()[..size].fill(0);

            pair.b.post(read(4, &[to.seg(0, size)], from.remote(0)));
            pair.drive().unwrap();
            assert_eq!(pair.b.completions(), [wc(4, WcOp::Read, size, WcStatus::Success)]);
            assert!(to.octets()[..size] == from.octets()[..size], "read {size} {cfg:?}");
            assert!(
                to.octets()[size..].iter().all(|&octet| octet == 0),
                "nothing may be written after the data"
            );
            to.octets_mut()[..size].fill(0);
        }
        assert!(pair.a.stream.is_drained() && pair.b.stream.is_drained());
        assert!(!pair.a.stream.is_mid_message() && !pair.b.stream.is_mid_message());
    }
}

/// Splits `len` octets of a buffer from `at` on into a few segments, some of them empty.
fn cut(rng: &mut Rng, buf: &Buf, at: usize, len: usize) -> Vec<Segment> {
    let n = 1 + rng.below(SEGMENTS);
    let mut cuts: Vec<usize> = (1..n).map(|_| rng.below(len + 1)).chain([0, len]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|w| buf.seg(at + w[0], w[1] - w[0])).collect()
}

/// The contents that both ends must have after every message has arrived.
struct Expected {
    completions: Vec<Wc>,
    received: Vec<Wc>,
    /// The contents of each buffer, as offsets and octets.
    pieces: Vec<(usize, Vec<u8>)>,
}

/// Random programs: both ends send, write and read at the same time, with several segments. Some
/// receives are posted after their messages have arrived. The completions must be in order.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn interleavings() {
    const AREA: usize = 40 << 20;
    let mut stalls = 0;
    for seed in 0..24 {
        let mut rng = Rng(seed);
        let cfg = StreamCfg {
            mulpdu: [65535, 65477, 1442, 500][rng.below(4)],
            crc: rng.chance(2),
            extended: true,
            completes_placed: seed % 2 == 0,
            ird: 3,
            ord: 1 + rng.below(3) as u32,
            hold: false,
            segment: [0, 506][rng.below(2)],
            waits: true,
        };
        let mut pair = Pair::new(cfg, seed);
        pair.portion = [200, 5_000, 1 << 20][rng.below(3)];
        let size = |rng: &mut Rng| match rng.below(20) {
            0 => 0,
            1 => 200_000 + rng.below(300_000),
            2..5 => rng.below(40_000),
            _ => rng.below(2_000),
        };

        let sources = [&pair.a, &pair.b].map(|side| side.buf(1 << 20).filled(&mut rng));
        let sinks = [&pair.a, &pair.b].map(|side| side.buf(AREA));
        let mut expected =
            [(); 2].map(|()| Expected { completions: vec![], received: vec![], pieces: vec![] });
        // Each end has a number in memory to which the other end adds by atomic operations.
        let counters = [&pair.a, &pair.b].map(|side| side.buf(8));
        let mut sums = [0; 2];
        // The receives that will be posted later.
        let mut late = [const { VecDeque::<(u64, Vec<Segment>)>::new() }; 2];
        let mut used = [0; 2];
        let mut place = |end: usize, len: usize| {
            let at = used[end];
            used[end] += len + 1;
            assert!(used[end] <= AREA);
            at
        };

        for id in 0..150 {
            let end = rng.below(2);
            let other = 1 - end;
            let side = if end == 0 { &pair.a } else { &pair.b };
            let (len, fence, signalled) = (size(&mut rng), rng.chance(8), !rng.chance(4));
            let at = rng.below(sources[0].octets().len() - len);
            let done = |op| wc(id, op, len, WcStatus::Success);
            let op = match rng.below(5) {
                0 | 1 if rng.chance(3) => {
                    let (room, to, within) = (rng.below(100), place(other, len), place(other, 100));
                    late[other].push_back((id, cut(&mut rng, &sinks[other], within, room)));
                    let data = sources[end].octets()[at..at + len].to_vec();
                    let wc = Wc { immediate: Some(id as u32), ..done(WcOp::Recv) };
                    expected[other].received.push(wc);
                    expected[other].pieces.push((to, data));
                    let segments = cut(&mut rng, &sources[end], at, len);
                    let wr = write_imm(id, &segments, sinks[other].remote(to), id as u32);
                    side.post(SendWr { fence, signalled, ..wr });
                    WcOp::WriteImm
                }
                4 => {
                    let to = place(end, 8);
                    let (add, sum) = (rng.next(), &mut sums[other]);
                    expected[end].pieces.push((to, u64::to_ne_bytes(*sum).to_vec()));
                    *sum = sum.wrapping_add(add);
                    let segments = cut(&mut rng, &sinks[end], to, 8);
                    side.post(SendWr {
                        fence,
                        signalled,
                        ..fetch_add(id, &segments, counters[other].remote(0), add)
                    });
                    if signalled {
                        expected[end].completions.push(wc(
                            id,
                            WcOp::FetchAdd,
                            8,
                            WcStatus::Success,
                        ));
                    }
                    continue;
                }
                0 => {
                    let (room, to) = (len + rng.below(100), place(other, len + 100));
                    late[other].push_back((id, cut(&mut rng, &sinks[other], to, room)));
                    let data = sources[end].octets()[at..at + len].to_vec();
                    expected[other].received.push(done(WcOp::Recv));
                    expected[other].pieces.push((to, data));
                    let segments = cut(&mut rng, &sources[end], at, len);
                    side.post(SendWr { fence, signalled, ..send(id, &segments) });
                    WcOp::Send
                }
                2 | 3 => {
                    let to = place(end, len);
                    let data = sources[other].octets()[at..at + len].to_vec();
                    expected[end].pieces.push((to, data));
                    let segments = cut(&mut rng, &sinks[end], to, len);
                    side.post(SendWr {
                        fence,
                        signalled,
                        ..read(id, &segments, sources[other].remote(at))
                    });
                    WcOp::Read
                }
                _ => {
                    let to = place(other, len);
                    let data = sources[end].octets()[at..at + len].to_vec();
                    expected[other].pieces.push((to, data));
                    let segments = cut(&mut rng, &sources[end], at, len);
                    side.post(SendWr {
                        fence,
                        signalled,
                        ..write(id, &segments, sinks[other].remote(to))
                    });
                    WcOp::Write
                }
            };
            if signalled {
                expected[end].completions.push(done(op));
            }
            for (side, late) in [&pair.a, &pair.b].into_iter().zip(&mut late) {
                while late.len() > 20 || (!late.is_empty() && rng.chance(4)) {
                    late.pop_front()
                        .into_iter()
                        .for_each(|(id, segments)| side.recv(id, &segments));
                }
            }
            for _ in 0..rng.below(4) {
                pair.step().unwrap();
                assert!(pair.a.stream.reads.outstanding <= cfg.ord);
                stalls += u32::from([&pair.a, &pair.b].iter().any(|side| side.stream.is_stalled()));
            }
        }
        pair.drive().unwrap();
        while let Some(end) = (0..2).find(|&end| !late[end].is_empty()) {
            let side = if end == 0 { &pair.a } else { &pair.b };
            late[end].pop_front().into_iter().for_each(|(id, segments)| side.recv(id, &segments));
            pair.drive().unwrap();
        }

        for (end, side) in [&pair.a, &pair.b].into_iter().enumerate() {
            assert_eq!(side.completions(), expected[end].completions, "seed {seed}");
            assert_eq!(side.received(), expected[end].received, "seed {seed}");
            assert!(side.stream.is_drained());
            assert_eq!(counters[end].number(0), sums[end], "seed {seed}");
            let mut whole = vec![0; AREA];
            for (at, data) in &expected[end].pieces {
                whole[*at..][..data.len()].copy_from_slice(data);
            }
            assert!(sinks[end].octets() == whole, "seed {seed}: contents of end {end}");
        }
    }
    assert!(stalls > 100, "{stalls}");
}

#[test]
fn a_window_of_small_sends_is_one_element() {
    let mut pair = Pair::new(cfg(), 0);
    let buf = pair.a.buf(64);
    for id in 0..64 {
        pair.a.post(send(id, &[buf.seg(0, 64)]));
    }
    let octets = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    assert_eq!((pair.a.tx.iov().len(), octets), (1, 64 * (20 + 64 + 2 + 4 - 2)));
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes hours in Miri, which would find nothing new")]
fn large_messages_are_gathered_together_and_not_copied() {
    let mut pair = Pair::new(cfg(), 0);
    let (from, to) = (pair.a.buf(16 << 20).filled(&mut pair.rng), pair.b.buf(16 << 20));
    for id in 0..64 {
        pair.a.post(write(id, &[from.seg(0, 16 << 10)], to.remote(0)));
    }
    let octets = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    assert!(octets >= 1 << 20, "one call must send at least 1 MiB, but it sent {octets} octets");
    pair.a.stream.tx_done(&mut pair.a.tx, 0);
    pair.drive().unwrap();
    pair.a.completions();

    let before = pair.b.stream.stats();
    pair.a.post(write(1, &[from.seg(0, 16 << 20)], to.remote(0)));
    let mut wire = Vec::new();
    while pair.a.stream.wants_tx() {
        let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
        wire.extend(gathered(&pair.a.tx, n));
        pair.a.stream.tx_done(&mut pair.a.tx, n);
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        // The socket returns as many octets as are requested, as if it held many octets.
        pair.b.stream.rx(&mut pair.b.rx).unwrap();
        let n = scatter(&pair.b.rx, rest);
        pair.b.stream.rx_done(&mut pair.b.rx, n).unwrap();
        rest = &rest[n..];
    }
    assert!(to.octets() == from.octets());
    let direct = pair.b.stream.stats().rx_direct - before.rx_direct;
    assert!(direct > (16 << 20) * 98 / 100, "placed without a copy: {direct} octets");
}

#[test]
fn a_fence_waits_for_reads_and_ord_stalls() {
    let mut pair = Pair::new(StreamCfg { ord: 2, ..cfg() }, 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100));
    for id in 0..3 {
        pair.a.post(read(id, &[near.seg(0, 10)], far.remote(0)));
    }
    let read_request = 2 + 18 + 28 + 4;
    assert_eq!(pair.a.stream.tx(&mut pair.a.tx).unwrap(), 2 * read_request);
    pair.a.stream.tx_done(&mut pair.a.tx, 2 * read_request);
    assert!(!pair.a.stream.wants_tx() && !pair.a.stream.is_drained());

    let mut pair = Pair::new(cfg(), 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100).filled(&mut Rng(1)));
    pair.a.post(read(1, &[near.seg(0, 100)], far.remote(0)));
    // The write sends the octets that the read has placed in `near`. Because of its fence, the
    // write must wait for the read. Without the fence it would send the old octets of `near`.
    pair.a.post(SendWr { fence: true, ..write(2, &[near.seg(0, 50)], far.remote(50)) });
    assert_eq!(pair.a.stream.tx(&mut pair.a.tx).unwrap(), read_request);
    pair.a.stream.tx_done(&mut pair.a.tx, 0);
    pair.drive().unwrap();
    assert_eq!(far.octets()[..50], far.octets()[50..]);
    assert_eq!(far.octets()[..50], near.octets()[..50]);
}

#[test]
fn a_read_holds_back_later_completions() {
    let mut pair = Pair::new(cfg(), 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100));
    pair.a.post(read(1, &[near.seg(0, 100)], far.remote(0)));
    pair.a.post(write(2, &[near.seg(0, 100)], far.remote(0)));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    pair.a.stream.tx_done(&mut pair.a.tx, n);
    assert_eq!(pair.a.completions(), []);
    assert!(!pair.a.stream.is_drained());
}

#[test]
fn answers_do_not_starve_requests() {
    let mut pair = Pair::new(StreamCfg { ird: 16, ord: 16, ..cfg() }, 0);
    let (near, far) = (pair.a.buf(100), pair.b.buf(100));
    for id in 0..16 {
        pair.a.post(read(id, &[near.seg(0, 100)], far.remote(0)));
    }
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    let requests = gathered(&pair.a.tx, n);
    pair.b.stream.rx_octets(&requests).unwrap();
    pair.b.post(write(50, &[far.seg(0, 4)], near.remote(0)));
    pair.b.post(write(51, &[far.seg(0, 4)], near.remote(0)));
    let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
    let answer = 2 + 14 + 100 + 4;
    let request = 2 + 14 + 4 + 4;
    assert_eq!(n, 16 * answer + 2 * request);
    // After four answers, this end sends a request of its own. The request completes when TCP
    // accepts its octets.
    pair.b.stream.tx_done(&mut pair.b.tx, 4 * answer + request);
    assert_eq!(pair.b.completions(), [wc(50, WcOp::Write, 4, WcStatus::Success)]);
}

#[test]
fn solicited_and_invalidating_sends() {
    let mut pair = Pair::new(cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    let exposed = pair.b.buf(10);
    let window = Mw::new(&pair.b.keys, pair.b.pd, false);
    let key = pair.b.bind(9, &window, Some(exposed.view(0, 10)));
    pair.b.recv(1, &[far.seg(0, 10)]);
    pair.b.recv(2, &[far.seg(0, 10)]);
    assert!(arm(&pair.b.recvs, true));

    pair.a.post(send(1, &[near.seg(0, 10)]));
    pair.drive().unwrap();
    assert_eq!(
        pair.b.ready.load(Ordering::Relaxed),
        0,
        "a message that is not solicited must not wake anybody"
    );
    let op = SendOp::Send { invalidate: Some(key) };
    pair.a.post(SendWr { op, solicited: true, ..send(2, &[near.seg(0, 10)]) });
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 1);

    let plain = wc(1, WcOp::Recv, 10, WcStatus::Success);
    assert_eq!(pair.b.received(), [plain, Wc { id: 2, invalidated: Some(key), ..plain }]);
    assert_eq!(window.state(key), BindState::Over);
    // The region's own key is unchanged; the window's key is gone.
    pair.a.post(write(3, &[near.seg(0, 10)], exposed.remote(0)));
    pair.drive().unwrap();
    pair.a.post(write(4, &[near.seg(0, 10)], Remote { key, ..exposed.remote(0) }));
    let failure = pair.drive().unwrap_err();
    assert_eq!(failure.cause, wire::iwarp::Cause::TAGGED_STAG);
}

#[test]
fn no_crc_lies_across_two_segments() {
    const MSS: usize = 134;
    for seed in 0..if cfg!(miri) { 1 } else { 200 } {
        let mut side = Side::new(StreamCfg { mulpdu: MSS - 6, crc: true, segment: MSS, ..cfg() });
        let mut rng = Rng(seed);
        let buf = side.buf(1000);
        for id in 0..8 {
            side.post(send(id, &[buf.seg(0, rng.below(1001))]));
        }
        // The octets of the stream, and the positions at which segments had to start.
        let (mut octets, mut starts) = (Vec::new(), vec![0]);
        loop {
            let ready = side.stream.tx(&mut side.tx).unwrap();
            if ready == 0 {
                break;
            }
            assert!(side.tx.ends_record());
            let accepted = if rng.chance(3) { rng.chunk(ready) } else { ready };
            octets.extend(gathered(&side.tx, accepted));
            if accepted == ready {
                starts.push(octets.len());
            }
            side.stream.tx_done(&mut side.tx, accepted);
        }
        assert_eq!(side.completions().len(), 8);

        let mut at = 0;
        while at < octets.len() {
            let ulpdu = u16::from_be_bytes([octets[at], octets[at + 1]]).into();
            let trailer = trailer_len(ulpdu);
            at += fpdu_len(ulpdu);
            let start = starts[starts.partition_point(|start| *start < at) - 1];
            let over = (at - start) % MSS;
            assert!(
                over == 0 || over >= trailer,
                "seed {seed}: {over} of {trailer} octets before {at}"
            );
        }
        assert_eq!(at, octets.len());
    }
}

#[test]
fn a_held_responder_waits_for_the_first_frame() {
    let mut pair = Pair::of(Side::new(cfg()), Side::new(StreamCfg { hold: true, ..cfg() }), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    pair.b.post(write(1, &[far.seg(0, 10)], near.remote(0)));
    pair.drive().unwrap();
    assert!(pair.b.stream.is_held());
    assert_eq!(pair.b.completions(), []);
    pair.a.stream.queue_rtr();
    pair.drive().unwrap();
    assert!(!pair.b.stream.is_held());
    assert_eq!(pair.b.completions(), [wc(1, WcOp::Write, 10, WcStatus::Success)]);
    assert_eq!(pair.a.completions(), [], "the RTR frame must not cause a completion");

    let mut pair = Pair::of(Side::new(cfg()), Side::new(StreamCfg { hold: true, ..cfg() }), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    pair.b.post(write(1, &[far.seg(0, 10)], near.remote(0)));
    pair.b.stream.release();
    pair.drive().unwrap();
    assert_eq!(pair.b.completions(), [wc(1, WcOp::Write, 10, WcStatus::Success)]);
}

#[test]
fn a_shared_receive_queue_serves_many() {
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let low = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&low);
    let notify = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let srq = Arc::new(Srq::new(&keys, pd, 8, SEGMENTS, notify).unwrap());
    let shared = || Side::with_srq(cfg(), Some((Arc::clone(&srq), pd)), Arc::clone(&keys));
    let mut pairs = [0, 1].map(|seed| Pair::of(Side::new(cfg()), shared(), seed));

    let sink = Buf::new(&keys, pd, 80, LOCAL);
    for id in 0..8 {
        let segments = [sink.seg(id as usize * 10, 10)];
        share(&srq, id, &segments).unwrap();
    }
    assert_eq!(share(&srq, 9, &[]), Err(PostError::Full));
    // SAFETY: the test has one thread.
    let resized = unsafe { srq.resize(4) }.unwrap();
    assert!(!resized, "eight receives are queued, so the size of four must be refused");
    // SAFETY: the test has one thread.
    assert!(unsafe { srq.resize(16) }.unwrap());
    srq.set_limit(7);

    for round in 0..4u8 {
        for (n, pair) in pairs.iter_mut().enumerate() {
            let near = pair.a.buf(10);
            near.octets_mut().fill(round * 2 + n as u8);
            pair.a.post(send(0, &[near.seg(0, 10)]));
            pair.drive().unwrap();
            let expected = wc(u64::from(round * 2) + n as u64, WcOp::Recv, 10, WcStatus::Success);
            assert_eq!(pair.b.received(), [expected]);
        }
    }
    assert_eq!(srq.available(), 0);
    assert_eq!(low.load(Ordering::Relaxed), 1, "the watermark must be reported once");
    for (at, &octet) in sink.octets().iter().enumerate() {
        assert_eq!(usize::from(octet), at / 10);
    }
    // Flushing one queue pair flushes the buffer into which this queue pair is receiving a message,
    // but not the other buffers of the shared receive queue.
    share(&srq, 20, &[sink.seg(0, 10)]).unwrap();
    share(&srq, 21, &[]).unwrap();
    let frame = errors::fpdu(&errors::send_frame(5, 0, true, &[1; 10]), false);
    let side = &mut pairs[0].b;
    side.stream.rx_octets(&frame[..frame.len() - 6]).unwrap();
    assert_eq!((side.stream.work().allocated(), srq.available()), (1, 1));
    side.stream.flush();
    assert_eq!(side.received(), [wc(20, WcOp::Recv, 0, WcStatus::Flushed)]);
    assert_eq!((side.stream.work().allocated(), srq.available()), (0, 1));
}

#[test]
fn a_message_may_be_denied_its_buffer() {
    for immediate in [false, true] {
        let mut pair = Pair::new(StreamCfg { extended: true, ..cfg() }, 0);
        let takes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&takes);
        pair.b.stream.work_mut().watch_receives(move || count.fetch_add(1, Ordering::Relaxed) < 2);
        for id in 1..=4 {
            pair.b.recv(id, &[]);
            pair.a.post(match immediate {
                true => write_imm(id, &[], Remote::default(), 0),
                false => send(id, &[]),
            });
        }
        assert_eq!(pair.b.stream.work().allocated(), 4);
        let failure = pair.drive().unwrap_err();
        assert_eq!(failure, Failure { by_peer: false, cause: Cause::UNTAGGED_NO_BUFFER });
        assert_eq!(
            pair.b.stream.work().allocated(),
            2,
            "the forbidden buffer and the unused one must be left"
        );
        pair.b.stream.flush();
        let of = |id, status| wc(id, WcOp::Recv, 0, status);
        let done = |id| Wc { immediate: immediate.then_some(0), ..of(id, WcStatus::Success) };
        let flushed = |id| of(id, WcStatus::Flushed);
        assert_eq!(pair.b.received(), [done(1), done(2), flushed(3), flushed(4)]);
        assert_eq!(takes.load(Ordering::Relaxed), 3, "no message may take a flushed receive");
    }
}
