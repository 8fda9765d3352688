//! Tests of the queues under loom, which tries every interleaving of their threads with few
//! preemptions.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::cq::{ConcurrentCq, Cq, CqEvent};
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

/// What threads tell a consumer that sleeps.
#[derive(Default)]
struct News {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    /// The number of events of the queue.
    events: usize,
    /// The number of completions that another thread has taken.
    taken: usize,
}

impl News {
    /// A queue that tells its events here.
    fn queue(news: &Arc<News>) -> Arc<ConcurrentCq> {
        let news = Arc::clone(news);
        let notify = move |event| {
            assert_eq!(event, CqEvent::Ready);
            news.tell(|told| told.events += 1);
        };
        Arc::new(ConcurrentCq::new(4, notify).unwrap())
    }

    fn tell(&self, what: impl FnOnce(&mut Told)) {
        what(&mut self.told.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits until there is more than `known`, and returns what there is.
    fn wait(&self, known: Told) -> Told {
        let mut told = self.told.lock().unwrap();
        while *told == known {
            told = self.changed.wait(told).unwrap();
        }
        *told
    }
}

/// Adds completions to a queue and announces each of them.
fn produce(cq: &ConcurrentCq, ids: std::ops::Range<u64>) {
    for id in ids {
        // SAFETY: this thread is the only producer.
        unsafe {
            cq.queue().push(wc(id), false);
            cq.queue().announce();
        }
    }
}

/// A consumer that arms the queue, then finds it empty and sleeps is woken by the next completion,
/// although another thread polls and arms the queue at the same time.
#[test]
fn loom_a_concurrent_queue_wakes_a_consumer_that_found_it_empty_after_arming() {
    loom::model(|| {
        let news = Arc::new(News::default());
        let cq = News::queue(&news);
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || produce(&cq, 0..2))
        };
        let other = {
            let (cq, news) = (Arc::clone(&cq), Arc::clone(&news));
            thread::spawn(move || {
                // A narrower request does not replace the one of the consumer.
                cq.arm(true);
                // The consumer waits for this completion, too, so it learns that the completion was
                // taken.
                cq.poll_with(1, |_| news.tell(|told| told.taken += 1))
            })
        };
        let (mut own, mut told) = (0, Told::default());
        while own + told.taken < 2 {
            cq.arm(false);
            let n = cq.poll_with(4, |_| {});
            own += n;
            if n == 0 {
                told = news.wait(told);
            }
        }
        producer.join().unwrap();
        other.join().unwrap();
    });
}

/// The arming of a queue that is not empty holds for the next completion: no poll is needed.
#[test]
fn loom_a_concurrent_queue_is_armed_although_it_is_not_empty() {
    loom::model(|| {
        let news = Arc::new(News::default());
        let cq = News::queue(&news);
        produce(&cq, 0..1);
        cq.arm(false);
        let arming = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.arm(true))
        };
        let producer = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || produce(&cq, 1..2))
        };
        assert_eq!(news.wait(Told::default()).events, 1);
        arming.join().unwrap();
        producer.join().unwrap();
        assert_eq!(cq.poll_with(4, |_| {}), 2);
    });
}

/// A thread that is armed for solicited completions gets its event although another thread arms the
/// queue for all completions at the same time.
#[test]
fn loom_a_wider_request_does_not_take_the_event_of_a_narrower_one() {
    loom::model(|| {
        let news = Arc::new(News::default());
        let cq = News::queue(&news);
        cq.arm(true);
        let arming = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.arm(false))
        };
        // SAFETY: this thread is the only producer.
        unsafe {
            cq.queue().push(wc(1), true);
            cq.queue().announce();
        }
        assert_eq!(news.told.lock().unwrap().events, 1);
        arming.join().unwrap();
    });
}

/// Two threads that poll get each completion once, and each of them in the order of the queue.
#[test]
fn loom_two_threads_poll_a_concurrent_queue() {
    loom::model(|| {
        let cq = News::queue(&Arc::default());
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let cq = Arc::clone(&cq);
                thread::spawn(move || {
                    let mut ids = Vec::new();
                    cq.poll_with(2, |wc| ids.push(wc.id));
                    assert!(ids.is_sorted());
                    ids
                })
            })
            .collect();
        produce(&cq, 0..2);
        let mut ids: Vec<u64> =
            consumers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        cq.poll_with(2, |wc| ids.push(wc.id));
        ids.sort_unstable();
        assert_eq!(ids, [0, 1]);
    });
}

/// The completions of a queue pair are removed while another thread polls and another engine adds
/// completions of its own queue pair: those are polled once each, and in their order.
#[test]
fn loom_completions_are_removed_while_others_poll_and_add() {
    loom::model(|| {
        let cq = News::queue(&Arc::default());
        // SAFETY: no engine uses the queue yet.
        unsafe { cq.queue().share() };
        let add = |qp, id| {
            let wc = Wc { qp, ..wc(id) };
            // SAFETY: the queue is shared.
            unsafe { cq.queue().push(wc, false) };
        };
        add(1, 10);
        add(2, 0);
        add(1, 11);
        let adding = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || {
                // SAFETY: the queue is shared.
                unsafe { cq.queue().push(Wc { qp: 2, ..wc(1) }, false) };
            })
        };
        let polling = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || {
                let mut found = Vec::new();
                cq.poll_with(2, |wc| found.push((wc.qp, wc.id)));
                found
            })
        };
        // SAFETY: only the other engine adds completions now, and the queue is concurrent.
        unsafe { cq.queue().remove(1) };
        let (of_removed, mut found): (Vec<_>, Vec<_>) =
            polling.join().unwrap().into_iter().partition(|&(qp, _)| qp == 1);
        assert!([&[][..], &[(1, 10)]].contains(&&of_removed[..]), "{of_removed:?}");
        adding.join().unwrap();
        cq.poll_with(4, |wc| found.push((wc.qp, wc.id)));
        assert_eq!(found, [(2, 0), (2, 1)]);
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
