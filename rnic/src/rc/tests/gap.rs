//! Tests of the responder while a packet is missing: which round-trip time it learns, how long it
//! keeps early packets, and which answers the peer gets.

use super::order::{FIRST_DELAY, Fixture};
use super::*;

/// An empty WRITE, which needs no receive and no key. It does not request an acknowledgement.
fn silent_write(psn: Psn) -> Vec<u8> {
    let mut octets = asking_write(psn);
    octets[8] = 0;
    octets
}

/// An empty WRITE that requests an acknowledgement.
fn asking_write(psn: Psn) -> Vec<u8> {
    let nowhere = Reth { va: 0, r_key: 0, len: 0 };
    packet(Opcode::WriteOnly, psn, Extension::Reth(nowhere), &[])
}

const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// The time for which packets are kept although the missing packet does not arrive.
const KEPT_MAX: Duration = Duration::from_secs(3);

/// A responder, and a path to its peer with this round-trip time.
struct Path {
    fixture: Fixture,
    round_trip: Duration,
    next: Psn,
}

impl Path {
    fn new(round_trip: Duration) -> Path {
        let fixture = Fixture::new();
        Path { next: fixture.psn, fixture, round_trip }
    }

    fn take(&mut self, psn: Psn) {
        self.fixture.take(&silent_write(psn)).unwrap();
        self.fixture.sent();
    }

    /// A packet arrives early. Returns the PSN of the missing packet and the time of the NAK.
    fn miss(&mut self) -> (Psn, Instant) {
        let missing = self.next;
        self.next = missing + 2;
        self.take(missing + 1);
        self.run(self.fixture.side.rc.deadline().unwrap());
        (missing, self.fixture.now)
    }

    /// Advances the clock to this time. Returns the number of NAKs that were sent.
    fn run(&mut self, until: Instant) -> u64 {
        let before = self.naks();
        while let Some(at) = self.fixture.side.rc.deadline().filter(|&at| at <= until) {
            self.fixture.wait(at.saturating_duration_since(self.fixture.now));
            self.fixture.sent();
        }
        self.fixture.now = self.fixture.now.max(until);
        self.naks() - before
    }

    fn naks(&self) -> u64 {
        self.fixture.side.rc.stats().tx_sequence_naks
    }

    /// A packet is lost, and arrives a round trip after the NAK. Returns the delay of the NAK and
    /// the number of times that it was repeated too early.
    fn lose(&mut self) -> (Duration, u64) {
        let noticed = self.fixture.now;
        let (missing, nak) = self.miss();
        let repeated = self.run(nak + self.round_trip);
        self.take(missing);
        (nak - noticed, repeated)
    }

    /// This number of packets in a row are overtaken, and each of them arrives this time after its
    /// NAK. The peer sends one more packet, and answers the NAKs.
    fn overtake(&mut self, packets: usize, late: Duration) {
        let answers: Vec<_> = (0..packets)
            .map(|_| {
                let (missing, nak) = self.miss();
                self.run(nak + late);
                self.take(missing);
                (missing, nak + self.round_trip)
            })
            .collect();
        self.take(self.next);
        self.next = self.next.next();
        for (missing, at) in answers {
            self.run(at);
            self.take(missing);
        }
    }
}

const ROUND_TRIPS: [Duration; 9] = [
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
];

/// On a path that loses packets, the responder learns the round-trip time from the first losses.
#[test]
fn the_round_trip_is_learned_from_losses() {
    for round_trip in ROUND_TRIPS {
        let mut path = Path::new(round_trip);
        for _ in 0..4 {
            path.lose();
        }
        let (delay, repeated) = path.lose();
        assert_eq!(repeated, 0, "{round_trip:?}: the NAK was repeated before it was answered");
        assert!(delay <= (round_trip / 2).max(25 * MICROSECOND), "{round_trip:?}: {delay:?}");
    }
}

/// Packets that were only overtaken arrive sooner than a round trip after the NAK. Their
/// repetitions show that the round-trip time is longer.
#[test]
fn the_round_trip_is_learned_although_packets_are_overtaken() {
    for round_trip in ROUND_TRIPS {
        let late = (round_trip / 8).min(MILLISECOND);
        for (packets, times) in [(1, 8), (20, 3)] {
            let mut path = Path::new(round_trip);
            for _ in 0..times {
                path.overtake(packets, late);
            }
            let (_, repeated) = path.lose();
            assert_eq!(repeated, 0, "{round_trip:?}, {packets} packets");
            // When no more packets are overtaken, the NAKs are sent earlier again.
            for _ in 0..32 {
                path.lose();
            }
            let (delay, repeated) = path.lose();
            assert_eq!(repeated, 0, "{round_trip:?}, {packets} packets");
            assert!(delay <= (round_trip / 2).max(25 * MICROSECOND), "{round_trip:?}: {delay:?}");
        }
    }
}

/// A path becomes much longer, for example because its route has changed.
#[test]
fn a_round_trip_that_grows_is_learned() {
    let mut path = Path::new(100 * MICROSECOND);
    for _ in 0..4 {
        path.lose();
    }
    path.round_trip = 100 * MILLISECOND;
    for _ in 0..12 {
        path.lose();
    }
    assert_eq!(path.lose().1, 0);
}

/// A peer's timer repeats a packet half a second later. This is no answer to the NAK.
#[test]
fn the_timer_of_the_peer_is_not_taken_for_a_round_trip() {
    let mut path = Path::new(100 * MICROSECOND);
    for _ in 0..4 {
        path.lose();
    }
    let (missing, nak) = path.miss();
    path.run(nak + path.round_trip);
    path.take(missing);
    path.run(nak + 536 * MILLISECOND);
    path.take(missing);
    assert!(path.lose().0 <= 50 * MICROSECOND);
}

/// A NAK is not repeated at once, even if the missing packet came at the same time as the last
/// NAK.
#[test]
fn a_nak_is_never_repeated_at_once() {
    let mut path = Path::new(Duration::ZERO);
    for _ in 0..8 {
        path.lose();
    }
    let (_, nak) = path.miss();
    assert!(path.fixture.side.rc.deadline().unwrap() - nak >= 50 * MICROSECOND);
}

/// A peer falls silent while a packet is missing.
#[test]
fn packets_are_not_kept_for_ever() {
    let (mut fixture, _sink) = Fixture::with_receives(8);
    fixture.send(2);
    fixture.wait(KEPT_MAX / 2);
    fixture.send(4);
    assert!(fixture.used() > 0);
    // The missing packet comes, so the rest is kept for as long again.
    fixture.send(0);
    fixture.send(1);
    fixture.wait(KEPT_MAX - MICROSECOND);
    assert!(fixture.used() > 0);
    let deadline = fixture.side.rc.deadline();
    assert!(deadline.is_some_and(|at| at <= fixture.now + MICROSECOND));
    while fixture.side.rc.deadline().is_some_and(|at| at <= fixture.now + MICROSECOND) {
        fixture.wait(MICROSECOND);
    }
    assert_eq!(fixture.used(), 0);
    while let Some(at) = fixture.side.rc.deadline() {
        fixture.wait(at - fixture.now);
    }
    // The peer continues. It learns that the packets after the missing one must come again.
    fixture.sent();
    fixture.send(3);
    assert_eq!((fixture.received(), fixture.sent()), (4, vec![fixture.ack(3)]));
    fixture.wait(fixture.side.rc.deadline().unwrap() - fixture.now);
    assert_eq!(fixture.sent(), [fixture.ack(3), fixture.nak(4)]);
    fixture.send(4);
    assert_eq!((fixture.received(), fixture.used(), fixture.side.rc.deadline()), (1, 0, None));
}

/// A packet may be forged if it is so far ahead that it cannot be kept.
#[test]
fn a_lone_packet_far_ahead_is_not_believed_at_once() {
    for ahead in [64, 1000, (1 << 23) - 1] {
        let (mut fixture, _sink) = Fixture::with_receives(4);
        fixture.send(ahead);
        assert_eq!((fixture.sent(), fixture.used()), (vec![], 0));
        // The peer's next packet arrives, so nothing is missing.
        fixture.send(0);
        assert_eq!(fixture.sent(), [fixture.ack(0)]);
        assert_eq!(fixture.side.rc.deadline(), None);
        // If the next packet does not arrive, the NAK waits as any other.
        fixture.send(ahead + 1);
        assert_eq!(fixture.side.rc.deadline(), Some(fixture.now + FIRST_DELAY));
        fixture.wait(FIRST_DELAY);
        assert_eq!(fixture.sent(), [fixture.ack(0), fixture.nak(1)]);
        // Further packets cause no further NAK.
        for again in [ahead + 1, 65, ahead + 1, 66, 65] {
            fixture.send(again);
            assert_eq!(fixture.sent(), [""; 0]);
        }
    }
}

/// More packets in a row were lost than the responder can keep.
#[test]
fn a_long_loss_is_reported_at_once() {
    let mut fixture = Fixture::new();
    for ahead in 100..115 {
        fixture.send(ahead);
        assert_eq!(fixture.sent(), [""; 0]);
    }
    fixture.send(115);
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
    // The same holds if the first packets after the loss were kept.
    let mut fixture = Fixture::new();
    fixture.send(63);
    assert_eq!(fixture.sent(), [""; 0]);
    fixture.send(64);
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
}

/// A peer that goes back must not get an acknowledgement of a message that it is sending again,
/// unless it asks for one. This holds although a kept packet had to wait for the responses to a
/// READ.
#[test]
fn a_pause_does_not_make_the_responder_forget_its_nak() {
    for asks in [false, true] {
        let mut fixture = Fixture::new();
        let shown = fixture.side.buf(OCTETS);
        let reth = Reth { va: shown.addr(), r_key: shown.key(), len: 1 };
        let psn = fixture.psn;
        let read = packet(Opcode::ReadRequest, psn + 1, Extension::Reth(reth), &[]);
        fixture.take(&read).unwrap();
        fixture.take(&asking_write(psn + 2)).unwrap();
        fixture.wait(FIRST_DELAY);
        assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
        let missing = if asks { asking_write(psn) } else { silent_write(psn) };
        fixture.take(&missing).unwrap();
        let response = format!("{} READ response only ACK 1", psn + 1);
        let mut expected = vec![response];
        expected.extend(asks.then(|| fixture.ack(2)));
        assert_eq!(fixture.sent(), expected);
        // The peer sends all packets again, and asks in the last one.
        fixture.take(&asking_write(psn + 2)).unwrap();
        assert_eq!(fixture.sent(), [fixture.ack(2)]);
        assert_eq!((fixture.side.rc.stats().rx_messages, fixture.used()), (3, 0));
    }
}

/// Two packets are missing, and only the first one was reported. The peer sends all packets again.
#[test]
fn a_second_gap_does_not_make_the_responder_forget_its_nak() {
    let mut fixture = Fixture::new();
    let psn = fixture.psn;
    for ahead in [1, 3] {
        fixture.take(&asking_write(psn + ahead)).unwrap();
    }
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
    for ahead in [0, 1] {
        fixture.take(&silent_write(psn + ahead)).unwrap();
    }
    fixture.sent();
    fixture.take(&silent_write(psn + 2)).unwrap();
    assert_eq!((fixture.sent(), fixture.side.rc.stats().rx_messages), (vec![], 4));
    fixture.take(&asking_write(psn + 3)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(3)]);
}

/// A packet that was carried out before asks for an acknowledgement while others are kept, while
/// they wait for the responses to a READ, and afterwards. The peer has perhaps not got the response
/// to the READ.
#[test]
fn a_duplicate_is_acknowledged_in_each_state_of_a_gap() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(OCTETS);
    let reth = Reth { va: shown.addr(), r_key: shown.key(), len: 1 };
    let psn = fixture.psn;
    fixture.take(&silent_write(psn)).unwrap();
    fixture.take(&packet(Opcode::ReadRequest, psn + 2, Extension::Reth(reth), &[])).unwrap();
    fixture.take(&silent_write(psn + 3)).unwrap();
    fixture.take(&asking_write(psn)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(0)], "a packet is missing");
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(0), fixture.nak(1)]);
    fixture.take(&asking_write(psn)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(0)], "a packet is missing and was reported");
    fixture.take(&silent_write(psn + 1)).unwrap();
    fixture.take(&asking_write(psn)).unwrap();
    let response = format!("{} READ response only ACK 1", psn + 2);
    assert_eq!(fixture.sent(), [response, fixture.ack(0)], "a packet waits for a response");
    fixture.take(&asking_write(psn)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(0)], "no packet is missing");
    fixture.take(&asking_write(psn + 3)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(3)], "the packet after the READ is repeated");
}

/// A packet finds no receive buffer, and its RNR NAK must wait for the responses to a READ. Packets
/// that arrive meanwhile do not displace it.
#[test]
fn an_rnr_nak_that_waits_is_not_displaced() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(100 * OCTETS);
    let len = 100 * OCTETS as u32;
    let reth = Reth { va: shown.addr(), r_key: shown.key(), len };
    let read = packet(Opcode::ReadRequest, fixture.psn, Extension::Reth(reth), &[]);
    fixture.take(&read).unwrap();
    for ahead in [100, 101, 102, 101, 100, 101] {
        fixture.send(ahead);
    }
    let sent = fixture.sent();
    let not_ready = format!("{} ACK RNR NAK 640µs 0", fixture.psn + 100);
    assert_eq!(sent[100..], [not_ready]);
    assert_eq!(fixture.side.rc.stats().tx_sequence_naks, 0);
}

/// If the packets after a missing one were not kept, the packets that follow it do not show whether
/// the peer sends all packets again.
#[test]
fn packets_that_were_not_kept_do_not_show_what_the_peer_does() {
    let mut fixtures = [Fixture::new(), Fixture::new()];
    // The pool has memory for one connection, and the other connection takes it.
    let pool = Arc::new(EarlyPool::new(64 * (OCTETS + 100)));
    for fixture in &mut fixtures {
        let (_, work) = Queues::new(None, Arc::clone(&fixture.side.keys));
        let rc = ReliableConnection::new(work, cfg(1), fixture.now);
        fixture.side.rc = rc.with_early_pool(&pool);
    }
    let [mut other, mut fixture] = fixtures;
    other.take(&silent_write(other.psn + 1)).unwrap();
    let psn = fixture.psn;
    fixture.take(&silent_write(psn + 1)).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
    // The peer sends all packets again.
    (0..4).for_each(|ahead| fixture.take(&silent_write(psn + ahead)).unwrap());
    drop(other);
    // Two packets are missing.
    for ahead in [5, 7] {
        fixture.take(&silent_write(psn + ahead)).unwrap();
    }
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(3), fixture.nak(4)]);
    fixture.take(&silent_write(psn + 4)).unwrap();
    assert_eq!(fixture.sent(), [""; 0], "the peer may be about to send the next packet again");
    fixture.take(&silent_write(psn + 5)).unwrap();
    fixture.take(&silent_write(psn + 6)).unwrap();
    assert_eq!(fixture.side.rc.stats().rx_messages, 8);
}

/// An outage that a repeated packet ends says nothing about the round trip, and a timer of the peer
/// that is faster than the NAK shows that the round trip is shorter.
#[test]
fn an_outage_does_not_delay_later_naks() {
    let mut path = Path::new(Duration::from_millis(1));
    for _ in 0..8 {
        path.lose();
    }
    let (before, _) = path.lose();
    let (missing, nak) = path.miss();
    path.run(nak + Duration::from_secs(2));
    path.take(missing);
    assert!(path.lose().0 <= before);
    // The longest round trip that counts makes the next NAK wait for 50 ms.
    let (missing, nak) = path.miss();
    path.run(nak + Duration::from_millis(450));
    path.take(missing);
    for _ in 0..8 {
        let noticed = path.fixture.now;
        let missing = path.next;
        path.next = path.next.next();
        path.take(path.next);
        path.next = path.next.next();
        path.run(noticed + Duration::from_millis(6));
        path.take(missing);
    }
    let (delay, _) = path.lose();
    assert!(delay <= Duration::from_millis(2), "{delay:?}");
}
