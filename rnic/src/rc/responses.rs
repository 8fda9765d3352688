//! From the peer's answers to completions (IBA, section 9.7.5).

use std::time::Instant;

use wire::rocev2::{Extension, NakCode, Operation, Packet, PathMtu, Psn, RnrTimer, Syndrome};

use super::engine::{Failure, Path, Stats};
use super::requester::{Requester, packets};
use crate::key::Right;
use crate::qp::{self, Work};
use crate::wr::{WcOp, WcStatus};

impl Requester {
    /// Takes a response. One that answers nothing in flight changes nothing.
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
        if self.challenge.is_some() && self.is_mere_answer(now, packet, syndrome) {
            return Ok(());
        }
        if !self.is_awaited(psn) {
            stats.unexpected += 1;
            return Ok(());
        }
        match (packet.bth.opcode.operation(), syndrome) {
            (Operation::Acknowledge, Syndrome::Ack { .. }) => {
                if !self.acknowledged(work, mtu, psn.next(), now) {
                    self.lost(psn, now);
                }
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Rnr(timer)) => {
                self.not_ready(work, mtu, psn, timer, now, stats)
            }
            (Operation::Acknowledge, Syndrome::Nak(NakCode::SequenceError)) => {
                stats.rx_sequence_naks += 1;
                // A READ before that is unanswered is sent again, too: the oldest is what counts.
                self.acknowledged(work, mtu, psn, now);
                self.lost(psn, now);
                Ok(())
            }
            (Operation::Acknowledge, Syndrome::Nak(code)) => {
                Err(self.refused(work, mtu, psn, code, now))
            }
            (Operation::ReadResponse, Syndrome::Ack { .. }) => {
                self.read_response(work, path, now, packet)
            }
            (Operation::AtomicAcknowledge, Syndrome::Ack { .. }) => {
                self.atomic_response(work, mtu, now, packet)
            }
            _ => Err(self.bad_response(work)),
        }
    }

    /// The peer has no receive buffer for the message with this packet.
    fn not_ready(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        timer: RnrTimer,
        now: Instant,
        stats: &mut Stats,
    ) -> Result<(), Failure> {
        stats.rx_rnr_naks += 1;
        self.acknowledged(work, mtu, psn, now);
        if self.rnr_wait.is_some() {
            // A copy of the one that is heeded.
            return Ok(());
        }
        if !self.bears_rnr() {
            let at = self.request_of(work, mtu, psn);
            work.fail(at, WcStatus::ReceiverNotReady);
            return Err(Failure::ReceiverNotReady);
        }
        self.go_back();
        self.rnr_wait = Some(now + timer.duration());
        Ok(())
    }

    /// A request failed at the peer.
    #[cold]
    fn refused(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        psn: Psn,
        code: NakCode,
        now: Instant,
    ) -> Failure {
        self.acknowledged(work, mtu, psn, now);
        let status = match code {
            NakCode::RemoteAccess => WcStatus::RemoteAccess,
            _ => WcStatus::RemoteResponder,
        };
        let at = self.request_of(work, mtu, psn);
        work.fail(at, status);
        Failure::Refused(code)
    }

    #[inline]
    fn read_response(
        &mut self,
        work: &mut Work,
        path: &Path,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        if !self.acknowledged(work, path.mtu, psn, now) {
            self.lost(psn, now);
            return Ok(());
        }
        let Some((wqe, segments)) =
            work.request(self.oldest.at).filter(|(wqe, _)| wqe.op == WcOp::Read)
        else {
            return Err(self.bad_response(work));
        };
        let (index, packets) = (self.oldest.index, packets(wqe, path.mtu));
        let offset = index as usize * path.mtu.octets();
        let ends_part = self.part_end(index, packets) == index + 1;
        // Where it starts is not looked at: after a loss a responder may begin anew, or go on where it was.
        let fits = packet.payload.len() == (wqe.len as usize - offset).min(path.mtu.octets());
        if !fits || packet.bth.opcode.position().ends() != ends_part {
            return Err(self.bad_response(work));
        }
        let right =
            if wqe.flags & qp::TO_WINDOW != 0 { Right::RemoteWrite } else { Right::LocalWrite };
        if work.scatter((work.scope(), right), segments, offset, packet.payload).is_err() {
            return Err(self.sink_gone(work));
        }
        if index + 1 == packets {
            work.done(self.oldest.at);
        }
        self.oldest.step(1, packets);
        self.progress(1, now);
        Ok(())
    }

    fn atomic_response(
        &mut self,
        work: &mut Work,
        mtu: PathMtu,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = packet.bth.psn;
        if !self.acknowledged(work, mtu, psn, now) {
            self.lost(psn, now);
            return Ok(());
        }
        let is_atomic = |op| matches!(op, WcOp::FetchAdd | WcOp::CompareSwap);
        let request = work.request(self.oldest.at).filter(|(wqe, _)| is_atomic(wqe.op));
        let (Some((_, segments)), Extension::AtomicAck(_, answer)) = (request, packet.extension)
        else {
            return Err(self.bad_response(work));
        };
        // A number on the wire; memory holds it as a processor does.
        let octets = answer.original.to_ne_bytes();
        if work.scatter((work.scope(), Right::LocalWrite), segments, 0, &octets).is_err() {
            return Err(self.sink_gone(work));
        }
        work.done(self.oldest.at);
        self.oldest.step(1, 1);
        self.progress(1, now);
        Ok(())
    }

    /// The answer to the oldest request makes no sense.
    #[cold]
    fn bad_response(&self, work: &mut Work) -> Failure {
        work.fail(self.oldest.at, WcStatus::BadResponse);
        Failure::BadResponse
    }

    /// Local memory of the oldest request is registered no more.
    #[cold]
    fn sink_gone(&self, work: &mut Work) -> Failure {
        work.fail(self.oldest.at, WcStatus::LocalProtection);
        Failure::Local
    }

    /// The position of the request that a packet in flight belongs to.
    fn request_of(&self, work: &Work, mtu: PathMtu, psn: Psn) -> usize {
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
