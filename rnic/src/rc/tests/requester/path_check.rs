//! Tests of the check that full packets get through.

use super::*;

/// The fixture's side and a peer. The network between them drops every packet that is longer than
/// [`LONGEST`] and delivers all other packets at once.
struct Path {
    ours: Side,
    peer: Side,
    now: Instant,
    start: Instant,
}

/// The length of the longest packet that the network carries.
const LONGEST: usize = 100;
const ROUND_TRIP: Duration = Duration::from_micros(20);

impl Path {
    fn new() -> Self {
        let now = Instant::now();
        Path { ours: Side::new(cfg(1), now), peer: Side::new(cfg(0), now), now, start: now }
    }

    /// Delivers packets until none is left or the next deadline of our side has passed. Then
    /// advances the clock to that deadline. Returns false if there is none.
    fn step(&mut self) -> Result<bool, Failure> {
        let Path { ours, peer, now, .. } = self;
        while ours.rc.deadline().is_none_or(|at| *now < at)
            && deliver(ours, peer, *now)? | deliver(peer, ours, *now)?
        {
            *now += ROUND_TRIP;
        }
        let Some(at) = ours.rc.deadline() else { return Ok(false) };
        *now = at.max(*now);
        ours.rc.expire(*now)?;
        Ok(true)
    }

    /// Runs until the connection fails. Returns the time that this takes, and the failure.
    fn run(&mut self) -> (Duration, Result<(), Failure>) {
        let mut result = Ok(());
        while result.is_ok() && self.step().inspect_err(|&why| result = Err(why)) == Ok(true) {}
        (self.now - self.start, result)
    }
}

/// Delivers the packets of one side. Returns whether any packet arrived.
fn deliver(from: &mut Side, to: &mut Side, now: Instant) -> Result<bool, Failure> {
    while from.rc.wants_tx() {
        from.rc.transmit(now, &mut from.burst)?;
    }
    from.rc.acknowledge(&mut from.burst);
    let mut sent = from.sent();
    sent.retain(|packet| packet.len() <= LONGEST);
    sent.iter().try_for_each(|packet| to.take(now, packet))?;
    Ok(!sent.is_empty())
}

#[test]
fn messages_that_do_not_get_through_end_the_connection_within_four_timeouts() {
    for octets in [OCTETS, 8 * OCTETS, 8 * OCTETS + 5] {
        let mut path = Path::new();
        let (source, sink) = (path.ours.buf(octets), path.peer.buf(octets));
        path.peer.recv(1, &[sink.seg(0, octets)]);
        path.ours.post(send(2, &[source.seg(0, octets)]));
        path.ours.post(send(3, &[]));
        let (after, result) = path.run();
        assert_eq!(result, Err(Failure::PathMtu), "{octets} octets");
        assert!(TIMEOUT < after && after < 4 * TIMEOUT, "{octets} octets: {after:?}");
        path.ours.rc.flush();
        let done: Vec<_> = path.ours.completions().iter().map(|wc| (wc.id, wc.status)).collect();
        assert_eq!(done, [(2, WcStatus::Transport), (3, WcStatus::Flushed)]);
    }
}

/// The last response of a READ may be short and arrive, or none arrives.
#[test]
fn responses_that_do_not_get_through_end_the_connection_too() {
    for octets in [OCTETS, 4 * OCTETS, 4 * OCTETS + 5] {
        let mut path = Path::new();
        let (sink, shown) = (path.ours.buf(octets), path.peer.buf(octets));
        path.ours.post(read(1, &[sink.seg(0, octets)], shown.remote(0)));
        let (after, result) = path.run();
        assert_eq!(result, Err(Failure::PathMtu), "{octets} octets");
        assert!(TIMEOUT < after && after < 4 * TIMEOUT, "{octets} octets: {after:?}");
    }
}

/// A peer that does not answer questions still gets its READs again.
#[test]
fn a_read_is_repeated_even_if_questions_are_not_answered() {
    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(OCTETS);
    fixture.side.post(read(1, &[sink.seg(0, OCTETS)], NOWHERE));
    let request = format!("{} READ request of 256 ask 0", fixture.psn);
    let (mut asked, mut requested) = (0, 0);
    while fixture.side.rc.stats().timeouts < 3 {
        let sent = fixture.sent_words();
        asked += sent.iter().filter(|packet| packet.contains("WRITE only of 0")).count();
        requested += usize::from(sent.contains(&request));
        fixture.wait().unwrap();
    }
    assert!(asked > 10 && requested > 10, "{asked} questions, {requested} requests");
    fixture.sent();
    fixture.response(wire::rocev2::Position::Only, 0, OCTETS).unwrap();
    assert_eq!(fixture.done(), ok([1]));
}

#[test]
fn short_messages_are_not_affected() {
    let mut path = Path::new();
    for id in 0..8 {
        path.peer.recv(id, &[]);
        path.ours.post(send(id, &[]));
    }
    assert_eq!(path.run().1, Ok(()));
    assert_eq!(path.ours.completions().len(), 8);
}

/// A peer that answers nothing is silent. Its silence says nothing about the path.
#[test]
fn a_silent_peer_is_silent() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 2);
    let source = fixture.side.buf(2 * OCTETS);
    fixture.side.post(send(1, &[source.seg(0, 2 * OCTETS)]));
    let failure = loop {
        fixture.sent();
        if let Err(failure) = fixture.wait() {
            break failure;
        }
    };
    assert_eq!(failure, Failure::Silent);
}

/// Questions accompany the retransmissions from the first ACK timeout on. Once a full packet has
/// been acknowledged, the check ends.
#[test]
fn a_path_that_has_carried_a_full_packet_is_not_suspected() {
    let mut fixture = Fixture::new();
    let source = fixture.side.buf(2 * OCTETS);
    fixture.side.post(send(1, &[source.seg(0, 2 * OCTETS)]));
    fixture.sent();
    let question = |psn: Psn| format!("{psn} WRITE only of 0 ask 0");
    let mut asked = 0;
    while asked < 3 {
        fixture.wait().unwrap();
        let sent = fixture.sent_words();
        if sent[0] == question(fixture.psn.previous()) {
            fixture.take(&answer(Syndrome::ACK, fixture.psn.previous())).unwrap();
            asked += 1;
        }
    }
    assert_eq!(fixture.side.rc.stats().timeouts, 1);
    assert_eq!(fixture.side.rc.stats().unexpected, 0, "answers to questions are expected");
    fixture.ack(0);
    fixture.sent();
    // From now on the peer receives nothing but questions, and there are none.
    let failure = loop {
        if let Err(failure) = fixture.wait() {
            break failure;
        }
        let sent = fixture.sent_words();
        assert!(!sent.contains(&question(fixture.psn)), "{sent:?}");
        fixture.take(&answer(Syndrome::ACK, fixture.psn)).unwrap();
    };
    assert_eq!(failure, Failure::Silent);
}

/// RNR NAKs show that full packets arrive.
#[test]
fn a_peer_without_a_receive_gets_full_packets() {
    let mut fixture = Fixture::new();
    let source = fixture.side.buf(OCTETS);
    fixture.side.post(send(1, &[source.seg(0, OCTETS)]));
    for _ in 0..100 {
        fixture.sent();
        fixture.rnr(1, 0).unwrap();
        fixture.take(&answer(Syndrome::ACK, fixture.psn.previous())).unwrap();
        fixture.wait().unwrap();
    }
}

#[test]
fn a_check_packet_is_full_and_changes_nothing() {
    let mut path = Path::new();
    let shown = path.peer.buf(OCTETS);
    path.ours.rc.check_path(&mut path.ours.burst);
    let check = path.ours.sent();
    let psn = cfg(1).sq_psn.previous();
    assert_eq!(words(&check), [format!("{psn} WRITE only of 256 ask 256")]);
    path.peer.take(path.now, &check[0]).unwrap();
    assert!(path.peer.rc.owes_ack());
    path.peer.rc.acknowledge(&mut path.peer.burst);
    for packet in path.peer.sent() {
        path.ours.take(path.now, &packet).unwrap();
    }
    let [ours, peer] = [path.ours.rc.stats(), path.peer.rc.stats()];
    assert_eq!((ours.unexpected, peer.duplicates, peer.rx_messages), (0, 1, 0));
    assert_eq!(path.ours.rc.deadline(), None);
    assert_eq!(shown.octets(), [0; OCTETS]);
    // A check packet that is lost has no effect.
    path.ours.rc.check_path(&mut path.ours.burst);
    assert_eq!(path.run().1, Ok(()));
}

/// An ICMP message may quote a packet in flight or the check packet, but no other packet.
#[test]
fn only_unacknowledged_packets_may_be_quoted() {
    let mut fixture = Fixture::new();
    let quotable = |fixture: &Fixture| {
        let psns = (-3..6).filter(|&ahead| fixture.side.rc.may_have_sent(psn(fixture, ahead)));
        psns.collect::<Vec<_>>()
    };
    fn psn(fixture: &Fixture, ahead: i32) -> Psn {
        fixture.psn.previous().previous().previous() + (ahead + 3) as u32
    }
    assert_eq!(quotable(&fixture), [0; 0]);
    fixture.side.rc.check_path(&mut fixture.side.burst);
    fixture.side.sent();
    assert_eq!(quotable(&fixture), [-1]);
    let source = fixture.side.buf(4 * OCTETS);
    fixture.side.post(send(1, &[source.seg(0, 4 * OCTETS)]));
    fixture.sent();
    assert_eq!(quotable(&fixture), [-1, 0, 1, 2, 3]);
    fixture.take(&answer(Syndrome::ACK, fixture.psn.previous())).unwrap();
    assert_eq!(quotable(&fixture), [0, 1, 2, 3]);
    fixture.ack(1);
    assert_eq!(quotable(&fixture), [2, 3]);
    fixture.ack(3);
    assert_eq!(quotable(&fixture), [0; 0]);
}

/// The length of the oldest packet shows whether it is too long for a path.
#[test]
fn the_oldest_packet_has_a_length() {
    const BTH: usize = 12;
    const RETH: usize = 16;
    const AETH: usize = 4;
    const IMMEDIATE: usize = 4;
    let full = BTH + OCTETS;
    let last = BTH + 8;
    let mut fixture = Fixture::new();
    let oldest = |fixture: &Fixture| fixture.side.rc.oldest_packet();
    assert_eq!(oldest(&fixture), None);
    let buf = fixture.side.buf(2 * OCTETS + 5);
    let segments = [buf.seg(0, 2 * OCTETS + 5)];
    fixture.side.post(write(1, &segments, NOWHERE));
    fixture.side.post(send(2, &segments));
    fixture.side.post(write_imm(3, &[buf.seg(0, OCTETS)], NOWHERE, 1));
    fixture.side.post(read(4, &segments, NOWHERE));
    fixture.sent();
    let lens = [full + RETH, full, last, full, full, last, full + RETH + IMMEDIATE];
    for (ahead, len) in (0..).zip(lens) {
        assert_eq!(oldest(&fixture), Some(OldestPacket::Request(len)), "{ahead}");
        fixture.ack(ahead);
    }
    assert_eq!(oldest(&fixture), Some(OldestPacket::Response(full + AETH)));
}
