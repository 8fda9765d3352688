//! The objects of the standard as far as a consumer can know them, and the permitted results of
//! each call.
//!
//! The model is written from the standard. The standard leaves some choices: for example, a depth
//! is a minimum, and the events of a freed endpoint may arrive or not. In such a case the model
//! permits every choice and continues with what has happened. Data moves at once, as in the
//! provider mem.

use std::collections::VecDeque;

use dat_sys::*;

use crate::call::*;
use crate::queue::{Event, Queue, Source, Status};

/// The permitted results of a call.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// If not empty, the call must fail with one of these errors. If empty, the call must succeed
    /// or fail with an error of `may`.
    pub(crate) must: Vec<DAT_RETURN>,
    /// Errors that are permitted instead of success.
    pub(crate) may: Vec<DAT_RETURN>,
    /// Whether the slot already has an object, which the call would replace.
    pub(crate) slot_occupied: bool,
}

pub(crate) struct Cno {
    /// Whether a wait on the CNO may return, because an EVD has queued an event or has events that
    /// may count as new.
    pub(crate) may: bool,
}

pub(crate) struct Evd {
    pub(crate) qlen: usize,
    pub(crate) flags: DAT_EVD_FLAGS,
    pub(crate) cno: Option<usize>,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    pub(crate) queue: Queue,
    /// Whether the queue has overflowed. If so, events may have been lost since then.
    pub(crate) overflow: bool,
    /// Whether the EVD had to trigger its CNO when it became non-empty, and no wait on the CNO has
    /// returned since then.
    pub(crate) triggered: bool,
}

pub(crate) struct Lmr {
    pub(crate) incarnation: usize,
    pub(crate) pz: usize,
    pub(crate) privileges: DAT_MEM_PRIV_FLAGS,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unconfigured,
    Unconnected,
    Reserved,
    UnconfiguredReserved,
    Passive,
    UnconfiguredPassive,
    Active(usize),
    Connected(usize),
    /// The endpoint disconnects. The values are the slot of the peer, and the number of requests
    /// that are still to be carried out.
    DisconnectPending(usize, usize),
    Disconnected,
}

pub(crate) struct Ep {
    pub(crate) handle: usize,
    /// A number that changes with each reset.
    pub(crate) incarnation: usize,
    pub(crate) pz: Option<usize>,
    pub(crate) recv: usize,
    pub(crate) request: usize,
    pub(crate) connect: Option<usize>,
    /// Whether the endpoint's completions may be unsignalled.
    pub(crate) unsignalled: bool,
    pub(crate) max_recvs: usize,
    pub(crate) max_requests: usize,
    pub(crate) state: State,
    pub(crate) recvs: VecDeque<PostedRequest>,
    pub(crate) requests: VecDeque<PostedRequest>,
    /// The cookies of the work requests that occupy a queue: they are outstanding, or their
    /// completion was not taken.
    pub(crate) open_recvs: VecDeque<u64>,
    pub(crate) open_requests: VecDeque<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct PostedRequest {
    pub(crate) cookie: u64,
    pub(crate) length: u32,
    /// The region of the request's segment, named by slot and incarnation.
    pub(crate) lmr: Option<(usize, usize)>,
    /// The region to which an RDMA write goes, named by slot and incarnation.
    pub(crate) remote: Option<Option<(usize, usize)>>,
    pub(crate) suppressed: bool,
    /// Whether the request was posted unsignalled. If it succeeds, its completion need not wake a
    /// waiter.
    pub(crate) quiet: bool,
}

pub(crate) struct Sp {
    pub(crate) number: usize,
    pub(crate) evd: usize,
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// The number of connection requests that may wait.
    pub(crate) backlog: usize,
    /// The endpoint of a reserved service point, until a request has taken it. `None` for a public
    /// one.
    pub(crate) reserved: Option<Option<usize>>,
}

/// A connection attempt that has reached a service point.
pub(crate) struct Attempt {
    pub(crate) caller: Option<usize>,
    pub(crate) sp: usize,
    pub(crate) side: usize,
    /// The endpoint of the service point, if the service point is reserved.
    pub(crate) ep: Option<usize>,
    pub(crate) answered: bool,
}

/// All objects.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) cno: [Option<Cno>; CNOS],
    pub(crate) evd: [Option<Evd>; EVDS],
    pub(crate) pz: [bool; PZS],
    pub(crate) lmr: [Option<Lmr>; LMRS],
    pub(crate) ep: [Option<Ep>; EPS],
    pub(crate) sp: [Option<Sp>; SPS],
    pub(crate) attempts: Vec<Attempt>,
    /// The attempts whose connection requests the consumer has got, in this order.
    pub(crate) cr: Vec<usize>,
    /// The latest number that was given to an object or event.
    pub(crate) last: usize,
    /// Whether an EVD may have overflowed.
    pub(crate) overflow: bool,
}

const ENDED: &[DAT_EVENT_NUMBER] = &[DAT_CONNECTION_EVENT_DISCONNECTED];
/// The connection events that may report a failed transfer, which breaks the connection. The peer
/// may see only a disconnect.
const BROKEN: &[DAT_EVENT_NUMBER] =
    &[DAT_CONNECTION_EVENT_BROKEN, DAT_CONNECTION_EVENT_DISCONNECTED];
const REFUSED: &[DAT_EVENT_NUMBER] = &[DAT_CONNECTION_EVENT_NON_PEER_REJECTED];
const REJECTED: &[DAT_EVENT_NUMBER] = &[DAT_CONNECTION_EVENT_PEER_REJECTED];
const ESTABLISHED: &[DAT_EVENT_NUMBER] = &[DAT_CONNECTION_EVENT_ESTABLISHED];
const ACCEPT_FAILED: &[DAT_EVENT_NUMBER] = &[DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR];

impl Model {
    pub(crate) fn number(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    pub(crate) fn evd(&self, slot: usize) -> Option<&Evd> {
        self.evd.get(slot)?.as_ref()
    }

    pub(crate) fn ep(&self, slot: usize) -> Option<&Ep> {
        self.ep.get(slot)?.as_ref()
    }

    pub(crate) fn has_pz(&self, slot: usize) -> bool {
        self.pz.get(slot).is_some_and(|live| *live)
    }

    /// The region in a slot, if it is still the region of this incarnation.
    pub(crate) fn region(&self, (slot, incarnation): (usize, usize)) -> Option<&Lmr> {
        self.lmr[slot].as_ref().filter(|lmr| lmr.incarnation == incarnation)
    }

    /// The connection request at this position, unless it was answered.
    pub(crate) fn attempt(&self, cr: usize) -> Option<(usize, &Attempt)> {
        let number = *self.cr.get(cr)?;
        let attempt = &self.attempts[number];
        (!attempt.answered).then_some((number, attempt))
    }

    /// The number of an adapter's objects.
    pub(crate) fn objects(&self, side: usize) -> usize {
        fn of<'a, T: 'a>(slots: &'a [Option<T>], side: usize) -> usize {
            slots.iter().skip(side).step_by(2).flatten().count()
        }
        let pzs = self.pz.iter().skip(side).step_by(2).filter(|live| **live).count();
        let requests = self.attempts.iter().filter(|a| a.side == side && !a.answered).count();
        of(&self.cno, side)
            + of(&self.evd, side)
            + of(&self.lmr, side)
            + of(&self.ep, side)
            + of(&self.sp, side)
            + pzs
            + requests
    }

    pub(crate) fn uses_evd(&self, evd: usize) -> bool {
        self.ep
            .iter()
            .flatten()
            .any(|ep| [Some(ep.recv), Some(ep.request), ep.connect].contains(&Some(evd)))
            || self.sp.iter().flatten().any(|sp| sp.evd == evd)
    }

    pub(crate) fn push(
        &mut self,
        slot: usize,
        source: Source,
        event: Event,
        required: bool,
        after: Option<usize>,
    ) {
        let Some(evd) = self.evd.get_mut(slot).and_then(Option::as_mut) else { return };
        let queued = *evd.queue.count().end();
        let was_empty = queued == 0;
        if queued >= evd.qlen {
            evd.overflow = true;
            self.overflow = true;
        }
        let required = required && !evd.overflow;
        evd.queue.push(source, event, required, after);
        if let Some(cno) = evd.cno.and_then(|cno| self.cno[cno].as_mut()) {
            cno.may = true;
            evd.triggered |= evd.enabled && was_empty && required;
        }
    }

    /// Runs `push`, which queues events that need not wake a waiter.
    fn without_trigger(&mut self, slot: usize, push: impl FnOnce(&mut Self)) {
        let triggered = self.evd(slot).is_some_and(|evd| evd.triggered);
        push(self);
        if let Some(evd) = self.evd.get_mut(slot).and_then(Option::as_mut) {
            evd.triggered = triggered;
        }
    }

    /// Reports a connection event of an endpoint. If `last` is true, the consumer must get the
    /// endpoint's completions before the event.
    fn report(
        &mut self,
        ep: usize,
        numbers: &'static [DAT_EVENT_NUMBER],
        private: &'static [u8],
        last: bool,
    ) {
        let Some(Ep { handle, incarnation, connect: Some(evd), .. }) = self.ep[ep] else { return };
        let event = Event::Connection { ep: handle, numbers, private };
        self.push(evd, Source::Connection(incarnation), event, true, last.then_some(incarnation));
    }

    pub(crate) fn complete(
        &mut self,
        ep: usize,
        work: &PostedRequest,
        receive: bool,
        status: Status,
        length: u32,
    ) {
        let Some(there) = &mut self.ep[ep] else { return };
        let Ep { handle, incarnation, recv, request, .. } = *there;
        let (evd, open) = if receive {
            (recv, &mut there.open_recvs)
        } else {
            (request, &mut there.open_requests)
        };
        if evd == NULL || work.suppressed && status == Status::Success {
            // The request ends without an event, and it no longer occupies the queue.
            open.retain(|cookie| *cookie != work.cookie);
            return;
        }
        let (evd, source, operation) = match (receive, work.remote) {
            (true, _) => (recv, Source::Receives(incarnation), DAT_DTO_RECEIVE),
            (false, None) => (request, Source::Requests(incarnation), DAT_DTO_SEND),
            (false, Some(_)) => (request, Source::Requests(incarnation), DAT_DTO_RDMA_WRITE),
        };
        let event = Event::Dto { ep: handle, cookie: work.cookie, status, length, operation };
        let push = |model: &mut Self| model.push(evd, source, event, true, None);
        if work.quiet && status == Status::Success {
            self.without_trigger(evd, push)
        } else {
            push(self)
        }
    }

    /// Ends the connection of an endpoint or its attempt to connect. All work requests are flushed,
    /// and then an event reports the end.
    fn end(&mut self, slot: usize, numbers: &'static [DAT_EVENT_NUMBER]) {
        let Some(ep) = &mut self.ep[slot] else { return };
        let was = std::mem::replace(&mut ep.state, State::Disconnected);
        let (requests, recvs) = (std::mem::take(&mut ep.requests), std::mem::take(&mut ep.recvs));
        for work in requests {
            self.complete(slot, &work, false, Status::Flushed, 0);
        }
        for work in recvs {
            self.complete(slot, &work, true, Status::Flushed, 0);
        }
        if let State::Active(attempt) = was
            && let Some(attempt) = self.attempts.get_mut(attempt)
        {
            attempt.caller = None;
        }
        self.report(slot, numbers, &[], true);
    }

    fn end_both(&mut self, ep: usize, numbers: &'static [DAT_EVENT_NUMBER]) {
        let peer = self.ep[ep].as_ref().and_then(Ep::peer);
        self.end(ep, numbers);
        if let Some(peer) = peer {
            self.end(peer, numbers);
        }
    }

    /// Carries out the requests of an endpoint while the peer has buffers for them.
    pub(crate) fn pump(&mut self, slot: usize) {
        loop {
            let Some((ep, peer)) = self.ep[slot].as_ref().and_then(|ep| Some((ep, ep.peer()?)))
            else {
                return;
            };
            let (Some(work), Some(pz)) = (ep.requests.front().cloned(), ep.pz) else { return };
            let Some(to) = self.ep[peer].as_ref() else { return };
            let receives = work.remote.is_none();
            let readable =
                work.lmr.is_none_or(|lmr| self.region(lmr).is_some_and(|lmr| lmr.pz == pz));
            // The library detects that memory was freed when the request is the first one in the
            // queue, whether or not the peer has a buffer.
            if readable && receives && to.recvs.is_empty() {
                return;
            }
            let mut outcome = if readable { Status::Success } else { Status::Failed };
            if let Some(target) = work.remote
                && readable
                && work.length > 0
            {
                let target = target.and_then(|target| Some((target.0, self.region(target)?)));
                let writable = target.is_some_and(|(slot, lmr)| {
                    slot % 2 == peer % 2
                        && Some(lmr.pz) == to.pz
                        && lmr.privileges & DAT_MEM_PRIV_REMOTE_WRITE_FLAG != 0
                });
                if !writable {
                    outcome = Status::Failed;
                }
            } else if receives && readable {
                let to_pz = to.pz;
                let buffer = self.ep[peer]
                    .as_mut()
                    .and_then(|to| to.recvs.pop_front())
                    .expect("the slot was checked above");
                let there = buffer
                    .lmr
                    .is_none_or(|lmr| self.region(lmr).is_some_and(|lmr| Some(lmr.pz) == to_pz));
                let arrived = match (work.length <= buffer.length, there) {
                    (false, _) => Status::Is(DAT_DTO_ERR_LOCAL_LENGTH),
                    (true, false) => Status::Is(DAT_DTO_ERR_LOCAL_PROTECTION),
                    (true, true) => Status::Success,
                };
                // If a buffer has two faults, the library may report either.
                let arrived =
                    if work.length > buffer.length && !there { Status::Failed } else { arrived };
                self.complete(peer, &buffer, true, arrived, work.length);
                if arrived != Status::Success {
                    outcome = Status::Failed;
                }
            }
            if let Some(ep) = &mut self.ep[slot] {
                ep.requests.pop_front();
            }
            self.complete(slot, &work, false, outcome, work.length);
            if outcome != Status::Success {
                self.end_both(slot, BROKEN);
                return;
            }
            if let Some(Ep { state: State::DisconnectPending(_, left), .. }) = &mut self.ep[slot] {
                *left -= 1;
                if *left == 0 {
                    self.end_both(slot, ENDED);
                }
            }
        }
    }

    /// Carries out a legal dat_ep_connect. The state of the endpoint says whether the attempt has
    /// arrived.
    pub(crate) fn connect(
        &mut self,
        slot: usize,
        qualifier: DAT_CONN_QUAL,
        arrived: bool,
    ) -> Result<(), String> {
        let listens =
            |sp: &&mut Option<Sp>| sp.as_ref().is_some_and(|sp| sp.qualifier == qualifier);
        let sp_slot =
            self.sp.iter().position(|sp| sp.as_ref().is_some_and(|sp| sp.qualifier == qualifier));
        let sp = self.sp.iter_mut().find(listens).and_then(Option::as_mut);
        let (Some(sp), Some(sp_slot)) = (sp, sp_slot) else {
            if arrived {
                return Err("no service point listens, but the endpoint is not disconnected".into());
            }
            self.end(slot, REFUSED);
            return Ok(());
        };
        let (number, evd, backlog, reserved) = (sp.number, sp.evd, sp.backlog, sp.reserved);
        let waiting = self.attempts.iter().filter(|a| a.sp == number && !a.answered).count();
        let queued = self.evd(evd).map_or(0, |evd| *evd.queue.count().end());
        let room = match reserved {
            None => waiting < backlog && queued < self.evd(evd).map_or(0, |evd| evd.qlen),
            Some(reserved) => {
                reserved.is_some() && queued < self.evd(evd).map_or(0, |evd| evd.qlen)
            }
        };
        match (arrived, room, reserved) {
            (false, true, _) => {
                return Err("the request was refused although there is room for it".into());
            }
            (true, _, Some(None)) => {
                return Err("a reserved service point has accepted a second request".into());
            }
            (false, false, _) => {
                self.end(slot, REFUSED);
                return Ok(());
            }
            (true, ..) => {}
        }
        let attempt = self.attempts.len();
        if let Some(ep) = &mut self.ep[slot] {
            ep.state = State::Active(attempt);
        }
        let ep = reserved.flatten();
        if let Some(sp) = self.sp[sp_slot].as_mut() {
            sp.reserved = sp.reserved.map(|_| None);
        }
        if let Some(ep) = ep.and_then(|ep| self.ep[ep].as_mut()) {
            ep.state = if ep.pz.is_some() { State::Passive } else { State::UnconfiguredPassive };
        }
        self.attempts.push(Attempt {
            caller: Some(slot),
            sp: number,
            side: sp_slot % 2,
            ep,
            answered: false,
        });
        self.push(evd, Source::Arrivals(number), Event::Arrival { attempt, qualifier }, true, None);
        Ok(())
    }

    pub(crate) fn accept(&mut self, attempt: usize, ep: usize, private: usize) {
        self.attempts[attempt].answered = true;
        let Some(caller) = self.attempts[attempt].caller.take() else {
            self.end(ep, ACCEPT_FAILED);
            return;
        };
        for (slot, peer, private) in [(caller, ep, &[7; 5][..private]), (ep, caller, &[])] {
            if let Some(ep) = &mut self.ep[slot] {
                ep.state = State::Connected(peer);
            }
            self.report(slot, ESTABLISHED, private, false);
        }
    }

    /// Carries out a legal dat_ep_modify. A receive fails if it is not in the new zone or if its
    /// region was freed.
    pub(crate) fn modify(&mut self, slot: usize, change: Change) {
        let Some(ep) = &mut self.ep[slot] else { return };
        match change {
            Change::MaxRecvDtos(n) => ep.max_recvs = n as usize,
            Change::MaxRequestDtos(n) => ep.max_requests = n as usize,
            Change::Unsignalled(on) => ep.unsignalled = on,
            Change::Recv(evd) => ep.recv = evd,
            Change::Request(evd) => ep.request = evd,
            Change::Pz(pz) => {
                ep.pz = (pz != NULL).then_some(pz);
                ep.state = match ep.state {
                    State::Unconnected | State::Unconfigured if pz == NULL => State::Unconfigured,
                    State::Unconnected | State::Unconfigured => State::Unconnected,
                    State::UnconfiguredReserved if pz != NULL => State::Reserved,
                    State::UnconfiguredPassive if pz != NULL => State::Passive,
                    state => state,
                };
            }
        }
        let Some(pz) = ep.pz else { return };
        let recvs = std::mem::take(&mut ep.recvs);
        let fits = |model: &Self, work: &PostedRequest| {
            work.lmr.is_none_or(|lmr| {
                let rights = DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
                model.region(lmr).is_some_and(|lmr| lmr.pz == pz && lmr.privileges & rights != 0)
            })
        };
        for work in recvs {
            if fits(self, &work) {
                self.ep[slot].as_mut().expect("the slot was checked above").recvs.push_back(work);
            } else {
                self.complete(slot, &work, true, Status::Is(DAT_DTO_ERR_LOCAL_PROTECTION), 0);
                let open =
                    &mut self.ep[slot].as_mut().expect("the slot was checked above").open_recvs;
                open.retain(|cookie| *cookie != work.cookie);
            }
        }
    }

    /// Frees an EVD. Requests that were not taken from it are refused.
    pub(crate) fn free_evd(&mut self, slot: usize) {
        let Some(evd) = self.evd[slot].take() else { return };
        for attempt in evd.queue.attempts() {
            self.answer(attempt, REFUSED);
        }
    }

    pub(crate) fn reject(&mut self, attempt: usize) {
        self.answer(attempt, REJECTED);
    }

    /// Ends an attempt to connect. One of `numbers` tells the caller.
    fn answer(&mut self, attempt: usize, numbers: &'static [DAT_EVENT_NUMBER]) {
        self.attempts[attempt].answered = true;
        if let Some(ep) = self.attempts[attempt].ep.and_then(|ep| self.ep[ep].as_mut()) {
            ep.state = if ep.pz.is_some() { State::Unconnected } else { State::Unconfigured };
        }
        if let Some(caller) = self.attempts[attempt].caller.take() {
            self.end(caller, numbers);
        }
    }

    pub(crate) fn disconnect(&mut self, slot: usize, flags: DAT_CLOSE_FLAGS) {
        let Some(ep) = &mut self.ep[slot] else { return };
        match (ep.state, flags) {
            (State::Connected(peer), DAT_CLOSE_GRACEFUL_FLAG) if !ep.requests.is_empty() => {
                ep.state = State::DisconnectPending(peer, ep.requests.len());
            }
            (State::DisconnectPending(..), DAT_CLOSE_GRACEFUL_FLAG) | (State::Disconnected, _) => {}
            _ => self.end_both(slot, ENDED),
        }
    }

    /// Carries out dat_ep_free (`gone` is true) or dat_ep_reset. The events of the endpoint that
    /// were not taken yet need not arrive any more.
    pub(crate) fn renew(&mut self, slot: usize, gone: bool) {
        let Some(ep) = &self.ep[slot] else { return };
        let incarnation = ep.incarnation;
        if gone {
            match ep.state {
                State::Connected(_) | State::DisconnectPending(..) | State::Active(_) => {
                    self.end_both(slot, ENDED);
                }
                // Receives on which no message can arrive are flushed or discarded.
                _ => self.end(slot, ENDED),
            }
        }
        for evd in self.evd.iter_mut().flatten() {
            evd.queue.make_optional(incarnation);
            evd.triggered &= *evd.queue.count().start() > 0;
        }
        let next = self.number();
        match &mut self.ep[slot] {
            slot if gone => *slot = None,
            Some(ep) => {
                ep.incarnation = next;
                ep.state = State::Unconnected;
                ep.open_recvs.clear();
                ep.open_requests.clear();
            }
            None => {}
        }
    }
}

impl Ep {
    pub(crate) fn peer(&self) -> Option<usize> {
        match self.state {
            State::Connected(peer) | State::DisconnectPending(peer, _) => Some(peer),
            _ => None,
        }
    }
}

impl State {
    pub(crate) fn value(self) -> DAT_EP_STATE {
        match self {
            State::Unconfigured => DAT_EP_STATE_UNCONFIGURED_UNCONNECTED,
            State::Unconnected => DAT_EP_STATE_UNCONNECTED,
            State::Reserved => DAT_EP_STATE_RESERVED,
            State::UnconfiguredReserved => DAT_EP_STATE_UNCONFIGURED_RESERVED,
            State::Passive => DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
            State::UnconfiguredPassive => DAT_EP_STATE_UNCONFIGURED_PASSIVE,
            State::Active(_) => DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
            State::Connected(_) => DAT_EP_STATE_CONNECTED,
            State::DisconnectPending(..) => DAT_EP_STATE_DISCONNECT_PENDING,
            State::Disconnected => DAT_EP_STATE_DISCONNECTED,
        }
    }
}
