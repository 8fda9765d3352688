//! RETH: names the destination of a WRITE or the source of a READ (IBA, section 9.3.3).

use std::fmt;

use crate::bytes::{be32, be64};

/// The header, which names memory of the responder: `VA 8 | R_Key 4 | DMA length 4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// The address of the first octet of the memory.
    pub va: u64,
    /// The key of the region or window.
    pub r_key: u32,
    /// The number of octets of the whole message, at most 2^31.
    pub len: u32,
}

impl Reth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 16;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self { va: be64(bytes, 0), r_key: be32(bytes, 8), len: be32(bytes, 12) }
    }

    /// Returns the octets on the wire.
    #[inline]
    pub fn to_wire(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.r_key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va={:#x} r_key={:#010x} len={}", self.va, self.r_key, self.len)
    }
}
