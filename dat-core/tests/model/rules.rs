//! The rules that decide whether a call is legal, and what a legal call does.

use dat_sys::*;

use crate::call::*;
use crate::model::{Cno, Ep, Evd, Lmr, Model, PostedRequest, Sp, State, Verdict};
use crate::queue::{Event, Queue, Source, Status};
use crate::world::{Answer, Reported};

const STREAMS: DAT_EVD_FLAGS = DAT_EVD_SOFTWARE_FLAG | DAT_EVD_DEFAULT_FLAG;

/// Collects the reasons why a call must fail.
struct Faults(Verdict);

impl Faults {
    fn when(mut self, wrong: bool, answers: &[DAT_RETURN]) -> Self {
        if wrong {
            self.0.must.extend(answers);
        }
        self
    }

    fn may(mut self, possible: bool, answer: DAT_RETURN) -> Self {
        if possible {
            self.0.may.push(answer);
        }
        self
    }
}

fn unless_occupied(taken: bool) -> Faults {
    Faults(Verdict { slot_occupied: taken, ..Verdict::default() })
}

fn is_unsignalled(flags: DAT_COMPLETION_FLAGS) -> bool {
    flags & DAT_COMPLETION_UNSIGNALLED_FLAG != 0
}

fn no_faults() -> Faults {
    unless_occupied(false)
}

/// Whether these slots belong to different adapters.
fn on_different_adapters(a: usize, b: usize) -> bool {
    a != NULL && b != NULL && a % 2 != b % 2
}

impl Model {
    /// The permitted results of a call.
    pub(crate) fn judge(&self, call: Call) -> Verdict {
        let bad = &[DAT_INVALID_HANDLE][..];
        let argument = &[DAT_INVALID_PARAMETER][..];
        let state = &[DAT_INVALID_STATE][..];
        let no_cno = |cno: usize| cno != NULL && self.cno[cno].is_none();
        let lacks = |slot: usize, flag| self.evd(slot).is_none_or(|evd| evd.flags & flag == 0);
        let verdict = match call {
            Call::CnoCreate { cno } => unless_occupied(self.cno[cno].is_some()),
            Call::CnoFree { cno } => no_faults()
                .when(self.cno[cno].is_none(), bad)
                .when(self.evd.iter().flatten().any(|evd| evd.cno == Some(cno)), state),
            Call::CnoWait { cno } => no_faults().when(self.cno[cno].is_none(), bad),
            Call::EvdCreate { evd, qlen, cno, flags } => unless_occupied(self.evd[evd].is_some())
                .when(qlen <= 0 || flags == 0 || flags & !STREAMS != 0, argument)
                .when(no_cno(cno) || on_different_adapters(evd, cno), bad),
            Call::EvdFree { evd } => {
                no_faults().when(self.evd(evd).is_none(), bad).when(self.uses_evd(evd), state)
            }
            Call::EvdDequeue { evd }
            | Call::EvdSetWaitable { evd, .. }
            | Call::EvdEnable { evd, .. } => no_faults().when(self.evd(evd).is_none(), bad),
            Call::EvdWait { evd, threshold } => {
                let there = self.evd(evd);
                let qlen = there.map_or(1, |evd| evd.qlen);
                no_faults()
                    .when(there.is_none(), bad)
                    .when(threshold <= 0 || threshold == 1 << 20, argument)
                    .may(threshold > 0 && threshold as usize > qlen, DAT_INVALID_PARAMETER)
                    .when(there.is_some_and(|evd| !evd.waitable), state)
                    .when(threshold > 1 && self.is_unsignalled(evd), state)
                    .may(there.is_some_and(|evd| evd.overflow), DAT_INVALID_STATE)
            }
            Call::EvdPostSe { evd, number } => {
                let there = self.evd(evd);
                no_faults()
                    .when(there.is_none(), bad)
                    .when(
                        lacks(evd, DAT_EVD_SOFTWARE_FLAG),
                        &[DAT_INVALID_PARAMETER, DAT_INVALID_HANDLE],
                    )
                    .when(number != DAT_SOFTWARE_EVENT, argument)
                    .may(
                        there.is_some_and(|evd| *evd.queue.count().end() >= evd.qlen),
                        DAT_QUEUE_FULL,
                    )
                    .may(there.is_some_and(|evd| evd.overflow), DAT_INVALID_STATE)
            }
            Call::EvdResize { evd, qlen } => {
                let count = self.evd(evd).map_or(0..=0, |evd| evd.queue.count());
                let less = |than: usize| qlen > 0 && (qlen as usize) < than;
                no_faults()
                    .when(self.evd(evd).is_none(), bad)
                    .when(qlen <= 0, argument)
                    .when(less(*count.start()), state)
                    .may(less(*count.end()), DAT_INVALID_STATE)
                    .may(self.evd(evd).is_some_and(|evd| evd.overflow), DAT_INVALID_STATE)
            }
            Call::EvdModifyCno { evd, cno } => no_faults().when(
                self.evd(evd).is_none() || no_cno(cno) || on_different_adapters(evd, cno),
                bad,
            ),
            Call::PzCreate { pz } => unless_occupied(self.pz[pz]),
            Call::PzFree { pz } => {
                let in_use = self.ep.iter().flatten().any(|ep| ep.pz == Some(pz))
                    || self.lmr.iter().flatten().any(|lmr| lmr.pz == pz);
                no_faults().when(!self.pz[pz], bad).when(in_use, state)
            }
            Call::LmrCreate { lmr, pz, privileges } => unless_occupied(self.lmr[lmr].is_some())
                .when(!self.has_pz(pz) || on_different_adapters(lmr, pz), bad)
                .when(privileges & !DAT_MEM_PRIV_ALL_FLAG != 0, argument),
            Call::LmrFree { lmr } => no_faults().when(self.lmr[lmr].is_none(), bad),
            Call::EpCreate { ep, pz, recv, request, connect, kind } => {
                let wrong = |evd: usize, flag| {
                    evd != NULL && (lacks(evd, flag) || on_different_adapters(ep, evd))
                };
                unless_occupied(self.ep[ep].is_some())
                    .when(pz != NULL && (!self.has_pz(pz) || on_different_adapters(ep, pz)), bad)
                    .when(wrong(recv, DAT_EVD_DTO_FLAG) || wrong(request, DAT_EVD_DTO_FLAG), bad)
                    .when(wrong(connect, DAT_EVD_CONNECTION_FLAG), bad)
                    .when(!self.flags_fit(ep, [recv, request], kind.unsignalled), argument)
            }
            Call::EpStatus { ep } => no_faults().when(self.ep(ep).is_none(), bad),
            Call::EpFree { ep } => {
                use State::{Passive, Reserved, UnconfiguredPassive, UnconfiguredReserved};
                let held = self.ep(ep).is_some_and(|ep| {
                    matches!(
                        ep.state,
                        Reserved | UnconfiguredReserved | Passive | UnconfiguredPassive
                    )
                });
                no_faults().when(self.ep(ep).is_none(), bad).when(held, state)
            }
            Call::EpReset { ep } => {
                use State::{Disconnected, Unconfigured, Unconnected};
                let legal = |ep: &Ep| matches!(ep.state, Unconnected | Unconfigured | Disconnected);
                no_faults()
                    .when(self.ep(ep).is_none(), bad)
                    .when(!self.ep(ep).is_none_or(legal), state)
            }
            Call::EpConnect { ep, .. } => {
                let legal = |ep: &Ep| ep.state == State::Unconnected && ep.connect.is_some();
                no_faults()
                    .when(self.ep(ep).is_none(), bad)
                    .when(!self.ep(ep).is_none_or(legal), state)
            }
            Call::EpDisconnect { ep, .. } => {
                use State::{Active, Connected, DisconnectPending, Disconnected};
                let legal = |ep: &Ep| {
                    matches!(
                        ep.state,
                        Active(_) | Connected(_) | DisconnectPending(..) | Disconnected
                    )
                };
                no_faults()
                    .when(self.ep(ep).is_none(), bad)
                    .when(!self.ep(ep).is_none_or(legal), state)
            }
            Call::PostRecv { ep, lmr, length, flags } => {
                let there = self.ep(ep);
                let full = there.is_some_and(|ep| ep.open_recvs.len() >= ep.max_recvs);
                no_faults()
                    .when(there.is_none(), bad)
                    .when(there.is_some_and(|ep| ep.state.is_unconfigured()), state)
                    .when(self.is_wrongly_unsignalled(ep, flags), argument)
                    .segment(self, there, (lmr, length), DAT_MEM_PRIV_LOCAL_WRITE_FLAG)
                    .when(full, &[DAT_INSUFFICIENT_RESOURCES])
            }
            Call::PostSend { ep, lmr, length, .. } | Call::PostWrite { ep, lmr, length, .. } => {
                let there = self.ep(ep);
                let legal = |ep: &Ep| matches!(ep.state, State::Connected(_) | State::Disconnected);
                let full = there.is_some_and(|ep| ep.open_requests.len() >= ep.max_requests);
                let flags = if let Call::PostSend { flags, .. } = call { flags } else { 0 };
                no_faults()
                    .when(there.is_none(), bad)
                    .when(!there.is_none_or(legal), state)
                    .when(self.is_wrongly_unsignalled(ep, flags), argument)
                    .when(
                        matches!(call, Call::PostWrite { .. }) && length > BYTES,
                        &[DAT_LENGTH_ERROR],
                    )
                    .segment(self, there, (lmr, length), DAT_MEM_PRIV_NONE_FLAG)
                    .when(full, &[DAT_INSUFFICIENT_RESOURCES])
            }
            Call::PspCreate { sp, evd, qualifier } => self.service_point(sp, evd, qualifier),
            Call::RspCreate { sp, ep, evd, qualifier } => {
                let there = self.ep(ep);
                let legal = |ep: &Ep| matches!(ep.state, State::Unconnected | State::Unconfigured);
                self.service_point(sp, evd, qualifier)
                    .when(there.is_none() || on_different_adapters(sp, ep), bad)
                    .when(!there.is_none_or(legal), state)
            }
            Call::SpFree { sp } => no_faults().when(self.sp[sp].is_none(), bad),
            Call::CrAccept { cr, ep, private } => {
                let attempt = self.attempt(cr).map(|(_, attempt)| attempt);
                let own = attempt.and_then(|attempt| attempt.ep);
                let wrong = attempt.is_some_and(|attempt| match attempt.ep {
                    Some(_) => ep != NULL,
                    None => self.ep(ep).is_none() || ep % 2 != attempt.side,
                });
                let legal = |ep: &Ep| {
                    let state = if own.is_some() { State::Passive } else { State::Unconnected };
                    ep.state == state && ep.connect.is_some()
                };
                no_faults()
                    .when(attempt.is_none() || wrong, bad)
                    .when(!self.ep(own.unwrap_or(ep)).is_none_or(legal), state)
                    .when(private > 1 << 16, argument)
            }
            Call::CrReject { cr } => no_faults().when(self.attempt(cr).is_none(), bad),
            Call::EpModify { ep, change } => self.modification(ep, change),
            // Only the sequences of `conservation` contain the calls on shared receive queues.
            Call::SrqCreate { .. }
            | Call::SrqFree { .. }
            | Call::SrqResize { .. }
            | Call::SrqPost { .. } => unless_occupied(true),
        };
        verdict.0
    }

    /// Whether a post has the unsignalled flag although the endpoint was not created for it.
    fn is_wrongly_unsignalled(&self, ep: usize, flags: DAT_COMPLETION_FLAGS) -> bool {
        is_unsignalled(flags) && self.ep(ep).is_some_and(|ep| !ep.unsignalled)
    }

    /// Whether the completion streams of the endpoint in this slot may use these EVDs, for receives
    /// and for requests (uDAPL 1.2, dat_ep_create, usage). Endpoints that are not unsignalled have
    /// the threshold flag. An exception from the standard permits unsignalled requests beside
    /// software events.
    fn flags_fit(&self, slot: usize, evds: [usize; 2], unsignalled: bool) -> bool {
        let others = || self.ep.iter().enumerate().filter(|(other, _)| *other != slot);
        let eps = || others().filter_map(|(_, ep)| ep.as_ref());
        let fits = |evd: usize, is_request: bool| {
            let shares = |ep: &Ep| ep.recv == evd || ep.request == evd;
            let events = self.evd(evd).map_or(0, |evd| evd.flags & !DAT_EVD_DTO_FLAG);
            let besides = events & !DAT_EVD_RMR_BIND_FLAG;
            let accepts = besides == 0 || is_request && besides == DAT_EVD_SOFTWARE_FLAG;
            let matching = eps().all(|ep| !shares(ep) || ep.unsignalled == unsignalled);
            matching && (accepts || !unsignalled)
        };
        let [recv, request] = evds;
        (recv == NULL || fits(recv, false)) && (request == NULL || fits(request, true))
    }

    /// Whether all completion streams that feed the EVD are unsignalled.
    fn is_unsignalled(&self, evd: usize) -> bool {
        let feeds = |ep: &&Ep| ep.recv == evd || ep.request == evd;
        let mut streams = self.ep.iter().flatten().filter(feeds).peekable();
        streams.peek().is_some() && streams.all(|ep| ep.unsignalled)
    }

    /// The reasons why a dat_ep_modify must fail. The state of the endpoint determines which
    /// parameters can be changed (uDAPL 1.2, dat_ep_modify).
    fn modification(&self, slot: usize, change: Change) -> Faults {
        use State::{
            Passive, Reserved, Unconfigured, UnconfiguredPassive, UnconfiguredReserved, Unconnected,
        };
        let (bad, state) = (&[DAT_INVALID_HANDLE][..], &[DAT_INVALID_STATE][..]);
        let argument = &[DAT_INVALID_PARAMETER][..];
        let Some(ep) = self.ep(slot) else { return no_faults().when(true, bad) };
        let quiescent = match ep.state {
            Unconnected | Unconfigured | UnconfiguredReserved | UnconfiguredPassive => true,
            Reserved | Passive => !matches!(change, Change::Pz(_)),
            _ => false,
        };
        let posted = !ep.recvs.is_empty();
        let no_evd = |evd: usize| {
            let lacks = || self.evd(evd).is_none_or(|evd| evd.flags & DAT_EVD_DTO_FLAG == 0);
            evd != NULL && (lacks() || on_different_adapters(slot, evd))
        };
        let faults = no_faults().when(!quiescent, state);
        match change {
            Change::MaxRecvDtos(n) => {
                let n = n as usize;
                faults.when(n < ep.max_recvs && n < ep.recvs.len(), &[DAT_INVALID_PARAMETER])
            }
            Change::MaxRequestDtos(_) => faults,
            Change::Unsignalled(on) => faults
                .when(posted, state)
                .when(!self.flags_fit(slot, [ep.recv, ep.request], on), argument),
            Change::Recv(evd) => faults
                .when(no_evd(evd), bad)
                .when(!self.flags_fit(slot, [evd, ep.request], ep.unsignalled), argument),
            Change::Request(evd) => faults
                .when(no_evd(evd), bad)
                .when(!self.flags_fit(slot, [ep.recv, evd], ep.unsignalled), argument),
            Change::Pz(pz) => faults
                .when(pz != NULL && (!self.has_pz(pz) || on_different_adapters(slot, pz)), bad),
        }
    }

    fn service_point(&self, sp: usize, evd: usize, qualifier: DAT_CONN_QUAL) -> Faults {
        let same = |other: &(usize, &Option<Sp>)| {
            other.1.as_ref().is_some_and(|sp| sp.qualifier == qualifier)
        };
        let mut others = self.sp.iter().enumerate().filter(same);
        // Both adapters have the same address. The transport decides whether they also share their
        // qualifiers.
        let taken = others.clone().any(|(other, _)| other % 2 == sp % 2);
        let lacks = self.evd(evd).is_none_or(|evd| evd.flags & DAT_EVD_CR_FLAG == 0);
        unless_occupied(self.sp[sp].is_some())
            .when(lacks || on_different_adapters(sp, evd), &[DAT_INVALID_HANDLE])
            .when(taken, &[DAT_CONN_QUAL_IN_USE])
            .may(others.next().is_some(), DAT_CONN_QUAL_IN_USE)
    }

    /// Records the effects of a legal call.
    pub(crate) fn apply(&mut self, call: Call, cookie: u64, answer: &Answer) -> Result<(), String> {
        let number = self.number();
        match call {
            Call::CnoCreate { cno } => self.cno[cno] = Some(Cno { may: false }),
            Call::CnoFree { cno } => self.cno[cno] = None,
            Call::EvdCreate { evd, qlen, cno, flags } => {
                self.evd[evd] = Some(Evd {
                    qlen: qlen as usize,
                    flags,
                    cno: (cno != NULL).then_some(cno),
                    enabled: true,
                    waitable: true,
                    queue: Queue::default(),
                    overflow: false,
                    triggered: false,
                });
            }
            Call::EvdFree { evd } => self.free_evd(evd),
            Call::EvdPostSe { evd, .. } => {
                self.push(evd, Source::Software, Event::Software(cookie), true, None);
            }
            Call::EvdResize { evd, qlen } => self.on_evd(evd, |evd| evd.qlen = qlen as usize),
            Call::EvdSetWaitable { evd, waitable } => {
                self.on_evd(evd, |evd| evd.waitable = waitable)
            }
            Call::EvdModifyCno { evd, cno } => {
                self.on_evd(evd, |evd| {
                    evd.cno = (cno != NULL).then_some(cno);
                    evd.triggered = false;
                });
                self.may_trigger(evd);
            }
            Call::EvdEnable { evd, enable } => {
                self.on_evd(evd, |evd| {
                    evd.enabled = enable;
                    evd.triggered &= enable;
                });
                self.may_trigger(evd);
            }
            Call::PzCreate { pz } => self.pz[pz] = true,
            Call::PzFree { pz } => self.pz[pz] = false,
            Call::LmrCreate { lmr, pz, privileges } => {
                self.lmr[lmr] = Some(Lmr { incarnation: number, pz, privileges });
            }
            Call::LmrFree { lmr } => self.lmr[lmr] = None,
            Call::EpCreate { ep, pz, recv, request, connect, kind } => {
                self.ep[ep] = Some(Ep {
                    unsignalled: kind.unsignalled,
                    max_recvs: DTOS,
                    max_requests: DTOS,
                    handle: answer.handle,
                    incarnation: number,
                    pz: (pz != NULL).then_some(pz),
                    recv,
                    request,
                    connect: (connect != NULL).then_some(connect),
                    state: if pz == NULL { State::Unconfigured } else { State::Unconnected },
                    recvs: Default::default(),
                    requests: Default::default(),
                    open_recvs: Default::default(),
                    open_requests: Default::default(),
                });
            }
            Call::EpFree { ep } => self.renew(ep, true),
            Call::EpReset { ep } => {
                if self.ep(ep).is_some_and(|ep| ep.state == State::Disconnected) {
                    self.renew(ep, false);
                }
            }
            Call::EpStatus { ep } => return self.check_status(ep, answer),
            Call::EpConnect { ep, qualifier } => {
                let arrived = answer.state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
                return self.connect(ep, qualifier, arrived);
            }
            Call::EpDisconnect { ep, flags } => self.disconnect(ep, flags),
            Call::PostRecv { ep, lmr, length, flags } => {
                let quiet = is_unsignalled(flags);
                let work = PostedRequest { quiet, ..self.work(cookie, lmr, length) };
                let Some(there) = &mut self.ep[ep] else { return Ok(()) };
                there.open_recvs.push_back(cookie);
                if there.state == State::Disconnected {
                    self.complete(ep, &work, true, Status::Flushed, 0);
                } else {
                    there.recvs.push_back(work);
                    if let Some(peer) = there.peer() {
                        self.pump(peer);
                    }
                }
            }
            Call::PostSend { ep, lmr, length, flags } => {
                let suppressed = flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
                let quiet = is_unsignalled(flags);
                let work = PostedRequest { suppressed, quiet, ..self.work(cookie, lmr, length) };
                self.request(ep, work);
            }
            Call::PostWrite { ep, lmr, length, remote } => {
                let target = self.lmr[remote].as_ref().map(|lmr| (remote, lmr.incarnation));
                let work = PostedRequest { remote: Some(target), ..self.work(cookie, lmr, length) };
                self.request(ep, work);
            }
            Call::PspCreate { sp, evd, qualifier } => {
                let backlog = self.evd(evd).map_or(0, |evd| evd.qlen);
                self.sp[sp] = Some(Sp { number, evd, qualifier, backlog, reserved: None });
            }
            Call::RspCreate { sp, ep, evd, qualifier } => {
                self.sp[sp] =
                    Some(Sp { number, evd, qualifier, backlog: 1, reserved: Some(Some(ep)) });
                if let Some(ep) = &mut self.ep[ep] {
                    ep.state =
                        if ep.pz.is_some() { State::Reserved } else { State::UnconfiguredReserved };
                }
            }
            Call::SpFree { sp } => {
                let reserved = self.sp[sp].take().and_then(|sp| sp.reserved.flatten());
                if let Some(ep) = reserved.and_then(|ep| self.ep[ep].as_mut()) {
                    ep.state =
                        if ep.pz.is_some() { State::Unconnected } else { State::Unconfigured };
                }
            }
            Call::CrAccept { cr, ep, private } => {
                if let Some((number, attempt)) = self.attempt(cr) {
                    let ep = attempt.ep.unwrap_or(ep);
                    self.accept(number, ep, private);
                }
            }
            Call::CrReject { cr } => {
                if let Some((number, _)) = self.attempt(cr) {
                    self.reject(number);
                }
            }
            Call::EvdDequeue { .. } | Call::EvdWait { .. } | Call::CnoWait { .. } => {}
            Call::EpModify { ep, change } => self.modify(ep, change),
            Call::SrqCreate { .. }
            | Call::SrqFree { .. }
            | Call::SrqResize { .. }
            | Call::SrqPost { .. } => {}
        }
        Ok(())
    }

    fn on_evd(&mut self, slot: usize, change: impl FnOnce(&mut Evd)) {
        self.evd[slot].as_mut().map(change);
    }

    /// Records that a wait on the EVD's CNO may return, because queued events may count as new.
    pub(crate) fn may_trigger(&mut self, evd: usize) {
        if let Some(cno) =
            self.evd(evd).and_then(|evd| evd.cno).and_then(|cno| self.cno[cno].as_mut())
        {
            cno.may = true;
        }
    }

    fn work(&self, cookie: u64, lmr: usize, length: u32) -> PostedRequest {
        let region = self.lmr[lmr].as_ref().map(|region| (lmr, region.incarnation));
        let lmr = region.filter(|_| length > 0);
        PostedRequest { cookie, length, lmr, remote: None, suppressed: false, quiet: false }
    }

    fn request(&mut self, slot: usize, work: PostedRequest) {
        let Some(ep) = &mut self.ep[slot] else { return };
        ep.open_requests.push_back(work.cookie);
        if ep.state == State::Disconnected {
            self.complete(slot, &work, false, Status::Flushed, 0);
        } else {
            ep.requests.push_back(work);
            self.pump(slot);
        }
    }

    fn check_status(&self, slot: usize, answer: &Answer) -> Result<(), String> {
        let Some(ep) = self.ep(slot) else { return Ok(()) };
        if answer.state != ep.state.value() {
            return Err(format!("the state is {} but should be {:?}", answer.state, ep.state));
        }
        // The queues must be idle exactly when the model says so. An operation occupies its queue
        // until its completion is taken, or until it cannot complete any more.
        let idle = (ep.open_recvs.is_empty(), ep.open_requests.is_empty());
        if answer.idle == idle {
            Ok(())
        } else {
            Err(format!(
                "the queues are reported as idle: {:?}, but should be {idle:?}",
                answer.idle
            ))
        }
    }

    /// The number of receives of an endpoint that have completed and whose completions were not
    /// taken.
    fn due_receives(&self, ep: &Ep) -> usize {
        let due = self
            .evd
            .iter()
            .flatten()
            .flat_map(|evd| evd.queue.cookies(Source::Receives(ep.incarnation)));
        due.filter(|cookie| ep.open_recvs.contains(cookie)).count()
    }

    /// Checks what the library reports about an endpoint after each call. The report must explain
    /// every receive and every request.
    pub(crate) fn check_reported(&self, slot: usize, reported: &Reported) -> Result<(), String> {
        let ep = self.ep(slot).expect("the slot has a live endpoint");
        let idle = [ep.open_recvs.is_empty(), ep.open_requests.is_empty()];
        let (queued, unheard) = (ep.recvs.len(), ep.recv == NULL);
        // The number of posted receives whose completions the consumer has not taken. They are
        // still queued in the transport, or they have completed.
        let due = if unheard { 0 } else { self.due_receives(ep) };
        if reported.state != ep.state.value() || reported.idle != idle || reported.buffers != queued
        {
            return Err(format!(
                "{reported:?}, but should be: idle {idle:?}, {queued} buffers, {:?}",
                ep.state
            ));
        }
        let lossy = self.evd(ep.recv).is_some_and(|evd| evd.overflow);
        if ep.open_recvs.len() != queued + due && !lossy {
            return Err(format!(
                "{} receives must be accounted for, but {queued} are queued and {due} completed",
                ep.open_recvs.len()
            ));
        }
        Ok(())
    }
}

impl Faults {
    /// The reasons why a local segment must be refused (uDAPL 1.2, dat_ep_post_send: return
    /// values).
    fn segment(
        self,
        model: &Model,
        ep: Option<&Ep>,
        (lmr, length): (usize, u32),
        privilege: DAT_MEM_PRIV_FLAGS,
    ) -> Self {
        let Some(pz) = ep.and_then(|ep| ep.pz).filter(|_| length > 0) else { return self };
        match &model.lmr[lmr] {
            None => self.when(true, &[DAT_PRIVILEGES_VIOLATION]),
            Some(region) => self
                .when(length > BYTES, &[DAT_INVALID_PARAMETER])
                .when(region.pz != pz, &[DAT_PROTECTION_VIOLATION])
                .when(region.privileges & privilege != privilege, &[DAT_PRIVILEGES_VIOLATION]),
        }
    }
}

impl State {
    fn is_unconfigured(self) -> bool {
        matches!(
            self,
            State::Unconfigured | State::UnconfiguredReserved | State::UnconfiguredPassive
        )
    }
}
