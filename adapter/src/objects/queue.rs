//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use rnic::{BindWr, DatagramWr, Pd};
use waiting::nesting::{self, Activity};
use work::{Close, PostError, ReadDepth, RecvWr, SendWr, ServiceType};

use super::{Cq, Srq};
use crate::adapter::UnusedQps;
use crate::connection_request::ConnectionRequest;
use crate::engine::{Engine, RequesterCfg, ResponderCfg, Target};
use crate::engine_lock::Deferring;
use crate::engines::Engines;
use crate::error::{Result, no_resources};
use crate::event::RemoteQp;
use crate::qp_shared::QpShared;
use crate::reactor::Reactor;

/// The configuration of a queue pair.
pub struct QpCfg<'a, E: Engine> {
    /// The protection domain of the queue pair.
    pub pd: Pd,
    /// The completion queue for requests. If it is `None`, completions of requests are not
    /// reported.
    pub request_cq: Option<&'a Cq<E>>,
    /// The completion queue for receives. If it is `None`, completions of receives are not
    /// reported.
    pub recv_cq: Option<&'a Cq<E>>,
    /// The shared receive queue. If it is `None`, the queue pair has its own receive queue.
    pub srq: Option<&'a Srq<E>>,
    /// The service of the queue pair. It is [`ServiceType::Datagram`] only if
    /// [`Limits::max_datagram`](crate::Limits::max_datagram) is not `None`.
    pub service: ServiceType,
    /// The number that each completion of the queue pair contains.
    pub token: u64,
    /// Whether the completion of each receive is solicited that was not posted quiet. If false, the
    /// sender of the message decides, as in verbs.
    pub solicits_all_receives: bool,
    /// The maximum number of outstanding requests.
    pub max_requests: usize,
    /// The maximum number of outstanding receives.
    pub max_recvs: usize,
    /// The maximum number of segments of a request.
    pub max_request_segments: usize,
    /// The maximum number of segments of a receive.
    pub max_recv_segments: usize,
}

/// A queue pair. One thread at a time posts to each of its two queues. Each work request completes
/// once, requests in posting order and receives in posting order. After `drop` or [`Qp::reset`] has
/// returned, nothing more of what was posted before completes.
pub struct Qp<E: Engine> {
    pub(super) qp: Arc<rnic::Qp>,
    pub(super) shared: Arc<QpShared>,
    /// The index of the queue pair in the engine.
    pub(super) index: usize,
    pub(super) batch: Batch,
    /// The maximum number of RDMA reads in progress that the wire protocol allows.
    pub(super) max_read_depth: u32,
    /// Whether there is or was a connection or an attempt to connect since the creation or the last
    /// [`Qp::reset`].
    pub(super) begun: AtomicBool,
    /// The adapter's number of unused queue pairs, which includes this one until it has `begun`.
    /// `None` if the queue pair is for datagrams.
    pub(super) unused: Option<UnusedQps>,
    /// The number of the queue pair's engine.
    pub(super) number: usize,
    pub(super) reactor: Arc<Reactor<E>>,
    pub(super) engines: Arc<Engines<E>>,
}

/// The requests that were posted since the last pass over the engine. Only the posting thread
/// writes these fields.
#[derive(Default)]
pub(super) struct Batch {
    pass: AtomicU32,
    requests: AtomicU32,
    bytes: AtomicU32,
}

/// A batch of requests is full at this number of requests or this number of octets. A full batch is
/// sent without waiting for the consumer's next poll.
const BATCH_LIMIT: (u32, u32) = (64, 64 << 10);

impl<E: Engine> Qp<E> {
    /// Queues a request.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes. One thread at a time posts
    /// requests, and none does during [`Qp::reset`].
    #[inline]
    pub unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        let bytes = unsafe { self.qp.post_send(wr) }?;
        self.send_posted(bytes);
        Ok(())
    }

    /// Queues the bind of a window. Returns the new remote key, or 0 if the window is unbound.
    ///
    /// # Safety
    /// One thread at a time posts requests, and none does during [`Qp::reset`].
    pub unsafe fn post_bind(&self, wr: &BindWr<'_>) -> std::result::Result<u32, PostError> {
        // SAFETY: the caller is the only one that posts.
        let key = unsafe { self.qp.post_bind(wr) }?;
        self.send_posted(0);
        Ok(key)
    }

    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts
    /// receives, and none does during [`Qp::reset`].
    #[inline]
    pub unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.qp.post_recv(wr) }?;
        // The fence pairs with the one in `QpShared::want_receives`: either the engine finds the
        // receive, or this thread sees the flag.
        fence(Ordering::SeqCst);
        if self.shared.wants_receives.load(Ordering::Relaxed) {
            match self.shared.has_ended() {
                true => self.flush_posted(),
                false => self.delegate_posted(),
            }
        }
        Ok(())
    }

    /// Queues a datagram. The queue pair was created for [`ServiceType::Datagram`].
    ///
    /// # Safety
    /// The requirements of [`Qp::post_send`] apply.
    #[inline]
    pub unsafe fn post_datagram(&self, wr: &DatagramWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        let bytes = unsafe { self.qp.post_datagram(wr) }?;
        self.send_posted(bytes);
        Ok(())
    }

    /// Starts to find out the queue pair to which a listener answers with datagrams. One of the
    /// events `Resolved` and `Unresolved` reports the result, with this number. A datagram queue
    /// pair may resolve any number of addresses, also at the same time. It receives datagrams from
    /// the first call of this method or of [`Qp::answer`] on, or from its creation on if it has a
    /// [number](Qp::number). Dropping the queue pair ends all attempts without an event.
    pub fn resolve(&self, number: u64, to: &Target<'_>) -> Result<()> {
        self.reactor.start_progress_thread().map_err(no_resources)?;
        self.begin();
        self.reactor.engine.lock().engine.resolve(self.index, number, &self.within_limits(to))
    }

    /// Answers a request of a peer that wants to send datagrams to this queue pair. Returns the
    /// peer's queue pair.
    pub fn answer(&self, request: ConnectionRequest<E>, private: &[u8]) -> Result<RemoteQp> {
        self.reactor.start_progress_thread().map_err(no_resources)?;
        let (request, arrived_at) = request.answer()?;
        self.begin();
        let prepared = self.reactor.engine.lock().engine.prepare_answer(self.index, &request);
        let (own, address) = prepared?;
        let qpn = arrived_at.engine.lock().engine.answer(request, own, private)?;
        Ok(RemoteQp { address, qpn, own_qpn: own.qpn })
    }

    /// Starts to connect. One of the events `Established`, `Rejected`, `Unreachable` and `TimedOut`
    /// reports the end of the attempt.
    pub fn connect(&self, to: &Target<'_>) -> Result<()> {
        // Start the progress thread first: if that fails, the call has had no side effects.
        self.reactor.start_progress_thread().map_err(no_resources)?;
        self.begin();
        self.reactor.engine.lock().engine.connect(self.index, &self.within_limits(to))
    }

    /// Accepts a connection request with this queue pair. The event `Established` or `AcceptFailed`
    /// reports the result.
    pub fn accept(
        &self,
        request: ConnectionRequest<E>,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        // This engine may have no progress thread yet. If none can be started, this call fails, and
        // the peer sees that its request is refused.
        self.reactor.start_progress_thread().map_err(no_resources)?;
        let (mut request, arrived_at) = request.answer()?;
        self.begin();
        let depth = self.within_limit(depth);
        if !Arc::ptr_eq(&arrived_at, &self.reactor) {
            request = arrived_at.engine.lock().engine.hand_over(request);
        }
        self.reactor.engine.lock().engine.accept(self.index, request, private, depth)
    }

    /// The number by which peers name the queue pair, if it has one from its creation on. It is
    /// valid at each address of the adapter, and stays the same until the queue pair is dropped.
    pub fn number(&self) -> Option<u32> {
        self.reactor.engine.lock().engine.number(self.index)
    }

    /// Makes the queue pair answer a peer that it has not learned from connection management: from
    /// now on it takes the requests of the peer, carries them out and acknowledges them. Requests
    /// may be posted, and wait for [`Qp::establish_requester`]. Neither call causes an event of
    /// this queue pair, and neither sends the peer a message of connection management. Packets that
    /// have arrived before are read first, so events of other queue pairs may come before the call
    /// returns.
    ///
    /// The end of such a connection is reported by `Broken` or, after [`Qp::disconnect`], by
    /// `Disconnected`. The peer is not told: it finds that nobody answers.
    ///
    /// # Errors
    /// [`Error::NotSupported`](crate::Error::NotSupported) if the protocol has no such connections
    /// or the queue pair has no [number](Qp::number), [`Error::InvalidArgument`] if a value is out
    /// of range, [`Error::InvalidState`] if the queue pair is or was connected and has not been
    /// [reset](Qp::reset), [`Error::NoSuchAddress`] if the adapter does not serve the local
    /// address, and the errors of opening that address.
    ///
    /// [`Error::InvalidArgument`]: crate::Error::InvalidArgument
    /// [`Error::InvalidState`]: crate::Error::InvalidState
    /// [`Error::NoSuchAddress`]: crate::Error::NoSuchAddress
    pub fn establish_responder(&self, cfg: &ResponderCfg) -> Result<()> {
        self.reactor.start_progress_thread().map_err(no_resources)?;
        let mut locked = self.reactor.engine.lock();
        self.begin();
        locked.engine.establish_responder(self.index, cfg)
    }

    /// Lets a queue pair send requests to the peer of [`Qp::establish_responder`], also those that
    /// are already posted.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a value is out of range, and
    /// [`Error::InvalidState`](crate::Error::InvalidState) if that call has not preceded.
    pub fn establish_requester(&self, cfg: &RequesterCfg) -> Result<()> {
        self.reactor.engine.lock().engine.establish_requester(self.index, cfg)
    }

    /// Ends the connection without an event, and returns the queue pair to the state in which it
    /// was created, with the same [number](Qp::number). All posted work is dropped without
    /// completion, and completions of the queue pair that nobody has polled are removed from their
    /// queues. [`QpCfg::token`] must be a name that no other queue pair of these queues has.
    ///
    /// # Errors
    /// [`Error::NotSupported`](crate::Error::NotSupported) if the protocol cannot reset a queue
    /// pair, and [`Error::InvalidState`](crate::Error::InvalidState) if connection management has
    /// connected the queue pair or tries to, and that has not ended.
    pub fn reset(&self) -> Result<()> {
        let mut locked = self.reactor.engine.lock();
        locked.engine.reset(self.index)?;
        if self.begun.swap(false, Ordering::Relaxed) {
            self.unused.iter().for_each(UnusedQps::add);
        }
        Ok(())
    }

    /// Ends the connection or the attempt to connect. The event `Disconnected` reports the end,
    /// even if the peer has disconnected first. The event may come before this call returns.
    pub fn disconnect(&self, how: Close) {
        self.reactor.engine.lock().engine.disconnect(self.index, how);
    }

    /// The number of receive buffers that have not completed: those that are posted to the queue
    /// pair, or those that its messages have taken from a shared receive queue.
    pub fn allocated(&self) -> usize {
        self.reactor.engine.lock().engine.allocated(self.index)
    }

    /// The number of requests, counted from the first posted request, that were carried out
    /// successfully.
    pub fn carried_out(&self) -> u64 {
        self.qp.carried_out()
    }

    /// Whether a drop would discard the posted receives, because there was never a connection or an
    /// attempt to connect. Otherwise the end of the connection completes all of them.
    pub fn discards_receives(&self) -> bool {
        !self.begun.load(Ordering::Relaxed) && !self.shared.wants_receives.load(Ordering::Relaxed)
    }

    /// Records that the queue pair is used from now on.
    fn begin(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.unused.iter().for_each(UnusedQps::remove);
        }
    }

    fn within_limits<'a>(&self, to: &Target<'a>) -> Target<'a> {
        Target { depth: self.within_limit(to.depth), ..*to }
    }

    fn within_limit(&self, ReadDepth { incoming, outgoing }: ReadDepth) -> ReadDepth {
        let max = self.max_read_depth;
        ReadDepth { incoming: incoming.min(max), outgoing: outgoing.min(max) }
    }

    /// Makes sure that a posted request of `bytes` octets is sent.
    #[inline(always)]
    fn send_posted(&self, bytes: u32) {
        if self.shared.has_ended() {
            return self.flush_posted();
        }
        let pass = self.reactor.shared.passes();
        if self.batch.pass.load(Ordering::Relaxed) != pass {
            self.batch.begin(pass);
            // This is the first request since the last pass. A consumer may wait for it, so it is
            // sent at once.
            match self.reactor.engine.try_lock() {
                Some(mut locked) => locked.engine.transmit(self.index),
                None => self.delegate_posted(),
            }
            return;
        }
        // The consumer may post more requests. They are sent together, at the latest when the
        // consumer polls next.
        if self.ring_doorbell() {
            self.reactor.wake_for_post();
        }
        if self.batch.is_full_with(bytes) {
            self.reactor.engine.run_or_delegate();
        }
    }

    /// Makes sure that this thread or the holder of the engine lock transmits what is posted.
    fn delegate_posted(&self) {
        self.ring_doorbell();
        self.reactor.engine.run_or_delegate();
    }

    /// Flushes what was posted after the end of the connection. The completion is in its queue when
    /// the post returns, so this thread waits for the engine lock.
    #[cold]
    fn flush_posted(&self) {
        let engine = &self.reactor.engine;
        // A signal handler may post although the code that it has interrupted holds this lock, or
        // holds what the lock's holder waits for.
        match nesting::activity() {
            Activity::Work => self.delegate_posted(),
            _ => engine.lock().engine.transmit(self.index),
        }
    }

    /// Rings the doorbell of the queue pair. Returns true if the doorbell was not in the stack yet.
    fn ring_doorbell(&self) -> bool {
        // SAFETY: this queue pair keeps the doorbell until `drop`, which first takes all doorbells
        // from the stack.
        unsafe { self.reactor.shared.doorbells.push(&self.shared.doorbell) }
    }
}

impl Batch {
    #[inline]
    fn begin(&self, pass: u32) {
        self.pass.store(pass, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Counts a request. Returns true if the batch is full, and then starts another batch.
    #[inline]
    fn is_full_with(&self, bytes: u32) -> bool {
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let full = requests >= BATCH_LIMIT.0 || bytes >= BATCH_LIMIT.1;
        self.requests.store(if full { 0 } else { requests }, Ordering::Relaxed);
        self.bytes.store(if full { 0 } else { bytes }, Ordering::Relaxed);
        full
    }
}

impl<E: Engine> Drop for Qp<E> {
    fn drop(&mut self) {
        self.begin();
        let mut locked = self.reactor.engine.lock();
        // Serve all doorbells first. The doorbell of this queue pair must not stay in the stack,
        // and the doorbells of other queue pairs must not be lost.
        locked.run_deferred();
        locked.engine.remove_qp(self.index);
        drop(locked);
        self.engines.leave(self.number);
    }
}
