//! AtomicETH and AtomicAckETH (IBA, sections 9.3.4 and 9.5.3). Values are numbers. On the wire they
//! are in network order, and in the responder's memory in the responder's byte order.

use std::fmt;

use crate::bytes::{be32, be64};

/// An operation on 64 bits of the responder's memory: `VA 8 | R_Key 4 | swap or add 8 | compare 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// The address of the first octet, a multiple of 8.
    pub va: u64,
    /// The key of the region or window.
    pub r_key: u32,
    /// The new value for COMPARE SWAP, or the addend for FETCH ADD.
    pub swap_or_add: u64,
    /// The expected value for COMPARE SWAP. FETCH ADD ignores this field.
    pub compare: u64,
}

impl AtomicEth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 28;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            va: be64(bytes, 0),
            r_key: be32(bytes, 8),
            swap_or_add: be64(bytes, 12),
            compare: be64(bytes, 20),
        }
    }

    /// Returns the octets on the wire.
    #[inline]
    pub fn to_wire(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.r_key.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        bytes[20..].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}

impl fmt::Display for AtomicEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { va, r_key, swap_or_add, compare } = self;
        write!(
            f,
            "va={va:#x} r_key={r_key:#010x} swap-or-add={swap_or_add:#x} compare={compare:#x}"
        )
    }
}

/// The response to an atomic operation, of 8 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The previous value in the responder's memory.
    pub original: u64,
}

impl AtomicAckEth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 8;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self { original: u64::from_be_bytes(*bytes) }
    }

    /// Returns the octets on the wire.
    #[inline]
    pub fn to_wire(self) -> [u8; Self::SIZE] {
        self.original.to_be_bytes()
    }
}

impl fmt::Display for AtomicAckEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "original={:#x}", self.original)
    }
}
