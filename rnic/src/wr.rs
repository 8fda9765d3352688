//! Work requests and completions. Variant for variant the types of dat-core's provider contract, so that mapping one
//! to the other costs nothing.

use crate::key::KeyError;
use crate::key::window::{Mw, View};

/// One segment of local memory; the layout of `DAT_LMR_TRIPLET` (2.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// The region's STag. Not looked at in a segment of zero bytes.
    pub key: u32,
}

/// Remote memory of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address (tagged offset) of the first byte at the peer.
    pub addr: u64,
    /// The peer's STag.
    pub key: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Send to the peer's next receive buffer; optionally invalidating an STag there.
    Send {
        /// STag that the peer shall invalidate.
        invalidate: Option<u32>,
    },
    /// Write local segments to remote memory.
    Write(Remote),
    /// Read remote memory into local segments; the length is that of the segments.
    Read(Remote),
    /// The same, into memory that the segments name by STags of this side that let peers write there: of windows, or of
    /// regions.
    ReadToWindow(Remote),
    /// Write local segments to remote memory, then consume the peer's next receive buffer, of whatever size, and tell its
    /// owner a number. One request, one completion at each end. Needs an extended connection, see
    /// [`StreamCfg::extended`](crate::StreamCfg).
    WriteImm {
        /// Where to write to.
        to: Remote,
        /// The number.
        immediate: u32,
    },
    /// Add to 64 bits of remote memory, aligned to as many; what they held before goes to the local segments, of eight
    /// bytes in all. Atomic towards all other such operations at the peer's adapter and its processors' atomic
    /// instructions. Needs an extended connection.
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

/// Binding a window. It starts when all earlier requests are done, and later ones start when it is.
#[derive(Clone, Copy)]
pub struct BindWr<'a> {
    /// Comes back in [`Wc::id`].
    pub id: u64,
    /// The window.
    pub window: &'a Mw,
    /// What it shall show; none: nothing any more.
    pub view: Option<View<'a>>,
    /// Success is reported. A failure always is.
    pub signalled: bool,
    /// As [`SendWr::quiet`].
    pub quiet: bool,
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

/// Why a post was refused. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full, or the table of keys.
    #[error("the queue is full")]
    Full,
    /// There is no such local key.
    #[error("a segment's key names no registered memory")]
    Key,
    /// A segment not inside its region, more than 2^32-1 bytes in all, or not eight for an atomic
    /// operation.
    #[error("a segment is not inside registered memory")]
    Bounds,
    /// The region belongs to another protection domain.
    #[error("a segment's region belongs to another protection domain")]
    Domain,
    /// The region does not grant the local access needed: reading (`false`) or writing (`true`).
    #[error("a segment's region does not grant local {} access", if *write { "write" } else { "read" })]
    Access {
        /// Write access was missing.
        write: bool,
    },
    /// More segments than the queue was made for, a receive for a queue pair that uses a shared receive queue, or an
    /// operation that the peer cannot do.
    #[error("the queue does not take such a request")]
    Unsupported,
}

impl PostError {
    /// What a key did not allow; `write`: that was asked for.
    pub(crate) fn of(error: KeyError, write: bool) -> Self {
        match error {
            KeyError::Invalid => PostError::Key,
            KeyError::Bounds | KeyError::Wrap => PostError::Bounds,
            KeyError::Domain => PostError::Domain,
            KeyError::Access => PostError::Access { write },
        }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The work request's id.
    pub id: u64,
    /// [`crate::QpCfg::token`] of the queue pair.
    pub qp: u64,
    /// Bytes moved; for receives the message's length, with immediate data that of the RDMA write before them.
    pub bytes: u32,
    /// STag that the peer's send invalidated here.
    pub invalidated: Option<u32>,
    /// Immediate data that consumed a receive buffer. Nothing was placed in that if they came with an RDMA write, and not
    /// with a send, as only other implementations on InfiniBand's wire do.
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
    /// RDMA write followed by immediate data.
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
    /// Goes to the peer's request queue, and completes with its response.
    #[inline]
    pub(crate) const fn awaits_response(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd | Self::CompareSwap)
    }
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

/// A message of the peer that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Octets of it that its first segment or packet brings; of an RDMA write with immediate data, those written.
    pub octets: u32,
    /// There are no more than that.
    pub whole: bool,
}
