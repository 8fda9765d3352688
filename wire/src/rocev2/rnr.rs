//! The time that a requester waits if its peer has no receive posted (IBA, section 9.7.5.2.8, table
//! 45).

use std::fmt;
use std::time::Duration;

/// A time of 5 bits, as in an RNR NAK and in the attributes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Times in units of 10 µs, indexed by code.
const TIMES_10_MICROS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
    49152,
];

impl RnrTimer {
    /// The timer whose code is the low 5 bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code & 0x1F)
    }

    /// The code of the timer, 0 to 31. Code 0 is the longest time.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The shortest timer that is at least `time`. If `time` is longer than all timers, the longest
    /// timer.
    pub fn at_least(time: Duration) -> Self {
        let code = (1..32).find(|&code| Self(code).duration() >= time);
        Self(code.unwrap_or(0))
    }

    /// The time, 10 µs to 655.36 ms.
    #[inline]
    pub const fn duration(self) -> Duration {
        Duration::from_micros(TIMES_10_MICROS[self.0 as usize] as u64 * 10)
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_times_and_back() {
        let micros = |code| RnrTimer::from_code(code).duration().as_micros();
        assert_eq!([1, 12, 14, 31, 0].map(micros), [10, 640, 1280, 491_520, 655_360]);
        for code in 0..32 {
            let timer = RnrTimer::from_code(code);
            assert_eq!(timer.code(), code);
            assert_eq!(RnrTimer::at_least(timer.duration()), timer);
        }
        assert_eq!(RnrTimer::from_code(0x2C).code(), 12);
    }

    #[test]
    fn times_are_rounded_up() {
        let code = |micros| RnrTimer::at_least(Duration::from_micros(micros)).code();
        assert_eq!(
            [0, 10, 11, 641, 491_520, 491_521, 655_361, 9_000_000].map(code),
            [1, 1, 2, 13, 31, 0, 0, 0]
        );
    }

    #[test]
    fn longer_codes_are_longer_times() {
        assert!(
            (1..31).all(|code| TIMES_10_MICROS[code] < TIMES_10_MICROS[code + 1])
                && TIMES_10_MICROS[31] < TIMES_10_MICROS[0]
        );
    }
}
