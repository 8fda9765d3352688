//! Tests with peers that keep to the protocol, over networks that lose single messages.

use super::*;

#[test]
fn a_service_is_resolved() {
    let mut net = Net::listening(1);
    let a = net.resolve(b"call");
    net.run();
    let (b, event) = net.event(B);
    assert_eq!(event, request(b"call"));
    net.accept(b, b"answer");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"answer")));
    // No third message and no timer follow.
    assert_eq!((net.sent.len(), net.managers[A].deadline()), (2, None));
    assert!(net.sent.iter().all(|sent| sent.mad.len() == MAD_SIZE));
    assert_eq!(net.managers[B].accept(net.now, b, SERVICE, b""), Err(CmError::NoRequest));
    assert_eq!(
        net.managers[B].reject(net.now, b, SidrStatus::REJECT, b""),
        Err(CmError::NoRequest)
    );
}

#[test]
fn a_service_at_an_ipv6_address_is_resolved() {
    let mut net = Net::listening(1);
    let [local, remote]: [SocketAddr; 2] =
        ["[fd00::1]:40000", "[fd00::2]:7174"].map(|address| address.parse().unwrap());
    let a = net.resolve_with(|call| (call.local, call.remote) = (local, remote), b"6");
    net.run();
    let (b, event) = net.event(B);
    let private = b"6".to_vec();
    assert_eq!(event, Event::Request { from: local, to: remote, private, caller: Some(CALLER) });
    net.accept(b, b"66");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"66")));
}

#[test]
fn private_data_of_every_length_arrive_exactly() {
    let mut net = Net::listening(1);
    // Trailing zeros are private data, too.
    for fill in [0, 0xA5] {
        for len in 0..=Sidr::MAX_REQUEST_PRIVATE {
            let call = vec![fill; len];
            let answer = vec![fill; len.min(Sidr::MAX_REPLY_PRIVATE)];
            let a = net.resolve(&call);
            net.run();
            let (b, event) = net.event(B);
            assert_eq!(event, request(&call));
            match len % 2 {
                0 => net.accept(b, &answer),
                _ => net.managers[B].reject(net.now, b, SidrStatus::REJECT, &answer).unwrap(),
            }
            net.run();
            let expected = match len % 2 {
                0 => resolved(&answer),
                _ => refused(SidrStatus::REJECT, &answer),
            };
            assert_eq!(net.event(A), (a, expected));
        }
    }
}

#[test]
fn calls_have_limits() {
    let mut net = Net::listening(1);
    let now = net.now;
    let too_long = |max| Err(CmError::PrivateData { len: max + 1, max });
    let private = &[0; Sidr::MAX_REQUEST_PRIVATE + 1];
    assert_eq!(
        net.managers[A].resolve(now, &Resolve { private, ..call() }).map(|_| ()),
        too_long(Sidr::MAX_REQUEST_PRIVATE)
    );
    let remote = "[fd00::2]:7174".parse().unwrap();
    let families = net.managers[A].resolve(now, &Resolve { remote, ..call() });
    assert_eq!(families, Err(CmError::Families));
    assert_eq!(net.managers[B].listen(PORT, 1), Err(CmError::PortInUse(PORT)));
    assert!(net.transmits(A).is_empty());

    // An answer that is refused leaves the request as it was.
    net.resolve(b"");
    net.run();
    let (b, _) = net.event(B);
    let private = &[0; Sidr::MAX_REPLY_PRIVATE + 1];
    let manager = &mut net.managers[B];
    let max = Sidr::MAX_REPLY_PRIVATE;
    assert_eq!(manager.accept(now, b, SERVICE, private), too_long(max));
    assert_eq!(manager.reject(now, b, SidrStatus::REJECT, private), too_long(max));
    net.accept(b, &private[1..]);
    net.run();
    assert_eq!(net.event(A).1, resolved(&private[1..]));
}

#[test]
fn nobody_listens() {
    let mut net = Net::listening(1);
    net.managers[B].unlisten(PORT);
    let a = net.resolve(b"call");
    net.run();
    let (id, event) = net.event(A);
    assert_eq!(id, a);
    assert!(matches!(event, Event::Refused { status: SidrStatus::UNSUPPORTED, .. }), "{event:?}");
    assert!(net.events(B).is_empty());
}

#[test]
fn a_request_outlives_its_listener() {
    let mut net = Net::listening(1);
    let a = net.resolve(b"");
    net.run();
    let (b, _) = net.event(B);
    net.managers[B].unlisten(PORT);
    // The repetitions of the request do not become requests to a port without a listener.
    net.pass(5 * SECOND);
    assert!(net.events(A).is_empty());
    net.accept(b, b"late");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"late")));
}

/// Requests above the backlog are dropped without an answer. A repetition is admitted when there is
/// room.
#[test]
fn a_full_backlog() {
    let mut net = Net::listening(2);
    let calls = [0, 1, 2].map(|n| net.resolve(&[n]));
    net.run();
    let requests = net.events(B);
    assert_eq!((requests.len(), net.managers[B].dropped()), (2, 1));
    net.accept(requests[0].0, b"first");
    net.run();
    assert_eq!(net.event(A), (calls[0], resolved(b"first")));
    net.pass(SECOND);
    let (third, event) = net.event(B);
    assert_eq!(event, request(&[2]));
    net.accept(third, b"third");
    net.run();
    assert_eq!(net.event(A), (calls[2], resolved(b"third")));
}

#[test]
fn a_deadline_passes() {
    let mut net = Net::new();
    net.lose = [usize::MAX; 2];
    for timeout in [Duration::ZERO, Duration::from_millis(700), 59 * SECOND] {
        let start = net.now;
        let a = net.resolve_with(|call| call.deadline = Some(start + timeout), b"");
        net.pass(timeout.saturating_sub(Duration::from_millis(1)));
        assert!(timeout.is_zero() || net.events(A).is_empty());
        net.pass(Duration::from_millis(1));
        assert_eq!(net.event(A), (a, Event::TimedOut));
    }
    assert_eq!(net.managers[A].deadline(), None);
}

#[test]
fn repetitions_are_used_up() {
    let mut net = Net::new();
    net.lose = [usize::MAX; 2];
    let a = net.resolve(b"");
    let mut times = vec![];
    let start = net.now;
    while net.managers[A].deadline().is_some() {
        let before = net.sent.len();
        net.pass(Duration::from_millis(500));
        times.extend((before..net.sent.len()).map(|_| (net.now - start).as_millis() / 500));
    }
    // The first REQ is sent at the start. The times are multiples of half a second.
    let repeated = [1, 3, 7].into_iter().chain((15..120).step_by(8));
    assert_eq!(times, [1].into_iter().chain(repeated).collect::<Vec<u128>>());
    assert!(net.sent.iter().all(|sent| *sent == net.sent[0]), "a repetition differs");
    assert_eq!((net.event(A), net.now - start), ((a, Event::NoAnswer), 60 * SECOND));
}

/// A host may report that it has no receiver. The report counts only for an attempt that waits.
#[test]
fn a_host_without_a_receiver_ends_an_attempt() {
    let mut net = Net::new();
    net.lose[A] = usize::MAX;
    let a = net.resolve(b"");
    net.run();
    net.managers[A].unreachable(ResolveId(a.0 ^ 0x80), address(B));
    net.managers[A].unreachable(a, address(A));
    assert_eq!(net.events(A), []);
    net.managers[A].unreachable(a, address(B));
    assert_eq!((net.event(A), net.managers[A].deadline()), ((a, Event::NoAnswer), None));
    net.managers[A].unreachable(a, address(B));
    assert_eq!(net.events(A), []);
}

#[test]
fn a_req_is_lost() {
    let mut net = Net::listening(1);
    net.lose[A] = 3;
    let a = net.resolve(b"call");
    net.pass(3 * SECOND);
    assert!(net.events(B).is_empty());
    net.pass(SECOND);
    let (b, event) = net.event(B);
    assert_eq!(event, request(b"call"));
    net.accept(b, b"");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"")));
}

/// A repeated REQ gets the same answer, and the program sees one request.
#[test]
fn reps_are_lost() {
    for accepts in [true, false] {
        let mut net = Net::listening(1);
        net.lose[B] = 10;
        let a = net.resolve(b"");
        net.run();
        let (b, _) = net.event(B);
        match accepts {
            true => net.accept(b, b"answer"),
            false => net.managers[B].reject(net.now, b, SidrStatus::REJECT, b"answer").unwrap(),
        }
        net.pass(60 * SECOND);
        let expected = match accepts {
            true => resolved(b"answer"),
            false => refused(SidrStatus::REJECT, b"answer"),
        };
        assert_eq!(net.event(A), (a, expected));
        assert!(net.events(B).is_empty());
        let (reqs, reps): (Vec<&Transmit>, Vec<_>) = net.sent.iter().partition(|sent| is_req(sent));
        assert_eq!((reqs.len(), reps.len()), (11, 11));
        assert!(reps.iter().all(|rep| rep.mad == reps[0].mad), "the answers differ");
    }
}

/// A slow program: repetitions of an undecided request are neither requests nor answered.
#[test]
fn a_late_decision() {
    let mut net = Net::listening(4);
    let a = net.resolve(b"");
    net.run();
    let (b, _) = net.event(B);
    net.pass(50 * SECOND);
    assert!(net.events(B).is_empty() && net.events(A).is_empty());
    assert!(net.sent.iter().all(is_req));
    net.accept(b, b"at last");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"at last")));
    // A decision that comes too late does no harm.
    net.resolve(b"");
    net.run();
    let (b, _) = net.event(B);
    net.pass(100 * SECOND);
    assert_eq!(net.event(A).1, Event::NoAnswer);
    net.accept(b, b"");
    net.run();
    assert!(net.events(A).is_empty());
}

/// An answer is repeated for 70 s. After that time the same REQ is a new request.
#[test]
fn an_answer_is_forgotten() {
    let mut net = Net::listening(1);
    net.resolve(b"");
    net.run();
    let req = net.sent[0];
    let (b, _) = net.event(B);
    net.accept(b, b"");
    net.run();
    for (seconds, requests) in [(69, 0), (2, 1)] {
        net.pass(seconds * SECOND);
        let mad = Mad::parse(&req.mad).unwrap();
        net.managers[B].receive(net.now, req.from, req.to, &mad);
        assert_eq!(net.events(B).len(), requests, "after {seconds} s");
        assert_eq!(net.transmits(B).len(), 1 - requests);
    }
}

#[test]
fn a_cancelled_attempt_has_no_event() {
    let mut net = Net::listening(4);
    // Before the REQ is sent, before the answer arrives, and before the event is taken.
    let early = net.resolve(b"");
    net.managers[A].cancel(early);
    assert_eq!(net.managers[A].deadline(), None);
    let undecided = net.resolve(b"");
    net.run();
    net.managers[A].cancel(undecided);
    let answered = net.resolve(b"");
    net.run();
    for (id, _) in net.events(B) {
        net.accept(id, b"");
    }
    net.run();
    net.managers[A].cancel(answered);
    net.managers[A].cancel(answered);
    net.pass(100 * SECOND);
    assert!(net.events(A).is_empty());
}

/// The ID of an attempt is the request ID on the wire, so its low bits lead the answer back.
#[test]
fn ids_have_their_low_bits_and_are_random() {
    let mut net = Net::new();
    let mut ids: Vec<_> = (0..1000).map(|_| net.resolve(b"").0).collect();
    assert!(ids.iter().all(|id| id & 0x7F == A as u32));
    for (sent, id) in net.transmits(A).iter().zip(&ids) {
        let mad = Mad::parse(&sent.mad).unwrap();
        assert!(matches!(mad.message, Message::SidrReq(req) if req.request_id == *id));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1000);
}

/// A manager can call a service of its own.
#[test]
fn a_manager_calls_itself() {
    let mut manager = Sidr::new(LowBits::default(), random(1));
    let now = Instant::now();
    let own = address(B);
    manager.listen(PORT, 1).unwrap();
    let local = SocketAddr::new(own, 1);
    let call = manager.resolve(now, &Resolve { local, private: b"me", ..call() }).unwrap();
    let pass = |manager: &mut Sidr| {
        let sent = manager.poll_transmit().unwrap();
        manager.receive(now, own, own, &Mad::parse(&sent.mad).unwrap());
        manager.poll_event().unwrap()
    };
    let (request, event) = pass(&mut manager);
    assert!(matches!(event, Event::Request { from, .. } if from == local));
    assert_ne!(request, call);
    manager.accept(now, request, SERVICE, b"too").unwrap();
    assert_eq!(pass(&mut manager), (call, resolved(b"too")));
}

/// Linux sends no trailer. The program gets the whole field, and the caller's queue pair is not
/// known.
#[test]
fn linux_calls() {
    let mut net = Net::listening(1);
    for (n, private) in [&b""[..], b"hi", &[0xFF; 180]].into_iter().enumerate() {
        let id = n as u32;
        let from = address(A);
        net.deliver(B, from, 7, kernel_req(id, &field(from, private)));
        let (b, event) = net.event(B);
        let private = padded(private, 180);
        let expected = Event::Request {
            from: (from, 40_001).into(),
            to: (address(B), PORT).into(),
            private,
            caller: None,
        };
        assert_eq!(event, expected);
        net.accept(b, b"hello");
        let [sent] = net.transmits(B)[..] else { panic!("not one REP") };
        let mad = Mad::parse(&sent.mad).unwrap();
        let Message::SidrRep(rep) = mad.message else { panic!("{mad:?}") };
        assert_eq!((sent.from, sent.to, mad.transaction), (address(B), from, 7));
        assert_eq!((rep.request_id, rep.service), (id, ServiceId::udp(PORT)));
        assert_eq!((rep.status, rep.qpn, rep.q_key), (SidrStatus::SUCCESS, 0x2282, 0x0123_4567));
        assert!(rep.private.starts_with(b"hello"));
    }
}

#[test]
fn linux_answers() {
    let mut net = Net::new();
    for status in SidrStatus::ALL {
        for private in [&b""[..], b"hi", &[0xFF; 136]] {
            let a = net.resolve(b"");
            let req = net.transmits(A).remove(0);
            let rep = kernel_rep(a, *status, private);
            net.deliver(A, address(B), transaction(&req.mad), Message::SidrRep(rep));
            let private = padded(private, 136);
            let expected = match *status {
                SidrStatus::SUCCESS => resolved_by(false, &private),
                status => refused(status, &private),
            };
            assert_eq!(net.event(A), (a, expected));
        }
    }
}
