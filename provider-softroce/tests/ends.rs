//! How connections end, with a peer made by hand: what is answered when an acknowledgement is lost, or nobody answers.

#[path = "../../capture/tests/reader/mod.rs"]
#[expect(dead_code, reason = "captures hold more than is looked at here")]
mod reader;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dat_core::provider::{Close, Connect, Provider, Queue, Transport, WcStatus};
use provider_loopback::contract::rig::{DEPTH, End, Event, PATIENCE, Rig, Service, outcomes};
use provider_softroce::{Roce, SoftRoce};
use wire::cm::{Drep, Dreq, IpHeader, Mad, Message, Reason, Rep, Req, Rtu, ServiceId, Timeout};
use wire::rocev2::{
    Aeth, Bth, Deth, Extension, Icrc, Opcode, Operation, Packet, PathMtu, Psn, Syndrome, UDP_PORT,
};

const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 45);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 46);
const PEER_ID: u32 = 0x0001_2305;
const PEER_QPN: u32 = 0x00_4505;
const GUID: u64 = 7;
/// Of our first packet.
const OUR_PSN: Psn = Psn::new(0x1000);

/// One at a time: the peer has the port.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The peer: all that it says is said by the test.
struct Peer {
    socket: UdpSocket,
    icrc: Icrc,
    heard: RefCell<VecDeque<Heard>>,
    /// The DREQ that is answered late, if at all: that it is repeated is no news.
    dreq: Cell<Option<u64>>,
}

/// What the peer hears, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Req { transaction: u64, id: u32 },
    Rtu,
    Rep { id: u32, qpn: u32, psn: Psn },
    Dreq { transaction: u64 },
    Drep { transaction: u64 },
    Rej(Reason),
    Request(Psn),
    Ack(Psn),
}

/// The connection, as the peer knows it.
struct Call {
    /// The peer's ID.
    peer_id: u32,
    id: u32,
    qpn: u32,
    psn: Psn,
}

impl Peer {
    fn new() -> Self {
        Self::at(UDP_PORT)
    }

    /// One that sends from another port, as a program of anybody's can: it hears nothing.
    fn elsewhere() -> Self {
        Self::at(0)
    }

    fn at(port: u16) -> Self {
        let socket = UdpSocket::bind((PEER, port)).expect("nobody has the port");
        socket.set_nonblocking(true).expect("a socket");
        let from = socket.local_addr().expect("bound");
        let icrc = Icrc::new(from, (OURS, UDP_PORT).into()).expect("both are IPv4");
        Peer { socket, icrc, heard: RefCell::default(), dreq: Cell::default() }
    }

    fn say(&self, packet: &Packet<'_>) {
        let mut datagram = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut datagram[..packet.len()]);
        self.icrc.seal(0, &mut datagram);
        self.socket.send_to(&datagram, (OURS, UDP_PORT)).expect("sent");
    }

    fn say_message(&self, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        self.say(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    }

    fn say_dreq(&self, call: &Call, transaction: u64) {
        let dreq =
            Dreq { local_id: call.peer_id, remote_id: call.id, remote_qpn: call.qpn, private: &[] };
        self.say_message(transaction, Message::Dreq(dreq));
    }

    fn say_ack(&self, call: &Call, psn: Psn) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
        let bth = Bth::new(Opcode::Acknowledge, call.qpn, psn);
        self.say(&Packet { bth, extension: Extension::Aeth(aeth), payload: &[] });
    }

    fn say_send(&self, call: &Call, psn: Psn) {
        self.say_send_of(call, psn, b"data");
    }

    fn say_send_of(&self, call: &Call, psn: Psn, payload: &[u8]) {
        let bth = Bth { ack_request: true, ..Bth::new(Opcode::SendOnly, call.qpn, psn) };
        self.say(&Packet { bth, extension: Extension::None, payload });
    }

    /// The next that it hears.
    fn hear(&self) -> Option<Heard> {
        let mut datagram = [0; 8192];
        while let Ok(len) = self.socket.recv(&mut datagram) {
            let packet = Packet::parse(&datagram[..len - Icrc::SIZE]).expect("our own");
            let psn = packet.bth.psn;
            let heard = match packet.bth.opcode.operation() {
                Operation::Acknowledge => Heard::Ack(psn),
                _ if packet.bth.dest_qpn != Deth::GSI_QPN => Heard::Request(psn),
                _ => {
                    let Mad { transaction, message } = Mad::parse(packet.payload).expect("our own");
                    match message {
                        Message::Req(req) => Heard::Req { transaction, id: req.local_id },
                        Message::Rtu(_) => Heard::Rtu,
                        Message::Rej(rej) => Heard::Rej(rej.reason),
                        Message::Rep(rep) => {
                            Heard::Rep { id: rep.local_id, qpn: rep.qpn, psn: rep.starting_psn }
                        }
                        Message::Dreq(_)
                            if self.dreq.replace(Some(transaction)) == Some(transaction) =>
                        {
                            continue;
                        }
                        Message::Dreq(_) => Heard::Dreq { transaction },
                        // Of no connection: that only asks whether the port is anybody's.
                        Message::Drep(drep) if drep.remote_id == 0 => continue,
                        Message::Drep(_) => Heard::Drep { transaction },
                        other => panic!("{other:?}"),
                    }
                }
            };
            self.heard.borrow_mut().push_back(heard);
        }
        self.heard.borrow_mut().pop_front()
    }
}

/// Opens our side.
fn adapter() -> Roce {
    open(&format!("{OURS} engine=user"))
}

fn open(params: &str) -> Roce {
    SoftRoce.open("softroce", params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

/// The peer calls, and is answered.
fn connected<'t>(rig: &Rig<'t, Roce>, peer: &Peer) -> (End<'t, Roce>, Call) {
    connected_with(rig, peer, 0)
}

/// The same, of the peer's queue pair of this number.
fn connected_with<'t>(rig: &Rig<'t, Roce>, peer: &Peer, n: u32) -> (End<'t, Roce>, Call) {
    let peer_id = PEER_ID + n;
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a) as u16;
    say_req(peer, peer_id, PEER_QPN + n, port);
    let end = End::new(rig.a);
    let (request, ..) = service.request(rig);
    end.qp.accept(request, b"", DEPTH).expect("accept");
    let call = match rig.until("a REP", || peer.hear()) {
        Heard::Rep { id, qpn, psn } => Call { peer_id, id, qpn, psn },
        other => panic!("{other:?}"),
    };
    peer.say_message(1, Message::Rtu(Rtu { local_id: peer_id, remote_id: call.id, private: &[] }));
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    (end, call)
}

/// A REQ with this communication ID, for this queue pair, to a port of ours.
fn say_req(peer: &Peer, id: u32, qpn: u32, port: u16) {
    let header = IpHeader { source_port: 1, source: PEER.into(), destination: OURS.into() };
    let timeout = Timeout::new(17);
    let req = Req {
        local_id: id,
        service: ServiceId::tcp(port),
        ca_guid: GUID,
        qpn,
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: timeout,
        transport: Req::RC,
        flow_control: false,
        starting_psn: OUR_PSN,
        local_response_timeout: timeout,
        retry_count: 7,
        p_key: 0xFFFF,
        path_mtu: PathMtu::Octets1024.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: wire::cm::Path::over_ip(PEER.into(), OURS.into(), timeout),
        alternate: None,
        private: &header.emit(),
    };
    peer.say_message(1, Message::Req(req));
}

/// An end that calls.
fn calling<'t>(rig: &Rig<'t, Roce>, ip: Ipv4Addr) -> End<'t, Roce> {
    let end = End::new(rig.a);
    let addr = (ip, 0).into();
    end.qp
        .connect(&Connect { addr, port: 7, private: b"", timeout: None, depth: DEPTH })
        .expect("connect");
    end
}

/// The peer is called, and answers with its queue pair of this number.
fn connected_to<'t>(rig: &Rig<'t, Roce>, peer: &Peer, n: u32) -> End<'t, Roce> {
    let end = calling(rig, PEER);
    let (transaction, id) = rig.until("a REQ", || match peer.hear()? {
        Heard::Req { transaction, id, .. } => Some((transaction, id)),
        // Of the connection before.
        Heard::Dreq { .. } => None,
        other => panic!("{other:?}"),
    });
    let rep = Rep {
        local_id: PEER_ID + n,
        remote_id: id,
        qpn: PEER_QPN + n,
        starting_psn: OUR_PSN,
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: Timeout::new(14),
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 1,
        private: b"",
    };
    peer.say_message(transaction, Message::Rep(rep));
    assert_eq!(rig.until("an RTU", || peer.hear()), Heard::Rtu);
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    end
}

/// The peer's queue pair is gone as it disconnects, as a kernel's is: it is asked for what is in flight, and
/// not for long.
#[test]
fn a_peer_that_answers_nothing_any_more() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    assert_eq!(rig.until("the message", || peer.hear()), Heard::Request(OUR_PSN));
    let start = Instant::now();
    peer.say_dreq(&call, 2);
    let mut asked = 0;
    rig.until("a DREP", || match peer.hear()? {
        Heard::Request(OUR_PSN) => {
            asked += 1;
            None
        }
        Heard::Drep { transaction: 2 } => Some(()),
        other => panic!("{other:?}"),
    });
    let time = start.elapsed();
    // At least once, where this machine is busy with others. Whoever goes on for longer than 50 ms asks more often.
    assert!((1..=5).contains(&asked), "asked {asked} times");
    assert!(time >= Duration::from_millis(50), "it was asked for {time:?} only");
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Flushed)]);
}

/// It has taken a message, its acknowledgement was lost, and it disconnects: the message is not counted as lost.
#[test]
fn a_last_acknowledgement_that_was_lost() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    end.send(2, &[end.mem.segment(0, 8)]);
    for ahead in [0, 1] {
        assert_eq!(rig.until("the message", || peer.hear()), Heard::Request(OUR_PSN + ahead));
    }
    peer.say_dreq(&call, 2);
    assert_eq!(rig.until("the question", || peer.hear()), Heard::Request(OUR_PSN));
    peer.say_ack(&call, OUR_PSN + 1);
    rig.until("a DREP", || match peer.hear()? {
        // Where the machine is busy, another question was under way.
        Heard::Request(OUR_PSN) => None,
        Heard::Drep { transaction: 2 } => Some(()),
        other => panic!("{other:?}"),
    });
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    let done = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(outcomes(&rig.completions(&end.requests, 2)), done);
}

/// Where nothing is in flight nobody waits: a connection that has nothing in flight is over before one that
/// has, although its end was said later. If it waited as that does, it would be over later each time; where
/// this machine is busy, it may be now and then.
#[test]
fn nothing_is_in_flight() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let idle_is_first = |round: u32| {
        let (idle, idle_call) = connected_with(&rig, &peer, 2 * round);
        idle.send(1, &[idle.mem.segment(0, 8)]);
        assert_eq!(rig.until("the message", || peer.hear()), Heard::Request(OUR_PSN));
        peer.say_ack(&idle_call, OUR_PSN);
        assert_eq!(outcomes(&rig.completions(&idle.requests, 1)), [(1, WcStatus::Success)]);
        let (busy, busy_call) = connected_with(&rig, &peer, 2 * round + 1);
        busy.send(1, &[busy.mem.segment(0, 8)]);
        peer.say_dreq(&busy_call, 2);
        peer.say_dreq(&idle_call, 3);
        let next_drep = || {
            rig.until("a DREP", || match peer.hear()? {
                // The message, once more or for the first time.
                Heard::Request(OUR_PSN) => None,
                Heard::Drep { transaction } => Some(transaction),
                other => panic!("{other:?}"),
            })
        };
        let order = [next_drep(), next_drep()];
        for end in [&idle, &busy] {
            assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
        }
        order == [3, 2]
    };
    assert!((0..ROUNDS).any(idle_is_first), "it waits as long as the other one");
}

/// So often is tried what a busy machine may hide, which otherwise comes at once.
const ROUNDS: u32 = 20;

/// We disconnect: what was taken is acknowledged again until the peer has answered to that, and nothing new is taken.
#[test]
fn what_was_taken_is_acknowledged_again() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    for id in [1, 2] {
        end.recv(id, &[end.mem.segment(0, 8)]);
    }
    peer.say_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    end.qp.disconnect(Close::Graceful);
    assert_eq!(rig.until("the first acknowledgement", || peer.hear()), Heard::Ack(call.psn));
    let Heard::Dreq { transaction } = rig.until("a DREQ", || peer.hear()) else {
        panic!("no DREQ")
    };
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(2, WcStatus::Flushed)]);

    peer.say_send(&call, call.psn + 1);
    peer.say_send(&call, call.psn);
    assert_eq!(rig.until("the other", || peer.hear()), Heard::Ack(call.psn));
    end.log.assert_silent();

    let drep = Drep { local_id: PEER_ID, remote_id: call.id, private: &[] };
    peer.say_message(transaction, Message::Drep(drep));
    assert!(matches!(rig.next("the end", &end.log), Event::Disconnected));
    // Now it is over.
    peer.say_send(&call, call.psn);
    peer.say_dreq(&call, 7);
    assert_eq!(rig.until("a DREP", || peer.hear()), Heard::Drep { transaction: 7 });
}

/// Anybody at the peer's address, or who forges that, can write a REQ that names the peer's queue pair. The
/// peer is asked before the connection counts as left, and answers.
#[test]
fn a_forged_request_ends_no_connection() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    let service = Service::new(rig.a, 1);
    say_req(&Peer::elsewhere(), PEER_ID + 0x80, PEER_QPN, service.port(rig.a) as u16);
    assert_eq!(rig.until("the question", || peer.hear()), Heard::Request(OUR_PSN.previous()));
    rig.until("the refusal", || match peer.hear()? {
        // Where this machine is busy it was asked again.
        Heard::Request(psn) if psn == OUR_PSN.previous() => None,
        Heard::Rej(Reason::STALE_CONNECTION) => Some(()),
        other => panic!("{other:?}"),
    });
    peer.say_ack(&call, OUR_PSN.previous());
    end.send(1, &[end.mem.segment(0, 8)]);
    rig.until("the message", || match peer.hear()? {
        // Where this machine is busy it was asked again.
        Heard::Request(psn) if psn == OUR_PSN.previous() => None,
        Heard::Request(OUR_PSN) => Some(()),
        other => panic!("{other:?}"),
    });
    peer.say_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// The same, and nobody answers: the peer has left the connection, and may come again.
#[test]
fn a_peer_that_has_left_a_connection_comes_again() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, _) = connected(&rig, &peer);
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a) as u16;
    say_req(&peer, PEER_ID + 0x80, PEER_QPN, port);
    assert_eq!(rig.until("the question", || peer.hear()), Heard::Request(OUR_PSN.previous()));
    assert!(matches!(rig.next("the end", &end.log), Event::Broken));
    say_req(&peer, PEER_ID + 0x100, PEER_QPN, port);
    service.request(&rig);
}

/// A peer that does not answer, on a host that does and that has the port open, is stopped, or its packets
/// are lost for a while: its retries are used up long before it answers.
#[test]
fn a_peer_that_is_stopped_is_waited_for() {
    let _alone = alone();
    let ours = open(&format!("{OURS} engine=user timeout=32 retries=1"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    for _ in 0..100 {
        assert_eq!(rig.until("the message again", || peer.hear()), Heard::Request(OUR_PSN));
    }
    end.log.assert_silent();
    peer.say_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// The same without any retries: the host is asked before the one timeout is over.
#[test]
fn a_peer_that_is_stopped_is_waited_for_without_retries() {
    let _alone = alone();
    let ours = open(&format!("{OURS} engine=user retries=0"));
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    end.send(1, &[end.mem.segment(0, 8)]);
    // More than in one timeout, where the time between two is twice that before.
    for _ in 0..14 {
        assert_eq!(rig.until("the message again", || peer.hear()), Heard::Request(OUR_PSN));
    }
    end.log.assert_silent();
    peer.say_ack(&call, OUR_PSN);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
    end.log.assert_silent();
}

/// The same of a peer that is asked because of a forged REQ, while nothing else is under way.
#[test]
fn a_peer_that_is_stopped_is_asked_on_and_on() {
    let _alone = alone();
    for retries in [1, 0] {
        let ours = open(&format!("{OURS} engine=user retries={retries}"));
        let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
        let (end, call) = connected_with(&rig, &peer, retries);
        let service = Service::new(rig.a, 1);
        say_req(&Peer::elsewhere(), PEER_ID + 0x80, PEER_QPN + retries, service.port(rig.a) as u16);
        for _ in 0..4 {
            rig.until("the question", || match peer.hear()? {
                Heard::Request(psn) if psn == OUR_PSN.previous() => Some(()),
                Heard::Rej(Reason::STALE_CONNECTION) => None,
                other => panic!("{other:?}"),
            });
        }
        end.log.assert_silent();
        peer.say_ack(&call, OUR_PSN.previous());
        end.send(1, &[end.mem.segment(0, 8)]);
        rig.until("the message", || match peer.hear()? {
            Heard::Request(psn) if psn == OUR_PSN.previous() => None,
            Heard::Request(OUR_PSN) => Some(()),
            other => panic!("{other:?}"),
        });
        peer.say_ack(&call, OUR_PSN);
        assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
        end.log.assert_silent();
    }
}

/// Its host says that nobody has the port, for a moment, as a firewall does that is being changed. Where this
/// machine is so busy that the moment is longer than a second and a half, the connection ends.
#[test]
fn a_port_that_is_refused_for_a_moment() {
    let _alone = alone();
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
        rig.until("the message, or the end", || match (peer.hear(), end.log.take()) {
            (Some(Heard::Request(OUR_PSN)), _) => Some(true),
            (_, Some(Event::Broken)) => Some(false),
            (None, None) => None,
            (heard, event) => panic!("{heard:?} {event:?}"),
        }) && {
            peer.say_ack(&call, OUR_PSN);
            assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(1, WcStatus::Success)]);
            true
        }
    };
    assert!((0..ROUNDS).any(goes_on), "the first word counts");
}

/// Once the peer has sent a right packet, others must come from the same port: nobody else on the peer's host
/// can send from that, whatever it knows or guesses of the connection.
#[test]
fn packets_from_another_port_are_not_taken() {
    let _alone = alone();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    for id in [1, 2] {
        end.recv(id, &[end.mem.segment(8 * id as usize, 8)]);
    }
    peer.say_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    let next = call.psn + 1;
    let forger = Peer::elsewhere();
    forger.say_send_of(&call, next, b"lies");
    forger.say_ack(&call, OUR_PSN);
    peer.say_send_of(&call, next, b"true");
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(2, WcStatus::Success)]);
    assert_eq!(end.mem.read(16, 4), b"true");
    let counted = ours.counters().into_iter().find(|(name, _)| *name == "packets-from-elsewhere");
    assert_eq!(counted.map(|(_, n)| n), Some(2));
}

/// Whoever frees an endpoint and closes its adapter says that the connection is over, again and again until
/// that is answered, or for a quarter of a second: nobody would do so later, and a peer with nothing to send
/// would wait for ever.
#[test]
fn an_end_that_is_lost_as_the_adapter_is_closed() {
    let _alone = alone();
    // Where this machine is busy, some are skipped, or the answer to the second comes when more have been said.
    assert!((0..ROUNDS).any(|_| closes_with(true) == 2), "an answer does not end it");
    assert!((0..ROUNDS).any(|_| closes_with(false) >= 2), "it is not said again");
}

/// How often the end is said as the adapter is closed; `answer`: until the second was answered.
fn closes_with(answer: bool) -> u32 {
    let ours = adapter();
    let peer = Peer::new();
    let call = {
        let rig = Rig { a: &ours, b: &ours };
        connected(&rig, &peer).1
    };
    let start = Instant::now();
    let mut times = 0;
    std::thread::scope(|scope| {
        let closed = scope.spawn(move || drop(ours));
        while !closed.is_finished() {
            assert!(start.elapsed() < PATIENCE, "the adapter is not closed after {PATIENCE:?}");
            peer.dreq.set(None);
            let Some(heard) = peer.hear() else { continue };
            let Heard::Dreq { transaction } = heard else { panic!("{heard:?}") };
            times += 1;
            if answer && times == 2 {
                let drep = Drep { local_id: PEER_ID, remote_id: call.id, private: &[] };
                peer.say_message(transaction, Message::Drep(drep));
            }
        }
    });
    let time = start.elapsed();
    assert!(answer || time >= Duration::from_millis(250), "it was said for {time:?} only");
    // At 0, 16, 48, 112 and 240 ms.
    assert!((1..=5).contains(&times), "said {times} times");
    times
}

/// A host on which nobody has the port says so: nobody waits until all has been said again in vain. So hardly
/// any message is said twice; a REQ would be said 16 times, a DREQ some ten times. A request is sent again
/// for a second and a half, and not until its retries are used up.
#[test]
fn nobody_has_the_port() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("said.pcapng");
    let ours = open(&format!("{OURS} engine=user capture={}", file.display()));
    let rig = Rig { a: &ours, b: &ours };
    // It is not by chance that we hear of it.
    for n in 100..110 {
        let nobody = Ipv4Addr::new(127, 0, 0, n);
        let end = calling(&rig, nobody);
        assert!(matches!(rig.next("an answer", &end.log), Event::Unreachable));
        let said = said_to(nobody, &file);
        assert!((1..=2).contains(&said), "{nobody}: {said} messages");
    }

    let peer = Peer::new();
    let sends = connected_to(&rig, &peer, 0);
    drop(peer);
    let before = said_to(PEER, &file);
    sends.send(1, &[sends.mem.segment(0, 8)]);
    assert!(matches!(rig.next("the end", &sends.log), Event::Broken));
    // Flushed: it is not for its retries, which would be a transport error.
    assert_eq!(outcomes(&rig.completions(&sends.requests, 1)), [(1, WcStatus::Flushed)]);
    let said = said_to(PEER, &file) - before;
    // Not at the first word of the host: a firewall that is being changed says the same for a moment.
    assert!(said >= 4, "{said} packets");

    // What was said of that one is nothing to the next.
    let peer = Peer::new();
    let leaves = connected_to(&rig, &peer, 1);
    drop(peer);
    let before = said_to(PEER, &file);
    leaves.qp.disconnect(Close::Graceful);
    let event = rig.next("the end", &leaves.log);
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    let said = said_to(PEER, &file) - before;
    assert!((1..=2).contains(&said), "{said} messages");

    // Nor where there is no endpoint any more. Meanwhile a request is sent again for a second and a half.
    let peer = Peer::new();
    let sends = connected_to(&rig, &peer, 2);
    let gone = connected_to(&rig, &peer, 3);
    drop(peer);
    sends.send(1, &[sends.mem.segment(0, 8)]);
    let before = messages_to(PEER, &file);
    drop(gone);
    assert!(matches!(rig.next("the end", &sends.log), Event::Broken));
    let said = messages_to(PEER, &file) - before;
    // That the other one is over is said, too.
    assert!((1..=3).contains(&said), "{said} messages");
}

/// How many packets our side has sent to an address, as its capture has it.
fn said_to(to: Ipv4Addr, capture: &Path) -> usize {
    sent_to(to, capture).len()
}

/// How many of them are of the connection manager.
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
