//! Creates the headers that sockets do not show: Ethernet, IPv4 (RFC 791), IPv6 (RFC 8200), UDP
//! (RFC 768), TCP (RFC 9293).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum payload of a TCP segment over either IP version, in octets.
pub(crate) const MAX_SEGMENT: usize = MAX_IP - IPV4_SIZE - TCP_SIZE;

/// The maximum of the total length in an IPv4 header, and of the payload length in an IPv6 header,
/// in octets.
const MAX_IP: usize = u16::MAX as usize;
const IPV4_SIZE: usize = 20;
const UDP_SIZE: usize = 8;
const TCP_SIZE: usize = 20;
const TTL: u8 = 64;

const TCP: u8 = 6;
const UDP: u8 = 17;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// The variable fields of the IP header.
#[derive(Clone, Copy)]
pub(crate) struct Ip {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
}

/// The variable fields of the TCP header.
#[derive(Clone, Copy)]
pub(crate) struct Tcp {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    pub(crate) flags: u8,
}

/// Appends a UDP datagram in an Ethernet frame.
pub(crate) fn udp(to: &mut Vec<u8>, ip: Ip, src_port: u16, dst_port: u16, payload: &[u8]) {
    let payload = &payload[..payload.len().min(MAX_IP - IPV4_SIZE - UDP_SIZE)];
    let length = UDP_SIZE + payload.len();
    let pseudo = ip.frame(to, UDP, length);
    let begin = to.len();
    for word in [src_port, dst_port, length as u16, 0] {
        to.extend(word.to_be_bytes());
    }
    to.extend(payload);
    let checksum = match pseudo.add(&to[begin..]).value() {
        // The value 0 would mean that the packet has no checksum.
        0 => 0xFFFF,
        checksum => checksum,
    };
    to[begin + 6..begin + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// Appends a TCP segment in an Ethernet frame. The payload is at most [`MAX_SEGMENT`].
pub(crate) fn tcp(to: &mut Vec<u8>, ip: Ip, tcp: Tcp, payload: &[u8]) {
    let payload = &payload[..payload.len().min(MAX_SEGMENT)];
    let options: &[u8] = if tcp.flags & SYN != 0 { &SYN_OPTIONS } else { &[] };
    let header = TCP_SIZE + options.len();
    let pseudo = ip.frame(to, TCP, header + payload.len());
    let begin = to.len();
    to.extend(tcp.src_port.to_be_bytes());
    to.extend(tcp.dst_port.to_be_bytes());
    to.extend(tcp.sequence.to_be_bytes());
    to.extend(tcp.acknowledged.to_be_bytes());
    to.extend([(header as u8 / 4) << 4, tcp.flags]);
    to.extend(WINDOW.to_be_bytes());
    to.extend([0; 4]);
    to.extend(options);
    to.extend(payload);
    let checksum = pseudo.add(&to[begin..]).value();
    to[begin + 16..begin + 18].copy_from_slice(&checksum.to_be_bytes());
}

/// The receive window in the recorded TCP headers, because sockets do not report the real one. With
/// the window scale of the SYN it is 8 MiB, which is more than the unacknowledged data of a
/// recording.
const WINDOW: u16 = u16::MAX;
/// The TCP options of a SYN: maximum segment size, no operation, window scale 7.
const SYN_OPTIONS: [u8; 8] = [2, 4, (MAX_SEGMENT >> 8) as u8, MAX_SEGMENT as u8, 1, 3, 3, 7];

impl Ip {
    /// Appends Ethernet and IP headers for `length` octets. Returns the checksum of the pseudo
    /// header, with which the checksums of TCP and UDP begin.
    fn frame(self, to: &mut Vec<u8>, protocol: u8, length: usize) -> Checksum {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(to, src, dst, protocol, length),
            (src, dst) => v6(to, mapped(src), mapped(dst), protocol, length),
        }
    }

    fn v4(
        self,
        to: &mut Vec<u8>,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        protocol: u8,
        length: usize,
    ) -> Checksum {
        ethernet(to, src.to_bits().into(), dst.to_bits().into(), 0x0800);
        let begin = to.len();
        to.extend([0x45, 0]);
        to.extend(((IPV4_SIZE + length) as u16).to_be_bytes());
        to.extend(self.id.to_be_bytes());
        to.extend((if self.dont_fragment { 0x4000u16 } else { 0 }).to_be_bytes());
        to.extend([TTL, protocol, 0, 0]);
        to.extend(src.octets());
        to.extend(dst.octets());
        let checksum = Checksum(0).add(&to[begin..]).value();
        to[begin + 10..begin + 12].copy_from_slice(&checksum.to_be_bytes());
        Checksum(u64::from(protocol) + length as u64).add(&to[begin + 12..])
    }
}

fn v6(to: &mut Vec<u8>, src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, length: usize) -> Checksum {
    ethernet(to, src.to_bits(), dst.to_bits(), 0x86DD);
    let begin = to.len();
    to.extend([0x60, 0, 0, 0]);
    to.extend((length as u16).to_be_bytes());
    to.extend([protocol, TTL]);
    to.extend(src.octets());
    to.extend(dst.octets());
    Checksum(u64::from(protocol) + length as u64).add(&to[begin + 8..])
}

/// Converts an IPv4 address to an IPv6 address, for packets between addresses of different
/// families.
fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn ethernet(to: &mut Vec<u8>, src: u128, dst: u128, kind: u16) {
    to.extend(mac(dst));
    to.extend(mac(src));
    to.extend(kind.to_be_bytes());
}

/// A locally administered MAC address, derived from the IP address because the real one is unknown.
fn mac(ip: u128) -> [u8; 6] {
    let [.., a, b, c, d, e] = ip.to_be_bytes();
    [0x02, a, b, c, d, e]
}

/// The Internet checksum (RFC 1071) of the slices that were added. The length of each slice except
/// the last must be a multiple of 4 octets.
#[derive(Clone, Copy)]
struct Checksum(u64);

impl Checksum {
    fn add(self, octets: &[u8]) -> Self {
        let (words, rest) = octets.as_chunks::<4>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let sum = words
            .iter()
            .chain([&last])
            .map(|word| u64::from(u32::from_be_bytes(*word)))
            .sum::<u64>();
        Self(self.0 + sum)
    }

    fn value(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum >> 16) + (sum & 0xFFFF);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of the example in RFC 1071, section 3.
    #[test]
    fn the_sum_of_the_rfc() {
        assert_eq!(
            Checksum(0).add(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]).value(),
            !0xDDF2
        );
    }

    #[test]
    fn an_odd_octet_is_the_first_of_a_word() {
        assert_eq!(Checksum(0).add(&[1, 2, 3]).value(), Checksum(0).add(&[1, 2, 3, 0]).value());
        assert_eq!(Checksum(0).add(&[]).value(), 0xFFFF);
    }

    #[test]
    fn addresses_are_locally_administered() {
        assert_eq!(mac(Ipv4Addr::new(10, 77, 0, 3).to_bits().into()), [2, 0, 10, 77, 0, 3]);
        assert_eq!(mac(Ipv6Addr::LOCALHOST.to_bits()), [2, 0, 0, 0, 0, 1]);
        assert_eq!(
            mac(u128::MAX)[0] & 0b11,
            0b10,
            "the address must be locally administered and must not be a group address"
        );
    }
}
