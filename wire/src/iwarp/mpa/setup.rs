//! Connection setup: the request and reply frames (RFC 5044, section 7.1; RFC 6581, sections 6 and
//! 9).

use std::fmt;

use crate::iwarp::terminate::Cause;

/// The size of a setup frame without its private data, in octets.
pub const SETUP_SIZE: usize = 20;
/// The maximum private data of a setup frame in octets, including enhanced data (RFC 5044, section
/// 7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// The maximum size of a setup frame in octets.
pub const MAX_SETUP: usize = SETUP_SIZE + MAX_PRIVATE_DATA;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;
const GSO: u8 = 0x08;
/// The bit that offers the operations of RFC 7306. It is not in the standard. Request and reply use
/// different bits, because a responder may reflect bits that it does not know, as siw does. The bit
/// of the request is only a hint, because another implementation may use it for something else.
const EXTENDED_REQUEST: u8 = 0x01;
const EXTENDED_REPLY: u8 = 0x02;

/// A request or reply frame: the first octets in each direction.
///
/// A flag states a wish of its sender, not an agreement of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup<'a> {
    /// The kind of frame: request or reply.
    pub kind: SetupKind,
    /// The flag M: the sender wants to receive markers.
    pub markers: bool,
    /// The flag C: the sender wants CRCs. If one side wants them, both directions use them.
    pub crc: bool,
    /// The flag R: the connection is rejected. It is used only in a reply. In a request it is not
    /// sent, and is ignored.
    pub rejected: bool,
    /// A flag that is not in the standard: a siw peer accepts FPDUs larger than the MSS.
    pub gso: bool,
    /// A flag that is not in the standard: the sender supports the operations of RFC 7306. It is
    /// used only with enhanced data.
    pub extended: bool,
    /// The protocol's revision and its additional data.
    pub revision: Revision,
    /// The consumer's private data, without the enhanced data.
    pub private_data: &'a [u8],
}

/// The sender of a setup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupKind {
    /// The initiator: `MPA ID Req Frame`.
    Request,
    /// The responder: `MPA ID Rep Frame`.
    Reply,
}

/// MPA's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The revision of RFC 5044.
    One,
    /// The revision of RFC 6581, with enhanced data if the S flag is set.
    Two(Option<Enhanced>),
}

/// Negotiation of READ depths and of the peer-to-peer model (RFC 6581, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// The flag A: peer-to-peer model. The initiator sends a "ready to receive" frame (RTR) first.
    pub peer_to_peer: bool,
    /// The flag B: a zero-length SEND may be the RTR.
    pub rtr_send: bool,
    /// The flag C: a zero-length RDMA WRITE may be the RTR.
    pub rtr_write: bool,
    /// The flag D: a zero-length RDMA READ may be the RTR.
    pub rtr_read: bool,
    /// The number of inbound READs that the sender can hold.
    pub ird: ReadDepth,
    /// The number of outbound READs that the sender wants to have outstanding.
    pub ord: ReadDepth,
}

impl Enhanced {
    /// The size on the wire in octets.
    pub const SIZE: usize = 4;

    /// Enhanced data for the client-server model with these depths.
    pub const fn new(ird: ReadDepth, ord: ReadDepth) -> Self {
        Self { peer_to_peer: false, rtr_send: false, rtr_write: false, rtr_read: false, ird, ord }
    }

    fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let word = u32::from_be_bytes(bytes);
        let bit = |n: u32| word & (1 << n) != 0;
        Self {
            peer_to_peer: bit(31),
            rtr_send: bit(30),
            rtr_write: bit(15),
            rtr_read: bit(14),
            ird: ReadDepth::from_wire((word >> 16) as u16),
            ord: ReadDepth::from_wire(word as u16),
        }
    }

    fn emit(self) -> [u8; Self::SIZE] {
        let bit = |flag: bool, n: u32| u32::from(flag) << n;
        let flags = bit(self.peer_to_peer, 31)
            | bit(self.rtr_send, 30)
            | bit(self.rtr_write, 15)
            | bit(self.rtr_read, 14);
        (flags | u32::from(self.ird.0) << 16 | u32::from(self.ord.0)).to_be_bytes()
    }
}

/// A number of concurrent RDMA READs, 14 bits on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadDepth(u16);

impl ReadDepth {
    /// The largest depth that can be expressed.
    pub const MAX: Self = Self(0x3FFE);
    /// The value "do not negotiate": the sides agree on the depth by other means (RFC 6581, section
    /// 9.1).
    pub const UNNEGOTIATED: Self = Self(0x3FFF);

    /// A depth of this many READs, limited to [`MAX`](Self::MAX).
    pub const fn new(reads: u32) -> Self {
        if reads > Self::MAX.0 as u32 { Self::MAX } else { Self(reads as u16) }
    }

    /// The number of READs. `None` if it is not negotiated.
    pub const fn reads(self) -> Option<u16> {
        if self.0 == Self::UNNEGOTIATED.0 { None } else { Some(self.0) }
    }

    const fn from_wire(word: u16) -> Self {
        Self(word & 0x3FFF)
    }
}

/// Progress of reading a setup frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupProgress<'a> {
    /// The frame is incomplete. It has at least this many octets in total. Read up to that number
    /// and no more, because FPDUs follow.
    Incomplete(usize),
    /// The frame is complete. The second field is its size in octets.
    Frame(Setup<'a>, usize),
}

/// The reason for which octets are not a setup frame, or for which a setup frame cannot be sent.
/// The connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The octets do not start with the key of the expected frame. The peer does not speak MPA, or
    /// has the same role as this side.
    #[error("not an MPA {expected} frame")]
    Key {
        /// The expected frame.
        expected: SetupKind,
    },
    /// The revision is neither 1 nor 2.
    #[error("MPA revision {revision} is not supported; 1 and 2 are")]
    Revision {
        /// The received revision.
        revision: u8,
    },
    /// The private data, including the enhanced data, are longer than [`MAX_PRIVATE_DATA`].
    #[error("{len} octets of MPA private data; at most {MAX_PRIVATE_DATA}")]
    PrivateData {
        /// The number of octets of private data.
        len: usize,
    },
    /// The S flag is set but the four octets of enhanced data are missing.
    #[error("enhanced MPA setup with {len} octets of private data; at least {}", Enhanced::SIZE)]
    Enhanced {
        /// The number of octets of private data.
        len: usize,
    },
}

impl SetupError {
    /// The cause to report to a peer that can receive a TERMINATE.
    pub const fn cause(&self) -> Cause {
        Cause::MPA_SETUP
    }
}

impl<'a> Setup<'a> {
    /// A frame of revision 2 with all flags clear.
    pub const fn new(kind: SetupKind, enhanced: Enhanced, private_data: &'a [u8]) -> Self {
        let revision = Revision::Two(Some(enhanced));
        Self {
            kind,
            markers: false,
            crc: false,
            rejected: false,
            gso: false,
            extended: false,
            revision,
            private_data,
        }
    }

    /// The enhanced data, if there is any.
    pub const fn enhanced(&self) -> Option<Enhanced> {
        match self.revision {
            Revision::Two(enhanced) => enhanced,
            Revision::One => None,
        }
    }

    /// Reads a frame of the expected kind from the first octets of a stream. `bytes` may end
    /// anywhere. An error that no further octets can correct is returned at once, so that a
    /// stranger's bytes do not hold a connection until a timeout.
    pub fn parse(expected: SetupKind, bytes: &'a [u8]) -> Result<SetupProgress<'a>, SetupError> {
        let key = expected.key();
        let seen = bytes.len().min(key.len());
        if bytes[..seen] != key[..seen] {
            return Err(SetupError::Key { expected });
        }
        let Some(&[flags, rev, len_hi, len_lo]) =
            bytes.get(key.len()..SETUP_SIZE).and_then(<[u8]>::first_chunk)
        else {
            return Ok(SetupProgress::Incomplete(SETUP_SIZE));
        };
        if !matches!(rev, 1 | 2) {
            return Err(SetupError::Revision { revision: rev });
        }
        let len = usize::from(u16::from_be_bytes([len_hi, len_lo]));
        if len > MAX_PRIVATE_DATA {
            return Err(SetupError::PrivateData { len });
        }
        // In revision 1 (RFC 5044) the S flag is a reserved bit and is ignored.
        let has_enhanced = rev == 2 && flags & ENHANCED != 0;
        if has_enhanced && len < Enhanced::SIZE {
            return Err(SetupError::Enhanced { len });
        }

        let end = SETUP_SIZE + len;
        let Some(data) = bytes.get(SETUP_SIZE..end) else {
            return Ok(SetupProgress::Incomplete(end));
        };
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((first, rest)) if has_enhanced => (Some(Enhanced::parse(*first)), rest),
            _ => (None, data),
        };
        let frame = Self {
            kind: expected,
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            rejected: expected == SetupKind::Reply && flags & REJECTED != 0,
            gso: flags & GSO != 0,
            extended: has_enhanced && flags & expected.extended() != 0,
            revision: if rev == 1 { Revision::One } else { Revision::Two(enhanced) },
            private_data,
        };
        Ok(SetupProgress::Frame(frame, end))
    }

    /// Appends the frame to `buf`. Fails without changing `buf` if the private data are too long.
    pub fn emit(&self, buf: &mut Vec<u8>) -> Result<(), SetupError> {
        let enhanced = self.enhanced();
        let len = self.private_data.len() + if enhanced.is_some() { Enhanced::SIZE } else { 0 };
        if len > MAX_PRIVATE_DATA {
            return Err(SetupError::PrivateData { len });
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.markers, MARKERS)
            | flag(self.crc, CRC)
            | flag(self.rejected && self.kind == SetupKind::Reply, REJECTED)
            | flag(enhanced.is_some(), ENHANCED)
            | flag(self.gso, GSO)
            | flag(self.extended && enhanced.is_some(), self.kind.extended());
        let revision = match self.revision {
            Revision::One => 1,
            Revision::Two(_) => 2,
        };

        buf.reserve(SETUP_SIZE + len);
        buf.extend_from_slice(self.kind.key());
        buf.extend_from_slice(&[flags, revision]);
        buf.extend_from_slice(&(len as u16).to_be_bytes());
        if let Some(enhanced) = enhanced {
            buf.extend_from_slice(&enhanced.emit());
        }
        buf.extend_from_slice(self.private_data);
        Ok(())
    }
}

impl SetupKind {
    const fn extended(self) -> u8 {
        match self {
            Self::Request => EXTENDED_REQUEST,
            Self::Reply => EXTENDED_REPLY,
        }
    }

    const fn key(self) -> &'static [u8; 16] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

impl fmt::Display for Setup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPA {} {}", self.kind, self.revision)?;
        let flags = [
            ("markers", self.markers),
            ("crc", self.crc),
            ("gso", self.gso),
            ("extended", self.extended),
            ("REJECTED", self.rejected),
        ];
        for (name, _) in flags.iter().filter(|(_, set)| *set) {
            write!(f, " {name}")?;
        }
        write!(f, " private={}", self.private_data.len())
    }
}

impl fmt::Display for SetupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Reply => "reply",
        })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("rev=1"),
            Self::Two(None) => f.write_str("rev=2"),
            Self::Two(Some(enhanced)) => write!(f, "rev=2 {enhanced}"),
        }
    }
}

impl fmt::Display for Enhanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ird={} ord={}", self.ird, self.ord)?;
        let flags = [
            ("peer-to-peer", self.peer_to_peer),
            ("rtr-send", self.rtr_send),
            ("rtr-write", self.rtr_write),
            ("rtr-read", self.rtr_read),
        ];
        flags.iter().filter(|(_, set)| *set).try_for_each(|(name, _)| write!(f, " {name}"))
    }
}

impl fmt::Display for ReadDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reads() {
            Some(reads) => reads.fmt(f),
            None => f.write_str("unnegotiated"),
        }
    }
}

#[cfg(test)]
mod tests;
