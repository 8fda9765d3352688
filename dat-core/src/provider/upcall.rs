//! The events that a transport reports, and the objects to which it reports them.

use std::fmt::Display;
use std::net::SocketAddr;

use super::{Cause, ReadDepth, RemoteQp, ResolveFailure, ServiceType, Transport};

/// An event that a transport reports.
pub enum Upcall<'a, T: Transport> {
    /// An armed completion queue has a completion.
    CqReady,
    /// A completion is lost, because its completion queue was full. All later completions of that
    /// queue are lost as well. Reported once for each queue.
    CqOverflow,
    /// A connection request arrived at a listener.
    Request {
        /// The request, to be answered through [`Queue::accept`](super::Queue::accept) or
        /// [`Transport::reject`]. A request for [`ServiceType::Datagram`] is answered through
        /// [`Queue::answer`](super::Queue::answer) instead of `accept`.
        request: T::ConnectionRequest,
        /// The service that the peer requests.
        service: ServiceType,
        /// The address of the peer.
        from: SocketAddr,
        /// The local address that the peer has connected to.
        to: SocketAddr,
        /// The peer's private data.
        private: &'a [u8],
    },
    /// The queue pair of a peer is known: an attempt of
    /// [`Queue::resolve`](super::Queue::resolve) has succeeded.
    Resolved {
        /// The number of the attempt.
        number: u64,
        /// The peer's queue pair.
        remote: RemoteQp<T>,
        /// The peer's address and port.
        peer: SocketAddr,
        /// The private data that the peer has passed when it accepted.
        private: &'a [u8],
    },
    /// An attempt of [`Queue::resolve`](super::Queue::resolve) has failed.
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
    /// The request was rejected by the peer's consumer or by the peer's provider. The provider
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
        /// What the protocol says about the end, for diagnosis. `None` if a
        /// [cause](Upcall::Cause) that was reported before says all.
        because: Option<&'a dyn Display>,
    },
    /// A message has arrived for which no receive is posted. This message and all later ones wait
    /// for a receive. The upcall is made once for each message that waits, and only for diagnosis.
    ReceiverNotReady {
        /// The number of octets of the message that have arrived or were announced.
        octets: u32,
        /// Whether `octets` is the length of the whole message.
        whole: bool,
    },
    /// The cause of a failure, or of a message that waits. A transport that knows the cause of a
    /// failure makes this upcall before the failed work completes. If it makes several such
    /// upcalls, the first failure counts.
    Cause(Cause),
    /// A shared receive queue has fewer buffers left than its low watermark.
    LowWatermark,
    /// A queue pair holds more receive buffers than its soft watermark.
    HighWatermark,
    /// The device reports that an object has failed: the adapter, a queue pair or a shared receive
    /// queue. If a queue pair has failed, another upcall reports the end of its connection.
    Failed,
    /// The adapter's port is down. No data moves until it is up again.
    PortDown,
}

/// The destination of an object's upcalls. A sink can be copied, and it is valid until the object
/// is dropped. Only transports get sinks. [`Transport`] is an unsafe trait, because its
/// implementations promise that they do not call a sink after its object was dropped.
pub struct Sink<T: Transport> {
    target: *const (),
    call: unsafe fn(*const (), Upcall<'_, T>),
}

impl<T: Transport> Sink<T> {
    /// Creates a sink that delivers upcalls to `target`.
    ///
    /// # Safety
    /// `target` outlives every object that the sink is given to, and the sink is only given to a
    /// [`Transport`].
    pub unsafe fn new<R: Receiver<T>>(target: *const R) -> Self {
        unsafe fn deliver<T: Transport, R: Receiver<T>>(target: *const (), up: Upcall<'_, T>) {
            // SAFETY: the caller of `new` guarantees that the target is alive.
            unsafe { &*target.cast::<R>() }.upcall(up);
        }
        Sink { target: target.cast(), call: deliver::<T, R> }
    }

    /// Delivers an upcall.
    pub fn call(&self, up: Upcall<'_, T>) {
        // SAFETY: the caller of `new` guarantees that the target lives as long as the object, and
        // the transport does not call the sink after the object is gone.
        unsafe { (self.call)(self.target, up) }
    }
}

/// An object that receives upcalls.
pub trait Receiver<T: Transport>: Send + Sync {
    /// Handles one upcall. The function must not block, and must not make a call on the object that
    /// the upcall is about.
    fn upcall(&self, up: Upcall<'_, T>);
}

impl<T: Transport> Clone for Sink<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Sink<T> {}
// SAFETY: the target is a `Receiver`, which is Send + Sync.
unsafe impl<T: Transport> Send for Sink<T> {}
// SAFETY: the target is a `Receiver`, which is Send + Sync.
unsafe impl<T: Transport> Sync for Sink<T> {}
