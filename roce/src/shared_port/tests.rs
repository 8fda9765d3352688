use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use netem::Conditions;
use socket2::{Domain, Socket, Type};

use super::local_socket::ReceiveBuffer;
use super::*;
use crate::packet_io::{PacketIo, Peer};
use crate::socket::{ReceiveStrategy, RxBatch};

fn open(address: SocketAddr) -> Result<Port, PortError> {
    Port::open(address, SLOTS, OPEN_TIMEOUT)
}

/// An address of this host that no other test uses.
fn address() -> SocketAddr {
    static LAST: AtomicU8 = AtomicU8::new(0);
    let n = LAST.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64 + n, high, low.max(1))), 0)
}

/// Runs `f` while all these ports answer requests for the shared sockets.
fn while_answering<R>(ports: &[&Port], f: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for port in ports {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    answer(port);
                    std::thread::yield_now();
                }
            });
        }
        let result = f();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn answer(port: &Port) {
    if let Ok(Some(LocalMessage::SocketRequest(request))) =
        port.local_socket.receive(&mut ReceiveBuffer::default())
    {
        port.send_shared_sockets(&request);
    }
}

/// Opens ports of an address until there are `count`. All of them answer requests.
fn open_up_to(count: usize, address: SocketAddr, ports: Vec<Port>) -> Result<Vec<Port>, PortError> {
    let (ports, done) = (Mutex::new(ports), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                ports.lock().expect("no panic").iter().for_each(answer);
                std::thread::yield_now();
            }
        });
        let result = (|| {
            while ports.lock().expect("no panic").len() < count {
                let port = Port::open(address, SLOTS, OPEN_TIMEOUT)?;
                ports.lock().expect("no panic").push(port);
            }
            Ok(())
        })();
        done.store(true, Ordering::Relaxed);
        result
    });
    result.map(|()| ports.into_inner().expect("no panic"))
}

/// A packet for a queue pair. If the queue pair is the GSI, the packet is a message about a
/// connection.
fn packet(qpn: u32, connection: u32) -> Vec<u8> {
    let mut octets = vec![0; 72];
    octets[4..8].copy_from_slice(&qpn.to_be_bytes());
    octets[48..52].copy_from_slice(&connection.to_be_bytes());
    octets
}

fn arrived(socket: &Udp) -> usize {
    let (mut batch, mut strategy, mut n) = (RxBatch::new(), ReceiveStrategy::default(), 0);
    while socket.receive(&mut batch, &mut strategy) {
        n += (0..batch.len())
            .filter_map(|i| batch.get(i))
            .map(|d| d.octets.len().div_ceil(d.size))
            .sum::<usize>();
    }
    n
}

fn send(to: SocketAddr, packet: &[u8]) {
    let stranger = Udp::bind_exclusive(SocketAddr::new(to.ip(), 0)).expect("a socket");
    assert_eq!(stranger.send(to, packet, packet.len()), crate::socket::Sent::All);
}

/// An adapter that needs a certain slot gets this one, also if it is the first at its address and
/// the slot is not in the first part of the shared sockets.
#[test]
fn an_adapter_may_need_a_certain_slot() {
    let address = address();
    let open = |slots| Port::open(address, slots, OPEN_TIMEOUT);
    let first = open(20..21).expect("the slot is free");
    assert_eq!(first.slot(), 20);
    while_answering(&[&first], || {
        assert!(matches!(open(20..21), Err(PortError::SlotTaken(_))));
        let next = open(20..SLOTS.end).expect("a slot is free");
        let any = open(SLOTS).expect("a slot is free");
        assert_eq!([next.slot(), any.slot()], [21, 0]);
    });
}

#[test]
fn each_slot_gets_its_packets_while_adapters_open_and_close() {
    let first = open(address()).expect("the first port opens");
    assert_eq!(first.slot(), 0);
    let second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    assert_eq!((second.slot(), second.address()), (1, first.address()));
    let to = first.address();
    for (qpn, connection, expected) in [
        (0x12_3400, 0, [1, 0, 0]),
        (0x12_3402, 0, [0, 1, 0]),
        // The following rows are messages of the connection manager: first a request, then messages
        // about connections.
        (1, 0, [0, 0, 1]),
        (1, 0x7700, [1, 0, 0]),
        (1, 0x7782, [0, 1, 0]),
        // No adapter has slot 9.
        (0x112, 0, [0, 0, 0]),
    ] {
        send(to, &packet(qpn, connection));
        let got = [arrived(&first.socket), arrived(&second.socket), arrived(&first.req_socket)];
        assert_eq!(got, expected, "queue pair {qpn:#x}, connection {connection:#x}");
    }
    // The first adapter ends. The other adapter keeps its slot, and a new adapter gets the slot
    // that has become free.
    drop(first);
    send(to, &packet(0x12_3480, 0));
    let third = while_answering(&[&second], || open(to)).expect("a further port opens");
    assert_eq!(third.slot(), 0, "the slot is free again");
    assert_eq!(arrived(&third.socket), 0, "packets for the previous owner are dropped");
    send(to, &packet(0x80, 0));
    send(to, &packet(0x82, 0));
    send(to, &packet(1, 0));
    assert_eq!([arrived(&third.socket), arrived(&second.socket)], [1, 1]);
    assert_eq!(
        [arrived(&third.req_socket), arrived(&second.req_socket)],
        [1, 0],
        "only one adapter reads the request"
    );
    // The port is free when all adapters have ended.
    drop((second, third));
    Udp::bind_exclusive(to).expect("the address is free");
}

#[test]
fn short_packets_go_to_the_req_socket() {
    let port = open(address()).expect("the first port opens");
    for len in 1..12 {
        send(port.address(), &vec![0xfe; len]);
    }
    // A packet of at most seven octets is too short to contain a queue pair number. The longer
    // packets contain a number whose low bits name the REQ socket.
    assert_eq!([arrived(&port.socket), arrived(&port.req_socket)], [0, 11]);
}

#[test]
fn requests_reach_the_adapter_that_listens() {
    let now = Instant::now();
    let mut first = open(address()).expect("the first port opens");
    let second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    let service = second.listen(0x0106_1234).expect("the service is free");
    let error =
        first.listen(0x0106_1234).map(drop).expect_err("a qualifier in use must be refused");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let from: SocketAddr = "[fe80::1%7]:4791".parse().expect("an address");
    assert!(first.forward_request(0x0106_1234, from, b"request", now));
    assert!(
        !first.forward_request(0x0106_1235, from, b"request", now),
        "a request must not be forwarded if no adapter listens"
    );
    let mut buffer = ReceiveBuffer::default();
    match service.local_socket.receive(&mut buffer) {
        Ok(Some(LocalMessage::Packet { origin, packet })) => {
            assert_eq!((origin, packet), (from.into(), &b"request"[..]));
        }
        _ => panic!("no packet has arrived"),
    }
    assert!(service.local_socket.receive(&mut buffer).expect("the socket can be read").is_none());
    let Service { local_socket, mut closed } = service;
    closed.link().expect("no error");
    drop(local_socket);
    assert!(
        first.forward_request(0x0106_1234, from, b"repetition", now),
        "the closed service still has requests"
    );
    assert!(matches!(
        second.local_socket.receive(&mut buffer),
        Ok(Some(LocalMessage::Packet { packet: b"repetition", .. }))
    ));
    let mut closed_later = first.names.closed_service(0x0106_1234, first.slot);
    closed_later.link().expect("no error");
    drop(closed);
    assert!(
        first.forward_request(0x0106_1234, from, b"repetition", now),
        "the first adapter still has requests"
    );
    drop(closed_later);
    assert!(
        !first.forward_request(0x0106_1234, from, b"repetition", now),
        "no adapter has requests any more"
    );
    first.listen(0x0106_1234).expect("the service is free again");
    // Here the adapter forwards a packet by the slot of its receiver, and not by a service.
    let from: SocketAddr = "127.0.0.9:7".parse().expect("an address");
    for marked in [false, true] {
        let sent = Origin { from, marked };
        first.forward(second.slot(), (sent, false), b"astray", now);
        assert!(matches!(
            second.local_socket.receive(&mut buffer),
            Ok(Some(LocalMessage::Packet { origin, packet: b"astray" })) if origin == sent
        ));
    }
}

/// The number of unknown services that an adapter looks for is limited, and so is the number of
/// packets of unknown senders that it forwards. Requests for existing services and packets of peers
/// are always forwarded.
#[test]
fn a_flood_is_passed_on_in_part() {
    const FLOOD: u64 = 10_000;
    let now = Instant::now();
    let mut first = open(address()).expect("the first port opens");
    let second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    let from: SocketAddr = "127.0.0.9:7".parse().expect("an address");
    let asked = (0..FLOOD).filter(|&n| !first.forward_request(0x0106_2000 + n % 7, from, b"", now));
    let asked = asked.count() as u64;
    assert!(
        (100..1000).contains(&asked),
        "the adapter asked others for {asked} requests; expected 100 to 999"
    );
    assert_eq!(first.dropped(), FLOOD - asked);
    for n in 0..FLOOD {
        first.forward((n % 128) as PortSlot, (from.into(), false), b"forged", now);
    }
    let mut buffer = ReceiveBuffer::default();
    assert!(second.local_socket.receive(&mut buffer).expect("the socket can be read").is_none());
    // An adapter starts to listen for a service after the flood has begun.
    let service = second.listen(0x0106_1234).expect("the service is free");
    let soon = now + Duration::from_millis(101);
    for _ in 0..100 {
        first.forward_request(0x0106_2000, from, b"", soon);
    }
    assert!(first.forward_request(0x0106_1234, from, b"request", soon));
    assert!(matches!(
        service.local_socket.receive(&mut buffer),
        Ok(Some(LocalMessage::Packet { packet: b"request", .. }))
    ));
    first.forward(second.slot(), (from.into(), true), b"astray", soon);
    assert!(matches!(
        second.local_socket.receive(&mut buffer),
        Ok(Some(LocalMessage::Packet { packet: b"astray", .. }))
    ));
    // After the flood the adapter looks for unknown services again.
    drop(service);
    assert!(!first.forward_request(0x0106_1234, from, b"", now + Duration::from_secs(60)));
}

#[test]
fn a_full_queue_loses_nothing() {
    const REQUESTS: usize = 700; // more than the queue of any system holds
    let mut now = Instant::now();
    let mut first = open(address()).expect("the first port opens");
    let second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    let service = second.listen(0x0106_1234).expect("the service is free");
    for n in 0..REQUESTS {
        assert!(first.forward_request(0x0106_1234, first.address(), &n.to_be_bytes(), now));
        first.forward(second.slot(), (first.address().into(), true), &n.to_be_bytes(), now);
    }
    let (mut buffer, mut requests, mut packets) = (ReceiveBuffer::default(), 0, 0);
    for (local_socket, count) in
        [(&service.local_socket, &mut requests), (&second.local_socket, &mut packets)]
    {
        while *count < REQUESTS {
            match local_socket.receive(&mut buffer).expect("the socket can be read") {
                Some(LocalMessage::Packet { packet, .. }) => {
                    assert_eq!(packet, count.to_be_bytes(), "packets must arrive in order");
                    *count += 1;
                }
                Some(LocalMessage::SocketRequest(_)) => panic!("no request was sent"),
                None => {
                    now = first.deadline().expect("a deadline is set while packets wait");
                    first.retry_sends(now);
                }
            }
        }
    }
    assert_eq!(first.deadline(), None);
}

#[test]
fn a_taken_port_is_reported_as_such() {
    let taken = Udp::bind_exclusive(with_port(address())).expect("the port is free");
    let address = taken.local_addr().expect("the socket is bound");
    let error = open(address).map(drop).expect_err("a port in use must be refused").to_string();
    let expected = format!(
        "UDP port 4791 of {} is taken: by adapters or a program of another user",
        address.ip()
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn adapters_that_do_not_answer_are_an_error() {
    const OTHERS: u32 = 14;
    const ASKED_MAX: usize =
        OPEN_TIMEOUT_CONNECTING.as_millis().div_ceil(ANSWER_TIMEOUT.as_millis()) as usize;
    let first = open(address()).expect("the first port opens");
    let others: Vec<Port> = while_answering(&[&first], || {
        (0..OTHERS).map(|_| open(first.address()).expect("a further port opens")).collect()
    });
    assert!(matches!(
        Port::open(first.address(), SLOTS, OPEN_TIMEOUT_CONNECTING),
        Err(PortError::Silent(_))
    ));
    // The adapter gives up at its deadline, before it has asked all of the silent adapters.
    let was_asked = |port: &&Port| {
        let mut buffer = ReceiveBuffer::default();
        matches!(port.local_socket.receive(&mut buffer), Ok(Some(LocalMessage::SocketRequest(_))))
    };
    let asked = std::iter::once(&first).chain(&others).filter(was_asked).count();
    assert!(
        (1..=ASKED_MAX).contains(&asked),
        "{asked} adapters were asked; expected 1 to {ASKED_MAX}"
    );
}

#[test]
fn there_are_1087_slots() {
    let first = open(address()).expect("the first port opens");
    // The names stand for adapters, which would need more descriptors than a process may have.
    let claim = || first.names.claim_slot(SLOTS).expect("descriptors");
    let mut taken: Vec<_> = std::iter::from_fn(claim).collect();
    assert!(taken.iter().map(|&(slot, _)| slot).eq(1..REQ_SLOT));
    let one_more = while_answering(&[&first], || open(first.address()));
    assert!(matches!(one_more, Err(PortError::Full(_))));
    let (slot, _) = taken.remove(700);
    assert_eq!(claim().map(|(free, _)| free), Some(slot));
}

/// Packets to one address leave in few batches. The kernel looks only at the first packet of a
/// batch.
#[test]
fn each_adapter_gets_its_packets_of_a_burst() {
    const SIDR_REQ: u16 = 0x17;
    const SIDR_REP: u16 = 0x18;
    let first = open(address()).expect("the first port opens");
    let second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    let to = first.address();
    // The attribute of a message of service ID resolution, and the first word of its data.
    let sidr = |attribute: u16, id: u32| {
        let mut octets = packet(1, 0x7782);
        octets[36..38].copy_from_slice(&attribute.to_be_bytes());
        octets[44..48].copy_from_slice(&id.to_be_bytes());
        octets
    };
    let packets = [
        packet(0x12_3400, 0),
        packet(0x12_3480, 0),
        packet(0x12_3402, 0),
        packet(1, 0x7782),
        packet(1, 0x7700),
        packet(1, 0),
        sidr(SIDR_REQ, 0x7700),
        sidr(SIDR_REP, 0x7700),
        packet(0x12_3402, 0),
        // The acknowledgements of two adapters.
        packet(0x12_3400, 0)[..20].to_vec(),
        packet(0x12_3402, 0)[..20].to_vec(),
    ];
    let source = SocketAddr::new(to.ip(), 0);
    let mut io = PacketIo::new(source, true, 0, &Conditions::OFF, None).expect("a free port");
    let peer = Peer::new(io.source(), to, to).expect("one family");
    for packet in &packets {
        let burst = io.burst_to(&peer, Instant::now());
        burst.push(packet.len()).expect("room for a packet").copy_from_slice(packet);
    }
    io.flush();
    let got = [&first.socket, &second.socket, &first.req_socket].map(arrived);
    assert_eq!(got, [5, 4, 2]);
}

#[test]
fn numbers_name_their_slots() {
    for slot in SLOTS {
        let bits = low_bits(slot);
        for rest in [0, 1, 2, 0x1234, (1 << (24 - bits.count)) - 1] {
            assert_eq!(slot_of(bits.append_to(rest)), slot);
        }
    }
    assert_eq!((slot_of(0x7e), slot_of(0xffff_fffe)), (REQ_SLOT, REQ_SLOT));
}

/// Opens as many adapters as the limit of descriptors allows in one process, but at most 400.
#[test]
fn many_adapters_share_an_address() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // An adapter has six descriptors, and one for each part of the shared sockets. Other tests run
    // at the same time.
    let count = limit.map_or(400, |limit| (limit.saturating_sub(512) / 16).min(400)) as usize;
    println!("{count} adapters");
    let address = with_port(address());
    let start = Instant::now();
    let ports = open_up_to(count, address, Vec::new()).expect("slots");
    println!("{:?}", start.elapsed());
    let slots: Vec<PortSlot> = ports.iter().map(Port::slot).collect();
    assert!(slots.iter().copied().eq(0..count as PortSlot));
    assert_each_gets_its_packets(&ports);
}

/// Checks that each port gets the packets for its slot, and no others.
fn assert_each_gets_its_packets(ports: &[Port]) {
    for port in ports {
        port.socket.drain();
        send(port.address(), &packet(low_bits(port.slot()).append_to(0x123), 0));
        send(port.address(), &packet(1, low_bits(port.slot()).append_to(0x12345)));
    }
    for port in ports {
        assert_eq!(arrived(&port.socket), 2, "slot {}", port.slot());
    }
}

#[test]
fn slots_are_added_when_needed_and_removed_with_their_owners() {
    let address = with_port(address());
    let mut ports = open_up_to(40, address, Vec::new()).expect("slots");
    let slots: Vec<PortSlot> = ports.iter().map(Port::slot).collect();
    assert_eq!(slots, (0..40).collect::<Vec<PortSlot>>());
    assert_each_gets_its_packets(&ports);
    // The adapters that opened when there were few slots still have their slots. New adapters take
    // the free slots.
    ports.truncate(10);
    assert_each_gets_its_packets(&ports);
    for _ in 0..3 {
        ports = open_up_to(40, address, ports).expect("slots");
        assert_each_gets_its_packets(&ports);
        ports.drain(10..30);
        assert_each_gets_its_packets(&ports);
        ports = open_up_to(35, address, ports).expect("slots");
        assert_each_gets_its_packets(&ports);
        ports.truncate(10);
    }
    drop(ports);
    Udp::bind_exclusive(address).expect("the address is free");
}

#[test]
fn sockets_that_others_have_bound_in_between_are_noticed() {
    let address = with_port(address());
    let ports = open_up_to(15, address, Vec::new())
        .expect("15 adapters open in the slots of the first part");
    // This socket stands for the sockets of an adapter that is closing.
    let in_between =
        Udp::bind_shared(address).expect("a socket of the same user can share the port");
    let mut shared_sockets = ports[0].shared_sockets.try_clone().expect("descriptors");
    assert_eq!(
        shared_sockets
            .bind_more(address)
            .expect_err("the sockets must not take their positions")
            .kind(),
        io::ErrorKind::TimedOut
    );
    assert_each_gets_its_packets(&ports);
    drop(in_between);
    shared_sockets.bind_more(address).expect("the sockets take their positions");
    assert_each_gets_its_packets(&ports);
}

#[test]
fn many_adapters_that_open_at_once_all_get_a_slot() {
    let address = address();
    let (done, opened) = (&AtomicBool::new(false), &AtomicU8::new(0));
    let mut slots: Vec<PortSlot> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let port = open(address).expect("a slot");
                    if opened.fetch_add(1, Ordering::Relaxed) == 7 {
                        done.store(true, Ordering::Relaxed);
                    }
                    let mut buffer = ReceiveBuffer::default();
                    while !done.load(Ordering::Relaxed) {
                        if let Ok(Some(LocalMessage::SocketRequest(request))) =
                            port.local_socket.receive(&mut buffer)
                        {
                            port.send_shared_sockets(&request);
                        }
                        std::thread::yield_now();
                    }
                    port.slot()
                })
            })
            .collect();
        openers.into_iter().map(|opener| opener.join().expect("no panic")).collect()
    });
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_end_of_an_adapter_is_seen_by_its_peers() {
    let first = open(address()).expect("the first port opens");
    let mut second =
        while_answering(&[&first], || open(first.address())).expect("a further port opens");
    let error =
        first.connect_liveness(first.address(), 2).map(drop).expect_err("no adapter has slot 2");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let connections: Vec<LivenessConnection> = (0..3)
        .map(|_| first.connect_liveness(first.address(), 1).expect("the peer adapter exists"))
        .collect();
    let has_ended = |connection: &LivenessConnection| {
        let mut fd = libc::pollfd { fd: connection.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: `fd` is valid for reads and writes during the call.
        unsafe { libc::poll(&mut fd, 1, 0) == 1 && fd.revents & libc::POLLHUP != 0 }
    };
    second.liveness.accept(|_, _| Ok(()));
    let late = first.connect_liveness(first.address(), 1).expect("the peer adapter exists");
    assert!(!connections.iter().chain([&late]).any(has_ended));
    drop(second);
    assert!(
        connections.iter().chain([&late]).all(has_ended),
        "the kernel closes accepted and waiting connections"
    );
}

/// Runs `f` in a thread with another user id, so that only the kernel restricts what it can do.
fn as_nobody<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the call accesses no memory. The system call changes the user id of this
            // thread only; the C function would change that of all threads.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
            f()
        });
        thread.join().expect("no panic")
    })
}

/// With IP_PKTINFO, a socket that is bound to another address can send from our address and port,
/// if it has the same port. So no other user may bind a socket to any of our ports.
#[test]
fn another_user_cannot_send_from_the_same_source() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can act for another user");
        return;
    }
    for address in [address(), "[::1]:0".parse().expect("an address")] {
        let mut io = PacketIo::new(address, false, 0, &Conditions::OFF, None).expect("a free port");
        io.open_all_senders();
        // A socket of IPv6 can send to IPv4 addresses.
        let ips = ["127.200.0.1", "0.0.0.0", "::1", "::", "::ffff:127.200.0.1", "::ffff:0.0.0.0"];
        let ports: Vec<u16> = io.sources().map(|source| source.port()).collect();
        assert_eq!(ports.len(), 4);
        let others: Vec<SocketAddr> = ports
            .iter()
            .flat_map(|&port| ips.map(|other| SocketAddr::new(other.parse().expect(other), port)))
            .collect();
        as_nobody(|| {
            for &other in &others {
                for (shares, only_v6) in [(false, false), (true, false), (false, true)] {
                    let bound = bind(other, shares, only_v6 && !is_mapped(other.ip()));
                    assert_eq!(
                        bound.err().map(|error| error.kind()),
                        Some(io::ErrorKind::AddrInUse),
                        "{other}"
                    );
                }
            }
        });
        drop(io);
        // A child process of another test may still have copies of the sockets for a moment.
        while as_nobody(|| bind(others[0], false, false)).is_err() {
            std::thread::yield_now();
        }
    }
}

/// Another user already has two of the four ports, on another address. An adapter must use only a
/// port that no user has. When two adapters have the other two ports, a third adapter gets no port.
#[test]
fn a_port_that_another_user_has_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can act for another user");
        return;
    }
    let network = std::thread::spawn(|| {
        // SAFETY: the call accesses no memory. The system call changes the network of this thread
        // only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET) }, 0);
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("ip starts").success());
        // The kernel picks ephemeral ports from these four ports.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").expect("a range");
        let taken = [40001, 40002].map(|port| SocketAddr::from(([127, 200, 0, 1], port)));
        let _others = as_nobody(|| taken.map(|other| bind(other, false, false)))
            .map(|bound| bound.expect("a free port"));
        let io = || PacketIo::new(address(), false, 0, &Conditions::OFF, None);
        let open = [io(), io()].map(|io| io.expect("a free port"));
        let mut ports = open.each_ref().map(|io| io.source().port());
        ports.sort();
        assert_eq!(ports, [40000, 40003]);
        assert_eq!(io().err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    });
    network.join().expect("no panic");
}

fn bind(address: SocketAddr, shares: bool, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_reuse_port(shares)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Another user can neither connect nor send to the sockets, and cannot take a name.
#[test]
fn another_user_is_kept_out() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can act for another user");
        return;
    }
    let port = open(address()).expect("the first port opens");
    let service = port.listen(0x0106_1234).expect("the service is free");
    let mut names: Vec<PathBuf> = files(&port).collect();
    names.sort();
    let known = names.iter().filter_map(|name| name.file_name()?.to_str()).collect::<Vec<_>>();
    assert_eq!(known, ["founding.lock", "life-0", "names.lock", "service-1061234", "slot-0"]);
    let next = names[4].with_file_name("slot-1");
    as_nobody(|| {
        let denied = |result: io::Result<()>| {
            assert_eq!(
                result.expect_err("another user must be kept out").kind(),
                io::ErrorKind::PermissionDenied
            );
        };
        let socket = UnixDatagram::unbound().expect("a socket");
        for name in &names {
            denied(socket.send_to(b"hello", name).map(drop));
            denied(socket.connect(name));
            denied(UnixStream::connect(name).map(drop));
            denied(std::fs::File::open(name).map(drop));
        }
        denied(UnixDatagram::bind(&next).map(drop));
        denied(port.connect_liveness(port.address(), 0).map(drop));
        // The directory exists, but this user cannot use it.
        denied(std::fs::File::open(port.names.directory()).map(drop));
    });
    assert!(
        service
            .local_socket
            .receive(&mut ReceiveBuffer::default())
            .expect("the socket can be read")
            .is_none()
    );
    assert!(
        port.local_socket
            .receive(&mut ReceiveBuffer::default())
            .expect("the socket can be read")
            .is_none()
    );
}

fn files(port: &Port) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(port.names.directory())
        .expect("the directory exists")
        .flatten()
        .map(|file| file.path())
}

/// An adapter removes its liveness file before it releases its slot, because the next owner of the
/// slot creates a liveness file of its own.
#[test]
fn an_adapter_gives_up_its_slot_last() {
    use rustix::fs::inotify;
    let port = open(address()).expect("the first port opens");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&watch, port.names.directory(), inotify::WatchFlags::DELETE)
        .expect("the directory can be watched");
    drop(port);
    let mut space = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut space);
    let removed =
        std::iter::from_fn(|| events.next().ok()?.file_name().map(|name| name.to_owned()));
    assert_eq!(removed.take(2).collect::<Vec<_>>(), [c"life-0".to_owned(), c"slot-0".to_owned()]);
}

/// A listener that does not read its requests does not delay the requests for another listener.
#[test]
fn a_full_queue_does_not_delay_other_messages() {
    const REQUESTS: usize = 700; // more than the queue of any system holds
    let now = Instant::now();
    let mut port = open(address()).expect("the first port opens");
    let [slow, fast] = [1, 2].map(|service| port.listen(service).expect("the service is free"));
    let from = port.address();
    assert!(!port.forward_request(3, from, b"nobody listens", now));
    for _ in 0..REQUESTS {
        assert!(port.forward_request(1, from, b"slow", now));
    }
    assert!(port.deadline().is_some(), "some packets must wait for the deadline");
    assert!(port.forward_request(2, from, b"fast", now));
    let mut buffer = ReceiveBuffer::default();
    assert!(matches!(
        fast.local_socket.receive(&mut buffer),
        Ok(Some(LocalMessage::Packet { packet: b"fast", .. }))
    ));
    assert!(matches!(
        slow.local_socket.receive(&mut buffer),
        Ok(Some(LocalMessage::Packet { packet: b"slow", .. }))
    ));
}

/// A process ends before it answers. The requester notices that at once and asks the next process.
#[test]
fn a_request_that_is_not_answered_fails_at_once() {
    let first = open(address()).expect("the first port opens");
    let to =
        first.names.address(Name::Slot(0)).expect("the path is short enough for a socket address");
    let refused = std::thread::scope(|scope| {
        let requester = scope.spawn(|| {
            let (mut requests, later) =
                (SocketRequests::default(), Instant::now() + Duration::from_secs(1 << 30));
            requests.add(&to, Duration::from_secs(60)).expect("the socket exists");
            requests.first_answer(later).expect("no error").is_none()
        });
        // The request is read but not answered.
        while !matches!(
            first.local_socket.receive(&mut ReceiveBuffer::default()),
            Ok(Some(LocalMessage::SocketRequest(_)))
        ) {
            std::thread::yield_now();
        }
        requester.join().expect("no panic")
    });
    assert!(refused);
}

/// On a busy host, an adapter may answer only after the requester has asked the next adapter. The
/// late answer counts.
#[test]
fn a_late_answer_counts() {
    let first = open(address()).expect("the first adapter opens");
    let second = while_answering(&[&first], || open(first.address()))
        .expect("the second adapter opens, too");
    let third = std::thread::scope(|scope| {
        let third = scope.spawn(|| open(first.address()));
        // The first adapter answers only after the second one has been asked. The second adapter
        // never answers.
        let read = |port: &Port| loop {
            match port.local_socket.receive(&mut ReceiveBuffer::default()) {
                Ok(Some(LocalMessage::SocketRequest(request))) => break request,
                _ => std::thread::yield_now(),
            }
        };
        let late = read(&first);
        let _unanswered = read(&second);
        first.send_shared_sockets(&late);
        third.join().expect("no panic")
    });
    assert_eq!(third.expect("the adapter opens").slot(), 2);
}
