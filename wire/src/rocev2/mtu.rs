//! Path MTU: the maximum payload of a packet (IBA, section 9.4.3 and the PathMTU of connection
//! management).

use std::fmt;

/// One of the five sizes of a path MTU. Every packet of a message except the last has exactly this
/// payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the numbers of octets")]
pub enum PathMtu {
    Octets256 = 1,
    Octets512 = 2,
    Octets1024 = 3,
    Octets2048 = 4,
    Octets4096 = 5,
}

impl PathMtu {
    /// All sizes in ascending order.
    pub const ALL: [Self; 5] =
        [Self::Octets256, Self::Octets512, Self::Octets1024, Self::Octets2048, Self::Octets4096];

    /// The number of octets around the payload: IPv6, UDP, BTH, XRCETH, AtomicETH, ICRC. No packet
    /// of this project has all of these headers. But Linux assumes them for a connection, and both
    /// sides must get the same result.
    const OVERHEAD_OCTETS: usize = 40 + 8 + 12 + 4 + 28 + 4;

    /// The size for a code. `None` for reserved codes.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        match code {
            1..=5 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// The largest size that is at most `octets`. `None` below 256.
    pub fn within(octets: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|size| size.octets() <= octets)
    }

    /// The code in messages of connection management, 1 to 5.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The number of octets of payload, 256 to 4096.
    #[inline]
    pub const fn octets(self) -> usize {
        128 << self as u8
    }

    /// The largest size whose packets fit an interface with this MTU, in octets of an IP packet.
    /// `None` if no size fits.
    pub fn of_interface(mtu: usize) -> Option<Self> {
        Self::within(mtu.saturating_sub(Self::OVERHEAD_OCTETS))
    }

    /// The next smaller size. `None` for the smallest size.
    pub fn smaller(self) -> Option<Self> {
        Self::new(self.code() - 1)
    }

    /// The number of packets of a message of this many octets. It is at least one.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        if len == 0 { 1 } else { len.div_ceil(self.octets() as u32) }
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.octets().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_octets() {
        assert_eq!(PathMtu::ALL.map(PathMtu::octets), [256, 512, 1024, 2048, 4096]);
        for (mtu, code) in PathMtu::ALL.into_iter().zip(1..) {
            assert_eq!((mtu.code(), PathMtu::new(code)), (code, Some(mtu)));
            assert_eq!(PathMtu::within(mtu.octets()), Some(mtu));
            assert_eq!(mtu.smaller(), PathMtu::within(mtu.octets() - 1));
        }
        assert_eq!([0, 6, 255].map(PathMtu::new), [None; 3]);
        assert_eq!(
            [255, 511, 9000].map(PathMtu::within),
            [None, Some(PathMtu::Octets256), Some(PathMtu::Octets4096)]
        );
    }

    #[test]
    fn interfaces() {
        let octets = |mtu| PathMtu::of_interface(mtu).map(PathMtu::octets);
        assert_eq!([0, 351, 352].map(octets), [None, None, Some(256)]);
        assert_eq!(
            [1500, 4191, 4192, 9000, 65536].map(octets),
            [1024, 2048, 4096, 4096, 4096].map(Some)
        );
    }

    #[test]
    fn packets_of_a_message() {
        let packets = |len| PathMtu::Octets1024.packets(len);
        assert_eq!(
            [0, 1, 1024, 1025, 1 << 31, u32::MAX].map(packets),
            [1, 1, 1, 2, 1 << 21, 1 << 22]
        );
    }
}
