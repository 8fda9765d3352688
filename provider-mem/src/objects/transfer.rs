//! The requests of a queue pair: how they are posted, carried out one after the other, and
//! completed.

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Connection, Id, Objects, OwnedUpcall, QpCore, QpState, QueuedRequest, Recv, Task};
use crate::memory::{View, Window, copy, length};
use dat_core::provider::cause::{Access, AccessKind, LocalUse, Octets, Refusal};
use dat_core::provider::{
    ATOMIC_SIZE, Cause, PostError, Remote, Segment, SendOp, SendWr, Wc, WcOp, WcStatus,
};

/// The outcome of carrying out the request at the head of a queue.
enum Outcome {
    Done,
    /// The peer has no receive buffer.
    Starved,
    Failed(WcStatus, Causes),
}

/// The causes of a failure, for the requester and for its peer.
type Causes = Option<[Cause; 2]>;

impl Objects {
    pub(crate) fn post_send(
        &mut self,
        qp_id: Id,
        wr: &SendWr<'_>,
    ) -> std::result::Result<(), PostError> {
        let qp = self.qps.get(&qp_id).ok_or(PostError::Unsupported)?;
        if wr.segments.len() > qp.core.max_request_segments {
            return Err(PostError::Unsupported);
        }
        let core = qp.core.clone();
        self.local(qp_id, core.pd, wr.op, wr.segments)?;
        if wr.op.facts().is_atomic() && length(wr.segments)? != ATOMIC_SIZE {
            return Err(PostError::Bounds);
        }
        // A fence has no effect, because requests are carried out one after the other anyway.
        let &SendWr { id, op, signalled, solicited, quiet, .. } = wr;
        let (bytes, segments) = (length(wr.segments)?, wr.segments.to_vec());
        let task = Task::Transfer(op);
        self.queue(
            qp_id,
            QueuedRequest {
                id,
                task,
                segments,
                bytes,
                signalled,
                solicited,
                quiet,
                starved: false,
            },
        )
    }

    pub(crate) fn post_bind(
        &mut self,
        qp_id: Id,
        (id, signalled, quiet): (u64, bool, bool),
        window: Window,
        view: Option<View>,
    ) -> std::result::Result<u32, PostError> {
        let pd = self.qps.get(&qp_id).ok_or(PostError::Unsupported)?.core.pd;
        let key = self.memory.reserve(window, pd, qp_id, view)?;
        let (task, segments) = (Task::Bind(key), Vec::new());
        let (bytes, solicited, starved) = (0, false, false);
        let request =
            QueuedRequest { id, task, segments, bytes, signalled, solicited, quiet, starved };
        self.queue(qp_id, request).inspect_err(|_| self.memory.end(key))?;
        Ok(if view.is_some() { key } else { 0 })
    }

    fn queue(&mut self, id: Id, request: QueuedRequest) -> std::result::Result<(), PostError> {
        let qp = self.qps.get_mut(&id).ok_or(PostError::Unsupported)?;
        match qp.state {
            QpState::Ended => {
                let core = qp.core.clone();
                self.cancel(request.task);
                self.flush(id, &core, request.id, request.task.op());
            }
            _ if qp.requests.len() >= qp.core.max_requests => return Err(PostError::Full),
            _ => {
                qp.requests.push_back(request);
                self.carry_out_requests(id);
            }
        }
        Ok(())
    }

    /// Flushes a request.
    pub(super) fn flush(&mut self, qp: Id, core: &QpCore, id: u64, op: WcOp) {
        self.complete(core.request_cq, core.wc(id, op, WcStatus::Flushed), false);
        if core.request_cq.is_none() {
            self.count_carried_out(qp);
        }
    }

    pub(super) fn count_carried_out(&mut self, id: Id) {
        if let Some(qp) = self.qps.get_mut(&id) {
            qp.carried_out += 1;
        }
    }

    /// Returns the addresses of the local memory of a transfer, if the access is permitted.
    fn local(
        &self,
        qp: Id,
        pd: Id,
        op: SendOp,
        segments: &[Segment],
    ) -> std::result::Result<Vec<Segment>, PostError> {
        match op.facts().local {
            LocalUse::Source => self.memory.local(pd, segments, false),
            LocalUse::Sink | LocalUse::Receive => self.memory.local(pd, segments, true),
            LocalUse::WindowSink => self.memory.locate_sink(pd, qp, segments),
        }
    }

    /// Carries out the requests of `id` as far as possible.
    pub(super) fn carry_out_requests(&mut self, id: Id) {
        while let Some((connection, core)) = self.running(id) {
            let Some(mut request) = self.qps.get_mut(&id).and_then(|qp| qp.requests.pop_front())
            else {
                return;
            };
            let mut wc = core.wc(request.id, request.task.op(), WcStatus::Success);
            match self.carry_out(id, &core, &connection, &request) {
                Outcome::Starved => {
                    if !std::mem::replace(&mut request.starved, true) {
                        self.notify(connection.peer, OwnedUpcall::ReceiverNotReady(request.bytes));
                    }
                    if let Some(qp) = self.qps.get_mut(&id) {
                        qp.requests.push_front(request);
                    }
                    return;
                }
                Outcome::Failed(status, causes) => {
                    let sides = [id, connection.peer].into_iter().zip(causes.into_iter().flatten());
                    for (side, cause) in sides {
                        self.notify(side, OwnedUpcall::Cause(cause));
                    }
                    wc.status = status;
                    self.complete(core.request_cq, wc, false);
                    if core.request_cq.is_none() {
                        self.count_carried_out(id);
                    }
                    self.end_both(id, &OwnedUpcall::Broken);
                }
                Outcome::Done => {
                    wc.bytes = request.bytes;
                    self.count_carried_out(id);
                    if request.signalled {
                        self.complete(core.request_cq, wc, !request.quiet);
                    }
                    self.drained(id, 1);
                }
            }
        }
    }

    /// Returns the connection of a queue pair, if data may move on the connection.
    fn running(&self, id: Id) -> Option<(Connection, QpCore)> {
        let qp = self.qps.get(&id)?;
        let QpState::Connected(connection) = qp.state else { return None };
        let QpState::Connected(peer) = self.qps.get(&connection.peer)?.state else {
            return None;
        };
        (connection.announced && peer.announced).then(|| (connection, qp.core.clone()))
    }

    fn carry_out(
        &mut self,
        id: Id,
        core: &QpCore,
        connection: &Connection,
        request: &QueuedRequest,
    ) -> Outcome {
        let op = match request.task {
            Task::Transfer(op) => op,
            Task::Bind(key) if self.memory.bind(key) => return Outcome::Done,
            Task::Bind(_) => {
                let causes = Some([Cause::BindFailed, Cause::PeerFailed]);
                return Outcome::Failed(WcStatus::BindFailed, causes);
            }
        };
        // The region may have been deregistered since the post.
        let local = match self.local(id, core.pd, op, &request.segments) {
            Ok(local) => local,
            Err(error) => {
                let causes = [local_cause(op.facts().local, error), Cause::PeerFailed];
                return Outcome::Failed(WcStatus::LocalProtection, Some(causes));
            }
        };
        let Some(peer) = self.qps.get(&connection.peer).map(|qp| qp.core.clone()) else {
            return Outcome::Failed(WcStatus::Transport, None);
        };
        match op {
            SendOp::Send { invalidate } => {
                self.send(id, connection.peer, &peer, (request, &local), (invalidate, None))
            }
            SendOp::SendImm { immediate } => {
                let carries = (None, Some(immediate));
                self.send(id, connection.peer, &peer, (request, &local), carries)
            }
            SendOp::WriteImm { to, immediate } => {
                let place = self.memory.remote(peer.pd, connection.peer, to, request.bytes, true);
                match place {
                    Ok(place) => {
                        let payload = (place, immediate);
                        self.write_imm(id, connection.peer, &peer, (request, &local), payload)
                    }
                    Err(why) => refused(AccessKind::Write, to, request.bytes, why),
                }
            }
            op if op.facts().awaits_response() && connection.reads == 0 => {
                Outcome::Failed(WcStatus::LocalEp, None)
            }
            SendOp::FetchAdd { at, add } => {
                self.atomic(&peer, connection.peer, at, &local, |target| {
                    target.fetch_add(add, Ordering::AcqRel)
                })
            }
            SendOp::CompareSwap { at, compare, swap } => {
                self.atomic(&peer, connection.peer, at, &local, |target| {
                    let swapped =
                        target.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
                    swapped.unwrap_or_else(|original| original)
                })
            }
            SendOp::Write(to) => {
                match self.memory.remote(peer.pd, connection.peer, to, request.bytes, true) {
                    // SAFETY: local and remote segments were just checked against live regions.
                    Ok(to) => unsafe { copy_segments(&local, &[to]) },
                    Err(why) => refused(AccessKind::Write, to, request.bytes, why),
                }
            }
            SendOp::Read(from) | SendOp::ReadToWindow(from) => {
                match self.memory.remote(peer.pd, connection.peer, from, request.bytes, false) {
                    // SAFETY: local and remote segments were just checked against live regions.
                    Ok(from) => unsafe { copy_segments(&[from], &local) },
                    Err(why) => refused(AccessKind::Read, from, request.bytes, why),
                }
            }
        }
    }

    /// Consumes a receive buffer of the peer without using it.
    fn write_imm(
        &mut self,
        from: Id,
        to: Id,
        peer: &QpCore,
        (request, local): (&QueuedRequest, &[Segment]),
        (place, immediate): (Segment, u32),
    ) -> Outcome {
        let Some(recv) = self.take_recv(to, from) else { return Outcome::Starved };
        if let Some(failed) = self.count_held(to, peer, &recv) {
            return failed;
        }
        // SAFETY: local and remote segments were just checked against live regions.
        let outcome = unsafe { copy_segments(local, &[place]) };
        let wc = peer.wc(recv.id, WcOp::Recv, WcStatus::Success);
        let wc = Wc { bytes: request.bytes, immediate: Some(immediate), ..wc };
        self.complete(peer.recv_cq, wc, request.solicited);
        outcome
    }

    fn atomic(
        &mut self,
        peer: &QpCore,
        to: Id,
        at: Remote,
        local: &[Segment],
        operation: impl FnOnce(&AtomicU64) -> u64,
    ) -> Outcome {
        match self.memory.atomic(peer.pd, to, at) {
            Ok(addr) => {
                // SAFETY: the address is aligned, and was just checked against a live region.
                let target =
                    unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(addr as usize)) };
                let original = operation(target).to_ne_bytes();
                let from = Segment {
                    addr: original.as_ptr().expose_provenance() as u64,
                    len: ATOMIC_SIZE,
                    key: 0,
                };
                // SAFETY: the local segments were just checked, and the source of the copy is
                // `original`.
                unsafe { copy_segments(&[from], local) }
            }
            Err(why) => refused(AccessKind::Atomic, at, ATOMIC_SIZE, why),
        }
    }

    /// Counts a buffer as held by the endpoint. Returns `Some` if the buffer exceeds the hard
    /// watermark.
    fn count_held(&mut self, to: Id, peer: &QpCore, recv: &Recv) -> Option<Outcome> {
        let exceeded = peer.holding.buffer_taken();
        if exceeded.soft {
            self.notify(to, OwnedUpcall::HighWatermark);
        }
        exceeded.hard.then(|| {
            self.complete(peer.recv_cq, peer.wc(recv.id, WcOp::Recv, WcStatus::Flushed), false);
            let none = Cause::PeerHasNoReceive { octets: None, waits: false };
            Outcome::Failed(WcStatus::ReceiverNotReady, Some([none, Cause::ReceiveDeclined]))
        })
    }

    fn send(
        &mut self,
        from: Id,
        to: Id,
        peer: &QpCore,
        (request, local): (&QueuedRequest, &[Segment]),
        (invalidate, immediate): (Option<u32>, Option<u32>),
    ) -> Outcome {
        let Some(recv) = self.take_recv(to, from) else { return Outcome::Starved };
        let op = if immediate.is_some() { WcOp::RecvMessageImm } else { WcOp::Recv };
        let mut wc = peer.wc(recv.id, op, WcStatus::Success);
        if let Some(failed) = self.count_held(to, peer, &recv) {
            return failed;
        }
        let fits = request.bytes <= recv.bytes;
        let sink = self.memory.local(recv.pd, &recv.segments, true);
        let mut causes = None;
        let (receiver, sender) = match sink {
            _ if !fits => {
                let octets = whole(request.bytes);
                causes = Some([
                    Cause::PeerReceiveTooSmall { octets: Some(octets) },
                    Cause::ReceiveTooSmall { lengths: Some((octets, recv.bytes.into())) },
                ]);
                (WcStatus::LocalLength, WcStatus::RemoteResponder)
            }
            Err(error) => {
                causes = Some([Cause::PeerFailed, local_cause(LocalUse::Receive, error)]);
                (WcStatus::LocalProtection, WcStatus::RemoteResponder)
            }
            Ok(_)
                if let Some(Err(why)) =
                    invalidate.map(|key| self.memory.invalidate(peer.pd, to, key)) =>
            {
                let (kind, addr, octets) = (AccessKind::Invalidate, None, None);
                let access = Access { kind, addr, octets, key: invalidate };
                causes = Some(refusals(access, why));
                (WcStatus::LocalProtection, WcStatus::RemoteAccess)
            }
            Ok(sink) => {
                // SAFETY: both lists were just checked against live regions.
                unsafe { copy(local, &sink) };
                wc.bytes = request.bytes;
                (wc.invalidated, wc.immediate) = (invalidate, immediate);
                (WcStatus::Success, WcStatus::Success)
            }
        };
        if let (true, Some([_, theirs])) = (receiver != WcStatus::Success, &causes) {
            self.notify(to, OwnedUpcall::Cause(theirs.clone()));
        }
        wc.status = receiver;
        let wakes = if peer.sender_wakes { request.solicited } else { !recv.quiet };
        self.complete(peer.recv_cq, wc, wakes);
        match sender {
            WcStatus::Success => Outcome::Done,
            status => Outcome::Failed(status, causes),
        }
    }
}

/// The failure of a request that the peer does not permit.
fn refused(kind: AccessKind, at: Remote, bytes: u32, why: Refusal) -> Outcome {
    let status = match why {
        Refusal::Misaligned => WcStatus::RemoteResponder,
        _ => WcStatus::RemoteAccess,
    };
    let octets = Some(whole(bytes));
    let access = Access { kind, addr: Some(at.addr), octets, key: Some(at.key) };
    Outcome::Failed(status, Some(refusals(access, why)))
}

fn refusals(access: Access, why: Refusal) -> [Cause; 2] {
    let of_requester = Cause::RefusedByPeer { access: Some(access), why: Some(why) };
    [of_requester, Cause::Refused { access, why }]
}

pub(super) fn local_cause(usage: LocalUse, error: PostError) -> Cause {
    let why = match error {
        PostError::Domain => Refusal::Domain,
        PostError::Access { .. } => Refusal::Right,
        PostError::Bounds => Refusal::Bounds,
        PostError::Key | PostError::Full | PostError::Unsupported => Refusal::Unknown,
    };
    Cause::LocalMemory { usage, why }
}

/// The number of octets of a whole message or access.
fn whole(bytes: u32) -> Octets {
    Octets { count: bytes.into(), whole: true }
}

/// Copies from one list of segments to another.
///
/// # Safety
/// The requirements are those of [`copy`].
unsafe fn copy_segments(from: &[Segment], to: &[Segment]) -> Outcome {
    // SAFETY: the caller guarantees that all segments are in mapped memory whose owners permit this
    // access.
    unsafe { copy(from, to) };
    Outcome::Done
}
