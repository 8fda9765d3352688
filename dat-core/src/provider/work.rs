//! Memory, work requests and completions.

use super::{Token, Transport};

/// The state of a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindState {
    /// The bind is queued.
    Posted,
    /// The window is bound by it.
    Bound,
    /// The bind has failed or was flushed, or a later bind or an invalidation by the peer has ended
    /// it.
    Over,
}

/// Memory to register.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// The address of the first byte.
    pub addr: *mut u8,
    /// The length in bytes.
    pub len: usize,
    /// Whether segments and peers name its bytes by offsets from 0 instead of addresses.
    pub zero_based: bool,
}

/// The accesses that a region permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The local side may send from it.
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

/// One segment of local memory. It has the layout of `DAT_LMR_TRIPLET` (2.0).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub addr: u64,
    /// The length in bytes.
    pub len: u32,
    /// The region's local key.
    pub key: u32,
}

/// The remote memory of an RDMA operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The address of the first byte at the peer.
    pub addr: u64,
    /// The peer's remote key.
    pub key: u32,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends to the peer's next receive buffer. Optionally invalidates a remote key there.
    Send {
        /// The remote key that the peer invalidates.
        invalidate: Option<u32>,
    },
    /// Writes local segments to remote memory.
    Write(Remote),
    /// Reads remote memory into local segments. Their length determines how much is read.
    Read(Remote),
    /// The same, into memory that the segments name by remote keys of this side (of windows or
    /// regions) that permit peers to write.
    ReadToWindow(Remote),
    /// Writes local segments to remote memory. Then consumes the peer's next receive buffer, of any
    /// size, and delivers a number to its owner. This is one request, with one completion at each
    /// end.
    ///
    /// This operation and the two below fail with [`PostError::Unsupported`] if the transport or
    /// the peer does not support them.
    WriteImm {
        /// The memory to write to.
        to: Remote,
        /// The number to deliver.
        immediate: u32,
    },
    /// Adds to 64 bits of remote memory, which are aligned to 8 bytes. Their former value goes to
    /// the local segments, which have 8 bytes in total. Atomic with respect to such operations on
    /// all connections of the peer's adapter.
    FetchAdd {
        /// The target.
        at: Remote,
        /// The number to add.
        add: u64,
    },
    /// As above, but replaces the 64 bits if they have the expected value.
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
    /// Returned in [`Wc::id`].
    pub id: u64,
    /// The operation.
    pub op: SendOp,
    /// The local memory, in order.
    pub segments: &'a [Segment],
    /// Whether success is reported. A failure always is.
    pub signalled: bool,
    /// Whether it wakes a receiver that waits only for solicited completions.
    pub solicited: bool,
    /// Whether it starts only after all earlier RDMA reads and atomic operations have completed.
    pub fence: bool,
    /// Whether its success does not wake a queue that is armed for solicited completions only.
    pub quiet: bool,
}

/// The bind of a window.
pub struct BindWr<'a, T: Transport> {
    /// Returned in [`Wc::id`].
    pub id: u64,
    /// The window.
    pub window: &'a T::Mw,
    /// The memory that the window gives access to. `None` unbinds the window.
    pub view: Option<View<'a, T>>,
    /// Whether success is reported. A failure always is.
    pub signalled: bool,
    /// As [`SendWr::quiet`].
    pub quiet: bool,
}

/// The memory that a window gives access to.
pub struct View<'a, T: Transport> {
    /// The region that contains it. The region is not dropped while a window is bound to it or a
    /// bind to it is queued.
    pub region: &'a T::Mr,
    /// The first byte, named as in segments.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// What peers may do. Remote reading requires a region that may be read locally, remote writing
    /// one that may be written.
    pub access: Access,
    /// Whether peers name the bytes by offsets from 0 instead of addresses.
    pub zero_based: bool,
}

/// A receive buffer.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Returned in [`Wc::id`].
    pub id: u64,
    /// The local memory, which is filled in order.
    pub segments: &'a [Segment],
    /// As [`SendWr::quiet`], unless the sender decides
    /// ([`QpCfg::sender_wakes`](super::QpCfg::sender_wakes)).
    pub quiet: bool,
}

/// The receive buffers that belong to a queue pair and have not completed: those posted to its own
/// queue, and those its messages have taken from a shared one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Their number.
    pub buffers: usize,
    /// The number of messages from the one after the last completed message to the last message
    /// that has a buffer. It is at least `buffers`, and more only if messages are received out of
    /// order.
    pub span: usize,
}

/// Why a post was refused. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full, or there is no room for another key.
    Full,
    /// There is no such local key. The region was freed or never existed.
    Key,
    /// A segment is not inside its region.
    Bounds,
    /// The region belongs to another protection domain.
    Domain,
    /// The region does not grant the required local access: reading (`false`) or writing (`true`).
    Access {
        /// Whether write access is missing.
        write: bool,
    },
    /// The transport or the peer does not support this operation.
    Unsupported,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The work request's id.
    pub id: u64,
    /// [`QpCfg::token`](super::QpCfg::token) of the queue pair.
    pub qp: Token,
    /// The number of bytes transferred. For receives, the length of the message.
    pub bytes: u32,
    /// The remote key that the peer's send has invalidated here.
    pub invalidated: Option<u32>,
    /// Immediate data that has consumed a receive buffer. The buffer is then unchanged, and `bytes`
    /// is the length of the RDMA write.
    pub immediate: Option<u32>,
    /// The kind of the work request.
    pub op: WcOp,
    /// The result.
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

/// The result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// The work request was successful.
    Success,
    /// The work request was not carried out, because the connection ended first.
    Flushed,
    /// The message was longer than the buffer.
    LocalLength,
    /// The local endpoint failed.
    LocalEp,
    /// Local memory was not accessible as needed.
    LocalProtection,
    /// The peer's response was invalid.
    BadResponse,
    /// The peer refused the access.
    RemoteAccess,
    /// The peer could not carry out the request.
    RemoteResponder,
    /// The transport has given up.
    Transport,
    /// The peer had no receive buffer.
    ReceiverNotReady,
    /// The window could not be bound.
    BindFailed,
}
