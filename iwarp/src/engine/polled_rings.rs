//! The connections with shared memory that consumers poll.
//!
//! Reading a ring without data takes some nanoseconds. So a pass reads the rings of all connections
//! that were active lately, and their peers need not wake this side. Before a thread sleeps in the
//! poller, the peers are asked to wake it.

use super::Engine;

/// After this number of consecutive reads without data, passes leave out the ring of a connection
/// until the peer wakes this side.
const MAX_EMPTY_READS: u32 = 1000;
/// While passes read rings, every n-th pass asks the poller, which reports the other connections,
/// callers, and peers that have ended. n is this number. A pass that moves data should not ask, so
/// the call may come up to n passes later.
const PASSES_PER_POLL: u32 = 64;
/// A pass that leaves data to be read on a connection takes as long as this number of other passes,
/// and counts as this number of passes.
const PASSES_OF_BUSY_PASS: u32 = 16;

/// The connections whose rings each pass reads.
#[derive(Default)]
pub(super) struct PolledRings {
    connections: Vec<usize>,
    /// The number of passes since the poller was last asked.
    passes: u32,
}

impl PolledRings {
    /// Returns whether this pass need not ask the poller. `has_moved`: the pass has moved data.
    /// `is_busy`: a connection has more to read.
    #[inline]
    pub(super) fn spares_poller(&mut self, has_moved: bool, is_busy: bool) -> bool {
        self.passes += if is_busy { PASSES_OF_BUSY_PASS } else { 1 };
        let limit = if has_moved { 2 * PASSES_PER_POLL } else { PASSES_PER_POLL };
        let spares = self.passes < limit && !self.connections.is_empty();
        if !spares {
            self.passes = 0;
        }
        spares
    }

    /// Removes a queue pair that is freed.
    pub(super) fn remove(&mut self, index: usize) {
        self.connections.retain(|&other| other != index);
    }
}

impl Engine {
    /// Reads the rings of the active connections. Returns whether data arrived.
    #[inline]
    pub(super) fn poll_shared_memory(&mut self) -> bool {
        let mut has_moved = false;
        let mut at = 0;
        while let Some(&index) = self.polled_rings.connections.get(at) {
            let Some(link) = self.links.get_mut(index).filter(|link| link.polls_memory()) else {
                self.polled_rings.connections.swap_remove(at);
                continue;
            };
            if link.is_blocked() {
                link.continue_blocked_send(&mut self.resources, &mut self.lingering);
            }
            if link.receive(&mut self.resources, &mut self.lingering) {
                has_moved = true;
                self.partial = link.is_mid_message();
                link.empty_reads = 0;
            } else {
                link.empty_reads += 1;
                if link.empty_reads > MAX_EMPTY_READS {
                    link.let_peer_wake(&mut self.resources);
                    self.polled_rings.connections.swap_remove(at);
                    continue;
                }
            }
            at += 1;
        }
        has_moved
    }

    /// Handles an event of a connection's wake-up socket.
    pub(super) fn on_wake_up(&mut self, index: usize) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.on_wake_up(&mut self.resources, &mut self.lingering);
        self.partial = link.is_mid_message();
        self.poll_ring_of(index);
    }

    /// Makes passes read the ring of a connection that is active, unless a thread sleeps in the
    /// poller, which the peer must wake.
    #[inline]
    pub(super) fn poll_ring_of(&mut self, index: usize) {
        if let Some(link) = self.links.get_mut(index)
            && link.has_shared_memory()
            && !self.resources.context.has_sleeper()
        {
            link.empty_reads = 0;
            if link.poll_memory() {
                self.polled_rings.connections.push(index);
            }
        }
    }

    /// Asks the peers of all active connections to wake this side.
    #[inline]
    pub(super) fn let_peers_wake(&mut self) {
        while let Some(index) = self.polled_rings.connections.pop() {
            if let Some(link) = self.links.get_mut(index) {
                link.let_peer_wake(&mut self.resources);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of passes that spare the poller before one asks it.
    fn spared(rings: &mut PolledRings, has_moved: bool, is_busy: bool) -> usize {
        (0..1000).take_while(|_| rings.spares_poller(has_moved, is_busy)).count()
    }

    #[test]
    fn the_poller_is_asked_now_and_then() {
        let mut rings = PolledRings { connections: vec![3], ..PolledRings::default() };
        for _ in 0..2 {
            assert_eq!(spared(&mut rings, false, false), 63);
            assert_eq!(spared(&mut rings, true, false), 127, "a pass that moves data is put off");
            assert_eq!(spared(&mut rings, true, true), 7, "a busy pass takes longer");
        }
        rings.remove(3);
        assert_eq!(spared(&mut rings, true, false), 0, "without a ring, each pass asks");
    }
}
