//! The management datagram, MAD (IBA volume 1, section 13.4), which carries each message of
//! communication management.

use super::octets::Body;
use super::{Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// The size of every MAD in octets. Octets that a message does not use are zero.
pub const MAD_SIZE: usize = 256;

const HEADER_SIZE: usize = 24;
const BASE_VERSION: u8 = 1;
/// The management class of communication management.
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
/// The method Send, the only method of communication management.
const METHOD: u8 = 3;

/// A datagram of the class communication management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad<'a> {
    /// The transaction ID. The sender of a REQ, DREQ or SIDR REQ chooses it, and each reply repeats
    /// it.
    pub transaction: u64,
    /// The message.
    pub message: Message<'a>,
}

/// The messages of communication management. The attribute in the MAD header distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The type in each variant has the documentation.
pub enum Message<'a> {
    Req(Req<'a>),
    Mra(Mra<'a>),
    Rej(Rej<'a>),
    Rep(Rep<'a>),
    Rtu(Rtu<'a>),
    Dreq(Dreq<'a>),
    Drep(Drep<'a>),
    SidrReq(SidrReq<'a>),
    SidrRep(SidrRep<'a>),
}

const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

impl<'a> Mad<'a> {
    /// Reads a datagram. Ignores the status and the attribute modifier, because they have no
    /// meaning in communication management.
    pub fn parse(octets: &'a [u8]) -> Result<Self, MadError> {
        let mad: &[u8; MAD_SIZE] = octets.try_into().map_err(|_| MadError::Size(octets.len()))?;
        let (header, body) = mad.split_first_chunk::<HEADER_SIZE>().expect("a MAD is longer");
        let body: &Body = body.try_into().expect("the rest of a MAD");
        let [base_version, class, class_version, method, ..] = *header;
        if (base_version, class, class_version) != (BASE_VERSION, CLASS, CLASS_VERSION) {
            return Err(MadError::Class { base_version, class, class_version });
        }
        if method != METHOD {
            return Err(MadError::Method(method));
        }
        let message = match u16::from_be_bytes([header[16], header[17]]) {
            REQ => Message::Req(Req::parse(body)),
            MRA => Message::Mra(Mra::parse(body)?),
            REJ => Message::Rej(Rej::parse(body)?),
            REP => Message::Rep(Rep::parse(body)),
            RTU => Message::Rtu(Rtu::parse(body)),
            DREQ => Message::Dreq(Dreq::parse(body)),
            DREP => Message::Drep(Drep::parse(body)),
            SIDR_REQ => Message::SidrReq(SidrReq::parse(body)),
            SIDR_REP => Message::SidrRep(SidrRep::parse(body)),
            other => return Err(MadError::Attribute(other)),
        };
        let mut transaction = [0; 8];
        transaction.copy_from_slice(&header[8..16]);
        Ok(Mad { transaction: u64::from_be_bytes(transaction), message })
    }

    /// Returns the datagram.
    ///
    /// # Panics
    /// If private data or additional information are longer than their field, whose size is a
    /// constant of the message (`MAX_PRIVATE`, `MAX_ARI`, `MAX_INFO`).
    pub fn emit(&self) -> [u8; MAD_SIZE] {
        let mut mad = [0; MAD_SIZE];
        let (header, body) = mad.split_first_chunk_mut::<HEADER_SIZE>().expect("a MAD is longer");
        header[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD]);
        header[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        header[16..18].copy_from_slice(&self.message.attribute().to_be_bytes());
        let body: &mut Body = body.try_into().expect("the rest of a MAD");
        match &self.message {
            Message::Req(req) => req.emit(body),
            Message::Mra(mra) => mra.emit(body),
            Message::Rej(rej) => rej.emit(body),
            Message::Rep(rep) => rep.emit(body),
            Message::Rtu(rtu) => rtu.emit(body),
            Message::Dreq(dreq) => dreq.emit(body),
            Message::Drep(drep) => drep.emit(body),
            Message::SidrReq(req) => req.emit(body),
            Message::SidrRep(rep) => rep.emit(body),
        }
        mad
    }
}

impl Message<'_> {
    const fn attribute(&self) -> u16 {
        match self {
            Message::Req(_) => REQ,
            Message::Mra(_) => MRA,
            Message::Rej(_) => REJ,
            Message::Rep(_) => REP,
            Message::Rtu(_) => RTU,
            Message::Dreq(_) => DREQ,
            Message::Drep(_) => DREP,
            Message::SidrReq(_) => SIDR_REQ,
            Message::SidrRep(_) => SIDR_REP,
        }
    }
}

/// The kind of message that an MRA or a REJ answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The MRA or REJ answers a REQ.
    Req = 0,
    /// The MRA or REJ answers a REP.
    Rep = 1,
    /// The MRA or REJ answers another message, or no message.
    Other = 2,
}

impl Answered {
    /// Decodes the upper two bits of an octet.
    pub(super) fn parse(octet: u8) -> Result<Self, MadError> {
        match octet >> 6 {
            0 => Ok(Answered::Req),
            1 => Ok(Answered::Rep),
            2 => Ok(Answered::Other),
            _ => Err(MadError::Answered),
        }
    }

    pub(super) fn octet(self) -> u8 {
        (self as u8) << 6
    }
}

/// The reason why a datagram is not a message of communication management. The receiver drops the
/// datagram, because it cannot know to which connection an answer would belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MadError {
    /// The datagram does not have 256 octets.
    #[error("a MAD has 256 octets, but this one has {0}")]
    Size(usize),
    /// The datagram is of another class, or of another version of the class.
    #[error(
        "MAD of class {class:#04x}, version {class_version}, base version {base_version}: \
         not CM, 2, 1"
    )]
    Class {
        /// The version of the MAD header.
        base_version: u8,
        /// The management class.
        class: u8,
        /// The version of the class.
        class_version: u8,
    },
    /// The method is not Send.
    #[error("CM method {0:#04x} is not Send")]
    Method(u8),
    /// The message is not supported (LAP 0x19, APR 0x1a) or does not exist.
    #[error("CM attribute {0:#06x} is not a supported message")]
    Attribute(u16),
    /// The datagram is an MRA or a REJ that answers a kind of message that does not exist.
    #[error("MRA or REJ of message 3, which does not exist")]
    Answered,
}
