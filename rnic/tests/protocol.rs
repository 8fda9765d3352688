//! A protocol that is written outside of the crate, with nothing but the public interface of
//! [`Work`]: two queue pairs in one thread carry out their requests without packets.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rnic::{
    Access, BindWr, Cq, KeyError, Keys, Mr, Mw, OpKind, OpSet, Pd, Qp, QpCfg, Received, RecvWr,
    Remote, Right, Segment, SendOp, SendWr, View, Wc, WcOp, WcStatus, Work, Wqe,
};
use work::cause::{AccessKind, LocalUse};

/// Carries out the oldest request of `near` at `far`. Returns false if no request is posted.
fn carry_out(near: &mut Work, far: &mut Work) -> bool {
    let at = near.oldest_request();
    let Some((&wqe, _)) = near.request(at) else { return false };
    let result = if wqe.op.facts().is_local() {
        near.carry_out_local(at).ok_or(WcStatus::BindFailed).map(drop)
    } else {
        attempt(near, far, at, &wqe).map(|()| {
            near.done(at);
            near.retire();
        })
    };
    if let Err(status) = result {
        near.fail(at, status);
        near.flush();
    }
    near.announce();
    far.announce();
    true
}

/// What each request does at the peer, as the table of operations says.
fn attempt(near: &Work, far: &mut Work, at: usize, wqe: &Wqe) -> Result<(), WcStatus> {
    let refused = |_| WcStatus::RemoteAccess;
    let facts = wqe.op.facts();
    let (_, segments) = near.request(at).expect("the request is posted");
    let (to, mut octets) = ((wqe.remote_key, wqe.remote_addr), vec![0; wqe.len as usize]);
    if facts.local == LocalUse::Source {
        near.gather(segments, 0, &mut octets).map_err(|_| WcStatus::LocalProtection)?;
    }
    let mut received = Received::octets(wqe.len);
    if facts.takes_receive {
        let buffer = far.take_recv().ok_or(WcStatus::ReceiverNotReady)?;
        let is_message = !facts.is_write();
        if !far.may_take() || is_message && buffer.len < wqe.len.into() {
            far.finish_recv(Received::NOTHING, WcStatus::LocalLength, true);
            return Err(WcStatus::RemoteResponder);
        }
        if is_message {
            let (scope, buffers) = far.recv_segments();
            let placed = far.scatter((scope, Right::LocalWrite), buffers, 0, &octets);
            placed.map_err(|_| WcStatus::RemoteResponder)?;
        }
        received.immediate = facts.has_immediate.then_some(wqe.operands[0] as u32);
        if facts.has_immediate && is_message {
            received.op = WcOp::RecvMessageImm;
        }
    }
    match facts.remote {
        None => {}
        Some(AccessKind::Write) => far.store(to, wqe.len.into(), &octets).map_err(refused)?,
        Some(AccessKind::Read) => far.fetch(to, wqe.len.into(), &mut octets).map_err(refused)?,
        Some(AccessKind::Atomic) => {
            let [first, second] = wqe.operands;
            let before = far.update(to, |value| match wqe.op {
                OpKind::CompareSwap if value == first => second,
                OpKind::CompareSwap => value,
                _ => value.wrapping_add(first),
            });
            let before = before.map_err(|_| WcStatus::RemoteAccess)?;
            octets.copy_from_slice(&before.to_ne_bytes());
        }
        Some(AccessKind::Invalidate) => {
            far.keys().invalidate(wqe.remote_key, far.scope()).map_err(refused)?;
            received.invalidated = Some(wqe.remote_key);
        }
    }
    if facts.awaits_response() {
        let placed = near.scatter((near.scope(), facts.local.into()), segments, 0, &octets);
        placed.map_err(|_| WcStatus::LocalProtection)?;
    }
    if facts.takes_receive {
        far.finish_recv(received, WcStatus::Success, wqe.has(Wqe::SOLICITED));
    }
    Ok(())
}

struct End {
    pd: Pd,
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
        End { pd, qp, work, cq, memory, mr: mr.unwrap() }
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

    fn receive(&self, id: u64, at: usize) {
        let wr = RecvWr { id, segments: &[self.segment(at)], quiet: false };
        // SAFETY: everything runs in one thread, and the memory outlives the receive.
        unsafe { self.qp.post_recv(&wr) }.unwrap();
    }

    /// Binds a window to eight octets of the memory. Returns its key.
    fn bind(&self, id: u64, window: &Mw, at: usize) -> u32 {
        let access = Access { remote_write: true, ..Access::default() };
        let view = View { region: &self.mr, addr: 8 * at as u64, len: 8, access, zero_based: true };
        let wr = BindWr { id, window, view: Some(view), signalled: true, quiet: false };
        // SAFETY: everything runs in one thread.
        unsafe { self.qp.post_bind(&wr) }.unwrap()
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
    b.receive(9, 0);
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

    // Immediate data, a swap, and a window, which the peer binds and this side invalidates.
    let window = Mw::new(&keys, b.pd, true);
    let key = b.bind(10, &window, 4);
    while carry_out(&mut b.work, &mut a.work) {}
    for id in 11..14 {
        b.receive(id, 6);
    }
    let (to, at) = (Remote { addr: 0, key }, b.remote(3));
    a.post(14, SendOp::WriteImm { to, immediate: 5 }, 0);
    a.post(15, SendOp::SendImm { immediate: 6 }, 1);
    a.post(16, SendOp::CompareSwap { at, compare: 114, swap: 1 }, 2);
    a.post(17, SendOp::Send { invalidate: Some(key) }, 1);
    while carry_out(&mut a.work, &mut b.work) {}
    assert_eq!((b.memory[3], b.memory[4], b.memory[6], a.memory[2]), (1, 11, 12, 114));
    let success = |id, op| (id, op, WcStatus::Success);
    let ops = [(14, WcOp::WriteImm), (15, WcOp::Send), (16, WcOp::CompareSwap), (17, WcOp::Send)];
    assert_eq!(a.completions(), ops.map(|(id, op)| success(id, op)));
    let ops = [(10, WcOp::Bind), (11, WcOp::Recv), (12, WcOp::RecvMessageImm), (13, WcOp::Recv)];
    assert_eq!(b.completions(), ops.map(|(id, op)| success(id, op)));

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
