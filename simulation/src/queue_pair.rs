//! Queue pairs for the engine, and the memory that all of them share.
//!
//! Experiments measure times and not contents, so all messages of all flows are at the beginning of
//! the same memory. The tests of rnic check contents.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rnic::{
    Access, Cq, CqEvent, Keys, Mr, Pd, Qp, QpCfg, RecvWr, Remote, Segment, SendOp, SendWr,
    WcStatus, Work,
};

use crate::Operation;

/// Registered memory.
pub(crate) struct Memory {
    keys: Arc<Keys>,
    pd: Pd,
    /// The region, which is deregistered before the memory is freed.
    region: Option<Mr>,
    octets: NonNull<[u8]>,
}

/// The maximum number of outstanding requests or receives of a queue pair.
pub(crate) const QUEUE_DEPTH: usize = 128;

impl Memory {
    /// Registers zeroed memory.
    pub(crate) fn new(octets: usize) -> Rc<Self> {
        let keys = Arc::new(Keys::new());
        let pd = keys.pd();
        let octets = NonNull::from(Box::leak(vec![0u8; octets].into_boxed_slice()));
        let access = Access {
            local_read: true,
            local_write: true,
            remote_read: true,
            remote_write: true,
            ..Access::default()
        };
        let address = octets.cast::<u8>().as_ptr();
        // SAFETY: `drop` frees the memory after it has dropped the region. Only engines access the
        // memory.
        let region = unsafe { Mr::new(&keys, pd, address, octets.len(), access, false) };
        let region = Some(region.expect("a table of keys has room for one region"));
        Rc::new(Memory { keys, pd, region, octets })
    }

    /// The address and key of the memory, as peers name it.
    pub(crate) fn remote(&self) -> Remote {
        Remote { addr: self.address(), key: self.region.as_ref().map_or(0, Mr::rkey) }
    }

    fn address(&self) -> u64 {
        self.octets.cast::<u8>().as_ptr().expose_provenance() as u64
    }

    fn segment(&self, len: u32) -> Segment {
        Segment { addr: self.address(), len, key: self.region.as_ref().map_or(0, Mr::lkey) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.region = None;
        // SAFETY: `new` got the memory from a box, and nothing refers to it any more: each queue
        // pair holds this value.
        drop(unsafe { Box::from_raw(self.octets.as_ptr()) });
    }
}

/// The consumer's side of a queue pair.
pub(crate) struct Queues {
    memory: Rc<Memory>,
    qp: Arc<Qp>,
    requests: Arc<Cq>,
    receives: Arc<Cq>,
}

impl Queues {
    /// Creates a queue pair. The caller uses both results in one thread, and drops the second one
    /// before the first.
    pub(crate) fn new(memory: &Rc<Memory>) -> (Queues, Work) {
        let queue = || {
            let notify =
                |event| assert!(event == CqEvent::Ready, "a completion queue is too short");
            Arc::new(Cq::new(2 * QUEUE_DEPTH, notify).expect("memory for a completion queue"))
        };
        let (requests, receives) = (queue(), queue());
        let cfg = QpCfg {
            keys: Arc::clone(&memory.keys),
            pd: memory.pd,
            request_cq: Some(Arc::clone(&requests)),
            recv_cq: Some(Arc::clone(&receives)),
            srq: None,
            token: 0,
            max_requests: QUEUE_DEPTH,
            max_recvs: QUEUE_DEPTH,
            max_request_segments: 1,
            max_recv_segments: 1,
        };
        // SAFETY: an experiment runs in one thread, so no two threads use the queue pair.
        let (qp, work) = unsafe { Qp::new(cfg) }.expect("memory for a queue pair");
        (Queues { memory: Rc::clone(memory), qp, requests, receives }, work)
    }

    /// Posts a request for a message of `len` octets. `remote` is the peer's memory.
    pub(crate) fn post(&self, operation: Operation, remote: Remote, len: u32) {
        let op = match operation {
            Operation::Write => SendOp::Write(remote),
            Operation::Read => SendOp::Read(remote),
            Operation::Send => SendOp::Send { invalidate: None },
        };
        let segments = [self.memory.segment(len)];
        let request = SendWr {
            id: 0,
            op,
            segments: &segments,
            signalled: true,
            solicited: false,
            fence: false,
            quiet: false,
        };
        // SAFETY: an experiment runs in one thread, and the memory outlives the queue pair.
        unsafe { self.qp.post_send(&request) }.expect("the queue has room for the request");
    }

    /// Posts a receive for a message of at most `len` octets.
    pub(crate) fn post_receive(&self, len: u32) {
        let receive = RecvWr { id: 0, segments: &[self.memory.segment(len)], quiet: false };
        // SAFETY: an experiment runs in one thread, and the memory outlives the queue pair.
        unsafe { self.qp.post_recv(&receive) }.expect("the queue has room for the receive");
    }

    /// Takes the completions of requests. Returns how many were successful.
    pub(crate) fn take_completions(&self) -> usize {
        poll(&self.requests)
    }

    /// Takes the completions of receives. Returns how many were successful.
    pub(crate) fn take_received(&self) -> usize {
        poll(&self.receives)
    }
}

fn poll(queue: &Cq) -> usize {
    let (mut successful, mut some) = (0, [const { MaybeUninit::uninit() }; 16]);
    loop {
        // SAFETY: an experiment runs in one thread.
        let count = unsafe { queue.poll(&mut some) };
        // SAFETY: `poll` has written `count` completions.
        let written = some[..count].iter().map(|one| unsafe { one.assume_init_read() });
        successful += written.filter(|completion| completion.status == WcStatus::Success).count();
        if count == 0 {
            return successful;
        }
    }
}
