//! Lost messages are repeated. A message that arrives several times has its effect only once.

use super::*;

const REQ_INTERVAL: Duration = Duration::from_millis(2 * 256 + 4096);

#[test]
fn a_lost_message_is_repeated() {
    for (lost, sent) in [
        ("A:REQ", "(A:REQ) A:REQ B:REP A:RTU"),
        // The request was accepted, so the timer of the REP repeats the REP.
        ("B:REP", "A:REQ (B:REP) A:REQ B:REP A:RTU"),
        ("A:RTU", "A:REQ B:REP (A:RTU) B:REP A:RTU"),
    ] {
        let mut pair = Pair::new();
        pair.cms[B].listen(PORT, 1).unwrap();
        pair.lose.push(lost);
        let a = pair.connect(QPN[A]);
        let start = pair.now;
        pair.run();
        if lost == "A:REQ" {
            pair.pass(REQ_INTERVAL - Duration::from_nanos(1));
            assert_eq!(pair.sent(), "(A:REQ)");
            pair.log = vec!["(A:REQ)".to_owned()];
            pair.pass(Duration::from_nanos(1));
            assert_eq!(pair.now, start + REQ_INTERVAL);
        }
        let (b, _) = pair.request();
        pair.accept(b, QPN[B]);
        pair.pass(REQ_INTERVAL);
        assert!(matches!(pair.events(A)[..], [(id, Event::Accepted(_))] if id == a), "{lost}");
        assert_eq!(pair.events(B), [(b, Event::Established)], "{lost}");
        assert_eq!(pair.sent(), sent);
        assert_eq!(pair.deadline(), None);
    }
}

#[test]
fn data_stand_for_a_lost_rtu() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose.push("A:RTU");
    pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.run();
    assert_eq!(pair.events(B), []);
    for _ in 0..2 {
        pair.cms[B].established_by_data(pair.now, b);
    }
    assert_eq!(pair.events(B), [(b, Event::Established)]);
    assert_eq!(pair.deadline(), None);
}

/// Each REP is answered with an RTU, because the kernel's program gets no event before the RTU.
#[test]
fn every_rep_is_answered() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose = vec!["A:RTU"; 5];
    pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.pass(6 * REQ_INTERVAL);
    assert_eq!(pair.events(A).len(), 1);
    assert_eq!(pair.events(B), [(b, Event::Established)]);
    assert_eq!(pair.sent().matches("B:REP").count(), 6);
}

#[test]
fn a_repeated_req_gets_an_mra() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    let service_timeout = Duration::from_millis(1 << 16);
    pair.pass(REQ_INTERVAL + service_timeout + REQ_INTERVAL - Duration::from_nanos(1));
    assert_eq!(
        pair.sent(),
        "A:REQ A:REQ B:MRA",
        "the caller must wait for the time in the MRA plus one round trip"
    );
    pair.pass(service_timeout + REQ_INTERVAL);
    assert_eq!(pair.sent(), "A:REQ B:MRA");
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.run();
    assert!(matches!(pair.events(A)[..], [(id, Event::Accepted(_))] if id == a));
}

/// Each time that a message is sent, only the first MRA that answers it has an effect.
#[test]
fn mras_cannot_make_a_caller_wait_for_ever() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    pair.run();
    let mra = pair.cms[B].conns.values_mut().next().unwrap().mra(pair.now);
    // The caller sends 16 REQs. After each of them it waits for 70 seconds, and three MRAs arrive
    // in that time.
    for _ in 0..16 * 3 {
        pair.cms[A].receive(pair.now, mra.from, mra.to, &mra.mad).unwrap();
        pair.pass(24 * SECOND);
    }
    assert_eq!(pair.events(A), [(a, Event::Unreachable), (a, Event::Released { qpn: QPN[A] })]);
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new();
    pair.lose = vec!["A:REQ"; 16];
    let a = pair.connect(QPN[A]);
    pair.pass(16 * REQ_INTERVAL - Duration::from_nanos(1));
    assert_eq!(pair.events(A), []);
    pair.pass(Duration::from_nanos(1));
    assert_eq!(pair.events(A), [(a, Event::Unreachable), (a, Event::Released { qpn: QPN[A] })]);
    assert_eq!(pair.sent(), ["(A:REQ) "; 16].concat() + "A:REJ4");
    assert!(pair.is_empty());
}

#[test]
fn an_icmp_error_ends_the_wait() {
    let mut pair = Pair::new();
    pair.lose = vec!["A:REQ"];
    let a = pair.connect(QPN[A]);
    pair.run();
    pair.cms[A].unreachable(pair.now, a);
    assert_eq!(pair.events(A), [(a, Event::Unreachable), (a, Event::Released { qpn: QPN[A] })]);

    let [a, _] = pair.connected();
    pair.cms[A].unreachable(pair.now, a);
    assert_eq!(pair.state(A, a), State::Established, "only the data path may end the connection");
    pair.lose = vec!["A:DREQ"];
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    pair.cms[A].unreachable(pair.now, a);
    assert_eq!(pair.events(A), [(a, Event::Disconnected)]);
}

#[test]
fn the_programs_deadline_comes_first() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let deadline = pair.now + 3 * SECOND;
    let a = pair.connect_with(|call| call.deadline = Some(deadline));
    pair.run();
    let (b, _) = pair.request();
    pair.pass(3 * SECOND);
    assert_eq!(pair.events(A), [(a, Event::TimedOut), (a, Event::Released { qpn: QPN[A] })]);
    assert_eq!(pair.events(B), [(b, Event::Withdrawn)]);
    assert_eq!(pair.sent(), "A:REQ A:REJ4");
    assert_eq!(pair.cms[B].accept(pair.now, b, &accept()), Err(CmError::NoRequest));
    pair.pass_all();
    assert!(pair.is_empty());
}

/// A late REQ of an attempt that was given up is not a new call. The caller's queue pair may be in
/// another connection by then, and the REQ must not end that connection.
#[test]
fn a_late_req() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    let req = pair.cms[A].poll_transmit().unwrap();
    pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
    pair.request();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    pair.events(A);
    assert!(matches!(pair.events(B)[..], [(_, Event::Withdrawn)]));

    let [_, b] = pair.connected();
    pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
    pair.run();
    assert_eq!(pair.events(B), []);
    assert_eq!(pair.state(B, b), State::Established);
}

/// The caller ends the attempt before the acceptance arrives.
#[test]
fn a_late_acceptance() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose.push("A:REJ4");
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    assert_eq!(pair.events(A), [(a, Event::Disconnected), (a, Event::Released { qpn: QPN[A] })]);
    pair.accept(b, QPN[B]);
    pair.run();
    assert_eq!(pair.sent(), "A:REQ (A:REJ4) B:REP A:REJ6");
    assert_eq!(pair.events(B), [(b, Event::AcceptFailed)]);
    pair.pass_all();
    assert_eq!(pair.events(B), [(b, Event::Released { qpn: QPN[B] })]);
    assert!(pair.is_empty());
}

/// The caller is killed: no further message arrives.
#[test]
fn a_caller_that_vanishes() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 2).unwrap();
    let ids = [1, 2].map(|qpn| {
        pair.connect(qpn << 7);
        pair.run();
        pair.request().0
    });
    pair.cms[A] = Cm::new(Cfg::new(9), random(9));
    pair.accept(ids[1], QPN[B]);
    pair.lose = vec!["B:REP"; 16];
    pair.pass(Duration::from_secs(600));
    let mut events = pair.events(B);
    events.sort_by_key(|(id, _)| *id);
    let mut expected = vec![
        (ids[0], Event::Withdrawn),
        (ids[1], Event::AcceptFailed),
        (ids[1], Event::Released { qpn: QPN[B] }),
    ];
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(events, expected);
    assert!(pair.is_empty());
}

#[test]
fn a_rep_is_repeated_as_often_as_the_caller_asks() {
    let mut pair = Pair::new();
    pair.cms[A].cfg.max_cm_retries = 2;
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose = vec!["A:RTU"; 16];
    pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.pass_all();
    assert_eq!(pair.sent().matches("B:REP").count(), 3);
}

/// The RTUs are lost and the passive side gives up. The active side learns that there is no
/// connection.
#[test]
fn no_rtu_arrives() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose = vec!["A:RTU"; 16];
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.pass_all();
    let events = pair.events(A);
    assert!(matches!(&events[0], (id, Event::Accepted(_)) if *id == a));
    assert_eq!(events[1..], [(a, Event::Broken), (a, Event::Released { qpn: QPN[A] })]);
    assert_eq!(pair.events(B), [(b, Event::AcceptFailed), (b, Event::Released { qpn: QPN[B] })]);
    assert!(pair.is_empty());
}
