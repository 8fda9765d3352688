//! A peer sends arbitrary packets. The engine does not panic, and it writes no octet outside the
//! memory that the peer may write.

use wire::rocev2::{AtomicAckEth, AtomicEth, NakCode};

use super::*;
use crate::{Mw, Remote, Segment, View, WcStatus};

/// A packet that is valid or nearly valid. `psn` is the expected PSN; `targets` is the memory that
/// the peer knows.
fn random_packet(rng: &mut Rng, psn: Psn, sq_psn: Psn, targets: &[Remote]) -> Vec<u8> {
    // Packets of UC are rare, because the engine ignores them.
    let opcode = loop {
        let opcode = Opcode::ALL[rng.below(Opcode::ALL.len())];
        if !opcode.is_uc() || rng.chance(20) {
            break opcode;
        }
    };
    let answers = opcode.is_response();
    let near = if answers { sq_psn + rng.below(6) as u32 } else { psn };
    let psn = match rng.below(8) {
        0 => near - rng.below(6) as u32,
        1 => near + rng.below(6) as u32,
        2 if rng.chance(8) => Psn::new(rng.next() as u32),
        _ => near,
    };
    let Remote { addr, key: r_key } = targets[rng.below(targets.len())];
    let va = addr.wrapping_add(rng.below(300) as u64);
    let va = if rng.chance(3) { va & !7 } else { va };
    let len = match opcode.position() {
        wire::rocev2::Position::First | wire::rocev2::Position::Middle if !rng.chance(10) => OCTETS,
        _ => rng.below(OCTETS + 10),
    };
    let payload = vec![0xEE; if opcode.has_payload() { len } else { 0 }];
    let whole = if rng.chance(2) { len } else { OCTETS + rng.below(OCTETS) };
    let reth =
        Reth { va, r_key, len: if rng.chance(50) { rng.next() as u32 } else { whole as u32 } };
    let aeth = Aeth {
        syndrome: match rng.below(12) {
            0 => Syndrome::Rnr(RnrTimer::from_code(rng.next() as u8)),
            1 => Syndrome::Nak(NakCode::SequenceError),
            2 if rng.chance(4) => Syndrome::from_code(rng.next() as u8),
            _ => Syndrome::ACK,
        },
        msn: 0,
    };
    use wire::rocev2::ExtensionKind;
    let number = rng.next() as u32;
    let extension = match opcode.extension_kind() {
        ExtensionKind::Nothing => Extension::None,
        ExtensionKind::Immediate => Extension::Immediate(number),
        ExtensionKind::Invalidate => Extension::Invalidate(r_key),
        ExtensionKind::Reth => Extension::Reth(reth),
        ExtensionKind::RethImmediate => Extension::RethImmediate(reth, number),
        ExtensionKind::Aeth => Extension::Aeth(aeth),
        ExtensionKind::AtomicAck => {
            Extension::AtomicAck(aeth, AtomicAckEth { original: rng.next() })
        }
        ExtensionKind::Atomic => {
            let [swap_or_add, compare] = [rng.next(), 0];
            Extension::Atomic(AtomicEth { va, r_key, swap_or_add, compare })
        }
        ExtensionKind::Deth | ExtensionKind::DethImmediate | ExtensionKind::Reserved => {
            return packet(Opcode::SendOnly, psn, Extension::None, b"abc");
        }
    };
    packet(opcode, psn, extension, &payload)
}

#[test]
fn a_hundred_thousand_packets() {
    const PACKETS: usize = if cfg!(miri) { 100 } else { 100_000 };
    let mut rng = Rng(2026);
    let mut now = Instant::now();
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let open = Buf::new(&keys, pd, 800, ALL);
    let sink = Buf::new(&keys, pd, 1000, LOCAL);
    let closed = Buf::new(&keys, pd, 400, LOCAL);
    // Peers can access 100 octets of this memory, through a window.
    let shown = Buf::new(&keys, pd, 400, LOCAL);
    let view = View { zero_based: true, ..shown.view(200, 100) };
    let (mut packets, mut ends, mut taken, mut answered, mut invalidated) = (0, 0, 0, 0, 0);
    let mut answered_again = 0;
    while packets < PACKETS {
        let srq = Arc::new(Srq::new(&keys, pd, 4, SEGMENTS, || {}).unwrap());
        for id in 0..4 {
            let segments: [Segment; 2] = [sink.seg(0, 100), sink.seg(100, 350)];
            share(&srq, id, &segments).unwrap();
        }
        let mut cfg = cfg(1);
        cfg.responder_resources = rng.below(4) as u32;
        let mut side = Side::with_srq(cfg, Some((srq, pd)), Arc::clone(&keys), now);
        let window = Mw::new(&keys, pd, rng.chance(2));
        let key = side.bind(0, &window, Some(view));
        let targets = [
            open.remote(0),
            open.remote(500),
            Remote { addr: 0, key },
            closed.remote(0),
            Remote::default(),
        ];
        let mut posted = 1;
        if rng.chance(2) {
            side.post(send(1, &[sink.seg(0, 300)]));
            side.post(read(2, &[sink.seg(450, 400)], targets[0]));
            side.post(fetch_add(3, &[sink.seg(850, 8)], targets[0], 1));
            posted += 3;
        }
        let mut expected = cfg.rq_psn;
        for _ in 0..50 {
            packets += 1;
            let mut octets = random_packet(&mut rng, expected, cfg.sq_psn, &targets);
            for _ in 0..if rng.chance(8) { 1 + rng.below(3) } else { 0 } {
                let at = rng.below(octets.len().min(40));
                octets[at] ^= 1 << rng.below(8);
            }
            let Ok(packet) = Packet::parse(&octets) else { continue };
            if packet.bth.psn == expected && packet.bth.opcode.is_request() {
                expected = match packet.extension {
                    Extension::Reth(reth) if packet.bth.opcode == Opcode::ReadRequest => {
                        expected + MTU.packets(reth.len)
                    }
                    _ => expected.next(),
                };
            }
            now += Duration::from_micros(rng.below(3000) as u64);
            if rng.chance(50) {
                side.rc.start_peer_close(now);
            }
            let result = side.rc.receive(now, &packet).and_then(|()| {
                if rng.chance(2) {
                    side.rc.acknowledge(&mut side.burst);
                }
                side.rc.transmit(now, &mut side.burst)?;
                answered += side.sent().len();
                side.rc.expire(now)
            });
            if result.is_err() {
                ends += 1;
                side.rc.transmit_fatal_nak(&mut side.burst);
                break;
            }
        }
        taken += side.rc.stats().rx_messages;
        let Side { queues: side, rc, mut burst, .. } = side;
        let (mut rest, memory) =
            (rc.into_ack_only_responder(), [&open, &sink, &shown].map(|buf| buf.octets().to_vec()));
        for _ in 0..10 {
            let octets = random_packet(&mut rng, expected - 2, cfg.sq_psn, &targets);
            burst.clear();
            rest.receive(&Packet::parse(&octets).unwrap());
            rest.transmit(&mut burst);
            answered_again += burst.lens().len();
        }
        assert!(
            [&open, &sink, &shown].map(|buf| buf.octets().to_vec()) == memory,
            "the packets must not change any memory"
        );
        let done = side.completions();
        assert_eq!(done.len(), posted);
        assert!(done.iter().map(|wc| wc.id).eq(0..posted as u64), "receives complete in order");
        let successes = done.iter().take_while(|wc| wc.status == WcStatus::Success).count();
        let failures = done[successes..].iter().filter(|wc| wc.status != WcStatus::Flushed);
        assert!(failures.count() <= 1, "one request fails, and later ones are flushed");
        invalidated += side.received().iter().filter(|wc| wc.invalidated.is_some()).count();
        drop(window);
        assert_eq!(keys.live(), 4, "keys of windows or binds have leaked");
        shown.assert_guarded();
        assert!(
            shown.octets()[..200].iter().chain(&shown.octets()[300..]).all(|&octet| octet == 0)
        );
        open.assert_guarded();
        sink.assert_guarded();
        assert!(sink.octets()[858..].iter().all(|&octet| octet == 0));
        assert!(closed.octets().iter().all(|&octet| octet == 0));
    }
    if PACKETS < 100_000 {
        return;
    }
    // The test is useful only if the packets cause many of these events.
    assert!(ends > 5_000 && taken > 10_000, "only {ends} failures and {taken} messages occurred");
    assert!(
        answered > 20_000 && invalidated > 100,
        "only {answered} packets were sent, with {invalidated} invalidations"
    );
    assert!(answered_again > 5_000, "only {answered_again} packets were sent after the end");
    let written = shown.octets()[200..300].iter().filter(|&&octet| octet == 0xEE).count();
    assert!(written > 50, "{written} octets of the window were written");
}

/// A stranger who does not know the PSNs sends packets. They have no effect, and they are answered
/// only as the standard requires.
#[test]
fn a_forged_packet_changes_nothing() {
    let mut pair = Pair::new();
    let [source, sink] = [pair.a.buf(20 * OCTETS).filled(&mut Rng(1)), pair.b.buf(20 * OCTETS)];
    pair.a.post(write(1, &[source.seg(0, 20 * OCTETS)], sink.remote(0)));
    let mut rng = Rng(5);
    let none = Remote { addr: sink.addr(), key: !sink.key() };
    while pair.a.rc.work().has_requests() {
        for side in [&mut pair.a, &mut pair.b] {
            // The PSN differs by at least some thousands from the PSNs in use.
            let psn = Psn::new(0x10_0000 + rng.below(0xD0_0000) as u32);
            let forged = random_packet(&mut rng, psn, psn, &[none]);
            side.take(pair.now, &forged).unwrap();
        }
        pair.step().unwrap();
    }
    pair.drive().unwrap();
    assert_eq!(sink.octets(), source.octets());
    assert_eq!(pair.a.completions().len(), 1);
    assert_eq!(pair.b.rc.stats().rx_messages, 1);
    assert_eq!(pair.a.rc.stats().rx_messages, 0);
}
