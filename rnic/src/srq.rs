//! Shared receive queues.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::key::{Keys, Pd};
use crate::qp::{read_recv, write_recv};
use crate::ring::{OutOfMemory, Ring};
use crate::spin_lock::SpinLock;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wqe::Rqe;
use crate::wr::{PostError, RecvWr, Segment};

/// Receive buffers for the messages of any number of queue pairs. Any thread may post, under a
/// spinlock that is held for a few nanoseconds. Buffers are taken under the engine lock.
///
/// Queue pairs whose messages found no buffer form a list of waiters. While the list is not empty,
/// each buffer is for the queue pair that has waited longest. If that queue pair's next message
/// needs another buffer, it goes to the end of the list.
pub struct Srq {
    keys: Arc<Keys>,
    pd: Pd,
    max_segments: usize,
    ring: UnsafeCell<Ring<Rqe>>,
    post_lock: SpinLock,
    /// See [`Srq::set_limit`].
    limit: AtomicUsize,
    /// The waiters, by the engine's numbers of the queue pairs. Accessed under the engine lock.
    waiting: UnsafeCell<VecDeque<usize>>,
    /// Whether there are waiters. The flag is set while `post_lock` is held. So either a posting
    /// thread sees the flag, or the engine sees the posted buffer.
    has_waiters: AtomicBool,
    notify: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: producers hold `post_lock`, the consumer holds the engine lock, and a thread that
// replaces the ring holds both locks.
unsafe impl Send for Srq {}
// SAFETY: producers hold `post_lock`, the consumer holds the engine lock, and a thread that
// replaces the ring holds both locks.
unsafe impl Sync for Srq {}

impl Srq {
    /// Creates a queue for at least `depth` buffers of up to `max_segments` segments in `pd`.
    /// `notify` is called under the engine lock when fewer buffers are left than the
    /// [limit](Srq::set_limit).
    pub fn new(
        keys: &Arc<Keys>,
        pd: Pd,
        depth: usize,
        max_segments: usize,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, OutOfMemory> {
        Ok(Srq {
            keys: Arc::clone(keys),
            pd,
            max_segments,
            ring: UnsafeCell::new(Ring::new(depth, max_segments)?),
            post_lock: SpinLock::new(),
            limit: AtomicUsize::new(0),
            waiting: UnsafeCell::default(),
            has_waiters: AtomicBool::new(false),
            notify: Box::new(notify),
        })
    }

    /// Queues a receive buffer. Returns true if queue pairs wait for buffers. In this case the
    /// caller must give buffers to the queue pairs that [`next_waiting`](Self::next_waiting)
    /// returns.
    ///
    /// # Safety
    /// The segments' memory must stay valid until the receive completes.
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<bool, PostError> {
        let _guard = self.post_lock.lock();
        // SAFETY: holding `post_lock` makes the caller the only producer and keeps the ring from
        // being replaced.
        unsafe { write_recv(&*self.ring.get(), &self.keys, self.pd.into(), wr) }?;
        Ok(self.has_waiters.load(Ordering::Relaxed))
    }

    /// The queue pair that has waited longest, if a buffer is available for it.
    ///
    /// # Safety
    /// The engine lock must be held.
    pub unsafe fn next_waiting(&self) -> Option<usize> {
        // SAFETY: the caller is the only consumer, and only the holder of the engine lock accesses
        // the waiters.
        let (ring, waiting) = unsafe { (&*self.ring.get(), &*self.waiting.get()) };
        // SAFETY: the caller is the only consumer, and only the holder of the engine lock accesses
        // the waiters.
        waiting.front().copied().filter(|_| unsafe { ring.is_filled(ring.head()) })
    }

    /// Adds a queue pair to the end of the list of waiters. Afterwards the caller must check once
    /// more whether there is a buffer.
    ///
    /// # Safety
    /// The engine lock must be held, and the queue pair must not be among the waiters.
    #[cold]
    pub(crate) unsafe fn add_waiter(&self, waiter: usize) {
        let _guard = self.post_lock.lock();
        // SAFETY: the engine lock is held.
        unsafe { &mut *self.waiting.get() }.push_back(waiter);
        self.has_waiters.store(true, Ordering::Relaxed);
    }

    /// Removes a queue pair from the waiters.
    ///
    /// # Safety
    /// The engine lock must be held.
    #[cold]
    pub(crate) unsafe fn remove_waiter(&self, waiter: usize) {
        // SAFETY: the engine lock is held.
        let waiting = unsafe { &mut *self.waiting.get() };
        waiting.retain(|&other| other != waiter);
        self.has_waiters.store(!waiting.is_empty(), Ordering::Relaxed);
    }

    /// Whether a buffer is available for a queue pair. `waiter` is the number of the queue pair if
    /// it is in the list of waiters.
    ///
    /// # Safety
    /// The engine lock must be held.
    pub(crate) unsafe fn has_buffer_for(&self, waiter: Option<usize>) -> bool {
        // SAFETY: the caller is the only consumer, and only the holder of the engine lock accesses
        // the waiters.
        let (ring, waiting) = unsafe { (&*self.ring.get(), &*self.waiting.get()) };
        // SAFETY: the caller is the only consumer, and only the holder of the engine lock accesses
        // the waiters.
        waiting.front().is_none_or(|&first| waiter == Some(first))
            && unsafe { ring.is_filled(ring.head()) }
    }

    /// Requests one notification when fewer than `limit` buffers are left. 0 cancels the request.
    /// If fewer buffers are left already, the notification comes when the next buffer is taken.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Changes the depth to at least `depth`. No buffer is lost. Returns false, and changes
    /// nothing, if more than `depth` buffers are queued.
    ///
    /// # Safety
    /// The engine lock must be held.
    pub unsafe fn resize(&self, depth: usize) -> Result<bool, OutOfMemory> {
        let _guard = self.post_lock.lock();
        // SAFETY: holding both locks makes the caller producer and consumer of the ring.
        unsafe {
            let old = &*self.ring.get();
            if old.len() > depth {
                return Ok(false);
            }
            let new = Ring::<Rqe>::new(depth, self.max_segments)?;
            let mut at = old.head();
            while old.is_filled(at) {
                if let Some(slot) = new.vacant() {
                    let from = old.slot(at);
                    slot.header().write(from.header().read());
                    slot.segments().copy_from_nonoverlapping(from.segments(), old.max_segments());
                    new.publish();
                }
                at = at.wrapping_add(1);
            }
            *self.ring.get() = new;
        }
        Ok(true)
    }

    /// The number of buffers that are posted and not yet taken by a message.
    pub fn available(&self) -> usize {
        let _guard = self.post_lock.lock();
        // SAFETY: nobody replaces the ring while `post_lock` is held.
        unsafe { &*self.ring.get() }.len()
    }

    /// Takes the oldest buffer for a queue pair. `waiter` is the number of the queue pair if it is
    /// in the list of waiters.
    ///
    /// # Safety
    /// The engine lock must be held.
    #[inline]
    pub(crate) unsafe fn take(
        &self,
        waiter: Option<usize>,
        segments: &mut [Segment],
    ) -> Option<Rqe> {
        // SAFETY: the engine lock is held.
        let first = unsafe { &*self.waiting.get() }.front().copied();
        if first.is_some() && first != waiter {
            return None;
        }
        // SAFETY: the caller is the only consumer, and only a holder of the engine lock replaces
        // the ring.
        let ring = unsafe { &*self.ring.get() };
        // SAFETY: the caller is the only consumer, and only a holder of the engine lock replaces
        // the ring.
        let rqe = unsafe { read_recv(ring, segments) };
        if let (Some(waiter), true) = (waiter, rqe.is_some()) {
            // SAFETY: the engine lock is held.
            unsafe { self.remove_waiter(waiter) };
        }
        let limit = self.limit.load(Ordering::Relaxed);
        if limit != 0 && ring.len() < limit && self.limit.swap(0, Ordering::Relaxed) != 0 {
            (self.notify)();
        }
        rqe
    }

    pub(crate) fn pd(&self) -> Pd {
        self.pd
    }

    pub(crate) fn max_segments(&self) -> usize {
        self.max_segments
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
