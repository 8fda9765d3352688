//! DDP: the control octet and the layout of the two kinds of segment (RFC 5041, section 4).
//!
//! ```text
//! tagged     control | RDMAP control | STag 4 | TO 8                              14 octets
//! untagged   control | RDMAP control | invalidate STag 4 | QN 4 | MSN 4 | MO 4    18 octets
//! ```
//!
//! [`crate::iwarp::Header`] reads and writes these headers together with RDMAP's part.

use std::fmt;

/// The number of octets of a tagged header.
pub const TAGGED_SIZE: usize = 14;
/// The number of octets of an untagged header.
pub const UNTAGGED_SIZE: usize = 18;

/// The bit T: the segment names a tagged buffer.
pub(super) const TAGGED: u8 = 0x80;
/// The bit L: the segment is the last one of its message.
pub(super) const LAST: u8 = 0x40;
/// The mask of DV, the DDP version, in the two low bits. Bits 2..5 are reserved: zero when sent,
/// ignored when received.
pub(super) const VERSION_MASK: u8 = 0x03;
/// The only version that is defined.
pub(super) const VERSION: u8 = 0x01;

/// Whether a segment with this control octet has a tagged header.
#[inline]
pub(super) fn is_tagged(control: u8) -> bool {
    control & TAGGED != 0
}

/// The untagged queues of RDMAP (RFC 5040, section 4.2; RFC 7306, section 4.1). The MSNs of each
/// queue start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Queue {
    /// Queue 0, for SENDs of all kinds and immediate data.
    Send = 0,
    /// Queue 1, for READ requests and atomic requests.
    Request = 1,
    /// Queue 2, for TERMINATE.
    Terminate = 2,
    /// Queue 3, for atomic responses.
    AtomicResponse = 3,
}

impl Queue {
    /// The queue number (QN) on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QN {}", self.number())
    }
}
