//! Helpers for tests of the engines: memory, a queue pair with its queues, and work requests.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::MaybeUninit;
use std::ptr::slice_from_raw_parts_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::*;

#[allow(dead_code, reason = "shared with tests that look at IP headers")]
#[path = "../../wire/tests/golden/capture.rs"]
pub(crate) mod capture;

/// A reproducible random number generator (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number less than `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// A number from 1 to `max`. All orders of magnitude are equally likely.
    pub(crate) fn chunk(&mut self, max: usize) -> usize {
        let bits = max.ilog2() as usize + 1;
        let order = 1 << self.below(bits);
        (order + self.below(order)).min(max)
    }

    pub(crate) fn fill(&mut self, octets: &mut [u8]) {
        for chunk in octets.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
    }
}

pub(crate) const LOCAL: Access = Access {
    local_read: true,
    local_write: true,
    remote_read: false,
    remote_write: false,
    remote_atomic: false,
};
pub(crate) const ALL: Access =
    Access { remote_read: true, remote_write: true, remote_atomic: true, ..LOCAL };

/// Registered memory between guard areas that must not be written.
pub(crate) struct Buf {
    memory: *mut u8,
    len: usize,
    pub(crate) mr: Option<Mr>,
}

const GUARD: usize = 128;
const GUARD_OCTET: u8 = 0xA5;

impl Buf {
    pub(crate) fn new(keys: &Arc<Keys>, pd: Pd, len: usize, access: Access) -> Buf {
        // SAFETY: the size is not zero. The guards are inside the allocation. `Drop` frees the
        // memory after it has dropped the region.
        unsafe {
            let memory = alloc_zeroed(Self::layout(len));
            memory.write_bytes(GUARD_OCTET, GUARD);
            memory.add(GUARD + len).write_bytes(GUARD_OCTET, GUARD);
            let mr = Mr::new(keys, pd, memory.add(GUARD), len, access, false).unwrap();
            Buf { memory, len, mr: Some(mr) }
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + 2 * GUARD, 64).unwrap()
    }

    pub(crate) fn addr(&self) -> u64 {
        self.memory as u64 + GUARD as u64
    }

    pub(crate) fn octets(&self) -> &[u8] {
        // SAFETY: `new` allocated the memory. Tests do not use the slice any more when they call an
        // engine.
        unsafe { std::slice::from_raw_parts(self.memory.add(GUARD), self.len) }
    }

    #[expect(clippy::mut_from_ref, reason = "engines write to borrowed memory, too")]
    pub(crate) fn octets_mut(&self) -> &mut [u8] {
        // SAFETY: `new` allocated the memory. Tests do not use the slice any more when they call an
        // engine or take another slice.
        unsafe { &mut *slice_from_raw_parts_mut(self.memory.add(GUARD), self.len) }
    }

    pub(crate) fn seg(&self, offset: usize, len: usize) -> Segment {
        Segment { addr: self.addr() + offset as u64, len: len as u32, key: self.key() }
    }

    /// Eight octets as a number in the processor's byte order.
    pub(crate) fn number(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.octets()[at..at + 8].try_into().unwrap())
    }

    pub(crate) fn set_number(&self, at: usize, value: u64) {
        self.octets_mut()[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote { addr: self.addr() + offset as u64, key: self.key() }
    }

    /// A part of the memory for a window that gives peers full access.
    pub(crate) fn view(&self, offset: usize, len: usize) -> View<'_> {
        let (region, addr) = (self.mr.as_ref().unwrap(), self.addr() + offset as u64);
        View { region, addr, len: len as u64, access: ALL, zero_based: false }
    }

    pub(crate) fn key(&self) -> u32 {
        self.mr.as_ref().unwrap().lkey()
    }

    pub(crate) fn filled(self, rng: &mut Rng) -> Buf {
        rng.fill(self.octets_mut());
        self
    }

    pub(crate) fn assert_guarded(&self) {
        for at in [0, GUARD + self.len] {
            // SAFETY: `new` allocated this memory.
            let guard = unsafe { std::slice::from_raw_parts(self.memory.add(at), GUARD) };
            assert_eq!(guard, [GUARD_OCTET; GUARD], "memory outside the region was written");
        }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_guarded();
        }
        self.mr = None;
        // SAFETY: `new` allocated this memory with this layout.
        unsafe { dealloc(self.memory, Self::layout(self.len)) }
    }
}

/// A queue pair without its engine.
pub(crate) struct Queues {
    pub(crate) keys: Arc<Keys>,
    pub(crate) pd: Pd,
    pub(crate) requests: Arc<Cq>,
    pub(crate) recvs: Arc<Cq>,
    pub(crate) qp: Arc<Qp>,
    /// The number of ready events of the two completion queues.
    pub(crate) ready: Arc<AtomicUsize>,
}

pub(crate) const SEGMENTS: usize = 6;

impl Queues {
    pub(crate) fn new(srq: Option<(Arc<Srq>, Pd)>, keys: Arc<Keys>) -> (Queues, Work) {
        let pd = srq.as_ref().map_or_else(|| keys.pd(), |(_, pd)| *pd);
        Queues::of(srq.map(|(srq, _)| srq), pd, keys)
    }

    pub(crate) fn of(srq: Option<Arc<Srq>>, pd: Pd, keys: Arc<Keys>) -> (Queues, Work) {
        let ready = Arc::new(AtomicUsize::new(0));
        let cq = || {
            let ready = Arc::clone(&ready);
            let notify = move |event| match event {
                CqEvent::Ready => {
                    ready.fetch_add(1, Ordering::Relaxed);
                }
                CqEvent::Overflow => panic!("completion queue overflow"),
            };
            Arc::new(Cq::new(4096, notify).unwrap())
        };
        let (requests, recvs) = (cq(), cq());
        // SAFETY: each test runs in one thread.
        let (qp, work) = unsafe {
            Qp::new(QpCfg {
                keys: Arc::clone(&keys),
                pd,
                request_cq: Some(Arc::clone(&requests)),
                recv_cq: Some(Arc::clone(&recvs)),
                srq,
                token: 77,
                max_requests: 256,
                max_recvs: 256,
                max_request_segments: SEGMENTS,
                max_recv_segments: SEGMENTS,
            })
            .unwrap()
        };
        (Queues { keys, pd, requests, recvs, qp, ready }, work)
    }

    pub(crate) fn buf(&self, len: usize) -> Buf {
        Buf::new(&self.keys, self.pd, len, ALL)
    }

    pub(crate) fn post(&self, wr: SendWr<'_>) {
        // SAFETY: each test runs in one thread, and the buffers outlive the posted work requests.
        unsafe { self.qp.post_send(&wr) }.unwrap();
    }

    pub(crate) fn try_bind(
        &self,
        id: u64,
        window: &Mw,
        view: Option<View<'_>>,
    ) -> Result<u32, PostError> {
        // SAFETY: each test runs in one thread.
        unsafe { self.qp.post_bind(&BindWr { id, window, view, signalled: true, quiet: false }) }
    }

    pub(crate) fn bind(&self, id: u64, window: &Mw, view: Option<View<'_>>) -> u32 {
        self.try_bind(id, window, view).unwrap()
    }

    pub(crate) fn recv(&self, id: u64, segments: &[Segment]) {
        // SAFETY: each test runs in one thread, and the buffers outlive the posted work requests.
        unsafe { self.qp.post_recv(&RecvWr { id, segments, quiet: false }) }.unwrap();
    }

    pub(crate) fn completions(&self) -> Vec<Wc> {
        poll(&self.requests)
    }

    pub(crate) fn received(&self) -> Vec<Wc> {
        poll(&self.recvs)
    }
}

pub(crate) fn poll(cq: &Cq) -> Vec<Wc> {
    let mut all = Vec::new();
    loop {
        let mut some = [const { MaybeUninit::uninit() }; 7];
        // SAFETY: each test runs in one thread.
        match unsafe { cq.poll(&mut some) } {
            0 => return all,
            // SAFETY: `poll` has written `n` completions.
            n => all.extend(some[..n].iter().map(|wc| unsafe { wc.assume_init_read() })),
        }
    }
}

pub(crate) fn arm(cq: &Cq, solicited: bool) -> bool {
    // SAFETY: each test runs in one thread.
    unsafe { cq.arm(solicited) }
}

pub(crate) fn share(srq: &Srq, id: u64, segments: &[Segment]) -> Result<bool, PostError> {
    // SAFETY: the buffers outlive the posted work requests.
    unsafe { srq.post_recv(&RecvWr { id, segments, quiet: false }) }
}

pub(crate) fn send(id: u64, segments: &[Segment]) -> SendWr<'_> {
    request(id, SendOp::Send { invalidate: None }, segments)
}

pub(crate) fn write(id: u64, segments: &[Segment], to: Remote) -> SendWr<'_> {
    request(id, SendOp::Write(to), segments)
}

pub(crate) fn read(id: u64, segments: &[Segment], from: Remote) -> SendWr<'_> {
    request(id, SendOp::Read(from), segments)
}

pub(crate) fn write_imm(id: u64, segments: &[Segment], to: Remote, immediate: u32) -> SendWr<'_> {
    request(id, SendOp::WriteImm { to, immediate }, segments)
}

pub(crate) fn fetch_add(id: u64, segments: &[Segment], at: Remote, add: u64) -> SendWr<'_> {
    request(id, SendOp::FetchAdd { at, add }, segments)
}

pub(crate) fn compare_swap(
    id: u64,
    segments: &[Segment],
    at: Remote,
    (compare, swap): (u64, u64),
) -> SendWr<'_> {
    request(id, SendOp::CompareSwap { at, compare, swap }, segments)
}

pub(crate) fn request(id: u64, op: SendOp, segments: &[Segment]) -> SendWr<'_> {
    SendWr { id, op, segments, signalled: true, solicited: false, fence: false, quiet: false }
}

pub(crate) fn wc(id: u64, op: WcOp, octets: usize, status: WcStatus) -> Wc {
    Wc { id, qp: 77, bytes: octets as u32, invalidated: None, immediate: None, op, status }
}
