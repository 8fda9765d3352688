//! What an engine may use of its adapter.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock, Weak};

use capture::Capture;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::adapter::UnusedQps;
use crate::connection_request::{Backlog, ConnectionRequest};
use crate::engine_shared::EngineShared;
use crate::progress::MakeProgress;
use crate::reactor::Reactor;

/// Makes a thread run an engine soon, because another engine of its adapter has work for it.
pub struct EngineWaker(Box<dyn Fn() + Send + Sync>);

impl EngineWaker {
    /// Makes a waker that calls this function.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        EngineWaker(Box::new(wake))
    }

    /// Wakes the thread that sleeps in the engine's poller. If no thread does, the next thread that
    /// enters the poller does not sleep.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// What an engine may use of its adapter: the poller for its sockets, the capture file, and the
/// creation of connection requests.
pub struct Context<E: MakeProgress> {
    shared: Arc<EngineShared<E::RequestData>>,
    registry: Registry,
    capture: Option<Capture>,
    /// The reactor of the adapter. The cell is empty until the adapter is open.
    reactor: Arc<OnceLock<Weak<Reactor<E>>>>,
    unused: UnusedQps,
}

impl<E: MakeProgress> Context<E> {
    pub(crate) fn new(
        shared: Arc<EngineShared<E::RequestData>>,
        registry: Registry,
        capture: Option<Capture>,
        reactor: Arc<OnceLock<Weak<Reactor<E>>>>,
        unused: UnusedQps,
    ) -> Self {
        Context { shared, registry, capture, reactor, unused }
    }

    /// The number of queue pairs of the adapter that could accept a connection.
    pub fn unused_qps(&self) -> &UnusedQps {
        &self.unused
    }

    /// Makes the poller report a socket from now on, edge triggered. Events that are already
    /// pending are reported at once. The token may be any number except `usize::MAX`.
    pub fn watch(
        &self,
        token: impl Into<Token>,
        socket: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        self.resume(token, socket, interest)?;
        self.shared.sockets_changed(1);
        Ok(())
    }

    /// Watches a socket that another engine of the adapter has watched until now. If that fails,
    /// the socket is suspended.
    pub fn adopt(
        &self,
        token: impl Into<Token>,
        socket: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        self.shared.sockets_changed(1);
        self.resume(token, socket, interest)
    }

    /// Changes the token by which the poller reports a watched socket, and resumes a suspended
    /// socket. Events that are already pending are reported at once.
    pub fn rename(
        &self,
        token: impl Into<Token>,
        socket: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        let token = token.into();
        match self.registry.reregister(&mut SourceFd(&socket.as_raw_fd()), token, interest) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.resume(token, socket, interest),
            result => result,
        }
    }

    /// Makes the poller stop reporting a watched socket until `resume` or `rename` is called.
    pub fn suspend(&self, socket: &impl AsRawFd) -> io::Result<()> {
        self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()))
    }

    /// Makes the poller report a suspended socket again. Events that are already pending are
    /// reported at once.
    pub fn resume(
        &self,
        token: impl Into<Token>,
        socket: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token.into(), interest)
    }

    /// Removes a watched socket from the poller. The caller closes the socket afterwards.
    pub fn unwatch(&self, socket: &impl AsRawFd) {
        // The removal fails only for a suspended socket, because the poller does not have it.
        self.suspend(socket).ok();
        self.shared.sockets_changed(-1);
    }

    /// The file that records what the engine's sockets send and receive, if there is one.
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// What makes a thread run the engine soon.
    pub fn waker(&self) -> EngineWaker {
        let shared = Arc::clone(&self.shared);
        EngineWaker::new(move || shared.wake())
    }

    /// Returns whether a thread is asleep in the poller or about to be.
    #[inline]
    pub fn has_sleeper(&self) -> bool {
        self.shared.is_asleep()
    }

    /// Creates a connection request, which the engine passes to the consumer with
    /// [`Event::Request`](crate::Event::Request).
    ///
    /// The request occupies one place in `backlog` until the consumer answers the request. An
    /// engine that counts requests itself passes `None`. If the backlog is full or the adapter is
    /// being closed, the function returns `connection_request` as the error.
    pub fn request(
        &self,
        backlog: Option<&Backlog>,
        request: E::RequestData,
    ) -> Result<ConnectionRequest<E>, E::RequestData> {
        match self.reactor.get().and_then(Weak::upgrade) {
            Some(reactor) => ConnectionRequest::new(reactor, backlog, request),
            None => Err(request),
        }
    }
}
