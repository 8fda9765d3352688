//! What is registered, posted and completed.

use super::{Token, Transport};

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
    /// There is no such local key: the region was freed, or never was.
    Key,
    /// A segment is not inside its region.
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
    /// [`QpCfg::token`](super::QpCfg::token) of the queue pair.
    pub qp: Token,
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
