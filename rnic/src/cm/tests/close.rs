//! Tests of the ways in which connections end.

use wire::cm::{Dreq, Mad, Message};

use super::*;

const INTERVAL: Duration = Duration::from_millis(2 * 256 + 4096);
/// The time before the first repetition of a DREQ. It doubles with each repetition, up to
/// `INTERVAL`.
const FIRST_REPEAT: Duration = Duration::from_millis(16);
/// The number of repetitions that come after an interval shorter than `INTERVAL`, and the time
/// until the last of these repetitions.
const SHORT_REPEATS: u32 = 9;
const SHORT_REPEATS_TIME: Duration = Duration::from_millis(16 * ((1 << SHORT_REPEATS) - 1));
/// The duration that the encoded ACK timeout 17 in the call means.
const TIME_WAIT: Duration = Duration::from_millis(512);

#[test]
fn either_side_disconnects() {
    for side in [A, B] {
        let mut pair = Pair::new();
        let ids = pair.connected();
        pair.cms[side].disconnect(pair.now, ids[side], Ending::Graceful);
        assert_eq!(pair.events(side), []);
        pair.run();
        assert_eq!(pair.sent(), ["A:DREQ B:DREP", "B:DREQ A:DREP"][side]);
        for side in [A, B] {
            assert_eq!(pair.events(side), [(ids[side], Event::Disconnected)]);
            assert_eq!(pair.state(side, ids[side]), State::TimeWait);
            pair.cms[side].disconnect(pair.now, ids[side], Ending::Abrupt);
        }
        pair.pass(TIME_WAIT - Duration::from_nanos(1));
        assert_eq!([A, B].map(|side| pair.events(side)), [vec![], vec![]]);
        pair.pass(Duration::from_nanos(1));
        for side in [A, B] {
            assert_eq!(pair.events(side), [(ids[side], Event::Released { qpn: QPN[side] })]);
        }
        assert_eq!(pair.sent(), "");
        assert!(pair.is_empty());
    }
}

#[test]
fn both_disconnect_at_once() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    for side in [A, B] {
        pair.cms[side].disconnect(pair.now, ids[side], Ending::Graceful);
    }
    pair.run();
    assert_eq!(pair.sent(), "A:DREQ B:DREQ A:DREP B:DREP");
    for side in [A, B] {
        assert_eq!(pair.events(side), [(ids[side], Event::Disconnected)]);
    }
    pair.pass_all();
    assert!(pair.is_empty());
}

/// A side that has requests in flight answers a DREQ only when the requests have ended, even if the
/// peer repeats the DREQ earlier.
#[test]
fn a_dreq_is_answered_when_the_program_is_ready() {
    for side in [A, B] {
        let mut pair = Pair { busy: true, ..Pair::new() };
        let (ids, other) = (pair.connected(), 1 - side);
        pair.cms[side].disconnect(pair.now, ids[side], Ending::Graceful);
        pair.run();
        assert_eq!(pair.events(other), [(ids[other], Event::Disconnecting { broke: false })]);
        assert_eq!(pair.state(other, ids[other]), State::DreqRcvd);
        pair.pass(7 * FIRST_REPEAT);
        assert_eq!(
            pair.sent(),
            ["A:DREQ A:DREQ A:DREQ A:DREQ", "B:DREQ B:DREQ B:DREQ B:DREQ"][side]
        );
        assert_eq!([A, B].map(|side| pair.events(side)), [vec![], vec![]]);
        pair.cms[other].disconnect(pair.now, ids[other], Ending::Graceful);
        pair.run();
        assert_eq!(pair.sent(), ["B:DREP", "A:DREP"][side]);
        for side in [A, B] {
            assert_eq!(pair.events(side), [(ids[side], Event::Disconnected)]);
            assert_eq!(pair.state(side, ids[side]), State::TimeWait);
        }
    }
}

/// The program forgets the connection instead of answering the DREQ.
#[test]
fn a_dreq_is_answered_when_the_connection_is_forgotten() {
    let mut pair = Pair { busy: true, ..Pair::new() };
    let ids = pair.connected();
    pair.cms[A].disconnect(pair.now, ids[A], Ending::Graceful);
    pair.run();
    assert_eq!(pair.events(B), [(ids[B], Event::Disconnecting { broke: false })]);
    pair.cms[B].forget(pair.now, ids[B]);
    pair.run();
    assert_eq!(pair.sent(), "A:DREQ B:DREP");
    assert_eq!(pair.events(A), [(ids[A], Event::Disconnected)]);
    pair.pass(TIME_WAIT);
    assert_eq!(pair.events(B), [(ids[B], Event::Released { qpn: QPN[B] })]);
}

/// A connection breaks on one side. The program of the other side learns of this, even if the first
/// DREQ is lost.
#[test]
fn both_sides_report_that_a_connection_broke() {
    for side in [A, B] {
        for lost in [vec![], vec![["A:DREQ", "B:DREQ"][side]]] {
            let mut pair = Pair { busy: true, lose: lost, ..Pair::new() };
            let (ids, other) = (pair.connected(), 1 - side);
            pair.cms[side].break_off(pair.now, ids[side]);
            pair.pass(FIRST_REPEAT);
            assert_eq!(pair.events(other), [(ids[other], Event::Disconnecting { broke: true })]);
            assert_eq!(pair.events(side), []);
            pair.cms[other].forget(pair.now, ids[other]);
            pair.pass(TIME_WAIT);
            for side in [A, B] {
                assert_eq!(pair.events(side), [(ids[side], Event::Released { qpn: QPN[side] })]);
            }
        }
    }
}

#[test]
fn a_lost_dreq_or_drep() {
    for (lost, sent) in
        [("A:DREQ", "(A:DREQ) A:DREQ B:DREP"), ("B:DREP", "A:DREQ (B:DREP) A:DREQ B:DREP")]
    {
        let mut pair = Pair::new();
        let ids = pair.connected();
        pair.lose.push(lost);
        pair.cms[A].disconnect(pair.now, ids[A], Ending::Graceful);
        pair.pass(FIRST_REPEAT - Duration::from_nanos(1));
        assert_eq!(pair.events(A), []);
        pair.pass(Duration::from_nanos(1));
        assert_eq!(pair.events(A), [(ids[A], Event::Disconnected)]);
        // A DREQ is answered even if the connection is unknown.
        assert_eq!(pair.sent(), sent);
        assert_eq!(pair.events(B)[0], (ids[B], Event::Disconnected));
    }
}

#[test]
fn an_abrupt_end_is_reported_soon() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.lose = vec!["A:DREQ"; 5];
    pair.cms[A].disconnect(pair.now, ids[A], Ending::Graceful);
    pair.cms[A].disconnect(pair.now, ids[A], Ending::Abrupt);
    pair.pass(Duration::from_millis(249));
    assert_eq!(pair.events(A), []);
    pair.cms[A].disconnect(pair.now, ids[A], Ending::Abrupt);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.events(A), [(ids[A], Event::Disconnected)]);
    // The DREQ is still repeated, so the peer learns of the end.
    pair.pass_all();
    assert_eq!(pair.events(A), [(ids[A], Event::Released { qpn: QPN[A] })]);
    assert_eq!(pair.events(B)[0], (ids[B], Event::Disconnected));
    assert!(pair.is_empty());
}

/// An adapter that is being closed waits until its peers have learned of the end, or until a time
/// limit.
#[test]
fn an_end_that_the_peer_may_not_have_heard_of() {
    for forget in [false, true] {
        let mut pair = Pair::new();
        let ids = pair.connected();
        assert_eq!(pair.cms[A].disconnecting_until(), None);
        pair.lose.push("A:DREQ");
        match forget {
            false => pair.cms[A].disconnect(pair.now, ids[A], Ending::Abrupt),
            true => pair.cms[A].forget(pair.now, ids[A]),
        }
        assert_eq!(pair.cms[A].disconnecting_until(), Some(pair.now + Duration::from_millis(250)));
        pair.pass(FIRST_REPEAT);
        assert_eq!(
            (pair.cms[A].disconnecting_until(), pair.sent().as_str()),
            (None, "(A:DREQ) A:DREQ B:DREP")
        );
        assert_eq!(pair.events(B)[0], (ids[B], Event::Disconnected));
    }
    // The adapter does not wait for a peer that is gone.
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.lose = vec!["A:DREQ"; 9];
    pair.cms[A].forget(pair.now, ids[A]);
    pair.cms[A].peers_are_gone(pair.now, |_, id| id != ids[B]);
    assert!(
        pair.cms[A].disconnecting_until().is_some(),
        "the end of another peer must not end the wait"
    );
    pair.cms[A].peers_are_gone(pair.now, |_, id| id == ids[B]);
    assert_eq!(pair.cms[A].disconnecting_until(), None);
    // The adapter waits only for a limited time for a peer that does not answer.
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.lose = vec!["A:DREQ"; 9];
    pair.cms[A].forget(pair.now, ids[A]);
    pair.pass(Duration::from_millis(250));
    assert_eq!((pair.cms[A].disconnecting_until(), pair.lose.len()), (None, 9 - 5));
}

#[test]
fn a_peer_that_never_answers_a_dreq() {
    let mut pair = Pair::new();
    let ids = pair.connected();
    pair.lose = vec!["A:DREQ"; 1 + SHORT_REPEATS as usize + 15];
    pair.cms[A].disconnect(pair.now, ids[A], Ending::Graceful);
    pair.pass(SHORT_REPEATS_TIME + 16 * INTERVAL - Duration::from_nanos(1));
    assert_eq!((pair.events(A), &pair.lose[..]), (vec![], &[][..]));
    pair.pass(Duration::from_nanos(1));
    assert_eq!(pair.events(A), [(ids[A], Event::Disconnected)]);
    pair.pass(TIME_WAIT);
    assert_eq!(pair.events(A), [(ids[A], Event::Released { qpn: QPN[A] })]);
}

/// The DREQ arrives although the RTU has not arrived: the DREQ overtakes the RTU, or the RTU is
/// lost.
#[test]
fn a_dreq_stands_for_a_lost_rtu() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.lose.push("A:RTU");
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.run();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    assert_eq!(pair.events(B), [(b, Event::Established), (b, Event::Disconnected)]);
}

/// The passive side ends a connection that it has accepted, before it knows whether the acceptance
/// has arrived.
#[test]
fn an_accepted_connection_is_disconnected_before_the_rtu() {
    for (lost, sent, events) in [
        // An active side that waits for the REP needs the REJ. An active side that has received the
        // REP needs the DREQ.
        ("B:REP", "(B:REP) B:REJ28 B:DREQ A:DREP", Event::Rejected { private: padded(b"", 148) }),
        ("A:RTU", "B:REP (A:RTU) B:REJ28 B:DREQ A:DREP", Event::Disconnected),
    ] {
        let mut pair = Pair::new();
        pair.cms[B].listen(PORT, 1).unwrap();
        let a = pair.connect(QPN[A]);
        pair.run();
        let (b, _) = pair.request();
        pair.sent();
        pair.lose.push(lost);
        pair.accept(b, QPN[B]);
        pair.run();
        pair.cms[B].disconnect(pair.now, b, Ending::Graceful);
        assert_eq!(pair.events(B), [(b, Event::Disconnected)]);
        pair.run();
        assert_eq!(pair.sent(), sent);
        let events_a = pair.events(A);
        assert!(events_a.contains(&(a, events)), "{events_a:?}");
        pair.pass_all();
        assert_eq!(pair.events(B), [(b, Event::Released { qpn: QPN[B] })]);
        assert!(pair.is_empty());
    }
}

/// In every state, a forgotten connection ends: the peer learns of the end, and the program gets no
/// event of it.
#[test]
fn a_connection_is_forgotten() {
    // Forget an attempt to connect.
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 2).unwrap();
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.cms[A].forget(pair.now, a);
    pair.run();
    assert_eq!(pair.events(A), [(a, Event::Released { qpn: QPN[A] })]);
    assert_eq!(pair.events(B), [(b, Event::Withdrawn)]);

    pair.pass_all();

    // Forget a request, even one that the program has not seen.
    let a = pair.connect(QPN[A]);
    pair.run();
    let b = *pair.cms[B].conns.keys().next().unwrap();
    pair.cms[B].forget(pair.now, ConnId(b));
    pair.run();
    assert!(matches!(pair.events(A)[0], (id, Event::Rejected { .. }) if id == a));
    assert_eq!(pair.events(B), []);
    pair.pass_all();

    // Forget an established connection.
    for side in [A, B] {
        let ids = pair.connected();
        pair.cms[side].forget(pair.now, ids[side]);
        pair.cms[side].forget(pair.now, ids[side]);
        pair.run();
        assert_eq!(pair.events(1 - side), [(ids[1 - side], Event::Disconnected)]);
        pair.pass_all();
        assert_eq!(pair.events(side), [(ids[side], Event::Released { qpn: QPN[side] })]);
        assert!(pair.is_empty());
        pair.events(1 - side);
    }
}

/// A DREQ arrives for a connection that no longer exists, or never existed.
#[test]
fn the_end_of_an_unknown_connection() {
    let mut pair = Pair::new();
    let dreq = Message::Dreq(Dreq { local_id: 5, remote_id: 6, remote_qpn: 7, private: &[] });
    let mad = Mad { transaction: 8, message: dreq }.emit();
    pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
    let Transmit { from, to, mad } = pair.cms[B].poll_transmit().unwrap();
    assert_eq!((from, to), (address(B), address(A)));
    let Ok(Mad { transaction: 8, message: Message::Drep(drep) }) = Mad::parse(&mad) else {
        panic!()
    };
    assert_eq!((drep.local_id, drep.remote_id), (6, 5));
    assert!(pair.is_empty());
}

/// The active process died, and another process uses its queue pair number again. The connection
/// ends when the program reports that the peer does not answer over it.
#[test]
fn a_stale_connection() {
    let mut pair = Pair::new();
    let [old, b] = pair.connected();
    pair.cms[A].conns.remove(&old.0);
    pair.cms[A].by_peer_qp.clear();
    let a = pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.sent(), "A:REQ B:REJ10");
    assert_eq!(pair.events(B), [(b, Event::Stale)]);
    assert_eq!(pair.events(A)[0], (a, refused(Reason::STALE_CONNECTION)));
    assert_eq!(pair.state(B, b), State::Established);

    pair.cms[B].stale(pair.now, b);
    pair.run();
    assert_eq!(pair.sent(), "B:DREQ A:DREP");
    assert_eq!(pair.events(B), [(b, Event::Broken)]);
    // Now another attempt succeeds, even with the same queue pair.
    let a = pair.connect(QPN[A]);
    pair.run();
    let (id, _) = pair.request();
    pair.accept(id, QPN[B] + 0x80);
    pair.run();
    assert!(matches!(pair.events(A)[..], [(id, Event::Accepted(_))] if id == a));
}

/// The passive side accepts with a queue pair number that the active side believes to be connected.
#[test]
fn a_stale_acceptance() {
    let mut pair = Pair::new();
    let [old, gone] = pair.connected();
    pair.cms[B].conns.remove(&gone.0);
    pair.cms[B].by_request.clear();
    pair.cms[B].by_peer_qp.clear();
    let a = pair.connect(QPN[A] + 0x80);
    pair.run();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.run();
    assert_eq!(pair.events(A), [(old, Event::Stale)]);
    assert_eq!(pair.events(B), [(b, Event::AcceptFailed)]);
    assert_eq!(pair.state(A, a), State::ReqSent, "the caller must still wait for a REP");
    pair.cms[A].stale(pair.now, old);
    assert_eq!(pair.events(A), [(old, Event::Broken)]);
    pair.pass(5 * SECOND);
    assert_eq!(pair.events(A)[0].0, old, "the old connection must be released");
}

/// One side ends an attempt or a connection, and the message that reports the end (REJ or DREP) is
/// lost. Then it sends a REQ with the same queue pair number. Such a REQ may be forged, so the
/// other side refuses it until the old connection has ended by itself.
#[test]
fn a_queue_pair_that_is_used_again() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 2).unwrap();
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.lose.push("A:REJ4");
    pair.cms[A].forget(pair.now, a);
    let refused_call = pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(B), []);
    assert!(pair.events(A).contains(&(refused_call, refused(Reason::STALE_CONNECTION))));
    pair.pass(130 * SECOND);
    assert_eq!(pair.events(B), [(b, Event::Withdrawn)]);
    pair.connect(QPN[A]);
    pair.run();
    pair.request();

    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    pair.lose.push("A:DREP");
    pair.cms[B].disconnect(pair.now, b, Ending::Graceful);
    pair.run();
    assert_eq!(pair.events(A), [(a, Event::Disconnected)]);
    let refused_call = pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(B), []);
    assert!(pair.events(A).contains(&(refused_call, refused(Reason::STALE_CONNECTION))));
    // B repeats the DREQ, and A answers it.
    pair.pass(SECOND / 10);
    assert_eq!(pair.events(B), [(b, Event::Disconnected)]);
    pair.connect(QPN[A]);
    pair.run();
    pair.request();
}

/// Two connections use the same queue pair of the peer, one after the other. When the first one is
/// removed, the table must keep the entry of the second one.
#[test]
fn an_old_connection_does_not_hide_the_next_one_of_its_queue_pair() {
    let mut pair = Pair::new();
    let [a, _] = pair.connected();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    for side in [A, B] {
        pair.events(side);
    }
    let [a, b] = pair.connected();
    pair.pass(2 * TIME_WAIT);
    for side in [A, B] {
        pair.events(side);
    }
    pair.cms[A].conns.remove(&a.0);
    pair.cms[A].by_peer_qp.clear();
    pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(B), [(b, Event::Stale)]);
}

#[test]
fn a_late_req_in_time_wait() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    let req = pair.cms[A].poll_transmit().unwrap();
    pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    pair.run();
    pair.cms[A].disconnect(pair.now, a, Ending::Graceful);
    pair.run();
    assert_eq!(pair.state(B, b), State::TimeWait);
    pair.sent();
    pair.events(B);
    pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
    pair.run();
    assert_eq!(pair.sent(), "B:REJ10");
    assert_eq!(pair.events(B), []);
    assert_eq!(
        pair.state(A, a),
        State::TimeWait,
        "the caller ignores a REJ that it does not wait for"
    );
}
