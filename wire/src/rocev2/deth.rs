//! DETH: names the sender of a datagram, and the key of the destination (IBA, section 9.3.1).

use std::fmt;

use crate::bytes::{be24, be32, octet_and_24};

/// The datagram header: `Q_Key 4 | reserved 1 | source QPN 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The key of the destination's queue pair.
    pub q_key: u32,
    /// The sender's queue pair, 24 bits.
    pub source_qpn: u32,
}

impl Deth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 8;
    /// The Q_Key of queue pair 1, the general services interface (IBA, section 10.2.5).
    pub const GSI_Q_KEY: u32 = 0x8001_0000;
    /// The number of queue pair 1, which is the same on every node.
    pub const GSI_QPN: u32 = 1;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self { q_key: be32(bytes, 0), source_qpn: be24(bytes, 5) }
    }

    /// Returns the octets on the wire.
    #[inline]
    pub fn to_wire(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.q_key.to_be_bytes());
        bytes[4..].copy_from_slice(&octet_and_24(0, self.source_qpn));
        bytes
    }
}

impl fmt::Display for Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q_key={:#010x} source={:#08x}", self.q_key, self.source_qpn)
    }
}
