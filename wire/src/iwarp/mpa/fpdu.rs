//! Framing of ULPDUs in the stream (RFC 5044, sections 4.1 to 4.5).

use std::fmt;

use crate::iwarp::crc::{self, crc32c};
use crate::iwarp::rdmap::Header;
use crate::iwarp::terminate::Cause;

/// The number of octets of the ULPDU length, which starts each FPDU.
pub const LENGTH_SIZE: usize = 2;
/// The longest ULPDU that the length field can express, in octets. A receiver must accept it.
pub const MAX_ULPDU: usize = 65535;
/// The longest ULPDU that a sender may send to an unknown peer (RFC 5044, section 4.2), in octets.
pub const MAX_MULPDU: usize = 64768;
/// The smallest MULPDU (maximum ULPDU length) in octets. It applies even if the TCP segment is
/// smaller (RFC 5044, section 4.5).
pub const MIN_MULPDU: usize = 128;

/// The number of pad octets after a ULPDU, 0 to 3. Length, ULPDU and pad together are a multiple of
/// four.
#[inline]
pub const fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_SIZE + ulpdu_len).wrapping_neg() & 3
}

/// The number of octets of the whole FPDU: length, ULPDU, pad and CRC.
#[inline]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_SIZE + ulpdu_len + trailer_len(ulpdu_len)
}

/// The longest ULPDU whose FPDU without markers fits one TCP segment of `mss` octets (MULPDU, RFC
/// 5044, section 4.5).
#[inline]
pub const fn mulpdu_for_mss(mss: usize) -> usize {
    let mulpdu = mss.saturating_sub(LENGTH_SIZE + crc::SIZE + mss % 4);
    match mulpdu {
        ..MIN_MULPDU => MIN_MULPDU,
        MAX_MULPDU.. => MAX_MULPDU,
        _ => mulpdu,
    }
}

/// The number of octets after a ULPDU of this length, its pad and the CRC: 4 to 7.
#[inline]
pub const fn trailer_len(ulpdu_len: usize) -> usize {
    pad(ulpdu_len) + crc::SIZE
}

/// Writes the CRC field, the last octets of a whole FPDU.
///
/// # Panics
/// If `frame` is shorter than the field.
#[inline]
pub fn write_crc(frame: &mut [u8]) {
    let (covered, field) = frame.split_last_chunk_mut().expect("an FPDU ends in its CRC field");
    *field = crc::to_wire(covered);
}

fn compare(found: u32, computed: u32) -> Result<(), CrcError> {
    if found == computed { Ok(()) } else { Err(CrcError { found, computed }) }
}

/// The error that a frame was damaged in transit. It is fatal for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MPA CRC {found:#010x} in the frame, but its octets have the CRC {computed:#010x}")]
pub struct CrcError {
    /// The CRC in the frame.
    pub found: u32,
    /// The CRC that was computed over the frame's octets.
    pub computed: u32,
}

impl CrcError {
    /// The cause to report in the TERMINATE.
    pub const fn cause(&self) -> Cause {
        Cause::MPA_CRC
    }
}

/// A whole FPDU in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu<'a> {
    bytes: &'a [u8],
    ulpdu_len: u16,
}

impl<'a> Fpdu<'a> {
    /// The FPDU at the start of `bytes`. `None` if it is incomplete.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let ulpdu_len = u16::from_be_bytes(*bytes.first_chunk()?);
        let bytes = bytes.get(..fpdu_len(usize::from(ulpdu_len)))?;
        Some(Self { bytes, ulpdu_len })
    }

    /// The size of the whole FPDU in octets.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an FPDU is never empty")]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The ULPDU: header and payload.
    #[inline]
    pub fn ulpdu(&self) -> &'a [u8] {
        &self.bytes[LENGTH_SIZE..][..usize::from(self.ulpdu_len)]
    }

    /// Checks the CRC field.
    #[inline]
    pub fn check_crc(&self) -> Result<(), CrcError> {
        let (covered, field) =
            self.bytes.split_last_chunk().expect("an FPDU ends in its CRC field");
        compare(u32::from_le_bytes(*field), crc32c(covered))
    }
}

impl fmt::Display for Fpdu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Header::parse(self.ulpdu()) {
            Ok(Some((header, size))) => write!(f, "{header} payload={}", self.ulpdu().len() - size),
            Ok(None) => write!(f, "FPDU without a whole header, ulpdu={}", self.ulpdu_len),
            Err(error) => write!(f, "FPDU: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::UntaggedOpcode;

    /// The frame of figure 5 of RFC 5044, without its marker: SEND, MSN 1, 24 zero octets.
    fn send_frame() -> Vec<u8> {
        let mut frame = vec![0; fpdu_len(42)];
        frame[..2].copy_from_slice(&[0x00, 0x2A]);
        let opcode = UntaggedOpcode::Send;
        Header::Untagged { last: true, opcode, invalidate: 0, qn: 0, msn: 1, mo: 0 }
            .emit(&mut frame[2..]);
        frame
    }

    #[test]
    fn frames_are_multiples_of_four() {
        for ulpdu_len in (0..=MAX_ULPDU).step_by(if cfg!(miri) { 251 } else { 1 }) {
            let (pad, total) = (pad(ulpdu_len), fpdu_len(ulpdu_len));
            assert!(pad < 4 && total % 4 == 0 && total == 2 + ulpdu_len + trailer_len(ulpdu_len));
            assert_eq!(trailer_len(ulpdu_len), pad + 4);
        }
        // The two lengths are those of rping's frames with 64 octets: READ request and READ
        // response.
        assert_eq!((fpdu_len(0x2E), fpdu_len(0x4E)), (52, 84));
    }

    #[test]
    fn mulpdu_is_the_longest_that_fits_the_segment() {
        for mss in (136..=MAX_MULPDU + 6).step_by(if cfg!(miri) { 251 } else { 1 }) {
            let mulpdu = mulpdu_for_mss(mss);
            assert!(fpdu_len(mulpdu) <= mss, "MSS {mss}");
            assert!(mulpdu == MAX_MULPDU || fpdu_len(mulpdu + 1) > mss, "MSS {mss}");
        }
        assert_eq!(mulpdu_for_mss(1448), 1442);
        assert_eq!(mulpdu_for_mss(1460), 1454);
        assert_eq!(mulpdu_for_mss(0), MIN_MULPDU);
        assert_eq!(mulpdu_for_mss(usize::MAX), MAX_MULPDU);
    }

    #[test]
    fn crc_is_written_and_checked() {
        let mut frame = send_frame();
        write_crc(&mut frame);
        let fpdu = Fpdu::parse(&frame).unwrap();
        assert_eq!(fpdu.len(), frame.len());
        assert_eq!(fpdu.check_crc(), Ok(()));

        for at in 2..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x10;
            let error = Fpdu::parse(&damaged).unwrap().check_crc().unwrap_err();
            assert_eq!(error.cause(), Cause::MPA_CRC, "octet {at}");
        }
    }

    #[test]
    fn pad_is_covered() {
        for ulpdu_len in 18..22 {
            let mut frame = vec![0; fpdu_len(ulpdu_len)];
            frame[1] = ulpdu_len as u8;
            write_crc(&mut frame);
            assert_eq!(Fpdu::parse(&frame).unwrap().check_crc(), Ok(()));
            for at in 2 + ulpdu_len..frame.len() {
                let mut damaged = frame.clone();
                damaged[at] ^= 1;
                assert!(Fpdu::parse(&damaged).unwrap().check_crc().is_err(), "octet {at}");
            }
        }
    }

    #[test]
    fn incomplete_frames_wait() {
        let frame = send_frame();
        for len in 0..frame.len() {
            assert_eq!(Fpdu::parse(&frame[..len]), None);
        }
        let mut two = frame.clone();
        two.extend_from_slice(&frame);
        let fpdu = Fpdu::parse(&two).unwrap();
        assert_eq!((fpdu.len(), fpdu.ulpdu().len()), (48, 42));
        assert_eq!(fpdu.to_string(), "SEND qn=0 msn=1 mo=0 last payload=24");
    }
}
