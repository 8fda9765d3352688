//! A peer of a softroce adapter that a test plays by hand. The including file names the addresses
//! `OURS` and `PEER`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard};

use dat_core::provider::{Connect, Provider, Queue, Remote};
use provider_mem::contract::rig::{DEPTH, End, Event, Rig, Service};
use provider_softroce::{Roce, SoftRoce};
use wire::cm::{Dreq, IpHeader, Mad, Message, Reason, Rep, Req, Rtu, ServiceId, Timeout};
use wire::rocev2::{
    Aeth, Bth, Deth, Extension, Icrc, Opcode, Operation, Packet, PathMtu, Psn, Reth, Syndrome,
    UDP_PORT,
};

use super::{OURS, PEER};

pub(crate) const PEER_ID: u32 = 0x0001_2305;
pub(crate) const PEER_QPN: u32 = 0x00_4505;
pub(crate) const GUID: u64 = 7;
/// The PSN of this side's first packet.
pub(crate) const OUR_PSN: Psn = Psn::new(0x1000);

/// The tests run one at a time, because each peer needs the port.
pub(crate) static PEER_PORT: Mutex<()> = Mutex::new(());

pub(crate) fn lock_peer_port() -> MutexGuard<'static, ()> {
    PEER_PORT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A peer that the test plays. It sends only what the test tells it to send.
pub(crate) struct Peer {
    pub(crate) socket: UdpSocket,
    pub(crate) icrc: Icrc,
    pub(crate) received: RefCell<VecDeque<Received>>,
    /// The transaction of the last DREQ that arrived. Another DREQ with this transaction is a
    /// repetition and is ignored.
    pub(crate) dreq: Cell<Option<u64>>,
    /// The source of the packet that arrived last.
    pub(crate) from: Cell<Option<SocketAddr>>,
}

/// The packets that the peer receives, as far as these tests need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Req { transaction: u64, id: u32, path_mtu: u8 },
    Rtu,
    Rep { id: u32, qpn: u32, psn: Psn },
    Dreq { transaction: u64 },
    Drep { transaction: u64 },
    Rej(Reason),
    Request(Psn),
    Ack(Psn),
    CongestionNotification,
}

/// The peer's view of the connection.
pub(crate) struct PeerConnection {
    /// The communication ID that the peer has chosen.
    pub(crate) peer_id: u32,
    pub(crate) id: u32,
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::at(UDP_PORT)
    }

    /// A peer that sends from another port, as any program can. This peer receives no packets.
    pub(crate) fn elsewhere() -> Self {
        Self::at(0)
    }

    pub(crate) fn at(port: u16) -> Self {
        Self::bound((PEER, port))
    }

    pub(crate) fn bound(at: (Ipv4Addr, u16)) -> Self {
        let socket = UdpSocket::bind(at).expect("the port is free");
        socket.set_nonblocking(true).expect("a socket");
        let from = socket.local_addr().expect("the socket is bound");
        let icrc = Icrc::new(from, (OURS, UDP_PORT).into()).expect("both addresses are IPv4");
        Peer {
            socket,
            icrc,
            received: RefCell::default(),
            dreq: Cell::default(),
            from: Cell::default(),
        }
    }

    pub(crate) fn send_packet(&self, packet: &Packet<'_>) {
        let mut datagram = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut datagram[..packet.len()]);
        self.icrc.seal(0, &mut datagram);
        self.send_octets(&datagram);
    }

    /// Sends these octets as one datagram.
    pub(crate) fn send_octets(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, (OURS, UDP_PORT)).expect("the datagram is sent");
    }

    pub(crate) fn send_message(&self, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        self.send_packet(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    }

    pub(crate) fn send_dreq(&self, call: &PeerConnection, transaction: u64) {
        let dreq =
            Dreq { local_id: call.peer_id, remote_id: call.id, remote_qpn: call.qpn, private: &[] };
        self.send_message(transaction, Message::Dreq(dreq));
    }

    pub(crate) fn send_ack(&self, call: &PeerConnection, psn: Psn) {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: 1 };
        let bth = Bth::new(Opcode::Acknowledge, call.qpn, psn);
        self.send_packet(&Packet { bth, extension: Extension::Aeth(aeth), payload: &[] });
    }

    pub(crate) fn send_send(&self, call: &PeerConnection, psn: Psn) {
        self.send_send_of(call, psn, b"data");
    }

    pub(crate) fn send_send_of(&self, call: &PeerConnection, psn: Psn, payload: &[u8]) {
        let bth = Bth { ack_request: true, ..Bth::new(Opcode::SendOnly, call.qpn, psn) };
        self.send_packet(&Packet { bth, extension: Extension::None, payload });
    }

    /// Requests these octets of this side's memory.
    pub(crate) fn send_read(&self, call: &PeerConnection, psn: Psn, (from, len): (Remote, u32)) {
        let bth = Bth { ack_request: true, ..Bth::new(Opcode::ReadRequest, call.qpn, psn) };
        let extension = Extension::Reth(Reth { va: from.addr, r_key: from.key, len });
        self.send_packet(&Packet { bth, extension, payload: &[] });
    }

    /// Returns the next packet that the peer receives.
    pub(crate) fn receive(&self) -> Option<Received> {
        let mut datagram = [0; 8192];
        while let Ok((len, from)) = self.socket.recv_from(&mut datagram) {
            self.from.set(Some(from));
            let packet =
                Packet::parse(&datagram[..len - Icrc::SIZE]).expect("a packet of our own is valid");
            let psn = packet.bth.psn;
            let received = match packet.bth.opcode.operation() {
                Operation::Acknowledge => Received::Ack(psn),
                Operation::CongestionNotification => {
                    assert!(packet.bth.becn && packet.payload.is_empty());
                    Received::CongestionNotification
                }
                _ if packet.bth.dest_qpn != Deth::GSI_QPN => Received::Request(psn),
                _ => {
                    let Mad { transaction, message } =
                        Mad::parse(packet.payload).expect("a packet of our own is valid");
                    match message {
                        Message::Req(Req { local_id: id, path_mtu, .. }) => {
                            Received::Req { transaction, id, path_mtu }
                        }
                        Message::Rtu(_) => Received::Rtu,
                        Message::Rej(rej) => Received::Rej(rej.reason),
                        Message::Rep(rep) => {
                            Received::Rep { id: rep.local_id, qpn: rep.qpn, psn: rep.starting_psn }
                        }
                        Message::Dreq(_)
                            if self.dreq.replace(Some(transaction)) == Some(transaction) =>
                        {
                            continue;
                        }
                        Message::Dreq(_) => Received::Dreq { transaction },
                        // This DREP belongs to no connection. It only probes whether the port is in
                        // use.
                        Message::Drep(drep) if drep.remote_id == 0 => continue,
                        Message::Drep(_) => Received::Drep { transaction },
                        other => panic!("{other:?}"),
                    }
                }
            };
            self.received.borrow_mut().push_back(received);
        }
        self.received.borrow_mut().pop_front()
    }
}

/// Opens this side's adapter.
pub(crate) fn adapter() -> Roce {
    open(&format!("{OURS}"))
}

pub(crate) fn open(params: &str) -> Roce {
    SoftRoce.open("softroce", params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

/// The peer connects, and this side accepts.
pub(crate) fn connected<'t>(rig: &Rig<'t, Roce>, peer: &Peer) -> (End<'t, Roce>, PeerConnection) {
    connected_with(rig, peer, 0)
}

/// Does the same as [`connected`], but adds `n` to the peer's communication ID and queue pair
/// number.
pub(crate) fn connected_with<'t>(
    rig: &Rig<'t, Roce>,
    peer: &Peer,
    n: u32,
) -> (End<'t, Roce>, PeerConnection) {
    connected_over(rig, peer, n, PathMtu::Octets1024)
}

/// Does the same as [`connected_with`], with a path MTU.
pub(crate) fn connected_over<'t>(
    rig: &Rig<'t, Roce>,
    peer: &Peer,
    n: u32,
    mtu: PathMtu,
) -> (End<'t, Roce>, PeerConnection) {
    let peer_id = PEER_ID + n;
    let service = Service::new(rig.a, 1);
    let port = service.port(rig.a);
    send_req_of(peer, (peer_id, PEER_QPN + n), port, mtu);
    let end = End::new(rig.a);
    let (request, ..) = service.request(rig);
    end.qp.accept(request, b"", DEPTH).expect("the request is accepted");
    let call = match rig.until("a REP", || peer.receive()) {
        Received::Rep { id, qpn, psn } => PeerConnection { peer_id, id, qpn, psn },
        other => panic!("{other:?}"),
    };
    peer.send_message(1, Message::Rtu(Rtu { local_id: peer_id, remote_id: call.id, private: &[] }));
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    (end, call)
}

/// Sends a REQ with this communication ID, for this queue pair, to a port of this side.
pub(crate) fn send_req(peer: &Peer, id: u32, qpn: u32, port: u16) {
    send_req_of(peer, (id, qpn), port, PathMtu::Octets1024);
}

/// Does the same as [`send_req`], with a path MTU.
pub(crate) fn send_req_of(peer: &Peer, (id, qpn): (u32, u32), port: u16, path_mtu: PathMtu) {
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
        path_mtu: path_mtu.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: wire::cm::Path::over_ip(PEER.into(), OURS.into(), timeout),
        alternate: None,
        private: &header.emit(),
    };
    peer.send_message(1, Message::Req(req));
}

/// Returns an endpoint that has called this address.
pub(crate) fn calling<'t>(rig: &Rig<'t, Roce>, ip: Ipv4Addr) -> End<'t, Roce> {
    let end = End::new(rig.a);
    end.qp.connect(&to(ip)).expect("the attempt to connect begins");
    end
}

pub(crate) fn to(ip: Ipv4Addr) -> Connect<'static> {
    Connect { addr: (ip, 0).into(), port: 7, private: b"", timeout: None, depth: DEPTH }
}

/// This side connects, and the peer accepts. `n` is added to the peer's communication ID and queue
/// pair number.
pub(crate) fn connected_to<'t>(rig: &Rig<'t, Roce>, peer: &Peer, n: u32) -> End<'t, Roce> {
    let end = calling(rig, PEER);
    accept_call(rig, peer, n);
    assert_eq!(rig.until("an RTU", || peer.receive()), Received::Rtu);
    assert!(matches!(rig.next("the connection", &end.log), Event::Established { .. }));
    end
}

/// The peer accepts the call of this side.
pub(crate) fn accept_call(rig: &Rig<'_, Roce>, peer: &Peer, n: u32) {
    let (transaction, id) = rig.until("a REQ", || match peer.receive()? {
        Received::Req { transaction, id, .. } => Some((transaction, id)),
        // This DREQ belongs to the previous connection.
        Received::Dreq { .. } => None,
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
    peer.send_message(transaction, Message::Rep(rep));
}
