//! Peers send arbitrary packets. The engine does not panic, does not fail, and writes no octet
//! outside the posted receive buffers.

use super::*;

const PACKETS: usize = if cfg!(miri) { 300 } else { 100_000 };

/// A datagram that is valid or nearly valid, or arbitrary octets.
fn random_packet(rng: &mut Rng) -> Vec<u8> {
    let len = rng.below(300);
    let mut octets = packet(&vec![0xEE; len]);
    if rng.chance(3) {
        let deth = Deth { q_key: Q_KEY, source_qpn: rng.next() as u32 & 0xFF_FFFF };
        let bth = Bth::new(Opcode::DatagramSendOnlyImmediate, QPN, Psn::new(1));
        octets = of_bth(bth, Extension::DethImmediate(deth, 1), &vec![0xEE; len]);
    }
    match rng.below(6) {
        0 => {
            let at = rng.below(octets.len());
            octets[at] ^= 1 << rng.below(8);
        }
        1 => octets.truncate(rng.below(octets.len())),
        2 => {
            octets.truncate(rng.below(64));
            rng.fill(&mut octets);
        }
        3 => octets[0] = Opcode::ALL[rng.below(Opcode::ALL.len())].code(),
        _ => {}
    }
    octets
}

#[test]
fn arbitrary_packets() {
    let mut rng = Rng(64);
    let mut end = End::new();
    let sink = end.buf(1024);
    // The receives use this part of the region.
    let (start, room) = (100, 300);
    let (mut posted, mut received, mut parsed) = (0u64, 0, 0);
    for _ in 0..PACKETS {
        if rng.chance(2) && posted - received < 4 {
            let at = start + rng.below(room);
            let segments = [sink.seg(at, rng.below(start + room - at)), sink.seg(start, room)];
            end.recv(posted, &segments[rng.below(2)..]);
            posted += 1;
        }
        if let Ok(packet) = Packet::parse(&random_packet(&mut rng)) {
            end.ud.receive(&packet, HOST, &HEADER).unwrap();
            parsed += 1;
        }
        for wc in end.received() {
            assert_eq!((wc.id, wc.status), (received, WcStatus::Success));
            assert!(wc.bytes as usize >= HEADER_SIZE);
            received += 1;
        }
    }
    let stats = end.ud.stats();
    assert_eq!(stats.list().iter().map(|(_, count)| count).sum::<u64>(), parsed);
    assert_eq!((stats.rx_datagrams, stats.rx_failed), (received, 0));
    if PACKETS > 1000 {
        let others = [stats.rx_wrong_opcode, stats.rx_wrong_p_key, stats.rx_wrong_q_key];
        assert!(others.iter().all(|&count| count > 100), "{stats:?}");
        assert!(stats.rx_no_receive > 100 && stats.rx_too_long > 100, "{stats:?}");
    }
    end.ud.flush();
    assert_eq!(end.received().len() as u64, posted - received);
    let octets = sink.octets();
    assert!(octets[..start].iter().chain(&octets[start + room..]).all(|&octet| octet == 0));
}
