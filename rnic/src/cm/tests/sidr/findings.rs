//! Tests of the limits on strangers, and of values that a peer must not be able to choose.

use super::*;

/// A request of an earlier listener must not free a place of the present one.
#[test]
fn a_new_listener_has_its_own_backlog() {
    let mut net = Net::listening(1);
    net.resolve(b"1");
    net.run();
    let (first, _) = net.event(B);
    net.managers[B].unlisten(PORT);
    net.managers[B].listen(PORT, 1).unwrap();
    net.resolve(b"2");
    net.run();
    net.event(B);
    net.accept(first, b"");
    net.resolve(b"3");
    net.run();
    assert_eq!(net.events(B), []);
}

/// A REP that was sent to another address than the REQ's source is not the answer.
#[test]
fn a_rep_to_another_address_is_ignored() {
    let mut net = Net::new();
    let a = net.resolve(b"");
    let req = net.transmits(A).remove(0);
    let rep = kernel_rep(a, SidrStatus::SUCCESS, b"");
    let mad = Mad { transaction: transaction(&req.mad), message: Message::SidrRep(rep) };
    net.managers[A].receive(net.now, address(B), [10, 0, 0, 9].into(), &mad);
    assert_eq!(net.events(A), []);
}

/// The management queue pairs and the multicast number are no service.
#[test]
fn a_reserved_queue_pair_is_no_answer() {
    for qpn in [0, 1, 0xFF_FFFF] {
        let mut net = Net::new();
        let a = net.resolve(b"");
        let req = net.transmits(A).remove(0);
        let rep = SidrRep { qpn, ..kernel_rep(a, SidrStatus::SUCCESS, b"") };
        net.deliver(A, address(B), transaction(&req.mad), Message::SidrRep(rep));
        assert!(!matches!(net.events(A)[..], [(_, Event::Resolved { .. })]), "{qpn:#x}");
    }
}

/// Linux gets zeros after the private data, because its programs see the whole field.
#[test]
fn linux_gets_no_trailer() {
    let mut net = Net::listening(1);
    net.deliver(B, address(A), 0, kernel_req(1, &field(address(A), b"")));
    let (id, _) = net.event(B);
    net.accept(id, b"hello");
    let sent = net.transmits(B).remove(0);
    assert_eq!(sent.mad[120..], padded(b"hello", 136));
}

/// One address cannot take all places of a backlog for ever.
#[test]
fn a_flood_of_one_address_leaves_room_for_others() {
    let mut net = Net::listening(256);
    let flooder = [11, 0, 0, 1].into();
    for id in 0..1000 {
        net.deliver(B, flooder, 0, kernel_req(id, &field(flooder, b"")));
    }
    net.events(B);
    net.resolve(b"honest");
    net.run();
    assert_eq!(net.events(B).len(), 1);
}

/// A flood of one address does not make the manager forget its answers to others.
#[test]
fn a_flood_of_one_address_replaces_no_answers_to_others() {
    let mut net = Net::listening(1);
    net.lose[B] = 1;
    let a = net.resolve(b"honest");
    net.run();
    let (id, _) = net.event(B);
    net.accept(id, b"");
    net.run();
    let flooder = [11, 0, 0, 1].into();
    for id in 0..2000 {
        net.deliver(B, flooder, 0, kernel_req(id, &field(flooder, b"")));
        for (id, _) in net.events(B) {
            net.managers[B].reject(net.now, id, SidrStatus::REJECT, b"").unwrap();
        }
        net.transmits(B);
    }
    net.pass(SECOND);
    assert_eq!((net.events(B), net.events(A)), (vec![], vec![(a, resolved(b""))]));
}

/// A request that its caller gave up long ago no longer takes a place in the backlog.
#[test]
fn a_forgotten_request_frees_its_place() {
    let mut net = Net::listening(1);
    net.deliver(B, address(A), 0, kernel_req(1, &field(address(A), b"")));
    net.events(B);
    net.pass(3600 * SECOND);
    net.resolve(b"honest");
    net.run();
    assert_eq!(net.events(B).len(), 1);
}

/// The number of repeated answers is limited like that of refusals.
#[test]
fn repeated_answers_have_a_limit() {
    let mut net = Net::listening(1);
    let (from, private) = (address(A), field(address(A), b""));
    net.deliver(B, from, 0, kernel_req(1, &private));
    let (id, _) = net.event(B);
    net.accept(id, b"");
    let mut sent = 0;
    for _ in 0..10_000 {
        net.deliver(B, from, 0, kernel_req(1, &private));
        sent += net.transmits(B).len();
    }
    assert!(sent < 1000, "{sent}");
}

/// Only attempts can be cancelled.
#[test]
fn a_request_is_not_cancelled() {
    // All IDs of this manager are one of two numbers.
    let mut manager = Sidr::new(LowBits { count: 31, value: 1 }, random(1));
    manager.listen(PORT, 1).unwrap();
    let private = field(address(A), b"");
    let mad = Mad { transaction: 0, message: kernel_req(2, &private) };
    manager.receive(Instant::now(), address(A), address(B), &mad);
    manager.cancel(ResolveId(1));
    manager.cancel(ResolveId(0x8000_0001));
    assert!(manager.poll_event().is_some());
}

/// A request is open until its answer is forgotten, so its repetitions find the manager even if the
/// listener is gone.
#[test]
fn open_requests_of_a_port() {
    let mut net = Net::listening(1);
    let open = |net: &Net| [PORT, PORT + 1].map(|port| net.managers[B].has_open_requests(port));
    assert_eq!(open(&net), [false, false]);
    net.resolve(b"");
    net.run();
    let (id, _) = net.event(B);
    net.managers[B].unlisten(PORT);
    assert_eq!(open(&net), [true, false]);
    net.accept(id, b"");
    assert_eq!(open(&net), [true, false]);
    net.pass(71 * SECOND);
    assert_eq!(open(&net), [false, false]);
    assert_eq!(net.deadline(), None);
}
