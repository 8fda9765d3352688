//! GRH: the 40 octets in front of each datagram in a receive buffer.
//!
//! In InfiniBand these octets are the packet's global route header (IBA, section 8.3). In RoCEv2
//! the packet has no such header on the wire, and its IP header takes this place in the buffer:
//!
//! ```text
//! IPv4  zeros (20) | IPv4 header without options (20)
//! IPv6  IPv6 header (40)
//! ```
//!
//! A UDP socket does not report the IP header, so the receiver builds it from the parts that the
//! socket reports. A consumer needs it to answer: it contains the sender's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::be16;

/// The contents of the 40 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The address of the datagram's sender.
    pub source: IpAddr,
    /// The address to which the datagram was sent.
    pub destination: IpAddr,
    /// The traffic class, including the congestion marks. In IPv4 it is the type of service.
    pub traffic_class: u8,
    /// The remaining hop limit. In IPv4 it is the time to live.
    pub hop_limit: u8,
    /// The length in the UDP header: the size of the UDP header, the packet and the ICRC in octets.
    pub udp_len: u16,
}

/// The size of an IPv4 header without options, and its offset in the 40 octets.
const IPV4_SIZE: usize = 20;
/// The offset of the checksum in an IPv4 header.
const CHECKSUM_OFFSET: usize = 10;
/// The IP version 4, and a header length of five words.
const IPV4_START: u8 = 0x45;
const DONT_FRAGMENT: u8 = 0x40;
/// The protocol, or next header, UDP.
const UDP: u8 = 17;

impl Grh {
    /// The size in a receive buffer in octets.
    pub const SIZE: usize = 40;

    /// Returns the octets in a receive buffer. The identification of an IPv4 header and the flow
    /// label of an IPv6 header are zero, because a UDP socket does not report them.
    ///
    /// IPv4 addresses may be mapped into IPv6, as in IPv6 sockets. Returns `None` for a datagram
    /// that cannot exist: one address is IPv4 and the other IPv6, or `udp_len` is above 65515 in
    /// IPv4.
    pub fn to_octets(&self) -> Option<[u8; Self::SIZE]> {
        let mut octets = [0; Self::SIZE];
        match (self.source.to_canonical(), self.destination.to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                octets[IPV4_SIZE..].copy_from_slice(&self.ipv4(source, destination)?);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                octets[0] = 0x60 | self.traffic_class >> 4;
                octets[1] = self.traffic_class << 4;
                octets[4..6].copy_from_slice(&self.udp_len.to_be_bytes());
                octets[6..8].copy_from_slice(&[UDP, self.hop_limit]);
                octets[8..24].copy_from_slice(&source.octets());
                octets[24..].copy_from_slice(&destination.octets());
            }
            _ => return None,
        }
        Some(octets)
    }

    fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Option<[u8; IPV4_SIZE]> {
        let total_len = self.udp_len.checked_add(IPV4_SIZE as u16)?;
        let mut header = [0; IPV4_SIZE];
        header[..2].copy_from_slice(&[IPV4_START, self.traffic_class]);
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        header[6] = DONT_FRAGMENT;
        header[8..10].copy_from_slice(&[self.hop_limit, UDP]);
        header[12..16].copy_from_slice(&source.octets());
        header[16..].copy_from_slice(&destination.octets());
        let checksum = ipv4_checksum(&header);
        header[CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
        Some(header)
    }

    /// Reads the octets from a receive buffer, which any channel adapter may have filled. Some
    /// leave the first 20 octets undefined in IPv4. Returns `None` if the octets are of neither IP
    /// version.
    ///
    /// The version is found as `ibv_init_ah_from_wc` of libibverbs finds it. If the first octet
    /// starts an IPv6 header, the version is 6, unless the second half is an IPv4 header with a
    /// correct checksum. Otherwise, only the second half can be an IP header.
    pub fn parse(octets: &[u8; Self::SIZE]) -> Option<Self> {
        let ipv4: &[u8; IPV4_SIZE] = octets.last_chunk().expect("the second half");
        let is_ipv4 = if octets[0] >> 4 == 6 {
            ipv4[0] & 0xF == IPV4_START & 0xF && be16(ipv4, CHECKSUM_OFFSET) == ipv4_checksum(ipv4)
        } else if ipv4[0] >> 4 == 4 {
            true
        } else {
            return None;
        };
        Some(if is_ipv4 { Self::parse_ipv4(ipv4) } else { Self::parse_ipv6(octets) })
    }

    fn parse_ipv4(header: &[u8; IPV4_SIZE]) -> Self {
        let address = |at: usize| {
            Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
        };
        Self {
            source: address(12),
            destination: address(16),
            traffic_class: header[1],
            hop_limit: header[8],
            udp_len: be16(header, 2).saturating_sub(IPV4_SIZE as u16),
        }
    }

    fn parse_ipv6(header: &[u8; Self::SIZE]) -> Self {
        let address = |at: usize| {
            let octets: &[u8; 16] = header[at..].first_chunk().expect("16 octets");
            Ipv6Addr::from(*octets).into()
        };
        Self {
            source: address(8),
            destination: address(24),
            traffic_class: header[0] << 4 | header[1] >> 4,
            hop_limit: header[7],
            udp_len: be16(header, 4),
        }
    }
}

/// Computes the checksum that an IPv4 header must contain (RFC 791). The checksum that it contains
/// counts as zero.
fn ipv4_checksum(header: &[u8; IPV4_SIZE]) -> u16 {
    let mut sum: u32 = (0..IPV4_SIZE)
        .step_by(2)
        .filter(|&at| at != CHECKSUM_OFFSET)
        .map(|at| u32::from(be16(header, at)))
        .sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
