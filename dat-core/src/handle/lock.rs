//! Keeps an object alive while a call uses it.
//!
//! Each handle has a [`HandleLock`], which is never freed. The handle is live while an object is
//! behind it. On a thread-safe adapter these rules hold:
//!
//! - A call takes the lock, checks that the handle is live, and uses the object while it holds the
//!   lock.
//! - A call that names further objects pins each of them: it locks their handles one after the
//!   other, and each only until it has checked the handle and counted the pin. Then it locks the
//!   object that it is made on. So no call waits for one lock while it holds another.
//! - A call on an adapter pins the adapter instead of holding its lock, so that other threads need
//!   not wait, for example while the calling thread registers memory.
//! - A thread that frees the object takes the lock, waits until there are no pins, makes the handle
//!   stale, and then frees the object. New pins need the lock, so this wait ends with the calls
//!   that are in progress.
//!
//! A call with pins may wait for a lock whose holder waits for pins. No cycle can arise, because
//! each call takes locks and pins in the same order: first protection zones, then RMRs, LMRs, CNOs,
//! EVDs, SRQs, EPs, connection requests, adapters. Objects of one type are taken in the order of
//! their addresses. (A call that names a service point names no other object.) No call takes the
//! same object twice. Before a call waits for the lock of a handle, it checks that the handle is of
//! the expected type.
//!
//! The lock of an address handle is taken last. A call may wait for it while it holds other locks
//! or pins, and waits for no other handle's lock while it holds it. No call pins an address handle.

use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::yield_now;
use dat_sys::DAT_ABORT;
use waiting::nesting::{self, Activity};

/// How often a thread tries a held lock before it checks whether the lock can ever be released.
/// Most locks are released sooner.
const TRIES_BEFORE_CHECK: u32 = 1000;

/// The lock of one handle. Zeroed memory is the lock of a stale handle.
pub(super) struct HandleLock {
    /// The type of the object ([`tag`](super::tag)), or 0 if there is no object.
    tag: AtomicU64,
    /// An address on the stack of the thread that has the lock, or 0.
    owner: AtomicUsize,
    /// The number of calls that use the object without the lock.
    pins: AtomicU32,
    /// Whether the object's adapter is thread-safe.
    thread_safe: AtomicBool,
}

impl HandleLock {
    /// Whether the handle is live and its object has this tag.
    #[inline]
    pub(super) fn is_live_as(&self, tag: u64) -> bool {
        self.tag.load(Ordering::Acquire) == tag
    }

    /// Whether the handle is live.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !self.is_live_as(0)
    }

    /// Whether calls on the object take the lock, which they do if its adapter is thread-safe.
    pub(super) fn is_thread_safe(&self) -> bool {
        self.thread_safe.load(Ordering::Relaxed)
    }

    /// Makes the handle live, because it now has an object with this tag.
    pub(super) fn make_live(&self, tag: u64, thread_safe: bool) {
        self.thread_safe.store(thread_safe, Ordering::Relaxed);
        self.tag.store(tag, Ordering::Release);
    }

    /// Makes the handle stale. Returns false if it had no object with this tag.
    #[must_use]
    pub(super) fn make_stale(&self, tag: u64) -> bool {
        self.tag.compare_exchange(tag, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Resets the lock in a child of fork(2), because the object and the thread that may hold the
    /// lock belong to the parent.
    #[cfg(not(miri))]
    pub(super) fn reset_in_child(&self) {
        self.tag.store(0, Ordering::Relaxed);
        self.pins.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Runs `f` while this thread has the lock. The error is `DAT_ABORT` in a signal handler that
    /// has interrupted code which has the lock, or code whose end the holder of the lock may wait
    /// for.
    #[inline]
    pub(super) fn locked<V>(&self, f: impl FnOnce() -> Result<V>) -> Result<V> {
        let here = 0_u8;
        let owner = (&raw const here).addr();
        if self.owner.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended(owner)?;
        }
        let _unlock = Unlock(&self.owner);
        f()
    }

    /// Runs `f` as [`HandleLock::locked`] does. If another call has the lock, returns `None`
    /// without running `f`.
    pub(super) fn try_locked<V>(&self, f: impl FnOnce() -> V) -> Option<V> {
        let here = 0_u8;
        let owner = (&raw const here).addr();
        self.owner.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let _unlock = Unlock(&self.owner);
        Some(f())
    }

    #[cold]
    fn lock_contended(&self, owner: usize) -> Result<()> {
        let mut tries = 0_u32;
        while let Err(other) =
            self.owner.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
        {
            tries += 1;
            let may_never_unlock = || {
                nesting::interrupted_activity() == Activity::Work
                    || nesting::is_on_this_stack(other)
            };
            if tries.is_multiple_of(TRIES_BEFORE_CHECK) && may_never_unlock() {
                return Err(Error::of(DAT_ABORT));
            }
            // The holder may have been preempted. On few cores, spinning would only delay it.
            yield_now();
        }
        Ok(())
    }

    /// Adds a pin, because one more call uses the object. The caller has the lock, and the handle
    /// is live.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a pin, because one call no longer uses the object.
    pub(super) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    /// The number of calls that use the object without the lock.
    pub(super) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire)
    }

    /// Waits until no other call uses the object. The caller has the lock, so no new use begins
    /// during the wait.
    pub(super) fn await_unpinned(&self) {
        while self.pins() != 0 {
            yield_now();
        }
    }
}

/// Releases the lock when it is dropped.
struct Unlock<'a>(&'a AtomicUsize);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
