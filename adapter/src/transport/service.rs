//! Listeners and connection requests.

use std::sync::Arc;

use crate::engine::Engine;
use crate::reactor::Reactor;

/// Converts a connection qualifier to a port, as libdaplofa does.
pub fn port(qualifier: u64) -> u16 {
    match u16::try_from(qualifier) {
        Ok(port) => port,
        Err(_) => (qualifier % 32001 + 33534) as u16,
    }
}

/// A listener.
pub struct Listener<E: Engine> {
    pub(super) index: usize,
    pub(super) port: u16,
    pub(super) reactor: Arc<Reactor<E>>,
}

/// A connection request that the consumer has not answered.
pub struct Request<E: Engine> {
    pub(super) call: E::RequestId,
    pub(super) answered: bool,
    pub(super) reactor: Arc<Reactor<E>>,
}

impl<E: Engine> Drop for Listener<E> {
    fn drop(&mut self) {
        self.reactor.engine.lock().engine.close(self.index);
    }
}

impl<E: Engine> Request<E> {
    pub(crate) fn new(reactor: Arc<Reactor<E>>, call: E::RequestId) -> Self {
        Request { call, answered: false, reactor }
    }
}

impl<E: Engine> Drop for Request<E> {
    /// Refuses a request that was not answered. The drop may happen inside an upcall, where this
    /// thread holds the engine lock. Then the thread finds the deferred refusal before it releases
    /// the lock.
    fn drop(&mut self) {
        if !self.answered {
            self.reactor.shared.refuse(self.call);
            self.reactor.engine.run_or_delegate();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_map_to_ports() {
        assert_eq!(port(0xFFFF), 0xFFFF);
        assert_eq!(port(0x1_0000), (0x1_0000 % 32001 + 33534) as u16);
        assert!((33534..=65534).contains(&port(u64::MAX)));
    }
}
