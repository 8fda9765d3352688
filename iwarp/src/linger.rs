//! Sockets of connections that have ended on this side. They stay open until the peer has read
//! everything.
//!
//! A socket that is closed with unread octets sends a RST, and the RST may overtake the last
//! messages and the TERMINATE on their way to the peer. So the socket sends a FIN, drops all octets
//! that still arrive, and is closed when the peer closes its side or [`PEER_CLOSE_TIMEOUT`]
//! expires.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use adapter::Slab;
use mio::Interest;

use crate::connection::Connection;
use crate::resources::{EngineResources, ObjectKey, Timer};
use crate::socket::{IoOutcome, is_scarce};

/// The time that the peer may take to close its side.
const PEER_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay of the FIN to a peer that is possibly not an OpenDAT. siw fails a message that the
/// peer has received if siw sees the peer's FIN before the sender has finished that message
/// (`siw_qp_sq_proc_tx` checks `tx_suspend` after each segment). The FIN may be a reaction to that
/// very message.
const FOREIGN_FIN_DELAY: Duration = Duration::from_millis(20);
/// If an adapter's engine has this many lingering sockets, it resets the socket of each caller that
/// it refuses.
const MAX_BEFORE_REFUSED: usize = 64;
/// If a peer sends more octets than this in one turn, its socket is closed.
const MAX_DROPPED_BYTES: usize = 4 << 20;

/// The sockets that linger.
#[derive(Default)]
pub(crate) struct LingeringSockets(Slab<LingeringSocket>);

struct LingeringSocket {
    socket: Connection,
    timer: Timer,
    /// The time at which the FIN is sent. `None` if it was sent.
    fin_at: Option<Instant>,
}

impl LingeringSockets {
    /// Sends a FIN on a watched socket, and lets the socket linger.
    pub(crate) fn add(&mut self, resources: &mut EngineResources, mut socket: Connection) {
        match socket.finish() {
            Ok(()) => self.take_over(resources, socket, None),
            Err(_) => resources.context.unwatch(&socket),
        }
    }

    /// Lets a watched socket linger if its peer is possibly not an OpenDAT. Sends the FIN after a
    /// delay, so that the peer can finish its last message.
    pub(crate) fn add_of_foreign_peer(
        &mut self,
        resources: &mut EngineResources,
        socket: Connection,
    ) {
        self.take_over(resources, socket, Some(Instant::now() + FOREIGN_FIN_DELAY));
    }

    /// Sends a reply that refuses the request of a watched socket, and lets the socket linger. A
    /// socket that is closed at once does not repeat a lost reply, so the caller would call again.
    /// But callers that keep their sockets open must not use up the descriptors. So the socket is
    /// reset after the reply if many sockets linger, or if the process has few descriptors left.
    pub(crate) fn add_refused(
        &mut self,
        resources: &mut EngineResources,
        mut socket: Connection,
        reply: &[u8],
    ) {
        // An empty socket buffer has room for the reply. If sending fails nevertheless, the peer
        // only sees that the connection closes.
        socket.send_bytes(reply);
        if self.0.len() >= MAX_BEFORE_REFUSED || is_scarce(socket.as_raw_fd()) {
            resources.context.unwatch(&socket);
            return socket.reset();
        }
        self.add_of_foreign_peer(resources, socket);
    }

    fn take_over(
        &mut self,
        resources: &mut EngineResources,
        socket: Connection,
        fin_at: Option<Instant>,
    ) {
        let key = ObjectKey::LingeringSocket(self.0.next_index());
        if resources.context.rename(key, &socket, Interest::READABLE).is_err() {
            resources.context.unwatch(&socket);
            return;
        }
        let mut timer = Timer::default();
        resources.set_timer(
            key,
            &mut timer,
            Some(fin_at.unwrap_or_else(|| Instant::now() + PEER_CLOSE_TIMEOUT)),
        );
        self.0.insert(LingeringSocket { socket, timer, fin_at });
    }

    /// Handles the timer of a socket.
    pub(crate) fn expire(&mut self, resources: &mut EngineResources, index: usize) {
        let Some(lingering) = self.0.get_mut(index) else { return };
        if lingering.fin_at.take().is_some() && lingering.socket.finish().is_ok() {
            let close_by = Some(Instant::now() + PEER_CLOSE_TIMEOUT);
            return resources.set_timer(
                ObjectKey::LingeringSocket(index),
                &mut lingering.timer,
                close_by,
            );
        }
        self.close(resources, index);
    }

    /// Drops the octets that have arrived.
    pub(crate) fn readable(&mut self, resources: &mut EngineResources, index: usize) {
        let Some(lingering) = self.0.get_mut(index) else { return };
        let mut dropped = 0;
        let mut octets = [0; 16 << 10];
        while dropped < MAX_DROPPED_BYTES {
            match lingering.socket.receive_bytes(&mut octets) {
                IoOutcome::Octets(n @ 1..) => dropped += n,
                IoOutcome::WouldBlock => return,
                IoOutcome::Octets(0) | IoOutcome::Fault | IoOutcome::Failed(_) => break,
            }
        }
        // The peer has closed its side, the connection has failed, or the peer sends too much.
        self.close(resources, index);
    }

    /// Closes a lingering socket.
    pub(crate) fn close(&mut self, resources: &mut EngineResources, index: usize) {
        if let Some(mut lingering) = self.0.remove(index) {
            resources.set_timer(ObjectKey::LingeringSocket(index), &mut lingering.timer, None);
            resources.context.unwatch(&lingering.socket);
        }
    }
}

impl Drop for LingeringSockets {
    /// Waits for the delay of each FIN that was not sent yet, because dropping the sockets closes
    /// them.
    fn drop(&mut self) {
        if let Some(at) = self.0.iter().filter_map(|lingering| lingering.fin_at).max() {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        }
    }
}
