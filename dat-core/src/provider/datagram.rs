//! Unreliable datagrams: messages that a queue pair sends to any number of peers. A datagram may be
//! lost, and datagrams may arrive in another order.

use super::{Segment, Transport};

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
