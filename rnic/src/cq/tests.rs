use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::wr::WcOp;

fn wc(id: u64) -> Wc {
    Wc {
        id,
        qp: 0,
        bytes: 0,
        invalidated: None,
        immediate: None,
        op: WcOp::Send,
        status: WcStatus::Success,
    }
}

fn counted(depth: usize) -> (Cq, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (ready, overflow) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&ready), Arc::clone(&overflow));
    let notify = move |event| {
        let counter = match event {
            CqEvent::Ready => &counters.0,
            CqEvent::Overflow => &counters.1,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (Cq::new(depth, notify).unwrap(), ready, overflow)
}

/// Acts as the engine: pushes some completions, then announces them once.
fn produce(cq: &Cq, wcs: impl IntoIterator<Item = (Wc, bool)>) {
    // SAFETY: the caller is the only producer.
    unsafe {
        for (wc, solicited) in wcs {
            cq.push(wc, solicited);
        }
        cq.announce();
    }
}

fn take(cq: &Cq, max: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    // SAFETY: the caller is the only consumer.
    unsafe { cq.poll_with(max, |wc| ids.push(wc.id)) };
    ids
}

fn arm(cq: &Cq, solicited: bool) -> bool {
    // SAFETY: the caller is the only consumer.
    unsafe { cq.arm(solicited) }
}

#[test]
fn one_event_for_one_arming() {
    let (cq, ready, _) = counted(8);
    produce(&cq, [(wc(1), false)]);
    assert!(!arm(&cq, false), "the queue is not empty");
    assert_eq!(take(&cq, 9), [1]);
    assert!(arm(&cq, false));
    assert_eq!(ready.load(Ordering::Relaxed), 0);
    produce(&cq, [(wc(2), false), (wc(3), false)]);
    produce(&cq, [(wc(4), false)]);
    produce(&cq, []);
    assert_eq!(ready.load(Ordering::Relaxed), 1);
    assert_eq!(take(&cq, 2), [2, 3]);
    assert_eq!(take(&cq, 2), [4]);
    produce(&cq, [(wc(5), true)]);
    assert_eq!(ready.load(Ordering::Relaxed), 1, "the queue is not armed");
}

#[test]
fn solicited_or_failed() {
    let (cq, ready, _) = counted(8);
    assert!(arm(&cq, true));
    produce(&cq, [(wc(1), false)]);
    assert_eq!(ready.load(Ordering::Relaxed), 0);
    produce(&cq, [(wc(2), false), (wc(3), true), (wc(4), false)]);
    assert_eq!(ready.load(Ordering::Relaxed), 1);
    take(&cq, 9);
    assert!(arm(&cq, true));
    produce(&cq, [(Wc { status: WcStatus::Flushed, ..wc(5) }, false)]);
    assert_eq!(ready.load(Ordering::Relaxed), 2);
}

#[test]
fn overflow_is_told_once_and_keeps_the_old() {
    let (cq, _, overflow) = counted(4);
    produce(&cq, (0..7).map(|id| (wc(id), false)));
    assert_eq!(overflow.load(Ordering::Relaxed), 1);
    assert_eq!(take(&cq, 9), [0, 1, 2, 3]);
}

#[test]
fn resizing_loses_nothing() {
    let (cq, ready, overflow) = counted(4);
    produce(&cq, (0..4).map(|id| (wc(id), false)));
    // SAFETY: the test runs in one thread.
    let resize = |depth| unsafe { cq.resize(depth) };
    assert_eq!(resize(3), Ok(false));
    assert_eq!(resize(100), Ok(true));
    produce(&cq, (4..100).map(|id| (wc(id), false)));
    assert_eq!(resize(usize::MAX), Err(OutOfMemory { depth: usize::MAX }));
    assert_eq!(take(&cq, 95), (0..95).collect::<Vec<_>>());
    assert_eq!(resize(5), Ok(true));
    assert_eq!(take(&cq, 9), [95, 96, 97, 98, 99]);
    assert!(arm(&cq, false));
    assert_eq!(resize(1), Ok(true));
    produce(&cq, [(wc(1), false)]);
    assert_eq!((ready.load(Ordering::Relaxed), overflow.load(Ordering::Relaxed)), (1, 0));
}

fn concurrent(depth: usize) -> (ConcurrentCq, Arc<AtomicUsize>) {
    let ready = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&ready);
    let notify = move |event| {
        assert_eq!(event, CqEvent::Ready);
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (ConcurrentCq::new(depth, notify).unwrap(), ready)
}

#[test]
fn a_concurrent_queue_tells_of_what_is_added_after_its_arming() {
    let (cq, ready) = concurrent(8);
    let ready = || ready.load(Ordering::Relaxed);
    produce(cq.queue(), [(wc(0), false)]);
    cq.arm(false);
    assert_eq!(ready(), 0, "the completion was there before");
    produce(cq.queue(), [(wc(1), false)]);
    assert_eq!(ready(), 1);
    produce(cq.queue(), [(wc(2), true)]);
    assert_eq!(ready(), 1, "one event for one arming");
    cq.arm(true);
    produce(cq.queue(), [(wc(3), false)]);
    assert_eq!(ready(), 1, "the completion is not solicited");
    produce(cq.queue(), [(Wc { status: WcStatus::Flushed, ..wc(4) }, false)]);
    assert_eq!(ready(), 2);
    cq.arm(false);
    cq.arm(true);
    produce(cq.queue(), [(wc(5), false)]);
    assert_eq!(ready(), 3, "the wider request holds");
    let mut ids = Vec::new();
    assert_eq!(cq.poll_with(9, |wc| ids.push(wc.id)), 6);
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_concurrent_queue_is_resized_while_threads_poll() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
    let (cq, _) = concurrent(8);
    let (taken, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while taken.load(Ordering::Acquire) < 4 * ROUNDS as usize {
                    let n = cq.poll_with(3, |wc| {
                        sum.fetch_add(wc.id as usize, Ordering::Relaxed);
                    });
                    taken.fetch_add(n, Ordering::Release);
                    thread::yield_now();
                }
            });
        }
        for round in 0..ROUNDS {
            while 4 * round as usize - taken.load(Ordering::Acquire) > 4 {
                thread::yield_now();
            }
            produce(cq.queue(), (0..4).map(|n| (wc(4 * round + n), false)));
            // SAFETY: this thread is the only engine.
            assert!(unsafe { cq.resize(8 + round as usize % 2) }.unwrap());
        }
    });
    let all = 4 * ROUNDS as usize;
    assert_eq!((taken.into_inner(), sum.into_inner()), (all, all * (all - 1) / 2));
}

/// A consumer that sleeps only if `arm` returns true is always woken.
#[test]
fn no_wake_up_is_lost() {
    const COMPLETIONS: u64 = if cfg!(miri) { 200 } else { 50_000 };
    let (send, receive) = std::sync::mpsc::channel();
    let notify = move |event| {
        assert_eq!(event, CqEvent::Ready);
        send.send(()).unwrap();
    };
    let cq = Cq::new(16, notify).unwrap();
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COMPLETIONS {
                // The acquire ordering ensures that the released slots of the queue are visible,
                // too.
                while id as usize - taken.load(Ordering::Acquire) >= 16 {
                    thread::yield_now();
                }
                produce(&cq, [(wc(id), false)]);
            }
        });
        let mut next = 0;
        while next < COMPLETIONS {
            for id in take(&cq, 16) {
                assert_eq!(id, next);
                next += 1;
            }
            taken.store(next as usize, Ordering::Release);
            if next < COMPLETIONS && arm(&cq, false) {
                receive
                    .recv_timeout(std::time::Duration::from_secs(60))
                    .expect("no event came for a completion");
            }
        }
    });
}

/// The completions of one queue pair go, wherever they are in the queue, and the others stay in
/// their order.
#[test]
fn the_completions_of_one_queue_pair_are_removed() {
    let of = |qp, id| (Wc { qp, ..wc(id) }, false);
    for first in 0..6 {
        let (cq, ready, _) = counted(4);
        // The queued completions begin at each place of the ring.
        for id in 0..first {
            produce(&cq, [of(7, id)]);
            assert_eq!(take(&cq, 1), [id]);
        }
        for (qps, stay) in [
            ([1, 2, 1, 2], vec![11, 13]),
            ([2, 1, 1, 2], vec![10, 13]),
            ([1, 1, 1, 1], vec![]),
            ([2, 2, 2, 2], vec![10, 11, 12, 13]),
            ([2, 2, 2, 1], vec![10, 11, 12]),
        ] {
            produce(&cq, qps.iter().zip(10..).map(|(&qp, id)| of(qp, id)));
            // SAFETY: the test runs in one thread.
            unsafe { cq.remove(1) };
            // The places of the removed completions are free again.
            produce(&cq, (stay.len()..4).map(|id| of(1, id as u64)));
            let later = (stay.len()..4).map(|id| id as u64);
            assert_eq!(take(&cq, 9), stay.iter().copied().chain(later).collect::<Vec<_>>());
        }
        // An event that a removed completion has caused is not taken back.
        assert!(arm(&cq, false));
        produce(&cq, [of(1, 0)]);
        // SAFETY: the test runs in one thread.
        unsafe { cq.remove(1) };
        assert_eq!((take(&cq, 1).len(), ready.load(Ordering::Relaxed)), (0, 1));
        assert!(arm(&cq, false), "the queue is empty");
    }
}
