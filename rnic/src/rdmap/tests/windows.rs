//! Tests of binds among other requests.

use wire::iwarp::Cause;

use super::*;

fn window(side: &Side) -> Mw {
    Mw::new(&side.keys, side.pd, false)
}

#[test]
fn a_bind_waits_for_its_turn() {
    let mut pair = Pair::new(cfg(), 1);
    let (near, far) = (pair.a.buf(1000), pair.b.buf(1000));
    let window = window(&pair.a);
    // The read is still in flight when the bind's turn comes. So the bind waits, and the send
    // behind it waits, too.
    pair.a.post(read(1, &[near.seg(0, 1000)], far.remote(0)));
    let key = pair.a.bind(2, &window, Some(near.view(0, 100)));
    pair.b.recv(9, &[far.seg(0, 8)]);
    pair.a.post(send(3, &[near.seg(0, 8)]));
    while !pair.b.stream.wants_tx() {
        let gathered = pair.a.stream.tx(&mut pair.a.tx).unwrap();
        assert!(gathered <= 52, "only the READ request may be sent");
        pair.a.stream.tx_done(&mut pair.a.tx, 0);
        assert_eq!(window.state(key), BindState::Posted);
        pair.step().unwrap();
    }
    pair.drive().unwrap();
    assert_eq!(window.state(key), BindState::Bound);
    let done = pair.a.completions();
    let expected = [(1, WcOp::Read, 1000), (2, WcOp::Bind, 0), (3, WcOp::Send, 8)];
    assert_eq!(done, expected.map(|(id, op, octets)| wc(id, op, octets, WcStatus::Success)));
}

#[test]
fn a_message_carries_a_key_that_is_valid() {
    for seed in 0..50 {
        let mut pair = Pair::new(cfg(), seed);
        let (near, far) = (pair.a.buf(4096), pair.b.buf(4096));
        let window = window(&pair.a);
        let mut keys = Vec::new();
        for round in 0..8 {
            let offset = 64 * round as usize;
            pair.a.post(write(10 * round, &[near.seg(0, 4096)], far.remote(0)));
            keys.push(pair.a.bind(10 * round + 1, &window, Some(near.view(offset, 64))));
            pair.b.recv(round, &[far.seg(0, 8)]);
            pair.a.post(send(10 * round + 2, &[near.seg(0, 8)]));
        }
        let mut told = 0;
        while pair.step().unwrap() {
            // When the peer receives a key, the bind of this key has been carried out. A later bind
            // may have ended it.
            told += pair.b.received().len();
            for (n, &key) in keys.iter().enumerate().take(told) {
                let last = n + 1 == keys.len();
                assert!(
                    window.state(key) != BindState::Posted
                        && (!last || window.state(key) == BindState::Bound)
                );
            }
        }
        assert_eq!(told, 8);
        assert_eq!(pair.a.completions().len(), 24);
        pair.b.post(read(
            1,
            &[far.seg(0, 64)],
            Remote { addr: near.addr() + 64 * 7, key: keys[7] },
        ));
        pair.drive().unwrap();
        assert_eq!(pair.b.completions(), [wc(1, WcOp::Read, 64, WcStatus::Success)]);
        pair.b.post(read(2, &[far.seg(0, 1)], Remote { addr: near.addr(), key: keys[0] }));
        assert_eq!(pair.drive().unwrap_err().cause, Cause::PROTECTION_STAG);
    }
}

#[test]
fn what_peers_may_do_through_windows() {
    type Case = fn(View<'_>) -> View<'_>;
    let cases: [(Case, bool, u64, Option<Cause>); 6] = [
        (|v| v, true, 0, None),
        (|v| View { zero_based: true, ..v }, true, 0, Some(Cause::TAGGED_BOUNDS)),
        (
            |v| View { access: Access { remote_write: false, ..ALL }, ..v },
            true,
            0,
            Some(Cause::TAGGED_STAG),
        ),
        (
            |v| View { access: Access { remote_read: false, ..ALL }, ..v },
            false,
            0,
            Some(Cause::PROTECTION_ACCESS),
        ),
        (|v| View { len: 7, ..v }, true, 0, Some(Cause::TAGGED_BOUNDS)),
        (|v| v, false, 9, Some(Cause::PROTECTION_BOUNDS)),
    ];
    for (n, (change, writes, offset, cause)) in cases.into_iter().enumerate() {
        let mut pair = Pair::new(cfg(), 3);
        let (near, far) = (pair.a.buf(8), pair.b.buf(64));
        let window = window(&pair.b);
        let key = pair.b.bind(1, &window, Some(change(far.view(16, 16))));
        pair.drive().unwrap();
        let at = Remote { addr: far.addr() + 16 + offset, key };
        let local = [near.seg(0, 8)];
        pair.a.post(if writes { write(2, &local, at) } else { read(2, &local, at) });
        assert_eq!(pair.drive().err().map(|failure| failure.cause), cause, "case {n}");
    }
}

#[test]
fn a_read_into_a_window() {
    for crc in [false, true] {
        let mut pair = Pair::new(StreamCfg { crc, ..cfg() }, 4);
        let (near, mut rng) = (pair.a.buf(9000), Rng(5));
        let far = pair.b.buf(9000).filled(&mut rng);
        let window = window(&pair.a);
        let key = pair.a.bind(1, &window, Some(View { zero_based: true, ..near.view(0, 9000) }));
        pair.drive().unwrap();
        let sink = [Segment { addr: 0, len: 9000, key }];
        let op = SendOp::ReadToWindow(far.remote(0));
        pair.a.post(SendWr { op, ..read(2, &sink, far.remote(0)) });
        pair.drive().unwrap();
        let done =
            [wc(1, WcOp::Bind, 0, WcStatus::Success), wc(2, WcOp::Read, 9000, WcStatus::Success)];
        assert_eq!(pair.a.completions(), done);
        assert_eq!(near.octets(), far.octets());
        // A region's local key is valid for peers only if the region permits that, and the window's
        // key is not valid for local use.
        // SAFETY: the post is refused.
        let refused = unsafe { pair.a.qp.post_send(&read(3, &sink, far.remote(0))) };
        assert_eq!(refused, Err(PostError::Access { write: true }));
    }
}

#[test]
fn a_bind_whose_region_goes_breaks_the_connection() {
    let mut pair = Pair::new(cfg(), 6);
    let mut near = pair.a.buf(100);
    let window = window(&pair.a);
    let key = pair.a.bind(1, &window, Some(near.view(0, 100)));
    pair.a.post(send(2, &[]));
    near.mr = None;
    let failure = pair.drive().unwrap_err();
    assert_eq!((failure.by_peer, failure.cause), (false, Cause::RDMAP_CATASTROPHIC));
    pair.a.stream.flush();
    let expected =
        [wc(1, WcOp::Bind, 0, WcStatus::BindFailed), wc(2, WcOp::Send, 0, WcStatus::Flushed)];
    assert_eq!(pair.a.completions(), expected);
    assert_eq!((window.state(key), pair.a.keys.live()), (BindState::Over, 0));
}

#[test]
fn a_bind_that_is_flushed_or_forgotten_leaves_the_window_as_it_was() {
    let mut pair = Pair::new(cfg(), 7);
    let near = pair.a.buf(100);
    let window = window(&pair.a);
    let bound = pair.a.bind(1, &window, Some(near.view(0, 100)));
    pair.drive().unwrap();
    let flushed = pair.a.bind(2, &window, None);
    let other = pair.a.bind(3, &window, Some(near.view(0, 1)));
    assert_eq!(flushed, 0);
    pair.a.stream.flush();
    let [first, rest @ ..] = &pair.a.completions()[..] else { panic!("three completions") };
    assert_eq!(*first, wc(1, WcOp::Bind, 0, WcStatus::Success));
    assert_eq!(rest, [2, 3].map(|id| wc(id, WcOp::Bind, 0, WcStatus::Flushed)));
    assert_eq!((window.state(bound), window.state(other)), (BindState::Bound, BindState::Over));
    // A bind is posted to a queue pair, and the queue pair is dropped without a flush.
    let last = pair.a.bind(4, &window, Some(near.view(0, 1)));
    let keys = Arc::clone(&pair.a.keys);
    assert_eq!(keys.live(), 3);
    drop(pair);
    assert_eq!((window.state(last), keys.live()), (BindState::Over, 2));
}

#[test]
fn a_full_queue_takes_no_key() {
    let pair = Pair::new(cfg(), 8);
    let near = pair.a.buf(100);
    let window = window(&pair.a);
    for id in 0..256 {
        pair.a.bind(id, &window, Some(near.view(0, 100)));
    }
    assert_eq!(pair.a.try_bind(256, &window, None), Err(PostError::Full));
    assert_eq!(pair.a.keys.live(), 257);
}
