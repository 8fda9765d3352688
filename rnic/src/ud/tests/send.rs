//! From posted datagrams to packets.

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use work::cause::{Cause, LocalUse, Refusal};

use super::*;

#[test]
fn the_octets_of_a_datagram() {
    let mut end = End::new();
    let buf = end.buf(8);
    buf.octets_mut().copy_from_slice(b"datagram");
    end.datagram(datagram(1, &[buf.seg(0, 5)]));
    let immediate = Some(u32::from_ne_bytes(*b"imm!"));
    end.datagram(DatagramWr { immediate, solicited: true, ..datagram(2, &[buf.seg(0, 8)]) });
    end.datagram(datagram(3, &[]));
    end.transmit(PEER).unwrap();
    assert_eq!(
        end.sent(),
        [
            // The opcode, MigReq and three octets of pad, the P_Key, the receiver, the PSN.
            b"\x64\x70\xFF\xFF\0\x44\x55\x66\0\0\0\0\x11\x22\x33\x44\0\x11\x22\x33datag\0\0\0"
                .to_vec(),
            b"\x65\xC0\xFF\xFF\0\x44\x55\x66\0\0\0\x01\x11\x22\x33\x44\0\x11\x22\x33imm!datagram"
                .to_vec(),
            b"\x64\x40\xFF\xFF\0\x44\x55\x66\0\0\0\x02\x11\x22\x33\x44\0\x11\x22\x33".to_vec(),
        ]
    );
    let done = |id, len| wc(id, WcOp::Send, len, WcStatus::Success);
    assert_eq!(end.completions(), [done(1, 5), done(2, 8), done(3, 0)]);
    assert_eq!(end.ud.stats(), &Stats { tx_datagrams: 3, ..Stats::default() });
    assert_eq!(end.qp.carried_out(), 3);
}

#[test]
fn completions_are_those_that_were_requested() {
    let mut end = End::new();
    assert!(arm(&end.requests, true));
    end.datagram(DatagramWr { signalled: false, ..datagram(1, &[]) });
    end.datagram(DatagramWr { quiet: true, ..datagram(2, &[]) });
    end.transmit(PEER).unwrap();
    assert_eq!(end.completions(), [wc(2, WcOp::Send, 0, WcStatus::Success)]);
    assert_eq!(end.ready.load(Ordering::Relaxed), 0);
    end.datagram(datagram(3, &[]));
    end.datagram(datagram(4, &[]));
    end.transmit(PEER).unwrap();
    assert_eq!(end.ready.load(Ordering::Relaxed), 1, "one event for the burst");
    assert_eq!(end.completions().len(), 2);
}

#[test]
fn a_burst_goes_to_one_address_by_one_route() {
    let mut end = End::new();
    let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 7));
    let IpAddr::V4(v4) = PEER.address else { panic!() };
    let mapped = IpAddr::V6(v4.to_ipv6_mapped());
    let other_half = IpAddr::V6(Ipv6Addr::new(0x2001, 0xDB8, 0, 1, 0, 0, 0, 7));
    let destinations = [
        Destination { qpn: 1, ..PEER },
        Destination { qpn: 0xFF_FFFF, q_key: 5, ..PEER },
        Destination { address: mapped, ..PEER },
        Destination { route: u32::MAX, ..PEER },
        Destination { address: v6, ..PEER },
        Destination { address: other_half, ..PEER },
        PEER,
    ];
    assert_eq!(end.ud.next(), None);
    end.transmit(PEER).unwrap();
    for (id, to) in destinations.into_iter().enumerate() {
        end.datagram(DatagramWr { to, immediate: Some(u32::MAX), ..datagram(id as u64, &[]) });
    }
    let mut sent = vec![];
    while let Some(to) = end.ud.next() {
        end.transmit(to).unwrap();
        let receivers: Vec<_> = end.sent().iter().map(|packet| receiver(packet)).collect();
        sent.push((to, receivers));
    }
    let [first, _, _, route, v6, other_half, last] = destinations;
    let alone = |to: Destination| (to, vec![(to.qpn, to.q_key)]);
    assert_eq!(
        sent,
        [
            (first, vec![(1, Q_KEY), (0xFF_FFFF, 5), (PEER.qpn, Q_KEY)]),
            alone(route),
            alone(v6),
            alone(other_half),
            alone(last)
        ]
    );
    end.datagram(datagram(9, &[]));
    end.transmit(Destination { route: 4, ..PEER }).unwrap();
    assert!(end.sent().is_empty(), "the way must be that of the oldest datagram");
    let to = Destination { address: mapped, qpn: 0, ..PEER };
    end.transmit(to).unwrap();
    assert_eq!(end.sent().len(), 1);
}

/// The queue pair of a packet, and its Q_Key.
fn receiver(packet: &[u8]) -> (u32, u32) {
    match Packet::parse(packet).unwrap() {
        Packet { bth, extension: Extension::DethImmediate(deth, _), .. } => {
            (bth.dest_qpn, deth.q_key)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_queue_pair_has_24_bits() {
    let mut end = End::new();
    end.datagram(DatagramWr { to: Destination { qpn: 0xFF00_0002, ..PEER }, ..datagram(1, &[]) });
    assert_eq!(end.ud.next(), Some(Destination { qpn: 2, ..PEER }));
    end.transmit(PEER).unwrap();
    assert_eq!(Packet::parse(&end.sent()[0]).unwrap().bth.dest_qpn, 2);
}

#[test]
fn the_partition_is_that_of_the_configuration() {
    let cfg = UdCfg { p_key: 0x8123, ..CFG };
    let mut end = End::of(Queues::new(None, Arc::new(Keys::new())), cfg);
    end.datagram(datagram(1, &[]));
    end.transmit(PEER).unwrap();
    let sent = end.sent().remove(0);
    assert_eq!(Packet::parse(&sent).unwrap().bth.p_key, 0x8123);
    end.recv(2, &[]);
    end.take(&packet(b"")).unwrap();
    assert_eq!(end.ud.stats().rx_wrong_p_key, 1);
}

#[test]
fn a_full_burst_leaves_the_rest_for_the_next() {
    // The first burst has room for 5 packets, the second one for the octets of 2 full packets.
    for (packets, octets, len, each) in [(5, 1 << 16, 10, 5), (64, 9000, 4096, 2)] {
        let mut end = End::new();
        end.burst = Burst::new(packets, octets);
        let buf = end.buf(len);
        for id in 0..12 {
            end.datagram(datagram(id, &[buf.seg(0, len)]));
        }
        let mut bursts = vec![];
        while let Some(to) = end.ud.next() {
            end.transmit(to).unwrap();
            end.transmit(to).unwrap();
            bursts.push(end.sent().len());
            assert_eq!(end.completions().len(), bursts[bursts.len() - 1]);
        }
        assert_eq!(bursts.iter().sum::<usize>(), 12);
        assert!(bursts.iter().rev().skip(1).all(|&burst| burst == each), "{bursts:?}");
    }
}

#[test]
fn a_datagram_longer_than_the_mtu_is_not_sent() {
    let cfg = UdCfg { mtu: PathMtu::Octets1024, ..CFG };
    let mut end = End::of(Queues::new(None, Arc::new(Keys::new())), cfg);
    let buf = end.buf(8192);
    for (id, len) in [(1, 1024), (2, 1025), (3, 8192), (4, 0)] {
        end.datagram(datagram(id, &[buf.seg(0, len)]));
    }
    end.transmit(PEER).unwrap();
    let psns: Vec<u32> =
        end.sent().iter().map(|packet| Packet::parse(packet).unwrap().bth.psn.value()).collect();
    assert_eq!(psns, [0, 3]);
    let done = |id, len| wc(id, WcOp::Send, len, WcStatus::Success);
    assert_eq!(end.completions(), [done(1, 1024), done(2, 1025), done(3, 8192), done(4, 0)]);
    assert_eq!(end.ud.stats(), &Stats { tx_datagrams: 2, tx_too_long: 2, ..Stats::default() });
}

#[test]
fn posts_are_checked() {
    let mut end = End::new();
    let buf = end.buf(10);
    let foreign = Buf::new(&end.keys, end.keys.pd(), 10, LOCAL);
    let read_only = Access { local_write: true, ..Access::default() };
    let sealed = Buf::new(&end.keys, end.pd, 10, read_only);
    let post = |segments: &[Segment]| end.try_datagram(datagram(1, segments));
    assert_eq!(post(&[buf.seg(1, 10)]), Err(PostError::Bounds));
    assert_eq!(post(&[Segment { key: !buf.key(), ..buf.seg(0, 1) }]), Err(PostError::Key));
    assert_eq!(post(&[foreign.seg(0, 1)]), Err(PostError::Domain));
    assert_eq!(post(&[sealed.seg(0, 1)]), Err(PostError::Access { write: false }));
    assert_eq!(post(&[buf.seg(0, 1); SEGMENTS + 1]), Err(PostError::Unsupported));
    assert_eq!(end.ud.next(), None, "none of these datagrams is queued");
    for _ in 0..256 {
        assert_eq!(post(&[buf.seg(0, 3), Segment::default(), buf.seg(3, 7)]), Ok(10));
    }
    assert_eq!(post(&[]), Err(PostError::Full));
    end.transmit(PEER).unwrap();
    end.datagram(datagram(1, &[]));
}

#[test]
fn memory_that_is_freed_before_it_is_sent() {
    let mut end = End::new();
    let causes = Arc::new(Mutex::new(vec![]));
    let seen = Arc::clone(&causes);
    end.ud.work_mut().watch_causes(move |cause| seen.lock().unwrap().push(cause));
    let (mut freed, buf) = (end.buf(10), end.buf(20));
    end.datagram(datagram(1, &[buf.seg(0, 20)]));
    end.datagram(datagram(2, &[buf.seg(0, 5), freed.seg(0, 10)]));
    end.datagram(datagram(3, &[buf.seg(0, 5)]));
    freed.mr = None;
    assert_eq!(end.transmit(PEER), Err(Failure::Local));
    let sent = end.sent();
    assert_eq!(sent.len(), 1, "the datagram before the failed one");
    assert_eq!(Packet::parse(&sent[0]).unwrap().payload.len(), 20);
    assert_eq!(end.completions(), [wc(1, WcOp::Send, 20, WcStatus::Success)]);
    let cause = Cause::LocalMemory { usage: LocalUse::Source, why: Refusal::Unknown };
    assert_eq!(*causes.lock().unwrap(), [cause]);

    assert_eq!(end.ud.next(), None);
    assert_eq!(end.transmit(PEER), Err(Failure::Local));
    assert_eq!(end.take(&packet(b"late")), Err(Failure::Local));
    end.recv(7, &[]);
    end.ud.flush();
    let failed = |id, status| wc(id, WcOp::Send, 0, status);
    assert_eq!(
        end.completions(),
        [failed(2, WcStatus::LocalProtection), failed(3, WcStatus::Flushed)]
    );
    assert_eq!(end.received(), [wc(7, WcOp::Recv, 0, WcStatus::Flushed)]);
    assert_eq!(end.ud.stats(), &Stats { tx_datagrams: 1, ..Stats::default() });
    assert!(end.sent().is_empty());
}

#[test]
fn a_request_that_is_no_datagram_ends_the_queue_pair() {
    let mut end = End::new();
    let buf = end.buf(100);
    let window = Mw::new(&end.keys, end.pd, true);
    let posts: [&dyn Fn(&End); 4] = [
        &|end| end.post(send(2, &[buf.seg(0, 10)])),
        &|end| end.post(write(2, &[buf.seg(0, 10)], buf.remote(0))),
        &|end| end.post(read(2, &[buf.seg(0, 10)], buf.remote(0))),
        &|end| assert_ne!(end.bind(2, &window, Some(buf.view(0, 10))), 0),
    ];
    for post in posts {
        let queues = Queues::of(None, end.pd, Arc::clone(&end.keys));
        end = End::of(queues, CFG);
        end.datagram(datagram(1, &[]));
        post(&end);
        end.datagram(datagram(3, &[]));
        assert_eq!(end.transmit(PEER), Err(Failure::Local));
        end.ud.flush();
        let done: Vec<_> = end.completions().iter().map(|wc| (wc.id, wc.status)).collect();
        let expected = [WcStatus::Success, WcStatus::LocalEp, WcStatus::Flushed];
        assert_eq!(done, [(1, expected[0]), (2, expected[1]), (3, expected[2])]);
        assert_eq!(end.sent().len(), 1);
    }
    // The request is also noticed if it is the first one.
    end = End::new();
    end.post(send(2, &[]));
    let to = end.ud.next().unwrap();
    assert!(to.address.is_unspecified());
    assert_eq!(end.transmit(to), Err(Failure::Local));
    drop(window);
}

#[test]
fn only_datagram_queue_pairs_accept_datagrams() {
    let (queues, work) = Queues::new(None, Arc::new(Keys::new()));
    assert_eq!(try_datagram(&queues.qp, datagram(1, &[])), Err(PostError::Unsupported));
    let ud = DatagramQp::new(work, CFG);
    assert_eq!(try_datagram(&queues.qp, datagram(1, &[])), Ok(0));
    let mut work = ud.into_work();
    work.flush();
    assert_eq!(queues.completions(), [wc(1, WcOp::Send, 0, WcStatus::Flushed)]);
}

#[test]
fn a_flushed_queue_pair_flushes_what_is_posted_later() {
    let mut end = End::new();
    end.ud.flush();
    end.datagram(datagram(1, &[]));
    assert_eq!((end.ud.next(), end.transmit(PEER)), (None, Err(Failure::Flushed)));
    end.ud.flush();
    assert_eq!(end.completions(), [wc(1, WcOp::Send, 0, WcStatus::Flushed)]);
    assert_eq!(end.qp.carried_out(), 0);
}

#[test]
#[ignore = "not a test: it measures the time of a datagram in the engine"]
fn what_a_datagram_takes() {
    for len in [0, 64, 1024, 4096] {
        let mut end = End::new();
        let (from, sink) = (end.buf(4096), end.buf(4096 + HEADER_SIZE));
        let (segments, place) = ([from.seg(0, len)], [sink.seg(0, len + HEADER_SIZE)]);
        let rounds = 2_000;
        let mut times = [Duration::ZERO; 2];
        for _ in 0..rounds {
            for id in 0..64 {
                end.datagram(datagram(id, &segments));
                end.recv(id, &place);
            }
            let start = Instant::now();
            end.transmit(PEER).unwrap();
            times[0] += start.elapsed();
            let packets = end.sent();
            let start = Instant::now();
            for packet in &packets {
                black_box(end.take(packet)).unwrap();
            }
            times[1] += start.elapsed();
            assert_eq!((end.completions().len(), end.received().len()), (64, 64));
        }
        let [sent, received] = times.map(|time| time / (64 * rounds));
        println!("{len} octets: {sent:?} to send, {received:?} to receive");
    }
}
