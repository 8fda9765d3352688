//! What is registered, posted and completed. The words for it are those of the crate `work`.

pub use work::{
    Access, BindState, PostError, RecvWr, Remote, Segment, SendOp, SendWr, WcOp, WcStatus,
};

use super::{Token, Transport};

/// A completion. It names its queue pair by [`QpCfg::token`](super::QpCfg::token).
pub type Wc = work::Wc<Token>;

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
