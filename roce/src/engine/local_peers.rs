//! Handles peer adapters on this host. The kernel reports when the process of such a peer ends.

use std::time::Instant;

use mio::Interest;

use super::Engine;
use crate::local_address::LocalPeer;
use crate::resources::{EngineContext, SocketKey};
use crate::shared_port::slot_of;

impl Engine {
    /// Accepts the connections by which peers on this host notice when this adapter's process ends.
    pub(super) fn accept_liveness_connections(&mut self, local_address: usize) {
        let Engine { local_addresses, resources, .. } = self;
        let Some(at) = local_addresses.get_mut(local_address) else { return };
        at.port.liveness.accept(|watcher, socket| {
            resources.context.watch(
                SocketKey::LivenessWatcher { local_address, watcher },
                socket,
                Interest::READABLE,
            )
        });
    }

    /// Handles the end of a peer adapter on this host. The peer has sent no DREQ if it was killed.
    /// The peer may have sent other packets before it ended, so one turn of reads comes first.
    pub(super) fn on_local_peer_ended(&mut self, index: usize, number: usize, now: Instant) {
        self.read_all(SocketKey::Socket(index));
        let Engine { local_addresses, links, resources, .. } = self;
        let Some(local_address) = local_addresses.get_mut(index) else { return };
        let Some(LocalPeer { address, slot, liveness }) = local_address.local_peers.remove(number)
        else {
            return;
        };
        resources.context.unwatch(&liveness);
        let all: Vec<usize> = links.indices().collect();
        for link in all {
            if let Some(link) = links.get_mut(link)
                && link.local_address() == Some(index)
                && link.is_connected_to(address, slot)
            {
                link.on_peer_gone(&mut EngineContext { local_address, resources, now });
            }
        }
        // Connections that have lost their queue pair may still wait for the answer to their DREQ.
        // The adapter that ended will not answer it.
        local_address.cm.peers_are_gone(now, |ip, id| ip == address && slot_of(id.0) == slot);
        self.process_cm_events(index, now);
    }
}
