//! Framing of ULPDUs in the stream (RFC 5044, sections 4.1 to 4.5).

use std::fmt;

use crate::iwarp::crc::{Crc32c, crc32c};
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
/// The maximum size of a [`Trailer`] in octets.
pub const MAX_TRAILER: usize = 3 + Crc32c::SIZE;

/// The number of pad octets after a ULPDU, 0 to 3. Length, ULPDU and pad together are a multiple of
/// four.
#[inline]
pub const fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_SIZE + ulpdu_len).wrapping_neg() & 3
}

/// The number of octets of the whole FPDU: length, ULPDU, pad and CRC.
#[inline]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_SIZE + ulpdu_len + pad(ulpdu_len) + Crc32c::SIZE
}

/// The longest ULPDU whose FPDU without markers fits one TCP segment of `mss` octets (MULPDU, RFC
/// 5044, section 4.5).
#[inline]
pub const fn mulpdu_for_mss(mss: usize) -> usize {
    let mulpdu = mss.saturating_sub(LENGTH_SIZE + Crc32c::SIZE + mss % 4);
    match mulpdu {
        ..MIN_MULPDU => MIN_MULPDU,
        MAX_MULPDU.. => MAX_MULPDU,
        _ => mulpdu,
    }
}

/// The pad and the CRC, which follow a ULPDU. The trailer owns its octets, so that it can be the
/// last part of a gather write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    bytes: [u8; MAX_TRAILER],
    len: u8,
}

impl Trailer {
    /// The size of the trailer of a ULPDU of this length: 4 to 7 octets.
    #[inline]
    pub const fn size(ulpdu_len: usize) -> usize {
        pad(ulpdu_len) + Crc32c::SIZE
    }

    /// The trailer if CRCs are off. All its octets are zero.
    #[inline]
    pub const fn without_crc(ulpdu_len: usize) -> Self {
        Self { bytes: [0; MAX_TRAILER], len: Self::size(ulpdu_len) as u8 }
    }

    /// The trailer if CRCs are on. `crc` must already cover the length and the ULPDU. This function
    /// updates it with the pad.
    #[inline]
    pub fn with_crc(ulpdu_len: usize, crc: &mut Crc32c) -> Self {
        let mut trailer = Self::without_crc(ulpdu_len);
        let pad = pad(ulpdu_len);
        crc.update(&trailer.bytes[..pad]);
        trailer.bytes[pad..][..Crc32c::SIZE].copy_from_slice(&crc.to_wire());
        trailer
    }

    /// The octets to send.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Checks the CRC of a received frame. `crc` must already cover the length and the ULPDU. This
/// function updates it with the pad. `trailer` consists of the [`Trailer::size`] octets after the
/// ULPDU.
///
/// # Panics
/// If `trailer` is shorter than a CRC.
#[inline]
pub fn check_trailer(crc: &mut Crc32c, trailer: &[u8]) -> Result<(), CrcError> {
    let (pad, found) = trailer.split_last_chunk().expect("a trailer holds at least the CRC");
    debug_assert!(pad.len() < 4, "a trailer holds at most three octets of pad");
    crc.update(pad);
    compare(u32::from_le_bytes(*found), crc.value())
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

/// A whole FPDU in memory. Readers that place payload while it arrives use [`check_trailer`]
/// instead.
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
    fn send_frame(trailer: impl FnOnce(&[u8]) -> Trailer) -> Vec<u8> {
        let mut frame = vec![0; 44];
        frame[..2].copy_from_slice(&[0x00, 0x2A]);
        let opcode = UntaggedOpcode::Send;
        Header::Untagged { last: true, opcode, invalidate: 0, qn: 0, msn: 1, mo: 0 }
            .emit(&mut frame[2..]);
        let trailer = trailer(&frame);
        frame.extend_from_slice(trailer.as_bytes());
        frame
    }

    #[test]
    fn frames_are_multiples_of_four() {
        for ulpdu_len in (0..=MAX_ULPDU).step_by(if cfg!(miri) { 251 } else { 1 }) {
            let (pad, total) = (pad(ulpdu_len), fpdu_len(ulpdu_len));
            assert!(pad < 4 && total % 4 == 0 && total == 2 + ulpdu_len + Trailer::size(ulpdu_len));
            assert_eq!(Trailer::without_crc(ulpdu_len).as_bytes().len(), pad + 4);
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
        let mut crc = Crc32c::new();
        let frame = send_frame(|start| {
            crc.update(start);
            Trailer::with_crc(0x2A, &mut crc)
        });
        let fpdu = Fpdu::parse(&frame).unwrap();
        assert_eq!(fpdu.len(), frame.len());
        assert_eq!(fpdu.check_crc(), Ok(()));

        for at in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x10;
            crc.reset();
            crc.update(&damaged[..44]);
            let error = check_trailer(&mut crc, &damaged[44..]).unwrap_err();
            assert_eq!(error.cause(), Cause::MPA_CRC);
            if at >= 2 {
                assert_eq!(Fpdu::parse(&damaged).unwrap().check_crc(), Err(error), "octet {at}");
            }
        }
    }

    #[test]
    fn pad_is_covered() {
        for ulpdu_len in 18..22 {
            let mut frame = vec![0; 2 + ulpdu_len];
            frame[1] = ulpdu_len as u8;
            let mut crc = Crc32c::new();
            crc.update(&frame);
            let trailer = Trailer::with_crc(ulpdu_len, &mut crc);
            frame.extend_from_slice(trailer.as_bytes());
            assert_eq!(Fpdu::parse(&frame).unwrap().check_crc(), Ok(()));
            crc.reset();
            crc.update(&frame[..2 + ulpdu_len]);
            assert_eq!(check_trailer(&mut crc, trailer.as_bytes()), Ok(()));
        }
    }

    #[test]
    fn incomplete_frames_wait() {
        let frame = send_frame(|_| Trailer::without_crc(0x2A));
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
