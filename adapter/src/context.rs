//! What an engine has of its adapter.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use capture::Capture;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::engine::Engine;
use crate::shared::SharedState;
use crate::transport::Request;

/// The poller for an engine's sockets, and the way back to its adapter.
pub struct Context<E: Engine> {
    shared: Arc<SharedState<E>>,
    registry: Registry,
    capture: Option<Capture>,
}

impl<E: Engine> Context<E> {
    pub(crate) fn new(
        shared: Arc<SharedState<E>>,
        registry: Registry,
        capture: Option<Capture>,
    ) -> Self {
        Context { shared, registry, capture }
    }

    /// The poller reports a socket from now on, edge triggered; what is there already, at once. The token may
    /// be any number but `usize::MAX`.
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

    /// The poller reports a watched socket by another name, and what is there already at once.
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

    /// The poller reports a watched socket no more, until `resume` or `rename`.
    pub fn suspend(&self, socket: &impl AsRawFd) -> io::Result<()> {
        self.registry.deregister(&mut SourceFd(&socket.as_raw_fd()))
    }

    /// The poller reports a suspended socket again, and what is there already at once.
    pub fn resume(
        &self,
        token: impl Into<Token>,
        socket: &impl AsRawFd,
        interest: Interest,
    ) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token.into(), interest)
    }

    /// The poller forgets a watched socket, which is about to be closed.
    pub fn unwatch(&self, socket: &impl AsRawFd) {
        // Fails only for one that is suspended.
        self.suspend(socket).ok();
        self.shared.sockets_changed(-1);
    }

    /// Where what the engine's sockets send and receive is to be recorded.
    pub fn capture(&self) -> Option<&Capture> {
        self.capture.as_ref()
    }

    /// Whether somebody is in the poller, or about to enter it.
    #[inline]
    pub fn has_sleeper(&self) -> bool {
        self.shared.is_asleep()
    }

    /// A request for the consumer, to go with [`Upcall::Request`](dat_core::provider::Upcall::Request). None:
    /// the adapter is being closed.
    pub fn request(&self, call: E::RequestId) -> Option<Request<E>> {
        self.shared.reactor().map(|reactor| Request::new(reactor, call))
    }
}
