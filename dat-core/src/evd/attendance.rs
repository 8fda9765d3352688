//! Whether a thread waits on an EVD: it hears of new events, and else the notification object does.
//!
//! Whoever brings an event queues it first and looks for a waiter then; a thread that comes to wait, or leaves, says so
//! first and looks at the queue then. Each has a fence between the two, so that one of them sees the other.

use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::wake::Wake;

/// The waiter's place.
#[derive(Default)]
pub(super) struct Attendance {
    /// A thread waits in dat_evd_wait.
    waiting: AtomicBool,
    /// Threads that are on their way out of dat_evd_wait.
    leaving: AtomicU32,
    /// What the waiter sleeps on.
    pub(super) wake: Wake,
}

impl Attendance {
    /// Makes the caller the waiter, who then looks at the queue. False: there is one.
    #[must_use]
    pub(super) fn claim(&self) -> bool {
        let free = !self.waiting.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        free
    }

    /// The waiter goes; `look` tells others of what it has left behind. With the end of this call it is gone.
    pub(super) fn leave(&self, look: impl FnOnce()) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
        self.waiting.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        look();
        self.leaving.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is a waiter, who sees to what is queued.
    #[inline]
    pub(super) fn is_attended(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// As [`Attendance::is_attended`], after an event was queued: if not, whoever comes to wait or leaves sees it.
    pub(super) fn is_attended_now(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_attended()
    }

    /// Nobody waits, and everyone who has waited is gone.
    pub(super) fn is_deserted(&self) -> bool {
        !self.is_attended() && self.leaving.load(Ordering::Acquire) == 0
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
