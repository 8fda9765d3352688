//! The beginning and the end of connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use dat_sys::*;

use super::{
    ConnectRequest, Connection, Id, Listener, Objects, OwnedUpcall, PendingUpcall, Qp, QpCore,
    QpState, Task,
};
use crate::Adapter;
use dat_core::error::{Error, Result};
use dat_core::provider::{Cause, Close, Connect, ReadDepth, ServiceType, Sink, WcOp, WcStatus};

impl Objects {
    pub(crate) fn add_qp(&mut self, core: QpCore, sink: Sink<Adapter>) -> Id {
        let id = Id::new();
        let (requests, recvs) = Default::default();
        let state = match core.service {
            ServiceType::Connection => QpState::Idle,
            ServiceType::Datagram => QpState::Datagram { qpn: self.assign_qpn(id), active: false },
        };
        self.qps.insert(id, Qp { core, sink, state, requests, recvs, carried_out: 0 });
        id
    }

    pub(crate) fn remove_qp(&mut self, id: Id) {
        let Some(Qp { state, requests, .. }) = self.qps.remove(&id) else { return };
        for request in requests {
            self.cancel(request.task);
        }
        match state {
            QpState::Connected(connection) => self.end(connection.peer, OwnedUpcall::Disconnected),
            QpState::Connecting(call) => self.abandon(call),
            _ => {}
        }
        self.forget_datagrams(id);
    }

    pub(crate) fn listen(
        &mut self,
        port: Option<u16>,
        backlog: usize,
        sink: Sink<Adapter>,
    ) -> Result<(Id, u16)> {
        let port = match port {
            None => self.free_port().ok_or(Error::of(DAT_CONN_QUAL_UNAVAILABLE))?,
            Some(port) if self.listener(port).is_some() => {
                return Err(Error::of(DAT_CONN_QUAL_IN_USE));
            }
            Some(port) => port,
        };
        let id = Id::new();
        self.listeners.insert(id, Listener { sink, port, backlog });
        Ok((id, port))
    }

    /// Stops listening. The consumer can still answer requests that it has seen.
    pub(crate) fn close(&mut self, id: Id) {
        self.listeners.remove(&id);
        let unseen: Vec<Id> = self
            .upcalls
            .iter()
            .filter_map(|pending| match pending.upcall {
                OwnedUpcall::Request { call, .. } if pending.object == id => Some(call),
                _ => None,
            })
            .collect();
        for call in unseen {
            self.refuse(call, false, &[]);
        }
    }

    pub(crate) fn connect(&mut self, id: Id, to: &Connect<'_>) -> Result<()> {
        let Some(Qp { state: state @ QpState::Idle, .. }) = self.qps.get_mut(&id) else {
            return Err(Error::of(DAT_INVALID_STATE));
        };
        let call = Id::new();
        *state = QpState::Connecting(call);
        if !to.addr.ip().to_canonical().is_loopback() {
            self.end(id, OwnedUpcall::Unreachable);
            return Ok(());
        }
        let Some((listener, sink, backlog)) = self.listener(to.port) else {
            self.notify(id, OwnedUpcall::Cause(Cause::NoListener));
            self.end(id, OwnedUpcall::Rejected { by_peer: false, private: Vec::new() });
            return Ok(());
        };
        if self.waiting(listener) >= backlog {
            self.end(id, OwnedUpcall::Rejected { by_peer: false, private: Vec::new() });
            return Ok(());
        }
        let from = SocketAddr::new(to.addr.ip(), self.next_port());
        let to_addr = SocketAddr::new(to.addr.ip(), to.port);
        let deadline = to.timeout.and_then(|t| Instant::now().checked_add(t));
        self.calls.insert(
            call,
            ConnectRequest { caller: id, listener, from, to: to_addr, depth: to.depth, deadline },
        );
        let private = to.private.to_vec();
        let upcall = OwnedUpcall::Request { call, datagrams: false, from, to: to_addr, private };
        self.upcalls.push_back(PendingUpcall { object: listener, sink, upcall });
        Ok(())
    }

    pub(crate) fn accept(
        &mut self,
        id: Id,
        call: Id,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        if !matches!(self.qps.get(&id), Some(Qp { state: QpState::Idle, .. })) {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        let call = match self.calls.remove(&call) {
            Some(answered) if self.is_calling(answered.caller, call) => answered,
            _ => {
                self.end(id, OwnedUpcall::AcceptFailed);
                return Ok(());
            }
        };
        let active = ReadDepth {
            incoming: call.depth.incoming.min(depth.outgoing),
            outgoing: call.depth.outgoing.min(depth.incoming),
        };
        let passive = ReadDepth { incoming: active.outgoing, outgoing: active.incoming };
        for (end, peer, reads) in
            [(call.caller, id, active.outgoing), (id, call.caller, passive.outgoing)]
        {
            if let Some(qp) = self.qps.get_mut(&end) {
                qp.state =
                    QpState::Connected(Connection { peer, announced: false, closing: None, reads });
            }
        }
        let established = |private: &[u8], peer, local, depth| OwnedUpcall::Established {
            private: private.to_vec(),
            peer,
            local,
            depth,
        };
        self.notify(call.caller, established(private, call.to, call.from, active));
        self.notify(id, established(&[], call.from, call.to, passive));
        Ok(())
    }

    /// Refuses a request, unless the consumer has answered it.
    pub(crate) fn refuse(&mut self, call: Id, by_peer: bool, private: &[u8]) {
        self.refuse_resolution(call, by_peer, private);
        if let Some(refused) = self.calls.remove(&call)
            && self.is_calling(refused.caller, call)
        {
            self.end(refused.caller, OwnedUpcall::Rejected { by_peer, private: private.to_vec() });
        }
    }

    /// Records that the consumer knows of the connection, so data may move.
    pub(crate) fn mark_announced(&mut self, id: Id) {
        if let Some(Qp { state: QpState::Connected(connection), .. }) = self.qps.get_mut(&id) {
            connection.announced = true;
            let peer = connection.peer;
            self.carry_out_requests(id);
            self.carry_out_requests(peer);
        }
    }

    pub(crate) fn disconnect(&mut self, id: Id, how: Close) {
        let Some(qp) = self.qps.get_mut(&id) else { return };
        match (&mut qp.state, how) {
            (QpState::Idle | QpState::Ended, _) => {}
            (QpState::Datagram { .. } | QpState::Connecting(_), _) => {
                self.end(id, OwnedUpcall::Disconnected)
            }
            (QpState::Connected(_), Close::Abrupt) => self.end_both(id, &OwnedUpcall::Disconnected),
            (QpState::Connected(connection), Close::Graceful) => {
                connection.closing.get_or_insert(qp.requests.len());
                self.drained(id, 0);
            }
        }
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        for deadline in self.calls.values_mut().filter_map(|call| call.deadline.as_mut()) {
            *deadline = deadline.checked_sub(by).unwrap_or_else(Instant::now);
        }
        self.advance_resolutions(by);
        self.expire();
    }

    /// Ends the attempts whose time limit has passed.
    pub(crate) fn expire(&mut self) {
        if self.next_timer().is_none() {
            return;
        }
        let now = Instant::now();
        let over: Vec<Id> = self
            .calls
            .values()
            .filter(|c| c.deadline.is_some_and(|d| d <= now))
            .map(|c| c.caller)
            .collect();
        for caller in over {
            self.end(caller, OwnedUpcall::TimedOut);
        }
        self.expire_resolutions(now);
    }

    /// Returns the time at which `expire` must be called next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let connection = self.calls.values().filter_map(|call| call.deadline).min();
        connection.into_iter().chain(self.next_resolution_timer()).min()
    }

    /// Records that `n` of the requests for which a graceful close waits have been carried out.
    /// After the last of these requests, ends the connection.
    pub(super) fn drained(&mut self, id: Id, n: usize) {
        if let Some(Qp {
            state: QpState::Connected(Connection { closing: Some(left), .. }), ..
        }) = self.qps.get_mut(&id)
        {
            *left = left.saturating_sub(n);
            if *left == 0 {
                self.end_both(id, &OwnedUpcall::Disconnected);
            }
        }
    }

    pub(super) fn end_both(&mut self, id: Id, why: &OwnedUpcall) {
        let peer = match self.qps.get(&id) {
            Some(Qp { state: QpState::Connected(connection), .. }) => Some(connection.peer),
            _ => None,
        };
        self.end(id, why.clone());
        if let Some(peer) = peer {
            self.end(peer, why.clone());
        }
    }

    /// Ends a connection or an attempt to connect: flushes all posted work requests, and then
    /// reports the end (promise 2 of a transport).
    pub(super) fn end(&mut self, id: Id, why: OwnedUpcall) {
        let Some(qp) = self.qps.get_mut(&id) else { return };
        let state = std::mem::replace(&mut qp.state, QpState::Ended);
        let core = qp.core.clone();
        let (requests, recvs) = (std::mem::take(&mut qp.requests), std::mem::take(&mut qp.recvs));
        for request in requests {
            self.cancel(request.task);
            self.flush(id, &core, request.id, request.task.op());
        }
        for recv in recvs {
            self.complete(core.recv_cq, core.wc(recv.id, WcOp::Recv, WcStatus::Flushed), false);
        }
        if let QpState::Connecting(call) = state {
            self.abandon(call);
        }
        self.notify(id, why);
    }

    /// Cancels a request that will not be carried out.
    pub(super) fn cancel(&mut self, task: Task) {
        if let Task::Bind(key) = task {
            self.memory.end(key);
        }
    }

    /// Removes the time limit of a request whose caller has stopped waiting.
    fn abandon(&mut self, call: Id) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.deadline = None;
        }
    }

    fn is_calling(&self, id: Id, call: Id) -> bool {
        matches!(self.qps.get(&id), Some(Qp { state: QpState::Connecting(c), .. }) if *c == call)
    }

    pub(super) fn notify(&mut self, object: Id, upcall: OwnedUpcall) {
        if let Some(qp) = self.qps.get(&object) {
            self.upcalls.push_back(PendingUpcall { object, sink: qp.sink, upcall });
        }
    }

    pub(super) fn listener(&self, port: u16) -> Option<(Id, Sink<Adapter>, usize)> {
        self.listeners.iter().find(|(_, l)| l.port == port).map(|(id, l)| (*id, l.sink, l.backlog))
    }

    fn free_port(&mut self) -> Option<u16> {
        (0..=u16::MAX).find_map(|_| {
            let port = self.next_port();
            self.listener(port).is_none().then_some(port)
        })
    }

    /// Returns the next dynamic port number (RFC 6335, section 6).
    pub(super) fn next_port(&mut self) -> u16 {
        self.last_port = self.last_port.wrapping_add(1).max(49152);
        self.last_port
    }
}
