//! The slot of the one thread that waits on an EVD. While the slot is occupied, new events are
//! announced to the waiter. While it is vacant, they are announced to the CNO.
//!
//! A producer first queues its event and then looks for a waiter. A waiter first occupies the slot
//! and then looks at the queue. Each thread has a fence between its two steps, so at least one of
//! the two threads sees the other.
//!
//! A waiter that leaves looks at the queue before it gives up the slot, because only one thread at
//! a time may look. Afterwards, `event_count` and `cno_changes` tell it whether an event has
//! arrived, or the CNO's settings have changed, since it looked.
//!
//! A wait that finds enough events occupies the slot only as a *taker*: new events are not
//! announced to it, because it does not sleep. So it need not look at the queue once more when it
//! leaves.

use waiting::Wake;
use waiting::nesting::{self, Activity};

use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::yield_now;

const VACANT: u32 = 0;
/// A thread takes an event in dat_evd_wait and does not sleep.
const TAKING: u32 = 1;
/// A thread waits in dat_evd_wait.
const WAITING: u32 = 2;

/// A number of announced events. It may wrap around.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced(u32);

/// The slot of the waiter of an EVD.
#[derive(Default)]
pub(super) struct WaiterSlot {
    /// `VACANT`, `TAKING` or `WAITING`.
    occupant: AtomicU32,
    /// The number of events that were queued so far. It may wrap around.
    event_count: AtomicU32,
    /// How often the EVD's CNO was changed, enabled or disabled. It may wrap around. It is separate
    /// from `event_count`, because such a change announces no event and so must not end a wait.
    cno_changes: AtomicU32,
    /// The number of threads that are about to return from dat_evd_wait.
    leaving: AtomicU32,
    /// The word that the waiter sleeps on.
    pub(super) wake: Wake,
}

impl WaiterSlot {
    /// Makes the calling thread the waiter. The caller must look at the queue afterwards. Returns
    /// false if there is already a waiter.
    #[must_use]
    pub(super) fn claim(&self) -> bool {
        let free = self.occupy(WAITING);
        fence(Ordering::SeqCst);
        free
    }

    /// Occupies the slot. Returns false if there is a waiter. A taker leaves soon, so this function
    /// waits for it. If a signal handler makes this call, the taker may be the call that it has
    /// interrupted. Then the function returns false.
    #[inline]
    fn occupy(&self, as_what: u32) -> bool {
        let (order, failed) = (Ordering::SeqCst, Ordering::Acquire);
        loop {
            match self.occupant.compare_exchange(VACANT, as_what, order, failed) {
                Ok(_) => return true,
                Err(TAKING) if nesting::interrupted_activity() != Activity::Work => yield_now(),
                Err(_) => return false,
            }
        }
    }

    /// Ends the wait of the caller. Calls `look` to check whether events remain. Calls `notify` if
    /// events remain, or if an event has arrived or the CNO has changed since that check.
    pub(super) fn release(&self, look: impl FnOnce() -> bool, notify: impl FnOnce()) {
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let counts = || {
            let events = self.event_count.load(Ordering::Acquire);
            (events, self.cno_changes.load(Ordering::Acquire))
        };
        let known = counts();
        let left = look();
        self.occupant.store(VACANT, Ordering::Release);
        fence(Ordering::SeqCst);
        if left || counts() != known {
            notify();
        }
        self.leaving.fetch_sub(1, Ordering::Release);
    }

    /// Makes the calling thread the taker until the returned value is dropped. Returns `None` if
    /// there is a waiter.
    ///
    /// The caller then checks whether the EVD is dead: either the caller sees that, or dat_evd_free
    /// sees the taker and waits.
    #[inline]
    pub(super) fn enter(&self) -> Option<Taking<'_>> {
        self.occupy(TAKING).then(|| Taking { occupant: &self.occupant })
    }

    /// Whether there is a waiter. The waiter handles the events that are queued.
    #[inline]
    pub(super) fn is_occupied(&self) -> bool {
        self.occupant.load(Ordering::Acquire) == WAITING
    }

    /// Records that an event was queued, and returns whether there is a waiter. If there is one,
    /// the waiter handles the event, or sees it before it leaves. If there is no waiter, the caller
    /// must notify the CNO.
    pub(super) fn record_event(&self) -> bool {
        self.event_count.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.is_occupied()
    }

    /// Records that the EVD's CNO was changed, enabled or disabled, and returns whether there is a
    /// waiter. If there is one, it notifies the CNO when it leaves. If there is no waiter, the
    /// caller must notify the CNO of the queued events.
    pub(super) fn record_cno_change(&self) -> bool {
        self.cno_changes.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        self.is_occupied()
    }

    /// The number of events that were announced so far.
    pub(super) fn announced(&self) -> Announced {
        Announced(self.event_count.load(Ordering::Acquire))
    }

    /// Whether no thread waits or takes an event, and every former waiter has returned.
    pub(super) fn is_vacant(&self) -> bool {
        self.occupant.load(Ordering::SeqCst) == VACANT && self.leaving.load(Ordering::Acquire) == 0
    }
}

/// The right of the taker.
pub(super) struct Taking<'a> {
    occupant: &'a AtomicU32,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.occupant.store(VACANT, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
