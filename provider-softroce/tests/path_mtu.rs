//! Tests of ICMP messages that say that a router carries only shorter packets. The test plays the
//! peer by hand, and has network namespaces of its own, so the messages affect no other test.

#[allow(dead_code)] // Other tests use the rest.
mod peer;

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use dat_core::provider::{Transport, WcStatus};
use provider_mem::contract::rig::{End, Event, Rig, Service, outcomes};
use provider_softroce::Roce;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use wire::cm::Reason;
use wire::rocev2::{PathMtu, Psn, UDP_PORT};

use self::peer::*;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 47, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 48, 0, 1);

/// A network namespace.
struct Namespace(File);

impl Namespace {
    /// Creates a namespace. The calling thread enters it.
    fn new() -> Self {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        let namespace = Namespace(File::open("/proc/thread-self/ns/net").expect("a namespace"));
        ip("link set lo up");
        namespace
    }

    /// Makes the calling thread enter the namespace.
    fn enter(&self) {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    }

    /// The path of the namespace, for other processes.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.expect("iproute2 is installed").success(), "ip {arguments}");
}

/// Calls `test` on a thread that may have a network of its own.
fn in_own_network(test: fn()) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can have a network of its own");
        return;
    }
    let _peer_port = lock_peer_port();
    std::thread::spawn(test).join().expect("no panic");
}

/// Sends an ICMP message that says that a router carries only packets of `mtu` octets. The message
/// quotes a packet from this port of our side to this queue pair.
fn send_fragmentation_needed(mtu: u16, port: u16, qpn: u32, psn: Psn) {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    let octets = 4160u16;
    message.extend([0x45, 0]);
    message.extend(octets.to_be_bytes());
    message.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    message.extend(OURS.octets());
    message.extend(PEER.octets());
    for word in [port, UDP_PORT, octets - 20, 0] {
        message.extend(word.to_be_bytes());
    }
    let mut bth = [0; 12];
    bth[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bth[9..12].copy_from_slice(&psn.value().to_be_bytes()[1..]);
    message.extend(bth);
    let sum: u32 =
        message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).expect("we are root");
    let to = SockAddr::from(std::net::SocketAddr::from((OURS, 0)));
    socket.send_to(&message, &to).expect("the message is sent");
}

/// Waits until the peer has received a packet.
fn receive_packet(rig: &Rig<'_, Roce>, peer: &Peer, psn: Psn) {
    rig.until("a packet", || (peer.receive()? == Received::Request(psn)).then_some(()));
}

/// An attacker forges ICMP messages. The connection continues to send full packets, unless the
/// attacker has guessed the port, the queue pair number and a PSN in flight.
#[test]
fn a_forged_message_ends_no_connection() {
    in_own_network(|| {
        let _own = Namespace::new();
        ip("link set lo mtu 9000");
        for address in [OURS, PEER] {
            ip(&format!("addr add {address}/32 dev lo"));
        }
        let ours = adapter();
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        let (end, call) = connected_over(&rig, &peer, 0, PathMtu::Octets4096);
        let mut first = OUR_PSN;
        for id in 0..3 {
            end.send(id, &[end.mem.segment(0, 10_000)]);
            (0..3).for_each(|ahead| receive_packet(&rig, &peer, first + ahead));
            let port = peer.from.get().expect("a source").port();
            send_fragmentation_needed(1500, UDP_PORT, PEER_QPN, first);
            for (qpn, psn) in
                [(PEER_QPN + 1, first), (PEER_QPN, first + 3), (PEER_QPN, first.previous())]
            {
                send_fragmentation_needed(1500, port, qpn, psn);
            }
            // The router carries full packets.
            send_fragmentation_needed(4140, port, PEER_QPN, first);
            // Our side reads the messages before it repeats the packet for the second time.
            (0..3).for_each(|_| receive_packet(&rig, &peer, first));
            end.log.assert_silent();
            peer.send_ack(&call, first + 2);
            assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(id, WcStatus::Success)]);
            first = first + 3;
        }
        end.send(3, &[end.mem.segment(0, 10_000)]);
        receive_packet(&rig, &peer, first + 2);
        let port = peer.from.get().expect("a source").port();
        send_fragmentation_needed(1500, port, PEER_QPN, first + 2);
        let event = rig.next("the end", &end.log);
        assert!(matches!(event, Event::Broken), "{event:?}");
    });
}

/// An attacker makes our kernel believe that the path to a host carries less. Calls of that host
/// are accepted with the path MTU of the interface.
#[test]
fn a_forged_message_refuses_no_caller() {
    in_own_network(|| {
        let _own = Namespace::new();
        ip("link set lo mtu 9000");
        for address in [OURS, PEER] {
            ip(&format!("addr add {address}/32 dev lo"));
        }
        let ours = adapter();
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        send_fragmentation_needed(1500, UDP_PORT, PEER_QPN, OUR_PSN);
        let route = Command::new("ip").args(["route", "get", &PEER.to_string()]).output();
        let route = String::from_utf8(route.expect("iproute2 is installed").stdout);
        let route = route.expect("the output of ip is text");
        assert!(route.contains("mtu 1500"), "the kernel believes any message: {route}");
        connected_over(&rig, &peer, 0, PathMtu::Octets4096);
    });
}

/// Two hosts, and a router between them that carries shorter packets than the interface of our host
/// suggests.
struct Routed {
    own: Namespace,
    /// The namespaces last as long as these values.
    _others: [Namespace; 2],
}

impl Routed {
    /// Creates the hosts and the router. The calling thread enters our host. Returns the peer, too.
    fn new() -> (Self, Peer) {
        let own = Namespace::new();
        let others = Namespace::new();
        let router = Namespace::new();
        for (device, network, namespace) in [("near", "10.47", &own), ("far", "10.48", &others)] {
            ip(&format!("link add {device} type veth peer name wire netns {}", namespace.path()));
            ip(&format!("addr add {network}.0.254/24 dev {device}"));
            ip(&format!("link set {device} up"));
        }
        ip("link set near mtu 9000");
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a router");
        others.enter();
        ip(&format!("addr add {PEER}/24 dev wire"));
        ip("link set wire up");
        ip("route add default via 10.48.0.254");
        let peer = Peer::new();
        own.enter();
        ip(&format!("addr add {OURS}/24 dev wire"));
        ip("link set wire mtu 9000 up");
        ip("route add default via 10.47.0.254");
        (Routed { own, _others: [others, router] }, peer)
    }
}

/// The peer calls with a path MTU that the path does not carry. Our side refuses.
fn expect_refusal(rig: &Rig<'_, Roce>, peer: &Peer) {
    while peer.receive().is_some() {}
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a);
    send_req_of(peer, (PEER_ID + 0x80, PEER_QPN + 0x80), port, PathMtu::Octets4096);
    rig.until("a refusal", || {
        (peer.receive()? == Received::Rej(Reason::INVALID_MTU)).then_some(())
    });
    send_req_of(peer, (PEER_ID + 0x100, PEER_QPN + 0x80), port, PathMtu::Octets1024);
    service.request(rig);
}

/// The connection ends before an ACK timeout, and the next one has a smaller path MTU, whichever
/// side calls.
#[test]
fn a_router_that_carries_less_ends_a_connection_soon() {
    in_own_network(|| {
        let (_network, peer) = Routed::new();
        let ours = adapter();
        let rig = Rig { a: &ours, b: &ours };
        let (end, _) = connected_over(&rig, &peer, 0, PathMtu::Octets4096);
        end.send(1, &[end.mem.segment(0, 10_000)]);
        let event = rig.next("the end", &end.log);
        assert!(matches!(event, Event::Broken), "{event:?}");
        let counters = ours.counters();
        let timeouts = counters.iter().find(|(name, _)| *name == "ack-timeouts");
        assert_eq!(timeouts.map(|(_, count)| *count), Some(0), "the connection ends soon");

        expect_refusal(&rig, &peer);
        let _calling = calling(&rig, PEER);
        rig.until("a REQ", || match peer.receive()? {
            Received::Req { path_mtu, .. } => {
                assert_eq!(path_mtu, PathMtu::Octets1024.code());
                Some(())
            }
            _ => None,
        });
    });
}

/// Sends short messages. The peer gets each of them several times before it acknowledges the
/// message. Returns the PSN of the next message.
fn send_short_messages(
    rig: &Rig<'_, Roce>,
    (end, peer, call): (&End<'_, Roce>, &Peer, &PeerConnection),
    first: Psn,
) -> Psn {
    const MESSAGES: u32 = 5;
    for n in 0..MESSAGES {
        end.send(n.into(), &[end.mem.segment(0, 500)]);
        (0..3).for_each(|_| receive_packet(rig, peer, first + n));
        peer.send_ack(call, first + n);
        let completions = rig.completions(&end.requests, 1);
        assert_eq!(outcomes(&completions), [(n.into(), WcStatus::Success)]);
    }
    end.log.assert_silent();
    first + MESSAGES
}

/// Sends short messages over a path that carries less than both ends assume, and then a long one,
/// which ends the connection. `narrow` makes the path narrow after the adapter was opened.
fn short_messages_pass(narrow: impl FnOnce(&Routed)) {
    let (network, peer) = Routed::new();
    let ours = adapter();
    let rig = Rig { a: &ours, b: &ours };
    narrow(&network);
    let (end, call) = connected_over(&rig, &peer, 0, PathMtu::Octets4096);
    send_short_messages(&rig, (&end, &peer, &call), OUR_PSN);
    end.send(7, &[end.mem.segment(0, 3000)]);
    let event = rig.next("the end", &end.log);
    assert!(matches!(event, Event::Broken), "{event:?}");
}

/// The answer of the router to our probe of the path ends no connection. It explains the end of a
/// connection that sends long messages.
#[test]
fn short_messages_pass_a_router_that_carries_less() {
    in_own_network(|| short_messages_pass(|_| ()));
}

/// Our interface carries less than it did when the adapter was opened.
#[test]
fn short_messages_pass_an_interface_that_carries_less() {
    in_own_network(|| {
        short_messages_pass(|network| {
            network.own.enter();
            ip("link set wire mtu 1500");
        });
    });
}

/// The peer reads from our memory, and the router does not forward our responses. The connection
/// ends when the peer requests them again.
#[test]
fn a_router_that_does_not_forward_responses_ends_a_connection() {
    in_own_network(|| {
        let (_network, peer) = Routed::new();
        let ours = adapter();
        let rig = Rig { a: &ours, b: &ours };
        let (end, call) = connected_over(&rig, &peer, 0, PathMtu::Octets4096);
        let from = end.mem.remote(0);
        let event = rig.until("the end", || {
            peer.send_read(&call, call.psn, (from, 10_000));
            end.log.take()
        });
        assert!(matches!(event, Event::Broken), "{event:?}");
        expect_refusal(&rig, &peer);
    });
}
