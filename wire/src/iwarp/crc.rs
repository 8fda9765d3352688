//! CRC32C, the checksum of MPA frames (RFC 5044, section 4.4; polynomial 0x1EDC6F41).

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// A running CRC32C over any number of slices.
///
/// The structure holds the tables of its algorithm (about 300 octets). So keep one checksum for
/// each direction of a connection and [`reset`](Self::reset) it for each frame, instead of creating
/// or copying one.
#[derive(Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The number of octets of the checksum on the wire.
    pub const SIZE: usize = 4;

    /// A checksum over no octets.
    #[inline]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Starts again with no octets.
    #[inline]
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Appends octets.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all octets so far. More octets may follow.
    #[inline]
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }

    /// The [`value`](Self::value) in wire order: the least significant octet is first, unlike in
    /// all other fields of the protocol.
    #[inline]
    pub fn to_wire(&self) -> [u8; Self::SIZE] {
        self.value().to_le_bytes()
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc32c({self})")
    }
}

impl fmt::Display for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.value())
    }
}

/// The CRC32C of one slice. This is faster than a [`Crc32c`] if all octets are available at once.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_and_wire_order() {
        let mut crc = Crc32c::new();
        crc.update(b"123456789");
        assert_eq!(crc.value(), 0xE306_9283);
        assert_eq!(crc.to_wire(), [0x83, 0x92, 0x06, 0xE3]);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc.to_string(), "0xe3069283");
    }

    #[test]
    fn slices_add_up() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let mut crc = Crc32c::new();
        for cut in [0, 1, 2, 15, 16, 17, 1448, 4999, 5000] {
            crc.reset();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            assert_eq!(crc.value(), crc32c(&bytes), "cut at {cut}");
        }
    }

    /// The frame is figure 5 of RFC 5044: a SEND of 24 zero octets after the stream's first marker.
    /// The CRC covers the marker.
    #[test]
    fn rfc_5044_figure_5() {
        let mut frame = [0; 48];
        frame[4..8].copy_from_slice(&[0x00, 0x2A, 0x41, 0x43]);
        frame[19] = 1; // MSN
        let mut crc = Crc32c::new();
        crc.update(&frame);
        assert_eq!(crc.to_wire(), [0x52, 0x23, 0x99, 0x83]);
    }

    /// The frame is figure 6 of RFC 5044: the second SEND, with a marker in the middle. The CRC
    /// covers the marker.
    #[test]
    fn rfc_5044_figure_6() {
        let mut frame = [0; 48];
        frame[..4].copy_from_slice(&[0x00, 0x2A, 0x41, 0x43]);
        frame[15] = 2; // MSN
        frame[23] = 0x14; // FPDUPTR
        let mut crc = Crc32c::new();
        crc.update(&frame);
        assert_eq!(crc.to_wire(), [0x84, 0x92, 0x58, 0x98]);
    }
}
