//! BTH: the base transport header, which starts every packet (IBA, section 9.2).
//!
//! ```text
//! opcode 1 | SE, MigReq, PadCnt 2, TVer 4 | P_Key 2
//! FECN, BECN, reserved 6 | destination QPN 3
//! AckReq, reserved 7 | PSN 3                           12 octets
//! ```

use std::fmt;

use super::opcode::Opcode;
use super::packet::ParseError;
use super::psn::Psn;
use crate::bytes::{be16, be24, octet_and_24};

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 0x30;
/// The mask of TVer, the version of the transport headers. Only version 0 is defined.
const VERSION_MASK: u8 = 0x0F;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// The octet with FECN and BECN. For the ICRC this octet counts as all ones, because switches may
/// change it.
pub(super) const CONGESTION_OCTET: usize = 4;

/// The base transport header. Reserved bits are zero when sent and ignored when received. The pad
/// count follows from the payload's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The kind of packet.
    pub opcode: Opcode,
    /// The bit SE: the responder must raise a solicited event. It is set only in the last packet of
    /// a SEND, or of a WRITE with immediate data.
    pub solicited: bool,
    /// The bit MigReq: the sender's path migration is in the state "migrated". HCAs send 1, and
    /// kernel rxe sends 0.
    pub migrated: bool,
    /// The partition key. Bit 15 means full membership.
    pub p_key: u16,
    /// The bit FECN: there was congestion on the path from the sender to the receiver.
    pub fecn: bool,
    /// The bit BECN: there was congestion on the path from the receiver to the sender.
    pub becn: bool,
    /// The destination queue pair, 24 bits.
    pub dest_qpn: u32,
    /// The bit AckReq: the responder must acknowledge this packet.
    pub ack_request: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// The size on the wire in octets.
    pub const SIZE: usize = 12;
    /// The key of the default partition with full membership.
    pub const DEFAULT_P_KEY: u16 = 0xFFFF;

    /// A header without flags, in the default partition.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: false,
            p_key: Self::DEFAULT_P_KEY,
            fecn: false,
            becn: false,
            dest_qpn,
            ack_request: false,
            psn,
        }
    }

    /// Whether two ports may communicate: they have the same partition, and at least one of them is
    /// a full member (IBA, section 10.9.3).
    #[inline]
    pub const fn same_partition(one: u16, other: u16) -> bool {
        const FULL: u16 = 0x8000;
        (one ^ other) & !FULL == 0 && (one | other) & FULL != 0
    }

    /// Reads a header and the pad count, 0 to 3.
    #[inline]
    pub(super) fn parse(bytes: &[u8; Self::SIZE]) -> Result<(Self, usize), ParseError> {
        let [code, flags, ..] = *bytes;
        let opcode = Opcode::from_code(code).ok_or(ParseError::Opcode { code })?;
        if flags & VERSION_MASK != 0 {
            return Err(ParseError::Version { version: flags & VERSION_MASK });
        }
        let bth = Self {
            opcode,
            solicited: flags & SOLICITED != 0,
            migrated: flags & MIGRATED != 0,
            p_key: be16(bytes, 2),
            fecn: bytes[CONGESTION_OCTET] & FECN != 0,
            becn: bytes[CONGESTION_OCTET] & BECN != 0,
            dest_qpn: be24(bytes, 5),
            ack_request: bytes[8] & ACK_REQUEST != 0,
            psn: Psn::new(be24(bytes, 9)),
        };
        Ok((bth, usize::from((flags & PAD_MASK) >> PAD_SHIFT)))
    }

    /// Returns the octets on the wire. `pad` is 0 to 3.
    #[inline]
    pub(super) fn to_wire(self, pad: usize) -> [u8; Self::SIZE] {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.solicited, SOLICITED)
            | flag(self.migrated, MIGRATED)
            | (pad as u8) << PAD_SHIFT;
        let congestion = flag(self.fecn, FECN) | flag(self.becn, BECN);
        let p_key = self.p_key.to_be_bytes();
        let mut bytes = [self.opcode.code(), flags, p_key[0], p_key[1], 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[CONGESTION_OCTET..8].copy_from_slice(&octet_and_24(congestion, self.dest_qpn));
        bytes[8..]
            .copy_from_slice(&octet_and_24(flag(self.ack_request, ACK_REQUEST), self.psn.value()));
        bytes
    }
}

impl fmt::Display for Bth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} qpn={:#08x} psn={}", self.opcode, self.dest_qpn, self.psn)?;
        let flags = [
            (self.solicited, " solicited"),
            (self.ack_request, " ack-request"),
            (self.fecn, " fecn"),
            (self.becn, " becn"),
        ];
        flags.into_iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))
    }
}
