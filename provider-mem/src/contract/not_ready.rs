//! Cases about messages for which no receive is posted.

use super::rig::*;
use dat_core::provider::*;

/// Some transports end the connection if a message has no receive. For such a transport, checks
/// that the connection ends, and returns true. The caller then skips the rest of the case.
fn breaks<'t, T: Transport>(rig: &Rig<'t, T>, sender: &End<'t, T>, receiver: &End<'t, T>) -> bool {
    let breaks = receives_must_be_there();
    if breaks {
        super::assert_broken(rig, receiver);
        super::assert_broken(rig, sender);
    }
    breaks
}

pub fn a_message_waits_for_its_receive<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let (a, b) = rig.pair();
    a.mem.write(0, &pattern(1, 64));
    for i in 0..4 {
        a.send(i, &[a.mem.segment(i as usize, 32)]);
    }
    a.post(4, SendOp::Write(b.mem.remote(1024)), &[a.mem.segment(0, 64)]);
    a.send(5, &[]);
    if breaks(&rig, &a, &b) {
        return;
    }
    // Messages in the other direction do not wait.
    a.recv(10, &[a.mem.segment(64, 8)]);
    b.send(11, &[b.mem.segment(0, 8)]);
    assert_eq!(outcomes(&rig.completions(&a.recvs, 1)), [(10, WcStatus::Success)]);
    assert_eq!(outcomes(&rig.completions(&b.requests, 1)), [(11, WcStatus::Success)]);
    // Other connections of the adapter do not wait either.
    let (c, d) = rig.pair();
    d.recv(20, &[]);
    c.send(21, &[]);
    assert_eq!(outcomes(&rig.completions(&d.recvs, 1)), [(20, WcStatus::Success)]);

    for i in 0..4 {
        b.recv(i, &[b.mem.segment(512, 64)]);
        let received = rig.completions(&b.recvs, 1);
        assert_eq!((outcomes(&received), received[0].bytes), (vec![(i, WcStatus::Success)], 32));
        assert_eq!(b.mem.read(512, 32), pattern(1, 64)[i as usize..][..32]);
        assert_eq!(poll::<T>(&b.recvs, 1), []);
    }
    b.recv(5, &[]);
    rig.completions(&b.recvs, 1);
    assert_eq!(
        b.mem.read(1024, 64),
        pattern(1, 64),
        "the data posted before the last message must have arrived"
    );
    let done: Vec<_> = (0..6).map(|id| (id, WcStatus::Success)).collect();
    assert_eq!(outcomes(&rig.completions(&a.requests, 6)), done);
    a.log.assert_silent();
    b.log.assert_silent();
}

/// Each message that waits for a receive is reported once, and other messages are not reported.
/// While a message waits, other connections continue.
pub fn each_message_that_waits_is_reported_once<T: Transport>(a: &T, b: &T) {
    const OCTETS: u32 = 64;
    let rig = Rig { a, b };
    let (sender, receiver) = rig.pair();
    let (c, d) = rig.pair();
    let exchange = |id| {
        d.recv(id, &[]);
        c.send(id, &[]);
        rig.completions(&d.recvs, 1);
        rig.completions(&c.requests, 1);
    };
    receiver.recv(0, &[]);
    sender.send(0, &[]);
    rig.completions(&receiver.recvs, 1);
    (1..4).for_each(|id| sender.send(id, &[sender.mem.segment(0, OCTETS as usize)]));
    if breaks(&rig, &sender, &receiver) {
        return;
    }
    for id in 1..4 {
        if !waits_are_unreported() {
            let word = || (receiver.log.waits().len() as u64 >= id).then_some(());
            rig.until("the report of a message that waits", word);
        }
        (0..50).for_each(exchange);
        receiver.recv(id, &[receiver.mem.segment(0, OCTETS as usize)]);
        assert_eq!(outcomes(&rig.completions(&receiver.recvs, 1)), [(id, WcStatus::Success)]);
    }
    let reported = if waits_are_unreported() { 0 } else { 3 };
    assert_eq!(receiver.log.waits(), vec![(OCTETS, true); reported]);
    for log in [&sender.log, &c.log, &d.log] {
        assert_eq!(log.waits(), [], "no message may wait while there is a receive for each");
    }
}

/// The messages are larger than all buffers on the path together. The sender is stopped until there
/// are receives, and no data are lost.
pub fn a_sender_is_stopped_until_there_are_receives<T: Transport>(a: &T, b: &T) {
    const LEN: usize = 1 << 20;
    const MESSAGES: u64 = 24;
    let rig = Rig { a, b };
    let (a, b) = (End::with(a, 2 * QUEUE, LEN), End::with(b, 2 * QUEUE, LEN));
    rig.join(&a, &b);
    let content = pattern(7, LEN);
    a.mem.write(0, &content);
    (0..MESSAGES).for_each(|id| a.send(id, &[a.mem.segment(0, LEN)]));
    if breaks(&rig, &a, &b) {
        return;
    }
    for id in 0..MESSAGES {
        b.recv(id, &[b.mem.segment(0, LEN)]);
        assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(id, WcStatus::Success)]);
        assert!(b.mem.read(0, LEN) == content, "message {id}");
    }
    assert_eq!(rig.completions(&a.requests, MESSAGES as usize).len(), MESSAGES as usize);
}

pub fn messages_wait_for_buffers_of_a_shared_queue<T: Transport>(a: &T, b: &T) {
    if b.attrs().max_srqs == 0 {
        return;
    }
    const MESSAGES_PER_SENDER: u64 = 6;
    let rig = Rig { a, b };
    let srq_log = Log::new(b);
    let pd = b.pd().expect("protection domain");
    let srq = b.srq(&pd, 32, 1, srq_log.sink()).expect("shared receive queue");
    let mut ends = [End::new(b), End::new(b), End::new(b)];
    let peers = [End::new(a), End::new(a), End::new(a)];
    for (end, peer) in ends.iter_mut().zip(&peers) {
        let cfg = cfg::<T>(&end.pd, &end.requests, &end.recvs, Some(&srq));
        end.qp = b.qp(cfg, end.log.sink()).expect("queue pair");
        rig.join(peer, end);
    }
    for peer in &peers {
        (0..MESSAGES_PER_SENDER).for_each(|id| peer.send(id, &[]));
    }
    if breaks(&rig, &peers[0], &ends[0]) {
        return;
    }
    let post = |id| {
        // SAFETY: the receives have no memory.
        unsafe { srq.post_recv(&RecvWr { id, segments: &[], quiet: false }) }
            .expect("the post succeeds")
    };
    let mut received = [0; 3];
    // Waits until `all` messages have arrived: at all endpoints or, if `others`, at the last two.
    let mut take = |all: u64, others: bool| {
        rig.until("a message for each buffer", || {
            for (end, received) in ends.iter().zip(&mut received) {
                let wcs = poll::<T>(&end.recvs, 8);
                assert!(wcs.iter().all(|wc| wc.status == WcStatus::Success), "{wcs:?}");
                *received += wcs.len() as u64;
            }
            (received[usize::from(others)..].iter().sum::<u64>() == all).then_some(received)
        })
    };
    // Buffers are posted one by one, and then several at once.
    for id in 0..6 {
        post(id);
        take(id + 1, false);
    }
    (6..15).for_each(post);
    let received = take(15, false);
    // If a queue pair disconnects while it waits for a buffer of a shared receive queue, the other
    // queue pairs get the buffers.
    ends[0].qp.disconnect(Close::Abrupt);
    assert!(matches!(rig.next("the end", &ends[0].log), Event::Disconnected));
    (received[1] + received[2]..2 * MESSAGES_PER_SENDER).for_each(post);
    take(2 * MESSAGES_PER_SENDER, true);
    for peer in &peers[1..] {
        assert_eq!(
            rig.completions(&peer.requests, MESSAGES_PER_SENDER as usize).len(),
            MESSAGES_PER_SENDER as usize
        );
    }
    drop(ends);
}

/// Either side can end a connection on which a message waits. Both sides are notified.
pub fn a_connection_ends_while_a_message_waits<T: Transport>(a: &T, b: &T) {
    let rig = Rig { a, b };
    let ended = |end: &End<'_, T>| {
        let event = rig.next("the end", &end.log);
        assert!(matches!(event, Event::Disconnected | Event::Broken), "{event:?}");
    };
    for (receiver_ends, how) in
        [(true, Close::Abrupt), (true, Close::Graceful), (false, Close::Abrupt)]
    {
        let (a, b) = rig.pair();
        a.send(1, &[a.mem.segment(0, 8)]);
        if breaks(&rig, &a, &b) {
            return;
        }
        if receiver_ends {
            b.qp.disconnect(how);
            assert!(matches!(rig.next("the end", &b.log), Event::Disconnected));
            ended(&a);
        } else {
            a.qp.disconnect(how);
            assert!(matches!(rig.next("the end", &a.log), Event::Disconnected));
            ended(&b);
        }
        b.recv(2, &[]);
        assert_eq!(outcomes(&rig.completions(&b.recvs, 1)), [(2, WcStatus::Flushed)]);
        assert_eq!(rig.completions(&a.requests, 1)[0].id, 1);
    }
    // A queue pair is dropped while a message waits.
    let (a, b) = rig.pair();
    a.send(1, &[]);
    drop(b);
    ended(&a);
}
