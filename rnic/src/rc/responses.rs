//! Processes the peer's responses, and completes requests (IBA, section 9.7.5).

use std::time::Instant;

use wire::rocev2::{Extension, NakCode, Operation, Packet, PathMtu, Psn, RnrTimer, Syndrome};
use work::cause::{Cause, LocalUse, Octets};

use super::engine::{Failure, Path, Stats};
use super::read_requests::EarlyResponses;
use super::requester::{Requester, packets};
use crate::cause::octets;
use crate::key::{KeyError, Right};
use crate::qp::{self, Work, Wqe};
use crate::wr::{WcOp, WcStatus};

impl Requester {
    /// Processes a response. Ignores it if no request in flight matches it.
    #[inline]
    pub(super) fn receive(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        let (psn, mtu) = (packet.bth.psn, path.mtu);
        let syndrome = match packet.extension {
            Extension::Aeth(aeth) | Extension::AtomicAck(aeth, _) => aeth.syndrome,
            _ => Syndrome::ACK,
        };
        if self.challenge.is_some() && self.take_challenge_answer(now, packet, syndrome) {
            return Ok(());
        }
        if !self.is_unacknowledged(psn) {
            if self.rnr_wait.is_some() && self.repeats_last_ack(packet, syndrome) {
                self.end_receiver_wait(now);
            } else {
                stats.unexpected += 1;
            }
            return Ok(());
        }
        match (packet.bth.opcode.operation(), syndrome) {
            (Operation::Acknowledge, Syndrome::Ack { .. }) => {
                if !self.on_ack(work, mtu, psn.next(), now) {
                    self.on_missing_response(psn, now);
                }
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Rnr(timer)) => {
                self.on_rnr_nak(work, mtu, psn, timer, now, stats)
            }
            (Operation::Acknowledge, Syndrome::Nak(NakCode::SequenceError)) => {
                stats.rx_sequence_naks += 1;
                // A READ before this PSN whose response is missing is sent again, too, because
                // retransmission starts at the oldest packet.
                self.on_ack(work, mtu, psn, now);
                self.on_sequence_nak(work, mtu, psn, now);
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Nak(code)) => {
                Err(self.on_fatal_nak(work, mtu, psn, code, now))
            }
            (Operation::ReadResponse, Syndrome::Ack { .. }) => {
                self.on_read_response(work, path, now, packet)
            }
            (Operation::AtomicAcknowledge, Syndrome::Ack { .. }) => {
                self.on_atomic_response(work, mtu, now, packet)
            }
            _ => Err(self.bad_response(work)),
        }
    }

    /// Whether this is the last acknowledgement of a SEND or WRITE once more. After an RNR NAK it
    /// says that a receive buffer has been posted: see [`Responder::announce_receive`]. It may also
    /// have the PSN of a READ or an atomic operation after the message, because the responder
    /// remembers only some of them.
    ///
    /// [`Responder::announce_receive`]: super::responder::Responder::announce_receive
    fn repeats_last_ack(&self, packet: &Packet<'_>, syndrome: Syndrome) -> bool {
        let first = self.last_acknowledged();
        packet.bth.psn.is_within(first, self.oldest.psn.distance(first) as u32)
            && packet.bth.opcode.operation() == Operation::Acknowledge
            && matches!(syndrome, Syndrome::Ack { .. })
    }

    /// Handles an RNR NAK: the peer has no receive buffer for the message to which the packet
    /// belongs.
    fn on_rnr_nak(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        timer: RnrTimer,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        stats.rx_rnr_naks += 1;
        self.on_ack(work, mtu, psn, now);
        if self.rnr_wait.is_some() {
            // The RNR NAK is a copy of the one for which the requester already waits.
            return Ok(());
        }
        if !self.count_rnr_nak(timer.duration(), now) {
            let at = self.request_position(work, mtu, psn);
            let octets = message_octets(work, at);
            work.report(Cause::PeerHasNoReceive { octets, waits: false });
            work.fail(at, WcStatus::ReceiverNotReady);
            return Err(Failure::ReceiverNotReady);
        }
        if self.take_receiver_stall(now) {
            let octets = message_octets(work, self.request_position(work, mtu, psn));
            work.report(Cause::PeerHasNoReceive { octets, waits: true });
        }
        self.wait_for_receiver(now + timer.duration());
        Ok(())
    }

    /// Handles a NAK that says that a request failed at the peer.
    #[cold]
    fn on_fatal_nak(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        code: NakCode,
        now: Instant,
    ) -> Failure {
        self.on_ack(work, mtu, psn, now);
        let status = match code {
            NakCode::RemoteAccess => WcStatus::RemoteAccess,
            _ => WcStatus::RemoteResponder,
        };
        let at = self.request_position(work, mtu, psn);
        work.report(refused(code, work.request(at).map(|(wqe, _)| wqe)));
        work.fail(at, status);
        Failure::Refused(code)
    }

    #[inline]
    fn on_read_response(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        let is_oldest = self.on_ack(work, path.mtu, psn, now);
        let ahead = psn.distance(self.oldest.psn) as u32;
        let Some((wqe, segments)) =
            work.request(self.oldest.at).filter(|(wqe, _)| wqe.op == WcOp::Read)
        else {
            if !is_oldest {
                self.on_loss(psn, now);
                return Ok(());
            }
            return Err(self.bad_response(work));
        };
        let (index, packets) = (self.oldest.index + ahead, packets(wqe, path.mtu));
        if index >= packets || ahead >= EarlyResponses::BITS {
            self.on_missing_response(psn, now);
            return Ok(());
        }
        let offset = index as usize * path.mtu.octets();
        // The packet need not be a FIRST packet, because after a loss a responder may either start
        // a new response or continue the old response.
        let fits = packet.payload.len() == (wqe.len as usize - offset).min(path.mtu.octets());
        if !fits || is_oldest && !self.may_end(packet.bth.opcode.position().ends()) {
            return Err(self.bad_response(work));
        }
        let right =
            if wqe.flags & qp::TO_WINDOW != 0 { Right::RemoteWrite } else { Right::LocalWrite };
        if let Err(error) = work.scatter((work.scope(), right), segments, offset, packet.payload) {
            return Err(self.local_memory_gone(work, error));
        }
        if !is_oldest {
            self.early_responses |= 1 << ahead;
            self.timer.on_early_response(now);
            self.on_missing_response(psn, now);
            return Ok(());
        }
        let before = self.oldest;
        if self.on_oldest_response(packets, now) {
            work.done(before.at);
        }
        self.on_progress(before, now);
        if self.early_responses != 0 {
            self.on_missing_response(psn, now);
        }
        Ok(())
    }

    fn on_atomic_response(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        if !self.on_ack(work, mtu, psn, now) {
            self.on_loss(psn, now);
            return Ok(());
        }
        let is_atomic = |op| matches!(op, WcOp::FetchAdd | WcOp::CompareSwap);
        let request = work.request(self.oldest.at).filter(|(wqe, _)| is_atomic(wqe.op));
        let (Some((_, segments)), Extension::AtomicAck(_, answer)) = (request, packet.extension)
        else {
            return Err(self.bad_response(work));
        };
        // The packet carries the value as a number. Memory holds it in the processor's byte order.
        let octets = answer.original.to_ne_bytes();
        if let Err(error) = work.scatter((work.scope(), Right::LocalWrite), segments, 0, &octets) {
            return Err(self.local_memory_gone(work, error));
        }
        work.done(self.oldest.at);
        let before = self.oldest;
        self.oldest.step(1, 1);
        self.on_progress(before, now);
        Ok(())
    }

    /// Ends the connection because the response to the oldest request does not match that request.
    #[cold]
    fn bad_response(&self, work: &mut Work) -> Failure {
        work.fail(self.oldest.at, WcStatus::BadResponse);
        Failure::BadResponse
    }

    /// Ends the connection because the local memory of the oldest request is no longer registered.
    #[cold]
    fn local_memory_gone(&self, work: &mut Work, error: KeyError) -> Failure {
        work.report_local(LocalUse::Sink, error);
        work.fail(self.oldest.at, WcStatus::LocalProtection);
        Failure::Local
    }

    /// The position of the request to which a packet in flight belongs.
    fn request_position(&self, work: &Work, mtu: PathMtu, psn: Psn) -> usize {
        let mut cursor = self.oldest;
        while let Some((wqe, _)) = work.request(cursor.at) {
            let packets = packets(wqe, mtu);
            let left = packets - cursor.index;
            if psn.is_within(cursor.psn, left) || left == 0 {
                break;
            }
            cursor.step(left, packets);
        }
        cursor.at
    }
}

/// The octets of the message that is at a position of the send queue.
fn message_octets(work: &Work, at: usize) -> Option<Octets> {
    work.request(at).map(|(wqe, _)| octets(wqe.len.into(), true))
}

/// The cause that a NAK of the peer names, if it refuses this request.
fn refused(code: NakCode, request: Option<&Wqe>) -> Cause {
    match (code, request) {
        (NakCode::RemoteAccess, request) => {
            Cause::RefusedByPeer { access: request.and_then(Wqe::access), why: None }
        }
        (NakCode::InvalidRequest, Some(wqe)) => {
            Cause::InvalidAtPeer { is_message: wqe.op == WcOp::Send, octets: wqe.len }
        }
        (NakCode::RemoteOperational, _) => Cause::PeerFailed,
        (code, _) => Cause::Protocol { by_peer: true, what: code.to_string() },
    }
}
