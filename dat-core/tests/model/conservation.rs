//! Random calls of all kinds over any transport. After each call, the accounts must explain every
//! request and every receive.
//!
//! `sequence` predicts the result of each call on the provider mem. This module does not
//! predict results, because on other transports completions may arrive at any time. But no
//! completion may be lost or duplicated, a queue must be full exactly when the accounts say so, and
//! at the end no operation may be missing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dat_sys::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::accounts::{Accounts, Side};
use crate::call::*;
use crate::client::ProviderTable;
use crate::world::{Answer, ObservedEvent, World};

/// The time after which the test gives up waiting for a condition.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// The provider and its parameters.
#[derive(Clone)]
pub(crate) struct ProviderUnderTest {
    pub(crate) table: ProviderTable,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// Whether all effects of a call have happened when the call returns.
    pub(crate) at_once: bool,
}

type Outcome<T = ()> = Result<T, String>;

/// Makes calls and keeps the accounts.
struct Run {
    world: World,
    at_once: bool,
    accounts: Accounts,
    number: u64,
    live: Live,
    /// For each connection request that the consumer has: the endpoint that connects, and the
    /// number of its attempt.
    callers: Vec<(usize, u64)>,
    /// For each endpoint, the number of the call that last connected it.
    attempt: [u64; EPS],
}

/// The slots that have an object.
#[derive(Default)]
struct Live {
    cno: [bool; CNOS],
    evd: [bool; EVDS],
    cr_evd: [bool; EVDS],
    pz: [bool; PZS],
    lmr: [bool; LMRS],
    ep: [bool; EPS],
    sp: [bool; SPS],
    srq: [bool; SRQS],
}

impl Live {
    fn slot(&mut self, call: Call) -> Option<(bool, &mut bool)> {
        Some(match call {
            Call::CnoCreate { cno } => (true, &mut self.cno[cno]),
            Call::CnoFree { cno } => (false, &mut self.cno[cno]),
            Call::EvdCreate { evd, .. } => (true, &mut self.evd[evd]),
            Call::EvdFree { evd } => (false, &mut self.evd[evd]),
            Call::PzCreate { pz } => (true, &mut self.pz[pz]),
            Call::PzFree { pz } => (false, &mut self.pz[pz]),
            Call::LmrCreate { lmr, .. } => (true, &mut self.lmr[lmr]),
            Call::LmrFree { lmr } => (false, &mut self.lmr[lmr]),
            Call::EpCreate { ep, .. } => (true, &mut self.ep[ep]),
            Call::EpFree { ep } => (false, &mut self.ep[ep]),
            Call::SrqCreate { srq, .. } => (true, &mut self.srq[srq]),
            Call::SrqFree { srq } => (false, &mut self.srq[srq]),
            Call::PspCreate { sp, .. } | Call::RspCreate { sp, .. } => (true, &mut self.sp[sp]),
            Call::SpFree { sp } => (false, &mut self.sp[sp]),
            _ => return None,
        })
    }
}

/// The state before a call, with which the state after the call is compared.
#[derive(Default)]
struct Before {
    state: DAT_EP_STATE,
    buffers: usize,
    /// Whether a post may succeed, and whether it may be refused because the queue is full.
    room: Option<(bool, bool)>,
}

impl Run {
    fn make(&mut self, call: Call) -> Outcome {
        if self.live.slot(call).is_some_and(|(creates, live)| creates && *live) {
            return Ok(());
        }
        self.step(call).map(drop).map_err(|why| format!("{call:?}: {why}"))
    }

    fn step(&mut self, call: Call) -> Outcome<DAT_RETURN> {
        let before = self.before(call);
        self.number += 1;
        let answer = self.world.make(call, self.number);
        self.take_async_events()?;
        if let Some((may_succeed, may_be_full)) = before.room {
            match answer.kind {
                DAT_SUCCESS if !may_succeed => {
                    return Err("the post succeeded although the queue was full".into());
                }
                DAT_INSUFFICIENT_RESOURCES if !may_be_full => return Err("there is room".into()),
                _ => {}
            }
        }
        if answer.kind == DAT_SUCCESS {
            self.record(call, &answer, &before)?;
        } else if answer.kind == DAT_QUEUE_EMPTY
            && let Call::EvdDequeue { evd } = call
        {
            self.accounts.evd_empty(self.world.evd(evd))?;
        }
        self.check(call, &before)?;
        if answer.kind == DAT_SUCCESS {
            self.wait_for(call)?;
        }
        Ok(answer.kind)
    }

    fn before(&mut self, call: Call) -> Before {
        let mut before = Before::default();
        match call {
            Call::EpModify { ep, .. } | Call::EpReset { ep } if self.live.ep[ep] => {
                let reported = self.world.reported(ep);
                (before.state, before.buffers) = (reported.state, reported.buffers);
            }
            Call::PostRecv { ep, .. } if self.live.ep[ep] => {
                before.room = Some(self.accounts.ep(self.world.ep(ep)).room(Side::Receives));
            }
            Call::PostSend { ep, .. } | Call::PostWrite { ep, .. } if self.live.ep[ep] => {
                before.room = Some(self.accounts.ep(self.world.ep(ep)).room(Side::Requests));
            }
            Call::SrqPost { srq, .. } if self.live.srq[srq] => {
                // Messages may take buffers from the queue before the post is made, but nobody else
                // posts buffers.
                let reported = self.world.srq_reported(srq);
                before.room = Some((true, reported.available >= reported.depth));
            }
            _ => {}
        }
        before
    }

    /// Records a call that has succeeded.
    fn record(&mut self, call: Call, answer: &Answer, before: &Before) -> Outcome {
        if let Some((creates, live)) = self.live.slot(call) {
            *live = creates;
        }
        let heard = |slot: usize, world: &World| (slot != NULL).then(|| world.evd(slot));
        match call {
            Call::EvdCreate { evd, flags, .. } => {
                self.live.cr_evd[evd] = flags & DAT_EVD_CR_FLAG != 0
            }
            Call::EvdFree { evd } => {
                self.live.cr_evd[evd] = false;
                self.accounts.evd_freed(self.world.evd(evd));
            }
            Call::EpCreate { ep, recv, request, kind, .. } => {
                let evds = [heard(recv, &self.world), heard(request, &self.world)];
                let srq = (kind.srq != NULL).then(|| self.world.srq(kind.srq));
                self.accounts.ep_created(self.world.ep(ep), evds, [DTOS; 2], srq);
            }
            Call::EpModify { ep, change } => {
                let evd = match change {
                    Change::Recv(evd) | Change::Request(evd) => heard(evd, &self.world),
                    _ => None,
                };
                let failed = before.buffers.saturating_sub(self.world.reported(ep).buffers);
                self.accounts.ep_modified(self.world.ep(ep), failed, |evds, max| match change {
                    Change::MaxRecvDtos(n) => max[0] = n as usize,
                    Change::MaxRequestDtos(n) => max[1] = n as usize,
                    Change::Recv(_) => evds[0] = evd,
                    Change::Request(_) => evds[1] = evd,
                    Change::Unsignalled(_) | Change::Pz(_) => {}
                });
            }
            Call::EpFree { ep } => self.accounts.ep_freed(self.world.ep(ep)),
            // In any other state dat_ep_reset changes nothing.
            Call::EpReset { ep } if before.state == DAT_EP_STATE_DISCONNECTED => {
                self.accounts.ep_reset(self.world.ep(ep));
            }
            Call::PostRecv { ep, .. } => {
                self.accounts.posted(self.world.ep(ep), Side::Receives, self.number, false);
            }
            Call::PostSend { ep, flags, .. } => {
                let suppressed = flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
                self.accounts.posted(self.world.ep(ep), Side::Requests, self.number, suppressed);
            }
            Call::PostWrite { ep, .. } => {
                self.accounts.posted(self.world.ep(ep), Side::Requests, self.number, false);
            }
            Call::SrqCreate { srq, .. } => self.accounts.srq_created(self.world.srq(srq)),
            Call::SrqPost { srq, .. } => self.accounts.srq_posted(self.world.srq(srq), self.number),
            Call::EpConnect { ep, .. } => self.attempt[ep] = self.number,
            _ => {}
        }
        match &answer.event {
            Some(ObservedEvent::Dto { ep, cookie, status, operation, .. }) => {
                self.accounts.taken(*ep, *operation, *cookie, *status)
            }
            _ => Ok(()),
        }
    }

    /// Takes asynchronous events.
    fn take_async_events(&mut self) -> Outcome {
        for side in 0..2 {
            while let Some((number, about)) = self.world.async_event(side) {
                match number {
                    DAT_ASYNC_ERROR_EVD_OVERFLOW => self.accounts.evd_overflowed(about),
                    // An endpoint on a shared queue reports that it takes no more of the queue's
                    // buffers.
                    DAT_ASYNC_ERROR_EP_BROKEN => {}
                    _ => return Err(format!("asynchronous event {number:#x} on adapter {side}")),
                }
            }
        }
        Ok(())
    }

    /// Checks that what the library reports agrees with the accounts.
    fn check(&mut self, call: Call, before: &Before) -> Outcome {
        for ep in (0..EPS).filter(|ep| self.live.ep[*ep]) {
            let reported = self.world.reported(ep);
            let wrong = |why| format!("of ep{ep}: {why}");
            self.accounts.check_ep(self.world.ep(ep), &reported).map_err(wrong)?;
            // If the new queue cannot take a posted receive, the receive fails immediately, with an
            // event.
            let modified = matches!(call, Call::EpModify { ep: modified, .. } if modified == ep);
            if modified && reported.buffers > before.buffers {
                return Err(format!(
                    "{} buffers before dat_ep_modify have become {}",
                    before.buffers, reported.buffers
                ));
            }
        }
        for srq in (0..SRQS).filter(|srq| self.live.srq[*srq]) {
            let reported = self.world.srq_reported(srq);
            let wrong = |why| format!("of srq{srq}: {why}");
            self.accounts.check_srq(self.world.srq(srq), &reported).map_err(wrong)?;
        }
        Ok(())
    }

    /// Makes progress until `done` returns true.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Outcome<bool>) -> Outcome {
        let start = Instant::now();
        while !done(self)? {
            if self.at_once || start.elapsed() > HANG_TIMEOUT {
                return Err(format!("waited {:?} for {what}", start.elapsed()));
            }
            self.take_async_events()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until the requests and events that belong to a connection have arrived, so that the
    /// sequence can continue.
    fn wait_for(&mut self, call: Call) -> Outcome {
        match call {
            Call::EpConnect { ep, .. } => {
                let known = self.world.requests();
                self.until("the request to arrive or to be refused", |run| {
                    for evd in (0..EVDS).filter(|evd| run.live.cr_evd[*evd]).collect::<Vec<_>>() {
                        run.take(evd)?;
                    }
                    let state = run.world.reported(ep).state;
                    Ok(run.world.requests() > known
                        || state != DAT_EP_STATE_ACTIVE_CONNECTION_PENDING)
                })?;
                self.callers.resize(self.world.requests(), (ep, self.attempt[ep]));
                Ok(())
            }
            Call::CrAccept { cr, ep, .. } => {
                let (caller, attempt) = self.callers[self.world.request(cr)];
                let waits = |run: &Self| run.live.ep[caller] && run.attempt[caller] == attempt;
                if ep == NULL || !waits(self) {
                    return Ok(());
                }
                self.until("both ends to be connected", |run| {
                    let pending = [
                        (ep, DAT_EP_STATE_COMPLETION_PENDING),
                        (caller, DAT_EP_STATE_ACTIVE_CONNECTION_PENDING),
                    ];
                    Ok(pending.into_iter().all(|(ep, state)| run.world.reported(ep).state != state))
                })
            }
            // Wait after every second call only. Otherwise the next call is made while the
            // connection ends.
            Call::EpDisconnect { ep, flags: DAT_CLOSE_ABRUPT_FLAG }
                if self.number.is_multiple_of(2) =>
            {
                self.until("the end of the connection", |run| {
                    Ok(run.world.reported(ep).state == DAT_EP_STATE_DISCONNECTED)
                })
            }
            _ => Ok(()),
        }
    }

    /// Calls dat_evd_dequeue. Returns whether there was an event.
    fn take(&mut self, evd: usize) -> Outcome<bool> {
        Ok(self.step(Call::EvdDequeue { evd })? == DAT_SUCCESS)
    }

    fn drain(&mut self) -> Outcome {
        for evd in 0..EVDS {
            while self.live.evd[evd] && self.take(evd)? {}
        }
        Ok(())
    }

    /// Waits until no more events arrive, checks the accounts, and frees everything.
    fn end(mut self) -> Outcome {
        for sp in 0..SPS {
            self.make(Call::SpFree { sp })?;
        }
        self.drain()?;
        for cr in 0..self.world.requests() {
            self.make(Call::CrReject { cr })?;
        }
        let eps = || (0..EPS).collect::<Vec<_>>();
        for ep in eps() {
            self.make(Call::EpDisconnect { ep, flags: DAT_CLOSE_ABRUPT_FLAG })?;
        }
        self.until("all posted operations to end", |run| {
            run.drain()?;
            let live = eps().into_iter().filter(|ep| run.live.ep[*ep]);
            let reported = live.map(|ep| (ep, run.world.reported(ep))).collect::<Vec<_>>();
            Ok(reported.iter().all(|(ep, reported)| {
                let over = reported.state == DAT_EP_STATE_DISCONNECTED && reported.buffers == 0;
                let rests = reported.state == DAT_EP_STATE_UNCONNECTED
                    || reported.state == DAT_EP_STATE_UNCONFIGURED_UNCONNECTED;
                (over || rests) && run.accounts.is_settled(run.world.ep(*ep), reported)
            }))
        })
        .map_err(|why| format!("{why}\n{:?}", self.accounts))?;
        for ep in eps() {
            self.make(Call::EpFree { ep })?;
        }
        self.drain()?;
        self.free_the_rest()?;
        self.accounts.check_nothing_left()
    }

    fn free_the_rest(&mut self) -> Outcome {
        let mut calls: Vec<Call> = (0..EVDS).map(|evd| Call::EvdFree { evd }).collect();
        calls.extend((0..LMRS).map(|lmr| Call::LmrFree { lmr }));
        calls.extend((0..CNOS).map(|cno| Call::CnoFree { cno }));
        for call in calls {
            self.make(call)?;
        }
        for srq in (0..SRQS).filter(|srq| self.live.srq[*srq]).collect::<Vec<_>>() {
            // No endpoint holds a buffer, so every buffer that was posted and is not available must
            // have been returned.
            let reported = self.world.srq_reported(srq);
            if reported.available != reported.outstanding {
                return Err(format!("no endpoint holds a buffer of srq{srq}: {reported:?}"));
            }
            self.make(Call::SrqFree { srq })?;
        }
        for pz in 0..PZS {
            self.make(Call::PzFree { pz })?;
        }
        for side in 0..2 {
            let answer = self.world.close(side, DAT_CLOSE_GRACEFUL_FLAG);
            if answer != DAT_SUCCESS {
                return Err(format!("dat_ia_close(ia{side}, graceful): {answer:#x}"));
            }
        }
        Ok(())
    }
}

fn conserve(
    place: &ProviderUnderTest,
    varieties: EndpointVarieties,
    steps: &[Step],
    qualifiers: DAT_CONN_QUAL,
) -> Outcome {
    let handles = dat_core::handle::live_count();
    let mut run = Run {
        world: World::open(place.table, &place.name).at(place.address, qualifiers),
        at_once: place.at_once,
        accounts: Accounts::default(),
        number: 0,
        live: Live::default(),
        callers: Vec::new(),
        attempt: [0; EPS],
    };
    let prelude = varied_prelude(varieties).into_iter();
    for call in prelude.chain(steps.iter().flat_map(|step| step.0.iter().copied())) {
        run.make(call)?;
    }
    run.end()?;
    let start = Instant::now();
    while dat_core::handle::live_count() != handles {
        if start.elapsed() > HANG_TIMEOUT {
            return Err(format!("{} handles are left", dat_core::handle::live_count() - handles));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Tries sequences of at most `steps` steps. `at` returns the provider on which a sequence runs.
pub(crate) fn sequences(config: Config, steps: usize, at: impl Fn() -> ProviderUnderTest) {
    let input = (any::<EndpointVarieties>(), everything(steps));
    let mut runner = TestRunner::new(config);
    // Use qualifiers that no recent sequence has used.
    let count = std::cell::Cell::new(0);
    let outcome = runner.run(&input, |(varieties, steps)| {
        count.set(count.get() + 1);
        let qualifiers = 20_000 + 8 * (count.get() % 1_000);
        conserve(&at(), varieties, &steps, qualifiers).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (varieties, steps))) => {
            let prelude = Step(varied_prelude(varieties));
            panic!("{why}\nby\n{}then\n{}", listing(&[prelude]), listing(&steps))
        }
        Err(abort) => panic!("{abort}"),
    }
}

/// Does the same as [`sequences`] for a few seconds. `PROPTEST_CASES` sets the number of sequences.
#[allow(dead_code)] // the providers' part
pub(crate) fn some_sequences(at: impl Fn() -> ProviderUnderTest) {
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 40 };
    // Report the first failure without shrinking, because it is perhaps not reproducible and its
    // adapters still exist.
    let config = Config { cases, max_shrink_iters: 0, failure_persistence: None, ..default };
    sequences(config, 60, at);
}

/// A loopback address that most likely nobody else uses. Other processes may run the same test.
#[allow(dead_code)] // the providers' part
pub(crate) fn own_address() -> Ipv4Addr {
    let [.., a, b, c] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + (a & 63), b, c.clamp(1, 254))
}
