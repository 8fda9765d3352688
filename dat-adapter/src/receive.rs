//! Shared receive queues.

use adapter::Engine;
use dat_core::Result;
use dat_core::provider::{PostError, Receives, RecvWr, Sink, Upcall};

use crate::error::error;
use crate::transport::Adapter;

/// A shared receive queue.
pub struct Srq<E: Engine> {
    pub(crate) srq: adapter::Srq<E>,
    pub(crate) sink: Sink<Adapter<E>>,
}

impl<E: Engine> Receives for Srq<E> {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.srq.post_recv(wr) }
    }

    fn set_low_watermark(&self, mark: usize) {
        self.srq.set_limit(mark, || self.sink.call(Upcall::LowWatermark));
    }

    fn resize(&self, depth: usize) -> Result<()> {
        self.srq.resize(depth).map_err(error)
    }

    fn available(&self) -> usize {
        self.srq.available()
    }
}
