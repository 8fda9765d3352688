use std::process::Command;

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_send_buffer_size;

use super::*;
use crate::socket::{ReceiveStrategy, RxBatch};

impl PacketIo {
    /// Opens all senders that this address may have.
    pub(crate) fn open_all_senders(&mut self) {
        while self.senders.len() < SENDERS_MAX {
            self.senders.push(Sender::open(self.address, self.traffic_class).expect("a free port"));
        }
    }

    /// The source addresses of all senders.
    pub(crate) fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        self.senders.iter().map(|sender| sender.source)
    }
}

fn packet_io() -> PacketIo {
    let address = "127.0.0.61:0".parse().expect("an address");
    PacketIo::new(address, true, 46, &Conditions::OFF, None).expect("a free port")
}

/// The packets of each connection leave from one port, and the connections from several.
#[test]
fn connections_to_other_addresses_are_spread_over_ports() {
    let mut io = packet_io();
    let target = Udp::bind_exclusive("127.0.0.62:0".parse().expect("an address"));
    let target = target.expect("a free port");
    let to = target.local_addr().expect("the socket is bound");
    let now = Instant::now();
    let mut used = Vec::new();
    for n in 0..64 {
        let mut peer = Peer::new(io.source(), io.address, to).expect("one family");
        io.choose_sender(&mut peer, [0x00_1205 + (n << 7), 0x00_4505]);
        let ports: Vec<SocketAddr> = (0..3)
            .map(|round| {
                let burst = io.burst_to(&peer, now);
                burst.push(76).expect("room for a packet").fill(round);
                io.flush();
                let mut batch = RxBatch::new();
                assert!(target.receive(&mut batch, &mut ReceiveStrategy::default()));
                let datagram = batch.get(0).expect("a datagram");
                // The ICRC covers the source port.
                let icrc = Icrc::new(datagram.from, to).expect("one family");
                assert!(icrc.recover(0, datagram.octets).is_ok());
                datagram.from
            })
            .collect();
        assert!(ports.iter().all(|&port| port == ports[0]), "{ports:?}");
        used.push(ports[0]);
    }
    used.sort();
    used.dedup();
    let mut sources: Vec<SocketAddr> = io.sources().collect();
    sources.sort();
    assert_eq!((used.len(), used), (SENDERS_MAX, sources));
}

/// Packets to this adapter's own address do not leave the host, so one port is enough. Packets
/// of many queue pairs then share a batch.
#[test]
fn connections_to_the_own_address_share_a_port() {
    let mut io = packet_io();
    for n in 0..64 {
        let mut peer = Peer::new(io.source(), io.address, io.address).expect("one family");
        io.choose_sender(&mut peer, [n << 7, 5]);
        assert_eq!(peer.sender, 0);
    }
    assert_eq!(io.senders.len(), 1);
}

/// The traffic class contains the DSCP and the codepoint ECT(0).
#[test]
fn packets_carry_the_traffic_class() {
    for own in ["127.0.0.61:0", "[::1]:0"] {
        let own = own.parse().expect("an address");
        let mut io = PacketIo::new(own, true, 46, &Conditions::OFF, None).expect("a free port");
        io.open_all_senders();
        for sender in &io.senders {
            assert_eq!(sender.socket.traffic_class().expect("an option"), 46 << 2 | 2);
        }
    }
}

/// The link is slow, and the socket's buffer is small. All packets leave, and each leaves once.
#[test]
fn packets_wait_while_the_socket_has_no_room() {
    const ROUNDS: usize = 10;
    /// The number of packets that wait behind the first one that finds no room.
    const BEHIND: usize = 20;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can have a network of its own");
        return;
    }
    let network = std::thread::spawn(|| {
        // SAFETY: the call accesses no memory. The system call changes the network of this
        // thread only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        for line in [
            "ip link add near type veth peer name far",
            "ip addr add 10.9.0.1/24 dev near",
            "ip link set far up",
            "ip link set near up",
            "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev near",
            "tc qdisc add dev near root tbf rate 40mbit burst 4kb limit 10mb",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let done = Command::new(words[0]).args(&words[1..]).status();
            assert!(done.expect("iproute2 is installed").success(), "{line}");
        }
        let address = "10.9.0.1:0".parse().expect("an address");
        let mut io = PacketIo::new(address, false, 0, &Conditions::OFF, None).expect("a free port");
        set_socket_send_buffer_size(&io.senders[0].socket, 20_000).expect("an option");
        let to = "10.9.0.2:4791".parse().expect("an address");
        let peer = Peer::new(io.source(), address, to).expect("one family");
        io.open_all_senders();
        let other = Peer { sender: 1, ..Peer::new(io.source(), address, to).expect("one family") };
        // The clock of the batches stands still while the socket has no room, so no batch waits for
        // too long, however busy this host is.
        let when_there_is_room = |io: &PacketIo, at: Instant| {
            let mut fds = [PollFd::new(&io.senders[0].socket, PollFlags::OUT)];
            assert_eq!(rustix::event::poll(&mut fds, None), Ok(1));
            at
        };
        let mut packets = 0;
        let mut send_more_than_fits = |io: &mut PacketIo| {
            let mut send = |io: &mut PacketIo| {
                io.burst_to(&peer, Instant::now()).push(1000).expect("room for a packet").fill(0);
                io.flush();
                packets += 1;
            };
            while !io.has_unsent(&peer) {
                send(io);
            }
            (0..BEHIND).for_each(|_| send(io));
            assert!(!io.has_unsent(&other), "another sender does not wait");
        };
        for _ in 0..ROUNDS {
            send_more_than_fits(&mut io);
            while let Some(at) = io.deadline() {
                let at = when_there_is_room(&io, at);
                io.send_unsent(at);
            }
            assert!(!io.has_unsent(&peer));
        }
        // The end of the adapter waits for the unsent batches.
        send_more_than_fits(&mut io);
        let latest = Instant::now() + unsent_batches::WAIT_MAX;
        io.drain_unsent(latest, when_there_is_room);
        assert!(!io.has_unsent(&peer) && io.deadline().is_none());
        let sent = || {
            let counts = std::fs::read_to_string("/proc/thread-self/net/dev").expect("counts");
            let far = counts.lines().find_map(|line| line.trim().strip_prefix("far:"));
            let received = far.and_then(|far| far.split_whitespace().nth(1)?.parse().ok());
            received.unwrap_or(0)
        };
        // Other packets of the kernel may be counted, too.
        let start = Instant::now();
        while sent() < packets && start.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        assert!((packets..packets + 30).contains(&sent()), "{} of {packets}", sent());
    });
    network.join().expect("no panic");
}

#[test]
fn packets_that_are_too_long_are_reported_with_their_queue_pairs() {
    let mut io = packet_io();
    let to = SocketAddr::from(([127, 0, 0, 62], 4791));
    let mut packets = vec![0; 3 * 100];
    for (packet, numbers) in packets.chunks_mut(100).zip([[0x11u8, 1], [0x22, 2], [0x11, 3]]) {
        [packet[7], packet[11]] = numbers;
    }
    note_too_long(&mut io.too_long, to, &packets[..250], 100, 68);
    note_too_long(&mut io.too_long, to, &packets[200..], 100, 68);
    let found = |qpn, psn| {
        let psn = Psn::new(psn);
        TooLong { peer: to.ip(), qpn, psn, octets: 128, mtu: 68 }
    };
    assert!(io.has_too_long());
    assert_eq!(io.take_too_long(), [found(0x11, 1), found(0x22, 2), found(0x11, 3)]);
    assert!(!io.has_too_long() && io.take_too_long().is_empty());
    (0..TOO_LONG_MAX).for_each(|_| note_too_long(&mut io.too_long, to, &packets, 100, 68));
    assert_eq!(io.take_too_long().len(), TOO_LONG_MAX);
}

/// A report about a packet from one port says nothing about the connections of other ports.
#[test]
fn reports_belong_to_the_port_of_the_packet() {
    let mut io = packet_io();
    io.open_all_senders();
    let to = SocketAddr::from(([127, 0, 0, 62], 4791));
    let (qpn, psn) = (0x11, Psn::new(7));
    io.senders[2].path_reports.add(PathReport { peer: to.ip(), qpn, psn, path: 1400 });
    let reported = (0..SENDERS_MAX).map(|sender| {
        let peer = Peer { sender, ..Peer::new(io.source(), io.address, to).expect("one family") };
        io.reported_path(&peer, qpn, |of| of == psn)
    });
    assert_eq!(reported.collect::<Vec<_>>(), [None, None, Some(1400), None]);
}

/// The kernel refuses the batch, and does not say why. It sends a single packet of the batch.
#[test]
fn a_batch_of_which_one_packet_is_sent_is_not_sent() {
    let mut io = packet_io();
    let target = Udp::bind_exclusive("127.0.0.62:0".parse().expect("an address"));
    let target = target.expect("a free port");
    let to = target.local_addr().expect("the socket is bound");
    let longest = vec![0; 66_000];
    let mut too_long = Vec::new();
    assert_eq!(io.senders[0].send(to, &longest, 100, &mut too_long), Sent::Failed);
    assert_eq!(io.senders[0].send(to, &longest[..100], 100, &mut too_long), Sent::All);
    assert_eq!(too_long, []);
}

/// A sender without segmentation offload splits a batch, and the packets arrive one by one.
#[test]
fn identifications_go_on_from_one_queue_pair_to_the_next() {
    let address = |last| SocketAddr::from(([192, 0, 2, last], 4791));
    let (ours, source) = (address(1), address(2));
    let peer = || Peer::new(ours, ours, source).expect("addresses of one family");
    let (mut first, mut second, mut last) = (peer(), peer(), LastSource::default());
    let icrc = Icrc::new(source, ours).expect("addresses of one family");
    let mut check = |peer: &mut Peer, id, expected| {
        let mut datagram = [7; 80];
        icrc.seal(id, &mut datagram);
        assert_eq!(peer.expected_id(&last, source, 0), expected);
        let (_, ip) = peer.check(ours, source, 0, &datagram, &mut last).expect("a valid ICRC");
        assert_eq!(ip, Identification::unfragmented(id));
    };
    check(&mut first, 0, 0);
    check(&mut second, 1, 0);
    check(&mut first, 2, 2);
    check(&mut second, 3, 3);
    check(&mut second, 0, 4);
    assert_eq!(first.expected_id(&last, address(3), 0), 3, "another source");
}
