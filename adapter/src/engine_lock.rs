//! The lock that serializes access to the engine.
//!
//! A thread uses an [`EngineLock`] in one of three ways. Only the second way waits for the lock:
//!
//! - A thread that has published work calls [`EngineLock::run_or_delegate`]: either it gets the
//!   lock and does the work, or the holder does the work before it releases the lock.
//! - A thread that needs the value itself calls [`EngineLock::lock`] and waits.
//! - A thread that only checks whether there is work calls [`EngineLock::try_lock`], which lets
//!   waiting threads go first.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use waiting::Futex;
use waiting::nesting::{self, Guard};

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{spin_loop, yield_now};

/// A value behind an [`EngineLock`]. Other threads may publish work for the value while one thread
/// holds the lock.
pub(crate) trait Deferring {
    /// Does the work that threads have published for the value.
    fn run_deferred(&mut self);
    /// Runs just before the lock is released.
    fn before_unlock(&mut self);
}

/// A lock around a value. The thread that holds the lock also does the work that other threads have
/// published.
pub(crate) struct EngineLock<T: Deferring> {
    state: Futex,
    /// How many times `try_lock` has left the lock to waiting threads since one of them last got
    /// it.
    yields_to_waiters: AtomicU32,
    /// The thread that holds the lock ([`nesting::thread`]), or 0.
    holder: AtomicUsize,
    /// Counts how often the lock was released.
    releases: AtomicU32,
    /// Whether the holder waits for other engines or only for their locks. Until it goes on, it
    /// uses no memory of the consumer.
    holder_waits: AtomicBool,
    value: UnsafeCell<T>,
}

/// The bit that is set while the lock is held.
const HELD: u32 = 1;
/// The bit that is set when another thread has published work while the lock was held.
const PENDING: u32 = 2;
/// One waiter in the state of the lock. The bits from this one upward count the threads that wait
/// in `lock`.
const WAITER: u32 = 4;
/// How often a waiter tests the lock before it sleeps. Most holders release it within a few
/// microseconds.
const SPINS_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 500 };
/// How many times `try_lock` leaves a free lock to the threads that wait for it. If none of them
/// takes the lock in this time, they have no processor to run on.
const MAX_YIELDS_TO_WAITERS: u32 = if cfg!(loom) { 1 } else { 1000 };

// SAFETY: the value is reached only through an `EngineGuard`, of which there is one at a time.
unsafe impl<T: Deferring + Send> Sync for EngineLock<T> {}

/// The held lock. Before the drop releases the lock, it does the work that other threads have
/// published while the lock was held.
pub(crate) struct EngineGuard<'a, T: Deferring>(&'a EngineLock<T>, Guard);

impl<'a, T: Deferring> EngineGuard<'a, T> {
    /// The caller has got the lock.
    #[inline]
    fn new(lock: &'a EngineLock<T>, work: Guard) -> Self {
        lock.holder.store(work.thread(), Ordering::Relaxed);
        EngineGuard(lock, work)
    }
}

impl<T: Deferring> EngineLock<T> {
    pub(crate) fn new(value: T) -> Self {
        EngineLock {
            state: Futex::new(0),
            yields_to_waiters: AtomicU32::new(0),
            holder: AtomicUsize::new(0),
            releases: AtomicU32::new(0),
            holder_waits: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock. Returns `None` if another thread holds the lock. Also returns `None` if
    /// another thread waits for the lock, but at most [`MAX_YIELDS_TO_WAITERS`] times in a row.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<EngineGuard<'_, T>> {
        let state = self.state.load(Ordering::Relaxed);
        let free = state & HELD == 0 && (state < WAITER || self.has_yielded_enough());
        if !free {
            return None;
        }
        let work = nesting::work();
        self.swap(state, state | HELD).ok().map(|_| EngineGuard::new(self, work))
    }

    #[cold]
    fn has_yielded_enough(&self) -> bool {
        let yields_to_waiters = self.yields_to_waiters.load(Ordering::Relaxed);
        self.yields_to_waiters.store(yields_to_waiters.wrapping_add(1), Ordering::Relaxed);
        yields_to_waiters >= MAX_YIELDS_TO_WAITERS
    }

    /// Takes the lock, or returns `None` if another thread holds it. That thread then does the
    /// published work before it releases the lock.
    pub(crate) fn lock_or_delegate(&self) -> Option<EngineGuard<'_, T>> {
        let work = nesting::work();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = state & HELD == 0;
            match self.swap(state, state | if free { HELD } else { PENDING }) {
                Ok(_) => return free.then(|| EngineGuard::new(self, work)),
                Err(now) => state = now,
            }
        }
    }

    /// Makes sure that the work which this thread has published is done. Either this thread does
    /// the work now and returns true, or the holder of the lock does the work soon.
    pub(crate) fn run_or_delegate(&self) -> bool {
        self.lock_or_delegate().map(|mut held| held.run_deferred()).is_some()
    }

    /// Waits for the lock. A thread that already holds the lock must not call this.
    pub(crate) fn lock(&self) -> EngineGuard<'_, T> {
        let work = nesting::work();
        let mut state = self.state.fetch_add(WAITER, Ordering::Relaxed) + WAITER;
        let mut spins = 0;
        loop {
            if state & HELD == 0 {
                match self.swap(state, (state - WAITER) | HELD) {
                    Ok(_) => {
                        self.yields_to_waiters.store(0, Ordering::Relaxed);
                        return EngineGuard::new(self, work);
                    }
                    Err(now) => state = now,
                }
                continue;
            }
            spins += 1;
            if spins < SPINS_BEFORE_SLEEP {
                spin_loop();
            } else {
                self.state.wait(state, None);
            }
            state = self.state.load(Ordering::Relaxed);
        }
    }

    /// Whether the calling thread holds the lock.
    pub(crate) fn is_held_by_this_thread(&self) -> bool {
        let held = self.state.load(Ordering::Relaxed) & HELD != 0;
        held && self.holder.load(Ordering::Relaxed) == nesting::thread()
    }

    /// Declares that the calling thread, which holds the lock, waits for other engines or for their
    /// locks, and uses no memory of the consumer until [`end_wait`](Self::end_wait).
    pub(crate) fn begin_wait(&self) {
        self.holder_waits.store(true, Ordering::SeqCst);
    }

    /// Ends what [`begin_wait`](Self::begin_wait) has begun.
    pub(crate) fn end_wait(&self) {
        self.holder_waits.store(false, Ordering::SeqCst);
        // This write changes nothing, but orders this thread and a thread in `await_holder`, which
        // writes to the same word. If this write is the later one, this thread sees what came
        // before that call. If it is the earlier one, the other thread sees that this thread goes
        // on.
        self.state.fetch_or(0, Ordering::AcqRel);
    }

    /// Waits until the thread that holds the lock at the time of the call releases it, or waits
    /// itself ([`begin_wait`](Self::begin_wait)). A thread that gets the lock later sees
    /// everything that the caller did before the call.
    pub(crate) fn await_holder(&self) {
        // This write changes nothing, but each write that takes the lock comes before or after it.
        // A thread that takes the lock afterwards sees what came before this write.
        if self.state.fetch_or(0, Ordering::AcqRel) & HELD == 0 {
            return;
        }
        let before = self.releases.load(Ordering::Acquire);
        let mut spins = 0;
        while self.state.load(Ordering::Acquire) & HELD != 0
            && self.releases.load(Ordering::Acquire) == before
            && !self.holder_waits.load(Ordering::SeqCst)
        {
            spins += 1;
            if spins % SPINS_BEFORE_SLEEP == 0 { yield_now() } else { spin_loop() }
        }
    }

    /// Release: the next holder sees what this thread published. Acquire: this thread sees what the
    /// previous holder left.
    #[inline]
    fn swap(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
    }
}

impl<T: Deferring> Deref for EngineGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `EngineGuard` of the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: Deferring> DerefMut for EngineGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `EngineGuard` of the lock, and it is borrowed exclusively.
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
            let releases = self.0.releases.load(Ordering::Relaxed).wrapping_add(1);
            self.0.releases.store(releases, Ordering::Release);
            // If another thread has published work since `run_deferred` or `before_unlock` ran,
            // that thread has set the bit `PENDING`, and the swap fails.
            state = self.0.state.load(Ordering::Relaxed) & !PENDING;
            // The next holder may be recorded as soon as the lock is free.
            self.0.holder.store(0, Ordering::Relaxed);
            match self.0.swap(state, state & !HELD) {
                Ok(_) => break,
                Err(now) => state = now,
            }
            self.0.holder.store(self.1.thread(), Ordering::Relaxed);
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

    /// Takes the published numbers and adds them up, without atomics.
    struct Adder<'a> {
        published: &'a AtomicU64,
        sum: u64,
        busy: bool,
        unlocks: u64,
    }

    impl Deferring for Adder<'_> {
        fn run_deferred(&mut self) {
            assert!(!std::mem::replace(&mut self.busy, true), "two threads hold the lock");
            self.sum += self.published.swap(0, Ordering::Relaxed);
            self.busy = false;
        }
        fn before_unlock(&mut self) {
            self.unlocks += 1;
        }
    }

    #[test]
    fn no_published_work_is_lost() {
        const THREADS: u64 = 4;
        const EACH: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let published = AtomicU64::new(0);
        let lock =
            EngineLock::new(Adder { published: &published, sum: 0, busy: false, unlocks: 0 });
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
        // All published work must be done when the lock is free. Otherwise the rest would have to
        // wait for the next holder of the lock.
        assert_eq!(published.load(Ordering::Relaxed), 0);
        let held = lock.lock();
        assert_eq!(held.sum, THREADS * EACH);
        assert!(held.unlocks >= EACH, "each release calls `before_unlock`");
    }

    #[test]
    fn a_waiter_gets_the_lock_from_a_thread_that_takes_it_again_and_again() {
        const WAITS: usize = if cfg!(miri) { 20 } else { 1000 };
        let published = AtomicU64::new(0);
        let lock =
            EngineLock::new(Adder { published: &published, sum: 0, busy: false, unlocks: 0 });
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
    fn the_holder_is_awaited_until_it_releases_the_lock_or_waits() {
        let published = AtomicU64::new(0);
        let lock =
            EngineLock::new(Adder { published: &published, sum: 0, busy: false, unlocks: 0 });
        lock.await_holder();
        let held = lock.lock();
        assert!(lock.is_held_by_this_thread());
        let ended = AtomicBool::new(false);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                assert!(!lock.is_held_by_this_thread());
                lock.await_holder();
                assert!(ended.load(Ordering::Relaxed));
            });
            ended.store(true, Ordering::Relaxed);
            drop(held);
            waiter.join().expect("no panic");
        });
        let _held = lock.lock();
        lock.begin_wait();
        lock.await_holder();
    }

    #[test]
    fn the_holder_does_the_work_of_a_refused_thread() {
        let published = AtomicU64::new(0);
        let lock =
            EngineLock::new(Adder { published: &published, sum: 0, busy: false, unlocks: 0 });
        let held = lock.lock();
        published.store(7, Ordering::Relaxed);
        assert!(lock.try_lock().is_none() && lock.lock_or_delegate().is_none());
        drop(held);
        assert_eq!(lock.lock().sum, 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
