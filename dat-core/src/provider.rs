//! What a provider supplies: the transport below the semantics of the standard.
//!
//! dat-core decides *what is legal*, and a transport *moves data*. A transport is called only when
//! the standard allows the call. It knows nothing of DAT states, events or handles, and it reports
//! what the network did through the enum [`Upcall`].
//!
//! A transport must keep five promises. [`Transport`], [`Queue`] and [`Completions`] are unsafe
//! traits: their `# Safety` sections list the parts of these promises, and the further rules, on
//! which dat-core's unsafe code relies.
//!
//! 1. Completions of one queue (requests or receives) of one endpoint arrive in posting order.
//! 2. When a connection ends, for whatever reason, every posted work request of the endpoint
//!    completes: first those that had succeeded, then the others as [`WcStatus::Flushed`]. The
//!    upcall that reports the end comes after that.
//! 3. After the `drop` of an object has returned, its [`Sink`] is not called any more.
//! 4. While an upcall is made, its thread holds no lock that any method of these traits takes,
//!    except the transport's own engine lock. In an upcall, dat-core takes only leaf locks and
//!    calls no method of the transport except [`Transport::interrupt`].
//! 5. A queue pair accepts receives before it is connected and keeps them. After its connection has
//!    ended it accepts requests and receives, too, and completes each at once as
//!    [`WcStatus::Flushed`]. It is connected at most once: for a new connection dat-core creates a
//!    new queue pair.

mod datagram;
mod polled;
mod upcall;
mod work;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_sys::{DAT_MODEL_NOT_SUPPORTED, DAT_RMR_SCOPE};

pub use self::datagram::{Datagram, RemoteQp};
pub use self::polled::{Polled, Token};
pub use self::upcall::{Receiver, Sink, Upcall};
pub use self::work::*;
pub use crate::ep::{Exceeded, HeldBuffers};
use crate::error::{Error, OpenError, Result};
pub use waiting::{Wake, WakeReason};

/// A provider, which opens interface adapters. A line of dat.conf names the provider of each entry.
pub trait Provider: Send + Sync + 'static {
    /// The transport of an opened adapter.
    type Transport: Transport;
    /// The provider's name as `dat_ia_query` reports it.
    const NAME: &'static str;
    /// Opens the adapter with the IA name `ia`. `params` is the ia_params field of the registry's
    /// entry.
    fn open(&self, ia: &str, params: &str) -> std::result::Result<Self::Transport, OpenError>;
}

/// An open adapter, which creates the objects that move data.
///
/// # Safety
/// 1. Sinks: after the `drop` of an object has returned, nobody calls the [`Sink`] that the object
///    was created with. After a call of [`Transport::watch`] has returned, nobody calls a sink that
///    an earlier call of this method has set. (A sink contains a pointer to memory that dat-core
///    may then free.)
/// 2. Memory of the consumer: a transport accesses this memory only inside a registered region that
///    is not dropped yet. Each access must be permitted by the [`Access`] of that region or of a
///    window to it, and must be made for a peer or for a work request that has not completed. The
///    transport creates no reference to this memory, because other threads may write to it at any
///    time.
pub unsafe trait Transport: Send + Sync + Sized + 'static {
    /// The type of protection domains.
    type Pd: Send + Sync;
    /// The type of registered memory.
    type Mr: Region;
    /// The type of memory windows. It is [`Infallible`] if the transport has no memory windows.
    type Mw: Window;
    /// The type of completion queues.
    type Cq: Completions;
    /// The type of shared receive queues.
    type Srq: Receives;
    /// The type of queue pairs.
    type Qp: Queue<Self>;
    /// The address of a peer's adapter, to which datagrams are sent. It is [`Infallible`] if the
    /// transport has no datagrams. The consumer may keep very many of them.
    type Address: Clone + Send + Sync;
    /// A listener for connection requests. Dropping it closes it.
    type Listener: Send + Sync;
    /// A connection request that was not answered. Dropping it refuses the request, and the peer
    /// sees a non-peer reject.
    type ConnectionRequest: Send;

    /// Limits and names. They are constant for the life of the adapter.
    fn attrs(&self) -> &Attrs;
    /// Creates a protection domain.
    fn pd(&self) -> Result<Self::Pd>;
    /// Registers memory.
    ///
    /// # Safety
    /// `mem` stays mapped until the region is dropped, and the consumer accepts that peers write to
    /// it as `access` permits.
    unsafe fn mr(&self, pd: &Self::Pd, mem: Mem, access: Access) -> Result<Self::Mr>;
    /// Creates an unbound memory window. If `scoped` is true, only the peer of the queue pair to
    /// which a bind is posted may use the window. If it is false, the peers of all queue pairs in
    /// the protection domain may use the window.
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
    /// Listens for connection requests on a port, which no other listener may have. `None` stands
    /// for any free, unprivileged port. At most `backlog` requests wait for an answer. Further
    /// requests are refused. Errors: `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`.
    fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<Self>)
    -> Result<Self::Listener>;
    /// The port of a listener. It is not 0.
    fn port(&self, listener: &Self::Listener) -> u16;
    /// Refuses a connection request and sends private data with the refusal.
    fn reject(&self, request: Self::ConnectionRequest, private: &[u8]) -> Result<()>;

    /// Counters of network traffic since the adapter was opened, for example packets that were sent
    /// again, or octets on the wire. The transport chooses their names, which contain no blanks.
    /// Any thread may call this at any time.
    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        Vec::new()
    }

    /// Sets the sink for upcalls that concern the whole adapter. After a call with `None` has
    /// returned, no such upcall is made.
    fn watch(&self, sink: Option<Sink<Self>>) {
        let _ = sink;
    }
    /// Makes one non-blocking pass of progress. A consumer thread that found its queue empty calls
    /// this.
    fn progress(&self) {}
    /// Makes progress as [`Transport::progress`] does. The thread has found this completion queue
    /// empty.
    fn progress_on(&self, _cq: &Self::Cq) {
        self.progress();
    }
    /// Records that a wait has found completions in this queue and makes no pass of progress. The
    /// waiting thread takes the completions first, and makes a pass when it finds the queue empty.
    fn note_ready_wait(&self, _cq: &Self::Cq) {}
    /// How long a thread that waits for completions polls before it sleeps. 0 if the thread sleeps
    /// at once or if [`Transport::sleep_on`] itself polls.
    fn spin(&self) -> Duration {
        Duration::ZERO
    }
    /// Sleeps until `wake` is signalled or the deadline has passed. Makes progress during the
    /// sleep.
    fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        wake.park(deadline)
    }
    /// Sleeps as [`Transport::sleep`] does. The thread most likely waits for a completion in the
    /// given completion queue.
    fn sleep_on(&self, _cq: &Self::Cq, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        self.sleep(wake, deadline)
    }
    /// Requires that the transport makes progress even if the consumer makes no calls, because the
    /// consumer sleeps on a file descriptor (dat_cno_fd_create). Progress starts at once. It
    /// continues until the method was called with `false` as often as with `true`.
    fn require_progress(&self, on: bool) {
        let _ = on;
    }
    /// Makes a thread that sleeps in [`Transport::sleep`] check its [`Wake`] again. dat-core calls
    /// this if [`Wake::signal`] says that the thread is in the poller.
    fn interrupt(&self) {}
}

/// A queue pair. One thread at a time posts to each of its two queues. dat-core serializes the
/// posts of consumers that are not required to do so.
///
/// # Safety
/// Each completion carries the queue pair's [`Token`], the address of memory that dat-core frees
/// once it has counted the last completion. So the counts must be right:
///
/// 1. The following complete at most once, with the id that they were posted with: posted requests,
///    posted receives, and the buffers that messages of this queue pair have taken from a shared
///    receive queue. Nothing else completes with this token. Completions go to the queues that
///    [`QpCfg`] names. Completions of requests are in posting order, and so are completions of
///    receives.
/// 2. After `drop` has returned, nothing more completes with this token.
/// 3. A request that [`Queue::carried_out`] counts completes only if it was `signalled`. A receive
///    that [`Queue::withdrawn`] counts does not complete once the queue pair has been dropped.
/// 4. [`HeldBuffers::buffer_taken`] is called once for each buffer that a message takes, by one
///    thread at a time, before that buffer completes. A buffer of a shared receive queue completes
///    only if a message has taken it.
pub unsafe trait Queue<T: Transport>: Send + Sync {
    /// Queues a request.
    ///
    /// # Safety
    /// The segments' memory stays valid until the request completes. One thread at a time posts
    /// requests.
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError>;
    /// Queues the bind of a window. Returns the new remote key, or 0 if the window is unbound.
    ///
    /// The bind starts when all earlier requests are done, and later requests start when the bind
    /// is done. Once it is done, the new key is valid and the old key is invalid. A bind that fails
    /// ends the connection. A bind that fails or is flushed leaves the window unchanged.
    ///
    /// # Safety
    /// One thread at a time posts requests.
    unsafe fn post_bind(&self, _wr: &BindWr<'_, T>) -> std::result::Result<u32, PostError> {
        Err(PostError::Unsupported)
    }
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts
    /// receives.
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError>;
    /// Queues a datagram. The queue pair is a [`ServiceType::Datagram`] queue pair, whose receives
    /// have room for [`Datagram::HEADER`] bytes in addition to the message.
    ///
    /// # Safety
    /// The requirements of [`Queue::post_send`] apply.
    unsafe fn post_datagram(&self, _wr: &Datagram<'_, T>) -> std::result::Result<(), PostError> {
        Err(PostError::Unsupported)
    }
    /// Starts to find out the queue pair to which a service point answers with datagrams. One of
    /// the upcalls `Resolved` and `Unresolved` reports the result, with this number. A datagram
    /// queue pair may resolve any number of addresses, also at the same time. It receives datagrams
    /// from the first call of this method or of [`Queue::answer`] on. Dropping the queue pair ends
    /// all attempts without an upcall.
    fn resolve(&self, _number: u64, _to: &Connect<'_>) -> Result<()> {
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Answers a request of a peer that wants to send datagrams to this queue pair. Returns the
    /// peer's queue pair.
    fn answer(&self, _request: T::ConnectionRequest, _private: &[u8]) -> Result<RemoteQp<T>> {
        Err(Error::of(DAT_MODEL_NOT_SUPPORTED))
    }
    /// Starts to connect. One of the upcalls `Established`, `Rejected`, `Unreachable` and
    /// `TimedOut` reports the end of the attempt. Until then, and after a failure, receives stay
    /// posted or are flushed as promise 2 of this module says.
    fn connect(&self, to: &Connect<'_>) -> Result<()>;
    /// Accepts a connection request with this queue pair. The upcall `Established` or
    /// `AcceptFailed` reports the result.
    fn accept(&self, request: T::ConnectionRequest, private: &[u8], depth: ReadDepth)
    -> Result<()>;
    /// Ends the connection or the attempt to connect. For [`Close::Graceful`], requests that are
    /// already posted are carried out first. The upcall `Disconnected` reports the end, even if the
    /// peer has disconnected first. The upcall may come before this call returns.
    fn disconnect(&self, how: Close);
    /// The receive buffers that are allocated to the queue pair. The count is consistent, because
    /// no message is being processed while it is taken. `None` if the transport does not know which
    /// buffers of a shared receive queue the queue pair has taken.
    fn allocated(&self) -> Option<Allocated>;
    /// The number of requests, counted from the first posted request, that were carried out
    /// successfully. Their completions are in the completion queue. If completions are not
    /// reported, flushed requests count as well.
    ///
    /// # Safety
    /// No other thread posts requests during this call.
    unsafe fn carried_out(&self) -> u64;
    /// The number of posted receive buffers that would never complete if the queue pair were
    /// dropped now. The transport counts only buffers of which it is sure.
    fn withdrawn(&self) -> usize {
        0
    }
}

/// A completion queue. It has a single consumer, since dat-core serializes the calls.
///
/// # Safety
/// dat-core follows the [`Token`] of each completion that it polls:
///
/// 1. [`Completions::poll`] returns only what completed here (see [`Queue`]), each completion once,
///    and the completions of each queue of a queue pair in their order.
/// 2. A poll that leaves room in the buffer has returned all completions of queue pairs that were
///    dropped before the poll began.
pub unsafe trait Completions: Send + Sync {
    /// Moves completions to `out`, the oldest first, until there is no more room. Does not make
    /// progress.
    ///
    /// # Safety
    /// One thread at a time calls `poll`, `queued`, `arm` and `resize` of a queue.
    unsafe fn poll(&self, out: &mut Polled<'_>);
    /// The number of completions that `poll` would return now, or `None` if the queue cannot tell
    /// this without returning them.
    ///
    /// # Safety
    /// The requirements of [`Completions::poll`] apply.
    unsafe fn queued(&self) -> Option<usize> {
        None
    }
    /// Requests one `CqReady` upcall at the next completion. If `solicited` is true, the upcall is
    /// made only at the next completion that has failed or is solicited. The completion of a
    /// request is solicited unless the request was posted quiet. [`QpCfg::sender_wakes`] says when
    /// the completion of a receive is solicited. Each call replaces the request of the previous
    /// call.
    ///
    /// Returns false if the queue may contain a completion. Nothing was armed in this case, and the
    /// caller polls again.
    ///
    /// # Safety
    /// The requirements of [`Completions::poll`] apply.
    unsafe fn arm(&self, solicited: bool) -> bool;
    /// Sets whether an armed queue must make its upcall even if the consumer makes no calls,
    /// because a CNO needs the upcall. If not, the thread that arms the queue sleeps on it
    /// ([`Transport::sleep_on`]).
    fn require_upcalls(&self, on: bool) {
        let _ = on;
    }
    /// Changes the depth of the queue. Queued completions are kept. If more completions are queued
    /// than fit, the error is `DAT_INVALID_STATE`.
    ///
    /// # Safety
    /// The requirements of [`Completions::poll`] apply.
    unsafe fn resize(&self, depth: usize) -> Result<()>;
}

/// A shared receive queue.
pub trait Receives: Send + Sync {
    /// Queues a receive buffer.
    ///
    /// # Safety
    /// The segments' memory stays valid until the receive completes. One thread at a time posts.
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError>;
    /// Requests one `LowWatermark` upcall as soon as fewer than `mark` buffers are left, which may
    /// already be the case. `mark` is at most the depth.
    fn set_low_watermark(&self, mark: usize);
    /// Changes the depth of the queue. The new depth is at least the low watermark. If more buffers
    /// are queued than fit, the error is `DAT_INVALID_STATE`.
    fn resize(&self, depth: usize) -> Result<()>;
    /// The number of receive buffers that were posted and that no message has taken yet.
    fn available(&self) -> usize;
}

/// Registered memory. Dropping it deregisters the memory.
pub trait Region: Send + Sync {
    /// The key of the region for local segments (the LMR context).
    fn lkey(&self) -> u32;
    /// The key of the region for peers (the RMR context), or 0 if it grants no remote access.
    fn rkey(&self) -> u32;
}

/// A memory window. Dropping it unbinds the window and makes its keys invalid. If a bind is still
/// queued at that time, it has no effect, or its effect ends when the bind completes.
pub trait Window: Send + Sync {
    /// The state of the bind for which [`Queue::post_bind`] has returned this key.
    fn state(&self, rkey: u32) -> BindState;
}

impl Window for Infallible {
    fn state(&self, _: u32) -> BindState {
        match *self {}
    }
}

/// The configuration of a queue pair.
pub struct QpCfg<'a, T: Transport> {
    /// The protection domain of the queue pair. Regions and windows that its requests use must
    /// belong to this domain, and so must those that its peer accesses.
    pub pd: &'a T::Pd,
    /// The completion queue for requests. If it is `None`, completions of requests are not
    /// reported.
    pub request_cq: Option<&'a T::Cq>,
    /// The completion queue for receives. If it is `None`, completions of receives are not
    /// reported.
    pub recv_cq: Option<&'a T::Cq>,
    /// The shared receive queue. If it is `None`, the queue pair has its own receive queue.
    pub srq: Option<&'a T::Srq>,
    /// The service of the queue pair. It is [`ServiceType::Datagram`] only if
    /// [`Attrs::max_datagram`] is not `None`.
    pub service: ServiceType,
    /// The token that each completion of the queue pair returns in [`Wc::qp`].
    pub token: Token,
    /// Counts each receive buffer that a message takes ([`HeldBuffers::buffer_taken`]). If the
    /// count exceeds the hard watermark, the buffer is flushed and the connection ends as
    /// [`Upcall::Broken`]. If the count exceeds the soft watermark, the transport makes the upcall
    /// [`Upcall::HighWatermark`].
    pub holding: Arc<HeldBuffers>,
    /// Whether the sender of a message decides if the completion of the receive is solicited. If
    /// false, the completion of a receive is solicited unless the receive was posted quiet.
    pub sender_wakes: bool,
    /// The maximum number of outstanding requests.
    pub max_requests: usize,
    /// The maximum number of outstanding receives.
    pub max_recvs: usize,
    /// The maximum number of segments of a request.
    pub max_request_segments: usize,
    /// The maximum number of segments of a receive.
    pub max_recv_segments: usize,
}

/// The target of an attempt to connect, and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address. Its port number is not used. A link-local address has a scope.
    pub addr: SocketAddr,
    /// The port on which the peer listens.
    pub port: u16,
    /// Private data for the peer.
    pub private: &'a [u8],
    /// The time limit of the attempt. `None` stands for the transport's own limit.
    pub timeout: Option<Duration>,
    /// The requested RDMA read depths.
    pub depth: ReadDepth,
}

impl Connect<'_> {
    /// The peer's address with the port on which the peer listens.
    pub fn peer(&self) -> SocketAddr {
        let mut peer = self.addr;
        peer.set_port(self.port);
        peer
    }
}

/// Limits and names of an adapter, as `dat_ia_query` reports them.
#[derive(Clone, Debug)]
pub struct Attrs {
    /// The name of the device or engine behind the adapter.
    pub adapter: String,
    /// The name of the vendor.
    pub vendor: String,
    /// The adapter's own address.
    pub address: SocketAddr,
    /// The index of the network interface that the adapter is bound to. Peers with a link-local
    /// address without a scope are on this interface. 0 if the adapter serves several interfaces.
    pub interface: u32,
    /// The maximum number of endpoints.
    pub max_eps: usize,
    /// The maximum number of work requests in each queue of an endpoint.
    pub max_dtos: usize,
    /// The maximum number of segments of a work request.
    pub max_segments: usize,
    /// The maximum number of segments of an RDMA read's sink.
    pub max_read_segments: usize,
    /// The maximum number of RDMA reads in progress for each endpoint, in each direction.
    pub max_read_depth: u32,
    /// The maximum number of EVDs.
    pub max_evds: usize,
    /// The maximum number of events in an EVD.
    pub max_evd_depth: usize,
    /// The maximum number of registered regions.
    pub max_regions: usize,
    /// The maximum number of memory windows. It is 0 if the adapter has no memory windows.
    pub max_windows: usize,
    /// The scopes of memory windows. The value has no meaning if the adapter has none.
    pub window_scopes: DAT_RMR_SCOPE,
    /// Whether atomic operations are supported, with peers that support them.
    pub atomics: bool,
    /// Whether immediate data are supported, with peers that support them.
    pub immediate: bool,
    /// The maximum length of a region in bytes.
    pub max_region_size: u64,
    /// The maximum number of protection zones.
    pub max_pds: usize,
    /// The maximum length of a message or RDMA operation in bytes.
    pub max_message: u32,
    /// The maximum length of a datagram in bytes. `None` if datagrams are not supported.
    pub max_datagram: Option<u32>,
    /// The maximum length of private data in bytes.
    pub max_private: usize,
    /// The maximum number of shared receive queues. It is 0 if the adapter has no shared receive
    /// queues.
    pub max_srqs: usize,
    /// The maximum number of receive buffers in a shared receive queue.
    pub max_srq_depth: usize,
    /// Whether queue pairs of other protection domains may use a shared receive queue.
    pub srq_across_pds: bool,
    /// Whether the transport knows, for every queue pair, how many receive buffers are allocated to
    /// it ([`Queue::allocated`]).
    pub knows_allocated: bool,
    /// Whether regions may be addressed by offsets from 0 ([`Mem::zero_based`]).
    pub zero_based: bool,
    /// Whether the transport itself refuses memory that cannot be used as requested, as devices
    /// that pin memory do. Such a transport may even accept memory that this process cannot access.
    /// If false, dat-core itself checks that the process has mapped the memory with the required
    /// permissions.
    pub pins: bool,
    /// Whether a queue that is armed for solicited completions wakes for each completion except
    /// those that were posted quiet (see [`Completions::arm`]). False for devices that only know
    /// which completions the sender solicited.
    pub quiet: bool,
    /// Whether the consumer requires the letter of the standard without the exceptions that some
    /// programs need (`strict=on` in ia_params).
    pub strict: bool,
    /// Whether the adapter's counters are available to other processes (`stats=on` in ia_params).
    pub stats: bool,
    /// The recommended alignment of buffers in bytes.
    pub optimal_alignment: u32,
    /// The named attributes that are specific to the transport.
    pub named: Vec<(String, String)>,
}
