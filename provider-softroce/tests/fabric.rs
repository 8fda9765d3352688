//! Tests of what a network between the hosts does to packets: it marks them, chooses their path by
//! their ports, and carries packets of a limited length. The test plays the peer by hand.

#[allow(dead_code)] // Other tests use the rest.
mod peer;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use dat_core::provider::{Transport, WcStatus};
use provider_mem::contract::rig::{Event, QUEUE, Rig, Service, outcomes, poll};
use provider_softroce::Roce;
use socket2::SockRef;
use wire::cm::{Answered, Message, Reason, Rej};
use wire::rocev2::{Bth, Extension, Icrc, Opcode, Packet, PathMtu, Psn, UDP_PORT};

use self::peer::*;

const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 47);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 48);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 49);

/// The ECN codepoints ECT(0) and CE in the TOS of a packet.
const CAPABLE: u32 = 0b10;
const MARKED: u32 = 0b11;

/// A packet with a mark is answered by a CNP, and its message arrives as usual. A packet without a
/// mark is not answered by a CNP.
#[test]
fn a_marked_packet_is_answered_by_a_notification() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    for (n, tos) in [CAPABLE, MARKED, CAPABLE, 0, MARKED].into_iter().enumerate() {
        SockRef::from(&peer.socket).set_tos_v4(tos).expect("no privilege is needed");
        let psn = call.psn + n as u32;
        end.recv(n as u64, &[end.mem.segment(0, 8)]);
        peer.send_send(&call, psn);
        let done = outcomes(&rig.completions(&end.recvs, 1));
        assert_eq!(done, [(n as u64, WcStatus::Success)]);
        let mut notified = false;
        rig.until("an acknowledgement", || match peer.receive()? {
            Received::CongestionNotification => {
                notified = true;
                None
            }
            Received::Ack(acked) => (acked == psn).then_some(()),
            other => panic!("{other:?}"),
        });
        assert_eq!(notified, tos == MARKED, "packet {n}");
        // The interval between two notifications passes.
        let now = Instant::now();
        while now.elapsed() < Duration::from_micros(60) {
            std::hint::spin_loop();
        }
    }
}

/// Adapters send congestion notifications from ports of their own. A notification counts if it has
/// the peer's address, but other packets from such a port do not.
#[test]
fn a_notification_from_any_port_of_the_peer_counts() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    // The first packet shows which port the peer has.
    end.recv(1, &[end.mem.segment(0, 8)]);
    peer.send_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    let counter = |wanted: &str| {
        let counters = ours.counters();
        counters.into_iter().find(|(name, _)| name == wanted).expect("the counter exists").1
    };
    let bth = Bth { becn: true, ..Bth::new(Opcode::CongestionNotification, call.qpn, Psn::new(0)) };
    let notification = Packet { bth, extension: Extension::Reserved, payload: &[] };
    let (same_host, stranger) = (Peer::elsewhere(), Peer::bound((STRANGER, 0)));
    for sent in 1..=3 {
        same_host.send_packet(&notification);
        same_host.send_send(&call, call.psn + 1);
        stranger.send_packet(&notification);
        rig.until("the packets", || (counter("packets-from-elsewhere") == 2 * sent).then_some(()));
        assert_eq!(counter("congestion-notifications-received"), sent);
    }
}

/// A notification in each round trip, from a port that is not the peer's, keeps the window small.
/// Without notifications the window doubles in each round trip.
#[test]
fn notifications_from_any_port_shrink_the_window() {
    const LARGE: i32 = 64;
    const SMALL: i32 = 32; // twice the initial window
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS} threads=1"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    // The first packet shows which port the peer has.
    end.recv(1, &[end.mem.segment(0, 8)]);
    peer.send_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);

    let message = [end.mem.segment(0, 1 << 16)];
    (0..QUEUE as u64).for_each(|id| end.send(id, &message));
    let (mut unacknowledged, mut last) = (OUR_PSN, OUR_PSN.previous());
    // Counts the packets in flight when this side sends no more. Acknowledges all but the last one,
    // so that the connection is never idle.
    let mut round_trip = || {
        let mut next = || loop {
            if let Received::Request(psn) = peer.receive()? {
                return Some(psn);
            }
        };
        let mut newest = |psn: Psn| last = if psn.is_after(last) { psn } else { last };
        newest(rig.until("a packet", &mut next));
        let mut silent_passes = 0;
        while silent_passes < 8 {
            ours.progress();
            silent_passes += 1;
            while let Some(psn) = next() {
                newest(psn);
                silent_passes = 0;
            }
        }
        let in_flight = last.distance(unacknowledged) + 1;
        let acknowledged = if in_flight > 1 { last.previous() } else { last };
        peer.send_ack(&call, acknowledged);
        unacknowledged = acknowledged.next();
        for done in poll::<Roce>(&end.requests, QUEUE) {
            assert_eq!(done.status, WcStatus::Success);
            end.send(done.id, &message);
        }
        in_flight
    };
    let bth = Bth { becn: true, ..Bth::new(Opcode::CongestionNotification, call.qpn, Psn::new(0)) };
    let notification = Packet { bth, extension: Extension::Reserved, payload: &[] };
    let same_host = Peer::elsewhere();
    let grown = (0..1000).any(|_| round_trip() > LARGE);
    assert!(grown, "without notifications, the window grows");
    let mut small = 0;
    for _ in 0..1000 {
        same_host.send_packet(&notification);
        small = if round_trip() <= SMALL { small + 1 } else { 0 };
        if small == 3 {
            return;
        }
    }
    panic!("with a notification in each round trip, the window stays above {SMALL} packets");
}

/// The kernel merges packets of one sender into a batch, even if they are for two adapters. The
/// adapter that receives the batch passes the mark on, too, so each adapter notifies the peer.
#[test]
fn a_mark_reaches_the_adapter_to_which_its_packet_is_passed_on() {
    let _peer_port = lock_peer_port();
    let (first, second, peer) = (adapter(), adapter(), Peer::new());
    let rigs = [Rig { a: &first, b: &second }, Rig { a: &second, b: &first }];
    let connections = [0, 0x80].map(|n| connected_with(&rigs[n as usize / 0x80], &peer, n));
    let mut batch = Vec::new();
    for (position, (_, call)) in (0..).zip(&connections) {
        let bth = Bth { ack_request: true, ..Bth::new(Opcode::SendOnly, call.qpn, call.psn) };
        let packet = Packet { bth, extension: Extension::None, payload: b"data" };
        let start = batch.len();
        batch.resize(start + packet.len() + Icrc::SIZE, 0);
        packet.emit(&mut batch[start..][..packet.len()]);
        peer.icrc.seal(position, &mut batch[start..]);
    }
    for (end, _) in &connections {
        end.recv(1, &[end.mem.segment(0, 8)]);
    }
    SockRef::from(&peer.socket).set_tos_v4(MARKED).expect("no privilege is needed");
    set_socket_segment(&peer.socket, batch.len() / 2);
    peer.socket.send_to(&batch, (OURS, UDP_PORT)).expect("the batch is sent");
    for (rig, (end, _)) in rigs.iter().zip(&connections) {
        assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    }
    for _ in &connections {
        rigs[0].until("a notification", || {
            (peer.receive()? == Received::CongestionNotification).then_some(())
        });
    }
}

/// Makes the kernel divide what the socket sends into packets of this number of octets.
fn set_socket_segment(socket: &UdpSocket, octets: usize) {
    let octets = octets as libc::c_int;
    // SAFETY: `octets` is valid for reads during the call, and its size is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const octets).cast(),
            size_of_val(&octets) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "the kernel supports UDP_SEGMENT");
}

/// Each connection has one source port, and many connections have several.
#[test]
fn connections_have_source_ports_of_their_own() {
    let _peer_port = lock_peer_port();
    // Each engine of an adapter has ports of its own.
    let ours = open(&format!("{OURS} threads=1"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let mut ports = BTreeSet::new();
    let connections: Vec<_> = (0..24).map(|n| connected_with(&rig, &peer, n << 7)).collect();
    for (n, (end, call)) in connections.iter().enumerate() {
        let mut of_connection = BTreeSet::new();
        for round in 0..3 {
            end.send(round, &[end.mem.segment(0, 8)]);
            let psn = OUR_PSN + round as u32;
            rig.until("a message", || (peer.receive()? == Received::Request(psn)).then_some(()));
            of_connection.insert(peer.from.get().expect("a source").port());
            peer.send_ack(call, psn);
            let done = outcomes(&rig.completions(&end.requests, 1));
            assert_eq!(done, [(round, WcStatus::Success)]);
        }
        assert_eq!(of_connection.len(), 1, "connection {n}");
        ports.append(&mut of_connection);
    }
    assert!((2..=4).contains(&ports.len()), "{ports:?}");
}

/// The peer refuses the path MTU and says which one it takes, or does not say it. This side asks
/// again with less.
#[test]
fn a_refused_path_mtu_is_lowered() {
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS}"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    for (ari, expected) in [
        (&[PathMtu::Octets512.code()][..], &[5, 2][..]),
        (&[], &[5, 4, 3, 2, 1]),
        (&[9], &[5, 4, 3, 2, 1]),
    ] {
        let end = calling(&rig, PEER);
        let last = expected.len() - 1;
        for (n, &code) in expected.iter().enumerate() {
            let (transaction, id) = rig.until("a REQ", || match peer.receive()? {
                Received::Req { transaction, id, path_mtu } => {
                    assert_eq!(path_mtu, code);
                    Some((transaction, id))
                }
                other => panic!("{other:?}"),
            });
            let rej = Rej {
                local_id: 0,
                remote_id: id,
                answered: Answered::Req,
                reason: if n < last { Reason::INVALID_MTU } else { Reason::CONSUMER },
                ari: if n < last { ari } else { &[] },
                private: &[],
            };
            peer.send_message(transaction, Message::Rej(rej));
        }
        let event = rig.next("the refusal", &end.log);
        assert!(matches!(event, Event::Rejected { by_peer: true, .. }), "{event:?}");
    }
}

/// The peer acknowledges only short packets, as if a switch dropped all others. `rnic` tests how
/// soon the connection ends.
#[test]
fn full_packets_that_do_not_get_through_end_the_connection() {
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS} timeout=60 retries=7"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    let question = OUR_PSN.previous();
    end.send(1, &[end.mem.segment(0, 4096)]);
    let event = rig.until("the end", || {
        while let Some(received) = peer.receive() {
            if received == Received::Request(question) {
                peer.send_ack(&call, question);
            }
        }
        end.log.take()
    });
    assert!(matches!(event, Event::Broken), "{event:?}");
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Transport)]);
}

/// The path MTU of this host becomes smaller. The kernel refuses the next full packet, and the
/// connection ends at once. Connections with short messages continue.
#[test]
fn a_packet_that_the_kernel_refuses_ends_its_connection_at_once() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can have a network of its own");
        return;
    }
    let _peer_port = lock_peer_port();
    let network = std::thread::spawn(|| {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        let set = |arguments: &str| {
            let done = Command::new("ip").args(arguments.split(' ')).status();
            assert!(done.expect("ip starts").success(), "ip {arguments}");
        };
        set("link set lo mtu 9000 up");
        let ours = adapter();
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        let [(short, short_call), (long, _)] =
            [0, 0x80].map(|n| connected_over(&rig, &peer, n, PathMtu::Octets4096));
        set("link set lo mtu 1500");
        for id in 0..2 {
            long.send(id, &[long.mem.segment(0, 10_000)]);
        }
        let event = rig.next("the end", &long.log);
        assert!(matches!(event, Event::Broken), "{event:?}");
        for (name, count) in ours.counters() {
            let waited = ["probes", "ack-timeouts"].contains(&&*name) && count > 0;
            assert!(!waited, "the connection ends at once: {name} {count}");
        }
        let flushed = [(0, WcStatus::Flushed), (1, WcStatus::Flushed)];
        assert_eq!(outcomes(&rig.completions(&long.requests, 2)), flushed);
        short.send(2, &[short.mem.segment(0, 8)]);
        rig.until("a message", || (peer.receive()? == Received::Request(OUR_PSN)).then_some(()));
        peer.send_ack(&short_call, OUR_PSN);
        assert_eq!(outcomes(&rig.completions(&short.requests, 1)), [(2, WcStatus::Success)]);
        short.log.assert_silent();
    });
    network.join().expect("no panic");
}

/// A caller proposes a path MTU that the interface does not carry. It is told which one it may
/// propose, and it may call again.
#[test]
fn a_caller_with_a_path_mtu_that_is_too_large_is_told_so() {
    let _peer_port = lock_peer_port();
    let ours = open(&format!("{OURS} mtu=1024"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a);
    send_req_of(&peer, (PEER_ID, PEER_QPN), port, PathMtu::Octets4096);
    let answer = rig.until("an answer", || peer.receive());
    assert_eq!(answer, Received::Rej(Reason::INVALID_MTU));
    send_req_of(&peer, (PEER_ID + 0x80, PEER_QPN), port, PathMtu::Octets1024);
    service.request(&rig);
}
