//! Opcodes of the BTH: the operation, the packet's position in its message, and the headers that
//! follow (IBA, section 9.2.1, table 35; for the CNP, annex A17.9.3).

use std::fmt;

use super::aeth::Aeth;
use super::atomic::{AtomicAckEth, AtomicEth};
use super::bth::Bth;
use super::deth::Deth;
use super::reth::Reth;

/// The kind of packet. Known transports: reliable connection (RC), unreliable connection (UC),
/// unreliable datagram (UD), and the congestion notification of RoCEv2. No engine of this project
/// sends or accepts packets of UC; they are decoded for captures and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Opcode {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0A,
    WriteOnlyImmediate = 0x0B,
    ReadRequest = 0x0C,
    ReadResponseFirst = 0x0D,
    ReadResponseMiddle = 0x0E,
    ReadResponseLast = 0x0F,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    UcSendFirst = 0x20,
    UcSendMiddle = 0x21,
    UcSendLast = 0x22,
    UcSendLastImmediate = 0x23,
    UcSendOnly = 0x24,
    UcSendOnlyImmediate = 0x25,
    UcWriteFirst = 0x26,
    UcWriteMiddle = 0x27,
    UcWriteLast = 0x28,
    UcWriteLastImmediate = 0x29,
    UcWriteOnly = 0x2A,
    UcWriteOnlyImmediate = 0x2B,
    DatagramSendOnly = 0x64,
    DatagramSendOnlyImmediate = 0x65,
    CongestionNotification = 0x81,
}

/// The bits of an opcode that name the transport.
const TRANSPORT_MASK: u8 = 0xE0;
/// The transport bits of an unreliable connection. The other bits are those of the opcode of a
/// reliable connection with the same operation and position.
const UC: u8 = 0x20;

/// The operation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Operation {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    DatagramSend,
    CongestionNotification,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first packet of several.
    First,
    /// A packet between the first and the last one.
    Middle,
    /// The last packet of several.
    Last,
    /// The only packet of the message.
    Only,
}

impl Position {
    /// The position of a packet, given whether it starts its message and whether it ends it.
    #[inline]
    pub const fn new(starts: bool, ends: bool) -> Self {
        match (starts, ends) {
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
            (true, true) => Self::Only,
        }
    }

    /// Whether the packet starts its message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether the packet ends its message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The data that a SEND carries besides its payload, in its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendKind {
    /// No data besides the payload.
    Plain,
    /// Immediate data.
    Immediate,
    /// An R_Key to invalidate.
    Invalidate,
}

/// The extended transport headers that follow the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtensionKind {
    /// No header.
    Nothing,
    /// The header ImmDt.
    Immediate,
    /// The header IETH.
    Invalidate,
    /// The header RETH.
    Reth,
    /// The headers RETH and ImmDt.
    RethImmediate,
    /// The header AETH.
    Aeth,
    /// The headers AETH and AtomicAckETH.
    AtomicAck,
    /// The header AtomicETH.
    Atomic,
    /// The header DETH.
    Deth,
    /// The headers DETH and ImmDt.
    DethImmediate,
    /// The 16 reserved octets of a CNP.
    Reserved,
}

impl ExtensionKind {
    /// The size of the headers in octets.
    #[inline]
    pub const fn len(self) -> usize {
        /// The size of ImmDt and IETH, which are a single number.
        const WORD: usize = 4;
        match self {
            Self::Nothing => 0,
            Self::Immediate | Self::Invalidate => WORD,
            Self::Reth => Reth::SIZE,
            Self::RethImmediate => Reth::SIZE + WORD,
            Self::Aeth => Aeth::SIZE,
            Self::AtomicAck => Aeth::SIZE + AtomicAckEth::SIZE,
            Self::Atomic => AtomicEth::SIZE,
            Self::Deth => Deth::SIZE,
            Self::DethImmediate => Deth::SIZE + WORD,
            Self::Reserved => 16,
        }
    }

    /// Whether there are no headers after the BTH.
    #[inline]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl Opcode {
    /// All opcodes.
    pub const ALL: [Self; 38] = [
        Self::SendFirst,
        Self::SendMiddle,
        Self::SendLast,
        Self::SendLastImmediate,
        Self::SendOnly,
        Self::SendOnlyImmediate,
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImmediate,
        Self::WriteOnly,
        Self::WriteOnlyImmediate,
        Self::ReadRequest,
        Self::ReadResponseFirst,
        Self::ReadResponseMiddle,
        Self::ReadResponseLast,
        Self::ReadResponseOnly,
        Self::Acknowledge,
        Self::AtomicAcknowledge,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SendLastInvalidate,
        Self::SendOnlyInvalidate,
        Self::UcSendFirst,
        Self::UcSendMiddle,
        Self::UcSendLast,
        Self::UcSendLastImmediate,
        Self::UcSendOnly,
        Self::UcSendOnlyImmediate,
        Self::UcWriteFirst,
        Self::UcWriteMiddle,
        Self::UcWriteLast,
        Self::UcWriteLastImmediate,
        Self::UcWriteOnly,
        Self::UcWriteOnlyImmediate,
        Self::DatagramSendOnly,
        Self::DatagramSendOnlyImmediate,
        Self::CongestionNotification,
    ];

    /// The SEND opcode for a position in the message.
    #[inline]
    pub const fn send(position: Position, kind: SendKind) -> Self {
        match (position, kind) {
            (Position::First, _) => Self::SendFirst,
            (Position::Middle, _) => Self::SendMiddle,
            (Position::Last, SendKind::Plain) => Self::SendLast,
            (Position::Last, SendKind::Immediate) => Self::SendLastImmediate,
            (Position::Last, SendKind::Invalidate) => Self::SendLastInvalidate,
            (Position::Only, SendKind::Plain) => Self::SendOnly,
            (Position::Only, SendKind::Immediate) => Self::SendOnlyImmediate,
            (Position::Only, SendKind::Invalidate) => Self::SendOnlyInvalidate,
        }
    }

    /// The WRITE opcode for a position in the message, with or without immediate data.
    #[inline]
    pub const fn write(position: Position, immediate: bool) -> Self {
        match (position, immediate) {
            (Position::First, _) => Self::WriteFirst,
            (Position::Middle, _) => Self::WriteMiddle,
            (Position::Last, false) => Self::WriteLast,
            (Position::Last, true) => Self::WriteLastImmediate,
            (Position::Only, false) => Self::WriteOnly,
            (Position::Only, true) => Self::WriteOnlyImmediate,
        }
    }

    /// The READ response opcode for a position in the message.
    #[inline]
    pub const fn read_response(position: Position) -> Self {
        match position {
            Position::First => Self::ReadResponseFirst,
            Position::Middle => Self::ReadResponseMiddle,
            Position::Last => Self::ReadResponseLast,
            Position::Only => Self::ReadResponseOnly,
        }
    }

    /// The opcode for a code, if this crate knows it.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        OPCODE_BY_CODE[code as usize]
    }

    /// The octet of the opcode on the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operation of the packet.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.layout().0
    }

    /// The position of the packet in its message.
    #[inline]
    pub const fn position(self) -> Position {
        self.layout().1
    }

    /// The kind of the headers after the BTH.
    #[inline]
    pub const fn extension_kind(self) -> ExtensionKind {
        self.layout().2
    }

    /// The number of octets of the BTH and the headers after it. This is the offset of the payload.
    #[inline]
    pub const fn header_len(self) -> usize {
        Bth::SIZE + self.extension_kind().len()
    }

    /// Whether a payload may follow the headers.
    #[inline]
    pub const fn has_payload(self) -> bool {
        matches!(
            self.operation(),
            Operation::Send | Operation::Write | Operation::ReadResponse | Operation::DatagramSend
        )
    }

    /// Whether the requester sends the packet to the responder. This holds for all packets of a
    /// reliable connection except responses and acknowledgements. Packets of UC, datagrams and
    /// congestion notifications have no response. They are neither requests nor responses.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_uc()
            && matches!(
                self.operation(),
                Operation::Send
                    | Operation::Write
                    | Operation::ReadRequest
                    | Operation::CompareSwap
                    | Operation::FetchAdd
            )
    }

    /// Whether the packet belongs to an unreliable connection.
    #[inline]
    pub const fn is_uc(self) -> bool {
        self.code() & TRANSPORT_MASK == UC
    }

    /// Whether the responder sends the packet to the requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// The properties of each opcode.
    #[inline]
    const fn layout(self) -> (Operation, Position, ExtensionKind) {
        use ExtensionKind as C;
        use Operation as O;
        use Position::{First, Last, Middle, Only};
        match self {
            Self::SendFirst | Self::UcSendFirst => (O::Send, First, C::Nothing),
            Self::SendMiddle | Self::UcSendMiddle => (O::Send, Middle, C::Nothing),
            Self::SendLast | Self::UcSendLast => (O::Send, Last, C::Nothing),
            Self::SendLastImmediate | Self::UcSendLastImmediate => (O::Send, Last, C::Immediate),
            Self::SendOnly | Self::UcSendOnly => (O::Send, Only, C::Nothing),
            Self::SendOnlyImmediate | Self::UcSendOnlyImmediate => (O::Send, Only, C::Immediate),
            Self::WriteFirst | Self::UcWriteFirst => (O::Write, First, C::Reth),
            Self::WriteMiddle | Self::UcWriteMiddle => (O::Write, Middle, C::Nothing),
            Self::WriteLast | Self::UcWriteLast => (O::Write, Last, C::Nothing),
            Self::WriteLastImmediate | Self::UcWriteLastImmediate => (O::Write, Last, C::Immediate),
            Self::WriteOnly | Self::UcWriteOnly => (O::Write, Only, C::Reth),
            Self::WriteOnlyImmediate | Self::UcWriteOnlyImmediate => {
                (O::Write, Only, C::RethImmediate)
            }
            Self::ReadRequest => (O::ReadRequest, Only, C::Reth),
            Self::ReadResponseFirst => (O::ReadResponse, First, C::Aeth),
            Self::ReadResponseMiddle => (O::ReadResponse, Middle, C::Nothing),
            Self::ReadResponseLast => (O::ReadResponse, Last, C::Aeth),
            Self::ReadResponseOnly => (O::ReadResponse, Only, C::Aeth),
            Self::Acknowledge => (O::Acknowledge, Only, C::Aeth),
            Self::AtomicAcknowledge => (O::AtomicAcknowledge, Only, C::AtomicAck),
            Self::CompareSwap => (O::CompareSwap, Only, C::Atomic),
            Self::FetchAdd => (O::FetchAdd, Only, C::Atomic),
            Self::SendLastInvalidate => (O::Send, Last, C::Invalidate),
            Self::SendOnlyInvalidate => (O::Send, Only, C::Invalidate),
            Self::DatagramSendOnly => (O::DatagramSend, Only, C::Deth),
            Self::DatagramSendOnlyImmediate => (O::DatagramSend, Only, C::DethImmediate),
            Self::CongestionNotification => (O::CongestionNotification, Only, C::Reserved),
        }
    }
}

static OPCODE_BY_CODE: [Option<Opcode>; 256] = {
    let mut table = [None; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        table[Opcode::ALL[i] as usize] = Some(Opcode::ALL[i]);
        i += 1;
    }
    table
};

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_uc() {
            f.write_str("UC ")?;
        }
        self.operation().fmt(f)?;
        if matches!(self.operation(), Operation::Send | Operation::Write | Operation::ReadResponse)
        {
            write!(f, " {}", self.position())?;
        }
        f.write_str(match self.extension_kind() {
            ExtensionKind::Immediate
            | ExtensionKind::RethImmediate
            | ExtensionKind::DethImmediate => " immediate",
            ExtensionKind::Invalidate => " invalidate",
            _ => "",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "WRITE",
            Self::ReadRequest => "READ request",
            Self::ReadResponse => "READ response",
            Self::Acknowledge => "ACK",
            Self::AtomicAcknowledge => "ATOMIC ACK",
            Self::CompareSwap => "COMPARE SWAP",
            Self::FetchAdd => "FETCH ADD",
            Self::DatagramSend => "UD SEND",
            Self::CongestionNotification => "CNP",
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Middle => "middle",
            Self::Last => "last",
            Self::Only => "only",
        })
    }
}
