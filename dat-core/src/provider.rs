//! What a provider supplies: the transport under the semantics.
//!
//! dat-core decides *what is legal*; a transport *moves data*. It is called only when the standard allows the
//! call, it knows nothing of DAT states, events or handles, and it reports what the network did through one
//! [`Upcall`] enum. A transport must uphold five promises. [`Transport`], [`Queue`] and [`Completions`] are
//! unsafe traits: their `# Safety` sections say which parts of these promises, and what else, dat-core's
//! unsafe code relies on.
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

mod polled;
mod upcall;
mod work;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_sys::DAT_MODEL_NOT_SUPPORTED;

pub use self::polled::{Polled, Token};
pub use self::upcall::{Receiver, Sink, Upcall};
pub use self::work::*;
pub use crate::ep::{Exceeded, Holding};
use crate::error::{Error, OpenError, Result};
use crate::wake::{Slept, Wake};

/// One line of dat.conf, made callable: opens interface adapters.
pub trait Provider: Send + Sync + 'static {
    /// What an opened adapter is made of.
    type Transport: Transport;
    /// What it may be made of instead, where [`Provider::open_either`] says so; where there is no choice, the same.
    type Other: Transport;
    /// The provider's name as `dat_ia_query` reports it.
    const NAME: &'static str;
    /// Opens the adapter `ia` (the registry's IA name) with `params`, the ia_params field of the entry.
    fn open(&self, ia: &str, params: &str) -> std::result::Result<Self::Transport, OpenError>;
    /// As [`Provider::open`], by whichever of the two serves this entry. Each has a function table of its
    /// own, so no call has to choose between them.
    fn open_either(
        &self,
        ia: &str,
        params: &str,
    ) -> std::result::Result<Either<Self::Transport, Self::Other>, OpenError> {
        self.open(ia, params).map(Either::Own)
    }
}

/// What a provider has opened.
pub enum Either<T, O> {
    /// What it usually does.
    Own(T),
    /// The other one.
    Other(O),
}

/// An open adapter: makes the objects that move data.
///
/// # Safety
/// 1. Sinks: after the `drop` of an object has returned, nobody calls the [`Sink`] that was given for it.
///    After [`Transport::watch`] has returned, nobody calls a sink that an earlier call of it gave. (A sink
///    follows a pointer to memory that dat-core may free then.)
/// 2. Memory of the consumer: a transport reads and writes it only inside a registered region that is not
///    dropped yet, only as the [`Access`] of that region or of a window to it permits, and only for work
///    requests that have not completed and for peers. It forms no reference to it, since others may write
///    there at any time.
pub unsafe trait Transport: Send + Sync + Sized + 'static {
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
    /// `mem` stays mapped until the region is dropped, and the consumer accepts that peers write to it as
    /// `access` says.
    unsafe fn mr(&self, pd: &Self::Pd, mem: Mem, access: Access) -> Result<Self::Mr>;
    /// Creates an unbound memory window. `scoped`: it lets in the peer of the queue pair that a bind is
    /// posted to; else the peers of all queue pairs in the domain.
    fn mw(&self, _pd: &Self::Pd, _scoped: bool) -> Result<Self::Mw> {
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Creates a completion queue for at least `depth` completions.
    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Self::Cq>;
    /// Creates a shared receive queue.
    fn srq(
        &self,
        pd: &Self::Pd,
        depth: usize,
        max_segments: usize,
        sink: Sink<Self>,
    ) -> Result<Self::Srq>;
    /// Creates an unconnected queue pair.
    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Self::Qp>;
    /// Listens for connection requests on a connection qualifier; errors: `DAT_CONN_QUAL_IN_USE`,
    /// `DAT_CONN_QUAL_UNAVAILABLE`. At most `backlog` requests wait unanswered; the peer of one more is refused.
    fn listen(&self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<Self::Listener>;
    /// The connection qualifier a listener really has (asked of one opened with [`Port::Any`]).
    fn port(&self, listener: &Self::Listener) -> u64;
    /// Refuses a connection request with private data.
    fn reject(&self, request: Self::Request, private: &[u8]) -> Result<()>;

    /// What the wire has done since the adapter was opened, by names of the transport's own: packets sent
    /// again, octets on the wire. A name has no blanks. Any thread may ask at any time.
    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        Vec::new()
    }

    /// Where to tell what concerns the whole adapter; `None`: nowhere any more, once this has returned.
    fn watch(&self, sink: Option<Sink<Self>>) {
        let _ = sink;
    }
    /// One non-blocking pass over whatever moves data. Called by a consumer thread that found its queue empty.
    fn progress(&self) {}
    /// How long who waits for completions looks for them before it sleeps, where [`Transport::sleep_on`] does
    /// not do that itself.
    fn spin(&self) -> Duration {
        Duration::ZERO
    }
    /// Sleeps until `wake` is signalled or the deadline has passed, making progress meanwhile.
    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        wake.park(deadline)
    }
    /// The same; what is waited for is most likely a completion, which would come to this queue.
    fn sleep_on(&self, _cq: &Self::Cq, wake: &Wake, deadline: Option<Instant>) -> Slept {
        self.sleep(wake, deadline)
    }
    /// A consumer sleeps elsewhere, on a file descriptor of its own (dat_cno_fd_create): from now on there is progress
    /// without any call, at once; until as many calls with false.
    fn attend(&self, on: bool) {
        let _ = on;
    }
    /// Makes a thread that sleeps in [`Transport::sleep`] with a [`Wake`] marked as polling look at it again.
    fn interrupt(&self) {}
}

/// A queue pair. Posting: one thread at a time for each of the two queues (dat-core serialises where the
/// consumer need not).
///
/// # Safety
/// Each completion carries the queue pair's [`Token`], the address of memory that dat-core frees once it has
/// counted the last completion. So what dat-core counts with must be right:
///
/// 1. Each request and each receive that was posted, and each buffer of a shared receive queue that a message
///    of this queue pair has taken, completes at most once, with the id that it was posted with. Nothing else
///    completes with this token. Completions go to the queues that [`QpCfg`] names, those of requests and
///    those of receives each in posting order.
/// 2. After `drop` has returned, nothing more completes with this token.
/// 3. A request that [`Queue::carried_out`] counts completes only if it was `signalled`. A receive that
///    [`Queue::withdrawn`] counts does not complete once the queue pair has been dropped.
/// 4. [`Holding::took`] is called once for each buffer that a message takes, by one thread at a time, before
///    that buffer completes. A buffer of a shared receive queue does not complete unless a message has taken
///    it.
pub unsafe trait Queue<T: Transport>: Send + Sync {
    /// Queues a request.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes. One thread at a time posts requests.
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError>;
    /// Queues the bind of a window; answers its new remote key, or 0 if it unbinds. It starts when all
    /// earlier requests are done, and later ones start when it is; then the new key is valid and the old one
    /// is not. A bind that fails ends the connection; one that fails or is flushed leaves the window as it
    /// was.
    ///
    /// # Safety
    /// One thread at a time posts requests.
    unsafe fn post_bind(&self, _wr: &BindWr<'_, T>) -> std::result::Result<u32, PostError> {
        Err(PostError::Unsupported)
    }
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts receives.
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
    /// How many requests, from the first one on, were carried out with success: what completes of them is in
    /// the completion queue. Where nobody is told of completions, those that were flushed count, too.
    ///
    /// # Safety
    /// No other thread posts requests meanwhile.
    unsafe fn carried_out(&self) -> u64;
    /// Receive buffers that have not completed and, if it is dropped now, never will. As few as it is sure of.
    fn withdrawn(&self) -> usize {
        0
    }
}

/// Completion queue: single consumer (dat-core serialises).
///
/// # Safety
/// dat-core follows the [`Token`] of each completion that it polls:
///
/// 1. [`Completions::poll`] hands out only what completed here ([`Queue`] says what may), each completion
///    once, and the completions of each queue of a queue pair in their order.
/// 2. A poll that leaves room has handed out all completions of queue pairs that were dropped before it
///    began.
pub unsafe trait Completions: Send + Sync {
    /// Moves completions out, the oldest first, until there is no more room. Does not make progress.
    ///
    /// # Safety
    /// One thread at a time calls `poll`, `arm` and `resize` of a queue.
    unsafe fn poll(&self, out: &mut Polled<'_>);
    /// Asks for one `CqReady` upcall at the next completion. `solicited`: at the next that failed or is solicited, as
    /// requests are that were not posted quiet, and receives as [`QpCfg::sender_wakes`] says. Of two wishes the
    /// last one holds.
    /// False: the queue is not empty (or may not be), poll again; nothing was armed.
    ///
    /// # Safety
    /// As [`Completions::poll`].
    unsafe fn arm(&self, solicited: bool) -> bool;
    /// A notification object wants to hear of it: once armed the upcall comes without any call of the consumer's; until
    /// `false`. Else who arms it sleeps on it ([`Transport::sleep_on`]).
    fn attend(&self, on: bool) {
        let _ = on;
    }
    /// Changes the depth; nothing queued is lost. `DAT_INVALID_STATE` when more completions are queued than fit.
    ///
    /// # Safety
    /// As [`Completions::poll`].
    unsafe fn resize(&self, depth: usize) -> Result<()>;
}

/// Shared receive queue.
pub trait Receives: Send + Sync {
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts.
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

/// Memory window; unbound by `drop`: from then on its keys name nothing, and binds that are still queued do
/// nothing, or nothing that lasts longer than until they complete.
pub trait Window: Send + Sync {
    /// What became of the bind for which [`Queue::post_bind`] answered this key.
    fn state(&self, rkey: u32) -> BindState;
}

impl Window for Infallible {
    fn state(&self, _: u32) -> BindState {
        match *self {}
    }
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
    pub token: Token,
    /// Told of each receive buffer that a message takes ([`Holding::took`]). If that exceeds the hard
    /// watermark, the buffer is flushed and the connection ends as [`Upcall::Broken`]; of the soft one,
    /// [`Upcall::HighWatermark`] tells.
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
    /// Queue pairs of other domains may draw from a shared receive queue.
    pub srq_across_pds: bool,
    /// Regions may count from zero ([`Mem::zero_based`]).
    pub zero_based: bool,
    /// Memory that cannot be used as asked is refused when it is registered, as by a device that pins it, and
    /// which may know memory that this process cannot touch. Where not, dat-core looks at its mappings.
    pub pins: bool,
    /// A queue that is armed for solicited completions wakes for each completion but those that were posted quiet, as
    /// [`Completions::arm`] says. Not so for devices that know only what the sender solicited.
    pub quiet: bool,
    /// The consumer wants the letter of the standard (`strict=on` in ia_params): what the standard forbids is
    /// refused, also where OFED's library has always let programs do it.
    pub strict: bool,
    /// Bytes to which buffers are best aligned.
    pub optimal_alignment: u32,
    /// Transport-specific named attributes.
    pub named: Vec<(String, String)>,
}
