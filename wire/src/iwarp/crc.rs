//! CRC32C, the checksum of MPA frames (RFC 5044, section 4.4; polynomial 0x1EDC6F41).

/// The number of octets of the checksum on the wire.
pub const SIZE: usize = 4;

/// The CRC32C of octets.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32C of octets in wire order: the least significant octet is first, unlike in all other
/// fields of the protocol.
#[inline]
pub fn to_wire(bytes: &[u8]) -> [u8; SIZE] {
    crc32c(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_and_wire_order() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(to_wire(b"123456789"), [0x83, 0x92, 0x06, 0xE3]);
    }

    /// The frame is figure 5 of RFC 5044: a SEND of 24 zero octets after the stream's first marker.
    /// The CRC covers the marker.
    #[test]
    fn rfc_5044_figure_5() {
        let mut frame = [0; 48];
        frame[4..8].copy_from_slice(&[0x00, 0x2A, 0x41, 0x43]);
        frame[19] = 1; // MSN
        assert_eq!(to_wire(&frame), [0x52, 0x23, 0x99, 0x83]);
    }

    /// The frame is figure 6 of RFC 5044: the second SEND, with a marker in the middle. The CRC
    /// covers the marker.
    #[test]
    fn rfc_5044_figure_6() {
        let mut frame = [0; 48];
        frame[..4].copy_from_slice(&[0x00, 0x2A, 0x41, 0x43]);
        frame[15] = 2; // MSN
        frame[23] = 0x14; // FPDUPTR
        assert_eq!(to_wire(&frame), [0x84, 0x92, 0x58, 0x98]);
    }
}
