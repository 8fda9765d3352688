//! With a thousand connections, each message and timer costs as much as with one connection.

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
    let requests = pair.events(B);
    assert_eq!(requests.len(), ids.len());
    for (at, (id, _)) in (0..).zip(&requests) {
        pair.accept(*id, at << 7 | 2);
    }
    pair.run();
    assert_eq!(pair.events(A).len(), ids.len());
    assert_eq!(pair.events(B).len(), ids.len());
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
    assert_eq!(pair.events(A).len(), 2 * ids.len());
    assert_eq!(pair.events(B).len(), 2 * ids.len());
    assert!(pair.is_empty());
}

/// A host makes more calls at once than acceptances may wait for their RTU. All calls are connected
/// soon, in their order, and no REQ has to be repeated.
#[test]
fn deferred_callers_need_not_call_again() {
    const CALLS: u32 = (half_open::MAX_PER_SOURCE + half_open::MAX_DEFERRED_PER_SOURCE) as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, CALLS as usize).unwrap();
    // The first calls are accepted, and their RTUs are lost, before the other calls arrive.
    let first = half_open::MAX_PER_SOURCE as u32;
    let mut accepted = vec![];
    pair.lose = vec!["A:RTU"; first as usize];
    for n in 0..first {
        pair.connect(n << 7 | 1);
        pair.run();
        let (id, request) = pair.request();
        pair.accept(id, request.qpn + 1);
        pair.run();
        accepted.push(request.qpn);
    }
    for n in first..CALLS {
        pair.connect(n << 7 | 1);
    }
    pair.run();
    assert_eq!(
        (pair.events(B).len(), pair.cms[B].half_open.deferred_count()),
        (0, half_open::MAX_DEFERRED_PER_SOURCE)
    );
    // The REPs are repeated and answered, and the deferred REQs are admitted one after the other.
    let before = pair.now;
    pair.now = pair.cms[B].deadline().unwrap();
    while accepted.len() < CALLS as usize {
        pair.cms[B].expire(pair.now);
        pair.run();
        for (id, event) in pair.events(B) {
            if let Event::Request(request) = event {
                pair.accept(id, request.qpn + 1);
                accepted.push(request.qpn);
            }
        }
        pair.run();
        if pair.cms[B].half_open.deferred_count() > 0 {
            pair.now = pair.cms[B].deadline().unwrap_or(pair.now);
        }
    }
    assert!(pair.now < before + SECOND / 2, "{:?}", pair.now - before);
    assert_eq!(accepted, (0..CALLS).map(|n| n << 7 | 1).collect::<Vec<_>>());
    assert_eq!(pair.log.iter().filter(|sent| *sent == "A:REQ").count(), CALLS as usize);
    pair.pass(20 * SECOND);
    let up = pair.cms[B].conns.values().filter(|conn| conn.state == State::Established);
    assert_eq!(up.count(), CALLS as usize);
    assert!(pair.cms[B].half_open.is_empty());
}

/// The number of deferred REQs is limited for each address and in all.
#[test]
fn deferred_requests_have_a_bound() {
    let now = Instant::now();
    let mut half_open = half_open::HalfOpen::default();
    let key = |source: u8, n: usize| (IpAddr::from([10, 0, 0, source]), 7, n as u32);
    let defer = |half_open: &mut half_open::HalfOpen, source, n| {
        half_open.defer(key(source, n), address(B), now, || [0; 256]);
        half_open.deferred_count()
    };
    // If no acceptance waits, no REQ is deferred, because no event would admit it later.
    assert_eq!(defer(&mut half_open, 1, 0), 0);
    for source in 1..=3 {
        half_open.insert([10, 0, 0, source].into(), source.into(), now);
    }
    for n in 0..2 * half_open::MAX_DEFERRED_PER_SOURCE {
        assert_eq!(defer(&mut half_open, 1, n), half_open::MAX_DEFERRED_PER_SOURCE.min(n + 1));
    }
    // A deferred REQ that is repeated is not deferred twice.
    assert_eq!(
        defer(&mut half_open, 1, 2 * half_open::MAX_DEFERRED_PER_SOURCE - 1),
        half_open::MAX_DEFERRED_PER_SOURCE
    );
    for n in 0..half_open::MAX_DEFERRED_PER_SOURCE {
        defer(&mut half_open, 2, n);
    }
    assert_eq!(defer(&mut half_open, 3, 0), half_open::MAX_DEFERRED);
    assert!(half_open.next_deferred([10, 0, 0, 3].into(), now).is_none());
    let next =
        half_open.next_deferred([10, 0, 0, 2].into(), now).map(|deferred| deferred.request());
    assert_eq!(next, Some(key(2, 0)));
    // The latest REQs have replaced the oldest.
    let next =
        half_open.next_deferred([10, 0, 0, 1].into(), now).map(|deferred| deferred.request());
    assert_eq!(next, Some(key(1, half_open::MAX_DEFERRED_PER_SOURCE)));
    // A deferred REQ is dropped if its sender has not repeated it for a long time.
    half_open.drop_deferred(&key(2, 1));
    let later = now + half_open::DEFERRED_LIFETIME;
    half_open.defer(key(2, 9), address(B), later, || [0; 256]);
    let next =
        half_open.next_deferred([10, 0, 0, 2].into(), later).map(|deferred| deferred.request());
    assert_eq!(next, Some(key(2, 9)));
    for source in 1..=3 {
        half_open.remove([10, 0, 0, source].into(), source.into());
        while half_open.next_deferred([10, 0, 0, source].into(), now).is_some() {}
    }
    assert!(half_open.is_empty());
}

/// Limits the size of an established connection. Its entries in the tables do not count.
#[test]
fn a_connection_is_small() {
    let size = size_of::<connection::Conn>();
    assert!(size <= 256, "{size}");
}
