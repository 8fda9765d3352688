//! The events that an engine reports, and where it reports them.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use work::cause::Cause;
use work::{ReadDepth, ResolveFailure, ServiceType};

use crate::connection_request::ConnectionRequest;
use crate::progress::MakeProgress;

/// An event of a queue pair or of a listener.
pub enum Event<'a, E: MakeProgress> {
    /// A connection request arrived at a listener.
    Request {
        /// The request, to be answered by [`Qp::accept`](crate::Qp::accept) or
        /// [`Adapter::reject`](crate::Adapter::reject). A request for [`ServiceType::Datagram`] is
        /// answered by [`Qp::answer`](crate::Qp::answer) instead of `accept`.
        request: ConnectionRequest<E>,
        /// The service that the peer requests.
        service: ServiceType,
        /// The address of the peer.
        from: SocketAddr,
        /// The local address that the peer has connected to.
        to: SocketAddr,
        /// The peer's private data.
        private: &'a [u8],
    },
    /// The queue pair of a peer is known: an attempt of [`Qp::resolve`](crate::Qp::resolve) has
    /// succeeded.
    Resolved {
        /// The number of the attempt.
        number: u64,
        /// The peer's queue pair.
        remote: RemoteQp,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The private data that the peer has passed when it accepted.
        private: &'a [u8],
    },
    /// An attempt of [`Qp::resolve`](crate::Qp::resolve) has failed.
    Unresolved {
        /// The number of the attempt.
        number: u64,
        /// The reason.
        why: ResolveFailure<'a>,
    },
    /// The connection is established.
    Established {
        /// The private data that the peer has passed when it accepted. Empty on the passive side.
        private: &'a [u8],
        /// The peer's address and port.
        peer: SocketAddr,
        /// The local address and port.
        local: SocketAddr,
        /// The negotiated read depths.
        depth: ReadDepth,
    },
    /// The request was rejected by the peer's consumer or by the peer's adapter. The adapter
    /// rejects a request if it has no listener or if its backlog is full.
    Rejected {
        /// Whether the peer's consumer has rejected the request.
        by_peer: bool,
        /// The peer's private data.
        private: &'a [u8],
    },
    /// The peer does not answer at its address, or there is no route to it.
    Unreachable {
        /// The cause, for diagnosis. `None` if only the lack of an answer is known.
        because: Option<&'a dyn Display>,
    },
    /// The attempt to connect has exceeded its time limit.
    TimedOut,
    /// The connection could not be established after the request had been accepted.
    AcceptFailed,
    /// One of the sides has disconnected in an orderly way.
    Disconnected,
    /// The connection was lost, or an error has ended it.
    Broken {
        /// What the protocol says about the end, for diagnosis. `None` if a [cause](Event::Cause)
        /// that was reported before says all.
        because: Option<&'a dyn Display>,
    },
    /// A message has arrived for which no receive is posted. This message and all later ones wait
    /// for a receive. The event is reported once for each message that waits, and only for
    /// diagnosis.
    ReceiverNotReady {
        /// The number of octets of the message that have arrived or were announced.
        octets: u32,
        /// Whether `octets` is the length of the whole message.
        whole: bool,
    },
    /// The cause of a failure, or of a message that waits. An engine that knows the cause of a
    /// failure reports it before the failed work completes. If it reports several causes, the first
    /// failure counts.
    Cause(Cause),
}

/// The receiver of the events of one queue pair or listener. An engine drops all copies when the
/// object is removed.
pub struct Sink<E: MakeProgress>(Arc<Receive<E>>);

type Receive<E> = dyn Fn(Event<'_, E>) + Send + Sync;

impl<E: MakeProgress> Sink<E> {
    /// Creates a sink that passes each event to a function. The engine calls the function under its
    /// lock, so the function must not call the adapter or its objects, except for
    /// [`Adapter::interrupt`](crate::Adapter::interrupt). It may drop a request.
    pub fn new(receive: impl Fn(Event<'_, E>) + Send + Sync + 'static) -> Self {
        Sink(Arc::new(receive))
    }

    /// Reports an event.
    pub fn call(&self, event: Event<'_, E>) {
        (self.0)(event);
    }
}

impl<E: MakeProgress> Clone for Sink<E> {
    fn clone(&self) -> Self {
        Sink(Arc::clone(&self.0))
    }
}

/// The address of a peer's adapter, to which datagrams are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The IP address.
    pub ip: IpAddr,
    /// The way to the peer, as a number that only the engine understands.
    pub route: u32,
    /// The key that the peer's queue pair expects in datagrams.
    pub q_key: u32,
}

/// A queue pair of a peer, to which datagrams are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteQp {
    /// The address of the peer's adapter.
    pub address: PeerAddress,
    /// The number of the queue pair. It is 0 if the peer has not told it.
    pub qpn: u32,
    /// The number by which the peer knows the queue pair of this side.
    pub own_qpn: u32,
}
