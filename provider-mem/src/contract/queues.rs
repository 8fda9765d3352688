//! Cases about completion queues and shared receive queues, and about their upcalls.

use super::rig::*;
use dat_core::provider::*;

pub fn unsignalled_requests_complete_silently<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    // This case posts more requests than the queue has slots. The slots of unsignalled requests
    // become free without a completion.
    for round in 0..4 {
        for i in 0..16 {
            b.recv(i, &[b.mem.segment(0, 8)]);
            let segments = [a.mem.segment(0, 8)];
            let send = signalled(16 * round + i, SEND, &segments);
            a.post_wr(&SendWr { signalled: i == 15, ..send });
        }
        assert_eq!(
            outcomes(&rig.completions(&a.requests, 1)),
            [(16 * round + 15, WcStatus::Success)]
        );
        assert_eq!(rig.completions(&b.recvs, 16).len(), 16);
    }
    assert_eq!(poll::<T>(&a.requests, 1), []);
}

pub fn an_armed_queue_makes_one_upcall<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for i in 0..4 {
        b.recv(i, &[]);
    }
    // A completion queue that is not armed makes no upcall.
    a.send(0, &[]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(0, WcStatus::Success)]);
    b.recvs_log.assert_silent();

    assert!(arm::<T>(&b.recvs, false), "arming an empty queue must succeed");
    b.recvs_log.assert_silent();
    a.send(1, &[]);
    a.send(2, &[]);
    let event = rig.next("CqReady", &b.recvs_log);
    assert!(matches!(event, Event::CqReady), "{event:?}");
    assert_eq!(
        outcomes(&rig.completions(&b.recvs, 2)),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    b.recvs_log.assert_silent();

    // If `arm` is called twice, the latest call determines which completions cause an upcall.
    assert!(arm::<T>(&b.recvs, true) && arm::<T>(&b.recvs, false));
    a.send(3, &[]);
    rig.next("CqReady", &b.recvs_log);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(3, WcStatus::Success)]);
}

pub fn solicited_waits_ignore_other_completions<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    let send = |id, solicited| a.post_wr(&SendWr { solicited, ..signalled(id, SEND, &[]) });
    for i in 0..4 {
        b.recv(i, &[]);
    }
    assert!(arm::<T>(&b.recvs, false) && arm::<T>(&b.recvs, true));
    send(0, false);
    rig.completions(&b.recvs, 1);
    b.recvs_log.assert_silent();
    send(1, true);
    rig.next("CqReady", &b.recvs_log);
    rig.completions(&b.recvs, 1);

    // A failed completion causes an upcall even if the queue is armed for solicited completions
    // only.
    assert!(arm::<T>(&b.recvs, true));
    a.qp.disconnect(Close::Abrupt);
    rig.next("CqReady", &b.recvs_log);
    let flushed = rig.completions(&b.recvs, 2);
    assert_eq!(outcomes(&flushed), [(2, WcStatus::Flushed), (3, WcStatus::Flushed)]);
}

pub fn solicited_waits_ignore_quiet_posts<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, mut b) = (End::new(a), End::new(b));
    let cfg = cfg::<T>(&b.pd, &b.requests, &b.recvs, None);
    b.qp = b.t.qp(QpCfg { sender_wakes: false, ..cfg }, b.log.sink()).expect("queue pair");
    rig.join(&a, &b);
    let send = |id, solicited, quiet| {
        a.post_wr(&SendWr { solicited, quiet, ..signalled(id, SEND, &[]) });
    };
    let recv = |id, quiet| {
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { b.qp.post_recv(&RecvWr { id, segments: &[], quiet }) }.expect("the post succeeds");
    };
    for id in 0..4 {
        recv(id, id % 2 == 0);
    }
    assert!(arm::<T>(&a.requests, true) && arm::<T>(&b.recvs, true));
    // If the receiver decides which messages wake it, the sender's flag has no effect.
    send(0, true, true);
    rig.completions(&a.requests, 1);
    rig.completions(&b.recvs, 1);
    a.requests_log.assert_silent();
    b.recvs_log.assert_silent();
    send(1, false, false);
    rig.next("CqReady", &a.requests_log);
    rig.next("CqReady", &b.recvs_log);
    rig.completions(&a.requests, 1);
    rig.completions(&b.recvs, 1);

    // A failed completion causes an upcall even if the queue is armed for solicited completions
    // only.
    assert!(arm::<T>(&b.recvs, true));
    b.qp.disconnect(Close::Abrupt);
    rig.next("CqReady", &b.recvs_log);
    let flushed = rig.completions(&b.recvs, 2);
    assert_eq!(outcomes(&flushed), [(2, WcStatus::Flushed), (3, WcStatus::Flushed)]);
    drop(b);
}

/// A queue may have more room than requested, so this case fills it completely.
pub fn a_full_completion_queue_overflows<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = (End::with(a, 4 * QUEUE, 64), End::with(b, 4, 64));
    rig.join(&a, &b);
    for i in 0..QUEUE as u64 {
        b.recv(i, &[]);
    }
    // The last receive is for the message that follows an overflow.
    let most = QUEUE - 1;
    let mut sent = 0;
    let mut overflowed = false;
    while !overflowed && sent < most as u64 {
        a.send(sent, &[]);
        rig.completions(&a.requests, 1);
        sent += 1;
        overflowed = matches!(b.recvs_log.take(), Some(Event::CqOverflow));
    }
    // A send may complete before its receive does. So this case polls until it knows which of the
    // two has happened: a completion was lost, or every completion has arrived.
    let mut kept = Vec::new();
    rig.until("an overflow or every completion", || {
        overflowed |= matches!(b.recvs_log.take(), Some(Event::CqOverflow));
        kept.extend(poll::<T>(&b.recvs, QUEUE));
        (overflowed || kept.len() == most).then_some(())
    });
    assert!(kept.len() >= 4, "the queue has less room than requested: {}", kept.len());
    let want: Vec<_> = (0..kept.len() as u64).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(outcomes(&kept), want, "the completions that fitted must be in the queue");
    if overflowed {
        // The queue has room again. But a completion that is queued now would come after
        // completions that were lost, so none is queued.
        a.send(sent, &[]);
        rig.completions(&a.requests, 1);
        b.t.progress();
        assert_eq!(poll::<T>(&b.recvs, 1), []);
        b.recvs_log.assert_silent();
    }
}

pub fn resizing_loses_nothing<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = (End::with(a, QUEUE, 64), End::with(b, 8, 64));
    rig.join(&a, &b);
    for i in 0..16 {
        b.recv(i, &[]);
    }
    for i in 0..8 {
        a.send(i, &[]);
    }
    // When the read that was posted after the sends has completed, all sends have arrived. Arming
    // must then fail, because only a thread that arms an empty queue is notified.
    a.post(8, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(0, 8)]);
    rig.completions(&a.requests, 9);
    assert!(!arm::<T>(&b.recvs, false), "arming a queue that is not empty must fail");
    let error =
        resize::<T>(&b.recvs, 4).expect_err("a queue with eight completions cannot shrink to four");
    assert_eq!(error.kind(), dat_sys::DAT_INVALID_STATE);
    resize::<T>(&b.recvs, 16).expect("a queue may grow while it holds completions");
    for i in 8..16 {
        a.send(i, &[]);
    }
    rig.completions(&a.requests, 8);
    let want: Vec<_> = (0..16).map(|id| (id, WcStatus::Success)).collect();
    let half = rig.completions(&b.recvs, 8);
    resize::<T>(&b.recvs, 32).expect("the queue can grow again");
    let rest = rig.completions(&b.recvs, 8);
    assert_eq!(outcomes(&[half, rest].concat()), want);
    b.recvs_log.assert_silent();
    resize::<T>(&b.recvs, 1).expect("an empty queue can shrink");
}

pub fn a_shared_queue_serves_all_its_endpoints<T: Transport>(a: &T, b: &T) {
    if b.attrs().max_srqs == 0 {
        return;
    }
    let rig = Rig { a, b };
    let srq_log = Log::new(b);
    let mut ends = vec![End::new(b), End::new(b), End::new(b)];
    let pd = b.pd().expect("protection domain");
    let mem = Buffer::new(b, &pd, 4096, ALL);
    let srq = b.srq(&pd, 10, 2, srq_log.sink()).expect("shared receive queue");
    for end in &mut ends {
        end.qp = b
            .qp(cfg::<T>(&end.pd, &end.requests, &end.recvs, Some(&srq)), end.log.sink())
            .expect("queue pair");
    }
    let peers = [End::new(a), End::new(a), End::new(a)];
    for (peer, end) in peers.iter().zip(&ends) {
        rig.join(peer, end);
    }
    let post = |id: u64| {
        let wr = RecvWr {
            id,
            segments: &[mem.segment(id as usize * 64, 32), mem.segment(id as usize * 64 + 32, 32)],
            quiet: false,
        };
        // SAFETY: the buffer outlives the case.
        unsafe { srq.post_recv(&wr) }
    };
    for id in 0..10 {
        post(id).expect("the post succeeds");
    }
    assert_eq!(post(10), Err(PostError::Full));
    assert_eq!(srq.available(), 10);
    let own = RecvWr { id: 0, segments: &[], quiet: false };
    // SAFETY: the receive has no segments, so no memory must stay valid.
    let refused = unsafe { ends[0].qp.post_recv(&own) };
    assert!(refused.is_err(), "an endpoint with a shared queue has no receive queue of its own");

    srq.set_low_watermark(8);
    srq_log.assert_silent();
    let mut taken = Vec::new();
    for (i, (peer, end)) in peers.iter().zip(&ends).enumerate() {
        peer.mem.write(0, &pattern(i as u64, 40));
        peer.send(i as u64, &[peer.mem.segment(0, 40)]);
        let wc = rig.completions(&end.recvs, 1)[0];
        assert_eq!((wc.bytes, wc.status), (40, WcStatus::Success));
        assert_eq!(mem.read(wc.id as usize * 64, 40), pattern(i as u64, 40));
        assert_eq!(srq.available(), 9 - i);
        taken.push(wc.id);
        // One event is reported when *fewer* buffers than the watermark are left (uDAPL 1.2,
        // dat_srq_set_lw).
        match i {
            2 => assert!(matches!(rig.next("the watermark", &srq_log), Event::LowWatermark)),
            _ => srq_log.assert_silent(),
        }
    }
    taken.sort();
    assert_eq!(taken, [0, 1, 2]);
    srq.set_low_watermark(8);
    assert!(matches!(rig.next("the watermark, at once", &srq_log), Event::LowWatermark));

    // When one connection ends, the buffers of the shared receive queue stay available to the other
    // connections.
    peers[0].qp.disconnect(Close::Abrupt);
    assert!(matches!(rig.next("the end", &ends[0].log), Event::Disconnected | Event::Broken));
    assert_eq!(srq.available(), 7);
    peers[1].send(9, &[]);
    assert_eq!(rig.completions(&ends[1].recvs, 1)[0].status, WcStatus::Success);
    srq_log.assert_silent();

    assert!(
        srq.resize(5).is_err(),
        "the queue holds six receives, so the size of five must be refused"
    );
    srq.resize(20).expect("the shared queue can grow");
    for id in 10..24 {
        post(id).expect("the post succeeds");
    }
    assert_eq!(post(24), Err(PostError::Full));
    drop(ends);
}

pub fn allocated_buffers_are_counted<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = (End::new(a), End::new(b));
    let of = |buffers| Some(Allocated { buffers, span: buffers });
    assert_eq!(b.qp.allocated(), of(0));
    for i in 0..3 {
        b.recv(i, &[b.mem.segment(0, 8)]);
    }
    assert_eq!(b.qp.allocated(), of(3), "receives must be counted before there is a connection");
    rig.join(&a, &b);
    a.send(0, &[a.mem.segment(0, 8)]);
    // The receive has completed, although its completion was not polled.
    rig.until("the message", || (!arm::<T>(&b.recvs, false)).then_some(()));
    assert_eq!(b.qp.allocated(), of(2));
    b.qp.disconnect(Close::Abrupt);
    rig.next("the end", &b.log);
    assert_eq!(b.qp.allocated(), of(0));
    assert_eq!(rig.completions(&b.recvs, 3).len(), 3);
}

pub fn watermarks_limit_what_is_held<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (peer, mut end) = (End::new(a), End::new(b));
    // The buffers come from the queue pair's own queue or, if supported, from a shared one.
    let srq_log = Log::new(b);
    let srq = (b.attrs().max_srqs > 0)
        .then(|| b.srq(&end.pd, 8, 1, srq_log.sink()).expect("shared queue"));
    let holding = std::sync::Arc::new(HeldBuffers::default());
    holding.set_soft(1);
    holding.set_hard(3);
    let cfg = cfg::<T>(&end.pd, &end.requests, &end.recvs, srq.as_ref());
    let cfg = QpCfg { holding, ..cfg };
    end.qp = b.qp(cfg, end.log.sink()).expect("queue pair");
    for id in 0..8 {
        match &srq {
            Some(srq) => {
                // SAFETY: the receive has no segments, so no memory must stay valid.
                unsafe { srq.post_recv(&RecvWr { id, segments: &[], quiet: false }) }
                    .expect("the post succeeds")
            }
            None => end.recv(id, &[]),
        }
    }
    rig.join(&peer, &end);
    for i in 0..3 {
        peer.send(i, &[]);
        assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(i, WcStatus::Success)]);
        match i {
            1 => assert!(matches!(rig.next("the soft watermark", &end.log), Event::HighWatermark)),
            _ => end.log.assert_silent(),
        }
    }
    peer.send(3, &[]);
    assert!(matches!(rig.next("the hard watermark", &end.log), Event::Broken));
    let taken = rig.completions(&end.recvs, 1);
    assert_eq!(
        outcomes(&taken),
        [(3, WcStatus::Flushed)],
        "the buffer beyond the hard watermark must be flushed"
    );
    if let Some(srq) = &srq {
        assert_eq!(srq.available(), 4, "buffers that no message took must stay");
    }
    let event = rig.next("the end", &peer.log);
    assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
    drop(end);
}

/// Drops objects while a peer causes upcalls to them.
pub fn upcalls_stop_at_drop<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    for round in 0..50 {
        let (peer, end) = rig.pair();
        for i in 0..8 {
            end.recv(i, &[]);
        }
        let End { qp, requests, recvs, mem, pd, log, requests_log, recvs_log, .. } = end;
        arm::<T>(&recvs, false);
        std::thread::scope(|s| {
            s.spawn(|| {
                for i in 0..4 {
                    // If the other thread has disconnected first, these sends are flushed.
                    peer.send(i, &[]);
                    a.progress();
                }
                peer.qp.disconnect(Close::Abrupt);
                a.progress();
            });
            // The delay before the drop grows with each round.
            for _ in 0..round * 20 {
                b.progress();
            }
            drop(qp);
            log.close();
            drop(recvs);
            recvs_log.close();
            drop(requests);
            requests_log.close();
        });
        let event = rig.next("the end", &peer.log);
        assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
        b.progress();
        assert_eq!(
            [log.late(), requests_log.late(), recvs_log.late()],
            [0, 0, 0],
            "no upcall may come after the drop"
        );
        drop((mem, pd));
    }
}

pub fn a_sleeper_is_woken<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    b.recvs.require_upcalls(false);
    for i in 0..50 {
        b.recv(i, &[]);
    }
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| {
            let wake = &b.recvs_log.wake;
            let mut got = Vec::new();
            while got.len() < 50 {
                wake.reset();
                got.extend(poll::<T>(&b.recvs, 50));
                if got.len() < 50 && arm::<T>(&b.recvs, false) {
                    b.t.sleep_on(&b.recvs, wake, Some(std::time::Instant::now() + EVENT_TIMEOUT));
                }
            }
            got
        });
        for i in 0..50 {
            a.send(i, &[]);
            rig.until("the send", || (!poll::<T>(&a.requests, 1).is_empty()).then_some(()));
        }
        while !sleeper.is_finished() {
            a.t.progress();
            std::thread::yield_now();
        }
        let got = sleeper.join().expect("the sleeper");
        assert_eq!(outcomes(&got), (0..50).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
    });
}
