//! Work requests, completions and the terms of connections. A programming interface posts and polls
//! them, and `rnic` and the engines carry them out. All use these types, so nothing is converted
//! between them.
//!
//! # Example
//!
//! A layer asks the table of operations what it must know of a request. The layer above gets the
//! completion, in which the queue pair has another name:
//!
//! ```
//! use work::{ATOMIC_SIZE, OpSet, Remote, Segment, SendOp, SendWr, Wc, WcStatus};
//!
//! let request = SendWr {
//!     id: 42,
//!     op: SendOp::FetchAdd { at: Remote { addr: 0x2000, key: 9 }, add: 1 },
//!     segments: &[Segment { addr: 0x1000, len: ATOMIC_SIZE, key: 7 }],
//!     signalled: true,
//!     solicited: false,
//!     fence: false,
//!     quiet: false,
//! };
//! let facts = request.op.facts();
//! assert!(facts.awaits_response(), "the peer returns the previous value");
//! assert_eq!(facts.set, OpSet::Extended, "iWARP has the operation if the peer speaks RFC 7306");
//!
//! let completion = Wc {
//!     id: request.id,
//!     qp: 1,
//!     bytes: ATOMIC_SIZE,
//!     invalidated: None,
//!     immediate: None,
//!     op: facts.completes_as,
//!     status: WcStatus::Success,
//! };
//! let endpoints = ["client", "server"];
//! assert_eq!(completion.map_qp(|index| endpoints[index]).qp, "server");
//! ```

#![forbid(unsafe_code)]

pub mod cause;
mod connection;
mod operation;

pub use connection::{Close, ReadDepth, ResolveFailure, ServiceType};
pub use operation::{ATOMIC_SIZE, OpFacts, OpKind, OpSet, SendOp, WcOp};

/// What a memory region allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The local side may send from the region.
    pub local_read: bool,
    /// The local side may receive and read into the region.
    pub local_write: bool,
    /// Peers may RDMA read from the region.
    pub remote_read: bool,
    /// Peers may RDMA write to the region.
    pub remote_write: bool,
    /// Peers may perform atomic operations on the region. Then they may also write to it.
    pub remote_atomic: bool,
}

impl Access {
    /// Whether peers have any access.
    pub const fn is_remote(self) -> bool {
        self.remote_read || self.remote_write || self.remote_atomic
    }
}

/// One segment of local memory. Its layout is fixed: callers may cast segments of theirs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub addr: u64,
    /// The length in bytes.
    pub len: u32,
    /// The region's local key. A segment of zero bytes may have any key.
    pub key: u32,
}

/// Remote memory of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The address of the first byte at the peer (iWARP: the tagged offset).
    pub addr: u64,
    /// The peer's remote key (iWARP: the STag).
    pub key: u32,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// The id of the request, which its completion returns in [`Wc::id`].
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// Local memory, in the order of transfer.
    pub segments: &'a [Segment],
    /// Whether success is reported. A failure is always reported.
    pub signalled: bool,
    /// Whether the message wakes a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// Whether the request starts only after all earlier RDMA reads and atomic operations have
    /// completed.
    pub fence: bool,
    /// If true, success does not wake a queue that is armed for solicited completions only. Every
    /// request of an interface is quiet that solicits only completions of receives, as verbs does.
    pub quiet: bool,
}

/// A receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// The id of the receive, which its completion returns in [`Wc::id`].
    pub id: u64,
    /// Local memory, in the order in which it is filled.
    pub segments: &'a [Segment],
    /// If true, success does not wake a queue that is armed for solicited completions only. This
    /// flag has no effect if the sender decides whether the completion wakes a queue, as in verbs.
    pub quiet: bool,
}

/// The state of a window's bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindState {
    /// The bind is queued.
    Posted,
    /// The window is bound by this request.
    Bound,
    /// The bind failed or was flushed, or a later bind or a peer's invalidation has ended it.
    Over,
}

/// The reason for which a post was refused. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full, or there is no room for another key.
    #[error("the queue is full")]
    Full,
    /// The local key of a segment is not valid: its region was freed, or never existed.
    #[error("a segment's key names no registered memory")]
    Key,
    /// A segment is not inside its region, or the segments have more than 2^32-1 bytes in all. The
    /// error of an atomic operation also means that the segments do not have exactly eight bytes in
    /// all.
    #[error("a segment is not inside registered memory")]
    Bounds,
    /// The region belongs to another protection domain.
    #[error("a segment's region belongs to another protection domain")]
    Domain,
    /// The region does not grant the local access needed: reading (`false`) or writing (`true`).
    #[error(
        "a segment's region does not grant local {} access",
        if *write { "write" } else { "read" }
    )]
    Access {
        /// True if write access was missing, false if read access was missing.
        write: bool,
    },
    /// There are three causes:
    ///
    /// - The request has more segments than the queue allows.
    /// - The request is a receive, and the queue pair uses a shared receive queue.
    /// - The transport or the peer does not support the operation.
    #[error("the queue does not support this request")]
    Unsupported,
}

/// A completion. `Q` names its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc<Q> {
    /// The id of the work request.
    pub id: u64,
    /// The queue pair.
    pub qp: Q,
    /// The number of bytes moved. For a receive, this is the length of the message. If immediate
    /// data came with an RDMA write, it is the length of that write.
    pub bytes: u32,
    /// The remote key that the peer's send invalidated here.
    pub invalidated: Option<u32>,
    /// Immediate data, which consumed a receive buffer. If they came with an RDMA write, nothing
    /// was placed in the buffer. Other implementations also send immediate data with a message. In
    /// that case, the message was placed in the buffer.
    pub immediate: Option<u32>,
    /// The operation that completed.
    pub op: WcOp,
    /// The result.
    pub status: WcStatus,
}

impl<Q> Wc<Q> {
    /// The same completion with another type of name for its queue pair.
    #[inline]
    pub fn map_qp<R>(self, f: impl FnOnce(Q) -> R) -> Wc<R> {
        let Wc { id, qp, bytes, invalidated, immediate, op, status } = self;
        Wc { id, qp: f(qp), bytes, invalidated, immediate, op, status }
    }
}

/// The result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// The request succeeded.
    Success,
    /// The request was not carried out: the connection ended first.
    Flushed,
    /// The message was longer than the buffer.
    LocalLength,
    /// This side of the connection failed.
    LocalEp,
    /// Local memory was not accessible as needed.
    LocalProtection,
    /// The peer's answer was invalid.
    BadResponse,
    /// The peer refused the access.
    RemoteAccess,
    /// The peer could not carry out the request.
    RemoteResponder,
    /// The transport gave up.
    Transport,
    /// The peer had no receive buffer.
    ReceiverNotReady,
    /// The window could not be bound.
    BindFailed,
}
