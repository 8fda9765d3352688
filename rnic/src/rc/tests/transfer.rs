//! Tests of transfers over a network that loses no packets.

use std::sync::atomic::Ordering;

use wire::rocev2::NakCode;

use super::*;
use crate::{Mw, RecvWr, Remote, SendOp, SendWr, WcOp, WcStatus};

#[test]
fn a_send_a_write_and_a_read_of_each_size() {
    for len in
        [0, 1, 3, OCTETS - 1, OCTETS, OCTETS + 1, 2 * OCTETS, 5 * OCTETS + 7, 100 * OCTETS + 1]
    {
        if cfg!(miri) && len > 2 * OCTETS {
            continue;
        }
        let mut pair = Pair::new();
        let mut rng = Rng(len as u64);
        let [source, read_into] = [pair.a.buf(len + 8).filled(&mut rng), pair.a.buf(len + 8)];
        let [sink, target] = [pair.b.buf(len + 8), pair.b.buf(len + 8)];
        pair.b.recv(1, &[sink.seg(0, len / 3), sink.seg(len / 3, len - len / 3 + 8)]);
        pair.a.post(send(2, &[source.seg(0, len / 2), source.seg(len / 2, len - len / 2)]));
        pair.a.post(write(3, &[source.seg(0, len)], target.remote(0)));
        pair.a.post(read(4, &[read_into.seg(0, len)], target.remote(0)));
        pair.drive().unwrap();
        assert_eq!(sink.octets()[..len], source.octets()[..len], "{len}");
        assert_eq!(target.octets()[..len], source.octets()[..len], "{len}");
        assert_eq!(read_into.octets()[..len], source.octets()[..len], "{len}");
        for buf in [&sink, &target, &read_into] {
            assert_eq!(buf.octets()[len..], [0; 8]);
        }
        let done = [(2, WcOp::Send), (3, WcOp::Write), (4, WcOp::Read)];
        assert_eq!(pair.a.completions(), done.map(|(id, op)| wc(id, op, len, WcStatus::Success)));
        assert_eq!(pair.b.received(), [wc(1, WcOp::Recv, len, WcStatus::Success)]);
        assert!(pair.a.rc.is_drained() && pair.b.rc.is_drained());
        assert_eq!(pair.a.rc.stats().sent_again, 0);
    }
}

/// A completion is not solicited if its request or receive was posted quiet. In this test a
/// receive's own flag counts, and not the sender's. A completion that is not solicited does not
/// wake a program that waits for solicited completions.
#[test]
fn what_was_posted_quiet_wakes_nobody() {
    let now = Instant::now();
    let a = Side::new(cfg(1), now);
    let (queues, mut work) = Queues::new(None, Arc::new(Keys::new()));
    work.solicit_all_receives();
    let b = Side::of((queues, work), cfg(0), now);
    let mut pair = Pair { a, b, start: now, now };
    for (quiet, id) in [(true, 1), (false, 2), (true, 3)] {
        // SAFETY: the test runs in one thread.
        unsafe {
            pair.b.qp.post_recv(&RecvWr { id, segments: &[], quiet }).unwrap();
            assert!(pair.a.requests.arm(true) && pair.b.recvs.arm(true));
        }
        // The sender's solicited flag has no effect here.
        pair.a.post(SendWr { quiet, solicited: quiet, ..send(id, &[]) });
        let ready =
            |pair: &Pair| [&pair.a, &pair.b].map(|side| side.ready.swap(0, Ordering::Relaxed));
        pair.drive().unwrap();
        assert_eq!(ready(&pair), [usize::from(!quiet); 2], "{id}");
        assert_eq!((pair.a.completions().len(), pair.b.received().len()), (1, 1));
    }
}

#[test]
fn a_refusal_reaches_the_requester() {
    type Case = (WcStatus, NakCode, fn(&Pair, &Buf, &Buf));
    let cases: [Case; 4] = [
        (WcStatus::RemoteAccess, NakCode::RemoteAccess, |pair, near, far| {
            pair.a.post(write(1, &[near.seg(0, 600)], Remote { key: !far.key(), ..far.remote(0) }));
        }),
        (WcStatus::RemoteAccess, NakCode::RemoteAccess, |pair, near, far| {
            pair.a.post(read(1, &[near.seg(0, 600)], far.remote(500)));
        }),
        (WcStatus::RemoteResponder, NakCode::InvalidRequest, |pair, near, far| {
            pair.a.post(fetch_add(1, &[near.seg(0, 8)], far.remote(4), 1));
        }),
        (WcStatus::RemoteResponder, NakCode::InvalidRequest, |pair, near, far| {
            pair.b.recv(7, &[far.seg(0, 599)]);
            pair.a.post(send(1, &[near.seg(0, 600)]));
        }),
    ];
    for (status, code, post) in cases {
        let mut pair = Pair::new();
        let (near, far) = (pair.a.buf(600), pair.b.buf(600));
        pair.a.post(write(0, &[near.seg(0, 600)], far.remote(0)));
        post(&pair, &near, &far);
        pair.a.post(write(2, &[near.seg(0, 600)], far.remote(0)));
        assert_eq!(pair.drive(), Err(('b', Failure::Refusing(code))));
        pair.b.end(pair.now);
        let failure = loop {
            match pair.a.run(pair.now, &mut pair.b.channel) {
                Ok(_) => pair.now += Duration::from_millis(1),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure, Failure::Refused(code));
        pair.a.end(pair.now);
        let [requests, _, _, receives] = all(&pair);
        let statuses = [WcStatus::Success, status, WcStatus::Flushed];
        assert!(requests.iter().map(|wc| wc.status).eq(statuses), "{requests:?}");
        assert!(receives.iter().all(|wc| wc.status == WcStatus::LocalLength));
    }
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_peer_that_is_killed() {
    let far_away = Conditions { delay: Duration::from_millis(1), ..Conditions::default() };
    let mut pair = Pair::new().over(&far_away);
    let (near, far) = (pair.a.buf(1000 * OCTETS), pair.b.buf(1000 * OCTETS));
    for id in 0..3 {
        pair.a.post(read(id, &[near.seg(0, 1000 * OCTETS)], far.remote(0)));
    }
    for _ in 0..20 {
        pair.step().unwrap();
    }
    let mut pair =
        pair.over(&Conditions { loss: netem::Probability::ALWAYS, ..Conditions::default() });
    let killed = pair.now;
    assert_eq!(pair.drive(), Err(('a', Failure::Silent)));
    // The time is eight timeouts of 537 ms, counted from the last packet of the peer.
    assert!((4290..=4294).contains(&(pair.now - killed).as_millis()), "{:?}", pair.now - killed);
    pair.a.end(pair.now);
    let statuses = pair
        .a
        .completions()
        .into_iter()
        .map(|wc| wc.status)
        .skip_while(|&s| s == WcStatus::Success);
    assert_eq!(statuses.take(1).collect::<Vec<_>>(), [WcStatus::Transport]);
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_peer_that_reads_leaves_room_for_requests() {
    let mut pair = Pair::with(|cfg| cfg.window = 1024);
    let (near, far) = (pair.a.buf(500 * OCTETS), pair.b.buf(500 * OCTETS));
    pair.b.post(read(0, &[far.seg(0, 500 * OCTETS)], near.remote(0)));
    pair.b.rc.transmit(pair.now, &mut pair.b.burst).unwrap();
    for request in pair.b.sent() {
        pair.a.take(pair.now, &request).unwrap();
    }
    pair.a.post(write(1, &[near.seg(0, 500 * OCTETS)], far.remote(0)));
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    let words = words(&pair.a.sent());
    let responses = words.iter().filter(|packet| packet.contains("READ response")).count();
    assert_eq!((responses, words.len()), (48, 64));
    // The responses come before the requests in the burst.
    assert!(words[..48].iter().all(|packet| packet.contains("READ response")));
}

#[test]
fn solicited_completions_wake() {
    let mut pair = Pair::new();
    let (near, far) = (pair.a.buf(8), pair.b.buf(8));
    for id in 0..4 {
        pair.b.recv(id, &[far.seg(0, 8)]);
    }
    assert!(arm(&pair.b.recvs, true));
    pair.a.post(send(1, &[near.seg(0, 8)]));
    pair.a.post(write_imm(2, &[near.seg(0, 8)], far.remote(0), 1));
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 0);
    pair.a.post(SendWr { solicited: true, ..send(3, &[near.seg(0, 8)]) });
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 1);
    pair.b.received();
    assert!(arm(&pair.b.recvs, true));
    pair.a.post(SendWr { solicited: true, ..write_imm(4, &[near.seg(0, 8)], far.remote(0), 1) });
    pair.drive().unwrap();
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 2);
}

#[test]
fn a_send_takes_immediate_data_along() {
    let mut pair = Pair::new();
    let len = 3 * OCTETS;
    let (near, far) = (pair.a.buf(len).filled(&mut Rng(5)), pair.b.buf(len));
    pair.b.recv(1, &[far.seg(0, len)]);
    pair.b.recv(2, &[]);
    assert!(arm(&pair.b.recvs, true));
    pair.a.post(request(3, SendOp::SendImm { immediate: 0xABCD }, &[near.seg(0, len)]));
    pair.drive().unwrap();
    assert_eq!(pair.a.completions(), [wc(3, WcOp::Send, len, WcStatus::Success)]);
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 0);
    let empty = request(4, SendOp::SendImm { immediate: 7 }, &[]);
    pair.a.post(SendWr { solicited: true, ..empty });
    pair.drive().unwrap();
    assert_eq!(pair.a.completions(), [wc(4, WcOp::Send, 0, WcStatus::Success)]);
    assert_eq!(pair.b.ready.load(Ordering::Relaxed), 1);
    let received = |id, octets, immediate| {
        let wc = wc(id, WcOp::RecvMessageImm, octets, WcStatus::Success);
        Wc { immediate: Some(immediate), ..wc }
    };
    assert_eq!(pair.b.received(), [received(1, len, 0xABCD), received(2, 0, 7)]);
    assert_eq!(far.octets(), near.octets());
}

#[test]
fn a_window_opens_and_closes_memory_to_the_peer() {
    let mut pair = Pair::new();
    let (near, shown) = (pair.a.buf(64).filled(&mut Rng(3)), pair.b.buf(64));
    let window = Mw::new(&pair.b.keys, pair.b.pd, true);
    let key = pair.b.bind(0, &window, Some(shown.view(16, 16)));
    pair.drive().unwrap();
    pair.b.recv(0, &[]);
    pair.a.post(write(1, &[near.seg(0, 16)], Remote { addr: shown.addr() + 16, key }));
    pair.a.post(request(2, SendOp::Send { invalidate: Some(key) }, &[]));
    pair.drive().unwrap();
    assert_eq!(shown.octets()[16..32], near.octets()[..16]);
    let received = wc(0, WcOp::Recv, 0, WcStatus::Success);
    assert_eq!(pair.b.received(), [Wc { invalidated: Some(key), ..received }]);
    pair.a.post(write(3, &[near.seg(0, 1)], Remote { addr: shown.addr() + 16, key }));
    assert_eq!(pair.drive(), Err(('b', Failure::Refusing(NakCode::RemoteAccess))));
}

/// A network that loses packets because too many are sent.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_bottleneck_with_a_short_queue() {
    let conditions = Conditions {
        delay: Duration::from_micros(100),
        rate: std::num::NonZeroU64::new(100_000_000),
        limit: 20,
        ..Conditions::default()
    };
    let mut pair =
        Pair::with(|cfg| (cfg.mtu, cfg.ip_mtu, cfg.window) = (PathMtu::Octets1024, 1500, 1024))
            .over(&conditions);
    let (near, far) = (pair.a.buf(4 << 20).filled(&mut Rng(4)), pair.b.buf(4 << 20));
    pair.a.post(write(1, &[near.seg(0, 4 << 20)], far.remote(0)));
    pair.drive().unwrap();
    assert_eq!(near.octets(), far.octets());
    let stats = pair.a.rc.stats();
    assert!(stats.sent_again * 2 < stats.tx_packets, "{stats:?}");
    let rate = (4 << 20) as f64 * 8.0 / pair.elapsed().as_secs_f64();
    assert!(rate > 60e6, "only {rate} bit/s were reached, and the link has 1e8 bit/s");
}

/// In verbs, immediate data are four octets. OFED's DAPL passes the octets of the program's number
/// in the byte order of the machine, so a peer with the same byte order gets the same number.
#[test]
fn immediate_data_travel_as_they_are_in_memory() {
    let mut pair = Pair::new();
    let (near, far) = (pair.a.buf(8), pair.b.buf(8));
    pair.b.recv(1, &[]);
    let immediate = u32::from_ne_bytes(*b"abcd");
    let to = far.remote(0);
    pair.a
        .post(SendWr { op: SendOp::WriteImm { to, immediate }, ..write(2, &[near.seg(0, 8)], to) });
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    let sent = pair.a.sent();
    let Extension::RethImmediate(_, number) = Packet::parse(&sent[0]).unwrap().extension else {
        panic!("no immediate data")
    };
    assert_eq!(number.to_be_bytes(), *b"abcd");
    pair.b.take(pair.now, &sent[0]).unwrap();
    assert_eq!(pair.b.received()[0].immediate, Some(immediate));
}

/// A peer that posts no receive costs one packet in each RNR time, whatever the number and the
/// length of the messages is.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_peer_without_receives_costs_little() {
    let mut pair = Pair::with(|cfg| {
        (cfg.mtu, cfg.ip_mtu, cfg.window) = (PathMtu::Octets1024, 1500, 1024);
        cfg.rnr_timer = RnrTimer::from_code(6);
    });
    let (near, far) = (pair.a.buf(1 << 20), pair.b.buf(1 << 20));
    for id in 0..4 {
        pair.a.post(send(id, &[near.seg(0, 1 << 20)]));
    }
    while pair.elapsed() < Duration::from_secs(2) {
        pair.step().unwrap();
    }
    let Stats { tx_packets, rx_rnr_naks, .. } = pair.a.rc.stats();
    // The time grows to 0.64 ms, of which there are 3,125 in two seconds.
    assert!((3_100..3_200).contains(&rx_rnr_naks), "{rx_rnr_naks} RNR NAKs");
    assert!(tx_packets < rx_rnr_naks + 20, "{tx_packets} packets for {rx_rnr_naks} RNR NAKs");
    // The messages arrive when there are receives.
    for id in 0..4 {
        pair.b.recv(id, &[far.seg(0, 1 << 20)]);
    }
    let posted = pair.elapsed();
    pair.b.rc.announce_receive();
    pair.drive().unwrap();
    assert_eq!((pair.a.completions().len(), pair.b.received().len()), (4, 4));
    let last = pair.elapsed() - posted;
    assert!(last < Duration::from_millis(50), "the messages took {last:?}");
}

/// The peer's congestion notifications shrink the window.
#[test]
fn a_congestion_notification_shrinks_the_window() {
    let mut pair = Pair::new();
    let (near, far) = (pair.a.buf(200 * OCTETS), pair.b.buf(200 * OCTETS));
    pair.a.post(write(1, &[near.seg(0, 200 * OCTETS)], far.remote(0)));
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    assert_eq!(pair.a.sent().len(), 64);
    let notification =
        packet(Opcode::CongestionNotification, Psn::new(0), Extension::Reserved, &[]);
    for _ in 0..3 {
        pair.a.take(pair.now, &notification).unwrap();
    }
    pair.a.take(pair.now, &answer(Syndrome::ACK, PSNS[0] + 61)).unwrap();
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    assert_eq!(pair.a.sent().len(), 30, "two packets are in flight, and the window was halved");
    assert_eq!(pair.a.rc.stats().rx_congestion_notifications, 3);
}
