//! Shared receive queue.

use std::cell::UnsafeCell;
use std::sync::Arc;

use crate::key::{Keys, Pd};
use crate::qp::{Rqe, read_recv, write_recv};
use crate::ring::{OutOfMemory, Ring};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{spin_loop, yield_now};
use crate::wr::{PostError, RecvWr, Segment};

/// Receive buffers for the messages of any number of queue pairs. Anyone posts (a spinlock of a few nanoseconds);
/// buffers are taken under the engine lock.
pub struct Srq {
    keys: Arc<Keys>,
    pd: Pd,
    max_segments: usize,
    ring: UnsafeCell<Ring<Rqe>>,
    posting: AtomicBool,
    low_watermark: AtomicUsize,
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
            notify: Box::new(notify),
        })
    }

    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes.
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let _posting = self.lock();
        // SAFETY: holding `posting` makes the caller the only producer, and nobody replaces the ring.
        unsafe { write_recv(&*self.ring.get(), &self.keys, self.pd.into(), wr) }
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

    /// Takes the oldest buffer.
    ///
    /// # Safety
    /// Under the engine lock.
    #[inline]
    pub(crate) unsafe fn take(&self, segments: &mut [Segment]) -> Option<Rqe> {
        // SAFETY: the caller is the only consumer, and it is the engine lock's holder who replaces the ring.
        let ring = unsafe { &*self.ring.get() };
        // SAFETY: as above.
        let rqe = unsafe { read_recv(ring, segments) };
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
        while self.posting.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
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
