//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use work::cause::Cause;
use work::{ATOMIC_SIZE, OpKind, OpSet};

use crate::cq::Cq;
use crate::key::{Keys, Pd, Right, Scope};
use crate::ring::{OutOfMemory, Ring, RingSlot};
use crate::srq::Srq;
use crate::wqe::{Received, Rqe, Wqe};
use crate::wr::{BindWr, DatagramWr, PostError, RecvWr, Segment, SendWr, Wc, WcStatus, post_error};

/// Configuration of a queue pair.
pub struct QpCfg {
    /// The adapter's keys.
    pub keys: Arc<Keys>,
    /// The protection domain of the queue pair's requests and of remote access through the queue
    /// pair.
    pub pd: Pd,
    /// The queue that gets the completions of requests. `None`: these completions are discarded.
    pub request_cq: Option<Arc<Cq>>,
    /// The queue that gets the completions of receives.
    pub recv_cq: Option<Arc<Cq>>,
    /// The shared receive queue. `None`: the queue pair has a receive queue of its own.
    pub srq: Option<Arc<Srq>>,
    /// The name of the queue pair, which is returned in [`Wc::qp`]. A queue pair that is
    /// [reset](Work::reset) has a name of its own among those that use its completion queues.
    pub token: u64,
    /// The maximum number of outstanding requests.
    pub max_requests: usize,
    /// The maximum number of outstanding receives.
    pub max_recvs: usize,
    /// The maximum number of segments of one request. More than 255 count as 255.
    pub max_request_segments: usize,
    /// The maximum number of segments of one receive. More than 255 count as 255.
    pub max_recv_segments: usize,
}

/// The half of a queue pair that programs post to without a lock.
pub struct Qp {
    keys: Arc<Keys>,
    scope: Scope,
    sq: Ring<Wqe>,
    rq: Option<Ring<Rqe>>,
    /// The [`OpSet`] of the operations that may be posted: those that the protocol and the peer
    /// support, or all of them if the connection has ended and all posts are flushed.
    operations: AtomicU8,
    /// Whether datagrams may be posted, because the engine is a
    /// [`DatagramQp`](crate::DatagramQp).
    datagrams: AtomicBool,
    /// The position of the first flushed request.
    flushed: AtomicUsize,
}

impl Qp {
    /// Creates a queue pair and returns its two halves. The queue pair accepts operations that are
    /// not [basic](OpSet::Basic) while it is connected to a peer that supports them, and after its
    /// connection has ended.
    ///
    /// # Safety
    /// All queue pairs of a shared receive queue must have the same engine lock, and so must those
    /// of a completion queue, unless it is [shared](crate::Cq::share). The [`Work`], and the
    /// [`Stream`](crate::Stream), [`ReliableConnection`](crate::ReliableConnection) or
    /// [`DatagramQp`](crate::DatagramQp) made from it, must be used only under that lock.
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
            operations: AtomicU8::new(OpSet::Basic as u8),
            datagrams: AtomicBool::new(false),
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
            all_receives_solicited: false,
            watch: None,
            cause_watch: None,
            failed: None,
            srq_waiter: None,
        };
        Ok((qp, work))
    }

    /// Queues a request and returns its length in octets.
    ///
    /// # Safety
    /// The segments' memory must stay valid until the request completes. Only one thread at a time
    /// may call this function or another one that posts a request, and none may during
    /// [`Work::reset`].
    #[inline]
    pub unsafe fn post_send(&self, wr: &SendWr<'_>) -> Result<u32, PostError> {
        let (op, remote, operands) = wr.op.parts();
        let facts = op.facts();
        let is_basic = facts.set == OpSet::Basic;
        if !is_basic && facts.set as u8 > self.operations.load(Ordering::Relaxed) {
            return Err(PostError::Unsupported);
        }
        let right = Right::from(facts.local);
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags = flag(wr.signalled, Wqe::SIGNALLED)
            | flag(wr.solicited, Wqe::SOLICITED)
            | flag(wr.fence, Wqe::FENCE)
            | flag(wr.quiet, Wqe::QUIET);
        // SAFETY: the caller is the only producer, and a vacant slot belongs to the producer.
        unsafe {
            let slot = self.sq.vacant().ok_or(PostError::Full)?;
            let (len, segments) =
                write_segments(&self.sq, slot, &self.keys, self.scope, right, wr.segments)?;
            let len = u32::try_from(len).map_err(|_| PostError::Bounds)?;
            if facts.is_atomic() && len != ATOMIC_SIZE {
                return Err(PostError::Bounds);
            }
            slot.header().write(Wqe {
                id: wr.id,
                remote_addr: remote.addr,
                remote_key: remote.key,
                q_key: 0,
                operands,
                len,
                segments,
                op,
                flags,
            });
            self.sq.publish();
            Ok(len)
        }
    }

    /// Queues a datagram and returns its length in octets. The post is refused with
    /// [`PostError::Unsupported`] unless a [`DatagramQp`](crate::DatagramQp) has been made from the
    /// queue pair's [`Work`].
    ///
    /// # Safety
    /// The requirements of [`post_send`](Self::post_send) apply.
    #[inline]
    pub unsafe fn post_datagram(&self, wr: &DatagramWr<'_>) -> Result<u32, PostError> {
        if !self.datagrams.load(Ordering::Relaxed) {
            return Err(PostError::Unsupported);
        }
        // SAFETY: the caller is the only producer, and a vacant slot belongs to the producer.
        unsafe {
            let slot = self.sq.vacant().ok_or(PostError::Full)?;
            let right = Right::LocalRead;
            let (len, segments) =
                write_segments(&self.sq, slot, &self.keys, self.scope, right, wr.segments)?;
            let len = u32::try_from(len).map_err(|_| PostError::Bounds)?;
            slot.header().write(Wqe::datagram(wr, len, segments));
            self.sq.publish();
            Ok(len)
        }
    }

    /// Queues the bind of a window and returns its new STag, which becomes valid when the bind is
    /// carried out. Returns 0 for an unbind.
    ///
    /// # Safety
    /// The requirements of [`post_send`](Self::post_send) for threads apply.
    pub unsafe fn post_bind(&self, wr: &BindWr<'_>) -> Result<u32, PostError> {
        // SAFETY: the caller is the only producer, and a vacant slot belongs to the producer.
        unsafe {
            let slot = self.sq.vacant().ok_or(PostError::Full)?;
            let stag = self.keys.reserve(wr.window, self.scope, wr.view.as_ref())?;
            let flag = |set: bool, flag: u16| if set { flag } else { 0 };
            let flags = flag(wr.signalled, Wqe::SIGNALLED) | flag(wr.quiet, Wqe::QUIET);
            let (op, operands) = (OpKind::Bind, [0; 2]);
            slot.header().write(Wqe {
                id: wr.id,
                remote_addr: 0,
                remote_key: stag,
                q_key: 0,
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
    /// The segments' memory must stay valid until the receive completes. Only one thread at a time
    /// may call this function, and none may during [`Work::reset`].
    #[inline]
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let rq = self.rq.as_ref().ok_or(PostError::Unsupported)?;
        // SAFETY: the caller is the only producer.
        unsafe { write_recv(rq, &self.keys, self.scope, wr) }
    }

    /// The number of requests, counted from the first one, that have been carried out successfully.
    /// Without a request completion queue the count includes flushed requests. Any thread may call
    /// this, but none during [`Work::reset`].
    pub fn carried_out(&self) -> u64 {
        // The order of the two loads matters: a thread that sees a slot released by a flush also
        // sees the position of that flush.
        let gone = self.sq.released();
        gone.min(self.flushed.load(Ordering::Acquire)) as u64
    }
}

/// Queues a receive buffer in a ring.
///
/// # Safety
/// The caller must be the ring's only producer.
#[inline]
pub(crate) unsafe fn write_recv(
    ring: &Ring<Rqe>,
    keys: &Keys,
    by: Scope,
    wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    // SAFETY: the caller guarantees that it is the only producer, and a vacant slot belongs to the
    // producer.
    unsafe {
        let slot = ring.vacant().ok_or(PostError::Full)?;
        let (len, segments) = write_segments(ring, slot, keys, by, Right::LocalWrite, wr.segments)?;
        slot.header().write(Rqe { id: wr.id, len, segments: segments.into(), quiet: wr.quiet });
        ring.publish();
    }
    Ok(())
}

/// Checks the segments and copies the non-empty ones into a slot. Returns their total length and
/// their number.
///
/// # Safety
/// The slot must be a vacant slot of `ring`, and the caller must be the only producer of `ring`.
#[inline]
unsafe fn write_segments<H: Copy>(
    ring: &Ring<H>,
    slot: RingSlot<H>,
    keys: &Keys,
    by: Scope,
    right: Right,
    segments: &[Segment],
) -> Result<(u64, u8), PostError> {
    if segments.len() > ring.max_segments() {
        return Err(PostError::Unsupported);
    }
    let (mut len, mut n) = (0, 0);
    for segment in segments.iter().filter(|segment| segment.len > 0) {
        keys.check(segment.key, by, segment.addr, segment.len.into(), right)
            .map_err(|error| post_error(error, right != Right::LocalRead))?;
        // SAFETY: a slot has room for `max_segments`, and `n` is smaller than that.
        unsafe { slot.segments().add(usize::from(n)).write(*segment) };
        len += u64::from(segment.len);
        n += 1;
    }
    Ok((len, n))
}

/// The engine's half of a queue pair: takes work requests and completes them. It is used under the
/// engine lock.
///
/// An engine carries a protocol between this half and the network. The engines of this crate
/// ([`Stream`](crate::Stream), [`ReliableConnection`](crate::ReliableConnection),
/// [`DatagramQp`](crate::DatagramQp)) use no other interface to the queues and to memory, so an
/// engine for another protocol can be written outside of this crate. `rnic/tests/protocol.rs` is
/// an example that carries out all operations.
///
/// # Start and end
///
/// [`Qp::new`] returns a `Work` and the [`Qp`] that consumers post to. At the start of the
/// connection, [`permit`](Self::permit) says which operations the protocol and the peer have. Posts
/// wake nobody: whoever serves the engine calls it after a post, and the engine then looks whether
/// [`request`](Self::request) returns a new request or [`has_recv`](Self::has_recv) a buffer.
/// Requests and receives that are posted before the connection wait. After the end,
/// [`flush`](Self::flush) completes them. Drop the `Work` when no more work is posted, or
/// [`reset`](Self::reset) it for another connection.
///
/// # Requests of this side
///
/// ```text
/// let mut at = work.oldest_request();
/// while let Some((wqe, segments)) = work.request(at) {
///     work.gather(segments, offset, packet)?;     // as often as needed; then send the packet
///     at = at.wrapping_add(1);
/// }
/// work.scatter(by, segments, offset, octets)?;    // a READ or an atomic operation: the response
/// work.done(at);                                  // the peer has carried out this request
/// work.retire();                                  // completes what is done, in order
/// work.announce();                                // wakes the owners of the completion queues
/// ```
///
/// A request stays in its place until [`retire`](Self::retire) completes it. Until then it can be
/// sent again as often as needed. [`done`](Self::done) may be called for requests in any order, and
/// `retire` completes them in the order in which they were posted.
///
/// [`Wqe::op`] has a row in the table of operations, [`OpKind::facts`], which says what to do:
///
/// - [`is_local`](work::OpFacts::is_local): when all earlier requests have completed, call
///   [`carry_out_local`](Self::carry_out_local). Until then, send no later request. The request
///   itself is not sent.
/// - [`takes_receive`](work::OpFacts::takes_receive): the peer takes a receive buffer. With
///   [`Wqe::SOLICITED`], the completion of the buffer is solicited.
/// - [`has_immediate`](work::OpFacts::has_immediate): that completion contains the first of
///   [`Wqe::operands`].
/// - [`remote`](work::OpFacts::remote): the peer makes this access to [`Wqe::remote_addr`] with
///   [`Wqe::remote_key`], or invalidates this key.
/// - [`awaits_response`](work::OpFacts::awaits_response): the peer answers with octets, which
///   [`scatter`](Self::scatter) places with the access right `facts.local.into()`. The protocol
///   limits how many such requests are outstanding.
///
/// A request with [`Wqe::FENCE`] waits until no earlier request awaits a response.
///
/// # Messages of the peer
///
/// ```text
/// let buffer = work.take_recv()?;                 // at the start of a message; None: no buffer
/// work.may_take()                                 // false: the connection fails
/// let (scope, segments) = work.recv_segments();
/// work.scatter((scope, Right::LocalWrite), segments, offset, octets)?;    // as octets arrive
/// work.finish_recv(received, status, solicited);  // at the end of the message
/// work.announce();
/// ```
///
/// One message at a time can be placed. [`fetch`](Self::fetch), [`store`](Self::store) and
/// [`update`](Self::update) are the peer's accesses to memory, and [`Keys::invalidate`] with
/// [`scope`](Self::scope) is its invalidation of a key. They need no receive buffer, unless the
/// operation takes one: a write with immediate data takes a buffer and places nothing in it. Each
/// access to memory is checked against its key when it is made, because the memory may be
/// deregistered at any time.
///
/// If no buffer is posted, the protocol decides: the connection fails, or the message waits, which
/// [`wait_for_recv`](Self::wait_for_recv) records. On a shared receive queue
/// [`next_waiting`](Self::next_waiting) then says whose turn it is.
///
/// # Failures
///
/// The connection cannot continue after a failure. [`report`](Self::report) tells the program the
/// cause. A failed request is named by [`fail`](Self::fail), and a failed receive is completed by
/// [`finish_recv`](Self::finish_recv) with its status. Then [`flush`](Self::flush) completes all
/// other work. Call it again when more work is posted.
pub struct Work {
    pub(crate) qp: Arc<Qp>,
    request_cq: Option<Arc<Cq>>,
    recv_cq: Option<Arc<Cq>>,
    srq: Option<Arc<Srq>>,
    token: u64,
    /// The receive buffer that a message is being placed in.
    recv: Option<Rqe>,
    recv_segments: Box<[Segment]>,
    /// If true, every receive causes a solicited completion, unless it was posted quiet. If false,
    /// the sender's flag decides.
    all_receives_solicited: bool,
    /// A function that is called for each receive buffer that a message takes. If it returns false,
    /// the message must not use the buffer.
    watch: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// A function that is called with the cause of each failure and of each wait.
    pub(crate) cause_watch: Option<Box<dyn Fn(Cause) + Send + Sync>>,
    /// A failed request: its position in the send queue, and the status with which it completes
    /// when it is flushed.
    failed: Option<(usize, WcStatus)>,
    /// The number that identifies this queue pair in the list of waiters of the shared receive
    /// queue. `None` if the queue pair is not in this list.
    srq_waiter: Option<usize>,
}

impl Work {
    /// Whether receives come from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Whether a receive buffer is available for the next message.
    pub fn has_recv(&self) -> bool {
        // SAFETY: the engine is the only consumer of either queue.
        unsafe {
            match (&self.srq, &self.qp.rq) {
                (Some(srq), _) => srq.has_buffer_for(self.srq_waiter),
                (None, Some(rq)) => rq.is_filled(rq.head()),
                (None, None) => false,
            }
        }
    }

    /// Records that the next message waits for a receive buffer. If the queue pair uses a shared
    /// receive queue, it joins the list of waiters of this queue under the engine's number
    /// `number`. It leaves the list when it takes a buffer or is flushed.
    pub fn wait_for_recv(&mut self, number: usize) {
        if let Some(srq) = &self.srq
            && self.srq_waiter.is_none()
        {
            self.srq_waiter = Some(number);
            // SAFETY: the engine lock is held, and the queue pair is not in the list of waiters.
            unsafe { srq.add_waiter(number) };
        }
    }

    /// The first waiter of the shared receive queue, if a buffer is available for it.
    pub fn next_waiting(&self) -> Option<usize> {
        // SAFETY: the engine lock is held.
        self.srq.as_ref().and_then(|srq| unsafe { srq.next_waiting() })
    }

    /// Removes this queue pair from the list of waiters.
    pub fn stop_waiting(&mut self) {
        if let (Some(srq), Some(number)) = (&self.srq, self.srq_waiter.take()) {
            // SAFETY: the engine lock is held.
            unsafe { srq.remove_waiter(number) };
        }
    }

    /// Whether any posted request has not completed.
    pub fn has_requests(&self) -> bool {
        // SAFETY: the engine is the only consumer.
        unsafe { self.qp.sq.is_filled(self.qp.sq.head()) }
    }

    /// Makes the engine call `watch`, under the engine lock, for each receive buffer that a message
    /// takes. If `watch` returns false, the connection breaks and the buffer is flushed.
    pub fn watch_receives(&mut self, watch: impl Fn() -> bool + Send + Sync + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// From now on, every receive causes a solicited completion, unless it was posted quiet.
    /// Without this call, the sender's flag decides.
    pub fn solicit_all_receives(&mut self) {
        self.all_receives_solicited = true;
    }

    /// The number of receive buffers that belong to this queue pair and have not completed: those
    /// in its own queue, and the one that an incoming message has taken.
    pub fn allocated(&self) -> usize {
        self.qp.rq.as_ref().map_or(0, Ring::len) + usize::from(self.recv.is_some())
    }

    /// Completes all posted work as flushed. Work that is posted later needs another call. Buffers
    /// in a shared receive queue stay there.
    pub fn flush(&mut self) {
        // All work that is posted from now on is only flushed, so every kind of request is
        // accepted.
        self.permit(OpSet::All);
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

    /// Returns the queue pair to the state in which it was created. All posted work is dropped
    /// without completion; buffers in a shared receive queue stay there, except that of a message
    /// that has arrived only in part. Completions of the queue pair that nobody has polled are
    /// removed from their queues: a program may post the same ids again, and could not tell the
    /// completions apart. The engine of the connection has ended.
    pub fn reset(&mut self) {
        self.permit(OpSet::Basic);
        self.qp.datagrams.store(false, Ordering::Relaxed);
        self.stop_waiting();
        self.cancel_binds();
        (self.recv, self.failed) = (None, None);
        // SAFETY: the engine is the only consumer, and those who post guarantee that none of them
        // posts during this call.
        unsafe {
            self.qp.sq.clear();
            self.qp.rq.iter().for_each(|rq| rq.clear());
        }
        self.qp.flushed.store(usize::MAX, Ordering::Release);
        for cq in self.request_cq.iter().chain(&self.recv_cq) {
            // SAFETY: the engine lock is held, and those who poll a queue that is not concurrent
            // guarantee that none of them polls during this call.
            unsafe { cq.remove(self.token) };
        }
    }

    fn flush_requests(&mut self) {
        let failed = self.failed.take();
        // SAFETY: the engine is the only consumer, and filled slots belong to it.
        unsafe {
            let sq = &self.qp.sq;
            let head = sq.head();
            if self.request_cq.is_some() {
                self.qp.flushed.fetch_min(head, Ordering::Release);
            }
            // Only the requests that are queued now are flushed. Otherwise a program that keeps
            // posting could keep this loop running.
            for at in (0..sq.len()).map(|n| head.wrapping_add(n)) {
                if !sq.is_filled(at) {
                    break;
                }
                let wqe = sq.slot(at).header().read();
                sq.release(at.wrapping_add(1));
                if wqe.op == OpKind::Bind {
                    self.qp.keys.cancel(wqe.remote_key);
                }
                let status = failed
                    .filter(|&(failed, _)| failed == at)
                    .map_or(WcStatus::Flushed, |(_, s)| s);
                self.complete_request(&wqe, 0, status);
            }
        }
    }

    /// Takes the next receive buffer, for a message that starts. Afterwards its segments are in
    /// [`recv_segments`](Self::recv_segments). Returns `None` if no buffer is posted.
    /// [`may_take`](Self::may_take) follows, and [`finish_recv`](Self::finish_recv) at the end of
    /// the message.
    #[inline]
    pub fn take_recv(&mut self) -> Option<Rqe> {
        let segments = &mut self.recv_segments;
        // SAFETY: the engine is the only consumer of either queue, and a buffer has no more
        // segments than the slice has room for.
        let rqe = unsafe {
            match &self.srq {
                Some(srq) => {
                    let rqe = srq.take(self.srq_waiter, segments);
                    if rqe.is_some() {
                        self.srq_waiter = None;
                    }
                    rqe
                }
                None => self.qp.rq.as_ref().and_then(|rq| read_recv(rq, segments)),
            }
        };
        self.recv = rqe;
        rqe
    }

    /// Whether the message that has just taken a buffer may use it.
    #[inline]
    pub fn may_take(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch())
    }

    /// The receive buffer into which a message is being placed.
    #[inline]
    pub fn recv(&self) -> Option<Rqe> {
        self.recv
    }

    /// The segments of the current receive, and the scope against which they are checked.
    #[inline]
    pub fn recv_segments(&self) -> (Scope, &[Segment]) {
        let n = self.recv.map_or(0, |rqe| usize::from(rqe.segments));
        (self.srq.as_ref().map_or(self.qp.scope, |srq| srq.pd().into()), &self.recv_segments[..n])
    }

    /// Completes the receive buffer into which a message is being placed. `solicited` says whether
    /// the sender wants to wake a receiver that waits for solicited completions only.
    #[inline]
    pub fn finish_recv(&mut self, received: Received, status: WcStatus, solicited: bool) {
        if let Some(rqe) = self.recv.take() {
            let solicited = if self.all_receives_solicited { !rqe.quiet } else { solicited };
            self.complete_recv(rqe.id, received, status, solicited);
        }
    }

    #[inline]
    fn complete_recv(&self, id: u64, received: Received, status: WcStatus, solicited: bool) {
        if let Some(cq) = &self.recv_cq {
            let Received { octets, invalidated, immediate, op } = received;
            let wc = Wc { id, qp: self.token, bytes: octets, invalidated, immediate, op, status };
            // SAFETY: the engine lock is held.
            unsafe { cq.push(wc, solicited) };
        }
    }

    /// The request at a position of the send queue, and its segments. `None`: no request has been
    /// posted there yet, or it has completed. Positions count up from
    /// [`oldest_request`](Self::oldest_request) and wrap.
    #[inline]
    pub fn request(&self, at: usize) -> Option<(&Wqe, &[Segment])> {
        // SAFETY: the engine is the only consumer, a filled slot belongs to it, and its header
        // gives the number of its segments.
        unsafe {
            if !self.qp.sq.is_in_use(at) {
                return None;
            }
            let slot = self.qp.sq.slot(at);
            let wqe = &*slot.header();
            Some((wqe, std::slice::from_raw_parts(slot.segments(), usize::from(wqe.segments))))
        }
    }

    /// The position of the oldest request that has not completed, or of the next request to be
    /// posted.
    #[inline]
    pub fn oldest_request(&self) -> usize {
        // SAFETY: the engine is the only consumer.
        unsafe { self.qp.sq.head() }
    }

    /// Marks the request at this position as carried out. [`retire`](Self::retire) completes it
    /// when all earlier ones have completed.
    #[inline]
    pub fn done(&mut self, at: usize) {
        debug_assert!(self.request(at).is_some());
        // SAFETY: the engine is the only consumer, and a filled slot belongs to it.
        unsafe {
            if self.qp.sq.is_in_use(at) {
                (*self.qp.sq.slot(at).header()).flags |= Wqe::DONE;
            }
        }
    }

    /// Records that the request at this position failed. [`flush`](Self::flush) completes it with
    /// this status.
    #[cold]
    pub fn fail(&mut self, at: usize, status: WcStatus) {
        self.failed = Some((at, status));
    }

    /// Completes requests in order, up to the first request that has not been carried out. Returns
    /// the number of completed requests. [`announce`](Self::announce) follows.
    #[inline]
    pub fn retire(&mut self) -> u64 {
        let (mut at, mut retired) = (self.oldest_request(), 0);
        while let Some((&wqe, _)) = self.request(at).filter(|(wqe, _)| wqe.is_done()) {
            at = at.wrapping_add(1);
            // The slot is released before the completion is pushed: a program that sees the
            // completion may post again.
            // SAFETY: the engine is the only consumer, and it no longer uses the slot.
            unsafe { self.qp.sq.release(at) };
            retired += 1;
            if wqe.has(Wqe::SIGNALLED) {
                self.complete_request(&wqe, wqe.len, WcStatus::Success);
            }
        }
        retired
    }

    #[inline]
    fn complete_request(&self, wqe: &Wqe, octets: u32, status: WcStatus) {
        if let Some(cq) = &self.request_cq {
            let (qp, op) = (self.token, wqe.op.facts().completes_as);
            let (bytes, invalidated, immediate) = (octets, None, None);
            let wc = Wc { id: wqe.id, qp, bytes, invalidated, immediate, op, status };
            // SAFETY: the engine lock is held.
            unsafe { cq.push(wc, !wqe.has(Wqe::QUIET)) };
        }
    }

    /// Carries out and completes a request that concerns only this side: a bind. It must be the
    /// oldest request. Returns the number of completed requests, or `None` if the request has
    /// failed.
    pub fn carry_out_local(&mut self, at: usize) -> Option<u64> {
        let (wqe, _) = self.request(at)?;
        if self.keys().bind(wqe.remote_key).is_err() {
            self.report(Cause::BindFailed);
            self.fail(at, WcStatus::BindFailed);
            return None;
        }
        self.done(at);
        let retired = self.retire();
        self.announce();
        Some(retired)
    }

    /// Notifies the owners of armed completion queues of the completions that were pushed.
    #[inline]
    pub fn announce(&self) {
        for cq in self.request_cq.iter().chain(&self.recv_cq) {
            // SAFETY: the engine lock is held.
            unsafe { cq.announce() };
        }
    }

    /// Permits these operations to be posted. An engine calls this when the connection starts, with
    /// the operations that its protocol and its peer support. Before that, only the basic ones may
    /// be posted.
    pub fn permit(&self, operations: OpSet) {
        self.qp.operations.store(operations as u8, Ordering::Relaxed);
    }

    /// Permits datagrams to be posted. An engine of a datagram queue pair calls this at its start.
    pub fn permit_datagrams(&self) {
        self.qp.datagrams.store(true, Ordering::Relaxed);
    }

    /// Releases the keys of binds that were not carried out.
    fn cancel_binds(&self) {
        let mut at = self.oldest_request();
        while let Some((&wqe, _)) = self.request(at) {
            if wqe.op == OpKind::Bind {
                self.qp.keys.cancel(wqe.remote_key);
            }
            at = at.wrapping_add(1);
        }
    }

    /// The keys against which memory accesses are checked.
    #[inline]
    pub fn keys(&self) -> &Keys {
        &self.qp.keys
    }

    /// The scope with which this queue pair and its peer access memory.
    #[inline]
    pub fn scope(&self) -> Scope {
        self.qp.scope
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.stop_waiting();
        self.cancel_binds();
    }
}

/// Takes the oldest receive buffer of a ring.
///
/// # Safety
/// The caller must be the ring's only consumer.
#[inline]
pub(crate) unsafe fn read_recv(ring: &Ring<Rqe>, segments: &mut [Segment]) -> Option<Rqe> {
    // SAFETY: the caller guarantees that it is the only consumer. A filled slot belongs to the
    // consumer, and its header gives the number of its segments.
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
