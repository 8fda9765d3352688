//! How a message is cut into FPDUs.
//!
//! All FPDUs of a message but the last have the same size, so that a position in the message's octets on the wire says
//! all about where a sender is: nothing else is kept of a frame that is half sent.

use wire::iwarp::mpa::fpdu::{self, Trailer};
use wire::iwarp::{Crc32c, ddp};

/// A message on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Octets before the payload of each FPDU: ULPDU length and header.
    header: usize,
    /// Octets of payload in all FPDUs but the last: a multiple of four, so that these have no pad.
    payload: usize,
    /// Octets of payload in all.
    len: usize,
}

/// One FPDU of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Offset of its payload in the message.
    pub(super) offset: usize,
    /// Octets of its payload.
    pub(super) payload: usize,
    /// It is the message's last.
    pub(super) last: bool,
    /// Its first octet, counted on the wire from the message's first.
    pub(super) start: u64,
}

impl Cut {
    /// A message of tagged segments.
    #[inline]
    pub(super) fn tagged(mulpdu: usize, len: usize) -> Self {
        Self::new(ddp::TAGGED_SIZE, mulpdu, len)
    }

    /// A message of untagged segments.
    #[inline]
    pub(super) fn untagged(mulpdu: usize, len: usize) -> Self {
        Self::new(ddp::UNTAGGED_SIZE, mulpdu, len)
    }

    #[inline]
    fn new(header: usize, mulpdu: usize, len: usize) -> Self {
        Cut { header: fpdu::LENGTH_SIZE + header, payload: (mulpdu - header) & !3, len }
    }

    /// Octets before the payload of each FPDU.
    #[inline]
    pub(super) fn header(&self) -> usize {
        self.header
    }

    /// Octets of payload in all.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Octets on the wire of all FPDUs but the last.
    #[inline]
    fn full_frame(&self) -> usize {
        self.header + self.payload + Crc32c::SIZE
    }

    /// FPDUs before the last.
    #[inline]
    fn full_frames(&self) -> usize {
        if self.len <= self.payload { 0 } else { (self.len - 1) / self.payload }
    }

    /// Octets on the wire in all.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        let full = self.full_frames();
        let last = self.len - full * self.payload;
        full as u64 * self.full_frame() as u64 + self.wire_len(last) as u64
    }

    /// The message's FPDU, if it has but one.
    #[inline]
    pub(super) fn only_frame(&self) -> Option<Frame> {
        let frame = Frame { offset: 0, payload: self.len, last: true, start: 0 };
        (self.len <= self.payload).then_some(frame)
    }

    /// The FPDU that an octet on the wire belongs to; `pos` is less than [`total`](Self::total).
    #[inline]
    pub(super) fn frame(&self, pos: u64) -> Frame {
        let index = match self.full_frames() {
            0 => 0,
            full => ((pos / self.full_frame() as u64) as usize).min(full),
        };
        let offset = index * self.payload;
        let last = index == self.full_frames();
        let payload = if last { self.len - offset } else { self.payload };
        Frame { offset, payload, last, start: index as u64 * self.full_frame() as u64 }
    }

    /// The end of the FPDU that an octet on the wire belongs to.
    #[inline]
    pub(super) fn frame_end(&self, pos: u64) -> u64 {
        let frame = self.frame(pos);
        frame.start + self.wire_len(frame.payload) as u64
    }

    /// Octets of the ULPDU of an FPDU with so much payload.
    #[inline]
    pub(super) fn ulpdu(&self, payload: usize) -> usize {
        self.header - fpdu::LENGTH_SIZE + payload
    }

    /// Octets on the wire of an FPDU with so much payload.
    #[inline]
    pub(super) fn wire_len(&self, payload: usize) -> usize {
        self.header + payload + Trailer::size(self.ulpdu(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cover_the_message() {
        for mulpdu in [128, 1442, 65477, 65535] {
            for len in [
                0,
                1,
                3,
                4,
                109,
                110,
                111,
                112,
                113,
                114,
                1424,
                1425,
                65457,
                65460,
                65516,
                65520,
                1 << 20,
            ] {
                if cfg!(miri) && len > 1425 {
                    continue;
                }
                for cut in [Cut::tagged(mulpdu, len), Cut::untagged(mulpdu, len)] {
                    let (mut pos, mut offset) = (0, 0);
                    loop {
                        let frame = cut.frame(pos);
                        assert_eq!((frame.start, frame.offset), (pos, offset));
                        let end = cut.frame_end(pos);
                        assert_eq!(end - pos, fpdu::fpdu_len(cut.ulpdu(frame.payload)) as u64);
                        assert!(cut.ulpdu(frame.payload) <= mulpdu);
                        assert_eq!(cut.frame(end - 1), frame);
                        (pos, offset) = (end, offset + frame.payload);
                        if frame.last {
                            break;
                        }
                        assert_eq!(frame.payload % 4, 0);
                    }
                    assert_eq!((pos, offset), (cut.total(), len));
                }
            }
        }
    }
}
