//! Cases about datagrams. A transport without datagrams declares that in its attributes.
//!
//! A network may lose a datagram, so a case that waits for one repeats it if losses are expected.

use std::time::{Duration, Instant};

use super::rig::*;
use dat_core::provider::*;

/// The number of octets before each message in a receive buffer.
const HEADER: usize = 40;
/// How often a datagram is sent that the network may lose.
const REPETITION_INTERVAL: Duration = Duration::from_millis(50);

/// The longest datagram that both sides support. `None` if one side does not support datagrams.
fn max_datagram<T: Transport>(rig: &Rig<'_, T>) -> Option<usize> {
    let [a, b] = [rig.a, rig.b].map(|t| t.attrs().max_datagram);
    Some(a?.min(b?) as usize)
}

/// Sends a datagram, repeatedly if the network may lose it, until the receiver has a completion.
/// Returns the completion.
fn deliver<'t, T: Transport>(
    rig: &Rig<'t, T>,
    (from, to): (&End<'t, T>, &RemoteQp<T>),
    receiver: &End<'t, T>,
    (immediate, segments): (Option<u32>, &[Segment]),
) -> Wc {
    let len: u32 = segments.iter().map(|segment| segment.len).sum();
    loop {
        from.try_post_datagram((7, true), to, immediate, segments).expect("the post succeeds");
        let sent = rig.completions(&from.requests, 1)[0];
        assert_eq!((sent.id, sent.status, sent.bytes), (7, WcStatus::Success, len));
        assert_eq!((sent.op, sent.immediate, sent.qp), (WcOp::Send, None, TOKEN));
        let start = Instant::now();
        let received = rig.until("a datagram", || match poll::<T>(&receiver.recvs, 1).first() {
            Some(wc) => Some(Some(*wc)),
            None if losses_are_expected() && start.elapsed() > REPETITION_INTERVAL => Some(None),
            None => None,
        });
        if let Some(received) = received {
            return received;
        }
    }
}

fn assert_received(wc: &Wc, id: u64, len: usize, immediate: Option<u32>) {
    assert_eq!((wc.id, wc.status, wc.op), (id, WcStatus::Success, WcOp::Recv));
    assert_eq!((wc.bytes as usize, wc.immediate), (HEADER + len, immediate));
}

pub fn datagrams_are_supported_or_refused<T: Transport>(a: &T, b: &T) {
    for t in [a, b] {
        match t.attrs().max_datagram {
            Some(max) => {
                // The smallest MTU of the network layer leaves room for that (RFC 791).
                assert!(max >= 256, "{max} bytes");
                drop(End::for_datagrams(t));
            }
            None => {
                let refused = End::new(t).resolve(1, 1, b"", None).map_err(|e| e.kind());
                assert_eq!(refused, Err(dat_sys::DAT_MODEL_NOT_SUPPORTED));
            }
        }
    }
}

pub fn an_address_is_resolved_with_private_data<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let max = a.attrs().max_private.min(b.attrs().max_private);
    let (x, y) = (End::for_datagrams(a), End::for_datagrams(b));
    for (number, len) in [0, 1, 56.min(max), max].into_iter().enumerate() {
        let number = number as u64 + 10;
        let (hello, welcome) = (pattern(1, len), pattern(2, len));
        let service = Service::new(b, 1);
        x.resolve(number, service.port(b), &hello, None).expect("the attempt begins");
        let (request, from, to, private) = service.datagram_request(&rig);
        assert_arrived(&private, &hello);
        assert_eq!((from.ip(), to.ip()), (a.attrs().address.ip(), b.attrs().address.ip()));
        assert_eq!(to.port(), service.port(b));
        let passive = y.qp.answer(request, &welcome).expect("the request is answered");
        match rig.next("the address", &x.log) {
            Event::Resolved { number: of, remote, peer, private } => {
                assert_eq!((of, peer), (number, to));
                assert_arrived(&private, &welcome);
                assert!(remote.qpn > 1 && remote.qpn >> 24 == 0, "{:#x}", remote.qpn);
                // Some wires do not tell the passive side the queue pair of the active side.
                if passive.qpn != 0 {
                    assert_eq!((remote.qpn, remote.own_qpn), (passive.own_qpn, passive.qpn));
                }
            }
            other => panic!("{other:?}"),
        }
        // The passive side has its answer from the call.
        y.log.assert_silent();
    }
}

/// Waits for the end of an attempt, which must be a failure.
fn failure<'t, T: Transport>(rig: &Rig<'t, T>, end: &End<'t, T>, of: u64) -> Failure {
    match rig.next("the failure", &end.log) {
        Event::Unresolved { number, why } if number == of => why,
        other => panic!("expected a failure of attempt {of}, got {other:?}"),
    }
}

pub fn a_request_for_datagrams_is_rejected<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, service) = (End::for_datagrams(a), Service::new(b, 2));
    x.resolve(1, service.port(b), b"please", None).expect("the attempt begins");
    let (request, ..) = service.datagram_request(&rig);
    b.reject(request, b"no, thank you").expect("the request is rejected");
    match failure(&rig, &x, 1) {
        Failure::Rejected(private) => assert_arrived(&private, b"no, thank you"),
        other => panic!("{other:?}"),
    }
    // A request that is dropped is refused. Some wires have no different answer for that.
    x.resolve(2, service.port(b), b"please", None).expect("the attempt begins");
    drop(service.datagram_request(&rig));
    match failure(&rig, &x, 2) {
        Failure::Rejected(private) => assert_arrived(&private, b""),
        other => assert_eq!(other, Failure::Refused),
    }
    // The queue pair is still usable.
    rig.introduce(&x, &End::for_datagrams(b));
}

pub fn nobody_listening_for_datagrams_is_a_failure<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let port = Service::new(b, 1).port(b);
    let x = End::for_datagrams(a);
    x.resolve(3, port, b"", None).expect("the attempt begins");
    assert_eq!(failure(&rig, &x, 3), Failure::Refused);
    rig.introduce(&x, &End::for_datagrams(b));
}

/// A request that exceeds the backlog is refused, or it is dropped until its time limit passes.
pub fn a_full_backlog_is_a_failure<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y, service) = (End::for_datagrams(a), End::for_datagrams(b), Service::new(b, 2));
    let port = service.port(b);
    let mut requests = Vec::new();
    for number in [1, 2] {
        x.resolve(number, port, b"", None).expect("the attempt begins");
        requests.push(service.datagram_request(&rig).0);
    }
    x.resolve(3, port, b"", Some(Duration::from_millis(200))).expect("the attempt begins");
    let end = failure(&rig, &x, 3);
    assert!(matches!(end, Failure::Refused | Failure::TimedOut), "{end:?}");
    service.log.assert_silent();
    // A request that the consumer has seen stays valid when its service point is closed.
    drop(service);
    for request in requests.into_iter().rev() {
        y.qp.answer(request, b"").expect("the request is answered");
    }
    let mut resolved = [1, 2].map(|_| match rig.next("the address", &x.log) {
        Event::Resolved { number, .. } => number,
        other => panic!("{other:?}"),
    });
    resolved.sort_unstable();
    assert_eq!(resolved, [1, 2]);
}

pub fn an_unanswered_request_for_datagrams_times_out<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y, service) = (End::for_datagrams(a), End::for_datagrams(b), Service::new(b, 8));
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    x.resolve(5, service.port(b), b"", Some(limit)).expect("the attempt begins");
    // The caller sleeps here, because a sleep must also end at the time limit.
    let event = loop {
        x.log.wake.reset();
        match x.log.take() {
            Some(event) => break event,
            None => a.sleep(&x.log.wake, Some(start + EVENT_TIMEOUT)),
        };
        assert!(start.elapsed() < EVENT_TIMEOUT, "the attempt has not timed out");
    };
    assert!(matches!(event, Event::Unresolved { number: 5, why: Failure::TimedOut }), "{event:?}");
    assert!(start.elapsed() >= limit, "the attempt ended too early");
    // The request is answered too late. Only some wires detect that. A network may have lost the
    // request.
    b.progress();
    if let Some(Event::Request { request, .. }) = service.log.take() {
        let _ = y.qp.answer(request, b"");
    }
    rig.introduce(&x, &y);
}

pub fn addresses_are_resolved_in_any_order<T: Transport>(a: &T, b: &T) {
    const ATTEMPTS: u64 = 6;
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y) = (End::for_datagrams(a), End::for_datagrams(b));
    let service = Service::new(b, ATTEMPTS as usize);
    for number in 0..ATTEMPTS {
        x.resolve(number, service.port(b), &[number as u8 + 1], None).expect("the attempt begins");
    }
    let mut requests: Vec<_> = (0..ATTEMPTS).map(|_| service.datagram_request(&rig)).collect();
    let mut expected = Vec::new();
    while let Some((request, _, _, private)) = requests.pop() {
        let number = private[0] - 1;
        if number % 2 == 0 {
            y.qp.answer(request, &[private[0] + 100]).expect("the request is answered");
        } else {
            b.reject(request, &[private[0] + 100]).expect("the request is rejected");
        }
        expected.push((u64::from(number), number % 2 == 0, private[0] + 100));
    }
    let mut ended: Vec<_> = (0..ATTEMPTS)
        .map(|_| match rig.next("the end of an attempt", &x.log) {
            Event::Resolved { number, private, .. } => (number, true, private[0]),
            Event::Unresolved { number, why: Failure::Rejected(private) } => {
                (number, false, private[0])
            }
            other => panic!("{other:?}"),
        })
        .collect();
    ended.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ended, expected);
}

pub fn an_attempt_ends_with_its_queue_pair<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y, service) = (End::for_datagrams(a), End::for_datagrams(b), Service::new(b, 2));
    x.resolve(1, service.port(b), b"", None).expect("the attempt begins");
    let (request, ..) = service.datagram_request(&rig);
    let End { qp, log, .. } = x;
    drop(qp);
    log.close();
    // Only some wires detect that nobody waits for the answer.
    let _ = y.qp.answer(request, b"");
    rig.introduce(&End::for_datagrams(a), &y);
    assert_eq!(log.late(), 0, "upcalls after the drop");
}

pub fn datagrams_of_every_size_arrive<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let Some(max) = max_datagram(&rig) else { return };
    let (x, y) = rig.datagram_pair();
    for (from, to) in [(&x, &y), (&y, &x)] {
        for (n, len) in [0, 1, 3, 256, max - 1, max].into_iter().enumerate() {
            let data = pattern(n as u64, len);
            from.end.mem.write(0, &data);
            to.end.mem.write(0, &vec![0xEE; 2 * HEADER + len]);
            // The second segment of the buffer begins within the message, if it is long enough.
            let first = HEADER + len.min(100);
            let rest = max + HEADER - first;
            let buffer = [to.end.mem.segment(0, first), to.end.mem.segment(first, rest)];
            to.end.recv(n as u64, &buffer);
            let parts = [from.end.mem.segment(0, len / 3), from.end.mem.segment(len / 3, 0), {
                from.end.mem.segment(len / 3, len - len / 3)
            }];
            let segments = if len == 0 { &[][..] } else { &parts };
            let received = deliver(&rig, (&from.end, &from.peer), &to.end, (None, segments));
            assert_received(&received, n as u64, len, None);
            assert!(to.end.mem.read(HEADER, len) == data, "{len} bytes");
            assert_eq!(to.end.mem.read(HEADER + len, HEADER), [0xEE; HEADER], "after {len} bytes");
        }
    }
}

pub fn immediate_data_arrive_with_a_datagram<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y) = rig.datagram_pair();
    x.end.mem.write(0, b"with a number");
    for (n, len) in [0, 13].into_iter().enumerate() {
        let number = 0xFEDC_BA98 + n as u32;
        y.end.recv(n as u64, &[y.end.mem.segment(0, 100)]);
        let segments = [x.end.mem.segment(0, len)];
        let message = (Some(number), &segments[..]);
        let received = deliver(&rig, (&x.end, &x.peer), &y.end, message);
        assert_received(&received, n as u64, len, Some(number));
        assert_eq!(y.end.mem.read(HEADER, len), b"with a number"[..len]);
    }
}

pub fn one_queue_pair_has_many_peers<T: Transport>(a: &T, b: &T) {
    const PEERS: usize = 6;
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let x = End::for_datagrams(a);
    let peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let end = End::for_datagrams(b);
            let [of_end, of_x] = rig.introduce(&x, &end);
            (end, of_end, of_x)
        })
        .collect();
    for (n, (end, of_end, of_x)) in peers.iter().enumerate() {
        for (from, to, peer) in [(&x, end, of_end), (end, &x, of_x)] {
            from.mem.write(0, &pattern(n as u64, 32));
            to.recv(n as u64, &[to.mem.segment(100, 100)]);
            let segments = [from.mem.segment(0, 32)];
            let received = deliver(&rig, (from, peer), to, (None, &segments));
            assert_received(&received, n as u64, 32, None);
            assert_eq!(to.mem.read(100 + HEADER, 32), pattern(n as u64, 32));
        }
    }
    // No end has received a datagram for another end. If losses are expected, datagrams may have
    // been repeated, so the check would prove nothing.
    if !losses_are_expected() {
        for (end, ..) in &peers {
            assert!(poll::<T>(&end.recvs, 1).is_empty());
        }
    }
}

/// A datagram is dropped if nobody receives it, or if the buffer is too small. The sender does not
/// learn that.
pub fn a_datagram_needs_a_buffer<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, y) = rig.datagram_pair();
    let DatagramEnd { end: x, peer } = x;
    let segments = [x.mem.segment(0, 32)];
    x.post_datagram(1, &peer, &segments);
    let nobody = End::for_datagrams(b);
    let [address, _] = rig.introduce(&x, &nobody);
    drop(nobody);
    x.post_datagram(2, &address, &segments);
    let done = rig.completions(&x.requests, 2);
    assert_eq!(outcomes(&done), [(1, WcStatus::Success), (2, WcStatus::Success)]);

    // The adapter may complete the receive whose buffer is too small, but only as a failure.
    let (x, y) = (End::for_datagrams(a), y.end);
    let [peer, _] = rig.introduce(&x, &y);
    y.recv(3, &[y.mem.segment(0, HEADER + 8)]);
    x.post_datagram(4, &peer, &[x.mem.segment(0, 32)]);
    rig.completions(&x.requests, 1);
    let received = deliver(&rig, (&x, &peer), &y, (None, &[x.mem.segment(0, 8)]));
    if received.status == WcStatus::Success {
        assert_received(&received, 3, 8, None);
    }
}

pub fn a_shared_queue_serves_datagrams<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() || b.attrs().max_srqs == 0 {
        return;
    }
    let (x, srq_log) = (End::for_datagrams(a), Log::new(b));
    let mut ends = [(); 2].map(|()| End::for_datagrams(b));
    let pd = b.pd().expect("protection domain");
    let mem = Buffer::new(b, &pd, 4096, ALL);
    let srq = b.srq(&pd, 10, 2, srq_log.sink()).expect("shared receive queue");
    for end in &mut ends {
        let cfg = cfg::<T>(&end.pd, &end.requests, &end.recvs, Some(&srq));
        let cfg = QpCfg { service: ServiceType::Datagram, ..cfg };
        end.qp = b.qp(cfg, end.log.sink()).expect("queue pair");
    }
    for id in 0..4 {
        let segments = [mem.segment(id as usize * 100, 100)];
        // SAFETY: the buffer outlives the case.
        unsafe { srq.post_recv(&RecvWr { id, segments: &segments, quiet: false }) }
            .expect("the post succeeds");
    }
    for (n, end) in ends.iter().enumerate() {
        let [peer, _] = rig.introduce(&x, end);
        x.mem.write(0, &pattern(n as u64, 50));
        let segments = [x.mem.segment(0, 50)];
        let received = deliver(&rig, (&x, &peer), end, (None, &segments));
        assert_received(&received, received.id, 50, None);
        let data = mem.read(received.id as usize * 100 + HEADER, 50);
        assert_eq!(data, pattern(n as u64, 50));
    }
}

pub fn unsignalled_datagrams_complete_silently<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, _y) = rig.datagram_pair();
    for round in 0..4 {
        for id in 0..20 {
            let flagged = (id, id == 19);
            x.end.try_post_datagram(flagged, &x.peer, None, &[]).expect("the post succeeds");
        }
        let done = outcomes(&rig.completions(&x.end.requests, 1));
        assert_eq!(done, [(19, WcStatus::Success)], "round {round}");
    }
    assert!(poll::<T>(&x.end.requests, 1).is_empty());
}

pub fn datagrams_are_checked<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, _y) = rig.datagram_pair();
    let (x, peer) = (&x.end, &x.peer);
    let good = x.mem.segment(0, 8);
    let foreign = Buffer::new(a, &a.pd().expect("protection domain"), 64, ALL);
    let no_read = Buffer::new(a, &x.pd, 64, Access { local_read: false, ..ALL });
    let past = Segment { addr: good.addr + (1 << 16) - 4, ..good };
    let unknown = Segment { key: good.key ^ 0x1234_5678, ..good };
    for (bad, error) in [
        (past, PostError::Bounds),
        (unknown, PostError::Key),
        (foreign.segment(0, 8), PostError::Domain),
        (no_read.segment(0, 8), PostError::Access { write: false }),
    ] {
        let posted = x.try_post_datagram((1, true), peer, None, &[good, bad]);
        assert_eq!(posted, Err(error), "{bad:?}");
    }
    // None of the refused requests was queued.
    x.post_datagram(2, peer, &[good]);
    assert_eq!(outcomes(&rig.completions(&x.requests, 1)), [(2, WcStatus::Success)]);
}

pub fn an_abrupt_close_of_datagrams_flushes<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    if max_datagram(&rig).is_none() {
        return;
    }
    let (x, _y) = rig.datagram_pair();
    let x = x.end;
    for id in 0..3 {
        x.recv(id, &[x.mem.segment(0, 100)]);
    }
    x.qp.disconnect(Close::Abrupt);
    let flushed = outcomes(&rig.completions(&x.recvs, 3));
    assert_eq!(flushed, [0, 1, 2].map(|id| (id, WcStatus::Flushed)));
    x.recv(3, &[x.mem.segment(0, 100)]);
    assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(3, WcStatus::Flushed)]);
}
