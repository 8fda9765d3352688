//! The models show that every event reaches the waiter or the CNO, and that no thread uses the EVD
//! after it was freed.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::*;

/// The parts of an EVD that these models need.
#[derive(Default)]
struct Evd {
    queued: AtomicUsize,
    waiter_slot: WaiterSlot,
    /// How often the CNO was triggered.
    triggers: AtomicUsize,
    dead: AtomicBool,
    /// Stands for the memory of the EVD. A write to this cell stands for the deallocation of the
    /// EVD.
    memory: UnsafeCell<()>,
    /// Stands for the completion queue, which one thread at a time may read.
    looking: UnsafeCell<()>,
}

impl Evd {
    fn post(&self) {
        self.queued.fetch_add(1, Ordering::Release);
        self.notify();
    }

    fn notify(&self) {
        if self.waiter_slot.record_event() {
            let _ = self.waiter_slot.wake.signal();
        } else {
            self.triggers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Models the part of dat_evd_wait that takes an event which is already queued. Returns whether
    /// the call took the event.
    fn take_ready(&self) -> bool {
        let Some(_taking) = self.waiter_slot.enter() else { return false };
        // loom treats sequentially consistent accesses as acquire and release. The fences of this
        // model stand for what is missing.
        fence(Ordering::SeqCst);
        if self.dead.load(Ordering::SeqCst) {
            return false;
        }
        self.memory.with(|_| ());
        self.looking.with_mut(|_| ());
        let taken = self.queued.load(Ordering::Acquire) > 0;
        if taken {
            self.queued.fetch_sub(1, Ordering::AcqRel);
        }
        self.looking.with_mut(|_| ());
        taken
    }

    /// Models dat_evd_wait for one event. The wait has no time limit if `forever` is true, and does
    /// not block if it is false. Returns whether the call took the event.
    fn wait(&self, forever: bool) -> bool {
        if !self.waiter_slot.claim() {
            return false;
        }
        let taken = loop {
            self.waiter_slot.wake.reset();
            self.looking.with_mut(|_| ());
            if self.queued.load(Ordering::Acquire) > 0 {
                self.queued.fetch_sub(1, Ordering::AcqRel);
                break true;
            }
            if !forever || self.dead.load(Ordering::Acquire) {
                break false;
            }
            self.waiter_slot.wake.park(None);
        };
        let look = || {
            self.memory.with(|_| ());
            self.looking.with_mut(|_| ());
            self.queued.load(Ordering::Acquire) > 0
        };
        self.waiter_slot.release(look, || {
            self.memory.with(|_| ());
            self.notify_cno();
        });
        taken
    }

    fn notify_cno(&self) {
        if !self.waiter_slot.is_occupied() {
            self.triggers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn with_waiter(forever: bool, other: impl FnOnce(&Evd)) -> (Arc<Evd>, bool) {
    let evd = Arc::new(Evd::default());
    let waiter = {
        let evd = Arc::clone(&evd);
        thread::spawn(move || evd.wait(forever))
    };
    other(&evd);
    let taken = waiter.join().unwrap();
    (evd, taken)
}

/// If an event is lost, the waiter sleeps forever, which loom reports.
#[test]
fn loom_a_waiter_gets_an_event() {
    loom::model(|| assert!(with_waiter(true, Evd::post).1));
}

#[test]
fn loom_events_that_a_leaving_waiter_did_not_take_trigger() {
    loom::model(|| {
        let (evd, taken) = with_waiter(false, |evd| {
            evd.post();
            evd.post();
        });
        let left = evd.queued.load(Ordering::Acquire);
        assert_eq!(left, 2 - usize::from(taken));
        assert!(evd.triggers.load(Ordering::Acquire) > 0);
    });
}

#[test]
fn loom_the_last_waiter_leaves_before_the_memory_is_freed() {
    loom::model(|| {
        with_waiter(true, |evd| {
            evd.post();
            while evd.queued.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
            // The waiter has taken the event. It may still be in its wait, or may have left
            // already.
            while !evd.waiter_slot.is_vacant() {
                thread::yield_now();
            }
            // SAFETY: the test shows that no thread accesses the memory at this time. loom reports
            // a violation.
            evd.memory.with_mut(|_| ());
        });
    });
}

#[test]
fn loom_a_leaving_and_a_new_waiter_do_not_poll_together() {
    loom::model(|| {
        let (evd, _) = with_waiter(false, |evd| {
            evd.post();
            evd.wait(false);
        });
        assert!(
            evd.queued.load(Ordering::Acquire) == 0 || evd.triggers.load(Ordering::Acquire) > 0
        );
        // The waiter that leaves has announced no event. An announcement could end the wait of the
        // new waiter because of a completion that must not wake a waiter.
        assert!(evd.waiter_slot.announced() == Announced(1));
    });
}

#[test]
fn loom_takers_and_a_waiter_do_not_take_together() {
    loom::model(|| {
        let (evd, taken) = with_waiter(false, |evd| {
            evd.post();
            evd.take_ready();
        });
        let other = Arc::clone(&evd);
        let taker = thread::spawn(move || other.take_ready());
        evd.take_ready();
        taker.join().unwrap();
        assert!(evd.waiter_slot.is_vacant(), "{taken}");
    });
}

#[test]
fn loom_the_memory_is_freed_after_the_taker_has_left() {
    loom::model(|| {
        let evd = Arc::new(Evd::default());
        let taker = {
            let evd = Arc::clone(&evd);
            thread::spawn(move || evd.take_ready())
        };
        evd.dead.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while !evd.waiter_slot.is_vacant() {
            thread::yield_now();
        }
        // SAFETY: the test shows that no thread accesses the memory at this time. loom reports a
        // violation.
        evd.memory.with_mut(|_| ());
        taker.join().unwrap();
    });
}

/// A thread attaches a CNO while another thread leaves its wait. A completion is queued, at which
/// the waiter looks only if there is a CNO.
#[test]
fn loom_a_cno_that_is_attached_during_a_wait_is_triggered() {
    loom::model(|| {
        let slot = Arc::new(WaiterSlot::default());
        let attached = Arc::new(AtomicBool::new(false));
        let triggers = Arc::new(AtomicUsize::new(0));
        let waiter = {
            let (slot, attached, triggers) = (slot.clone(), attached.clone(), triggers.clone());
            thread::spawn(move || {
                assert!(slot.claim());
                let has_cno = || attached.load(Ordering::Acquire);
                slot.release(has_cno, || {
                    if has_cno() {
                        triggers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        };
        attached.store(true, Ordering::Release);
        if !slot.record_cno_change() {
            triggers.fetch_add(1, Ordering::Relaxed);
        }
        waiter.join().unwrap();
        assert!(triggers.load(Ordering::Acquire) > 0);
    });
}
