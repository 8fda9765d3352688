//! Completion queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::engines::{EngineSet, Engines};
use crate::error::{Error, Result, no_memory};

/// A completion queue.
pub struct Cq<E: Engine> {
    pub(super) cq: Arc<rnic::Cq>,
    /// The engines whose queue pairs use the queue, as an [`EngineSet`].
    pub(super) used_by: AtomicU64,
    pub(super) engines: Arc<Engines<E>>,
}

impl<E: Engine> Cq<E> {
    /// The engines whose queue pairs use the queue.
    #[inline]
    pub(super) fn used_by(&self) -> EngineSet {
        EngineSet(self.used_by.load(Ordering::Acquire))
    }

    /// Prepares the queue for a queue pair of this engine. Only one thread at a time calls this.
    pub(super) fn prepare_for(&self, number: usize) {
        let before = self.used_by();
        let after = before.with(EngineSet::of(number));
        if before != EngineSet::EMPTY && after != before {
            // SAFETY: the locks of all engines whose queue pairs use the queue are held.
            self.engines.with_locks(before, || unsafe { self.cq.share() });
        }
        self.used_by.store(after.0, Ordering::Release);
    }
}

impl<E: Engine> Cq<E> {
    /// Passes up to `max` completions to `take`, oldest first, and returns their number. Does not
    /// make progress. After the drop of a queue pair, the queue gets no more completions of it.
    ///
    /// # Safety
    /// One thread at a time calls `poll_with`, `queued`, `arm` and `resize` of a queue, and none
    /// does during [`Qp::reset`](crate::Qp::reset) of a queue pair that uses the queue. `take` does
    /// not call this queue.
    #[inline]
    pub unsafe fn poll_with(&self, max: usize, take: impl FnMut(rnic::Wc)) -> usize {
        // SAFETY: the caller is the one thread that polls, and `take` does not call the queue.
        unsafe { self.cq.poll_with(max, take) }
    }

    /// The number of completions that a poll would return.
    ///
    /// # Safety
    /// The requirements of [`Cq::poll_with`] apply.
    #[inline]
    pub unsafe fn queued(&self) -> usize {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.cq.queued() }
    }

    /// Requests one [`rnic::CqEvent::Ready`] at the next completion or, if `solicited` is true, at
    /// the next completion that has failed or is solicited. Returns false if the queue may contain
    /// a completion. Nothing was armed in this case, and the caller polls again.
    ///
    /// # Safety
    /// The requirements of [`Cq::poll_with`] apply.
    #[inline]
    pub unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.cq.arm(solicited) }
    }

    /// Changes the depth of the queue.
    ///
    /// # Errors
    /// [`Error::NoMemory`], and [`Error::InvalidState`] if the queue has more completions.
    ///
    /// # Safety
    /// The requirements of [`Cq::poll_with`] apply.
    pub unsafe fn resize(&self, depth: usize) -> Result<()> {
        // SAFETY: the locks of all engines are held whose queue pairs use the queue, and the caller
        // guarantees that no other thread polls during this call.
        self.resize_with(|| unsafe { self.cq.resize(depth) })
    }

    /// Resizes the queue by `resize`, which runs while this thread holds the locks of all engines
    /// whose queue pairs use the queue. Fails if it returns false.
    fn resize_with(
        &self,
        resize: impl FnOnce() -> std::result::Result<bool, rnic::OutOfMemory>,
    ) -> Result<()> {
        match self.engines.exclude(|| self.used_by(), resize).map_err(no_memory)? {
            true => Ok(()),
            false => Err(Error::InvalidState),
        }
    }
}

/// A completion queue that any thread may poll and arm at any time, also while it is not empty. See
/// [`rnic::ConcurrentCq`].
pub struct ConcurrentCq<E: Engine> {
    pub(super) cq: rnic::ConcurrentCq,
    pub(super) queue: Cq<E>,
}

impl<E: Engine> ConcurrentCq<E> {
    /// The queue, for [`QpCfg`](crate::QpCfg) and for the calls that make progress. Its methods for
    /// consumers must not be called.
    pub fn queue(&self) -> &Cq<E> {
        &self.queue
    }

    /// Passes up to `max` completions to `take`, as [`Cq::poll_with`] does. `take` must not call
    /// the adapter, because a thread in [`resize`](Self::resize) or in
    /// [`Qp::reset`](crate::Qp::reset) waits for the end of this poll with the locks of engines.
    #[inline]
    pub fn poll_with(&self, max: usize, take: impl FnMut(rnic::Wc)) -> usize {
        self.cq.poll_with(max, take)
    }

    /// Requests one [`rnic::CqEvent::Ready`] at the next completion that is added: see
    /// [`rnic::ConcurrentCq::arm`].
    pub fn arm(&self, solicited: bool) {
        self.cq.arm(solicited);
    }

    /// Changes the depth of the queue.
    ///
    /// # Errors
    /// Those of [`Cq::resize`].
    pub fn resize(&self, depth: usize) -> Result<()> {
        // SAFETY: the locks of all engines are held whose queue pairs use the queue.
        self.queue.resize_with(|| unsafe { self.cq.resize(depth) })
    }
}
