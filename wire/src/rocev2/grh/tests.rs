use super::*;

/// What kernel rxe has written in front of a datagram of udaddy, except for the identification,
/// which is 0 here.
const KERNEL: [u8; 40] = *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x45\x00\x01\x00\x00\x00\x40\x00\x40\x11\x25\x25\x0A\x63\x00\x01\x0A\x63\x00\x02";

const V4: Grh = Grh {
    source: IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)),
    destination: IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)),
    traffic_class: 0,
    hop_limit: 64,
    udp_len: 236,
};

fn v6() -> Grh {
    Grh {
        source: "fd00:102::304".parse().unwrap(),
        destination: "2001:db8::5".parse().unwrap(),
        traffic_class: 0xA9,
        hop_limit: 63,
        udp_len: 0x1234,
    }
}

#[test]
fn ipv4() {
    assert_eq!(V4.to_octets(), Some(KERNEL));
    assert_eq!(Grh::parse(&KERNEL), Some(V4));
    let other = Grh { traffic_class: 0xA9, hop_limit: 1, udp_len: 4140, ..V4 };
    let octets = other.to_octets().unwrap();
    assert_eq!(octets[20..32], *b"\x45\xA9\x10\x40\0\0\x40\0\x01\x11\x54\x3C");
    assert_eq!(Grh::parse(&octets), Some(other));
}

/// The header with the identification that the kernel has chosen, and its checksum.
#[test]
fn the_header_of_a_kernel() {
    let mut octets = KERNEL;
    octets[24..26].copy_from_slice(&[0xCC, 0xDE]);
    octets[30..32].copy_from_slice(&[0x58, 0x46]);
    assert_eq!(Grh::parse(&octets), Some(V4));
    assert_eq!(ipv4_checksum(octets.last_chunk().unwrap()), 0x5846);
}

#[test]
fn ipv6() {
    let octets = v6().to_octets().unwrap();
    let expected = *b"\x6A\x90\0\0\x12\x34\x11\x3F\
        \xFD\0\x01\x02\0\0\0\0\0\0\0\0\0\0\x03\x04\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x05";
    assert_eq!(octets, expected);
    assert_eq!(Grh::parse(&octets), Some(v6()));
    // A sender may set the flow label.
    let mut labelled = octets;
    labelled[1..4].copy_from_slice(&[0x9F, 0xFF, 0xFF]);
    assert_eq!(Grh::parse(&labelled), Some(v6()));
}

#[test]
fn mapped_addresses_are_ipv4() {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        IpAddr::V6(_) => address,
    };
    let grh = Grh { source: mapped(V4.source), destination: mapped(V4.destination), ..V4 };
    assert_eq!(grh.to_octets(), Some(KERNEL));
}

#[test]
fn datagrams_that_cannot_exist() {
    assert_eq!(Grh { source: v6().source, ..V4 }.to_octets(), None);
    assert_eq!(Grh { destination: v6().destination, ..V4 }.to_octets(), None);
    assert!(Grh { udp_len: 65515, ..V4 }.to_octets().is_some());
    assert_eq!(Grh { udp_len: 65516, ..V4 }.to_octets(), None);
    assert!(Grh { udp_len: 65535, ..v6() }.to_octets().is_some());
}

/// A channel adapter may leave any octets before an IPv4 header.
#[test]
fn undefined_octets_before_an_ipv4_header() {
    for first in 0..=u8::MAX {
        let mut octets = KERNEL;
        octets[..20].fill(first);
        assert_eq!(Grh::parse(&octets), Some(V4), "{first:#04x}");

        // If the checksum is wrong, only the first octet decides.
        octets[31] ^= 1;
        let parsed = Grh::parse(&octets).unwrap();
        assert_eq!(parsed.source.is_ipv6(), first >> 4 == 6, "{first:#04x}");

        // An IPv4 header with options is not considered after the start of an IPv6 header.
        octets[31] ^= 1;
        octets[20] += 1;
        octets[30..32].copy_from_slice(&[0x24, 0x25]);
        assert_eq!(ipv4_checksum(octets.last_chunk().unwrap()), 0x2425);
        let parsed = Grh::parse(&octets).unwrap();
        assert_eq!(parsed.source.is_ipv6(), first >> 4 == 6, "{first:#04x}");
    }
}

#[test]
fn what_is_no_ip_header() {
    assert_eq!(Grh::parse(&[0; 40]), None);
    let mut octets = KERNEL;
    octets[20] = 0x55;
    assert_eq!(Grh::parse(&octets), None);
}

/// A length field that is too small for its own header does not underflow.
#[test]
fn an_ipv4_header_with_a_length_that_is_too_small() {
    let mut octets = KERNEL;
    octets[22..24].copy_from_slice(&[0, 19]);
    assert_eq!(Grh::parse(&octets), Some(Grh { udp_len: 0, ..V4 }));
}

/// The sum of the header's words overflows 16 bits several times, and a checksum of zero is not
/// replaced by ones, as it would be in UDP.
#[test]
fn checksums() {
    let mut header = [0xFF; 20];
    assert_eq!(ipv4_checksum(&header), 0);
    header[0] = 0x45;
    assert_eq!(ipv4_checksum(&header), 0xBA00);
    assert_eq!(ipv4_checksum(&[0; 20]), 0xFFFF);
}
