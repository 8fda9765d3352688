//! Who is told of new events.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::ib::*;
use dat_sys::*;

use super::attendance::Attendance;
use super::feed::Streams;
use crate::cno::Cno;
use crate::counters::EvdCounters;
use crate::handle::Ref;
use crate::ia::Ia;
use crate::provider::{Receiver, Transport, Upcall};

/// Who is told of new events. Apart from the EVD because the completion queue's upcalls come here.
pub(super) struct Bell<T: Transport> {
    pub(super) ia: Ref<Ia<T>>,
    pub(super) evd: usize,
    pub(super) attendance: Attendance,
    pub(super) enabled: AtomicBool,
    pub(super) waitable: AtomicBool,
    /// The EVD is being destroyed.
    pub(super) dead: AtomicBool,
    pub(super) cno: Mutex<Option<Ref<Cno<T>>>>,
    pub(super) has_cno: AtomicBool,
    /// What the EVD has done.
    pub(super) counters: EvdCounters,
    /// The completion streams that feed it.
    pub(super) streams: Streams,
    /// Events were lost: what was there before can be taken, then it is of no use.
    pub(super) overflowed: AtomicBool,
    /// A completion was lost, and so are all that follow.
    pub(super) completions_end: AtomicBool,
}

impl<T: Transport> Bell<T> {
    pub(super) fn cno(&self) -> MutexGuard<'_, Option<Ref<Cno<T>>>> {
        self.cno.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only completions wake that the consumer, here or at the peer, wants to.
    pub(super) fn solicited(&self) -> bool {
        self.streams.solicited(self.ia.transport.attrs().quiet)
    }

    /// There is a new event. The waiter is told, or else the CNO (dat_evd_wait: not both).
    pub(super) fn ring(&self) {
        if self.attendance.is_attended_now() {
            self.interrupt_waiter();
        } else if self.has_cno.load(Ordering::Acquire)
            && self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.trigger(self.evd);
        }
    }

    /// Triggers the CNO again for what is still queued.
    #[cold]
    pub(super) fn remind(&self) {
        if self.enabled.load(Ordering::Acquire)
            && let Some(cno) = &*self.cno()
        {
            cno.remind(self.evd);
        }
    }

    /// Takes a trigger back that nobody has consumed.
    pub(super) fn settle(&self) {
        if let Some(cno) = &*self.cno() {
            cno.settle(self.evd);
        }
    }

    pub(super) fn interrupt_waiter(&self) {
        if self.attendance.wake.signal() {
            self.ia.transport.interrupt();
        }
    }

    /// Events were lost. Told once.
    pub(super) fn overflow(&self) {
        if self.overflowed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.interrupt_waiter();
        self.ia.report(
            DAT_ASYNC_ERROR_EVD_OVERFLOW,
            self.evd as *mut c_void,
            DAT_EVD_OVERFLOW_ERROR,
        );
    }
}

impl<T: Transport> Receiver<T> for Bell<T> {
    fn upcall(&self, up: Upcall<'_, T>) {
        match up {
            Upcall::CqOverflow => {
                self.completions_end.store(true, Ordering::Release);
                self.overflow();
            }
            _ => {
                self.counters.tally.count(DCNT_EVD_DTO_CALLBACK);
                self.ring();
            }
        }
    }
}
