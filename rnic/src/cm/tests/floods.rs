//! Tests with messages of strangers in large numbers: the work and the memory for them are limited,
//! and other callers are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use wire::cm::{Dreq, MAD_SIZE, Mad, Message};

use super::forged::forge;
use super::*;

/// The number of answers to messages that belong to no connection is limited. A caller of a service
/// that exists is always answered.
#[test]
fn a_flood_is_answered_in_part() {
    const FLOOD: u32 = if cfg!(miri) { 1000 } else { 10_000 };
    let flooder = IpAddr::from([10, 0, 0, 3]);
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 16).unwrap();
    let mut forger = Cm::new(Cfg::new(77), super::random(3));
    let local = SocketAddr::new(flooder, 1);
    let remote = SocketAddr::new(address(B), PORT + 1);
    forger.connect(pair.now, &Connect { local, remote, ..call() }).unwrap();
    let req = forger.poll_transmit().unwrap().mad;
    let dreq = Message::Dreq(Dreq { local_id: 5, remote_id: 6, remote_qpn: 7, private: &[] });
    let dreq = Mad { transaction: 1, message: dreq }.emit();
    let rep = Message::Rep(wire::cm::Rep {
        local_id: 5,
        remote_id: 6,
        qpn: 7,
        starting_psn: Psn::new(0),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: Timeout::new(15),
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 77,
        private: &[],
    });
    let rep = Mad { transaction: 1, message: rep }.emit();
    let flood = |pair: &mut Pair, mad: &[u8; MAD_SIZE]| {
        let mut answers = 0;
        for _ in 0..FLOOD {
            pair.cms[B].receive(pair.now, flooder, address(B), mad).unwrap();
            answers += std::iter::from_fn(|| pair.cms[B].poll_transmit()).count();
        }
        answers as u64
    };
    let mut unanswered = 0;
    for mad in [&req, &dreq, &rep] {
        let answers = flood(&mut pair, mad);
        unanswered += u64::from(FLOOD) - answers;
        assert!((100..=600).contains(&answers), "{answers} answers");
        assert_eq!(pair.cms[B].unanswered(), unanswered);
        // Everybody can still call the service that exists, even from the flooder's address.
        for from in [flooder, address(A)] {
            let qpn = pair.cms[B].unanswered() as u32 & 0xFFFF | u32::from(from == flooder) << 20;
            let mut caller = Cm::new(Cfg::new(5), super::random(qpn.into()));
            let local = SocketAddr::new(from, 1);
            caller.connect(pair.now, &Connect { local, qpn, ..call() }).unwrap();
            let req = caller.poll_transmit().unwrap();
            pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
            let (id, _) = pair.request();
            pair.accept(id, id.0 & 0xFF_FFFF);
            assert_eq!(name(&pair.cms[B].poll_transmit().unwrap()), "REP");
        }
        // After the flood, all messages are answered again.
        pair.pass_without_receiving(10 * SECOND);
        pair.events(B);
    }
    assert_eq!(pair.cms[B].unanswered(), unanswered);
}

/// A REQ that comes again without a pause is answered only as often as a caller may repeat it.
#[test]
fn a_request_again_and_again() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 16).unwrap();
    let mut caller = Cm::new(Cfg::new(5), super::random(1));
    caller.connect(pair.now, &call()).unwrap();
    let req = caller.poll_transmit().unwrap();
    let mut answers = 0;
    for _ in 0..1000 {
        pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
        answers += pair.pass_without_receiving(Duration::from_millis(1));
    }
    // There is one MRA in each tenth of a second.
    assert_eq!(answers, 10);
    let (id, _) = pair.request();
    pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]).unwrap();
    let mut answers = 0;
    for _ in 0..300 {
        pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
        answers += pair.pass_without_receiving(Duration::from_millis(1));
    }
    assert!((3..=4).contains(&answers), "{answers} refusals");
}

/// A stranger who knows a peer's queue pair sends REQs that name it, without a pause. The program
/// is asked only a limited number of times whether the peer is still there.
#[test]
fn a_flood_of_stale_requests() {
    let mut pair = Pair::new();
    let [_, b] = pair.connected();
    let peer = pair.cms[B].conns[&b.0].peer;
    let mut asked = 0;
    for n in 0..if cfg!(miri) { 600 } else { 10_000_u32 } {
        let mut forger = Cm::new(Cfg::new(peer.ca_guid), super::random(n.into()));
        forger.connect(pair.now, &Connect { qpn: peer.qpn, ..call() }).unwrap();
        let req = forger.poll_transmit().unwrap();
        pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
        asked += pair.events(B).iter().filter(|event| **event == (b, Event::Stale)).count();
        pair.cms[B].poll_transmit();
    }
    assert!(asked <= 600, "{asked} questions");
}

/// REQs of one address come without a pause. They occupy a limited number of queue pairs: at most
/// the maximum number of waiting acceptances, plus one for each place of the backlog.
#[test]
fn forgeries_without_a_pause_hold_a_limited_number_of_queue_pairs() {
    const MAX: usize = half_open::MAX_PER_SOURCE;
    const BACKLOG: usize = 64;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, BACKLOG).unwrap();
    let (mut most, mut accepted) = (0, 0);
    for n in 0..3000 {
        // The program accepts requests one by one, and forged REQs fill the backlog again at once.
        let requests: Vec<_> = pair.events(B);
        for (id, event) in requests {
            if matches!(event, Event::Request(_)) {
                for k in 0..3 {
                    forge(&mut pair.cms[B], 3 * n + k, address(A), pair.now);
                }
                pair.accept(id, id.0 & 0xFF_FFFF);
                accepted += 1;
                most = most.max(pair.half_open());
            }
        }
        forge(&mut pair.cms[B], 100_000 + n, address(A), pair.now);
        pair.pass_without_receiving(Duration::from_millis(1));
    }
    assert!(accepted > 10 * MAX, "only {accepted} requests were accepted in three seconds");
    assert!(most <= MAX + BACKLOG, "{most} requests waited; expected at most {}", MAX + BACKLOG);
}

/// REQs of one address fill the backlog. A REQ of another address is deferred until the program
/// decides on a request, and is then admitted before all others.
#[test]
fn a_backlog_full_of_forgeries_keeps_nobody_out() {
    const BACKLOG: u32 = 4;
    let attacker = IpAddr::from([10, 9, 0, 1]);
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, BACKLOG as usize).unwrap();
    for accepts in [true, false] {
        for n in 0..20 {
            forge(&mut pair.cms[B], n, attacker, pair.now);
        }
        let call = pair.connect(u32::from(accepts) << 7 | 1);
        pair.run();
        assert_eq!(pair.events(A), [], "the REQ is not refused");
        let forged = pair.events(B);
        assert_eq!(forged.len(), BACKLOG as usize);
        // The REQ of the other caller, and not a forged one, gets the place that becomes free.
        match accepts {
            true => pair.accept(forged[0].0, 0x1234),
            false => pair.cms[B].reject(pair.now, forged[0].0, Reason::CONSUMER, &[]).unwrap(),
        }
        for n in 20..40 {
            forge(&mut pair.cms[B], n, attacker, pair.now);
        }
        let (id, request) = pair.request();
        assert_eq!(request.from.ip(), address(A));
        pair.accept(id, 0x2345 + u32::from(accepts));
        pair.run();
        assert!(pair.events(A).iter().any(|(of, event)| {
            *of == call && matches!(event, Event::Accepted(_) | Event::Established)
        }));
        // The program rejects the remaining forged requests.
        let mut rest: Vec<_> = forged[1..].to_vec();
        while let Some((id, event)) = rest.pop() {
            if matches!(event, Event::Request(_)) {
                let _ = pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]);
            }
            rest.extend(pair.events(B));
        }
    }
}

/// Two REQs of a caller are deferred, and the first one is admitted. The caller repeats the second
/// one while its first request fills the backlog. The second REQ must not be refused: the refusal
/// would end the attempt, but the deferred REQ would still be admitted later.
#[test]
fn a_deferred_request_is_not_refused_when_it_is_repeated() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    forge(&mut pair.cms[B], 0, IpAddr::from([10, 9, 0, 1]), pair.now);
    let calls = [pair.connect(1), pair.connect(0x81)];
    pair.run();
    let (forged, _) = pair.request();
    pair.cms[B].reject(pair.now, forged, Reason::CONSUMER, &[]).unwrap();
    let mut requests = pair.events(B);
    let mut accepted = Vec::new();
    for n in 0..calls.len() {
        let &[(id, Event::Request(_))] = &requests[..] else { panic!("{requests:?}") };
        pair.sent();
        while !pair.sent().contains("A:REQ") {
            let due = pair.deadline().expect("A repeats its REQ");
            pair.pass(due.saturating_duration_since(pair.now));
        }
        pair.run();
        assert_eq!(pair.events(A), [], "no call may be refused");
        assert_eq!(pair.events(B), [], "only one request at a time may reach the program");
        pair.accept(id, 0x1234 + n as u32);
        pair.run();
        accepted.extend(pair.events(A).into_iter().map(|(id, _)| id));
        requests = pair.events(B);
        requests.retain(|(_, event)| *event != Event::Established);
    }
    assert_eq!(accepted, calls);
}

/// The number of REQs that a listener defers is limited. A deferred REQ is dropped if its caller
/// does not repeat it.
#[test]
fn requests_deferred_for_a_place_in_the_backlog_have_a_bound() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    forge(&mut pair.cms[B], 0, [10, 9, 0, 1].into(), pair.now);
    let deferred = |pair: &Pair| pair.cms[B].listeners[&PORT].deferred.len();
    for n in 1..200 {
        forge(&mut pair.cms[B], n, [10, 9, 0, 2].into(), pair.now);
    }
    assert_eq!(deferred(&pair), 8, "at most 8 REQs of one address may be deferred");
    for n in 200..400 {
        forge(&mut pair.cms[B], n, [10, 9, 1, n as u8].into(), pair.now);
    }
    assert_eq!(deferred(&pair), incoming_req::MAX_DEFERRED_PER_LISTENER);
    // The caller of one deferred REQ repeats it. The only effect is that this REQ is kept longer.
    pair.pass_without_receiving(3 * SECOND);
    forge(&mut pair.cms[B], 5, [10, 9, 0, 2].into(), pair.now);
    assert_eq!(deferred(&pair), incoming_req::MAX_DEFERRED_PER_LISTENER);
    pair.pass_without_receiving(3 * SECOND);
    let (first, _) = pair.request();
    pair.cms[B].reject(pair.now, first, Reason::CONSUMER, &[]).unwrap();
    let (second, kept) = pair.request();
    assert_eq!(kept.from.ip(), IpAddr::from([10, 9, 0, 2]));
    pair.cms[B].reject(pair.now, second, Reason::CONSUMER, &[]).unwrap();
    assert_eq!((pair.events(B), deferred(&pair)), (vec![], 0));
}

/// A flood of REQs creates no more requests than the listener's backlog allows.
#[test]
fn a_flood_of_requests() {
    const BACKLOG: usize = 16;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, BACKLOG).unwrap();
    for n in 0..if cfg!(miri) { 100 } else { 10_000_u32 } {
        let from =
            SocketAddr::new(IpAddr::from(0x0A01_0000_u32.wrapping_add(n % 500).to_be_bytes()), 1);
        let now = pair.now;
        let mut caller = Cm::new(Cfg::new(u64::from(n) + 1), super::random(n.into()));
        caller.connect(now, &Connect { local: from, ..call() }).unwrap();
        let req = caller.poll_transmit().unwrap();
        pair.cms[B].receive(now, req.from, req.to, &req.mad).unwrap();
        assert!(pair.cms[B].len() <= BACKLOG);
        assert!(pair.cms[B].transmits.len() <= 1024);
    }
    // The program does not decide and the callers do not repeat their REQs, so the requests are
    // withdrawn.
    assert_eq!(pair.events(B).len(), BACKLOG);
    while pair.cms[B].poll_transmit().is_some() {}
    pair.pass(Duration::from_secs(130));
    assert_eq!(
        pair.events(B).iter().filter(|(_, event)| *event == Event::Withdrawn).count(),
        BACKLOG
    );
    assert!(pair.is_empty());
}

/// The number of rejections that are kept is limited.
#[test]
fn a_flood_of_refusals() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 1).unwrap();
    const REFUSALS: usize = if cfg!(miri) { 20 } else { 3 * actions::MAX_REJECTED };
    for n in 0..REFUSALS as u64 {
        let mut caller = Cm::new(Cfg::new(n + 1), super::random(n));
        caller.connect(pair.now, &call()).unwrap();
        let req = caller.poll_transmit().unwrap();
        pair.cms[B].receive(pair.now, req.from, req.to, &req.mad).unwrap();
        let (id, _) = pair.request();
        pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]).unwrap();
        while pair.cms[B].poll_transmit().is_some() {}
        assert!(pair.cms[B].len() <= actions::MAX_REJECTED);
        assert!(pair.cms[B].rejected.len() <= actions::MAX_REJECTED);
    }
    pair.pass_all();
    assert!(pair.is_empty());
}

/// A server with some queue pairs, each of which takes one connection at a time. It accepts each
/// request for which it has a queue pair, and rejects the others.
struct Server {
    free: Arc<AtomicUsize>,
    /// Whether the server creates its queue pairs before it has a request.
    creates_before: bool,
    /// The number of queue pairs without a connection.
    unused: usize,
}

impl Server {
    const QUEUE_PAIRS: usize = 16;

    fn at(cm: &mut Cm, creates_before: bool) -> Server {
        let server = Server { free: Arc::default(), creates_before, unused: Server::QUEUE_PAIRS };
        server.tell();
        let free = Arc::clone(&server.free);
        cm.share_queue_pairs(Box::new(move || free.load(Relaxed)));
        cm.listen(PORT, Server::QUEUE_PAIRS).unwrap();
        server
    }

    fn tell(&self) {
        self.free.store(if self.creates_before { self.unused } else { 0 }, Relaxed);
    }

    /// Handles the events of the server's side.
    fn run(&mut self, pair: &mut Pair) {
        for (id, event) in pair.events(B) {
            match event {
                Event::Request(_) if self.unused > 0 => {
                    self.unused -= 1;
                    pair.accept(id, id.0 & 0xFF_FFFF);
                }
                Event::Request(_) => {
                    pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]).unwrap();
                }
                Event::Established | Event::Released { .. } => {}
                _ => self.unused += 1,
            }
            self.tell();
        }
    }
}

/// One address sends 2,000 REQs a second to a server with 16 queue pairs, and answers no
/// acceptance. Each of twenty callers at another address is served at once.
#[test]
fn a_flood_of_one_address_leaves_queue_pairs_to_others() {
    const CALLERS: u32 = 20;
    let step = Duration::from_micros(500);
    for creates_before in [true, false] {
        let mut pair = Pair::new();
        let mut server = Server::at(&mut pair.cms[B], creates_before);
        let mut served = 0;
        for n in 0..CALLERS * 200 {
            forge(&mut pair.cms[B], n, [10, 9, 0, 1].into(), pair.now);
            server.run(&mut pair);
            pair.pass_without_receiving(step);
            if n % 200 == 150 {
                let call = pair.connect(n << 7 | 1);
                pair.run();
                server.run(&mut pair);
                pair.run();
                server.run(&mut pair);
                let events = pair.events(A);
                served +=
                    usize::from(matches!(events[..], [(id, Event::Accepted(_))] if id == call));
                pair.cms[A].disconnect(pair.now, call, Ending::Graceful);
                pair.run();
                server.run(&mut pair);
                pair.run();
                pair.events(A);
            }
        }
        assert_eq!(served, CALLERS as usize, "creates_before: {creates_before}");
    }
}

/// A program may decide only when it has the requests of all processes of a host.
#[test]
fn a_program_may_collect_requests_before_it_decides() {
    let mut pair = Pair::new();
    pair.cms[B].share_queue_pairs(Box::new(|| 0));
    pair.cms[B].listen(PORT, 32).unwrap();
    for n in 0..32 {
        pair.connect(n << 7 | 1);
    }
    pair.run();
    assert_eq!(pair.accept_all(), 32);
    pair.run();
    assert_eq!(pair.events(A).len(), 32);
}
