//! Tests with packets that a peer sends from a plain UDP socket: a peer that repeats an atomic
//! operation, damaged packets that are short, and messages with another Q_Key. Each test shows what
//! the adapter does through the interface that consumers use, so it holds for any engine below it.

#[allow(dead_code)] // Other tests use the rest.
mod peer;

use std::net::Ipv4Addr;

use dat_core::provider::{Access, WcStatus};
use provider_mem::contract::rig::{ALL, Buffer, End, Rig, Service, outcomes, poll};
use provider_softroce::Roce;
use wire::cm::{IpHeader, Mad, Message, Req, ServiceId, Timeout};
use wire::rocev2::{
    Aeth, AtomicEth, Bth, Deth, Extension, Icrc, Opcode, Operation, Packet, PathMtu, Psn, Reth,
    Syndrome,
};

use self::peer::*;

const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 139);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 140);

/// A response to the peer's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Response {
    Ack(Psn),
    SequenceNak(Psn),
    Atomic(Psn, u64),
    Read(Psn),
}

/// The next response that the peer receives on its first connection. Other packets are left out.
fn response(peer: &Peer) -> Option<Response> {
    response_on(peer, PEER_QPN)
}

/// The next response that the peer receives for one of its queue pairs. Other packets are left out,
/// among them repeated acknowledgements of another connection.
fn response_on(peer: &Peer, qpn: u32) -> Option<Response> {
    let mut datagram = [0; 8192];
    while let Ok((len, _)) = peer.socket.recv_from(&mut datagram) {
        let packet =
            Packet::parse(&datagram[..len - Icrc::SIZE]).expect("a packet of our own is valid");
        if packet.bth.dest_qpn != qpn {
            continue;
        }
        let psn = packet.bth.psn;
        match (packet.bth.opcode.operation(), packet.extension) {
            (
                Operation::Acknowledge,
                Extension::Aeth(Aeth { syndrome: Syndrome::Ack { .. }, .. }),
            ) => {
                return Some(Response::Ack(psn));
            }
            (Operation::Acknowledge, _) => return Some(Response::SequenceNak(psn)),
            (_, Extension::AtomicAck(_, answer)) => {
                return Some(Response::Atomic(psn, answer.original));
            }
            (Operation::ReadResponse, _) => return Some(Response::Read(psn)),
            _ => {}
        }
    }
    None
}

/// Memory on which the peer of an end may perform atomic operations.
fn counters(end: &End<'_, Roce>) -> Buffer<Roce> {
    Buffer::new(end.t, &end.pd, 64, Access { remote_atomic: true, ..ALL })
}

fn request(call: &PeerConnection, opcode: Opcode, psn: Psn) -> Bth {
    Bth { ack_request: true, ..Bth::new(opcode, call.qpn, psn) }
}

/// The responses to an atomic operation are lost, so the peer repeats it. It is carried out once,
/// and each response has the same value, also after the memory has changed.
#[test]
fn a_repeated_atomic_operation_is_carried_out_once() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    let memory = counters(&end);
    let number = || u64::from_ne_bytes(memory.read(0, 8).try_into().expect("eight octets"));
    let (va, r_key) = (memory.remote(0).addr, memory.remote(0).key);
    memory.write(0, &40_u64.to_ne_bytes());
    let add = (Opcode::FetchAdd, AtomicEth { va, r_key, swap_or_add: 2, compare: 0 });
    let swap = (Opcode::CompareSwap, AtomicEth { va, r_key, swap_or_add: 40, compare: 42 });
    for (n, (opcode, atomic), original, result) in [(0, add, 40, 42), (1, swap, 42, 40)] {
        let psn = call.psn + n;
        for _ in 0..5 {
            let extension = Extension::Atomic(atomic);
            peer.send_packet(&Packet { bth: request(&call, opcode, psn), extension, payload: &[] });
            let answer = rig.until("a response", || response(&peer));
            assert_eq!(answer, Response::Atomic(psn, original), "{opcode}");
            assert_eq!(number(), result, "{opcode}");
        }
    }
    // The repetition of the first operation has the value of that time.
    let bth = request(&call, Opcode::FetchAdd, call.psn);
    peer.send_packet(&Packet { bth, extension: Extension::Atomic(add.1), payload: &[] });
    let answer = rig.until("a response", || response(&peer));
    assert_eq!((answer, number()), (Response::Atomic(call.psn, 40), 40));
}

/// The response to an atomic operation or a READ is lost, and then a packet, or the peer repeats
/// the message before the operation. No acknowledgement has the PSN of the operation, because a
/// peer like kernel rxe would complete it without its data.
#[test]
fn an_operation_whose_response_is_lost_is_not_acknowledged() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let connections = [0, 1].map(|n| connected_with(&rig, &peer, n));
    let opcodes = [Opcode::FetchAdd, Opcode::ReadRequest].iter();
    for ((opcode, (end, call)), qpn) in opcodes.zip(&connections).zip(PEER_QPN..) {
        let answered = || response_on(&peer, qpn);
        let memory = counters(end);
        let (va, r_key) = (memory.remote(0).addr, memory.remote(0).key);
        end.recv(1, &[end.mem.segment(8, 8)]);
        peer.send_send(call, call.psn);
        assert_eq!(rig.until("a response", answered), Response::Ack(call.psn));
        let (psn, extension) = (
            call.psn + 1,
            match *opcode {
                Opcode::FetchAdd => {
                    Extension::Atomic(AtomicEth { va, r_key, swap_or_add: 1, compare: 0 })
                }
                _ => Extension::Reth(Reth { va, r_key, len: 8 }),
            },
        );
        let operation = Packet { bth: request(call, *opcode, psn), extension, payload: &[] };
        let is_answered = |answer| match *opcode {
            Opcode::FetchAdd => answer == Response::Atomic(psn, 0),
            _ => answer == Response::Read(psn),
        };
        peer.send_packet(&operation);
        assert!(is_answered(rig.until("a response", answered)), "{opcode}");
        // A packet after the next one.
        peer.send_send(call, psn + 2);
        loop {
            match rig.until("a NAK", answered) {
                Response::SequenceNak(missing) => {
                    assert_eq!(missing, psn + 1);
                    break;
                }
                other => assert_eq!(other, Response::Ack(call.psn), "{opcode}"),
            }
        }
        // The message before. The NAK may be repeated meanwhile.
        peer.send_send(call, call.psn);
        let answer = rig.until("an acknowledgement", || match answered()? {
            Response::SequenceNak(_) => None,
            other => Some(other),
        });
        assert_eq!(answer, Response::Ack(call.psn), "{opcode}");
        peer.send_packet(&operation);
        rig.until("the response", || {
            let answer = answered()?;
            let is_other =
                matches!(answer, Response::SequenceNak(_)) || answer == Response::Ack(call.psn);
            assert!(is_other || is_answered(answer), "{opcode}: {answer:?}");
            (!is_other).then_some(())
        });
        assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
    }
}

/// A copy in which one bit is changed.
fn flipped(octets: &[u8], bit: usize) -> Vec<u8> {
    let mut copy = octets.to_vec();
    copy[bit / 8] ^= 1 << (bit % 8);
    copy
}

/// Packets of any length are checked: one with a wrong ICRC, or in which any bit was changed on the
/// way, has no effect, however short it is.
#[test]
fn damaged_packets_have_no_effect() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    let (va, r_key) = (end.mem.remote(0).addr, end.mem.remote(0).key);
    // Sends damaged copies of a packet. Returns the right one when they have been handled.
    let damaged = |packet: &Packet<'_>| {
        let mut right = vec![0; packet.len() + Icrc::SIZE];
        packet.emit(&mut right[..packet.len()]);
        peer.icrc.seal(0, &mut right);
        // The number of the queue pair stays, because other numbers are other packets. So does the
        // octet that the ICRC leaves out.
        let bits = (0..8 * right.len()).filter(|bit| !(4..8).contains(&(bit / 8)));
        let mut wrong: Vec<_> = bits.map(|bit| flipped(&right, bit)).collect();
        let without_icrc = &right[..packet.len()];
        wrong.extend([[0; 4], [0xFF; 4], [1, 2, 3, 4]].map(|icrc| [without_icrc, &icrc].concat()));
        let count = wrong.len();
        // One of 2^15 damaged packets is right for another ID in the IP header.
        wrong.retain(|datagram| peer.icrc.recover(0, datagram).is_err());
        assert!(count - wrong.len() <= 3, "{} of {count} are right", count - wrong.len());
        // So few packets fit in the socket's buffer.
        for some in wrong.chunks(32) {
            some.iter().for_each(|datagram| peer.send_octets(datagram));
            let nothing = Extension::Reth(Reth { va: 0, r_key: 0, len: 0 });
            let bth = request(&call, Opcode::WriteOnly, call.psn - 1);
            peer.send_packet(&Packet { bth, extension: nothing, payload: &[] });
            rig.until("an acknowledgement", || response(&peer));
        }
        right
    };
    let mut psn = call.psn;
    for len in [0, 1, 4, 5, 8, 16, 31, 32, 60, 64] {
        end.recv(len, &[end.mem.segment(1024, 64)]);
        end.mem.write(1024, &[0; 64]);
        let payload = vec![0xEE; len as usize];
        let bth = request(&call, Opcode::SendOnly, psn);
        let right = damaged(&Packet { bth, extension: Extension::None, payload: &payload });
        let posted = end.mem.read(1024, 64);
        assert_eq!(posted, [0; 64], "a damaged SEND of {len} octets was placed");
        peer.send_octets(&right);
        assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(len, WcStatus::Success)]);
        assert_eq!(end.mem.read(1024, len as usize), payload);
        rig.until("an acknowledgement", || response(&peer));
        psn = psn.next();
        let write = Extension::Reth(Reth { va, r_key, len: len as u32 });
        let bth = request(&call, Opcode::WriteOnly, psn);
        damaged(&Packet { bth, extension: write, payload: &payload });
    }
    end.recv(99, &[end.mem.segment(1024, 8)]);
    peer.send_send(&call, psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(99, WcStatus::Success)]);
    assert_eq!(end.mem.read(0, 64), [0; 64]);
    // A damaged acknowledgement completes nothing. The request is acknowledged only by the right
    // one.
    end.send(5, &[end.mem.segment(0, 8)]);
    rig.until("the message", || match peer.receive()? {
        Received::Request(psn) => (psn == OUR_PSN).then_some(()),
        _ => None,
    });
    let aeth = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    let bth = Bth::new(Opcode::Acknowledge, call.qpn, OUR_PSN);
    let right = damaged(&Packet { bth, extension: aeth, payload: &[] });
    assert_eq!(outcomes(&poll::<Roce>(&end.requests, 1)), []);
    peer.send_octets(&right);
    assert_eq!(outcomes(&rig.completions(&end.requests, 1)), [(5, WcStatus::Success)]);
}

/// A message of connection management with another Q_Key than that of the general services is no
/// message.
#[test]
fn a_request_with_a_wrong_q_key_does_not_reach_the_consumer() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let service = Service::new(rig.a, 8);
    let port = service.port(rig.a);
    let timeout = Timeout::new(17);
    let call = |id: u32, q_key: u32| {
        let header = IpHeader { source_port: 1, source: PEER.into(), destination: OURS.into() };
        let req = Req {
            local_id: id,
            service: ServiceId::tcp(port),
            ca_guid: GUID,
            qpn: id,
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
            private: &[&header.emit()[..], &id.to_be_bytes()].concat(),
        };
        let mad = Mad { transaction: id.into(), message: Message::Req(req) }.emit();
        let deth = Deth { q_key, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        peer.send_packet(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    };
    for bit in 0..32 {
        call(0x100 + bit, Deth::GSI_Q_KEY ^ 1 << bit);
    }
    call(0x200, 0);
    call(0x300, Deth::GSI_Q_KEY);
    let (request, .., private) = service.request(&rig);
    assert_eq!(private[..4], 0x300_u32.to_be_bytes(), "another request came first");
    drop(request);
    service.log.assert_silent();
}
