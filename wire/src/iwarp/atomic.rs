//! What RFC 7306 adds to RDMAP: atomic operations and immediate data. The bodies that follow their untagged headers.
//!
//! ```text
//! immediate data    data 8                                                                       8 octets
//! atomic request    reserved, code 4 | id 4 | STag 4 | TO 8 | add or swap 8 | its mask 8
//!                   | compare 8 | its mask 8                                                    52 octets
//! atomic response   id 4 | original value 8                                                     12 octets
//! ```
//!
//! None of them is ever cut: each message is one segment.

use std::fmt;

use super::terminate::Cause;
use crate::bytes::{be32, be64};

/// An operation on 64 bits of a peer's memory, aligned to as many (RFC 7306, section 5.1). Values are numbers: the target
/// holds them in its own byte order, the wire in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds, field by field.
    FetchAdd {
        /// What is added.
        add: u64,
        /// The highest bit of each field; a carry out of it is lost. 0: one field of 64 bits.
        mask: u64,
    },
    /// Replaces the bits in `swap_mask` if those in `compare_mask` are as in `compare`.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// Which of them count.
        swap_mask: u64,
        /// The bits that must be there.
        compare: u64,
        /// Which of them count.
        compare_mask: u64,
    },
}

impl AtomicOp {
    const FETCH_ADD: u32 = 0;
    const CMP_SWAP: u32 = 2;
    /// What a mask is that does not count (RFC 7306, figure 4).
    const UNUSED_MASK: u64 = u64::MAX;

    /// Adds to all 64 bits as one number.
    pub const fn fetch_add(add: u64) -> Self {
        Self::FetchAdd { add, mask: 0 }
    }

    /// Compares and swaps all 64 bits.
    pub const fn cmp_swap(compare: u64, swap: u64) -> Self {
        Self::CmpSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
    }

    /// What the target holds afterwards if it held `original` before.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            // Without the fields' highest bits no carry leaves a field; these are then added without one.
            Self::FetchAdd { add, mask } => {
                (original & !mask).wrapping_add(add & !mask) ^ ((original ^ add) & mask)
            }
            Self::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                if (compare ^ original) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
        }
    }
}

/// The body of an atomic request (RFC 7306, figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Comes back in the response.
    pub id: u32,
    /// The target's buffer.
    pub stag: u32,
    /// Tagged offset of the target.
    pub to: u64,
    /// What to do there.
    pub op: AtomicOp,
}

impl AtomicRequest {
    /// Octets on the wire.
    pub const SIZE: usize = 52;

    /// Reads a request at the start of `bytes`; `None` if they are fewer than [`SIZE`](Self::SIZE).
    pub fn parse(bytes: &[u8]) -> Option<Result<Self, UnknownAtomic>> {
        let b = bytes.first_chunk::<{ Self::SIZE }>()?;
        let op = match be32(b, 0) & 0xF {
            AtomicOp::FETCH_ADD => AtomicOp::FetchAdd { add: be64(b, 20), mask: be64(b, 28) },
            AtomicOp::CMP_SWAP => AtomicOp::CmpSwap {
                swap: be64(b, 20),
                swap_mask: be64(b, 28),
                compare: be64(b, 36),
                compare_mask: be64(b, 44),
            },
            code => return Some(Err(UnknownAtomic { code: code as u8 })),
        };
        Some(Ok(Self { id: be32(b, 4), stag: be32(b, 8), to: be64(b, 12), op }))
    }

    /// Writes the request at the start of `buf` and gives its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`SIZE`](Self::SIZE).
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let (code, data, mask, compare, compare_mask) = match self.op {
            AtomicOp::FetchAdd { add, mask } => {
                (AtomicOp::FETCH_ADD, add, mask, 0, AtomicOp::UNUSED_MASK)
            }
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                (AtomicOp::CMP_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        let buf = &mut buf[..Self::SIZE];
        buf[0..4].copy_from_slice(&code.to_be_bytes());
        buf[4..8].copy_from_slice(&self.id.to_be_bytes());
        buf[8..12].copy_from_slice(&self.stag.to_be_bytes());
        for (at, field) in
            [(12, self.to), (20, data), (28, mask), (36, compare), (44, compare_mask)]
        {
            buf[at..at + 8].copy_from_slice(&field.to_be_bytes());
        }
        Self::SIZE
    }
}

impl fmt::Display for AtomicRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            AtomicOp::FetchAdd { add, mask } => write!(f, "fetch-add {add:#x} mask={mask:#x}")?,
            AtomicOp::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                write!(
                    f,
                    "compare {compare:#x} mask={compare_mask:#x} swap {swap:#x} mask={swap_mask:#x}"
                )?;
            }
        }
        write!(f, " target={:#010x}+{:#x} id={}", self.stag, self.to, self.id)
    }
}

/// An atomic operation that RFC 7306 does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("atomic operation code {code:#x}; 0 (fetch-add) and 2 (compare-swap) are known")]
pub struct UnknownAtomic {
    /// The code found, 0 to 15.
    pub code: u8,
}

impl UnknownAtomic {
    /// What to send in the TERMINATE.
    pub const fn cause(&self) -> Cause {
        Cause::UNEXPECTED_OPCODE
    }
}

/// The body of an atomic response (RFC 7306, figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The request's.
    pub id: u32,
    /// What the target held before.
    pub original: u64,
}

impl AtomicResponse {
    /// Octets on the wire.
    pub const SIZE: usize = 12;

    /// Reads a response at the start of `bytes`; `None` if they are fewer than [`SIZE`](Self::SIZE).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::SIZE }>()?;
        Some(Self { id: be32(b, 0), original: be64(b, 4) })
    }

    /// Writes the response at the start of `buf` and gives its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`SIZE`](Self::SIZE).
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let buf = &mut buf[..Self::SIZE];
        buf[0..4].copy_from_slice(&self.id.to_be_bytes());
        buf[4..12].copy_from_slice(&self.original.to_be_bytes());
        Self::SIZE
    }
}

/// The body of an immediate data message (RFC 7306, figure 7): of its eight octets the first four are a number in network
/// order, as RNICs do it for consumers whose immediate data are 32 bits; the others are zero, and not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate(pub u32);

impl Immediate {
    /// Octets on the wire.
    pub const SIZE: usize = 8;

    /// Reads immediate data at the start of `bytes`; `None` if they are fewer than [`SIZE`](Self::SIZE).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<{ Self::SIZE }>().map(|b| Self(be32(b, 0)))
    }

    /// Writes the data at the start of `buf` and gives their size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`SIZE`](Self::SIZE).
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let (number, rest) = buf[..Self::SIZE].split_at_mut(4);
        number.copy_from_slice(&self.0.to_be_bytes());
        rest.fill(0);
        Self::SIZE
    }
}

#[cfg(test)]
mod tests;
