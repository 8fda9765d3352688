//! Asking the peer whether it still has the connection, also when the consumer has nothing under way.
//!
//! The question is an RDMA write of no octets with the PSN of the last packet that the peer has acknowledged.
//! To the peer it is a duplicate: it touches no memory, and whoever has the connection acknowledges it again.
//!
//! An adapter, and this project, name the PSN of the question in that acknowledgement. Kernel rxe names the last SEND,
//! WRITE or atomic operation that it has carried out, and [`UNSET`] if there was none: it does not reckon READs.

use std::time::{Duration, Instant};

use wire::rocev2::{Extension, Opcode, Operation, Packet, Position, Psn, Reth, Syndrome};

use super::burst::Burst;
use super::engine::Path;
use super::requester::Requester;

/// What kernel rxe says it has taken last while that is nothing but READs, whatever the number of its first packet.
const UNSET: Psn = Psn::new(0xFF_FFFF);

/// A question that waits for its answer.
pub(super) struct Challenge {
    /// When it is asked again; after the last time, when the peer counts as gone.
    due: Instant,
    every: Duration,
    left: u8,
    /// When it was first asked.
    since: Instant,
}

impl Challenge {
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// For how long it has not been answered.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether the last question has had its time.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        self.left == 0 && now >= self.due
    }

    /// The peer does not answer, but lives: the last question is asked again.
    pub(super) fn peer_lives(&mut self) {
        self.left = self.left.max(1);
    }
}

impl Requester {
    /// Asks from now on, until the peer answers, or as often as a request is sent in vain. A peer that has
    /// just answered is not asked again within an ACK timeout.
    pub(super) fn challenge(&mut self, now: Instant) {
        let (every, retries) = self.clocks.timeout_and_retries();
        if self.answered_at.is_some_and(|at| now < at + every) {
            return;
        }
        let left = retries.saturating_add(1);
        self.challenge.get_or_insert(Challenge { due: now, every, left, since: now });
    }

    /// Adds the question, if it is time; whether it did.
    pub(super) fn send_challenge(&mut self, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        let psn = self.last_taken();
        let Some(challenge) = self.challenge.as_mut().filter(|of| of.left > 0 && now >= of.due)
        else {
            return false;
        };
        challenge.left -= 1;
        challenge.due = now + challenge.every;
        let mut bth = path.bth(Opcode::write(Position::Only, false), psn);
        bth.ack_request = true;
        let nothing = Extension::Reth(Reth { va: 0, r_key: 0, len: 0 });
        burst.packet(&bth, &nothing, 0).is_some()
    }

    /// Takes note of a response while the peer is asked: whatever proves that it has the connection ends the question.
    /// True: the response says no more than that.
    #[cold]
    pub(super) fn is_mere_answer(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        syndrome: Syndrome,
    ) -> bool {
        let (psn, awaited) = (packet.bth.psn, self.is_awaited(packet.bth.psn));
        let acknowledges = packet.bth.opcode.operation() == Operation::Acknowledge;
        let is_unset = acknowledges && psn == UNSET && matches!(syndrome, Syndrome::Ack { .. });
        let repeats = acknowledges && !psn.is_after(self.last_taken());
        if !awaited && !is_unset && !repeats {
            return false;
        }
        (self.challenge, self.answered_at) = (None, Some(now));
        // A request in flight may have this number. If it was taken, the peer says so again when it is sent again.
        !awaited || is_unset
    }

    /// Whether this is the number that an answer to the question has if it is not kernel rxe's: hard to guess.
    pub(super) fn answers_challenge(&self, psn: Psn) -> bool {
        self.challenge.is_some() && psn == self.last_taken()
    }

    /// The number before the oldest that is not acknowledged.
    fn last_taken(&self) -> Psn {
        self.oldest.psn.previous()
    }
}
