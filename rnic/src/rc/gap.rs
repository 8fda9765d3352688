//! When the responder reports a gap: a packet is missing, although later packets have arrived.
//!
//! A packet that was only overtaken arrives soon, so the NAK waits for a quarter of a round trip
//! ([`GapPolicy::nak_delay`]). The NAK is sent at once if the responder cannot keep the later
//! packets, because the peer must then send them again anyway. A NAK may be lost, and so may the
//! packet that the peer sends again. Therefore the NAK is repeated after 2, 4, 8 and 16 round
//! trips.
//!
//! A packet that is too far ahead to be kept may be forged, because half of all PSNs are too far
//! ahead. So it causes a NAK at once only if a nearer packet has arrived, too, or if
//! [`FAR_PACKETS_MIN`] of such packets have arrived. If the expected packet arrives before the NAK
//! is sent, nothing was lost.
//!
//! A responder has no round-trip time of its own, and its requester may have nothing to send. So
//! the policy measures the time from a NAK to the arrival of the missing packet. A packet that was
//! only overtaken arrives sooner than the answer to the NAK, so this time may be too short. The
//! answer then arrives as a duplicate, and the time from the NAK to the duplicate is measured
//! instead.

use std::time::{Duration, Instant};

use wire::rocev2::Psn;

use super::reorder_buffer::{EARLY_PSNS, Keeping};

/// The delay of a NAK until a round trip has been measured.
const FIRST_NAK_DELAY: Duration = Duration::from_micros(250);
/// The round-trip time after which a NAK is repeated, until one has been measured.
const ROUND_TRIP_ASSUMED: Duration = Duration::from_millis(4);
/// The maximum round-trip time. A longer measurement shows that the peer or the network had
/// stopped, so it does not count.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);
/// The minimum delay of a NAK: a packet on its way through the threads of a host may be overtaken.
const NAK_DELAY_MIN: Duration = Duration::from_micros(25);
/// The maximum delay of a NAK: a quarter of a round trip around half of the earth.
const NAK_DELAY_MAX: Duration = Duration::from_millis(50);
/// The minimum round-trip time, so that NAKs are not repeated in a burst.
const ROUND_TRIP_MIN: Duration = Duration::from_micros(25);
/// The maximum time from a NAK to a duplicate that certainly answers it. After a longer time, a
/// timer of the peer may have caused the duplicate.
const ANSWER_MAX: Duration = Duration::from_millis(5);
/// The factor by which the round-trip time grows if a duplicate shows that it is much longer. It
/// does not grow to the measured time, because a timer of the peer may have caused the duplicate.
const ROUND_TRIP_GROWTH: u32 = 4;
/// When this number of packets that are too far ahead to be kept have arrived, they count as
/// packets of the peer and not as forged. If so many packets in a row were lost that all later ones
/// are too far ahead, this number of them arrives before the delay of a NAK ends.
const FAR_PACKETS_MIN: u32 = 16;
/// The maximum number of times that a NAK is repeated because no packet arrives.
const NAK_REPETITIONS_MAX: u32 = 4;

/// A missing packet, while later packets have arrived.
pub(super) struct Gap {
    /// The PSN of the packet that arrived last among the packets that follow the missing one and
    /// were near enough to be kept.
    last: Psn,
    /// The highest PSN of these packets.
    highest: Psn,
    /// The number of packets that were too far ahead to be kept.
    far_packets: u32,
    /// The time at which the gap was noticed.
    since: Instant,
    /// Whether this gap remained when the gap before it closed, so that no early packet opened it.
    remained: bool,
    /// Whether a NAK was sent for a gap that closed directly before this one, or for this gap
    /// before it was [paused](Report::Paused). The peer may still be sending later packets again.
    follows_nak: bool,
    report: Report,
}

#[derive(Clone, Copy)]
enum Report {
    /// A NAK is to be sent at this time.
    Waiting(Instant),
    /// NAKs have been sent.
    Sent {
        naks: u32,
        first: Instant,
        /// The time at which the NAK is to be repeated.
        again: Option<Instant>,
    },
    /// The packet arrived and found no receive buffer. An RNR NAK has reported this.
    Refused,
    /// The expected packet is kept, but it must wait until the responses to a READ before it are
    /// sent.
    Paused,
}

impl Gap {
    /// The gap after a packet that found no receive buffer.
    pub(super) fn refused(psn: Psn, now: Instant) -> Self {
        let report = Report::Refused;
        Gap {
            last: psn,
            highest: psn,
            far_packets: 0,
            since: now,
            remained: false,
            follows_nak: false,
            report,
        }
    }

    /// The gap before a packet that is kept and must wait. `before` is the gap that has closed.
    pub(super) fn paused(before: &Gap, now: Instant) -> Self {
        let follows_nak = before.follows_nak || before.is_reported();
        Gap { since: now, follows_nak, report: Report::Paused, ..*before }
    }

    pub(super) fn is_refused(&self) -> bool {
        matches!(self.report, Report::Refused)
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.report, Report::Paused)
    }

    /// Whether a NAK for the missing packet has been sent.
    fn is_reported(&self) -> bool {
        matches!(self.report, Report::Sent { .. })
    }

    /// The time at which a NAK is due.
    pub(super) fn nak_due(&self) -> Option<Instant> {
        match self.report {
            Report::Waiting(due) => Some(due),
            Report::Sent { again, .. } => again,
            Report::Refused | Report::Paused => None,
        }
    }
}

/// What a responder has learned about the path and the peer.
#[derive(Default)]
pub(super) struct GapPolicy {
    /// The time from a NAK to the arrival of the missing packet, smoothed.
    round_trip: Option<Duration>,
    /// The duration of a gap for which a NAK was sent although the packet was only overtaken. It
    /// decreases with each gap.
    reordering: Duration,
    /// Whether the peer answers a NAK with all packets from the missing one on, if that is known.
    peer_goes_back: Option<bool>,
    /// The latest gaps for which a NAK was sent, the latest one first. The last place keeps its gap
    /// for [`ROUND_TRIP_MAX`], because many gaps may close before a NAK is answered. Most
    /// connections send no NAK, and so they have no memory for these gaps.
    closed: Option<Box<[Option<ClosedGap>; 4]>>,
    /// Whether packets were kept when the latest of these gaps closed, and neither an early packet
    /// nor a duplicate of a later packet has arrived since. If an early packet arrives next, the
    /// peer does not go back. (If none was kept, the next packets do not show whether the peer has
    /// sent them before.)
    is_just_closed: bool,
}

/// A gap for which a NAK was sent, and which has closed.
#[derive(Clone, Copy)]
struct ClosedGap {
    /// The PSN of the packet that was missing.
    psn: Psn,
    /// The highest PSN of the packets that had arrived when the gap closed.
    highest: Psn,
    /// The time of the first NAK.
    nak: Instant,
    /// The duration of the gap, or 0 if several NAKs were sent. In that case a duplicate does not
    /// show that the packet was only overtaken: the peer may have sent one copy for each NAK.
    lasted: Duration,
}

impl GapPolicy {
    /// Handles a packet that arrived while an earlier one is missing, and has a PSN that is `ahead`
    /// after it. Returns whether a NAK is due now.
    pub(super) fn on_early(
        &mut self,
        gap: &mut Option<Gap>,
        (psn, ahead): (Psn, u32),
        keeping: Keeping,
        now: Instant,
    ) -> bool {
        if std::mem::take(&mut self.is_just_closed) && keeping == Keeping::Kept {
            // The peer has sent the missing packet again, but not the packets after it.
            self.peer_goes_back = Some(false);
        }
        let expected = psn - ahead;
        let gap = gap.get_or_insert_with(|| self.new_gap(expected, now, self.nak_delay()));
        let is_waiting = matches!(gap.report, Report::Waiting(_)) && !gap.remained;
        if ahead >= EARLY_PSNS {
            gap.far_packets = gap.far_packets.saturating_add(1);
            return is_waiting && (gap.highest != expected || gap.far_packets >= FAR_PACKETS_MIN);
        }
        // The packets arrive once more, so the peer has sent them again. But the missing packet is
        // still missing, so it was lost again.
        let is_repeated = keeping != Keeping::Kept && !psn.is_after(gap.last);
        gap.last = psn;
        if psn.is_after(gap.highest) && !gap.is_refused() {
            gap.highest = psn;
        }
        match gap.report {
            Report::Waiting(_) => keeping == Keeping::Dropped && is_waiting,
            Report::Sent { .. } | Report::Refused => is_repeated,
            Report::Paused => false,
        }
    }

    /// Records that a NAK is sent.
    pub(super) fn on_reported(&self, gap: &mut Gap, now: Instant) {
        let (naks, first) = match gap.report {
            Report::Sent { naks, first, .. } => (naks + 1, first),
            _ => (1, now),
        };
        let again = (naks <= NAK_REPETITIONS_MAX).then(|| now + self.round_trip() * (1 << naks));
        gap.report = Report::Sent { naks, first, again };
    }

    /// Records that the missing packet, which has this PSN, has arrived. `has_kept` says whether
    /// packets after it are kept.
    pub(super) fn on_closed(&mut self, gap: &Gap, psn: Psn, has_kept: bool, now: Instant) {
        let Report::Sent { naks, first, .. } = gap.report else {
            if matches!(gap.report, Report::Waiting(_)) && now >= gap.since + ANSWER_MAX {
                // A timer of the peer may have been faster than the NAK, so the round trip may be
                // much shorter.
                self.round_trip = self.round_trip.map(|it| (it / 2).max(ROUND_TRIP_MIN));
            }
            return;
        };
        // Only packets that may be forged had arrived, so perhaps nothing was missing.
        if gap.highest == psn {
            return;
        }
        let lasted = match naks {
            1 => now.saturating_duration_since(gap.since),
            _ => Duration::ZERO,
        };
        let is_recent = |gap: &ClosedGap| now.saturating_duration_since(gap.nak) < ROUND_TRIP_MAX;
        let closed = self.closed.get_or_insert_default();
        let [places @ .., last] = &mut **closed;
        match last.as_ref().is_some_and(is_recent) {
            true => places.rotate_right(1),
            false => closed.rotate_right(1),
        }
        closed[0] = Some(ClosedGap { psn, highest: gap.highest, nak: first, lasted });
        self.is_just_closed = has_kept;
        self.reordering = self.reordering * 7 / 8;
        let measured = now.saturating_duration_since(first);
        if measured > ROUND_TRIP_MAX {
            return;
        }
        let round_trip = match self.round_trip {
            None => measured,
            // The packet may answer any of the NAKs.
            Some(smoothed) if naks > 1 => smoothed * 2,
            Some(smoothed) => (smoothed + measured) / 2,
        };
        self.round_trip = Some(round_trip.clamp(ROUND_TRIP_MIN, ROUND_TRIP_MAX));
    }

    /// The gap that remains when the missing packet has arrived and this PSN is expected, because
    /// another packet is missing. `before` is the gap that has closed. `skips` means that kept
    /// packets were carried out in between.
    pub(super) fn next_gap(
        &self,
        before: &Gap,
        expected: Psn,
        skips: bool,
        now: Instant,
    ) -> Option<Gap> {
        if before.highest.is_before(expected) {
            return None;
        }
        let delay = match self.peer_goes_back {
            // No kept packet came next, so the peer may be sending the missing packets one by one.
            _ if !skips => self.nak_delay().max(self.round_trip() / 2),
            // The packets after the gap arrived before the NAK was sent, so the gap has lasted for
            // a round trip. But on a path that reorders packets, the gap may have begun just now.
            Some(false) if before.is_reported() && self.reordering < NAK_DELAY_MIN => {
                Duration::ZERO
            }
            // The peer may be about to send this missing packet, too. Moreover, kernel rxe must not
            // get an acknowledgement and a NAK while it sends a message again.
            _ => self.nak_delay(),
        };
        let follows_nak = before.follows_nak || before.is_reported();
        let gap = self.new_gap(before.highest, now, delay);
        Some(Gap { remained: true, follows_nak, ..gap })
    }

    /// Whether the peer may be sending the packets after this gap again, because it has got a NAK.
    /// Kernel rxe always goes back, whatever earlier gaps seem to show.
    pub(super) fn peer_may_go_back(&self, gap: &Gap, may_be_rxe: bool) -> bool {
        let may_go_back = may_be_rxe || self.peer_goes_back != Some(false);
        gap.is_reported() || gap.follows_nak && may_go_back
    }

    /// Handles a packet that had arrived before.
    pub(super) fn on_duplicate(
        &mut self,
        (psn, expected): (Psn, Psn),
        gap: Option<&mut Gap>,
        now: Instant,
    ) {
        let is_closed = |gap: &&mut Option<ClosedGap>| gap.is_some_and(|gap| gap.psn == psn);
        let mut gaps = self.closed.iter_mut().flat_map(|gaps| gaps.iter_mut());
        if let Some(closed) = gaps.find(is_closed).and_then(Option::take) {
            // Both the packet and its repetition have arrived, so the NAK was sent too soon. The
            // repetition has taken a round trip, unless a timer of the peer has caused it.
            let measured = now.saturating_duration_since(closed.nak);
            let has_sent_more = expected.is_after(closed.highest.next());
            if measured <= ANSWER_MAX.max(self.round_trip() * ROUND_TRIP_GROWTH) {
                self.reordering = self.reordering.max(closed.lasted);
                self.round_trip = self.round_trip.max(Some(measured.min(ROUND_TRIP_MAX)));
            } else if measured <= ROUND_TRIP_MAX && has_sent_more {
                self.round_trip = Some(self.round_trip() * ROUND_TRIP_GROWTH);
            }
        } else if let Some([Some(latest), ..]) = self.closed.as_deref()
            && psn.is_after(latest.psn)
        {
            (self.peer_goes_back, self.is_just_closed) = (Some(true), false);
        }
        if let Some(Gap { report: Report::Waiting(due), .. }) = gap
            && self.peer_goes_back == Some(true)
        {
            *due = now + self.nak_delay();
        }
    }

    fn new_gap(&self, last: Psn, now: Instant, delay: Duration) -> Gap {
        let report = Report::Waiting(now + delay);
        Gap {
            last,
            highest: last,
            far_packets: 0,
            since: now,
            remained: false,
            follows_nak: false,
            report,
        }
    }

    /// The time that a NAK waits: a quarter of a round trip, or longer if the path was seen to
    /// reorder packets by more, up to a round trip.
    fn nak_delay(&self) -> Duration {
        let Some(round_trip) = self.round_trip else { return FIRST_NAK_DELAY };
        let reordering = (self.reordering * 5 / 4).min(round_trip);
        (round_trip / 4).max(reordering).clamp(NAK_DELAY_MIN, NAK_DELAY_MAX)
    }

    fn round_trip(&self) -> Duration {
        self.round_trip.unwrap_or(ROUND_TRIP_ASSUMED)
    }
}
