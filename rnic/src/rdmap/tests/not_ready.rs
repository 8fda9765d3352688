//! A message for which no receive is posted waits for a receive, and all octets after the message
//! wait, too.

use std::collections::VecDeque;

use wire::iwarp::Cause;

use super::*;

fn waiting_cfg() -> StreamCfg {
    StreamCfg { waits: true, extended: true, mulpdu: 128, ..cfg() }
}

/// The octets that the posted requests produce, all sent at once.
fn transmit_all(side: &mut Side) -> Vec<u8> {
    let mut all = Vec::new();
    while side.stream.tx(&mut side.tx).unwrap() > 0 {
        let octets = side.tx.octets();
        all.extend(gathered(&side.tx, octets));
        side.stream.tx_done(&mut side.tx, octets);
    }
    all
}

/// Writes octets into the memory that the stream determines, at most `portion` at a time, until the
/// stream stalls. Returns the number of octets that the stream has processed.
fn feed_until_stalled(side: &mut Side, octets: &[u8], portion: usize) -> Result<usize, Failure> {
    let mut taken = 0;
    while taken < octets.len() && !side.stream.is_stalled() {
        side.stream.rx(&mut side.rx)?;
        let n = portion.min(octets.len() - taken).min(side.rx.octets());
        assert_eq!(scatter(&side.rx, &octets[taken..][..n]), n);
        taken += n;
        side.stream.rx_done(&mut side.rx, n)?;
    }
    Ok(taken)
}

/// The messages are sends with one, several or no segments, solicited sends, and writes with
/// immediate data. The stream stalls at each of these messages and continues when a receive is
/// posted, wherever the octets are cut into portions.
#[test]
fn every_message_that_takes_a_receive_waits_for_one() {
    let sizes = [5, 300, 0, 128, 40];
    for (crc, whole) in [(false, false), (true, false), (false, true), (true, true)] {
        let program = || {
            let mut a = Side::new(StreamCfg { crc, ..waiting_cfg() });
            let b = Side::new(StreamCfg { crc, ..waiting_cfg() });
            let (from, to) = (a.buf(512).filled(&mut Rng(3)), b.buf(4096));
            for (id, &len) in sizes.iter().enumerate() {
                let segments = [from.seg(id, len)];
                a.post(match id {
                    1 | 2 => send(id as u64, &segments),
                    3 => SendWr { solicited: true, ..send(3, &segments) },
                    _ => write_imm(id as u64, &segments, to.remote(id * 512), 7),
                });
            }
            let sent = transmit_all(&mut a);
            (from, to, b, sent)
        };
        let len = program().3.len();
        for portion in if whole { len..len + 1 } else { 1..140 } {
            let (from, to, mut b, sent) = program();
            let (mut at, mut stalls) = (0, Vec::new());
            for (id, &len) in sizes.iter().enumerate() {
                at += feed_until_stalled(&mut b, &sent[at..], portion).unwrap();
                assert!(b.stream.is_stalled() && b.received().is_empty());
                assert!(
                    !b.stream.resume().unwrap(),
                    "the stream must not resume before a receive is posted"
                );
                stalls.push(b.stream.stalled().unwrap());
                // A write with immediate data takes a receive too, but uses none of its memory,
                // because the write names its own destination.
                b.recv(
                    id as u64,
                    &[to.seg(id * 512, if id == 1 || id == 2 || id == 3 { 512 } else { 0 })],
                );
                assert!(b.stream.resume().unwrap());
                at += feed_until_stalled(&mut b, &sent[at..], portion).unwrap();
                let received = b.received();
                let wc = wc(id as u64, WcOp::Recv, len, WcStatus::Success);
                let immediate = (id == 0 || id == 4).then_some(7);
                assert_eq!(received, [Wc { immediate, ..wc }], "portions of {portion}, CRC {crc}");
                assert_eq!(to.octets()[id * 512..][..len], from.octets()[id..][..len]);
            }
            assert_eq!(at, sent.len());
            assert!(!b.stream.is_stalled() && !b.stream.is_mid_message());
            assert_eq!(b.stream.stalled(), None);
            let Stats { rx_octets, rx_stalls, .. } = b.stream.stats();
            assert_eq!(
                (rx_octets, rx_stalls),
                (sent.len() as u64, 5),
                "each stall must be counted once"
            );
            let arrival = |octets, whole| Arrival { octets, whole };
            // The frames have ULPDUs of 128 octets, which is a multiple of four.
            let first = 108;
            let expected = [(5, true), (first, false), (0, true), (first, false), (40, true)];
            assert_eq!(stalls, expected.map(|(octets, whole)| arrival(octets, whole)));
        }
    }
}

/// Messages that take no receive, here a read with its answer and a write, wait behind a message
/// that needs one.
#[test]
fn what_follows_waits_too_and_own_requests_do_not() {
    let mut pair = Pair::new(waiting_cfg(), 5);
    let (near, far) = (pair.a.buf(64).filled(&mut Rng(1)), pair.b.buf(64));
    pair.a.post(send(1, &[near.seg(0, 8)]));
    pair.a.post(write(2, &[near.seg(8, 8)], far.remote(8)));
    pair.a.post(read(3, &[near.seg(16, 8)], far.remote(16)));
    pair.drive().unwrap();
    assert!(pair.b.stream.is_stalled());
    assert_eq!(far.octets(), [0; 64]);
    // The stalled side still sends.
    pair.a.recv(9, &[near.seg(32, 8)]);
    pair.b.post(send(4, &[far.seg(0, 8)]));
    pair.b.post(write(5, &[far.seg(0, 8)], near.remote(40)));
    // The answer to this read waits behind the message that needs a receive.
    pair.b.post(read(6, &[far.seg(48, 8)], near.remote(0)));
    pair.drive().unwrap();
    let done = |id, op| wc(id, op, 8, WcStatus::Success);
    assert_eq!(pair.a.received(), [done(9, WcOp::Recv)]);
    assert_eq!(pair.b.completions(), [done(4, WcOp::Send), done(5, WcOp::Write)]);
    assert_eq!(pair.a.completions(), [done(1, WcOp::Send), done(2, WcOp::Write)]);

    pair.b.recv(7, &[far.seg(0, 8)]);
    pair.drive().unwrap();
    assert_eq!(pair.b.received(), [done(7, WcOp::Recv)]);
    assert_eq!(
        (pair.a.completions(), pair.b.completions()),
        (vec![done(3, WcOp::Read)], vec![done(6, WcOp::Read)])
    );
    assert_eq!(far.octets()[..16], near.octets()[..16]);
    assert!(pair.a.stream.is_drained() && pair.b.stream.is_drained());
}

/// A message that has waited is checked when it is processed. Any other error in it ends the
/// connection as usual.
#[test]
fn a_message_that_waited_is_checked_as_any() {
    // The message is too long for the posted receive.
    let mut pair = Pair::new(waiting_cfg(), 0);
    let (near, far) = (pair.a.buf(64), pair.b.buf(64));
    pair.a.post(send(1, &[near.seg(0, 9)]));
    pair.drive().unwrap();
    pair.b.recv(2, &[far.seg(0, 8)]);
    let failure = pair.drive().unwrap_err();
    assert_eq!(failure, Failure { by_peer: false, cause: Cause::UNTAGGED_TOO_LONG });
    assert_eq!(pair.b.received(), [wc(2, WcOp::Recv, 9, WcStatus::LocalLength)]);

    // The function that watches receives forbids the use of the posted receive.
    for immediate in [false, true] {
        let mut pair = Pair::new(waiting_cfg(), 0);
        pair.b.stream.work_mut().watch_receives(|| false);
        pair.a.post(if immediate { write_imm(1, &[], Remote::default(), 0) } else { send(1, &[]) });
        pair.drive().unwrap();
        pair.b.recv(2, &[]);
        let failure = pair.drive().unwrap_err();
        assert_eq!(failure, Failure { by_peer: false, cause: Cause::UNTAGGED_NO_BUFFER });
    }

    // The messages after the waiting one are processed only when it has been processed.
    let mut pair = Pair::new(waiting_cfg(), 0);
    let far = pair.b.buf(64);
    pair.a.post(send(1, &[]));
    pair.a.post(write(2, &[], Remote { addr: 0, key: 0 }));
    let near = pair.a.buf(64);
    pair.a.post(write(3, &[near.seg(0, 8)], Remote { addr: 1, key: far.key() ^ 1 }));
    pair.drive().unwrap();
    pair.b.recv(2, &[]);
    assert_eq!(pair.drive().unwrap_err().cause, Cause::TAGGED_STAG);
    assert_eq!(pair.b.received(), [wc(2, WcOp::Recv, 0, WcStatus::Success)]);
}

#[test]
fn a_stalled_stream_can_end() {
    let mut pair = Pair::new(waiting_cfg(), 0);
    pair.a.post(send(1, &[]));
    pair.drive().unwrap();
    pair.b.post(read(3, &[], Remote { addr: 0, key: 0 }));
    pair.b.stream.flush();
    assert_eq!(pair.b.completions(), [wc(3, WcOp::Read, 0, WcStatus::Flushed)]);
    pair.b.recv(4, &[]);
    assert!(pair.b.stream.resume().is_err() && pair.b.received().is_empty());
    pair.b.stream.flush();
    assert_eq!(pair.b.received(), [wc(4, WcOp::Recv, 0, WcStatus::Flushed)]);
}

/// Several queue pairs share a receive queue. Each buffer is for the queue pair that has waited
/// longest. A queue pair that does not wait yet does not overtake the waiting ones.
#[test]
fn a_shared_receive_queue_serves_its_line_in_order() {
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = Arc::new(Srq::new(&keys, pd, 16, 1, || {}).unwrap());
    let mut pairs: Vec<Pair> = (0..3)
        .map(|seed| {
            let b = Side::with_srq(waiting_cfg(), Some((Arc::clone(&srq), pd)), Arc::clone(&keys));
            let pair = Pair::of(Side::new(waiting_cfg()), b, seed);
            (0..4).for_each(|id| pair.a.post(send(id, &[])));
            pair
        })
        .collect();
    // The third queue pair has no message to receive yet.
    for (number, pair) in pairs.iter_mut().enumerate().take(2) {
        pair.drive().unwrap();
        assert!(pair.b.stream.is_stalled());
        pair.b.stream.wait_for_recv(number);
    }
    assert_eq!(pairs[0].b.stream.work().next_waiting(), None);
    assert_eq!(share(&srq, 100, &[]), Ok(true), "a connection must be waiting for the buffer");
    assert!(!pairs[1].b.stream.resume().unwrap(), "a connection must wait for its turn");
    pairs[2].drive().unwrap();
    assert!(pairs[2].b.stream.is_stalled());
    pairs[2].b.stream.wait_for_recv(2);
    (101..108).for_each(|id| assert_eq!(share(&srq, id, &[]), Ok(true)));

    let heads: Vec<_> = pairs.iter().map(|pair| pair.b.stream.work().next_waiting()).collect();
    assert_eq!(heads, [Some(0); 3], "all connections must be in the list of waiters");
    // SAFETY: the test has one thread.
    let next = || unsafe { srq.next_waiting() };
    let mut turns = VecDeque::new();
    while let Some(number) = next() {
        let stream = &mut pairs[number].b.stream;
        assert!(stream.resume().unwrap());
        if stream.is_stalled() {
            stream.wait_for_recv(number);
        }
        let received = pairs[number].b.received();
        assert_eq!(received.len(), 1);
        turns.push_back((number, received[0].id));
    }
    let expected = [(0, 100), (1, 101), (2, 102), (0, 103), (1, 104), (2, 105), (0, 106), (1, 107)];
    assert_eq!(turns, expected);

    // A queue pair that ends leaves the list of waiters, and the buffers go to the other queue
    // pairs.
    pairs[2].b.stream.flush();
    assert_eq!(share(&srq, 108, &[]), Ok(true));
    assert_eq!(next(), Some(0));
    drop(pairs.remove(0));
    assert_eq!(next(), Some(1));
    assert!(pairs[0].b.stream.resume().unwrap());
    assert_eq!(
        (pairs[0].b.received()[0].id, pairs[0].b.stream.is_stalled()),
        (108, false),
        "the connection must have got its last message"
    );
    drop(pairs);
    assert_eq!(share(&srq, 109, &[]), Ok(false), "no connection may be waiting");
}
