//! The congestion window of Reno and CUBIC, in integers.

use std::time::{Duration, Instant};

/// The algorithm that sets the congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Algorithm {
    /// Slow start and congestion avoidance of RFC 5681.
    Reno,
    /// CUBIC of RFC 9438.
    Cubic,
}

/// The unit of windows: a segment has this many parts.
pub(super) const SEGMENT: u64 = 1 << 10;
/// The initial window in segments (RFC 6928).
pub(super) const INITIAL_SEGMENTS: u64 = 10;
/// The maximum window in segments, in place of the peer's receive window.
pub(super) const SEGMENTS_MAX: u64 = 1 << 14;
/// The minimum slow start threshold in segments.
const THRESHOLD_MIN_SEGMENTS: u64 = 2;
/// CUBIC's constants C and beta, in tenths.
const CUBIC_C_TENTHS: u128 = 4;
const CUBIC_BETA_TENTHS: u64 = 7;
/// With CUBIC's reduction, Reno's window grows by 3 (1 - beta) / (1 + beta) segments per round trip
/// (RFC 9438, section 4.3). These two constants are the numerator and the denominator of that
/// fraction.
const RENO_GROWTH: u64 = 3 * (10 - CUBIC_BETA_TENTHS);
const RENO_GROWTH_UNIT: u64 = 10 + CUBIC_BETA_TENTHS;

/// A congestion window.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    algorithm: Algorithm,
    /// The window, in parts of segments.
    size: u64,
    /// The size below which the window grows by one segment for each segment acknowledged.
    threshold: u64,
    /// What was rounded off when congestion avoidance grew the window, times the window. The unit
    /// is the square of the unit of `size`.
    credit: u64,
    cubic: Cubic,
}

/// The state of CUBIC.
#[derive(Debug, Default)]
struct Cubic {
    /// The time at which the current congestion avoidance began. `None` before its first
    /// acknowledgement.
    epoch: Option<Instant>,
    /// The window before the last reduction.
    max: u64,
    /// The window at the last reduction, which decides when Reno's growth has caught up.
    prior: u64,
    /// The time in which the window reaches `max` again.
    k: Duration,
    /// The window that Reno would have.
    reno: u64,
    /// What was rounded off when `reno` grew, times the window and [`RENO_GROWTH_UNIT`].
    reno_credit: u64,
}

impl CongestionWindow {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        CongestionWindow {
            algorithm,
            size: INITIAL_SEGMENTS * SEGMENT,
            threshold: u64::MAX,
            credit: 0,
            cubic: Cubic::default(),
        }
    }

    /// The number of segments that may be in flight.
    pub(super) fn segments(&self) -> u64 {
        self.size / SEGMENT
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Grows the window for acknowledged segments.
    pub(super) fn on_ack(&mut self, segments: u64, round_trip: Duration, now: Instant) {
        if self.size < self.threshold {
            let grown = self.size + segments * SEGMENT;
            self.size = grown.min(self.threshold).min(SEGMENTS_MAX * SEGMENT);
            return;
        }
        match self.algorithm {
            Algorithm::Reno => {
                // RFC 5681, section 3.1: one segment for each window of acknowledged segments.
                self.credit += segments * SEGMENT * SEGMENT;
                let grown = self.credit / self.size;
                self.credit -= grown * self.size;
                self.size += grown;
            }
            Algorithm::Cubic => self.size = self.cubic.grow(self.size, segments, round_trip, now),
        }
        self.size = self.size.min(SEGMENTS_MAX * SEGMENT);
    }

    /// Reduces the window after a loss.
    pub(super) fn on_loss(&mut self) {
        let reduced = match self.algorithm {
            Algorithm::Reno => self.size / 2,
            Algorithm::Cubic => {
                self.cubic.reduce(self.size);
                self.size * CUBIC_BETA_TENTHS / 10
            }
        };
        self.threshold = reduced.max(THRESHOLD_MIN_SEGMENTS * SEGMENT);
        self.size = self.threshold;
        self.credit = 0;
    }

    /// Reduces the window after a retransmission timeout. `is_new` means that no loss has reduced
    /// the window for this flight.
    pub(super) fn on_timeout(&mut self, is_new: bool) {
        if is_new {
            self.on_loss();
        }
        // RFC 9438, section 4.8: the next congestion avoidance begins at its own maximum.
        (self.cubic.epoch, self.cubic.max) = (None, 0);
        self.size = SEGMENT;
    }
}

impl Cubic {
    /// RFC 9438, sections 4.6 and 4.7: the reduction, with fast convergence.
    fn reduce(&mut self, size: u64) {
        self.max = match size < self.max {
            true => size * (10 + CUBIC_BETA_TENTHS) / 20,
            false => size,
        };
        self.prior = size;
        self.epoch = None;
    }

    /// RFC 9438, sections 4.2 to 4.5: the window after `segments` were acknowledged.
    fn grow(&mut self, size: u64, segments: u64, round_trip: Duration, now: Instant) -> u64 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            // Without a reduction before, the window begins at its own maximum, so K is 0.
            self.max = self.max.max(size);
            self.k = time_of(self.max - size);
            (self.reno, self.reno_credit) = (size, 0);
            now
        });
        let time = now.saturating_duration_since(epoch);
        // RFC 9438, section 4.3: Reno's window grows by 1 segment per round trip once it is as
        // large as before the reduction.
        let growth = if self.reno < self.prior { RENO_GROWTH } else { RENO_GROWTH_UNIT };
        self.reno_credit += segments * SEGMENT * SEGMENT * growth;
        self.reno += self.reno_credit / (RENO_GROWTH_UNIT * size);
        self.reno_credit %= RENO_GROWTH_UNIT * size;
        let cubic_now = self.window_at(time);
        if cubic_now < self.reno {
            return size.max(self.reno);
        }
        let target = self.window_at(time + round_trip).clamp(size, size * 3 / 2);
        size + (target - size) * segments * SEGMENT / size
    }

    /// W_cubic(t) = C (t - K)^3 + W_max.
    fn window_at(&self, time: Duration) -> u64 {
        let (time, k) = (time.as_micros() as i128, self.k.as_micros() as i128);
        let away = (time - k).clamp(-MICROS_MAX, MICROS_MAX);
        let change =
            away.pow(3) * SEGMENT as i128 * CUBIC_C_TENTHS as i128 / 10 / MICROS_PER_SECOND.pow(3);
        (i128::from(self.max) + change).clamp(0, (SEGMENTS_MAX * SEGMENT).into()) as u64
    }
}

const MICROS_PER_SECOND: i128 = 1_000_000;
/// Far more than the time in which a window grows to its maximum.
const MICROS_MAX: i128 = 10_000 * MICROS_PER_SECOND;

/// The time in which CUBIC's window grows by `growth` parts of segments until its plateau: the cube
/// root of `growth` / C.
fn time_of(growth: u64) -> Duration {
    let cube = u128::from(growth) * 10 * (MICROS_PER_SECOND as u128).pow(3)
        / (CUBIC_C_TENTHS * u128::from(SEGMENT));
    Duration::from_micros(cube_root(cube))
}

/// The largest number whose cube is at most `cube`.
fn cube_root(cube: u128) -> u64 {
    let (mut root, mut step) = (0u128, 1u128 << 41);
    while step > 0 {
        if (root + step).pow(3) <= cube {
            root += step;
        }
        step /= 2;
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges each segment of a window, one by one, as often as there are round trips.
    /// Returns the window in segments at the end of each round trip.
    fn run(window: &mut CongestionWindow, round_trip: Duration, round_trips: u32) -> Vec<f64> {
        let start = Instant::now();
        let sizes = (1..=round_trips).map(|number| {
            for _ in 0..window.segments() {
                window.on_ack(1, round_trip, start + round_trip * number);
            }
            window.size() as f64 / SEGMENT as f64
        });
        sizes.collect()
    }

    fn are_near(values: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(values.len(), expected.len());
        for (value, expected) in values.iter().zip(expected) {
            assert!((value - expected).abs() <= tolerance, "{value} instead of {expected}");
        }
    }

    #[test]
    fn slow_start_doubles_the_window() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
            let mut window = CongestionWindow::new(algorithm);
            let sizes = run(&mut window, Duration::from_millis(10), 4);
            assert_eq!(sizes, [20.0, 40.0, 80.0, 160.0]);
        }
    }

    /// The expected growth in a round trip is the sum of 1 / window over its acknowledgements,
    /// computed by hand.
    #[test]
    fn reno_halves_and_adds_a_segment_per_round_trip() {
        let mut window = CongestionWindow::new(Algorithm::Reno);
        run(&mut window, Duration::from_millis(10), 1);
        window.on_loss();
        assert_eq!(window.size(), 10 * SEGMENT);
        let sizes = run(&mut window, Duration::from_millis(10), 4);
        are_near(&sizes, &[10.959, 11.836, 12.733, 13.646], 0.02);
        window.on_timeout(true);
        assert_eq!(window.segments(), 1);
        let sizes = run(&mut window, Duration::from_millis(10), 3);
        are_near(&sizes, &[2.0, 4.0, 6.823], 0.2);
    }

    /// W_max = 100 gives K = cbrt(75) = 4.217 s, and W(t) = 0.4 (t - K)^3 + 100.
    #[test]
    fn cubic_is_the_function_of_the_rfc() {
        let mut window = CongestionWindow::new(Algorithm::Cubic);
        window.size = 100 * SEGMENT;
        window.on_loss();
        assert_eq!(window.size(), 70 * SEGMENT);
        window.cubic.grow(70 * SEGMENT, 1, Duration::from_millis(100), Instant::now());
        assert!(window.cubic.k.abs_diff(Duration::from_micros(4_217_163)).as_micros() <= 1);
        for (millis, segments) in [
            (0, 70.0),
            (1_000, 86.68),
            (2_217, 96.80),
            (4_217, 100.0),
            (6_217, 103.2),
            (8_434, 130.0),
        ] {
            let value = window.cubic.window_at(Duration::from_millis(millis)) as f64;
            are_near(&[value / SEGMENT as f64], &[segments], 0.02);
        }
        assert_eq!(window.cubic.window_at(Duration::from_secs(1 << 30)), SEGMENTS_MAX * SEGMENT);
    }

    /// With a round trip of 100 ms the window follows the cubic function. The function is ahead of
    /// the window by a round trip, because a window grows only as fast as packets are acknowledged.
    #[test]
    fn cubic_grows_along_its_function_on_a_long_path() {
        let mut window = CongestionWindow::new(Algorithm::Cubic);
        window.size = 1000 * SEGMENT;
        window.on_loss();
        let sizes = run(&mut window, Duration::from_millis(100), 60);
        // K is cbrt(750) = 9.086 s. The epoch begins with the first acknowledgement, at 0.1 s.
        let function = |time: f64| 0.4 * (time - 9.086).powi(3) + 1000.0;
        for number in [10, 20, 40, 59] {
            are_near(&[sizes[number]], &[function(0.1 * number as f64 + 0.1)], 5.0);
        }
    }

    /// With a round trip of 1 ms the cubic function is slower than Reno, so the window grows by 3
    /// (1 - 0.7) / (1 + 0.7) = 0.529 segments per round trip. After 11 round trips it is as large
    /// as before, and then grows by one segment per round trip.
    #[test]
    fn cubic_grows_as_reno_does_on_a_short_path() {
        let mut window = CongestionWindow::new(Algorithm::Cubic);
        window.size = 20 * SEGMENT;
        window.on_loss();
        let sizes = run(&mut window, Duration::from_millis(1), 20);
        are_near(&[sizes[0], sizes[9], sizes[19]], &[14.52, 18.9, 28.2], 0.7);
    }

    /// The growth of each acknowledgement is less than the unit of windows here, and adds up.
    #[test]
    fn cubic_grows_as_reno_does_with_a_large_window() {
        for segments in [600, 2_000, 10_000] {
            let mut window = CongestionWindow::new(Algorithm::Cubic);
            window.size = segments * SEGMENT;
            window.on_loss();
            let sizes = run(&mut window, Duration::from_micros(100), 200);
            let reduced = segments as f64 * 0.7;
            let growth = 3.0 * (1.0 - 0.7) / (1.0 + 0.7);
            let expected = [100.0, 200.0].map(|round_trips| reduced + growth * round_trips);
            are_near(&[sizes[99], sizes[199]], &expected, 0.3);
        }
    }

    /// RFC 9438, section 4.8: after a timeout, K is 0 and W_max the window at which congestion
    /// avoidance begins.
    #[test]
    fn cubic_begins_anew_after_a_timeout() {
        let mut window = CongestionWindow::new(Algorithm::Cubic);
        window.size = 100 * SEGMENT;
        window.on_timeout(true);
        assert_eq!((window.segments(), window.threshold), (1, 70 * SEGMENT));
        // Slow start reaches the threshold after 7 round trips.
        run(&mut window, Duration::from_millis(100), 8);
        assert_eq!((window.cubic.max, window.cubic.k), (70 * SEGMENT, Duration::ZERO));
    }

    #[test]
    fn fast_convergence_gives_up_more_after_a_second_loss() {
        let mut window = CongestionWindow::new(Algorithm::Cubic);
        window.size = 100 * SEGMENT;
        window.on_loss();
        assert_eq!(window.cubic.max, 100 * SEGMENT);
        window.on_loss();
        // 70 is less than 100, so the maximum is 70 * 1.7 / 2.
        assert_eq!(window.cubic.max, 59 * SEGMENT + SEGMENT / 2);
        assert_eq!(window.segments(), 49);
    }

    #[test]
    fn roots_are_exact() {
        for number in [0u128, 1, 2, 1000, 4_217_163, 1 << 40] {
            assert_eq!(u128::from(cube_root(number.pow(3))), number);
            assert_eq!(u128::from(cube_root(number.pow(3) + 1)), number.max(1));
        }
    }
}
