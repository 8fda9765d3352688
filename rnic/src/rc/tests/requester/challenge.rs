//! Tests of challenges: a message claims that the peer's queue pair is in another connection, so
//! the peer is asked.

use super::*;

impl Fixture {
    fn challenge(&mut self) -> Vec<String> {
        self.side.rc.start_challenge(self.now, &mut self.side.burst);
        words(&self.side.sent())
    }

    /// Whether a challenge is open, so that an answer to it would prove the peer's identity.
    fn is_challenge_open(&self) -> bool {
        let answer = answer(Syndrome::ACK, self.psn.previous());
        self.side.rc.has_expected_psn(&Packet::parse(&answer).unwrap())
    }

    /// Advances the clock to the next deadline. Returns the packets sent then.
    fn repeat_challenge(&mut self) -> Result<Vec<String>, Failure> {
        self.wait()?;
        self.side.rc.repeat_challenge(self.now, &mut self.side.burst);
        Ok(words(&self.side.sent()))
    }
}

#[test]
fn a_peer_that_is_there_answers_and_nothing_changes() {
    let mut pair = Pair::new();
    for round in 0..2 {
        // In the first round no packet has been sent yet.
        for id in 0..round {
            pair.b.recv(id, &[]);
            pair.a.post(send(id, &[]));
        }
        pair.drive().unwrap();
        assert_eq!(all(&pair)[0].len(), round as usize);
        pair.a.rc.start_challenge(pair.now, &mut pair.a.burst);
        pair.a.send_burst(pair.now);
        assert!(pair.a.rc.deadline().is_some());
        pair.drive().unwrap();
        assert!(all(&pair).iter().all(Vec::is_empty));
        assert_eq!((pair.a.rc.deadline(), pair.a.rc.stats().unexpected), (None, 0));
        // The peer has just answered, so it is not challenged again.
        pair.a.rc.start_challenge(pair.now, &mut pair.a.burst);
        assert!(pair.a.burst.is_empty() && pair.a.rc.deadline().is_none());
        pair.now += TIMEOUT;
    }
    assert_eq!(pair.b.rc.stats().duplicates, 2);
}

#[test]
fn a_peer_that_is_gone_is_asked_as_often_as_a_request_is_repeated() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 2);
    let question = [format!("{} WRITE only of 0 ask 0", fixture.psn.previous())];
    assert_eq!(fixture.challenge(), question);
    // The open challenge is not sent twice.
    assert_eq!(fixture.challenge(), [""; 0]);
    let start = fixture.now;
    assert_eq!(fixture.repeat_challenge().unwrap(), question);
    assert_eq!(fixture.repeat_challenge().unwrap(), question);
    assert_eq!(fixture.repeat_challenge(), Err(Failure::Stale));
    assert_eq!(fixture.now - start, 3 * TIMEOUT);
}

/// An idle connection survives 8 s in which the peer does not answer. The values are those that
/// softroce uses by default (its test `default_times`).
#[test]
fn an_idle_connection_survives_eight_seconds_without_a_network() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut fixture = Fixture::with(|cfg| (cfg.ack_timeout, cfg.retries) = (17, 23));
    fixture.challenge();
    let start = fixture.now;
    let mut asked = start;
    while fixture.now - start < 8 * SECOND {
        assert!(!fixture.repeat_challenge().unwrap().is_empty());
        assert!(fixture.now - asked < SECOND, "the peer is asked soon after the outage");
        asked = fixture.now;
    }
    while fixture.repeat_challenge().is_ok() {}
    assert!(fixture.now - start <= 15 * SECOND);
}

#[test]
fn only_a_right_answer_counts() {
    let mut fixture = Fixture::new();
    fixture.challenge();
    for ahead in [0, 1, (1 << 23) - 2] {
        fixture.ack(ahead);
    }
    assert!(fixture.side.rc.deadline().is_some());
    assert_eq!(fixture.side.rc.stats().unexpected, 3);
    let right = answer(Syndrome::ACK, fixture.psn.previous());
    assert!(fixture.side.rc.has_expected_psn(&Packet::parse(&right).unwrap()));
    fixture.take(&right).unwrap();
    assert_eq!((fixture.side.rc.deadline(), fixture.side.rc.stats().unexpected), (None, 3));
}

/// An acknowledgement of a request in flight also answers the challenge.
#[test]
fn an_acknowledgement_is_an_answer() {
    let mut fixture = Fixture::new();
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.challenge();
    fixture.ack(0);
    assert_eq!(fixture.side.rc.deadline(), None);
    assert_eq!(fixture.done(), ok([1]));
}

/// A peer without a receive does not acknowledge the waiting request, but it answers the challenge.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn a_peer_that_is_not_ready_answers() {
    let mut pair = Pair::new();
    pair.a.post(send(1, &[]));
    for _ in 0..20 {
        pair.step().unwrap();
    }
    pair.a.rc.start_challenge(pair.now, &mut pair.a.burst);
    pair.a.send_burst(pair.now);
    while pair.elapsed() < 20 * TIMEOUT {
        pair.step().unwrap();
    }
    pair.b.recv(2, &[]);
    pair.drive().unwrap();
    assert_eq!(pair.a.completions().len(), 1);
}

/// Kernel rxe does not acknowledge the PSN of the challenge (`rxe_resp.c`, `duplicate_request`).
/// While rxe has carried out no SEND, WRITE or atomic operation, it acknowledges 0xFFFFFF. After a
/// READ it acknowledges the PSN of the operation before the READ, which is the PSN of the
/// challenge.
#[test]
fn kernel_rxe_answers() {
    let none = Psn::new(0xFF_FFFF);
    for start in [7, 0x7F_FFFF, 0x80_0001, 0xFF_FFF0, 0xFF_FFFF, 0] {
        let mut fixture = Fixture::with(|cfg| cfg.sq_psn = Psn::new(start));
        assert_eq!(fixture.challenge().len(), 1);
        let answer_of_rxe = answer(Syndrome::ACK, none);
        // A stranger knows the PSN of this answer, so the answer does not prove that the peer sent
        // it.
        let proves = fixture.side.rc.has_expected_psn(&Packet::parse(&answer_of_rxe).unwrap());
        assert_eq!(proves, Psn::new(start).previous() == none);
        fixture.take(&answer_of_rxe).unwrap();
        assert_eq!(
            (fixture.side.rc.deadline(), fixture.side.rc.stats().unexpected),
            (None, 0),
            "{start:#x}"
        );
    }

    let mut fixture = Fixture::new();
    let sink = fixture.side.buf(8);
    fixture.side.post(send(1, &[]));
    fixture.side.post(read(2, &[sink.seg(0, 8)], NOWHERE));
    fixture.sent();
    fixture.ack(0);
    fixture.response(wire::rocev2::Position::Only, 1, 8).unwrap();
    assert_eq!(fixture.done(), ok([1, 2]));
    assert_eq!(fixture.challenge(), [format!("{} WRITE only of 0 ask 0", fixture.psn)]);
    fixture.ack(0);
    assert_eq!((fixture.side.rc.deadline(), fixture.side.rc.stats().unexpected), (None, 0));
}

/// A first request is lost, and a kernel rxe that has received nothing answers a challenge. The
/// answer must not count as an acknowledgement of that request.
#[test]
fn an_answer_of_kernel_rxe_acknowledges_nothing() {
    let mut fixture = Fixture::with(|cfg| cfg.sq_psn = Psn::new(0xFF_FFFF));
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.challenge();
    fixture.ack(0);
    assert_eq!(fixture.done(), ok([]));
    assert!(!fixture.is_challenge_open());
    fixture.wait().unwrap();
    assert_eq!(fixture.sent_words().len(), 1);
    fixture.ack(0);
    assert_eq!(fixture.done(), ok([1]));
}

/// A peer that answers a request has the connection, even if it does not carry out the request.
#[test]
fn a_refusal_for_now_is_an_answer() {
    for refuse in [
        |fixture: &mut Fixture| fixture.rnr(12, 0),
        |fixture: &mut Fixture| fixture.nak(NakCode::SequenceError, 0),
    ] {
        let mut fixture = Fixture::new();
        fixture.side.post(send(1, &[]));
        fixture.sent();
        fixture.challenge();
        assert!(fixture.is_challenge_open());
        refuse(&mut fixture).unwrap();
        assert!(!fixture.is_challenge_open());
        assert_eq!(fixture.done(), ok([]));
    }
}

/// If the peer closes the connection while a challenge is open, this end gives up the challenge and
/// handles the close.
#[test]
fn a_peer_that_leaves_is_not_asked() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 0);
    fixture.side.post(send(1, &[]));
    fixture.sent();
    fixture.challenge();
    fixture.now += TIMEOUT / 2;
    fixture.side.rc.start_peer_close(fixture.now);
    assert!(!fixture.is_challenge_open());
    while !fixture.side.rc.is_peer_close_done() {
        fixture.wait().unwrap();
    }
    assert_eq!(fixture.flush(), [(1, WcStatus::Flushed)]);
    assert_eq!(fixture.side.rc.deadline(), None);
}

/// A peer that is known to be alive is challenged again and again, even if nothing else is under
/// way.
#[test]
fn a_peer_that_lives_is_asked_again() {
    let mut fixture = Fixture::with(|cfg| cfg.retries = 1);
    assert_eq!(fixture.side.rc.silent_for(fixture.now), None);
    let question = fixture.challenge();
    let start = fixture.now;
    for n in 1..20 {
        fixture.now += TIMEOUT;
        assert_eq!(fixture.side.rc.silent_for(fixture.now), Some(n * TIMEOUT));
        fixture.side.rc.note_peer_alive(fixture.now);
        fixture.side.rc.expire(fixture.now).unwrap();
        assert!(fixture.side.rc.repeat_challenge(fixture.now, &mut fixture.side.burst));
        assert_eq!(words(&fixture.side.sent()), question);
        assert!(!fixture.side.rc.repeat_challenge(fixture.now, &mut fixture.side.burst));
    }
    assert_eq!(fixture.repeat_challenge(), Err(Failure::Stale));
    assert_eq!(fixture.now - start, 20 * TIMEOUT);

    // If packets are in flight, the peer's silence is measured from the time when these packets
    // were sent.
    let mut fixture = Fixture::new();
    fixture.challenge();
    fixture.now += TIMEOUT / 2;
    fixture.side.post(send(1, &[]));
    fixture.sent();
    assert_eq!(fixture.side.rc.silent_for(fixture.now + TIMEOUT), Some(TIMEOUT));
}
