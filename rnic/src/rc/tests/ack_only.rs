//! Tests of the answers of a side that has closed the connection.

use super::*;
use crate::{Remote, WcStatus};

/// The side that has closed the connection.
struct Closed {
    queues: Queues,
    responder: AckOnlyResponder,
    burst: Burst,
}

impl Closed {
    fn new(side: Side) -> Closed {
        let Side { queues, rc, burst, .. } = side;
        Closed { queues, responder: rc.into_ack_only_responder(), burst }
    }

    /// The packets with which the closed side answers a packet.
    fn answers(&mut self, packet: &[u8]) -> Vec<String> {
        self.responder.receive(&Packet::parse(packet).unwrap());
        let mut answers = vec![];
        while self.responder.wants_tx() {
            self.responder.transmit(&mut self.burst);
            answers.append(&mut words(&take_packets(&mut self.burst)));
        }
        answers
    }
}

fn responder() -> Side {
    Side::new(cfg(0), Instant::now())
}

/// The PSN of the peer's first packet.
const FIRST: Psn = PSNS[0];

fn only(ahead: u32) -> Vec<u8> {
    packet(Opcode::SendOnly, FIRST + ahead, Extension::None, b"data")
}

#[test]
fn what_was_taken_is_acknowledged_again_and_nothing_new_is_taken() {
    let mut side = responder();
    let (buf, now) = (side.buf(16), Instant::now());
    for id in 0..3 {
        side.recv(id, &[buf.seg(4 * id as usize, 4)]);
    }
    for ahead in [0, 1] {
        side.take(now, &only(ahead)).unwrap();
    }
    // A packet is missing. No NAK for it may be sent after the close.
    side.take(now, &only(3)).unwrap();
    let mut closed = Closed::new(side);
    let received = closed.queues.received();
    let statuses: Vec<_> = received.iter().map(|wc| (wc.id, wc.status)).collect();
    assert_eq!(statuses, [(0, WcStatus::Success), (1, WcStatus::Success), (2, WcStatus::Flushed)]);
    closed.responder.transmit(&mut closed.burst);
    take_packets(&mut closed.burst);

    let ack = [format!("{} ACK ACK 0", FIRST + 1)];
    for ahead in [0, 1] {
        assert_eq!(closed.answers(&only(ahead)), ack);
    }
    for ahead in [2, 3, 100] {
        assert_eq!(closed.answers(&only(ahead)), [""; 0]);
    }
    assert_eq!(
        closed.answers(&answer(Syndrome::ACK, FIRST)),
        [""; 0],
        "a packet that is not a request must not be answered"
    );
    assert_eq!(buf.octets()[..8], *b"datadata");
    assert_eq!(buf.octets()[8..], [0; 8]);
    // Work that is posted later is flushed.
    closed.queues.post(send(9, &[]));
    closed.responder.flush();
    assert_eq!(closed.queues.completions()[0].status, WcStatus::Flushed);
}

#[test]
fn reads_are_answered_again_while_the_memory_is_there() {
    let mut side = responder();
    let (shown, now) = (side.buf(2 * OCTETS), Instant::now());
    let Remote { addr: va, key: r_key } = shown.remote(0);
    let reth = Reth { va, r_key, len: 2 * OCTETS as u32 };
    let ask = packet(Opcode::ReadRequest, FIRST, Extension::Reth(reth), &[]);
    side.take(now, &ask).unwrap();
    side.rc.transmit(now, &mut side.burst).unwrap();
    let responses = words(&side.sent());
    assert_eq!(responses.len(), 2);
    let mut closed = Closed::new(side);
    assert_eq!(closed.answers(&ask), responses);
    let mut shown = shown;
    shown.mr = None;
    assert_eq!(closed.answers(&ask), [""; 0]);
    assert!(!closed.responder.wants_tx());
}

/// A message that one side has received completes successfully on the other side, whichever packets
/// the network loses while the connection is closed.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_last_acknowledgement_may_be_lost() {
    const NETWORKS: u64 = 1000;
    let (mut delivered, mut in_doubt) = (0, 0);
    for seed in 0..NETWORKS {
        let conditions = Conditions {
            loss: netem::Probability::percent(5),
            reorder: netem::Probability::percent(5),
            delay: Duration::from_micros(20),
            seed,
            ..Conditions::default()
        };
        let mut pair = Pair::new().over(&conditions);
        let (near, far) = (pair.a.buf(8 * OCTETS), pair.b.buf(8 * OCTETS));
        pair.b.recv(0, &[far.seg(0, 8 * OCTETS)]);
        pair.a.post(send(0, &[near.seg(0, 8 * OCTETS)]));
        while pair.b.received().is_empty() {
            pair.step().unwrap();
        }
        // B's program has received the message and disconnects. A may or may not have received the
        // acknowledgement yet.
        delivered += 1;
        let Pair { mut a, b, mut now, .. } = pair;
        let Side { queues, rc, burst, mut channel, .. } = b;
        let mut closed = Closed { queues, responder: rc.into_ack_only_responder(), burst };
        in_doubt += u32::from(a.rc.deadline().is_some());
        let end = now + Duration::from_millis(60);
        now += conditions.delay;
        a.rc.start_peer_close(now);
        loop {
            while let Some(packet) = channel.receive(now) {
                a.take(now, &packet).unwrap();
            }
            if a.rc.deadline().is_some_and(|at| at <= now) {
                a.rc.expire(now).unwrap();
            }
            if a.rc.is_peer_close_done() {
                break;
            }
            while a.rc.wants_tx() {
                a.rc.transmit(now, &mut a.burst).unwrap();
                a.send_burst(now);
            }
            while let Some(packet) = a.channel.receive(now) {
                closed.responder.receive(&Packet::parse(&packet).unwrap());
                closed.responder.transmit(&mut closed.burst);
                for packet in take_packets(&mut closed.burst) {
                    channel.send(now, packet, 64);
                }
            }
            let next = [a.channel.deadline(), channel.deadline(), a.rc.deadline()]
                .into_iter()
                .flatten()
                .min();
            now = next.unwrap().max(now + Duration::from_nanos(1));
            assert!(now <= end, "seed {seed}");
        }
        a.rc.flush();
        let statuses: Vec<_> = a.completions().iter().map(|wc| wc.status).collect();
        delivered -= u32::from(statuses == [WcStatus::Success]);
    }
    assert!(in_doubt > 100, "{in_doubt} networks are too few for this test");
    assert_eq!(
        delivered, 0,
        "in {in_doubt} networks, some delivered messages were reported as failed"
    );
}
