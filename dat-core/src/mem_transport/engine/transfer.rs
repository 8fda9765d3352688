//! Requests: posted, carried out one after the other, completed.

use super::{Engine, Id, Link, Note, QpCore, Request, Up, wc_op};
use crate::mem_transport::memory::copy;
use crate::provider::{PostError, Segment, SendOp, SendWr, WcOp, WcStatus};

/// What became of the request at the head of a queue.
enum Outcome {
    Done,
    /// The peer has no receive buffer.
    Starved,
    Failed(WcStatus),
}

impl Engine {
    pub(in crate::mem_transport) fn post_send(
        &mut self,
        id: Id,
        wr: &SendWr<'_>,
    ) -> std::result::Result<(), PostError> {
        let qp = self.qps.get_mut(&id).ok_or(PostError::Unsupported)?;
        if wr.segments.len() > qp.core.max_request_segments {
            return Err(PostError::Unsupported);
        }
        let bytes = self.memory.local(qp.core.pd, wr.segments, writes_locally(wr.op))?;
        if let Link::Ended = qp.link {
            let wc = qp.core.wc(wr.id, wc_op(wr.op), WcStatus::Flushed);
            let cq = qp.core.request_cq;
            self.complete(cq, wc, false);
            return Ok(());
        }
        if qp.requests.len() >= qp.core.max_requests {
            return Err(PostError::Full);
        }
        // A fence needs no more: requests are carried out one after the other.
        let &SendWr { id: wr_id, op, signalled, solicited, .. } = wr;
        let segments = wr.segments.to_vec();
        qp.requests.push_back(Request { id: wr_id, op, segments, bytes, signalled, solicited });
        self.pump(id);
        Ok(())
    }

    /// Carries out the requests of `id` as far as possible.
    pub(super) fn pump(&mut self, id: Id) {
        while let Some((up, core)) = self.running(id) {
            let Some(request) = self.qps.get_mut(&id).and_then(|qp| qp.requests.pop_front()) else { return };
            let mut wc = core.wc(request.id, wc_op(request.op), WcStatus::Success);
            match self.carry_out(id, &core, &up, &request) {
                Outcome::Starved => {
                    if let Some(qp) = self.qps.get_mut(&id) {
                        qp.requests.push_front(request);
                    }
                    return;
                }
                Outcome::Failed(status) => {
                    wc.status = status;
                    self.complete(core.request_cq, wc, false);
                    self.end_both(id, &Note::Broken);
                }
                Outcome::Done => {
                    wc.bytes = request.bytes;
                    if request.signalled {
                        self.complete(core.request_cq, wc, false);
                    }
                    self.drained(id, 1);
                }
            }
        }
    }

    /// The connection of a queue pair on which data may move.
    fn running(&self, id: Id) -> Option<(Up, QpCore)> {
        let qp = self.qps.get(&id)?;
        let Link::Up(up) = qp.link else { return None };
        let Link::Up(peer) = self.qps.get(&up.peer)?.link else { return None };
        (up.announced && peer.announced).then_some((up, qp.core))
    }

    fn carry_out(&mut self, id: Id, core: &QpCore, up: &Up, request: &Request) -> Outcome {
        // The region may have gone since the post.
        if self.memory.local(core.pd, &request.segments, writes_locally(request.op)).is_err() {
            return Outcome::Failed(WcStatus::LocalProtection);
        }
        let Some(peer) = self.qps.get(&up.peer).map(|qp| qp.core) else {
            return Outcome::Failed(WcStatus::Transport);
        };
        match request.op {
            SendOp::Send { invalidate } => self.send(id, up.peer, &peer, request, invalidate),
            SendOp::Write(to) => match self.memory.remote(peer.pd, to, request.bytes, true) {
                // SAFETY: local and remote segments were checked against live regions just now.
                Some(to) => unsafe { moved(&request.segments, &[to]) },
                None => Outcome::Failed(WcStatus::RemoteAccess),
            },
            SendOp::Read(_) if up.reads == 0 => Outcome::Failed(WcStatus::LocalEp),
            SendOp::Read(from) => match self.memory.remote(peer.pd, from, request.bytes, false) {
                // SAFETY: as above.
                Some(from) => unsafe { moved(&[from], &request.segments) },
                None => Outcome::Failed(WcStatus::RemoteAccess),
            },
        }
    }

    fn send(
        &mut self,
        from: Id,
        to: Id,
        peer: &QpCore,
        request: &Request,
        invalidate: Option<u32>,
    ) -> Outcome {
        let Some(recv) = self.take_recv(to, from) else { return Outcome::Starved };
        let mut wc = peer.wc(recv.id, WcOp::Recv, WcStatus::Success);
        let fits = request.bytes <= recv.bytes;
        let (receiver, sender) = if !fits {
            (WcStatus::LocalLength, WcStatus::RemoteResponder)
        } else if self.memory.local(recv.pd, &recv.segments, true).is_err() {
            (WcStatus::LocalProtection, WcStatus::RemoteResponder)
        } else if invalidate.is_some_and(|key| !self.memory.invalidate(peer.pd, key)) {
            (WcStatus::LocalProtection, WcStatus::RemoteAccess)
        } else {
            (WcStatus::Success, WcStatus::Success)
        };
        wc.status = receiver;
        if receiver == WcStatus::Success {
            // SAFETY: both lists were checked against live regions just now.
            unsafe { copy(&request.segments, &recv.segments) };
            wc.bytes = request.bytes;
            wc.invalidated = invalidate;
        }
        self.complete(peer.recv_cq, wc, request.solicited);
        match sender {
            WcStatus::Success => Outcome::Done,
            status => Outcome::Failed(status),
        }
    }
}

/// # Safety
/// As [`copy`].
unsafe fn moved(from: &[Segment], to: &[Segment]) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { copy(from, to) };
    Outcome::Done
}

fn writes_locally(op: SendOp) -> bool {
    matches!(op, SendOp::Read(_))
}
