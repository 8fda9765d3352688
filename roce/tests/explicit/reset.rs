//! Queue pairs that are reset begin anew.

use adapter::ResponderCfg;
use rnic::{SendOp, WcOp};

use crate::side::*;

/// Completions that nobody has polled go, and those of other queue pairs stay. What was posted does
/// not complete, and the receives of the first life take no message of the second one, which has
/// another peer and other parameters.
#[test]
fn a_reset_queue_pair_begins_anew() {
    let sides = [&Side::open("127.0.0.130"), &Side::open("127.0.0.131")];
    let mut third = Side::open("127.0.0.132");
    third.memory[..MESSAGE].fill(0xc3);
    let ([a, b], c) = (sides, &third);
    let [pair, others] = [0; 2].map(|_| [a.qp(), b.qp()]);
    for qps in [&pair, &others] {
        connect([&qps[0], &qps[1]], [at("127.0.0.130"), at("127.0.0.131")]);
        (0..5).for_each(|id| b.receive(&qps[1], id));
        (10..12).for_each(|id| a.send(&qps[0], id));
    }
    until(sides, || a.counter("requests-completed") == 4 && b.counter("requests-served") == 4);
    for qp in &pair {
        qp.reset().expect("the queue pair can be reset");
        assert_eq!((qp.allocated(), qp.carried_out()), (0, 0));
    }
    let mut stayed = [const { Vec::new() }; 2];
    for (side, stayed) in sides.into_iter().zip(&mut stayed) {
        // The first queue pair of a side has the token 0, and the second one 1.
        side.cq.poll_with(usize::MAX, |wc| stayed.push((wc.qp, wc.op, wc.id)));
    }
    let expected = [[10, 11].map(|id| (1, WcOp::Send, id)), [0, 1].map(|id| (1, WcOp::Recv, id))];
    assert_eq!(stayed, expected);

    let from_c = c.qp();
    let addresses = [at("127.0.0.132"), at("127.0.0.131")];
    let (responder, requester) = cfgs(addresses, number(&pair[1]), [0xff_ffff, 5]);
    let (of_b, requester_of_b) =
        cfgs([addresses[1], addresses[0]], number(&from_c), [5, 0xff_ffff]);
    let short = |cfg: ResponderCfg| ResponderCfg { path_mtu: 256, ..cfg };
    from_c.establish_responder(&short(responder)).expect("the responder starts");
    pair[1].establish_responder(&short(of_b)).expect("the responder starts");
    from_c.establish_requester(&requester).expect("the requester starts");
    pair[1].establish_requester(&requester_of_b).expect("the requester starts");
    // The ids are those of receives of the first life.
    (3..5).for_each(|id| b.receive(&pair[1], id));
    c.receive(&from_c, 7);
    (20..22).for_each(|id| c.send(&from_c, id));
    b.send(&pair[1], 10);
    let mut done = completions([c, b], [3, 3]);
    done.iter_mut().for_each(|of| of.sort_by_key(|wc| wc.1));
    let of_c = vec![(WcOp::Recv, 7, OK), (WcOp::Send, 20, OK), (WcOp::Send, 21, OK)];
    let of_b = vec![(WcOp::Recv, 3, OK), (WcOp::Recv, 4, OK), (WcOp::Send, 10, OK)];
    assert_eq!(done, [of_c, of_b]);
    let place = |id: usize| (1 + id) * MESSAGE..(2 + id) * MESSAGE;
    assert!([3, 4].iter().all(|&id| b.memory[place(id)].iter().all(|&octet| octet == 0xc3)));
    // The other connection goes on.
    a.send(&others[0], 12);
    let done = completions(sides, [1, 1]);
    assert_eq!(done, [vec![(WcOp::Send, 12, OK)], vec![(WcOp::Recv, 2, OK)]]);
    assert_eq!([a.events(), b.events(), c.events()], [const { Vec::<String>::new() }; 3]);
}

/// Requests that the peer has not acknowledged are neither completed nor sent again.
#[test]
fn requests_in_flight_are_dropped() {
    let sides = [&Side::open("127.0.0.133"), &Side::open("127.0.0.134")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    let addresses = [at("127.0.0.133"), at("127.0.0.134")];
    let (responder, requester) = cfgs(addresses, number(&from_b), [10, 20]);
    assert!(from_a.discards_receives(), "the queue pair has not been used");
    from_a.establish_responder(&responder).expect("the responder starts");
    from_a.establish_requester(&requester).expect("the requester starts");
    let immediate = SendOp::SendImm { immediate: 1 };
    (1..4).for_each(|id| a.post(&from_a, id, immediate));
    a.receive(&from_a, 4);
    until(sides, || a.counter("packets-sent-again") >= 2);
    from_a.reset().expect("the queue pair can be reset");
    assert!(from_a.discards_receives(), "the queue pair is as it was created");
    a.receive(&from_a, 5);
    connect([&from_a, &from_b], addresses);
    (6..8).for_each(|id| b.receive(&from_b, id));
    a.send(&from_a, 1);
    b.send(&from_b, 9);
    let mut done = completions(sides, [2, 2]);
    done.iter_mut().for_each(|of| of.sort_by_key(|wc| wc.1));
    let of_a = vec![(WcOp::Send, 1, OK), (WcOp::Recv, 5, OK)];
    let of_b = vec![(WcOp::Recv, 6, OK), (WcOp::Send, 9, OK)];
    assert_eq!(done, [of_a, of_b]);
    assert_eq!(from_a.carried_out(), 1);
    assert_eq!((from_a.allocated(), from_b.allocated()), (0, 1));
    assert!(a.events().is_empty() && b.events().is_empty());
}
