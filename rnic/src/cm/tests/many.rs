//! A thousand connections: each message and timer costs what it does with one.

use super::*;

const CONNECTIONS: u32 = if cfg!(miri) { 20 } else { 1000 };

#[test]
fn a_thousand_connections() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, CONNECTIONS as usize).unwrap();
    let mut ids = vec![];
    for at in 0..CONNECTIONS {
        ids.push(pair.connect(at << 7 | 1));
    }
    pair.run();
    let requests = pair.told(B);
    assert_eq!(requests.len(), ids.len());
    for (at, (id, _)) in (0..).zip(&requests) {
        pair.accept(*id, at << 7 | 2);
    }
    pair.run();
    assert_eq!(pair.told(A).len(), ids.len());
    assert_eq!(pair.told(B).len(), ids.len());
    assert_eq!(pair.deadline(), None);
    for cm in &pair.cms {
        assert!(
            cm.conns.values().all(|conn| conn.state == State::Established && conn.kept.is_none())
        );
    }

    for &id in &ids {
        pair.cms[A].disconnect(pair.now, id, Ending::Graceful);
    }
    pair.pass_all();
    assert_eq!(pair.told(A).len(), 2 * ids.len());
    assert_eq!(pair.told(B).len(), 2 * ids.len());
    assert!(pair.is_empty());
}

/// A host calls many times at once, more than may wait for their RTU: all are connected soon, in the
/// order in which they called, and none of them has to call again.
#[test]
fn callers_in_line_need_not_call_again() {
    const CALLS: u32 = (half_open::MOST_PER_SOURCE + half_open::MOST_IN_LINE) as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, CALLS as usize).unwrap();
    // The first ones are accepted, and their RTUs are lost, before the others call.
    let first = half_open::MOST_PER_SOURCE as u32;
    let mut told = vec![];
    pair.lose = vec!["A:RTU"; first as usize];
    for n in 0..first {
        pair.connect(n << 7 | 1);
        pair.run();
        let (id, request) = pair.request();
        pair.accept(id, request.qpn + 1);
        pair.run();
        told.push(request.qpn);
    }
    for n in first..CALLS {
        pair.connect(n << 7 | 1);
    }
    pair.run();
    assert_eq!((pair.told(B).len(), pair.cms[B].half_open.in_line()), (0, half_open::MOST_IN_LINE));
    // The REPs come again, and are answered: one after the other, those in line take their places.
    let before = pair.now;
    pair.now = pair.cms[B].deadline().unwrap();
    while told.len() < CALLS as usize {
        pair.cms[B].expire(pair.now);
        pair.run();
        for (id, event) in pair.told(B) {
            if let Event::Request(request) = event {
                pair.accept(id, request.qpn + 1);
                told.push(request.qpn);
            }
        }
        pair.run();
        if pair.cms[B].half_open.in_line() > 0 {
            pair.now = pair.cms[B].deadline().unwrap_or(pair.now);
        }
    }
    assert!(pair.now < before + SECOND / 2, "{:?}", pair.now - before);
    assert_eq!(told, (0..CALLS).map(|n| n << 7 | 1).collect::<Vec<_>>());
    assert_eq!(pair.log.iter().filter(|sent| *sent == "A:REQ").count(), CALLS as usize);
    pair.pass(20 * SECOND);
    let up = pair.cms[B].conns.values().filter(|conn| conn.state == State::Established);
    assert_eq!(up.count(), CALLS as usize);
    assert!(pair.cms[B].half_open.is_empty());
}

/// The line of an address has a bound, and all lines together have one.
#[test]
fn lines_have_an_end() {
    let now = Instant::now();
    let mut half_open = half_open::HalfOpen::default();
    let key = |source: u8, n: usize| (IpAddr::from([10, 0, 0, source]), 7, n as u32);
    let stand = |half_open: &mut half_open::HalfOpen, source, n| {
        half_open.stand_in_line(key(source, n), address(B), now, || [0; 256]);
        half_open.in_line()
    };
    // No acceptance waits that could make room.
    assert_eq!(stand(&mut half_open, 1, 0), 0);
    for source in 1..=3 {
        half_open.enter([10, 0, 0, source].into(), source.into(), now);
    }
    for n in 0..2 * half_open::MOST_IN_LINE {
        assert_eq!(stand(&mut half_open, 1, n), half_open::MOST_IN_LINE.min(n + 1));
    }
    // Who is in line already has but one place.
    assert_eq!(stand(&mut half_open, 1, 2 * half_open::MOST_IN_LINE - 1), half_open::MOST_IN_LINE);
    for n in 0..half_open::MOST_IN_LINE {
        stand(&mut half_open, 2, n);
    }
    assert_eq!(stand(&mut half_open, 3, 0), half_open::MOST_IN_ALL_LINES);
    assert!(half_open.next_in_line([10, 0, 0, 3].into(), now).is_none());
    let next = half_open.next_in_line([10, 0, 0, 2].into(), now).map(|standing| standing.request());
    assert_eq!(next, Some(key(2, 0)));
    // The latest have taken the places of the first.
    let next = half_open.next_in_line([10, 0, 0, 1].into(), now).map(|standing| standing.request());
    assert_eq!(next, Some(key(1, half_open::MOST_IN_LINE)));
    // Whoever has not repeated its REQ for long has given up.
    half_open.leave_line(&key(2, 1));
    let later = now + half_open::FORGOTTEN_AFTER;
    half_open.stand_in_line(key(2, 9), address(B), later, || [0; 256]);
    let next =
        half_open.next_in_line([10, 0, 0, 2].into(), later).map(|standing| standing.request());
    assert_eq!(next, Some(key(2, 9)));
    for source in 1..=3 {
        half_open.leave([10, 0, 0, source].into(), source.into());
        while half_open.next_in_line([10, 0, 0, source].into(), now).is_some() {}
    }
    assert!(half_open.is_empty());
}

/// Octets that an established connection takes, without the tables that name it.
#[test]
fn a_connection_is_small() {
    let size = size_of::<conn::Conn>();
    assert!(size <= 256, "{size}");
}
