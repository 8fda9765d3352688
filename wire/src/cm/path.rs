//! The path that a REQ proposes (IBA volume 1, sections 12.7.13 and following).

use std::net::{IpAddr, Ipv6Addr};

use super::Timeout;
use super::octets::{Body, gid_at, put, u16_at, u32_at};

/// A path from the sender of the REQ to its receiver. On Ethernet only the GIDs, the traffic class,
/// the hop limit and the ACK timeout have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The sender's LID. On Ethernet it is 0xFFFF.
    pub local_lid: u16,
    /// The receiver's LID.
    pub remote_lid: u16,
    /// The sender's GID: the source address of its RC packets.
    pub local_gid: Ipv6Addr,
    /// The receiver's GID.
    pub remote_gid: Ipv6Addr,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The packet rate, an enumeration of 6 bits. 0 means unknown.
    pub packet_rate: u8,
    /// The traffic class. With IPv4 it is the TOS.
    pub traffic_class: u8,
    /// The hop limit. With IPv4 it is the TTL.
    pub hop_limit: u8,
    /// The service level, 4 bits.
    pub service_level: u8,
    /// Whether both ends are in the same subnet.
    pub subnet_local: bool,
    /// The time that a requester waits for an ACK.
    pub ack_timeout: Timeout,
}

impl Path {
    /// The path between two addresses, with the values that Linux uses over Ethernet.
    pub fn over_ip(local: IpAddr, remote: IpAddr, ack_timeout: Timeout) -> Self {
        Path {
            local_lid: 0xFFFF,
            remote_lid: 0xFFFF,
            local_gid: gid(local),
            remote_gid: gid(remote),
            flow_label: 0,
            packet_rate: 0,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
            subnet_local: false,
            ack_timeout,
        }
    }

    pub(super) fn parse(body: &Body, at: usize) -> Self {
        let label_and_rate = u32_at(body, at + 36);
        Path {
            local_lid: u16_at(body, at),
            remote_lid: u16_at(body, at + 2),
            local_gid: gid_at(body, at + 4),
            remote_gid: gid_at(body, at + 20),
            flow_label: label_and_rate >> 12,
            packet_rate: label_and_rate as u8 & 0x3F,
            traffic_class: body[at + 40],
            hop_limit: body[at + 41],
            service_level: body[at + 42] >> 4,
            subnet_local: body[at + 42] & 0x08 != 0,
            ack_timeout: Timeout::new(body[at + 43] >> 3),
        }
    }

    pub(super) fn emit(&self, body: &mut Body, at: usize) {
        put(body, at, &self.local_lid.to_be_bytes());
        put(body, at + 2, &self.remote_lid.to_be_bytes());
        put(body, at + 4, &self.local_gid.octets());
        put(body, at + 20, &self.remote_gid.octets());
        put(
            body,
            at + 36,
            &(self.flow_label << 12 | u32::from(self.packet_rate & 0x3F)).to_be_bytes(),
        );
        body[at + 40] = self.traffic_class;
        body[at + 41] = self.hop_limit;
        body[at + 42] = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        body[at + 43] = self.ack_timeout.code() << 3;
    }
}

/// The GID of an address on Ethernet (annex A17): an IPv6 address itself, or an IPv4 address mapped
/// into IPv6.
pub fn gid(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}
