//! Memory regions, work requests and completions, in the terms of the crate `work`.

pub use work::{
    Access, BindState, PostError, RecvWr, Remote, Segment, SendOp, SendWr, WcOp, WcStatus,
};

use super::{Token, Transport};

/// A completion. It names its queue pair by [`QpCfg::token`](super::QpCfg::token).
pub type Wc = work::Wc<Token>;

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

/// Binding a window.
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
    /// The address of the first byte, in the form that segments use.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// The accesses that peers get. Remote reading requires a region that may be read locally,
    /// remote writing one that may be written.
    pub access: Access,
    /// Whether peers name the bytes by offsets from 0 instead of addresses.
    pub zero_based: bool,
}

/// Receive buffers that belong to a queue pair and have not completed: those posted to its own
/// queue, and those its messages have taken from a shared one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// The number of buffers.
    pub buffers: usize,
    /// The number of messages from the one after the last completed message to the last message
    /// that has a buffer. It is at least `buffers`, and more only if messages are received out of
    /// order.
    pub span: usize,
}
