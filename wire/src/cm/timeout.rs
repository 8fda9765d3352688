//! Times in 5 bits (IBA volume 1, section 12.7: response timeouts, service timeout, local ACK timeout).

use std::fmt;
use std::time::Duration;

/// 4.096 µs × 2^code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeout(u8);

impl Timeout {
    /// The longest: 2.4 hours.
    pub const MAX: Self = Timeout(31);

    /// From the low 5 bits.
    pub const fn new(code: u8) -> Self {
        Timeout(code & 31)
    }

    /// 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time as connection managers round it: 2^(code - 8) ms, 1 ms at least.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(1 << self.0.saturating_sub(8))
    }

    /// The shortest that is not below a time.
    pub fn covering(time: Duration) -> Self {
        (8..31).map(Timeout).find(|timeout| timeout.duration() >= time).unwrap_or(Self::MAX)
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0, self.duration())
    }
}
