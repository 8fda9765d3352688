//! Locks that dat_ia_close needs. A consumer may call dat_ia_close in a signal handler, also while
//! the interrupted thread is in a call of the registry.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use telemetry::threads::BlockedSignals;

/// The guard of a lock. While it exists, no signal handler interrupts its thread, so no handler
/// waits for a lock that its own thread holds.
pub(crate) struct SignalGuard<T: 'static> {
    // The fields are dropped in this order: the lock is free before a signal handler runs.
    guard: MutexGuard<'static, T>,
    _blocked: BlockedSignals,
}

/// Blocks signals and locks.
pub(crate) fn lock<T>(mutex: &'static Mutex<T>) -> SignalGuard<T> {
    let blocked = BlockedSignals::under_lock();
    let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    SignalGuard { guard, _blocked: blocked }
}

impl<T> Deref for SignalGuard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for SignalGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
