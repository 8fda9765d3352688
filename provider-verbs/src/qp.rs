//! Queue pairs: posting, and converting completions. The module `connection` connects queue pairs.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_core::provider::cause::LocalUse;
use dat_core::provider::*;
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_TEP};
use rdma_core_sys::*;
use waiting::nesting;

use crate::cm::ConnectionRequest;
use crate::connection::{Connection, EndCause};
use crate::cq::{self, Cq};
use crate::mr::Domain;
use crate::mw::WindowShared;
use crate::progress::ProgressContext;
use crate::srq::{self, Srq};
use crate::work_queue::{PostedRequest, WorkQueue};
use crate::work_request::{MARKER, RECEIVE, SHARED, datagram, post_error, receive, request};
use crate::{Adapter, map};

/// A queue pair.
pub struct Qp(pub(crate) Arc<QpShared>);

/// The part of a queue pair that threads share.
pub(crate) struct QpShared {
    pub(crate) progress: Arc<ProgressContext>,
    pub(crate) qp: NonNull<ibv_qp>,
    pub(crate) number: u32,
    pub(crate) on_srq: bool,
    /// Whether the queue pair exchanges datagrams and has no connection.
    pub(crate) is_datagram: bool,
    pub(crate) connection: Mutex<Connection>,
    pub(crate) send_queue: WorkQueue,
    pub(crate) receive_queue: WorkQueue,
    /// Whether the queue pair has failed or its connection is being ended. A failure is reported to
    /// the progress thread once.
    pub(crate) failed: AtomicBool,
    /// Whether this side has requested the flush. False if the device has flushed the queue pair
    /// because of an error.
    pub(crate) flush_requested: AtomicBool,
    /// Whether this side may post RDMA reads, as negotiated with the peer.
    pub(crate) can_read: AtomicBool,
    /// Whether a request has completed without success.
    request_failed: AtomicBool,
    /// Whether completions of the device are ignored, because `abandon` has flushed all work
    /// requests.
    abandoned: AtomicBool,
    max_requests: usize,
    /// Whether the completion queue has room for the reads of `wait_for_earlier`.
    waits_reserved: AtomicBool,
    /// Whether the completion queue has room for hidden completions: see [`PostedRequest::hidden`].
    hidden_reserved: AtomicBool,
    /// The number of requests that were posted before the outstanding [`COUNTED`] marker, or 0 if
    /// there is no such marker.
    counted: AtomicU64,
    /// Whether the queue pair never had a connection and is being dropped. Completions of its
    /// receives are then discarded.
    withdrawn: AtomicBool,
    inline: usize,
    token: Token,
    pub(crate) holding: Arc<HeldBuffers>,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// The maximum number of outstanding requests, if the consumer has no completion queue for
    /// requests. When this number is reached, posting takes and discards completions.
    unreported_requests: Option<usize>,
    /// The maximum number of outstanding receives, if the consumer has no completion queue for
    /// receives. When this number is reached, posting takes and discards completions.
    unreported_receives: Option<usize>,
    srq: Option<Arc<srq::SrqShared>>,
    pub(crate) send_cq: Arc<cq::CqShared>,
    pub(crate) recv_cq: Arc<cq::CqShared>,
    /// The queued binds, the oldest first.
    binds: Mutex<VecDeque<Bind>>,
    pub(crate) domain: Arc<Domain>,
    /// This queue pair's own completion queue, if the consumer has no completion queue for requests
    /// or for receives.
    _own: Option<Cq>,
}

/// A queued bind.
struct Bind {
    window: Arc<WindowShared>,
    key: u32,
    /// Whether the consumer has asked for a completion.
    wanted: bool,
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for QpShared {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for QpShared {}

/// A bit of `WorkQueue::markers`, which means that the requests before a graceful close have
/// completed.
pub(crate) const DRAINED: u32 = 1;
/// A bit of `WorkQueue::markers`, which means that all posted work requests have been flushed.
pub(crate) const FLUSHED: u32 = 2;
/// The low bits of the ID of a marker that counts completed requests: when the marker completes,
/// all requests before it have completed.
const COUNTED: u32 = 4;
/// The maximum number of markers in each work queue: [`DRAINED`] and [`FLUSHED`].
pub(crate) const END_MARKERS: usize = 2;
/// The maximum number of additional [`COUNTED`] markers in the send queue.
pub(crate) const COUNT_MARKERS: usize = 1;
/// The maximum number of outstanding hidden completions and [`COUNTED`] markers.
const HIDDEN_COMPLETIONS: usize = 4;

impl Qp {
    pub(crate) fn new(
        progress: &Arc<ProgressContext>,
        cfg: QpCfg<'_, Adapter>,
        sink: Sink<Adapter>,
    ) -> Result<Qp> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP);
        let is_datagram = cfg.service == ServiceType::Datagram;
        if is_datagram && !progress.device.has_datagrams() {
            return Err(Error::of(DAT_MODEL_NOT_SUPPORTED));
        }
        let receives = cfg.srq.map_or(cfg.max_recvs, Srq::slots);
        let own = match (cfg.request_cq, cfg.recv_cq) {
            (Some(_), Some(_)) => None,
            _ => Some(Cq::new(progress, cfg.max_requests + receives + 2 * END_MARKERS, None)?),
        };
        let queue =
            |cq: Option<&Cq>| Arc::clone(&cq.or(own.as_ref()).expect("the queue pair made a CQ").0);
        let (send_cq, recv_cq) = (queue(cfg.request_cq), queue(cfg.recv_cq));
        let srq = cfg.srq.map(|srq| Arc::clone(&srq.0));
        let mut attr = ibv_qp_init_attr {
            send_cq: send_cq.as_ptr(),
            recv_cq: recv_cq.as_ptr(),
            srq: srq.as_ref().map_or(ptr::null_mut(), |srq| srq.as_ptr()),
            qp_type: if is_datagram { IBV_QPT_UD } else { IBV_QPT_RC },
            cap: ibv_qp_cap {
                max_send_wr: (cfg.max_requests * progress.device.requests_per_dto()
                    + END_MARKERS
                    + COUNT_MARKERS) as u32,
                max_recv_wr: if srq.is_some() { 0 } else { (cfg.max_recvs + END_MARKERS) as u32 },
                max_send_sge: cfg.max_request_segments.max(1) as u32,
                max_recv_sge: if srq.is_some() { 0 } else { cfg.max_recv_segments.max(1) as u32 },
                max_inline_data: INLINE,
            },
            ..ibv_qp_init_attr::zeroed()
        };
        let verbs = &progress.device.core.verbs;
        let domain = Arc::clone(&cfg.pd.0);
        let mut make = |inline| {
            attr.cap.max_inline_data = inline;
            // SAFETY: the domain and the completion queues are live and belong to the same device.
            NonNull::new(unsafe { (verbs.ibv_create_qp)(domain.pd.as_ptr(), &mut attr) })
        };
        // If the device does not support inline data, create a queue pair that does not use inline
        // data.
        let qp = make(INLINE).or_else(|| make(0)).ok_or_else(full)?;
        let [sends, recvs] = reserved_room(progress, is_datagram, cfg.max_requests);
        let reserved = send_cq
            .reserve(sends)
            .and_then(|()| recv_cq.reserve(recvs).inspect_err(|_| send_cq.release(sends)));
        if let Err(error) = reserved {
            // SAFETY: no other code has the queue pair.
            unsafe { (verbs.ibv_destroy_qp)(qp.as_ptr()) };
            return Err(error);
        }
        let pair = Arc::new(QpShared {
            progress: Arc::clone(progress),
            qp,
            // SAFETY: the queue pair is live.
            number: unsafe { qp.as_ref() }.qp_num,
            on_srq: srq.is_some(),
            is_datagram,
            connection: Mutex::new(match is_datagram {
                true => Connection::for_datagrams(),
                false => Connection::default(),
            }),
            send_queue: WorkQueue::new(
                attr.cap.max_send_wr.max((cfg.max_requests + END_MARKERS + COUNT_MARKERS) as u32),
            ),
            receive_queue: WorkQueue::new(
                attr.cap.max_recv_wr.max(cfg.max_recvs as u32 + END_MARKERS as u32),
            ),
            failed: AtomicBool::new(false),
            flush_requested: AtomicBool::new(false),
            can_read: AtomicBool::new(false),
            request_failed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            max_requests: cfg.max_requests,
            waits_reserved: AtomicBool::new(false),
            hidden_reserved: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            withdrawn: AtomicBool::new(false),
            inline: attr.cap.max_inline_data as usize,
            token: cfg.token,
            holding: cfg.holding,
            sink: Mutex::new(Some(sink)),
            unreported_requests: cfg.request_cq.is_none().then_some(cfg.max_requests),
            unreported_receives: cfg.recv_cq.is_none().then_some(cfg.max_recvs),
            srq,
            send_cq,
            recv_cq,
            binds: Mutex::default(),
            domain,
            _own: own,
        });
        let is_ready = if is_datagram { pair.start_datagrams() } else { pair.move_to_init() };
        if !is_ready {
            return Err(full());
        }
        if let Some(srq) = pair.srq.as_ref().filter(|_| pair.unreported_receives.is_some()) {
            // No thread posts to this queue pair's own receive queue, so posting cannot discard the
            // completions of receives. The progress thread discards them.
            srq.add_unpolled_cq(&pair.recv_cq, receives)?;
            pair.recv_cq.poll_on_progress_thread();
        }
        progress.add_pair(&pair);
        Ok(Qp(pair))
    }
}

/// The maximum length of inline data in octets. The device need not fetch inline data from memory.
const INLINE: u32 = 64;

impl Drop for Qp {
    fn drop(&mut self) {
        let pair = &*self.0;
        // An upcall holds this lock. So taking the lock waits until an upcall in progress has
        // returned. Afterwards there are no upcalls.
        *pair.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
        pair.withdrawn.store(!pair.has_begun(), Ordering::Release);
        // Wait until the posted work requests have completed, but at most one second, because a
        // faulty device possibly does not flush them.
        pair.end(EndCause::Dropped);
        let start = Instant::now();
        while !pair.advance_end() && start.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        pair.abandon_connection();
        pair.cancel_attempts();
        while pair.bind_ended(false).is_some() {}
        pair.progress.windows.remove_pair(pair.number);
        let forget = || pair.progress.remove_pair(pair);
        match Arc::ptr_eq(&pair.send_cq, &pair.recv_cq) {
            true => pair.send_cq.exclusively(forget),
            false => pair.send_cq.exclusively(|| pair.recv_cq.exclusively(forget)),
        }
    }
}

impl Drop for QpShared {
    fn drop(&mut self) {
        // SAFETY: no thread posts to the queue pair any more, and its number is not in the table.
        unsafe { (self.progress.device.core.verbs.ibv_destroy_qp)(self.qp.as_ptr()) };
        let [sends, recvs] = reserved_room(&self.progress, self.is_datagram, self.max_requests);
        let waits_reserved = if *self.waits_reserved.get_mut() { self.max_requests } else { 0 };
        let hidden = if *self.hidden_reserved.get_mut() { HIDDEN_COMPLETIONS } else { 0 };
        self.send_cq.release(sends + waits_reserved + hidden);
        self.recv_cq.release(recvs);
    }
}

/// The numbers of completions that are hidden from the consumer and need room: in the completion
/// queue of requests, and in that of receives. A datagram queue pair needs no markers, because each
/// of its requests leaves a completion.
fn reserved_room(progress: &ProgressContext, is_datagram: bool, max_requests: usize) -> [usize; 2] {
    match is_datagram {
        true => [max_requests, 0],
        false if progress.device.needs_markers() => [END_MARKERS; 2],
        false => [0; 2],
    }
}

// SAFETY: the promises of `Queue`, by their numbers:
// 1. `WorkQueue::take` keeps a request or receive until it completes. `abandon`, which flushes the
//    work requests that the device does not complete, also takes them from there. Later completions
//    of the device are then ignored. Devices complete in order.
// 2. `drop` removes the number from the table and from the progress context.
// 3. `WorkQueue::carried_out` counts requests that completed with success, in order. Hidden
//    successes are not reported to the consumer.
// 4. `QpShared::complete` counts each buffer that a message has taken.
unsafe impl Queue<Adapter> for Qp {
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let (pair, work_queue) = (&*self.0, &self.0.send_queue);
        if pair.is_datagram {
            return Err(PostError::Unsupported);
        }
        let facts = wr.op.facts();
        // No verb has an RMR context as the sink of a read.
        if facts.local == LocalUse::WindowSink {
            return Err(PostError::Unsupported);
        }
        let (op, bytes) = (facts.completes_as, wr.segments.iter().map(|s| s.len).sum());
        // SAFETY: the caller guarantees that only one thread at a time posts.
        let Some(_inside) = (unsafe { work_queue.gate.enter() }) else {
            if pair.unreported_requests.is_none() {
                work_queue.post_late(&pair.send_cq, pair.flushed(wr.id, op));
            }
            return Ok(());
        };
        pair.has_room(work_queue, pair.unreported_requests, &pair.send_cq)?;
        let copies = facts.local == LocalUse::Source;
        // Inline data are copied now and without a check of the keys. The data of a fenced request
        // may come from a read that has not completed, so such a request is not sent inline.
        let inline = copies
            && bytes as usize <= pair.inline
            && bytes > 0
            && !wr.fence
            && pair.is_readable(wr.segments);
        let inaccessible = !inline && pair.domain.is_inaccessible(wr.segments, !copies);
        let hidden = !wr.signalled && pair.unreported_requests.is_none() && pair.hides_next();
        let mut work = request(
            wr,
            work_queue.fill(PostedRequest { id: wr.id, op, bytes, inaccessible, hidden }),
        );
        if wr.signalled || pair.unreported_requests.is_some() || hidden {
            work.send_flags |= IBV_SEND_SIGNALED;
        }
        if inline {
            work.send_flags |= IBV_SEND_INLINE;
        }
        // SAFETY: the caller keeps the memory of the segments valid until the request completes.
        post_error(unsafe { pair.post(&mut work) })?;
        work_queue.posted();
        Ok(())
    }

    unsafe fn post_datagram(
        &self,
        wr: &Datagram<'_, Adapter>,
    ) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let (pair, work_queue) = (&*self.0, &self.0.send_queue);
        if !pair.is_datagram {
            return Err(PostError::Unsupported);
        }
        let bytes: u32 = wr.segments.iter().map(|s| s.len).sum();
        // SAFETY: the caller guarantees that only one thread at a time posts.
        let Some(_inside) = (unsafe { work_queue.gate.enter() }) else {
            if pair.unreported_requests.is_none() {
                work_queue.post_late(&pair.send_cq, pair.flushed(wr.id, WcOp::Send));
            }
            return Ok(());
        };
        pair.has_room(work_queue, pair.unreported_requests, &pair.send_cq)?;
        let inline = bytes as usize <= pair.inline && bytes > 0 && pair.is_readable(wr.segments);
        let inaccessible = !inline && pair.domain.is_inaccessible(wr.segments, false);
        // The number of completed requests shows when the queue pair is flushed and when an address
        // handle is no longer used. So every request leaves a completion.
        let hidden = !wr.signalled && pair.unreported_requests.is_none();
        let slot = PostedRequest { id: wr.id, op: WcOp::Send, bytes, inaccessible, hidden };
        let mut work = datagram(wr, work_queue.fill(slot));
        if inline {
            work.send_flags |= IBV_SEND_INLINE;
        }
        // SAFETY: the caller keeps the memory of the segments valid until the request completes.
        post_error(unsafe { pair.post(&mut work) })?;
        work_queue.posted();
        Ok(())
    }

    fn resolve(&self, number: u64, to: &Connect<'_>) -> Result<()> {
        self.0.resolve(number, to)
    }

    fn answer(&self, request: ConnectionRequest, private: &[u8]) -> Result<RemoteQp<Adapter>> {
        self.0.answer(request, private)
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter>) -> std::result::Result<u32, PostError> {
        let _work = nesting::work();
        let (pair, work_queue) = (&*self.0, &self.0.send_queue);
        if pair.is_datagram {
            return Err(PostError::Unsupported);
        }
        let window = wr.window.shared();
        window.check(&pair.domain, wr.view.as_ref())?;
        // SAFETY: the caller guarantees that only one thread at a time posts.
        let Some(_inside) = (unsafe { work_queue.gate.enter() }) else {
            if pair.unreported_requests.is_none() {
                work_queue.post_late(&pair.send_cq, pair.flushed(wr.id, WcOp::Bind));
            }
            return Ok(window.flushed_key(wr.view.is_none()));
        };
        pair.has_room(work_queue, pair.unreported_requests, &pair.send_cq)?;
        pair.wait_for_earlier()?;
        let at = work_queue.fill(PostedRequest {
            id: wr.id,
            op: WcOp::Bind,
            bytes: 0,
            inaccessible: false,
            hidden: false,
        });
        // Hold the lock until the bind is in the list, because the bind may complete at once.
        let mut binds = pair.binds();
        // SAFETY: a bind reads no memory of the consumer.
        let key = window.post(wr, (at, pair.qp), |work| unsafe { pair.post(work) });
        let key =
            key.map_err(|errno| post_error(errno).expect_err("an error number becomes an error"))?;
        binds.push_back(Bind { window: Arc::clone(window), key, wanted: wr.signalled });
        drop(binds);
        work_queue.posted();
        Ok(key)
    }

    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let (pair, work_queue) = (&*self.0, &self.0.receive_queue);
        // SAFETY: the caller guarantees that only one thread at a time posts.
        let Some(_inside) = (unsafe { work_queue.gate.enter() }) else {
            if pair.unreported_receives.is_none() {
                work_queue.post_late(&pair.recv_cq, pair.flushed(wr.id, WcOp::Recv));
            }
            return Ok(());
        };
        pair.has_room(work_queue, pair.unreported_receives, &pair.recv_cq)?;
        let inaccessible = pair.domain.is_inaccessible(wr.segments, true);
        let at = work_queue.fill(PostedRequest {
            id: wr.id,
            op: WcOp::Recv,
            bytes: 0,
            inaccessible,
            hidden: false,
        });
        let mut work = receive(wr, at | RECEIVE, pair.progress.device.kernel_driver);
        // SAFETY: the caller keeps the memory of the segments valid until the receive completes.
        post_error(unsafe { pair.post_receive(&mut work) })?;
        work_queue.posted();
        Ok(())
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        self.0.connect(to)
    }

    fn accept(&self, request: ConnectionRequest, private: &[u8], depth: ReadDepth) -> Result<()> {
        self.0.accept(request, private, depth)
    }

    fn disconnect(&self, how: Close) {
        let pair = &self.0;
        let was_connecting = pair.end(match how {
            Close::Graceful => EndCause::Graceful,
            Close::Abrupt => EndCause::Abrupt,
        });
        if was_connecting {
            pair.destroy_id();
        }
        pair.progress.advance_end(pair);
    }

    fn allocated(&self) -> Option<Allocated> {
        // A device does not tell which buffers of a shared queue a queue pair has taken.
        (!self.0.on_srq).then(|| {
            let buffers = self.0.receive_queue.outstanding();
            Allocated { buffers, span: buffers }
        })
    }

    unsafe fn carried_out(&self) -> u64 {
        let _work = nesting::work();
        let (pair, work_queue) = (&*self.0, &self.0.send_queue);
        if work_queue.carried_out() < work_queue.count() {
            pair.send_cq.prefetch_and_notify();
            // SAFETY: the caller guarantees that only one thread at a time posts.
            unsafe { pair.post_count_marker() };
        }
        work_queue.carried_out()
    }

    fn withdrawn(&self) -> usize {
        if self.0.has_begun() || self.0.on_srq { 0 } else { self.0.receive_queue.outstanding() }
    }
}

impl QpShared {
    /// Moves a new queue pair to INIT, the first state in which receives can be posted.
    fn move_to_init(&self) -> bool {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: self.progress.device.port,
            qp_access_flags: IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_ATOMIC,
            ..ibv_qp_attr::zeroed()
        };
        if self.progress.device.is_iwarp() {
            attr.qp_access_flags &= !IBV_ACCESS_REMOTE_ATOMIC;
        }
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)
    }

    /// Moves a new datagram queue pair to RTS. It then receives and sends datagrams.
    fn start_datagrams(&self) -> bool {
        let init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        let steps = [
            (IBV_QPS_INIT, init),
            (IBV_QPS_RTR, IBV_QP_STATE),
            (IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN),
        ];
        steps.into_iter().all(|(qp_state, mask)| {
            let mut attr = ibv_qp_attr {
                qp_state,
                port_num: self.progress.device.port,
                qkey: RDMA_UDP_QKEY,
                ..ibv_qp_attr::zeroed()
            };
            self.modify(&mut attr, mask)
        })
    }

    /// Returns whether markers show when the queue pair has flushed its work requests.
    pub(crate) fn needs_markers(&self) -> bool {
        !self.is_datagram && self.progress.device.needs_markers()
    }

    /// Returns whether a datagram is posted that may use an address handle of this domain.
    pub(crate) fn sends_datagrams(&self, domain: &Arc<Domain>) -> bool {
        self.is_datagram && Arc::ptr_eq(&self.domain, domain) && self.send_queue.outstanding() > 0
    }

    /// Returns whether this process can read the memory of all segments, and whether the segments'
    /// keys allow that.
    #[inline]
    fn is_readable(&self, segments: &[Segment]) -> bool {
        let (keys, domain) = (&self.domain.device.keys, self.domain.id());
        segments.iter().all(|segment| keys.is_readable(segment, domain))
    }

    /// Posts a request. Returns an errno, or 0.
    ///
    /// # Safety
    /// The memory of the segments stays valid until the request completes.
    unsafe fn post(&self, work: &mut ibv_send_wr) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live. The caller keeps the memory of the segments valid.
        unsafe { self.progress.device.core.verbs.ibv_post_send(self.qp.as_ptr(), work, &mut bad) }
    }

    /// Posts a receive. Returns an errno, or 0.
    ///
    /// # Safety
    /// The memory of the segments stays valid until the receive completes.
    unsafe fn post_receive(&self, work: &mut ibv_recv_wr) -> i32 {
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live. The caller keeps the memory of the segments valid.
        unsafe { self.progress.device.core.verbs.ibv_post_recv(self.qp.as_ptr(), work, &mut bad) }
    }

    /// Makes room for a post if no consumer takes completions: if the work queue is full, takes and
    /// discards completions. In this case every request leaves a completion, because not every
    /// device can suppress completions.
    #[inline]
    fn has_room(
        &self,
        work_queue: &WorkQueue,
        limit: Option<usize>,
        cq: &cq::CqShared,
    ) -> std::result::Result<(), PostError> {
        let Some(limit) = limit else { return Ok(()) };
        if work_queue.outstanding() >= limit {
            cq.prefetch_and_notify();
        }
        if work_queue.outstanding() < limit { Ok(()) } else { Err(PostError::Full) }
    }

    /// Ensures that the bind which is posted next starts after all earlier requests have completed.
    /// Only rxe needs this. rxe (6.12) starts a bind at once, although the bind is fenced. When rxe
    /// must repeat an earlier request, it also starts the bind again, which breaks the connection
    /// (`req_retry`). An empty read completes after all earlier requests. So this function posts an
    /// empty read before the bind, if reads were negotiated.
    fn wait_for_earlier(&self) -> std::result::Result<(), PostError> {
        if !self.progress.device.is_rxe()
            || !self.can_read.load(Ordering::Relaxed)
            || !self.send_queue.is_busy()
        {
            return Ok(());
        }
        self.reserve_for_waits()?;
        // If this read fails, the request after it is flushed. The completion of that request
        // reports the failure.
        let mut work =
            ibv_send_wr { wr_id: MARKER, opcode: IBV_WR_RDMA_READ, ..ibv_send_wr::zeroed() };
        // SAFETY: the request has no segments, so it refers to no memory.
        post_error(unsafe { self.post(&mut work) })
    }

    /// Returns whether the next unsignalled request must have a hidden completion, which only this
    /// crate sees. A device frees an unsignalled request only when a later signalled request
    /// completes, so this crate signals a request now and then. If the completion queue has no room
    /// for hidden completions, only requests that the consumer has signalled free earlier requests.
    #[inline]
    fn hides_next(&self) -> bool {
        let one_in = (self.max_requests as u32 / 2).max(1);
        self.send_queue.count_unsignalled(one_in)
            && (self.hidden_reserved.load(Ordering::Relaxed) || self.reserve_for_hidden())
    }

    #[cold]
    fn reserve_for_hidden(&self) -> bool {
        let new = !self.hidden_reserved.swap(true, Ordering::Relaxed);
        let reserved = !new || self.send_cq.reserve(HIDDEN_COMPLETIONS).is_ok();
        if !reserved {
            self.hidden_reserved.store(false, Ordering::Relaxed);
        }
        reserved
    }

    /// Posts a [`COUNTED`] marker if no completion shows yet that the latest request has been
    /// carried out. The completion of the marker shows how many requests have completed.
    ///
    /// # Safety
    /// No other thread posts requests during this call.
    #[cold]
    unsafe fn post_count_marker(&self) {
        let work_queue = &self.send_queue;
        let count = work_queue.count();
        // Every request of a datagram queue pair leaves a completion, so no marker is necessary.
        if self.is_datagram {
            return;
        }
        if count <= work_queue.carried_out() || !work_queue.is_busy() || !self.is_established() {
            return;
        }
        // SAFETY: the caller guarantees that only one thread at a time posts.
        let Some(_inside) = (unsafe { work_queue.gate.enter() }) else { return };
        let free =
            self.counted.compare_exchange(0, count, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if free && !(self.reserve_for_hidden() && self.post_send_marker(COUNTED)) {
            self.counted.store(0, Ordering::Release);
        }
    }

    /// Reserves room for the reads of `wait_for_earlier`. These reads are unsignalled, but leave a
    /// completion if they are flushed.
    #[cold]
    fn reserve_for_waits(&self) -> std::result::Result<(), PostError> {
        if !self.waits_reserved.swap(true, Ordering::Relaxed)
            && self.send_cq.reserve(self.max_requests).is_err()
        {
            self.waits_reserved.store(false, Ordering::Relaxed);
            return Err(PostError::Full);
        }
        Ok(())
    }

    /// Posts a request that does nothing. When the request completes, all requests before it have
    /// completed. Returns false if there is no room.
    pub(crate) fn post_send_marker(&self, mark: u32) -> bool {
        let mut work = ibv_send_wr {
            wr_id: MARKER | u64::from(mark),
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::zeroed()
        };
        // SAFETY: the request has no segments, so it refers to no memory.
        unsafe { self.post(&mut work) == 0 }
    }

    /// Posts a receive without a buffer as the [`FLUSHED`] marker. The caller then moves the queue
    /// pair to the error state. Returns false if there is no room.
    pub(crate) fn post_receive_marker(&self) -> bool {
        let mut work =
            ibv_recv_wr { wr_id: MARKER | RECEIVE | u64::from(FLUSHED), ..ibv_recv_wr::zeroed() };
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { self.post_receive(&mut work) == 0 }
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> bool {
        // SAFETY: the queue pair is live.
        unsafe {
            (self.progress.device.core.verbs.ibv_modify_qp)(self.qp.as_ptr(), attr, mask) == 0
        }
    }

    /// Returns whether the device has put the queue pair into the error state.
    pub(crate) fn is_in_error(&self) -> bool {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        let query = self.progress.device.core.verbs.ibv_query_qp;
        // SAFETY: the queue pair is live, and there is room for the results.
        unsafe {
            query(self.qp.as_ptr(), &mut attr, IBV_QP_STATE, &mut init) == 0
                && attr.qp_state == IBV_QPS_ERR
        }
    }

    fn flushed(&self, id: u64, op: WcOp) -> Wc {
        let status = WcStatus::Flushed;
        Wc { id, qp: self.token, bytes: 0, invalidated: None, immediate: None, op, status }
    }

    /// Flushes, without the device, all work requests that the device has not completed.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        let work_queues = [
            (&self.send_queue, &self.send_cq, self.unreported_requests),
            (&self.receive_queue, &self.recv_cq, self.unreported_receives),
        ];
        for (work_queue, queue, unpolled) in work_queues {
            let mut pending = Vec::new();
            queue.exclusively(|| pending = work_queue.pending());
            for (id, op) in pending {
                if op == WcOp::Bind {
                    self.bind_ended(false);
                }
                if unpolled.is_none() {
                    queue.add(self.flushed(id, op));
                }
            }
        }
    }

    /// Converts a completion of the device to dat-core's type. Returns `None` if the consumer does
    /// not get it.
    #[inline]
    pub(crate) fn complete(&self, wc: &ibv_wc) -> Option<Wc> {
        if wc.wr_id & MARKER != 0 {
            let work_queue =
                if wc.wr_id & RECEIVE != 0 { &self.receive_queue } else { &self.send_queue };
            if wc.wr_id as u32 == COUNTED {
                let count = self.counted.swap(0, Ordering::AcqRel);
                if map::status(wc.status) == WcStatus::Success {
                    self.send_queue.succeeded_up_to(count);
                }
                return None;
            }
            work_queue.markers.fetch_or(wc.wr_id as u32, Ordering::Release);
            return None;
        }
        let status = map::status(wc.status);
        if status != WcStatus::Success {
            // Over iWARP the device also flushes when the peer disconnects. rdma_cm reports the
            // disconnect, so the flush is no failure of the queue pair.
            let is_flush_by_peer = status == WcStatus::Flushed && self.progress.device.is_iwarp();
            if !is_flush_by_peer && !self.is_dropped_datagram(wc) {
                self.fail();
            }
            if self.abandoned.load(Ordering::Acquire) {
                return None;
            }
        }
        let with =
            |flag| (wc.wc_flags & flag != 0 && status == WcStatus::Success).then_some(wc.imm_data);
        // The ID of a receive of a shared queue has the bit `SHARED` and not `RECEIVE`.
        let from_srq =
            self.srq.as_ref().filter(|_| wc.wr_id & RECEIVE == 0 && wc.wr_id & SHARED != 0);
        if wc.wr_id & RECEIVE != 0 || from_srq.is_some() {
            let at = (wc.wr_id & !(RECEIVE | SHARED)) as usize;
            let (id, inaccessible) = match from_srq {
                Some(srq) => srq.take_buffer(at),
                None => self.receive_queue.take(at).map(|work| (work.id, work.inaccessible))?,
            };
            let status = match status {
                WcStatus::Success => status,
                _ if self.is_dropped_datagram(wc) => WcStatus::LocalLength,
                _ => map::receive(self.progress.device.kernel_driver, wc.status, inaccessible),
            };
            // Every buffer of a shared receive queue that completes is counted, even a flushed one,
            // because dat-core counts it as returned to the queue.
            if status != WcStatus::Flushed || from_srq.is_some() {
                self.count_held_buffer();
            }
            let immediate = with(IBV_WC_WITH_IMM);
            // A datagram invalidates no key. A device may use the flag for another purpose.
            let invalidated = (!self.is_datagram).then(|| with(self.progress.invalidated));
            let invalidated = invalidated.flatten();
            invalidated.iter().for_each(|&key| self.progress.windows.invalidate(key));
            if self.unreported_receives.is_some() || self.withdrawn.load(Ordering::Acquire) {
                return None;
            }
            let bytes = if status == WcStatus::Success { wc.byte_len } else { 0 };
            // A receive that an RDMA write has completed has another opcode. Datagrams are told
            // apart by their service type.
            let is_message = wc.opcode == IBV_WC_RECV && !self.is_datagram;
            let op = match immediate {
                Some(_) if is_message => WcOp::RecvMessageImm,
                _ => WcOp::Recv,
            };
            return Some(Wc { id, qp: self.token, bytes, invalidated, immediate, op, status });
        }
        let PostedRequest { id, op, bytes, inaccessible, hidden } =
            self.send_queue.take(wc.wr_id as usize)?;
        if status == WcStatus::Success || self.unreported_requests.is_some() {
            self.send_queue.succeeded(wc.wr_id as usize);
        }
        let status = match status {
            WcStatus::Success => status,
            _ => {
                let others = self.request_failed.swap(true, Ordering::Relaxed);
                let first = !others && !self.flush_requested.load(Ordering::Acquire);
                map::request(self.progress.device.kernel_driver, wc.status, op, inaccessible, first)
            }
        };
        if op == WcOp::Bind {
            let wanted = self.bind_ended(status == WcStatus::Success)?;
            if !wanted && status == WcStatus::Success {
                return None;
            }
        }
        if self.unreported_requests.is_some() || hidden && status == WcStatus::Success {
            return None;
        }
        let bytes = if status == WcStatus::Success { bytes } else { 0 };
        Some(Wc { id, qp: self.token, bytes, invalidated: None, immediate: None, op, status })
    }

    /// Returns whether this is the completion of a buffer of a shared receive queue that was too
    /// small for a datagram. rxe drops the datagram, completes the buffer with this status, and the
    /// queue pair works as before (`rxe_responder`, class E).
    fn is_dropped_datagram(&self, wc: &ibv_wc) -> bool {
        self.is_datagram && self.on_srq && wc.status == IBV_WC_REM_INV_REQ_ERR
    }

    fn binds(&self) -> MutexGuard<'_, VecDeque<Bind>> {
        self.binds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the oldest bind. Returns whether the consumer wants the completion of the bind, or
    /// `None` if there is no bind.
    #[cold]
    fn bind_ended(&self, done: bool) -> Option<bool> {
        let bind = self.binds().pop_front()?;
        bind.window.bind_ended(bind.key, done);
        Some(bind.wanted)
    }

    fn count_held_buffer(&self) {
        let exceeded = self.holding.buffer_taken();
        if exceeded.soft {
            self.call(Upcall::HighWatermark);
        }
        if exceeded.hard {
            self.fail();
        }
    }

    /// Handles the asynchronous event that the queue pair has failed.
    pub(crate) fn handle_device_failure(&self) {
        self.call(Upcall::Failed);
        self.fail();
    }

    /// Records that the queue pair is in the error state or must be moved there.
    #[cold]
    pub(crate) fn fail(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            self.progress.report_failed(self.number);
        }
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }
}
