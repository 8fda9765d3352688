//! Who works on the engine: one thread at a time, whichever comes by.
//!
//! An [`EngineLock`] is a lock that a thread in a hurry need not wait for. Who only wants work done publishes
//! the work and calls [`EngineLock::run_or_delegate`]: either it gets the lock and does the work, or the
//! holder is told to look again before it lets go. Who must have the thing itself calls [`EngineLock::lock`]
//! and waits; those who only look whether there is something to do ([`EngineLock::try_lock`]) let it go
//! first.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use dat_core::futex::Futex;
use dat_core::nesting::{self, Guard};

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::spin_loop;

/// A value for which other threads publish work while one thread holds the lock.
pub(crate) trait Deferring {
    /// Does what was published.
    fn run_deferred(&mut self);
    /// The lock is about to be released.
    fn before_unlock(&mut self);
}

/// A thing that one thread at a time works on.
pub(crate) struct EngineLock<T: Deferring> {
    state: Futex,
    /// How often somebody let waiters go first, since one did go.
    yields_to_waiters: AtomicU32,
    value: UnsafeCell<T>,
}

/// Somebody holds the lock.
const HELD: u32 = 1;
/// Work was published while somebody held it.
const PENDING: u32 = 2;
/// One thread that waits in `lock`; the bits above count.
const WAITER: u32 = 4;
/// A waiter tests the lock so many times before it sleeps: most holders release it within a few microseconds.
const SPINS_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 500 };
/// So many times a free lock is left to its waiters. A waiter that has not taken it by then has no processor to run on.
const MAX_YIELDS_TO_WAITERS: u32 = if cfg!(loom) { 1 } else { 1000 };

// SAFETY: the value is reached through a `EngineGuard`, of which there is one at a time.
unsafe impl<T: Deferring + Send> Sync for EngineLock<T> {}

/// The lock, held. Dropping this first does the work that was published meanwhile.
pub(crate) struct EngineGuard<'a, T: Deferring>(
    &'a EngineLock<T>,
    #[expect(dead_code, reason = "held as long")] Guard,
);

impl<T: Deferring> EngineLock<T> {
    pub(crate) fn new(value: T) -> Self {
        EngineLock {
            state: Futex::new(0),
            yields_to_waiters: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, unless another thread holds it or waits for it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<EngineGuard<'_, T>> {
        let state = self.state.load(Ordering::Relaxed);
        let free = state & HELD == 0 && (state < WAITER || self.has_yielded_enough());
        if !free {
            return None;
        }
        let work = nesting::work();
        self.swap(state, state | HELD).ok().map(|_| EngineGuard(self, work))
    }

    #[cold]
    fn has_yielded_enough(&self) -> bool {
        let yields_to_waiters = self.yields_to_waiters.load(Ordering::Relaxed);
        self.yields_to_waiters.store(yields_to_waiters.wrapping_add(1), Ordering::Relaxed);
        yields_to_waiters >= MAX_YIELDS_TO_WAITERS
    }

    /// Takes the lock; if another thread holds it, that thread does the published work before it releases the lock.
    pub(crate) fn lock_or_delegate(&self) -> Option<EngineGuard<'_, T>> {
        let work = nesting::work();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = state & HELD == 0;
            match self.swap(state, state | if free { HELD } else { PENDING }) {
                Ok(_) => return free.then(|| EngineGuard(self, work)),
                Err(now) => state = now,
            }
        }
    }

    /// Sees to it that what this thread has published is served: now by this thread (true), or soon by the one that has
    /// the lock.
    pub(crate) fn run_or_delegate(&self) -> bool {
        self.lock_or_delegate().map(|mut held| held.run_deferred()).is_some()
    }

    /// Waits for the lock. Must not be called by the thread that has it.
    pub(crate) fn lock(&self) -> EngineGuard<'_, T> {
        let work = nesting::work();
        let mut state = self.state.fetch_add(WAITER, Ordering::Relaxed) + WAITER;
        let mut looks = 0;
        loop {
            if state & HELD == 0 {
                match self.swap(state, (state - WAITER) | HELD) {
                    Ok(_) => {
                        self.yields_to_waiters.store(0, Ordering::Relaxed);
                        return EngineGuard(self, work);
                    }
                    Err(now) => state = now,
                }
                continue;
            }
            looks += 1;
            if looks < SPINS_BEFORE_SLEEP {
                spin_loop();
            } else {
                self.state.wait(state, None);
            }
            state = self.state.load(Ordering::Relaxed);
        }
    }

    /// Release: the next holder sees what this thread published. Acquire: this thread sees what the last holder left.
    #[inline]
    fn swap(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
    }
}

impl<T: Deferring> Deref for EngineGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `EngineGuard`.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: Deferring> DerefMut for EngineGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `EngineGuard`, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T: Deferring> Drop for EngineGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let mut state = self.0.state.load(Ordering::Relaxed);
        loop {
            if state & PENDING != 0 {
                self.0.state.fetch_and(!PENDING, Ordering::Acquire);
                self.run_deferred();
            }
            self.before_unlock();
            // What was published since `serve` or `leave` looked has set the mark, which fails the swap.
            state = self.0.state.load(Ordering::Relaxed) & !PENDING;
            match self.0.swap(state, state & !HELD) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        if state >= WAITER {
            self.0.state.wake_one();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Takes what is published and adds it up, without atomics.
    struct Adder<'a> {
        published: &'a AtomicU64,
        sum: u64,
        busy: bool,
        leaves: u64,
    }

    impl Deferring for Adder<'_> {
        fn run_deferred(&mut self) {
            assert!(!std::mem::replace(&mut self.busy, true), "two threads have the lease");
            self.sum += self.published.swap(0, Ordering::Relaxed);
            self.busy = false;
        }
        fn before_unlock(&mut self) {
            self.leaves += 1;
        }
    }

    #[test]
    fn no_published_work_is_lost() {
        const THREADS: u64 = 4;
        const EACH: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let published = AtomicU64::new(0);
        let lock = EngineLock::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let (lock, published) = (&lock, &published);
                s.spawn(move || {
                    for i in 0..EACH {
                        published.fetch_add(1, Ordering::Relaxed);
                        lock.run_or_delegate();
                        if thread == 0 && i % 64 == 0 {
                            lock.lock().run_deferred();
                        } else if thread == 1
                            && let Some(mut held) = lock.try_lock()
                        {
                            held.run_deferred();
                        }
                    }
                });
            }
        });
        assert_eq!(lock.state.load(Ordering::Relaxed), 0);
        // Nothing is left over that only the next holder would have found.
        assert_eq!(published.load(Ordering::Relaxed), 0);
        let held = lock.lock();
        assert_eq!(held.sum, THREADS * EACH);
        assert!(held.leaves >= EACH, "each release is announced");
    }

    #[test]
    fn a_waiter_gets_the_lease_from_a_thread_that_takes_it_again_and_again() {
        const WAITS: usize = if cfg!(miri) { 20 } else { 1000 };
        let published = AtomicU64::new(0);
        let lock = EngineLock::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Some(mut held) = lock.try_lock() {
                        held.run_deferred();
                    }
                }
            });
            for _ in 0..WAITS {
                lock.lock().run_deferred();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn who_is_refused_leaves_a_note() {
        let published = AtomicU64::new(0);
        let lock = EngineLock::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        let held = lock.lock();
        published.store(7, Ordering::Relaxed);
        assert!(lock.try_lock().is_none() && lock.lock_or_delegate().is_none());
        drop(held);
        assert_eq!(lock.lock().sum, 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
