//! A challenge asks the peer whether it still has the connection. A challenge is possible even if
//! the program has posted no request.
//!
//! The challenge is an RDMA write of no octets with the PSN of the last packet of a SEND or WRITE
//! that the peer has acknowledged. For the peer this packet is a duplicate. It accesses no memory,
//! and a queue pair that still has the connection acknowledges it again.
//!
//! Adapters and this implementation acknowledge the PSN of the challenge. Kernel rxe acknowledges
//! the PSN of the last SEND, WRITE or atomic operation that it has carried out, or
//! [`RXE_UNSET_PSN`] if there was none: rxe does not count READs.

use std::time::{Duration, Instant};

use wire::rocev2::{Operation, Packet, Psn, Syndrome};

use super::burst::Burst;
use super::cursors::Cursors;
use super::request_packets::push_acknowledged_write;
use super::types::Path;

/// The PSN that kernel rxe acknowledges if it has carried out only READs, whatever the starting PSN
/// is.
pub(super) const RXE_UNSET_PSN: Psn = Psn::new(0xFF_FFFF);

/// The challenges of a connection. At most one is open.
#[derive(Default)]
pub(super) struct Challenges {
    open: Option<Box<Challenge>>,
    /// The time at which the peer answered the last challenge.
    answered_at: Option<Instant>,
}

/// An unanswered challenge.
struct Challenge {
    /// The time at which the challenge is sent again. If it was sent for the last time, this is the
    /// time at which the peer counts as gone.
    due: Instant,
    interval: Duration,
    tries_left: u32,
    /// The time at which the challenge was first sent.
    started_at: Instant,
}

impl Challenges {
    /// Whether a challenge has not been answered.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The time for which the open challenge has not been answered.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.open.as_ref().map(|open| now.saturating_duration_since(open.started_at))
    }

    /// The time at which the open challenge is sent again or fails.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.due)
    }

    /// Whether the challenge was sent for the last time and the time for the answer has passed.
    #[inline]
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| open.tries_left == 0 && now >= open.due)
    }

    /// Starts a challenge, which is sent at this interval and repeated at most `retries` times. A
    /// peer that has just answered a challenge is not challenged again within one interval.
    pub(super) fn start(&mut self, (interval, retries): (Duration, u32), now: Instant) {
        if self.answered_at.is_some_and(|at| now < at + interval) {
            return;
        }
        let tries_left = retries.saturating_add(1);
        self.open.get_or_insert_with(|| {
            Box::new(Challenge { due: now, interval, tries_left, started_at: now })
        });
    }

    /// Records that the peer is alive although it does not answer: an open challenge is sent at
    /// least once more.
    pub(super) fn note_peer_alive(&mut self) {
        if let Some(open) = &mut self.open {
            open.tries_left = open.tries_left.max(1);
        }
    }

    /// Ends the open challenge without an answer.
    pub(super) fn cancel(&mut self) {
        self.open = None;
    }

    /// Processes a response while a challenge is open. Any response that proves that the peer has
    /// the connection ends the challenge. Returns true if the response needs no further processing.
    #[cold]
    pub(super) fn take_answer(
        &mut self,
        cursors: &Cursors,
        now: Instant,
        packet: &Packet<'_>,
        syndrome: Syndrome,
    ) -> bool {
        let (psn, unacknowledged) = (packet.bth.psn, cursors.is_unacknowledged(packet.bth.psn));
        let acknowledges = packet.bth.opcode.operation() == Operation::Acknowledge;
        let is_unset =
            acknowledges && psn == RXE_UNSET_PSN && matches!(syndrome, Syndrome::Ack { .. });
        let repeats = acknowledges && psn.is_before(cursors.oldest().psn);
        if !unacknowledged && !is_unset && !repeats {
            return false;
        }
        (self.open, self.answered_at) = (None, Some(now));
        // If the PSN is that of a request in flight, the response may answer that request. It is
        // dropped all the same if rxe may have sent it as an answer to the challenge. The requester
        // then sends the request again, and the peer acknowledges it again.
        !unacknowledged || is_unset
    }

    /// Adds the open challenge to the burst if it is due. `psn` is the PSN of the last packet of a
    /// SEND or WRITE that the peer has acknowledged. Returns whether the challenge was added.
    pub(super) fn send(&mut self, psn: Psn, path: &Path, now: Instant, burst: &mut Burst) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.tries_left > 0 && now >= open.due)
        else {
            return false;
        };
        open.tries_left -= 1;
        open.due = now + open.interval;
        push_acknowledged_write(path, psn, 0, burst)
    }
}
