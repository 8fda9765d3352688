//! dat-core's contract, fulfilled by rnic's queues and this crate's engine.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::time::Instant;

use dat_core::provider::{
    Access, Allocated, Attrs, BindState, BindWr, Close, Completions, Connect, Mem, Port, PostError, QpCfg,
    Queue, ReadDepth, Receives, RecvWr, Region, SendWr, Sink, Transport, Upcall, Wc, Window,
};
use dat_core::wake::{Slept, Wake};
use dat_core::{Error, OpenError, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_ADDRESS, DAT_INVALID_PARAMETER, DAT_INVALID_STATE,
    DAT_RESOURCE_MEMORY, DAT_RESOURCE_MEMORY_REGION,
};
use mio::{Poll, Waker};
use rnic::rdmap::setup::MAX_READ_DEPTH;
use rnic::{CqEvent, Keys};

use crate::board::Board;
use crate::call::CallId;
use crate::dirty::Mark;
use crate::drive::Drive;
use crate::engine::{Engine, Key};
use crate::link::{self, Link, Target};
use crate::map;
use crate::params::Params;
use crate::socket;

/// An open adapter.
pub struct Tcp {
    attrs: Attrs,
    params: Arc<Params>,
    keys: Arc<Keys>,
    drive: Arc<Drive>,
}

/// Protection domain.
pub struct Pd(rnic::Pd);

/// Registered memory.
pub struct Mr {
    /// Emptied by `drop`.
    mr: Option<rnic::Mr>,
    drive: Arc<Drive>,
}

/// Memory window.
pub struct Mw {
    /// Emptied by `drop`.
    mw: Option<rnic::Mw>,
    drive: Arc<Drive>,
}

/// Completion queue.
pub struct Cq {
    cq: Arc<rnic::Cq>,
    drive: Arc<Drive>,
}

/// Shared receive queue.
pub struct Srq {
    srq: Arc<rnic::Srq>,
    /// What was asked for; rnic's queue may have room for more.
    depth: AtomicUsize,
    /// The watermark that was asked for last.
    low_watermark: AtomicUsize,
    sink: Sink<Tcp>,
    drive: Arc<Drive>,
}

/// Queue pair.
pub struct Qp {
    qp: Arc<rnic::Qp>,
    shared: Arc<link::Shared>,
    index: usize,
    batch: Batch,
    drive: Arc<Drive>,
}

/// What was posted since the last pass over the engine. Written by the posting thread alone.
#[derive(Default)]
struct Batch {
    pass: AtomicU32,
    requests: AtomicU32,
    bytes: AtomicU32,
}

/// Requests, or bytes of them, that are sent without waiting for the consumer's next look at a queue.
const FULL_BATCH: (u32, u32) = (64, 64 << 10);

/// Service point.
pub struct Listener {
    index: usize,
    port: u16,
    drive: Arc<Drive>,
}

/// A connection request nobody has answered.
pub struct Request {
    call: CallId,
    answered: bool,
    drive: Arc<Drive>,
}

impl Tcp {
    /// Opens an adapter.
    pub(crate) fn open(ia: &str, params: &str) -> std::result::Result<Self, OpenError> {
        let params = Params::parse(params, |name| std::env::var(name).ok())?;
        if let Some(cc) = &params.cc {
            socket::check_congestion_control(cc).map_err(|e| {
                let reason =
                    format!("ia_params: cc={cc}: {e}; see /proc/sys/net/ipv4/tcp_allowed_congestion_control");
                OpenError::new(Error::of(DAT_INVALID_PARAMETER), reason)
            })?;
        }
        if let Some(addr) = params.bind {
            socket::check_local(addr).map_err(|e| {
                OpenError::new(
                    Error::of(DAT_INVALID_ADDRESS),
                    format!("ia_params: binding to {}: {e}", addr.ip()),
                )
            })?;
        }
        let no_poller = |e: std::io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("making a poller: {e}"))
        };
        let poll = Poll::new().map_err(no_poller)?;
        let waker = Waker::new(poll.registry(), Key::WAKER).map_err(no_poller)?;
        let registry = poll.registry().try_clone().map_err(no_poller)?;

        let attrs = attrs(ia, &params);
        let params = Arc::new(params);
        let board = Arc::new(Board::new(waker));
        let drive = Arc::new_cyclic(|drive| {
            let engine = Engine::new(drive.clone(), Arc::clone(&board), Arc::clone(&params), registry);
            Drive::new(engine, board, poll, params.spin)
        });
        Ok(Tcp { attrs, params, keys: Arc::new(Keys::new()), drive })
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.drive.stop_background();
    }
}

fn attrs(ia: &str, params: &Params) -> Attrs {
    Attrs {
        adapter: ia.to_owned(),
        vendor: "OpenDAT".to_owned(),
        address: params.address,
        max_eps: 1 << 16,
        max_dtos: 1 << 16,
        max_segments: 32,
        max_read_segments: 32,
        max_read_depth: MAX_READ_DEPTH,
        max_evds: 1 << 16,
        max_evd_depth: 1 << 20,
        // One table has room for all of them; a window may have a key that is valid and one that is about to be.
        max_regions: Keys::MAX / 2,
        max_windows: Keys::MAX / 4,
        extended: true,
        max_region_size: isize::MAX as u64,
        max_pds: 1 << 16,
        max_message: u32::MAX,
        max_private: 252,
        max_srqs: 1 << 16,
        max_srq_depth: 1 << 16,
        optimal_alignment: 64,
        named: vec![
            ("transport".to_owned(), "iWARP over TCP, in user space".to_owned()),
            ("crc".to_owned(), if params.crc { "asked for" } else { "where the peer asks" }.to_owned()),
        ],
    }
}

impl Transport for Tcp {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = Qp;
    type Listener = Listener;
    type Request = Request;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn pd(&self) -> Result<Pd> {
        Ok(Pd(self.keys.pd()))
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        // SAFETY: the caller's promise; `Mr::drop` holds the lease.
        let mr = unsafe {
            rnic::Mr::new(&self.keys, pd.0, mem.addr, mem.len, map::access(access), mem.zero_based)
        };
        let mr = mr.map_err(|e| match e {
            rnic::key::RegisterError::Range => Error::arg(3),
            rnic::key::RegisterError::Exhausted => {
                Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION)
            }
        })?;
        Ok(Mr { mr: Some(mr), drive: Arc::clone(&self.drive) })
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw> {
        Ok(Mw { mw: Some(rnic::Mw::new(&self.keys, pd.0, scoped)), drive: Arc::clone(&self.drive) })
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq> {
        let notify = move |event| {
            sink.call(match event {
                CqEvent::Ready => Upcall::CqReady,
                CqEvent::Overflow => Upcall::CqOverflow,
            });
        };
        let cq = rnic::Cq::new(depth, notify).map_err(no_memory)?;
        Ok(Cq { cq: Arc::new(cq), drive: Arc::clone(&self.drive) })
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq> {
        let notify = move || sink.call(Upcall::LowWatermark);
        let srq = rnic::Srq::new(&self.keys, pd.0, depth, max_segments, notify).map_err(no_memory)?;
        let (depth, low_watermark) = (AtomicUsize::new(depth), AtomicUsize::new(0));
        Ok(Srq { srq: Arc::new(srq), depth, low_watermark, sink, drive: Arc::clone(&self.drive) })
    }

    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        let (holding, sender_wakes) = (Arc::clone(&cfg.holding), cfg.sender_wakes);
        let cfg = rnic::QpCfg {
            keys: Arc::clone(&self.keys),
            pd: cfg.pd.0,
            request_cq: cfg.request_cq.map(|cq| Arc::clone(&cq.cq)),
            recv_cq: cfg.recv_cq.map(|cq| Arc::clone(&cq.cq)),
            srq: cfg.srq.map(|srq| Arc::clone(&srq.srq)),
            token: cfg.token,
            max_requests: cfg.max_requests,
            max_recvs: cfg.max_recvs,
            max_request_segments: cfg.max_request_segments,
            max_recv_segments: cfg.max_recv_segments,
        };
        // SAFETY: the engine lock is the adapter's lease; queues of other adapters are not of this type's values.
        let (qp, mut work) = unsafe { rnic::Qp::new(cfg) }.map_err(no_memory)?;
        work.watch_receives(move || {
            let exceeded = holding.took();
            if exceeded.soft {
                sink.call(Upcall::HighWatermark);
            }
            !exceeded.hard
        });
        if !sender_wakes {
            work.let_poster_wake();
        }
        let mut engine = self.drive.engine.lock();
        let index = engine.links.next_index();
        let shared = Arc::new(link::Shared { mark: Mark::new(index), ended: AtomicBool::new(false) });
        engine.links.insert(Link::new(index, sink, Arc::clone(&shared), work));
        drop(engine);
        Ok(Qp { qp, shared, index, batch: Batch::default(), drive: Arc::clone(&self.drive) })
    }

    fn listen(&self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<Listener> {
        let socket = socket::listen(self.params.bind, port)?;
        let address = socket.local_addr().ok().and_then(|a| a.as_socket());
        let port = address.map_or(0, |address: SocketAddr| address.port());
        let index = {
            let mut engine = self.drive.engine.lock();
            let Engine { kit, calls, .. } = &mut *engine;
            calls.open(kit, socket, backlog, sink).map_err(no_resources)?
        };
        let listener = Listener { index, port, drive: Arc::clone(&self.drive) };
        self.drive.start_background().map_err(no_resources)?;
        Ok(listener)
    }

    fn port(&self, listener: &Listener) -> u64 {
        listener.port.into()
    }

    fn reject(&self, mut request: Request, private: &[u8]) -> Result<()> {
        request.answered = true;
        let mut engine = self.drive.engine.lock();
        let Engine { kit, calls, lingerers, .. } = &mut *engine;
        calls.reject(kit, lingerers, request.call, private)
    }

    fn progress(&self) {
        self.drive.poll();
    }

    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        self.drive.sleep(wake, deadline)
    }

    fn attend(&self, on: bool) {
        self.drive.attend(on);
    }

    fn interrupt(&self) {
        self.drive.interrupt();
    }
}

impl Queue<Tcp> for Qp {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller's promise, and dat-core's to post from one thread at a time.
        let bytes = unsafe { self.qp.post_send(&map::send(wr)) }.map_err(map::post_error)?;
        self.posted(bytes);
        Ok(())
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Tcp>) -> std::result::Result<u32, PostError> {
        // Windows and regions lose what is rnic's only when they are dropped.
        let window = wr.window.mw.as_ref().ok_or(PostError::Unsupported)?;
        let view = match &wr.view {
            Some(view) => Some(rnic::View {
                region: view.region.mr.as_ref().ok_or(PostError::Bounds)?,
                addr: view.addr,
                len: view.len,
                access: map::access(view.access),
                zero_based: view.zero_based,
            }),
            None => None,
        };
        let wr = rnic::BindWr { id: wr.id, window, view, signalled: wr.signalled, quiet: wr.quiet };
        // SAFETY: the caller's promise.
        let key = unsafe { self.qp.post_bind(&wr) }.map_err(map::post_error)?;
        self.posted(0);
        Ok(key)
    }

    #[inline]
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(&map::recv(wr)) }.map_err(map::post_error)?;
        // Either the end of the connection finds the buffer (its fence is in link.rs), or it is seen here.
        fence(Ordering::SeqCst);
        if self.shared.ended.load(Ordering::Relaxed) {
            self.mark();
            self.drive.engine.serve();
        }
        Ok(())
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        let mut addr = to.addr;
        addr.set_port(socket::port(to.port));
        let target =
            Target { to: addr, private: to.private, timeout: to.timeout, depth: within_limits(to.depth) };
        {
            let mut engine = self.drive.engine.lock();
            let Engine { kit, links, .. } = &mut *engine;
            let link = links.get_mut(self.index).ok_or(Error::of(DAT_INVALID_STATE))?;
            link.dial(kit, &target)?;
        }
        self.drive.start_background().map_err(no_resources)
    }

    fn accept(&self, mut request: Request, private: &[u8], depth: ReadDepth) -> Result<()> {
        request.answered = true;
        let mut engine = self.drive.engine.lock();
        let Engine { kit, links, calls, .. } = &mut *engine;
        let link = links.get_mut(self.index).ok_or(Error::of(DAT_INVALID_STATE))?;
        match calls.take(kit, request.call) {
            Some(caller) => link.answer(kit, caller, private, within_limits(depth)),
            None => {
                link.answer_nobody(kit);
                Ok(())
            }
        }
    }

    fn disconnect(&self, how: Close) {
        let mut engine = self.drive.engine.lock();
        let Engine { kit, links, lingerers, .. } = &mut *engine;
        if let Some(link) = links.get_mut(self.index) {
            link.disconnect(kit, lingerers, how);
        }
    }

    fn allocated(&self) -> Allocated {
        let mut engine = self.drive.engine.lock();
        let buffers = engine.links.get_mut(self.index).map_or(0, |link| link.allocated());
        // TCP delivers messages in order.
        Allocated { buffers, span: buffers }
    }
}

impl Qp {
    /// A request of so many bytes is in the queue: sees to it that it is sent.
    #[inline]
    fn posted(&self, bytes: u32) {
        let pass = self.drive.board.passes();
        if self.batch.pass.load(Ordering::Relaxed) != pass {
            self.batch.begin(pass);
            // Alone since the last pass: somebody may wait for it, so it goes at once.
            match self.drive.engine.try_lock() {
                Some(mut engine) => engine.transmit(self.index),
                None => {
                    self.mark();
                    self.drive.engine.serve();
                }
            }
            return;
        }
        // More may follow: they go together, at the latest with the consumer's next look at a queue.
        if self.mark() {
            self.drive.nudge();
        }
        if self.batch.is_full_with(bytes) {
            self.drive.engine.serve();
        }
    }

    /// Marks the queue pair. True: it was not marked yet.
    fn mark(&self) -> bool {
        // SAFETY: the mark is shared with the link, whose removal (`drop`) takes all marks from the stack first.
        unsafe { self.drive.board.dirty.push(&self.shared.mark) }
    }
}

impl Batch {
    #[inline]
    fn begin(&self, pass: u32) {
        self.pass.store(pass, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Adds a request; true if that makes a batch, and begins another.
    #[inline]
    fn is_full_with(&self, bytes: u32) -> bool {
        let requests = self.requests.load(Ordering::Relaxed) + 1;
        let bytes = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let full = requests >= FULL_BATCH.0 || bytes >= FULL_BATCH.1;
        self.requests.store(if full { 0 } else { requests }, Ordering::Relaxed);
        self.bytes.store(if full { 0 } else { bytes }, Ordering::Relaxed);
        full
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.drive.engine.lock().remove_link(self.index);
    }
}

impl Completions for Cq {
    #[inline]
    fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        let room = out.len();
        let mut places = out.iter_mut();
        let take = |wc| {
            if let Some(place) = places.next() {
                place.write(map::wc(wc));
            }
        };
        // SAFETY: dat-core polls and arms from one thread at a time; `take` does not call the queue.
        unsafe { self.cq.poll_with(room, take) }
    }

    #[inline]
    fn arm(&self, solicited: bool) -> bool {
        // SAFETY: as above.
        unsafe { self.cq.arm(solicited) }
    }

    fn resize(&self, depth: usize) -> Result<()> {
        let _lease = self.drive.engine.lock();
        // SAFETY: the lease is held, and dat-core does not poll meanwhile.
        match unsafe { self.cq.resize(depth) }.map_err(no_memory)? {
            true => Ok(()),
            false => Err(Error::of(DAT_INVALID_STATE)),
        }
    }
}

impl Receives for Srq {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        if self.srq.available() >= self.depth.load(Ordering::Relaxed) {
            return Err(PostError::Full);
        }
        // SAFETY: the caller's promise.
        unsafe { self.srq.post_recv(&map::recv(wr)) }.map_err(map::post_error)
    }

    fn set_low_watermark(&self, mark: usize) -> Result<()> {
        if mark > self.depth.load(Ordering::Relaxed) {
            return Err(Error::arg(2));
        }
        // No buffer is taken while the lease is held.
        let _lease = self.drive.engine.lock();
        self.low_watermark.store(mark, Ordering::Relaxed);
        if self.srq.available() < mark {
            // So few already: the event of this watermark comes now.
            self.srq.set_low_watermark(0);
            self.sink.call(Upcall::LowWatermark);
        } else {
            self.srq.set_low_watermark(mark);
        }
        Ok(())
    }

    fn resize(&self, depth: usize) -> Result<()> {
        let _lease = self.drive.engine.lock();
        // uDAPL 1.2, dat_srq_resize: not below the watermark.
        if depth < self.low_watermark.load(Ordering::Relaxed) {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        // SAFETY: the lease is held.
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

impl Region for Mr {
    fn lkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::lkey)
    }

    fn rkey(&self) -> u32 {
        self.mr.as_ref().map_or(0, rnic::Mr::rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let _lease = self.drive.engine.lock();
        self.mr = None;
    }
}

impl Window for Mw {
    fn state(&self, rkey: u32) -> BindState {
        self.mw.as_ref().map_or(BindState::Over, |mw| map::bind_state(mw.state(rkey)))
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let _lease = self.drive.engine.lock();
        self.mw = None;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut engine = self.drive.engine.lock();
        let Engine { kit, calls, .. } = &mut *engine;
        calls.close(kit, self.index);
    }
}

impl Request {
    pub(crate) fn new(drive: Arc<Drive>, call: CallId) -> Self {
        Request { call, answered: false, drive }
    }
}

impl Drop for Request {
    /// May happen inside an upcall, where this very thread has the lease: then it looks again before it lets go.
    fn drop(&mut self) {
        if !self.answered {
            self.drive.board.refuse(self.call);
            self.drive.engine.serve();
        }
    }
}

fn within_limits(depth: ReadDepth) -> ReadDepth {
    ReadDepth { incoming: depth.incoming.min(MAX_READ_DEPTH), outgoing: depth.outgoing.min(MAX_READ_DEPTH) }
}

fn no_memory(_: rnic::OutOfMemory) -> Error {
    Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
}

/// No file descriptor, no thread.
fn no_resources(_: std::io::Error) -> Error {
    Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
}
