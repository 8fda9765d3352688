//! The RFC 7306 extensions of RDMAP, atomic operations and immediate data: the message bodies that
//! follow the untagged headers.
//!
//! ```text
//! immediate data    data 8                                                             8 octets
//! atomic request    reserved, code 4 | id 4 | STag 4 | TO 8 | add or swap 8 | its mask 8
//!                   | compare 8 | its mask 8                                          52 octets
//! atomic response   id 4 | original value 8                                           12 octets
//! ```
//!
//! Each message is exactly one segment.

use std::fmt;

use super::terminate::Cause;
use crate::bytes::{be32, be64};

/// An operation on 64 bits of a peer's memory, aligned to 64 bits (RFC 7306, section 5.1). Values
/// are numbers. On the wire they are in network order, and in the target's memory in the target's
/// byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds a number to the target. `mask` divides the 64 bits into fields that are added
    /// separately.
    FetchAdd {
        /// The addend.
        add: u64,
        /// The mask that marks the highest bit of each field. Carries out of a field are lost. 0
        /// means one field of 64 bits.
        mask: u64,
    },
    /// Replaces the bits in `swap_mask` if the bits in `compare_mask` are equal to the same bits of
    /// `compare`.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// The bits to replace.
        swap_mask: u64,
        /// The expected bits.
        compare: u64,
        /// The bits to compare.
        compare_mask: u64,
    },
}

impl AtomicOp {
    const FETCH_ADD: u32 = 0;
    const CMP_SWAP: u32 = 2;
    /// The value of an unused mask (RFC 7306, figure 4).
    const UNUSED_MASK: u64 = u64::MAX;

    /// An addition to all 64 bits as one number.
    pub const fn fetch_add(add: u64) -> Self {
        Self::FetchAdd { add, mask: 0 }
    }

    /// A comparison and swap of all 64 bits.
    pub const fn cmp_swap(compare: u64, swap: u64) -> Self {
        Self::CmpSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
    }

    /// The target's new value if its old value was `original`.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            // The highest bit of each field is cleared before the addition, so that no carry leaves
            // a field. The highest bits are then added without carry.
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
    /// The ID of the request, which its response repeats.
    pub id: u32,
    /// The STag of the target buffer.
    pub stag: u32,
    /// The tagged offset of the target.
    pub to: u64,
    /// The operation.
    pub op: AtomicOp,
}

impl AtomicRequest {
    /// The size on the wire in octets.
    pub const SIZE: usize = 52;

    /// Reads a request at the start of `bytes`. Returns `None` if there are fewer than
    /// [`SIZE`](Self::SIZE) octets.
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

    /// Writes the request at the start of `buf` and returns its size.
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
    /// The received code, 0 to 15.
    pub code: u8,
}

impl UnknownAtomic {
    /// The cause to report in the TERMINATE.
    pub const fn cause(&self) -> Cause {
        Cause::UNEXPECTED_OPCODE
    }
}

/// The body of an atomic response (RFC 7306, figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The ID of the request.
    pub id: u32,
    /// The previous value of the target.
    pub original: u64,
}

impl AtomicResponse {
    /// The size on the wire in octets.
    pub const SIZE: usize = 12;

    /// Reads a response at the start of `bytes`. Returns `None` if there are fewer than
    /// [`SIZE`](Self::SIZE) octets.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::SIZE }>()?;
        Some(Self { id: be32(b, 0), original: be64(b, 4) })
    }

    /// Writes the response at the start of `buf` and returns its size.
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

/// The body of an immediate data message (RFC 7306, figure 7), eight octets. The first four octets
/// are a number in network order, as in RNICs whose consumers use immediate data of 32 bits. The
/// other four octets are zero when sent and ignored when received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Immediate(pub u32);

impl Immediate {
    /// The size on the wire in octets.
    pub const SIZE: usize = 8;

    /// Reads immediate data at the start of `bytes`. Returns `None` if there are fewer than
    /// [`SIZE`](Self::SIZE) octets.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<{ Self::SIZE }>().map(|b| Self(be32(b, 0)))
    }

    /// Writes the data at the start of `buf` and returns their size.
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
