//! Tests with messages that seldom arrive in the connection's current state.

use wire::cm::{Answered, Mra, Rej};

use super::*;

const INTERVAL: Duration = Duration::from_millis(2 * 256 + 4096);

impl Pair {
    /// Makes a connection that B has accepted and A has not confirmed.
    fn accepted(&mut self) -> [ConnId; 2] {
        self.cms[B].listen(PORT, 1).unwrap();
        self.lose.push("A:RTU");
        let a = self.connect(QPN[A]);
        self.run();
        let (b, _) = self.request();
        self.accept(b, QPN[B]);
        self.run();
        self.events(A);
        self.log.clear();
        [a, b]
    }

    /// Delivers a message to a side, as if from the peer of one of its connections.
    fn deliver(&mut self, side: usize, id: ConnId, message: Message<'_>) {
        let transaction = self.cms[side].conns[&id.0].transaction;
        let mad = Mad { transaction, message }.emit();
        self.cms[side].receive(self.now, address(1 - side), address(side), &mad).unwrap();
    }
}

fn rej(from: ConnId, to: ConnId) -> Message<'static> {
    let (reason, ari, private) = (Reason::TIMEOUT, &[][..], &[][..]);
    Message::Rej(Rej {
        local_id: from.0,
        remote_id: to.0,
        answered: Answered::Rep,
        reason,
        ari,
        private,
    })
}

#[test]
fn an_mra_of_the_rep() {
    let mut pair = Pair::new();
    let [a, b] = pair.accepted();
    let service_timeout = Timeout::new(24);
    let mra = Mra {
        local_id: a.0,
        remote_id: b.0,
        answered: Answered::Rep,
        service_timeout,
        private: &[],
    };
    pair.deliver(B, b, Message::Mra(mra));
    pair.pass(Duration::from_secs(65));
    assert_eq!(pair.sent(), "");
    pair.pass(Duration::from_secs(6));
    assert_eq!(pair.sent(), "B:REP A:RTU");
}

/// The passive side gives the connection up after its REP was lost. Its REJ and its DREQs are also
/// lost.
#[test]
fn a_req_comes_again_while_its_connection_ends() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose = [vec!["B:REP", "B:REJ28"], vec!["B:DREQ"; 10]].concat();
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.cms[B].disconnect(pair.now, b, Ending::Graceful);
    pair.pass(INTERVAL);
    assert!(matches!(pair.events(A)[0], (id, Event::Rejected { .. }) if id == a));
    assert_eq!(pair.events(B), [(b, Event::Disconnected)]);
}

#[test]
fn a_peer_that_gives_up_before_its_rep_arrives() {
    let mut pair = Pair::new();
    let a = pair.connect(QPN[A]);
    pair.deliver(A, a, rej(ConnId(9), a));
    assert_eq!(pair.events(A)[0], (a, refused(Reason::TIMEOUT)));
}

#[test]
fn a_peer_that_gives_up_while_it_is_disconnected() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.deliver(A, a, rej(b, a));
    assert_eq!(pair.events(A), [(a, Event::Disconnected)]);
    assert_eq!(pair.state(A, a), State::TimeWait);
}

/// One side has given up an attempt, but its peer treats the attempt as a connection. When a
/// message of the peer arrives, the side answers that there is no connection.
#[test]
fn a_connection_that_only_one_side_knows() {
    let mut pair = Pair::new();
    let [a, b] = pair.accepted();
    let rtu = pair.cms[A].conns[&a.0].rtu();
    pair.lose = vec!["A:RTU", "B:REJ4"];
    pair.cms[B].unreachable(pair.now, b);
    pair.run();
    assert_eq!(pair.events(B), [(b, Event::AcceptFailed)]);
    pair.sent();
    pair.cms[B].receive(pair.now, rtu.from, rtu.to, &rtu.mad).unwrap();
    pair.run();
    assert_eq!(pair.sent(), "B:REJ6");
    assert_eq!(pair.events(A), [(a, Event::Broken)]);
}

#[test]
fn a_rep_for_a_connection_that_has_ended() {
    let mut pair = Pair::new();
    let [a, b] = pair.accepted();
    let rep = pair.cms[B].conns[&b.0].kept.as_ref().unwrap().mad;
    pair.lose = vec!["A:DREQ"];
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    pair.cms[A].unreachable(pair.now, a);
    assert_eq!(pair.state(A, a), State::TimeWait);
    pair.cms[A].receive(pair.now, address(B), address(A), &rep).unwrap();
    pair.run();
    assert_eq!(pair.sent(), "(A:DREQ) A:REJ6");
    assert_eq!(pair.events(B), [(b, Event::AcceptFailed)]);
}

/// The caller died after the acceptance, and a new process calls with the same queue pair number.
/// The acceptance ends when the passive side stops waiting for its RTU.
#[test]
fn an_acceptance_is_stale() {
    let mut pair = Pair::new();
    let [a, b] = pair.accepted();
    pair.cms[A].conns.remove(&a.0);
    pair.cms[A].by_peer_qp.clear();
    pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(B), []);
    assert_eq!(pair.sent(), "A:REQ B:REJ10");
    pair.pass(20 * SECOND);
    assert!(pair.events(B).contains(&(b, Event::AcceptFailed)));
}
