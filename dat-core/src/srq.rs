//! Shared receive queues: receive buffers that several endpoints draw from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_sys::*;

use crate::handle::{Object, Ref};
use crate::ia::Ia;
use crate::mem::Pz;
use crate::provider::Transport;

/// A shared receive queue.
pub struct Srq<T: Transport> {
    /// What the transport calls it.
    pub srq: T::Srq,
    /// How many of its buffers are outstanding.
    pub counts: Arc<SrqCounts>,
    /// Buffers that may be outstanding.
    pub max_recv_dtos: usize,
    /// Segments of one buffer.
    pub max_recv_iov: usize,
    /// Its protection zone.
    pub pz: Ref<Pz<T>>,
    /// Its adapter.
    pub ia: Ref<Ia<T>>,
}

impl<T: Transport> Object for Srq<T> {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_SRQ;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_SRQ;
}

/// How many buffers were posted and how many of them the consumer has got back. Shared with the flows of the
/// endpoints on the queue.
#[derive(Debug, Default)]
pub struct SrqCounts {
    /// Written by the poster: one thread at a time.
    posted: AtomicU64,
    /// Written by whoever dequeues a receive of any of the endpoints.
    retired: AtomicU64,
}

impl SrqCounts {
    /// A receive that took one of the buffers was dequeued.
    #[inline]
    pub fn retire(&self) {
        // Endpoints of one queue may complete on different EVDs, so there are several writers.
        self.retired.fetch_add(1, Ordering::Release);
    }

    /// Buffers posted and not yet given back.
    pub fn outstanding(&self) -> u64 {
        let retired = self.retired.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire) - retired
    }
}
