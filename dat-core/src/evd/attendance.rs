//! Whether a thread waits on an EVD: it hears of new events, and else the notification object does.
//!
//! Whoever brings an event queues it first and looks for a waiter then; a thread that comes to wait says so first and looks at
//! the queue then. Each has a fence between the two, so that one of them sees the other. A thread that leaves looks at the queue
//! while it still has the place, since one thread at a time does; whether something came after that, `news` tells it.

use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::wake::Wake;

/// The waiter's place.
#[derive(Default)]
pub(super) struct Attendance {
    /// A thread waits in dat_evd_wait.
    waiting: AtomicBool,
    /// Counts events that were queued.
    news: AtomicU32,
    /// Threads that are on their way out of dat_evd_wait.
    leaving: AtomicU32,
    /// What the waiter sleeps on.
    pub(super) wake: Wake,
}

impl Attendance {
    /// Makes the caller the waiter, who then looks at the queue. False: there is one.
    #[must_use]
    pub(super) fn claim(&self) -> bool {
        let free =
            self.waiting.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        fence(Ordering::SeqCst);
        free
    }

    /// The waiter goes. It looks once more at what it leaves behind, and `tell`s others if there is something by now.
    pub(super) fn leave(&self, look: impl FnOnce() -> bool, tell: impl FnOnce()) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let known = self.news.load(Ordering::Acquire);
        let left = look();
        self.waiting.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if left || self.news.load(Ordering::Acquire) != known {
            tell();
        }
        self.leaving.fetch_sub(1, Ordering::Release);
    }

    /// Whether there is a waiter, who sees to what is queued.
    #[inline]
    pub(super) fn is_attended(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// An event was queued. True: the waiter sees it, or did before it left; false: nobody else tells of it.
    pub(super) fn is_attended_now(&self) -> bool {
        self.news.fetch_add(1, Ordering::Release);
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
