//! The state of the progress thread, which other threads read and change.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::thread::JoinHandle;

use telemetry::trace;

use crate::sync::lock;

/// The state of the progress thread.
#[derive(Default)]
pub(crate) struct ProgressThread {
    pub(crate) state: AtomicU8,
    pub(super) stop: AtomicBool,
    /// The number of notification objects that have a file descriptor on which consumers may sleep.
    pub(super) fd_waiters: AtomicU32,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Whether data arrived that no consumer looked for while the thread was last active.
    pub(super) was_useful: AtomicBool,
    /// Whether the thread is to be active although consumers make progress.
    pub(super) requested: AtomicBool,
}

/// The name of the thread in the trace of wake-ups.
pub(super) const TRACE_NAME: &str = "progress thread";

pub(super) const ABSENT: u8 = 0;
pub(crate) const ACTIVE: u8 = 1;
pub(super) const WATCHING: u8 = 2;
pub(crate) const RESTING: u8 = 3;

impl ProgressThread {
    pub(super) fn has_fd_waiters(&self) -> bool {
        self.fd_waiters.load(Ordering::SeqCst) > 0
    }

    /// Wakes the thread if it rests.
    pub(super) fn unpark_if_parked(&self) {
        if self.state.load(Ordering::SeqCst) == RESTING
            && self
                .state
                .compare_exchange(RESTING, WATCHING, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            self.unpark();
        }
    }

    /// Asks the thread to serve a message of which only a part has arrived, because the polling
    /// consumer may watch memory for the rest. If such a request turns out to have been useless,
    /// further requests are ignored until the thread has been useful in another way.
    #[cold]
    pub(super) fn request(&self) {
        if self.was_useful.load(Ordering::Relaxed) && !self.requested.swap(true, Ordering::Relaxed)
        {
            self.unpark();
        }
    }

    pub(super) fn unpark(&self) {
        trace::log_wake(TRACE_NAME, std::ptr::from_ref(self).addr());
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.thread().unpark();
        }
    }
}
