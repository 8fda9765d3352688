//! Datagram queue pairs have numbers from their creation on, too.

use adapter::{Qp, Target};
use rnic::{RecvWr, WcOp};
use roce::{Config, Engine};
use wire::cm::sidr_trailer::{self, DatagramQp};
use wire::cm::{IpHeader, Mad, Message};
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, Psn, UDP_PORT};
use work::{ReadDepth, ServiceType};

use crate::side::*;

/// The octets before the payload in each buffer.
const HEADER: usize = rnic::ud::HEADER_SIZE;

/// A peer at this address, which answers nothing. While it exists, an attempt to resolve it neither
/// succeeds nor fails.
fn silent_peer(ip: &str) -> Stranger {
    let mut address = at(ip);
    address.set_port(UDP_PORT);
    Stranger::new(address, at("127.0.0.1"))
}

/// The queue pair, as it is told to a peer that it asks for the peer's queue pair.
fn told_to(stranger: &Stranger, side: &Side, qp: &Qp<Engine>) -> DatagramQp {
    let mut peer = stranger.socket.local_addr().expect("the socket is bound");
    peer.set_port(7);
    let target = Target {
        peer,
        private: &[],
        deadline: None,
        depth: ReadDepth { incoming: 0, outgoing: 0 },
    };
    qp.resolve(1, &target).expect("the attempt starts");
    let mut told = None;
    until([side; 2], || {
        stranger.receive(|packet| {
            if let Ok(Mad { message: Message::SidrReq(req), .. }) = Mad::parse(packet.payload) {
                told = told.or(sidr_trailer::parse_req(&req.private[IpHeader::SIZE..]).1);
            }
        });
        told.is_some()
    });
    told.expect("the request tells the queue pair")
}

fn datagram(DatagramQp { qpn, q_key }: DatagramQp, payload: &[u8]) -> Packet<'_> {
    let bth = Bth::new(Opcode::DatagramSendOnly, qpn, Psn::new(0));
    Packet { bth, extension: Extension::Deth(Deth { q_key, source_qpn: 5 }), payload }
}

/// A datagram queue pair receives at each address of the host, although it has sent nothing from
/// there. Datagrams with another key, and those to the number of a queue pair that is gone, are
/// dropped.
#[test]
fn the_number_of_a_datagram_queue_pair_is_valid_at_each_address() {
    let side = Side::open("");
    let (qp, gone) =
        (side.qp_of(ServiceType::Datagram, None), side.qp_of(ServiceType::Datagram, None));
    let connected = side.qp();
    let numbers = [&qp, &gone, &connected].map(number);
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[2] != numbers[0]);
    let peer = silent_peer("127.0.0.137");
    let told = told_to(&peer, &side, &qp);
    assert_eq!(told.qpn, numbers[0]);
    let q_key_of_gone = told_to(&peer, &side, &gone).q_key;
    drop(gone);
    let mut expected = Vec::new();
    let mut done = Vec::new();
    for (id, address) in addresses_of_host().into_iter().enumerate() {
        let place = (1 + id) * MESSAGE;
        let key = side.region.region().expect("the region exists").lkey();
        let len = MESSAGE as u32;
        let segments = &[rnic::Segment { addr: place as u64, len, key }];
        // SAFETY: one thread posts, and the memory outlives the queue pairs.
        unsafe { qp.post_recv(&RecvWr { id: id as u64, segments, quiet: false }) }
            .expect("there is room");
        let mut from = address;
        from.set_port(0);
        let stranger = Stranger::new(from, address);
        let payload = [id as u8; MESSAGE - HEADER];
        stranger.send(&datagram(DatagramQp { q_key: told.q_key ^ 1, ..told }, &payload));
        stranger.send(&datagram(DatagramQp { qpn: numbers[1], q_key: q_key_of_gone }, &payload));
        stranger.send(&datagram(DatagramQp { qpn: numbers[2], ..told }, &payload));
        stranger.send(&datagram(told, &payload));
        expected.push((WcOp::Recv, id as u64, OK));
        until([&side; 2], || {
            side.poll(&mut done);
            done.len() >= expected.len()
        });
        assert_eq!(done, expected, "{address}");
        assert_eq!(side.memory[place + HEADER..place + MESSAGE], payload, "{address}");
    }
    assert_eq!((number(&qp), qp.allocated()), (numbers[0], 0));
    assert!(side.events().is_empty(), "{:?}", side.events());
}

/// Without numbers from the creation on, a datagram queue pair has a number at each address from
/// which it sends.
#[test]
fn a_datagram_queue_pair_has_no_number_otherwise() {
    let side = Side::with("", Config::default());
    let qp = side.qp_of(ServiceType::Datagram, None);
    assert_eq!(qp.number(), None);
    assert_ne!(told_to(&silent_peer("127.0.0.138"), &side, &qp).qpn, 0);
}
