//! When a connection ends, requests that have succeeded complete with success, and the rest is
//! flushed, in the order of posting.

use super::*;

#[test]
fn flush_keeps_the_order() {
    let mut pair = Pair::new(StreamCfg { ord: 1, ..cfg() }, 0);
    let (near, far) = (pair.a.buf(1000), pair.b.buf(1000));
    for id in 1..=3 {
        pair.b.recv(id, &[far.seg(0, 100)]);
    }
    let some = [near.seg(0, 100)];
    pair.a.post(send(1, &some));
    pair.a.post(SendWr { signalled: false, ..send(2, &some) });
    pair.drive().unwrap();
    // The requests are: a read that has no answer yet, a write that was sent after it, an
    // unsignalled send that is partly sent, and a read that has not been sent.
    pair.a.post(read(3, &some, far.remote(0)));
    pair.a.post(write(4, &some, far.remote(0)));
    pair.a.post(SendWr { signalled: false, ..send(5, &some) });
    pair.a.post(read(6, &some, far.remote(0)));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    assert_eq!(n, 52 + 120 + 124);
    pair.a.stream.tx_done(&mut pair.a.tx, 52 + 120 + 30);
    // A message is partly received.
    let frame = errors::fpdu(&errors::send_frame(3, 0, true, &[1; 100]), false);
    pair.b.stream.rx_octets(&frame[..50]).unwrap();
    assert!(pair.b.stream.is_mid_message());
    assert!(
        !arm(&pair.a.requests, false),
        "the first completion was not taken, so the queue must not be armed"
    );

    pair.a.stream.flush();
    pair.b.stream.flush();
    let flushed = |id, op| wc(id, op, 0, WcStatus::Flushed);
    assert_eq!(
        pair.a.completions(),
        [
            wc(1, WcOp::Send, 100, WcStatus::Success),
            flushed(3, WcOp::Read),
            flushed(4, WcOp::Write),
            flushed(5, WcOp::Send),
            flushed(6, WcOp::Read),
        ]
    );
    let received = |id| wc(id, WcOp::Recv, 100, WcStatus::Success);
    assert_eq!(pair.b.received(), [received(1), received(2), flushed(3, WcOp::Recv)]);

    // Work that is posted later is flushed by the next call. No octet is sent or received any more.
    pair.a.post(send(7, &some));
    pair.a.recv(8, &some);
    assert!(!pair.a.stream.wants_tx());
    assert!(pair.a.stream.tx(&mut pair.a.tx).is_err());
    assert!(pair.b.stream.rx_octets(&frame[50..]).is_err());
    assert!(arm(&pair.a.requests, true));
    pair.a.stream.flush();
    assert_eq!(pair.a.completions(), [flushed(7, WcOp::Send)]);
    assert_eq!(pair.a.received(), [flushed(8, WcOp::Recv)]);
    assert_eq!(pair.a.ready.load(Ordering::Relaxed), 1, "a failure must count as solicited");
    assert!(pair.a.stream.is_drained());
}

#[test]
fn work_before_and_after_a_stream() {
    let side = Side::new(cfg());
    let buf = side.buf(10);
    side.recv(1, &[buf.seg(0, 10)]);
    side.post(send(2, &[]));
    let Side { queues: side, stream, .. } = side;
    let mut work = stream.into_work();
    assert!(work.has_requests());
    work.flush();
    assert!(!work.has_requests());
    assert_eq!(poll(&side.requests), [wc(2, WcOp::Send, 0, WcStatus::Flushed)]);
    assert_eq!(poll(&side.recvs), [wc(1, WcOp::Recv, 0, WcStatus::Flushed)]);

    // A second connection uses the same queues.
    let segments = [buf.seg(0, 10)];
    // SAFETY: the test has one thread, and the buffer outlives the receive.
    unsafe { side.qp.post_recv(&RecvWr { id: 3, segments: &segments, quiet: false }) }.unwrap();
    let mut stream = Stream::new(work, cfg());
    stream.rx_octets(&errors::fpdu(&errors::send_frame(1, 0, true, &[9; 10]), false)).unwrap();
    assert_eq!(poll(&side.recvs), [wc(3, WcOp::Recv, 10, WcStatus::Success)]);
    assert_eq!(buf.octets(), [9; 10]);
}

#[test]
fn drained_means_answered_too() {
    let mut pair = Pair::new(cfg(), 0);
    let (near, far) = (pair.a.buf(100_000), pair.b.buf(100_000));
    pair.a.post(read(1, &[near.seg(0, 100_000)], far.remote(0)));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    let request_octets = gathered(&pair.a.tx, n);
    pair.a.stream.tx_done(&mut pair.a.tx, n);
    assert!(!pair.a.stream.is_drained());
    assert!(pair.b.stream.is_drained());
    pair.b.stream.rx_octets(&request_octets).unwrap();
    assert!(!pair.b.stream.is_drained());
    let n = pair.b.stream.tx(&mut pair.b.tx).unwrap();
    pair.b.stream.tx_done(&mut pair.b.tx, n - 1);
    assert!(!pair.b.stream.is_drained());
    assert_eq!(pair.b.stream.tx(&mut pair.b.tx).unwrap(), 1);
    pair.b.stream.tx_done(&mut pair.b.tx, 1);
    assert!(pair.b.stream.is_drained());
}

/// A vector that another stream has filled, or that was filled before a flush, completes no
/// requests. Its requests are no longer in the queue, and the queue's slots belong to the program
/// again.
#[test]
fn a_vector_of_another_gathering_completes_nothing() {
    let mut pair = Pair::new(cfg(), 0);
    let buf = pair.a.buf(100);
    pair.a.post(send(1, &[buf.seg(0, 100)]));
    let n = pair.a.stream.tx(&mut pair.a.tx).unwrap();
    pair.b.stream.tx_done(&mut pair.a.tx, n);
    assert_eq!(pair.b.completions(), []);
    pair.a.stream.flush();
    assert_eq!(pair.a.completions(), [wc(1, WcOp::Send, 0, WcStatus::Flushed)]);
    pair.a.stream.tx_done(&mut pair.a.tx, n);
    pair.a.post(send(2, &[]));
    pair.a.stream.tx_done(&mut pair.a.tx, n);
    assert_eq!(pair.a.completions(), []);
    assert_eq!([pair.a.stream.stats().tx_messages, pair.b.stream.stats().tx_messages], [0, 0]);
}
