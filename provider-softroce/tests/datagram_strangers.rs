//! Tests of programs that send arbitrary packets to an adapter with datagram endpoints, from
//! sockets that need no privilege.

#[path = "datagrams/ends.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod ends;
#[path = "../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "these tests use only a part of the reader")]
mod reader;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dat_core::provider::{Queue, Transport, WcStatus};
use provider_mem::contract::rig::{End, Event, Failure, Rig, Service, outcomes, pattern, poll};
use provider_softroce::Roce;
use wire::cm::sidr_trailer::{self, DatagramQp};
use wire::cm::{IpHeader, Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus, UDP_Q_KEY};
use wire::rocev2::{
    Bth, Deth, Extension, ExtensionKind, Icrc, Opcode, Packet, Psn, Reth, UDP_PORT,
};

use self::ends::*;

const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 104);
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 105);

/// The tests run one at a time, because they measure the memory of the process and the stranger has
/// one port.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A program that sends to the victim's port.
struct Stranger {
    socket: UdpSocket,
    icrc: Icrc,
}

impl Stranger {
    fn at(ip: Ipv4Addr, port: u16) -> Self {
        let socket = UdpSocket::bind((ip, port)).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let from = socket.local_addr().expect("the socket is bound");
        let icrc = Icrc::new(from, (VICTIM, UDP_PORT).into()).expect("both addresses are IPv4");
        Stranger { socket, icrc }
    }

    fn send_octets(&self, datagram: &[u8]) {
        // An error here is about a datagram that was sent earlier, not about this one.
        self.socket.send_to(datagram, (VICTIM, UDP_PORT)).ok();
    }

    /// Sends a packet with its correct checksum, however long it is.
    fn send_with_icrc(&self, packet: &[u8]) {
        let mut datagram = [packet, &[0; Icrc::SIZE]].concat();
        if datagram.len() <= Icrc::MAX_DATAGRAM {
            self.icrc.seal(0, &mut datagram);
        }
        self.send_octets(&datagram);
    }

    fn send_packet(&self, packet: &Packet<'_>) {
        let mut octets = vec![0; packet.len()];
        packet.emit(&mut octets);
        self.send_with_icrc(&octets);
    }

    fn send_message(&self, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        self.send_packet(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    }

    /// Sends a SIDR REQ whose header says that it is from `source`. `data` are the consumer's
    /// private data, with or without a trailer.
    fn send_req(&self, request_id: u32, (source, port): (Ipv4Addr, u16), data: &[u8]) {
        let header =
            IpHeader { source_port: 77, source: source.into(), destination: VICTIM.into() };
        let private = [&header.emit()[..], data].concat();
        let service = ServiceId::udp(port);
        let req = SidrReq { request_id, p_key: 0xFFFF, service, private: &private };
        self.send_message(u64::from(request_id) << 8, Message::SidrReq(req));
    }

    /// The next MAD that arrives.
    fn receive<R>(&self, take: impl FnOnce(Mad<'_>) -> R) -> Option<R> {
        let mut datagram = [0; 8192];
        let len = self.socket.recv(&mut datagram).ok()?;
        let packet = Packet::parse(&datagram[..len - Icrc::SIZE]).expect("a valid packet");
        Some(take(Mad::parse(packet.payload).expect("a valid message")))
    }
}

/// A datagram to this receiver.
fn datagram<'a>(to: &To, payload: &'a [u8]) -> Packet<'a> {
    with_key(to.qpn, to.address.q_key, payload)
}

/// A datagram for the queue pair with this number, with this Q_Key.
fn with_key(qpn: u32, q_key: u32, payload: &[u8]) -> Packet<'_> {
    let deth = Deth { q_key, source_qpn: 0x1234 };
    let bth = Bth::new(Opcode::DatagramSendOnly, qpn, Psn::new(5));
    Packet { bth, extension: Extension::Deth(deth), payload }
}

/// The number of octets that malloc has handed out, in all its arenas.
fn bytes_in_use() -> usize {
    // SAFETY: the function takes no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Sends a message each way over a connection.
fn use_connection(rig: &Rig<'_, Roce>, a: &End<'_, Roce>, b: &End<'_, Roce>, round: u64) {
    for (from, to) in [(a, b), (b, a)] {
        let message = pattern(round, 3000);
        to.recv(round, &[to.mem.segment(4096, 4096)]);
        from.mem.write(0, &message);
        from.send(round, &[from.mem.segment(0, message.len())]);
        assert_eq!(outcomes(&rig.completions(&to.recvs, 1)), [(round, WcStatus::Success)]);
        assert_eq!(outcomes(&rig.completions(&from.requests, 1)), [(round, WcStatus::Success)]);
        assert!(to.mem.read(4096, message.len()) == message);
    }
}

/// Makes progress until a counter has this value.
fn await_counter(rig: &Rig<'_, Roce>, name: &str, value: u64) {
    rig.until(name, || (counter(rig.a, name) >= value).then_some(()));
    assert_eq!(counter(rig.a, name), value, "{name}");
}

/// Each reason to drop a datagram has its counter, and none of them affects the endpoint.
#[test]
fn wrong_datagrams_are_dropped_and_counted() {
    const TIMES: u64 = 20;
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let capture = dir.path().join("received.pcapng");
    let victim = open(&format!("{VICTIM} capture={}", capture.display()));
    let peer = open(&format!("{VICTIM}"));
    let rig = Rig { a: &victim, b: &peer };
    let (x, y) = (end(&victim), end(&peer));
    let (to_x, to_y) = introduce(&rig, &y, (&x, VICTIM.into()));
    let (a, b) = rig.pair();
    let strangers = [Stranger::at(STRANGER, 0), Stranger::at(VICTIM, 0)];
    let right = datagram(&to_x, b"wrong datagram");
    x.recv(9, &[x.mem.segment(0, 100)]);
    let wrong = |name: &str, attack: &dyn Fn(&Stranger, u64)| {
        for n in 0..TIMES {
            for stranger in &strangers {
                attack(stranger, n);
            }
            // So few packets fit in the socket's buffer.
            await_counter(&rig, name, 2 * (n + 1));
        }
        y.mem.write(0, b"right datagram");
        send(&y, 3, &to_x, None, &[y.mem.segment(0, 14)]);
        assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(9, WcStatus::Success)]);
        assert_eq!(outcomes(&rig.completions(&y.requests, 1)), [(3, WcStatus::Success)]);
        assert_eq!(x.mem.read(HEADER, 14), b"right datagram");
        x.recv(9, &[x.mem.segment(0, 100)]);
        deliver(&rig, (&x, &to_y), &y, b"and back");
        use_connection(&rig, &a, &b, 1);
    };
    wrong("dropped-wrong-q-key", &|stranger, n| {
        let q_key = if n == 0 { UDP_Q_KEY } else { to_x.address.q_key ^ 1 << n };
        let extension = Extension::Deth(Deth { q_key, source_qpn: 7 });
        stranger.send_packet(&Packet { extension, ..right });
    });
    wrong("dropped-wrong-partition", &|stranger, n| {
        let bth = Bth { p_key: [0, 0x7FFE, 0x8001, 0xFFFE][n as usize % 4], ..right.bth };
        stranger.send_packet(&Packet { bth, ..right });
    });
    let extension_of = |opcode: Opcode| match opcode.extension_kind() {
        ExtensionKind::Nothing => Some(Extension::None),
        ExtensionKind::Reth => Some(Extension::Reth(Reth { va: 0, r_key: 0, len: 8 })),
        _ => None,
    };
    let connected: Vec<Opcode> = (0..=0x17)
        .filter_map(Opcode::from_code)
        .filter(|&opcode| extension_of(opcode).is_some())
        .collect();
    wrong("dropped-wrong-opcode", &|stranger, n| {
        let opcode = connected[n as usize % connected.len()];
        let bth = Bth { opcode, ..right.bth };
        let extension = extension_of(opcode).expect("an extension");
        stranger.send_packet(&Packet { bth, extension, payload: &[] });
    });
    wrong("dropped-invalid", &|stranger, n| {
        let mut octets = vec![0; right.len()];
        right.emit(&mut octets);
        match n % 4 {
            // The ICRC is wrong.
            0 => stranger.send_octets(&[&octets[..], &pattern(n, 4)].concat()),
            // An octet of the payload was changed.
            1 => {
                let mut datagram = [&octets[..], &[0; Icrc::SIZE]].concat();
                stranger.icrc.seal(0, &mut datagram);
                datagram[22] ^= 1;
                stranger.send_octets(&datagram);
            }
            // No opcode, and a packet that is shorter than its headers.
            2 => {
                octets[0] = 0x7F;
                stranger.send_with_icrc(&octets);
            }
            _ => stranger.send_with_icrc(&octets[..16]),
        }
    });
    wrong("dropped-receive-too-small", &|stranger, n| {
        stranger.send_packet(&datagram(&to_x, &pattern(n, 61 + n as usize)));
    });
    // Datagrams for the queue pair of a connection. Only its peer may send to it.
    let before = counter(&victim, "packets-from-elsewhere");
    let qpn = connection_qpn(&capture);
    for n in 0..TIMES {
        let packet = pattern(n, 8);
        let packet = with_key(qpn, UDP_Q_KEY, &packet);
        strangers.iter().for_each(|stranger| stranger.send_packet(&packet));
        await_counter(&rig, "packets-from-elsewhere", before + 2 * (n + 1));
    }
    use_connection(&rig, &a, &b, 2);
    for log in [&x.log, &y.log, &a.log, &b.log] {
        log.assert_silent();
    }
    // Five kinds of wrong datagrams, and after each kind a right one.
    assert_eq!(
        (counter(&victim, "datagrams-received"), counter(&peer, "datagrams-received")),
        (5, 5)
    );
}

/// Each endpoint has a Q_Key of its own, which only its peers know. The key of Linux's RDMA CM
/// opens an endpoint only to the hosts with which the endpoint has dealt by that program.
#[test]
fn only_peers_know_the_q_key() {
    let _alone = alone();
    let victim = open(&format!("{VICTIM}"));
    let peer = open(&format!("{VICTIM}"));
    let rig = Rig { a: &victim, b: &peer };
    let (x, other, y) = (end(&victim), end(&victim), end(&peer));
    let (to_x, _) = introduce(&rig, &y, (&x, VICTIM.into()));
    let (to_other, _) = introduce(&rig, &y, (&other, VICTIM.into()));
    let own = to_x.address.q_key;
    assert_ne!(own, to_other.address.q_key);
    for q_key in [own, to_other.address.q_key] {
        assert!(q_key != UDP_Q_KEY && q_key != 0 && q_key >> 31 == 0, "{q_key:#x}");
    }
    let strangers = [Stranger::at(STRANGER, UDP_PORT), Stranger::at([127, 0, 0, 106].into(), 0)];
    let mut dropped = 0;
    let mut expect = |stranger: &Stranger, q_key: u32, arrives: bool| {
        stranger.send_packet(&with_key(to_x.qpn, q_key, b"guess"));
        if arrives {
            assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(9, WcStatus::Success)]);
            x.recv(9, &[x.mem.segment(0, 100)]);
        } else {
            dropped += 1;
            await_counter(&rig, "dropped-wrong-q-key", dropped);
        }
    };
    x.recv(9, &[x.mem.segment(0, 100)]);
    for stranger in &strangers {
        expect(stranger, UDP_Q_KEY, false);
        expect(stranger, to_other.address.q_key, false);
        expect(stranger, own, true);
    }
    // A program over Linux's RDMA CM asks for the endpoint.
    let service = Service::new(&victim, 4);
    strangers[0].send_req(1, (STRANGER, service.port(&victim)), b"call");
    let (asked, ..) = request(&rig, &service);
    let caller: To = x.qp.answer(asked, b"").expect("an answer").into();
    assert_eq!((caller.qpn, caller.address.q_key), (0, UDP_Q_KEY));
    expect(&strangers[0], UDP_Q_KEY, true);
    expect(&strangers[1], UDP_Q_KEY, false);
    expect(&strangers[0], own, true);
    x.log.assert_silent();
}

/// The endpoint asks for a queue pair of Linux's RDMA CM, which answers datagrams with the key of
/// that program.
#[test]
fn a_service_of_the_rdma_cm_answers_with_its_own_key() {
    let _alone = alone();
    let victim = open(&format!("{VICTIM}"));
    let rig = Rig { a: &victim, b: &victim };
    let x = end(&victim);
    let service = Stranger::at(STRANGER, UDP_PORT);
    let other = Stranger::at([127, 0, 0, 106].into(), 0);
    resolve(&x, 1, (STRANGER.into(), 7), b"");
    let (transaction, request_id, caller) = rig.until("a REQ", || {
        service.receive(|mad| match mad.message {
            Message::SidrReq(req) => {
                let (_, data) = IpHeader::parse(req.private).expect("a header");
                Some((mad.transaction, req.request_id, sidr_trailer::parse_req(data).1))
            }
            _ => None,
        })?
    });
    let own = caller.expect("the caller has told its queue pair");
    assert_ne!(own.q_key, UDP_Q_KEY);
    let rep = SidrRep {
        request_id,
        status: SidrStatus::SUCCESS,
        qpn: 0x1234,
        service: ServiceId::udp(7),
        q_key: UDP_Q_KEY,
        info: &[],
        private: b"",
    };
    service.send_message(transaction, Message::SidrRep(rep));
    let event = rig.next("the answer", &x.log);
    let Event::Resolved { remote, .. } = event else { panic!("{event:?}") };
    assert_eq!((remote.qpn, remote.address.q_key), (0x1234, UDP_Q_KEY));
    x.recv(9, &[x.mem.segment(0, 100)]);
    other.send_packet(&with_key(own.qpn, UDP_Q_KEY, b"guess"));
    await_counter(&rig, "dropped-wrong-q-key", 1);
    service.send_packet(&with_key(own.qpn, UDP_Q_KEY, b"answer"));
    assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(9, WcStatus::Success)]);
    assert_eq!(x.mem.read(HEADER, 6), b"answer");
}

/// The number of the queue pair in a capture that has received packets of a connection.
fn connection_qpn(capture: &Path) -> u32 {
    let contents = reader::read(&std::fs::read(capture).expect("a capture"));
    let qpn = contents.packets.iter().find_map(|packet| match &packet.body {
        reader::Body::Udp { payload, .. } if packet.direction == 1 => {
            let packet = Packet::parse(&payload[..payload.len() - Icrc::SIZE]).ok()?;
            (packet.bth.opcode == Opcode::SendOnly).then_some(packet.bth.dest_qpn)
        }
        _ => None,
    });
    qpn.expect("the connection was used")
}

/// A stranger sends payloads of every length. What fits in the receive arrives, and nothing is
/// written behind it.
#[test]
fn payloads_of_every_length() {
    const ROOM: usize = HEADER + 4096;
    let _alone = alone();
    let (victim, peer) = (open(&format!("{VICTIM}")), open(&format!("{VICTIM}")));
    let rig = Rig { a: &victim, b: &peer };
    let (x, y) = (end(&victim), end(&peer));
    let (to_x, _) = introduce(&rig, &y, (&x, VICTIM.into()));
    let stranger = Stranger::at(STRANGER, 0);
    let guard = pattern(1, 4096);
    let lengths = (0..300).chain(1000..1010).chain(4000..4200);
    let mut has_receive = false;
    for len in lengths.chain([5000, 8191, 9000, 16_384, 40_000, 65_000]) {
        if !std::mem::replace(&mut has_receive, true) {
            x.recv(len as u64, &[x.mem.segment(0, ROOM)]);
        }
        x.mem.write(ROOM, &guard);
        let dropped =
            || counter(&victim, "dropped-invalid") + counter(&victim, "dropped-receive-too-small");
        let (before, payload) = (dropped(), pattern(len as u64, len));
        stranger.send_packet(&datagram(&to_x, &payload));
        let received = rig.until("a datagram", || match poll::<Roce>(&x.recvs, 1).first() {
            Some(wc) => Some(Some(*wc)),
            None => (dropped() > before).then_some(None),
        });
        assert_eq!(received.is_some(), len <= 4096, "{len}");
        if let Some(wc) = received {
            has_receive = false;
            assert_eq!((wc.status, wc.bytes as usize), (WcStatus::Success, HEADER + len));
            assert!(x.mem.read(HEADER, len) == payload, "{len}");
        }
        assert!(x.mem.read(ROOM, guard.len()) == guard, "{len}");
    }
    assert!(counter(&victim, "dropped-receive-too-small") > 0);
    x.log.assert_silent();
}

/// Strangers flood an end that has no receives. Others are not affected.
#[test]
fn a_flood_of_datagrams() {
    let _alone = alone();
    let (victim, peer) = (open(&format!("{VICTIM}")), open(&format!("{VICTIM}")));
    let rig = Rig { a: &victim, b: &peer };
    let (x, y, z) = (end(&victim), end(&peer), end(&victim));
    let (to_x, _) = introduce(&rig, &y, (&x, VICTIM.into()));
    let (to_z, to_y) = introduce(&rig, &y, (&z, VICTIM.into()));
    let (a, b) = rig.pair();
    let stranger = Stranger::at(STRANGER, 0);
    let mut before = 0;
    for round in 0..200 {
        for n in 0..100 {
            stranger.send_packet(&datagram(&to_x, &pattern(n, n as usize * 10)));
        }
        use_connection(&rig, &a, &b, round);
        // A datagram may be lost, because the socket's buffer may be full.
        y.mem.write(0, &pattern(round, 100));
        z.recv(round, &[z.mem.segment(0, 200)]);
        let received = rig.until("a datagram", || {
            send(&y, round, &to_z, None, &[y.mem.segment(0, 100)]);
            rig.completions(&y.requests, 1);
            let since = Instant::now();
            rig.until("an arrival", || match poll::<Roce>(&z.recvs, 1).first() {
                Some(wc) => Some(Some(*wc)),
                None => (since.elapsed() > Duration::from_millis(100)).then_some(None),
            })
        });
        assert_eq!((received.id, received.status), (round, WcStatus::Success));
        if round == 50 {
            before = bytes_in_use();
        }
    }
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 256 << 10, "{grown} more octets are in use");
    assert!(counter(&victim, "dropped-no-receive") > 1000);
    deliver(&rig, (&z, &to_y), &y, b"to the end");
    for log in [&x.log, &y.log, &z.log, &a.log, &b.log] {
        log.assert_silent();
    }
}

fn dropped_requests(adapters: [&Roce; 2]) -> u64 {
    adapters.iter().map(|adapter| counter(adapter, "packets-of-strangers-dropped")).sum()
}

/// A stranger sends thousands of requests: to a service with a small backlog, to no service, and
/// with the address of another host. Connections are used and made, and addresses are found out
/// meanwhile.
#[test]
fn a_flood_of_requests() {
    const BACKLOG: usize = 4;
    const ROUNDS: u32 = 200;
    let _alone = alone();
    let (victim, peer) = (open(&format!("{VICTIM}")), open(&format!("{VICTIM}")));
    let rig = Rig { a: &victim, b: &peer };
    let (a, b) = rig.pair();
    let (x, y) = (end(&victim), end(&peer));
    let (service, of_connections) = (Service::new(&victim, BACKLOG), Service::new(&victim, 8));
    let port = service.port(&victim);
    let stranger = Stranger::at(STRANGER, UDP_PORT);
    let (mut before, mut served) = (0, 0);
    resolve(&y, 0, (VICTIM.into(), port), b"honest");
    for round in 0..ROUNDS {
        for n in 0..50 {
            let id = (round * 50 + n).wrapping_mul(0x9E37_79B9);
            stranger.send_req(id, (STRANGER, port), b"flood");
            stranger.send_req(id, (STRANGER, port ^ 1), b"flood");
            stranger.send_req(id, (VICTIM, port), b"flood");
        }
        use_connection(&rig, &a, &b, round.into());
        let mut pending = Vec::new();
        while let Some(event) = service.log.take() {
            let Event::Request { request, from, private, .. } = event else { panic!("{event:?}") };
            let is_honest = from.ip() == IpAddr::from(VICTIM);
            assert!(if is_honest { private == b"honest" } else { private.starts_with(b"flood\0") });
            pending.push((request, is_honest));
        }
        assert!(pending.len() <= BACKLOG, "{}", pending.len());
        for (n, (request, is_honest)) in pending.into_iter().enumerate() {
            match n % 3 {
                0 if !is_honest => victim.reject(request, b"").expect("the request is rejected"),
                1 if !is_honest => drop(request),
                _ => drop(x.qp.answer(request, b"").expect("the request is answered")),
            }
        }
        if let Some(event) = y.log.take() {
            let Event::Resolved { number, remote, .. } = event else { panic!("{event:?}") };
            assert_eq!(number, served);
            deliver(&rig, (&y, &remote.into()), &x, b"during the flood");
            served += 1;
            resolve(&y, served, (VICTIM.into(), port), b"honest");
        }
        // What the stranger gets is bounded by what it sends.
        while stranger.receive(|_| ()).is_some() {}
        match round {
            100 => {
                let (c, d) = (End::new(&peer), End::new(&victim));
                rig.join(&c, &d);
                use_connection(&rig, &c, &d, 1);
            }
            150 => before = bytes_in_use(),
            _ => {}
        }
    }
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 1 << 20, "{grown} more octets are in use");
    assert!(dropped_requests([&victim, &peer]) > 1000);
    // The honest request that is under way is served, too.
    rig.until("the last address", || {
        while let Some(event) = service.log.take() {
            let Event::Request { request, .. } = event else { panic!("{event:?}") };
            x.qp.answer(request, b"").expect("the request is answered");
        }
        let event = y.log.take()?;
        assert!(matches!(event, Event::Resolved { number, .. } if number == served), "{event:?}");
        Some(())
    });
    for log in [&x.log, &y.log, &a.log, &b.log, &of_connections.log] {
        log.assert_silent();
    }
}

/// Requests whose header has another source never reach the consumer, and are counted.
#[test]
fn requests_of_forged_sources() {
    let _alone = alone();
    let (victim, peer) = (open(&format!("{VICTIM}")), open(&format!("{VICTIM}")));
    let rig = Rig { a: &victim, b: &peer };
    let service = Service::new(&victim, 64);
    let port = service.port(&victim);
    let stranger = Stranger::at(STRANGER, UDP_PORT);
    for n in 1..=100 {
        stranger.send_req(n, (VICTIM, port), b"forged");
        stranger.send_req(n, ([10, 0, 0, n as u8].into(), port), b"forged");
        rig.until("the count", || {
            (dropped_requests([&victim, &peer]) >= 2 * u64::from(n)).then_some(())
        });
    }
    assert!(stranger.receive(|_| ()).is_none());
    service.log.assert_silent();
}

/// A request of another implementation has no trailer. A forged trailer counts as none, and then
/// the private data are the whole field.
#[test]
fn requests_with_and_without_a_trailer() {
    let _alone = alone();
    let victim = open(&format!("{VICTIM}"));
    let rig = Rig { a: &victim, b: &victim };
    let x = end(&victim);
    let service = Service::new(&victim, 4);
    let port = service.port(&victim);
    let stranger = Stranger::at(STRANGER, UDP_PORT);
    let trailer = |qpn, len: u8| {
        let mut data = sidr_trailer::emit_req(b"hello", DatagramQp { qpn, q_key: UDP_Q_KEY });
        data[171] = len;
        data.to_vec()
    };
    let cases = [
        (b"hello".to_vec(), 0, 180),
        (vec![0xFF; 180], 0, 180),
        (trailer(0x1234, 5), 0x1234, 5),
        (trailer(0xFF_FFFE, 164), 0xFF_FFFE, 164),
        (trailer(0x1234, 165), 0, 180),
        (trailer(0x1234, 255), 0, 180),
        (trailer(0, 5), 0, 180),
        (trailer(1, 5), 0, 180),
        (trailer(0xFF_FFFF, 5), 0, 180),
        (trailer(0x100_0000, 5), 0, 180),
        (trailer(u32::MAX, 5), 0, 180),
    ];
    for (n, (data, qpn, len)) in (0..).zip(&cases) {
        stranger.send_req(n, (STRANGER, port), data);
        let (asked, from, private) = request(&rig, &service);
        assert_eq!((from, private.len()), ((STRANGER, 77).into(), *len), "case {n}");
        let passive: To = x.qp.answer(asked, b"welcome").expect("an answer").into();
        assert_eq!(passive.qpn, *qpn, "case {n}");
        let (id, status, own, q_key) = rig.until("a REP", || {
            stranger.receive(|mad| match mad.message {
                Message::SidrRep(rep) => {
                    assert!(rep.private.starts_with(b"welcome"));
                    (rep.request_id, rep.status, rep.qpn, rep.q_key)
                }
                other => panic!("{other:?}"),
            })
        });
        assert_eq!((id, status), (n, SidrStatus::SUCCESS));
        // A queue pair of Linux's RDMA CM accepts no other key in an answer.
        assert_eq!(q_key == UDP_Q_KEY, *qpn == 0, "case {n}");
        // The queue pair in the answer receives datagrams.
        x.recv(1, &[x.mem.segment(0, 100)]);
        stranger.send_packet(&with_key(own, q_key, b"hi"));
        assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(1, WcStatus::Success)]);
    }
}

/// An attempt is answered only by the host that was asked, and only with the values of the request.
#[test]
fn forged_answers() {
    let _alone = alone();
    let victim = open(&format!("{VICTIM} threads=2"));
    let rig = Rig { a: &victim, b: &victim };
    let ends = [end(&victim), end(&victim)];
    let service = Stranger::at(STRANGER, UDP_PORT);
    let others = [Stranger::at([127, 0, 0, 106].into(), UDP_PORT), Stranger::at(VICTIM, 0)];
    let before = bytes_in_use();
    for (n, x) in ends.iter().cycle().take(12).enumerate() {
        resolve(x, n as u64, (STRANGER.into(), 7), &[n as u8]);
        let (transaction, id) = rig.until("a REQ", || {
            service.receive(|mad| match mad.message {
                // Other REQs are repetitions of earlier ones.
                Message::SidrReq(req) => {
                    let number = n as u8;
                    let is_new = req.private[IpHeader::SIZE] == number;
                    is_new.then_some((mad.transaction, req.request_id))
                }
                // This message only probes whether the port is in use.
                _ => None,
            })?
        });
        let private = &[0xEE; 136];
        let right = SidrRep {
            request_id: id,
            status: SidrStatus::SUCCESS,
            qpn: 0x1234,
            service: ServiceId::udp(7),
            q_key: UDP_Q_KEY,
            info: &[],
            private,
        };
        for other in &others {
            other.send_message(transaction, Message::SidrRep(right));
        }
        service.send_message(transaction ^ 1, Message::SidrRep(right));
        service.send_message(0, Message::SidrRep(right));
        for wrong in [ServiceId::udp(8), ServiceId::tcp(7), ServiceId(0)] {
            let rep = SidrRep { service: wrong, ..right };
            service.send_message(transaction, Message::SidrRep(rep));
        }
        for guess in 1..200 {
            let request_id = id.wrapping_add(guess * 0x80);
            let rep = SidrRep { request_id, ..right };
            service.send_message(transaction, Message::SidrRep(rep));
            let rep = SidrRep { request_id: guess, ..right };
            others[0].send_message(guess.into(), Message::SidrRep(rep));
            if guess % 50 == 0 {
                (0..100).for_each(|_| victim.progress());
            }
        }
        let (rep, expected) = match n / 2 {
            0 => (right, Ok(0x1234)),
            1 => (SidrRep { qpn: 0xFF_FFFE, ..right }, Ok(0xFF_FFFE)),
            2 => (SidrRep { qpn: 0, ..right }, Err(Failure::Refused)),
            3 => (SidrRep { qpn: 1, ..right }, Err(Failure::Refused)),
            4 => (SidrRep { qpn: 0xFF_FFFF, ..right }, Err(Failure::Refused)),
            _ => (SidrRep { q_key: 0, ..right }, Err(Failure::Refused)),
        };
        x.log.assert_silent();
        service.send_message(transaction, Message::SidrRep(rep));
        // The adapter drops some messages of a host that sends so many. So it repeats its request,
        // and the host repeats its answer.
        let event = rig.until("the answer", || {
            if service.receive(|mad| matches!(mad.message, Message::SidrReq(_))) == Some(true) {
                service.send_message(transaction, Message::SidrRep(rep));
            }
            x.log.take()
        });
        match (event, expected) {
            (Event::Resolved { number, remote, private, peer }, Ok(qpn)) => {
                assert_eq!((number, remote.qpn, private.len()), (n as u64, qpn, 136));
                assert_eq!(peer, (STRANGER, 7).into());
            }
            (Event::Unresolved { number, why }, Err(expected)) => {
                assert_eq!((number, why), (n as u64, expected));
            }
            (event, expected) => panic!("{event:?}, not {expected:?}"),
        }
        // A second answer has no effect.
        service.send_message(transaction, Message::SidrRep(right));
        service.send_message(
            transaction,
            Message::SidrRep(SidrRep { status: SidrStatus::REJECT, ..right }),
        );
    }
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 256 << 10, "{grown} more octets are in use");
    ends.iter().for_each(|end| end.log.assert_silent());
}

/// The host that is asked never gets a right answer through: it rejects, or refuses for another
/// reason.
#[test]
fn refusals_of_other_implementations() {
    let _alone = alone();
    let victim = open(&format!("{VICTIM}"));
    let rig = Rig { a: &victim, b: &victim };
    let (x, service) = (end(&victim), Stranger::at(STRANGER, UDP_PORT));
    for status in 1..=255 {
        resolve(&x, status.into(), (STRANGER.into(), 7), b"call");
        let (transaction, request_id) = rig.until("a REQ", || {
            service.receive(|mad| match mad.message {
                Message::SidrReq(req) => Some((mad.transaction, req.request_id)),
                _ => None,
            })?
        });
        let rep = SidrRep {
            request_id,
            status: SidrStatus(status),
            qpn: 0x1234,
            service: ServiceId::udp(7),
            q_key: UDP_Q_KEY,
            info: &[0xAA; 72],
            private: b"sorry",
        };
        service.send_message(transaction, Message::SidrRep(rep));
        let event = rig.next("the refusal", &x.log);
        let Event::Unresolved { number, why } = event else { panic!("{event:?}") };
        assert_eq!(number, u64::from(status));
        match SidrStatus(status) {
            SidrStatus::REJECT => {
                let Failure::Rejected(private) = why else { panic!("{why:?}") };
                assert!(private.starts_with(b"sorry\0"));
            }
            _ => assert_eq!(why, Failure::Refused),
        }
    }
}
