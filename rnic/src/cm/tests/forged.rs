//! Tests with forged messages, and with acceptances that nobody confirms.

use std::panic::AssertUnwindSafe;

use wire::cm::{Answered, Dreq, MAD_SIZE, Mad, Message, Mra, Rej};

use super::*;

/// The contents of the tables and timers.
fn snapshot(cm: &Cm) -> String {
    let mut conns: Vec<_> = cm
        .conns
        .values()
        .map(|conn| {
            (
                conn.id,
                conn.state,
                conn.local,
                conn.remote,
                conn.qpn,
                conn.peer,
                conn.muted,
                conn.armed,
            )
        })
        .collect();
    conns.sort_by_key(|conn| conn.0);
    format!("{conns:?} {:?} {:?}", cm.by_request.len(), cm.timers)
}

/// Every message that ends or changes a connection contains values that only the peer knows. If one
/// of them is wrong, the message is ignored.
#[test]
fn a_forged_message_changes_nothing() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 4).unwrap();
    let [a, b] = pair.connected();
    // These connections are in four other states. They wait for the REP, for the program's
    // decision, for the RTU and for the DREP.
    let calling = pair.connect(QPN[A] + 0x80);
    pair.run();
    let (undecided, _) = pair.request();
    pair.lose = vec!["A:RTU", "A:DREQ"];
    pair.connect(QPN[A] + 0x100);
    pair.run();
    let (accepted, _) = pair.request();
    pair.accept(accepted, QPN[B] + 0x100);
    pair.run();
    let ending = pair.connect(QPN[A] + 0x180);
    pair.run();
    let (id, _) = pair.request();
    pair.accept(id, QPN[B] + 0x180);
    pair.run();
    pair.cms[A].disconnect(pair.now, ending, Ending::Graceful);
    pair.run();
    for side in [A, B] {
        pair.events(side);
    }

    for (side, id) in [(A, a), (B, b), (A, calling), (B, undecided), (B, accepted), (A, ending)] {
        let conn = &pair.cms[side].conns[&id.0];
        let (ours, theirs, qpn, transaction) =
            (id.0, conn.peer.id, conn.qpn.unwrap_or(0), conn.transaction);
        let rej = |local_id, remote_id, answered| {
            let (reason, ari, private) = (Reason::CONSUMER, &[][..], &[][..]);
            Message::Rej(Rej { local_id, remote_id, answered, reason, ari, private })
        };
        let dreq = |local_id, remote_id, remote_qpn| {
            Message::Dreq(Dreq { local_id, remote_id, remote_qpn, private: &[] })
        };
        let rtu =
            |local_id, remote_id| Message::Rtu(wire::cm::Rtu { local_id, remote_id, private: &[] });
        let drep = |local_id, remote_id| {
            Message::Drep(wire::cm::Drep { local_id, remote_id, private: &[] })
        };
        let mra = |local_id, remote_id, answered| {
            let service_timeout = Timeout::new(31);
            Message::Mra(Mra { local_id, remote_id, answered, service_timeout, private: &[] })
        };
        let stranger = theirs ^ 1;
        let mut forged = vec![
            rej(stranger, ours, Answered::Other),
            rej(stranger, ours, Answered::Rep),
            rtu(stranger, ours),
            drep(stranger, ours),
            dreq(stranger, ours, qpn),
            dreq(theirs, ours, qpn ^ 1),
            mra(stranger, ours, Answered::Rep),
        ];
        if pair.state(side, id) == State::ReqSent {
            // This side does not know the peer's ID yet, so it checks the transaction ID.
            forged.push(mra(theirs, ours, Answered::Req));
            forged.push(rej(theirs, ours, Answered::Req));
        }
        let before = snapshot(&pair.cms[side]);
        for message in forged {
            let transaction =
                if pair.state(side, id) == State::ReqSent { transaction ^ 1 } else { transaction };
            let mad = Mad { transaction, message }.emit();
            pair.cms[side].receive(pair.now, address(1 - side), address(side), &mad).unwrap();
            assert_eq!(snapshot(&pair.cms[side]), before, "{message:?}");
        }
        // All values are right, but the source or the destination address of the message is wrong.
        let right = [
            rej(theirs, ours, Answered::Other),
            rej(theirs, ours, Answered::Req),
            rtu(theirs, ours),
            drep(theirs, ours),
            dreq(theirs, ours, qpn),
            mra(theirs, ours, Answered::Rep),
            mra(theirs, ours, Answered::Req),
        ];
        for message in right {
            let mad = Mad { transaction, message }.emit();
            let elsewhere = IpAddr::from([10, 0, 0, 3]);
            for (from, to) in [(elsewhere, address(side)), (address(1 - side), elsewhere)] {
                pair.cms[side].receive(pair.now, from, to, &mad).unwrap();
                assert_eq!(snapshot(&pair.cms[side]), before, "{message:?} from {from} to {to}");
            }
        }
        assert_eq!(pair.events(side), []);
    }
}

/// Anybody can make a REQ that names the queue pair of somebody else's connection. The REQ ends no
/// connection. The peer is asked only if there is a listener for the REQ.
#[test]
fn a_forged_request_ends_no_connection() {
    let mut pair = Pair::new();
    let [a, b] = pair.connected();
    pair.cms[A].listen(PORT + 1, 4).unwrap();
    for (side, id) in [(A, a), (B, b)] {
        let peer = pair.cms[side].conns[&id.0].peer;
        let before = snapshot(&pair.cms[side]);
        for (port, is_asked) in [(PORT + u16::from(side == A), true), (PORT + 7, false)] {
            let mut forger = Cm::new(Cfg::new(peer.ca_guid), super::random(1));
            let (local, remote) =
                (SocketAddr::new(address(1 - side), 1), SocketAddr::new(address(side), port));
            forger.connect(pair.now, &Connect { local, remote, qpn: peer.qpn, ..call() }).unwrap();
            let req = forger.poll_transmit().unwrap();
            pair.cms[side].receive(pair.now, req.from, req.to, &req.mad).unwrap();
            assert_eq!(snapshot(&pair.cms[side]), before);
            let asked = [(id, Event::Stale)];
            assert_eq!(pair.events(side), if is_asked { &asked[..] } else { &[] });
            pair.cms[side].poll_transmit().expect("a refusal");
            assert_eq!(pair.cms[side].poll_transmit(), None);
        }
    }
}

/// Delivers a REQ of another caller at the address `source`, that asks for the longest possible
/// times.
pub(super) fn forge(cm: &mut Cm, n: u32, source: IpAddr, now: Instant) {
    let to = if source.is_ipv4() { address(B) } else { [0xFD00, 2, 0, 0, 0, 0, 0, 1].into() };
    let cfg = Cfg { response_timeout: Timeout::new(31), ..Cfg::new(u64::from(n) + 1) };
    let mut forger = Cm::new(cfg, super::random(n.into()));
    let (local, remote) = (SocketAddr::new(source, 1), SocketAddr::new(to, PORT));
    let ack_timeout = Timeout::new(31);
    forger
        .connect(now, &Connect { local, remote, qpn: n << 7 | 1, ack_timeout, ..call() })
        .unwrap();
    let req = forger.poll_transmit().unwrap();
    cm.receive(now, req.from, req.to, &req.mad).unwrap();
}

impl Pair {
    /// Makes B accept all requests that it has received. Returns their number.
    pub(super) fn accept_all(&mut self) -> usize {
        let events = self.events(B);
        let requests = events.iter().filter(|(_, event)| matches!(event, Event::Request(_)));
        let requests: Vec<_> = requests.map(|&(id, _)| id).collect();
        for &id in &requests {
            self.accept(id, id.0 & 0xFF_FFFF);
        }
        requests.len()
    }

    /// The number of acceptances of B that wait for their RTU.
    pub(super) fn half_open(&self) -> usize {
        self.cms[B].conns.values().filter(|conn| conn.state == State::RepSent).count()
    }

    /// Lets time pass in which no message arrives. Returns the number of messages that B sends in
    /// this time.
    pub(super) fn pass_without_receiving(&mut self, time: Duration) -> usize {
        let end = self.now + time;
        let mut sent = 0;
        loop {
            sent += std::iter::from_fn(|| self.cms[B].poll_transmit()).count();
            let Some(due) = self.cms[B].deadline().filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            self.cms[B].expire(self.now);
        }
        self.now = end;
        sent
    }
}

/// Callers are accepted and never answer. Each further acceptance waits for less time, so most of
/// the sixteen queue pairs of a server are free again after two seconds. Soon after an acceptance
/// has ended, no state of it is left.
#[test]
fn callers_that_never_answer() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..16 {
        forge(&mut pair.cms[B], n, address(A), pair.now);
        assert_eq!(pair.accept_all(), 1);
    }
    let failed = |events: &[(ConnId, Event)]| {
        events.iter().filter(|(_, event)| *event == Event::AcceptFailed).count()
    };
    pair.pass_without_receiving(2 * SECOND);
    assert_eq!(failed(&pair.events(B)), 9);
    pair.pass_without_receiving(6 * SECOND);
    assert_eq!(failed(&pair.events(B)), 6);
    // The first acceptance waits for as long as its REP is repeated.
    pair.pass_without_receiving(3 * SECOND);
    assert_eq!((pair.half_open(), pair.cms[B].len()), (1, 1));
}

/// The alleged sender of a forged REQ gets few datagrams for it, and only for a few seconds,
/// whatever times the REQ asks for.
#[test]
fn an_acceptance_that_is_given_up_is_soon_forgotten() {
    const REQS: u32 = 50;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..=REQS {
        forge(&mut pair.cms[B], n, [10, 1, 0, n as u8].into(), pair.now);
        pair.accept_all();
    }
    let mut sent = pair.pass_without_receiving(12 * SECOND);
    assert!(
        pair.cms[B].len() <= 3,
        "{} connections are left; expected at most 3",
        pair.cms[B].len()
    );
    sent += pair.pass_without_receiving(8 * SECOND);
    // Each REQ causes three REPs, a REJ and five DREQs. The first REQ causes some more REPs.
    assert!(sent <= 9 * REQS as usize + 10, "{sent} messages");
    let released = |(_, event): &(ConnId, Event)| matches!(event, Event::Released { .. });
    assert_eq!(pair.events(B).iter().filter(|event| released(event)).count(), REQS as usize);
    assert_eq!((pair.half_open(), pair.cms[B].len()), (1, 1));
}

/// If a caller refuses an acceptance, the acceptance is soon forgotten.
#[test]
fn an_acceptance_that_is_refused_is_soon_forgotten() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    forge(&mut pair.cms[B], 0, address(A), pair.now);
    pair.accept_all();
    let (&id, conn) = pair.cms[B].conns.iter().next().unwrap();
    let (reason, ari, private) = (Reason::CONSUMER, &[][..], &[][..]);
    let (local_id, answered) = (conn.peer.id, Answered::Rep);
    let rej = Message::Rej(Rej { local_id, remote_id: id, answered, reason, ari, private });
    let mad = Mad { transaction: conn.transaction, message: rej }.emit();
    pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
    pair.pass_without_receiving(2 * SECOND);
    assert!(pair.is_empty());
}

/// Forged REQs of a caller's address do not keep the caller from connecting. But a caller that
/// makes many connections at once loses none of them.
#[test]
fn forged_requests_do_not_keep_their_caller_out() {
    const MAX: u32 = half_open::MAX_PER_SOURCE as u32;
    let ms = Duration::from_millis(1);
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..MAX {
        forge(&mut pair.cms[B], n, address(A), pair.now);
        assert_eq!(pair.accept_all(), 1);
    }
    // One more REQ is deferred. Its caller repeats it.
    pair.pass_without_receiving(half_open::EVICTABLE_AFTER - ms);
    forge(&mut pair.cms[B], MAX, address(A), pair.now);
    assert_eq!((pair.accept_all(), pair.half_open()), (0, MAX as usize));
    // Now each REQ ends the oldest acceptance and takes its place, even if the REQs come without a
    // pause.
    pair.pass_without_receiving(ms);
    for n in 0..10 {
        forge(&mut pair.cms[B], MAX + n, address(A), pair.now);
        assert_eq!((pair.accept_all(), pair.half_open()), (1, MAX as usize));
    }
    // Requests that the program rejects do not count as waiting acceptances.
    forge(&mut pair.cms[B], 2 * MAX, address(A), pair.now);
    let id = pair
        .events(B)
        .into_iter()
        .rev()
        .find_map(|(id, event)| matches!(event, Event::Request(_)).then_some(id));
    pair.cms[B].reject(pair.now, id.unwrap(), Reason::CONSUMER, &[]).unwrap();
    assert_eq!(pair.half_open(), MAX as usize);
    // Callers at another address are not affected.
    forge(&mut pair.cms[B], 3 * MAX, [10, 0, 0, 9].into(), pair.now);
    assert_eq!((pair.accept_all(), pair.half_open()), (1, MAX as usize + 1));
}

/// Requests that waited for a decision when there were few acceptances may all be accepted at once.
/// Soon afterwards, the number of waiting acceptances is within the limit again.
#[test]
fn many_requests_are_accepted_at_once() {
    const MAX: u32 = half_open::MAX_PER_SOURCE as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..2 * MAX {
        forge(&mut pair.cms[B], n, address(A), pair.now);
    }
    assert_eq!(pair.accept_all(), 2 * MAX as usize);
    assert_eq!(pair.half_open(), 2 * MAX as usize);
    for n in 0..MAX {
        forge(&mut pair.cms[B], 2 * MAX + n, address(A), pair.now);
    }
    assert_eq!(pair.accept_all(), 0);
    pair.pass_without_receiving(Duration::from_millis(500));
    assert!(
        pair.half_open() <= MAX as usize,
        "{} accepted requests wait; expected at most {MAX}",
        pair.half_open()
    );
}

/// One host may have all IPv6 addresses with the same first 64 bits.
#[test]
fn addresses_of_one_network_count_together() {
    const MAX: u32 = half_open::MAX_PER_SOURCE as u32;
    for (prefix, expected) in [(0xFD00, MAX), (0xFE80, MAX + 1)] {
        let mut pair = Pair::new();
        pair.cms[B].listen(PORT, 200).unwrap();
        for n in 0..=MAX {
            let source = [prefix, 0, 0, 0, 0, 0, 0, n as u16 + 1].into();
            forge(&mut pair.cms[B], n, source, pair.now);
            pair.accept_all();
        }
        assert_eq!(pair.half_open(), expected as usize);
    }
}

/// A caller that answers with an MRA has received the REP. Such a caller does not shorten the time
/// of other callers, but its own time is limited, too.
#[test]
fn callers_that_ask_for_time() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..half_open::MAX_PER_SOURCE as u32 {
        forge(&mut pair.cms[B], n, address(A), pair.now);
        pair.accept_all();
    }
    let mra_all = |pair: &mut Pair| {
        let waiting = pair.cms[B].conns.iter().filter(|(_, conn)| conn.state == State::RepSent);
        let waiting: Vec<_> =
            waiting.map(|(&id, conn)| (id, conn.peer.id, conn.transaction)).collect();
        for (remote_id, local_id, transaction) in waiting {
            let (answered, service_timeout) = (Answered::Rep, Timeout::new(31));
            let mra = Mra { local_id, remote_id, answered, service_timeout, private: &[] };
            let mad = Mad { transaction, message: Message::Mra(mra) }.emit();
            pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
        }
    };
    mra_all(&mut pair);
    assert!(!pair.cms[B].half_open.is_full(address(A)));
    assert_eq!(pair.cms[B].half_open.rtu_wait(), None);
    for _ in 0..17 {
        pair.pass_without_receiving(10 * SECOND);
        mra_all(&mut pair);
        assert_eq!(pair.half_open(), half_open::MAX_PER_SOURCE);
    }
    pair.pass_without_receiving(10 * SECOND);
    assert_eq!(pair.half_open(), 0);
    pair.pass_without_receiving(10 * SECOND);
    assert!(pair.is_empty());
}

/// A deferred REQ is admitted when an acceptance or a request of its address ends. It is dropped
/// when its caller gives up. If it was admitted before its turn, it is not admitted again.
#[test]
fn deferred_requests_are_admitted_in_turn() {
    const MAX: u32 = half_open::MAX_PER_SOURCE as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    // One request waits for a decision, and the maximum number of acceptances wait for their RTU.
    forge(&mut pair.cms[B], 0, address(A), pair.now);
    let (undecided, _) = pair.request();
    for n in 1..=MAX {
        forge(&mut pair.cms[B], n, address(A), pair.now);
        pair.accept_all();
    }
    for n in 1..=4 {
        forge(&mut pair.cms[B], MAX + n, address(A), pair.now);
    }
    assert_eq!((pair.events(B).len(), pair.cms[B].half_open.deferred_count()), (0, 4));
    // A rejection admits no deferred REQ while the maximum number of acceptances wait.
    pair.cms[B].reject(pair.now, undecided, Reason::CONSUMER, &[]).unwrap();
    assert_eq!((pair.events(B).len(), pair.cms[B].half_open.deferred_count()), (0, 4));
    // The first deferred caller gives up.
    let mut ari = [0; 8];
    ari.copy_from_slice(&(u64::from(MAX) + 2).to_be_bytes());
    let local_id = super::random(u64::from(MAX) + 1)() as u32;
    let rej = Message::Rej(Rej {
        local_id,
        remote_id: 0,
        answered: Answered::Req,
        reason: Reason::TIMEOUT,
        ari: &ari,
        private: &[],
    });
    let mad = Mad { transaction: 0, message: rej }.emit();
    pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
    assert_eq!(pair.cms[B].half_open.deferred_count(), 3);
    // A caller refuses its acceptance, so the program gets the next deferred REQ. When the program
    // rejects this REQ, the program gets the deferred REQ after it.
    let refuse_one = |pair: &mut Pair| {
        let waits = pair.cms[B].conns.values().find(|conn| conn.state == State::RepSent).unwrap();
        let (local_id, remote_id, transaction) = (waits.peer.id, waits.id, waits.transaction);
        let (reason, ari, private) = (Reason::CONSUMER, &[][..], &[][..]);
        let answered = Answered::Rep;
        let rej = Message::Rej(Rej { local_id, remote_id, answered, reason, ari, private });
        let mad = Mad { transaction, message: rej }.emit();
        pair.cms[B].receive(pair.now, address(A), address(B), &mad).unwrap();
    };
    let request = |pair: &mut Pair| {
        let events = pair.events(B);
        let mut requests = events.iter().filter_map(|(id, event)| match event {
            Event::Request(request) => Some((*id, request.qpn >> 7)),
            _ => None,
        });
        (requests.next(), requests.next())
    };
    refuse_one(&mut pair);
    let (next, None) = request(&mut pair) else { panic!("only one request may arrive") };
    let (id, n) = next.expect("a request");
    assert_eq!((n, pair.cms[B].half_open.deferred_count()), (MAX + 2, 2));
    pair.cms[B].reject(pair.now, id, Reason::CONSUMER, &[]).unwrap();
    let (next, None) = request(&mut pair) else { panic!("only one request may arrive") };
    let (id, n) = next.expect("a request");
    assert_eq!((n, pair.cms[B].half_open.deferred_count()), (MAX + 3, 1));
    pair.accept(id, 5);
    assert_eq!(pair.half_open(), MAX as usize);
    // The last deferred REQ comes again when the oldest acceptance may be ended. The REQ is
    // admitted, and that acceptance ends.
    pair.pass_without_receiving(half_open::EVICTABLE_AFTER);
    forge(&mut pair.cms[B], MAX + 4, address(A), pair.now);
    assert_eq!((pair.accept_all(), pair.cms[B].half_open.deferred_count()), (1, 0));
    assert_eq!(pair.half_open(), MAX as usize);
}

/// Forged REQs of a caller's address are deferred. They prevent neither this caller nor other
/// callers from connecting.
#[test]
fn deferred_forgeries_keep_nobody_out() {
    const MAX: u32 = half_open::MAX_PER_SOURCE as u32;
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 200).unwrap();
    for n in 0..4000 {
        forge(&mut pair.cms[B], n, address(A), pair.now);
        pair.accept_all();
    }
    assert_eq!(pair.half_open(), MAX as usize);
    assert_eq!(pair.cms[B].half_open.deferred_count(), half_open::MAX_DEFERRED_PER_SOURCE);
    // A caller with another address is admitted at once.
    forge(&mut pair.cms[B], 5000, [10, 0, 0, 9].into(), pair.now);
    assert_eq!(pair.accept_all(), 1);
    // The caller whose address was forged is admitted as soon as the oldest acceptance may be
    // ended.
    pair.pass_without_receiving(half_open::EVICTABLE_AFTER);
    pair.events(B);
    pair.log.clear();
    let call = pair.connect(0x00_5581);
    pair.run();
    let (id, request) = pair.request();
    assert_eq!(request.qpn, 0x00_5581);
    pair.accept(id, QPN[B]);
    pair.run();
    assert!(
        pair.events(A).iter().any(|(of, event)| *of == call && matches!(event, Event::Accepted(_)))
    );
    // No state of the forged REQs is left.
    pair.pass_without_receiving(200 * SECOND);
    assert_eq!((pair.half_open(), pair.cms[B].half_open.deferred_count()), (0, 0));
}

/// Random datagrams, and altered datagrams of a real exchange, cause no panic. The tables stay
/// small, and all timers expire.
#[test]
fn hostile_datagrams() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, 8).unwrap();
    let mut seen: Vec<(usize, [u8; MAD_SIZE])> = vec![];
    const ROUNDS: usize = if cfg!(miri) { 500 } else { 100_000 };
    for round in 0..ROUNDS {
        if round % 100 == 0 && pair.cms[A].len() < 16 {
            pair.connect((random() as u32 & 0xFFFF) << 7 | 1);
        }
        for side in [A, B] {
            while let Some(transmit) = pair.cms[side].poll_transmit() {
                if seen.len() < 256 {
                    seen.push((side, transmit.mad));
                } else {
                    seen[random() % 256] = (side, transmit.mad);
                }
                if random() % 4 != 0 {
                    pair.cms[1 - side]
                        .receive(pair.now, transmit.from, transmit.to, &transmit.mad)
                        .unwrap();
                }
            }
            for (id, event) in pair.events(side) {
                match event {
                    Event::Request(_) if random() % 4 == 0 => {
                        pair.cms[side].reject(pair.now, id, Reason::CONSUMER, &[]).unwrap();
                    }
                    Event::Request(_) if random() % 2 == 0 => pair.accept(id, id.0 & 0xFF_FFFF),
                    Event::Accepted(_) if random() % 2 == 0 => {
                        pair.cms[side].disconnect(pair.now, id, Ending::Graceful);
                    }
                    Event::Established | Event::Accepted(_) => pair.cms[side].forget(pair.now, id),
                    _ => {}
                }
            }
        }
        let mut octets = [0; MAD_SIZE];
        let mut to = random() % 2;
        match random() % 4 {
            0 => octets.fill_with(|| random() as u8),
            _ => {
                let (sender, mad) = seen[random() % seen.len()];
                (octets, to) = (mad, 1 - sender);
                for _ in 0..random() % 4 {
                    octets[random() % 60] = random() as u8;
                }
            }
        }
        if random() % 2 == 0 {
            octets[..4].copy_from_slice(&[1, 7, 2, 3]);
            octets[16..18].copy_from_slice(&[0, 0x10 + (random() % 8) as u8]);
        }
        let size = if random() % 16 == 0 { random() % MAD_SIZE } else { MAD_SIZE };
        let received = std::panic::catch_unwind(AssertUnwindSafe(|| {
            pair.cms[to].receive(pair.now, address(1 - to), address(to), &octets[..size])
        }));
        assert!(received.is_ok(), "round {round}: {octets:02x?}");
        pair.now += Duration::from_millis(random() as u64 % 200);
        for cm in &mut pair.cms {
            cm.expire(pair.now);
            assert!(cm.len() < 200 + actions::MAX_REJECTED, "{}", cm.len());
        }
    }
    for side in [A, B] {
        let ids: Vec<_> = pair.cms[side].conns.keys().copied().collect();
        for id in ids {
            pair.cms[side].forget(pair.now, ConnId(id));
        }
    }
    pair.pass_all();
    assert!(pair.is_empty());
}
