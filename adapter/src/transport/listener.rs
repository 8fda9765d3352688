//! Listeners.

use std::sync::Arc;

use crate::engine::Engine;
use crate::reactor::Reactor;

/// A listener.
pub struct Listener<E: Engine> {
    pub(super) index: usize,
    pub(super) port: u16,
    pub(super) reactor: Arc<Reactor<E>>,
}

impl<E: Engine> Drop for Listener<E> {
    fn drop(&mut self) {
        self.reactor.engine.lock().engine.close(self.index);
    }
}
