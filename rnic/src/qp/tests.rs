use super::*;
use crate::tests::{ALL, Buf, poll};
use crate::wr::WcOp;
use crate::{Access, Mw, Remote, SendOp, View};

fn pair(max_requests: usize, max_recvs: usize, keys: &Arc<Keys>, pd: Pd) -> (Arc<Qp>, Work) {
    let cfg = QpCfg {
        keys: Arc::clone(keys),
        pd,
        request_cq: None,
        recv_cq: None,
        srq: None,
        token: 0,
        max_requests,
        max_recvs,
        max_request_segments: 2,
        max_recv_segments: 1,
    };
    // SAFETY: each test runs in one thread.
    unsafe { Qp::new(cfg) }.unwrap()
}

#[test]
fn posts_are_checked() {
    let keys = Arc::new(Keys::new());
    let (pd, other) = (keys.pd(), keys.pd());
    let (qp, mut work) = pair(4, 2, &keys, pd);
    let readable = keys
        .register(pd, 0x1000, 0x1000, Access { local_read: true, ..Access::default() }, false)
        .unwrap();
    let writable = keys
        .register(pd, 0x1000, 0x1000, Access { local_write: true, ..Access::default() }, false)
        .unwrap();
    let vast = keys
        .register(pd, 0, u64::MAX, Access { local_read: true, ..Access::default() }, false)
        .unwrap();
    let foreign = keys
        .register(other, 0x1000, 0x1000, Access { local_read: true, ..Access::default() }, false)
        .unwrap();

    let segment = |addr, len, key| Segment { addr, len, key };
    let remote = Remote { addr: 0, key: 1 };
    let send = SendOp::Send { invalidate: None };
    let post = |op, segments: &[Segment]| {
        let wr = SendWr {
            id: 1,
            op,
            segments,
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: the test never sends, so the memory of the segments is not accessed.
        unsafe { qp.post_send(&wr) }
    };
    assert_eq!(post(send, &[segment(0x1000, 0x1001, readable)]), Err(PostError::Bounds));
    assert_eq!(post(send, &[segment(0x1000, 1, 12345)]), Err(PostError::Key));
    assert_eq!(post(send, &[segment(0x1000, 1, foreign)]), Err(PostError::Domain));
    assert_eq!(
        post(send, &[segment(0x1000, 1, writable)]),
        Err(PostError::Access { write: false })
    );
    assert_eq!(
        post(SendOp::Write(remote), &[segment(0x1000, 1, writable)]),
        Err(PostError::Access { write: false })
    );
    assert_eq!(
        post(SendOp::Read(remote), &[segment(0x1000, 1, readable)]),
        Err(PostError::Access { write: true })
    );
    assert_eq!(post(send, &[segment(0x1000, 1, readable); 3]), Err(PostError::Unsupported));
    assert_eq!(
        post(send, &[segment(0, u32::MAX, vast); 2]),
        Err(PostError::Bounds),
        "a request of more than 2^32-1 octets must be refused"
    );
    assert!(!work.has_requests(), "none of these requests is queued");

    assert_eq!(
        post(send, &[segment(0x1000, 100, readable), segment(0x1FFF, 1, readable)]),
        Ok(101)
    );
    assert_eq!(post(SendOp::Read(remote), &[segment(0x1000, 5, writable)]), Ok(5));
    assert_eq!(post(SendOp::Write(remote), &[]), Ok(0));
    assert_eq!(post(send, &[segment(0, u32::MAX, vast)]), Ok(u32::MAX));
    assert_eq!(post(send, &[]), Err(PostError::Full));

    // SAFETY: the test never receives, so the memory of the segments is not accessed.
    let recv =
        |segments: &[Segment]| unsafe { qp.post_recv(&RecvWr { id: 2, segments, quiet: false }) };
    assert_eq!(recv(&[segment(0x1000, 1, readable)]), Err(PostError::Access { write: true }));
    assert_eq!(recv(&[segment(0x1000, 1, writable)]), Ok(()));
    assert_eq!(recv(&[]), Ok(()));
    assert_eq!(recv(&[]), Err(PostError::Full));
    work.flush();
    assert!(!work.has_requests());
    assert_eq!(recv(&[]), Ok(()), "the queue has room again");
}

#[test]
fn requests_retire_in_order() {
    let keys = Arc::new(Keys::new());
    let (qp, mut work) = pair(8, 1, &keys, keys.pd());
    for id in 0..4 {
        let op = SendOp::Send { invalidate: None };
        let wr = SendWr {
            id,
            op,
            segments: &[],
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: the request has no segments, so no memory must stay valid.
        unsafe { qp.post_send(&wr) }.unwrap();
    }
    work.done(1);
    work.done(2);
    work.retire();
    assert_eq!(work.oldest_request(), 0, "the first request is not done");
    work.done(0);
    work.retire();
    assert_eq!(work.oldest_request(), 3);
    assert!(work.request(3).is_some() && work.request(4).is_none());
}

/// A request without memory.
fn request(id: u64, op: SendOp) -> SendWr<'static> {
    let (signalled, solicited, fence, quiet) = (true, false, false, false);
    SendWr { id, op, segments: &[], signalled, solicited, fence, quiet }
}

const SEND: SendOp = SendOp::Send { invalidate: None };

#[test]
fn a_reset_queue_pair_is_as_it_was_created() {
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let cq = Arc::new(Cq::new(16, |event| panic!("{event:?}")).unwrap());
    let queues = |token| {
        let (request_cq, recv_cq) = (Some(Arc::clone(&cq)), Some(Arc::clone(&cq)));
        let cfg = QpCfg {
            keys: Arc::clone(&keys),
            pd,
            request_cq,
            recv_cq,
            srq: None,
            token,
            max_requests: 4,
            max_recvs: 2,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        // SAFETY: each test runs in one thread.
        unsafe { Qp::new(cfg) }.unwrap()
    };
    let [(qp, mut work), (other, mut of_other)] = [1, 2].map(queues);
    let shown = Buf::new(&keys, pd, 64, ALL);
    // SAFETY: the test runs in one thread, and the requests have no memory.
    let send = |qp: &Qp, id, op| unsafe { qp.post_send(&request(id, op)) };
    let recv = |id| {
        // SAFETY: the test runs in one thread, and the receives have no memory.
        unsafe { qp.post_recv(&RecvWr { id, segments: &[], quiet: false }) }
    };
    let window = Mw::new(&keys, pd, true);
    let bind = |view: Option<View<'_>>| {
        let wr = BindWr { id: 9, window: &window, view, signalled: true, quiet: false };
        // SAFETY: the test runs in one thread.
        unsafe { qp.post_bind(&wr) }.unwrap()
    };
    let carry_out_one = |work: &mut Work| {
        work.done(work.oldest_request());
        assert_eq!(work.retire(), 1);
    };

    // In the first life of the queue pair each kind of work ends, or does not end.
    work.permit(OpSet::All);
    send(&qp, 1, SEND).unwrap();
    send(&other, 2, SEND).unwrap();
    send(&qp, 3, SendOp::SendImm { immediate: 4 }).unwrap();
    carry_out_one(&mut work);
    carry_out_one(&mut of_other);
    carry_out_one(&mut work);
    (5..7).for_each(|id| recv(id).unwrap());
    let taken = |work: &mut Work| work.take_recv().map(|rqe| rqe.id);
    assert_eq!(taken(&mut work), Some(5));
    work.finish_recv(Received::NOTHING, WcStatus::Success, false);
    recv(7).unwrap();
    assert_eq!(taken(&mut work), Some(6));
    send(&other, 8, SEND).unwrap();
    carry_out_one(&mut of_other);
    bind(Some(shown.view(0, 64)));
    send(&qp, 10, SEND).unwrap();
    work.fail(work.oldest_request(), WcStatus::Transport);
    assert_eq!((qp.carried_out(), work.allocated()), (2, 2));
    work.reset();

    let polled = || poll(&cq).iter().map(|wc| (wc.qp, wc.id, wc.status)).collect::<Vec<_>>();
    assert_eq!(polled(), [(2, 2, WcStatus::Success), (2, 8, WcStatus::Success)]);
    assert!(!work.has_requests() && !work.has_recv() && work.recv().is_none());
    assert_eq!((work.oldest_request(), work.allocated(), qp.carried_out()), (0, 0, 0));
    // Like before the first connection, requests of a special kind are refused.
    let immediate = SendOp::SendImm { immediate: 4 };
    assert_eq!(send(&qp, 1, immediate), Err(PostError::Unsupported));

    // The queues have all their room, and nothing of the first life completes in the second one.
    let key = bind(Some(shown.view(0, 64)));
    (1..4).for_each(|id| assert_eq!(send(&qp, id, SEND), Ok(0)));
    assert_eq!(send(&qp, 4, SEND), Err(PostError::Full));
    (1..3).for_each(|id| recv(id).unwrap());
    assert_eq!(recv(3), Err(PostError::Full));
    assert_eq!(work.carry_out_local(0), Some(1), "the window has no other bind");
    assert_eq!(keys.invalidate(key, work.scope()), Ok(()));
    carry_out_one(&mut work);
    assert_eq!(qp.carried_out(), 2);
    work.flush();
    assert_eq!(qp.carried_out(), 2, "flushed requests do not count");
    let flushed = |id| (1, id, WcStatus::Flushed);
    let ends = [(1, 9, WcStatus::Success), (1, 1, WcStatus::Success)];
    assert_eq!(polled(), [&ends[..], &[2, 3, 1, 2].map(flushed)].concat());
    assert_eq!(of_other.oldest_request(), 2);
}

/// A queue pair that is reset gives up its turn at a shared receive queue, but not the buffers.
#[test]
fn a_reset_queue_pair_waits_for_no_shared_buffer() {
    let keys = Arc::new(Keys::new());
    let pd = keys.pd();
    let srq = Arc::new(Srq::new(&keys, pd, 4, 1, || {}).unwrap());
    let recvs = Arc::new(Cq::new(16, |event| panic!("{event:?}")).unwrap());
    let queues = |token| {
        let cfg = QpCfg {
            keys: Arc::clone(&keys),
            pd,
            request_cq: None,
            recv_cq: Some(Arc::clone(&recvs)),
            srq: Some(Arc::clone(&srq)),
            token,
            max_requests: 1,
            max_recvs: 0,
            max_request_segments: 0,
            max_recv_segments: 1,
        };
        // SAFETY: each test runs in one thread.
        unsafe { Qp::new(cfg) }.unwrap().1
    };
    let [mut first, mut second] = [1, 2].map(queues);
    let post = |id| {
        // SAFETY: the buffers have no memory.
        unsafe { srq.post_recv(&RecvWr { id, segments: &[], quiet: false }) }.unwrap();
    };
    first.wait_for_recv(1);
    second.wait_for_recv(2);
    (1..4).for_each(post);
    assert!(second.take_recv().is_none(), "it is not the turn of this queue pair");
    first.reset();
    assert_eq!(second.take_recv().map(|rqe| rqe.id), Some(1));
    second.finish_recv(Received::NOTHING, WcStatus::Success, false);
    // A message of which only a part has arrived takes its buffer along.
    assert_eq!(first.take_recv().map(|rqe| rqe.id), Some(2));
    first.reset();
    assert_eq!((first.allocated(), srq.available()), (0, 1));
    assert_eq!(first.take_recv().map(|rqe| rqe.id), Some(3));
    first.finish_recv(Received::NOTHING, WcStatus::Success, false);
    let of = |wc: &crate::Wc| (wc.qp, wc.id, wc.op);
    let polled: Vec<_> = poll(&recvs).iter().map(of).collect();
    assert_eq!(polled, [(2, 1, WcOp::Recv), (1, 3, WcOp::Recv)]);
}
