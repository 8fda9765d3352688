//! A lock that is held for some nanoseconds.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{spin_loop, yield_now};

/// A lock whose waiters do not sleep, because its holder needs it only for some nanoseconds.
#[derive(Default)]
pub(crate) struct SpinLock(AtomicBool);

impl SpinLock {
    pub(crate) fn new() -> Self {
        SpinLock(AtomicBool::new(false))
    }

    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        while self
            .0
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            let mut spins = 0;
            while self.0.load(Ordering::Relaxed) {
                // The holder of the lock may have been preempted. With few cores it may need the
                // core of this thread.
                spins += 1;
                if spins % 64 == 0 { yield_now() } else { spin_loop() }
            }
        }
        SpinGuard(&self.0)
    }
}

/// Unlocks the [`SpinLock`] when dropped.
pub(crate) struct SpinGuard<'a>(&'a AtomicBool);

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
