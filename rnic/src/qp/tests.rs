use super::*;
use crate::{Access, Remote, SendOp};

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
