//! The layout of a message on the wire, which is divided into FPDUs.
//!
//! All FPDUs of a message except the last have the same size. So a position in the octets of the
//! message on the wire completely describes the progress of a sender. Nothing else is stored for a
//! frame that is partly sent.

use wire::iwarp::mpa::fpdu;
use wire::iwarp::{crc, ddp};

/// The layout of a message on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageLayout {
    /// The number of octets before the payload of each FPDU: the ULPDU length and the header.
    header: usize,
    /// The number of octets of payload in each FPDU except the last. It is a multiple of four, so
    /// that these FPDUs have no pad.
    payload: usize,
    /// The number of octets of payload in the whole message.
    len: usize,
}

/// One FPDU of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The offset of the FPDU's payload in the message.
    pub(super) offset: usize,
    /// The number of octets of payload in the FPDU.
    pub(super) payload: usize,
    /// Whether the FPDU is the last one of the message.
    pub(super) last: bool,
    /// The position of the FPDU's first octet on the wire, counted from the first octet of the
    /// message.
    pub(super) start: u64,
}

impl MessageLayout {
    /// The layout of a message of tagged segments.
    #[inline]
    pub(super) fn tagged(mulpdu: usize, len: usize) -> Self {
        Self::new(ddp::TAGGED_SIZE, mulpdu, len)
    }

    /// The layout of a message of untagged segments.
    #[inline]
    pub(super) fn untagged(mulpdu: usize, len: usize) -> Self {
        Self::new(ddp::UNTAGGED_SIZE, mulpdu, len)
    }

    #[inline]
    fn new(header: usize, mulpdu: usize, len: usize) -> Self {
        MessageLayout { header: fpdu::LENGTH_SIZE + header, payload: (mulpdu - header) & !3, len }
    }

    /// The number of octets before the payload of each FPDU.
    #[inline]
    pub(super) fn header(&self) -> usize {
        self.header
    }

    /// The number of octets of payload in the whole message.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of octets on the wire of each FPDU except the last.
    #[inline]
    fn full_frame(&self) -> usize {
        self.header + self.payload + crc::SIZE
    }

    /// The number of FPDUs before the last.
    #[inline]
    fn full_frames(&self) -> usize {
        if self.len <= self.payload { 0 } else { (self.len - 1) / self.payload }
    }

    /// The number of octets on the wire of the whole message.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        let full = self.full_frames();
        let last = self.len - full * self.payload;
        full as u64 * self.full_frame() as u64 + self.wire_len(last) as u64
    }

    /// The FPDU, if the message has only one.
    #[inline]
    pub(super) fn only_frame(&self) -> Option<Frame> {
        let frame = Frame { offset: 0, payload: self.len, last: true, start: 0 };
        (self.len <= self.payload).then_some(frame)
    }

    /// Returns the FPDU that contains an octet on the wire; `pos` is less than
    /// [`total`](Self::total).
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

    /// Returns the end of the FPDU that contains an octet on the wire.
    #[inline]
    pub(super) fn frame_end(&self, pos: u64) -> u64 {
        let frame = self.frame(pos);
        frame.start + self.wire_len(frame.payload) as u64
    }

    /// The number of octets of the ULPDU of an FPDU with this payload.
    #[inline]
    pub(super) fn ulpdu(&self, payload: usize) -> usize {
        self.header - fpdu::LENGTH_SIZE + payload
    }

    /// The number of octets on the wire of an FPDU with this payload.
    #[inline]
    pub(super) fn wire_len(&self, payload: usize) -> usize {
        self.header + payload + fpdu::trailer_len(self.ulpdu(payload))
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
                for layout in
                    [MessageLayout::tagged(mulpdu, len), MessageLayout::untagged(mulpdu, len)]
                {
                    let (mut pos, mut offset) = (0, 0);
                    loop {
                        let frame = layout.frame(pos);
                        assert_eq!((frame.start, frame.offset), (pos, offset));
                        let end = layout.frame_end(pos);
                        assert_eq!(end - pos, fpdu::fpdu_len(layout.ulpdu(frame.payload)) as u64);
                        assert!(layout.ulpdu(frame.payload) <= mulpdu);
                        assert_eq!(layout.frame(end - 1), frame);
                        (pos, offset) = (end, offset + frame.payload);
                        if frame.last {
                            break;
                        }
                        assert_eq!(frame.payload % 4, 0);
                    }
                    assert_eq!((pos, offset), (layout.total(), len));
                }
            }
        }
    }
}
