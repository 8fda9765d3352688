//! The end of an engine.

use std::time::Instant;

use adapter::{MakeProgress, Remaining};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Engine;
use crate::resources::SocketKey;
use crate::unsent_batches;

impl Engine {
    /// Waits until peers have answered the DREQs of abrupt disconnects, up to their deadline. After
    /// the end of this process, no process would repeat a lost DREQ, and a peer with nothing to
    /// send would wait forever.
    pub(super) fn await_disconnects(&mut self) {
        loop {
            self.advance();
            self.flush();
            let now = Instant::now();
            let until = self
                .local_addresses
                .iter()
                .filter_map(|local_address| local_address.cm.disconnecting_until())
                .max();
            let Some(until) = until.filter(|&until| until > now) else { return };
            let Remaining { at_once, deadline } = self.remaining();
            let next =
                if at_once { now } else { deadline.map_or(until, |deadline| deadline.min(until)) };
            let limit = Timespec::try_from(next.saturating_duration_since(now)).unwrap_or_default();
            let (mut keys, mut fds) = (Vec::new(), Vec::new());
            for (local_address, at) in self.local_addresses.iter().enumerate() {
                keys.push(SocketKey::Socket(local_address));
                fds.push(PollFd::new(&at.port.socket, PollFlags::IN));
                for (number, local_peer) in at.local_peers.indices().zip(at.local_peers.iter()) {
                    keys.push(SocketKey::LivenessConnection { local_address, number });
                    fds.push(PollFd::new(&local_peer.liveness, PollFlags::IN));
                }
            }
            // The call fails only if a signal interrupts it. The failure is ignored, because the
            // next iteration does the work that is due.
            rustix::event::poll(&mut fds, Some(&limit)).ok();
            let seen = keys.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
            let seen: Vec<SocketKey> = seen.map(|(key, _)| key).collect();
            let now = Instant::now();
            for key in seen {
                match key {
                    SocketKey::LivenessConnection { local_address, number } => {
                        self.on_local_peer_ended(local_address, number, now)
                    }
                    key => self.read_all(key),
                }
            }
        }
    }
}

impl Drop for Engine {
    /// Waits for disconnects, then sends the packets that are still in the emulated network or wait
    /// for room.
    fn drop(&mut self) {
        self.await_disconnects();
        let latest = Instant::now() + unsent_batches::WAIT_MAX;
        for local_address in &mut self.local_addresses {
            local_address.packet_io.drain_network();
            local_address.packet_io.drain_unsent(latest, |_, at| {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                Instant::now()
            });
        }
    }
}
