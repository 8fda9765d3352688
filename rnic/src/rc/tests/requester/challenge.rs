//! The peer's queue pair is said to be in another connection: the peer is asked.

use super::*;

impl Bench {
    fn challenge(&mut self) -> Vec<String> {
        self.side.rc.challenge(self.now, &mut self.side.burst);
        words(&self.side.sent())
    }

    /// Time goes to the next deadline; what is asked then.
    fn ask_again(&mut self) -> Result<Vec<String>, Failure> {
        self.wait()?;
        self.side.rc.ask_again(self.now, &mut self.side.burst);
        Ok(words(&self.side.sent()))
    }
}

#[test]
fn a_peer_that_is_there_answers_and_nothing_changes() {
    let mut pair = Pair::new();
    for round in 0..2 {
        // At first nothing has been sent at all.
        for id in 0..round {
            pair.b.recv(id, &[]);
            pair.a.post(send(id, &[]));
        }
        pair.drive().unwrap();
        assert_eq!(all(&pair)[0].len(), round as usize);
        pair.a.rc.challenge(pair.now, &mut pair.a.burst);
        pair.a.leave(pair.now);
        assert!(pair.a.rc.deadline().is_some());
        pair.drive().unwrap();
        assert!(all(&pair).iter().all(Vec::is_empty));
        assert_eq!((pair.a.rc.deadline(), pair.a.rc.stats().unexpected), (None, 0));
    }
    assert_eq!(pair.b.rc.stats().duplicates, 2);
}

#[test]
fn a_peer_that_is_gone_is_asked_as_often_as_a_request_is_repeated() {
    let mut bench = Bench::with(|cfg| cfg.retries = 2);
    let question = [format!("{} WRITE only of 0 ask 0", bench.psn.previous())];
    assert_eq!(bench.challenge(), question);
    // It is a question, not two.
    assert_eq!(bench.challenge(), [""; 0]);
    let start = bench.now;
    assert_eq!(bench.ask_again().unwrap(), question);
    assert_eq!(bench.ask_again().unwrap(), question);
    assert_eq!(bench.ask_again(), Err(Failure::Stale));
    assert_eq!(bench.now - start, 3 * TIMEOUT);
}

#[test]
fn only_a_right_answer_counts() {
    let mut bench = Bench::new();
    bench.challenge();
    for ahead in [0, 1, 1 << 23, (1 << 24) - 2] {
        bench.ack(ahead);
    }
    assert!(bench.side.rc.deadline().is_some());
    assert_eq!(bench.side.rc.stats().unexpected, 4);
    let right = answer(Syndrome::ACK, bench.psn.previous());
    assert!(bench.side.rc.expects(&Packet::parse(&right).unwrap()));
    bench.take(&right).unwrap();
    assert_eq!((bench.side.rc.deadline(), bench.side.rc.stats().unexpected), (None, 4));
}

/// What is in flight is a question, too.
#[test]
fn an_acknowledgement_is_an_answer() {
    let mut bench = Bench::new();
    bench.side.post(send(1, &[]));
    bench.sent();
    bench.challenge();
    bench.ack(0);
    assert_eq!(bench.side.rc.deadline(), None);
    assert_eq!(bench.done(), ok([1]));
}

/// A peer without a receive does not acknowledge the request that waits, but it answers.
#[test]
#[cfg_attr(miri, ignore = "not a test: its volume takes Miri long and shows it nothing new")]
fn a_peer_that_is_not_ready_answers() {
    let mut pair = Pair::new();
    pair.a.post(send(1, &[]));
    for _ in 0..20 {
        pair.step().unwrap();
    }
    pair.a.rc.challenge(pair.now, &mut pair.a.burst);
    pair.a.leave(pair.now);
    while pair.elapsed() < 20 * TIMEOUT {
        pair.step().unwrap();
    }
    pair.b.recv(2, &[]);
    pair.drive().unwrap();
    assert_eq!(pair.a.completions().len(), 1);
}
