//! A peer that sends arbitrary octets causes no panic, and no octet is written outside of the
//! memory that the peer may write.

use wire::iwarp::{
    AtomicOp, AtomicRequest, AtomicResponse, Immediate, Placement, ReadRequest, TaggedOpcode,
};

use super::errors::{fpdu, read_frame, send_frame, tagged_frame, write_frame};
use super::extended::{atomic, atomic_response, immediate};
use super::*;

/// The sender's knowledge of the stream: the next MSNs.
struct Peer {
    send_msn: u32,
    read_msn: u32,
}

/// A frame that is valid or nearly valid. `targets` are the keys and first octets that the peer
/// knows.
fn frame(rng: &mut Rng, peer: &mut Peer, targets: &[(u32, u64)], crc: bool) -> Vec<u8> {
    let mut payload = vec![0xEE; rng.below(150)];
    let (offset, last) = (rng.below(270) as u64, !rng.chance(8));
    let (key, addr) = targets[rng.below(targets.len())];
    let body = match rng.below(9) {
        6 => {
            peer.send_msn += 1;
            immediate(peer.send_msn, Immediate(rng.next() as u32))
        }
        7 => {
            peer.read_msn += 1;
            let op = match rng.chance(2) {
                true => AtomicOp::FetchAdd { add: rng.next(), mask: rng.next() },
                false => AtomicOp::cmp_swap(0, rng.next()),
            };
            let offset = if rng.chance(8) { offset } else { offset & !7 };
            atomic(peer.read_msn, AtomicRequest { id: 1, stag: key, to: addr + offset, op })
        }
        8 if rng.chance(3) => atomic_response(1, AtomicResponse { id: 2, original: rng.next() }),
        0 | 1 => {
            peer.send_msn += 1;
            let mut body = send_frame(peer.send_msn, u32::from(rng.chance(20)), last, &payload);
            if rng.chance(10) {
                // The SEND invalidates a key: the key of a window or of a region, or a key that is
                // no longer valid.
                body[1] += 1;
                body[2..6].copy_from_slice(&key.to_be_bytes());
            }
            body
        }
        2 | 3 => write_frame(key, addr + offset, last, &payload),
        4 => {
            let request = ReadRequest {
                sink_stag: rng.next() as u32,
                sink_to: rng.next(),
                len: rng.below(150) as u32,
                source_stag: key,
                source_to: addr + offset,
            };
            peer.read_msn += 1;
            read_frame(peer.read_msn, request)
        }
        _ if rng.chance(3) => {
            rng.fill(&mut payload);
            let to = (rng.next() as u32, rng.next());
            tagged_frame(TaggedOpcode::ReadResponse, Placement::Unsaid, to, last, &payload)
        }
        // A report of placed writes: of a plausible number, with a payload that it must not have.
        _ if rng.chance(3) => {
            let to = (0, rng.below(4) as u64);
            let payload = if rng.chance(4) { &payload[..] } else { &[] };
            tagged_frame(TaggedOpcode::Write, Placement::Reported, to, last, payload)
        }
        _ => write_frame(0, 0, true, &[]),
    };
    let mut octets = fpdu(&body, false);
    let mutations = if rng.chance(4) { 1 + rng.below(3) } else { 0 };
    for _ in 0..mutations {
        let at = rng.below(octets.len().min(50));
        match rng.below(3) {
            0 => octets[at] ^= 1 << rng.below(8),
            1 => octets[at] = rng.next() as u8,
            _ => octets.truncate(at.max(1)),
        }
    }
    if crc && octets.len() > 6 && !rng.chance(20) {
        // The CRC is corrected, because otherwise the stream would not process the rest.
        let body = octets[2..].to_vec();
        octets = fpdu(&body[..body.len() - 4], true);
    }
    octets
}

#[test]
fn a_hundred_thousand_frames() {
    const FRAMES: usize = if cfg!(miri) { 100 } else { 100_000 };
    let mut rng = Rng(2026);
    let keys = Arc::new(Keys::new());
    let srq_pd = keys.pd();
    let open = Buf::new(&keys, srq_pd, 400, ALL);
    let sink = Buf::new(&keys, srq_pd, 400, LOCAL);
    let closed = Buf::new(&keys, srq_pd, 400, LOCAL);
    // Peers can access 100 octets of this memory, through a window.
    let shown = Buf::new(&keys, srq_pd, 400, LOCAL);
    let access = Access { remote_atomic: false, ..ALL };
    let view = View { zero_based: true, access, ..shown.view(200, 100) };
    let (mut frames, mut ends, mut taken, mut invalidated, mut rebound) = (0, 0, 0, 0, 0);
    while frames < FRAMES {
        let cfg = StreamCfg {
            crc: rng.chance(3),
            extended: !rng.chance(4),
            completes_placed: true,
            ..cfg()
        };
        let srq = Arc::new(Srq::new(&keys, srq_pd, 4, SEGMENTS, || {}).unwrap());
        for id in 0..4 {
            let segments = [sink.seg(0, 100), sink.seg(100, 150)];
            share(&srq, id, &segments).unwrap();
        }
        let mut side = Side::with_srq(cfg, Some((srq, srq_pd)), Arc::clone(&keys));
        let window = Mw::new(&keys, srq_pd, rng.chance(2));
        let mut posted = 1;
        let mut targets = vec![(open.key(), open.addr()), (side.bind(0, &window, Some(view)), 0)];
        let target = Remote { addr: 0, key: 1 };
        // These requests delay all further binds until they have been answered.
        if rng.chance(2) {
            side.post(read(1, &[sink.seg(250, 90)], target));
            posted += 1;
            if cfg.extended {
                side.post(fetch_add(2, &[sink.seg(340, 8)], target, 1));
                posted += 1;
            }
        }
        let mut peer = Peer { send_msn: 0, read_msn: 0 };
        for _ in 0..50 {
            frames += 1;
            if rng.chance(10) {
                targets.push((side.bind(3, &window, rng.chance(2).then_some(view)), 0));
                posted += 1;
            }
            let octets = if rng.chance(20) {
                let mut noise = vec![0; 1 + rng.below(100)];
                rng.fill(&mut noise);
                noise
            } else {
                frame(&mut rng, &mut peer, &targets, cfg.crc)
            };
            let result = match rng.chance(2) {
                true => side.stream.rx_octets(&octets),
                // The octets come in two portions. If the second portion has a known destination in
                // memory, it is read directly to that destination.
                false => feed_in_portions(&mut side, &octets, &mut rng),
            };
            let result = result.and_then(|()| {
                let n = side.stream.tx(&mut side.tx)?;
                let accepted = rng.below(n + 1);
                side.stream.tx_done(&mut side.tx, accepted);
                Ok(())
            });
            if let Err(failure) = result {
                ends += 1;
                let words = side.stream.terminate();
                assert!(!failure.by_peer || words.is_empty());
                break;
            }
        }
        side.stream.flush();
        taken += side.stream.stats().rx_messages;
        let done = side.completions();
        assert_eq!(done.len(), posted);
        rebound += done.iter().filter(|wc| (wc.id, wc.status) == (3, WcStatus::Success)).count();
        invalidated += side.received().iter().filter(|wc| wc.invalidated.is_some()).count();
        drop(window);
        assert_eq!(keys.live(), 4, "no key of a window or bind may be left");
        shown.assert_guarded();
        assert!(
            shown.octets()[..200].iter().chain(&shown.octets()[300..]).all(|&octet| octet == 0)
        );
        open.assert_guarded();
        sink.assert_guarded();
        assert!(sink.octets()[350..].iter().all(|&octet| octet == 0));
        assert!(closed.octets().iter().all(|&octet| octet == 0));
    }
    if FRAMES < 100_000 {
        return;
    }
    // The frames are chosen so that many of them end the stream and many messages are received.
    assert!(ends > 10_000 && taken > 25_000, "{ends} streams failed, {taken} messages");
    assert!(invalidated > 100 && rebound > 1_000, "{invalidated} invalidations, {rebound} binds");
    // Some frames have been mutated.
    let written = shown.octets()[200..300].iter().filter(|&&octet| octet == 0xEE).count();
    assert!(written > 80, "{written} octets of the window were written");
}

fn feed_in_portions(side: &mut Side, octets: &[u8], rng: &mut Rng) -> Result<(), Failure> {
    let (first, second) = octets.split_at(1 + rng.below(octets.len()));
    for mut rest in [first, second] {
        while !rest.is_empty() {
            side.stream.rx(&mut side.rx)?;
            let n = scatter(&side.rx, rest);
            side.stream.rx_done(&mut side.rx, n)?;
            rest = &rest[n..];
        }
    }
    Ok(())
}
