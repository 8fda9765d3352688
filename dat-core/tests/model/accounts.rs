//! The accounts of requests and receives. Every posted request or receive must end exactly once,
//! and the accounts record how (docs/architecture.md).
//!
//! The test builds the accounts from the posts that succeeded and from the events that the consumer
//! takes, and compares them with the library's own counts.

use std::collections::{BTreeMap, BTreeSet};

use dat_sys::*;

use crate::world::{Reported, SrqReported};

/// A request or receive that has not ended.
#[derive(Clone, Debug)]
struct OutstandingOp {
    cookie: u64,
    suppressed: bool,
    /// The EVDs on which the operation may complete. The set is empty if the completion is not
    /// reported.
    evds: BTreeSet<usize>,
}

/// Counts the posted and the completed operations of one queue: of a queue pair's send or receive
/// queue, or of a shared receive queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueAccount {
    posted: u64,
    /// The number of receives that dat_ep_modify moved here from the queue that it replaced.
    carried_over: u64,
    completed: u64,
    flushed: u64,
    retired: u64,
    moved: u64,
    outstanding: Vec<OutstandingOp>,
    /// The number of receives that dat_ep_modify has failed and whose events were not taken yet.
    /// They do not count against the length of the queue.
    failed: usize,
    /// Whether it is unknown which receives have failed.
    failed_unknown: bool,
    /// Whether the endpoint was freed. Its remaining completions may arrive or not.
    completions_optional: bool,
}

/// The two queues of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Receives,
    Requests,
}

const SIDES: [Side; 2] = [Side::Receives, Side::Requests];

/// The accounts of an endpoint, which is named by its handle.
#[derive(Debug)]
pub(crate) struct EpAccount {
    /// The accounts of the receive queues and of the request queues. In both lists, the last
    /// account belongs to the current queue pair.
    queues: [Vec<QueueAccount>; 2],
    evds: [Option<usize>; 2],
    max: [usize; 2],
    pub(crate) srq: Option<usize>,
    live: bool,
    /// The numbers of receives and requests that were posted to all queue pairs of the endpoint.
    posted: [u64; 2],
    received: u64,
    /// The number of completions that were lost with their EVD. Some of them may have reported
    /// received messages.
    unseen: u64,
}

/// The accounts of all endpoints and queues.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    eps: BTreeMap<usize, EpAccount>,
    srqs: BTreeMap<usize, SrqAccount>,
    overflowed: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct SrqAccount {
    queue: QueueAccount,
    /// Whether buffers of the queue may have completed without an event that the consumer sees.
    unseen: bool,
}

impl QueueAccount {
    fn post(&mut self, cookie: u64, suppressed: bool, evds: BTreeSet<usize>) {
        self.posted += 1;
        self.outstanding.push(OutstandingOp { cookie, suppressed, evds });
    }

    /// Checks that the counts of the account balance.
    fn check(&self) -> Result<(), String> {
        let QueueAccount {
            posted,
            carried_over,
            completed,
            flushed,
            retired,
            moved,
            outstanding,
            ..
        } = self;
        let ended = completed + flushed + retired + moved + outstanding.len() as u64;
        if posted + carried_over == ended {
            Ok(())
        } else {
            Err(format!("the account explains {ended} of {} operations", posted + carried_over))
        }
    }

    fn retire(&mut self, mut which: impl FnMut(&OutstandingOp) -> bool) -> u64 {
        let before = self.outstanding.len();
        self.outstanding.retain(|op| !which(op));
        let retired = (before - self.outstanding.len()) as u64;
        self.retired += retired;
        retired
    }

    /// Records that the event of the operation at index `at` was taken.
    fn take(&mut self, at: usize, status: DAT_DTO_COMPLETION_STATUS) {
        self.outstanding.remove(at);
        match status {
            DAT_DTO_ERR_FLUSHED => self.flushed += 1,
            _ => self.completed += 1,
        }
    }

    fn position(&self, cookie: u64) -> Option<usize> {
        self.outstanding.iter().position(|op| op.cookie == cookie)
    }
}

impl EpAccount {
    fn new(evds: [Option<usize>; 2], max: [usize; 2], srq: Option<usize>) -> Self {
        let queues = [vec![QueueAccount::default()], vec![QueueAccount::default()]];
        EpAccount { queues, evds, max, srq, live: true, posted: [0; 2], received: 0, unseen: 0 }
    }

    fn current(&self, side: Side) -> &QueueAccount {
        self.queues[side as usize].last().expect("there is a current queue")
    }

    fn current_mut(&mut self, side: Side) -> &mut QueueAccount {
        self.queues[side as usize].last_mut().expect("there is a current queue")
    }

    /// Returns whether a post may succeed, and whether it may be refused because the queue is full.
    pub(crate) fn room(&self, side: Side) -> (bool, bool) {
        let (queue, max) = (self.current(side), self.max[side as usize]);
        if self.evds[side as usize].is_none() {
            return (true, true);
        }
        if queue.failed_unknown {
            return (true, true);
        }
        // A suppressed request may have ended without an event, so only the others are certain to
        // be outstanding.
        let sure = queue.outstanding.iter().filter(|op| !op.suppressed).count() - queue.failed;
        (sure < max, queue.outstanding.len() - queue.failed >= max)
    }

    fn post(&mut self, side: Side, cookie: u64, suppressed: bool) {
        let evds = self.evds[side as usize].into_iter().collect();
        self.posted[side as usize] += 1;
        self.current_mut(side).post(cookie, suppressed, evds);
    }

    /// Records that the current queue pair was replaced by a new one.
    fn renew(&mut self) {
        for queues in &mut self.queues {
            queues.iter_mut().for_each(|queue| {
                queue.retire(|op| op.evds.is_empty());
            });
            queues.push(QueueAccount::default());
        }
    }

    /// Checks that what the library reports about the endpoint agrees with the accounts.
    fn check(&mut self, reported: &Reported) -> Result<(), String> {
        if (reported.posted, reported.received.saturating_sub(self.received) > self.unseen)
            != (self.posted, false)
            || reported.received < self.received
        {
            let EpAccount { posted, received, unseen, .. } = self;
            return Err(format!(
                "the counters say {reported:?}; {posted:?} were posted, {received} (+{unseen}) \
                 received"
            ));
        }
        self.check_receives(reported)?;
        self.check_requests(reported)?;
        self.queues.iter().flatten().try_for_each(QueueAccount::check)
    }

    fn check_receives(&mut self, reported: &Reported) -> Result<(), String> {
        if self.srq.is_some() {
            return Ok(());
        }
        let reported_to_evd = self.evds[0].is_some();
        let queue = self.current_mut(Side::Receives);
        let outstanding = queue.outstanding.len();
        if reported.buffers > outstanding {
            return Err(format!(
                "{} buffers are allocated, but only {outstanding} receives are outstanding",
                reported.buffers
            ));
        }
        if queue.failed_unknown {
            return Ok(());
        }
        if !reported_to_evd {
            // The receives of an endpoint without a receive EVD end in order and without events.
            let ended = outstanding - queue.failed - reported.buffers;
            let unreported = |op: &&OutstandingOp| op.evds.is_empty();
            let ended: BTreeSet<u64> =
                queue.outstanding.iter().filter(unreported).take(ended).map(|l| l.cookie).collect();
            queue.retire(|op| ended.contains(&op.cookie));
        }
        // If completions are not reported, the last receive may have ended after the state was
        // queried.
        let empty = queue.outstanding.len() == queue.failed;
        if reported.idle[0] != empty && (reported_to_evd || !empty) {
            return Err(format!(
                "receives are reported as idle: {}; outstanding are {:?}",
                reported.idle[0], queue.outstanding
            ));
        }
        Ok(())
    }

    fn check_requests(&mut self, reported: &Reported) -> Result<(), String> {
        let reported_to_evd = self.evds[1].is_some();
        let queue = self.current_mut(Side::Requests);
        let has_reported = queue.outstanding.iter().any(|op| reported_to_evd && !op.suppressed);
        if reported.idle[1] && has_reported || !reported.idle[1] && queue.outstanding.is_empty() {
            return Err(format!(
                "requests are reported as idle: {}; outstanding are {:?}",
                reported.idle[1], queue.outstanding
            ));
        }
        if reported.idle[1] {
            queue.retire(|_| true);
        }
        Ok(())
    }

    /// Records the event of one of the endpoint's own queues.
    fn take(
        &mut self,
        side: Side,
        (cookie, status): (u64, DAT_DTO_COMPLETION_STATUS),
        overflowed: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let found = self.queues[side as usize]
            .iter_mut()
            .find_map(|queue| Some((queue.position(cookie)?, queue)));
        let Some((at, queue)) = found else {
            return Err(format!("the completion of {side:?} {cookie}, which is not outstanding"));
        };
        // dat_ep_modify fails a receive outside the new zone immediately, so its completion may
        // come early.
        let at_once = side == Side::Receives && status == DAT_DTO_ERR_LOCAL_PROTECTION;
        if !at_once {
            let completions_optional = queue.completions_optional;
            let missing = |op: &&OutstandingOp| {
                let lost = op.evds.len() > 1 || op.evds.iter().any(|evd| overflowed.contains(evd));
                !(op.suppressed || completions_optional || lost)
            };
            if let Some(op) = queue.outstanding[..at].iter().find(missing) {
                return Err(format!("{side:?} {cookie} completed before operation {}", op.cookie));
            }
            // Earlier requests have ended without an event if they were suppressed or if their
            // endpoint was freed.
            let before: BTreeSet<u64> = queue.outstanding[..at]
                .iter()
                .filter(|op| op.suppressed || completions_optional)
                .map(|op| op.cookie)
                .collect();
            queue.retire(|op| before.contains(&op.cookie));
        }
        let at = queue.position(cookie).expect("the queue has this cookie");
        queue.take(at, status);
        queue.failed -= usize::from(at_once && queue.failed > 0);
        Ok(())
    }
}

/// The functions that update the accounts after the consumer's calls and events.
impl Accounts {
    pub(crate) fn ep(&self, handle: usize) -> &EpAccount {
        &self.eps[&handle]
    }

    pub(crate) fn ep_created(
        &mut self,
        handle: usize,
        evds: [Option<usize>; 2],
        max: [usize; 2],
        srq: Option<usize>,
    ) {
        if let (Some(srq), None) = (srq, evds[0]) {
            self.srqs.entry(srq).or_default().unseen = true;
        }
        self.eps.insert(handle, EpAccount::new(evds, max, srq));
    }

    /// Records a dat_ep_modify, which moves the outstanding receives to the new queue. `failed`
    /// receives have failed.
    pub(crate) fn ep_modified(
        &mut self,
        handle: usize,
        failed: usize,
        change: impl FnOnce(&mut [Option<usize>; 2], &mut [usize; 2]),
    ) {
        let account = self.eps.get_mut(&handle).expect("the handle is known");
        let old_evd = account.evds[0];
        change(&mut account.evds, &mut account.max);
        if let (Some(srq), None) = (account.srq, account.evds[0]) {
            self.srqs.entry(srq).or_default().unseen = true;
        }
        let evds = account.evds[0];
        let old = account.current_mut(Side::Receives);
        let mut ops = std::mem::take(&mut old.outstanding);
        old.moved += ops.len() as u64;
        let (failed, failed_unknown) = match (evds, failed) {
            // There was no event, so it is unknown which receives failed.
            (None, 1..) => (old.failed, true),
            _ => (old.failed + failed, old.failed_unknown || old.failed > 0 && old_evd != evds),
        };
        for op in &mut ops {
            if old.failed == 0 && !old.failed_unknown {
                op.evds.clear();
            }
            // The completion may arrive on the new EVD, or may already be on the former EVD.
            op.evds.extend(evds);
        }
        let carried_over = ops.len() as u64;
        account.renew();
        let new = account.current_mut(Side::Receives);
        (new.carried_over, new.outstanding, new.failed, new.failed_unknown) =
            (carried_over, ops, failed, failed_unknown);
    }

    pub(crate) fn ep_reset(&mut self, handle: usize) {
        self.eps.get_mut(&handle).expect("the handle is known").renew();
    }

    pub(crate) fn ep_freed(&mut self, handle: usize) {
        let account = self.eps.get_mut(&handle).expect("the handle is known");
        account.renew();
        account.live = false;
        account.queues.iter_mut().flatten().for_each(|queue| queue.completions_optional = true);
        if let Some(srq) = account.srq {
            self.srqs.entry(srq).or_default().unseen = true;
        }
    }

    pub(crate) fn posted(&mut self, handle: usize, side: Side, cookie: u64, suppressed: bool) {
        self.eps.get_mut(&handle).expect("the handle is known").post(side, cookie, suppressed);
    }

    pub(crate) fn srq_created(&mut self, handle: usize) {
        self.srqs.insert(handle, SrqAccount::default());
    }

    pub(crate) fn srq_posted(&mut self, handle: usize, cookie: u64) {
        self.srqs.get_mut(&handle).expect("the handle is known").queue.post(
            cookie,
            false,
            BTreeSet::new(),
        );
    }

    /// Records that a completion was taken.
    pub(crate) fn taken(
        &mut self,
        ep: usize,
        operation: DAT_DTOS,
        cookie: u64,
        status: DAT_DTO_COMPLETION_STATUS,
    ) -> Result<(), String> {
        let Some(account) = self.eps.get_mut(&ep) else {
            return Err("a completion of an unknown EP".into());
        };
        let side = if operation == DAT_DTO_RECEIVE { Side::Receives } else { Side::Requests };
        account.received += u64::from(side == Side::Receives && status == DAT_DTO_SUCCESS);
        let shared = account.srq.filter(|_| side == Side::Receives);
        let Some(srq) = shared else {
            return account.take(side, (cookie, status), &self.overflowed);
        };
        let queue =
            &mut self.srqs.get_mut(&srq).ok_or("a completion of an unknown SRQ's buffer")?.queue;
        let at = queue
            .position(cookie)
            .ok_or(format!("the completion of shared buffer {cookie}, which is not outstanding"))?;
        queue.take(at, status);
        Ok(())
    }

    pub(crate) fn evd_overflowed(&mut self, evd: usize) {
        self.overflowed.insert(evd);
        self.srqs_unseen(evd);
    }

    /// Records that buffers of shared queues may have completed on this EVD without an event that
    /// the consumer sees.
    fn srqs_unseen(&mut self, evd: usize) {
        for account in self.eps.values().filter(|account| account.evds[0] == Some(evd)) {
            if let Some(srq) = account.srq {
                self.srqs.entry(srq).or_default().unseen = true;
            }
        }
    }

    /// Records that the EVD was found empty. No more completions of former queue pairs can then
    /// arrive on it.
    pub(crate) fn evd_empty(&mut self, evd: usize) -> Result<(), String> {
        for (handle, account) in &mut self.eps {
            for (side, queues) in SIDES.iter().zip(&mut account.queues) {
                let past = queues.len() - usize::from(account.live);
                for queue in &mut queues[..past] {
                    let here = |op: &OutstandingOp| op.evds.len() == 1 && op.evds.contains(&evd);
                    let completions_optional = queue.completions_optional;
                    if let Some(lost) = queue
                        .outstanding
                        .iter()
                        .find(|op| here(op) && !op.suppressed && !completions_optional)
                    {
                        return Err(format!(
                            "the EVD is empty, but {side:?} {} of EP {handle:#x} did not complete; \
                             was it reset?",
                            lost.cookie
                        ));
                    }
                    queue.retire(here);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn evd_freed(&mut self, evd: usize) {
        self.overflowed.remove(&evd);
        self.srqs_unseen(evd);
        for account in self.eps.values_mut() {
            for queue in account.queues.iter_mut().flatten() {
                account.unseen += queue.retire(|op| op.evds.len() == 1 && op.evds.contains(&evd));
                queue.outstanding.iter_mut().for_each(|op| {
                    op.evds.remove(&evd);
                });
            }
            if account.srq.is_some() {
                account.unseen += 1 << 20;
            }
        }
    }

    pub(crate) fn check_ep(&mut self, handle: usize, reported: &Reported) -> Result<(), String> {
        let account = self.eps.get_mut(&handle).expect("the handle is known");
        account.check(reported).map_err(|why| format!("{why}\n{account:?}"))
    }

    pub(crate) fn check_srq(
        &mut self,
        handle: usize,
        reported: &SrqReported,
    ) -> Result<(), String> {
        let SrqAccount { queue, unseen } = self.srqs.get_mut(&handle).expect("the handle is known");
        queue.check()?;
        let outstanding = queue.outstanding.len();
        if reported.available > reported.outstanding
            || reported.outstanding > outstanding
            || (reported.outstanding < outstanding && !*unseen)
        {
            return Err(format!("the library reports {reported:?}, but the account is {queue:?}"));
        }
        Ok(())
    }

    /// Whether all completions of a live endpoint have arrived, except for operations that are
    /// still in its queues. Any other missing completion is lost.
    pub(crate) fn is_settled(&self, handle: usize, reported: &Reported) -> bool {
        let account = self.ep(handle);
        let of = |side: Side| {
            let overflowed =
                account.evds[side as usize].is_some_and(|evd| self.overflowed.contains(&evd));
            (account.current(side).outstanding.len(), overflowed)
        };
        let receives = match of(Side::Receives) {
            _ if account.srq.is_some() => reported.idle[0] || of(Side::Receives).1,
            (outstanding, overflowed) => {
                outstanding == reported.buffers
                    || overflowed
                    || account.current(Side::Receives).failed_unknown
            }
        };
        let (requests, overflowed) = of(Side::Requests);
        receives && (requests == 0 || overflowed)
    }

    /// Checks at the end, when all EVDs are freed, that no operation is outstanding. Buffers of
    /// shared queues may be outstanding.
    pub(crate) fn check_nothing_left(&self) -> Result<(), String> {
        for (handle, account) in &self.eps {
            let queues = account.queues.iter().flatten();
            queues.clone().try_for_each(QueueAccount::check)?;
            if let Some(left) = queues.clone().find(|queue| !queue.outstanding.is_empty()) {
                return Err(format!("EP {handle:#x} still has outstanding operations: {left:?}"));
            }
        }
        Ok(())
    }
}
