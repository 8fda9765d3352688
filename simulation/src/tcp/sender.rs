//! The sender of a transfer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::congestion_window::CongestionWindow;
use super::{Ack, Algorithm};

/// The minimum retransmission timeout.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// The maximum retransmission timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// The number of later segments that must have arrived before a segment counts as lost at once, as
/// long as no reordering has been seen (RFC 8985, section 6.2).
const DUPLICATE_THRESHOLD: usize = 3;
/// The delay of a probe, in round trips.
const PROBE_ROUND_TRIPS: u32 = 2;

/// A sender, to which the caller supplies segments.
///
/// ```text
/// on data:         sender.supply(segments)
/// on an ACK:       sender.receive(now, ack)
/// at deadline():   sender.expire(now)
/// after each:      while let Some(number) = sender.transmit(now) { send the segment }
/// ```
#[derive(Debug)]
pub(crate) struct Sender {
    window: CongestionWindow,
    /// The number of transmissions so far.
    transmissions: u64,
    /// The number of segments supplied so far.
    supplied: u64,
    /// The oldest segment that is not acknowledged.
    oldest: u64,
    /// The segments from `oldest` on that have been sent.
    segments: VecDeque<Segment>,
    /// The number of segments in each state.
    in_flight: usize,
    sacked: usize,
    lost: usize,
    recovery: Option<Recovery>,
    round_trip: RoundTrip,
    rack: Rack,
    /// The time from which the probe and the timeout count.
    waiting_since: Option<Instant>,
    has_probed: bool,
    /// The number of timeouts in a row.
    timeouts: u32,
    /// A probe that is to be sent although the window may be full.
    probe: Option<u64>,
    is_window_full: bool,
}

/// The time from a reduction of the window until all segments that were in flight then are
/// acknowledged. In this time no loss reduces the window again.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// The first segment that had not been sent at the reduction.
    end: u64,
    /// Whether the window grows meanwhile. It does so after a timeout.
    grows: bool,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    sent_at: Instant,
    /// The number of transmissions before this one.
    order: u64,
    state: State,
    is_repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Sacked,
    Lost,
}

/// Measured round trips (RFC 6298).
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
    minimum: Duration,
}

/// The state of RACK.
#[derive(Debug, Default)]
struct Rack {
    /// Among the transmissions that have arrived, the order of the last one.
    newest: Option<u64>,
    /// The round trip of this transmission.
    round_trip: Duration,
    /// The highest segment that has arrived.
    highest: Option<u64>,
    /// Whether a segment that was sent once arrived after a higher one.
    has_seen_reordering: bool,
    /// The time at which a segment that is late counts as lost.
    deadline: Option<Instant>,
}

impl Sender {
    /// A sender without segments. `handshake` is the round trip that the handshake has measured.
    pub(crate) fn new(algorithm: Algorithm, handshake: Duration) -> Self {
        Sender {
            window: CongestionWindow::new(algorithm),
            transmissions: 0,
            supplied: 0,
            oldest: 0,
            segments: VecDeque::new(),
            in_flight: 0,
            sacked: 0,
            lost: 0,
            recovery: None,
            round_trip: RoundTrip::new(handshake),
            rack: Rack::default(),
            waiting_since: None,
            has_probed: false,
            timeouts: 0,
            probe: None,
            is_window_full: false,
        }
    }

    /// Adds segments to be sent after those supplied before.
    pub(crate) fn supply(&mut self, segments: u64) {
        self.supplied += segments;
    }

    /// The number of segments that are acknowledged together with all segments before them.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.oldest
    }

    /// The congestion window in segments.
    #[cfg(test)]
    pub(crate) fn window(&self) -> u64 {
        self.window.segments()
    }

    /// Handles an acknowledgement.
    pub(crate) fn receive(&mut self, now: Instant, ack: &Ack) {
        let acknowledged = ack.next.saturating_sub(self.oldest).min(self.segments.len() as u64);
        for _ in 0..acknowledged {
            let number = self.oldest;
            self.oldest += 1;
            if let Some(segment) = self.segments.pop_front() {
                self.leave(segment.state);
                if segment.state != State::Sacked {
                    self.deliver(now, number, segment);
                }
            }
        }
        let mut any_sacked = false;
        for (from, to) in ack.ranges {
            for number in from.max(self.oldest)..to.max(self.oldest) {
                let index = (number - self.oldest) as usize;
                let Some(&segment) = self.segments.get(index) else { break };
                if segment.state != State::Sacked {
                    self.leave(segment.state);
                    self.sacked += 1;
                    self.segments[index].state = State::Sacked;
                    self.deliver(now, number, segment);
                    any_sacked = true;
                }
            }
        }
        self.recovery = self.recovery.filter(|recovery| self.oldest < recovery.end);
        if acknowledged > 0 {
            (self.timeouts, self.has_probed) = (0, false);
            self.waiting_since = (!self.segments.is_empty()).then_some(now);
            // A window that the supply of segments does not fill must not grow (RFC 9438, 5.8).
            let may_grow = self.recovery.is_none_or(|recovery| recovery.grows);
            if may_grow && self.is_window_full {
                let round_trip = self.round_trip.smoothed;
                self.window.on_ack(acknowledged, round_trip, now);
            }
        }
        if acknowledged > 0 || any_sacked {
            self.detect_losses(now);
        }
    }

    /// Returns the number of the next segment to be sent now, if any.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<u64> {
        if let Some(number) = self.probe.take() {
            return Some(self.send(now, number));
        }
        self.is_window_full = self.in_flight as u64 >= self.window.segments();
        if self.is_window_full {
            return None;
        }
        if self.lost > 0 {
            let index = self.segments.iter().position(|segment| segment.state == State::Lost)?;
            return Some(self.send(now, self.oldest + index as u64));
        }
        let next = self.next();
        (next < self.supplied).then(|| self.send(now, next))
    }

    /// The time at which to call [`expire`](Self::expire).
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timer = self.waiting_since.map(|since| match self.may_probe() {
            true => since + self.probe_delay().min(self.timeout()),
            false => since + self.timeout(),
        });
        timer.into_iter().chain(self.rack.deadline).min()
    }

    /// Handles deadlines that have passed.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.rack.deadline.is_some_and(|at| at <= now) {
            self.detect_losses(now);
        }
        let Some(since) = self.waiting_since else { return };
        if now >= since + self.timeout() {
            let is_new = self.recovery.is_none();
            for segment in self.segments.iter_mut().filter(|one| one.state == State::InFlight) {
                segment.state = State::Lost;
            }
            self.lost += std::mem::take(&mut self.in_flight);
            self.window.on_timeout(is_new);
            self.recovery = Some(Recovery { end: self.next(), grows: true });
            (self.timeouts, self.waiting_since) = (self.timeouts + 1, Some(now));
            self.rack.deadline = None;
        } else if self.may_probe() && now >= since + self.probe_delay() {
            (self.has_probed, self.waiting_since) = (true, Some(now));
            let next = self.next();
            self.probe = Some(if next < self.supplied { next } else { next - 1 });
        }
    }

    /// The first segment that has not been sent.
    fn next(&self) -> u64 {
        self.oldest + self.segments.len() as u64
    }

    /// Whether a probe may be sent: none was sent since the last progress, and nothing is known to
    /// be missing.
    fn may_probe(&self) -> bool {
        !self.has_probed && self.timeouts == 0 && self.sacked == 0 && self.lost == 0
    }

    fn probe_delay(&self) -> Duration {
        self.round_trip.smoothed * PROBE_ROUND_TRIPS
    }

    fn timeout(&self) -> Duration {
        let RoundTrip { smoothed, variation, .. } = self.round_trip;
        let base = (smoothed + 4 * variation).max(TIMEOUT_MIN);
        (base * (1 << self.timeouts.min(10))).min(TIMEOUT_MAX)
    }

    /// Records that a segment is sent.
    fn send(&mut self, now: Instant, number: u64) -> u64 {
        let index = (number - self.oldest) as usize;
        let is_repeated = index < self.segments.len();
        let order = self.transmissions;
        let segment = Segment { sent_at: now, order, state: State::InFlight, is_repeated };
        if is_repeated {
            self.leave(self.segments[index].state);
            self.segments[index] = segment;
        } else {
            self.segments.push_back(segment);
        }
        self.transmissions += 1;
        self.in_flight += 1;
        self.waiting_since.get_or_insert(now);
        number
    }

    /// Records that a segment is no longer in a state.
    fn leave(&mut self, state: State) {
        match state {
            State::InFlight => self.in_flight -= 1,
            State::Sacked => self.sacked -= 1,
            State::Lost => self.lost -= 1,
        }
    }

    /// Records that a segment has arrived.
    fn deliver(&mut self, now: Instant, number: u64, segment: Segment) {
        let took = now.saturating_duration_since(segment.sent_at);
        if !segment.is_repeated {
            self.round_trip.measure(took);
            if self.rack.highest.is_some_and(|highest| number < highest) {
                self.rack.has_seen_reordering = true;
            }
        }
        self.rack.highest = self.rack.highest.max(Some(number));
        // The acknowledgement may answer the first transmission of a repeated segment.
        let is_spurious = segment.is_repeated && took < self.round_trip.minimum;
        if !is_spurious && self.rack.newest.is_none_or(|newest| segment.order > newest) {
            self.rack.newest = Some(segment.order);
            self.rack.round_trip = took;
        }
    }

    /// RFC 8985, section 6.2, step 5: a segment is lost if a segment that was sent later has
    /// arrived, and if the time for reordering has passed.
    fn detect_losses(&mut self, now: Instant) {
        self.rack.deadline = None;
        let Some(newest) = self.rack.newest else { return };
        let quarter = self.round_trip.minimum / 4;
        let is_sure = self.recovery.is_some() || self.sacked >= DUPLICATE_THRESHOLD;
        let tolerance =
            if is_sure && !self.rack.has_seen_reordering { Duration::ZERO } else { quarter };
        let mut any_lost = false;
        for segment in &mut self.segments {
            if segment.state != State::InFlight || segment.order >= newest {
                continue;
            }
            let late = segment.sent_at + self.rack.round_trip + tolerance;
            if late <= now {
                segment.state = State::Lost;
                (self.in_flight, self.lost) = (self.in_flight - 1, self.lost + 1);
                any_lost = true;
            } else {
                self.rack.deadline =
                    Some(self.rack.deadline.map_or(late, |deadline| deadline.min(late)));
            }
        }
        if any_lost && self.recovery.is_none() {
            self.window.on_loss();
            self.recovery = Some(Recovery { end: self.next(), grows: false });
        }
    }
}

impl RoundTrip {
    fn new(first: Duration) -> Self {
        RoundTrip { smoothed: first, variation: first / 2, minimum: first }
    }

    fn measure(&mut self, took: Duration) {
        self.minimum = self.minimum.min(took);
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(took)) / 4;
        self.smoothed = (self.smoothed * 7 + took) / 8;
    }
}
