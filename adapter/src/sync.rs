//! The atomic types of the lock-free parts. With `--cfg loom` these are loom's types, with which
//! loom tries every interleaving. Also the function that locks a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(loom)]
pub(crate) use loom::{hint::spin_loop, sync::atomic};
#[cfg(not(loom))]
pub(crate) use std::{hint::spin_loop, sync::atomic};

/// Locks a mutex, also if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
