//! Objects that are freed later, because a thread that a signal handler has interrupted still uses
//! them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

type Free = Box<dyn FnOnce() + Send>;

/// The frees that no thread has begun yet, and the number of frees that are in progress.
#[derive(Default)]
pub(super) struct PendingFrees {
    waiting: Mutex<Vec<Free>>,
    begun: AtomicUsize,
    /// Whether a free has panicked, which would be a bug of this library. Its object is not freed.
    any_panicked: AtomicBool,
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
        if catch_unwind(AssertUnwindSafe(free)).is_err() {
            self.any_panicked.store(true, Ordering::Relaxed);
        }
        self.begun.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Blocks until all frees have ended. This thread frees the objects that no thread has begun to
    /// free. Returns whether all objects are freed.
    pub(super) fn finish(&self) -> bool {
        while self.do_one() || self.begun.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        !self.any_panicked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_free_that_panics_does_not_keep_the_others_waiting() {
        let (pending_frees, freed) = (PendingFrees::default(), Arc::new(AtomicUsize::new(0)));
        let free = || {
            let freed = Arc::clone(&freed);
            Box::new(move || {
                freed.fetch_add(1, Ordering::Relaxed);
            })
        };
        pending_frees.add(free());
        pending_frees.do_all();
        assert!(pending_frees.finish(), "one object was there, and it is freed");
        pending_frees.add(free());
        pending_frees.add(Box::new(|| panic!("a bug of this library")));
        pending_frees.add(free());
        pending_frees.do_all();
        assert_eq!(freed.load(Ordering::Relaxed), 3);
        pending_frees.add(free());
        assert!(!pending_frees.finish());
        assert_eq!(freed.load(Ordering::Relaxed), 4);
    }
}
