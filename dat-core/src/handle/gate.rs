//! What keeps an object there while a call uses it.
//!
//! Each handle has a gate, which is never freed. It is open while an object lives behind it. On a thread-safe adapter
//!
//! - a call takes the gate's lock, looks whether the gate is open, and uses the object while it has the lock;
//! - a call that names further objects pins each of them: it takes the lock of their gates only to look and
//!   to count itself. It has all its pins before it takes the lock of the object that it is on, so no call
//!   waits for one lock with another;
//! - a call on an adapter pins the adapter in place of keeping its lock, so that other threads need not wait
//!   while this one registers memory;
//! - whoever frees the object takes the lock, waits until nobody has it pinned, closes the gate, and frees
//!   the object then. New pins take the lock, so this wait ends with the calls that are under way.
//!
//! A call that has pins may wait for a lock, and whoever has that lock may wait for pins in turn. This never
//! goes round in a circle, because each call takes what it takes in the same order: first zones, then remote
//! regions, local regions, notification objects, dispatchers, shared receive queues, endpoints, connection
//! requests, adapters; those of a kind by their addresses. (No call names a service point beside another
//! object.) No call takes the same one twice, and before it waits it looks whether the handle is of the kind
//! that it should be.

use crate::error::{Error, Result};
use crate::nesting::{self, Doing};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::yield_now;
use dat_sys::DAT_ABORT;

/// Looks at a lock that is held before a thread asks itself whether it will ever be given back: mostly it is soon.
const LONG: u32 = 1000;

/// The gate of one handle. Zeroed memory is a closed one.
pub(super) struct Gate {
    /// What the object is ([`tag`](super::tag)); 0: there is none.
    tag: AtomicU64,
    /// An address on the stack of who has the lock, or 0.
    lock: AtomicUsize,
    /// Calls that use the object without the lock.
    pins: AtomicU32,
    /// The object's adapter is thread-safe.
    shared: AtomicBool,
}

impl Gate {
    /// Whether there is an object of this tag.
    #[inline]
    pub(super) fn is_open_for(&self, tag: u64) -> bool {
        self.tag.load(Ordering::Acquire) == tag
    }

    /// Whether there is any object.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        !self.is_open_for(0)
    }

    /// Whether calls on the object take the lock.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// There is an object now.
    pub(super) fn open(&self, tag: u64, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
        self.tag.store(tag, Ordering::Release);
    }

    /// There is none any more. False: nor was there one of this tag.
    #[must_use]
    pub(super) fn close(&self, tag: u64) -> bool {
        self.tag.compare_exchange(tag, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// In a child of fork(2): the object is the parent's, and so is the thread that may have the lock.
    #[cfg(not(miri))]
    pub(super) fn forget(&self) {
        self.tag.store(0, Ordering::Relaxed);
        self.pins.store(0, Ordering::Relaxed);
        self.lock.store(0, Ordering::Relaxed);
    }

    /// Runs `f` with the lock. `DAT_ABORT`: this is a signal handler, and its own thread has the lock below
    /// it, or is at work there, for whose end the holder of the lock may be waiting.
    #[inline]
    pub(super) fn locked<V>(&self, f: impl FnOnce() -> Result<V>) -> Result<V> {
        let here = 0_u8;
        let owner = (&raw const here).addr();
        if self.lock.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_in_turn(owner)?;
        }
        let _unlock = Unlock(&self.lock);
        f()
    }

    /// As [`Gate::locked`], unless another call has the lock: then `f` does not run.
    pub(super) fn try_locked<V>(&self, f: impl FnOnce() -> V) -> Option<V> {
        let here = 0_u8;
        let owner = (&raw const here).addr();
        self.lock.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let _unlock = Unlock(&self.lock);
        Some(f())
    }

    #[cold]
    fn lock_in_turn(&self, owner: usize) -> Result<()> {
        let mut looks = 0_u32;
        while let Err(other) =
            self.lock.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
        {
            looks += 1;
            let may_last = || nesting::below() == Doing::Work || nesting::is_on_this_stack(other);
            if looks.is_multiple_of(LONG) && may_last() {
                return Err(Error::of(DAT_ABORT));
            }
            // The holder may have been preempted: on few cores spinning would only delay it.
            yield_now();
        }
        Ok(())
    }

    /// One more call uses the object. With the lock, and the gate being open.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// That call does so no longer.
    pub(super) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Release);
    }

    /// How many calls use the object without the lock.
    pub(super) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire)
    }

    /// Waits until no call uses the object but the caller's. With the lock: nobody begins meanwhile.
    pub(super) fn await_unpinned(&self) {
        while self.pins() != 0 {
            yield_now();
        }
    }
}

/// Gives the lock back.
struct Unlock<'a>(&'a AtomicUsize);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
