//! AETH: the responder's answer to a request (IBA, section 9.3.5.1): `syndrome 1 | MSN 3`.

use std::fmt;

use super::rnr::RnrTimer;
use crate::bytes::{be24, octet_and_24};

/// The mask of the syndrome's kind, in bits 6..5. Bit 7 is reserved and zero.
const KIND_MASK: u8 = 0xE0;
const ACK: u8 = 0x00;
const RNR: u8 = 0x20;
const NAK: u8 = 0x60;
const VALUE_MASK: u8 = 0x1F;

/// The ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The kind of answer, positive or negative.
    pub syndrome: Syndrome,
    /// The message sequence number: the number of requests that the responder has completed, modulo
    /// 2^24.
    pub msn: u32,
}

impl Aeth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 4;

    /// Reads a header.
    #[inline]
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        Self { syndrome: Syndrome::from_code(bytes[0]), msn: be24(bytes, 1) }
    }

    /// Returns the octets on the wire.
    #[inline]
    pub fn to_wire(self) -> [u8; Self::SIZE] {
        octet_and_24(self.syndrome.code(), self.msn)
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn={}", self.syndrome, self.msn)
    }
}

/// The answer in an [`Aeth`] (IBA, table 43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets up to this PSN have arrived.
    Ack {
        /// The credit for end-to-end flow control, a code from 0 to 31 for the number of posted
        /// receives. [`NO_CREDIT`](Self::NO_CREDIT) means that the responder does not use flow
        /// control.
        credit: u8,
    },
    /// Receiver not ready: no receive is posted. The requester repeats the request after the time
    /// that the timer gives.
    Rnr(RnrTimer),
    /// The request with this PSN failed.
    Nak(NakCode),
    /// A value reserved by the standard.
    Reserved(u8),
}

impl Syndrome {
    /// The credit code for no flow control.
    pub const NO_CREDIT: u8 = 0x1F;
    /// An acknowledgement without flow control.
    pub const ACK: Self = Self::Ack { credit: Self::NO_CREDIT };

    /// The syndrome for an octet of the wire.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        let value = code & VALUE_MASK;
        match code & KIND_MASK {
            ACK => Self::Ack { credit: value },
            RNR => Self::Rnr(RnrTimer::from_code(value)),
            NAK => match NakCode::from_code(value) {
                Some(nak) => Self::Nak(nak),
                None => Self::Reserved(code),
            },
            _ => Self::Reserved(code),
        }
    }

    /// The octet for the wire.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ack { credit } => ACK | credit & VALUE_MASK,
            Self::Rnr(timer) => RNR | timer.code(),
            Self::Nak(nak) => NAK | nak as u8,
            Self::Reserved(code) => code,
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack { credit: Self::NO_CREDIT } => f.write_str("ACK"),
            Self::Ack { credit } => write!(f, "ACK credit={credit}"),
            Self::Rnr(timer) => write!(f, "RNR NAK {timer}"),
            Self::Nak(nak) => write!(f, "NAK {nak}"),
            Self::Reserved(code) => write!(f, "reserved syndrome {code:#04x}"),
        }
    }
}

/// The reason for which a request failed (IBA, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A packet before this one is missing. The requester repeats from this PSN.
    SequenceError = 0,
    /// The opcode, the length or the order of the packet is not supported by the responder.
    InvalidRequest = 1,
    /// The key does not permit this access to this memory.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperational = 3,
    /// This code is for reliable datagrams only.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// All codes.
    pub const ALL: [Self; 5] = [
        Self::SequenceError,
        Self::InvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperational,
        Self::InvalidRdRequest,
    ];

    #[inline]
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_is_a_syndrome_and_comes_back() {
        for code in 0..=u8::MAX {
            assert_eq!(Syndrome::from_code(code).code(), code);
        }
        assert_eq!(Syndrome::ACK.code(), 0x1F);
        assert_eq!(Syndrome::from_code(0x2C), Syndrome::Rnr(RnrTimer::from_code(12)));
        for (nak, code) in NakCode::ALL.into_iter().zip(0x60..) {
            assert_eq!(Syndrome::from_code(code), Syndrome::Nak(nak));
        }
        for code in [0x40, 0x65, 0x7F, 0x80, 0x9F, 0xFF] {
            assert_eq!(Syndrome::from_code(code), Syndrome::Reserved(code));
        }
    }

    #[test]
    fn words() {
        let text = |code, msn| Aeth { syndrome: Syndrome::from_code(code), msn }.to_string();
        assert_eq!(text(0x1F, 1), "ACK msn=1");
        assert_eq!(text(0x05, 1), "ACK credit=5 msn=1");
        assert_eq!(text(0x2C, 2), "RNR NAK 640µs msn=2");
        assert_eq!(text(0x62, 3), "NAK remote access error msn=3");
        assert_eq!(text(0x45, 4), "reserved syndrome 0x45 msn=4");
    }
}
