//! Packets that anybody can send to a queue pair whose number is known.

use adapter::{Qp, ResponderCfg};
use rnic::WcOp;
use roce::Engine;
use wire::rocev2::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, Opcode, Packet, Psn, Reth, Syndrome,
    UDP_PORT,
};
use work::Close;

use crate::side::*;

/// The number of the queue pairs of the peer.
const PEER: u32 = 0x1234;
/// The PSN of the first packet of the peer.
const PSN: u32 = 0xff_fffe;

/// A packet of each kind. A responder that expects this PSN would carry out the requests.
fn packets(qpn: u32, psn: u32, key: u32) -> Vec<Packet<'static>> {
    let reth = Reth { va: 8, r_key: key, len: 8 };
    let aeth = Aeth { syndrome: Syndrome::Ack { credit: Syndrome::NO_CREDIT }, msn: 1 };
    let atomic = AtomicEth { va: 8, r_key: key, swap_or_add: 77, compare: 0x5a5a_5a5a_5a5a_5a5a };
    let deth = Deth { q_key: 0, source_qpn: PEER };
    let kinds = [
        (Opcode::SendOnly, Extension::None),
        (Opcode::SendFirst, Extension::None),
        (Opcode::SendOnlyImmediate, Extension::Immediate(7)),
        (Opcode::SendOnlyInvalidate, Extension::Invalidate(key)),
        (Opcode::WriteOnly, Extension::Reth(reth)),
        (Opcode::WriteOnlyImmediate, Extension::RethImmediate(reth, 7)),
        (Opcode::ReadRequest, Extension::Reth(reth)),
        (Opcode::FetchAdd, Extension::Atomic(atomic)),
        (Opcode::CompareSwap, Extension::Atomic(atomic)),
        (Opcode::Acknowledge, Extension::Aeth(aeth)),
        (Opcode::ReadResponseOnly, Extension::Aeth(aeth)),
        (Opcode::AtomicAcknowledge, Extension::AtomicAck(aeth, AtomicAckEth { original: 7 })),
        (Opcode::CongestionNotification, Extension::Reserved),
        (Opcode::DatagramSendOnly, Extension::Deth(deth)),
    ];
    let packet = |(opcode, extension): (Opcode, Extension)| {
        let bth = Bth { ack_request: true, ..Bth::new(opcode, qpn, Psn::new(psn)) };
        let payload: &[u8] = if opcode.has_payload() { &[0xee; 8] } else { &[] };
        Packet { bth, extension, payload }
    };
    kinds.into_iter().map(packet).collect()
}

/// Before its responder starts, a queue pair answers no packet and carries out none, and it keeps
/// none for the time when the responder has started: if it is new, if it was reset, and if its
/// connection has ended. The packets come from the address of the later peer.
#[test]
fn packets_before_the_responder_change_nothing() {
    let mut side = Side::open("127.0.0.135");
    side.memory.fill(0x5a);
    let side = &side;
    let mut peer = at("127.0.0.136");
    peer.set_port(UDP_PORT);
    let stranger = Stranger::new(peer, at("127.0.0.135"));
    let start = |qp: &Qp<Engine>| {
        let (responder, _) = cfgs([at("127.0.0.135"), peer], PEER, [0, PSN]);
        let responder = ResponderCfg { peer_number: PEER, ..responder };
        qp.establish_responder(&responder).expect("the responder starts");
    };
    let [new, reset, ended, open] = [0; 4].map(|_| side.qp());
    start(&reset);
    reset.reset().expect("the queue pair can be reset");
    start(&ended);
    ended.disconnect(Close::Graceful);
    start(&open);
    (1..3).for_each(|id| side.receive(&new, id));
    (3..5).for_each(|id| side.receive(&reset, id));
    let key = side.region.region().expect("the region exists").rkey();
    // The peer of the open queue pair sends its messages after all other packets, so those have
    // been processed when the messages are answered.
    let (mut done, mut answers) = (Vec::new(), Vec::new());
    let mut exchange = |sent: u32, id: u64| {
        let bth = Bth::new(Opcode::SendOnly, number(&open), Psn::new(PSN) + sent);
        let bth = Bth { ack_request: true, ..bth };
        side.receive(&open, id);
        stranger.send(&Packet { bth, extension: Extension::None, payload: &[] });
        until([side; 2], || {
            side.poll(&mut done);
            stranger.receive(|packet| answers.push((packet.bth.opcode, packet.bth.psn)));
            done.len() as u64 == id - 9 && answers.len() as u64 == id - 9
        });
    };
    for (sent, qp) in [&new, &reset, &ended].into_iter().enumerate() {
        for psn in [PSN, PSN + 1, PSN - 1] {
            packets(number(qp), psn, key).iter().for_each(|packet| stranger.send(packet));
        }
        exchange(sent as u32, 10 + sent as u64);
    }
    assert!(done.iter().zip(10..13).all(|(of, id)| *of == (WcOp::Recv, id, OK)), "{done:?}");
    let expected: Vec<_> = (0..3).map(|n| (Opcode::Acknowledge, Psn::new(PSN) + n)).collect();
    assert_eq!(answers, expected);
    assert!(side.memory.iter().all(|&octet| octet == 0x5a));
    assert_eq!(side.events(), ["Disconnected { by_peer: false }", "disconnected"]);

    for (n, qp) in [&new, &reset].into_iter().enumerate() {
        start(qp);
        let message = &packets(number(qp), PSN, key)[0];
        assert_eq!(message.bth.opcode, Opcode::SendOnly);
        stranger.send(message);
        let mut received = Vec::new();
        until([side; 2], || {
            side.poll(&mut received);
            !received.is_empty()
        });
        let id = 1 + 2 * n as u64;
        assert_eq!((received, qp.allocated()), (vec![(WcOp::Recv, id, OK)], 1));
        let place = (1 + id as usize) * MESSAGE;
        assert_eq!(side.memory[place..place + 8], [0xee; 8]);
    }
}

/// A packet that has arrived before the responder starts, and that no thread has read yet, does not
/// count as a packet of the new connection, although its PSN is one of that connection.
#[test]
fn packets_that_lie_unread_are_not_kept_for_the_responder() {
    let side = &Side::open("127.0.0.139");
    let mut peer = at("127.0.0.140");
    peer.set_port(UDP_PORT);
    let stranger = Stranger::new(peer, at("127.0.0.139"));
    let qp = side.qp();
    let start = || {
        let (responder, _) = cfgs([at("127.0.0.139"), peer], PEER, [0, PSN]);
        let responder = ResponderCfg { peer_number: PEER, ..responder };
        qp.establish_responder(&responder).expect("the responder starts");
    };
    let send = |psn: u32, octet: u8| {
        let bth =
            Bth { ack_request: true, ..Bth::new(Opcode::SendOnly, number(&qp), Psn::new(psn)) };
        stranger.send(&Packet { bth, extension: Extension::None, payload: &[octet; 8] });
    };
    start();
    qp.reset().expect("the queue pair can be reset");
    send(PSN + 1, 0xdd);
    start();
    (0..2).for_each(|id| side.receive(&qp, id));
    for sent in 0..2 {
        send(PSN + sent, 0xee);
        let mut received = Vec::new();
        until([side; 2], || {
            side.poll(&mut received);
            !received.is_empty()
        });
        assert_eq!(received, [(WcOp::Recv, u64::from(sent), OK)]);
        let place = (1 + sent as usize) * MESSAGE;
        assert_eq!(side.memory[place..place + 8], [0xee; 8]);
    }
}
