//! The atomic types of the lock-free modules, and a function that locks a mutex. With `--cfg loom`
//! the types are those of loom, which tries every interleaving of the threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
pub(crate) use loom::{hint::spin_loop, sync::atomic, thread::yield_now};
#[cfg(not(loom))]
pub(crate) use std::{hint::spin_loop, sync::atomic, thread::yield_now};

/// Locks a mutex, even if another thread has panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
