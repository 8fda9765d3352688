//! A signalled RDMA write between two OpenDAT peers completes when it is placed.

use wire::iwarp::{Cause, Placement, TaggedOpcode};

use super::errors::{fpdu, send_frame, tagged_frame, write_frame};
use super::*;

fn placed_cfg() -> StreamCfg {
    StreamCfg { extended: true, completes_placed: true, waits: true, ..cfg() }
}

/// A report of placed writes.
fn report(placed: u64) -> Vec<u8> {
    tagged_frame(TaggedOpcode::Write, Placement::Reported, (1, placed), true, &[])
}

/// Everything that a side sends now.
fn sent(side: &mut Side) -> Vec<u8> {
    let n = side.stream.tx(&mut side.tx).unwrap();
    let octets = gathered(&side.tx, n);
    side.stream.tx_done(&mut side.tx, n);
    octets
}

fn success(id: u64, op: WcOp, octets: usize) -> Wc {
    wc(id, op, octets, WcStatus::Success)
}

/// When a write completes, all its octets are in the memory of the peer, however TCP divides the
/// stream.
#[test]
fn a_completed_write_is_placed() {
    let largest = if cfg!(miri) { 300 } else { 1 << 20 };
    for (seed, (mulpdu, crc)) in [(65535, false), (1442, true), (128, false)].iter().enumerate() {
        let cfg = StreamCfg { mulpdu: *mulpdu, crc: *crc, ..placed_cfg() };
        let mut pair = Pair::new(cfg, seed as u64);
        let (from, to) = (pair.a.buf(largest).filled(&mut pair.rng), pair.b.buf(largest));
        let sink = pair.b.buf(4);
        for size in [0, 1, 110, 8193, largest].into_iter().filter(|&size| size <= largest) {
            for immediate in [false, true] {
                to.octets_mut().fill(0);
                pair.b.recv(1, &[sink.seg(0, 4)]);
                let segments = [from.seg(0, size)];
                let op = match immediate {
                    true => write_imm(2, &segments, to.remote(0), 7),
                    false => write(2, &segments, to.remote(0)),
                };
                pair.a.post(op);
                pair.a.post(send(3, &[from.seg(0, 4)]));
                let mut completions = Vec::new();
                while completions.is_empty() {
                    assert!(pair.step().unwrap(), "nothing moves, and the write is not complete");
                    completions = pair.a.completions();
                }
                assert!(to.octets()[..size] == from.octets()[..size], "{size} of {cfg:?}");
                pair.b.recv(1, &[sink.seg(0, 4)]);
                pair.drive().unwrap();
                completions.extend(pair.a.completions());
                let op = if immediate { WcOp::WriteImm } else { WcOp::Write };
                assert_eq!(completions, [success(2, op, size), success(3, WcOp::Send, 4)]);
                pair.b.received();
                // The receive that a plain write leaves over is used by the next round.
                if !immediate {
                    pair.a.post(send(4, &[]));
                    pair.drive().unwrap();
                    pair.a.completions();
                    pair.b.received();
                }
            }
        }
        assert!(pair.a.stream.is_drained() && pair.b.stream.is_drained());
    }
}

#[test]
fn one_report_completes_all_writes_that_are_placed() {
    let mut pair = Pair::new(placed_cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    pair.b.recv(1, &[far.seg(0, 10)]);
    let some = [near.seg(0, 10)];
    pair.a.post(write(1, &some, far.remote(0)));
    pair.a.post(SendWr { signalled: false, ..write(2, &some, far.remote(0)) });
    pair.a.post(write(3, &some, far.remote(0)));
    pair.a.post(send(4, &some));
    let octets = sent(&mut pair.a);
    assert_eq!(pair.a.completions(), [], "TCP has accepted the writes, the peer has placed none");
    assert!(!pair.a.stream.is_drained());
    pair.b.stream.rx_octets(&octets).unwrap();
    assert!(pair.b.stream.owes_only_report() && !pair.b.stream.is_drained());
    assert_eq!(sent(&mut pair.b), fpdu(&report(2), false), "one report for both");
    assert!(!pair.b.stream.owes_report() && pair.b.stream.is_drained());
    pair.a.stream.rx_octets(&fpdu(&report(1), false)).unwrap();
    assert_eq!(pair.a.completions(), [success(1, WcOp::Write, 10)]);
    pair.a.stream.rx_octets(&fpdu(&report(2), false)).unwrap();
    let rest = [success(3, WcOp::Write, 10), success(4, WcOp::Send, 10)];
    assert_eq!(pair.a.completions(), rest);
    assert!(pair.a.stream.is_drained());
}

/// Regression test: a report was counted for a request that had taken the slot of a completed one,
/// and another write never completed.
#[test]
fn reports_count_the_writes_of_a_queue_that_stays_full() {
    const QUEUE: u64 = 256;
    let mut pair = Pair::new(placed_cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    let some = [near.seg(0, 10)];
    // The queue holds no whole number of patterns, so that a write takes the slot of a send.
    let is_send = |id: u64| id % 3 == 1;
    let (mut posted, mut completed, mut reports) = (0, 0, 0);
    while completed < 4 * QUEUE {
        while posted < completed + QUEUE {
            pair.a.post(match is_send(posted) {
                true => send(posted, &some),
                false => write(posted, &some, far.remote(0)),
            });
            posted += 1;
        }
        while !sent(&mut pair.a).is_empty() {}
        reports += 1;
        pair.a.stream.rx_octets(&fpdu(&report(reports), false)).unwrap();
        let mut expected = vec![success(completed, WcOp::Write, 10)];
        if is_send(completed + 1) {
            expected.push(success(completed + 1, WcOp::Send, 10));
        }
        assert_eq!(pair.a.completions(), expected);
        completed += expected.len() as u64;
    }
}

#[test]
fn a_report_travels_with_a_message_and_before_it() {
    let mut pair = Pair::new(placed_cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    pair.a.post(write(1, &[near.seg(0, 10)], far.remote(0)));
    let octets = sent(&mut pair.a);
    pair.b.stream.rx_octets(&octets).unwrap();
    pair.b.post(send(2, &[far.seg(0, 10)]));
    assert!(pair.b.stream.owes_report() && !pair.b.stream.owes_only_report());
    let both = [fpdu(&report(1), false), fpdu(&send_frame(1, 0, true, &[0; 10]), false)].concat();
    assert_eq!(sent(&mut pair.b), both);
}

/// What is not a signalled write to an OpenDAT is not marked, and nobody reports it.
#[test]
fn other_writes_are_plain_iwarp() {
    let rows = [
        ("unsignalled", placed_cfg(), false),
        ("completion=local", StreamCfg { completes_placed: false, ..placed_cfg() }, true),
        ("another peer", StreamCfg { extended: false, ..placed_cfg() }, true),
    ];
    for (name, cfg, signalled) in rows {
        let mut pair = Pair::new(cfg, 0);
        let (near, far) = (pair.a.buf(10), pair.b.buf(10));
        pair.a.post(SendWr { signalled, ..write(1, &[near.seg(0, 10)], far.remote(0)) });
        let octets = sent(&mut pair.a);
        let plain = fpdu(&write_frame(far.key(), far.addr(), true, &[0; 10]), false);
        assert_eq!(octets, plain, "{name}");
        assert_eq!(pair.a.completions().len(), usize::from(signalled), "{name}");
        assert!(pair.a.stream.is_drained(), "{name}");
        pair.b.stream.rx_octets(&octets).unwrap();
        assert!(!pair.b.stream.owes_report() && !pair.b.stream.wants_tx(), "{name}");
    }
}

/// A sender of another implementation may set the reserved bits, and a receiver ignores them (RFC
/// 5040, section 4.1).
#[test]
fn reserved_bits_of_another_peer_mean_nothing() {
    let mut side = Side::new(StreamCfg { extended: false, ..placed_cfg() });
    let far = side.buf(10);
    for placement in [Placement::Wanted, Placement::Reported] {
        let to = (far.key(), far.addr());
        let frame = tagged_frame(TaggedOpcode::Write, placement, to, true, &[9; 10]);
        far.octets_mut().fill(0);
        side.stream.rx_octets(&fpdu(&frame, false)).unwrap();
        assert_eq!(far.octets(), [9; 10], "{placement:?}");
        assert!(!side.stream.owes_report() && !side.stream.wants_tx());
    }
}

#[test]
fn a_report_of_too_many_writes_ends_the_connection() {
    let with_payload =
        tagged_frame(TaggedOpcode::Write, Placement::Reported, (1, 1), true, &[0; 4]);
    let not_last = tagged_frame(TaggedOpcode::Write, Placement::Reported, (1, 1), false, &[]);
    for frame in [report(2), report(u64::MAX), with_payload, not_last] {
        let mut pair = Pair::new(placed_cfg(), 0);
        let (near, far) = (pair.a.buf(10), pair.b.buf(10));
        pair.a.post(write(1, &[near.seg(0, 10)], far.remote(0)));
        sent(&mut pair.a);
        let failure = pair.a.stream.rx_octets(&fpdu(&frame, false)).unwrap_err();
        assert_eq!(failure, Failure { by_peer: false, cause: Cause::TAGGED_BOUNDS });
        pair.a.stream.flush();
        assert_eq!(pair.a.completions(), [wc(1, WcOp::Write, 0, WcStatus::Flushed)]);
    }
}

/// The report may arrive while TCP has accepted the write but not all of its immediate data.
#[test]
fn a_write_whose_immediate_data_are_not_sent_yet_is_not_complete() {
    let mut pair = Pair::new(placed_cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    for id in 1..=2 {
        pair.b.recv(id, &[]);
        pair.a.post(write_imm(id, &[near.seg(0, 10)], far.remote(0), 7));
        let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
        let octets = gathered(&pair.a.tx, n);
        pair.a.stream.tx_done(&mut pair.a.tx, n - 1);
        pair.b.stream.rx_octets(&octets[..n - 1]).unwrap();
        let report = sent(&mut pair.b);
        pair.a.stream.rx_octets(&report).unwrap();
        assert_eq!(pair.a.completions(), [], "one octet is left");
        let rest = sent(&mut pair.a);
        assert_eq!(rest, octets[n - 1..]);
        assert_eq!(pair.a.completions(), [success(id, WcOp::WriteImm, 10)]);
        pair.b.stream.rx_octets(&rest).unwrap();
        assert_eq!(pair.b.received().len(), 1);
    }
    assert!(pair.a.stream.is_drained() && pair.b.stream.is_drained());
}

#[test]
fn a_refused_write_says_so_when_it_completes() {
    for crc in [false, true] {
        let mut pair = Pair::new(StreamCfg { mulpdu: 128, crc, ..placed_cfg() }, 0);
        let (near, far) = (pair.a.buf(1000), pair.b.buf(1000));
        let segments = [near.seg(0, 500)];
        pair.a.post(write(1, &segments, far.remote(0)));
        pair.a.post(write(2, &segments, Remote { key: far.key() ^ 0x100, ..far.remote(0) }));
        pair.a.post(write(3, &segments, far.remote(0)));
        let octets = sent(&mut pair.a);
        let refused = pair.b.stream.rx_octets(&octets).unwrap_err();
        assert_eq!(refused.cause, Cause::TAGGED_STAG);
        let terminate = pair.b.stream.terminate();
        assert!(pair.a.stream.rx_octets(&terminate).unwrap_err().by_peer);
        pair.a.stream.flush();
        // The peer has placed the first write. It sends no report after its TERMINATE.
        assert_eq!(
            pair.a.completions(),
            [
                wc(1, WcOp::Write, 0, WcStatus::Flushed),
                wc(2, WcOp::Write, 0, WcStatus::RemoteAccess),
                wc(3, WcOp::Write, 0, WcStatus::Flushed),
            ]
        );
    }
}

/// A program may wait for its write before it posts the receive for which a message of the peer
/// waits, in front of the report.
#[test]
fn reports_behind_a_message_without_a_receive_count() {
    for crc in [false, true] {
        for first in [1, 30, 50, 200] {
            let mut pair = Pair::new(StreamCfg { crc, ..placed_cfg() }, 0);
            let (near, far) = (pair.a.buf(200), pair.b.buf(200));
            assert_eq!(pair.a.stream.wants_ahead(), 0);
            for id in 1..=2 {
                pair.a.post(write(id, &[near.seg(0, 10)], far.remote(0)));
            }
            sent(&mut pair.a);
            let octets = [
                fpdu(&send_frame(1, 0, true, &[5; 40]), crc),
                fpdu(&report(1), crc),
                fpdu(&send_frame(2, 0, true, &[6; 150]), crc),
                fpdu(&report(2), crc),
            ]
            .concat();
            // The stream stalls within `first` octets, or when the message is whole.
            let (now, ahead) = octets.split_at(first.max(if crc { 68 } else { 21 }));
            for portion in now.chunks(if first == 1 { 1 } else { now.len() }) {
                pair.a.stream.rx_octets(portion).unwrap();
            }
            assert!(pair.a.stream.is_stalled(), "{crc} {first}");
            let mut completions = pair.a.completions();
            for &octet in ahead {
                assert!(pair.a.stream.wants_ahead() > 0, "{crc} {first}");
                pair.a.stream.rx_ahead(&[octet]);
                completions.extend(pair.a.completions());
            }
            let both = [success(1, WcOp::Write, 10), success(2, WcOp::Write, 10)];
            assert_eq!(completions, both, "{crc} {first}");
            assert_eq!(pair.a.stream.wants_ahead(), 0, "no write waits any more");
            for (id, octet, len) in [(1, 5, 40), (2, 6, 150)] {
                pair.a.recv(id, &[near.seg(0, 200)]);
                pair.a.stream.resume().unwrap();
                assert_eq!(pair.a.received(), [success(id, WcOp::Recv, len)], "{crc} {first}");
                assert_eq!(near.octets()[..len], vec![octet; len]);
            }
            assert!(!pair.a.stream.is_stalled() && pair.a.completions().is_empty());
        }
    }
}

/// A peer that floods a waiting message's backlog makes this side keep a bounded number of octets.
#[test]
fn what_is_kept_behind_a_message_is_bounded() {
    let mut pair = Pair::new(placed_cfg(), 0);
    let (near, far) = (pair.a.buf(10), pair.b.buf(10));
    pair.a.post(write(1, &[near.seg(0, 10)], far.remote(0)));
    sent(&mut pair.a);
    pair.a.stream.rx_octets(&fpdu(&send_frame(1, 0, true, &[]), false)).unwrap();
    let mut kept = 0;
    loop {
        match pair.a.stream.wants_ahead().min(1000) {
            0 => break,
            n => pair.a.stream.rx_ahead(&vec![0xFF; n]),
        }
        kept += 1;
        assert!(kept <= 132, "more than 128 KiB");
    }
    assert_eq!(pair.a.completions(), []);
}
