//! ICRC: the checksum at the end of a packet, which covers what no router changes, from the IP header on (IBA annex A17,
//! section A17.3.3; its algorithm is the CRC-32 of Ethernet).
//!
//! Covered are eight octets of ones, then
//!
//! ```text
//! IPv4  version, IHL | -TOS- | total length | ID | flags, fragment offset | -TTL- | protocol | -checksum- | addresses
//! IPv6  version | -traffic class, flow label- | payload length | next header | -hop limit- | addresses
//! UDP   ports | length | -checksum-
//! BTH   but for -octet 4-, which switches may mark; then all up to the ICRC
//! ```
//!
//! where a field between dashes counts as all ones. None of that image is ever built but once for a flow: a CRC is linear,
//! so whatever stands before the packet acts on its checksum only through the 32 bits of the CRC register at the
//! packet's start, and each octet of it by exclusive or. Hence a flow is one such register, lengths and ID are table
//! lookups, and the packet itself is one pass.
//!
//! The same linearity recovers the ID of an IPv4 packet, which a UDP socket does not show to its reader: see
//! [`recover`](Icrc::recover).

mod linear;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use self::linear::{effect_of_octet, multiply, powers_back};
use super::bth::{Bth, CONGESTION_OCTET};

/// The checksums of the packets from one UDP address to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icrc {
    /// The CRC's register where the packet starts, had the headers before it zero lengths and, in IPv4, an ID of zero and
    /// DF.
    register: u32,
    ipv4: bool,
}

/// What the ICRC covers of an IPv4 header and a UDP socket does not show. IPv6 has nothing of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification {
    /// The identification field.
    pub id: u16,
    /// The flag DF. The other flag and the fragment offset are zero: fragments do not become packets.
    pub dont_fragment: bool,
}

impl Identification {
    /// With DF, as everyone sends who does not want a packet in fragments.
    #[inline]
    pub const fn unfragmented(id: u16) -> Self {
        Self { id, dont_fragment: true }
    }
}

impl Icrc {
    /// Octets of the checksum on the wire.
    pub const SIZE: usize = 4;
    /// Octets of the longest packet, ICRC included: a WRITE with immediate data at a path MTU of 4096.
    pub const MAX_DATAGRAM: usize = Bth::SIZE + 20 + 4096 + Self::SIZE;
    const MIN_DATAGRAM: usize = Bth::SIZE + Self::SIZE;

    /// For packets from `source` to `destination`; `None` if one is IPv4 and the other IPv6. IPv4 addresses may be in the
    /// form that sockets of IPv6 have for them.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let udp = udp_image(source.port(), destination.port());
        let (crc, ipv4) = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (flow(&v4_image(source, destination), udp), true)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (flow(&v6_image(source, destination), udp), false)
            }
            _ => return None,
        };
        Some(Self { register: !crc, ipv4 })
    }

    /// The checksum of `packet`, which is a whole one but for its ICRC. `ip` is not looked at in IPv6.
    ///
    /// # Panics
    /// If there are not at least the 12 octets of a BTH.
    #[inline]
    pub fn compute(&self, ip: Identification, packet: &[u8]) -> u32 {
        crc32(self.start(ip, packet), packet)
    }

    /// Writes the checksum over the last four octets of `datagram`. An unconnected UDP socket that forbids fragments sends
    /// with ID 0; the k-th segment of a GSO send, counted from 0, has ID k.
    ///
    /// # Panics
    /// If there is not at least a BTH before them.
    #[inline]
    pub fn seal(&self, id: u16, datagram: &mut [u8]) {
        let (packet, place) = datagram.split_last_chunk_mut().expect("room for the ICRC");
        *place = self.compute(Identification::unfragmented(id), packet).to_le_bytes();
    }

    /// Checks a datagram all of whose covered octets are known, and gives the packet without the ICRC.
    #[inline]
    pub fn verify<'a>(
        &self,
        ip: Identification,
        datagram: &'a [u8],
    ) -> Result<&'a [u8], IcrcError> {
        let (packet, difference) = self.difference(ip, datagram)?;
        if difference == 0 { Ok(packet) } else { Err(IcrcError::Mismatch) }
    }

    /// Checks a datagram without knowing the ID, and gives the packet without the ICRC, and the ID.
    ///
    /// If the ID is `hint`, with DF, this is one pass and all 32 bits of the ICRC are checked. If not, the one ID, with
    /// DF or without, is computed that makes the ICRC right: of 2^15 damaged packets one finds such an ID by chance.
    /// Our own peers send 0, or the place in a GSO send; Linux's in-kernel senders count. So a good hint for the first
    /// datagram of a batch is 0, and for another one more than the ID before it.
    ///
    /// In IPv6 there is no ID: all 32 bits are checked, and `hint` comes back.
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
        let ip = solve(hint.id, difference, packet.len()).ok_or(IcrcError::Mismatch)?;
        Ok((packet, ip))
    }

    /// The packet in a datagram, and the exclusive or of its ICRC and the one it should have.
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

    /// The register at the start of `packet`, so made that the octet of congestion marks in it counts as all ones.
    #[inline]
    fn start(&self, ip: Identification, packet: &[u8]) -> u32 {
        let udp_len = 8 + packet.len() + Self::SIZE;
        let marks = packet[..Bth::SIZE][CONGESTION_OCTET];
        let register =
            self.register ^ MARKS[usize::from(!marks)] ^ pair(&UDP_LENGTH, udp_len as u16);
        if !self.ipv4 {
            return register ^ pair(&V6_LENGTH, udp_len as u16);
        }
        let flags = if ip.dont_fragment { 0 } else { V4_DONT_FRAGMENT };
        register ^ pair(&V4_LENGTH, (20 + udp_len) as u16) ^ pair(&V4_ID, ip.id) ^ flags
    }
}

/// Why a datagram is dropped without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IcrcError {
    /// No packet is as short or as long, or not a multiple of 4.
    #[error("datagram of {len} octets, which is no packet's length")]
    Length {
        /// Octets of the datagram.
        len: usize,
    },
    /// The packet was damaged, or its IP header is not what it was when the ICRC was made.
    #[error("the ICRC does not match")]
    Mismatch,
}

/// The ID and DF flag of the packet whose ICRC differs by `difference` from what it would be with ID `assumed` and DF.
fn solve(assumed: u16, difference: u32, packet_len: usize) -> Option<Identification> {
    // The difference as it was in the register when the IPv4 header's octets 4 to 7 were taken in: those octets'.
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

/// The CRC of the headers before a packet, the octets of ones before them included.
fn flow(ip: &[u8], udp: [u8; 8]) -> u32 {
    let mut hasher = hasher(linear::ALL_ONES_8);
    hasher.update(ip);
    hasher.update(&udp);
    hasher.finalize()
}

/// An IPv4 header as the ICRC takes it, with total length and ID zero.
fn v4_image(source: Ipv4Addr, destination: Ipv4Addr) -> [u8; 20] {
    let mut image =
        [0x45, 0xFF, 0, 0, 0, 0, DONT_FRAGMENT, 0, 0xFF, UDP, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
    image[12..16].copy_from_slice(&source.octets());
    image[16..].copy_from_slice(&destination.octets());
    image
}

/// An IPv6 header as the ICRC takes it, with payload length zero.
fn v6_image(source: Ipv6Addr, destination: Ipv6Addr) -> [u8; 40] {
    let mut image = [0; 40];
    image[..8].copy_from_slice(&[0x6F, 0xFF, 0xFF, 0xFF, 0, 0, UDP, 0xFF]);
    image[8..24].copy_from_slice(&source.octets());
    image[24..].copy_from_slice(&destination.octets());
    image
}

/// A UDP header as the ICRC takes it, with length zero.
fn udp_image(source: u16, destination: u16) -> [u8; 8] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d, 0, 0, 0xFF, 0xFF]
}

/// The protocol number of UDP.
const UDP: u8 = 17;

/// The CRC of `bytes` that follow what has left this register.
#[inline]
fn crc32(register: u32, bytes: &[u8]) -> u32 {
    let mut hasher = hasher(register);
    hasher.update(bytes);
    hasher.finalize()
}

#[inline]
fn hasher(register: u32) -> crc32fast::Hasher {
    // It goes on from a finished CRC, which is the register inverted.
    crc32fast::Hasher::new_with_initial(!register)
}

/// What the two octets of a field do to the register at the packet's start, by value.
type Field = [[u32; 256]; 2];

#[inline]
fn pair(field: &Field, value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    field[0][usize::from(high)] ^ field[1][usize::from(low)]
}

/// A field which starts that many octets before the packet.
const fn field(octets_before: i32) -> Field {
    [effect_of_octet(octets_before), effect_of_octet(octets_before - 1)]
}

/// Of the flag DF.
const V4_DONT_FRAGMENT: u32 = effect_of_octet(28 - 6)[DONT_FRAGMENT as usize];
static UDP_LENGTH: Field = field(4);
static V4_LENGTH: Field = field(28 - 2);
static V4_ID: Field = field(28 - 4);
static V6_LENGTH: Field = field(48 - 4);
/// Of an octet inside the packet: what would do the same before it.
static MARKS: [u32; 256] = effect_of_octet(-(CONGESTION_OCTET as i32));

/// By a fourth of the packet's length: takes a register at the packet's end back to the ID of its IPv4 header.
static BACK_TO_ID: [u32; (Icrc::MAX_DATAGRAM - Icrc::SIZE) / 4 + 1] = powers_back(28 - 4);

#[cfg(test)]
mod tests;
