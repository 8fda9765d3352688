//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Instant;

use dat_core::Result;
use dat_core::provider::{
    Allocated, BindWr, Close, Connect, Datagram, PostError, Queue, ReadDepth, RecvWr, RemoteQp,
    SendWr,
};
use waiting::nesting::{self, Activity};

use crate::adapter::{Adapter, UnusedEndpoints};
use crate::engine::{Engine, PeerAddress, Target};
use crate::engine_lock::Deferring;
use crate::engines::Engines;
use crate::local_failure::no_resources;
use crate::reactor::Reactor;
use crate::request::Request;
use crate::shared_qp::Shared;

/// A queue pair.
pub struct Qp<E: Engine> {
    pub(super) qp: Arc<rnic::Qp>,
    pub(super) shared: Arc<Shared>,
    /// The index of the queue pair in the engine.
    pub(super) index: usize,
    pub(super) batch: Batch,
    /// The maximum number of RDMA reads in progress that the wire protocol allows.
    pub(super) max_read_depth: u32,
    /// Whether there is or was a connection or an attempt to connect.
    pub(super) begun: AtomicBool,
    /// The adapter's number of unused endpoints, which includes this one until it has `begun`.
    /// `None` if the queue pair is for datagrams.
    pub(super) unused: Option<UnusedEndpoints>,
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

// SAFETY: the promises of `Queue`, by their numbers:
// 1. rnic completes each work request once and in order, from the slot of the ring that it was
//    posted to.
// 2. `Work`, which completes requests, is used only in calls of the engine, and not after
//    `remove_qp`, which `drop` calls under the engine lock.
// 3. rnic counts the requests that have left the ring. Unsignalled requests leave the ring without
//    a completion. A queue pair that was never connected and is not flushed discards its receives.
// 4. rnic calls the closure of `watch_receives` whenever a message takes a buffer.
unsafe impl<E: Engine> Queue<Adapter<E>> for Qp<E> {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        let bytes = unsafe { self.qp.post_send(wr) }?;
        self.send_posted(bytes);
        Ok(())
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter<E>>) -> std::result::Result<u32, PostError> {
        // The options in a window and in a region are `None` only while the object is being
        // dropped.
        let window = wr.window.mw.as_ref().ok_or(PostError::Unsupported)?;
        let view = match &wr.view {
            Some(view) => Some(rnic::View {
                region: view.region.mr.as_ref().ok_or(PostError::Bounds)?,
                addr: view.addr,
                len: view.len,
                access: view.access,
                zero_based: view.zero_based,
            }),
            None => None,
        };
        let wr = rnic::BindWr { id: wr.id, window, view, signalled: wr.signalled, quiet: wr.quiet };
        // SAFETY: the caller is the only one that posts.
        let key = unsafe { self.qp.post_bind(&wr) }?;
        self.send_posted(0);
        Ok(key)
    }

    #[inline]
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.qp.post_recv(wr) }?;
        // The fence pairs with the one in `Shared::want_receives`: either the engine finds the
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

    #[inline]
    unsafe fn post_datagram(
        &self,
        wr: &Datagram<'_, Adapter<E>>,
    ) -> std::result::Result<(), PostError> {
        let PeerAddress { ip, route, q_key } = *wr.address;
        let wr = rnic::DatagramWr {
            id: wr.id,
            to: rnic::Destination { address: ip, route, qpn: wr.qpn, q_key },
            immediate: wr.immediate,
            segments: wr.segments,
            signalled: wr.signalled,
            solicited: wr.solicited,
            quiet: wr.quiet,
        };
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        let bytes = unsafe { self.qp.post_datagram(&wr) }?;
        self.send_posted(bytes);
        Ok(())
    }

    fn resolve(&self, number: u64, to: &Connect<'_>) -> Result<()> {
        self.reactor.start_progress_thread().map_err(no_resources)?;
        self.begin();
        self.reactor.engine.lock().engine.resolve(self.index, number, &self.target(to))
    }

    fn answer(&self, request: Request<E>, private: &[u8]) -> Result<RemoteQp<Adapter<E>>> {
        self.reactor.start_progress_thread().map_err(no_resources)?;
        let (request, arrived_at) = request.answer()?;
        self.begin();
        let prepared = self.reactor.engine.lock().engine.prepare_answer(self.index, &request);
        let (own, address) = prepared?;
        let qpn = arrived_at.engine.lock().engine.answer(request, own, private)?;
        Ok(RemoteQp { address, qpn, own_qpn: own.qpn })
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        // Start the progress thread first: if that fails, the call has had no side effects.
        self.reactor.start_progress_thread().map_err(no_resources)?;
        self.begin();
        self.reactor.engine.lock().engine.connect(self.index, &self.target(to))
    }

    fn accept(&self, request: Request<E>, private: &[u8], depth: ReadDepth) -> Result<()> {
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

    fn disconnect(&self, how: Close) {
        self.reactor.engine.lock().engine.disconnect(self.index, how);
    }

    fn allocated(&self) -> Option<Allocated> {
        let buffers = self.reactor.engine.lock().engine.allocated(self.index);
        Some(Allocated { buffers, span: buffers })
    }

    unsafe fn carried_out(&self) -> u64 {
        self.qp.carried_out()
    }

    /// Returns how many posted receives will never complete if the queue pair is dropped now. If
    /// there was a connection, the number is 0, because its end completes all receives. A queue
    /// pair that never had a connection discards its receives.
    fn withdrawn(&self) -> usize {
        match self.begun.load(Ordering::Relaxed)
            || self.shared.wants_receives.load(Ordering::Relaxed)
        {
            true => 0,
            false => self.reactor.engine.lock().engine.allocated(self.index),
        }
    }
}

impl<E: Engine> Qp<E> {
    /// Records that the queue pair is used from now on.
    fn begin(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.unused.iter().for_each(UnusedEndpoints::remove);
        }
    }

    fn target<'a>(&self, to: &Connect<'a>) -> Target<'a> {
        Target {
            peer: to.peer(),
            private: to.private,
            deadline: to.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            depth: self.within_limit(to.depth),
        }
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
    /// the post returns (uDAPL 1.2, dat_ep_post_send: flushed in the state disconnected). So this
    /// thread waits for the engine lock.
    #[cold]
    fn flush_posted(&self) {
        let engine = &self.reactor.engine;
        // A signal handler may post while its thread holds this lock, or something for which the
        // holder of this lock waits.
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
