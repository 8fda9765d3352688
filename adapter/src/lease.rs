//! Who works on the engine: one thread at a time, whichever comes by.
//!
//! A [`Lease`] is a lock that a hurried thread need not wait for. Who only wants work done publishes the work and calls
//! [`Lease::serve`]: either it gets the lease and does the work, or the thread that has the lease is told to look again
//! before it lets go. Who must have the thing itself calls [`Lease::lock`] and waits; those who only look whether there is
//! something to do ([`Lease::try_lock`]) let it go first.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use dat_core::futex::Futex;
use dat_core::nesting::{self, Guard};

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::spin_loop;

/// Something for which work is published while its lease is held by another thread.
pub(crate) trait Serve {
    /// Does what was published.
    fn serve(&mut self);
    /// The lease is about to be let go of.
    fn leave(&mut self);
}

/// A thing that one thread at a time works on.
pub(crate) struct Lease<T: Serve> {
    state: Futex,
    /// How often somebody let waiters go first, since one did go.
    courtesies: AtomicU32,
    value: UnsafeCell<T>,
}

/// Somebody holds the lease.
const HELD: u32 = 1;
/// Work was published while somebody held it.
const PENDING: u32 = 2;
/// One thread that waits in `lock`; the bits above count.
const WAITER: u32 = 4;
/// Looks at a held lease before a waiter sleeps: most holders are gone within a few microseconds.
const SPINS: u32 = if cfg!(loom) { 1 } else { 500 };
/// How often a free lease is left to its waiters: one that has not come by then has no processor to run on.
const COURTESIES: u32 = if cfg!(loom) { 1 } else { 1000 };

// SAFETY: the value is reached through a `Held`, of which there is one at a time.
unsafe impl<T: Serve + Send> Sync for Lease<T> {}

/// The lease, held. Dropping it first serves whatever was published meanwhile.
pub(crate) struct Held<'a, T: Serve>(&'a Lease<T>, #[expect(dead_code, reason = "held as long")] Guard);

impl<T: Serve> Lease<T> {
    pub(crate) fn new(value: T) -> Self {
        Lease { state: Futex::new(0), courtesies: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// The lease, unless somebody has it or waits for it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        let state = self.state.load(Ordering::Relaxed);
        let free = state & HELD == 0 && (state < WAITER || self.is_courteous_enough());
        if !free {
            return None;
        }
        let work = nesting::work();
        self.swap(state, state | HELD).ok().map(|_| Held(self, work))
    }

    #[cold]
    fn is_courteous_enough(&self) -> bool {
        let courtesies = self.courtesies.load(Ordering::Relaxed);
        self.courtesies.store(courtesies.wrapping_add(1), Ordering::Relaxed);
        courtesies >= COURTESIES
    }

    /// The lease; else whoever has it serves once more before letting go.
    pub(crate) fn lock_or_ask(&self) -> Option<Held<'_, T>> {
        let work = nesting::work();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = state & HELD == 0;
            match self.swap(state, state | if free { HELD } else { PENDING }) {
                Ok(_) => return free.then(|| Held(self, work)),
                Err(now) => state = now,
            }
        }
    }

    /// Sees to it that what this thread has published is served: now by this thread (true), or soon by the one that has
    /// the lease.
    pub(crate) fn serve(&self) -> bool {
        self.lock_or_ask().map(|mut held| held.serve()).is_some()
    }

    /// Waits for the lease. Must not be called by the thread that has it.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        let work = nesting::work();
        let mut state = self.state.fetch_add(WAITER, Ordering::Relaxed) + WAITER;
        let mut looks = 0;
        loop {
            if state & HELD == 0 {
                match self.swap(state, (state - WAITER) | HELD) {
                    Ok(_) => {
                        self.courtesies.store(0, Ordering::Relaxed);
                        return Held(self, work);
                    }
                    Err(now) => state = now,
                }
                continue;
            }
            looks += 1;
            if looks < SPINS {
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

impl<T: Serve> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Held`.
        unsafe { &*self.0.value.get() }
    }
}

impl<T: Serve> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `Held`, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T: Serve> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let mut state = self.0.state.load(Ordering::Relaxed);
        loop {
            if state & PENDING != 0 {
                self.0.state.fetch_and(!PENDING, Ordering::Acquire);
                self.serve();
            }
            self.leave();
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

    impl Serve for Adder<'_> {
        fn serve(&mut self) {
            assert!(!std::mem::replace(&mut self.busy, true), "two threads have the lease");
            self.sum += self.published.swap(0, Ordering::Relaxed);
            self.busy = false;
        }
        fn leave(&mut self) {
            self.leaves += 1;
        }
    }

    #[test]
    fn no_published_work_is_lost() {
        const THREADS: u64 = 4;
        const EACH: u64 = if cfg!(miri) { 200 } else { 100_000 };
        let published = AtomicU64::new(0);
        let lease = Lease::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let (lease, published) = (&lease, &published);
                s.spawn(move || {
                    for i in 0..EACH {
                        published.fetch_add(1, Ordering::Relaxed);
                        lease.serve();
                        if thread == 0 && i % 64 == 0 {
                            lease.lock().serve();
                        } else if thread == 1
                            && let Some(mut held) = lease.try_lock()
                        {
                            held.serve();
                        }
                    }
                });
            }
        });
        assert_eq!(lease.state.load(Ordering::Relaxed), 0);
        // Nothing is left over that only the next holder would have found.
        assert_eq!(published.load(Ordering::Relaxed), 0);
        let held = lease.lock();
        assert_eq!(held.sum, THREADS * EACH);
        assert!(held.leaves >= EACH, "each release is announced");
    }

    #[test]
    fn a_waiter_gets_the_lease_from_a_thread_that_takes_it_again_and_again() {
        const WAITS: usize = if cfg!(miri) { 20 } else { 1000 };
        let published = AtomicU64::new(0);
        let lease = Lease::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Some(mut held) = lease.try_lock() {
                        held.serve();
                    }
                }
            });
            for _ in 0..WAITS {
                lease.lock().serve();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn who_is_refused_leaves_a_note() {
        let published = AtomicU64::new(0);
        let lease = Lease::new(Adder { published: &published, sum: 0, busy: false, leaves: 0 });
        let held = lease.lock();
        published.store(7, Ordering::Relaxed);
        assert!(lease.try_lock().is_none() && lease.lock_or_ask().is_none());
        drop(held);
        assert_eq!(lease.lock().sum, 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
