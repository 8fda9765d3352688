//! The contract's cases for this transport, and tests of its behaviour where the contract leaves a
//! choice.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::contract::rig::*;
use super::{Adapter, Listener, Mem, advance};
use dat_core::provider::*;

mod contract {
    use super::*;

    /// A separate fabric for each test, named after its thread.
    fn open() -> (Adapter, Adapter) {
        let fabric = format!("{:?}", std::thread::current().id());
        (super::open(&fabric), super::open(&fabric))
    }

    crate::transport_contract!(open);
}

fn open(fabric: &str) -> Adapter {
    Mem.open("mem0", fabric).expect("the adapter opens")
}

#[test]
fn one_adapter_reaches_itself() {
    let t = open("itself");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    a.mem.write(0, b"me");
    b.recv(1, &[b.mem.segment(0, 2)]);
    a.send(1, &[a.mem.segment(0, 2)]);
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 1)), [(1, WcStatus::Success)]);
    assert_eq!(b.mem.read(0, 2), b"me");
}

#[test]
fn fabrics_do_not_reach_each_other() {
    let (here, there) = (open("here"), open("there"));
    let service = Service::new(&there, 1);
    let caller = End::new(&here);
    caller.connect(service.port(&there), b"", None);
    assert!(matches!(caller.log.take(), Some(Event::Rejected { by_peer: false, .. })));
    // The same port is free on another fabric.
    let log = Log::new(&here);
    here.listen(Some(service.port(&there)), 1, log.sink()).expect("the listener opens");
}

#[test]
fn only_loopback_addresses_are_reached() {
    let t = open("addresses");
    let service = Service::new(&t, 8);
    let call = |ip: &str| {
        let end = End::new(&t);
        end.recv(1, &[]);
        let addr = SocketAddr::new(ip.parse().expect("an address"), 0);
        let to =
            Connect { addr, port: service.port(&t), private: b"", timeout: None, depth: DEPTH };
        end.qp.connect(&to).expect("the attempt to connect begins");
        end
    };
    for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        let _caller = call(ip);
        match service.log.take() {
            Some(Event::Request { from, to, .. }) => {
                assert_eq!(
                    (from.ip().to_string(), to.ip().to_string()),
                    (ip.to_owned(), ip.to_owned())
                );
                assert_eq!(to.port(), service.port(&t));
            }
            other => panic!("{ip}: {other:?}"),
        }
    }
    for ip in ["192.0.2.1", "0.0.0.0", "::", "2001:db8::1"] {
        let caller = call(ip);
        assert!(matches!(caller.log.take(), Some(Event::Unreachable)), "{ip}");
        assert_eq!(outcomes(&poll::<Adapter>(&caller.recvs, 2)), [(1, WcStatus::Flushed)]);
    }
}

#[test]
fn time_passes_by_advance() {
    let fabric = "time";
    let t = open(fabric);
    let service = Service::new(&t, 8);
    let hour = Duration::from_secs(3600);
    let [short, long, patient] = [Some(hour), Some(2 * hour), None].map(|timeout| {
        let end = End::new(&t);
        end.connect(service.port(&t), b"", timeout);
        end
    });
    advance(fabric, hour - Duration::from_secs(600));
    t.progress();
    short.log.assert_silent();
    advance(fabric, Duration::from_secs(600));
    assert!(matches!(short.log.take(), Some(Event::TimedOut)));
    long.log.assert_silent();
    advance(fabric, 10 * hour);
    assert!(matches!(long.log.take(), Some(Event::TimedOut)));
    short.log.assert_silent();
    patient.log.assert_silent();
}

#[test]
fn a_drop_waits_for_the_upcall_in_flight() {
    /// A receiver of upcalls that stays in its upcall for some time, and checks that the drop of
    /// the object does not return during the upcall.
    #[derive(Default)]
    struct SlowReceiver {
        inside: AtomicBool,
        dropped: AtomicBool,
        early: AtomicBool,
    }
    impl Receiver<Adapter> for SlowReceiver {
        fn upcall(&self, _: Upcall<'_, Adapter>) {
            self.inside.store(true, Ordering::SeqCst);
            for _ in 0..10_000 {
                std::thread::yield_now();
                self.early.fetch_or(self.dropped.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        }
    }
    let t = open("slow");
    let (slow, end) = (SlowReceiver::default(), End::new(&t));
    // SAFETY: `slow` outlives the listener.
    let listener =
        t.listen(None, 1, unsafe { Sink::new(&raw const slow) }).expect("the listener opens");
    let port = t.port(&listener);
    std::thread::scope(|s| {
        s.spawn(|| end.connect(port, b"", None));
        while !slow.inside.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(listener);
        slow.dropped.store(true, Ordering::SeqCst);
    });
    assert!(!slow.early.load(Ordering::SeqCst), "the drop returned before the upcall did");
}

#[test]
fn messages_wait_for_buffers() {
    let t = open("waiting");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    a.mem.write(0, b"12345678");
    a.send(1, &[a.mem.segment(0, 4)]);
    a.send(2, &[a.mem.segment(4, 4)]);
    a.post(3, SendOp::Write(b.mem.remote(64)), &[a.mem.segment(0, 8)]);
    assert_eq!(poll::<Adapter>(&a.requests, 4), []);
    b.recv(1, &[b.mem.segment(0, 4)]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::Success)]);
    assert_eq!(b.mem.read(64, 8), [0; 8], "the write must not overtake the message that waits");
    b.recv(2, &[b.mem.segment(4, 4)]);
    assert_eq!(
        outcomes(&poll::<Adapter>(&a.requests, 4)),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
    assert_eq!(b.mem.read(0, 8), b"12345678");
    assert_eq!(b.mem.read(64, 8), b"12345678");

    // The send queue accepts exactly as many requests as it was created for.
    for i in 0..QUEUE as u64 {
        a.send(i, &[]);
    }
    assert_eq!(a.try_post(0, SEND, &[]), Err(PostError::Full));
}

#[test]
fn a_graceful_close_waits_for_buffers_too() {
    let t = open("closing");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    a.send(1, &[a.mem.segment(0, 4)]);
    a.qp.disconnect(Close::Graceful);
    a.send(2, &[a.mem.segment(0, 4)]);
    a.qp.disconnect(Close::Graceful);
    a.log.assert_silent();
    b.log.assert_silent();
    b.recv(1, &[b.mem.segment(0, 4)]);
    assert!(matches!(a.log.take(), Some(Event::Disconnected)));
    assert!(matches!(b.log.take(), Some(Event::Disconnected)));
    // A graceful close does not wait for requests that were posted after it.
    assert_eq!(
        outcomes(&poll::<Adapter>(&a.requests, 4)),
        [(1, WcStatus::Success), (2, WcStatus::Flushed)]
    );
}

#[test]
fn senders_to_a_shared_queue_take_turns() {
    let t = open("turns");
    let rig = Rig { a: &t, b: &t };
    let srq_log = Log::new(&t);
    let pd = t.pd().expect("protection domain");
    let srq = t.srq(&pd, 8, 1, srq_log.sink()).expect("shared receive queue");
    let mut ends = [End::new(&t), End::new(&t)];
    let peers = [End::new(&t), End::new(&t)];
    for (end, peer) in ends.iter_mut().zip(&peers) {
        end.qp = t
            .qp(cfg::<Adapter>(&end.pd, &end.requests, &end.recvs, Some(&srq)), end.log.sink())
            .expect("queue pair");
        rig.join(peer, end);
        for i in 0..4 {
            peer.send(i, &[]);
        }
    }
    for i in 0..6 {
        // SAFETY: the receive has no segments, so no memory must stay valid.
        unsafe { srq.post_recv(&RecvWr { id: i, segments: &[], quiet: false }) }
            .expect("the post succeeds");
        assert_eq!(srq.available(), 0);
    }
    for end in &ends {
        assert_eq!(poll::<Adapter>(&end.recvs, 8).len(), 3);
    }
    drop(ends);
}

#[test]
fn failures_are_reported_to_both_sides() {
    let t = open("failures");
    let rig = Rig { a: &t, b: &t };

    let (a, b) = rig.pair();
    b.recv(1, &[b.mem.segment(0, 1)]);
    a.send(1, &[a.mem.segment(0, 2)]);
    a.send(2, &[a.mem.segment(0, 2)]);
    assert_eq!(
        outcomes(&poll::<Adapter>(&a.requests, 4)),
        [(1, WcStatus::RemoteResponder), (2, WcStatus::Flushed)]
    );
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 4)), [(1, WcStatus::LocalLength)]);

    let (a, _b) = rig.pair();
    a.post(1, SendOp::Write(Remote { addr: 0, key: 1 }), &[a.mem.segment(0, 2)]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::RemoteAccess)]);

    // Deregisters a buffer while it is posted.
    let (a, b) = rig.pair();
    let dropped_buffer = Buffer::new(&t, &b.pd, 64, ALL);
    b.recv(1, &[dropped_buffer.segment(0, 64)]);
    drop(dropped_buffer);
    a.send(1, &[a.mem.segment(0, 2)]);
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 4)), [(1, WcStatus::LocalProtection)]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::RemoteResponder)]);

    let (a, b) = rig.pair();
    let dropped_buffer = Buffer::new(&t, &a.pd, 64, ALL);
    a.send(1, &[dropped_buffer.segment(0, 64)]);
    drop(dropped_buffer);
    b.recv(1, &[b.mem.segment(0, 64)]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::LocalProtection)]);
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 4)), [(1, WcStatus::Flushed)]);

    // The peer has no right to invalidate this key.
    let (a, b) = rig.pair();
    b.recv(1, &[b.mem.segment(0, 64)]);
    a.post(1, SendOp::Send { invalidate: Some(a.mem.mr.rkey()) }, &[]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::RemoteAccess)]);
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 4)), [(1, WcStatus::LocalProtection)]);
    for end in [a, b] {
        assert!(matches!(end.log.take(), Some(Event::Broken)));
        end.log.assert_silent();
    }
}

#[test]
fn reads_need_a_depth() {
    let t = open("depth");
    let rig = Rig { a: &t, b: &t };
    let (a, b, service) = (End::new(&t), End::new(&t), Service::new(&t, 1));
    a.connect(service.port(&t), b"", None);
    let none = ReadDepth { incoming: 0, outgoing: 0 };
    b.qp.accept(service.request(&rig).0, b"", none).expect("the request is accepted");
    a.post(1, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(0, 1)]);
    assert_eq!(outcomes(&poll::<Adapter>(&a.requests, 4)), [(1, WcStatus::LocalEp)]);
}

#[test]
fn a_queue_pair_connects_once() {
    let t = open("once");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    let service = Service::new(&t, 1);
    let to = Connect {
        addr: t.attrs().address,
        port: service.port(&t),
        private: b"",
        timeout: None,
        depth: DEPTH,
    };
    assert_eq!(
        a.qp.connect(&to).expect_err("a connected queue pair cannot connect again").kind(),
        dat_sys::DAT_INVALID_STATE
    );
    let caller = End::new(&t);
    caller.qp.connect(&to).expect("the attempt to connect begins");
    // If accepting a request fails, the request is dropped. A request that is dropped is refused.
    let error =
        b.qp.accept(service.request(&rig).0, b"", DEPTH)
            .expect_err("a connected queue pair cannot accept a request");
    assert_eq!(error.kind(), dat_sys::DAT_INVALID_STATE);
    assert!(matches!(caller.log.take(), Some(Event::Rejected { by_peer: false, .. })));
    // The existing connection is not affected.
    b.recv(1, &[]);
    a.send(1, &[]);
    assert_eq!(poll::<Adapter>(&b.recvs, 1).len(), 1);
}

#[test]
fn closing_a_service_refuses_unseen_requests() {
    /// A receiver that connects and closes the service from inside an upcall. The upcall of the new
    /// request is still queued when the service is closed.
    struct Closing<'t> {
        caller: &'t End<'t, Adapter>,
        port: u16,
        listener: Mutex<Option<Listener>>,
    }
    impl Receiver<Adapter> for Closing<'_> {
        fn upcall(&self, upcall: Upcall<'_, Adapter>) {
            // The cause of the refusal comes before the refusal.
            if matches!(upcall, Upcall::Cause(_)) {
                return;
            }
            self.caller.connect(self.port, b"", None);
            drop(self.listener.lock().unwrap().take());
        }
    }
    let t = open("unseen");
    let Service { listener, log } = Service::new(&t, 1);
    let (first, second) = (End::new(&t), End::new(&t));
    let closing =
        Closing { caller: &second, port: t.port(&listener), listener: Mutex::new(Some(listener)) };
    // SAFETY: `closing` outlives the queue pair.
    let sink = unsafe { Sink::new(&raw const closing) };
    let qp = t
        .qp(cfg::<Adapter>(&first.pd, &first.requests, &first.recvs, None), sink)
        .expect("queue pair");
    let nowhere =
        Connect { addr: t.attrs().address, port: 1, private: b"", timeout: None, depth: DEPTH };
    qp.connect(&nowhere).expect("the attempt to connect begins");
    log.assert_silent();
    assert!(matches!(second.log.take(), Some(Event::Rejected { by_peer: false, .. })));
    drop(qp);
}

#[test]
fn no_completion_overtakes_the_connection() {
    /// A receiver that counts the messages that have completed when the connection is reported.
    struct CompletionCounter<'t> {
        end: &'t End<'t, Adapter>,
        messages: AtomicUsize,
    }
    impl Receiver<Adapter> for CompletionCounter<'_> {
        fn upcall(&self, up: Upcall<'_, Adapter>) {
            if let Upcall::Established { .. } = up {
                self.messages
                    .store(1 + poll::<Adapter>(&self.end.recvs, 8).len(), Ordering::Relaxed);
            }
        }
    }
    let t = open("early");
    let rig = Rig { a: &t, b: &t };
    let (a, b, service) = (End::new(&t), End::new(&t), Service::new(&t, 1));
    let early = CompletionCounter { end: &b, messages: AtomicUsize::new(0) };
    // SAFETY: `early` outlives the queue pair.
    let sink = unsafe { Sink::new(&raw const early) };
    let qp = t.qp(cfg::<Adapter>(&b.pd, &b.requests, &b.recvs, None), sink).expect("queue pair");
    // SAFETY: the receive has no segments, so no memory must stay valid.
    unsafe { qp.post_recv(&RecvWr { id: 1, segments: &[], quiet: false }) }
        .expect("the post succeeds");
    a.connect(service.port(&t), b"", None);
    a.send(1, &[]);
    qp.accept(service.request(&rig).0, b"", DEPTH).expect("the request is accepted");
    assert_eq!(
        early.messages.load(Ordering::Relaxed),
        1,
        "the connection must be reported before the first message completes"
    );
    assert_eq!(outcomes(&poll::<Adapter>(&b.recvs, 8)), [(1, WcStatus::Success)]);
    drop(qp);
}

#[test]
fn no_timer_outlives_its_attempt() {
    let t = open("timers");
    let rig = Rig { a: &t, b: &t };
    let service = Service::new(&t, 8);
    let call = || {
        let end = End::new(&t);
        end.connect(service.port(&t), b"", Some(Duration::from_secs(3600)));
        assert!(t.fabric.with(|objects| objects.next_timer()).is_some());
        (end, service.request(&rig).0)
    };
    let idle = || assert_eq!(t.fabric.with(|objects| objects.next_timer()), None);
    let (caller, _request) = call();
    drop(caller);
    idle();
    let (caller, _request) = call();
    caller.qp.disconnect(Close::Graceful);
    idle();
    let (_caller, _request) = call();
    advance("timers", Duration::from_secs(3600));
    idle();
    let (_caller, request) = call();
    drop(request);
    idle();
    let (_caller, request) = call();
    End::new(&t).qp.accept(request, b"", DEPTH).expect("the request is accepted");
    idle();
}

#[test]
fn too_much_private_data_is_refused() {
    let t = open("private");
    let end = End::new(&t);
    let private = vec![0; t.attrs().max_private + 1];
    let to = Connect {
        addr: t.attrs().address,
        port: 1,
        private: &private,
        timeout: None,
        depth: DEPTH,
    };
    assert_eq!(
        end.qp.connect(&to).expect_err("private data of that size must be refused").kind(),
        dat_sys::DAT_INVALID_PARAMETER
    );
    end.log.assert_silent();
}
