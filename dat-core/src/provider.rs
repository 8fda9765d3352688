//! What a provider supplies: the transport under the semantics.
//!
//! dat-core decides *what is legal*; a transport *moves data*. It is called only when the standard allows the call,
//! it knows nothing of DAT states, events or handles, and it reports what the network did through one [`Upcall`]
//! enum. A transport must uphold four promises:
//!
//! 1. Completions of one queue (requests, or receives) of one endpoint come in posting order.
//! 2. When a connection ends, for whatever reason, every posted work request of the endpoint completes, first those
//!    that had succeeded, then the rest as [`WcStatus::Flushed`]; only then comes the upcall that says so.
//! 3. After the `drop` of an object has returned, its [`Sink`] is not called any more.
//! 4. An upcall is made without holding a lock that any method of these traits takes on the same thread, except
//!    the transport's own engine lock; dat-core takes only leaf locks inside an upcall and calls
//!    [`Transport::interrupt`] at most.
//! 5. A queue pair takes receives before it is connected and keeps them. Once its connection has ended it takes
//!    requests and receives too, and completes each at once as [`WcStatus::Flushed`]. It is connected at most once:
//!    for a new connection dat-core makes a new queue pair.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_sys::DAT_MODEL_NOT_SUPPORTED;

pub use crate::ep::{Exceeded, Holding};
use crate::error::{Error, OpenError, Result};
use crate::wake::{Slept, Wake};

/// One line of dat.conf, made callable: opens interface adapters.
pub trait Provider: Send + Sync + 'static {
    /// What an opened adapter is made of.
    type Transport: Transport;
    /// The provider's name as `dat_ia_query` reports it.
    const NAME: &'static str;
    /// Opens the adapter `ia` (the registry's IA name) with `params`, the ia_params field of the entry.
    fn open(&self, ia: &str, params: &str) -> std::result::Result<Self::Transport, OpenError>;
}

/// An open adapter: makes the objects that move data.
pub trait Transport: Send + Sync + Sized + 'static {
    /// Protection domain.
    type Pd: Send + Sync;
    /// Registered memory.
    type Mr: Region;
    /// Memory window; [`Infallible`] where there are none.
    type Mw: Window;
    /// Completion queue.
    type Cq: Completions;
    /// Shared receive queue.
    type Srq: Receives;
    /// Queue pair.
    type Qp: Queue<Self>;
    /// A service point on which connection requests arrive; closed by `drop`.
    type Listener: Send + Sync;
    /// A connection request nobody has answered; `drop` refuses it (the peer sees a non-peer reject).
    type Request: Send;

    /// Limits and names; constant for the life of the adapter.
    fn attrs(&self) -> &Attrs;
    /// Creates a protection domain.
    fn pd(&self) -> Result<Self::Pd>;
    /// Registers memory.
    ///
    /// # Safety
    /// `mem` stays mapped until the region is dropped, and the consumer accepts that peers write to it as `access` says.
    unsafe fn mr(&self, pd: &Self::Pd, mem: Mem, access: Access) -> Result<Self::Mr>;
    /// Creates an unbound memory window. `scoped`: it lets in the peer of the queue pair that a bind is posted to; else the
    /// peers of all queue pairs in the domain.
    fn mw(&self, _pd: &Self::Pd, _scoped: bool) -> Result<Self::Mw> {
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Creates a completion queue for at least `depth` completions.
    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Self::Cq>;
    /// Creates a shared receive queue.
    fn srq(&self, pd: &Self::Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Self::Srq>;
    /// Creates an unconnected queue pair.
    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Self::Qp>;
    /// Listens for connection requests on a connection qualifier; errors: `DAT_CONN_QUAL_IN_USE`,
    /// `DAT_CONN_QUAL_UNAVAILABLE`. At most `backlog` requests wait unanswered; the peer of one more is refused.
    fn listen(&self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<Self::Listener>;
    /// The connection qualifier a listener really has (asked of one opened with [`Port::Any`]).
    fn port(&self, listener: &Self::Listener) -> u64;
    /// Refuses a connection request with private data.
    fn reject(&self, request: Self::Request, private: &[u8]) -> Result<()>;

    /// One non-blocking pass over whatever moves data. Called by a consumer thread that found its queue empty.
    fn progress(&self) {}
    /// Sleeps until `wake` is signalled or the deadline has passed, making progress meanwhile.
    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        wake.park(deadline)
    }
    /// A consumer sleeps elsewhere, on a file descriptor of its own (dat_cno_fd_create): from now on there is progress
    /// without any call, at once; until as many calls with false.
    fn attend(&self, on: bool) {
        let _ = on;
    }
    /// Makes a thread that sleeps in [`Transport::sleep`] with a [`Wake`] marked as polling look at it again.
    fn interrupt(&self) {}
}

/// A queue pair. Posting: one thread at a time for each of the two queues (dat-core serialises where the consumer need not).
pub trait Queue<T: Transport>: Send + Sync {
    /// Queues a request.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes.
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError>;
    /// Queues the bind of a window; answers its new remote key, or 0 if it unbinds. It starts when all earlier requests are
    /// done, and later ones start when it is; then the new key is valid and the old one is not. A bind that fails ends the
    /// connection; one that fails or is flushed leaves the window as it was.
    ///
    /// # Safety
    /// One thread at a time posts requests.
    unsafe fn post_bind(&self, _wr: &BindWr<'_, T>) -> std::result::Result<u32, PostError> {
        Err(PostError::Unsupported)
    }
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes.
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError>;
    /// Starts a connection; ends in `Established`, `Rejected`, `Unreachable` or `TimedOut`. Until then and after a
    /// failure receives stay posted or are flushed as promise 2 says.
    fn connect(&self, to: &Connect<'_>) -> Result<()>;
    /// Answers a request with this queue pair; ends in `Established` or `AcceptFailed`.
    fn accept(&self, request: T::Request, private: &[u8], depth: ReadDepth) -> Result<()>;
    /// Ends the connection or the attempt to make one. Graceful: requests already posted are carried out first.
    /// Ends in `Disconnected` (also where the peer was faster), possibly before this call returns.
    fn disconnect(&self, how: Close);
    /// The receive buffers allocated to the queue pair, in one look and not while a message is being taken in.
    fn allocated(&self) -> Allocated;
}

/// Completion queue: single consumer (dat-core serialises).
pub trait Completions: Send + Sync {
    /// Moves completions out, oldest first; returns how many. Does not make progress.
    fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize;
    /// Asks for one `CqReady` upcall at the next completion. `solicited`: at the next that failed or is solicited, as
    /// requests are that were not posted quiet, and receives as [`QpCfg::sender_wakes`] says. Of two wishes the
    /// last one holds.
    /// False: the queue is not empty (or may not be), poll again; nothing was armed.
    fn arm(&self, solicited: bool) -> bool;
    /// Changes the depth; nothing queued is lost. `DAT_INVALID_STATE` when more completions are queued than fit.
    fn resize(&self, depth: usize) -> Result<()>;
}

/// Shared receive queue.
pub trait Receives: Send + Sync {
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes.
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError>;
    /// Asks for one `LowWatermark` upcall when fewer than `mark` buffers are left, which may be now. At most the depth.
    fn set_low_watermark(&self, mark: usize);
    /// Changes the depth; not below the mark. `DAT_INVALID_STATE` when more buffers are queued than fit.
    fn resize(&self, depth: usize) -> Result<()>;
    /// Receive buffers posted and not yet taken by a message.
    fn available(&self) -> usize;
}

/// Registered memory; deregistered by `drop`.
pub trait Region: Send + Sync {
    /// Names the region in local segments (the LMR context).
    fn lkey(&self) -> u32;
    /// Names the region to peers (the RMR context); 0 when it grants no remote access.
    fn rkey(&self) -> u32;
}

/// Memory window; unbound by `drop`: from then on its keys name nothing, and binds that are still queued do nothing.
pub trait Window: Send + Sync {
    /// What became of the bind for which [`Queue::post_bind`] answered this key.
    fn state(&self, rkey: u32) -> BindState;
}

impl Window for Infallible {
    fn state(&self, _: u32) -> BindState {
        match *self {}
    }
}

/// How far a bind has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindState {
    /// Queued.
    Posted,
    /// The window is bound by it.
    Bound,
    /// It failed or was flushed, or a later bind or a peer's invalidation has ended it.
    Over,
}

/// Memory to register.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// First byte.
    pub addr: *mut u8,
    /// Bytes.
    pub len: usize,
    /// Segments and peers name its bytes by offsets from 0 on, not by addresses.
    pub zero_based: bool,
}

/// What a region allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The local side may gather from it.
    pub local_read: bool,
    /// The local side may receive and read into it.
    pub local_write: bool,
    /// Peers may RDMA read from it.
    pub remote_read: bool,
    /// Peers may RDMA write to it.
    pub remote_write: bool,
    /// Peers may perform atomic operations on it, which then may be written as well.
    pub remote_atomic: bool,
}

/// One segment of local memory; the layout of `DAT_LMR_TRIPLET` (2.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The region's local key.
    pub key: u32,
}

/// Remote memory of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte at the peer.
    pub addr: u64,
    /// The peer's remote key.
    pub key: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Send to the peer's next receive buffer; optionally invalidating a remote key there.
    Send {
        /// Remote key that the peer shall invalidate.
        invalidate: Option<u32>,
    },
    /// Write local segments to remote memory.
    Write(Remote),
    /// Read remote memory into local segments; the length is that of the segments.
    Read(Remote),
    /// The same, into memory that the segments name by remote keys of this side (of windows, or of regions) which let peers
    /// write there.
    ReadToWindow(Remote),
    /// Write local segments to remote memory, then consume the peer's next receive buffer, of whatever size, and tell its
    /// owner a number. One request, one completion at each end. Where there is no such operation, or the peer cannot do it:
    /// [`PostError::Unsupported`]; so with the two below.
    WriteImm {
        /// Where to write to.
        to: Remote,
        /// The number.
        immediate: u32,
    },
    /// Add to 64 bits of remote memory, aligned to as many; what they held before goes to the local segments, of eight
    /// bytes in all. Atomic towards such operations of all connections of the peer's adapter.
    FetchAdd {
        /// The target.
        at: Remote,
        /// What is added.
        add: u64,
    },
    /// The same with another operation: replace them if they are as expected.
    CompareSwap {
        /// The target.
        at: Remote,
        /// What is expected.
        compare: u64,
        /// The replacement.
        swap: u64,
    },
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in [`Wc::id`].
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// Local memory, in order.
    pub segments: &'a [Segment],
    /// Success is reported. A failure always is.
    pub signalled: bool,
    /// Wakes a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// Starts only after all earlier RDMA reads and atomic operations have completed.
    pub fence: bool,
    /// Its success does not wake a queue that is armed for solicited completions only.
    pub quiet: bool,
}

/// Binding a window.
pub struct BindWr<'a, T: Transport> {
    /// Comes back in [`Wc::id`].
    pub id: u64,
    /// The window.
    pub window: &'a T::Mw,
    /// What it shall show; none: nothing any more.
    pub view: Option<View<'a, T>>,
    /// Success is reported. A failure always is.
    pub signalled: bool,
    /// As [`SendWr::quiet`].
    pub quiet: bool,
}

/// What a window shows.
pub struct View<'a, T: Transport> {
    /// Part of this region, which is not dropped while a window shows it or a bind to it is queued.
    pub region: &'a T::Mr,
    /// The first byte, as segments name it.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// What peers may do. Remote reading takes a region that may be read locally, remote writing one that may be written.
    pub access: Access,
    /// Peers name the bytes by offsets from 0 on, not by addresses.
    pub zero_based: bool,
}

/// A receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in [`Wc::id`].
    pub id: u64,
    /// Local memory, filled in order.
    pub segments: &'a [Segment],
    /// As [`SendWr::quiet`], unless that is the sender's to say.
    pub quiet: bool,
}

/// Receive buffers that belong to a queue pair and have not completed: those posted to its own queue, and those its
/// messages have taken from a shared one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// How many.
    pub buffers: usize,
    /// From the message after the last completed one to the last that has a buffer, both counted: never less than
    /// `buffers`, and more only where messages are received out of order.
    pub span: usize,
}

/// Why a post was refused. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full, or there is no room for another key.
    Full,
    /// No such local key, or a segment not inside its region.
    Bounds,
    /// The region belongs to another protection domain.
    Domain,
    /// The region does not grant the local access needed: reading (`false`) or writing (`true`).
    Access {
        /// Write access was missing.
        write: bool,
    },
    /// The transport, or the peer, cannot do this operation.
    Unsupported,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The work request's id.
    pub id: u64,
    /// [`QpCfg::token`] of the queue pair.
    pub qp: u64,
    /// Bytes moved; for receives the message's length.
    pub bytes: u32,
    /// Remote key that the peer's send invalidated here.
    pub invalidated: Option<u32>,
    /// Immediate data that consumed a receive buffer, in which nothing was placed; then `bytes` are those of the RDMA write.
    pub immediate: Option<u32>,
    /// What completed.
    pub op: WcOp,
    /// How.
    pub status: WcStatus,
}

/// The kind of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOp {
    /// Send.
    Send,
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
    /// RDMA write with immediate data.
    WriteImm,
    /// Atomic addition.
    FetchAdd,
    /// Atomic comparison and replacement.
    CompareSwap,
    /// Receive.
    Recv,
    /// Bind of a window.
    Bind,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// Done.
    Success,
    /// Not carried out: the connection ended first.
    Flushed,
    /// The message was longer than the buffer.
    LocalLength,
    /// The local endpoint failed.
    LocalEp,
    /// Local memory was not accessible as needed.
    LocalProtection,
    /// The peer's answer made no sense.
    BadResponse,
    /// The peer refused the access.
    RemoteAccess,
    /// The peer could not carry it out.
    RemoteResponder,
    /// The transport gave up.
    Transport,
    /// The peer had no receive buffer.
    ReceiverNotReady,
    /// The window could not be bound.
    BindFailed,
}

/// Configuration of a queue pair.
pub struct QpCfg<'a, T: Transport> {
    /// Protection domain of its requests and of remote access through it.
    pub pd: &'a T::Pd,
    /// Where requests complete; none: nobody wants to know.
    pub request_cq: Option<&'a T::Cq>,
    /// Where receives complete.
    pub recv_cq: Option<&'a T::Cq>,
    /// Shared receive queue instead of its own.
    pub srq: Option<&'a T::Srq>,
    /// Comes back in [`Wc::qp`].
    pub token: u64,
    /// Told of each receive buffer that a message takes ([`Holding::took`]). If that exceeds the hard watermark, the
    /// buffer is flushed and the connection ends as [`Upcall::Broken`]; of the soft one, [`Upcall::HighWatermark`] tells.
    pub holding: Arc<Holding>,
    /// A receive is a solicited completion if its sender says so; else, if it was not posted quiet.
    pub sender_wakes: bool,
    /// Requests outstanding at most.
    pub max_requests: usize,
    /// Receives outstanding at most.
    pub max_recvs: usize,
    /// Segments of one request at most.
    pub max_request_segments: usize,
    /// Segments of one receive at most.
    pub max_recv_segments: usize,
}

/// RDMA reads in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDepth {
    /// Reads from the peer that this side holds at most.
    pub incoming: u32,
    /// Reads that this side has outstanding at most.
    pub outgoing: u32,
}

/// Where and how to connect.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address; its port number is not used.
    pub addr: SocketAddr,
    /// The peer's connection qualifier.
    pub port: u64,
    /// Private data for the peer.
    pub private: &'a [u8],
    /// Give up after this long; none: the transport's own limit.
    pub timeout: Option<Duration>,
    /// RDMA read depths wanted.
    pub depth: ReadDepth,
}

/// Which connection qualifier to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This one, shared by nobody.
    Qualifier(u64),
    /// Any free, non-privileged one.
    Any,
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Carry out the requests already posted, then end.
    Graceful,
    /// End now, flushing everything.
    Abrupt,
}

/// What happened below.
pub enum Upcall<'a, T: Transport> {
    /// An armed completion queue has a completion.
    CqReady,
    /// A completion queue had no room: this completion is lost, and so are all that follow. Told once.
    CqOverflow,
    /// A connection request arrived at a listener.
    Request {
        /// Answer it through [`Queue::accept`] or [`Transport::reject`].
        request: T::Request,
        /// The peer.
        from: SocketAddr,
        /// The address it called.
        to: SocketAddr,
        /// Its private data.
        private: &'a [u8],
    },
    /// The connection is up.
    Established {
        /// Private data of the peer's accept (active side; empty on the passive side).
        private: &'a [u8],
        /// The peer, with its port.
        peer: SocketAddr,
        /// The local address, with its port.
        local: SocketAddr,
        /// Read depths agreed on.
        depth: ReadDepth,
    },
    /// Refused: by the peer's consumer, or by its provider (no listener, full backlog).
    Rejected {
        /// The peer's consumer said no.
        by_peer: bool,
        /// Its private data.
        private: &'a [u8],
    },
    /// Nobody answers at this address.
    Unreachable,
    /// The attempt took longer than allowed.
    TimedOut,
    /// Establishment failed after the request had been accepted.
    AcceptFailed,
    /// The connection was ended by either side in order.
    Disconnected,
    /// The connection was lost, or an error ended it.
    Broken,
    /// A shared receive queue fell below its watermark.
    LowWatermark,
    /// A queue pair holds more receive buffers than its soft watermark says.
    HighWatermark,
}

/// Where an object's upcalls go. Copied freely; valid until the object is dropped (promise 3).
pub struct Sink<T: Transport> {
    target: *const (),
    call: unsafe fn(*const (), Upcall<'_, T>),
}

impl<T: Transport> Sink<T> {
    /// A sink that delivers to `R`.
    ///
    /// # Safety
    /// `target` outlives every object the sink is handed to.
    pub unsafe fn new<R: Receiver<T>>(target: *const R) -> Self {
        unsafe fn deliver<T: Transport, R: Receiver<T>>(target: *const (), up: Upcall<'_, T>) {
            // SAFETY: `new` promised that the target is alive.
            unsafe { &*target.cast::<R>() }.upcall(up);
        }
        Sink { target: target.cast(), call: deliver::<T, R> }
    }

    /// Delivers an upcall.
    pub fn call(&self, up: Upcall<'_, T>) {
        // SAFETY: promise 3 keeps the target alive.
        unsafe { (self.call)(self.target, up) }
    }
}

/// What takes upcalls.
pub trait Receiver<T: Transport>: Send + Sync {
    /// Takes one. Must not block and must not call the object it is about.
    fn upcall(&self, up: Upcall<'_, T>);
}

impl<T: Transport> Clone for Sink<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Sink<T> {}
// SAFETY: the target is a `Receiver`, which is Send + Sync.
unsafe impl<T: Transport> Send for Sink<T> {}
// SAFETY: as above.
unsafe impl<T: Transport> Sync for Sink<T> {}

/// Limits and names of an adapter, as `dat_ia_query` reports them.
#[derive(Clone, Debug)]
pub struct Attrs {
    /// Adapter name: the device or engine behind it.
    pub adapter: String,
    /// Vendor name.
    pub vendor: String,
    /// The adapter's own address.
    pub address: SocketAddr,
    /// Endpoints.
    pub max_eps: usize,
    /// Work requests in each queue of an endpoint.
    pub max_dtos: usize,
    /// Segments of a work request.
    pub max_segments: usize,
    /// Segments of an RDMA read's sink.
    pub max_read_segments: usize,
    /// RDMA reads in flight for each endpoint, either direction.
    pub max_read_depth: u32,
    /// Event dispatchers.
    pub max_evds: usize,
    /// Events in one dispatcher.
    pub max_evd_depth: usize,
    /// Registered regions.
    pub max_regions: usize,
    /// Memory windows; 0: none.
    pub max_windows: usize,
    /// Immediate data and atomic operations are there, towards peers that can do them.
    pub extended: bool,
    /// Bytes of one region.
    pub max_region_size: u64,
    /// Protection zones.
    pub max_pds: usize,
    /// Bytes of one message or RDMA operation.
    pub max_message: u32,
    /// Bytes of private data.
    pub max_private: usize,
    /// Shared receive queues; 0: none.
    pub max_srqs: usize,
    /// Receive buffers in a shared receive queue.
    pub max_srq_depth: usize,
    /// Bytes to which buffers are best aligned.
    pub optimal_alignment: u32,
    /// Transport-specific named attributes.
    pub named: Vec<(String, String)>,
}
