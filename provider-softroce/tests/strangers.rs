//! Tests of strangers: programs on this host that have captured all traffic, and that send
//! arbitrary packets from sockets that need no privilege. The victim must distinguish packets of
//! strangers from packets of its peer. No stranger's packet may have an effect.

#[path = "../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "these tests use only a part of the reader")]
mod reader;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Provider, Queue, SendOp, Transport, WcStatus};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, SEND, Service, outcomes, pattern};
use provider_softroce::{Roce, SoftRoce};
use wire::cm::{
    Answered, Dreq, IpHeader, Mad, Message, Mra, Reason, Rej, Rep, Req, Rtu, ServiceId, Timeout,
};
use wire::rocev2::{
    Aeth, Bth, Deth, Extension, Icrc, NakCode, Opcode, Packet, PathMtu, Psn, Reth, Syndrome,
    UDP_PORT,
};

/// The addresses of the victim, of its peer, and of a third host. The victim and the peer share an
/// address.
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 41);
const PEER: Ipv4Addr = VICTIM;
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 43);

/// The tests run one at a time, because they measure the memory of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A program that sends to the victim's port.
struct Stranger {
    socket: UdpSocket,
    icrc: Icrc,
}

impl Stranger {
    fn at(ip: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        socket.connect((VICTIM, UDP_PORT)).expect("an address of this host");
        let [from, to] = [socket.local_addr(), socket.peer_addr()]
            .map(|end| end.expect("the socket has both addresses"));
        let icrc = Icrc::new(from, to).expect("both addresses are IPv4");
        Stranger { socket, icrc }
    }

    /// Sends these octets as one datagram.
    fn send_octets(&self, datagram: &[u8]) {
        // An error here is about a datagram that was sent earlier, not about this one.
        self.socket.send(datagram).ok();
    }

    /// Sends a packet with its correct checksum.
    fn send_with_icrc(&self, packet: &[u8]) {
        let mut datagram = [packet, &[0; Icrc::SIZE]].concat();
        self.icrc.seal(0, &mut datagram);
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
}

impl Stranger {
    /// Sends a valid connection request for a queue pair that does not exist.
    fn send_req(&self, n: u32, port: u16) {
        let header =
            IpHeader { source_port: n as u16, source: STRANGER.into(), destination: VICTIM.into() };
        let private = header.emit();
        let timeout = Timeout::new(17);
        let req = Req {
            local_id: local_id(n),
            service: ServiceId::tcp(port),
            ca_guid: 0x77,
            qpn: n << 7 & 0xFF_FFFF | 5,
            responder_resources: 4,
            initiator_depth: 4,
            remote_response_timeout: timeout,
            transport: Req::RC,
            flow_control: false,
            starting_psn: Psn::new(n),
            local_response_timeout: timeout,
            retry_count: 7,
            p_key: 0xFFFF,
            path_mtu: PathMtu::Octets1024.code(),
            rnr_retry_count: 7,
            max_cm_retries: 15,
            srq: false,
            primary: wire::cm::Path::over_ip(STRANGER.into(), VICTIM.into(), timeout),
            alternate: None,
            private: &private,
        };
        self.send_message(u64::from(n), Message::Req(req));
    }
}

/// The communication ID of the stranger's request with this number.
fn local_id(n: u32) -> u32 {
    n << 7 | 5
}

/// Opens the adapter of the victim and the adapter of its peer. The victim's adapter captures
/// everything that it receives and sends. Also returns the capture file.
fn adapters(dir: &Path) -> (Roce, Roce, PathBuf) {
    let file = dir.join("received.pcapng");
    let open = |params: String| {
        SoftRoce.open("softroce", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
    };
    // A small MTU makes the packets short, so that there are more of them.
    let victim = open(format!("{VICTIM} mtu=1024 capture={}", file.display()));
    let peer = open(format!("{PEER} mtu=1024"));
    (victim, peer, file)
}

/// The direction of received packets in captures.
const IN: u32 = 1;

/// Packets that the victim has received from its peer, without their checksums.
fn received(file: &Path) -> Vec<Vec<u8>> {
    let contents = reader::read(&std::fs::read(file).expect("a capture"));
    let came = contents.packets.into_iter().filter(|packet| packet.direction == IN);
    came.map(|packet| match packet.body {
        reader::Body::Udp { payload, .. } => payload[..payload.len() - Icrc::SIZE].to_vec(),
        body => panic!("{body:?}"),
    })
    .collect()
}

/// Transfers data by a WRITE, a SEND and a READ between two ends, and checks the results.
fn exchange(rig: &Rig<'_, Roce>, from: &End<'_, Roce>, to: &End<'_, Roce>, round: u64) {
    let octets = pattern(round, 12_000);
    from.mem.write(0, &octets);
    to.mem.write(20_000, &octets);
    to.recv(round, &[to.mem.segment(8000, 4000)]);
    from.post(1, SendOp::Write(to.mem.remote(0)), &[from.mem.segment(0, 8000)]);
    from.post(2, SEND, &[from.mem.segment(8000, 4000)]);
    from.post(3, SendOp::Read(to.mem.remote(20_000)), &[from.mem.segment(40_000, 12_000)]);
    let all = [1, 2, 3].map(|id| (id, WcStatus::Success));
    assert_eq!(outcomes(&rig.completions(&from.requests, 3)), all);
    assert_eq!(outcomes(&rig.completions(&to.recvs, 1)), [(round, WcStatus::Success)]);
    assert!(to.mem.read(0, 12_000) == octets, "round {round}: written or sent octets differ");
    assert!(from.mem.read(40_000, 12_000) == octets, "round {round}: read octets differ");
}

/// The number of octets that malloc has handed out, in all its arenas.
fn bytes_in_use() -> usize {
    // SAFETY: the function takes no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Runs exchanges in both directions. Before each exchange, calls `attack` with packets that the
/// victim has received from its peer. The attack must not affect the exchanges.
fn under_attack(rounds: u64, mut attack: impl FnMut(u64, &[Vec<u8>])) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, file) = adapters(dir.path());
    let rig = Rig { a: &victim, b: &peer };
    let (a, b) = rig.pair();
    for round in 0..20 {
        exchange(&rig, &a, &b, round);
        exchange(&rig, &b, &a, round);
    }
    let guard = pattern(99, 4000);
    a.mem.write(60_000, &guard);
    let received_before = received(&file);
    assert!(received_before.len() > 300, "{}", received_before.len());
    let mut before = 0;
    for round in 0..rounds {
        attack(round, &received_before);
        exchange(&rig, &a, &b, round);
        attack(round, &received_before);
        exchange(&rig, &b, &a, round);
        if round == rounds / 4 {
            before = bytes_in_use();
        }
    }
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 1 << 20, "{grown} more octets are in use");
    assert!(a.mem.read(60_000, 4000) == guard);
    for log in [&a.log, &b.log] {
        log.assert_silent();
    }
}

/// A stranger at another address sends the peer's packets, unchanged and with one bit changed.
#[test]
fn packets_from_other_addresses_change_nothing() {
    let stranger = Stranger::at(STRANGER);
    under_attack(40, |round, received| {
        for (n, packet) in received.iter().enumerate() {
            stranger.send_with_icrc(packet);
            let mut other = packet.clone();
            let at = (n * 7 + round as usize * 13) % other.len();
            other[at] ^= 1 << (n % 8);
            stranger.send_with_icrc(&other);
        }
    });
}

/// Another program at the peer's own address sends packets that the connection does not expect, or
/// no longer expects.
#[test]
fn unexpected_packets_change_nothing() {
    let stranger = Stranger::at(PEER);
    under_attack(40, |round, received| {
        for (n, octets) in received.iter().enumerate() {
            // The first packets are duplicates of requests, of answers and of the messages that set
            // up the connection.
            stranger.send_with_icrc(octets);
            // The next packets have an invalid checksum.
            stranger.send_octets(&[&octets[..], &pattern(n as u64 ^ round, 4)].concat());
            let Ok(packet) = Packet::parse(octets) else { panic!("{octets:x?}") };
            if packet.bth.dest_qpn == Deth::GSI_QPN {
                continue;
            }
            // No queue pair has one of the three changed numbers. The first and the third number
            // belong to the same slot as the original number, the second number to another slot.
            for change in [0x80, 1, 0x55_5500] {
                let bth = Bth { dest_qpn: packet.bth.dest_qpn ^ change, ..packet.bth };
                stranger.send_packet(&Packet { bth, ..packet });
            }
            // The next packets are old packets with a changed payload and, if they have an R_Key, a
            // changed R_Key.
            let forged = vec![0xEE; packet.payload.len()];
            let extension = match packet.extension {
                Extension::Reth(reth) => Extension::Reth(Reth { r_key: !reth.r_key, ..reth }),
                other => other,
            };
            stranger.send_packet(&Packet { extension, payload: &forged, ..packet });
            // The PSNs of these packets are far from the expected PSN, in both directions.
            for distance in [0x10_0000, 0x7F_0000, 0x90_0000] {
                let bth = Bth { psn: packet.bth.psn + distance, ..packet.bth };
                stranger.send_packet(&Packet { bth, ..packet });
            }
            // The next packets answer requests that were not made, or were made long ago.
            let syndromes = [
                Syndrome::ACK,
                Syndrome::Nak(NakCode::RemoteAccess),
                Syndrome::Nak(NakCode::SequenceError),
            ];
            for syndrome in syndromes {
                let bth = Bth { opcode: Opcode::Acknowledge, ack_request: false, ..packet.bth };
                let bth = Bth { psn: bth.psn + 0x20_0000, ..bth };
                let aeth = Aeth { syndrome, msn: n as u32 };
                stranger.send_packet(&Packet {
                    bth,
                    extension: Extension::Aeth(aeth),
                    payload: &[],
                });
            }
        }
    });
}

/// The adapter ignores datagrams of any length that are not packets.
#[test]
fn noise_is_ignored() {
    let strangers = [Stranger::at(STRANGER), Stranger::at(PEER)];
    under_attack(40, |round, received| {
        for n in 0..200 {
            let noise = pattern(round << 32 | n, (n * n) as usize % 5000);
            let cut = &received[n as usize % received.len()];
            for stranger in &strangers {
                stranger.send_octets(&noise);
                // Also send the noise with a correct checksum, if it is at least as long as a BTH.
                if noise.len() >= Bth::SIZE {
                    stranger.send_with_icrc(&noise[..noise.len() & !3]);
                }
                stranger.send_with_icrc(&cut[..((cut.len() / 2) & !3).max(Bth::SIZE)]);
            }
        }
    });
}

/// Messages of connection management come from the peer's address with guessed IDs, and from
/// another address with the right IDs. The victim must ignore both kinds.
#[test]
fn messages_that_only_the_peer_can_send_are_not_taken_from_others() {
    let [other, beside] = [STRANGER, PEER].map(Stranger::at);
    under_attack(20, |round, received| {
        let mads: Vec<Mad<'_>> = received
            .iter()
            .filter_map(|octets| Packet::parse(octets).ok())
            .filter(|packet| packet.bth.dest_qpn == Deth::GSI_QPN)
            .map(|packet| Mad::parse(packet.payload).expect("a packet of our own is valid"))
            .collect();
        let (theirs, ours, qpn, transaction) = mads
            .iter()
            .find_map(|mad| match mad.message {
                Message::Rep(rep) => Some((rep.local_id, rep.remote_id, rep.qpn, mad.transaction)),
                _ => None,
            })
            .expect("a REP was received");
        let all = |stranger: &Stranger, local_id: u32, remote_id: u32, transaction: u64| {
            let private = &[];
            for answered in [Answered::Req, Answered::Rep, Answered::Other] {
                let (ari, reason) = (&[][..], Reason::CONSUMER);
                let rej = Rej { local_id, remote_id, answered, reason, ari, private };
                stranger.send_message(transaction, Message::Rej(rej));
                let mra = Mra {
                    local_id,
                    remote_id,
                    answered,
                    service_timeout: Timeout::new(24),
                    private,
                };
                stranger.send_message(transaction, Message::Mra(mra));
            }
            stranger.send_message(transaction, Message::Rtu(Rtu { local_id, remote_id, private }));
            let dreq = Dreq { local_id, remote_id, remote_qpn: qpn, private };
            stranger.send_message(transaction, Message::Dreq(dreq));
            for mad in &mads {
                if let Message::Rep(rep) = mad.message {
                    let rep = Rep { local_id, remote_id, ..rep };
                    stranger.send_message(transaction, Message::Rep(rep));
                }
            }
        };
        all(&other, theirs, ours, transaction);
        for guess in 1..100 {
            let guess = (round * 100 + guess) as u32;
            all(&beside, theirs.wrapping_add(guess), ours, transaction + u64::from(guess));
            all(&beside, theirs, ours.wrapping_add(guess << 7), transaction);
            all(&beside, 0, guess, 0);
        }
    });
}

/// Strangers send thousands of requests. The adapter delivers no more of them than the backlog
/// allows, and refuses or drops the others. Afterwards a real caller is served.
#[test]
fn a_flood_of_requests_is_refused() {
    let stranger = Stranger::at(STRANGER);
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, _) = adapters(dir.path());
    let rig = Rig { a: &peer, b: &victim };
    let (a, b) = rig.pair();
    let service = Service::new(&victim, 8);
    let port = service.port(&victim);

    let mut requests = 0;
    let mut before = 0;
    for round in 0..200u32 {
        for n in 1..100 {
            stranger.send_req(round * 100 + n, port);
            stranger.send_req(round * 100 + n, port ^ 1);
        }
        exchange(&rig, &a, &b, round.into());
        let mut pending = Vec::new();
        while let Some(event) = service.log.take() {
            match event {
                Event::Request { request, from, .. } => {
                    assert_eq!(from.ip(), IpAddr::from(STRANGER));
                    pending.push(request);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(pending.len() <= 8, "{}", pending.len());
        requests += pending.len();
        for request in pending {
            victim.reject(request, b"").expect("the request is rejected");
        }
        if round == 50 {
            before = bytes_in_use();
        }
    }
    assert!(requests > 8, "{requests}");
    // Most of the requests for a service that does not exist get no answer.
    let dropped = [&victim, &peer].map(|adapter| {
        let counters = adapter.counters();
        let counter = counters.iter().find(|(name, _)| *name == "packets-of-strangers-dropped");
        counter.expect("a counter").1
    });
    assert!(dropped.iter().sum::<u64>() > 1000, "{dropped:?}");
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 4 << 20, "{grown} more octets are in use");
    for log in [&a.log, &b.log] {
        log.assert_silent();
    }
    let (c, d) = (End::new(&peer), End::new(&victim));
    rig.join(&c, &d);
    exchange(&rig, &c, &d, 7);
}

/// The adapters of an address share the socket at which requests arrive. A request can outlive its
/// listener, and each adapter may be the one that reads the repetition of its REQ.
#[test]
fn a_repeated_request_is_not_refused_when_its_listener_is_closed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, _) = adapters(dir.path());
    let rig = Rig { a: &peer, b: &victim };
    let socket = UdpSocket::bind((STRANGER, UDP_PORT)).expect("the port of the stranger is free");
    socket.set_nonblocking(true).expect("a socket");
    let stranger = Stranger::at(STRANGER);
    let answer_to = |n, port| {
        let mut datagram = [0; 8192];
        // Each repetition gets an answer of its own. Discard answers that have arrived since the
        // last call.
        while socket.recv(&mut datagram).is_ok() {}
        let mut sent: Option<Instant> = None;
        rig.until("an answer", || {
            // The adapter ignores repetitions at shorter intervals.
            if sent.is_none_or(|at| at.elapsed() > Duration::from_millis(150)) {
                sent = Some(Instant::now());
                stranger.send_req(n, port);
                (0..1000).for_each(|_| peer.progress());
            }
            let len = socket.recv(&mut datagram).ok()?;
            let packet = Packet::parse(&datagram[..len - Icrc::SIZE])
                .expect("the server sends valid packets");
            let mad = Mad::parse(packet.payload).expect("the server sends valid packets");
            let (id, answer) = match mad.message {
                Message::Mra(mra) => (mra.remote_id, "the request waits".to_owned()),
                Message::Rej(rej) => (rej.remote_id, format!("rejected, reason {:?}", rej.reason)),
                other => panic!("{other:?}"),
            };
            (id == local_id(n)).then_some(answer)
        })
    };

    let service = Service::new(&victim, 1);
    let port = service.port(&victim);
    stranger.send_req(1, port);
    let request = service.request(&rig).0;
    drop(service);
    assert_eq!(answer_to(1, port), "the request waits");
    drop(request);
    let refused = format!("rejected, reason {:?}", Reason::NO_RESOURCES);
    for _ in 0..3 {
        assert_eq!(answer_to(1, port), refused);
    }
    assert_eq!(answer_to(2, port), format!("rejected, reason {:?}", Reason::INVALID_SERVICE_ID));
}

/// The acceptances that arrive at a stranger's address for its requests.
struct Acceptances {
    socket: UdpSocket,
    received: HashMap<u32, usize>,
}

impl Acceptances {
    fn at(ip: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((ip, UDP_PORT)).expect("the port of the stranger is free");
        socket.set_nonblocking(true).expect("a socket");
        Acceptances { socket, received: HashMap::new() }
    }

    fn receive_all(&mut self) {
        let mut datagram = [0; 8192];
        while let Ok(len) = self.socket.recv(&mut datagram) {
            let packet = Packet::parse(&datagram[..len - Icrc::SIZE])
                .expect("the server sends valid packets");
            let mad = Mad::parse(packet.payload).expect("the server sends valid packets");
            if let Message::Rep(rep) = mad.message {
                *self.received.entry(rep.remote_id).or_default() += 1;
            }
        }
    }

    /// Returns the number of times that the request with this number has been accepted. An
    /// acceptance is repeated every 0.67 s while its endpoint is held.
    fn of(&self, n: u32) -> usize {
        self.received.get(&local_id(n)).copied().unwrap_or(0)
    }
}

/// A stranger requests as many connections as a server has endpoints, and never answers an
/// acceptance. When the server gives up one of these connections, the stranger requests another.
/// The server repeats each acceptance for up to 10 s, but serves every real caller long before. Of
/// `n` waiting acceptances, the latest holds its endpoint for 16/n seconds. The number of its
/// repetitions shows how long it holds the endpoint. A busy machine does not increase that number.
#[test]
fn forged_requests_leave_endpoints_for_real_callers() {
    const ENDPOINTS: u32 = 16;
    const CALLERS: usize = 20;
    const SHORTEST_HOLD: Duration = Duration::from_millis(500);
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, _) = adapters(dir.path());
    let rig = Rig { a: &peer, b: &victim };
    let service = Service::new(&victim, 64);
    let port = service.port(&victim);
    let stranger = Stranger::at(STRANGER);
    let mut acceptances = Acceptances::at(STRANGER);
    let mut names = 1..;
    let mut forge = || stranger.send_req(names.next().expect("the range has no end"), port);

    let mut endpoints: Vec<Option<End<'_, Roce>>> = (0..ENDPOINTS).map(|_| None).collect();
    let (mut callers, mut waiting) = (Vec::new(), VecDeque::new());
    let (mut began, mut accepted_in) = (None, None);
    let mut served = 0;
    // The server decides on the first requests only when all of them have arrived. Later requests
    // of the stranger would be deferred.
    for _ in 0..ENDPOINTS {
        forge();
        waiting.push_back(service.request(&rig).0);
    }
    rig.until("all callers", || {
        while let Some(event) = service.log.take() {
            match event {
                Event::Request { request, .. } => waiting.push_back(request),
                other => panic!("{other:?}"),
            }
        }
        for endpoint in &mut endpoints {
            match endpoint.as_ref().and_then(|end| end.log.take()) {
                Some(Event::AcceptFailed) => {
                    *endpoint = None;
                    forge();
                }
                Some(Event::Disconnected) => *endpoint = None,
                Some(Event::Established { .. }) | None => {}
                Some(other) => panic!("{other:?}"),
            }
            if endpoint.is_none()
                && let Some(request) = waiting.pop_front()
            {
                began.get_or_insert_with(Instant::now);
                let end = End::new(&victim);
                *endpoint = end.qp.accept(request, b"", DEPTH).is_ok().then_some(end);
            }
        }
        // The forged requests hold all endpoints.
        if callers.is_empty() && endpoints.iter().all(Option::is_some) {
            accepted_in = began.map(|began| began.elapsed());
            callers.extend((0..CALLERS).map(|_| End::new(&peer)));
            callers.iter().for_each(|caller| caller.connect(port, b"", None));
        }
        for caller in &callers {
            match caller.log.take() {
                Some(Event::Established { .. }) => caller.qp.disconnect(Close::Graceful),
                Some(Event::Disconnected) => served += 1,
                None => {}
                Some(other) => {
                    panic!("{served} of {CALLERS} callers were served, and then one got {other:?}")
                }
            }
        }
        acceptances.receive_all();
        (served == CALLERS).then_some(())
    });
    // If accepting took longer, because the machine was busy, fewer than `n` acceptances were
    // waiting at the same time. Then the limits below do not apply.
    if accepted_in.is_none_or(|time| time >= SHORTEST_HOLD) {
        return;
    }
    for n in 1..=ENDPOINTS {
        let (times, most) = (acceptances.of(n), 16 * 3 / 2 / n as usize + 2);
        assert!(
            (1..=most).contains(&times),
            "endpoint {n} was held for {times} acceptances; expected 1 to {most}"
        );
    }
}
