//! No event is overlooked between the thread that brings it, the waiter and the notification object; and nobody is there any
//! more when the EVD goes.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;

/// As much of an EVD as matters here.
#[derive(Default)]
struct Evd {
    queued: AtomicUsize,
    attendance: Attendance,
    /// Triggers of the notification object.
    triggers: AtomicUsize,
    dead: AtomicBool,
    /// Stands for the memory: its end is a write.
    memory: UnsafeCell<()>,
    /// Stands for the completion queue, at which one thread at a time looks.
    looking: UnsafeCell<()>,
}

impl Evd {
    fn post(&self) {
        self.queued.fetch_add(1, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        if self.attendance.is_attended_now() {
            let _ = self.attendance.wake.signal();
        } else {
            self.triggers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// dat_evd_wait for one event, with endless patience or none. False: it was not taken.
    fn wait(&self, patient: bool) -> bool {
        if !self.attendance.claim() {
            return false;
        }
        let taken = loop {
            self.attendance.wake.reset();
            self.looking.with_mut(|_| ());
            if self.queued.load(Ordering::Acquire) > 0 {
                self.queued.fetch_sub(1, Ordering::AcqRel);
                break true;
            }
            if !patient || self.dead.load(Ordering::Acquire) {
                break false;
            }
            self.attendance.wake.park(None);
        };
        let look = || {
            self.memory.with(|_| ());
            self.looking.with_mut(|_| ());
            self.queued.load(Ordering::Acquire) > 0
        };
        self.attendance.leave(look, || {
            self.memory.with(|_| ());
            self.ring();
        });
        taken
    }
}

fn with_waiter(patient: bool, other: impl FnOnce(&Evd)) -> (Arc<Evd>, bool) {
    let evd = Arc::new(Evd::default());
    let waiter = {
        let evd = Arc::clone(&evd);
        thread::spawn(move || evd.wait(patient))
    };
    other(&evd);
    let taken = waiter.join().unwrap();
    (evd, taken)
}

/// Else it sleeps for ever, which loom reports.
#[test]
fn loom_a_waiter_hears_of_an_event() {
    loom::model(|| assert!(with_waiter(true, Evd::post).1));
}

#[test]
fn loom_a_trigger_tells_of_what_a_leaving_waiter_did_not_take() {
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
fn loom_the_last_waiter_is_gone_before_the_memory_is() {
    loom::model(|| {
        with_waiter(true, |evd| {
            evd.post();
            while evd.queued.load(Ordering::Acquire) > 0 {
                thread::yield_now();
            }
            // It has come, and may be anywhere on its way out.
            while !evd.attendance.is_deserted() {
                thread::yield_now();
            }
            // SAFETY: this is what is tested.
            evd.memory.with_mut(|_| ());
        });
    });
}

#[test]
fn loom_who_leaves_and_who_comes_do_not_look_together() {
    loom::model(|| {
        let (evd, _) = with_waiter(false, |evd| {
            evd.post();
            evd.wait(false);
        });
        assert!(
            evd.queued.load(Ordering::Acquire) == 0 || evd.triggers.load(Ordering::Acquire) > 0
        );
    });
}
