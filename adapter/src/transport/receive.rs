//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_core::provider::{PostError, Receives, RecvWr, Upcall};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;

use crate::engine::{Engine, Sink};
use crate::engines::Engines;
use crate::reactor::Reactor;
use dat_core::error::no_memory;

/// A shared receive queue.
pub struct Srq<E: Engine> {
    pub(super) srq: Arc<rnic::Srq>,
    /// The depth that the consumer asked for. rnic's queue may have room for more buffers.
    pub(super) depth: AtomicUsize,
    pub(super) sink: Sink<E>,
    /// The engine of all queue pairs that use the queue.
    pub(super) number: usize,
    pub(super) engines: Arc<Engines<E>>,
}

impl<E: Engine> Receives for Srq<E> {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
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

    fn set_low_watermark(&self, mark: usize) {
        // Only the holder of the engine lock takes buffers, so their number cannot fall during this
        // call.
        let _lock = self.reactor().engine.lock();
        if self.srq.available() < mark {
            // The queue already has fewer buffers than the watermark, so the event comes at once.
            self.srq.set_low_watermark(0);
            self.sink.call(Upcall::LowWatermark);
        } else {
            self.srq.set_low_watermark(mark);
        }
    }

    fn resize(&self, depth: usize) -> Result<()> {
        let _lock = self.reactor().engine.lock();
        // SAFETY: the engine lock is held.
        match unsafe { self.srq.resize(depth) }.map_err(no_memory)? {
            true => {
                self.depth.store(depth, Ordering::Relaxed);
                Ok(())
            }
            false => Err(Error::of(DAT_INVALID_STATE)),
        }
    }

    fn available(&self) -> usize {
        self.srq.available()
    }
}

impl<E: Engine> Srq<E> {
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
