//! When new packets may be sent although a packet is missing.
//!
//! While a packet is missing, the peer acknowledges none of the later packets, although it keeps
//! them. The window, which counts from the oldest unacknowledged packet, would stay full. But each
//! packet has left the network a round trip after it was sent. So from the NAK on, new packets may
//! leave at the rate of one window per round trip, and no more than a window is in flight. (TCP
//! knows from selective acknowledgements which packets have left the network, and sends at the
//! same rate: RFC 6937.)
//!
//! A peer keeps packets only up to a limit, so a new packet must be fewer than [`EARLY_PSNS`] PSNs
//! after the missing one. No new packets are sent while one is missing (`flight` and `congestion`
//! check these conditions, and this file counts what is permitted)
//!
//! - if no loss has shown yet that the peer keeps packets, or if no round trip has been measured;
//! - if the last round trip was longer, which shows that a queue is growing;
//! - if more than one packet in ten was lost lately, as where many connections share the path;
//! - if the peer cannot have kept all packets in flight.

use std::time::{Duration, Instant};

use wire::rocev2::Psn;

use super::reorder_buffer::EARLY_PSNS;
use super::request_packets::Cursor;

/// New packets are permitted in groups, of which a window has this number.
const GROUPS_PER_WINDOW: u32 = 8;

/// The maximum number of groups that are counted.
const GROUPS_MAX: u32 = u32::MAX - 1;

/// The time from the NAK until the peer has acknowledged all packets that had been sent before.
pub(super) struct Recovery {
    start: Instant,
    /// The first PSN that had not been sent.
    end: Psn,
    /// The round trip at the start. It is not zero.
    round_trip: Duration,
    /// The number of PSNs from `end` on that may be sent.
    permitted: u32,
    /// The time at which another group may be sent.
    next_group_at: Instant,
}

impl Recovery {
    /// A recovery from `start` on. `end` is the first PSN that has not been sent.
    pub(super) fn new(end: Psn, round_trip: Duration, start: Instant) -> Self {
        let round_trip = round_trip.max(Duration::from_nanos(1));
        Recovery { start, end, round_trip, permitted: 0, next_group_at: start }
    }

    /// Whether the recovery ends when all packets before `oldest` are acknowledged.
    pub(super) fn is_done(&self, oldest: Psn) -> bool {
        !oldest.is_before(self.end)
    }

    /// Permits what may be sent until now. `next` is the packet to be sent next.
    pub(super) fn advance(&mut self, next: Psn, window: u32, now: Instant) {
        if now < self.next_group_at {
            return;
        }
        let group = (window / GROUPS_PER_WINDOW).max(1);
        let group_time = self.round_trip * group / window + Duration::from_nanos(1);
        let elapsed = now.saturating_duration_since(self.start);
        let groups = (elapsed.as_nanos() / group_time.as_nanos()).min(GROUPS_MAX.into()) as u32;
        // A requester that had to wait makes up for at most one window.
        let sent = next.distance(self.end).max(0) as u32;
        self.permitted = groups.saturating_mul(group).min(sent + window);
        self.next_group_at = self.start + group_time * (groups + 1);
    }

    /// Whether `next`, a packet that has not been sent before, may be sent.
    pub(super) fn permits(&self, oldest: Cursor, next: Psn) -> bool {
        next.is_before(self.end + self.permitted) && self.is_kept(oldest, next)
    }

    /// The time at which `next` may be sent.
    pub(super) fn deadline(&self, oldest: Cursor, next: Psn) -> Option<Instant> {
        self.is_kept(oldest, next).then_some(self.next_group_at)
    }

    fn is_kept(&self, oldest: Cursor, next: Psn) -> bool {
        !next.is_before(self.end) && next.distance(oldest.psn) < EARLY_PSNS as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recovery_over_a_short_path_permits_one_window() {
        let (end, start) = (Psn::new(7), Instant::now());
        let mut recovery = Recovery::new(end, Duration::ZERO, start);
        for seconds in [1, 4, 5, 9, 3600] {
            recovery.advance(end, 16, start + Duration::from_secs(seconds));
            assert_eq!(recovery.permitted, 16, "after {seconds} s");
        }
    }
}
