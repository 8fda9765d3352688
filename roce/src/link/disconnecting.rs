//! The state of a connection after this side has closed it, until the peer has answered the DREQ.

use rnic::rc::AckOnlyResponder;
use wire::rocev2::Packet;

use super::Conn;
use super::established::{BURSTS_PER_TURN, Established};
use crate::packet_io::Peer;
use crate::resources::EngineContext;

/// The remaining state of the connection.
pub(super) struct Disconnecting {
    pub(super) responder: AckOnlyResponder,
    pub(super) conn: Conn,
    pub(super) peer: Peer,
    /// The index of the queue pair.
    link_index: usize,
    /// Whether the queue pair is in the engine's list of queue pairs that have more to send.
    pub(super) queued: bool,
}

impl Disconnecting {
    /// Completes all posted work.
    pub(super) fn new(established: Established) -> Self {
        let Established { rc, conn, peer, link_index, queued, .. } = established;
        Disconnecting { responder: rc.into_ack_only_responder(), conn, peer, link_index, queued }
    }

    /// Handles a packet from the peer's address.
    pub(super) fn receive(&mut self, cx: &mut EngineContext<'_>, packet: &Packet<'_>) {
        self.responder.receive(packet);
        self.transmit(cx);
    }

    /// Sends answers to the requests that the peer has repeated.
    pub(super) fn transmit(&mut self, cx: &mut EngineContext<'_>) {
        for _ in 0..BURSTS_PER_TURN {
            self.responder.transmit(cx.burst_to(&self.peer));
            if !self.responder.wants_tx() {
                return;
            }
        }
        if !std::mem::replace(&mut self.queued, true) {
            cx.resources.queue_to_transmit(self.link_index);
        }
    }
}
