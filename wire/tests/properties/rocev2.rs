//! Properties of RoCEv2.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use wire::rocev2::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, ExtensionKind, Grh, Icrc, IcrcError,
    Identification, Opcode, Packet, Psn, Reth, Syndrome, packet_len, pad,
};

proptest! {
    #[test]
    fn packets_come_back((bth, extension) in headers(), payload in vec(any::<u8>(), 0..64)) {
        let payload = if bth.opcode.has_payload() { &payload[..] } else { &[] };
        let packet = Packet { bth, extension, payload };
        let mut buf = [0xEE; 128];
        let len = packet.emit(&mut buf);
        prop_assert_eq!((len, len % 4, packet_len(bth.opcode, payload.len())), (packet.len(), 0, len));
        prop_assert!(buf[len..].iter().all(|&octet| octet == 0xEE));
        prop_assert_eq!(Packet::parse(&buf[..len]), Ok(packet));
        prop_assert_eq!(extension.extension_kind(), bth.opcode.extension_kind());
        prop_assert!(!packet.to_string().is_empty());
        // `emit` must write every octet of the packet, so the old contents of the buffer must not
        // matter.
        let mut other = [0x11; 128];
        packet.emit(&mut other);
        prop_assert_eq!(&buf[..len], &other[..len]);
        for short in (0..bth.opcode.header_len()).step_by(4) {
            prop_assert!(Packet::parse(&buf[..short]).is_err());
        }
    }

    #[test]
    fn any_octets_as_packet(
        code in prop_oneof![select(&Opcode::ALL[..]).prop_map(Opcode::code), any::<u8>()],
        version in prop_oneof![9 => Just(0), 1 => 0..16_u8],
        bytes in vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = bytes;
        if let [first, second, ..] = &mut bytes[..] {
            (*first, *second) = (code, *second & 0xF0 | version);
        }
        match Packet::parse(&bytes.clone()) {
            Ok(packet) => {
                let mut again = [0; 80];
                let len = packet.emit(&mut again);
                prop_assert_eq!((len, Packet::parse(&again[..len])), (bytes.len(), Ok(packet)));
                // The new octets may differ from the old ones only in reserved fields, which are
                // then zero.
                bytes[4] &= 0xC0;
                bytes[8] &= 0x80;
                let payload_end = len - pad(packet.payload.len());
                bytes[payload_end..].fill(0);
                match packet.extension {
                    Extension::Deth(_) | Extension::DethImmediate(..) => bytes[16] = 0,
                    Extension::Reserved => bytes[12..28].fill(0),
                    _ => {}
                }
                prop_assert_eq!(&again[..len], &bytes[..]);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn psn_distance_is_what_was_added(psn in 0..Psn::COUNT, packets in 0..1_u32 << 23) {
        let psn = Psn::new(psn);
        prop_assert_eq!((psn + packets).distance(psn), packets as i32);
        prop_assert_eq!((psn - packets).distance(psn), -(packets as i32));
        prop_assert_eq!(psn + packets - packets, psn);
        prop_assert_eq!((psn + packets).is_after(psn), psn.is_before(psn + packets));
        prop_assert_eq!((psn + packets).is_within(psn, packets), false);
        prop_assert!((psn + packets).is_within(psn, packets + 1));
    }

    #[test]
    fn any_id_is_recovered(
        (source, destination) in addresses(),
        (id, hint, dont_fragment) in any::<(u16, u16, bool)>(),
        packet in packet_octets(),
    ) {
        let icrc = Icrc::new(source, destination).unwrap();
        let ip = Identification { id, dont_fragment };
        let datagram = [&packet[..], &icrc.compute(ip, &packet).to_le_bytes()].concat();
        prop_assert_eq!(icrc.verify(ip, &datagram), Ok(&packet[..]));
        let found = if source.is_ipv4() { ip } else { Identification::unfragmented(hint) };
        prop_assert_eq!(icrc.recover(hint, &datagram), Ok((&packet[..], found)));
        prop_assert_eq!(icrc.recover(id, &datagram).map(|(packet, _)| packet), Ok(&packet[..]));
    }

    #[test]
    fn damage_is_found((source, destination) in addresses(), id in any::<u16>(), packet in packet_octets(), bit in any::<Index>()) {
        let icrc = Icrc::new(source, destination).unwrap();
        let mut datagram = [&packet[..], &[0; 4]].concat();
        icrc.seal(id, &mut datagram);
        let ip = Identification::unfragmented(id);
        prop_assert!(icrc.verify(ip, &datagram).is_ok());

        let bit = bit.index(datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        let verdict = icrc.verify(ip, &datagram);
        prop_assert_eq!(verdict.is_ok(), bit / 8 == 4, "only congestion marks may change");
        datagram[bit / 8] ^= 1 << (bit % 8);

        // Remove one whole word, or add one.
        if datagram.len() > 16 {
            prop_assert_eq!(icrc.verify(ip, &datagram[4..]), Err(IcrcError::Mismatch));
            prop_assert_eq!(icrc.verify(ip, &datagram[..datagram.len() - 4]), Err(IcrcError::Mismatch));
        }
        prop_assert!(icrc.verify(ip, &[&datagram[..], &[0; 4]].concat()).is_err());
    }

    #[test]
    fn damage_of_the_headers_before_is_found(
        (source, destination) in addresses(),
        id in any::<u16>(),
        packet in packet_octets(),
        bit in any::<Index>(),
    ) {
        let mut datagram = [&packet[..], &[0; 4]].concat();
        Icrc::new(source, destination).unwrap().seal(id, &mut datagram);
        let ip = Identification::unfragmented(id);
        let other = |source, destination| Icrc::new(source, destination).unwrap();
        prop_assert!(other(flip(source, bit), destination).verify(ip, &datagram).is_err());
        prop_assert!(other(source, flip(destination, bit)).verify(ip, &datagram).is_err());
        if source.is_ipv4() {
            let id = id ^ 1 << bit.index(16);
            prop_assert!(other(source, destination).verify(Identification::unfragmented(id), &datagram).is_err());
            let ip = Identification { dont_fragment: false, ..ip };
            prop_assert!(other(source, destination).verify(ip, &datagram).is_err());
        }
    }

    #[test]
    fn headers_in_receive_buffers_come_back(
        (source, destination) in addresses(),
        (traffic_class, hop_limit) in any::<(u8, u8)>(),
        udp_len in 0..=65515_u16,
    ) {
        let (source, destination) = (source.ip(), destination.ip());
        let grh = Grh { source, destination, traffic_class, hop_limit, udp_len };
        let octets = grh.to_octets().unwrap();
        // The second half of an IPv6 header is an IPv4 header with a correct checksum only if the
        // addresses are chosen for that.
        let parsed = Grh::parse(&octets).unwrap();
        prop_assert!(parsed == grh || source.is_ipv6() && parsed.source.is_ipv4());
        // A sum of all words, including the checksum, of 0xFFFF proves the checksum.
        if source.is_ipv4() {
            let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(word[1]);
            let words = octets[20..].chunks(2).map(word);
            prop_assert_eq!(words.sum::<u32>() % 0xFFFF, 0);
        }
    }

    #[test]
    fn any_octets_in_front_of_a_datagram(halves in any::<[[u8; 20]; 2]>()) {
        let octets: [u8; 40] = halves.concat().try_into().unwrap();
        if let Some(grh) = Grh::parse(&octets) {
            prop_assert_eq!(grh.source.is_ipv4(), grh.destination.is_ipv4());
        }
    }

    #[test]
    fn any_octets_as_datagram((source, destination) in addresses(), hint in any::<u16>(), bytes in vec(any::<u8>(), 0..128)) {
        let icrc = Icrc::new(source, destination).unwrap();
        match icrc.recover(hint, &bytes) {
            Ok((packet, ip)) => prop_assert_eq!(icrc.verify(ip, &bytes), Ok(packet)),
            Err(IcrcError::Length { len }) => prop_assert!(len == bytes.len() && (len < 16 || len % 4 != 0)),
            Err(IcrcError::Mismatch) => prop_assert!(bytes.len() >= 16),
        }
    }
}

/// Returns the socket address with one bit of its IP address or its port changed.
fn flip(address: SocketAddr, bit: Index) -> SocketAddr {
    let mut ip = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut port = address.port();
    let bit = bit.index(ip.len() * 8 + 16);
    match ip.get_mut(bit / 8) {
        Some(octet) => *octet ^= 1 << (bit % 8),
        None => port ^= 1 << (bit % 16),
    }
    let ip = match <[u8; 4]>::try_from(&ip[..]) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(ip).unwrap()),
    };
    (ip, port).into()
}

fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<([u8; 4], [u8; 4], u16, u16)>()
        .prop_map(|(a, b, p, q)| ((a, p).into(), (b, q).into()));
    // The addresses are in 2000::/4, so that none is a mapped IPv4 address, even with one bit
    // changed.
    let v6 = any::<([u8; 16], [u8; 16], u16, u16)>().prop_map(|(mut a, mut b, p, q)| {
        (a[0], b[0]) = (a[0] & 0x0F | 0x20, b[0] & 0x0F | 0x20);
        (a[1], b[1]) = (a[1] | 3, b[1] | 3);
        ((a, p).into(), (b, q).into())
    });
    prop_oneof![v4, v6]
}

/// Random octets of a packet: a whole number of 32-bit words, at least as long as a BTH.
fn packet_octets() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<[u8; 4]>(), 3..300).prop_map(|words| words.concat())
}

fn headers() -> impl Strategy<Value = (Bth, Extension)> {
    let flags = any::<[bool; 5]>();
    let numbers = (any::<u16>(), 0..1_u32 << 24, 0..Psn::COUNT);
    (select(&Opcode::ALL[..]), flags, numbers).prop_flat_map(
        |(opcode, flags, (p_key, dest_qpn, psn))| {
            let [solicited, migrated, fecn, becn, ack_request] = flags;
            let psn = Psn::new(psn);
            let bth =
                Bth { opcode, solicited, migrated, p_key, fecn, becn, dest_qpn, ack_request, psn };
            (Just(bth), extension(opcode.extension_kind()))
        },
    )
}

fn extension(kind: ExtensionKind) -> BoxedStrategy<Extension> {
    let reth = any::<(u64, u32, u32)>().prop_map(|(va, r_key, len)| Reth { va, r_key, len });
    let aeth = (any::<u8>(), 0..1_u32 << 24)
        .prop_map(|(code, msn)| Aeth { syndrome: Syndrome::from_code(code), msn });
    let atomic = any::<(u64, u32, u64, u64)>().prop_map(|(va, r_key, swap_or_add, compare)| {
        AtomicEth { va, r_key, swap_or_add, compare }
    });
    let deth =
        (any::<u32>(), 0..1_u32 << 24).prop_map(|(q_key, source_qpn)| Deth { q_key, source_qpn });
    match kind {
        ExtensionKind::Nothing => Just(Extension::None).boxed(),
        ExtensionKind::Immediate => any::<u32>().prop_map(Extension::Immediate).boxed(),
        ExtensionKind::Invalidate => any::<u32>().prop_map(Extension::Invalidate).boxed(),
        ExtensionKind::Reth => reth.prop_map(Extension::Reth).boxed(),
        ExtensionKind::RethImmediate => (reth, any::<u32>())
            .prop_map(|(reth, number)| Extension::RethImmediate(reth, number))
            .boxed(),
        ExtensionKind::Aeth => aeth.prop_map(Extension::Aeth).boxed(),
        ExtensionKind::AtomicAck => (aeth, any::<u64>())
            .prop_map(|(aeth, original)| Extension::AtomicAck(aeth, AtomicAckEth { original }))
            .boxed(),
        ExtensionKind::Atomic => atomic.prop_map(Extension::Atomic).boxed(),
        ExtensionKind::Deth => deth.prop_map(Extension::Deth).boxed(),
        ExtensionKind::DethImmediate => (deth, any::<u32>())
            .prop_map(|(deth, number)| Extension::DethImmediate(deth, number))
            .boxed(),
        ExtensionKind::Reserved => Just(Extension::Reserved).boxed(),
    }
}
