//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use work::{PostError, RecvWr};

use crate::engine::Engine;
use crate::engines::Engines;
use crate::error::{Error, Result, no_memory};
use crate::reactor::Reactor;

/// A shared receive queue.
pub struct Srq<E: Engine> {
    pub(super) srq: Arc<rnic::Srq>,
    /// The depth that the consumer asked for. rnic's queue may have room for more buffers.
    pub(super) depth: AtomicUsize,
    /// The engine of all queue pairs that use the queue.
    pub(super) number: usize,
    pub(super) engines: Arc<Engines<E>>,
}

impl<E: Engine> Srq<E> {
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts to
    /// the queue.
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        if self.srq.available() >= self.depth.load(Ordering::Relaxed) {
            return Err(PostError::Full);
        }
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        let wanted = unsafe { self.srq.post_recv(wr) }?;
        if wanted {
            self.serve_next();
        }
        Ok(())
    }

    /// Sets the limit below which the queue notifies its owner once. If the queue has fewer buffers
    /// already, calls `below` at once, under the lock of the engine.
    pub fn set_limit(&self, limit: usize, below: impl FnOnce()) {
        // Only the holder of the engine lock takes buffers, so their number cannot fall during this
        // call.
        let _lock = self.reactor().engine.lock();
        if self.srq.available() < limit {
            self.srq.set_limit(0);
            below();
        } else {
            self.srq.set_limit(limit);
        }
    }

    /// Changes the depth of the queue.
    ///
    /// # Errors
    /// [`Error::NoMemory`], and [`Error::InvalidState`] if the queue has more buffers.
    pub fn resize(&self, depth: usize) -> Result<()> {
        let _lock = self.reactor().engine.lock();
        // SAFETY: the engine lock is held.
        match unsafe { self.srq.resize(depth) }.map_err(no_memory)? {
            true => {
                self.depth.store(depth, Ordering::Relaxed);
                Ok(())
            }
            false => Err(Error::InvalidState),
        }
    }

    /// The number of buffers in the queue.
    pub fn available(&self) -> usize {
        self.srq.available()
    }

    fn reactor(&self) -> &Reactor<E> {
        self.engines.get(self.number)
    }

    /// Continues the queue pair that has waited longest for a buffer.
    #[cold]
    fn serve_next(&self) {
        let mut locked = self.reactor().engine.lock();
        // SAFETY: the engine lock is held.
        if let Some(qp) = unsafe { self.srq.next_waiting() } {
            locked.engine.transmit(qp);
        }
    }
}

impl<E: Engine> Drop for Srq<E> {
    fn drop(&mut self) {
        self.engines.leave(self.number);
    }
}
