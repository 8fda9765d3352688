//! Tests of packets that arrive early, of the NAKs for missing packets, and of what is sent again.

use netem::Probability;
use rxe_model::{Op, R_KEY, Rxe, RxeCfg, WorkRequest};
use wire::rocev2::NakCode;

use super::*;
use crate::WcOp;

/// One end of a connection in a network.
pub(super) trait End {
    fn receive(&mut self, now: Instant, packet: &[u8]);
    fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>>;
    fn deadline(&self) -> Option<Instant>;
    fn expire(&mut self, now: Instant);
    /// Whether there are more packets to send.
    fn is_ready(&self) -> bool {
        false
    }
}

impl End for Rxe {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        Rxe::receive(self, now, &Packet::parse(packet).unwrap());
    }

    fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut packets: Vec<_> = std::iter::from_fn(|| self.transmit_response()).collect();
        packets.extend(self.transmit_request(now));
        packets
    }

    fn is_ready(&self) -> bool {
        self.has_request()
    }

    fn deadline(&self) -> Option<Instant> {
        Rxe::deadline(self)
    }

    fn expire(&mut self, now: Instant) {
        Rxe::expire(self, now);
    }
}

impl End for Side {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        self.take(now, packet).unwrap();
    }

    fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while self.rc.wants_tx() {
            self.rc.transmit(now, &mut self.burst).unwrap();
            sent.append(&mut self.sent());
        }
        self.rc.acknowledge(&mut self.burst);
        sent.append(&mut self.sent());
        sent
    }

    fn deadline(&self) -> Option<Instant> {
        self.rc.deadline()
    }

    fn expire(&mut self, now: Instant) {
        self.rc.expire(now).unwrap();
    }
}

/// The time that rxe takes to send a packet.
const PACKET_TIME: Duration = Duration::from_micros(8);

/// Moves packets between two ends until `is_done`, or until no event follows. Returns the time that
/// has passed.
pub(super) fn drive<A: End, B: End>(
    (a, b): (&mut A, &mut B),
    conditions: &Conditions,
    mut is_done: impl FnMut(&mut A, &mut B) -> bool,
) -> Duration {
    let there = conditions.clone();
    let back = Conditions { seed: conditions.seed ^ 0xB, ..conditions.clone() };
    let (mut there, mut back) = (Channel::<Vec<u8>>::new(there), Channel::<Vec<u8>>::new(back));
    let start = Instant::now();
    let mut now = start;
    let send = |channel: &mut Channel<Vec<u8>>, packets: Vec<Vec<u8>>, now| {
        for packet in packets {
            let octets = packet.len() + 14 + 20 + 8 + 4;
            channel.send(now, packet, octets);
        }
    };
    loop {
        while let Some(packet) = there.receive(now) {
            b.receive(now, &packet);
        }
        while let Some(packet) = back.receive(now) {
            a.receive(now, &packet);
        }
        if is_done(a, b) {
            break;
        }
        if a.deadline().is_some_and(|at| at <= now) {
            a.expire(now);
        }
        if b.deadline().is_some_and(|at| at <= now) {
            b.expire(now);
        }
        send(&mut there, a.transmit(now), now);
        send(&mut back, b.transmit(now), now);
        let events = [there.deadline(), back.deadline(), a.deadline(), b.deadline()];
        let more = next_packet(a, b, now);
        let Some(next) = events.into_iter().chain([more]).flatten().min() else { break };
        now = next.max(now + Duration::from_nanos(1));
    }
    now - start
}

/// The time at which one of the ends sends its next packet, if it has more to send.
pub(super) fn next_packet<A: End, B: End>(a: &A, b: &B, now: Instant) -> Option<Instant> {
    (a.is_ready() || b.is_ready()).then(|| now + PACKET_TIME)
}

pub(super) const RXE_MTU: PathMtu = PathMtu::Octets1024;

/// rxe's parameters in `ib_write_bw -R`, with a retry count below the one that stands for any
/// number.
pub(super) fn rxe_cfg(peer: usize) -> RxeCfg {
    RxeCfg {
        mtu: RXE_MTU,
        peer_qpn: QPNS[peer],
        sq_psn: PSNS[1 - peer],
        rq_psn: PSNS[peer],
        timeout: Duration::from_nanos(4096 << 17),
        retry_cnt: 6,
        rd_atomic: 4,
    }
}

/// The octet at this offset of each message of rxe.
fn octet(offset: usize) -> u8 {
    (offset % 251) as u8
}

/// A queue pair of rxe whose memory contains a message of this length.
fn rxe(peer: usize, len: usize) -> Rxe {
    Rxe::new(rxe_cfg(peer), (0..len).map(octet).collect())
}

/// A WRITE of this number of octets.
fn rxe_write(len: usize, (va, r_key): (u64, u32)) -> WorkRequest {
    WorkRequest { op: Op::Write(rxe_model::Remote { va, r_key }), local: 0, len }
}

/// A gigabit network that loses this percentage of the packets in each direction.
fn lossy(percent: u32, seed: u64) -> Conditions {
    Conditions {
        loss: Probability::percent(percent),
        delay: Duration::from_micros(50),
        rate: std::num::NonZeroU64::new(1_000_000_000),
        seed,
        ..Conditions::default()
    }
}

const MESSAGES: usize = 8;
const LEN: usize = 1 << 20;

/// Writes 8 MiB from rxe to this implementation. Returns the time, or `None` if the connection
/// breaks.
fn rxe_to_us(conditions: &Conditions) -> Option<Duration> {
    let mut rxe = rxe(1, LEN);
    let mut side = Side::new(RcCfg { mtu: RXE_MTU, ip_mtu: 1500, ..cfg(0) }, Instant::now());
    let sink = side.buf(LEN);
    for _ in 0..MESSAGES {
        rxe.post(rxe_write(LEN, (sink.addr(), sink.key())));
    }
    let is_done =
        |rxe: &mut Rxe, _: &mut Side| rxe.completed() == MESSAGES || rxe.failure().is_some();
    let time = drive((&mut rxe, &mut side), conditions, is_done);
    if rxe.failure().is_some() {
        return None;
    }
    assert_eq!(rxe.completed(), MESSAGES, "rxe has stopped");
    assert!(sink.octets().iter().enumerate().all(|(at, &got)| got == octet(at)));
    assert_eq!(side.rc.stats().rx_messages, MESSAGES as u64);
    Some(time)
}

/// Writes 8 MiB from one rxe to another.
fn rxe_to_rxe(conditions: &Conditions) -> Option<Duration> {
    let (mut from, mut to) = (rxe(1, LEN), rxe(0, LEN));
    for _ in 0..MESSAGES {
        from.post(rxe_write(LEN, (0, R_KEY)));
    }
    let is_done =
        |from: &mut Rxe, _: &mut Rxe| from.completed() == MESSAGES || from.failure().is_some();
    let time = drive((&mut from, &mut to), conditions, is_done);
    from.failure().is_none().then_some(time)
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn rxe_writes_over_lossy_networks() {
    use std::fmt::Write;

    const SEEDS: u64 = 4;
    let mut table = String::from("MB/s    from rxe to rxe   from rxe to us\n");
    for percent in 0..=5 {
        // The time of a connection that breaks counts for nothing, and so do its octets.
        let rate = |run: fn(&Conditions) -> Option<Duration>| {
            let times = (0..SEEDS).filter_map(|seed| run(&lossy(percent, seed)));
            let times: Vec<_> = times.collect();
            let (octets, time) = (times.len() * MESSAGES * LEN, times.iter().sum::<Duration>());
            (octets as f64 / 1e6 / time.as_secs_f64(), SEEDS - times.len() as u64)
        };
        let ((theirs, their_breaks), (ours, our_breaks)) = (rate(rxe_to_rxe), rate(rxe_to_us));
        assert_eq!(our_breaks, 0, "connections broke with a loss of {percent} %");
        // Between kernels, 0.16 MB/s were measured; the aim is 1.5 MB/s.
        assert!(percent != 2 || ours > 1.5 && ours > theirs * 1.5 / 0.16, "{ours} and {theirs}");
        let breaks = match their_breaks {
            0 => String::new(),
            breaks => format!("   {breaks} of {SEEDS} connections between rxe broke"),
        };
        writeln!(table, "{percent}% {theirs:>20.2} {ours:>16.2}{breaks}").unwrap();
    }
    insta::assert_snapshot!(table);
}

/// If the end of a message is acknowledged while rxe sends the message again, rxe waits for another
/// acknowledgement without a timer, and that may be lost. Or rxe sends an empty message when it
/// goes back once more. On this short path, an acknowledgement arrives before rxe sends the next
/// packet.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn rxe_never_waits_without_a_timer() {
    const MESSAGES: usize = 3;
    for (len, seeds) in [(2 << 10, 800), (8 << 10, 2000), (100 << 10, 100), (300 << 10, 30)] {
        for seed in 0..seeds {
            let conditions = Conditions { delay: Duration::from_micros(1), ..lossy(5, seed) };
            let mut rxe = rxe(1, len);
            let cfg = RcCfg { mtu: RXE_MTU, ip_mtu: 1500, ..cfg(0) };
            let mut side = Side::new(cfg, Instant::now());
            let sink = side.buf(len);
            for _ in 0..MESSAGES {
                rxe.post(rxe_write(len, (sink.addr(), sink.key())));
            }
            let is_done = |rxe: &mut Rxe, _: &mut Side| rxe.completed() == MESSAGES;
            drive((&mut rxe, &mut side), &conditions, is_done);
            let (completed, received) = (rxe.completed(), side.rc.stats().rx_messages);
            assert!(
                completed == MESSAGES || rxe.failure().is_some(),
                "rxe waits after {completed} of {MESSAGES} messages of {len} octets, seed {seed}"
            );
            assert!(
                received <= MESSAGES as u64,
                "rxe sent {received} messages in place of {MESSAGES} of {len} octets, seed {seed}"
            );
        }
    }
}

/// A responder, and the PSN that it expects first.
pub(super) struct Fixture {
    pub(super) side: Side,
    pub(super) now: Instant,
    pub(super) psn: Psn,
}

/// The delay of the first NAK of a connection.
pub(super) const FIRST_DELAY: Duration = Duration::from_micros(250);
const FULL: [u8; OCTETS] = [7; OCTETS];

impl Fixture {
    pub(super) fn new() -> Fixture {
        let now = Instant::now();
        let side = Side::new(cfg(1), now);
        Fixture { side, now, psn: cfg(1).rq_psn }
    }

    /// A fixture with this number of receive buffers, which are at successive places in the memory.
    pub(super) fn with_receives(count: usize) -> (Fixture, Buf) {
        let fixture = Fixture::new();
        let sink = fixture.side.buf(16 * OCTETS);
        for id in 0..count {
            fixture.side.recv(id as u64, &[sink.seg(id, 1)]);
        }
        (fixture, sink)
    }

    pub(super) fn take(&mut self, packet: &[u8]) -> Result<(), Failure> {
        self.side.take(self.now, packet)
    }

    /// Passes a SEND of one octet to the engine, whose PSN is `ahead` after the first one.
    pub(super) fn send(&mut self, ahead: u32) {
        let payload = [ahead as u8];
        let octets = packet(Opcode::SendOnly, self.psn + ahead, Extension::None, &payload);
        self.take(&octets).unwrap();
    }

    /// The packets of a SEND, with or without the bit MigReq. The last one requests an
    /// acknowledgement.
    pub(super) fn long_send(&self, migrated: bool) -> [Vec<u8>; 3] {
        let opcodes = [Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLast];
        std::array::from_fn(|at| {
            let psn = self.psn + at as u32;
            let bth = Bth { migrated, ack_request: at == 2, ..Bth::new(opcodes[at], 0, psn) };
            let mut octets = vec![0; packet_len(bth.opcode, FULL.len())];
            Packet { bth, extension: Extension::None, payload: &FULL }.emit(&mut octets);
            octets
        })
    }

    pub(super) fn sent(&mut self) -> Vec<String> {
        words(&self.side.transmit(self.now))
    }

    pub(super) fn acknowledged_finally(&mut self) -> Vec<String> {
        self.side.rc.acknowledge_finally(&mut self.side.burst);
        words(&self.side.sent())
    }

    /// Advances the clock and handles deadlines.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        if self.side.rc.deadline().is_some_and(|at| at <= self.now) {
            self.side.rc.expire(self.now).unwrap();
        }
    }

    /// Checks that this packet of a repeated message is acknowledged now, and once more later.
    pub(super) fn assert_acknowledged_twice(&mut self, ahead: i32) {
        assert_eq!(self.sent(), [self.ack(ahead)]);
        assert_eq!(self.side.rc.deadline(), Some(self.now + END_DELAY));
        self.wait(END_DELAY);
        assert_eq!((self.sent(), self.side.rc.deadline()), (vec![self.ack(ahead)], None));
    }

    pub(super) fn ack(&self, ahead: i32) -> String {
        format!("{} ACK ACK 0", self.psn + ahead as u32)
    }

    pub(super) fn nak(&self, ahead: u32) -> String {
        format!("{} ACK NAK PSN sequence error 0", self.psn + ahead)
    }

    pub(super) fn received(&self) -> usize {
        self.side.received().len()
    }

    pub(super) fn used(&self) -> usize {
        self.side.early_pool.used()
    }
}

#[test]
fn packets_that_came_early_follow_the_missing_one() {
    let (mut fixture, sink) = Fixture::with_receives(8);
    fixture.send(0);
    assert_eq!(fixture.sent(), [fixture.ack(0)]);
    for ahead in [3, 2, 5, 3] {
        fixture.send(ahead);
    }
    assert_eq!(fixture.received(), 1);
    assert!(fixture.used() > 0);
    // The packet was only overtaken, so no NAK is sent.
    fixture.wait(FIRST_DELAY / 2);
    assert_eq!(fixture.sent(), [""; 0]);
    fixture.send(1);
    assert_eq!((fixture.received(), &sink.octets()[..4]), (3, &[0, 1, 2, 3][..]));
    assert_eq!(fixture.sent(), [fixture.ack(3)]);
    fixture.send(4);
    assert_eq!((fixture.received(), &sink.octets()[..6]), (2, &[0, 1, 2, 3, 4, 5][..]));
    assert_eq!(fixture.sent(), [fixture.ack(5)]);
    assert_eq!((fixture.used(), fixture.side.rc.deadline()), (0, None));
    let Stats { kept, out_of_order, tx_sequence_naks, .. } = fixture.side.rc.stats();
    assert_eq!((kept, out_of_order, tx_sequence_naks), (3, 4, 0));
}

#[test]
fn a_nak_waits_follows_an_acknowledgement_and_is_repeated() {
    let (mut fixture, _sink) = Fixture::with_receives(8);
    fixture.send(0);
    fixture.sent();
    let noticed = fixture.now;
    fixture.send(2);
    assert_eq!(fixture.side.rc.deadline(), Some(fixture.now + FIRST_DELAY));
    fixture.wait(FIRST_DELAY);
    let told = [fixture.ack(0), fixture.nak(1)];
    assert_eq!(fixture.sent(), told);
    // Later packets need no NAK.
    fixture.send(3);
    assert_eq!(fixture.sent(), [""; 0]);
    for round_trips in [2, 4, 8, 16] {
        let due = fixture.now + Duration::from_millis(4) * round_trips;
        assert_eq!(fixture.side.rc.deadline(), Some(due));
        fixture.wait(due - fixture.now);
        assert_eq!(fixture.sent(), told);
    }
    // No NAK follows. Later the kept packets are dropped.
    assert_eq!(fixture.side.rc.deadline(), Some(noticed + Duration::from_secs(3)));
    // The missing packet comes, and requests the acknowledgement.
    fixture.send(1);
    assert_eq!(fixture.sent(), [fixture.ack(3)]);
    // The delay of the next NAK follows from the round trip.
    let (mut fixture, _sink) = Fixture::with_receives(8);
    fixture.send(1);
    fixture.wait(FIRST_DELAY);
    fixture.wait(Duration::from_micros(800));
    fixture.send(0);
    fixture.send(3);
    assert_eq!(fixture.side.rc.deadline(), Some(fixture.now + Duration::from_micros(200)));
}

/// A peer that goes back requests the acknowledgement again. An acknowledgement of packets that it
/// is about to send again would harm kernel rxe.
#[test]
fn a_peer_that_goes_back_is_acknowledged_when_it_asks_again() {
    let (mut fixture, _sink) = Fixture::with_receives(8);
    let silent = |fixture: &Fixture, ahead| {
        let mut octets = packet(Opcode::SendOnly, fixture.psn + ahead, Extension::None, b"x");
        octets[8] = 0;
        octets
    };
    fixture.send(1);
    fixture.send(2);
    fixture.send(4);
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
    fixture.take(&silent(&fixture, 0)).unwrap();
    assert_eq!(fixture.received(), 3);
    assert_eq!(fixture.sent(), [""; 0]);
    // The peer sends all packets again, so the next NAK waits, even if that takes long.
    for ahead in [1, 2, 1, 2] {
        fixture.wait(NAK_DELAY_MIN / 2);
        fixture.take(&silent(&fixture, ahead)).unwrap();
        assert!(fixture.side.rc.stats().tx_sequence_naks == 1);
    }
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
    // The missing packet was lost again.
    fixture.send(4);
    fixture.wait(NAK_DELAY_MIN);
    assert_eq!(fixture.sent(), [fixture.ack(2), fixture.nak(3)]);
}

/// A fixture with a receive for a [long message](Fixture::long_send), the memory of the receive,
/// and the packets of the message.
fn with_long_message(migrated: bool) -> (Fixture, Buf, [Vec<u8>; 3]) {
    let fixture = Fixture::new();
    let sink = fixture.side.buf(4 * OCTETS);
    fixture.side.recv(0, &[sink.seg(0, 4 * OCTETS)]);
    let message = fixture.long_send(migrated);
    (fixture, sink, message)
}

const NAK_DELAY_MIN: Duration = Duration::from_micros(25);
/// The time after which the end of a message that the peer sends again is acknowledged.
const END_DELAY: Duration = Duration::from_millis(20);

/// Kernel rxe must not learn that the end of a message has arrived while it sends the message
/// again. It learns this when it sends the end again, or no packet for a while.
#[test]
fn the_end_of_a_repeated_message_is_acknowledged_late() {
    let (mut fixture, _sink, message) = with_long_message(false);
    for octets in &message {
        fixture.take(octets).unwrap();
    }
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
    for octets in &message[..2] {
        fixture.take(octets).unwrap();
        assert_eq!(fixture.sent(), [fixture.ack(1)]);
        fixture.wait(END_DELAY / 2);
    }
    // The end is repeated. Its acknowledgement may be lost, so there is another one.
    fixture.take(&message[2]).unwrap();
    fixture.assert_acknowledged_twice(2);
    // No packet is repeated for a while.
    fixture.take(&message[1]).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(1)]);
    assert_eq!(fixture.side.rc.deadline(), Some(fixture.now + END_DELAY));
    fixture.wait(END_DELAY);
    fixture.assert_acknowledged_twice(2);
    // The NAK for a later packet does not acknowledge the end, either.
    fixture.take(&message[1]).unwrap();
    fixture.send(4);
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(1), fixture.nak(3)]);
    fixture.take(&message[2]).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
}

/// The second acknowledgement of a repeated message is not needed if the peer goes on.
#[test]
fn a_repeated_message_is_acknowledged_once_if_another_one_follows() {
    let (mut fixture, sink, message) = with_long_message(false);
    fixture.side.recv(1, &[sink.seg(0, 4 * OCTETS)]);
    for octets in message.iter().chain(&message[2..]) {
        fixture.take(octets).unwrap();
    }
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
    fixture.send(3);
    assert_eq!((fixture.sent(), fixture.side.rc.deadline()), (vec![fixture.ack(3)], None));
}

/// The acknowledgement of the end is not withheld without limit if the peer goes on sending the
/// message again, or if somebody forges its packets.
#[test]
fn the_end_of_a_message_is_withheld_only_for_a_while() {
    let (mut fixture, _sink, message) = with_long_message(false);
    for octets in &message {
        fixture.take(octets).unwrap();
    }
    fixture.sent();
    let start = fixture.now;
    while fixture.sent() != [fixture.ack(2)] {
        fixture.wait(END_DELAY / 4);
        assert!(fixture.now < start + 11 * END_DELAY);
        // The acknowledgement would otherwise be withheld anew.
        if !fixture.side.rc.wants_tx() {
            fixture.take(&message[0]).unwrap();
        }
    }
    assert!(fixture.now > start + 9 * END_DELAY);
}

/// When this end disconnects, kernel rxe flushes its requests at once. So this end waits until rxe
/// may learn that its last message has arrived, and then sends the acknowledgement twice.
#[test]
fn the_end_of_a_repeated_message_is_acknowledged_before_a_disconnect() {
    let (mut fixture, _sink, message) = with_long_message(false);
    assert_eq!(fixture.acknowledged_finally(), [""; 0], "no message has arrived");
    for octets in message.iter().chain(&message[..2]) {
        fixture.take(octets).unwrap();
    }
    assert_eq!(fixture.sent(), [fixture.ack(1)]);
    assert!(fixture.side.rc.withholds_ack() && !fixture.side.rc.is_drained());
    fixture.take(&message[2]).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
    assert!(!fixture.side.rc.withholds_ack() && fixture.side.rc.is_drained());
    assert_eq!(fixture.acknowledged_finally(), [fixture.ack(2), fixture.ack(2)]);
}

/// Other peers than kernel rxe set the bit MigReq, and learn at once that a message has arrived.
#[test]
fn the_end_of_a_message_is_acknowledged_at_once_to_other_peers() {
    let (mut fixture, _sink, message) = with_long_message(true);
    for octets in &message {
        fixture.take(octets).unwrap();
    }
    assert_eq!(fixture.sent(), [fixture.ack(2)]);
    fixture.take(&message[0]).unwrap();
    assert_eq!((fixture.sent(), fixture.side.rc.deadline()), (vec![fixture.ack(2)], None));
}

/// After a NAK, rxe repeats all packets from the missing one on, also those that were kept.
#[test]
fn the_end_of_a_message_that_was_kept_is_acknowledged_late() {
    let (mut fixture, _sink, message) = with_long_message(false);
    fixture.take(&message[1]).unwrap();
    fixture.take(&message[2]).unwrap();
    fixture.wait(FIRST_DELAY);
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)]);
    fixture.take(&message[0]).unwrap();
    assert_eq!(fixture.sent(), [""; 0]);
    fixture.take(&message[1]).unwrap();
    assert_eq!(fixture.sent(), [fixture.ack(1)]);
    fixture.take(&message[2]).unwrap();
    fixture.assert_acknowledged_twice(2);
}

/// Several packets of a flight are missing. Each costs a round trip, and only the missing ones are
/// sent again.
#[test]
fn only_the_missing_packets_are_sent_again() {
    let mut pair = Pair::with(|cfg| cfg.window = 1 << 12)
        .over(&Conditions { delay: Duration::from_micros(450), ..Conditions::default() });
    let [source, sink] = [pair.a.buf(60 * OCTETS).filled(&mut Rng(1)), pair.b.buf(60 * OCTETS)];
    let mut costs = Vec::new();
    for lost in [&[7][..], &[0], &[3, 4, 50], &[1, 5, 9, 58], &[59]] {
        let before = pair.a.rc.stats().sent_again;
        sink.octets_mut().fill(0);
        pair.a.post(write(1, &[source.seg(0, 60 * OCTETS)], sink.remote(0)));
        pair.a.rc.open_window();
        let start = pair.now;
        pair.a.rc.transmit(pair.now, &mut pair.a.burst).unwrap();
        for (index, packet) in pair.a.sent().into_iter().enumerate() {
            if !lost.contains(&index) {
                pair.a.channel.send(pair.now, packet, 0);
            }
        }
        while pair.a.rc.work().has_requests() {
            pair.step().unwrap();
        }
        assert_eq!(sink.octets(), source.octets());
        assert_eq!(pair.a.completions().len(), 1);
        let repeated = pair.a.rc.stats().sent_again - before;
        let round_trips = (pair.now - start).as_secs_f64() / 0.0009;
        costs.push((repeated, (round_trips * 10.0).round() / 10.0));
    }
    // The first NAK of the connection waits for a fixed time, and the first one of each later
    // flight for a quarter of a round trip. If two packets in a row are lost (3 and 4), the second
    // one is sent again together with the three packets after it. The fourth lost packet of a
    // flight (58) is sent again together with the packet after it. No NAK reports the loss of the
    // last packet (59): after 5 ms, a probe sends packet 0 again. The acknowledgement of packet 58
    // answers it, and then packet 59 is sent again.
    let expected = [(1, 2.3), (1, 2.3), (6, 4.8), (5, 5.3), (2, 7.6)];
    assert_eq!(costs, expected);
    assert_eq!((pair.a.rc.stats().timeouts, pair.b.early_pool.used()), (0, 0));
}

/// The network lets some packets be overtaken by up to eight others.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn reordering_costs_little() {
    const LEN: usize = 1 << 20;
    let time = |percent, kind, size: usize, seed| {
        let conditions = Conditions {
            reorder: Probability::percent(percent),
            delay: Duration::from_micros(250),
            rate: std::num::NonZeroU64::new(1_000_000_000),
            seed,
            ..Conditions::default()
        };
        let mut pair =
            Pair::with(|cfg| (cfg.mtu, cfg.ip_mtu, cfg.window) = (PathMtu::Octets1024, 1500, 256));
        pair = pair.over(&conditions);
        let (near, far) = (pair.a.buf(LEN), pair.b.buf(LEN));
        let (mut posted, mut received, mut done) = (0, 0, 0);
        let total = 4 * LEN / size;
        while done < total {
            while posted < total.min(done + 64) {
                let local = [near.seg(0, size)];
                pair.a.post(match kind {
                    WcOp::Write => write(0, &local, far.remote(0)),
                    _ => send(0, &local),
                });
                posted += 1;
            }
            while kind == WcOp::Send && received < done + 128 {
                pair.b.recv(0, &[far.seg(0, size)]);
                received += 1;
            }
            pair.step().unwrap();
            pair.b.received();
            done += pair.a.completions().len();
        }
        pair.elapsed()
    };
    for (kind, size) in [(WcOp::Write, LEN), (WcOp::Send, 4096)] {
        for seed in 0..3 {
            let (ordered, reordered) = (time(0, kind, size, seed), time(5, kind, size, seed));
            assert!(
                ordered.as_secs_f64() >= 0.9 * reordered.as_secs_f64(),
                "{kind:?}, seed {seed}: {ordered:?} in order, {reordered:?} with reordering"
            );
        }
    }
}

/// A refusal in the middle of kept packets has the same effect as if the packets arrived then.
#[test]
fn kept_packets_are_refused_as_if_they_arrived_now() {
    // There is one receive buffer.
    let (mut fixture, sink) = Fixture::with_receives(1);
    for ahead in [1, 2, 3] {
        fixture.send(ahead);
    }
    fixture.send(0);
    assert_eq!((fixture.received(), fixture.used()), (1, 0));
    let not_ready = format!("{} ACK RNR NAK 640µs 0", fixture.psn + 1);
    assert_eq!(fixture.sent(), [not_ready]);
    assert!(fixture.side.rc.take_rnr_arrival().is_some());
    fixture.send(3);
    assert_eq!((fixture.sent(), fixture.used()), (vec![], 0));
    fixture.side.recv(1, &[sink.seg(1, 1)]);
    fixture.send(1);
    assert_eq!((fixture.received(), fixture.sent()), (1, vec![fixture.ack(1)]));

    // A WRITE without a key, a payload longer than the MTU, and the middle of no message.
    let nowhere = Extension::Reth(Reth { va: 0, r_key: 0, len: 1 });
    for (opcode, extension, payload, code) in [
        (Opcode::WriteOnly, nowhere, &b"x"[..], NakCode::RemoteAccess),
        (Opcode::SendOnly, Extension::None, &[0; OCTETS + 4], NakCode::InvalidRequest),
        (Opcode::SendMiddle, Extension::None, &FULL, NakCode::InvalidRequest),
        (Opcode::SendFirst, Extension::None, b"x", NakCode::InvalidRequest),
    ] {
        let (mut fixture, _sink) = Fixture::with_receives(4);
        let octets = packet(opcode, fixture.psn + 1, extension, payload);
        fixture.take(&octets).unwrap();
        fixture.send(2);
        let first = packet(Opcode::SendOnly, fixture.psn, Extension::None, b"x");
        assert_eq!(fixture.take(&first), Err(Failure::Refusing(code)));
        assert_eq!((fixture.received(), fixture.used()), (1, 0));
        fixture.side.rc.transmit_fatal_nak(&mut fixture.side.burst);
        let told = format!("{} ACK NAK {code} 0", fixture.psn + 1);
        assert_eq!(words(&fixture.side.sent()), [told]);
    }
}

/// A READ returns the memory as it was before the WRITE after it, although both were kept.
#[test]
fn a_kept_write_waits_for_the_responses_to_a_kept_read() {
    let mut fixture = Fixture::new();
    let shown = fixture.side.buf(100 * OCTETS);
    let reth = |len| Extension::Reth(Reth { va: shown.addr(), r_key: shown.key(), len });
    let psn = fixture.psn;
    let second = packet(Opcode::WriteOnly, psn + 3, reth(1), &[8]);
    fixture.take(&packet(Opcode::WriteOnly, psn + 5, reth(1), &[9])).unwrap();
    fixture.take(&second).unwrap();
    fixture.take(&packet(Opcode::ReadRequest, psn + 1, reth(2 * OCTETS as u32), &[])).unwrap();
    fixture.take(&packet(Opcode::ReadRequest, psn + 4, reth(1), &[])).unwrap();
    fixture.take(&packet(Opcode::WriteOnly, psn, reth(1), &[7])).unwrap();
    assert_eq!(shown.octets()[0], 7);
    let mut sent = Vec::new();
    while fixture.side.rc.wants_tx() {
        fixture.side.rc.transmit(fixture.now, &mut fixture.side.burst).unwrap();
        sent.append(&mut fixture.side.sent());
    }
    // The acknowledgement of the last WRITE leaves with the responses.
    let acknowledgement = sent.pop().unwrap();
    let first_octets: Vec<_> =
        sent.iter().map(|octets| Packet::parse(octets).unwrap().payload[0]).collect();
    assert_eq!(first_octets, [7, 0, 8]);
    assert_eq!((shown.octets()[0], fixture.used()), (9, 0));
    assert_eq!(words(&[acknowledgement]), [format!("{} ACK ACK 0", psn + 5)]);
    assert!(fixture.sent().is_empty());
}

/// A peer floods a connection with packets that are too far ahead.
#[test]
fn the_number_of_kept_packets_is_limited() {
    let (mut fixture, _sink) = Fixture::with_receives(2);
    for ahead in 1..64 {
        fixture.send(ahead);
    }
    assert_eq!((fixture.sent(), fixture.side.rc.stats().kept), (vec![], 63));
    let used = fixture.used();
    for ahead in [64, 65, 1000, (1 << 23) - 1, 64, 65] {
        fixture.send(ahead);
    }
    assert_eq!((fixture.used(), fixture.side.rc.stats().kept), (used, 63));
    assert_eq!(fixture.sent(), [fixture.ack(-1), fixture.nak(0)], "the NAK does not wait");
    // Packets that are too far ahead leave no trace.
    let (mut other, _sink) = Fixture::with_receives(2);
    (0..16).for_each(|_| other.send(64));
    assert_eq!((other.sent().len(), other.used()), (2, 0));
    other.send(0);
    assert_eq!((other.sent(), other.side.rc.deadline()), (vec![other.ack(0)], None));
    // These PSNs are old ones.
    for ahead in [1 << 23, (1 << 23) + 1, (1 << 24) - 1] {
        fixture.send(ahead);
    }
    assert_eq!(fixture.side.rc.stats().duplicates, 3);
    // A READ request takes the PSNs of packets that were kept. They never had a meaning.
    let mut fixture = Fixture::new();
    for ahead in [1, 2, 9] {
        fixture.send(ahead);
    }
    let shown = fixture.side.buf(9 * OCTETS);
    let len = 9 * OCTETS as u32;
    let reth = Extension::Reth(Reth { va: shown.addr(), r_key: shown.key(), len });
    let sink = fixture.side.buf(1);
    fixture.side.recv(0, &[sink.seg(0, 1)]);
    let read = packet(Opcode::ReadRequest, fixture.psn, reth, &[]);
    fixture.take(&read).unwrap();
    while fixture.side.rc.wants_tx() {
        fixture.side.transmit(fixture.now);
    }
    assert_eq!((fixture.received(), fixture.used()), (1, 0));
}

/// The connections of an adapter share a pool. A connection that gets no memory asks for missing
/// packets at once.
#[test]
fn the_memory_of_an_adapter_is_limited() {
    let pool = Arc::new(EarlyPool::new(1 << 16));
    let mut fixtures: Vec<_> = (0..8).map(|_| Fixture::new()).collect();
    for fixture in &mut fixtures {
        let (_, work) = Queues::new(None, Arc::clone(&fixture.side.keys));
        let rc = ReliableConnection::new(work, cfg(1), fixture.now);
        fixture.side.rc = rc.with_early_pool(&pool);
        fixture.send(1);
    }
    let connections = 3;
    assert!(pool.used() > 0 && pool.used() <= 1 << 16);
    let told: Vec<_> = fixtures.iter_mut().map(|fixture| fixture.sent().len()).collect();
    assert_eq!(told, [[0; 3].as_slice(), &[2; 5]].concat(), "{} connections", connections);
    // Each way in which a connection ends returns the memory.
    let mut rest = fixtures.into_iter().map(|fixture| fixture.side.rc);
    rest.next().unwrap().flush();
    rest.next().unwrap().into_work();
    let used = pool.used();
    let responder = rest.next().unwrap().into_ack_only_responder();
    assert_eq!((used > 0, pool.used()), (true, 0));
    drop(responder);
}
