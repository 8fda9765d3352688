//! Packet sequence numbers (IBA, section 9.7.2), which have 24 bits and wrap.

use std::fmt;
use std::ops::{Add, Sub};

/// A packet sequence number.
///
/// PSNs are ordered only within a window of less than 2^23. Therefore this type does not implement
/// `Ord`, but has [`distance`](Self::distance) and functions based on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The number of different PSNs.
    pub const COUNT: u32 = 1 << 24;

    /// The PSN `number` modulo 2^24.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number & (Self::COUNT - 1))
    }

    /// The PSN as a number, 0 to 2^24-1.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The next PSN.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The previous PSN.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// The number of packets from `origin` to this one, -2^23 to 2^23-1. It is negative if this one
    /// is earlier.
    #[inline]
    pub const fn distance(self, origin: Self) -> i32 {
        (self.0.wrapping_sub(origin.0) << 8) as i32 >> 8
    }

    /// Whether this PSN is earlier than `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Whether this PSN is later than `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// Whether this is one of the `count` PSNs that start at `first`. `count` is at most 2^24.
    #[inline]
    pub const fn is_within(self, first: Self, count: u32) -> bool {
        Self::new(self.0.wrapping_sub(first.0)).0 < count
    }
}

impl Add<u32> for Psn {
    type Output = Self;

    #[inline]
    fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }
}

impl Sub<u32> for Psn {
    type Output = Self;

    #[inline]
    fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = Psn::new(0xFF_FFFF);
        assert_eq!(Psn::new(0x1FF_FFFF), last);
        assert_eq!((last.next(), Psn::new(0).previous()), (Psn::new(0), last));
        assert_eq!((last + 3, Psn::new(2) - 3), (Psn::new(2), last));
        assert_eq!((Psn::new(5) + u32::MAX, Psn::new(5) - u32::MAX), (Psn::new(4), Psn::new(6)));
    }

    #[test]
    fn order_is_that_of_the_shorter_way() {
        let cases = [
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, -1),
            (0, 0xFF_FFFF, 1),
            (0xFF_FFFF, 0, -1),
            (0x7F_FFFF, 0, 0x7F_FFFF),
            (0x80_0000, 0, -0x80_0000),
            (0x80_0001, 0, -0x7F_FFFF),
            (5, 0xFF_FFF0, 21),
        ];
        for (psn, origin, distance) in cases {
            let (psn, origin) = (Psn::new(psn), Psn::new(origin));
            assert_eq!(psn.distance(origin), distance);
            assert_eq!(psn.is_before(origin), distance < 0);
            assert_eq!(psn.is_after(origin), distance > 0);
        }
    }

    #[test]
    fn windows_may_lie_across_the_wrap() {
        let first = Psn::new(0xFF_FFFE);
        let within = |psn| Psn::new(psn).is_within(first, 4);
        assert_eq!([0xFF_FFFD, 0xFF_FFFE, 0, 1, 2].map(within), [false, true, true, true, false]);
        assert!(!first.is_within(first, 0));
        assert!(first.previous().is_within(first, Psn::COUNT));
    }
}
