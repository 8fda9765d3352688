//! A protocol that is written outside of the crate, with nothing but the public interface of
//! [`Work`]: two queue pairs in one thread carry out their requests without packets.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rnic::{
    Access, Cq, KeyError, Keys, Mr, OpKind, OpSet, Qp, QpCfg, Received, RecvWr, Remote, Right,
    Segment, SendOp, SendWr, Wc, WcOp, WcStatus, Work, Wqe,
};

/// Carries out the oldest request of `near` at `far`. Returns false if no request is posted.
fn carry_out(near: &mut Work, far: &mut Work) -> bool {
    let at = near.oldest_request();
    let Some((&wqe, _)) = near.request(at) else { return false };
    match attempt(near, far, at, &wqe) {
        Ok(()) => {
            near.done(at);
            near.retire();
        }
        Err(status) => {
            near.fail(at, status);
            near.flush();
        }
    }
    near.announce();
    far.announce();
    true
}

fn attempt(near: &Work, far: &mut Work, at: usize, wqe: &Wqe) -> Result<(), WcStatus> {
    let (_, segments) = near.request(at).expect("the request is posted");
    let (to, mut octets) = ((wqe.remote_key, wqe.remote_addr), vec![0; wqe.len as usize]);
    let local = (near.scope(), Right::LocalWrite);
    match wqe.op {
        OpKind::Send => {
            near.gather(segments, 0, &mut octets).map_err(|_| WcStatus::LocalProtection)?;
            let buffer = far.take_recv().ok_or(WcStatus::ReceiverNotReady)?;
            if !far.may_take() || buffer.len < wqe.len.into() {
                far.finish_recv(Received::NOTHING, WcStatus::LocalLength, true);
                return Err(WcStatus::RemoteResponder);
            }
            let (scope, buffers) = far.recv_segments();
            let placed = far.scatter((scope, Right::LocalWrite), buffers, 0, &octets);
            placed.map_err(|_| WcStatus::RemoteResponder)?;
            let solicited = wqe.has(Wqe::SOLICITED);
            far.finish_recv(Received::octets(wqe.len), WcStatus::Success, solicited);
        }
        OpKind::Write => {
            near.gather(segments, 0, &mut octets).map_err(|_| WcStatus::LocalProtection)?;
            far.store(to, wqe.len.into(), &octets).map_err(|_| WcStatus::RemoteAccess)?;
        }
        OpKind::Read => {
            far.fetch(to, wqe.len.into(), &mut octets).map_err(|_| WcStatus::RemoteAccess)?;
            let placed = near.scatter(local, segments, 0, &octets);
            placed.map_err(|_| WcStatus::LocalProtection)?;
        }
        OpKind::FetchAdd => {
            let [addend, _] = wqe.operands;
            let before = far.update(to, |value| value.wrapping_add(addend));
            let before = before.map_err(|_| WcStatus::RemoteAccess)?.to_ne_bytes();
            let placed = near.scatter(local, segments, 0, &before);
            placed.map_err(|_| WcStatus::LocalProtection)?;
        }
        _ => return Err(WcStatus::RemoteResponder),
    }
    Ok(())
}

struct End {
    qp: Arc<Qp>,
    work: Work,
    cq: Arc<Cq>,
    memory: Box<[u64; 8]>,
    mr: Mr,
}

impl End {
    fn new(keys: &Arc<Keys>) -> Self {
        let (cq, pd) = (Arc::new(Cq::new(8, |_| {}).unwrap()), keys.pd());
        let cfg = QpCfg {
            keys: Arc::clone(keys),
            pd,
            request_cq: Some(Arc::clone(&cq)),
            recv_cq: Some(Arc::clone(&cq)),
            srq: None,
            token: 0,
            max_requests: 4,
            max_recvs: 4,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        // SAFETY: everything runs in one thread.
        let (qp, work) = unsafe { Qp::new(cfg) }.unwrap();
        work.permit(OpSet::All);
        let mut memory = Box::new([0; 8]);
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
        };
        // SAFETY: the memory lives as long as the region, and the test reads it between the calls.
        let mr = unsafe { Mr::new(keys, pd, memory.as_mut_ptr().cast(), 64, access, true) };
        End { qp, work, cq, memory, mr: mr.unwrap() }
    }

    /// Eight octets of the memory.
    fn segment(&self, at: usize) -> Segment {
        Segment { addr: 8 * at as u64, len: 8, key: self.mr.lkey() }
    }

    fn remote(&self, at: usize) -> Remote {
        Remote { addr: 8 * at as u64, key: self.mr.rkey() }
    }

    fn post(&self, id: u64, op: SendOp, at: usize) {
        let segments = [self.segment(at)];
        let (signalled, solicited, fence, quiet) = (true, false, false, false);
        let wr = SendWr { id, op, segments: &segments, signalled, solicited, fence, quiet };
        // SAFETY: everything runs in one thread, and the memory outlives the requests.
        unsafe { self.qp.post_send(&wr) }.unwrap();
    }

    fn completions(&self) -> Vec<(u64, WcOp, WcStatus)> {
        let mut wcs = [const { MaybeUninit::<Wc>::uninit() }; 8];
        // SAFETY: everything runs in one thread.
        let n = unsafe { self.cq.poll(&mut wcs) };
        // SAFETY: `poll` has written the first `n` completions.
        wcs[..n]
            .iter()
            .map(|wc| unsafe { wc.assume_init() })
            .map(|wc| (wc.id, wc.op, wc.status))
            .collect()
    }
}

#[test]
fn a_protocol_outside_of_the_crate() {
    let keys = Arc::new(Keys::new());
    let (mut a, mut b) = (End::new(&keys), End::new(&keys));
    (a.memory[0], a.memory[1], b.memory[2], b.memory[3]) = (11, 12, 13, 14);
    // SAFETY: everything runs in one thread, and the memory outlives the receive.
    unsafe { b.qp.post_recv(&RecvWr { id: 9, segments: &[b.segment(0)], quiet: false }) }.unwrap();
    a.post(1, SendOp::Send { invalidate: None }, 0);
    a.post(2, SendOp::Write(b.remote(1)), 1);
    a.post(3, SendOp::Read(b.remote(2)), 2);
    a.post(4, SendOp::FetchAdd { at: b.remote(3), add: 100 }, 3);
    while carry_out(&mut a.work, &mut b.work) {}
    assert_eq!(b.memory[..4], [11, 12, 13, 114]);
    assert_eq!(a.memory[2..4], [13, 14]);
    let ops = [WcOp::Send, WcOp::Write, WcOp::Read, WcOp::FetchAdd];
    let expected: Vec<_> = (1..).zip(ops).map(|(id, op)| (id, op, WcStatus::Success)).collect();
    assert_eq!(a.completions(), expected);
    assert_eq!(b.completions(), [(9, WcOp::Recv, WcStatus::Success)]);

    // A right to read does not permit writing.
    let (by, segments) = ((a.work.scope(), Right::LocalRead), [a.segment(0)]);
    assert_eq!(a.work.scatter(by, &segments, 0, &[1]), Err(KeyError::Access));
    assert_eq!(a.memory[0], 11);

    // Memory is checked as far as it is accessed, although less is said to remain.
    let Remote { addr, key } = b.remote(7);
    assert_eq!(b.work.store((key, addr), 8, &[1; 9]), Err(KeyError::Bounds));
    assert_eq!(b.work.fetch((key, addr), 8, &mut [0; 9]), Err(KeyError::Bounds));

    // A failed request completes with its status, and the later ones are flushed.
    a.post(5, SendOp::Write(Remote { addr: 0, key: 0xBAD }), 0);
    a.post(6, SendOp::Write(b.remote(1)), 0);
    while carry_out(&mut a.work, &mut b.work) {}
    let write = |id, status| (id, WcOp::Write, status);
    let expected = [write(5, WcStatus::RemoteAccess), write(6, WcStatus::Flushed)];
    assert_eq!(a.completions(), expected);
}

/// A position that names no posted request is no error: the engine only gets no request.
#[test]
fn positions_of_other_requests() {
    let keys = Arc::new(Keys::new());
    let (mut a, mut b) = (End::new(&keys), End::new(&keys));
    let first = a.work.oldest_request();
    a.post(1, SendOp::Write(b.remote(1)), 0);
    let has = |work: &Work, at| work.request(at).is_some();
    assert_eq!(
        [first.wrapping_sub(1), first, first + 1].map(|at| has(&a.work, at)),
        [false, true, false]
    );
    assert!(carry_out(&mut a.work, &mut b.work));
    assert_eq!([first, first + 1].map(|at| has(&a.work, at)), [false, false]);
}
