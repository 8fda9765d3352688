//! Taking events from an EVD.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use dat_sys::ib::*;
use dat_sys::*;

use super::{Evd, Order, extended};
use crate::error::{Error, Result};
use crate::provider::{Completions, Polled, Transport, Wc, WcOp};

/// Completions taken from the transport to be counted, not yet taken by the consumer.
#[derive(Default)]
pub(super) struct Taker {
    staged: UnsafeCell<VecDeque<Wc>>,
    /// Their number, for those who may only look.
    len: AtomicUsize,
}

// SAFETY: only the one thread that has the taking side of the EVD uses what is staged (`Evd::dequeue` says
// who that is).
unsafe impl Sync for Taker {}

impl<T: Transport> Evd<T> {
    /// dat_evd_dequeue: the first event.
    ///
    /// # Safety
    /// The caller has the *taking side* of the EVD, which one thread has at a time: the waiter while there is
    /// one, since others are refused then; else whoever calls this or another function that says so. Where
    /// the adapter is thread-safe, the lock of the EVD's handle sees to that. Elsewhere the consumer does:
    /// the standard lets one thread at a time use an object.
    pub unsafe fn dequeue(&self) -> Result<DAT_EVENT> {
        let mut event = DAT_EVENT::zeroed();
        // SAFETY: as the caller promised.
        unsafe { self.dequeue_into(&mut event) }?;
        Ok(event)
    }

    /// As [`Evd::dequeue`], straight to where the consumer wants it: the record is large, and most of it unused.
    ///
    /// # Safety
    /// As [`Evd::dequeue`], and `event` may be written to.
    #[inline]
    pub unsafe fn dequeue_into(&self, event: *mut DAT_EVENT) -> Result<()> {
        if self.bell.attendance.is_attended() {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        // SAFETY: as the caller promised.
        if let Some(found) = unsafe { self.take(event) } {
            self.bell.counters.tally.add(found, 1);
            // SAFETY: as above.
            unsafe { self.remind_cno() };
            return Ok(());
        }
        self.ia.transport.progress();
        loop {
            // SAFETY: as the caller promised.
            if let Some(found) = unsafe { self.take(event) } {
                self.bell.counters.tally.add(found, 1);
                // SAFETY: as above.
                unsafe { self.remind_cno() };
                return Ok(());
            }
            // SAFETY: as above.
            if unsafe { self.settle_cno() } {
                self.bell.counters.tally.add(DCNT_EVD_DEQUEUE_NOT_FOUND, 1);
                return Err(self.nothing());
            }
        }
    }

    /// Arms it for the CNO. True: there are events already.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline(always)]
    pub(super) unsafe fn has_left(&self) -> bool {
        // Armed in any case: whoever comes next counts on it.
        // SAFETY: as the caller promised.
        let armed = unsafe { self.arm_for_cno() };
        !armed
            || self.taker.len.load(Ordering::Relaxed) > 0
            || self.soft_len.load(Ordering::Acquire) > 0
    }

    /// Why there is no event.
    #[cold]
    pub(super) fn nothing(&self) -> Error {
        // uDAPL 1.2: an EVD that has overflowed is broken; an empty queue would be a lie.
        let overflowed = self.has_overflowed();
        Error::of(if overflowed { DAT_INVALID_STATE } else { DAT_QUEUE_EMPTY })
    }

    /// One event was taken. If more are queued, a CNO that is waited on next shall return at once: not every consumer
    /// empties the queue after each trigger.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline(always)]
    unsafe fn remind_cno(&self) {
        // SAFETY: as the caller promised.
        if self.bell.has_cno.load(Ordering::Acquire) && unsafe { self.has_left() } {
            self.bell.remind();
        }
    }

    /// The queue was found empty: the CNO forgets this EVD and hears of the next event. False: there is one already.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline]
    unsafe fn settle_cno(&self) -> bool {
        if self.bell.has_cno.load(Ordering::Acquire) {
            self.bell.settle();
            // An event that was queued before that has had its trigger taken back.
            if self.soft_len.load(Ordering::Acquire) > 0 {
                return false;
            }
        }
        // SAFETY: as the caller promised.
        unsafe { self.arm_for_cno() }
    }

    /// The first event, if any: as what it counts that it was found.
    ///
    /// # Safety
    /// As [`Evd::dequeue_into`].
    #[inline(always)]
    pub(super) unsafe fn take(&self, event: *mut DAT_EVENT) -> Option<DAT_EVD_COUNTERS> {
        // SAFETY: as the caller promised.
        unsafe {
            if self.soft_len.load(Ordering::Acquire) > 0 && self.take_soft(Order::Now, event) {
                return Some(DCNT_EVD_DEQUEUE_FOUND);
            }
            if let Some(found) = self.take_completion(|wc| self.write_completion(wc, event)) {
                return Some(found);
            }
            let taken = self.soft_len.load(Ordering::Acquire) > 0
                && self.take_soft(Order::AfterCompletions, event);
            taken.then_some(DCNT_EVD_DEQUEUE_FOUND)
        }
    }

    /// Takes the first completion; answers what counts it. By reference from where it was polled to: moved, it would be
    /// taken to pieces and put together again.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    #[inline(always)]
    unsafe fn take_completion(&self, then: impl Fn(&Wc)) -> Option<DAT_EVD_COUNTERS> {
        let cq = self.cq.as_ref()?;
        // SAFETY: the caller is the only one that takes events.
        let staged = unsafe { &mut *self.taker.staged.get() };
        if !staged.is_empty() {
            take_staged(staged, then);
            self.taker.len.store(staged.len(), Ordering::Relaxed);
            return Some(DCNT_EVD_DEQUEUE_FOUND);
        }
        let mut place = [MaybeUninit::uninit()];
        let mut polled = Polled::new(&mut place);
        // SAFETY: the caller is the only one that takes events.
        unsafe { cq.poll(&mut polled) };
        let Some(wc) = polled.completions().first() else {
            self.empties.store(self.empties.load(Ordering::Relaxed) + 1, Ordering::Release);
            // Before the next look: see `Orphans`.
            compiler_fence(Ordering::SeqCst);
            return None;
        };
        then(wc);
        Some(DCNT_EVD_DEQUEUE_POLL_FOUND)
    }

    /// Gives back what completions that nobody will take still occupy: buffers of shared receive queues.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    pub(super) unsafe fn retire_all(&self) {
        let retire = |wc: &Wc| {
            // SAFETY: `take_completion` has just taken it.
            unsafe { wc.qp.flow() }.retire(wc);
        };
        // SAFETY: as the caller promised.
        while unsafe { self.take_completion(retire) }.is_some() {}
    }

    /// The first queued event, if its order is at most `order`.
    ///
    /// # Safety
    /// `event` may be written to.
    #[cold]
    unsafe fn take_soft(&self, order: Order, event: *mut DAT_EVENT) -> bool {
        let mut soft = self.soft();
        let Some(first) = soft
            .pop_front_if(|first| order == Order::AfterCompletions || first.order == Order::Now)
        else {
            return false;
        };
        self.soft_len.store(soft.len(), Ordering::Release);
        // SAFETY: as the caller promised.
        unsafe { event.write(first.event) };
        true
    }

    /// Counts the events, taking completions out of the transport to do so.
    ///
    /// # Safety
    /// As [`Evd::dequeue`].
    pub(super) unsafe fn count(&self) -> usize {
        // SAFETY: the caller is the only one that takes events.
        let staged = unsafe { &mut *self.taker.staged.get() };
        if let Some(cq) = &self.cq {
            let mut batch = [const { MaybeUninit::uninit() }; 16];
            loop {
                let mut polled = Polled::new(&mut batch);
                // SAFETY: as above.
                unsafe { cq.poll(&mut polled) };
                staged.extend(polled.completions());
                if polled.room() > 0 {
                    break;
                }
            }
            self.taker.len.store(staged.len(), Ordering::Relaxed);
        }
        staged.len() + self.soft_len.load(Ordering::Acquire)
    }

    /// Only what the event number makes valid.
    ///
    /// # Safety
    /// `event` may be written to, and the completion was just taken.
    #[inline(always)]
    unsafe fn write_completion(&self, wc: &Wc, event: *mut DAT_EVENT) {
        // SAFETY: as the caller promised.
        let flow = unsafe { wc.qp.flow() };
        // SAFETY: as the caller promised.
        unsafe {
            (&raw mut (*event).evd_handle).write(self.bell.evd as *mut c_void);
            if wc.op == WcOp::Bind {
                (&raw mut (*event).event_number).write(DAT_RMR_BIND_COMPLETION_EVENT);
                (&raw mut (*event).event_data.rmr_completion_event_data)
                    .write(flow.retire_bind(wc));
                return;
            }
            let mut number = DAT_DTO_COMPLETION_EVENT;
            if extended::is_extended(wc) {
                number = DAT_IB_DTO_EVENT;
                extended::write(wc, (&raw mut (*event).event_extension_data).cast());
            }
            (&raw mut (*event).event_number).write(number);
            (&raw mut (*event).event_data.dto_completion_event_data).write(flow.retire(wc));
        }
    }
}

/// Takes the first of some completions.
#[cold]
fn take_staged(staged: &mut VecDeque<Wc>, then: impl Fn(&Wc)) {
    if let Some(wc) = staged.pop_front() {
        then(&wc);
    }
}
