//! The events that the program gets.

use std::net::{IpAddr, SocketAddr};

use wire::cm::{Reason, Timeout};
use wire::rocev2::{PathMtu, Psn};

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Passive: a caller requests a connection. Answer with [`Cm::accept`](super::Cm::accept) or
    /// [`Cm::reject`](super::Cm::reject).
    Request(Box<IncomingRequest>),
    /// Passive: the caller has withdrawn its request, or has not repeated the request for too long.
    /// The request no longer exists.
    Withdrawn,
    /// Passive: the caller has received the acceptance; the connection is established.
    Established,
    /// Passive: the caller never answered the acceptance, or refused it.
    AcceptFailed,
    /// Active: the peer accepts; the connection is established.
    Accepted(Box<Accepted>),
    /// Active: the peer's program rejects the request.
    Rejected {
        /// The private data of the peer's program, padded with zeros.
        private: Vec<u8>,
    },
    /// Active: the peer's adapter refuses the request. [`Reason::STALE_CONNECTION`] means that the
    /// peer believes this queue pair to be connected. In that case a call with another queue pair
    /// can succeed.
    Refused {
        /// The reason that the peer gives.
        reason: Reason,
        /// With [`Reason::INVALID_MTU`], the largest path MTU that the peer accepts, if the peer
        /// has sent it.
        path_mtu: Option<PathMtu>,
    },
    /// Active: there was no answer, although the request was repeated as often as allowed.
    Unreachable,
    /// Active: there was no answer before the program's deadline.
    TimedOut,
    /// The peer disconnects. It accepts no new requests. Until this side calls
    /// [`Cm::disconnect`](super::Cm::disconnect), the peer still answers requests that it has
    /// accepted before. Make this call when no request of this side is in flight, and soon in any
    /// case.
    Disconnecting {
        /// Whether the peer reports that the connection broke on its side.
        broke: bool,
    },
    /// Either side has ended the connection.
    Disconnected,
    /// The connection has ended, although the peer sent no DREQ: the peer no longer has the
    /// connection, or has given it up.
    Broken,
    /// A REQ or REP claims that the peer's queue pair is now in another connection. The message may
    /// be forged. Ask the peer over this connection, and call [`Cm::stale`](super::Cm::stale) if
    /// the peer does not answer.
    Stale,
    /// Passive: a REQ was refused because this side does not carry the path MTU that the caller
    /// proposes. The caller was told this side's path MTU. The event belongs to no connection, and
    /// its ID is 0.
    PathMtuRefused {
        /// The caller's address.
        from: IpAddr,
        /// The path MTU that the caller proposes. `None` if the REQ has a reserved code.
        proposed: Option<PathMtu>,
        /// The largest path MTU that this side accepts from the caller.
        largest: PathMtu,
    },
    /// No packet of the connection can be under way any more, so the queue pair number may be used
    /// again. This event comes for each queue pair number that [`Cm`](super::Cm) was given. It is
    /// the last event of its connection, and comes even if the connection was forgotten.
    Released {
        /// The queue pair number that may be used again.
        qpn: u32,
    },
}

/// A request to connect, as the passive side sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingRequest {
    /// The caller's address and port.
    pub from: SocketAddr,
    /// The address and port that the caller calls.
    pub to: SocketAddr,
    /// The caller's queue pair.
    pub qpn: u32,
    /// The PSN with which the send queue of this side starts.
    pub starting_psn: Psn,
    /// The path MTU that the caller proposes. It is not larger than [`Cfg`](super::Cfg) allows.
    pub path_mtu: PathMtu,
    /// The caller's responder resources: the maximum number of READs and atomic operations that it
    /// accepts from this side at a time.
    pub responder_resources: u8,
    /// The maximum number of READs and atomic operations that the caller wants to have outstanding.
    pub initiator_depth: u8,
    /// The time to wait for an ACK.
    pub ack_timeout: Timeout,
    /// The number of times to repeat a packet that is not acknowledged.
    pub retry_count: u8,
    /// The number of times to repeat a packet for which no receive was posted. 7 means without
    /// limit.
    pub rnr_retry_count: u8,
    /// Whether the caller's receives come from a shared receive queue.
    pub srq: bool,
    /// The private data of the caller's program, padded with zeros to 56 octets.
    pub private: Vec<u8>,
}

/// The data of a peer that accepts a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The peer's queue pair.
    pub qpn: u32,
    /// The PSN with which the send queue of this side starts.
    pub starting_psn: Psn,
    /// The peer's responder resources: the maximum number of READs and atomic operations that it
    /// accepts from this side at a time.
    pub responder_resources: u8,
    /// The maximum number of READs and atomic operations that the peer will have outstanding.
    pub initiator_depth: u8,
    /// The time that the peer takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// The number of times to repeat a packet for which no receive was posted. 7 means without
    /// limit.
    pub rnr_retry_count: u8,
    /// Whether the peer's receives come from a shared receive queue.
    pub srq: bool,
    /// The private data of the peer's program, padded with zeros to 196 octets.
    pub private: Vec<u8>,
}
