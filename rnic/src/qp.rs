//! Queue pair.

use std::sync::Arc;

use crate::cq::Cq;
use crate::key::{KeyError, Keys, Pd, Right};
use crate::ring::{OutOfMemory, Ring};
use crate::srq::Srq;
use crate::wr::{PostError, RecvWr, Remote, Segment, SendOp, SendWr, Wc, WcOp, WcStatus};

/// Configuration of a queue pair.
pub struct QpCfg {
    /// The adapter's keys.
    pub keys: Arc<Keys>,
    /// Protection domain of its requests and of remote access through it.
    pub pd: Pd,
    /// Where requests complete; none: nobody wants to know.
    pub request_cq: Option<Arc<Cq>>,
    /// Where receives complete.
    pub recv_cq: Option<Arc<Cq>>,
    /// Shared receive queue instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// Comes back in [`Wc::qp`].
    pub token: u64,
    /// Requests outstanding at most.
    pub max_requests: usize,
    /// Receives outstanding at most.
    pub max_recvs: usize,
    /// Segments of one request at most.
    pub max_request_segments: usize,
    /// Segments of one receive at most.
    pub max_recv_segments: usize,
}

/// The half of a queue pair that consumers post to, without a lock.
pub struct Qp {
    keys: Arc<Keys>,
    pd: Pd,
    sq: Ring<Wqe>,
    rq: Option<Ring<Rqe>>,
}

/// A request in its slot of the send queue.
#[derive(Clone, Copy)]
pub(crate) struct Wqe {
    pub(crate) id: u64,
    pub(crate) remote: Remote,
    /// Bytes in all.
    pub(crate) len: u32,
    /// Of non-empty ones.
    pub(crate) segments: u16,
    pub(crate) op: WcOp,
    pub(crate) flags: u8,
}

/// [`Wqe::flags`]: report success.
pub(crate) const SIGNALLED: u8 = 1;
/// [`Wqe::flags`]: ask for a solicited event.
pub(crate) const SOLICITED: u8 = 2;
/// [`Wqe::flags`]: wait for earlier reads.
pub(crate) const FENCE: u8 = 4;
/// [`Wqe::flags`]: `remote.key` is the STag to invalidate.
pub(crate) const INVALIDATE: u8 = 8;
/// [`Wqe::flags`]: carried out, waits for earlier ones to complete.
pub(crate) const DONE: u8 = 16;

/// A receive buffer in its slot of a receive queue.
#[derive(Clone, Copy)]
pub(crate) struct Rqe {
    pub(crate) id: u64,
    /// Bytes in all.
    pub(crate) len: u64,
    /// Of non-empty ones.
    pub(crate) segments: u16,
}

impl Qp {
    /// A queue pair in its two halves.
    ///
    /// # Safety
    /// There is one engine lock for all queue pairs that share a completion queue or shared receive queue, and the
    /// [`Work`], then the [`Stream`](crate::Stream) made of it, is used under that lock.
    pub unsafe fn new(cfg: QpCfg) -> Result<(Arc<Qp>, Work), OutOfMemory> {
        let rq = match &cfg.srq {
            Some(_) => None,
            None => Some(Ring::new(cfg.max_recvs, cfg.max_recv_segments)?),
        };
        let sq = Ring::new(cfg.max_requests, cfg.max_request_segments)?;
        let qp = Arc::new(Qp { keys: cfg.keys, pd: cfg.pd, sq, rq });
        let work = Work {
            qp: Arc::clone(&qp),
            request_cq: cfg.request_cq,
            recv_cq: cfg.recv_cq,
            srq: cfg.srq,
            token: cfg.token,
        };
        Ok((qp, work))
    }

    /// Queues a request; returns its bytes.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes. One thread at a time.
    pub unsafe fn post_send(&self, _wr: &SendWr<'_>) -> Result<u32, PostError> {
        todo!()
    }

    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time.
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let rq = self.rq.as_ref().ok_or(PostError::Unsupported)?;
        // SAFETY: the caller is the only producer.
        unsafe { write_recv(rq, &self.keys, self.pd, wr) }
    }
}

/// Queues a receive buffer in a ring.
///
/// # Safety
/// The caller is the ring's only producer.
pub(crate) unsafe fn write_recv(
    _ring: &Ring<Rqe>,
    _keys: &Keys,
    _pd: Pd,
    _wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    todo!()
}

/// The engine's half of a queue pair: takes work requests and completes them. Under the engine lock.
pub struct Work {
    pub(crate) qp: Arc<Qp>,
    pub(crate) request_cq: Option<Arc<Cq>>,
    pub(crate) recv_cq: Option<Arc<Cq>>,
    pub(crate) srq: Option<Arc<Srq>>,
    token: u64,
}

impl Work {
    /// Whether requests wait to be sent.
    pub fn has_requests(&self) -> bool {
        todo!()
    }

    /// Completes all that is posted as flushed; what is posted later waits for another call.
    pub fn flush(&mut self) {
        todo!()
    }
}
