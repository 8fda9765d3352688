//! Values over time.

use std::time::Duration;

/// The number of intervals from which on two neighbours are merged into one.
const INTERVALS_MAX: usize = 128;
/// The length of an interval at the beginning.
const FIRST_INTERVAL: Duration = Duration::from_micros(10);

/// Values of equal intervals of time. The intervals become longer as time goes on, so that their
/// number stays between 64 and 128.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    interval: Duration,
    values: Vec<u64>,
    is_sum: bool,
}

impl Series {
    /// A series of sums: the value of an interval is the sum of what was [noted](Self::note) in it.
    pub fn of_sums() -> Self {
        Series { interval: FIRST_INTERVAL, values: Vec::new(), is_sum: true }
    }

    /// A series of maxima.
    pub fn of_maxima() -> Self {
        Series { interval: FIRST_INTERVAL, values: Vec::new(), is_sum: false }
    }

    /// Adds a value at a time since the beginning.
    pub fn note(&mut self, at: Duration, value: u64) {
        let mut index = self.index(at);
        while index >= INTERVALS_MAX {
            self.interval *= 2;
            let merged = self.values.chunks(2).map(|pair| match *pair {
                [a, b] => self.merge(a, b),
                _ => pair[0],
            });
            self.values = merged.collect();
            index = self.index(at);
        }
        if index >= self.values.len() {
            self.values.resize(index + 1, 0);
        }
        self.values[index] = self.merge(self.values[index], value);
    }

    /// The length of an interval.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The value of each interval, from the beginning on.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The values of equal parts of the time from the beginning to `end`. The value of a part is
    /// the mean of the intervals that it touches (sums), or their maximum (maxima).
    pub fn parts(&self, end: Duration, parts: usize) -> Vec<u64> {
        let bound = |part: usize| self.index(end * part as u32 / parts as u32);
        let value = |part: usize| {
            let touched = bound(part)..=bound(part + 1).max(bound(part) + 1) - 1;
            let values = touched.clone().map(|index| self.values.get(index).copied().unwrap_or(0));
            let merged = values.reduce(|a, b| self.merge(a, b)).unwrap_or(0);
            if self.is_sum { merged / touched.count() as u64 } else { merged }
        };
        (0..parts).map(value).collect()
    }

    fn merge(&self, a: u64, b: u64) -> u64 {
        if self.is_sum { a + b } else { a.max(b) }
    }

    fn index(&self, at: Duration) -> usize {
        (at.as_nanos() / self.interval.as_nanos()) as usize
    }
}
