//! Tests of losses, of receivers that are not ready, and of silent peers.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn the_window_asks_for_an_acknowledgement_when_it_is_full() {
    for window in [1, 2, 7, 64, 300] {
        let mut fixture = Fixture::with(|cfg| cfg.window = window);
        fixture.side.rc.open_window();
        let buf = fixture.side.buf(1000 * OCTETS);
        fixture.side.post(send(1, &[buf.seg(0, 1000 * OCTETS)]));
        let mut ahead = 0;
        while ahead < 1000 {
            let sent = fixture.sent_words();
            assert_eq!(sent.len(), (window as usize).min(1000 - ahead as usize));
            let asks: Vec<_> = sent.iter().map(|packet| packet.contains("ask")).collect();
            assert!(asks.chunks_exact(64).all(|some| some.contains(&true)), "{window}");
            assert_eq!(asks.last(), Some(&true), "{window}");
            ahead += sent.len() as u32;
            fixture.ack(ahead - 1);
        }
        assert_eq!(fixture.done(), ok([1]));
    }
}

/// A requester with a round trip of 0.4 ms and three messages of two packets in flight, and these
/// packets.
fn three_messages_in_flight() -> (Fixture, Buf, Vec<Vec<u8>>) {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(2 * OCTETS);
    fixture.side.post(send(9, &[]));
    fixture.sent();
    fixture.now += Duration::from_micros(400);
    fixture.ack(0);
    assert_eq!(fixture.done(), ok([9]));
    fixture.psn = fixture.psn.next();
    for id in 0..3 {
        fixture.side.post(send(id, &[buf.seg(0, 2 * OCTETS)]));
    }
    let sent = fixture.sent();
    (fixture, buf, sent)
}

/// The packet as it is sent again alone: it requests an acknowledgement.
fn alone(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[8] |= 0x80;
    packet
}

#[test]
fn a_peer_that_drops_packets_gets_all_of_them_again() {
    let (mut fixture, _buf, sent) = three_messages_in_flight();
    fixture.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(fixture.done(), ok([0]), "the NAK acknowledges earlier packets");
    // It is not known what the peer does, so only the lost packet is sent again.
    assert_eq!(fixture.sent(), [alone(&sent[2])]);
    // The peer has taken this packet, but not those after it.
    fixture.now += Duration::from_micros(400);
    fixture.ack(2);
    assert_eq!(fixture.sent(), sent[3..]);
    // The NAK refers to the packets that were sent first.
    fixture.nak(NakCode::SequenceError, 3).unwrap();
    assert_eq!(fixture.sent(), [[]; 0]);
    fixture.now += Duration::from_micros(400);
    fixture.ack(3);
    // Now it is known what the peer does.
    fixture.nak(NakCode::SequenceError, 4).unwrap();
    assert_eq!(fixture.sent(), sent[4..]);
    assert_eq!(fixture.side.rc.stats().rx_sequence_naks, 3);
    fixture.ack(5);
    assert_eq!(fixture.done(), ok([1, 2]));
    assert_eq!(fixture.side.rc.stats().sent_again, 6);
}

#[test]
fn a_peer_that_keeps_packets_gets_only_the_lost_ones_again() {
    let (mut fixture, buf, sent) = three_messages_in_flight();
    fixture.nak(NakCode::SequenceError, 1).unwrap();
    fixture.side.post(send(3, &[]));
    let new = format!("{} SEND only ask 0", fixture.psn + 6);
    assert_eq!(words(&fixture.sent()), [words(&[alone(&sent[1])]), vec![new]].concat());
    fixture.now += Duration::from_micros(400);
    // The peer has kept one packet, and lacks another one.
    fixture.ack(2);
    fixture.nak(NakCode::SequenceError, 3).unwrap();
    assert_eq!(fixture.sent(), [alone(&sent[3])]);
    fixture.now += Duration::from_micros(400);
    // It also lacks the packet after that. Perhaps it has stopped keeping packets.
    fixture.ack(3);
    assert_eq!(fixture.sent(), [[]; 0]);
    fixture.nak(NakCode::SequenceError, 4).unwrap();
    assert_eq!(fixture.sent().len(), 3);
    fixture.now += Duration::from_micros(400);
    fixture.ack(6);
    assert_eq!(fixture.done(), ok([0, 1, 2, 3]));
    // A READ request is also sent again alone, although later requests await responses.
    for id in 4..7 {
        fixture.side.post(read(id, &[buf.seg(0, 8)], NOWHERE));
    }
    fixture.side.post(crate::SendWr { fence: true, ..send(7, &[]) });
    assert_eq!(fixture.sent().len(), 3);
    fixture.nak(NakCode::SequenceError, 7).unwrap();
    assert_eq!(fixture.sent_words(), [format!("{} READ request of 8 ask 0", fixture.psn + 7)]);
    for ahead in 7..10 {
        fixture.response(wire::rocev2::Position::Only, ahead, 8).unwrap();
    }
    assert_eq!(fixture.sent_words().len(), 1, "the fence is open");
    fixture.ack(10);
    assert_eq!(fixture.done(), ok([4, 5, 6, 7]));
}

/// While a packet is missing, new packets leave at the rate of one window per round trip, as far as
/// the peer keeps them.
#[test]
fn a_missing_packet_does_not_hold_new_ones_back() {
    const ROUND_TRIP: Duration = Duration::from_micros(400);
    let (mut fixture, _buf, _sent) = three_messages_in_flight();
    fixture.nak(NakCode::SequenceError, 1).unwrap();
    fixture.sent();
    fixture.now += ROUND_TRIP;
    fixture.ack(5);
    // With this exchange the requester learns that no queue is growing, and that few packets are
    // lost.
    let long = fixture.side.buf(200 * OCTETS);
    fixture.side.post(send(3, &[long.seg(0, 20 * OCTETS)]));
    fixture.sent();
    fixture.now += ROUND_TRIP;
    fixture.ack(25);
    fixture.psn = fixture.psn + 26;
    fixture.side.post(send(4, &[long.seg(0, 200 * OCTETS)]));
    let window = fixture.sent().len();
    assert_eq!(window, 44);
    fixture.nak(NakCode::SequenceError, 0).unwrap();
    // The lost packet, and what the new window of 30 packets permits in a quarter of a round trip.
    assert_eq!(fixture.sent().len(), 1 + 6);
    let nak = fixture.now;
    let (mut sent, mut in_quarter) = (window + 6, 0);
    while fixture.side.rc.deadline().unwrap() <= nak + ROUND_TRIP {
        fixture.wait().unwrap();
        sent += fixture.sent().len();
        if fixture.now <= nak + ROUND_TRIP / 4 {
            in_quarter = sent;
        }
    }
    assert!((56..=59).contains(&in_quarter), "{in_quarter}");
    assert_eq!(sent, 64, "the peer would not keep more");
    // The acknowledgement ends the recovery, and the window of 30 packets grows by Reno's growth.
    fixture.ack(63);
    assert_eq!(fixture.sent().len(), 32);
}

/// A go-back ends as soon as an acknowledgement shows that the peer has kept packets.
#[test]
fn a_peer_that_keeps_packets_after_all() {
    let (mut fixture, _buf, sent) = three_messages_in_flight();
    fixture.nak(NakCode::SequenceError, 1).unwrap();
    fixture.sent();
    fixture.now += Duration::from_micros(400);
    fixture.ack(1);
    // The burst has room for one packet.
    let mut burst = Burst::new(1, 1 << 14);
    fixture.side.rc.transmit(fixture.now, &mut burst).unwrap();
    assert_eq!(take_packets(&mut burst), [sent[2].clone()]);
    fixture.now += Duration::from_micros(400);
    fixture.ack(3);
    assert_eq!(fixture.sent(), sent[4..]);
    fixture.side.post(send(3, &[]));
    fixture.side.post(send(4, &[]));
    fixture.sent();
    fixture.now += Duration::from_micros(400);
    fixture.nak(NakCode::SequenceError, 5).unwrap();
    assert_eq!(fixture.sent(), [alone(&sent[5])]);
}

#[test]
fn a_copy_of_a_sequence_error_does_nothing() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(6 * OCTETS);
    // With this exchange the requester measures the round-trip time.
    fixture.side.post(send(0, &[]));
    fixture.sent();
    fixture.now += Duration::from_micros(400);
    fixture.ack(0);
    fixture.side.post(send(1, &[buf.seg(0, 6 * OCTETS)]));
    fixture.sent();
    fixture.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(fixture.sent().len(), 1);
    fixture.now += Duration::from_micros(100);
    fixture.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(fixture.sent().len(), 0);
    fixture.now += Duration::from_micros(300);
    fixture.nak(NakCode::SequenceError, 2).unwrap();
    assert_eq!(fixture.sent().len(), 1);
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut fixture = Fixture::new();
    for id in 0..3 {
        fixture.side.post(send(id, &[]));
    }
    fixture.sent();
    // The code 14 of an RNR NAK means a wait of 1.28 ms.
    fixture.rnr(14, 1).unwrap();
    assert_eq!(fixture.done(), ok([0]));
    assert_eq!(fixture.sent_words(), [""; 0]);
    // A NAK for later packets does not shorten the wait, and a copy of the RNR NAK does not prolong
    // it.
    fixture.now += Duration::from_millis(1);
    fixture.nak(NakCode::SequenceError, 1).unwrap();
    fixture.rnr(14, 1).unwrap();
    assert_eq!(fixture.sent_words(), [""; 0]);
    assert_eq!(fixture.wait(), Ok(Duration::from_micros(280)));
    // Only one packet is sent, because the peer may still have no receive buffer.
    assert_eq!(fixture.sent_words().len(), 1);
    fixture.rnr(14, 1).unwrap();
    // An acknowledgement ends the wait: the RNR NAK was a late copy.
    fixture.ack(1);
    assert_eq!(fixture.sent_words().len(), 1);
    fixture.ack(2);
    assert_eq!(fixture.done(), ok([1, 2]));
    assert_eq!(fixture.side.rc.stats().rx_rnr_naks, 3);
}

#[test]
fn a_receiver_that_is_never_ready() {
    let mut fixture = Fixture::with(|cfg| cfg.rnr_retries = 3);
    for id in 0..3 {
        fixture.side.post(send(id, &[]));
    }
    fixture.sent();
    // The retries are counted from the last message that the peer has accepted.
    for ahead in [0, 1] {
        for _ in 0..3 {
            fixture.rnr(1, ahead).unwrap();
            assert_eq!(fixture.wait(), Ok(Duration::from_micros(10)));
            assert_eq!(fixture.sent_words().len(), 1);
        }
    }
    assert_eq!(fixture.rnr(1, 1), Err(Failure::ReceiverNotReady));
    let done = [(0, WcStatus::Success), (1, WcStatus::ReceiverNotReady), (2, WcStatus::Flushed)];
    assert_eq!(fixture.flush(), done);

    // The peer asks for longer times from retry to retry. Three retries last for at least three of
    // the latest times, here 3 * 640 µs.
    let mut fixture = Fixture::with(|cfg| cfg.rnr_retries = 3);
    let start = fixture.now;
    fixture.side.post(send(0, &[]));
    fixture.sent();
    let mut code = 1;
    while fixture.rnr(code, 0).is_ok() {
        fixture.wait().unwrap();
        assert_eq!(fixture.sent_words().len(), 1);
        code = (code + 1).min(12);
    }
    let waited = (fixture.now - start).as_micros();
    assert!((3 * 640..4 * 640).contains(&waited), "{waited} µs");

    // With an RNR retry count of 7, the number of retries is not limited.
    let mut fixture = Fixture::new();
    fixture.side.post(send(0, &[]));
    for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
        assert_eq!(fixture.sent_words().len(), 1);
        fixture.rnr(0, 0).unwrap();
        assert_eq!(fixture.wait(), Ok(Duration::from_micros(655_360)));
    }
}

#[test]
fn a_peer_that_is_dead() {
    for retries in [0, 1, 7] {
        let mut fixture = Fixture::with(|cfg| cfg.retries = retries);
        let buf = fixture.side.buf(10 * OCTETS);
        fixture.side.post(send(0, &[]));
        fixture.side.post(send(1, &[buf.seg(0, 10 * OCTETS)]));
        let (start, sent) = (fixture.now, fixture.sent());
        assert_eq!(sent.len(), 11);
        let failure = loop {
            match fixture.wait() {
                // Only the oldest packet is sent, because it is not known whether further packets
                // would arrive.
                Ok(_) => assert_eq!(fixture.sent(), sent[..1]),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure, Failure::Silent);
        assert_eq!(fixture.now - start, TIMEOUT * (retries + 1));
        let stats = fixture.side.rc.stats();
        assert_eq!(stats.timeouts, retries.into());
        // Probes come after 5, 10, 20 ... 320 ms. Only six fit into a timeout, because these delays
        // add up.
        assert_eq!(stats.probes, 6 * (u64::from(retries) + 1), "{stats:?}");
        assert_eq!(fixture.flush(), [(0, WcStatus::Transport), (1, WcStatus::Flushed)]);
        assert_eq!(fixture.side.rc.deadline(), None);
    }
}

/// softroce uses an ACK timeout of 17 and 23 retries (its test `default_times`). With these values
/// a connection waits for a silent peer for at least 8 s and at most 15 s, whatever the peer has
/// sent last. This holds if nothing is known about the peer's host.
#[test]
fn a_silent_peer_is_told_of_within_fifteen_seconds() {
    const USUAL: fn(&mut RcCfg) = |cfg| (cfg.ack_timeout, cfg.retries) = (17, 23);
    type Says = fn(&mut Fixture);
    let dies_after: [(&str, Says); 6] = [
        ("nothing", |_| {}),
        ("an acknowledgement", |fixture| fixture.ack(20)),
        ("a NAK", |fixture| fixture.nak(NakCode::SequenceError, 20).unwrap()),
        ("an RNR NAK with the longest wait", |fixture| fixture.rnr(0, 20).unwrap()),
        ("an answer to the last retry", |fixture| {
            for _ in 0..23 {
                silent_for_a_timeout(fixture);
            }
            fixture.ack(20);
        }),
        ("answers that took long", |fixture| {
            for ahead in 0..20 {
                fixture.now += TIMEOUT * 9 / 10;
                fixture.ack(ahead);
                fixture.sent();
            }
        }),
    ];
    for (last, says) in dies_after {
        let mut fixture = Fixture::with(USUAL);
        let buf = fixture.side.buf(100 * OCTETS);
        fixture.side.post(send(1, &[buf.seg(0, 100 * OCTETS)]));
        fixture.sent();
        says(&mut fixture);
        let heard = fixture.now;
        let failed = loop {
            fixture.sent();
            if let Err(failure) = fixture.wait() {
                break failure;
            }
        };
        assert_eq!(failed, Failure::Silent, "{last}");
        let silent = fixture.now - heard;
        assert!((8..15).contains(&silent.as_secs()), "{last}: {silent:?}");
        assert_eq!(fixture.flush(), [(1, WcStatus::Transport)], "{last}");
    }
}

fn silent_for_a_timeout(fixture: &mut Fixture) {
    let timeouts = fixture.side.rc.stats().timeouts;
    while fixture.side.rc.stats().timeouts == timeouts {
        fixture.sent();
        fixture.wait().unwrap();
    }
}

/// The requester adapts to answers that take longer than a probe, even if none of them measures a
/// round trip (Karn's algorithm).
#[test]
fn a_peer_that_becomes_slow_is_not_asked_twice_for_long() {
    for (delay, repeated) in [(6, 1), (8, 1), (12, 1), (100, 4)] {
        let mut fixture = Fixture::new();
        let mut message = 0;
        let mut exchange = |fixture: &mut Fixture, delay: Duration| {
            fixture.side.post(send(message.into(), &[]));
            fixture.sent();
            let answer = fixture.now + delay;
            while fixture.side.rc.deadline().is_some_and(|at| at < answer) {
                fixture.wait().unwrap();
                fixture.sent();
            }
            fixture.now = answer;
            fixture.ack(message);
            message += 1;
        };
        let quick = Duration::from_micros(50);
        for _ in 0..100 {
            exchange(&mut fixture, quick);
        }
        for _ in 0..1000 {
            exchange(&mut fixture, Duration::from_millis(delay));
        }
        let stats = fixture.side.rc.stats();
        assert_eq!((stats.sent_again, stats.probes), (repeated, repeated), "{delay} ms");

        // The peer is fast again, and a packet is lost.
        for _ in 0..100 {
            exchange(&mut fixture, quick);
        }
        fixture.side.post(send(9999, &[]));
        fixture.sent();
        assert_eq!(
            fixture.wait(),
            Ok(Duration::from_millis(5)),
            "the wait must be 5 ms after answers that took {delay} ms"
        );
    }
}

/// Connections that lose packets at the same time do not probe at the same time. The jitter of a
/// connection depends only on its numbers.
#[test]
fn probes_of_connections_are_spread() {
    let probes = |qpn: u32| {
        let mut fixture = Fixture::with(|cfg| cfg.peer_qpn = qpn);
        let start = fixture.now;
        fixture.side.post(send(0, &[]));
        let times = (0..5).map(|_| {
            fixture.sent();
            fixture.wait().unwrap();
            fixture.now - start
        });
        times.collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..20).map(|qpn| probes(qpn << 9)).collect();
    assert_eq!(probes(7 << 9), all[7]);
    for (index, earliest) in [5, 15, 35, 75, 155].into_iter().enumerate() {
        let earliest = Duration::from_millis(earliest);
        assert!(all.iter().all(|times| (earliest..=earliest * 5 / 4).contains(&times[index])));
    }
    let mut last: Vec<_> = all.iter().map(|times| times[4]).collect();
    last.sort();
    last.dedup();
    assert!(last.len() >= 10, "only {} of 20 times differ", last.len());
}

#[test]
fn a_timeout_that_is_too_short_for_software() {
    let mut fixture = Fixture::with(|cfg| (cfg.ack_timeout, cfg.retries) = (1, 0));
    fixture.side.post(send(0, &[]));
    fixture.sent();
    let start = fixture.now;
    while fixture.wait().is_ok() {}
    assert_eq!(fixture.now - start, Duration::from_millis(32));
    assert_eq!(fixture.flush(), [(0, WcStatus::Transport)]);
}

#[test]
fn without_a_timeout_there_are_probes_for_ever() {
    let mut fixture = Fixture::with(|cfg| (cfg.ack_timeout, cfg.retries) = (0, 0));
    fixture.side.post(send(0, &[]));
    fixture.sent();
    for _ in 0..100 {
        assert!(fixture.wait().unwrap() <= Duration::from_secs(1));
        assert_eq!(fixture.sent_words().len(), 1);
    }
    fixture.ack(0);
    assert_eq!(fixture.done(), ok([0]));
}

/// The longest delay has jitter, too.
#[test]
fn probes_at_the_longest_delay_are_spread() {
    let last_delay = |qpn: u32| {
        let mut fixture = Fixture::with(|cfg| (cfg.ack_timeout, cfg.peer_qpn) = (0, qpn));
        fixture.side.post(send(0, &[]));
        let delays = (0..12).map(|_| {
            fixture.sent();
            fixture.wait().unwrap()
        });
        delays.last().unwrap()
    };
    let mut delays: Vec<_> = (0..20).map(|qpn| last_delay(qpn << 9)).collect();
    let longest = Duration::from_millis(800)..=Duration::from_secs(1);
    assert!(delays.iter().all(|delay| longest.contains(delay)), "{delays:?}");
    delays.sort();
    delays.dedup();
    assert!(delays.len() >= 5, "only {} of 20 delays differ", delays.len());
}

#[test]
fn a_late_acknowledgement_is_no_loss() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(100 * OCTETS);
    fixture.side.post(send(0, &[buf.seg(0, 100 * OCTETS)]));
    assert_eq!(fixture.sent().len(), 64);
    fixture.wait().unwrap();
    assert_eq!(fixture.sent().len(), 1);
    fixture.ack(63);
    // The window has its original size.
    assert_eq!(fixture.sent().len(), 36);
    assert_eq!(fixture.side.rc.stats().sent_again, 1);
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_loss_shrinks_the_window_and_it_grows_again() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(3000 * OCTETS);
    fixture.side.post(send(0, &[buf.seg(0, 3000 * OCTETS)]));
    assert_eq!(fixture.sent().len(), 64);
    fixture.nak(NakCode::SequenceError, 0).unwrap();
    assert_eq!(fixture.sent().len(), 1);
    fixture.ack(0);
    // The window is 0.7 times as large (RFC 9438).
    assert_eq!(fixture.sent().len(), 44);
    let (mut acked, mut flights) = (45, vec![44]);
    while *flights.last().unwrap() < 64 {
        fixture.ack(acked - 1);
        let sent = fixture.sent().len() as u32;
        flights.push(sent);
        acked += sent;
    }
    // The window does not grow until the packets that were in flight at the loss are acknowledged.
    // Then it grows by 0.53 packets in each round trip, as on any short path.
    assert_eq!(flights[..5], [44, 44, 45, 45, 46]);
    assert!((38..=40).contains(&flights.len()), "{flights:?}");
    fixture.ack(acked - 1);
    assert_eq!(fixture.sent().len(), 64, "the window has its maximum size");
}

/// A peer that posts one receive at a time gets one message at a time, although more are posted. A
/// duplicate of the last acknowledgement says that the peer has posted a receive.
#[test]
fn a_receiver_that_takes_one_message_at_a_time() {
    let mut fixture = Fixture::new();
    for id in 0..10 {
        fixture.side.post(send(id, &[]));
    }
    assert_eq!(fixture.sent().len(), 10);
    for ahead in 1..5 {
        fixture.rnr(12, ahead).unwrap();
        assert_eq!(fixture.sent_words(), [""; 0]);
        // An acknowledgement that is not the last one says nothing.
        fixture.take(&answer(Syndrome::ACK, fixture.psn + ahead - 2)).unwrap();
        assert_eq!(fixture.sent_words(), [""; 0]);
        fixture.ack(ahead - 1);
        let again = [format!("{} SEND only ask 0", fixture.psn + ahead)];
        assert_eq!(fixture.sent_words(), again, "the peer has posted a receive");
        fixture.ack(ahead);
        let next = [format!("{} SEND only ask 0", fixture.psn + ahead + 1)];
        assert_eq!(fixture.sent_words(), next);
    }
    // While there are receives, the number of messages in flight doubles.
    let mut acked = 5;
    for flight in [2, 2] {
        fixture.ack(acked);
        assert_eq!(fixture.sent().len(), flight);
        acked += flight as u32;
    }
    assert_eq!(fixture.side.rc.stats().unexpected, 4);
}

/// A message of several packets has its receive buffer when its first packet is acknowledged.
#[test]
fn a_message_that_has_a_receive_gets_the_whole_window() {
    let mut fixture = Fixture::new();
    let buf = fixture.side.buf(100 * OCTETS);
    for id in 0..2 {
        fixture.side.post(send(id, &[buf.seg(0, 40 * OCTETS)]));
    }
    assert_eq!(fixture.sent().len(), 64);
    fixture.rnr(12, 0).unwrap();
    fixture.wait().unwrap();
    assert_eq!(fixture.sent().len(), 1);
    fixture.ack(0);
    assert_eq!(fixture.sent().len(), 39);
}

/// While the peer is known to be alive, and for two more ACK timeouts, the requester continues to
/// send requests to it.
#[test]
fn a_peer_that_lives_is_waited_for() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 2);
    fixture.side.post(send(1, &[]));
    fixture.sent();
    let (start, known) = (fixture.now, 20 * TIMEOUT);
    let failed = loop {
        if fixture.now - start <= known {
            fixture.side.rc.note_peer_alive(fixture.now);
        }
        let quiet = fixture.side.rc.silent_for(fixture.now).unwrap();
        assert_eq!(quiet, fixture.now - start);
        if let Err(failure) = fixture.wait() {
            break failure;
        }
        assert!(!fixture.sent().is_empty(), "each expiry sends a packet");
    };
    assert_eq!(failed, Failure::Silent);
    let lasted = fixture.now - start;
    assert!(known + 2 * TIMEOUT <= lasted && lasted <= known + 4 * TIMEOUT, "{lasted:?}");
    assert_eq!(fixture.flush(), [(1, WcStatus::Transport)]);
}

/// When the peer answers after a long silence, the transfer continues. The silence has used up no
/// retries.
#[test]
fn a_peer_that_was_silent_for_long_goes_on() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 2);
    for id in 0..2 {
        fixture.side.post(send(id, &[]));
        fixture.sent();
        let start = fixture.now;
        while fixture.now - start < 15 * TIMEOUT {
            fixture.side.rc.note_peer_alive(fixture.now);
            fixture.wait().unwrap();
            fixture.sent();
        }
        fixture.ack(id as u32);
        assert_eq!(fixture.side.rc.silent_for(fixture.now), None);
    }
    assert_eq!(fixture.done(), ok([0, 1]));
    // The requester no longer knows whether the peer is alive, so the connection's retry count
    // applies again.
    fixture.side.post(send(2, &[]));
    fixture.sent();
    let start = fixture.now;
    while fixture.wait().is_ok() {
        fixture.sent();
    }
    assert_eq!(fixture.now - start, 3 * TIMEOUT);
}
