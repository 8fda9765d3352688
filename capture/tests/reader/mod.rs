//! An independent reader of pcapng files and of the frames in them. It panics on anything
//! unexpected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The contents of a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// For each section, the writing application and the names of the interfaces.
    pub(crate) sections: Vec<(String, Vec<String>)>,
    pub(crate) packets: Vec<Packet>,
}

#[derive(Debug)]
pub(crate) struct Packet {
    /// The index of the packet's section.
    pub(crate) section: usize,
    pub(crate) interface: usize,
    /// The time in nanoseconds since 1970.
    pub(crate) nanos: u64,
    /// The direction: 1 is in, 2 is out.
    pub(crate) direction: u32,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) body: Body,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Udp { id: Option<(u16, bool)>, payload: Vec<u8> },
    Tcp { sequence: u32, acknowledged: u32, flags: u8, payload: Vec<u8> },
}

pub(crate) fn read(file: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut rest = file;
    while !rest.is_empty() {
        let (kind, length) = (le32(rest, 0), le32(rest, 4) as usize);
        assert!(
            length.is_multiple_of(4) && le32(rest, length - 4) as usize == length,
            "the block must be complete"
        );
        let (block, behind) = rest.split_at(length);
        let body = &block[8..length - 4];
        match kind {
            0x0A0D_0D0A => {
                assert_eq!(le32(body, 0), 0x1A2B_3C4D);
                assert_eq!((le16(body, 4), le16(body, 6)), (1, 0), "the version must be 1.0");
                assert_eq!(body[8..16], [0xFF; 8], "the length of the section must be unknown");
                contents.sections.push((text(&options(&body[16..]), 4), Vec::new()));
            }
            1 => {
                assert_eq!(le16(body, 0), 1, "the link type must be Ethernet");
                assert_eq!(le32(body, 4), 0, "there must be no limit on the length of a packet");
                let options = options(&body[8..]);
                assert_eq!(value(&options, 9), [9], "the resolution of times must be nanoseconds");
                contents.sections.last_mut().expect("a section").1.push(text(&options, 2));
            }
            6 => {
                let section = contents.sections.len() - 1;
                let interface = le32(body, 0) as usize;
                assert!(interface < contents.sections[section].1.len());
                let nanos = u64::from(le32(body, 4)) << 32 | u64::from(le32(body, 8));
                let captured = le32(body, 12) as usize;
                assert_eq!(le32(body, 16) as usize, captured, "the packet must be complete");
                let options = options(&body[20 + captured.next_multiple_of(4)..]);
                let direction = le32(&value(&options, 2), 0);
                let (src, dst, body) = frame(&body[20..20 + captured]);
                contents.packets.push(Packet {
                    section,
                    interface,
                    nanos,
                    direction,
                    src,
                    dst,
                    body,
                });
            }
            other => panic!("the file has a block of the unknown type {other}"),
        }
        rest = behind;
    }
    contents
}

type Options = Vec<(u16, Vec<u8>)>;

fn options(mut octets: &[u8]) -> Options {
    let mut options = Vec::new();
    loop {
        let (code, length) = (le16(octets, 0), le16(octets, 2) as usize);
        if code == 0 {
            assert_eq!(octets.len(), 4, "nothing may follow the end of the options");
            return options;
        }
        options.push((code, octets[4..4 + length].to_vec()));
        octets = &octets[4 + length.next_multiple_of(4)..];
    }
}

fn value(options: &Options, code: u16) -> Vec<u8> {
    options
        .iter()
        .find(|(c, _)| *c == code)
        .unwrap_or_else(|| panic!("the block has no option {code}"))
        .1
        .clone()
}

fn text(options: &Options, code: u16) -> String {
    String::from_utf8(value(options, code)).expect("UTF-8")
}

fn frame(frame: &[u8]) -> (SocketAddr, SocketAddr, Body) {
    for mac in [&frame[..6], &frame[6..12]] {
        assert_eq!(
            mac[0] & 0b11,
            0b10,
            "each MAC address must be locally administered and must not be a group address"
        );
    }
    let packet = &frame[14..];
    let (src, dst, id, protocol, body): (IpAddr, IpAddr, _, _, _) = match be16(frame, 12) {
        0x0800 => {
            assert_eq!((packet[0], be16(packet, 2) as usize), (0x45, packet.len()));
            assert_eq!(checksum(&packet[..20]), 0);
            let ip = |at: usize| Ipv4Addr::from_bits(be32(packet, at)).into();
            let fragment = be16(packet, 6);
            assert_eq!(fragment & !0x4000, 0, "the packet must not be a fragment");
            let id = Some((be16(packet, 4), fragment == 0x4000));
            (ip(12), ip(16), id, packet[9], &packet[20..])
        }
        0x86DD => {
            assert_eq!((packet[0], be16(packet, 4) as usize), (0x60, packet.len() - 40));
            let ip = |at: usize| {
                Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 octets"))
                    .into()
            };
            (ip(8), ip(24), None, packet[6], &packet[40..])
        }
        other => panic!("unknown EtherType {other:04X}"),
    };
    assert_eq!(pseudo_checksum(src, dst, protocol, body), 0);
    let (src, dst) = (SocketAddr::new(src, be16(body, 0)), SocketAddr::new(dst, be16(body, 2)));
    let body = match protocol {
        17 => {
            assert_eq!(be16(body, 4) as usize, body.len());
            assert_ne!(be16(body, 6), 0);
            Body::Udp { id, payload: body[8..].to_vec() }
        }
        6 => {
            let header = usize::from(body[12] >> 4) * 4;
            Body::Tcp {
                sequence: be32(body, 4),
                acknowledged: be32(body, 8),
                flags: body[13],
                payload: body[header..].to_vec(),
            }
        }
        other => panic!("unknown IP protocol {other}"),
    };
    (src, dst, body)
}

/// Returns 0 if the checksum in `body` is correct.
fn pseudo_checksum(src: IpAddr, dst: IpAddr, protocol: u8, body: &[u8]) -> u16 {
    let mut octets = Vec::new();
    for ip in [src, dst] {
        match ip {
            IpAddr::V4(ip) => octets.extend(ip.octets()),
            IpAddr::V6(ip) => octets.extend(ip.octets()),
        }
    }
    octets.extend((body.len() as u32).to_be_bytes());
    octets.extend([0, 0, 0, protocol]);
    octets.extend(body);
    checksum(&octets)
}

fn checksum(octets: &[u8]) -> u16 {
    let mut sum = 0u16;
    for pair in octets.chunks(2) {
        let (next, carry) =
            sum.overflowing_add(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        sum = next + u16::from(carry);
    }
    !sum
}

fn le16(octets: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([octets[at], octets[at + 1]])
}

fn le32(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(octets[at..at + 4].try_into().expect("4 octets"))
}

fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().expect("4 octets"))
}
