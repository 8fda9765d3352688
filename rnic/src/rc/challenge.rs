//! A challenge asks the peer whether it still has the connection. A challenge is possible even if
//! the consumer has posted no request.
//!
//! The challenge is an RDMA write of no octets with the PSN of the last packet of a SEND or WRITE
//! that the peer has acknowledged. For the peer this packet is a duplicate. It accesses no memory,
//! and an endpoint that still has the connection acknowledges it again.
//!
//! Adapters and this implementation acknowledge the PSN of the challenge. Kernel rxe acknowledges
//! the PSN of the last SEND, WRITE or atomic operation that it has carried out, or
//! [`RXE_UNSET_PSN`] if there was none: rxe does not count READs.

use std::time::{Duration, Instant};

use wire::rocev2::{Operation, Packet, Psn, Syndrome};

use super::burst::Burst;
use super::engine::Path;
use super::path_check::push_write;
use super::requester::Requester;

/// The PSN that kernel rxe acknowledges if it has carried out only READs, whatever the starting PSN
/// is.
pub(super) const RXE_UNSET_PSN: Psn = Psn::new(0xFF_FFFF);

/// An unanswered challenge.
pub(super) struct Challenge {
    /// The time at which the challenge is sent again. If it was sent for the last time, this is the
    /// time at which the peer counts as gone.
    due: Instant,
    interval: Duration,
    tries_left: u32,
    /// The time at which the challenge was first sent.
    started_at: Instant,
}

impl Challenge {
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The time for which the challenge has not been answered.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }

    /// Whether the challenge was sent for the last time and the time for the answer has passed.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.tries_left == 0 && now >= self.due
    }

    /// Records that the peer is alive although it does not answer: the challenge is sent at least
    /// once more.
    pub(super) fn note_peer_alive(&mut self) {
        self.tries_left = self.tries_left.max(1);
    }
}

impl Requester {
    /// Starts a challenge. The challenge is repeated until the peer answers, at most as often as a
    /// request is repeated. A peer that has just answered a challenge is not challenged again
    /// within an ACK timeout.
    pub(super) fn start_challenge(&mut self, now: Instant) {
        let (interval, retries) = self.timer.timeout_and_retries();
        if self.challenge_answered_at.is_some_and(|at| now < at + interval) {
            return;
        }
        let tries_left = retries.saturating_add(1);
        self.challenge.get_or_insert_with(|| {
            Box::new(Challenge { due: now, interval, tries_left, started_at: now })
        });
    }

    /// Adds the challenge to the burst if it is due. Returns whether it was added.
    pub(super) fn send_challenge(&mut self, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        let psn = self.last_acknowledged();
        let Some(challenge) =
            self.challenge.as_mut().filter(|open| open.tries_left > 0 && now >= open.due)
        else {
            return false;
        };
        challenge.tries_left -= 1;
        challenge.due = now + challenge.interval;
        push_write(path, psn, 0, burst)
    }

    /// Processes a response while a challenge is open. Any response that proves that the peer has
    /// the connection ends the challenge. Returns true if the response needs no further processing.
    #[cold]
    pub(super) fn take_challenge_answer(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        syndrome: Syndrome,
    ) -> bool {
        let (psn, unacknowledged) = (packet.bth.psn, self.is_unacknowledged(packet.bth.psn));
        let acknowledges = packet.bth.opcode.operation() == Operation::Acknowledge;
        let is_unset =
            acknowledges && psn == RXE_UNSET_PSN && matches!(syndrome, Syndrome::Ack { .. });
        let repeats = acknowledges && psn.is_before(self.oldest.psn);
        if !unacknowledged && !is_unset && !repeats {
            return false;
        }
        (self.challenge, self.challenge_answered_at) = (None, Some(now));
        // A request in flight may have the PSN of this response. If the peer has received the
        // request, the requester sends it again, and the peer then acknowledges it again.
        !unacknowledged || is_unset
    }

    /// Whether this is the PSN with which adapters answer the challenge. A stranger can hardly
    /// guess it. Kernel rxe may answer with another PSN, and such an answer does not count here.
    pub(super) fn is_challenge_answer(&self, psn: Psn) -> bool {
        self.challenge.is_some() && self.repeats_last(psn)
    }
}
