//! The types of memory regions, work requests, completions and connections. Most of them come from
//! the crate `work`.

pub use work::cause::{self, Cause};
pub use work::{
    ATOMIC_SIZE, Access, BindState, Close, OpFacts, OpKind, PostError, ReadDepth, RecvWr, Remote,
    ResolveFailure, Segment, SendOp, SendWr, ServiceType, WcOp, WcStatus,
};

use super::{Token, Transport};

/// A completion. It contains the token of its queue pair ([`QpCfg::token`](super::QpCfg::token)).
pub type Wc = work::Wc<Token>;

/// Memory to register.
#[derive(Clone, Copy, Debug)]
pub struct Mem {
    /// The address of the first byte.
    pub addr: *mut u8,
    /// The length in bytes.
    pub len: usize,
    /// Whether segments and peers address the bytes of this memory by offsets from 0 instead of
    /// addresses.
    pub zero_based: bool,
}

/// A work request that binds a window.
pub struct BindWr<'a, T: Transport> {
    /// The id of the bind, which is returned in [`Wc::id`].
    pub id: u64,
    /// The window.
    pub window: &'a T::Mw,
    /// The memory that the window gives access to. `None` unbinds the window.
    pub view: Option<View<'a, T>>,
    /// Whether the success of the bind is reported. A failure is always reported.
    pub signalled: bool,
    /// Whether the bind is quiet, as in [`SendWr::quiet`].
    pub quiet: bool,
}

/// The memory that a window gives access to.
pub struct View<'a, T: Transport> {
    /// The region that contains the memory. The region is not dropped while a window is bound to it
    /// or a bind to it is queued.
    pub region: &'a T::Mr,
    /// The address of the first byte, or its offset if the region is addressed by offsets.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// The accesses that peers get. Remote reading requires a region that may be read locally.
    /// Remote writing requires a region that may be written locally.
    pub access: Access,
    /// Whether peers address the bytes by offsets from 0 instead of addresses.
    pub zero_based: bool,
}

/// The receive buffers of a queue pair that have not completed: the buffers that were posted to its
/// own queue, or the buffers that its messages have taken from a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// The number of buffers.
    pub buffers: usize,
    /// The number of messages after the last completed message, up to and including the last
    /// message that has a buffer. The span is at least `buffers`, and is larger only if messages
    /// are received out of order.
    pub span: usize,
}
