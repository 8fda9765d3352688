//! Requests that arrive at B and are answered by C, a second manager of the same address.

use super::forged::forge;
use super::*;

impl Pair {
    /// Moves a request from B to C.
    fn hand_over(&mut self, id: ConnId) -> ConnId {
        let handed_over = self.cms[B].hand_over(self.now, id).expect("an undecided request");
        self.cms[C].adopt(handed_over).expect("the peer has no other connection with C")
    }

    /// Makes A call B, and moves the request to C. Returns the IDs at A and C.
    fn handed_over(&mut self) -> [ConnId; 2] {
        if self.cms[B].listeners.is_empty() {
            self.cms[B].listen(PORT, 1).unwrap();
        }
        let a = self.connect(QPN[A]);
        self.run();
        let (b, _) = self.request();
        [a, self.hand_over(b)]
    }

    fn accept_at_c(&mut self, id: ConnId) {
        self.cms[C].accept(self.now, id, &accept()).unwrap();
    }
}

#[test]
fn a_request_is_accepted_by_another_manager() {
    for (lost, sent) in [
        ("", "A:REQ C:REP A:RTU"),
        ("C:REP", "A:REQ (C:REP) A:REQ C:REP A:RTU"),
        ("A:RTU", "A:REQ C:REP (A:RTU) C:REP A:RTU"),
    ] {
        let mut pair = Pair::new();
        pair.lose.extend((!lost.is_empty()).then_some(lost));
        let [a, c] = pair.handed_over();
        assert_eq!(c.0 & 0x7F, 3, "the ID has the low bits of C");
        assert!(pair.cms[B].has_open_requests(PORT));
        pair.accept_at_c(c);
        pair.pass(6 * SECOND);
        assert_eq!(pair.sent(), sent);
        assert!(matches!(pair.events(A)[..], [(id, Event::Accepted(_))] if id == a));
        assert_eq!((pair.events(B), pair.events(C)), (vec![], vec![(c, Event::Established)]));
        assert!(!pair.cms[B].has_open_requests(PORT));
        assert_eq!(pair.deadline(), None);

        pair.cms[C].disconnect(pair.now, c, Ending::Graceful);
        pair.run();
        assert_eq!(pair.sent(), "C:DREQ A:DREP");
        pair.pass_all();
        assert!(pair.is_empty());
    }
}

/// The caller has no answer and repeats its REQ. The repetition has the effect that it would have
/// at B.
#[test]
fn repeated_requests_reach_the_other_manager() {
    // The program has not decided yet.
    let mut pair = Pair::new();
    let [a, c] = pair.handed_over();
    pair.pass(5 * SECOND);
    assert_eq!(pair.sent(), "A:REQ A:REQ C:MRA");
    pair.accept_at_c(c);
    pair.run();
    assert!(matches!(pair.events(A)[..], [(id, Event::Accepted(_))] if id == a));

    // The REJ is lost.
    let mut pair = Pair::new();
    let [a, c] = pair.handed_over();
    pair.lose.push("C:REJ28");
    pair.cms[C].reject(pair.now, c, Reason::CONSUMER, b"no").unwrap();
    pair.pass_all();
    assert_eq!(pair.sent(), "A:REQ (C:REJ28) A:REQ C:REJ28");
    assert!(matches!(pair.events(A)[..], [(id, Event::Rejected { .. }), _] if id == a));
    assert!(pair.is_empty());

    // The REP is lost, and the program disconnects.
    let mut pair = Pair::new();
    let [a, c] = pair.handed_over();
    pair.lose.extend(["C:REP", "C:REJ28"]);
    pair.lose.extend(["C:DREQ"; 10]);
    pair.accept_at_c(c);
    pair.cms[C].disconnect(pair.now, c, Ending::Graceful);
    pair.pass(5 * SECOND);
    assert!(matches!(pair.events(A)[..], [(id, Event::Rejected { .. }), _] if id == a));
    pair.pass_all();
    assert!(pair.is_empty());
}

/// A caller that gives up before it has an answer knows no ID of this side, so its REJ arrives at
/// B. The caller refuses the REP.
#[test]
fn a_caller_gives_up() {
    let mut pair = Pair::new();
    let [a, c] = pair.handed_over();
    pair.cms[A].disconnect(pair.now, a, Ending::Abrupt);
    pair.run();
    assert_eq!(pair.sent(), "A:REQ A:REJ4");
    pair.accept_at_c(c);
    pair.pass_all();
    assert_eq!(pair.sent(), "C:REP A:REJ6");
    let released = Event::Released { qpn: QPN[B] };
    assert_eq!(pair.events(C), [(c, Event::AcceptFailed), (c, released)]);
    assert!(pair.is_empty());
}

/// A request that nobody adopts is as if it had never arrived: the next REQ is a new request.
#[test]
fn a_dropped_request_arrives_again() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    assert!(pair.cms[B].hand_over(pair.now, b).is_some());
    assert!(pair.cms[B].hand_over(pair.now, b).is_none(), "the request is handed over only once");
    pair.pass(5 * SECOND);
    let (again, _) = pair.request();
    pair.accept(again, QPN[B]);
    pair.run();
    assert_eq!(pair.events(B), [(again, Event::Established)]);
}

#[test]
fn only_undecided_requests_are_handed_over() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    assert!(pair.cms[A].hand_over(pair.now, a).is_none());
    assert!(pair.cms[B].hand_over(pair.now, b).is_none());
}

/// C is already connected to the caller's queue pair, so the caller is refused.
#[test]
fn a_queue_pair_in_use_is_refused() {
    let mut pair = Pair::new();
    let [_, first] = pair.handed_over();
    pair.accept_at_c(first);
    pair.run();
    pair.events(A);
    pair.events(C);
    let again = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    let handed_over = pair.cms[B].hand_over(pair.now, b).unwrap();
    assert_eq!(pair.cms[C].adopt(handed_over), None);
    pair.run();
    assert_eq!(pair.events(A)[0], (again, refused(Reason::STALE_CONNECTION)));
    assert_eq!(pair.events(C), [(first, Event::Stale)]);
}

/// A place in the backlog is free as soon as the request is handed over.
#[test]
fn the_backlog_has_room_after_each_hand_over() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    for n in 0..10 {
        pair.connect(n << 7 | 1);
        pair.run();
        let (b, _) = pair.request();
        let c = pair.hand_over(b);
        pair.cms[C].accept(pair.now, c, &Accept { qpn: n << 7 | 2, ..accept() }).unwrap();
    }
    pair.run();
    assert_eq!(pair.events(C).len(), 10);
}

/// B admits no more callers of one address than may wait for their RTU, although C answers them.
/// The deferred callers are admitted when the acceptances of C are established.
#[test]
fn acceptances_of_the_other_manager_count() {
    const CALLS: u32 = 3 * half_open::MAX_PER_SOURCE as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, CALLS as usize).unwrap();
    let accept_requests = |pair: &mut Pair| {
        for (id, event) in pair.events(B) {
            let Event::Request(request) = event else { panic!("{event:?}") };
            let c = pair.hand_over(id);
            let accept = Accept { qpn: request.qpn + 1, ..accept() };
            pair.cms[C].accept(pair.now, c, &accept).unwrap();
        }
    };
    pair.lose = vec!["A:RTU"; half_open::MAX_PER_SOURCE];
    for n in 0..CALLS {
        pair.connect(n << 7 | 1);
        pair.run();
        accept_requests(&mut pair);
        pair.run();
    }
    assert_eq!(pair.cms[C].len(), half_open::MAX_PER_SOURCE);
    let before = pair.now;
    while pair.cms[C].len() < CALLS as usize {
        let due = pair.deadline().expect("callers wait");
        pair.pass(due.saturating_duration_since(pair.now));
        accept_requests(&mut pair);
        pair.run();
    }
    assert!(pair.now < before + SECOND, "{:?}", pair.now - before);
    // The REP of the first acceptance is repeated after the caller's usual interval.
    pair.pass(5 * SECOND);
    let up = pair.cms[C].conns.values().filter(|conn| conn.state == State::Established);
    assert_eq!(up.count(), CALLS as usize);
    assert!(pair.cms.iter().all(|cm| cm.half_open.is_empty()));
}

/// Callers that never answer leave no state behind, at whichever manager.
#[test]
fn callers_that_never_answer_leave_nothing() {
    const ROUNDS: u32 = if cfg!(miri) { 100 } else { 5000 };
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 16).unwrap();
    let mut most = 0;
    for n in 0..ROUNDS {
        let source = IpAddr::from([10, 1, (n >> 6) as u8, n as u8]);
        forge(&mut pair.cms[B], n, source, pair.now);
        // Each REQ comes again.
        forge(&mut pair.cms[B], n, source, pair.now);
        for (id, event) in pair.events(B) {
            assert!(matches!(event, Event::Request(_)), "{event:?}");
            match n % 8 {
                0 => drop(pair.cms[B].hand_over(pair.now, id)),
                1 => _ = pair.hand_over(id),
                2 => {
                    let c = pair.hand_over(id);
                    pair.cms[C].reject(pair.now, c, Reason::CONSUMER, &[]).unwrap();
                }
                _ => {
                    let c = pair.hand_over(id);
                    let accept = Accept { qpn: c.0 & 0xFF_FFFF, ..accept() };
                    pair.cms[C].accept(pair.now, c, &accept).unwrap();
                }
            }
        }
        pair.now += Duration::from_millis(2);
        for cm in [B, C] {
            pair.cms[cm].expire(pair.now);
            while pair.cms[cm].poll_transmit().is_some() {}
        }
        pair.events(C);
        let records = pair.cms[B].records.len();
        assert!(records <= 2 * pair.cms[C].len() + 128, "{records} {}", pair.cms[C].len());
        most = most.max(records);
    }
    assert!(most > 64 || cfg!(miri), "{most}");
    while let Some(due) = [B, C].into_iter().filter_map(|cm| pair.cms[cm].deadline()).min() {
        pair.now = pair.now.max(due);
        for cm in [B, C] {
            pair.cms[cm].expire(pair.now);
            while pair.cms[cm].poll_transmit().is_some() {}
        }
    }
    assert!(pair.is_empty());
}
