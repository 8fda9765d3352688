//! The slot of the one thread that waits on an EVD. While the slot is occupied, new events are
//! announced to the waiter. While it is vacant, they are announced to the CNO.
//!
//! A producer first queues its event and then looks for a waiter. A waiter first occupies the slot
//! and then looks at the queue. Each thread has a fence between its two steps, so at least one of
//! the two threads sees the other.
//!
//! A waiter that leaves looks at the queue while it still occupies the slot, because only one
//! thread at a time may look. `event_count` tells the waiter whether an event arrived after that
//! look.

use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::wake::Wake;

/// The slot of the waiter of an EVD.
#[derive(Default)]
pub(super) struct WaiterSlot {
    /// Whether a thread waits in dat_evd_wait.
    waiting: AtomicBool,
    /// The number of events that were queued so far. It may wrap around.
    event_count: AtomicU32,
    /// The number of threads that are about to return from dat_evd_wait.
    leaving: AtomicU32,
    /// The number of calls that take an event without being the waiter: see
    /// [`WaiterSlot::enter`].
    taking: AtomicU32,
    /// The word that the waiter sleeps on.
    pub(super) wake: Wake,
}

impl WaiterSlot {
    /// Makes the calling thread the waiter. The caller must look at the queue afterwards. Returns
    /// false if there is already a waiter.
    #[must_use]
    pub(super) fn claim(&self) -> bool {
        let free =
            self.waiting.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        fence(Ordering::SeqCst);
        free
    }

    /// Ends the wait of the caller. Calls `look` to check whether events remain. Calls `notify` if
    /// events remain or if an event has arrived since that check.
    pub(super) fn release(&self, look: impl FnOnce() -> bool, notify: impl FnOnce()) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let known = self.event_count.load(Ordering::Acquire);
        let left = look();
        self.waiting.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if left || self.event_count.load(Ordering::Acquire) != known {
            notify();
        }
        self.leaving.fetch_sub(1, Ordering::Release);
    }

    /// Makes dat_evd_free wait until the returned value is dropped, as for a waiter. The caller
    /// then checks whether the EVD is dead: either the caller sees that, or dat_evd_free sees the
    /// caller.
    ///
    /// Calls of one thread nest, if a signal handler interrupts one. Otherwise only one thread at a
    /// time calls this.
    pub(super) fn enter(&self) -> Taking<'_> {
        let before = self.taking.load(Ordering::Relaxed);
        self.taking.store(before + 1, Ordering::SeqCst);
        Taking { taking: &self.taking, before }
    }

    /// Whether there is a waiter. The waiter handles the events that are queued.
    #[inline]
    pub(super) fn is_occupied(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Records that an event was queued, and returns whether there is a waiter. If there is one,
    /// the waiter handles the event, or sees it before it leaves. If there is no waiter, the caller
    /// must notify the CNO.
    pub(super) fn record_event(&self) -> bool {
        self.event_count.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.is_occupied()
    }

    /// Whether no thread waits and every former waiter has returned.
    pub(super) fn is_vacant(&self) -> bool {
        !self.is_occupied()
            && self.leaving.load(Ordering::Acquire) == 0
            && self.taking.load(Ordering::SeqCst) == 0
    }
}

/// A call that takes an event without being the waiter.
pub(super) struct Taking<'a> {
    taking: &'a AtomicU32,
    before: u32,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.taking.store(self.before, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
