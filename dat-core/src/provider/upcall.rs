//! What a transport reports, and to whom.

use std::fmt::Display;
use std::net::SocketAddr;

use super::{ReadDepth, Transport};

/// What happened below.
pub enum Upcall<'a, T: Transport> {
    /// An armed completion queue has a completion.
    CqReady,
    /// A completion queue had no room: this completion is lost, and so are all that follow. Told once.
    CqOverflow,
    /// A connection request arrived at a listener.
    Request {
        /// Answer it through [`Queue::accept`](super::Queue::accept) or [`Transport::reject`].
        request: T::Request,
        /// The peer.
        from: SocketAddr,
        /// The address it called.
        to: SocketAddr,
        /// Its private data.
        private: &'a [u8],
    },
    /// The connection is up.
    Established {
        /// Private data of the peer's accept (active side; empty on the passive side).
        private: &'a [u8],
        /// The peer, with its port.
        peer: SocketAddr,
        /// The local address, with its port.
        local: SocketAddr,
        /// Read depths agreed on.
        depth: ReadDepth,
    },
    /// Refused: by the peer's consumer, or by its provider (no listener, full backlog).
    Rejected {
        /// The peer's consumer said no.
        by_peer: bool,
        /// Its private data.
        private: &'a [u8],
    },
    /// Nobody answers at this address, or there is no way to it.
    Unreachable {
        /// Why, for who looks for the cause; none: the peer's silence is all that is known.
        because: Option<&'a dyn Display>,
    },
    /// The attempt took longer than allowed.
    TimedOut,
    /// Establishment failed after the request had been accepted.
    AcceptFailed,
    /// The connection was ended by either side in order.
    Disconnected,
    /// The connection was lost, or an error ended it.
    Broken {
        /// What it was, for who looks for the cause.
        because: &'a dyn Display,
    },
    /// A message has come for which no receive is posted: it waits for one, and all behind it does. Told once for each that
    /// waits, to who looks for the cause; nothing follows from it.
    ReceiverNotReady {
        /// Octets of it that have come, or been announced.
        octets: u32,
        /// There are no more than that.
        whole: bool,
    },
    /// A shared receive queue fell below its watermark.
    LowWatermark,
    /// A queue pair holds more receive buffers than its soft watermark says.
    HighWatermark,
    /// The device says that the object has failed: the adapter, a queue pair (the end of its connection is told besides) or a
    /// shared receive queue.
    Failed,
    /// The adapter's port is down: nothing moves until it is up again.
    PortDown,
}

/// Where an object's upcalls go. Copied freely; valid until the object is dropped. [`Transport`] is an unsafe
/// trait because its implementations promise not to call a sink after that, and nobody else is given one.
pub struct Sink<T: Transport> {
    target: *const (),
    call: unsafe fn(*const (), Upcall<'_, T>),
}

impl<T: Transport> Sink<T> {
    /// A sink that delivers to `R`.
    ///
    /// # Safety
    /// `target` outlives every object that the sink is handed to, and the sink is handed to nobody but a
    /// [`Transport`].
    pub unsafe fn new<R: Receiver<T>>(target: *const R) -> Self {
        unsafe fn deliver<T: Transport, R: Receiver<T>>(target: *const (), up: Upcall<'_, T>) {
            // SAFETY: `new` promised that the target is alive.
            unsafe { &*target.cast::<R>() }.upcall(up);
        }
        Sink { target: target.cast(), call: deliver::<T, R> }
    }

    /// Delivers an upcall.
    pub fn call(&self, up: Upcall<'_, T>) {
        // SAFETY: `new` promised that the target lives as long as the object, and the transport that no call
        // is made later.
        unsafe { (self.call)(self.target, up) }
    }
}

/// What takes upcalls.
pub trait Receiver<T: Transport>: Send + Sync {
    /// Takes one. Must not block and must not call the object it is about.
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
// SAFETY: as above.
unsafe impl<T: Transport> Sync for Sink<T> {}
