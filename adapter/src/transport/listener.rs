//! Listeners.

use std::sync::Arc;

use crate::engine::Engine;
use crate::reactor::Reactor;

/// Converts a connection qualifier to a port, as OFED's provider libdaplofa does.
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

impl<E: Engine> Drop for Listener<E> {
    fn drop(&mut self) {
        self.reactor.engine.lock().engine.close(self.index);
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
