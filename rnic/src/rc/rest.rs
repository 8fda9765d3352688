//! What is left of a connection that this side has ended, until the peer knows of the end: the answers that it may have missed.
//!
//! Whoever ends a connection has had all that it asked for, but its last answers may be lost. Without them the peer would take
//! for undone what was done.

use wire::rocev2::{Bth, Packet};

use super::burst::Burst;
use super::engine::Path;
use super::responder::Responder;
use crate::qp::Work;

/// A responder that takes nothing new, and repeats its answers when it is asked again. Under the engine lock.
pub struct Rest {
    work: Work,
    path: Path,
    responder: Responder,
}

impl Rest {
    pub(super) fn new(mut work: Work, path: Path, mut responder: Responder) -> Self {
        work.flush();
        responder.leave();
        Rest { work, path, responder }
    }

    /// Takes a packet of this queue pair, as [`Rc::receive`](super::Rc::receive) does. What it asks for anew is not done, and
    /// not answered.
    pub fn receive(&mut self, packet: &Packet<'_>) {
        if packet.bth.opcode.is_request() && Bth::same_partition(packet.bth.p_key, self.path.p_key)
        {
            self.responder.receive_again(&self.path, packet);
        }
    }

    /// Whether [`transmit`](Self::transmit) would add something.
    pub fn wants_tx(&self) -> bool {
        self.responder.is_ready() || self.responder.owes_ack()
    }

    /// Adds answers that are asked for again to a burst, as many as it takes.
    pub fn transmit(&mut self, burst: &mut Burst) {
        if self.responder.transmit(&self.work, &self.path, burst, 0).is_err() {
            // The memory that a READ is to show is registered no more.
            self.responder.abandon();
        }
        self.responder.acknowledge(&self.path, burst);
    }

    /// Completes as flushed what has been posted since.
    pub fn flush(&mut self) {
        self.work.flush();
    }

    /// The queue pair's half that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Ends it: from now on nothing is answered.
    pub fn into_work(self) -> Work {
        self.work
    }
}
