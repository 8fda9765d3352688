//! The retransmission timer of a requester.
//!
//! IBA's local ACK timeout is usually half a second, which is long if the last packet of a message
//! is lost. Therefore the requester *probes* earlier: it sends the oldest packet again. Only ACK
//! timeouts count as retries, as IBA specifies; probes do not.
//!
//! Connections that lose packets in the same moment would also probe in the same moment. Therefore
//! each probe is delayed by up to a quarter more than its minimum (jitter). The minimum doubles
//! with each probe. The jitter of a connection follows from its numbers, so that a run can be
//! repeated. There is no jitter in the first probe if [`PROBE_DELAY_MIN`] determines its delay,
//! because connections with such short round trips do not share a queue that takes milliseconds;
//! and none while the peer disconnects, because that time is short.
//!
//! An answer that arrives after a probe may be a late answer to the first packet, so it does not
//! measure the round trip (Karn's algorithm). Until a round trip has been measured, each further
//! probe waits at least as long as that answer took. (RFC 6298, section 5, keeps a timer backed off
//! in the same way.) Without this wait, each message to a peer that has become slow would be sent
//! twice.
//!
//! There is one exception. If the answer follows the probe after about one round trip, the first
//! packet was lost and the peer is not slow. In this case the wait is not extended, because longer
//! waits would cost much of the throughput if losses are frequent.

use std::time::{Duration, Instant};

use wire::rocev2::Psn;

/// The minimum delay of a probe in round trips.
const PROBE_DELAY_ROUND_TRIPS: u32 = 4;
/// The minimum delay of a probe. A peer that shares its processor with others may be silent for
/// this long.
const PROBE_DELAY_MIN: Duration = Duration::from_millis(5);
/// The minimum ACK timeout. Peers with hardware adapters ask for microseconds.
const ACK_TIMEOUT_MIN: Duration = Duration::from_millis(32);
/// An answer that comes later than this number of round trips after a probe shows that the peer is
/// slow.
const LATE_ANSWER_ROUND_TRIPS: u32 = 2;
/// The time for which a peer that disconnects may be silent. Probes are sent at once and after 5,
/// 15 and 35 ms; the remaining time is for the answer to the last probe. A longer wait would only
/// delay the DREP and this end's program: a peer whose queue pair is gone never responds, and a
/// kernel removes its queue pair at once.
const PEER_CLOSE_SILENCE_MAX: Duration = Duration::from_millis(50);
/// The time for which a peer that disconnects may be silent, in round trips. It applies if it is
/// longer than [`PEER_CLOSE_SILENCE_MAX`]. Probes are sent at once and after 4 and 12 round trips;
/// the remaining time is for the answer to the last probe.
const PEER_CLOSE_SILENCE_ROUND_TRIPS: u32 = 16;
/// The maximum time of the whole close, even if the peer answers. It is a sixth of the time for
/// which an adapter of this implementation repeats its DREQ, and shorter than the time after which
/// a kernel first repeats its own DREQ.
const PEER_CLOSE_MAX: Duration = Duration::from_secs(2);
/// The maximum delay of a probe for a requester without an ACK timeout.
const PROBE_DELAY_MAX: Duration = Duration::from_secs(1);
/// The jitter of a probe has this number of steps, each of which is 1/32 of the delay.
const JITTER_STEPS: u32 = 8;

/// The reaction of the requester when the timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerExpiry {
    /// The requester sends the oldest packet again.
    Probe,
    /// The requester sends the oldest packet again, and counts a retry.
    Retry,
    /// The requester gives up, because the retries are used up.
    Exhausted,
    /// The requester gives up, because a peer that disconnects has been silent for long enough.
    PeerCloseTimedOut,
}

/// The timer of a requester that waits for an acknowledgement.
pub(super) struct RetransmissionTimer {
    /// IBA's local ACK timeout. `None`: the requester waits for ever.
    ack_timeout: Option<Duration>,
    retries: u32,
    retries_left: u32,
    /// The time of the latest of these events: the first packet was sent, a new packet was
    /// acknowledged, or a retry was made. `None` if no packet is in flight.
    waiting_since: Option<Instant>,
    /// The time at which a new packet was last acknowledged, even if packets have been sent again
    /// since.
    silent_since: Instant,
    /// The time at which the peer was last known to be alive although it did not answer.
    alive_at: Option<Instant>,
    /// The time from which the delay of the next probe counts: the latest of `waiting_since`, the
    /// last probe and the last response that arrived early.
    probe_delay_since: Instant,
    /// The number of probes since `waiting_since`.
    probes: u32,
    /// The time at which a packet was last sent again.
    last_retransmission: Instant,
    /// The time that a late answer took, plus a margin. It is the minimum delay of a probe until
    /// a round trip has been measured.
    probe_delay_min: Duration,
    /// The smoothed round-trip time.
    round_trip: Option<Duration>,
    /// Whether `round_trip` is the time of an acknowledgement that may answer a probe.
    is_guess: bool,
    /// The packet that measures the next round trip, and the time at which it was sent.
    sample: Option<(Psn, Instant)>,
    peer_close: Option<PeerCloseDeadlines>,
    /// The state of the linear congruential generator from which the jitter comes.
    jitter: u32,
}

/// The deadlines of a connection that the peer has closed.
struct PeerCloseDeadlines {
    /// The time at which the requester gives up if no new packet is acknowledged until then.
    silent_until: Instant,
    /// The time at which the requester gives up in any case.
    latest: Instant,
}

impl RetransmissionTimer {
    /// Creates a timer. `ack_timeout` is the code n of the timeout 4.096 µs << n. 0 means no
    /// timeout. `seed` determines the jitter.
    pub(super) fn new(ack_timeout: u8, retries: u32, seed: u32, now: Instant) -> Self {
        // The timeout code has 5 bits.
        let after = Duration::from_nanos(4096 << (ack_timeout & 0x1F));
        let ack_timeout = (ack_timeout != 0).then(|| after.max(ACK_TIMEOUT_MIN));
        RetransmissionTimer {
            ack_timeout,
            retries,
            retries_left: retries,
            waiting_since: None,
            silent_since: now,
            alive_at: None,
            probe_delay_since: now,
            probes: 0,
            last_retransmission: now,
            probe_delay_min: Duration::ZERO,
            round_trip: None,
            is_guess: false,
            sample: None,
            peer_close: None,
            jitter: seed,
        }
    }

    /// Records that a packet is sent. `is_new` means that it is sent for the first time, and
    /// `requests_ack` that it requests an acknowledgement.
    #[inline]
    pub(super) fn on_sent(&mut self, psn: Psn, is_new: bool, requests_ack: bool, now: Instant) {
        if self.waiting_since.is_none() {
            self.restart(now);
        }
        if !is_new {
            self.last_retransmission = now;
        } else if requests_ack && self.sample.is_none() {
            self.sample = Some((psn, now));
        }
    }

    /// Records that all packets before `oldest` are acknowledged, and that some of these
    /// acknowledgements are new. `idle` means that no packet is in flight any more. Returns the
    /// round trip that the acknowledgement measures, if it measures one.
    #[inline]
    pub(super) fn on_ack(&mut self, oldest: Psn, idle: bool, now: Instant) -> Option<Duration> {
        if self.probes > 0 {
            // The time since the last retransmission: a probe, or a READ request for missing
            // responses.
            let waited = now.saturating_duration_since(self.last_retransmission);
            match self.round_trip {
                Some(round_trip) if waited <= round_trip * LATE_ANSWER_ROUND_TRIPS => {
                    self.probe_delay_min = Duration::ZERO
                }
                Some(_) => {
                    let waiting_since = self.waiting_since.unwrap_or(self.probe_delay_since);
                    self.probe_delay_min =
                        now.saturating_duration_since(waiting_since) + PROBE_DELAY_MIN;
                }
                // The round trip takes at most this time. It may be much longer than `waited`, if
                // the first round trip is longer than the delays of several probes.
                None => {
                    let since = self.waiting_since.unwrap_or(self.probe_delay_since);
                    self.round_trip = Some(now.saturating_duration_since(since));
                    self.is_guess = true;
                }
            }
        }
        let sample = self.sample.take_if(|(psn, _)| psn.is_before(oldest));
        let measured = sample.map(|(_, at)| now.saturating_duration_since(at));
        if let Some(measured) = measured {
            let probed_in_vain = !self.probe_delay_min.is_zero();
            self.round_trip = Some(match self.round_trip {
                Some(smoothed) if !self.is_guess && (!probed_in_vain || measured < smoothed) => {
                    (smoothed * 7 + measured) / 8
                }
                // There is no previous estimate, or it was too short and caused probes.
                _ => measured,
            });
            (self.probe_delay_min, self.is_guess) = (Duration::ZERO, false);
        }
        self.restart(now);
        if idle {
            self.waiting_since = None;
        }
        measured
    }

    /// The peer has answered: starts all timers again and restores the number of retries.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant) {
        if let Some(PeerCloseDeadlines { silent_until, latest }) = &mut self.peer_close {
            let round_trips = self.round_trip.unwrap_or_default() * PEER_CLOSE_SILENCE_ROUND_TRIPS;
            *silent_until = (now + PEER_CLOSE_SILENCE_MAX.max(round_trips)).min(*latest);
        }
        self.retries_left = self.retries;
        (self.waiting_since, self.probe_delay_since, self.probes) = (Some(now), now, 0);
        (self.silent_since, self.alive_at) = (now, None);
    }

    /// Records that a response has arrived although an earlier one is missing. The peer is alive,
    /// and the missing response has been requested, so the next probe is not due yet.
    pub(super) fn on_early_response(&mut self, now: Instant) {
        self.probe_delay_since = now;
    }

    /// The time for which no new packet has been acknowledged, if packets are in flight.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.waiting_since.map(|_| now.saturating_duration_since(self.silent_since))
    }

    /// Whether the retries are used up.
    pub(super) fn is_last_retry(&self) -> bool {
        self.retries_left == 0
    }

    /// Records that the peer is alive although it does not answer, for example because its process
    /// is stopped. For two ACK timeouts the connection does not fail for lack of retries.
    pub(super) fn note_peer_alive(&mut self, now: Instant) {
        self.alive_at = Some(now);
    }

    /// Records that the peer disconnects. From now on the timer also limits the time of the close.
    pub(super) fn start_peer_close(&mut self, now: Instant) {
        let idle = self.waiting_since.is_none();
        self.peer_close =
            Some(PeerCloseDeadlines { silent_until: now, latest: now + PEER_CLOSE_MAX });
        self.restart(now);
        self.probe_delay_min = Duration::ZERO;
        if idle {
            self.waiting_since = None;
        }
    }

    /// Discards the sample: packets are sent again, so their acknowledgements do not measure a
    /// round trip.
    pub(super) fn discard_sample(&mut self) {
        self.sample = None;
    }

    /// The time that the requester waits for an answer, and the number of times that it sends an
    /// unanswered request again.
    pub(super) fn timeout_and_retries(&self) -> (Duration, u32) {
        (self.ack_timeout.unwrap_or(PROBE_DELAY_MAX), self.retries)
    }

    /// The smoothed round-trip time. `None` if no round trip has been measured.
    #[inline]
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip.filter(|_| !self.is_guess)
    }

    /// The minimum time until an answer can arrive. A NAK that arrives sooner after a
    /// retransmission refers to packets that were sent before the retransmission.
    pub(super) fn min_answer_time(&self) -> Duration {
        self.round_trip().unwrap_or_default() / 2
    }

    /// Whether probes have been sent since a new packet was last acknowledged.
    pub(super) fn has_probed(&self) -> bool {
        self.probes > 0
    }

    /// Whether a packet was sent again so recently that no answer to it can have arrived.
    pub(super) fn has_just_repeated(&self, now: Instant) -> bool {
        now < self.last_retransmission + self.min_answer_time()
    }

    /// The time at which [`expire`](Self::expire) is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (waiting_since, probe) =
            (self.waiting_since?, self.probe_delay_since + self.probe_delay());
        let at =
            self.ack_timeout.map_or(probe, |ack_timeout| probe.min(waiting_since + ack_timeout));
        Some(self.peer_close.as_ref().map_or(at, |peer_close| peer_close.silent_until.min(at)))
    }

    /// The action that the requester must take now, if any.
    pub(super) fn expire(&mut self, now: Instant) -> Option<TimerExpiry> {
        let waiting_since = self.waiting_since?;
        if self.peer_close.as_ref().is_some_and(|peer_close| now >= peer_close.silent_until) {
            return Some(TimerExpiry::PeerCloseTimedOut);
        }
        if self.ack_timeout.is_some_and(|ack_timeout| now >= waiting_since + ack_timeout) {
            let is_alive = self
                .alive_at
                .zip(self.ack_timeout)
                .is_some_and(|(at, ack_timeout)| now <= at + 2 * ack_timeout);
            if self.retries_left == 0 && !is_alive {
                return Some(TimerExpiry::Exhausted);
            }
            self.retries_left = self.retries_left.saturating_sub(1);
            (self.waiting_since, self.probe_delay_since, self.probes) = (Some(now), now, 0);
            return Some(TimerExpiry::Retry);
        }
        if now < self.probe_delay_since + self.probe_delay() {
            return None;
        }
        (self.probe_delay_since, self.probes) = (now, self.probes + 1);
        // The constants are those of Numerical Recipes' generator ("ranqd1").
        self.jitter = self.jitter.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(TimerExpiry::Probe)
    }

    /// The delay from `probe_delay_since` to the next probe.
    fn probe_delay(&self) -> Duration {
        let round_trips = self.round_trip.unwrap_or_default() * PROBE_DELAY_ROUND_TRIPS;
        let shortest = PROBE_DELAY_MIN.max(round_trips).max(self.probe_delay_min);
        let delay = shortest * (1 << self.probes.min(16));
        let has_jitter = delay > PROBE_DELAY_MIN && self.peer_close.is_none();
        // The low bits of the generator have short periods.
        let steps = if has_jitter { (self.jitter >> 16) % (JITTER_STEPS + 1) } else { 0 };
        let max = self.ack_timeout.unwrap_or(PROBE_DELAY_MAX);
        // The longest delays must have jitter, too, and stay within the maximum.
        let delay = if has_jitter { delay.min(max / (32 + JITTER_STEPS) * 32) } else { delay };
        (delay + delay / 32 * steps).min(max)
    }
}
