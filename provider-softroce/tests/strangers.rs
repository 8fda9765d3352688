//! Strangers: programs on this host that have heard everything, and send what they like from sockets that
//! need no privilege. What they say is no better than what its receiver can tell from its peer's; nothing of
//! it may change anything.

#[path = "../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "captures hold more than is looked at here")]
mod reader;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Provider, Queue, SendOp, Transport, WcStatus};
use provider_loopback::contract::rig::{DEPTH, End, Event, Rig, SEND, Service, outcomes, pattern};
use provider_softroce::{Roce, SoftRoce};
use wire::cm::{
    Answered, Dreq, IpHeader, Mad, Message, Mra, Reason, Rej, Rep, Req, Rtu, ServiceId, Timeout,
};
use wire::rocev2::{
    Aeth, Bth, Deth, Extension, Icrc, NakCode, Opcode, Packet, PathMtu, Psn, Reth, Syndrome,
    UDP_PORT,
};

/// The victim, its peer, which shares the address, and somebody else.
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 41);
const PEER: Ipv4Addr = VICTIM;
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 43);

/// One at a time: memory is counted.
static ALONE: Mutex<()> = Mutex::new(());

/// Who sends to the victim's port.
struct Stranger {
    socket: UdpSocket,
    icrc: Icrc,
}

impl Stranger {
    fn at(ip: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        socket.connect((VICTIM, UDP_PORT)).expect("an address of this host");
        let [from, to] = [socket.local_addr(), socket.peer_addr()].map(|end| end.expect("bound"));
        let icrc = Icrc::new(from, to).expect("both are IPv4");
        Stranger { socket, icrc }
    }

    /// Sends these octets.
    fn mutter(&self, datagram: &[u8]) {
        // Errors tell of earlier datagrams.
        self.socket.send(datagram).ok();
    }

    /// Sends a packet with the checksum that it should have.
    fn say(&self, packet: &[u8]) {
        let mut datagram = [packet, &[0; Icrc::SIZE]].concat();
        self.icrc.seal(0, &mut datagram);
        self.mutter(&datagram);
    }

    fn say_packet(&self, packet: &Packet<'_>) {
        let mut octets = vec![0; packet.len()];
        packet.emit(&mut octets);
        self.say(&octets);
    }

    fn say_message(&self, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        self.say_packet(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    }
}

impl Stranger {
    /// Asks for a connection, in a way that is right, by the name of a queue pair that does not exist.
    fn call(&self, n: u32, port: u16) {
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
        self.say_message(u64::from(n), Message::Req(req));
    }
}

/// The communication ID of a stranger's request.
fn local_id(n: u32) -> u32 {
    n << 7 | 5
}

/// The victim, which writes down what it hears and says; its peer; and the file.
fn adapters(dir: &Path) -> (Roce, Roce, PathBuf) {
    let file = dir.join("heard.pcapng");
    let open = |params: String| {
        SoftRoce.open("softroce", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
    };
    // Short packets: there are more of them.
    let victim = open(format!("{VICTIM} engine=user mtu=1024 capture={}", file.display()));
    let peer = open(format!("{PEER} engine=user mtu=1024"));
    (victim, peer, file)
}

/// What captures say of what has come.
const IN: u32 = 1;

/// Packets that the victim has had from its peer, without their checksums.
fn heard(file: &Path) -> Vec<Vec<u8>> {
    let contents = reader::read(&std::fs::read(file).expect("a capture"));
    let came = contents.packets.into_iter().filter(|packet| packet.direction == IN);
    came.map(|packet| match packet.body {
        reader::Body::Udp { payload, .. } => payload[..payload.len() - Icrc::SIZE].to_vec(),
        body => panic!("{body:?}"),
    })
    .collect()
}

/// A little of everything, from one end to the other, checked.
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
    assert!(to.mem.read(0, 12_000) == octets, "round {round}: written and sent");
    assert!(from.mem.read(40_000, 12_000) == octets, "round {round}: read");
}

/// What malloc has handed out, in all its arenas.
fn bytes_in_use() -> usize {
    // SAFETY: it takes no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Runs exchanges in both directions while `attack` is given what was heard so far: nothing else happens.
fn under_attack(rounds: u64, mut attack: impl FnMut(u64, &[Vec<u8>])) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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
    let heard_before = heard(&file);
    assert!(heard_before.len() > 300, "{}", heard_before.len());
    let mut before = 0;
    for round in 0..rounds {
        attack(round, &heard_before);
        exchange(&rig, &a, &b, round);
        attack(round, &heard_before);
        exchange(&rig, &b, &a, round);
        if round == rounds / 4 {
            before = bytes_in_use();
        }
    }
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 1 << 20, "{grown} bytes more are in use");
    assert!(a.mem.read(60_000, 4000) == guard);
    for log in [&a.log, &b.log] {
        log.assert_silent();
    }
}

/// From an address that is not the peer's: what the peer has said, word by word, and with any part changed.
#[test]
fn who_is_not_the_peer_is_not_heard() {
    let stranger = Stranger::at(STRANGER);
    under_attack(40, |round, heard| {
        for (n, packet) in heard.iter().enumerate() {
            stranger.say(packet);
            let mut other = packet.clone();
            let at = (n * 7 + round as usize * 13) % other.len();
            other[at] ^= 1 << (n % 8);
            stranger.say(&other);
        }
    });
}

/// From the peer's own address, by another program there: what is not, or no more, the connection's turn.
#[test]
fn what_is_out_of_turn_changes_nothing() {
    let stranger = Stranger::at(PEER);
    under_attack(40, |round, heard| {
        for (n, octets) in heard.iter().enumerate() {
            // Once more: a duplicate, of requests and answers and of the connection's making.
            stranger.say(octets);
            // With a checksum that is none, or not for this sender.
            stranger.mutter(&[&octets[..], &pattern(n as u64 ^ round, 4)].concat());
            let Ok(packet) = Packet::parse(octets) else { panic!("{octets:x?}") };
            if packet.bth.dest_qpn == Deth::GSI_QPN {
                continue;
            }
            // For a queue pair that is not there: of this slot, of another, of nobody.
            for change in [0x80, 1, 0x55_5500] {
                let bth = Bth { dest_qpn: packet.bth.dest_qpn ^ change, ..packet.bth };
                stranger.say_packet(&Packet { bth, ..packet });
            }
            // Old, but with other octets, and for other memory.
            let forged = vec![0xEE; packet.payload.len()];
            let extension = match packet.extension {
                Extension::Reth(reth) => Extension::Reth(Reth { r_key: !reth.r_key, ..reth }),
                other => other,
            };
            stranger.say_packet(&Packet { extension, payload: &forged, ..packet });
            // Far off, on either side.
            for distance in [0x10_0000, 0x7F_0000, 0x90_0000] {
                let bth = Bth { psn: packet.bth.psn + distance, ..packet.bth };
                stranger.say_packet(&Packet { bth, ..packet });
            }
            // Answers to what was never asked, or long ago.
            let syndromes = [
                Syndrome::ACK,
                Syndrome::Nak(NakCode::RemoteAccess),
                Syndrome::Nak(NakCode::SequenceError),
            ];
            for syndrome in syndromes {
                let bth = Bth { opcode: Opcode::Acknowledge, ack_request: false, ..packet.bth };
                let bth = Bth { psn: bth.psn + 0x20_0000, ..bth };
                let aeth = Aeth { syndrome, msn: n as u32 };
                stranger.say_packet(&Packet {
                    bth,
                    extension: Extension::Aeth(aeth),
                    payload: &[],
                });
            }
        }
    });
}

/// Octets that are no packets, of all lengths.
#[test]
fn noise_is_ignored() {
    let strangers = [Stranger::at(STRANGER), Stranger::at(PEER)];
    under_attack(40, |round, heard| {
        for n in 0..200 {
            let noise = pattern(round << 32 | n, (n * n) as usize % 5000);
            let cut = &heard[n as usize % heard.len()];
            for stranger in &strangers {
                stranger.mutter(&noise);
                // As long as a BTH at least, and with a proper checksum.
                if noise.len() >= Bth::SIZE {
                    stranger.say(&noise[..noise.len() & !3]);
                }
                stranger.say(&cut[..((cut.len() / 2) & !3).max(Bth::SIZE)]);
            }
        }
    });
}

/// Messages of connection management with numbers that are guessed, from the peer's address, and with the
/// right ones, from another.
#[test]
fn messages_that_only_the_peer_can_send_are_not_taken_from_others() {
    let [other, beside] = [STRANGER, PEER].map(Stranger::at);
    under_attack(20, |round, heard| {
        let mads: Vec<Mad<'_>> = heard
            .iter()
            .filter_map(|octets| Packet::parse(octets).ok())
            .filter(|packet| packet.bth.dest_qpn == Deth::GSI_QPN)
            .map(|packet| Mad::parse(packet.payload).expect("our own"))
            .collect();
        let (theirs, ours, qpn, transaction) = mads
            .iter()
            .find_map(|mad| match mad.message {
                Message::Rep(rep) => Some((rep.local_id, rep.remote_id, rep.qpn, mad.transaction)),
                _ => None,
            })
            .expect("a REP was heard");
        let all = |stranger: &Stranger, local_id: u32, remote_id: u32, transaction: u64| {
            let private = &[];
            for answered in [Answered::Req, Answered::Rep, Answered::Other] {
                let (ari, reason) = (&[][..], Reason::CONSUMER);
                let rej = Rej { local_id, remote_id, answered, reason, ari, private };
                stranger.say_message(transaction, Message::Rej(rej));
                let mra = Mra {
                    local_id,
                    remote_id,
                    answered,
                    service_timeout: Timeout::new(24),
                    private,
                };
                stranger.say_message(transaction, Message::Mra(mra));
            }
            stranger.say_message(transaction, Message::Rtu(Rtu { local_id, remote_id, private }));
            let dreq = Dreq { local_id, remote_id, remote_qpn: qpn, private };
            stranger.say_message(transaction, Message::Dreq(dreq));
            for mad in &mads {
                if let Message::Rep(rep) = mad.message {
                    let rep = Rep { local_id, remote_id, ..rep };
                    stranger.say_message(transaction, Message::Rep(rep));
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

/// Callers by the thousand: the backlog is what it is, the rest is refused, and when they have gone a proper
/// one is served.
#[test]
fn a_flood_of_requests_is_refused() {
    let stranger = Stranger::at(STRANGER);
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, _) = adapters(dir.path());
    let rig = Rig { a: &peer, b: &victim };
    let (a, b) = rig.pair();
    let service = Service::new(&victim, 8);
    let port = service.port(&victim) as u16;

    let mut requests = 0;
    let mut before = 0;
    for round in 0..200u32 {
        for n in 1..100 {
            stranger.call(round * 100 + n, port);
            stranger.call(round * 100 + n, port ^ 1);
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
            victim.reject(request, b"").expect("reject");
        }
        if round == 50 {
            before = bytes_in_use();
        }
    }
    assert!(requests > 8, "{requests}");
    let grown = bytes_in_use().saturating_sub(before);
    assert!(grown <= 4 << 20, "{grown} bytes more are in use");
    for log in [&a.log, &b.log] {
        log.assert_silent();
    }
    let (c, d) = (End::new(&peer), End::new(&victim));
    rig.join(&c, &d);
    exchange(&rig, &c, &d, 7);
}

/// Acceptances that a stranger at whose address they are said hears of, for each of its requests.
struct Acceptances {
    socket: UdpSocket,
    heard: HashMap<u32, usize>,
}

impl Acceptances {
    fn at(ip: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((ip, UDP_PORT)).expect("its port is free");
        socket.set_nonblocking(true).expect("a socket");
        Acceptances { socket, heard: HashMap::new() }
    }

    fn listen(&mut self) {
        let mut datagram = [0; 8192];
        while let Ok(len) = self.socket.recv(&mut datagram) {
            let packet = Packet::parse(&datagram[..len - Icrc::SIZE]).expect("the server's");
            let mad = Mad::parse(packet.payload).expect("the server's");
            if let Message::Rep(rep) = mad.message {
                *self.heard.entry(rep.remote_id).or_default() += 1;
            }
        }
    }

    /// How often the request of this name has been accepted: an acceptance is repeated every 0.67 s while its
    /// endpoint is held.
    fn of(&self, n: u32) -> usize {
        self.heard.get(&local_id(n)).copied().unwrap_or(0)
    }
}

/// Somebody asks for as many connections as a server has endpoints, never answers to an acceptance, and asks
/// again as soon as one has been given up. Everybody who really calls is served, and not because all
/// acceptances have been repeated to the end, which takes 10 s: of `n` that wait the latest holds its
/// endpoint for 16/n seconds. How long one is held is told by how often it is repeated, which no busy machine
/// makes more.
#[test]
fn forged_requests_leave_endpoints_for_real_callers() {
    const ENDPOINTS: u32 = 16;
    const CALLERS: usize = 20;
    const SHORTEST_HOLD: Duration = Duration::from_millis(500);
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().expect("a directory");
    let (victim, peer, _) = adapters(dir.path());
    let rig = Rig { a: &peer, b: &victim };
    let service = Service::new(&victim, 64);
    let port = service.port(&victim) as u16;
    let stranger = Stranger::at(STRANGER);
    let mut acceptances = Acceptances::at(STRANGER);
    let mut names = 1..;
    let mut forge = || stranger.call(names.next().expect("there are many"), port);

    let mut endpoints: Vec<Option<End<'_, Roce>>> = (0..ENDPOINTS).map(|_| None).collect();
    let (mut callers, mut waiting) = (Vec::new(), VecDeque::new());
    let (mut began, mut accepted_in) = (None, None);
    let mut served = 0;
    (0..ENDPOINTS).for_each(|_| forge());
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
            callers.iter().for_each(|caller| caller.connect(port.into(), b"", None));
        }
        for caller in &callers {
            match caller.log.take() {
                Some(Event::Established { .. }) => caller.qp.disconnect(Close::Graceful),
                Some(Event::Disconnected) => served += 1,
                None => {}
                Some(other) => {
                    panic!(
                        "{served} of {CALLERS} callers were served, and then one was told {other:?}"
                    )
                }
            }
        }
        acceptances.listen();
        (served == CALLERS).then_some(())
    });
    // Where a busy machine has taken longer, there were not `n` that waited.
    if accepted_in.is_none_or(|time| time >= SHORTEST_HOLD) {
        return;
    }
    for n in 1..=ENDPOINTS {
        let (times, most) = (acceptances.of(n), 16 * 3 / 2 / n as usize + 2);
        assert!(
            (1..=most).contains(&times),
            "endpoint {n} was held for {times} acceptances, not {most}"
        );
    }
}
