//! Queue pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cq::Cq;
use crate::key::{Keys, Pd, Right, Scope};
use crate::ring::{OutOfMemory, Ring, Slot};
use crate::srq::Srq;
use crate::wr::{
    BindWr, PostError, RecvWr, Remote, Segment, SendOp, SendWr, Wc, WcOp, WcStatus, post_error,
};

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
    scope: Scope,
    sq: Ring<Wqe>,
    rq: Option<Ring<Rqe>>,
    /// The peer can do RFC 7306's operations, or there is none any more.
    extended: AtomicBool,
    /// The position of the first request that was flushed.
    flushed: AtomicUsize,
}

/// A request in its slot of the send queue.
#[derive(Clone, Copy)]
pub(crate) struct Wqe {
    pub(crate) id: u64,
    pub(crate) remote: Remote,
    /// What else the operation needs: immediate data; the number to be added; what is expected, and its replacement.
    pub(crate) operands: [u64; 2],
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
/// [`Wqe::flags`]: the segments' keys are those for peers.
pub(crate) const TO_WINDOW: u8 = 32;
/// [`Wqe::flags`]: carried out, waits for earlier ones to complete.
pub(crate) const DONE: u8 = 16;

/// [`Wqe::flags`]: its success wakes no queue that is armed for solicited completions only.
pub(crate) const QUIET: u8 = 64;

/// Octets that an atomic operation works on.
const ATOMIC_SIZE: u32 = size_of::<u64>() as u32;

/// A receive buffer in its slot of a receive queue.
#[derive(Clone, Copy)]
pub(crate) struct Rqe {
    pub(crate) id: u64,
    /// Bytes in all.
    pub(crate) len: u64,
    /// Of non-empty ones.
    pub(crate) segments: u16,
    pub(crate) quiet: bool,
}

impl Qp {
    /// A queue pair in its two halves. It takes immediate data and atomic operations once it is connected to a peer that can
    /// do them, and once its connection has ended.
    ///
    /// # Safety
    /// There is one engine lock for all queue pairs that share a completion queue or shared receive queue, and the
    /// [`Work`], then the [`Stream`](crate::Stream) or [`Rc`](crate::Rc) made of it, is used under that lock.
    pub unsafe fn new(cfg: QpCfg) -> Result<(Arc<Qp>, Work), OutOfMemory> {
        let rq = match &cfg.srq {
            Some(_) => None,
            None => Some(Ring::new(cfg.max_recvs, cfg.max_recv_segments)?),
        };
        let max_recv_segments = match (&cfg.srq, &rq) {
            (Some(srq), _) => srq.max_segments(),
            (None, Some(rq)) => rq.max_segments(),
            (None, None) => 0,
        };
        let mut recv_segments = Vec::new();
        let no_memory = |_| OutOfMemory { depth: max_recv_segments };
        recv_segments.try_reserve_exact(max_recv_segments).map_err(no_memory)?;
        recv_segments.resize(max_recv_segments, Segment::default());
        let sq = Ring::new(cfg.max_requests, cfg.max_request_segments)?;
        let scope = Scope::of_qp(cfg.pd, cfg.keys.qp_number());
        let qp = Arc::new(Qp {
            keys: cfg.keys,
            scope,
            sq,
            rq,
            extended: AtomicBool::new(false),
            flushed: AtomicUsize::new(usize::MAX),
        });
        let work = Work {
            qp: Arc::clone(&qp),
            request_cq: cfg.request_cq,
            recv_cq: cfg.recv_cq,
            srq: cfg.srq,
            token: cfg.token,
            recv: None,
            recv_segments: recv_segments.into(),
            poster_wakes: false,
            watch: None,
            failed: None,
            waits_as: None,
        };
        Ok((qp, work))
    }

    /// Queues a request; returns its bytes.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes. One thread at a time.
    #[inline]
    pub unsafe fn post_send(&self, wr: &SendWr<'_>) -> Result<u32, PostError> {
        let (mut op_flags, mut operands) = (0, [0; 2]);
        let (op, right, remote) = match wr.op {
            SendOp::Send { invalidate: None } => (WcOp::Send, Right::LocalRead, Remote::default()),
            SendOp::Send { invalidate: Some(key) } => {
                op_flags = INVALIDATE;
                (WcOp::Send, Right::LocalRead, Remote { addr: 0, key })
            }
            SendOp::Write(remote) => (WcOp::Write, Right::LocalRead, remote),
            SendOp::Read(remote) => (WcOp::Read, Right::LocalWrite, remote),
            SendOp::ReadToWindow(remote) => {
                op_flags = TO_WINDOW;
                (WcOp::Read, Right::RemoteWrite, remote)
            }
            _ if !self.extended.load(Ordering::Relaxed) => return Err(PostError::Unsupported),
            SendOp::WriteImm { to, immediate } => {
                operands[0] = immediate.into();
                (WcOp::WriteImm, Right::LocalRead, to)
            }
            SendOp::FetchAdd { at, add } => {
                operands[0] = add;
                (WcOp::FetchAdd, Right::LocalWrite, at)
            }
            SendOp::CompareSwap { at, compare, swap } => {
                operands = [compare, swap];
                (WcOp::CompareSwap, Right::LocalWrite, at)
            }
        };
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = op_flags
            | flag(wr.signalled, SIGNALLED)
            | flag(wr.solicited, SOLICITED)
            | flag(wr.fence, FENCE)
            | flag(wr.quiet, QUIET);
        // SAFETY: the caller is the only producer; a vacant slot is the producer's.
        unsafe {
            let slot = self.sq.vacant().ok_or(PostError::Full)?;
            let (len, segments) =
                write_segments(&self.sq, slot, &self.keys, self.scope, right, wr.segments)?;
            let len = u32::try_from(len).map_err(|_| PostError::Bounds)?;
            if matches!(op, WcOp::FetchAdd | WcOp::CompareSwap) && len != ATOMIC_SIZE {
                return Err(PostError::Bounds);
            }
            slot.header().write(Wqe { id: wr.id, remote, operands, len, segments, op, flags });
            self.sq.publish();
            Ok(len)
        }
    }

    /// Queues the bind of a window; returns its new STag, which is valid once this is done (0: none, it unbinds).
    ///
    /// # Safety
    /// One thread at a time.
    pub unsafe fn post_bind(&self, wr: &BindWr<'_>) -> Result<u32, PostError> {
        // SAFETY: the caller is the only producer; a vacant slot is the producer's.
        unsafe {
            let slot = self.sq.vacant().ok_or(PostError::Full)?;
            let stag = self.keys.reserve(wr.window, self.scope, wr.view.as_ref())?;
            let remote = Remote { addr: 0, key: stag };
            let flags = if wr.signalled { SIGNALLED } else { 0 } | if wr.quiet { QUIET } else { 0 };
            let (op, operands) = (WcOp::Bind, [0; 2]);
            slot.header().write(Wqe {
                id: wr.id,
                remote,
                operands,
                len: 0,
                segments: 0,
                op,
                flags,
            });
            self.sq.publish();
            Ok(if wr.view.is_some() { stag } else { 0 })
        }
    }

    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time.
    #[inline]
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let rq = self.rq.as_ref().ok_or(PostError::Unsupported)?;
        // SAFETY: the caller is the only producer.
        unsafe { write_recv(rq, &self.keys, self.scope, wr) }
    }

    /// How many requests, from the first one on, were carried out with success. Where nobody is told of completions, those
    /// that were flushed count, too. Any thread may ask.
    pub fn carried_out(&self) -> u64 {
        // In this order: of what is gone because it was flushed, the flush is seen.
        let gone = self.sq.released();
        gone.min(self.flushed.load(Ordering::Acquire)) as u64
    }
}

/// Queues a receive buffer in a ring.
///
/// # Safety
/// The caller is the ring's only producer.
#[inline]
pub(crate) unsafe fn write_recv(
    ring: &Ring<Rqe>,
    keys: &Keys,
    by: Scope,
    wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    // SAFETY: as the caller promises; a vacant slot is the producer's.
    unsafe {
        let slot = ring.vacant().ok_or(PostError::Full)?;
        let (len, segments) = write_segments(ring, slot, keys, by, Right::LocalWrite, wr.segments)?;
        slot.header().write(Rqe { id: wr.id, len, segments, quiet: wr.quiet });
        ring.publish();
    }
    Ok(())
}

/// Checks the segments and copies those that are not empty into a slot; returns bytes and segments.
///
/// # Safety
/// The slot is a vacant one of `ring`, and the caller its only producer.
#[inline]
unsafe fn write_segments<H: Copy>(
    ring: &Ring<H>,
    slot: Slot<H>,
    keys: &Keys,
    by: Scope,
    right: Right,
    segments: &[Segment],
) -> Result<(u64, u16), PostError> {
    if segments.len() > ring.max_segments() {
        return Err(PostError::Unsupported);
    }
    let (mut len, mut n) = (0, 0);
    for segment in segments.iter().filter(|segment| segment.len > 0) {
        keys.check(segment.key, by, segment.addr, segment.len.into(), right)
            .map_err(|error| post_error(error, right != Right::LocalRead))?;
        // SAFETY: a slot has room for `max_segments`, and `n` is less.
        unsafe { slot.segments().add(usize::from(n)).write(*segment) };
        len += u64::from(segment.len);
        n += 1;
    }
    Ok((len, n))
}

/// What a message brought for a receive buffer; see [`Wc`].
#[derive(Clone, Copy)]
pub(crate) struct Received {
    pub(crate) bytes: u32,
    pub(crate) invalidated: Option<u32>,
    pub(crate) immediate: Option<u32>,
}

impl Received {
    pub(crate) const NOTHING: Self = Self::bytes(0);

    /// So many octets, and nothing else.
    pub(crate) const fn bytes(bytes: u32) -> Self {
        Received { bytes, invalidated: None, immediate: None }
    }
}

/// The engine's half of a queue pair: takes work requests and completes them. Under the engine lock.
pub struct Work {
    pub(crate) qp: Arc<Qp>,
    request_cq: Option<Arc<Cq>>,
    recv_cq: Option<Arc<Cq>>,
    srq: Option<Arc<Srq>>,
    token: u64,
    /// The receive buffer that a message is being placed in.
    recv: Option<Rqe>,
    recv_segments: Box<[Segment]>,
    /// A receive is solicited unless it was posted quiet, whatever its sender says.
    poster_wakes: bool,
    /// Told of each receive buffer that a message takes; false: the message may not have it.
    watch: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// A request that failed, by its position in the send queue; it completes with this status when it is flushed.
    failed: Option<(usize, WcStatus)>,
    /// Its number in the line for buffers of the shared receive queue, while it is there.
    waits_as: Option<usize>,
}

impl Work {
    /// Whether receives come from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Whether there is a receive buffer for the next message.
    pub fn has_recv(&self) -> bool {
        // SAFETY: the engine is the only consumer of either queue.
        unsafe {
            match (&self.srq, &self.qp.rq) {
                (Some(srq), _) => srq.has_buffer_for(self.waits_as),
                (None, Some(rq)) => rq.is_filled(rq.head()),
                (None, None) => false,
            }
        }
    }

    /// The next message waits for a receive buffer. Where it comes from a shared receive queue, the queue pair stands in the
    /// line for it from now on, by the engine's number of it, until it takes one or is flushed.
    pub fn wait_for_recv(&mut self, number: usize) {
        if let Some(srq) = &self.srq
            && self.waits_as.is_none()
        {
            self.waits_as = Some(number);
            // SAFETY: under the engine lock; it is not in the line.
            unsafe { srq.wait(number) };
        }
    }

    /// The queue pair at the head of that line, if there is a buffer for it.
    pub fn next_waiting(&self) -> Option<usize> {
        // SAFETY: under the engine lock.
        self.srq.as_ref().and_then(|srq| unsafe { srq.next_waiting() })
    }

    /// It leaves the line.
    pub fn stop_waiting(&mut self) {
        if let (Some(srq), Some(number)) = (&self.srq, self.waits_as.take()) {
            // SAFETY: under the engine lock.
            unsafe { srq.stop_waiting(number) };
        }
    }

    /// Whether requests are posted and not completed.
    pub fn has_requests(&self) -> bool {
        // SAFETY: the engine is the only consumer.
        unsafe { self.qp.sq.is_filled(self.qp.sq.head()) }
    }

    /// `watch` is called, under the engine lock, with each receive buffer that a message takes. False: the connection
    /// breaks, and the buffer is flushed.
    pub fn watch_receives(&mut self, watch: impl Fn() -> bool + Send + Sync + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// From now on receives are solicited completions unless they were posted quiet; not, as else, if their sender says so.
    pub fn let_poster_wake(&mut self) {
        self.poster_wakes = true;
    }

    /// Receive buffers that are this queue pair's and have not completed: posted to its own queue, or taken by the message
    /// that is coming in.
    pub fn allocated(&self) -> usize {
        self.qp.rq.as_ref().map_or(0, Ring::len) + usize::from(self.recv.is_some())
    }

    /// Completes all that is posted as flushed; what is posted later waits for another call. Buffers in a shared receive
    /// queue stay there.
    pub fn flush(&mut self) {
        // Whatever is posted from now on is only flushed.
        self.set_extended(true);
        self.stop_waiting();
        self.flush_requests();
        if let Some(rqe) = self.recv.take() {
            self.complete_recv(rqe.id, Received::NOTHING, WcStatus::Flushed, false);
        }
        if self.srq.is_none() {
            for _ in 0..self.qp.rq.as_ref().map_or(0, Ring::len) {
                match self.take_recv() {
                    Some(rqe) => {
                        self.complete_recv(rqe.id, Received::NOTHING, WcStatus::Flushed, false)
                    }
                    None => break,
                }
            }
            self.recv = None;
        }
        self.announce();
    }

    fn flush_requests(&mut self) {
        let failed = self.failed.take();
        // SAFETY: the engine is the only consumer, filled slots are its own.
        unsafe {
            let sq = &self.qp.sq;
            let head = sq.head();
            if self.request_cq.is_some() {
                self.qp.flushed.fetch_min(head, Ordering::Release);
            }
            // Not more than are there now: a consumer that goes on posting must not keep us.
            for at in (0..sq.len()).map(|n| head.wrapping_add(n)) {
                if !sq.is_filled(at) {
                    break;
                }
                let wqe = sq.slot(at).header().read();
                sq.release(at.wrapping_add(1));
                if wqe.op == WcOp::Bind {
                    self.qp.keys.cancel(wqe.remote.key);
                }
                let status = failed
                    .filter(|&(failed, _)| failed == at)
                    .map_or(WcStatus::Flushed, |(_, s)| s);
                self.complete_request(&wqe, 0, status);
            }
        }
    }

    /// Takes the next receive buffer; its segments are then in [`recv_segments`](Self::recv_segments).
    #[inline]
    pub(crate) fn take_recv(&mut self) -> Option<Rqe> {
        let segments = &mut self.recv_segments;
        // SAFETY: the engine is the only consumer of either queue; it copies no more segments than a slot has.
        let rqe = unsafe {
            match &self.srq {
                Some(srq) => {
                    let rqe = srq.take(self.waits_as, segments);
                    if rqe.is_some() {
                        self.waits_as = None;
                    }
                    rqe
                }
                None => self.qp.rq.as_ref().and_then(|rq| read_recv(rq, segments)),
            }
        };
        self.recv = rqe;
        rqe
    }

    /// Whether the message that has just taken a buffer may have it.
    #[inline]
    pub(crate) fn may_take(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch())
    }

    /// The receive buffer in use.
    #[inline]
    pub(crate) fn recv(&self) -> Option<Rqe> {
        self.recv
    }

    /// Whom local segments of receives are checked for, and the segments.
    #[inline]
    pub(crate) fn recv_segments(&self) -> (Scope, &[Segment]) {
        let n = self.recv.map_or(0, |rqe| usize::from(rqe.segments));
        (self.srq.as_ref().map_or(self.qp.scope, |srq| srq.pd().into()), &self.recv_segments[..n])
    }

    /// Completes the receive buffer in use.
    #[inline]
    pub(crate) fn finish_recv(&mut self, received: Received, status: WcStatus, solicited: bool) {
        if let Some(rqe) = self.recv.take() {
            let solicited = if self.poster_wakes { !rqe.quiet } else { solicited };
            self.complete_recv(rqe.id, received, status, solicited);
        }
    }

    #[inline]
    fn complete_recv(&self, id: u64, received: Received, status: WcStatus, solicited: bool) {
        if let Some(cq) = &self.recv_cq {
            let Received { bytes, invalidated, immediate } = received;
            let wc =
                Wc { id, qp: self.token, bytes, invalidated, immediate, op: WcOp::Recv, status };
            // SAFETY: under the engine lock.
            unsafe { cq.push(wc, solicited) };
        }
    }

    /// The request at a position of the send queue; `None`: not posted yet.
    #[inline]
    pub(crate) fn request(&self, at: usize) -> Option<(&Wqe, &[Segment])> {
        // SAFETY: the engine is the only consumer; a filled slot is its own, with as many segments as it says.
        unsafe {
            if !self.qp.sq.is_filled(at) {
                return None;
            }
            let slot = self.qp.sq.slot(at);
            let wqe = &*slot.header();
            Some((wqe, std::slice::from_raw_parts(slot.segments(), usize::from(wqe.segments))))
        }
    }

    /// The oldest request that has not completed, or the position of the next one.
    #[inline]
    pub(crate) fn oldest_request(&self) -> usize {
        // SAFETY: the engine is the only consumer.
        unsafe { self.qp.sq.head() }
    }

    /// Notes that a request has been carried out; [`retire`](Self::retire) completes it in its turn.
    #[inline]
    pub(crate) fn done(&mut self, at: usize) {
        debug_assert!(self.request(at).is_some());
        // SAFETY: the engine is the only consumer, and the slot is filled.
        unsafe { (*self.qp.sq.slot(at).header()).flags |= DONE };
    }

    /// Notes that a request failed.
    #[cold]
    pub(crate) fn fail(&mut self, at: usize, status: WcStatus) {
        self.failed = Some((at, status));
    }

    /// Completes the requests that have been carried out, up to the first that has not; answers how many.
    #[inline]
    pub(crate) fn retire(&mut self) -> u64 {
        let (mut at, mut retired) = (self.oldest_request(), 0);
        while let Some((&wqe, _)) = self.request(at).filter(|(wqe, _)| wqe.flags & DONE != 0) {
            at = at.wrapping_add(1);
            // First the slot, then the completion: who has seen that one may post again.
            // SAFETY: the engine is the only consumer and is done with the slot.
            unsafe { self.qp.sq.release(at) };
            retired += 1;
            if wqe.flags & SIGNALLED != 0 {
                self.complete_request(&wqe, wqe.len, WcStatus::Success);
            }
        }
        retired
    }

    #[inline]
    fn complete_request(&self, wqe: &Wqe, bytes: u32, status: WcStatus) {
        if let Some(cq) = &self.request_cq {
            let (qp, op) = (self.token, wqe.op);
            let wc = Wc { id: wqe.id, qp, bytes, invalidated: None, immediate: None, op, status };
            // SAFETY: under the engine lock.
            unsafe { cq.push(wc, wqe.flags & QUIET == 0) };
        }
    }

    /// Tells the owners of the completion queues about what was completed, if they want to know.
    #[inline]
    pub(crate) fn announce(&self) {
        for cq in self.request_cq.iter().chain(&self.recv_cq) {
            // SAFETY: under the engine lock.
            unsafe { cq.announce() };
        }
    }

    /// Whether requests of RFC 7306 are taken.
    pub(crate) fn set_extended(&self, extended: bool) {
        self.qp.extended.store(extended, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn keys(&self) -> &Keys {
        &self.qp.keys
    }

    /// Whom this queue pair and its peer act as.
    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        self.qp.scope
    }
}

impl Drop for Work {
    /// Binds that were never carried out give their keys back.
    fn drop(&mut self) {
        self.stop_waiting();
        let mut at = self.oldest_request();
        while let Some((&wqe, _)) = self.request(at) {
            if wqe.op == WcOp::Bind {
                self.qp.keys.cancel(wqe.remote.key);
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Takes the oldest receive buffer of a ring.
///
/// # Safety
/// The caller is the ring's only consumer.
#[inline]
pub(crate) unsafe fn read_recv(ring: &Ring<Rqe>, segments: &mut [Segment]) -> Option<Rqe> {
    // SAFETY: as the caller promises; a filled slot is the consumer's and has as many segments as it says.
    unsafe {
        let head = ring.head();
        if !ring.is_filled(head) {
            return None;
        }
        let slot = ring.slot(head);
        let rqe = slot.header().read();
        let from = std::slice::from_raw_parts(slot.segments(), usize::from(rqe.segments));
        segments[..from.len()].copy_from_slice(from);
        ring.release(head.wrapping_add(1));
        Some(rqe)
    }
}

#[cfg(test)]
mod tests;
