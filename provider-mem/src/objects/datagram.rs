//! Datagrams: how queue pairs find out their peers, and how they send to them.
//!
//! A datagram arrives at once, or it is dropped: if the peer is gone, has no receive buffer, or has
//! a buffer that is too small. In the latter case the buffer stays where it is.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dat_sys::*;

use super::transfer::local_cause;
use super::{Id, Objects, OwnedUpcall, PendingUpcall, QpState, Recv};
use crate::memory::{copy, length};
use dat_core::error::{Error, Result};
use dat_core::provider::cause::LocalUse;
use dat_core::provider::{Connect, PostError, Segment, Wc, WcOp, WcStatus};

/// The number of octets before each message in a receive buffer.
const HEADER: u32 = 40;
/// The largest number of a queue pair. The numbers 0 and 1 are not used.
const MAX_QPN: u32 = (1 << 24) - 1;

/// A request of a queue pair that wants to send datagrams to the service behind a listener.
pub(super) struct Resolution {
    caller: Id,
    /// The number that the caller gave to the attempt. `None` if the attempt has timed out, which
    /// the side that answers does not know.
    number: Option<u64>,
    listener: Id,
    from: SocketAddr,
    to: SocketAddr,
    deadline: Option<Instant>,
}

/// A datagram to be sent, without its destination.
pub(crate) struct Outgoing<'a> {
    pub(crate) id: u64,
    pub(crate) immediate: Option<u32>,
    pub(crate) segments: &'a [Segment],
    pub(crate) signalled: bool,
    pub(crate) solicited: bool,
    pub(crate) quiet: bool,
}

impl Objects {
    /// Assigns a number to a datagram queue pair.
    pub(super) fn assign_qpn(&mut self, id: Id) -> u32 {
        let next = |qpn: u32| if qpn >= MAX_QPN { 2 } else { (qpn + 1).max(2) };
        let mut qpn = next(self.last_qpn);
        while self.by_qpn.contains_key(&qpn) {
            qpn = next(qpn);
        }
        self.last_qpn = qpn;
        self.by_qpn.insert(qpn, id);
        qpn
    }

    pub(crate) fn resolve(&mut self, id: Id, number: u64, to: &Connect<'_>) -> Result<()> {
        let Some(super::Qp { state: QpState::Datagram { active, .. }, .. }) = self.qps.get_mut(&id)
        else {
            return Err(Error::of(DAT_INVALID_STATE));
        };
        *active = true;
        if !to.addr.ip().to_canonical().is_loopback() {
            self.notify(id, OwnedUpcall::Unresolved { number, why: Failure::Unreachable });
            return Ok(());
        }
        let refused = OwnedUpcall::Unresolved { number, why: Failure::Refused };
        let Some((listener, sink, backlog)) = self.listener(to.port) else {
            self.notify(id, refused);
            return Ok(());
        };
        if self.waiting(listener) >= backlog {
            self.notify(id, refused);
            return Ok(());
        }
        let call = Id::new();
        let from = SocketAddr::new(to.addr.ip(), self.next_port());
        let to_addr = SocketAddr::new(to.addr.ip(), to.port);
        let deadline = to.timeout.and_then(|t| Instant::now().checked_add(t));
        self.resolutions.insert(call, {
            let (number, to) = (Some(number), to_addr);
            Resolution { caller: id, number, listener, from, to, deadline }
        });
        let private = to.private.to_vec();
        let upcall = OwnedUpcall::Request { call, datagrams: true, from, to: to_addr, private };
        self.upcalls.push_back(PendingUpcall { object: listener, sink, upcall });
        Ok(())
    }

    /// Answers a request. Returns the caller's address, and the numbers of the caller's queue pair
    /// and of this one. The call succeeds even if the caller no longer waits for the answer, as it
    /// does over a network.
    pub(crate) fn answer(
        &mut self,
        id: Id,
        call: Id,
        private: &[u8],
    ) -> Result<(IpAddr, [u32; 2])> {
        let qpn = match self.qps.get_mut(&id) {
            Some(super::Qp { state: QpState::Datagram { qpn, active }, .. }) => {
                *active = true;
                *qpn
            }
            _ => return Err(Error::of(DAT_INVALID_STATE)),
        };
        let answered = self.resolutions.remove(&call).ok_or(Error::of(DAT_ABORT))?;
        let Resolution { caller, number, from, to, .. } = answered;
        let caller_qpn = match self.qps.get(&caller).map(|qp| qp.state) {
            Some(QpState::Datagram { qpn, .. }) => qpn,
            _ => return Ok((from.ip(), [0, qpn])),
        };
        let private = private.to_vec();
        let own_qpn = caller_qpn;
        if let Some(number) = number {
            let resolved = OwnedUpcall::Resolved { number, qpn, own_qpn, peer: to, private };
            self.notify(caller, resolved);
        }
        Ok((from.ip(), [caller_qpn, qpn]))
    }

    /// Refuses a request, unless the consumer has answered it.
    pub(super) fn refuse_resolution(&mut self, call: Id, by_peer: bool, private: &[u8]) {
        let Some(Resolution { caller, number: Some(number), .. }) = self.resolutions.remove(&call)
        else {
            return;
        };
        let why = match by_peer {
            true => Failure::Rejected { private: private.to_vec() },
            false => Failure::Refused,
        };
        self.notify(caller, OwnedUpcall::Unresolved { number, why });
    }

    /// The number of requests to a listener that wait for an answer.
    pub(super) fn waiting(&self, listener: Id) -> usize {
        let connections = self.calls.values().filter(|call| call.listener == listener).count();
        let resolutions = self.resolutions.values().filter(|call| call.listener == listener);
        connections + resolutions.count()
    }

    /// Forgets the number of a queue pair that is gone, and ends its attempts.
    pub(super) fn forget_datagrams(&mut self, id: Id) {
        self.by_qpn.retain(|_, of| *of != id);
        for call in self.resolutions.values_mut().filter(|call| call.caller == id) {
            (call.number, call.deadline) = (None, None);
        }
    }

    pub(super) fn advance_resolutions(&mut self, by: Duration) {
        for deadline in self.resolutions.values_mut().filter_map(|call| call.deadline.as_mut()) {
            *deadline = deadline.checked_sub(by).unwrap_or_else(Instant::now);
        }
    }

    /// Ends the attempts whose time limit has passed.
    pub(super) fn expire_resolutions(&mut self, now: Instant) {
        let mut over = Vec::new();
        for call in self.resolutions.values_mut() {
            if call.deadline.take_if(|at| *at <= now).is_some() {
                over.extend(call.number.take().map(|number| (call.caller, number)));
            }
        }
        for (caller, number) in over {
            self.notify(caller, OwnedUpcall::Unresolved { number, why: Failure::TimedOut });
        }
    }

    pub(super) fn next_resolution_timer(&self) -> Option<Instant> {
        self.resolutions.values().filter_map(|call| call.deadline).min()
    }

    pub(crate) fn post_datagram(
        &mut self,
        id: Id,
        (address, qpn): (IpAddr, u32),
        outgoing: &Outgoing<'_>,
    ) -> std::result::Result<(), PostError> {
        let qp = self.qps.get(&id).ok_or(PostError::Unsupported)?;
        let core = qp.core.clone();
        if outgoing.segments.len() > core.max_request_segments {
            return Err(PostError::Unsupported);
        }
        match qp.state {
            QpState::Ended => {
                self.flush(id, &core, outgoing.id, WcOp::Send);
                return Ok(());
            }
            QpState::Datagram { .. } => {}
            _ => return Err(PostError::Unsupported),
        }
        let local = self.memory.local(core.pd, outgoing.segments, false)?;
        let bytes = length(outgoing.segments)?;
        if let Some(&peer) = self.by_qpn.get(&qpn) {
            self.deliver(peer, address, (outgoing, &local), bytes);
        }
        self.count_carried_out(id);
        if outgoing.signalled {
            let wc = core.wc(outgoing.id, WcOp::Send, WcStatus::Success);
            self.complete(core.request_cq, Wc { bytes, ..wc }, !outgoing.quiet);
        }
        Ok(())
    }

    /// Places a datagram in a receive buffer of a queue pair, or drops it.
    fn deliver(
        &mut self,
        to: Id,
        address: IpAddr,
        (outgoing, local): (&Outgoing<'_>, &[Segment]),
        bytes: u32,
    ) {
        let Some(qp) = self.qps.get(&to) else { return };
        if !matches!(qp.state, QpState::Datagram { active: true, .. }) {
            return;
        }
        let peer = qp.core.clone();
        let first = match peer.srq {
            Some(srq) => self.srqs.get(&srq).and_then(|srq| srq.recvs.front()),
            None => qp.recvs.front(),
        };
        if first.is_none_or(|recv| u64::from(recv.bytes) < u64::from(bytes) + u64::from(HEADER)) {
            return;
        }
        let Some(recv) = self.take_recv(to, to) else { return };
        let exceeded = peer.holding.buffer_taken();
        if exceeded.soft {
            self.notify(to, OwnedUpcall::HighWatermark);
        }
        if exceeded.hard {
            self.complete(peer.recv_cq, peer.wc(recv.id, WcOp::Recv, WcStatus::Flushed), false);
            return self.end(to, OwnedUpcall::Broken);
        }
        let mut wc = peer.wc(recv.id, WcOp::Recv, WcStatus::Success);
        match self.memory.local(recv.pd, &recv.segments, true) {
            Ok(sink) => {
                let header = header(address, bytes);
                let addr = header.as_ptr().expose_provenance() as u64;
                let mut source = vec![Segment { addr, len: HEADER, key: 0 }];
                source.extend(local);
                // SAFETY: all segments were just checked against live regions, except the first
                // one, which is `header`.
                unsafe { copy(&source, &sink) };
                (wc.bytes, wc.immediate) = (bytes + HEADER, outgoing.immediate);
                let wakes = if peer.sender_wakes { outgoing.solicited } else { !recv.quiet };
                self.complete(peer.recv_cq, wc, wakes);
            }
            Err(error) => self.fail_recv(to, &recv, error),
        }
    }

    /// The memory of a receive is gone, so the queue pair fails.
    fn fail_recv(&mut self, id: Id, recv: &Recv, error: PostError) {
        let Some(core) = self.qps.get(&id).map(|qp| qp.core.clone()) else { return };
        self.notify(id, OwnedUpcall::Cause(local_cause(LocalUse::Receive, error)));
        let wc = core.wc(recv.id, WcOp::Recv, WcStatus::LocalProtection);
        self.complete(core.recv_cq, wc, true);
        self.end(id, OwnedUpcall::Broken);
    }
}

/// The reason for which an attempt to resolve an address has failed.
#[derive(Clone)]
pub(crate) enum Failure {
    Rejected { private: Vec<u8> },
    Refused,
    Unreachable,
    TimedOut,
}

/// The header before a datagram of this length. Its last 20 octets are the header of an IPv4 packet
/// from this address to itself, with a protocol number for experiments (RFC 3692). The provider mem
/// has only IPv4 addresses of its own. For other addresses the header is empty.
fn header(address: IpAddr, bytes: u32) -> [u8; HEADER as usize] {
    let mut header = [0; HEADER as usize];
    let IpAddr::V4(address) = address.to_canonical() else { return header };
    let length = u16::try_from(bytes + 20).unwrap_or(u16::MAX);
    let ip = &mut header[20..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    (ip[8], ip[9]) = (64, 253);
    ip[12..16].copy_from_slice(&address.octets());
    ip[16..20].copy_from_slice(&address.octets());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !((folded & 0xFFFF) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}
