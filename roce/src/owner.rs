//! Who waits for what a connection manager reports: a queue pair, or a request that the consumer
//! has not answered yet.

use std::net::SocketAddr;

use rnic::cm::ConnId;
use rnic::cm::sidr::ResolveId;
use wire::cm::sidr_trailer::DatagramQp;

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The queue pair with this index in the engine.
    Link(usize),
    /// The request with this number, which the consumer has not answered yet.
    Request(u64),
}

/// A connection request that waits in a connection manager of this engine.
#[derive(Clone, Copy)]
pub(crate) struct LocalRequest {
    /// The index of the local address.
    pub(crate) local_address: usize,
    pub(crate) id: ConnId,
    /// The number of the request. Numbers are never reused.
    pub(crate) serial: u64,
}

/// The owner of a service ID resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolutionOwner {
    /// An attempt of a datagram queue pair to resolve a listener: the index of the queue pair, the
    /// program's number for the attempt, the number of the queue pair, and the listener's address.
    Attempt { link: usize, number: u64, qpn: u32, peer: SocketAddr },
    /// The request of a peer with this number, which the consumer has not answered yet.
    Request(u64),
}

/// The request of a peer that wants to send datagrams. The consumer has received the request and
/// not yet answered it.
pub struct DatagramRequest {
    /// The index of the local address.
    pub(crate) local_address: usize,
    pub(crate) id: ResolveId,
    /// The number of the request. Numbers are never reused.
    pub(crate) serial: u64,
    pub(crate) from: SocketAddr,
    /// The local address at which the request arrived.
    pub(crate) at: SocketAddr,
    pub(crate) caller: Option<DatagramQp>,
}
