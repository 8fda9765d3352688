//! iWARP: RDMA over TCP.
//!
//! | file | layer | source |
//! |---|---|---|
//! | [`mpa`] | connection setup, framing of records in the TCP stream | RFC 5044, RFC 6581 |
//! | [`crc`] | the checksum of a frame | RFC 5044, section 4.4 |
//! | [`ddp`] | direct placement: tagged and untagged segments | RFC 5041 |
//! | [`rdmap`] | operations, and the [`Header`] at the start of each record | RFC 5040, opcodes of RFC 7306 |
//! | [`atomic`] | atomic operations and immediate data | RFC 7306 |
//! | [`terminate`] | the last message of a failed stream, and its causes | RFC 5040, section 4.8 |
//!
//! After setup, the stream is a sequence of FPDUs with this layout:
//!
//! ```text
//! ULPDU length (2) | Header (14 or 18) | payload or body | pad (0..3) | CRC (4)
//!                  |<------------- ULPDU -------------->|
//! ```

pub mod atomic;
pub mod crc;
pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

pub use atomic::{AtomicOp, AtomicRequest, AtomicResponse, Immediate, UnknownAtomic};
pub use ddp::Queue;
pub use mpa::fpdu::{CrcError, Fpdu};
pub use mpa::{Enhanced, ReadDepth, Revision, Setup, SetupError, SetupKind, SetupProgress};
pub use rdmap::{Header, HeaderError, Placement, ReadRequest, TaggedOpcode, UntaggedOpcode};
pub use terminate::{BitOrder, Cause, Terminate, TerminateError, TerminatedHeader};

/// The maximum number of octets before the consumer's payload in an FPDU: ULPDU length, untagged
/// header, atomic request. A TERMINATE can have more.
pub const MAX_HEADER: usize =
    mpa::fpdu::LENGTH_SIZE + ddp::UNTAGGED_SIZE + atomic::AtomicRequest::SIZE;
