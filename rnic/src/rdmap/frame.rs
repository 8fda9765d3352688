//! Framing: appends the FPDUs of a message to a [`TxVec`].
//!
//! The code is generic over the source of the payload, so that each kind of message gets
//! specialized code.

use std::ptr::with_exposed_provenance_mut;

use wire::iwarp::mpa::fpdu::{LENGTH_SIZE, trailer_len, write_crc};
use wire::iwarp::{Header, ReadRequest};

use super::message::{Frame, MessageLayout};
use super::vec::TxVec;
use crate::key::{KeyError, Keys, Right, Scope};
use crate::memory;
use crate::wr::Segment;

/// Messages of at most this many octets are copied next to their headers. Longer messages are sent
/// straight from registered memory.
const COPY_MAX: usize = 8 << 10;
/// Messages whose payload has more contiguous pieces than this are also copied.
const REFERENCE_MAX_ELEMENTS: usize = 128;

/// The source of a message's payload.
///
/// # Safety
/// [`Payload::pieces`] names no more than `len` octets in all, each of them readable as long as the
/// engine lock is held.
pub(super) unsafe trait Payload {
    /// The maximum number of contiguous pieces of memory that contain the payload.
    fn elements(&self) -> usize;

    /// Names the memory of `len` octets, after checking that it may be read now.
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        piece: impl FnMut(*const u8, usize),
    ) -> Result<(), KeyError>;
}

/// The segments of a request.
pub(super) struct Local<'a> {
    pub(super) keys: &'a Keys,
    pub(super) by: Scope,
    pub(super) segments: &'a [Segment],
}

/// The memory that the peer reads.
pub(super) struct Source<'a> {
    pub(super) keys: &'a Keys,
    pub(super) by: Scope,
    pub(super) request: ReadRequest,
}

/// A few octets that belong to the engine itself.
pub(super) struct Inline<const N: usize>(pub(super) [u8; N]);

// SAFETY: `memory::pieces` names at most `len` octets, of regions whose keys it has just checked.
unsafe impl Payload for Local<'_> {
    #[inline]
    fn elements(&self) -> usize {
        self.segments.len()
    }

    #[inline]
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        mut piece: impl FnMut(*const u8, usize),
    ) -> Result<(), KeyError> {
        let by = (self.by, Right::LocalRead);
        memory::pieces(self.keys, by, self.segments, offset, len, |from, n| piece(from, n))
    }
}

// SAFETY: `pieces` names `len` octets of a region whose key it has just checked for at least as
// many octets.
unsafe impl Payload for Source<'_> {
    #[inline]
    fn elements(&self) -> usize {
        1
    }

    #[inline]
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        mut piece: impl FnMut(*const u8, usize),
    ) -> Result<(), KeyError> {
        if len > 0 {
            // The check covers all octets that remain of the read, and not only these `len` octets,
            // so that no part of the response is sent if the read must fail. `wrapping_add` cannot
            // wrap here: a read beyond 2^64 is refused with its first frame.
            let to = self.request.source_to.wrapping_add(offset as u64);
            let rest = u64::from(self.request.len) - offset as u64;
            let addr =
                self.keys.check(self.request.source_stag, self.by, to, rest, Right::RemoteRead)?;
            piece(with_exposed_provenance_mut(addr as usize), len);
        }
        Ok(())
    }
}

// SAFETY: `pieces` names the `len` octets of `self`. They are copied before `self` is dropped,
// because such short messages are always copied.
unsafe impl<const N: usize> Payload for Inline<N> {
    #[inline]
    fn elements(&self) -> usize {
        1
    }

    #[inline]
    fn pieces(
        &self,
        offset: usize,
        len: usize,
        mut piece: impl FnMut(*const u8, usize),
    ) -> Result<(), KeyError> {
        piece(self.0[offset..offset + len].as_ptr(), len);
        Ok(())
    }
}

/// A message, and the data that are needed to frame it. `header` creates the header of a frame. Its
/// arguments are whether the frame is the last one, and the offset of its payload.
pub(super) struct Framing<H, P> {
    pub(super) layout: MessageLayout,
    pub(super) header: H,
    pub(super) payload: P,
    pub(super) crc: bool,
}

impl<H: Fn(bool, usize) -> Header, P: Payload> Framing<H, P> {
    /// Frames the message from position `pos` to `until`, or until there is no room. Returns the
    /// position that was reached. That position and `until` are ends of frames.
    #[inline]
    pub(super) fn put(
        &self,
        tx: &mut TxVec,
        mut pos: u64,
        until: u64,
    ) -> (u64, Result<(), KeyError>) {
        let layout = self.layout;
        let copied = self.crc
            || layout.len() <= COPY_MAX
            || self.payload.elements() > REFERENCE_MAX_ELEMENTS;
        if let Some(frame) = layout.only_frame().filter(|_| pos == 0 && copied) {
            // A short cut for the most frequent case. The loop below would have the same result.
            let wire_len = layout.wire_len(frame.payload);
            if !tx.has_room(wire_len, 1) || tx.splits(wire_len, self.trailer(frame)) {
                return (0, Ok(()));
            }
            return match self.copy(tx, frame, 0) {
                Ok(()) => (wire_len as u64, Ok(())),
                Err(error) => {
                    tx.unstage(wire_len);
                    (0, Err(error))
                }
            };
        }
        while pos < until && tx.octets() < TxVec::MAX_OCTETS {
            let frame = layout.frame(pos);
            let wire_len = layout.wire_len(frame.payload);
            let (staged, elements) = match copied {
                true => (wire_len, 1),
                false => (wire_len - frame.payload, 2 + self.payload.elements()),
            };
            let skip = (pos - frame.start) as usize;
            if !tx.has_room(staged, elements) || tx.splits(wire_len - skip, self.trailer(frame)) {
                break;
            }
            let position = tx.position();
            let result = match copied {
                true => self.copy(tx, frame, skip),
                false => self.refer(tx, frame, skip),
            };
            if let Err(error) = result {
                tx.truncate(position);
                return (pos, Err(error));
            }
            pos = frame.start + wire_len as u64;
        }
        (pos, Ok(()))
    }

    /// Gathers a frame without its first `skip` octets. The payload is copied.
    #[inline]
    fn copy(&self, tx: &mut TxVec, frame: Frame, skip: usize) -> Result<(), KeyError> {
        let wire_len = self.layout.wire_len(frame.payload);
        let out = tx.staged(wire_len);
        // The last octets are the pad and the CRC. The octets before them, if any, are overwritten
        // next.
        if let Some(tail) = out.last_chunk_mut::<8>() {
            *tail = [0; 8];
        }
        let (header, rest) = out.split_at_mut(self.layout.header());
        self.emit_header(frame, header);
        let mut at = rest[..frame.payload].as_mut_ptr();
        self.payload.pieces(frame.offset, frame.payload, |from, len| {
            // SAFETY: `pieces` names at most `frame.payload` readable octets, and `rest` has room
            // for them.
            unsafe {
                at.copy_from_nonoverlapping(from, len);
                at = at.add(len);
            }
        })?;
        if self.crc {
            write_crc(out);
        }
        tx.push_staged(wire_len - skip);
        Ok(())
    }

    /// Gathers a frame without CRC and without its first `skip` octets. The payload is not copied:
    /// the vector refers to it.
    fn refer(&self, tx: &mut TxVec, frame: Frame, skip: usize) -> Result<(), KeyError> {
        let header = self.layout.header();
        self.emit_header(frame, tx.staged(header));
        tx.push_staged(header - skip.min(header));

        let skip = skip.saturating_sub(header);
        let skipped = skip.min(frame.payload);
        self.payload.pieces(frame.offset + skipped, frame.payload - skipped, |from, len| {
            tx.push_memory(from.cast_mut(), len);
        })?;

        let trailer = self.trailer(frame);
        tx.staged(trailer).fill(0);
        tx.push_staged(trailer - (skip - skipped));
        Ok(())
    }

    /// The number of octets of a frame's pad and CRC.
    #[inline]
    fn trailer(&self, frame: Frame) -> usize {
        trailer_len(self.layout.ulpdu(frame.payload))
    }

    /// Writes the ULPDU length and the header of a frame.
    #[inline]
    fn emit_header(&self, frame: Frame, out: &mut [u8]) {
        let ulpdu_len = self.layout.ulpdu(frame.payload) as u16;
        out[..LENGTH_SIZE].copy_from_slice(&ulpdu_len.to_be_bytes());
        (self.header)(frame.last, frame.offset).emit(&mut out[LENGTH_SIZE..]);
    }
}
