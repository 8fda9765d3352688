//! dat_evd_wait.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_sys::ib::*;
use dat_sys::*;

use super::Evd;
use crate::error::{Error, Result};
use crate::provider::{Completions, Transport};
use crate::wake::Slept;

/// What a wait ended with: the event or the reason, and how many events are left.
pub struct Waited {
    /// The first event, or why there is none.
    pub event: Result<DAT_EVENT>,
    /// Events left on the queue.
    pub more: usize,
}

/// The right to wait on an EVD, which one thread at a time has.
pub struct Waiter<'a, T: Transport> {
    evd: &'a Evd<T>,
    threshold: usize,
}

impl<T: Transport> Evd<T> {
    /// dat_evd_wait: the first event once `threshold` events are queued. `timeout` in microseconds, in total.
    /// An error here means that nothing was waited for, and `nmore` is undefined.
    ///
    /// # Safety
    /// As [`Evd::attend`].
    pub unsafe fn wait(&self, timeout: DAT_TIMEOUT, threshold: DAT_COUNT) -> Result<Waited> {
        // SAFETY: as the caller promised.
        unsafe { self.attend(threshold) }?.wait(timeout)
    }

    /// Makes this thread the waiter, unless there is one: the waiter has the taking side. A thread-safe table
    /// calls this under the handle's lock. Whoever waits then need not hold that.
    ///
    /// # Safety
    /// While this runs, no thread but a waiter has the taking side (see [`Evd::dequeue`]). From then on
    /// dat_evd_dequeue and its like refuse other threads as long as the waiter waits.
    pub unsafe fn attend(&self, threshold: DAT_COUNT) -> Result<Waiter<'_, T>> {
        if threshold < 1 || threshold as usize > self.depth() {
            return Err(Error::arg(3));
        }
        // uDAPL 1.2, dat_evd_wait: what controls waking is one or the other.
        match self.config() {
            DAT_COMPLETION_UNSIGNALLED_FLAG if threshold > 1 => {
                return Err(Error::state(DAT_INVALID_STATE_EVD_CONFIG_NOTIFY));
            }
            DAT_COMPLETION_SOLICITED_WAIT_FLAG if threshold > 1 => {
                return Err(Error::state(DAT_INVALID_STATE_EVD_CONFIG_SOLICITED));
            }
            _ => {}
        }
        match self.bell.attendance.claim() {
            true => Ok(Waiter { evd: self, threshold: threshold as usize }),
            false => Err(Error::state(DAT_INVALID_STATE_EVD_WAITER)),
        }
    }
}

impl<T: Transport> Waiter<'_, T> {
    /// See [`Evd::wait`].
    pub fn wait(self, timeout: DAT_TIMEOUT) -> Result<Waited> {
        let deadline = match timeout {
            DAT_TIMEOUT_INFINITE => None,
            // No deadline can lie past the end of the clock; then there is none.
            us => Instant::now().checked_add(Duration::from_micros(us.into())),
        };
        self.evd.bell.counters.tally.add(DCNT_EVD_WAIT, 1);
        // SAFETY: this is the waiter: everyone else is refused.
        unsafe { self.evd.wait_alone(deadline, timeout == 0, self.threshold) }
    }
}

impl<T: Transport> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        // What arrived for the CNO while this thread was the one to tell. dat_evd_free waits for the end of this.
        // SAFETY: this is the waiter still when it looks.
        let look = || unsafe { self.evd.has_left() };
        self.evd.bell.attendance.leave(look, || self.evd.bell.ring());
    }
}

impl<T: Transport> Evd<T> {
    /// # Safety
    /// The caller owns the EVD's taking side.
    unsafe fn wait_alone(
        &self,
        deadline: Option<Instant>,
        poll: bool,
        threshold: usize,
    ) -> Result<Waited> {
        let mut slept = if poll { Slept::TimedOut } else { Slept::Woken };
        let mut looked = false;
        let spin = self.cq.as_ref().map_or(Duration::ZERO, |_| self.ia.transport.spin());
        let mut spin_until = None;
        loop {
            self.bell.attendance.wake.reset();
            if self.ia.is_closing() || self.bell.dead.load(Ordering::SeqCst) {
                return Err(Error::of(DAT_ABORT));
            }
            if !self.bell.waitable.load(Ordering::SeqCst) {
                return Err(Error::state(DAT_INVALID_STATE_EVD_UNWAITABLE));
            }
            if !looked {
                self.ia.transport.progress();
                looked = true;
            }
            // SAFETY: as the caller promised.
            let count = unsafe { self.count() };
            let mut event = DAT_EVENT::zeroed();
            // SAFETY: as above.
            if count >= threshold && unsafe { self.take(&mut event) }.is_some() {
                return Ok(Waited { event: Ok(event), more: count - 1 });
            }
            if self.has_overflowed() {
                return Err(self.nothing());
            }
            match slept {
                Slept::TimedOut => {
                    return Ok(Waited { event: Err(Error::of(DAT_TIMEOUT_EXPIRED)), more: count });
                }
                Slept::Interrupted => {
                    return Ok(Waited {
                        event: Err(Error::new(DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE)),
                        more: count,
                    });
                }
                Slept::Woken => {}
            }
            if !spin.is_zero() {
                let now = Instant::now();
                let until = *spin_until.get_or_insert(now + spin);
                if deadline.is_some_and(|at| at <= now) {
                    slept = Slept::TimedOut;
                    continue;
                }
                if now < until {
                    looked = false;
                    std::hint::spin_loop();
                    continue;
                }
                // After it has slept, anew.
                spin_until = None;
            }
            // Arm after counting; `false` means that something came in between.
            let tally = &self.bell.counters.tally;
            tally.add(DCNT_EVD_WAIT_NOTIFY, self.cq.is_some().into());
            // SAFETY: as the caller promised.
            if self.cq.as_ref().is_none_or(|cq| unsafe { cq.arm(self.bell.solicited()) }) {
                tally.add(DCNT_EVD_WAIT_BLOCKED, 1);
                let (transport, wake) = (&self.ia.transport, &self.bell.attendance.wake);
                slept = match &self.cq {
                    Some(cq) => transport.sleep_on(cq, wake, deadline),
                    None => transport.sleep(wake, deadline),
                };
            }
        }
    }
}
