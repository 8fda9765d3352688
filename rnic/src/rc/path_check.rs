//! Notices that full packets do not get through although short packets do.
//!
//! The two ends agree on the path MTU when they connect, and it cannot change afterwards: a
//! responder accepts a FIRST or MIDDLE packet only if its payload has exactly that length. If a
//! switch or the peer's interface carries shorter packets only, and no ICMP message says so, the
//! full packets disappear.
//!
//! The check needs no packet of its own while the connection works. After an ACK timeout of a full
//! packet, the requester sends a *question* together with each retransmission: an RDMA write of no
//! octets that the peer has already acknowledged. (A [challenge](super::challenge) is the same
//! packet.) If the peer answers several questions in a row and has still not received the full
//! packet, the connection fails. A peer that answers no question is silent, which says nothing
//! about the path. A connection on which a full packet has got through before does not fail,
//! because a queue that counts octets may have room for short packets only.
//!
//! A peer sends no acknowledgement while it owes responses. Therefore a question about a READ is
//! sent alone: the requester *holds* its requests until the answer comes, or until it retransmits
//! the next time.
//!
//! When a connection is established, the adapter can send a *check packet*: a write with one full
//! packet and a PSN that the peer has already acknowledged, so that the peer treats it like the
//! question. A router that cannot forward the packet says so by ICMP. So the adapter may learn of
//! the router's limit before the program sends anything.
//!
//! Anybody can forge an ICMP message. The message quotes the packet that was not forwarded, so the
//! adapter believes it only if [this end may have sent that packet](
//! super::ReliableConnection::may_have_sent) and the peer has not acknowledged it. Even then the
//! message only explains why a longer packet stays unacknowledged. It ends no connection whose
//! packets get through.

use wire::rocev2::{Extension, Operation, Packet, Psn, Syndrome};

use super::burst::Burst;
use super::challenge::RXE_UNSET_PSN;
use super::request_packets::{Cursor, push_acknowledged_write};
use super::requester::Requester;
use super::types::Path;
use crate::qp::Work;

/// The number of retransmissions in a row after which the connection fails, if the peer has
/// received none of them although it has answered the question that went with each. In a full queue
/// that has room for short packets only, the same happens several times in a row, so the number is
/// large. The retransmission timer reaches it within a few ACK timeouts.
const LOST_RETRANSMISSIONS_MAX: u8 = 20;

/// The state of the check.
#[derive(Default)]
pub(super) struct PathCheck {
    /// Whether a full packet has reached the peer.
    full_requests_pass: bool,
    /// Whether a full packet of a READ response has arrived.
    full_responses_pass: bool,
    /// The PSN of a check packet that has not been answered.
    check: Option<Psn>,
    stall: Stall,
}

/// What is known since the last packet was acknowledged.
#[derive(Clone, Copy, Default)]
struct Stall {
    /// Whether questions accompany retransmissions, because an ACK timeout has expired.
    asks: bool,
    question_is_due: bool,
    /// Whether the requester sends nothing, so that the question is answered on its own.
    holds: bool,
    /// Whether the peer has sent a response since the last retransmission.
    is_answered: bool,
    lost_retransmissions: u8,
}

impl Stall {
    fn take_answer(&mut self) {
        (self.is_answered, self.holds) = (true, false);
    }
}

impl PathCheck {
    /// Whether the check needs to be told of responses.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        !(self.full_requests_pass && self.full_responses_pass) || self.check.is_some()
    }

    /// Adds the check packet to the burst.
    pub(super) fn send_check(&mut self, path: &Path, acknowledged: Psn, burst: &mut Burst) -> bool {
        let is_sent = push_acknowledged_write(path, acknowledged, path.mtu.octets(), burst);
        if is_sent {
            self.check = Some(acknowledged);
        }
        is_sent
    }

    /// Whether this is the PSN of a check packet that has not been answered, and no full packet has
    /// reached the peer since.
    pub(super) fn is_check(&self, psn: Psn) -> bool {
        self.check == Some(psn) && !self.full_requests_pass
    }

    /// Whether [`send_question`](Self::send_question) would add a question.
    #[inline]
    pub(super) fn question_is_due(&self) -> bool {
        self.stall.question_is_due
    }

    /// Whether the requester must send nothing.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        self.stall.holds
    }

    /// Adds the question to the burst if it is due.
    #[inline]
    pub(super) fn send_question(&mut self, path: &Path, acknowledged: Psn, burst: &mut Burst) {
        if std::mem::take(&mut self.stall.question_is_due) {
            push_acknowledged_write(path, acknowledged, 0, burst);
        }
    }

    /// Handles a response before the requester does. Returns true if the response only answers the
    /// check packet or a question.
    #[inline]
    pub(super) fn is_answer(&mut self, requester: &Requester, packet: &Packet<'_>) -> bool {
        (self.check.is_some() || self.stall.asks) && self.take_answer(requester, packet)
    }

    #[cold]
    fn take_answer(&mut self, requester: &Requester, packet: &Packet<'_>) -> bool {
        let (psn, cursors) = (packet.bth.psn, requester.cursors());
        let is_ack = packet.bth.opcode.operation() == Operation::Acknowledge
            && matches!(packet.extension, Extension::Aeth(aeth)
                if matches!(aeth.syndrome, Syndrome::Ack { .. }));
        let is_answer = is_ack
            && !requester.has_open_challenge()
            && !cursors.is_unacknowledged(psn)
            && (cursors.repeats_last(psn) || psn == RXE_UNSET_PSN);
        if is_answer {
            // If requests are in flight, the answer may be to a question, or to a request that the
            // peer had acknowledged before.
            self.full_requests_pass |= self.check.take().is_some() && cursors.in_flight() == 0;
            self.stall.take_answer();
        }
        is_answer
    }

    /// Handles a response after the requester has handled it. `before` is the oldest packet that
    /// was not acknowledged before the response, and the kind of its request.
    pub(super) fn note_response(
        &mut self,
        before: Option<Oldest>,
        requester: &Requester,
        packet: &Packet<'_>,
    ) {
        let Some(before) = before else { return };
        let is_rnr_nak = matches!(packet.extension, Extension::Aeth(aeth)
            if matches!(aeth.syndrome, Syndrome::Rnr(_)));
        let has_progress = requester.cursors().oldest().psn != before.psn;
        if has_progress && before.is_full {
            match before.is_read {
                true => self.full_responses_pass = true,
                false => self.full_requests_pass = true,
            }
        }
        match has_progress || is_rnr_nak {
            true => self.stall = Stall::default(),
            false => self.stall.take_answer(),
        }
    }

    /// Handles a retransmission of the oldest packet. `timed_out` says that an ACK timeout has
    /// expired. Returns true if the connection cannot continue, because full packets do not get
    /// through.
    pub(super) fn note_retransmission(&mut self, oldest: Option<Oldest>, timed_out: bool) -> bool {
        let passes = |oldest: Oldest| match oldest.is_read {
            true => self.full_responses_pass,
            false => self.full_requests_pass,
        };
        let Some(oldest) = oldest.filter(|&oldest| oldest.is_full && !passes(oldest)) else {
            self.stall = Stall::default();
            return false;
        };
        let stall = &mut self.stall;
        if stall.asks && stall.is_answered {
            stall.lost_retransmissions += 1;
        }
        stall.asks |= timed_out;
        (stall.question_is_due, stall.is_answered) = (stall.asks, false);
        stall.holds = stall.asks && oldest.is_read && !stall.holds;
        stall.lost_retransmissions >= LOST_RETRANSMISSIONS_MAX
    }
}

/// The oldest packet that is not acknowledged, or the oldest response that has not arrived.
#[derive(Clone, Copy)]
pub(super) struct Oldest {
    psn: Psn,
    /// Whether the packet or the response has as many octets as the path MTU allows.
    is_full: bool,
    is_read: bool,
}

impl Oldest {
    /// Returns the oldest packet. Returns `None` if no request is posted.
    #[inline]
    pub(super) fn of(requester: &Requester, work: &Work, path: &Path) -> Option<Self> {
        let Cursor { at, index, psn } = requester.cursors().oldest();
        let (wqe, _) = work.request(at)?;
        let facts = wqe.op.facts();
        let end = (u64::from(index) + 1) * path.mtu.octets() as u64;
        let is_full = !facts.is_atomic() && !facts.is_local() && end <= u64::from(wqe.len);
        Some(Oldest { psn, is_full, is_read: facts.is_read() })
    }
}
