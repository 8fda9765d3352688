//! Asking the peer whether it still has the connection, also when the consumer has nothing under way.
//!
//! The question is an RDMA write of no octets with the PSN of the last packet that the peer has acknowledged.
//! To the peer it is a duplicate: it touches no memory, and whoever has the connection acknowledges it again.
//! Kernel rxe does so, too.

use std::time::{Duration, Instant};

use wire::rocev2::{Extension, Opcode, Position, Psn, Reth};

use super::burst::Burst;
use super::engine::Path;
use super::requester::Requester;

/// A question that waits for its answer.
pub(super) struct Challenge {
    /// When it is asked again; after the last time, when the peer counts as gone.
    due: Instant,
    every: Duration,
    left: u8,
}

impl Challenge {
    pub(super) fn due(&self) -> Instant {
        self.due
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
    /// Asks from now on, until the peer answers, or as often as a request is sent in vain.
    pub(super) fn challenge(&mut self, now: Instant) {
        let (every, retries) = self.clocks.timeout_and_retries();
        self.challenge.get_or_insert(Challenge { due: now, every, left: retries.saturating_add(1) });
    }

    /// Adds the question, if it is time. False: it is not.
    pub(super) fn ask(&mut self, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        let psn = self.last_taken();
        let Some(challenge) = self.challenge.as_mut().filter(|of| of.left > 0 && now >= of.due) else {
            return false;
        };
        challenge.left -= 1;
        challenge.due = now + challenge.every;
        let mut bth = path.bth(Opcode::write(Position::Only, false), psn);
        bth.ack_request = true;
        let nothing = Extension::Reth(Reth { va: 0, r_key: 0, len: 0 });
        burst.packet(&bth, &nothing, 0).is_some()
    }

    /// Whether an acknowledgement with this number answers to the question.
    pub(super) fn answers_challenge(&self, psn: Psn) -> bool {
        self.challenge.is_some() && psn == self.last_taken()
    }

    /// The number before the oldest that is not acknowledged.
    fn last_taken(&self) -> Psn {
        self.oldest.psn.previous()
    }
}
