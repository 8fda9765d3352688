//! Listeners.

use std::sync::Arc;

use crate::engine::Engine;
use crate::reactor::Reactor;

/// A listener for connection requests. Dropping it closes it.
pub struct Listener<E: Engine> {
    pub(super) index: usize,
    pub(super) port: u16,
    pub(super) reactor: Arc<Reactor<E>>,
}

impl<E: Engine> Listener<E> {
    /// The port of the listener. It is not 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl<E: Engine> Drop for Listener<E> {
    fn drop(&mut self) {
        self.reactor.engine.lock().engine.close(self.index);
    }
}
