//! Times of 5 bits (IBA volume 1, section 12.7: response timeouts, service timeout, local ACK
//! timeout).

use std::fmt;
use std::time::Duration;

/// A time of 4.096 µs × 2^code, where the code has 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(u8);

impl Timeout {
    /// The longest time: 2.4 hours.
    pub const MAX: Self = Timeout(31);

    /// The time whose code is the low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Timeout(code & 31)
    }

    /// The code of the time, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time, rounded as connection managers do: 2^(code - 8) ms, at least 1 ms.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(1 << self.0.saturating_sub(8))
    }

    /// The shortest timeout that is at least `time`.
    pub fn covering(time: Duration) -> Self {
        (8..31).map(Timeout).find(|timeout| timeout.duration() >= time).unwrap_or(Self::MAX)
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0, self.duration())
    }
}
