//! Objects that are freed later, because a thread that a signal handler has interrupted still uses
//! them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

type Free = Box<dyn FnOnce() + Send>;

/// The frees that no thread has begun yet, and the number of those that have begun.
#[derive(Default)]
pub(super) struct PendingFrees {
    waiting: Mutex<Vec<Free>>,
    begun: AtomicUsize,
}

impl PendingFrees {
    pub(super) fn add(&self, free: Free) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(free);
    }

    /// Frees the objects that no other thread has begun to free.
    pub(super) fn do_all(&self) {
        while self.do_one() {}
    }

    /// Frees an object, unless other threads have begun to free all of them.
    fn do_one(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(free) = waiting.pop() else { return false };
        self.begun.fetch_add(1, Ordering::AcqRel);
        drop(waiting);
        free();
        self.begun.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Blocks until all objects are freed. This thread frees those that no thread has begun to
    /// free.
    pub(super) fn finish(&self) {
        while self.do_one() || self.begun.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }
}
