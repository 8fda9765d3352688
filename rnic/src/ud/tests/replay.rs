//! Datagrams that were captured between two programs on kernel rxe.

use wire::rocev2::{Icrc, UDP_PORT};

use super::*;
use crate::rc::convert_immediate;
use crate::tests::capture;

/// A queue pair receives each captured datagram. A queue pair that sends the same payload sends the
/// same octets, except for the PSN, which each sender counts for itself, and the bit MigReq, which
/// rxe does not set.
#[test]
#[cfg_attr(miri, ignore = "not a test: Miri has no access to files")]
fn the_datagrams_of_the_captures() {
    let mut counts = Vec::new();
    for (name, file) in capture::captures(&capture::root("rocev2")) {
        let mut count = 0;
        for octets in datagrams(&file) {
            let packet = Packet::parse(octets).unwrap();
            let Bth { psn, migrated, dest_qpn, solicited, .. } = packet.bth;
            let (deth, immediate) = match packet.extension {
                Extension::Deth(deth) => (deth, None),
                Extension::DethImmediate(deth, data) => (deth, Some(convert_immediate(data))),
                _ => continue,
            };
            if deth.q_key == Deth::GSI_Q_KEY {
                continue;
            }
            count += 1;
            let cfg = UdCfg { q_key: deth.q_key, ..CFG };
            let end = || End::of(Queues::new(None, Arc::new(Keys::new())), cfg);
            let (mut to, mut from) = (end(), end());

            let (len, sink) = (packet.payload.len(), to.buf(HEADER_SIZE + packet.payload.len()));
            to.recv(1, &[sink.seg(0, HEADER_SIZE + len)]);
            to.take(octets).unwrap();
            assert_eq!(to.received(), [Wc { immediate, ..recv_wc(1, len) }], "{name}");
            assert_eq!(sink.octets(), [&HEADER, packet.payload].concat(), "{name}");

            let source = from.buf(len.max(1));
            source.octets_mut()[..len].copy_from_slice(packet.payload);
            let peer = Destination { qpn: dest_qpn, q_key: deth.q_key, ..PEER };
            let segments = [source.seg(0, len)];
            from.datagram(DatagramWr { to: peer, immediate, solicited, ..datagram(1, &segments) });
            from.ud.transmit(peer, deth.source_qpn, &mut from.burst).unwrap();
            let sent = from.sent().remove(0);
            let sent = Packet::parse(&sent).unwrap();
            let bth = Bth { psn, migrated, ..sent.bth };
            assert_eq!((bth, sent.extension), (packet.bth, packet.extension), "{name}");
            assert_eq!(sent.payload, packet.payload, "{name}");
        }
        if count > 0 {
            counts.push((name, count));
        }
    }
    let expected = [("rxe/ud-pingpong", 10), ("rxe/udaddy", 6)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
}

/// The RoCEv2 packets of a capture, without their ICRCs.
fn datagrams(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    const UDP: u8 = 17;
    let is_roce =
        |ip: &capture::Ip<'_>| ip.protocol == UDP && ip.payload[2..4] == UDP_PORT.to_be_bytes();
    capture::packets(file).filter(is_roce).map(|ip| &ip.payload[8..ip.payload.len() - Icrc::SIZE])
}
