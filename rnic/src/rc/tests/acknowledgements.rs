//! Tests of acknowledgements around the peer's READs and atomic operations. Their responses may be
//! lost. An acknowledgement with the PSN of such a request would make kernel rxe complete it
//! without its data (`check_psn` and `check_ack` in rxe_comp.c).

use wire::rocev2::AtomicEth;

use super::order::{FIRST_DELAY, Fixture};
use super::responder_resources::ResponderResources;
use super::*;

/// A peer that sends a SEND, then a FETCH_ADD or a READ, and later SENDs. Its memory contains eight
/// octets.
struct Peer {
    fixture: Fixture,
    memory: Buf,
    opcode: Opcode,
    migrated: bool,
}

impl Peer {
    /// The responses to the SEND and to the second request have been sent.
    fn new(opcode: Opcode) -> Peer {
        let fixture = Fixture::new();
        let memory = fixture.side.buf(16 * OCTETS);
        let mut peer = Peer { fixture, memory, opcode, migrated: true };
        peer.receive();
        peer.send(0);
        assert_eq!(peer.sent(), [peer.fixture.ack(0)]);
        peer.request(1, 8);
        assert_eq!(peer.sent().len(), 1);
        peer
    }

    fn receive(&mut self) {
        self.fixture.side.recv(0, &[self.memory.seg(OCTETS, OCTETS)]);
    }

    /// Passes a packet to the engine whose PSN is `ahead` after the first one.
    fn take(&mut self, opcode: Opcode, ahead: u32, extension: Extension, payload: &[u8]) {
        let bth = Bth {
            ack_request: true,
            migrated: self.migrated,
            ..Bth::new(opcode, 0, self.fixture.psn + ahead)
        };
        let mut octets = vec![0; packet_len(opcode, payload.len())];
        Packet { bth, extension, payload }.emit(&mut octets);
        self.fixture.take(&octets).unwrap();
    }

    fn send(&mut self, ahead: u32) {
        self.take(Opcode::SendOnly, ahead, Extension::None, b"x");
    }

    /// Sends the READ or the FETCH_ADD.
    fn request(&mut self, ahead: u32, len: usize) {
        let (va, r_key) = (self.memory.addr(), self.memory.key());
        let extension = match self.opcode {
            Opcode::ReadRequest => Extension::Reth(Reth { va, r_key, len: len as u32 }),
            _ => Extension::Atomic(AtomicEth { va, r_key, swap_or_add: 1, compare: 0 }),
        };
        self.take(self.opcode, ahead, extension, &[]);
    }

    /// Sends the packet that asks whether this end still has the connection.
    fn challenge(&mut self, ahead: u32) {
        let nothing = Extension::Reth(Reth { va: 0, r_key: 0, len: 0 });
        self.take(Opcode::WriteOnly, ahead, nothing, &[]);
    }

    fn sent(&mut self) -> Vec<String> {
        self.fixture.sent()
    }
}

/// In each situation in which the responder acknowledges, the acknowledgement ends before the
/// request whose response may be lost.
#[test]
fn no_acknowledgement_has_the_psn_of_a_read_or_an_atomic_operation() {
    type Situation = (&'static str, fn(&mut Peer) -> Vec<String>, &'static [&'static str]);
    let situations: [Situation; 10] = [
        (
            "a later packet is missing",
            |peer| {
                peer.send(3);
                peer.fixture.wait(FIRST_DELAY);
                peer.sent()
            },
            &["ack 0", "nak 2"],
        ),
        (
            "a NAK is repeated",
            |peer| {
                peer.send(3);
                peer.fixture.wait(FIRST_DELAY);
                peer.sent();
                peer.fixture.wait(Duration::from_millis(8));
                peer.sent()
            },
            &["ack 0", "nak 2"],
        ),
        (
            "the packet before it is repeated",
            |peer| {
                peer.send(0);
                peer.sent()
            },
            &["ack 0"],
        ),
        (
            "so many packets are repeated that the acknowledgement cannot wait",
            |peer| {
                (0..16).for_each(|_| peer.send(0));
                assert!(peer.fixture.side.rc.wants_tx());
                peer.fixture
                    .side
                    .rc
                    .transmit(peer.fixture.now, &mut peer.fixture.side.burst)
                    .unwrap();
                words(&peer.fixture.side.sent())
            },
            &["ack 0"],
        ),
        (
            "a receive buffer is announced",
            |peer| {
                peer.send(2);
                assert_eq!(peer.sent(), [format!("{} ACK RNR NAK 640µs 0", peer.fixture.psn + 2)]);
                assert!(peer.fixture.side.rc.is_peer_waiting_for_receive());
                peer.receive();
                peer.fixture.side.rc.announce_receive();
                peer.sent()
            },
            &["ack 0"],
        ),
        ("this end disconnects", |peer| peer.fixture.acknowledged_finally(), &["ack 0", "ack 0"]),
        (
            "this end has disconnected",
            |peer| {
                let Peer { fixture, memory, .. } = peer;
                let unused = Fixture::new().side;
                let side = std::mem::replace(&mut fixture.side, unused);
                let (Side { queues, rc, mut burst, .. }, psn) = (side, fixture.psn);
                let mut rest = rc.into_ack_only_responder();
                let again = packet(Opcode::SendOnly, psn, Extension::None, b"x");
                rest.receive(&Packet::parse(&again).unwrap());
                rest.transmit(&mut burst);
                assert_eq!(memory.number(0), u64::from(peer.opcode == Opcode::FetchAdd));
                drop(queues);
                words(&take_packets(&mut burst))
            },
            &["ack 0"],
        ),
        (
            "the peer asks whether the connection exists",
            |peer| {
                peer.challenge(0);
                peer.sent()
            },
            &["ack 0"],
        ),
        (
            "the peer asks with the PSN of the request",
            |peer| {
                peer.challenge(1);
                peer.sent()
            },
            &["ack 0"],
        ),
        (
            "a SEND follows, whose acknowledgement shows that the response is lost",
            |peer| {
                peer.receive();
                peer.send(2);
                peer.sent()
            },
            &["ack 2"],
        ),
    ];
    for opcode in [Opcode::FetchAdd, Opcode::ReadRequest] {
        for (situation, act, expected) in &situations {
            let mut peer = Peer::new(opcode);
            let psn = peer.fixture.psn;
            let expected = expected.iter().map(|words| {
                let (kind, ahead) = words.split_once(' ').unwrap();
                let psn = psn + ahead.parse::<u32>().unwrap();
                let syndrome = if kind == "ack" { "ACK" } else { "NAK PSN sequence error" };
                format!("{psn} ACK {syndrome} 0")
            });
            let expected: Vec<_> = expected.collect();
            assert_eq!(act(&mut peer), expected, "{opcode}: {situation}");
        }
    }
}

/// A peer that repeats a message has not got the responses to later requests. It repeats these, and
/// then the message after them.
#[test]
fn a_repeated_message_is_acknowledged_without_what_follows() {
    for opcode in [Opcode::FetchAdd, Opcode::ReadRequest] {
        let mut peer = Peer::new(opcode);
        peer.receive();
        peer.send(2);
        assert_eq!(peer.sent(), [peer.fixture.ack(2)]);
        peer.send(0);
        assert_eq!(peer.sent(), [peer.fixture.ack(0)]);
        peer.request(1, 8);
        assert_eq!(peer.sent().len(), 1);
        peer.send(2);
        assert_eq!(peer.sent(), [peer.fixture.ack(2)]);
        // A copy that the network makes does not displace an acknowledgement that is owed.
        peer.receive();
        peer.send(3);
        peer.send(0);
        assert_eq!(peer.sent(), [peer.fixture.ack(3)]);
        peer.receive();
        peer.send(0);
        peer.send(4);
        assert_eq!(peer.sent(), [peer.fixture.ack(4)]);
        peer.send(0);
        assert_eq!(peer.sent(), [peer.fixture.ack(0)], "the last one has no effect");
    }
}

/// The end of a message that kernel rxe may be sending again is not acknowledged, also if a READ or
/// an atomic operation has followed it.
#[test]
fn the_end_of_a_repeated_message_before_an_atomic_operation_is_acknowledged_late() {
    let mut peer = Peer::new(Opcode::FetchAdd);
    peer.fixture.psn = peer.fixture.psn + 2;
    peer.migrated = false;
    let own = peer.memory.seg(OCTETS, 4 * OCTETS);
    peer.fixture.side.recv(0, &[own]);
    let message = peer.fixture.long_send(false);
    for octets in &message {
        peer.fixture.take(octets).unwrap();
    }
    assert_eq!(peer.sent(), [peer.fixture.ack(2)]);
    peer.request(3, 8);
    assert_eq!(peer.sent().len(), 1);
    peer.fixture.take(&message[1]).unwrap();
    assert_eq!(peer.sent(), [peer.fixture.ack(1)]);
    peer.send(5);
    peer.fixture.wait(FIRST_DELAY);
    assert_eq!(peer.sent(), [peer.fixture.ack(1), peer.fixture.nak(4)]);
    peer.fixture.take(&message[2]).unwrap();
    assert_eq!(peer.sent(), [peer.fixture.ack(2)]);
    assert!(!peer.fixture.side.rc.withholds_ack());
    // The response to the next request acknowledges the message again.
    peer.fixture.take(&message[0]).unwrap();
    assert!(peer.fixture.side.rc.withholds_ack());
    peer.request(3, 8);
    assert!(!peer.fixture.side.rc.withholds_ack());
}

/// Kernel rxe breaks the connection if it gets an old acknowledgement between two packets of the
/// response to a READ. Other peers set the bit MigReq, and get it.
#[test]
fn rxe_gets_no_acknowledgement_before_a_read_of_several_packets() {
    for migrated in [false, true] {
        let told = |fixture: &Fixture| if migrated { vec![fixture.ack(0)] } else { vec![] };
        let mut peer = Peer::new(Opcode::ReadRequest);
        peer.migrated = migrated;
        peer.request(2, 2 * OCTETS);
        assert_eq!(peer.sent().len(), 2);
        peer.send(0);
        assert_eq!(peer.sent(), told(&peer.fixture));
        assert!(!peer.fixture.side.rc.owes_ack() && peer.fixture.side.rc.is_drained());
        peer.send(5);
        peer.fixture.wait(FIRST_DELAY);
        assert_eq!(peer.sent(), [told(&peer.fixture), vec![peer.fixture.nak(4)]].concat());
        let twice = [told(&peer.fixture), told(&peer.fixture)].concat();
        assert_eq!(peer.fixture.acknowledged_finally(), twice);
        peer.receive();
        peer.receive();
        peer.send(4);
        assert_eq!(peer.sent(), [peer.fixture.ack(5)]);
    }
}

/// An acknowledgement is never so old that the peer would take its PSN for a later one.
#[test]
fn an_acknowledgement_is_not_too_old() {
    const PACKETS: u32 = Psn::COUNT / 4;
    let mut resources = ResponderResources::new(4);
    let start = Psn::new(7);
    let reth = Reth { va: 0, r_key: 0, len: 0 };
    assert!(resources.first_of_last(start).is_none());
    for n in 0..4 {
        let psn = start + n * PACKETS;
        assert!(resources.add_read(psn, reth, PACKETS, false).is_ok());
        let first = resources.first_of_last(psn + PACKETS).map(|request| request.psn);
        assert_eq!(first, Some(psn), "the READ before is {} PSNs old", 2 * PACKETS);
    }
    assert!(resources.first_of_last(start + 1).is_none(), "another request follows");
}

/// A pair of which `a` has received a message from `b` and has not acknowledged it. `a` has posted
/// a message of this number of packets from the returned memory.
fn pair_with_an_answer(packets: usize) -> (Pair, Buf) {
    let mut pair = Pair::new();
    let (near, far) = (pair.a.buf(packets * OCTETS), pair.b.buf(8));
    pair.a.recv(0, &[near.seg(0, 8)]);
    pair.b.post(send(0, &[far.seg(0, 8)]));
    pair.b.rc.transmit(pair.now, &mut pair.b.burst).unwrap();
    for packet in pair.b.sent() {
        pair.a.take(pair.now, &packet).unwrap();
    }
    assert!(pair.a.rc.owes_ack());
    pair.a.post(send(1, &[near.seg(0, packets * OCTETS)]));
    (pair, near)
}

/// The peer may reuse the place of its request as soon as it sees the answer of this program, so
/// the acknowledgement does not stay behind the answer.
#[test]
fn an_owed_acknowledgement_leaves_with_the_next_packet() {
    let (mut pair, _memory) = pair_with_an_answer(1);
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    let sent = words(&pair.a.sent());
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("SEND only") && sent[1].contains("ACK ACK"), "{sent:?}");
    assert!(!pair.a.rc.owes_ack());
    assert_eq!(pair.a.rc.stats().tx_packets, 2);
}

/// The acknowledgement that has no room in a burst is the first packet of the next one.
#[test]
fn an_acknowledgement_without_room_in_the_burst_leaves_with_the_next_one() {
    let (mut pair, _memory) = pair_with_an_answer(4);
    pair.a.burst = Burst::new(2, 1 << 18);
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    let first = words(&pair.a.sent());
    assert!(!first.iter().any(|packet| packet.contains("ACK ACK")), "{first:?}");
    pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
    let second = words(&pair.a.sent());
    assert!(second[0].contains("ACK ACK"), "{second:?}");
}
