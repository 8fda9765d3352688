//! Work requests and completions. dat-core posts and polls them, and `rnic` carries them out. Both
//! use these types, so nothing is converted between them.

#![forbid(unsafe_code)]

/// What a memory region allows.
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

impl Access {
    /// Whether peers have any access.
    pub const fn is_remote(self) -> bool {
        self.remote_read || self.remote_write || self.remote_atomic
    }
}

/// One segment of local memory. It has the layout of `DAT_LMR_TRIPLET` (uDAPL 2.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// The region's local key. A segment of zero bytes may have any key.
    pub key: u32,
}

/// Remote memory of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address (iWARP: tagged offset) of the first byte at the peer.
    pub addr: u64,
    /// The peer's remote key (iWARP: STag).
    pub key: u32,
}

/// What a request does.
///
/// The operations from [`WriteImm`](SendOp::WriteImm) on work only if the transport and the peer
/// support them. Otherwise the post is refused with [`PostError::Unsupported`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends to the peer's next receive buffer, and may invalidate a remote key there.
    Send {
        /// The remote key that the peer invalidates.
        invalidate: Option<u32>,
    },
    /// Writes local segments to remote memory.
    Write(Remote),
    /// Reads remote memory into local segments. The length is that of the segments.
    Read(Remote),
    /// As [`Read`](SendOp::Read), into memory that the segments name by remote keys of this side:
    /// keys of windows or of regions. These must let peers write.
    ReadToWindow(Remote),
    /// Writes local segments to remote memory, then consumes the peer's next receive buffer, of
    /// whatever size. The completion of that buffer contains a number. This is one request with one
    /// completion at each end.
    WriteImm {
        /// Where to write to.
        to: Remote,
        /// The number.
        immediate: u32,
    },
    /// Adds to a 64-bit word of remote memory, aligned to 8 bytes. Its previous value goes to the
    /// local segments, which have eight bytes in all. The operation is atomic with respect to all
    /// other atomic operations at the peer's adapter.
    FetchAdd {
        /// The target.
        at: Remote,
        /// What is added.
        add: u64,
    },
    /// As [`FetchAdd`](SendOp::FetchAdd), but replaces the target if it has the expected value.
    CompareSwap {
        /// The target.
        at: Remote,
        /// The expected value.
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
    /// Whether success is reported. A failure always is.
    pub signalled: bool,
    /// Whether the message wakes a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// Whether the request starts only after all earlier RDMA reads and atomic operations have
    /// completed.
    pub fence: bool,
    /// Whether success does not wake a queue that is armed for solicited completions only.
    pub quiet: bool,
}

/// A receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in [`Wc::id`].
    pub id: u64,
    /// Local memory, filled in order.
    pub segments: &'a [Segment],
    /// As [`SendWr::quiet`], unless the sender decides that.
    pub quiet: bool,
}

/// How far a bind of a window has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindState {
    /// Queued.
    Posted,
    /// The window is bound by this request.
    Bound,
    /// The bind failed or was flushed, or a later bind or a peer's invalidation has ended it.
    Over,
}

/// Why a post was refused. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full, or there is no room for another key.
    #[error("the queue is full")]
    Full,
    /// There is no such local key: the region was freed, or never existed.
    #[error("a segment's key names no registered memory")]
    Key,
    /// A segment is not inside its region, or the segments have more than 2^32-1 bytes in all, or
    /// not exactly eight for an atomic operation.
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
        /// Write access was missing.
        write: bool,
    },
    /// The request has more segments than the queue was made for, or is a receive for a queue pair
    /// that uses a shared receive queue, or the transport or the peer does not support the
    /// operation.
    #[error("the queue does not support such a request")]
    Unsupported,
}

/// A completion. `Q` names its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc<Q> {
    /// The work request's id.
    pub id: u64,
    /// The queue pair.
    pub qp: Q,
    /// The number of bytes moved. For a receive it is the message's length, or with immediate data
    /// that of the RDMA write that they came with.
    pub bytes: u32,
    /// The remote key that the peer's send invalidated here.
    pub invalidated: Option<u32>,
    /// Immediate data, which consumed a receive buffer. If they came with an RDMA write, nothing
    /// was placed in the buffer. Other implementations also send them with a message, which was
    /// placed.
    pub immediate: Option<u32>,
    /// The operation that completed.
    pub op: WcOp,
    /// The result.
    pub status: WcStatus,
}

impl<Q> Wc<Q> {
    /// The same completion with another name of its queue pair.
    #[inline]
    pub fn map_qp<R>(self, f: impl FnOnce(Q) -> R) -> Wc<R> {
        let Wc { id, qp, bytes, invalidated, immediate, op, status } = self;
        Wc { id, qp: f(qp), bytes, invalidated, immediate, op, status }
    }
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

impl WcOp {
    /// Whether the peer answers with data: the request completes with its response.
    #[inline]
    pub const fn awaits_response(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd | Self::CompareSwap)
    }
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// The request succeeded.
    Success,
    /// The request was not carried out: the connection ended first.
    Flushed,
    /// The message was longer than the buffer.
    LocalLength,
    /// The local endpoint failed.
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
