//! ICRC: the checksum at the end of a packet (IBA annex A17, section A17.3.3). It covers the packet
//! from the IP header on, except for the fields that routers change. The algorithm is the CRC-32 of
//! Ethernet.
//!
//! The checksum is computed over eight octets of ones, followed by:
//!
//! ```text
//! IPv4  version, IHL | -TOS- | total length | ID | flags, fragment offset
//!       | -TTL- | protocol | -checksum- | addresses
//! IPv6  version | -traffic class, flow label- | payload length
//!       | next header | -hop limit- | addresses
//! UDP   ports | length | -checksum-
//! BTH   -octet 4-, which switches may mark, and everything else up to the ICRC
//! ```
//!
//! A field between dashes counts as all ones. The headers before the packet are processed only once
//! for each flow, because a CRC is linear. These headers affect the checksum only through the 32
//! bits of the CRC register at the packet's start, and the effects of their fields combine by
//! exclusive or. So a flow is stored as one such register. The effects of the lengths and the ID
//! come from tables, and the packet is read once.
//!
//! The same linearity recovers the ID of an IPv4 packet, which a UDP socket does not report: see
//! [`recover`](Icrc::recover).

mod linear;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use self::linear::{effect_of_octet, multiply, powers_back};
use super::bth::{Bth, CONGESTION_OCTET};

/// Computes the checksums of packets from one UDP address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icrc {
    /// The value of the CRC register at the start of the packet, for headers whose length fields
    /// are zero and, in IPv4, whose ID is zero and whose flag DF is set.
    register: u32,
    ipv4: bool,
}

/// The part of an IPv4 header that the ICRC covers and a UDP socket does not report. IPv6 has no
/// such part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification {
    /// The identification field.
    pub id: u16,
    /// The flag DF. The other flag and the fragment offset are always zero because packets are
    /// never fragmented.
    pub dont_fragment: bool,
}

impl Identification {
    /// The identification of a packet with this ID and the flag DF. All senders that forbid
    /// fragmentation set this flag.
    #[inline]
    pub const fn unfragmented(id: u16) -> Self {
        Self { id, dont_fragment: true }
    }
}

impl Icrc {
    /// The number of octets of the checksum on the wire.
    pub const SIZE: usize = 4;
    /// The size of the longest packet in octets, including the ICRC: a WRITE with immediate data at
    /// a path MTU of 4096.
    pub const MAX_DATAGRAM: usize = Bth::SIZE + 20 + 4096 + Self::SIZE;
    const MIN_DATAGRAM: usize = Bth::SIZE + Self::SIZE;

    /// Prepares to compute the checksums of packets from `source` to `destination`. Returns `None`
    /// if one address is IPv4 and the other IPv6. IPv4 addresses may be mapped into IPv6, as in
    /// IPv6 sockets.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let udp = udp_image(source.port(), destination.port());
        let (crc, ipv4) = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (header_crc(&v4_image(source, destination), udp), true)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (header_crc(&v6_image(source, destination), udp), false)
            }
            _ => return None,
        };
        Some(Self { register: !crc, ipv4 })
    }

    /// The checksum of `packet`, a whole packet without its ICRC. `ip` is ignored in IPv6.
    ///
    /// # Panics
    /// If `packet` is shorter than the 12 octets of a BTH.
    #[inline]
    pub fn compute(&self, ip: Identification, packet: &[u8]) -> u32 {
        crc32(self.start_register(ip, packet), packet)
    }

    /// Replaces the last four octets of `datagram` by the checksum. An unconnected UDP socket that
    /// forbids fragmentation sends with ID 0; segment k of a GSO send, counted from 0, has ID k.
    ///
    /// # Panics
    /// If `datagram` is shorter than a BTH and the checksum together.
    #[inline]
    pub fn seal(&self, id: u16, datagram: &mut [u8]) {
        let (packet, place) = datagram.split_last_chunk_mut().expect("room for the ICRC");
        *place = self.compute(Identification::unfragmented(id), packet).to_le_bytes();
    }

    /// Checks a datagram whose IP header is known and returns the packet without the ICRC.
    #[inline]
    pub fn verify<'a>(
        &self,
        ip: Identification,
        datagram: &'a [u8],
    ) -> Result<&'a [u8], IcrcError> {
        let (packet, difference) = self.difference(ip, datagram)?;
        if difference == 0 { Ok(packet) } else { Err(IcrcError::Mismatch) }
    }

    /// Checks a datagram with unknown ID. Returns the packet without the ICRC, and the ID.
    ///
    /// If the ID is `hint`, with DF, the function needs one pass and checks all 32 bits of the
    /// ICRC. If not, it computes the only ID, with or without DF, that makes the ICRC correct. In
    /// that case one of 2^15 damaged packets passes by chance. Peers of this project send ID 0, or
    /// the index in a GSO send. Linux's in-kernel senders number their packets consecutively. So a
    /// good hint for the first datagram of a batch is 0, and for each further datagram the previous
    /// ID plus one.
    ///
    /// IPv6 has no ID. All 32 bits are checked, and `hint` is returned.
    #[inline]
    pub fn recover<'a>(
        &self,
        hint: u16,
        datagram: &'a [u8],
    ) -> Result<(&'a [u8], Identification), IcrcError> {
        let hint = Identification::unfragmented(hint);
        let (packet, difference) = self.difference(hint, datagram)?;
        if difference == 0 {
            return Ok((packet, hint));
        }
        if !self.ipv4 {
            return Err(IcrcError::Mismatch);
        }
        let ip =
            recover_identification(hint.id, difference, packet.len()).ok_or(IcrcError::Mismatch)?;
        Ok((packet, ip))
    }

    /// Returns the packet in a datagram, and the exclusive or of the ICRC in the datagram and the
    /// correct ICRC.
    #[inline]
    fn difference<'a>(
        &self,
        ip: Identification,
        datagram: &'a [u8],
    ) -> Result<(&'a [u8], u32), IcrcError> {
        let len = datagram.len();
        if !(Self::MIN_DATAGRAM..=Self::MAX_DATAGRAM).contains(&len) || !len.is_multiple_of(4) {
            return Err(IcrcError::Length { len });
        }
        let (packet, found) = datagram.split_last_chunk().ok_or(IcrcError::Length { len })?;
        Ok((packet, self.compute(ip, packet) ^ u32::from_le_bytes(*found)))
    }

    /// The register at the start of `packet`, adjusted so that the packet's congestion octet counts
    /// as all ones.
    #[inline]
    fn start_register(&self, ip: Identification, packet: &[u8]) -> u32 {
        let udp_len = 8 + packet.len() + Self::SIZE;
        let marks = packet[..Bth::SIZE][CONGESTION_OCTET];
        let register = self.register
            ^ CONGESTION_EFFECT[usize::from(!marks)]
            ^ effect_of(&UDP_LENGTH, udp_len as u16);
        if !self.ipv4 {
            return register ^ effect_of(&V6_LENGTH, udp_len as u16);
        }
        let flags = if ip.dont_fragment { 0 } else { V4_DONT_FRAGMENT };
        register ^ effect_of(&V4_LENGTH, (20 + udp_len) as u16) ^ effect_of(&V4_ID, ip.id) ^ flags
    }
}

/// The reason for which a datagram is dropped silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IcrcError {
    /// The datagram is too short or too long for a packet, or its length is not a multiple of 4.
    #[error("a datagram of {len} octets cannot be a packet")]
    Length {
        /// The number of octets of the datagram.
        len: usize,
    },
    /// The packet was damaged, or its IP header has changed since the ICRC was computed.
    #[error("the ICRC does not match")]
    Mismatch,
}

/// Returns the ID and the flag DF of a packet. `difference` is the difference between the packet's
/// ICRC and the ICRC that the packet would have with the ID `assumed` and with DF.
fn recover_identification(
    assumed: u16,
    difference: u32,
    packet_len: usize,
) -> Option<Identification> {
    // Move the difference back to octets 4 to 7 of the IPv4 header. There it shows in which bits
    // these octets differ from the assumed octets.
    let difference = multiply(difference, BACK_TO_ID[packet_len / 4]).to_le_bytes();
    let [high, low, flags, 0] = difference else { return None };
    let id = assumed ^ u16::from_be_bytes([high, low]);
    match flags {
        0 => Some(Identification { id, dont_fragment: true }),
        DONT_FRAGMENT => Some(Identification { id, dont_fragment: false }),
        _ => None,
    }
}

/// The flag DF, in octet 6 of an IPv4 header.
const DONT_FRAGMENT: u8 = 0x40;

/// The CRC of the eight octets 0xFF with which the checksum starts, and of the headers before a
/// packet.
fn header_crc(ip: &[u8], udp: [u8; 8]) -> u32 {
    let mut hasher = hasher(linear::ALL_ONES_8);
    hasher.update(ip);
    hasher.update(&udp);
    hasher.finalize()
}

/// An IPv4 header in the form that the ICRC covers, with total length and ID zero.
fn v4_image(source: Ipv4Addr, destination: Ipv4Addr) -> [u8; 20] {
    let mut image =
        [0x45, 0xFF, 0, 0, 0, 0, DONT_FRAGMENT, 0, 0xFF, UDP, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
    image[12..16].copy_from_slice(&source.octets());
    image[16..].copy_from_slice(&destination.octets());
    image
}

/// An IPv6 header in the form that the ICRC covers, with payload length zero.
fn v6_image(source: Ipv6Addr, destination: Ipv6Addr) -> [u8; 40] {
    let mut image = [0; 40];
    image[..8].copy_from_slice(&[0x6F, 0xFF, 0xFF, 0xFF, 0, 0, UDP, 0xFF]);
    image[8..24].copy_from_slice(&source.octets());
    image[24..].copy_from_slice(&destination.octets());
    image
}

/// A UDP header in the form that the ICRC covers, with length zero.
fn udp_image(source: u16, destination: u16) -> [u8; 8] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d, 0, 0, 0xFF, 0xFF]
}

/// The protocol number of UDP.
const UDP: u8 = 17;

/// The CRC of `bytes`, continued from `register`.
#[inline]
fn crc32(register: u32, bytes: &[u8]) -> u32 {
    let mut hasher = hasher(register);
    hasher.update(bytes);
    hasher.finalize()
}

#[inline]
fn hasher(register: u32) -> crc32fast::Hasher {
    // The hasher continues from a finished CRC, which is the inverted register.
    crc32fast::Hasher::new_with_initial(!register)
}

/// The effect of a field of two octets on the CRC register at the packet's start: one table for
/// each octet, indexed by its value.
type FieldEffect = [[u32; 256]; 2];

#[inline]
fn effect_of(field_effect: &FieldEffect, value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    field_effect[0][usize::from(high)] ^ field_effect[1][usize::from(low)]
}

/// The effect of a field that starts `octets_before` octets before the packet.
const fn field_effect(octets_before: i32) -> FieldEffect {
    [effect_of_octet(octets_before), effect_of_octet(octets_before - 1)]
}

/// The effect of the flag DF.
const V4_DONT_FRAGMENT: u32 = effect_of_octet(28 - 6)[DONT_FRAGMENT as usize];
static UDP_LENGTH: FieldEffect = field_effect(4);
static V4_LENGTH: FieldEffect = field_effect(28 - 2);
static V4_ID: FieldEffect = field_effect(28 - 4);
static V6_LENGTH: FieldEffect = field_effect(48 - 4);
/// The octet with the congestion bits lies inside the packet. For each of its values, this is the
/// change of the CRC register at the packet's start that has the same effect.
static CONGESTION_EFFECT: [u32; 256] = effect_of_octet(-(CONGESTION_OCTET as i32));

/// The factor that moves a register from the packet's end back to the ID of its IPv4 header. The
/// index is a quarter of the packet's length.
static BACK_TO_ID: [u32; (Icrc::MAX_DATAGRAM - Icrc::SIZE) / 4 + 1] = powers_back(28 - 4);

#[cfg(test)]
mod tests;
