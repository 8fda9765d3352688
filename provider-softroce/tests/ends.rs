//! Tests of the end of connections, with a peer that the test plays by hand. They check what this
//! side does if an acknowledgement is lost or if no answer comes.

#[path = "../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "these tests use only a part of the reader")]
mod reader;

#[allow(dead_code)] // Other tests use the rest.
mod peer;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Queue, Receiver, Sink, Transport, Upcall, WcStatus};
use provider_mem::contract::rig::{EVENT_TIMEOUT, End, Event, Rig, Service, cfg, outcomes};
use provider_softroce::Roce;
use wire::cm::{Drep, Message, Reason};

use self::peer::*;

const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 45);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 46);

/// Records whether a datagram had arrived at the peer when the connection was reported.
struct RtuCheck {
    peer: UdpSocket,
    rtu_was_sent: OnceLock<bool>,
}

impl Receiver<Roce> for RtuCheck {
    fn upcall(&self, up: Upcall<'_, Roce>) {
        if let Upcall::Established { .. } = up {
            self.rtu_was_sent.set(self.peer.peek(&mut [0; 512]).is_ok()).expect("one connection");
        }
    }
}

/// The peer has the RTU when the consumer learns of the connection. So a process that is stopped at
/// that time does not keep the peer waiting.
#[test]
fn the_rtu_leaves_before_the_consumer_learns_of_the_connection() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let check = RtuCheck {
        peer: peer.socket.try_clone().expect("a descriptor"),
        rtu_was_sent: OnceLock::new(),
    };
    let end = End::new(rig.a);
    // SAFETY: `check` outlives the queue pair.
    let sink = unsafe { Sink::new(&raw const check) };
    let qp = rig.a.qp(cfg::<Roce>(&end.pd, &end.requests, &end.recvs, None), sink);
    let qp = qp.expect("a queue pair");
    qp.connect(&to(PEER)).expect("the attempt to connect begins");
    accept_call(&rig, &peer, 0);
    assert!(rig.until("the connection", || check.rtu_was_sent.get().copied()));
    drop(qp);
}

/// The peer's queue pair is gone as soon as the peer disconnects, as it is with a peer in a kernel.
/// This side repeats its requests in flight, but only for a short time.
#[test]
fn a_disconnected_peer_is_asked_for_requests_in_flight_but_not_for_long() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    assert_eq!(rig.until("the message", || peer.receive()), Received::Request(OUR_PSN));
    let start = Instant::now();
    peer.send_dreq(&call, 2);
    let mut questions = 0;
    rig.until("a DREP", || match peer.receive()? {
        Received::Request(OUR_PSN) => {
            questions += 1;
            None
        }
        Received::Drep { transaction: 2 } => Some(()),
        other => panic!("{other:?}"),
    });
    let time = start.elapsed();
    // On a busy machine this side may repeat the request only once. If it went on for much longer
    // than 50 ms, it would repeat the request more than five times.
    assert!((1..=5).contains(&questions), "the peer was asked {questions} times; expected 1 to 5");
    assert!(time >= Duration::from_millis(50), "the peer was asked only for {time:?}");
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Flushed)]);
}

/// The peer has received two messages, their acknowledgement is lost, and the peer disconnects.
/// This side asks about the first message before it sends the DREP. The messages do not count as
/// lost if the peer answers in time; `rnic/src/rc/tests/requester/peer_close.rs`, which has its own
/// clock, holds what is in time. Here the answer may come too late, but both messages have one
/// fate.
#[test]
fn a_disconnected_peer_is_asked_about_messages_in_flight() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    end.send(2, &[end.mem.segment(0, 8)]);
    let next = |expected: Received, repeated: Received| {
        rig.until("a packet", || {
            let received = peer.receive()?;
            // This side may have repeated the first message.
            assert!(received == expected || received == repeated, "{received:?}");
            (received == expected).then_some(())
        });
    };
    let message = |n| Received::Request(OUR_PSN + n);
    next(message(0), message(0));
    next(message(1), message(0));
    peer.send_dreq(&call, 2);
    next(message(0), message(0));
    peer.send_ack(&call, OUR_PSN + 1);
    next(Received::Drep { transaction: 2 }, message(0));
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    let outcomes = outcomes(&rig.completions(&end.requests, 2));
    let all = |status| [(1, status), (2, status)];
    let fates = [all(WcStatus::Success), all(WcStatus::Flushed)];
    assert!(fates.iter().any(|fate| outcomes == fate), "{outcomes:?}");
}

/// When the peer disconnects, a connection without requests in flight ends at once. Here the peer
/// disconnects first a connection with a request in flight, and then an idle connection. The idle
/// connection must end first. On a busy machine it sometimes ends second, so the test is repeated.
#[test]
fn a_disconnect_with_nothing_in_flight_does_not_wait() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let idle_is_first = |round: u32| {
        let (idle, idle_call) = connected_with(&rig, &peer, 2 * round);
        idle.send(1, &[idle.mem.segment(0, 8)]);
        assert_eq!(rig.until("the message", || peer.receive()), Received::Request(OUR_PSN));
        peer.send_ack(&idle_call, OUR_PSN);
        assert_eq!(outcomes(&rig.completions(&idle.requests, 1)), [(1, WcStatus::Success)]);
        let (busy, busy_call) = connected_with(&rig, &peer, 2 * round + 1);
        busy.send(1, &[busy.mem.segment(0, 8)]);
        peer.send_dreq(&busy_call, 2);
        peer.send_dreq(&idle_call, 3);
        let next_drep = || {
            rig.until("a DREP", || match peer.receive()? {
                // This packet is the message, which may be repeated.
                Received::Request(OUR_PSN) => None,
                Received::Drep { transaction } => Some(transaction),
                other => panic!("{other:?}"),
            })
        };
        let order = [next_drep(), next_drep()];
        for end in [&idle, &busy] {
            assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
        }
        order == [3, 2]
    };
    assert!((0..ROUNDS).any(idle_is_first), "the idle side always waited as long as the other one");
}

/// The number of times that a test is repeated until the expected effect shows. On an idle machine
/// the effect shows at once, but a busy machine may hide it.
const ROUNDS: u32 = 20;

/// This side disconnects. It sends the last acknowledgement twice before the DREQ. Until the peer
/// answers the DREQ, this side acknowledges messages again that it has already received, and
/// accepts no new message.
#[test]
fn received_messages_are_acknowledged_again() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    for id in [1, 2] {
        end.recv(id, &[end.mem.segment(0, 8)]);
    }
    peer.send_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    end.qp.disconnect(Close::Graceful);
    let mut acks = 0;
    let transaction = loop {
        match rig.until("a DREQ", || peer.receive()) {
            Received::Ack(psn) if psn == call.psn => acks += 1,
            Received::Dreq { transaction } => break transaction,
            other => panic!("{other:?}"),
        }
    };
    // If the adapter has sent the acknowledgement before it learns of the disconnect, there are
    // three.
    assert!((2..=3).contains(&acks), "{acks} acknowledgements before the DREQ");
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(2, WcStatus::Flushed)]);

    peer.send_send(&call, call.psn + 1);
    peer.send_send(&call, call.psn);
    assert_eq!(rig.until("the other", || peer.receive()), Received::Ack(call.psn));
    end.log.assert_silent();

    let drep = Drep { local_id: PEER_ID, remote_id: call.id, private: &[] };
    peer.send_message(transaction, Message::Drep(drep));
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    // After the end of the connection, this side acknowledges no message, but still answers a DREQ.
    peer.send_send(&call, call.psn);
    peer.send_dreq(&call, 7);
    assert_eq!(rig.until("a DREP", || peer.receive()), Received::Drep { transaction: 7 });
}

/// Any program at the peer's address, or one that forges that address, can send a REQ that names
/// the peer's queue pair. This side does not yet treat the connection as dead. It first asks the
/// peer, and the peer answers.
#[test]
fn a_forged_request_ends_no_connection() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    let service = Service::new(rig.a, 1);
    send_req(&Peer::elsewhere(), PEER_ID + 0x80, PEER_QPN, service.port(rig.a));
    assert_eq!(rig.until("the question", || peer.receive()), Received::Request(OUR_PSN.previous()));
    rig.until("the refusal", || match peer.receive()? {
        // On a busy machine this side may have asked the peer again.
        Received::Request(psn) if psn == OUR_PSN.previous() => None,
        Received::Rej(Reason::STALE_CONNECTION) => Some(()),
        other => panic!("{other:?}"),
    });
    peer.send_ack(&call, OUR_PSN.previous());
    end.send(1, &[end.mem.segment(0, 8)]);
    rig.until("the message", || match peer.receive()? {
        // On a busy machine this side may have asked the peer again.
        Received::Request(psn) if psn == OUR_PSN.previous() => None,
        Received::Request(OUR_PSN) => Some(()),
        other => panic!("{other:?}"),
    });
    peer.send_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// A REQ claims that the peer's queue pair is in another connection. This side asks the peer, and
/// the peer does not answer, because it has left the connection. The peer may then connect again.
#[test]
fn a_peer_that_has_left_a_connection_connects_again() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, _) = connected(&rig, &peer);
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a);
    send_req(&peer, PEER_ID + 0x80, PEER_QPN, port);
    assert_eq!(rig.until("the question", || peer.receive()), Received::Request(OUR_PSN.previous()));
    assert!(matches!(rig.next("the end", &end.log), Event::Broken));
    send_req(&peer, PEER_ID + 0x100, PEER_QPN, port);
    service.request(&rig);
}

/// The peer does not answer because it is stopped, or because its packets are lost for a while. The
/// peer's host answers, and its port is open. The retries are used up long before the peer answers.
#[test]
fn a_peer_that_is_stopped_is_waited_for() {
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS} timeout=32 retries=1"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    for _ in 0..100 {
        assert_eq!(rig.until("the message again", || peer.receive()), Received::Request(OUR_PSN));
    }
    end.log.assert_silent();
    peer.send_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// The peer does not answer because it is stopped, and this side has no retries. This side probes
/// the peer's host before the only timeout expires.
#[test]
fn a_peer_that_is_stopped_is_waited_for_without_retries() {
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS} retries=0"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    // 14 repetitions take longer than one timeout, because each interval is twice the one before.
    for _ in 0..14 {
        assert_eq!(rig.until("the message again", || peer.receive()), Received::Request(OUR_PSN));
    }
    end.log.assert_silent();
    peer.send_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// The peer is stopped. A forged REQ makes this side ask the peer whether the connection still
/// exists. No other request is in flight.
#[test]
fn a_stopped_peer_is_asked_repeatedly() {
    let _peer_port = lock_peer_port();
    for retries in [1, 0] {
        let ours = open(&format!("{OURS} retries={retries}"));
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        let (end, call) = connected_with(&rig, &peer, retries);
        let service = Service::new(rig.a, 1);
        send_req(&Peer::elsewhere(), PEER_ID + 0x80, PEER_QPN + retries, service.port(rig.a));
        for _ in 0..4 {
            rig.until("the question", || match peer.receive()? {
                Received::Request(psn) if psn == OUR_PSN.previous() => Some(()),
                Received::Rej(Reason::STALE_CONNECTION) => None,
                other => panic!("{other:?}"),
            });
        }
        end.log.assert_silent();
        peer.send_ack(&call, OUR_PSN.previous());
        end.send(1, &[end.mem.segment(0, 8)]);
        rig.until("the message", || match peer.receive()? {
            Received::Request(psn) if psn == OUR_PSN.previous() => None,
            Received::Request(OUR_PSN) => Some(()),
            other => panic!("{other:?}"),
        });
        peer.send_ack(&call, OUR_PSN);
        assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
        end.log.assert_silent();
    }
}

/// For a moment, the peer's host reports that the port is closed, as a firewall does while it is
/// being changed. The connection continues. (It ends if a busy machine makes that moment longer
/// than a second and a half.)
#[test]
fn a_port_that_is_refused_for_a_moment() {
    let _peer_port = lock_peer_port();
    let goes_on = |n: u32| {
        let ours = adapter();
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        let (end, call) = connected_with(&rig, &peer, n);
        drop(peer);
        end.send(1, &[end.mem.segment(0, 8)]);
        let sent = || {
            let counters = ours.counters();
            counters
                .iter()
                .find(|(name, _)| *name == "packets-sent-again")
                .map_or(0, |(_, count)| *count)
        };
        rig.until("the second question", || (sent() >= 3).then_some(()));
        let peer = Peer::new();
        rig.until("the message, or the end", || match (peer.receive(), end.log.take()) {
            (Some(Received::Request(OUR_PSN)), _) => Some(true),
            (_, Some(Event::Broken)) => Some(false),
            (None, None) => None,
            (received, event) => panic!("{received:?} {event:?}"),
        }) && {
            peer.send_ack(&call, OUR_PSN);
            assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
            true
        }
    };
    assert!(
        (0..ROUNDS).any(goes_on),
        "the first ICMP error of the host always ended the connection"
    );
}

/// Once the peer has sent a valid packet, further packets must come from the same port. No other
/// program on the peer's host can send from that port, even if it knows the numbers of the
/// connection.
#[test]
fn packets_from_another_port_are_ignored() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    for id in [1, 2] {
        end.recv(id, &[end.mem.segment(8 * id as usize, 8)]);
    }
    peer.send_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    let next = call.psn + 1;
    let forger = Peer::elsewhere();
    forger.send_send_of(&call, next, b"lies");
    forger.send_ack(&call, OUR_PSN);
    peer.send_send_of(&call, next, b"true");
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(2, WcStatus::Success)]);
    assert_eq!(end.mem.read(16, 4), b"true");
    let counted = ours.counters().into_iter().find(|(name, _)| *name == "packets-from-elsewhere");
    assert_eq!(counted.map(|(_, n)| n), Some(2));
}

/// An endpoint is freed and its adapter is closed. Before it closes, the adapter repeats the DREQ
/// until it is answered, or for a quarter of a second. Later no process could repeat the DREQ, and
/// a peer with nothing to send would wait forever.
#[test]
fn a_dreq_is_repeated_while_the_adapter_closes() {
    let _peer_port = lock_peer_port();
    // On a busy machine some repetitions of the DREQ are skipped, or the answer to the second DREQ
    // arrives after further DREQs.
    assert!(
        (0..ROUNDS).any(|_| closes_with(true) == 2),
        "an answer never ended the repetitions of the DREQ"
    );
    assert!((0..ROUNDS).any(|_| closes_with(false) >= 2), "the DREQ was never repeated");
}

/// Returns the number of DREQs that are sent while the adapter is closed. With `answer`, the peer
/// answers the second DREQ.
fn closes_with(answer: bool) -> u32 {
    let ours = adapter();
    let peer = Peer::new();
    let (start, call) = {
        let rig = Rig { a: &ours, b: &ours };
        let (end, call) = connected(&rig, &peer);
        let start = Instant::now();
        // The drop sends the first DREQ.
        drop(end);
        (start, call)
    };
    let mut times = 0;
    std::thread::scope(|scope| {
        let closed = scope.spawn(move || drop(ours));
        while !closed.is_finished() {
            assert!(
                start.elapsed() < EVENT_TIMEOUT,
                "the adapter is not closed after {EVENT_TIMEOUT:?}"
            );
            peer.dreq.set(None);
            let Some(received) = peer.receive() else { continue };
            let Received::Dreq { transaction } = received else { panic!("{received:?}") };
            times += 1;
            if answer && times == 2 {
                let drep = Drep { local_id: PEER_ID, remote_id: call.id, private: &[] };
                peer.send_message(transaction, Message::Drep(drep));
            }
        }
    });
    let time = start.elapsed();
    assert!(
        answer || time >= Duration::from_millis(250),
        "the DREQ was repeated only for {time:?}"
    );
    // The DREQs are sent at 0, 16, 48, 112 and 240 ms.
    assert!((1..=5).contains(&times), "the DREQ was sent {times} times; expected 1 to 5");
    times
}

/// If a host reports that the port is closed, this side stops repeating its messages early. It
/// sends hardly any message of connection management twice. Without the report, it would send a REQ
/// 16 times and a DREQ about ten times. It repeats an RDMA request for a second and a half, and not
/// until the retries are used up.
#[test]
fn a_closed_port_ends_repetitions_early() {
    let _peer_port = lock_peer_port();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("sent.pcapng");
    let ours = open(&format!("{OURS} capture={}", file.display()));
    let rig = Rig { a: &ours, b: &ours };
    // The test makes several attempts, because a single attempt could succeed by chance.
    for n in 100..110 {
        let host = Ipv4Addr::new(127, 0, 0, n);
        let end = calling(&rig, host);
        assert!(matches!(rig.next("an answer", &end.log), Event::Unreachable));
        let sent = sent_count(host, &file);
        assert!((1..=2).contains(&sent), "{host}: {sent} messages");
    }

    let peer = Peer::new();
    let sends = connected_to(&rig, &peer, 0);
    drop(peer);
    let before = sent_count(PEER, &file);
    sends.send(1, &[sends.mem.segment(0, 8)]);
    assert!(matches!(rig.next("the end", &sends.log), Event::Broken));
    // The request was flushed. If its retries had been used up, it would complete with a transport
    // error.
    assert_eq!(outcomes(&rig.completions(&sends.requests, 1)), [(1, WcStatus::Flushed)]);
    let sent = sent_count(PEER, &file) - before;
    // The host's first report must not end the connection, because a firewall that is being changed
    // reports the same for a moment.
    assert!(sent >= 4, "{sent} packets");

    // The reports about the former connection must not affect the next connection.
    let peer = Peer::new();
    let leaves = connected_to(&rig, &peer, 1);
    drop(peer);
    let before = sent_count(PEER, &file);
    leaves.qp.disconnect(Close::Graceful);
    let event = rig.next("the end", &leaves.log);
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    let sent = sent_count(PEER, &file) - before;
    assert!((1..=2).contains(&sent), "{sent} messages");

    // The endpoint of a connection is freed, and its DREQ is hardly repeated. A request on another
    // connection is repeated for a second and a half. The end of that other connection shows that
    // enough time has passed.
    let peer = Peer::new();
    let sends = connected_to(&rig, &peer, 2);
    let gone = connected_to(&rig, &peer, 3);
    drop(peer);
    sends.send(1, &[sends.mem.segment(0, 8)]);
    let before = messages_to(PEER, &file);
    drop(gone);
    assert!(matches!(rig.next("the end", &sends.log), Event::Broken));
    let sent = messages_to(PEER, &file) - before;
    // The count includes the message that ends the other connection.
    assert!((1..=3).contains(&sent), "{sent} messages");
}

/// The number of packets that this side has sent to an address, according to its capture.
fn sent_count(to: Ipv4Addr, capture: &Path) -> usize {
    sent_to(to, capture).len()
}

/// The number of packets of connection management that this side has sent to an address, according
/// to its capture.
fn messages_to(to: Ipv4Addr, capture: &Path) -> usize {
    let is_message = |datagram: &&Vec<u8>| datagram[5..8] == [0, 0, 1];
    sent_to(to, capture).iter().filter(is_message).count()
}

fn sent_to(to: Ipv4Addr, capture: &Path) -> Vec<Vec<u8>> {
    const OUT: u32 = 2;
    let contents = reader::read(&std::fs::read(capture).expect("a capture"));
    let sent = contents.packets.into_iter().filter(|packet| packet.direction == OUT);
    let sent = sent.filter(|packet| packet.dst.ip() == IpAddr::from(to));
    sent.filter_map(|packet| match packet.body {
        reader::Body::Udp { payload, .. } => Some(payload),
        _ => None,
    })
    .collect()
}
