//! What the consumer is told.

use std::net::SocketAddr;

use wire::cm::{Reason, Timeout};
use wire::rocev2::{PathMtu, Psn};

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Passive: somebody calls. Answer with [`Cm::accept`](super::Cm::accept) or [`Cm::reject`](super::Cm::reject).
    Request(Box<Request>),
    /// Passive: the caller is not interested any more, or has not been heard of for too long. The request is gone.
    Withdrawn,
    /// Passive: the caller has seen the acceptance; the connection is up.
    Established,
    /// Passive: the caller never answered to the acceptance, or refused it.
    AcceptFailed,
    /// Active: the peer accepts; the connection is up.
    Accepted(Box<Accepted>),
    /// Active: the peer's consumer rejects.
    Rejected {
        /// Its private data, filled up with zeros.
        private: Vec<u8>,
    },
    /// Active: the peer's adapter refuses. With [`Reason::STALE_CONNECTION`], it believes that this queue pair is
    /// connected: another will do.
    Refused {
        /// Why.
        reason: Reason,
        /// With [`Reason::INVALID_MTU`]: the largest that the peer would take, if it said so.
        path_mtu: Option<PathMtu>,
    },
    /// Active: nobody answers, as often as the request is repeated.
    Unreachable,
    /// Active: there was no answer within the consumer's time.
    TimedOut,
    /// The peer disconnects. It takes nothing new, but goes on answering what it has taken, until it is answered by
    /// [`Cm::disconnect`](super::Cm::disconnect): call that when nothing is in flight, soon in any case.
    Disconnecting {
        /// It says that the connection broke on its side.
        broke: bool,
    },
    /// The connection was ended by either side.
    Disconnected,
    /// The peer has left the connection without ending it.
    Broken,
    /// Somebody says that the peer's queue pair is in another connection by now, which may be forged. Ask the peer over
    /// this connection, and call [`Cm::stale`](super::Cm::stale) if it does not answer.
    Stale,
    /// Nothing that belongs to the connection can be under way any more: the queue pair number may be used again. It
    /// is told of each queue pair number that [`Cm`](super::Cm) was given, last and even of a connection that was
    /// forgotten.
    Released {
        /// Which.
        qpn: u32,
    },
}

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller, with its port.
    pub from: SocketAddr,
    /// Whom it calls.
    pub to: SocketAddr,
    /// Its queue pair.
    pub qpn: u32,
    /// The PSN with which our send queue starts.
    pub starting_psn: Psn,
    /// What it proposes; not above what [`Cfg`](super::Cfg) says.
    pub path_mtu: PathMtu,
    /// READs and atomics that it holds at most.
    pub responder_resources: u8,
    /// READs and atomics that it would have outstanding.
    pub initiator_depth: u8,
    /// How long to wait for an ACK.
    pub ack_timeout: Timeout,
    /// How often to repeat a packet that is not acknowledged.
    pub retry_count: u8,
    /// How often to repeat a packet for which there was no receive; 7: for ever.
    pub rnr_retry_count: u8,
    /// Its receives come from a shared queue.
    pub srq: bool,
    /// Its consumer's private data, filled up with zeros to 56 octets.
    pub private: Vec<u8>,
}

/// A peer that accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its queue pair.
    pub qpn: u32,
    /// The PSN with which our send queue starts.
    pub starting_psn: Psn,
    /// READs and atomics that it holds at most.
    pub responder_resources: u8,
    /// READs and atomics that it will have outstanding.
    pub initiator_depth: u8,
    /// How long it takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// How often to repeat a packet for which there was no receive; 7: for ever.
    pub rnr_retry_count: u8,
    /// Its receives come from a shared queue.
    pub srq: bool,
    /// Its consumer's private data, filled up with zeros to 196 octets.
    pub private: Vec<u8>,
}
