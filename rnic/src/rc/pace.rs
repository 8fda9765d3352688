//! How much may be in flight, and when a requester that hears nothing asks again.
//!
//! The window follows the rules that TCP made usual: halved when a packet is lost, one packet when nothing is heard, doubled
//! with each round trip up to where the last loss was, then grown by one. IBA's local ACK timeout is half a second as a rule,
//! which is long for the last packet of a message that is lost: so before it the requester *probes*, and sends the oldest
//! packet again. Probes are not counted; the timeouts are, as IBA says.
//!
//! An answer that comes after a probe may be the answer to the first packet, late: it says nothing about the round trip (Karn).
//! So the next probe waits for as long as this answer took, until one has been measured (as RFC 6298, section 5, keeps a
//! timer backed off): else each message to a peer that has become slow would be sent twice. But an answer that comes as soon
//! after the probe as answers do come shows that a packet was lost: where many are, such waiting would cost much of what gets
//! through.

use std::time::{Duration, Instant};

use wire::rocev2::Psn;

/// A probe comes after so many round trips, at the earliest.
const PROBE_ROUND_TRIPS: u32 = 4;
/// A probe comes after this time, at the earliest: a peer that shares its processor with others is silent for as long.
const PROBE_MIN: Duration = Duration::from_millis(5);
/// A shorter ACK timeout is taken for this one: peers with adapters ask for microseconds.
const TIMEOUT_MIN: Duration = Duration::from_millis(32);
/// An answer that comes later than this after a probe shows that the peer is slow.
const LATE_ROUND_TRIPS: u32 = 2;
/// A peer that takes its leave may be silent for so long: probes at once and after 5, 15 and 35 ms, and the last one's answer.
/// One whose queue pair is gone, as a kernel's is at once, keeps its own DREP, and our consumer, waiting for no longer.
const PARTING_SILENCE: Duration = Duration::from_millis(50);
/// The same where round trips are long: probes at once and after 4 and 12 of them, and the last one's answer.
const PARTING_ROUND_TRIPS: u32 = 16;
/// And for so long in all, however it answers: a sixth of the time for which a peer of ours repeats its DREQ, and before a
/// kernel repeats it once.
const PARTING_MAX: Duration = Duration::from_secs(2);
/// Between two probes of a requester without ACK timeout.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// The window after a loss, at least.
const WINDOW_MIN: u32 = 2;

/// The window: PSNs from the oldest packet not acknowledged to the next to be sent.
pub(super) struct Window {
    max: u32,
    now: u32,
    /// Below it the window doubles with each round trip.
    threshold: u32,
    /// PSNs acknowledged since the window grew.
    acked: u32,
    /// Losses before this PSN have made the window smaller already.
    recovery: Option<Psn>,
    /// What it was before the last loss, if that turns out to be none.
    before: Option<(u32, u32)>,
}

impl Window {
    pub(super) fn new(max: u32) -> Self {
        Window { max, now: max, threshold: max, acked: 0, recovery: None, before: None }
    }

    /// PSNs in flight at most.
    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.now
    }

    /// So many PSNs have been acknowledged, up to `oldest`.
    #[inline]
    pub(super) fn acknowledged(&mut self, packets: u32, oldest: Psn) {
        if self.recovery.is_some_and(|end| !oldest.is_before(end)) {
            (self.recovery, self.before) = (None, None);
        }
        if self.now >= self.max {
            return;
        }
        if self.now < self.threshold {
            self.now = (self.now + packets).min(self.threshold);
            return;
        }
        self.acked += packets;
        if self.acked >= self.now {
            self.acked = 0;
            self.now += 1;
        }
    }

    /// A packet was lost; those up to `fresh` had been sent.
    pub(super) fn lost(&mut self, fresh: Psn) {
        self.reduce(fresh);
        self.now = self.now.min(self.threshold);
    }

    /// Nothing is heard.
    pub(super) fn silent(&mut self, fresh: Psn) {
        self.reduce(fresh);
        self.now = 1;
    }

    /// Nothing was lost: the acknowledgement of all was late.
    pub(super) fn restore(&mut self) {
        if let Some((now, threshold)) = self.before.take() {
            (self.now, self.threshold, self.recovery) = (now, threshold, None);
        }
    }

    fn reduce(&mut self, fresh: Psn) {
        if self.recovery.is_none() {
            self.before = Some((self.now, self.threshold));
            self.threshold = (self.now / 2).max(WINDOW_MIN).min(self.max);
            self.recovery = Some(fresh);
        }
        self.acked = 0;
    }
}

/// What a requester is to do that has heard nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Send the oldest packet again.
    Probe,
    /// The same; it counts.
    Retry,
    /// Give up.
    Exhausted,
    /// The same, since a peer that takes its leave has been silent for long enough.
    Parted,
}

/// The clocks of a requester that waits for an acknowledgement.
pub(super) struct Clocks {
    /// IBA's local ACK timeout; none: it waits for ever.
    timeout: Option<Duration>,
    retries: u8,
    retries_left: u8,
    /// While something is in flight: since when nothing new was acknowledged, or since the last retry.
    since: Option<Instant>,
    /// The same, whatever was tried since.
    quiet_since: Instant,
    /// The peer is known to have lived at this time, although it did not answer.
    lived_at: Option<Instant>,
    /// As `since`, or since the last probe.
    probed: Instant,
    /// Since then.
    probes: u32,
    /// When a packet was last sent again.
    repeated: Instant,
    /// What a late answer took, and a little more: a probe waits so long at least, until an answer is measured.
    patience: Duration,
    /// Smoothed.
    round_trip: Option<Duration>,
    /// A packet whose acknowledgement is waited for to measure one, and when it was sent.
    sample: Option<(Psn, Instant)>,
    parting: Option<Parting>,
}

/// The peer takes its leave.
struct Parting {
    /// When this requester gives up if nothing new is acknowledged until then.
    end: Instant,
    /// When it does in any case.
    last: Instant,
}

impl Clocks {
    /// `timeout`: 4.096 µs << n; 0: none.
    pub(super) fn new(timeout: u8, retries: u8, now: Instant) -> Self {
        // 5 bits.
        let after = Duration::from_nanos(4096 << (timeout & 0x1F));
        let timeout = (timeout != 0).then(|| after.max(TIMEOUT_MIN));
        Clocks {
            timeout,
            retries,
            retries_left: retries,
            since: None,
            quiet_since: now,
            lived_at: None,
            probed: now,
            probes: 0,
            repeated: now,
            patience: Duration::ZERO,
            round_trip: None,
            sample: None,
            parting: None,
        }
    }

    /// A packet leaves; `fresh`: for the first time, `asks`: asking for an acknowledgement.
    #[inline]
    pub(super) fn sent(&mut self, psn: Psn, fresh: bool, asks: bool, now: Instant) {
        if self.since.is_none() {
            self.restart(now);
        }
        if !fresh {
            self.repeated = now;
        } else if asks && self.sample.is_none() {
            self.sample = Some((psn, now));
        }
    }

    /// All before `oldest` is acknowledged, some of it now; `idle`: nothing is in flight any more.
    #[inline]
    pub(super) fn acknowledged(&mut self, oldest: Psn, idle: bool, now: Instant) {
        if self.probes > 0 {
            // Since a probe, or since a part of a READ was asked for again.
            let waited = now.saturating_duration_since(self.repeated);
            match self.round_trip {
                Some(round_trip) if waited <= round_trip * LATE_ROUND_TRIPS => {
                    self.patience = Duration::ZERO
                }
                Some(_) => {
                    let since = self.since.unwrap_or(self.probed);
                    self.patience = now.saturating_duration_since(since) + PROBE_MIN;
                }
                // At least that long.
                None => self.round_trip = Some(waited),
            }
        }
        if let Some((_, at)) = self.sample.take_if(|(psn, _)| psn.is_before(oldest)) {
            let measured = now.saturating_duration_since(at);
            let in_vain = !self.patience.is_zero();
            self.round_trip = Some(match self.round_trip {
                Some(smoothed) if !in_vain || measured < smoothed => (smoothed * 7 + measured) / 8,
                // What was believed has led to probes.
                _ => measured,
            });
            self.patience = Duration::ZERO;
        }
        self.restart(now);
        if idle {
            self.since = None;
        }
    }

    /// The peer is alive: all waiting begins anew.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant) {
        if let Some(Parting { end, last }) = &mut self.parting {
            let round_trips = self.round_trip.unwrap_or_default() * PARTING_ROUND_TRIPS;
            *end = (now + PARTING_SILENCE.max(round_trips)).min(*last);
        }
        self.retries_left = self.retries;
        (self.since, self.probed, self.probes) = (Some(now), now, 0);
        (self.quiet_since, self.lived_at) = (now, None);
    }

    /// For how long nothing new has been acknowledged, if something is in flight.
    pub(super) fn quiet_for(&self, now: Instant) -> Option<Duration> {
        self.since.map(|_| now.saturating_duration_since(self.quiet_since))
    }

    /// Whether the retries are used up.
    pub(super) fn is_last_try(&self) -> bool {
        self.retries_left == 0
    }

    /// The peer does not answer, but lives, as others know: for two timeouts the retries do not count.
    pub(super) fn peer_lives(&mut self, now: Instant) {
        self.lived_at = Some(now);
    }

    /// The peer takes its leave, and waits until this side has done so too.
    pub(super) fn part(&mut self, now: Instant) {
        let idle = self.since.is_none();
        self.parting = Some(Parting { end: now, last: now + PARTING_MAX });
        self.restart(now);
        self.patience = Duration::ZERO;
        if idle {
            self.since = None;
        }
    }

    /// Packets are sent again: their acknowledgements say nothing about a round trip.
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    /// How long an answer is waited for, and how often a request is sent again without one.
    pub(super) fn timeout_and_retries(&self) -> (Duration, u8) {
        (self.timeout.unwrap_or(PROBE_MAX), self.retries)
    }

    /// Less than this after a packet was sent again, what comes is about the first time.
    pub(super) fn shortest_answer(&self) -> Duration {
        self.round_trip.unwrap_or_default() / 2
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let (since, probe) = (self.since?, self.probed + self.probe_after());
        let at = self.timeout.map_or(probe, |timeout| probe.min(since + timeout));
        Some(self.parting.as_ref().map_or(at, |parting| parting.end.min(at)))
    }

    /// What is to be done at this time, if anything.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Overdue> {
        let since = self.since?;
        if self.parting.as_ref().is_some_and(|parting| now >= parting.end) {
            return Some(Overdue::Parted);
        }
        if self.timeout.is_some_and(|timeout| now >= since + timeout) {
            let lives = self
                .lived_at
                .zip(self.timeout)
                .is_some_and(|(at, timeout)| now <= at + 2 * timeout);
            if self.retries_left == 0 && !lives {
                return Some(Overdue::Exhausted);
            }
            self.retries_left = self.retries_left.saturating_sub(1);
            (self.since, self.probed, self.probes) = (Some(now), now, 0);
            return Some(Overdue::Retry);
        }
        if now < self.probed + self.probe_after() {
            return None;
        }
        (self.probed, self.probes) = (now, self.probes + 1);
        Some(Overdue::Probe)
    }

    /// From [`probed`](Self::probed) on.
    fn probe_after(&self) -> Duration {
        let round_trips = self.round_trip.unwrap_or_default() * PROBE_ROUND_TRIPS;
        let shortest = PROBE_MIN.max(round_trips).max(self.patience);
        (shortest * (1 << self.probes.min(16))).min(self.timeout.unwrap_or(PROBE_MAX))
    }
}
