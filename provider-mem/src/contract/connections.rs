//! Cases about the beginning and the end of connections.

use std::time::{Duration, Instant};

use super::rig::*;
use dat_core::provider::*;

pub fn private_data_and_addresses_arrive<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let max = a.attrs().max_private;
    for len in [0, 1, 56.min(max), max] {
        let (hello, welcome) = (pattern(1, len), pattern(2, len));
        let (a, b) = (End::new(a), End::new(b));
        let service = Service::new(b.t, 1);
        let port = service.port(b.t);
        a.connect(port, &hello, None);
        let (request, from, to, private) = service.request(&rig);
        assert_arrived(&private, &hello);
        assert_eq!((from.ip(), to.ip()), (a.t.attrs().address.ip(), b.t.attrs().address.ip()));
        b.qp.accept(request, &welcome, DEPTH).expect("the request is accepted");
        match rig.next("the active side", &a.log) {
            Event::Established { private, peer, local, .. } => {
                assert_arrived(&private, &welcome);
                assert_eq!((peer, local), (to, from));
            }
            other => panic!("{other:?}"),
        }
        match rig.next("the passive side", &b.log) {
            Event::Established { private, peer, local, .. } => {
                assert_eq!((private, peer, local), (Vec::new(), from, to));
            }
            other => panic!("{other:?}"),
        }
    }
}

pub fn read_depths_are_agreed<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (few, many) =
        (ReadDepth { incoming: 4, outgoing: 2 }, ReadDepth { incoming: 6, outgoing: 8 });
    // Each side may have at most as many reads outstanding as its peer accepts. Each row has the
    // read depths that the active side requests, those that the passive side requests, and those
    // that the active side gets.
    let cases = [
        (few, many, few),
        (many, few, ReadDepth { incoming: 2, outgoing: 4 }),
        (DEPTH, DEPTH, DEPTH),
    ];
    for (active, passive, agreed) in cases {
        let (a, b) = (End::new(a), End::new(b));
        let service = Service::new(b.t, 1);
        let (addr, port) = (b.t.attrs().address, service.port(b.t));
        a.qp.connect(&Connect { addr, port, private: b"", timeout: None, depth: active })
            .expect("the attempt to connect begins");
        let (request, ..) = service.request(&rig);
        b.qp.accept(request, b"", passive).expect("the request is accepted");
        let depth = |end: &End<'_, T>| match rig.until("the connection", || end.log.take()) {
            Event::Established { depth, .. } => depth,
            other => panic!("{other:?}"),
        };
        assert_eq!(depth(&a), agreed);
        assert_eq!(depth(&b), ReadDepth { incoming: agreed.outgoing, outgoing: agreed.incoming });

        // Reads that exceed the limit wait in the send queue.
        b.mem.write(0, &pattern(1, 3200));
        for i in 0..32 {
            let (from, to) = (b.mem.remote(i * 100), a.mem.segment(i * 100, 100));
            a.post(i as u64, SendOp::Read(from), &[to]);
        }
        assert!(rig.completions(&a.requests, 32).iter().all(|wc| wc.status == WcStatus::Success));
        assert_eq!(a.mem.read(0, 3200), pattern(1, 3200));
    }
}

pub fn a_rejection_carries_private_data<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, service) = (End::new(a), Service::new(b, 1));
    a.recv(5, &[a.mem.segment(0, 8)]);
    a.connect(service.port(b), b"please", None);
    let (request, ..) = service.request(&rig);
    b.reject(request, b"no, thank you").expect("the request is rejected");
    match rig.next("the rejection", &a.log) {
        Event::Rejected { by_peer: true, private } => assert_arrived(&private, b"no, thank you"),
        other => panic!("{other:?}"),
    }
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 2)), [(5, WcStatus::Flushed)]);
}

pub fn nobody_listening_is_a_rejection<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let service = Service::new(b, 1);
    let port = service.port(b);
    drop(service);
    let a = End::new(a);
    a.connect(port, b"", None);
    assert_refused(&rig, &a);
}

pub fn a_dropped_request_is_a_rejection<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, service) = (End::new(a), Service::new(b, 1));
    a.connect(service.port(b), b"", None);
    drop(service.request(&rig));
    assert_refused(&rig, &a);
}

pub fn a_full_backlog_is_a_rejection<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let service = Service::new(b, 2);
    let callers = [End::new(a), End::new(a), End::new(a), End::new(a)];
    let mut requests = Vec::new();
    for caller in &callers[..2] {
        caller.connect(service.port(b), b"", None);
        requests.push(service.request(&rig).0);
    }
    callers[2].connect(service.port(b), b"", None);
    assert_refused(&rig, &callers[2]);
    service.log.assert_silent();

    // Answering a request frees an entry of the backlog.
    let answering = End::new(b);
    answering.qp.accept(requests.remove(0), b"", DEPTH).expect("the request is accepted");
    assert_established(&rig, &callers[0]);
    callers[3].connect(service.port(b), b"", None);
    requests.push(service.request(&rig).0);

    // A request that the consumer has seen stays valid when its service point is closed.
    drop(service);
    let answering = End::new(b);
    answering.qp.accept(requests.remove(0), b"", DEPTH).expect("the request is accepted");
    assert_established(&rig, &callers[1]);
    drop(requests);
    assert_refused(&rig, &callers[3]);
}

fn assert_established<'t, T: Transport>(rig: &Rig<'t, T>, end: &End<'t, T>) {
    let event = rig.next("the connection", &end.log);
    assert!(matches!(event, Event::Established { .. }), "expected a connection, got {event:?}");
}

fn assert_refused<'t, T: Transport>(rig: &Rig<'t, T>, caller: &End<'t, T>) {
    match rig.next("the rejection", &caller.log) {
        Event::Rejected { by_peer: false, private } => assert_eq!(private, b""),
        other => panic!("expected a rejection by the provider, got {other:?}"),
    }
}

pub fn ports_are_exclusive<T: Transport>(_a: &T, b: &T) {
    let log = Log::new(b);
    let first = b.listen(None, 1, log.sink()).expect("the listener opens");
    let second = b.listen(None, 1, log.sink()).expect("the listener opens");
    let port = b.port(&first);
    assert_ne!(port, b.port(&second));
    assert!(port >= 1024, "the port must not be a privileged one");
    let error =
        b.listen(Some(port), 1, log.sink()).err().expect("a qualifier in use must be refused");
    assert_eq!(error.kind(), dat_sys::DAT_CONN_QUAL_IN_USE);
    drop(first);
    let again = b.listen(Some(port), 1, log.sink()).expect("the service is free again");
    assert_eq!(b.port(&again), port);
}

pub fn an_unanswered_request_times_out<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let mut time_limit = Duration::from_millis(30);
    let (_service, a, start, request) = connect_until_received(&rig, &mut time_limit);
    let b = End::new(b);
    // The caller sleeps here, because a sleep must also end at the time limit.
    let event = loop {
        a.log.wake.reset();
        match a.log.take() {
            Some(event) => break event,
            None => a.t.sleep(&a.log.wake, Some(start + EVENT_TIMEOUT)),
        };
        assert!(start.elapsed() < EVENT_TIMEOUT, "the attempt has not timed out");
    };
    assert!(matches!(event, Event::TimedOut), "{event:?}");
    assert!(start.elapsed() >= time_limit, "the attempt ended too early");
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 2)), [(5, WcStatus::Flushed)]);

    // The request is accepted too late. Some wires detect that at once, others only after an
    // exchange with the peer.
    b.qp.accept(request, b"", DEPTH).expect("the request is accepted");
    match rig.next("the failure", &b.log) {
        Event::AcceptFailed => {}
        Event::Established { .. } => {
            let event = rig.next("the end", &b.log);
            assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
        }
        other => panic!("{other:?}"),
    }
    a.log.assert_silent();
}

/// Makes attempts to connect until a request arrives, each with a receive posted. A network may
/// lose a request, whose attempt then times out, and a busy machine may be late. So each attempt
/// waits twice as long as the one before. Each attempt uses a service of its own, because a late
/// request would occupy the backlog of the next attempt.
fn connect_until_received<'t, T: Transport>(
    rig: &Rig<'t, T>,
    time_limit: &mut Duration,
) -> (Service<'t, T>, End<'t, T>, Instant, T::ConnectionRequest) {
    for _ in 0..10 {
        let service = Service::new(rig.b, 1);
        let end = End::new(rig.a);
        end.recv(5, &[end.mem.segment(0, 8)]);
        let start = Instant::now();
        end.connect(service.port(rig.b), b"", Some(*time_limit));
        let answered = || service.log.take().map(Ok).or_else(|| end.log.take().map(Err));
        match rig.until("a request, or its time-out", answered) {
            Ok(Event::Request { request, .. }) => return (service, end, start, request),
            Err(Event::TimedOut) => *time_limit *= 2,
            Ok(event) | Err(event) => panic!("{event:?}"),
        }
    }
    panic!("none of ten requests arrived");
}

pub fn a_graceful_close_carries_out_posted_requests<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for i in 0..9 {
        b.recv(i, &[b.mem.segment(i as usize * 2048, 2048)]);
    }
    a.recv(50, &[]);
    for i in 0..8 {
        a.mem.write(i as usize * 2048, &pattern(i, 2048));
        a.send(i, &[a.mem.segment(i as usize * 2048, 2048)]);
    }
    b.mem.write(32768, &pattern(77, 1000));
    a.post(8, SendOp::Read(b.mem.remote(32768)), &[a.mem.segment(32768, 1000)]);
    a.qp.disconnect(Close::Graceful);
    a.qp.disconnect(Close::Graceful);
    for end in [&a, &b] {
        let event = rig.next("the end", &end.log);
        assert!(matches!(event, Event::Disconnected), "{event:?}");
    }
    // All work requests have completed before the end is reported (promise 2 of a transport), so
    // one poll is enough.
    let all: Vec<_> = (0..9).map(|i| (i, WcStatus::Success)).collect();
    assert_eq!(outcomes(&poll::<T>(&a.requests, 16)), all);
    assert_eq!(a.mem.read(32768, 1000), pattern(77, 1000));
    let received = outcomes(&poll::<T>(&b.recvs, 16));
    assert_eq!(received[..8], all[..8]);
    assert_eq!(received[8..], [(8, WcStatus::Flushed)]);
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 2)), [(50, WcStatus::Flushed)]);
    for i in 0..8 {
        assert_eq!(b.mem.read(i as usize * 2048, 2048), pattern(i, 2048));
    }
    a.qp.disconnect(Close::Abrupt);
    b.qp.disconnect(Close::Graceful);
    rig.a.progress();
    rig.b.progress();
    a.log.assert_silent();
    b.log.assert_silent();
}

pub fn an_abrupt_close_flushes<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    for i in 0..5 {
        a.recv(i, &[a.mem.segment(0, 8)]);
        b.recv(i, &[b.mem.segment(0, 8)]);
    }
    a.send(70, &[a.mem.segment(0, 8)]);
    assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(0, WcStatus::Success)]);
    rig.completions(&a.requests, 1);
    a.qp.disconnect(Close::Abrupt);
    let event = rig.next("the end", &a.log);
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    let flushed: Vec<_> = (0..5).map(|i| (i, WcStatus::Flushed)).collect();
    assert_eq!(outcomes(&poll::<T>(&a.recvs, 9)), flushed);
    // Some wires cannot distinguish an abrupt close from a broken connection.
    let event = rig.next("the end", &b.log);
    assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
    assert_eq!(outcomes(&poll::<T>(&b.recvs, 9)), flushed[1..]);
    a.log.assert_silent();
    b.log.assert_silent();
}

pub fn posts_after_the_end_are_flushed<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    a.qp.disconnect(Close::Graceful);
    for end in [&a, &b] {
        rig.next("the end", &end.log);
        for i in 0..3 {
            end.send(i, &[end.mem.segment(0, 8)]);
            end.recv(i, &[end.mem.segment(0, 8)]);
        }
        let flushed = [0, 1, 2].map(|i| (i, WcStatus::Flushed));
        assert_eq!(outcomes(&rig.completions(&end.requests, 3)), flushed);
        assert_eq!(outcomes(&rig.completions(&end.recvs, 3)), flushed);
        end.log.assert_silent();
    }
}

pub fn both_may_close_at_once<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    for (one, other) in [
        (Close::Graceful, Close::Graceful),
        (Close::Graceful, Close::Abrupt),
        (Close::Abrupt, Close::Graceful),
        (Close::Abrupt, Close::Abrupt),
    ] {
        let (a, b) = rig.pair();
        a.qp.disconnect(one);
        b.qp.disconnect(other);
        for end in [&a, &b] {
            let event = rig.next("the end", &end.log);
            assert!(matches!(event, Event::Disconnected), "{event:?}");
        }
        rig.a.progress();
        rig.b.progress();
        a.log.assert_silent();
        b.log.assert_silent();
    }
}

pub fn a_dropped_queue_pair_disconnects<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    b.recv(1, &[b.mem.segment(0, 8)]);
    let End { qp, requests: _requests, recvs: _recvs, log, .. } = a;
    drop(qp);
    log.close();
    let event = rig.next("the end", &b.log);
    assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
    assert_eq!(outcomes(&poll::<T>(&b.recvs, 2)), [(1, WcStatus::Flushed)]);
    assert_eq!(log.late(), 0);
}

pub fn an_attempt_can_be_abandoned<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (service, b) = (Service::new(b, 2), End::new(b));
    let caller = End::new(a);
    caller.recv(1, &[]);
    caller.connect(service.port(b.t), b"", None);
    let (request, ..) = service.request(&rig);
    caller.qp.disconnect(Close::Abrupt);
    let event = rig.next("the end of the attempt", &caller.log);
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    assert_eq!(outcomes(&poll::<T>(&caller.recvs, 2)), [(1, WcStatus::Flushed)]);
    drop(caller);
    b.recv(2, &[]);
    b.qp.accept(request, b"", DEPTH).expect("the request is accepted");
    let mut event = rig.next("the failure", &b.log);
    if let Event::Established { .. } = event {
        event = rig.next("the end", &b.log);
        assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
    } else {
        assert!(matches!(event, Event::AcceptFailed), "{event:?}");
    }
    assert_eq!(outcomes(&poll::<T>(&b.recvs, 2)), [(2, WcStatus::Flushed)]);
}

pub fn connections_come_and_go<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    for i in 0..if cfg!(miri) { 6 } else { 100 } {
        let (a, b) = rig.pair();
        let (from, to) = if i % 2 == 0 { (&a, &b) } else { (&b, &a) };
        from.mem.write(0, &pattern(i, 100));
        to.recv(i, &[to.mem.segment(0, 100)]);
        from.send(i, &[from.mem.segment(0, 100)]);
        rig.completions(&to.recvs, 1);
        assert_eq!(to.mem.read(0, 100), pattern(i, 100));
        if i % 3 != 0 {
            from.qp.disconnect(if i % 3 == 1 { Close::Graceful } else { Close::Abrupt });
            rig.next("the end", &to.log);
        }
    }
}
