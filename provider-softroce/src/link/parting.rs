//! A connection that this side has ended, as long as the peer has not answered to that.

use rnic::rc::AckOnlyResponder;
use wire::rocev2::Packet;

use super::up::{BURSTS, Up};
use super::{Conn, Tools};
use crate::line::Peer;

/// What is left of it.
pub(super) struct Parting {
    pub(super) rest: AckOnlyResponder,
    pub(super) conn: Conn,
    pub(super) peer: Peer,
    /// The queue pair.
    link: usize,
    /// It is in the kit's list of those who have more to send.
    pub(super) queued: bool,
}

impl Parting {
    /// Completes all that is posted.
    pub(super) fn new(up: Up) -> Self {
        let Up { rc, conn, peer, link, queued, .. } = up;
        Parting { rest: rc.into_ack_only_responder(), conn, peer, link, queued }
    }

    /// A packet for it has come, from its peer's address.
    pub(super) fn receive(&mut self, tools: &mut Tools<'_>, packet: &Packet<'_>) {
        self.rest.receive(packet);
        self.transmit(tools);
    }

    /// Sends what the peer has asked for again.
    pub(super) fn transmit(&mut self, tools: &mut Tools<'_>) {
        for _ in 0..BURSTS {
            self.rest.transmit(&mut tools.kit.burst);
            tools.station.send(&self.peer, &mut tools.kit.burst, tools.now);
            if !self.rest.wants_tx() {
                return;
            }
        }
        if !std::mem::replace(&mut self.queued, true) {
            tools.kit.again.push(self.link);
        }
    }
}
