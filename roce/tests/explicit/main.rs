//! Explicit connections through `adapter`, on real sockets: the two sides are told the parameters,
//! and no connection management takes part. Queue pairs have numbers from their creation on.

mod datagrams;
mod reset;
mod side;
mod strangers;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use adapter::{Error, RequesterCfg, ResponderCfg, Target};
use rnic::{Wc, WcOp, WcStatus};
use roce::Config;
use wire::cm::{Mad, Message};
use wire::rocev2::Packet;
use work::{Close, ReadDepth, RecvWr, SendOp, ServiceType};

use crate::side::*;

#[test]
fn messages_in_both_directions_in_order() {
    let sides = [&mut Side::open("127.0.0.110"), &mut Side::open("127.0.0.111")];
    let [a, b] = sides;
    a.memory[..MESSAGE].fill(0xa1);
    b.memory[..MESSAGE].fill(0xb2);
    let (a, b) = (&*a, &*b);
    let (from_a, from_b) = (a.qp(), b.qp());
    assert_ne!(number(&from_a), number(&a.qp()), "each queue pair has its own number");
    connect([&from_a, &from_b], [at("127.0.0.110"), at("127.0.0.111")]);
    (0..10).for_each(|id| a.receive(&from_a, id));
    (0..10).for_each(|id| b.receive(&from_b, id));
    (100..110).for_each(|id| a.send(&from_a, id));
    (100..110).for_each(|id| b.send(&from_b, id));
    for (side, from) in completions([a, b], [20, 20]).iter().zip([0xb2, 0xa1]) {
        let of = |op| side.iter().filter(move |wc| wc.0 == op).copied();
        assert!(of(WcOp::Send).eq((100..110).map(|id| (WcOp::Send, id, OK))), "{side:?}");
        assert!(of(WcOp::Recv).eq((0..10).map(|id| (WcOp::Recv, id, OK))), "{side:?}");
        let memory = if from == 0xb2 { &a.memory } else { &b.memory };
        assert!(memory[MESSAGE..11 * MESSAGE].iter().all(|&octet| octet == from));
    }
}

/// The end of a connection is an event of one side. The other side finds that nobody answers.
#[test]
fn the_peer_is_not_told_the_end() {
    let sides = [&Side::open("127.0.0.126"), &Side::open("127.0.0.127")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    let addresses = [at("127.0.0.126"), at("127.0.0.127")];
    let reversed = [addresses[1], addresses[0]];
    let (responder, requester) = cfgs(addresses, number(&from_b), [1, 2]);
    let (of_b, _) = cfgs(reversed, number(&from_a), [2, 1]);
    from_a.establish_responder(&responder).expect("the responder starts");
    from_b.establish_responder(&of_b).expect("the responder starts");
    from_a.establish_requester(&requester).expect("the requester starts");
    let impatient = RequesterCfg { first_psn: 2, ..IMPATIENT };
    from_b.establish_requester(&impatient).expect("the requester starts");
    a.receive(&from_a, 1);
    b.receive(&from_b, 2);
    from_a.disconnect(Close::Graceful);
    assert_eq!(completions(sides, [1, 0])[0], [(WcOp::Recv, 1, WcStatus::Flushed)]);
    assert_eq!(a.events(), ["Disconnected { by_peer: false }", "disconnected"]);
    assert!(b.events().is_empty());
    b.send(&from_b, 3);
    let ends = [(WcOp::Send, 3, WcStatus::Transport), (WcOp::Recv, 2, WcStatus::Flushed)];
    assert_eq!(completions(sides, [0, 2])[1], ends);
    until(sides, || b.events() == ["Silent", "broken"]);
    // Work that is posted after the end completes at once.
    b.send(&from_b, 4);
    assert_eq!(completions(sides, [0, 1])[1], [(WcOp::Send, 4, WcStatus::Flushed)]);
    // After the end, too, both queue pairs can be reset and connected again.
    for qp in [&from_a, &from_b] {
        qp.reset().expect("the queue pair can be reset");
    }
    connect([&from_a, &from_b], addresses);
    b.receive(&from_b, 5);
    a.send(&from_a, 6);
    let done = completions(sides, [1, 1]);
    assert_eq!(done, [vec![(WcOp::Send, 6, OK)], vec![(WcOp::Recv, 5, OK)]]);
}

#[test]
fn a_requester_does_not_start_before_its_responder() {
    let side = Side::open("127.0.0.112");
    let (qp, address) = (side.qp(), at("127.0.0.112"));
    let (responder, requester) = cfgs([address, address], 5, [1, 2]);
    assert_eq!(qp.establish_requester(&requester), Err(Error::InvalidState));
    let wrong = [
        ResponderCfg { peer: "::1".parse().expect("an address"), ..responder },
        ResponderCfg { peer_number: 1 << 24, ..responder },
        ResponderCfg { path_mtu: 1000, ..responder },
        ResponderCfg { first_psn: 1 << 24, ..responder },
        ResponderCfg { read_depth: 129, ..responder },
        ResponderCfg { rnr_timer: 32, ..responder },
    ];
    for wrong in wrong {
        assert_eq!(qp.establish_responder(&wrong), Err(Error::InvalidArgument), "{wrong:?}");
    }
    let elsewhere = ResponderCfg { local: at("127.0.0.113"), ..responder };
    assert_eq!(qp.establish_responder(&elsewhere), Err(Error::NoSuchAddress));
    assert_eq!(qp.establish_responder(&responder), Ok(()));
    assert_eq!(qp.establish_responder(&responder), Err(Error::InvalidState));
    let wrong = [
        RequesterCfg { first_psn: 1 << 24, ..requester },
        RequesterCfg { read_depth: 129, ..requester },
        RequesterCfg { ack_timeout: 32, ..requester },
        RequesterCfg { retries: 8, ..requester },
        RequesterCfg { rnr_retries: 8, ..requester },
    ];
    for wrong in wrong {
        assert_eq!(qp.establish_requester(&wrong), Err(Error::InvalidArgument), "{wrong:?}");
    }
    assert_eq!(qp.establish_requester(&requester), Ok(()));
    assert_eq!(qp.establish_requester(&requester), Err(Error::InvalidState));
    assert!(side.events().is_empty());
}

/// Without numbers from the creation on, there are no such connections.
#[test]
fn a_queue_pair_without_a_number_is_not_established_explicitly() {
    let side = Side::with("127.0.0.112", Config::default());
    let (qp, address) = (side.qp(), at("127.0.0.112"));
    let (responder, _) = cfgs([address, address], 5, [1, 2]);
    assert_eq!(qp.number(), None);
    assert_eq!(qp.establish_responder(&responder), Err(Error::NotSupported));
}

/// A side that has no responder yet takes nothing, and one that has no requester sends nothing.
#[test]
fn each_half_starts_with_its_own_call() {
    let sides = [&Side::open("127.0.0.113"), &Side::open("127.0.0.114")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    let addresses = [at("127.0.0.113"), at("127.0.0.114")];
    let (responder, requester) = cfgs(addresses, number(&from_b), [10, 20]);
    b.receive(&from_b, 1);
    from_a.establish_responder(&responder).expect("the responder starts");
    a.send(&from_a, 2);
    from_a.establish_requester(&requester).expect("the requester starts");
    // The message is sent again and again.
    until(sides, || a.counter("packets-sent-again") >= 2);
    let mut early = Vec::new();
    b.poll(&mut early);
    assert!(early.is_empty(), "{early:?}");
    let reversed = [addresses[1], addresses[0]];
    let (responder, requester) = cfgs(reversed, number(&from_a), [20, 10]);
    a.receive(&from_a, 3);
    b.send(&from_b, 4);
    from_b.establish_responder(&responder).expect("the responder starts");
    let done = completions(sides, [1, 1]);
    assert_eq!(done, [vec![(WcOp::Send, 2, OK)], vec![(WcOp::Recv, 1, OK)]]);
    // The responder has sent one packet, the acknowledgement, and none of its own request.
    assert_eq!(a.counter("requests-served"), 0);
    from_b.establish_requester(&requester).expect("the requester starts");
    let done = completions(sides, [1, 1]);
    assert_eq!(done, [vec![(WcOp::Recv, 3, OK)], vec![(WcOp::Send, 4, OK)]]);
}

/// Sends a message that the responder does not take, because `change` has changed a parameter of
/// either side. Returns a counter of the responder's side.
fn refused(
    [a_address, b_address]: [&str; 2],
    change: impl FnOnce(&mut ResponderCfg, &mut RequesterCfg),
    counter: &str,
) -> u64 {
    let sides = [&Side::open(a_address), &Side::open(b_address)];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    let addresses = [at(a_address), at(b_address)];
    let (responder, _) = cfgs(addresses, number(&from_b), [1000, 2000]);
    let mut requester = RequesterCfg { first_psn: 1000, ..IMPATIENT };
    let reversed = [addresses[1], addresses[0]];
    let (mut of_b, _) = cfgs(reversed, number(&from_a), [2000, 1000]);
    change(&mut of_b, &mut requester);
    b.receive(&from_b, 1);
    from_b.establish_responder(&of_b).expect("the responder starts");
    from_a.establish_responder(&responder).expect("the responder starts");
    from_a.establish_requester(&requester).expect("the requester starts");
    a.send(&from_a, 2);
    let done = completions(sides, [1, 0]);
    assert_eq!(done, [vec![(WcOp::Send, 2, WcStatus::Transport)], vec![]]);
    until(sides, || a.events().last().is_some_and(|last| last == "broken"));
    assert!(b.events().is_empty(), "{:?}", b.events());
    b.counter(counter)
}

#[test]
fn a_message_with_a_wrong_psn_is_not_taken() {
    let early = refused(
        ["127.0.0.115", "127.0.0.116"],
        |_, requester| requester.first_psn = 900,
        "packets-received-again",
    );
    assert!(early > 0, "the packet seems to be a repetition");
    let late = refused(
        ["127.0.0.115", "127.0.0.116"],
        |_, requester| requester.first_psn = 1001,
        "packets-out-of-order",
    );
    assert!(late > 0, "a packet seems to be missing");
}

#[test]
fn a_message_of_another_address_is_not_taken() {
    let foreign = refused(
        ["127.0.0.117", "127.0.0.118"],
        |responder, _| responder.peer = IpAddr::from([127, 0, 0, 119]),
        "packets-from-elsewhere",
    );
    assert!(foreign > 0);
}

/// The same queue pair is connected, ended and connected again at each address of the host. Its
/// number is valid at all of them, although another adapter has the first slot of one of them.
#[test]
fn a_number_is_valid_at_each_address() {
    let _other = Side::open("127.0.0.1");
    let sides = [&Side::open(""), &Side::open("")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    let numbers = [number(&from_a), number(&from_b)];
    for address in addresses_of_host() {
        connect([&from_a, &from_b], [address; 2]);
        b.receive(&from_b, 1);
        b.receive(&from_b, 2);
        a.send(&from_a, 3);
        let done = completions(sides, [1, 1]);
        assert_eq!(done, [vec![(WcOp::Send, 3, OK)], vec![(WcOp::Recv, 1, OK)]], "{address}");
        for qp in [&from_a, &from_b] {
            qp.reset().expect("the queue pair can be reset");
        }
        assert_eq!([number(&from_a), number(&from_b)], numbers);
    }
    assert!(a.events().is_empty() && b.events().is_empty());
}

/// A connection request carries the number that the queue pair has had since its creation.
#[test]
fn connection_management_tells_the_same_number() {
    let peer = UdpSocket::bind("127.0.0.121:4791").expect("the address is free");
    peer.set_read_timeout(Some(LIMIT)).expect("the socket is open");
    let side = Side::open("127.0.0.120");
    let qp = side.qp();
    let target = Target {
        peer: SocketAddr::from(([127, 0, 0, 121], 7)),
        private: &[],
        deadline: None,
        depth: ReadDepth { incoming: 1, outgoing: 1 },
    };
    qp.connect(&target).expect("the attempt starts");
    assert_eq!(qp.reset(), Err(Error::InvalidState));
    let mut buffer = [0; 4096];
    let told = loop {
        let len = peer.recv(&mut buffer).expect("a connection request comes");
        let packet = Packet::parse(&buffer[..len - 4]).expect("a packet");
        if let Ok(Mad { message: Message::Req(req), .. }) = Mad::parse(packet.payload) {
            break req.qpn;
        }
    };
    assert_eq!(told, number(&qp));
}

/// A send with immediate data finds no receive, in the queue of its queue pair or in a shared one.
/// It arrives when a receive is posted, once.
#[test]
fn a_send_with_immediate_data_waits_for_its_receive() {
    let sides = [&Side::open("127.0.0.128"), &Side::open("127.0.0.129")];
    let [a, b] = sides;
    let srq = b.adapter.srq(b.pd, DEPTH, 1, || {}).expect("there is memory");
    for srq in [None, Some(&srq)] {
        let (from_a, from_b) = (a.qp(), b.qp_of(ServiceType::Connection, srq));
        connect([&from_a, &from_b], [at("127.0.0.128"), at("127.0.0.129")]);
        let before = b.counter("rnr-naks-sent");
        (1..3).for_each(|id| a.post(&from_a, id, SendOp::SendImm { immediate: 70 + id as u32 }));
        until(sides, || b.counter("rnr-naks-sent") > before);
        let mut early = Vec::new();
        sides.iter().for_each(|side| side.poll(&mut early));
        assert!(early.is_empty(), "{early:?}");
        for id in 3..5 {
            match srq {
                None => b.receive(&from_b, id),
                Some(srq) => {
                    let segments = &b.segment(1 + id as usize);
                    // SAFETY: one thread posts, and the memory outlives the queue.
                    unsafe { srq.post_recv(&RecvWr { id, segments, quiet: false }) }
                        .expect("there is room");
                }
            }
        }
        let mut received = Vec::new();
        let mut done = Vec::new();
        until(sides, || {
            b.cq.poll_with(usize::MAX, |wc| received.push((wc.op, wc.id, wc.bytes, wc.immediate)));
            a.poll(&mut done);
            received.len() + done.len() == 4
        });
        let taken = |id, n| (WcOp::RecvMessageImm, id, MESSAGE as u32, Some(n));
        assert_eq!(received, [taken(3, 71), taken(4, 72)]);
        assert_eq!(done, [(WcOp::Send, 1, OK), (WcOp::Send, 2, OK)]);
        assert_eq!((from_b.allocated(), a.events()), (0, vec![]));
    }
}

/// Two threads poll one queue, and arm it whether or not it is empty. Each message completes once,
/// and the queue tells of completions that nobody polls for.
#[test]
fn threads_share_a_completion_queue() {
    const MESSAGES: u64 = 2000;
    let sides = [&Side::open("127.0.0.122"), &Side::open("127.0.0.123")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    connect([&from_a, &from_b], [at("127.0.0.122"), at("127.0.0.123")]);
    let (send, receive) = mpsc::channel::<Wc>();
    let done = AtomicUsize::new(0);
    let limit = Instant::now() + LIMIT;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let send = send.clone();
            let done = &done;
            scope.spawn(move || {
                while done.load(Ordering::SeqCst) < MESSAGES as usize && Instant::now() < limit {
                    b.cq.arm(false);
                    b.adapter.progress_on(b.cq.queue());
                    let taken = b.cq.poll_with(3, |wc| send.send(wc).expect("the test runs"));
                    done.fetch_add(taken, Ordering::SeqCst);
                    std::thread::yield_now();
                }
            });
        }
        let (mut posted, mut sent, mut own) = (0, 0, Vec::new());
        while done.load(Ordering::SeqCst) < MESSAGES as usize && Instant::now() < limit {
            while posted < MESSAGES && posted < done.load(Ordering::SeqCst) as u64 + DEPTH as u64 {
                b.receive(&from_b, posted);
                posted += 1;
            }
            while sent < posted && sent < own.len() as u64 + DEPTH as u64 {
                a.send(&from_a, sent);
                sent += 1;
            }
            a.poll(&mut own);
            std::thread::yield_now();
        }
    });
    drop(send);
    let mut ids: Vec<u64> = receive.iter().map(|wc| wc.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..MESSAGES));
    assert!(b.ready.load(Ordering::SeqCst) > 0, "the queue was armed all the time");
}

/// The next completion after the arming of a queue causes an event, although nobody has polled the
/// completions that were there before.
#[test]
fn a_queue_is_armed_although_it_is_not_empty() {
    let sides = [&Side::open("127.0.0.124"), &Side::open("127.0.0.125")];
    let [a, b] = sides;
    let (from_a, from_b) = (a.qp(), b.qp());
    connect([&from_a, &from_b], [at("127.0.0.124"), at("127.0.0.125")]);
    (0..2).for_each(|id| b.receive(&from_b, id));
    a.send(&from_a, 0);
    until(sides, || b.counter("requests-served") == 1);
    b.cq.arm(false);
    assert_eq!(b.ready.load(Ordering::SeqCst), 0, "the first completion was there before");
    a.send(&from_a, 1);
    until(sides, || b.ready.load(Ordering::SeqCst) == 1);
    let mut ids = Vec::new();
    b.cq.poll_with(usize::MAX, |wc| ids.push(wc.id));
    assert_eq!(ids, [0, 1]);
}
