//! Connection setup without losses.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use wire::cm::{Mad, Message, Path, Req, ServiceId, Timeout};

use super::*;

#[test]
fn a_call_is_accepted() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, request) = pair.request();
    let expected = IncomingRequest {
        from: call().local,
        to: call().remote,
        qpn: QPN[A],
        starting_psn: Psn::new(0x11_1111),
        path_mtu: PathMtu::Octets1024,
        responder_resources: 3,
        initiator_depth: 4,
        ack_timeout: Timeout::new(17),
        retry_count: 7,
        rnr_retry_count: 6,
        srq: true,
        private: padded(b"call", 56),
    };
    assert_eq!(request, expected);
    pair.accept(b, QPN[B]);
    pair.run();
    let expected = Accepted {
        qpn: QPN[B],
        starting_psn: Psn::new(0x22_2222),
        responder_resources: 4,
        initiator_depth: 3,
        target_ack_delay: Timeout::new(15),
        rnr_retry_count: 5,
        srq: false,
        private: padded(b"accept", 196),
    };
    assert_eq!(pair.events(A), [(a, Event::Accepted(Box::new(expected)))]);
    assert_eq!(pair.events(B), [(b, Event::Established)]);
    assert_eq!(pair.sent(), "A:REQ B:REP A:RTU");
    assert_eq!([a.0 & 0x7F, b.0 & 0x7F], [1, 2], "the IDs must name the slots");
    assert_eq!(pair.deadline(), None, "an idle connection needs no timer");
}

#[test]
fn ipv6() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let (from, to) =
        ("[fd00::1]:1".parse().unwrap(), SocketAddr::new("fd00::2".parse().unwrap(), PORT));
    pair.connect_with(|call| (call.local, call.remote) = (from, to));
    pair.run();
    let (b, request) = pair.request();
    assert_eq!((request.from, request.to), (from, to));
    pair.accept(b, QPN[B]);
    pair.run();
    assert_eq!(pair.events(B), [(b, Event::Established)]);
}

/// A process calls itself. Both ends of the connection are in the same tables.
#[test]
fn a_call_to_oneself() {
    let mut pair = Pair::new();
    let (now, own) = (pair.now, address(A));
    let cm = &mut pair.cms[A];
    cm.listen(PORT, 1).unwrap();
    let a = cm.connect(now, &Connect { remote: SocketAddr::new(own, PORT), ..call() }).unwrap();
    let deliver = |cm: &mut Cm| {
        while let Some(Transmit { from, to, mad }) = cm.poll_transmit() {
            cm.receive(now, from, to, &mad).unwrap();
        }
        std::iter::from_fn(|| cm.poll_event()).collect::<Vec<_>>()
    };
    let [(b, Event::Request(_))] = deliver(cm)[..] else { panic!() };
    cm.accept(now, b, &accept()).unwrap();
    let events = deliver(cm);
    assert!(matches!(
        &events[..],
        [(x, Event::Accepted(_)), (y, Event::Established)] if (*x, *y) == (a, b)
    ));
    cm.disconnect(now, b, Ending::Graceful);
    assert_eq!(deliver(cm), [(a, Event::Disconnecting { broke: false })]);
    cm.disconnect(now, a, Ending::Graceful);
    assert_eq!(deliver(cm), [(a, Event::Disconnected), (b, Event::Disconnected)]);
    cm.expire(now + 2 * SECOND);
    let mut released = deliver(cm);
    released.sort_by_key(|&(id, _)| id != a);
    assert_eq!(
        released,
        [(a, Event::Released { qpn: QPN[A] }), (b, Event::Released { qpn: QPN[B] })]
    );
    assert!(pair.is_empty());
}

#[test]
fn the_program_rejects() {
    for prefix in [true, false] {
        let mut pair = Pair::new();
        pair.cms[B].cfg.ofed_reject_prefix = prefix;
        pair.cms[B].listen(PORT, 1).unwrap();
        let a = pair.connect(QPN[A]);
        pair.run();
        let (b, _) = pair.request();
        let now = pair.now;
        pair.cms[B].reject(now, b, Reason::CONSUMER, b"no").unwrap();
        let Some(rej) = pair.cms[B].poll_transmit() else { panic!() };
        let Ok(Mad { message: Message::Rej(rej), .. }) = Mad::parse(&rej.mad) else { panic!() };
        assert_eq!(rej.private.starts_with(b"\x02\x00\x02\x00no\0"), prefix);
        assert_eq!(rej.private.starts_with(b"no\0"), !prefix);

        // The REJ was lost, so the peer repeats its REQ.
        pair.pass(5 * SECOND);
        let private = padded(b"no", if prefix { 144 } else { 148 });
        assert_eq!(
            pair.events(A),
            [(a, Event::Rejected { private }), (a, Event::Released { qpn: QPN[A] })]
        );
        assert_eq!(pair.events(B), []);
        assert_eq!(pair.sent(), "A:REQ A:REQ B:REJ28");
        pair.pass_all();
        assert!(pair.is_empty());
        assert_eq!(pair.events(B), []);
    }
}

#[test]
fn a_rejection_with_another_reason_has_no_prefix() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect(QPN[A]);
    pair.run();
    let (b, _) = pair.request();
    pair.cms[B].reject(pair.now, b, Reason::NO_RESOURCES, &[]).unwrap();
    let rej = pair.cms[B].poll_transmit().unwrap();
    let Ok(Mad { message: Message::Rej(sent), .. }) = Mad::parse(&rej.mad) else { panic!() };
    assert_eq!(sent.private, [0; 148]);
    pair.cms[A].receive(pair.now, rej.from, rej.to, &rej.mad).unwrap();
    assert_eq!(pair.events(A)[0], (a, refused(Reason::NO_RESOURCES)));
}

#[test]
fn nobody_listens() {
    let mut pair = Pair::new();
    let a = pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(A)[0], (a, refused(Reason::INVALID_SERVICE_ID)));
    assert_eq!(pair.sent(), "A:REQ B:REJ8");
    assert!(pair.is_empty());

    pair.cms[B].listen(PORT, 1).unwrap();
    pair.cms[B].unlisten(PORT);
    let a = pair.connect(QPN[A]);
    pair.run();
    assert_eq!(pair.events(A)[0], (a, refused(Reason::INVALID_SERVICE_ID)));
}

#[test]
fn a_path_mtu_that_is_too_large() {
    let mut pair = Pair::new();
    pair.cms[B].cfg.path_mtu = PathMtu::Octets1024;
    pair.cms[B].listen(PORT, 1).unwrap();
    let a = pair.connect_with(|call| call.path_mtu = PathMtu::Octets2048);
    pair.run();
    let refused =
        Event::Refused { reason: Reason::INVALID_MTU, path_mtu: Some(PathMtu::Octets1024) };
    assert_eq!(pair.events(A)[0], (a, refused));
    let told = Event::PathMtuRefused {
        from: address(A),
        proposed: Some(PathMtu::Octets2048),
        largest: PathMtu::Octets1024,
    };
    assert_eq!(pair.events(B), [(ConnId(0), told)]);
    assert!(pair.is_empty());
}

/// The path to the caller carries less than the interface. The caller learns how much. The limit is
/// looked up only for a request that would be admitted otherwise.
#[test]
fn a_path_mtu_that_is_too_large_for_the_path() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let mut pair = Pair::new();
    let counter = Arc::clone(&lookups);
    let path_limit = move |caller, _now| {
        assert_eq!(caller, address(A));
        counter.fetch_add(1, Relaxed);
        Some(PathMtu::Octets512)
    };
    let [a, b, c] = pair.cms;
    pair.cms = [a, b.with_path_limit(Box::new(path_limit)), c];
    pair.cms[B].cfg.path_mtu = PathMtu::Octets1024;
    pair.connect_with(|call| call.path_mtu = PathMtu::Octets512);
    pair.run();
    pair.events(A);
    pair.cms[B].listen(PORT, 1).unwrap();
    for (proposed, takes) in [
        (PathMtu::Octets2048, Some(PathMtu::Octets1024)),
        (PathMtu::Octets1024, Some(PathMtu::Octets512)),
        (PathMtu::Octets512, None),
    ] {
        assert_eq!(lookups.swap(0, Relaxed), 0);
        pair.connect_with(|call| call.path_mtu = proposed);
        pair.run();
        let events = [A, B].map(|side| pair.events(side));
        match takes {
            Some(largest) => {
                let refused = Event::Refused { reason: Reason::INVALID_MTU, path_mtu: takes };
                assert_eq!(events[A][0].1, refused);
                let from = address(A);
                let told = Event::PathMtuRefused { from, proposed: Some(proposed), largest };
                assert_eq!(events[B], [(ConnId(0), told)]);
            }
            None => assert!(matches!(&events[B][..], [(_, Event::Request(_))])),
        }
        let expected = usize::from(proposed <= PathMtu::Octets1024);
        assert_eq!(lookups.swap(0, Relaxed), expected);
    }
}

#[test]
fn a_request_proposes_the_traffic_class() {
    let mut pair = Pair::new();
    pair.cms[A].cfg.traffic_class = 46 << 2;
    pair.connect(QPN[A]);
    let sent = pair.cms[A].poll_transmit().unwrap();
    match Mad::parse(&sent.mad).unwrap().message {
        Message::Req(req) => assert_eq!(req.primary.traffic_class, 184),
        other => panic!("{other:?}"),
    }
}

/// Packets between two processes at one address do not go through the interface, so its MTU does
/// not limit them.
#[test]
fn a_path_mtu_that_is_too_large_for_other_addresses() {
    let mut pair = Pair::new();
    pair.cms[B].cfg.path_mtu = PathMtu::Octets1024;
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect_with(|call| {
        call.path_mtu = PathMtu::Octets4096;
        call.remote.set_ip(call.local.ip());
    });
    pair.run();
    assert_eq!(pair.request().1.path_mtu, PathMtu::Octets4096);
}

#[test]
fn a_full_backlog() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 2).unwrap();
    let calls = [1, 2, 3].map(|qpn| pair.connect(qpn << 7));
    pair.run();
    let requests = pair.events(B);
    assert_eq!(requests.len(), 2);
    assert_eq!(pair.events(A)[0], (calls[2], refused(Reason::NO_RESOURCES)));
    // Both an acceptance and a rejection make room in the backlog.
    pair.accept(requests[0].0, QPN[B]);
    pair.cms[B].reject(pair.now, requests[1].0, Reason::CONSUMER, &[]).unwrap();
    for qpn in [4, 5] {
        pair.connect(qpn << 7);
        pair.run();
    }
    assert_eq!(
        pair.events(B).iter().filter(|(_, event)| matches!(event, Event::Request(_))).count(),
        2
    );
}

/// A listener is removed, and its requests remain. They do not occupy the backlog of the port's
/// next listener.
#[test]
fn a_port_is_listened_to_again() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    assert_eq!(pair.cms[B].listen(PORT, 1), Err(CmError::PortInUse(PORT)));
    let a = pair.connect(QPN[A]);
    pair.run();
    let (old, _) = pair.request();
    pair.cms[B].unlisten(PORT);
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect(QPN[A] + 0x80);
    pair.run();
    let (new, _) = pair.request();
    pair.accept(old, QPN[B]);
    assert_eq!(pair.cms[B].listeners[&PORT].pending, 1);
    pair.accept(new, QPN[B] + 0x80);
    assert_eq!(pair.cms[B].listeners[&PORT].pending, 0);
    pair.run();
    assert!(matches!(&pair.events(A)[0], (id, Event::Accepted(_)) if *id == a));
}

/// In each of the REQs, one checked field is wrong and all others are right.
#[test]
fn invalid_requests_are_refused() {
    type Change = fn(&mut Req<'_>);
    let cases: [(Change, Reason); 10] = [
        (|req| req.local_id = 0, Reason::INVALID_COMM_ID),
        (|req| req.transport = 1, Reason::INVALID_TRANSPORT),
        (|req| req.primary.local_gid = "::ffff:10.0.0.3".parse().unwrap(), Reason::INVALID_GID),
        (|req| req.primary.remote_gid = "fd00::1".parse().unwrap(), Reason::INVALID_GID),
        (|req| req.p_key = 0x8001, Reason::INVALID_GID),
        (|req| req.service = ServiceId(0x0111_0000 | u64::from(PORT)), Reason::INVALID_SERVICE_ID),
        (|req| req.private = &[1; 92], Reason::UNSUPPORTED),
        (|req| req.private = &[0; 92], Reason::UNSUPPORTED),
        (|req| req.path_mtu = 0, Reason::INVALID_MTU),
        (|req| req.path_mtu = 6, Reason::INVALID_MTU),
    ];
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect(QPN[A]);
    let good = pair.cms[A].poll_transmit().unwrap();
    let Ok(Mad { transaction, message: Message::Req(good) }) = Mad::parse(&good.mad) else {
        panic!()
    };
    for (change, reason) in cases {
        let mut req = good;
        change(&mut req);
        let mad = Mad { transaction, message: Message::Req(req) }.emit();
        pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
        let answer = pair.cms[B].poll_transmit().unwrap();
        let Ok(Mad { transaction: same, message: Message::Rej(rej) }) = Mad::parse(&answer.mad)
        else {
            panic!()
        };
        assert_eq!(
            (rej.reason, rej.remote_id, same),
            (reason, req.local_id, transaction),
            "{req:?}"
        );
        assert!(pair.cms[B].is_empty());
    }
    // The header that the program would see contains a false caller's address.
    let other = IpAddr::from([10, 0, 0, 3]);
    let mad = Mad {
        transaction,
        message: Message::Req(Req {
            primary: Path::over_ip(other, address(B), Timeout::new(17)),
            ..good
        }),
    };
    pair.cms[B].receive(pair.now, other, address(B), &mad.emit()).unwrap();
    assert_eq!(name(&pair.cms[B].poll_transmit().unwrap()), "REJ12");
}

#[test]
fn an_alternate_path_is_declined() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect(QPN[A]);
    let req = pair.cms[A].poll_transmit().unwrap();
    let Ok(Mad { transaction, message: Message::Req(req) }) = Mad::parse(&req.mad) else {
        panic!()
    };
    let mad =
        Mad { transaction, message: Message::Req(Req { alternate: Some(req.primary), ..req }) };
    pair.cms[B].receive(pair.now, address(A), address(B), &mad.emit()).unwrap();
    let (b, _) = pair.request();
    pair.accept(b, QPN[B]);
    let rep = pair.cms[B].poll_transmit().unwrap();
    let Ok(Mad { message: Message::Rep(rep), .. }) = Mad::parse(&rep.mad) else { panic!() };
    assert_eq!(rep.failover, 1);
}

#[test]
fn private_data_have_limits() {
    let mut pair = Pair::new();
    let (now, long) = (pair.now, [7; 300]);
    let too_long = |len, max| Err(CmError::PrivateData { len, max });
    assert_eq!(
        pair.cms[A].connect(now, &Connect { private: &long[..57], ..call() }).map(drop),
        too_long(57, 56)
    );
    assert!(pair.cms[A].is_empty());
    pair.cms[B].listen(PORT, 1).unwrap();
    pair.connect_with(|call| call.private = &[7; 56]);
    pair.run();
    let (b, request) = pair.request();
    assert_eq!(request.private, [7; 56]);
    let cm = &mut pair.cms[B];
    assert_eq!(
        cm.accept(now, b, &Accept { private: &long[..197], ..accept() }),
        too_long(197, 196)
    );
    assert_eq!(cm.reject(now, b, Reason::CONSUMER, &long[..145]), too_long(145, 144));
    cm.accept(now, b, &Accept { private: &long[..196], ..accept() }).unwrap();
    pair.run();
    assert!(matches!(
        &pair.events(A)[..],
        [(_, Event::Accepted(accepted))] if accepted.private == [7; 196]
    ));
}

#[test]
fn a_request_is_decided_only_once() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    for id in [b, ConnId(0x1234)] {
        assert_eq!(pair.cms[B].accept(pair.now, id, &accept()), Err(CmError::NoRequest));
        assert_eq!(
            pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]),
            Err(CmError::NoRequest)
        );
    }
    assert_eq!(pair.cms[A].accept(pair.now, a, &accept()), Err(CmError::NoRequest));
    let ipv6 = SocketAddr::new("fd00::2".parse().unwrap(), PORT);
    let mixed = pair.cms[A].connect(pair.now, &Connect { remote: ipv6, ..call() });
    assert_eq!(mixed, Err(CmError::Families));
    pair.run();
    assert_eq!(pair.sent(), "");
}
