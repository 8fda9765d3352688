//! A whole packet: the payload of a UDP datagram without the ICRC at its end.
//!
//! ```text
//! BTH (12) | extension (0 to 28) | payload | pad (0..3) | ICRC (4)
//! |<--------------- a multiple of 4 --------------->|
//! ```

use std::fmt;

use super::aeth::Aeth;
use super::atomic::{AtomicAckEth, AtomicEth};
use super::bth::Bth;
use super::deth::Deth;
use super::opcode::{ExtensionKind, Opcode};
use super::reth::Reth;

/// The number of pad octets after a payload, 0 to 3.
#[inline]
pub const fn pad(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// The size of a packet without its ICRC, in octets.
#[inline]
pub const fn packet_len(opcode: Opcode, payload_len: usize) -> usize {
    opcode.header_len() + payload_len + pad(payload_len)
}

/// A packet, which consists of headers and payload. The engine decides whether it is valid in the
/// current state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The headers that the opcode announces.
    pub extension: Extension,
    /// The payload, without pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet from a datagram whose ICRC was checked and removed. Pad octets are ignored.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let len = bytes.len();
        if !len.is_multiple_of(4) {
            return Err(ParseError::Unaligned { len });
        }
        let short = |needed| ParseError::Short { len, needed };
        let (bth, rest) = bytes.split_first_chunk().ok_or(short(Bth::SIZE))?;
        let (bth, pad) = Bth::parse(bth)?;
        let (extension, rest) = Extension::parse(bth.opcode.extension_kind(), rest)
            .ok_or(short(bth.opcode.header_len()))?;
        let Some(payload_len) = rest.len().checked_sub(pad) else {
            return Err(ParseError::Pad { pad, len: rest.len() });
        };
        if !rest.is_empty() && !bth.opcode.has_payload() {
            return Err(ParseError::Payload { opcode: bth.opcode, len: rest.len() });
        }
        Ok(Self { bth, extension, payload: &rest[..payload_len] })
    }

    /// The size of the packet without its ICRC, in octets.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a packet is never empty")]
    pub const fn len(&self) -> usize {
        packet_len(self.bth.opcode, self.payload.len())
    }

    /// Writes the packet at the start of `buf` and returns its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`len`](Self::len), or the extension does not belong to the opcode.
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        Self::emit_around(&self.bth, &self.extension, self.payload.len(), buf)
            .copy_from_slice(self.payload);
        self.len()
    }

    /// Writes everything except the payload at the start of `buf`. Returns the part of `buf` for
    /// the payload, which the caller fills. The packet occupies [`packet_len`] octets.
    ///
    /// # Panics
    /// If `buf` is shorter than the packet, or the extension does not belong to the opcode.
    #[inline]
    pub fn emit_around<'b>(
        bth: &Bth,
        extension: &Extension,
        payload_len: usize,
        buf: &'b mut [u8],
    ) -> &'b mut [u8] {
        debug_assert_eq!(extension.extension_kind(), bth.opcode.extension_kind(), "{}", bth.opcode);
        debug_assert!(
            payload_len == 0 || bth.opcode.has_payload(),
            "{} has no payload",
            bth.opcode
        );
        let pad = pad(payload_len);
        let (start, rest) = buf.split_first_chunk_mut::<{ Bth::SIZE }>().expect("room for the BTH");
        *start = bth.to_wire(pad);
        let (place, rest) = rest.split_at_mut(bth.opcode.extension_kind().len());
        extension.emit(place);
        let (payload, rest) = rest.split_at_mut(payload_len);
        rest[..pad].fill(0);
        payload
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.bth, self.extension)?;
        if self.payload.is_empty() { Ok(()) } else { write!(f, " payload={}", self.payload.len()) }
    }
}

/// The extended transport headers between BTH and payload, one variant for each [`ExtensionKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// No header.
    None,
    /// The header ImmDt: 32 bits for the consumer, as a number.
    Immediate(u32),
    /// The header IETH: the R_Key to invalidate.
    Invalidate(u32),
    /// The header RETH.
    Reth(Reth),
    /// The headers RETH and ImmDt.
    RethImmediate(Reth, u32),
    /// The header AETH.
    Aeth(Aeth),
    /// The headers AETH and AtomicAckETH.
    AtomicAck(Aeth, AtomicAckEth),
    /// The header AtomicETH.
    Atomic(AtomicEth),
    /// The header DETH.
    Deth(Deth),
    /// The headers DETH and ImmDt.
    DethImmediate(Deth, u32),
    /// The 16 octets of a CNP, which are reserved: zero when sent, ignored when received.
    Reserved,
}

impl Extension {
    /// The kind of the headers. The opcode of a packet must have the same kind.
    #[inline]
    pub const fn extension_kind(&self) -> ExtensionKind {
        match self {
            Self::None => ExtensionKind::Nothing,
            Self::Immediate(_) => ExtensionKind::Immediate,
            Self::Invalidate(_) => ExtensionKind::Invalidate,
            Self::Reth(_) => ExtensionKind::Reth,
            Self::RethImmediate(..) => ExtensionKind::RethImmediate,
            Self::Aeth(_) => ExtensionKind::Aeth,
            Self::AtomicAck(..) => ExtensionKind::AtomicAck,
            Self::Atomic(_) => ExtensionKind::Atomic,
            Self::Deth(_) => ExtensionKind::Deth,
            Self::DethImmediate(..) => ExtensionKind::DethImmediate,
            Self::Reserved => ExtensionKind::Reserved,
        }
    }

    /// Reads the headers and returns them with the octets that follow. Returns `None` if the
    /// headers are incomplete.
    #[inline]
    fn parse(kind: ExtensionKind, bytes: &[u8]) -> Option<(Self, &[u8])> {
        Some(match kind {
            ExtensionKind::Nothing => (Self::None, bytes),
            ExtensionKind::Immediate => {
                let (number, rest) = word(bytes)?;
                (Self::Immediate(number), rest)
            }
            ExtensionKind::Invalidate => {
                let (r_key, rest) = word(bytes)?;
                (Self::Invalidate(r_key), rest)
            }
            ExtensionKind::Reth => {
                let (reth, rest) = bytes.split_first_chunk()?;
                (Self::Reth(Reth::parse(reth)), rest)
            }
            ExtensionKind::RethImmediate => {
                let (reth, rest) = bytes.split_first_chunk()?;
                let (number, rest) = word(rest)?;
                (Self::RethImmediate(Reth::parse(reth), number), rest)
            }
            ExtensionKind::Aeth => {
                let (aeth, rest) = bytes.split_first_chunk()?;
                (Self::Aeth(Aeth::parse(aeth)), rest)
            }
            ExtensionKind::AtomicAck => {
                let (aeth, rest) = bytes.split_first_chunk()?;
                let (ack, rest) = rest.split_first_chunk()?;
                (Self::AtomicAck(Aeth::parse(aeth), AtomicAckEth::parse(ack)), rest)
            }
            ExtensionKind::Atomic => {
                let (atomic, rest) = bytes.split_first_chunk()?;
                (Self::Atomic(AtomicEth::parse(atomic)), rest)
            }
            ExtensionKind::Deth => {
                let (deth, rest) = bytes.split_first_chunk()?;
                (Self::Deth(Deth::parse(deth)), rest)
            }
            ExtensionKind::DethImmediate => {
                let (deth, rest) = bytes.split_first_chunk()?;
                let (number, rest) = word(rest)?;
                (Self::DethImmediate(Deth::parse(deth), number), rest)
            }
            ExtensionKind::Reserved => {
                (Self::Reserved, bytes.get(ExtensionKind::Reserved.len()..)?)
            }
        })
    }

    /// Fills `place` with the headers.
    #[inline]
    fn emit(&self, place: &mut [u8]) {
        match *self {
            Self::None => place.copy_from_slice(&[]),
            Self::Immediate(number) | Self::Invalidate(number) => {
                place.copy_from_slice(&number.to_be_bytes());
            }
            Self::Reth(reth) => place.copy_from_slice(&reth.to_wire()),
            Self::RethImmediate(reth, number) => {
                write_pair(place, reth.to_wire(), number.to_be_bytes())
            }
            Self::Aeth(aeth) => place.copy_from_slice(&aeth.to_wire()),
            Self::AtomicAck(aeth, ack) => write_pair(place, aeth.to_wire(), ack.to_wire()),
            Self::Atomic(atomic) => place.copy_from_slice(&atomic.to_wire()),
            Self::Deth(deth) => place.copy_from_slice(&deth.to_wire()),
            Self::DethImmediate(deth, number) => {
                write_pair(place, deth.to_wire(), number.to_be_bytes())
            }
            Self::Reserved => place.copy_from_slice(&[0; ExtensionKind::Reserved.len()]),
        }
    }
}

#[inline]
fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

#[inline]
fn write_pair<const A: usize, const B: usize>(place: &mut [u8], first: [u8; A], second: [u8; B]) {
    let (start, end) = place.split_at_mut(A);
    start.copy_from_slice(&first);
    end.copy_from_slice(&second);
}

/// Displays a space and then the headers after the BTH. Displays nothing if there are no such
/// headers.
impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None | Self::Reserved => Ok(()),
            Self::Immediate(number) => write!(f, " immediate={number:#010x}"),
            Self::Invalidate(r_key) => write!(f, " invalidate={r_key:#010x}"),
            Self::Reth(reth) => write!(f, " {reth}"),
            Self::RethImmediate(reth, number) => write!(f, " {reth} immediate={number:#010x}"),
            Self::Aeth(aeth) => write!(f, " {aeth}"),
            Self::AtomicAck(aeth, ack) => write!(f, " {aeth} {ack}"),
            Self::Atomic(atomic) => write!(f, " {atomic}"),
            Self::Deth(deth) => write!(f, " {deth}"),
            Self::DethImmediate(deth, number) => write!(f, " {deth} immediate={number:#010x}"),
        }
    }
}

/// The reason for which a datagram is not a packet. A receiver drops such a datagram silently (IBA,
/// section 9.6), because its content cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The length is not a multiple of 4.
    #[error("packet length {len} is not a multiple of 4")]
    Unaligned {
        /// The number of octets without the ICRC.
        len: usize,
    },
    /// The headers are incomplete.
    #[error("packet of {len} octets is shorter than its headers, which have {needed}")]
    Short {
        /// The number of octets without the ICRC.
        len: usize,
        /// The number of octets of the headers.
        needed: usize,
    },
    /// The packet has a transport or an operation that this crate does not know.
    #[error("unknown opcode {code:#04x}")]
    Opcode {
        /// The received opcode.
        code: u8,
    },
    /// The version of the transport headers is not 0.
    #[error("transport header version {version}; only 0 is known")]
    Version {
        /// The received version.
        version: u8,
    },
    /// The pad count exceeds the number of octets after the headers.
    #[error("the pad count is {pad}, but only {len} octets follow the headers")]
    Pad {
        /// The pad count.
        pad: usize,
        /// The number of octets after the headers.
        len: usize,
    },
    /// There are octets after the headers of an operation without payload.
    #[error("{opcode} has no payload, but {len} octets follow its headers")]
    Payload {
        /// The opcode.
        opcode: Opcode,
        /// The number of octets after the headers.
        len: usize,
    },
}

#[cfg(test)]
mod tests;
