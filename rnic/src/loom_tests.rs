//! Tests of the queues under loom, which tries every interleaving of their threads with few
//! preemptions.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::cq::{Cq, CqEvent};
use crate::key::Keys;
use crate::ring::Ring;
use crate::srq::Srq;
use crate::wr::{RecvWr, Segment, Wc, WcOp, WcStatus};

const SLOTS: usize = 2;

/// A ring together with cells that stand for the memory of its slots. loom reports an access by a
/// thread that does not own the slot.
struct WatchedRing {
    ring: Ring<u64>,
    slots: [UnsafeCell<u64>; SLOTS],
}

#[test]
fn loom_a_ring_hands_its_slots_over_and_back() {
    loom::model(|| {
        let slots = [0, 0].map(UnsafeCell::new);
        let shared = Arc::new(WatchedRing { ring: Ring::new(SLOTS, 0).unwrap(), slots });
        let producer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut sent = 0;
                while sent < 3 {
                    // SAFETY: this thread is the only producer.
                    if unsafe { shared.ring.vacant() }.is_none() {
                        thread::yield_now();
                        continue;
                    }
                    // SAFETY: the slot is vacant, so it belongs to the producer.
                    shared.slots[sent % SLOTS].with_mut(|slot| unsafe { *slot = sent as u64 });
                    // SAFETY: the slot is vacant, so it belongs to the producer.
                    unsafe { shared.ring.publish() };
                    sent += 1;
                }
            })
        };
        for at in 0..3 {
            // SAFETY: this thread is the only consumer.
            while !unsafe { shared.ring.is_filled(at) } {
                thread::yield_now();
            }
            // SAFETY: the slot is filled, so it belongs to the consumer.
            let value = shared.slots[at % SLOTS].with(|slot| unsafe { *slot });
            assert_eq!(value, at as u64);
            // SAFETY: the slot is filled, so it belongs to the consumer.
            unsafe { shared.ring.release(at + 1) };
        }
        producer.join().unwrap();
        assert_eq!(shared.ring.len(), 0);
    });
}

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

/// A consumer that has armed the queue and sleeps is notified of the next completion. Otherwise it
/// would sleep for ever, which loom reports as a deadlock.
#[test]
fn loom_an_armed_completion_queue_tells() {
    loom::model(|| {
        let wakeup = Arc::new((Mutex::new(false), Condvar::new()));
        let woken = Arc::clone(&wakeup);
        let notify = move |event| {
            assert_eq!(event, CqEvent::Ready);
            *woken.0.lock().unwrap() = true;
            woken.1.notify_one();
        };
        let cq = Arc::new(Cq::new(4, notify).unwrap());
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || {
                for id in 0..2 {
                    // SAFETY: this thread is the only producer.
                    unsafe {
                        cq.push(wc(id), false);
                        cq.announce();
                    }
                }
            })
        };
        let mut next = 0;
        while next < 2 {
            let take = |wc: Wc| {
                assert_eq!(wc.id, next);
                next += 1;
            };
            // SAFETY: this thread is the only consumer.
            let taken = unsafe { cq.poll_with(1, take) };
            // SAFETY: this thread is the only consumer.
            if taken == 0 && unsafe { cq.arm(false) } {
                let mut woken = wakeup.0.lock().unwrap();
                while !std::mem::take(&mut *woken) {
                    woken = wakeup.1.wait(woken).unwrap();
                }
            }
        }
        producer.join().unwrap();
    });
}

/// No completion of two engines is lost or duplicated, and the consumer, which sleeps, is notified.
#[test]
fn loom_a_completion_queue_is_shared_by_two_engines() {
    loom::model(|| {
        let wakeup = Arc::new((Mutex::new(false), Condvar::new()));
        let woken = Arc::clone(&wakeup);
        let notify = move |event| {
            assert_eq!(event, CqEvent::Ready);
            *woken.0.lock().unwrap() = true;
            woken.1.notify_one();
        };
        let cq = Arc::new(Cq::new(2, notify).unwrap());
        // SAFETY: no engine uses the queue yet.
        unsafe { cq.share() };
        let engines: Vec<_> = (0..2)
            .map(|id| {
                let cq = Arc::clone(&cq);
                thread::spawn(move || {
                    // SAFETY: the queue is shared.
                    unsafe {
                        cq.push(wc(id), false);
                        cq.announce();
                    }
                })
            })
            .collect();
        let mut seen = [0; 2];
        while seen != [1; 2] {
            // SAFETY: this thread is the only consumer.
            let taken = unsafe { cq.poll_with(2, |wc| seen[wc.id as usize] += 1) };
            assert!(seen.iter().all(|&times| times < 2), "a completion is duplicated");
            // SAFETY: this thread is the only consumer.
            if taken == 0 && unsafe { cq.arm(false) } {
                let mut woken = wakeup.0.lock().unwrap();
                while !std::mem::take(&mut *woken) {
                    woken = wakeup.1.wait(woken).unwrap();
                }
            }
        }
        engines.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// No buffer is lost or duplicated while two threads post and the engine takes.
#[test]
fn loom_a_shared_receive_queue_is_posted_to_by_anyone() {
    loom::model(|| {
        let keys = std::sync::Arc::new(Keys::new());
        let srq = Arc::new(Srq::new(&keys, keys.pd(), 2, 0, || {}).unwrap());
        let posters: Vec<_> = (1..3)
            .map(|id| {
                let srq = Arc::clone(&srq);
                thread::spawn(move || {
                    // SAFETY: the receive has no segments, so no memory must stay valid.
                    unsafe { srq.post_recv(&RecvWr { id, segments: &[], quiet: false }) }.unwrap();
                })
            })
            .collect();
        let mut segments: [Segment; 0] = [];
        // SAFETY: this thread is the only consumer.
        let mut take = || unsafe { srq.take(None, &mut segments) }.map_or(0, |recv| recv.id);
        let early = take();
        posters.into_iter().for_each(|thread| thread.join().unwrap());
        let mut ids = [early, take(), take()];
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2]);
    });
}
