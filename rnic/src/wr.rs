//! Work requests and completions: those of the crate `work`, which dat-core uses too, and what has to do
//! with rnic's own objects.

pub use work::{PostError, RecvWr, Remote, Segment, SendOp, SendWr, WcOp, WcStatus};

use crate::key::KeyError;
use crate::key::window::{Mw, View};

/// A completion. It names its queue pair by [`QpCfg::token`](crate::QpCfg::token).
pub type Wc = work::Wc<u64>;

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

/// The error of a post whose key does not allow it. `write`: the post needs write access.
pub(crate) fn post_error(error: KeyError, write: bool) -> PostError {
    match error {
        KeyError::Invalid => PostError::Key,
        KeyError::Bounds | KeyError::Wrap => PostError::Bounds,
        KeyError::Domain => PostError::Domain,
        KeyError::Access => PostError::Access { write },
    }
}

/// A message of the peer that waits for a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Octets of it that its first segment or packet brings; of an RDMA write with immediate data, those written.
    pub octets: u32,
    /// There are no more than that.
    pub whole: bool,
}
