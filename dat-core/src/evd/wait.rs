//! dat_evd_wait.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_sys::ib::*;
use dat_sys::*;
use waiting::{WakeReason, cancel};

use super::Evd;
use crate::error::{Error, Result};
use crate::provider::{Completions, Transport};

/// The result of a wait.
pub struct WaitOutcome {
    /// The first event, or the reason why there is no event.
    pub event: Result<DAT_EVENT>,
    /// The number of events that remain in the queue.
    pub more: usize,
}

/// The right to wait on an EVD. One thread at a time has it.
pub struct Waiter<'a, T: Transport> {
    evd: &'a Evd<T>,
    threshold: usize,
}

impl<T: Transport> Evd<T> {
    /// Implements dat_evd_wait: waits until `threshold` events are queued, and takes the first
    /// event. `timeout` is the limit of the wait in microseconds, from the time at which the first
    /// look has found too few events. If this function returns an error, `nmore` of dat_evd_wait is
    /// undefined.
    ///
    /// # Safety
    /// The requirements of [`Evd::begin_wait`] apply.
    pub unsafe fn wait(&self, timeout: DAT_TIMEOUT, threshold: DAT_COUNT) -> Result<WaitOutcome> {
        let mut event = DAT_EVENT::zeroed();
        // SAFETY: the caller guarantees that no thread except a waiter has the right to dequeue
        // during this call. `event` is a local variable.
        unsafe {
            match self.take_ready(threshold, &mut event)? {
                Some(more) => Ok(WaitOutcome { event: Ok(event), more }),
                None => self.begin_wait(threshold)?.wait(timeout),
            }
        }
    }

    /// Takes the first event if `threshold` events are queued, as dat_evd_dequeue does: the calling
    /// thread does not become the waiter, because becoming the waiter takes longer than taking the
    /// event. Writes the event to `event` and returns the number of events that remain. Returns
    /// `None` if the caller must call [`Evd::begin_wait`].
    ///
    /// # Safety
    /// The requirements of [`Evd::begin_wait`] apply. `event` may be written to.
    #[inline]
    pub unsafe fn take_ready(
        &self,
        threshold: DAT_COUNT,
        event: *mut DAT_EVENT,
    ) -> Result<Option<usize>> {
        let threshold = self.checked_threshold(threshold)?;
        let slot = &self.shared.waiter_slot;
        // On a thread-safe adapter the lock of the handle excludes dat_evd_free and other calls
        // that take events.
        let taking = if self.ia.thread_safe { None } else { slot.enter() };
        if taking.is_none() && (!self.ia.thread_safe || slot.is_occupied()) {
            return Err(Error::state(DAT_INVALID_STATE_EVD_WAITER));
        }
        self.check_waitable()?;
        // SAFETY: there is no waiter, so the caller guarantees that this thread has the right to
        // dequeue. It also guarantees that `event` may be written to.
        unsafe {
            let count = self.count_in_place();
            if count < threshold {
                return Ok(None);
            }
            self.note_ready(count);
            if self.take(event).is_none() {
                return Ok(None);
            }
            self.shared.counters.tally.add(DCNT_EVD_WAIT, 1);
            self.retrigger_cno_if_any();
            Ok(Some(count - 1))
        }
    }

    /// The number of events that a wait for `threshold` events needs.
    #[inline]
    fn checked_threshold(&self, threshold: DAT_COUNT) -> Result<usize> {
        if threshold < 1 || threshold as usize > self.depth() {
            return Err(Error::arg(3));
        }
        // Waking depends either on the threshold or on the completion flags, but never on both
        // (uDAPL 1.2, dat_evd_wait).
        match self.config() {
            DAT_COMPLETION_UNSIGNALLED_FLAG if threshold > 1 => {
                Err(Error::state(DAT_INVALID_STATE_EVD_CONFIG_NOTIFY))
            }
            DAT_COMPLETION_SOLICITED_WAIT_FLAG if threshold > 1 => {
                Err(Error::state(DAT_INVALID_STATE_EVD_CONFIG_SOLICITED))
            }
            _ => Ok(threshold as usize),
        }
    }

    /// Fails if no wait is permitted.
    #[inline]
    fn check_waitable(&self) -> Result<()> {
        if self.ia.is_closing() || self.shared.dead.load(Ordering::SeqCst) {
            return Err(Error::of(DAT_ABORT));
        }
        if !self.shared.waitable.load(Ordering::SeqCst) {
            return Err(Error::state(DAT_INVALID_STATE_EVD_UNWAITABLE));
        }
        Ok(())
    }

    /// Tells the transport of a wait that has found `count` events at once, if any of these is a
    /// completion.
    #[inline]
    fn note_ready(&self, count: usize) {
        if let Some(cq) = &self.cq
            && count > self.queued_len.load(Ordering::Acquire)
        {
            self.ia.transport.note_ready_wait(cq);
        }
    }

    /// Makes this thread the waiter. Fails if another thread is already the waiter. The waiter has
    /// the right to dequeue. On a thread-safe adapter this function is called under the lock of the
    /// handle, but the wait itself does not need that lock.
    ///
    /// # Safety
    /// While this function runs, no thread except a waiter has the right to dequeue (see
    /// [`Evd::dequeue`]). As long as the waiter waits, dat_evd_dequeue and similar functions refuse
    /// other threads.
    pub unsafe fn begin_wait(&self, threshold: DAT_COUNT) -> Result<Waiter<'_, T>> {
        let threshold = self.checked_threshold(threshold)?;
        match self.shared.waiter_slot.claim() {
            true => Ok(Waiter { evd: self, threshold }),
            false => Err(Error::state(DAT_INVALID_STATE_EVD_WAITER)),
        }
    }
}

impl<T: Transport> Waiter<'_, T> {
    /// Waits and takes the first event: see [`Evd::wait`].
    pub fn wait(self, timeout: DAT_TIMEOUT) -> Result<WaitOutcome> {
        self.evd.shared.counters.tally.add(DCNT_EVD_WAIT, 1);
        // SAFETY: this thread is the waiter, so all others are refused.
        unsafe { self.evd.wait_as_waiter(timeout, self.threshold) }
    }
}

impl<T: Transport> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        // While this thread was the waiter, events were announced to it and not to the CNO. So
        // notify the CNO now. dat_evd_free waits until this notification is done.
        // SAFETY: this thread is still the waiter and so has the right to dequeue when it checks
        // for events.
        let look = || unsafe { self.evd.arm_and_check_events() };
        self.evd.shared.waiter_slot.release(look, || {
            // This runs after the fence of `release`. So either this thread sees a CNO that is
            // being attached, or the thread that attaches it sees the vacant slot and looks at the
            // queue itself (`Evd::renotify`).
            self.evd.shared.notify_cno();
        });
    }
}

impl<T: Transport> Evd<T> {
    /// Implements [`Waiter::wait`].
    ///
    /// The thread may leave its sleep although no event was announced to it, for example because
    /// another thread has begun to make progress. A completion that must not wake (unsignalled, or
    /// not solicited) does not end the wait in that case. So the queue is armed when it is found
    /// empty for the first time, and from then on only an announced event ends the wait.
    ///
    /// # Safety
    /// The caller has the right to dequeue from the EVD.
    unsafe fn wait_as_waiter(&self, timeout: DAT_TIMEOUT, threshold: usize) -> Result<WaitOutcome> {
        let mut wake_reason = if timeout == 0 { WakeReason::TimedOut } else { WakeReason::Woken };
        let mut deadline = None;
        let mut made_pass = false;
        let mut is_first_look = true;
        let spin = self.cq.as_ref().map_or(Duration::ZERO, |_| self.ia.transport.spin());
        let mut spin_until = None;
        let mut armed = None;
        loop {
            self.shared.waiter_slot.wake.reset();
            self.check_waitable()?;
            // This is read before the events are counted, so an event that is announced after the
            // count ends the wait.
            let announced = self.shared.waiter_slot.announced();
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            let mut count = unsafe { self.count() };
            // Take queued events before making progress, as dat_evd_dequeue does. A pass of
            // progress for each event would end the batch of requests that the consumer posts
            // between the events.
            if count >= threshold {
                if is_first_look {
                    self.note_ready(count);
                }
            } else if !made_pass {
                // Arm the queue before completions can arrive that must not end the wait.
                if is_first_look && timeout != 0 {
                    // SAFETY: the caller guarantees that this thread has the right to dequeue.
                    armed = unsafe { self.arm_selectively() }.then_some(announced);
                }
                self.make_progress();
                made_pass = true;
                // SAFETY: the caller guarantees that this thread has the right to dequeue.
                count = unsafe { self.count() };
            }
            is_first_look = false;
            // Whether the events that have arrived since the queue was armed must not end the wait.
            // If the EVD has lost events, the wait ends.
            let all_quiet = !self.has_overflowed()
                && armed.is_some_and(|armed| self.shared.waiter_slot.announced() == armed);
            let mut event = DAT_EVENT::zeroed();
            // SAFETY: the caller guarantees that this thread has the right to dequeue.
            if count >= threshold && !all_quiet && unsafe { self.take(&mut event) }.is_some() {
                return Ok(WaitOutcome { event: Ok(event), more: count - 1 });
            }
            if self.has_overflowed() {
                return Err(self.empty_error());
            }
            match wake_reason {
                WakeReason::TimedOut => {
                    return Ok(WaitOutcome {
                        event: Err(Error::of(DAT_TIMEOUT_EXPIRED)),
                        more: count,
                    });
                }
                WakeReason::Interrupted => {
                    return Ok(WaitOutcome {
                        event: Err(Error::new(DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE)),
                        more: count,
                    });
                }
                WakeReason::Woken => {}
            }
            // A call that finds enough events does not read the clock, because that would double
            // its duration.
            let deadline = *deadline.get_or_insert_with(|| deadline_after(timeout));
            if !spin.is_zero() {
                let now = Instant::now();
                let until = *spin_until.get_or_insert(now + spin);
                if deadline.is_some_and(|at| at <= now) {
                    wake_reason = WakeReason::TimedOut;
                    continue;
                }
                if now < until {
                    made_pass = false;
                    std::hint::spin_loop();
                    continue;
                }
                // Spin again, for the full time, after each sleep.
                spin_until = None;
            }
            let tally = &self.shared.counters.tally;
            tally.add(DCNT_EVD_WAIT_NOTIFY, self.cq.is_some().into());
            // Arm the queue after counting its events. If arming returns false, an event has
            // arrived after the count. A queue that is armed and has announced nothing stays armed.
            let may_sleep = all_quiet || {
                // SAFETY: the caller guarantees that this thread has the right to dequeue.
                let is_armed =
                    self.cq.as_ref().is_none_or(|cq| unsafe { cq.arm(self.shared.solicited()) });
                armed = (is_armed && self.shared.is_selective()).then_some(announced);
                is_armed
            };
            if may_sleep {
                tally.add(DCNT_EVD_WAIT_BLOCKED, 1);
                let (transport, wake) = (&self.ia.transport, &self.shared.waiter_slot.wake);
                wake_reason = match &self.cq {
                    Some(cq) => transport.sleep_on(cq, wake, deadline),
                    None => transport.sleep(wake, deadline),
                };
                if cancel::is_ending() {
                    return Err(Error::of(DAT_INTERRUPTED_CALL));
                }
            }
        }
    }

    /// Arms the completion queue if some completions must not end a wait. Returns whether it is
    /// armed. If not, all completions end a wait, or a completion is queued that may have arrived
    /// before the wait began.
    ///
    /// # Safety
    /// The requirements of [`Evd::dequeue`] apply.
    unsafe fn arm_selectively(&self) -> bool {
        let cq = self.cq.as_ref().filter(|_| self.shared.is_selective());
        // SAFETY: the caller guarantees that this thread has the right to dequeue.
        cq.is_some_and(|cq| unsafe { cq.arm(true) })
    }
}

/// The deadline of a wait that begins now. `None` if the wait has no deadline.
fn deadline_after(timeout: DAT_TIMEOUT) -> Option<Instant> {
    match timeout {
        DAT_TIMEOUT_INFINITE => None,
        // If the timeout exceeds the range of the clock, there is no deadline.
        us => Instant::now().checked_add(Duration::from_micros(us.into())),
    }
}
