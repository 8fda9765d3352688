//! The part of an EVD that producers of events use in order to notify the waiter or the CNO.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;
use telemetry::Hex;
use tracing::warn;

use super::stream::Streams;
use super::waiter_slot::WaiterSlot;
use crate::cno::Cno;
use crate::counters::EvdCounters;
use crate::handle::Ref;
use crate::ia::Ia;
use crate::provider::{Receiver, Transport, Upcall};

/// The state of an EVD that producers of events use. It is separate from [`Evd`](super::Evd)
/// because it receives the completion queue's upcalls.
pub(super) struct EvdShared<T: Transport> {
    pub(super) ia: Ref<Ia<T>>,
    pub(super) evd: usize,
    pub(super) waiter_slot: WaiterSlot,
    pub(super) enabled: AtomicBool,
    pub(super) waitable: AtomicBool,
    /// Whether the EVD is being freed.
    pub(super) dead: AtomicBool,
    pub(super) cno: Mutex<Option<Ref<Cno<T>>>>,
    pub(super) has_cno: AtomicBool,
    /// Counters of the EVD.
    pub(super) counters: EvdCounters,
    /// The completion streams that feed the EVD.
    pub(super) streams: Streams,
    /// Whether events were lost. Events that were queued before the loss can still be taken.
    pub(super) overflowed: AtomicBool,
    /// Whether a completion was lost. If one was lost, all later completions are lost as well.
    pub(super) completions_lost: AtomicBool,
}

impl<T: Transport> EvdShared<T> {
    pub(super) fn cno(&self) -> MutexGuard<'_, Option<Ref<Cno<T>>>> {
        self.cno.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the completion queue must be armed for solicited completions only.
    pub(super) fn solicited(&self) -> bool {
        self.streams.solicited(self.ia.transport.attrs().quiet)
    }

    /// Whether some completions must not end a wait, and the transport announces only the others. A
    /// device that wakes a sleeping thread makes no upcall, so it never counts as selective.
    pub(super) fn is_selective(&self) -> bool {
        self.ia.transport.attrs().quiet && self.solicited()
    }

    /// Announces a new event to the waiter or, if no thread waits, to the CNO. The standard forbids
    /// notifying both (dat_evd_wait).
    pub(super) fn notify(&self) {
        if self.waiter_slot.record_event() {
            self.interrupt_waiter();
        } else {
            self.trigger_cno();
        }
    }

    /// Announces events that were queued before to the CNO, unless a thread waits by now. That
    /// thread has looked at the queue itself, and announces to the CNO the events that it leaves in
    /// the queue. It must not count these events as new ones, because a new event ends a wait.
    pub(super) fn notify_cno(&self) {
        if !self.waiter_slot.is_occupied() {
            self.trigger_cno();
        }
    }

    fn trigger_cno(&self) {
        if self.has_cno.load(Ordering::Acquire)
            && self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.trigger(self.evd);
        }
    }

    /// Triggers the CNO again, because events are still queued.
    #[cold]
    pub(super) fn retrigger_cno(&self) {
        if self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.trigger_without_agent(self.evd);
        }
    }

    /// Withdraws the EVD's trigger from the CNO, if no waiter of the CNO has consumed it yet.
    pub(super) fn withdraw_trigger(&self) {
        if let Some(cno) = &*self.cno() {
            cno.withdraw_trigger(self.evd);
        }
    }

    pub(super) fn interrupt_waiter(&self) {
        if self.waiter_slot.wake.signal() {
            self.ia.transport.interrupt();
        }
    }

    /// Records that events were lost. Only the first call reports the overflow.
    pub(super) fn overflow(&self) {
        if self.overflowed.swap(true, Ordering::AcqRel) {
            return;
        }
        warn!(
            target: "dat::evd", ia = self.ia.name, evd = %Hex(self.evd),
            because = "the queue is full: take events sooner, or give dat_evd_create a larger \
                       evd_min_qlen",
            "events are lost"
        );
        self.interrupt_waiter();
        self.ia.report(
            DAT_ASYNC_ERROR_EVD_OVERFLOW,
            self.evd as *mut c_void,
            DAT_EVD_OVERFLOW_ERROR,
        );
    }
}

impl<T: Transport> Receiver<T> for EvdShared<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        match up {
            Upcall::CqOverflow => {
                self.completions_lost.store(true, Ordering::Release);
                self.overflow();
            }
            _ => {
                self.counters.tally.count(DCNT_EVD_DTO_CALLBACK);
                self.notify();
            }
        }
    }
}
