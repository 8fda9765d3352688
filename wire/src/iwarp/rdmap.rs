//! RDMAP: the header of each ULPDU, and the READ request (RFC 5040, sections 4.1 to 4.4).

use std::fmt;

use super::ddp::{self, Queue, TAGGED_SIZE, UNTAGGED_SIZE};
use super::terminate::Cause;
use crate::bytes::{be32, be64};

/// The mask of RV, the RDMAP version, in the two high bits. The two bits below them are reserved:
/// see [`Placement`].
const VERSION_MASK: u8 = 0xC0;
/// The only version that is defined.
const VERSION: u8 = 0x40;
const OPCODE_MASK: u8 = 0x0F;

/// The DDP and RDMAP header at the start of each ULPDU.
///
/// Offsets and lengths are in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The header of a tagged segment. Its data name their place in a buffer that the receiver has
    /// advertised.
    Tagged {
        /// Whether the segment is the last one of its message.
        last: bool,
        /// The operation of the message.
        opcode: TaggedOpcode,
        /// The meaning of the reserved bits between two peers of this project. It is
        /// [`Placement::Unsaid`] towards any other peer, and the receiver must ignore it if the
        /// sender is another peer.
        placement: Placement,
        /// The STag of the buffer.
        stag: u32,
        /// The tagged offset of this segment's first octet.
        to: u64,
    },
    /// The header of an untagged segment. Its data are for the next buffer of one of the receiver's
    /// queues.
    Untagged {
        /// Whether the segment is the last one of its message.
        last: bool,
        /// The operation of the message.
        opcode: UntaggedOpcode,
        /// The STag to invalidate, if the [`opcode`](UntaggedOpcode::invalidates) invalidates one.
        /// If it does not, this field is zero and is not sent.
        invalidate: u32,
        /// The queue number. The parser accepts any number: compare it with
        /// [`UntaggedOpcode::queue`].
        qn: u32,
        /// The message sequence number. It is 1 for the first message in a queue and direction, and
        /// wraps from 2^32-1 to 0.
        msn: u32,
        /// The message offset of this segment's first octet.
        mo: u32,
    },
}

impl Header {
    /// The size of this header in octets.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged { .. } => TAGGED_SIZE,
            Self::Untagged { .. } => UNTAGGED_SIZE,
        }
    }

    /// Whether the segment is the last one of its message.
    #[inline]
    pub const fn last(&self) -> bool {
        match *self {
            Self::Tagged { last, .. } | Self::Untagged { last, .. } => last,
        }
    }

    /// Reads the header at the start of a ULPDU and returns it with its size. Returns `None` if the
    /// header is incomplete. An invalid control field is an error as soon as its two octets have
    /// arrived.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, HeaderError> {
        let &[ddp_control, control, ..] = bytes else { return Ok(None) };
        let tagged = ddp::is_tagged(ddp_control);
        let last = ddp_control & ddp::LAST != 0;

        if ddp_control & ddp::VERSION_MASK != ddp::VERSION {
            let version = ddp_control & ddp::VERSION_MASK;
            return Err(HeaderError::DdpVersion { tagged, version });
        }
        if control & VERSION_MASK != VERSION {
            return Err(HeaderError::RdmapVersion { version: control >> 6 });
        }
        let code = control & OPCODE_MASK;

        if tagged {
            let opcode =
                TaggedOpcode::from_code(code).ok_or(HeaderError::Opcode { tagged, code })?;
            let Some(h) = bytes.first_chunk::<TAGGED_SIZE>() else { return Ok(None) };
            let placement = Placement::from_bits(control);
            let (stag, to) = (be32(h, 2), be64(h, 6));
            let header = Self::Tagged { last, opcode, placement, stag, to };
            Ok(Some((header, TAGGED_SIZE)))
        } else {
            let opcode =
                UntaggedOpcode::from_code(code).ok_or(HeaderError::Opcode { tagged, code })?;
            let Some(h) = bytes.first_chunk::<UNTAGGED_SIZE>() else { return Ok(None) };
            let invalidate = if opcode.invalidates() { be32(h, 2) } else { 0 };
            let (qn, msn, mo) = (be32(h, 6), be32(h, 10), be32(h, 14));
            Ok(Some((Self::Untagged { last, opcode, invalidate, qn, msn, mo }, UNTAGGED_SIZE)))
        }
    }

    /// The number of payload octets in a ULPDU of this length that starts with this header.
    #[inline]
    pub const fn payload_len(&self, ulpdu_len: usize) -> Result<usize, HeaderError> {
        match ulpdu_len.checked_sub(self.len()) {
            Some(len) => Ok(len),
            None => Err(HeaderError::TooShort { ulpdu_len }),
        }
    }

    /// Writes the header at the start of `buf` and returns its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`len`](Self::len).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        match *self {
            Self::Tagged { last, opcode, placement, stag, to } => {
                let buf = &mut buf[..TAGGED_SIZE];
                buf[0] = ddp::TAGGED | ddp::VERSION | if last { ddp::LAST } else { 0 };
                buf[1] = VERSION | placement as u8 | opcode as u8;
                buf[2..6].copy_from_slice(&stag.to_be_bytes());
                buf[6..14].copy_from_slice(&to.to_be_bytes());
                TAGGED_SIZE
            }
            Self::Untagged { last, opcode, invalidate, qn, msn, mo } => {
                let invalidate = if opcode.invalidates() { invalidate } else { 0 };
                let buf = &mut buf[..UNTAGGED_SIZE];
                buf[0] = ddp::VERSION | if last { ddp::LAST } else { 0 };
                buf[1] = VERSION | opcode as u8;
                buf[2..6].copy_from_slice(&invalidate.to_be_bytes());
                buf[6..10].copy_from_slice(&qn.to_be_bytes());
                buf[10..14].copy_from_slice(&msn.to_be_bytes());
                buf[14..18].copy_from_slice(&mo.to_be_bytes());
                UNTAGGED_SIZE
            }
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tagged { opcode, placement, stag, to, .. } => {
                write!(f, "{opcode} stag={stag:#010x} to={to:#x}")?;
                f.write_str(match placement {
                    Placement::Unsaid => "",
                    Placement::Wanted => " report-wanted",
                    Placement::Reported => " report",
                })?;
            }
            Self::Untagged { opcode, invalidate, qn, msn, mo, .. } => {
                write!(f, "{opcode} qn={qn} msn={msn} mo={mo}")?;
                if opcode.invalidates() {
                    write!(f, " invalidate={invalidate:#010x}")?;
                }
            }
        }
        f.write_str(if self.last() { " last" } else { "" })
    }
}

/// The reason for which the start of a ULPDU is not a valid header. Each error is fatal for the
/// stream. [`cause`](Self::cause) returns the cause to report to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The DDP version is not 1.
    #[error("DDP version {version}; only 1 is known")]
    DdpVersion {
        /// Whether the segment is tagged.
        tagged: bool,
        /// The received version.
        version: u8,
    },
    /// The RDMAP version is not 1.
    #[error("RDMAP version {version}; only 1 is known")]
    RdmapVersion {
        /// The received version.
        version: u8,
    },
    /// The opcode does not exist, or does not exist for this kind of segment.
    #[error(
        "unexpected opcode {code:#x} in {} segment",
        if *tagged { "a tagged" } else { "an untagged" }
    )]
    Opcode {
        /// Whether the segment is tagged.
        tagged: bool,
        /// The received opcode, 0 to 15.
        code: u8,
    },
    /// The ULPDU ends before its header does.
    #[error("ULPDU of {ulpdu_len} octets is shorter than its header")]
    TooShort {
        /// The length of the ULPDU in octets.
        ulpdu_len: usize,
    },
}

impl HeaderError {
    /// The cause to report in the TERMINATE.
    pub const fn cause(&self) -> Cause {
        match self {
            Self::DdpVersion { tagged: true, .. } => Cause::TAGGED_VERSION,
            Self::DdpVersion { tagged: false, .. } => Cause::UNTAGGED_VERSION,
            Self::RdmapVersion { .. } => Cause::RDMAP_VERSION,
            Self::Opcode { .. } => Cause::UNEXPECTED_OPCODE,
            Self::TooShort { .. } => Cause::MPA_LENGTH,
        }
    }
}

/// What the two reserved bits of an RDMA WRITE say between two peers of this project. The standard
/// says that a sender sets them to zero and that a receiver ignores them (RFC 5040, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Placement {
    /// Nothing: both bits are zero, or one.
    #[default]
    Unsaid = 0,
    /// In the last segment of a WRITE: the sender wants a report when the message is placed.
    Wanted = 0x10,
    /// The segment is a report and has no payload. Its tagged offset is the number of placed
    /// messages, since the start of the stream, for which the receiver of the report wanted one.
    Reported = 0x20,
}

impl Placement {
    const MASK: u8 = 0x30;

    #[inline]
    const fn from_bits(control: u8) -> Self {
        match control & Self::MASK {
            0x10 => Self::Wanted,
            0x20 => Self::Reported,
            _ => Self::Unsaid,
        }
    }
}

/// Operations of tagged segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaggedOpcode {
    /// An RDMA WRITE.
    Write = 0x0,
    /// An RDMA READ response.
    ReadResponse = 0x2,
}

impl TaggedOpcode {
    /// All opcodes.
    pub const ALL: [Self; 2] = [Self::Write, Self::ReadResponse];

    #[inline]
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0x0 => Some(Self::Write),
            0x2 => Some(Self::ReadResponse),
            _ => None,
        }
    }
}

impl fmt::Display for TaggedOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "WRITE",
            Self::ReadResponse => "READ response",
        })
    }
}

/// The operations of untagged segments. The parser also accepts the operations of RFC 7306. The
/// engine decides whether a stream accepts them. If not, it reports [`Cause::UNEXPECTED_OPCODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UntaggedOpcode {
    /// An RDMA READ request. A [`ReadRequest`] follows.
    ReadRequest = 0x1,
    /// A SEND.
    Send = 0x3,
    /// A SEND with invalidate.
    SendInvalidate = 0x4,
    /// A SEND with solicited event.
    SendSolicited = 0x5,
    /// A SEND with solicited event and invalidate.
    SendSolicitedInvalidate = 0x6,
    /// A TERMINATE. A [`Terminate`](super::Terminate) header follows.
    Terminate = 0x7,
    /// Immediate data (RFC 7306). An [`Immediate`](super::Immediate) follows.
    Immediate = 0x8,
    /// Immediate data with solicited event (RFC 7306). An [`Immediate`](super::Immediate) follows.
    ImmediateSolicited = 0x9,
    /// An atomic request (RFC 7306). An [`AtomicRequest`](super::AtomicRequest) follows.
    AtomicRequest = 0xA,
    /// An atomic response (RFC 7306). An [`AtomicResponse`](super::AtomicResponse) follows.
    AtomicResponse = 0xB,
}

impl UntaggedOpcode {
    /// All opcodes.
    pub const ALL: [Self; 10] = [
        Self::ReadRequest,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The SEND opcode with or without a solicited event, and with or without an STag to
    /// invalidate.
    #[inline]
    pub const fn send(solicited: bool, invalidate: bool) -> Self {
        match (solicited, invalidate) {
            (false, false) => Self::Send,
            (false, true) => Self::SendInvalidate,
            (true, false) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Whether the opcode is one of the four SENDs.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendInvalidate | Self::SendSolicited | Self::SendSolicitedInvalidate
        )
    }

    /// The immediate data opcode with or without a solicited event.
    #[inline]
    pub const fn immediate(solicited: bool) -> Self {
        if solicited { Self::ImmediateSolicited } else { Self::Immediate }
    }

    /// Whether the segment carries an STag to invalidate.
    #[inline]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Whether the segment requests a solicited event.
    #[inline]
    pub const fn solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited
        )
    }

    /// The queue of this operation.
    #[inline]
    pub const fn queue(self) -> Queue {
        match self {
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate => Queue::Send,
            Self::Immediate | Self::ImmediateSolicited => Queue::Send,
            Self::ReadRequest | Self::AtomicRequest => Queue::Request,
            Self::Terminate => Queue::Terminate,
            Self::AtomicResponse => Queue::AtomicResponse,
        }
    }

    #[inline]
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x1 => Self::ReadRequest,
            0x3 => Self::Send,
            0x4 => Self::SendInvalidate,
            0x5 => Self::SendSolicited,
            0x6 => Self::SendSolicitedInvalidate,
            0x7 => Self::Terminate,
            0x8 => Self::Immediate,
            0x9 => Self::ImmediateSolicited,
            0xA => Self::AtomicRequest,
            0xB => Self::AtomicResponse,
            _ => return None,
        })
    }
}

impl fmt::Display for UntaggedOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadRequest => "READ request",
            Self::Send => "SEND",
            Self::SendInvalidate => "SEND invalidate",
            Self::SendSolicited => "SEND solicited",
            Self::SendSolicitedInvalidate => "SEND solicited invalidate",
            Self::Terminate => "TERMINATE",
            Self::Immediate => "IMMEDIATE",
            Self::ImmediateSolicited => "IMMEDIATE solicited",
            Self::AtomicRequest => "ATOMIC request",
            Self::AtomicResponse => "ATOMIC response",
        })
    }
}

/// The payload of an RDMA READ request (RFC 5040, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The STag of the requester's buffer, which the response names.
    pub sink_stag: u32,
    /// The tagged offset in the requester's buffer (the sink).
    pub sink_to: u64,
    /// The number of octets to read.
    pub len: u32,
    /// The STag of the responder's buffer.
    pub source_stag: u32,
    /// The tagged offset in the responder's buffer (the source).
    pub source_to: u64,
}

impl ReadRequest {
    /// The size on the wire in octets.
    pub const SIZE: usize = 28;

    /// Reads a request at the start of `bytes`. Returns `None` if there are fewer than
    /// [`SIZE`](Self::SIZE) octets.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.first_chunk::<{ Self::SIZE }>()?;
        Some(Self {
            sink_stag: be32(b, 0),
            sink_to: be64(b, 4),
            len: be32(b, 12),
            source_stag: be32(b, 16),
            source_to: be64(b, 20),
        })
    }

    /// Writes the request at the start of `buf` and returns its size.
    ///
    /// # Panics
    /// If `buf` is shorter than [`SIZE`](Self::SIZE).
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let buf = &mut buf[..Self::SIZE];
        buf[0..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        buf[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        buf[12..16].copy_from_slice(&self.len.to_be_bytes());
        buf[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        buf[20..28].copy_from_slice(&self.source_to.to_be_bytes());
        Self::SIZE
    }
}

impl fmt::Display for ReadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sink_stag, sink_to, len, source_stag, source_to } = self;
        write!(
            f,
            "len={len} source={source_stag:#010x}+{source_to:#x} \
             sink={sink_stag:#010x}+{sink_to:#x}"
        )
    }
}

#[cfg(test)]
mod tests;
