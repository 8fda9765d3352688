//! Work requests and completions: the types of the crate `work`, which programming interfaces also
//! use, and the types that refer to objects of rnic.

use std::net::IpAddr;

pub use work::{
    OpFacts, OpKind, OpSet, PostError, RecvWr, Remote, Segment, SendOp, SendWr, WcOp, WcStatus,
};

use crate::key::KeyError;
use crate::key::window::{Mw, View};

/// A completion. It names its queue pair by [`QpCfg::token`](crate::QpCfg::token).
pub type Wc = work::Wc<u64>;

/// A bind of a window. It starts when all earlier requests are done, and later requests start when
/// it is done.
#[derive(Clone, Copy)]
pub struct BindWr<'a> {
    /// The id of the bind, which its completion returns in [`Wc::id`].
    pub id: u64,
    /// The window.
    pub window: &'a Mw,
    /// The memory that the window gives access to. `None` unbinds the window.
    pub view: Option<View<'a>>,
    /// Whether success is reported. A failure is always reported.
    pub signalled: bool,
    /// Whether the bind is quiet, as in [`SendWr::quiet`].
    pub quiet: bool,
}

/// The queue pair that a datagram is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address of the host. If this is an IPv6 address that contains an IPv4 address,
    /// [`DatagramQp::next`](crate::DatagramQp::next) returns the IPv4 address.
    pub address: IpAddr,
    /// The way to the host: a number that only the owner of the socket interprets.
    pub route: u32,
    /// The number of the queue pair, 24 bits. Higher bits are ignored.
    pub qpn: u32,
    /// The key that the queue pair expects in datagrams.
    pub q_key: u32,
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug)]
pub struct DatagramWr<'a> {
    /// The id of the request, which its completion returns in [`Wc::id`].
    pub id: u64,
    /// The receiver.
    pub to: Destination,
    /// A number for the receiver's completion.
    pub immediate: Option<u32>,
    /// Local memory, in the order of transfer.
    pub segments: &'a [Segment],
    /// Whether success is reported. A failure is always reported.
    pub signalled: bool,
    /// Whether the datagram wakes a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// Whether the request is quiet, as in [`SendWr::quiet`].
    pub quiet: bool,
}

/// Converts the error of a key check. `write` says whether the post needs write access.
pub(crate) fn post_error(error: KeyError, write: bool) -> PostError {
    match error {
        KeyError::Invalid => PostError::Key,
        KeyError::Bounds | KeyError::Wrap => PostError::Bounds,
        KeyError::Domain => PostError::Domain,
        KeyError::Access => PostError::Access { write },
    }
}

/// A message of the peer that waits for a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The number of octets that the first segment or packet of the message carries. For an RDMA
    /// write with immediate data it is the number of octets written.
    pub octets: u32,
    /// Whether `octets` is the length of the whole message.
    pub whole: bool,
}
