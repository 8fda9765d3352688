//! The rules of this transport: all objects of a fabric, the effects of each operation on the
//! objects, and the upcalls that follow.
//!
//! This file has no locks and no threads. Only `connect` and `expire` read the clock. An operation
//! and all its consequences complete before the call returns.

mod connection;
pub(super) mod datagram;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dat_sys::*;

use self::datagram::{Failure, Resolution};
use super::Adapter;
use super::memory::{Memory, length};
use dat_core::error::{Error, Result};
use dat_core::provider::{
    Allocated, Cause, HeldBuffers, Polled, PostError, ReadDepth, RecvWr, Segment, SendOp,
    ServiceType, Sink, Token, Wc, WcOp, WcStatus,
};

/// The number of an object. A number is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

impl Id {
    pub(super) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Id(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Default)]
pub(super) struct Objects {
    pub(super) memory: Memory,
    /// The upcalls that are to be made, the oldest first.
    pub(super) upcalls: VecDeque<PendingUpcall>,
    cqs: BTreeMap<Id, Cq>,
    srqs: BTreeMap<Id, Srq>,
    qps: BTreeMap<Id, Qp>,
    listeners: BTreeMap<Id, Listener>,
    calls: BTreeMap<Id, ConnectRequest>,
    resolutions: BTreeMap<Id, Resolution>,
    /// The datagram queue pairs by their numbers.
    by_qpn: BTreeMap<u32, Id>,
    last_qpn: u32,
    last_port: u16,
}

/// An upcall that is to be made.
pub(super) struct PendingUpcall {
    pub(super) object: Id,
    pub(super) sink: Sink<Adapter>,
    pub(super) upcall: OwnedUpcall,
}

/// An [`dat_core::provider::Upcall`] that owns its data.
#[derive(Clone)]
pub(super) enum OwnedUpcall {
    CqReady,
    CqOverflow,
    Request {
        call: Id,
        /// Whether the peer wants to send datagrams instead of connecting.
        datagrams: bool,
        from: SocketAddr,
        to: SocketAddr,
        private: Vec<u8>,
    },
    Resolved {
        number: u64,
        qpn: u32,
        own_qpn: u32,
        peer: SocketAddr,
        private: Vec<u8>,
    },
    Unresolved {
        number: u64,
        why: Failure,
    },
    Established {
        private: Vec<u8>,
        peer: SocketAddr,
        local: SocketAddr,
        depth: ReadDepth,
    },
    Rejected {
        by_peer: bool,
        private: Vec<u8>,
    },
    Unreachable,
    TimedOut,
    AcceptFailed,
    Disconnected,
    Broken,
    LowWatermark,
    HighWatermark,
    /// A message with this number of octets waits for a receive.
    ReceiverNotReady(u32),
    Cause(Cause),
}

struct Cq {
    sink: Sink<Adapter>,
    depth: usize,
    queue: VecDeque<Wc>,
    /// Whether the queue is armed. `Some(true)` means that it is armed only for solicited and
    /// failed completions.
    armed: Option<bool>,
    overflowed: bool,
}

struct Srq {
    sink: Sink<Adapter>,
    pd: Id,
    depth: usize,
    max_segments: usize,
    recvs: VecDeque<Recv>,
    /// The low watermark. When fewer buffers than this are left, one report is made, and the
    /// watermark is removed.
    watermark: Option<usize>,
    /// The senders that wait because the queue has no buffer. The first one has waited longest.
    starved: VecDeque<Id>,
}

struct Qp {
    core: QpCore,
    sink: Sink<Adapter>,
    state: QpState,
    requests: VecDeque<QueuedRequest>,
    recvs: VecDeque<Recv>,
    carried_out: u64,
}

/// The configuration of a queue pair.
#[derive(Clone)]
pub(super) struct QpCore {
    pub(super) pd: Id,
    pub(super) service: ServiceType,
    pub(super) request_cq: Option<Id>,
    pub(super) recv_cq: Option<Id>,
    pub(super) srq: Option<Id>,
    pub(super) token: Token,
    pub(super) holding: Arc<HeldBuffers>,
    pub(super) sender_wakes: bool,
    pub(super) max_requests: usize,
    pub(super) max_recvs: usize,
    pub(super) max_request_segments: usize,
    pub(super) max_recv_segments: usize,
}

/// The state of a queue pair. A queue pair can connect only once.
#[derive(Clone, Copy)]
enum QpState {
    Idle,
    /// The queue pair sends and receives datagrams. It receives them once it is active.
    Datagram {
        qpn: u32,
        active: bool,
    },
    Connecting(Id),
    Connected(Connection),
    Ended,
}

/// A connection as seen from one of its two ends.
#[derive(Clone, Copy)]
struct Connection {
    peer: Id,
    /// Whether the upcall `Established` was delivered. Data move only when both ends have got this
    /// upcall, so that it precedes all completions.
    announced: bool,
    /// The number of requests to carry out before a graceful close ends the connection.
    closing: Option<usize>,
    /// The number of RDMA reads that this end may have outstanding. (In this transport, reads
    /// complete at once, so only the value 0 has an effect.)
    reads: u32,
}

struct QueuedRequest {
    id: u64,
    task: Task,
    segments: Vec<Segment>,
    bytes: u32,
    signalled: bool,
    solicited: bool,
    quiet: bool,
    /// Whether the request found no receive at the peer. The peer was notified of that.
    starved: bool,
}

#[derive(Clone, Copy)]
enum Task {
    Transfer(SendOp),
    /// Carries out the bind that creates this key.
    Bind(u32),
}

struct Recv {
    id: u64,
    pd: Id,
    segments: Vec<Segment>,
    bytes: u32,
    quiet: bool,
}

struct Listener {
    sink: Sink<Adapter>,
    port: u16,
    backlog: usize,
}

/// A connection request that was not answered. If the attempt to connect times out, the request
/// stays, but accepting it fails.
struct ConnectRequest {
    caller: Id,
    listener: Id,
    from: SocketAddr,
    to: SocketAddr,
    depth: ReadDepth,
    deadline: Option<Instant>,
}

/// The methods for completion queues.
impl Objects {
    pub(super) fn add_cq(&mut self, depth: usize, sink: Sink<Adapter>) -> Id {
        let id = Id::new();
        self.cqs
            .insert(id, Cq { sink, depth, queue: VecDeque::new(), armed: None, overflowed: false });
        id
    }

    pub(super) fn remove_cq(&mut self, id: Id) {
        self.cqs.remove(&id);
    }

    pub(super) fn poll(&mut self, id: Id, out: &mut Polled<'_>) {
        let Some(cq) = self.cqs.get_mut(&id) else { return };
        let n = out.room().min(cq.queue.len());
        cq.queue.drain(..n).for_each(|wc| out.push(wc));
    }

    pub(super) fn arm(&mut self, id: Id, solicited: bool) -> bool {
        let Some(cq) = self.cqs.get_mut(&id).filter(|cq| cq.queue.is_empty()) else { return false };
        cq.armed = Some(solicited);
        true
    }

    pub(super) fn resize_cq(&mut self, id: Id, depth: usize) -> Result<()> {
        match self.cqs.get_mut(&id) {
            Some(cq) if cq.queue.len() <= depth => {
                cq.depth = depth;
                Ok(())
            }
            _ => Err(Error::of(DAT_INVALID_STATE)),
        }
    }

    fn complete(&mut self, cq_id: Option<Id>, wc: Wc, solicited: bool) {
        let Some((object, cq)) = cq_id.and_then(|id| Some((id, self.cqs.get_mut(&id)?))) else {
            return;
        };
        if cq.overflowed || cq.queue.len() >= cq.depth {
            if !std::mem::replace(&mut cq.overflowed, true) {
                self.upcalls.push_back(PendingUpcall {
                    object,
                    sink: cq.sink,
                    upcall: OwnedUpcall::CqOverflow,
                });
            }
            return;
        }
        cq.queue.push_back(wc);
        let wakes = solicited || wc.status != WcStatus::Success;
        if cq.armed.is_some_and(|only_solicited| wakes || !only_solicited) {
            cq.armed = None;
            self.upcalls.push_back(PendingUpcall {
                object,
                sink: cq.sink,
                upcall: OwnedUpcall::CqReady,
            });
        }
    }
}

/// The methods for receive queues.
impl Objects {
    pub(super) fn add_srq(
        &mut self,
        pd: Id,
        depth: usize,
        max_segments: usize,
        sink: Sink<Adapter>,
    ) -> Id {
        let id = Id::new();
        let (recvs, starved) = Default::default();
        self.srqs
            .insert(id, Srq { sink, pd, depth, max_segments, recvs, watermark: None, starved });
        id
    }

    pub(super) fn remove_srq(&mut self, id: Id) {
        self.srqs.remove(&id);
    }

    pub(super) fn post_srq(
        &mut self,
        id: Id,
        wr: &RecvWr<'_>,
    ) -> std::result::Result<(), PostError> {
        let srq = self.srqs.get_mut(&id).ok_or(PostError::Unsupported)?;
        let recv = Recv::new(&self.memory, srq.pd, srq.max_segments, wr)?;
        if srq.recvs.len() >= srq.depth {
            return Err(PostError::Full);
        }
        srq.recvs.push_back(recv);
        // A waiting sender may take all available buffers. If it needs more, it waits behind the
        // other senders again.
        while let Some(sender) = self
            .srqs
            .get_mut(&id)
            .filter(|srq| !srq.recvs.is_empty())
            .and_then(|srq| srq.starved.pop_front())
        {
            self.carry_out_requests(sender);
        }
        Ok(())
    }

    pub(super) fn set_low_watermark(&mut self, id: Id, mark: usize) {
        if let Some(srq) = self.srqs.get_mut(&id) {
            srq.watermark = Some(mark);
            self.check_watermark(id);
        }
    }

    pub(super) fn resize_srq(&mut self, id: Id, depth: usize) -> Result<()> {
        match self.srqs.get_mut(&id) {
            Some(srq) if srq.recvs.len() <= depth => {
                srq.depth = depth;
                Ok(())
            }
            _ => Err(Error::of(DAT_INVALID_STATE)),
        }
    }

    pub(super) fn available(&self, id: Id) -> usize {
        self.srqs.get(&id).map_or(0, |srq| srq.recvs.len())
    }

    pub(super) fn post_recv(
        &mut self,
        id: Id,
        wr: &RecvWr<'_>,
    ) -> std::result::Result<(), PostError> {
        let qp = self
            .qps
            .get_mut(&id)
            .filter(|qp| qp.core.srq.is_none())
            .ok_or(PostError::Unsupported)?;
        let recv = Recv::new(&self.memory, qp.core.pd, qp.core.max_recv_segments, wr)?;
        match qp.state {
            QpState::Ended => {
                let wc = qp.core.wc(recv.id, WcOp::Recv, WcStatus::Flushed);
                let cq = qp.core.recv_cq;
                self.complete(cq, wc, false);
            }
            _ if qp.recvs.len() >= qp.core.max_recvs => return Err(PostError::Full),
            QpState::Connected(Connection { peer, .. }) => {
                qp.recvs.push_back(recv);
                self.carry_out_requests(peer);
            }
            QpState::Idle | QpState::Datagram { .. } | QpState::Connecting(_) => {
                qp.recvs.push_back(recv)
            }
        }
        Ok(())
    }

    /// Returns the buffers that are allocated to a queue pair. Messages are received completely and
    /// in order, so these are only the receives that are posted to the queue pair itself.
    pub(super) fn allocated(&self, id: Id) -> Allocated {
        let buffers = self.qps.get(&id).map_or(0, |qp| qp.recvs.len());
        Allocated { buffers, span: buffers }
    }

    pub(super) fn carried_out(&self, id: Id) -> u64 {
        self.qps.get(&id).map_or(0, |qp| qp.carried_out)
    }

    pub(super) fn withdrawn(&self, id: Id) -> usize {
        self.qps
            .get(&id)
            .filter(|qp| matches!(qp.state, QpState::Idle | QpState::Datagram { .. }))
            .map_or(0, |qp| qp.recvs.len())
    }

    /// Takes a buffer for a message to the queue pair `id`, from its own or its shared receive
    /// queue. If a shared receive queue has no buffer, `sender` waits.
    fn take_recv(&mut self, id: Id, sender: Id) -> Option<Recv> {
        let qp = self.qps.get_mut(&id)?;
        let Some(srq_id) = qp.core.srq else { return qp.recvs.pop_front() };
        let srq = self.srqs.get_mut(&srq_id)?;
        let recv = srq.recvs.pop_front();
        match recv {
            Some(_) => self.check_watermark(srq_id),
            None if !srq.starved.contains(&sender) => srq.starved.push_back(sender),
            None => {}
        }
        recv
    }

    fn check_watermark(&mut self, object: Id) {
        let Some(srq) = self.srqs.get_mut(&object) else { return };
        if srq.watermark.is_some_and(|mark| srq.recvs.len() < mark) {
            srq.watermark = None;
            self.upcalls.push_back(PendingUpcall {
                object,
                sink: srq.sink,
                upcall: OwnedUpcall::LowWatermark,
            });
        }
    }
}

impl QpCore {
    fn wc(&self, id: u64, op: WcOp, status: WcStatus) -> Wc {
        Wc { id, qp: self.token, bytes: 0, invalidated: None, immediate: None, op, status }
    }
}

impl Recv {
    fn new(
        memory: &Memory,
        pd: Id,
        max_segments: usize,
        wr: &RecvWr<'_>,
    ) -> std::result::Result<Self, PostError> {
        if wr.segments.len() > max_segments {
            return Err(PostError::Unsupported);
        }
        memory.local(pd, wr.segments, true)?;
        let bytes = length(wr.segments)?;
        Ok(Recv { id: wr.id, pd, segments: wr.segments.to_vec(), bytes, quiet: wr.quiet })
    }
}

impl Task {
    fn op(self) -> WcOp {
        match self {
            Task::Transfer(op) => op.facts().completes_as,
            Task::Bind(_) => WcOp::Bind,
        }
    }
}
