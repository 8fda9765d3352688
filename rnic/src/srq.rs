//! Shared receive queue.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::key::{Keys, Pd};
use crate::qp::{Rqe, read_recv, write_recv};
use crate::ring::{OutOfMemory, Ring};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{spin_loop, yield_now};
use crate::wr::{PostError, RecvWr, Segment};

/// Receive buffers for the messages of any number of queue pairs. Anyone posts (a spinlock of a few nanoseconds);
/// buffers are taken under the engine lock.
///
/// Queue pairs whose messages have found no buffer stand in a line. While there is one, each buffer is for the queue pair that
/// has waited longest; if its next message needs another one it goes to the end of the line.
pub struct Srq {
    keys: Arc<Keys>,
    pd: Pd,
    max_segments: usize,
    ring: UnsafeCell<Ring<Rqe>>,
    posting: AtomicBool,
    low_watermark: AtomicUsize,
    /// The line, by the engine's numbers of the queue pairs. Under the engine lock.
    waiting: UnsafeCell<VecDeque<usize>>,
    /// Whether anybody is in the line. Set with `posting` held, so a thread that posts sees it, or the engine sees the buffer.
    wanted: AtomicBool,
    notify: Box<dyn Fn() + Send + Sync>,
}

// SAFETY: producers hold `posting`, the consumer the engine lock, who replaces the ring both.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    /// A queue for at least `depth` buffers of up to `max_segments` segments in `pd`. `notify` is called under the engine
    /// lock when fewer buffers are left than the low watermark says.
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
            posting: AtomicBool::new(false),
            low_watermark: AtomicUsize::new(0),
            waiting: UnsafeCell::default(),
            wanted: AtomicBool::new(false),
            notify: Box::new(notify),
        })
    }

    /// Queues a receive buffer. True: messages wait for buffers, and [`next_waiting`](Self::next_waiting) is to be told.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes.
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<bool, PostError> {
        let _posting = self.lock();
        // SAFETY: holding `posting` makes the caller the only producer, and nobody replaces the ring.
        unsafe { write_recv(&*self.ring.get(), &self.keys, self.pd.into(), wr) }?;
        Ok(self.wanted.load(Ordering::Relaxed))
    }

    /// The queue pair that has waited longest, if there is a buffer for it.
    ///
    /// # Safety
    /// Under the engine lock.
    pub unsafe fn next_waiting(&self) -> Option<usize> {
        // SAFETY: the caller is the only consumer, and nobody else touches the line.
        let (ring, line) = unsafe { (&*self.ring.get(), &*self.waiting.get()) };
        // SAFETY: as above.
        line.front().copied().filter(|_| unsafe { ring.is_filled(ring.head()) })
    }

    /// A queue pair goes to the end of the line. It looks for a buffer once more after that.
    ///
    /// # Safety
    /// Under the engine lock. It is not in the line.
    #[cold]
    pub(crate) unsafe fn wait(&self, who: usize) {
        let _posting = self.lock();
        // SAFETY: the engine lock is held.
        unsafe { &mut *self.waiting.get() }.push_back(who);
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// A queue pair leaves the line.
    ///
    /// # Safety
    /// Under the engine lock.
    #[cold]
    pub(crate) unsafe fn stop_waiting(&self, who: usize) {
        // SAFETY: the engine lock is held.
        let line = unsafe { &mut *self.waiting.get() };
        line.retain(|&other| other != who);
        self.wanted.store(!line.is_empty(), Ordering::Relaxed);
    }

    /// Whether there is a buffer for a queue pair: one that is in the line, or one that is not.
    ///
    /// # Safety
    /// Under the engine lock.
    pub(crate) unsafe fn has_buffer_for(&self, who: Option<usize>) -> bool {
        // SAFETY: the caller is the only consumer, and nobody else touches the line.
        let (ring, line) = unsafe { (&*self.ring.get(), &*self.waiting.get()) };
        // SAFETY: as above.
        line.front().is_none_or(|&first| who == Some(first))
            && unsafe { ring.is_filled(ring.head()) }
    }

    /// Asks for one notification when fewer than `mark` buffers are left; 0: none. If so few are left already, it comes
    /// with the next buffer taken.
    pub fn set_low_watermark(&self, mark: usize) {
        self.low_watermark.store(mark, Ordering::Relaxed);
    }

    /// Changes the depth to at least `depth`; no buffer is lost. False: more are queued than that, nothing changed.
    ///
    /// # Safety
    /// Under the engine lock.
    pub unsafe fn resize(&self, depth: usize) -> Result<bool, OutOfMemory> {
        let _posting = self.lock();
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

    /// Buffers posted and not yet taken by a message.
    pub fn available(&self) -> usize {
        let _posting = self.lock();
        // SAFETY: nobody replaces the ring while `posting` is held.
        unsafe { &*self.ring.get() }.len()
    }

    /// Takes the oldest buffer for a queue pair, which may be in the line.
    ///
    /// # Safety
    /// Under the engine lock.
    #[inline]
    pub(crate) unsafe fn take(&self, who: Option<usize>, segments: &mut [Segment]) -> Option<Rqe> {
        // SAFETY: the engine lock is held.
        let first = unsafe { &*self.waiting.get() }.front().copied();
        if first.is_some() && first != who {
            return None;
        }
        // SAFETY: the caller is the only consumer, and it is the engine lock's holder who replaces the ring.
        let ring = unsafe { &*self.ring.get() };
        // SAFETY: as above.
        let rqe = unsafe { read_recv(ring, segments) };
        if let (Some(who), true) = (who, rqe.is_some()) {
            // SAFETY: the engine lock is held.
            unsafe { self.stop_waiting(who) };
        }
        let mark = self.low_watermark.load(Ordering::Relaxed);
        if mark != 0 && ring.len() < mark && self.low_watermark.swap(0, Ordering::Relaxed) != 0 {
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

    fn lock(&self) -> Posting<'_> {
        while self
            .posting
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            let mut spins = 0;
            while self.posting.load(Ordering::Relaxed) {
                // The holder may have been preempted; on few cores it needs ours.
                spins += 1;
                if spins % 64 == 0 { yield_now() } else { spin_loop() }
            }
        }
        Posting(&self.posting)
    }
}

/// Released by `drop`.
struct Posting<'a>(&'a AtomicBool);

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
