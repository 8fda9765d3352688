//! The remainder of a connection that this end has closed. It repeats acknowledgements and
//! responses that the peer may have missed, until the peer knows of the end.
//!
//! The end that closes a connection has received all that it waited for, but its last
//! acknowledgements may be lost. Without them the peer would report requests as failed although
//! they were carried out.

use wire::rocev2::{Bth, Packet};

use super::burst::Burst;
use super::responder::Responder;
use super::types::Path;
use crate::qp::Work;

/// A responder that accepts no new requests, and answers again when a request is repeated. It is
/// used under the engine lock.
pub struct AckOnlyResponder {
    work: Work,
    path: Path,
    responder: Responder,
}

impl AckOnlyResponder {
    pub(super) fn new(mut work: Work, path: Path, mut responder: Responder) -> Self {
        work.flush();
        responder.stop_accepting();
        AckOnlyResponder { work, path, responder }
    }

    /// Processes a packet for this queue pair, as
    /// [`ReliableConnection::receive`](super::ReliableConnection::receive) does. A new request is
    /// neither carried out nor answered.
    pub fn receive(&mut self, packet: &Packet<'_>) {
        if packet.bth.opcode.is_request() && Bth::same_partition(packet.bth.p_key, self.path.p_key)
        {
            self.responder.receive_duplicate(&self.path, packet);
        }
    }

    /// Whether [`transmit`](Self::transmit) would add a packet.
    pub fn wants_tx(&self) -> bool {
        self.responder.is_ready() || self.responder.owes_ack()
    }

    /// Adds repeated answers to the burst, as many as are due and fit.
    pub fn transmit(&mut self, burst: &mut Burst) {
        if self.responder.transmit(&self.work, &self.path, burst, 0).is_err() {
            // Do not answer READs that are pending, because their memory is no longer registered.
            self.responder.clear_pending();
        }
        self.responder.acknowledge(&self.path, burst);
    }

    /// Completes the work that was posted since the last flush as flushed.
    pub fn flush(&mut self) {
        self.work.flush();
    }

    /// The half of the queue pair that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Ends the responder. From now on no packet is answered.
    pub fn into_work(self) -> Work {
        self.work
    }
}
