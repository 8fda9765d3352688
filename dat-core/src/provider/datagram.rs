//! Unreliable datagrams: messages that a queue pair sends to any number of peers. A datagram may be
//! lost, and datagrams may arrive in another order.

use std::fmt::Display;

use super::{Segment, Transport};

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// The queue pair has a reliable connection to one peer.
    Connection,
    /// The queue pair exchanges datagrams with any number of peers.
    Datagram,
}

/// A work request that sends a datagram.
pub struct Datagram<'a, T: Transport> {
    /// The id of the request, which is returned in [`Wc::id`](super::Wc::id).
    pub id: u64,
    /// The address of the peer's adapter.
    pub address: &'a T::Address,
    /// The number of the peer's queue pair.
    pub qpn: u32,
    /// Immediate data, which the completion of the peer's receive contains.
    pub immediate: Option<u32>,
    /// Local memory, in the order of transfer. The total length is at most
    /// [`Attrs::max_datagram`](super::Attrs::max_datagram).
    pub segments: &'a [Segment],
    /// Whether success is reported. A failure is always reported.
    pub signalled: bool,
    /// Whether the message wakes a receiver that waits for solicited completions only.
    pub solicited: bool,
    /// If true, success does not wake a queue that is armed for solicited completions only.
    pub quiet: bool,
}

impl<T: Transport> Datagram<'_, T> {
    /// The number of bytes that precede each message in a receive buffer: room for the header of
    /// the network layer. [`Wc::bytes`](super::Wc::bytes) of a receive includes them.
    pub const HEADER: u32 = 40;
}

/// A queue pair of a peer.
pub struct RemoteQp<T: Transport> {
    /// The address of the peer's adapter.
    pub address: T::Address,
    /// The number of the queue pair. It is 0 if the peer has not told it.
    pub qpn: u32,
    /// The number by which the peer knows the queue pair of this side.
    pub own_qpn: u32,
}

/// The reason for which an address could not be resolved.
#[derive(Clone, Copy)]
pub enum ResolveFailure<'a> {
    /// The peer's consumer has rejected the request.
    Rejected {
        /// The peer's private data.
        private: &'a [u8],
    },
    /// The peer's provider has refused the request, for example because nothing listens there.
    Refused {
        /// The cause, for diagnosis.
        because: Option<&'a dyn Display>,
    },
    /// The peer does not answer at its address, or there is no route to it.
    Unreachable {
        /// The cause, for diagnosis. `None` if only the lack of an answer is known.
        because: Option<&'a dyn Display>,
    },
    /// The attempt has exceeded its time limit.
    TimedOut,
}
