//! Taking events from an EVD.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

use dat_sys::ib::*;
use dat_sys::*;

use super::{Evd, Order, extended};
use crate::error::{Error, Result, no_memory};
use crate::provider::{Completions, Polled, Transport, Wc, WcOp};

/// Completions that were taken from the transport and that the consumer has not taken yet.
pub(super) struct StagedCompletions {
    /// The staged completions. There is room for one from the beginning. [`Evd::count`] makes room
    /// for more.
    completions: UnsafeCell<VecDeque<Wc>>,
    /// The number of staged completions, for threads that must not access the completions
    /// themselves.
    len: AtomicUsize,
}

// SAFETY: only the thread that has the right to dequeue from the EVD accesses the completions (see
// `Evd::dequeue`).
unsafe impl Sync for StagedCompletions {}

impl StagedCompletions {
    pub(super) fn new() -> Result<Self> {
        let mut completions = VecDeque::new();
        completions.try_reserve(1).map_err(no_memory)?;
        Ok(StagedCompletions {
            completions: UnsafeCell::new(completions),
            len: AtomicUsize::new(0),
        })
    }
}

impl<T: Transport> Evd<T> {
    /// Implements dat_evd_dequeue: takes the first event.
    ///
    /// # Safety
    /// The caller has the *right to dequeue* from the EVD: only this thread may take events from
    /// the EVD, and look at its completions. One thread at a time has this right:
    ///
    /// - While a thread waits on the EVD, that thread has the right to dequeue, and all other
    ///   threads are refused.
    /// - While nobody waits, a thread has the right to dequeue as long as it is in this function or
    ///   in another one that requires the right.
    ///
    /// On a thread-safe adapter the lock of the EVD's handle ensures this. On other adapters the
    /// consumer ensures it, because the standard lets only one thread at a time use an object.
    pub unsafe fn dequeue(&self) -> Result<DAT_EVENT> {
        let mut event = DAT_EVENT::zeroed();
        // SAFETY: the caller guarantees that this thread has the right to dequeue. `event` is a
        // local variable.
        unsafe { self.dequeue_into(&mut event) }?;
        Ok(event)
    }

    /// Takes the first event as [`Evd::dequeue`] does, but writes it directly to the consumer's
    /// record. The record is large and most of it is unused, so a copy would waste time.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply. `event` may be written to.
    #[inline(always)]
    pub unsafe fn dequeue_into(&self, event: *mut DAT_EVENT) -> Result<()> {
        if self.shared.waiter_slot.is_occupied() {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        // SAFETY: the caller guarantees that this thread has the right to dequeue and that `event`
        // may be written to.
        if unsafe { self.take_and_count(event) } {
            return Ok(());
        }
        // SAFETY: the caller guarantees that this thread has the right to dequeue and that `event`
        // may be written to.
        unsafe { self.dequeue_after_progress(event) }
    }

    /// The part of dat_evd_dequeue that runs only if no event was found at first. It is a function
    /// of its own, so that finding an event at once needs few registers.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue_into`] apply.
    #[inline(never)]
    unsafe fn dequeue_after_progress(&self, event: *mut DAT_EVENT) -> Result<()> {
        self.make_progress();
        loop {
            // SAFETY: the caller guarantees that this thread has the right to dequeue and that
            // `event` may be written to.
            if unsafe { self.take_and_count(event) } {
                return Ok(());
            }
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            if unsafe { self.withdraw_trigger_and_arm() } {
                self.shared.counters.tally.add(DCNT_EVD_DEQUEUE_NOT_FOUND, 1);
                return Err(self.empty_error());
            }
        }
    }

    /// Takes the first event for dat_evd_dequeue and counts it. Returns false if there is no event.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue_into`] apply.
    #[inline(always)]
    unsafe fn take_and_count(&self, event: *mut DAT_EVENT) -> bool {
        // SAFETY: the caller guarantees that this thread has the right to dequeue and that `event`
        // may be written to.
        unsafe {
            let Some(found) = self.take(event) else { return false };
            self.shared.counters.tally.add(found, 1);
            self.retrigger_cno_if_any();
        }
        true
    }

    /// Makes one pass of progress, because the EVD was found empty.
    #[inline]
    pub(super) fn make_progress(&self) {
        match &self.cq {
            Some(cq) => self.ia.transport.progress_on(cq),
            None => self.ia.transport.progress(),
        }
    }

    /// Arms the completion queue for the CNO. Returns whether events are queued already.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline(always)]
    pub(super) unsafe fn arm_and_check_events(&self) -> bool {
        // Arm the queue even if events are queued, because the next event must also trigger the
        // CNO.
        // SAFETY: the caller guarantees that this thread has the right to dequeue.
        let armed = unsafe { self.arm_for_cno() };
        !armed
            || self.staged.len.load(Ordering::Relaxed) > 0
            || self.queued_len.load(Ordering::Acquire) > 0
    }

    /// The error that a consumer gets when there is no event.
    #[cold]
    pub(super) fn empty_error(&self) -> Error {
        // An EVD that has overflowed is broken (uDAPL 1.2). So the error must not be that of an
        // empty queue.
        let overflowed = self.has_overflowed();
        Error::of(if overflowed { DAT_INVALID_STATE } else { DAT_QUEUE_EMPTY })
    }

    /// Triggers the CNO again if events remain after one was taken, so that the next wait on the
    /// CNO returns at once. This is necessary because not every consumer empties the queue after
    /// each trigger.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline(always)]
    pub(super) unsafe fn retrigger_cno_if_any(&self) {
        // SAFETY: the caller guarantees that this thread has the right to dequeue.
        if self.shared.has_cno.load(Ordering::Acquire) && unsafe { self.arm_and_check_events() } {
            self.shared.retrigger_cno();
        }
    }

    /// Withdraws the EVD's trigger from the CNO, because the queue was found empty, and arms the
    /// queue for the next event. Returns false if an event has arrived in the meantime.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline]
    unsafe fn withdraw_trigger_and_arm(&self) -> bool {
        if self.shared.has_cno.load(Ordering::Acquire) {
            self.shared.withdraw_trigger();
            // An event may have been queued just before the withdrawal. Its own trigger is then
            // withdrawn as well, so check again for events.
            if self.queued_len.load(Ordering::Acquire) > 0 {
                return false;
            }
        }
        // SAFETY: the caller guarantees that this thread has the right to dequeue.
        unsafe { self.arm_for_cno() }
    }

    /// Takes the first event, if there is one. Returns the counter that the caller must increment.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue_into`] apply.
    #[inline(always)]
    pub(super) unsafe fn take(&self, event: *mut DAT_EVENT) -> Option<DAT_EVD_COUNTERS> {
        // SAFETY: the caller guarantees that this thread has the right to dequeue and that `event`
        // may be written to.
        unsafe {
            if self.queued_len.load(Ordering::Acquire) > 0 && self.take_queued(Order::Now, event) {
                return Some(DCNT_EVD_DEQUEUE_FOUND);
            }
            let mut place = [MaybeUninit::uninit()];
            let mut polled = Polled::new(&mut place);
            if let Some((found, wc)) = self.take_completion(&mut polled) {
                // The transport may have queued an event, such as the establishment of the
                // connection, after this thread looked at the queued events and before this
                // completion was pushed. The consumer must get that event first.
                if found == DCNT_EVD_DEQUEUE_POLL_FOUND
                    && self.queued_len.load(Ordering::Acquire) > 0
                    && self.take_queued(Order::Now, event)
                {
                    // Only this rare branch needs the completion in memory: see `take_completion`.
                    let Wc { id, qp, bytes, invalidated, immediate, op, status } = *wc;
                    self.stage(Wc { id, qp, bytes, invalidated, immediate, op, status });
                    return Some(DCNT_EVD_DEQUEUE_FOUND);
                }
                self.write_completion(wc, event);
                return Some(found);
            }
            let taken = self.queued_len.load(Ordering::Acquire) > 0
                && self.take_queued(Order::AfterCompletions, event);
            taken.then_some(DCNT_EVD_DEQUEUE_FOUND)
        }
    }

    /// Takes the first completion. `polled` is empty and has room for it. Returns the completion
    /// and the counter that the caller must increment.
    ///
    /// No caller passes the reference to a function that is not inlined. So the compiler need not
    /// copy the completion, and reads its fields where `poll` finds them. A copy in memory would
    /// be slow: the processor cannot forward the stores of a producer on the same thread to wider
    /// loads.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline(always)]
    unsafe fn take_completion<'a>(
        &self,
        polled: &'a mut Polled<'_>,
    ) -> Option<(DAT_EVD_COUNTERS, &'a Wc)> {
        let cq = self.cq.as_ref()?;
        // SAFETY: the caller is the only thread that takes events.
        let found = if unsafe { self.unstage(polled) } {
            DCNT_EVD_DEQUEUE_FOUND
        } else {
            // SAFETY: the caller is the only thread that takes events.
            unsafe { cq.poll(polled) };
            DCNT_EVD_DEQUEUE_POLL_FOUND
        };
        let Some(wc) = polled.completions().first() else {
            self.empty_polls.store(self.empty_polls.load(Ordering::Relaxed) + 1, Ordering::Release);
            // The next poll of the queue must come after this fence: see `FreedFlows`.
            compiler_fence(Ordering::SeqCst);
            return None;
        };
        Some((found, wc))
    }

    /// Moves the first staged completion to `polled`. Returns false if no completion is staged.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline(always)]
    unsafe fn unstage(&self, polled: &mut Polled<'_>) -> bool {
        // SAFETY: the caller is the only thread that takes events.
        let staged = unsafe { &mut *self.staged.completions.get() };
        if staged.is_empty() {
            return false;
        }
        if let Some(wc) = pop_staged(staged) {
            polled.push(wc);
        }
        self.staged.len.store(staged.len(), Ordering::Relaxed);
        true
    }

    /// Stages a completion that was polled too early. No completion is staged yet, so the staged
    /// completions have room for it.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[cold]
    unsafe fn stage(&self, wc: Wc) {
        // SAFETY: the caller is the only thread that takes events.
        let staged = unsafe { &mut *self.staged.completions.get() };
        staged.push_back(wc);
        self.staged.len.store(staged.len(), Ordering::Relaxed);
    }

    /// Takes all completions that the consumer will never take, and releases the buffers of shared
    /// receive queues that belong to them.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    pub(super) unsafe fn retire_all(&self) {
        loop {
            let mut place = [MaybeUninit::uninit()];
            let mut polled = Polled::new(&mut place);
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            let Some((_, wc)) = (unsafe { self.take_completion(&mut polled) }) else { return };
            // SAFETY: `take_completion` has just taken the completion `wc`.
            unsafe { wc.qp.flow() }.retire(wc);
        }
    }

    /// Takes the first queued event if `order` permits that. If `order` is `AfterCompletions`,
    /// every event may be taken. If it is `Now`, only an event of order `Now` may be taken.
    ///
    /// # Safety
    /// `event` may be written to.
    #[cold]
    unsafe fn take_queued(&self, order: Order, event: *mut DAT_EVENT) -> bool {
        let mut queued_events = self.queued_events();
        let Some(first) = queued_events
            .pop_front_if(|first| order == Order::AfterCompletions || first.order == Order::Now)
        else {
            return false;
        };
        self.queued_len.store(queued_events.len(), Ordering::Release);
        // SAFETY: the caller guarantees that `event` may be written to.
        unsafe { event.write(first.event) };
        true
    }

    /// Counts the events that wait on the EVD. Leaves the completions in the transport if it can
    /// count them.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    #[inline]
    pub(super) unsafe fn count_in_place(&self) -> usize {
        let Some(cq) = &self.cq else { return self.queued_len.load(Ordering::Acquire) };
        // SAFETY: the caller is the only thread that takes events.
        match unsafe { cq.queued() } {
            Some(completions) => {
                let staged = self.staged.len.load(Ordering::Relaxed);
                completions + staged + self.queued_len.load(Ordering::Acquire)
            }
            // SAFETY: the caller is the only thread that takes events.
            None => unsafe { self.count() },
        }
    }

    /// Counts the events that wait on the EVD. For this purpose, takes the completions out of the
    /// transport and stages them.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    pub(super) unsafe fn count(&self) -> usize {
        // SAFETY: the caller is the only thread that takes events.
        let staged = unsafe { &mut *self.staged.completions.get() };
        if let Some(cq) = &self.cq {
            let mut batch = [const { MaybeUninit::uninit() }; 16];
            loop {
                let mut polled = Polled::new(&mut batch);
                // SAFETY: the caller is the only thread that takes events.
                unsafe { cq.poll(&mut polled) };
                staged.extend(polled.completions());
                if polled.room() > 0 {
                    break;
                }
            }
            self.staged.len.store(staged.len(), Ordering::Relaxed);
        }
        staged.len() + self.queued_len.load(Ordering::Acquire)
    }

    /// Writes the event of a completion. Writes only the fields that are valid for the event's
    /// number.
    ///
    /// # Safety
    /// `event` may be written to, and the completion was just taken.
    #[inline(always)]
    unsafe fn write_completion(&self, wc: &Wc, event: *mut DAT_EVENT) {
        // SAFETY: the caller guarantees that the completion was just taken.
        let flow = unsafe { wc.qp.flow() };
        // SAFETY: the caller guarantees that `event` may be written to.
        unsafe {
            (&raw mut (*event).evd_handle).write(self.shared.evd as *mut c_void);
            if wc.op == WcOp::Bind {
                (&raw mut (*event).event_number).write(DAT_RMR_BIND_COMPLETION_EVENT);
                (&raw mut (*event).event_data.rmr_completion_event_data)
                    .write(flow.retire_bind(*wc));
                return;
            }
            let mut number = DAT_DTO_COMPLETION_EVENT;
            if let Some(what) = extended::data_type(flow.is_datagram(), wc) {
                number = DAT_IB_DTO_EVENT;
                let data = (&raw mut (*event).event_extension_data).cast();
                extended::write(what, (wc.immediate, wc.status), data);
            }
            (&raw mut (*event).event_number).write(number);
            (&raw mut (*event).event_data.dto_completion_event_data).write(flow.retire(wc));
        }
    }
}

/// Takes the first staged completion.
#[cold]
fn pop_staged(staged: &mut VecDeque<Wc>) -> Option<Wc> {
    staged.pop_front()
}
