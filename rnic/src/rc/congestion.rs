//! The congestion control of a requester: the number of packets that may be in flight, and the
//! time at which the next packets may leave.
//!
//! [`CongestionControl`] is the interface, and [`Cubic`] the only implementation. It does what a
//! TCP sender does, because both share the same queues:
//!
//! | situation | behavior | source |
//! |---|---|---|
//! | start | a small window, which doubles with each round trip | RFC 6928, RFC 5681 |
//! | round trips become longer | slow start grows it by a quarter per round trip, and soon ends | RFC 9406 (HyStart++) |
//! | loss | the window becomes 0.7 times as large, then grows along a cubic curve | RFC 9438 |
//! | timeout | the window becomes one packet; slow start up to 0.7 times the earlier window | RFC 5681 |
//! | congestion notification (CNP) | the window shrinks by half the share of marked round trips | DCQCN (SIGCOMM 2015), RFC 8257 |
//! | idle | the window halves in each idle time | RFC 2861 |
//! | the program sends little | the window does not grow | RFC 9438, section 5.8 |
//! | a reduction was wrong | it is undone | RFC 4015 in spirit |
//! | no queue grows | the window grows faster, for TCP's rate in octets | RFC 4828 in spirit |
//!
//! All limits are in packets, that is in PSNs. The responses to a READ count like sent packets.
//!
//! # Pacing
//!
//! The packets of a window leave in batches that are spread over the round trip (RFC 9438, section
//! 4.1, recommends pacing). A batch takes [`BATCH_TIME`] at the rate of the connection, so that a
//! fast connection still sends many packets with one system call. Paths with round trips below
//! [`PACED_ROUND_TRIP_MIN`] have no pacing: there a timer costs more than it gains. Connections
//! within a host have none either, because they share no queue of the network.

use std::time::{Duration, Instant};

use wire::rocev2::{PathMtu, Psn};

/// The initial window in octets. This is RFC 6928's value of ten segments of TCP on Ethernet,
/// rounded up to a power of two.
const INITIAL_WINDOW_OCTETS: usize = 16 << 10;
/// The minimum of the initial window, as in RFC 6928.
const INITIAL_WINDOW_PACKETS: u32 = 10;
/// The minimum slow start threshold, in packets.
const SLOW_START_THRESHOLD_MIN: u32 = 2;
/// The window and the fractions are fixed-point numbers with this number of fraction bits.
const FRACTION_BITS: u32 = 10;
const ONE: u64 = 1 << FRACTION_BITS;
/// The factor by which a loss multiplies the window (RFC 9438: β).
const LOSS_FACTOR: (u64, u64) = (7, 10);
/// The growth per round trip, in 1/1024 packets, that is as fast as that of a Reno sender (RFC
/// 9438: α = 3 (1 - β) / (1 + β)).
const RENO_GROWTH: u64 = 542;
/// The number of octets of the headers of IPv4 and TCP, with timestamps.
const TCP_HEADER_OCTETS: usize = 52;
/// The growth is compared with TCP in IP packets of this size. `JUMBO_IP_MTU` applies if the path
/// MTU is 4096, because only then the peer's interface is known to have jumbo frames.
const ETHERNET_IP_MTU: usize = 1500;
const JUMBO_IP_MTU: usize = 9000;
/// The maximum factor of the growth, for very small path MTUs.
const GROWTH_FACTOR_MAX: u64 = 5 * ONE;
/// A window of fewer packets than this grows no faster than TCP's window in packets. Windows are
/// so small where many flows share a path.
const FAST_GROWTH_WINDOW_MIN: u64 = 6;
/// If more than one packet in this number is lost, many flows share the path and have filled its
/// queue. Fewer losses may be random.
const LOSS_INTERVAL_MIN: u32 = 10;
/// The weight of a loss in the smoothed interval between losses.
const LOSS_INTERVAL_WEIGHT: u32 = 8;
/// The maximum of an interval, so that a long time without losses is soon forgotten.
const LOSS_INTERVAL_MAX: u32 = 1000;
/// The maximum window of a short path, in octets and in packets.
const SHORT_PATH_WINDOW_OCTETS: usize = 1 << 20;
const SHORT_PATH_WINDOW_PACKETS: u32 = 1024;
/// The maximum round trip of a short path. On a longer path, the maximum window is larger in
/// proportion, so that it permits a third of a gigabit per second.
const SHORT_PATH_ROUND_TRIP: Duration = Duration::from_millis(25);
/// The maximum time on the cubic curve. The limit has no practical effect, because the curve is
/// very steep at this time.
const CURVE_TIME_MAX_MILLIS: u64 = 100_000;
/// If a round trip is longer than the shortest one by an eighth, and by at least this, it counts as
/// longer. (RFC 9406 has 4 ms, which is more than the whole queue of many switches.)
const ROUND_TRIP_GROWTH_MIN: Duration = Duration::from_millis(1);
/// The limit that takes the place of [`ROUND_TRIP_GROWTH_MIN`] where it is decided whether the
/// window may grow faster than TCP's. It is lower, because a wrong decision costs little there.
const SHORT_QUEUE_MIN: Duration = Duration::from_micros(30);
/// A round trip that is longer than the shortest one by this counts as longer in any case.
const ROUND_TRIP_GROWTH_MAX: Duration = Duration::from_millis(16);
/// The shortest round trip counts for at least this time, and for at most twice this time.
const SHORTEST_AGE_MAX: Duration = Duration::from_secs(10);
/// If the retransmission timer expires before a round trip has been measured, and the first round
/// trip is then at least this long, nothing counts as lost: the first delay of the timer, 5 ms, was
/// too short. Queues alone seldom cause such a round trip.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(10);
/// The number of longer round trips after which slow start ends, on paths without pacing and with
/// pacing (RFC 9406: CSS_ROUNDS, which is 5 and fits queues that hold more than a window). Without
/// pacing, a busy processor often makes round trips longer.
const LONGER_ROUND_TRIPS_MAX: (u8, u8) = (3, 1);
/// The divisor of the growth while round trips are longer (RFC 9406: CSS_GROWTH_DIVISOR).
const CAREFUL_GROWTH_DIVISOR: u64 = 4;
/// The weight of a round trip in the share of marked round trips (RFC 8257: g).
const MARK_WEIGHT: u64 = 16;
/// The window halves each time that the connection has been idle for this long, or for
/// [`IDLE_ROUND_TRIPS`] round trips if that is longer.
const IDLE_TIME: Duration = Duration::from_millis(100);
const IDLE_ROUND_TRIPS: u32 = 4;
/// Paths with shorter round trips have no pacing. The timers of an adapter have a resolution of 66
/// µs, and a thread may wake up as late.
const PACED_ROUND_TRIP_MIN: Duration = Duration::from_millis(1);
/// The time that a batch of packets takes at the rate of the connection.
const BATCH_TIME: Duration = Duration::from_micros(250);
/// A thread that wakes up late makes up for at most a round trip divided by this number.
const PACING_CREDIT_DIVISOR: u32 = 8;

/// Limits how many packets of a connection are in flight, and when they leave.
pub(super) trait CongestionControl {
    /// Records that packets, or a request for this many responses, are sent. Afterwards `in_flight`
    /// packets are in flight.
    fn on_sent(&mut self, psns: u32, in_flight: u32, now: Instant);
    /// Records that packets have been acknowledged.
    fn on_ack(&mut self, ack: &Acknowledged, now: Instant);
    /// Records that a packet was lost. `first_unsent` is the first PSN that has never been sent.
    fn on_loss(&mut self, first_unsent: Psn);
    /// Records that the timer has expired.
    fn on_timeout(&mut self, first_unsent: Psn);
    /// Takes the last recorded loss or expiry back: nothing was lost, and the acknowledgement was
    /// only late.
    fn on_late_ack(&mut self);
    /// Records that a packet was marked on its way, because a queue is long.
    fn on_mark(&mut self, first_unsent: Psn);
    /// Does the same as [`on_mark`](Self::on_mark) for a notification that may be forged, but does
    /// not shrink the window below the initial window.
    fn on_unproven_mark(&mut self, first_unsent: Psn);
    /// Records that the receiver has no buffer for a message.
    fn on_receiver_not_ready(&mut self);
    /// Records that time has passed, which may permit another batch.
    fn advance(&mut self, now: Instant);
    /// The maximum number of PSNs in flight. They belong to packets that were sent and are not
    /// acknowledged, and to responses that were requested and have not arrived. (While a packet is
    /// missing, new packets may be sent beyond this limit: see `recovery`.)
    fn window(&self) -> u32;
    /// The time before which no further packet may leave. `None` if packets may leave now.
    fn blocked_until(&self) -> Option<Instant>;
}

/// An acknowledgement of new packets.
pub(super) struct Acknowledged {
    /// The number of new packets that are acknowledged.
    pub(super) psns: u32,
    /// The number of packets that are in flight after the acknowledgement.
    pub(super) in_flight: u32,
    /// The first unacknowledged PSN.
    pub(super) oldest: Psn,
    /// Whether no packet is in flight any more.
    pub(super) is_last: bool,
    /// The round trip that the acknowledgement measures, if it measures one.
    pub(super) round_trip: Option<Duration>,
    /// The smoothed round trip, if one has been measured.
    pub(super) smoothed: Option<Duration>,
}

/// CUBIC (RFC 9438), with pacing.
pub(super) struct Cubic {
    /// The maximum window in packets on the path as it is now.
    max: u32,
    /// The value of `max` on a short path, and the maximum of `max` on long paths.
    max_of_path: (u32, u32),
    /// The initial window in packets.
    initial: u32,
    size: Size,
    /// If a packet before this PSN is lost or marked, the window is not reduced again.
    recovery_end: Option<Psn>,
    /// If a mark has caused the last reduction, the window before it. A loss in the same round trip
    /// reduces that window once more, as if there had been no mark.
    before_mark: Option<u64>,
    /// The sizes before the last reduction, to be restored if no packet was lost.
    before_loss: Option<Size>,
    /// The sizes before the timer first expired, if no round trip has been measured yet.
    before_measurement: Option<Size>,
    /// The curve along which the window grows. `None` until it grows again after a reduction.
    curve: Option<Curve>,
    /// The shortest round trip since the last idle time. It is forgotten after 10 to 20 s, because
    /// the path may become longer.
    shortest: Option<Duration>,
    /// Whether a round trip has been measured since the last idle time, so that `max` does not grow
    /// before the next idle time.
    max_is_measured: bool,
    /// The shortest round trip since a time at most [`SHORTEST_AGE_MAX`] ago, and this time.
    recent: Option<(Duration, Instant)>,
    /// Whether the last measured round trip was longer than the shortest one, so that a queue is
    /// growing.
    has_queue: bool,
    /// Whether the last measured round trip was longer than the shortest one by the lower limit
    /// [`SHORT_QUEUE_MIN`], so that a short queue may be growing.
    has_short_queue: bool,
    /// The smoothed number of packets between two losses, times [`LOSS_INTERVAL_WEIGHT`]. It begins
    /// with the minimum, so that the first losses decide.
    loss_interval: u32,
    /// The number of packets acknowledged since the last loss.
    since_loss: u32,
    /// The factor of a Reno sender's growth while no queue is growing.
    growth_factor: u64,
    /// The number of consecutive longer round trips in slow start.
    longer_round_trips: u8,
    smoothed: Duration,
    /// The maximum number of packets in flight since the last measured round trip.
    in_flight_max: u32,
    /// The smoothed share of round trips with a mark, from 0 to [`ONE`] (DCQCN: α).
    marked_share: u64,
    has_mark: bool,
    /// The receiver has no buffer, so only one packet is sent until it takes one.
    receiver_not_ready: bool,
    /// The time from which on no packet has been in flight.
    idle_since: Option<Instant>,
    /// Whether there is pacing if round trips are long enough.
    is_paced: bool,
    pacer: Pacer,
}

/// The sizes that a reduction changes. They are fixed-point numbers of packets.
#[derive(Clone, Copy)]
struct Size {
    window: u64,
    /// The window below which the window doubles with each round trip.
    slow_start_threshold: u64,
    /// The window at which the last packet was lost (RFC 9438: W_max).
    at_loss: u64,
}

/// The cubic curve, from the end of a reduction.
struct Curve {
    start: Instant,
    /// The time in milliseconds from `start` until the curve reaches `at_loss` (RFC 9438: K).
    plateau_millis: u64,
    /// The factor of the constant C, in units of 1 / [`ONE`].
    factor: u64,
    /// The window that a Reno sender would have (RFC 9438: W_est).
    reno: u64,
}

impl Cubic {
    /// Creates the control of a connection whose window has at most `limit` packets. `ip_mtu` is
    /// the maximum number of octets in an IP packet on the path.
    pub(super) fn new(mtu: PathMtu, ip_mtu: usize, limit: u32) -> Self {
        let max = limit
            .min((SHORT_PATH_WINDOW_OCTETS / mtu.octets()) as u32)
            .min(SHORT_PATH_WINDOW_PACKETS);
        let initial = ((INITIAL_WINDOW_OCTETS / mtu.octets()) as u32).max(INITIAL_WINDOW_PACKETS);
        let initial = initial.min(max);
        Cubic {
            max,
            max_of_path: (max, limit),
            initial,
            size: Size {
                window: u64::from(initial) << FRACTION_BITS,
                slow_start_threshold: u64::from(limit) << FRACTION_BITS,
                at_loss: 0,
            },
            recovery_end: None,
            before_mark: None,
            before_loss: None,
            before_measurement: None,
            curve: None,
            shortest: None,
            max_is_measured: false,
            recent: None,
            has_queue: false,
            has_short_queue: false,
            loss_interval: LOSS_INTERVAL_MIN * LOSS_INTERVAL_WEIGHT,
            since_loss: 0,
            growth_factor: growth_factor(mtu, ip_mtu),
            longer_round_trips: 0,
            smoothed: Duration::ZERO,
            in_flight_max: 0,
            marked_share: ONE,
            has_mark: false,
            receiver_not_ready: false,
            idle_since: None,
            is_paced: true,
            pacer: Pacer::new(),
        }
    }

    /// Switches the pacing off.
    pub(super) fn disable_pacing(&mut self) {
        self.is_paced = false;
        self.pace();
    }

    /// Opens the window to its maximum.
    #[cfg(test)]
    pub(super) fn open(&mut self) {
        self.max = self.max_of_path.1;
        self.size.window = u64::from(self.max) << FRACTION_BITS;
    }

    /// The shortest round trip since the last idle time.
    pub(super) fn shortest_round_trip(&self) -> Option<Duration> {
        self.shortest
    }

    /// Whether new packets may be sent although a packet is missing. If a queue is growing, or if
    /// many packets are lost because many flows share the path, the queue must drain first.
    pub(super) fn may_send_in_recovery(&self) -> bool {
        !self.has_queue && self.loss_interval >= LOSS_INTERVAL_MIN * LOSS_INTERVAL_WEIGHT
    }

    fn is_in_slow_start(&self) -> bool {
        self.size.window < self.size.slow_start_threshold
    }

    fn packets(&self) -> u64 {
        (self.size.window >> FRACTION_BITS).max(1)
    }

    /// Grows the window by the acknowledgement of `psns` packets.
    fn grow(&mut self, psns: u64, now: Instant) {
        let window = self.size.window;
        let grown = if self.is_in_slow_start() {
            let divisor = if self.longer_round_trips > 0 { CAREFUL_GROWTH_DIVISOR } else { 1 };
            (window + psns * ONE / divisor).min(self.size.slow_start_threshold)
        } else {
            let packets = self.packets();
            // The window is proportional to the fourth root of C (RFC 9438, section 5.1), and to
            // the square root of a Reno sender's growth.
            let is_free = !self.has_queue && !self.has_short_queue;
            let factor = if is_free { self.growth_factor } else { ONE };
            let curve_factor = factor * factor / ONE;
            let size = &mut self.size;
            let curve = self.curve.get_or_insert_with(|| Curve::new(size, curve_factor, now));
            let target = curve.at(now + self.smoothed, size.at_loss);
            let target = target.clamp(window, window + window / 2);
            let reno_growth = if curve.reno < size.at_loss { RENO_GROWTH } else { ONE };
            let factor = if packets >= FAST_GROWTH_WINDOW_MIN { factor } else { ONE };
            curve.reno += reno_growth * factor * psns / packets / ONE;
            (window + (target - window) * psns / packets).max(curve.reno)
        };
        self.size.window = grown.min(u64::from(self.max) << FRACTION_BITS);
    }

    /// Notes whether round trips have become longer, because a queue is growing. If they have, slow
    /// start ends.
    fn note_round_trip(&mut self, round_trip: Duration, now: Instant) {
        let (recent, since) = self.recent.unwrap_or((round_trip, now));
        let recent = recent.min(round_trip);
        let is_old = now.saturating_duration_since(since) >= SHORTEST_AGE_MAX;
        let shortest = self.shortest.filter(|_| !is_old).map_or(recent, |it| it.min(round_trip));
        self.shortest = Some(shortest);
        self.recent = Some(if is_old { (round_trip, now) } else { (recent, since) });
        // `shortest` is forgotten after some time. If the connection's own packets fill a long
        // queue, this would let the window grow with the queue. So the maximum does not grow before
        // the next idle time.
        let max = self.max_of(round_trip);
        self.max = if self.max_is_measured { self.max.min(max) } else { max };
        self.max_is_measured = true;
        self.size.window = self.size.window.min(u64::from(self.max) << FRACTION_BITS);
        let is_longer =
            |min| round_trip >= shortest + (shortest / 8).clamp(min, ROUND_TRIP_GROWTH_MAX);
        self.has_queue = is_longer(ROUND_TRIP_GROWTH_MIN);
        self.has_short_queue = is_longer(SHORT_QUEUE_MIN);
        if !self.has_queue || !self.is_in_slow_start() {
            self.longer_round_trips = 0;
            return;
        }
        self.longer_round_trips += 1;
        let (unpaced, paced) = LONGER_ROUND_TRIPS_MAX;
        let max = if shortest < PACED_ROUND_TRIP_MIN { unpaced } else { paced };
        if self.longer_round_trips > max {
            self.size.slow_start_threshold = self.size.window;
            self.longer_round_trips = 0;
        }
    }

    /// The maximum window on a path with this round trip.
    fn max_of(&self, round_trip: Duration) -> u32 {
        let (short, limit) = self.max_of_path;
        let max = u128::from(short) * round_trip.as_nanos() / SHORT_PATH_ROUND_TRIP.as_nanos();
        (max.min(limit.into()) as u32).max(short)
    }

    /// Records a loss, or an expiry of the timer, in the interval between losses.
    fn note_loss_interval(&mut self) {
        let interval = std::mem::take(&mut self.since_loss).min(LOSS_INTERVAL_MAX);
        self.loss_interval += interval;
        self.loss_interval -= self.loss_interval / LOSS_INTERVAL_WEIGHT;
    }

    /// Reduces the threshold to `numerator / denominator` of the window, once in a round trip.
    /// Returns whether it did.
    fn reduce(&mut self, (numerator, denominator): (u64, u64), first_unsent: Psn) -> bool {
        if self.recovery_end.is_some() {
            return false;
        }
        self.recovery_end = Some(first_unsent);
        self.before_loss = Some(self.size);
        let min = self.threshold_min();
        let Size { window, slow_start_threshold, at_loss } = &mut self.size;
        // A window that is smaller than at the last loss leaves room for new connections (RFC 9438,
        // section 4.7: fast convergence).
        *at_loss = if *window < *at_loss { *window * 17 / 20 } else { *window };
        *slow_start_threshold = (*window * numerator / denominator).max(min);
        self.curve = None;
        self.longer_round_trips = 0;
        true
    }

    /// Reduces the threshold because of a loss, once in a round trip. A mark in the same round trip
    /// does not count (RFC 8257, section 3.5).
    fn reduce_for_loss(&mut self, first_unsent: Psn) {
        match self.before_mark.take() {
            Some(window) => {
                let (numerator, denominator) = LOSS_FACTOR;
                let threshold =
                    self.size.slow_start_threshold.min(window * numerator / denominator);
                self.size.slow_start_threshold = threshold.max(self.threshold_min());
            }
            None => _ = self.reduce(LOSS_FACTOR, first_unsent),
        }
    }

    fn threshold_min(&self) -> u64 {
        u64::from(SLOW_START_THRESHOLD_MIN.min(self.max)) << FRACTION_BITS
    }

    /// Adapts the window to the time for which nothing was in flight.
    #[cold]
    fn restart(&mut self, idle: Duration) {
        let unit = IDLE_TIME.max(self.smoothed * IDLE_ROUND_TRIPS);
        let halvings = (idle.as_nanos() / unit.as_nanos()).min(32) as u32;
        if halvings == 0 {
            return;
        }
        let Size { window, slow_start_threshold, .. } = &mut self.size;
        *slow_start_threshold = (*slow_start_threshold).max(*window / 4 * 3);
        let initial = u64::from(self.initial) << FRACTION_BITS;
        *window = (*window >> halvings).max(initial.min(*window));
        (self.curve, self.shortest, self.recent, self.longer_round_trips) = (None, None, None, 0);
        self.max_is_measured = false;
        self.pace();
    }

    /// Adapts the pacing to the window and the round trip.
    #[inline]
    fn pace(&mut self) {
        if !self.is_paced || self.smoothed < PACED_ROUND_TRIP_MIN {
            self.pacer.batch = UNLIMITED;
            return;
        }
        // The rate is 1.25 windows per round trip, so that pacing does not limit the growth; 2 in
        // slow start, where the window doubles; and 1 in recovery, where the queue must drain.
        let (numerator, denominator) = match () {
            () if self.recovery_end.is_some() => (1, 1),
            () if self.is_in_slow_start() => (2, 1),
            () => (5, 4),
        };
        let round_trip = self.smoothed.as_nanos() as u64;
        let interval = round_trip.saturating_mul(denominator << FRACTION_BITS)
            / (self.size.window * numerator).max(1);
        self.pacer.set_interval(interval.max(1));
        self.pacer.credit_max = BATCH_TIME.max(self.smoothed / PACING_CREDIT_DIVISOR);
    }
}

/// The factor by which a Reno sender's growth must differ, so that a sender with this path MTU
/// sends as many octets as TCP does. If a share p of the packets is lost, the window is
/// proportional to √(growth / p), so the factor is the square of the ratio of the packet sizes.
fn growth_factor(mtu: PathMtu, ip_mtu: usize) -> u64 {
    let largest = if mtu == PathMtu::Octets4096 { JUMBO_IP_MTU } else { ETHERNET_IP_MTU };
    let segment = ip_mtu.min(largest).saturating_sub(TCP_HEADER_OCTETS) as u64;
    let octets = mtu.octets() as u64;
    (segment * segment * ONE / (octets * octets)).clamp(ONE, GROWTH_FACTOR_MAX)
}

impl CongestionControl for Cubic {
    #[inline]
    fn on_sent(&mut self, psns: u32, in_flight: u32, now: Instant) {
        self.in_flight_max = self.in_flight_max.max(in_flight);
        if let Some(since) = self.idle_since.take() {
            let idle = now.saturating_duration_since(since);
            if idle >= IDLE_TIME {
                self.restart(idle);
            }
        }
        self.pacer.on_sent(psns, now);
    }

    #[inline]
    fn on_ack(&mut self, ack: &Acknowledged, now: Instant) {
        self.receiver_not_ready = false;
        self.since_loss = self.since_loss.saturating_add(ack.psns);
        if self.recovery_end.is_some_and(|end| !ack.oldest.is_before(end)) {
            (self.recovery_end, self.before_mark, self.before_loss) = (None, None, None);
        }
        self.smoothed = ack.smoothed.unwrap_or_default();
        if let Some(round_trip) = ack.round_trip {
            if let Some(before) = self.before_measurement.take()
                && round_trip >= LONG_ROUND_TRIP
            {
                // The timer has expired because the first round trip is long. Slow start goes on.
                self.size.slow_start_threshold = before.slow_start_threshold;
                self.size.at_loss = before.at_loss;
            }
            self.note_round_trip(round_trip, now);
            if !std::mem::take(&mut self.has_mark) {
                self.marked_share -= self.marked_share / MARK_WEIGHT;
            }
        }
        let is_limiting = u64::from(self.in_flight_max) * 2 >= self.packets();
        if ack.round_trip.is_some() {
            self.in_flight_max = ack.in_flight;
        }
        let may_grow = self.recovery_end.is_none() || self.is_in_slow_start();
        if is_limiting && may_grow && self.size.window >> FRACTION_BITS < u64::from(self.max) {
            self.grow(ack.psns.into(), now);
        }
        if ack.is_last {
            // The next packet starts a new batch of the pacing.
            self.idle_since = Some(now);
            self.pacer.sent = 0;
        }
        self.pace();
    }

    fn on_loss(&mut self, first_unsent: Psn) {
        self.note_loss_interval();
        // Slow start fills queues until a packet is lost.
        self.has_queue |= self.is_in_slow_start();
        self.reduce_for_loss(first_unsent);
        self.size.window = self.size.window.min(self.size.slow_start_threshold);
        // The lost packet is sent again at once.
        self.pacer.sent = 0;
        self.pace();
    }

    fn on_timeout(&mut self, first_unsent: Psn) {
        self.note_loss_interval();
        if self.shortest.is_none() {
            self.before_measurement.get_or_insert(self.size);
        }
        self.reduce_for_loss(first_unsent);
        self.has_queue = true;
        self.size.window = ONE;
        self.pacer.sent = 0;
        self.pace();
    }

    fn on_late_ack(&mut self) {
        if let Some(before) = self.before_loss.take() {
            (self.size, self.recovery_end, self.curve) = (before, None, None);
            self.pace();
        }
    }

    fn on_mark(&mut self, first_unsent: Psn) {
        let factor = (2 * ONE - self.marked_share, 2 * ONE);
        let window = self.size.window;
        if !self.reduce(factor, first_unsent) {
            return;
        }
        self.has_mark = true;
        self.marked_share += (ONE - self.marked_share) / MARK_WEIGHT;
        (self.before_mark, self.before_loss) = (Some(window), None);
        self.size.window = self.size.window.min(self.size.slow_start_threshold);
        self.pace();
    }

    fn on_unproven_mark(&mut self, first_unsent: Psn) {
        let (before, initial) = (self.size, u64::from(self.initial) << FRACTION_BITS);
        // A mark that changes nothing must not hide a proven mark of the same round trip.
        if before.window <= initial {
            return;
        }
        self.on_mark(first_unsent);
        let Size { window, slow_start_threshold, .. } = &mut self.size;
        *window = (*window).max(before.window.min(initial));
        *slow_start_threshold =
            (*slow_start_threshold).max(before.slow_start_threshold.min(initial));
        self.pace();
    }

    fn on_receiver_not_ready(&mut self) {
        self.receiver_not_ready = true;
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        self.pacer.advance(now);
    }

    #[inline]
    fn window(&self) -> u32 {
        if self.receiver_not_ready { 1 } else { self.packets() as u32 }
    }

    #[inline]
    fn blocked_until(&self) -> Option<Instant> {
        self.pacer.blocked_until()
    }
}

impl Curve {
    fn new(size: &mut Size, factor: u64, now: Instant) -> Self {
        // Slow start may have ended above the window of the last loss, or without a loss.
        size.at_loss = size.at_loss.max(size.window);
        // RFC 9438, section 4.2: K is the cube root of (W_max - window) / C, in seconds, and C is
        // 0.4 · factor. Both the windows and the factor are in units of 1 / ONE.
        let below = size.at_loss - size.window;
        let plateau_millis = cube_root(below * 10_000_000_000 / (4 * factor));
        Curve { start: now, plateau_millis, factor, reno: size.window }
    }

    /// The window on the curve at a time (RFC 9438, section 4.2: C (t - K)³ + W_max).
    fn at(&self, time: Instant, at_loss: u64) -> u64 {
        let elapsed = time.saturating_duration_since(self.start);
        let millis = elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis());
        let distance = millis.abs_diff(self.plateau_millis).min(CURVE_TIME_MAX_MILLIS);
        let height = distance.pow(3) / 1_000_000 * (4 * self.factor) / 10_000;
        match millis < self.plateau_millis {
            true => at_loss.saturating_sub(height),
            false => at_loss + height,
        }
    }
}

/// The largest number below 2^21 whose cube is at most `cube`.
fn cube_root(cube: u64) -> u64 {
    (0..21).rev().fold(0, |root: u64, bit| {
        let next = root | 1 << bit;
        if next.pow(3) <= cube { next } else { root }
    })
}

/// The value of [`Pacer::batch`] without pacing.
const UNLIMITED: u32 = u32::MAX;

/// Spreads packets over time in batches.
struct Pacer {
    /// The maximum number of packets in a batch.
    batch: u32,
    /// The number of packets of the current batch that have been sent.
    sent: u32,
    /// The time between two packets at the connection's rate, in nanoseconds.
    interval: u64,
    /// The maximum of `credit`.
    credit_max: Duration,
    /// The time by which batches may leave sooner because earlier ones left late.
    credit: Duration,
    /// The time at which the next batch may leave. `None` until the first batch.
    next: Option<Instant>,
}

impl Pacer {
    fn new() -> Self {
        Pacer {
            batch: UNLIMITED,
            sent: 0,
            interval: 0,
            credit_max: BATCH_TIME,
            credit: BATCH_TIME,
            next: None,
        }
    }

    fn set_interval(&mut self, nanos: u64) {
        let batch = BATCH_TIME.as_nanos() as u64 / nanos;
        (self.interval, self.batch) = (nanos, batch.clamp(1, (UNLIMITED - 1).into()) as u32);
    }

    #[inline]
    fn on_sent(&mut self, psns: u32, now: Instant) {
        if self.batch == UNLIMITED {
            return;
        }
        let before = self.sent;
        self.sent = self.sent.saturating_add(psns);
        // The first packet of a batch pays for the whole batch. A READ may ask for more responses
        // than the batch has left.
        let paid = match before {
            0 => self.sent.max(self.batch),
            _ => self.sent.saturating_sub(before.max(self.batch)),
        };
        if paid > 0 {
            // A batch that leaves late does not delay the following ones.
            let earliest = now.checked_sub(self.credit).unwrap_or(now);
            let start = match (self.next, before) {
                (None, _) => now,
                (Some(next), 0) => next.max(earliest),
                (Some(next), _) => next,
            };
            self.next = Some(start + Duration::from_nanos(u64::from(paid) * self.interval));
        }
        if self.sent >= self.batch && self.next.is_some_and(|next| now >= next) {
            self.sent = 0;
        }
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        if self.sent > 0 && self.next.is_none_or(|next| now >= next) {
            // Only a sender that had to wait makes up for lost time.
            self.credit = if self.sent < self.batch { BATCH_TIME } else { self.credit_max };
            self.sent = 0;
        }
    }

    #[inline]
    fn blocked_until(&self) -> Option<Instant> {
        if self.sent < self.batch { None } else { self.next }
    }
}

#[cfg(test)]
mod tests;
