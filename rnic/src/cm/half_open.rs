//! Limits how many acceptances wait for their RTU, and for how long. REQs that would exceed the
//! limit are deferred.
//!
//! Each acceptance holds a queue pair of its program. A caller that never answers, or whose address
//! is forged, must not hold all queue pairs for as long as a REP is repeated, which is ten seconds
//! or a minute. A caller that answers with an MRA has received the REP, so its address is not
//! forged. The acceptance for such a caller no longer counts.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::cm::MAD_SIZE;

use super::incoming_req::RequestKey;
use crate::rate_limit::{may_hold_another, network};

/// The maximum number of acceptances of one caller's address that may wait at a time. A further REQ
/// of that address ends the oldest acceptance if the oldest acceptance has waited for
/// [`EVICTABLE_AFTER`]. Otherwise the REQ is [deferred](DeferredReq).
pub(super) const MAX_PER_SOURCE: usize = 64;
/// An acceptance that has waited for this time may be ended to make room for another acceptance.
/// The time is longer than any round trip, so even a caller that makes many connections at once
/// answers within this time.
pub(super) const EVICTABLE_AFTER: Duration = Duration::from_millis(250);
/// While `n` acceptances wait, a new acceptance waits for an `n`-th of this time.
const SHARED_RTU_WAIT: Duration = Duration::from_secs(16);
/// The minimum time for which an acceptance waits.
const MIN_RTU_WAIT: Duration = Duration::from_millis(500);
/// The maximum number of deferred REQs of one caller's address. A further REQ replaces the oldest
/// deferred REQ.
pub(super) const MAX_DEFERRED_PER_SOURCE: usize = 512;
/// The maximum number of deferred REQs of all addresses together. A further REQ replaces the oldest
/// deferred REQ of the same address. If that address has no deferred REQ, the further REQ is
/// dropped.
pub(super) const MAX_DEFERRED: usize = 1024;
/// The time after which a deferred REQ is dropped if its caller has not repeated it: the caller has
/// given up. Linux repeats a REQ after 4.6 s.
pub(super) const DEFERRED_LIFETIME: Duration = Duration::from_secs(5);

/// Whether an acceptance that has waited since the time `since` may be ended to make room for
/// another acceptance.
fn is_evictable(since: Instant, now: Instant) -> bool {
    now >= since + EVICTABLE_AFTER
}

/// All acceptances that wait for their RTU, and the deferred REQs.
#[derive(Default)]
pub(super) struct HalfOpen {
    total: u32,
    /// The number of requests of all addresses that wait for the program's decision.
    undecided: usize,
    deferred: usize,
    by_source: HashMap<IpAddr, Source>,
}

/// The acceptances and deferred REQs of one address.
#[derive(Default)]
struct Source {
    /// The acceptances, with their times, the oldest first.
    waiting: VecDeque<(u32, Instant)>,
    /// The number of requests that wait for the program's decision.
    undecided: usize,
    deferred: VecDeque<DeferredReq>,
}

/// A REQ that cannot be admitted yet. Either too many acceptances of its address waited when it
/// arrived, or requests of other addresses filled the listener's backlog. The REQ is admitted when
/// one of these acceptances is established or ends, or when the program decides on a request. So
/// its caller need not repeat it.
pub(super) struct DeferredReq {
    request: RequestKey,
    last_received: Instant,
    pub(super) to: IpAddr,
    pub(super) mad: Box<[u8; MAD_SIZE]>,
}

impl DeferredReq {
    pub(super) fn new(
        request: RequestKey,
        to: IpAddr,
        now: Instant,
        mad: [u8; MAD_SIZE],
    ) -> DeferredReq {
        DeferredReq { request, last_received: now, to, mad: Box::new(mad) }
    }

    pub(super) fn from(&self) -> IpAddr {
        self.request.0
    }

    pub(super) fn request(&self) -> RequestKey {
        self.request
    }

    /// Records that the caller has repeated the REQ.
    pub(super) fn repeated(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Whether the caller has repeated the REQ within [`DEFERRED_LIFETIME`], so it still waits.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        now < self.last_received + DEFERRED_LIFETIME
    }
}

impl HalfOpen {
    pub(super) fn insert(&mut self, source: IpAddr, id: u32, now: Instant) {
        self.total += 1;
        self.by_source.entry(network(source)).or_default().waiting.push_back((id, now));
    }

    /// Removes an acceptance, if it still waits.
    pub(super) fn remove(&mut self, source: IpAddr, id: u32) {
        let source = network(source);
        let Some(entry) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = entry.waiting.iter().position(|&(waiting, _)| waiting == id) {
            entry.waiting.remove(at);
            self.total -= 1;
        }
        self.remove_if_empty(source);
    }

    /// The number of acceptances of this caller's address that wait.
    fn waiting(&self, source: IpAddr) -> usize {
        self.by_source.get(&network(source)).map_or(0, |entry| entry.waiting.len())
    }

    /// Counts a request that waits for the program's decision.
    pub(super) fn add_undecided(&mut self, source: IpAddr) {
        self.by_source.entry(network(source)).or_default().undecided += 1;
        self.undecided += 1;
    }

    /// Stops counting a request that has waited for the program's decision.
    pub(super) fn remove_undecided(&mut self, source: IpAddr) {
        let source = network(source);
        if let Some(entry) = self.by_source.get_mut(&source) {
            entry.undecided -= 1;
            self.undecided -= 1;
        }
        self.remove_if_empty(source);
    }

    /// Whether the acceptances and requests of this caller's address take more than its share of
    /// the queue pairs, of which `free` are not in use. If no acceptance waits, the address may
    /// make any number of requests, because a program may wait for all of them before it decides.
    pub(super) fn exceeds_share(&self, source: IpAddr, free: usize) -> bool {
        let Some(entry) = self.by_source.get(&network(source)) else { return false };
        let waiting = entry.waiting.len();
        waiting > 0 && !may_hold_another(waiting + entry.undecided, free, self.undecided)
    }

    /// Whether the maximum number of acceptances of this caller's address wait.
    pub(super) fn is_full(&self, source: IpAddr) -> bool {
        self.waiting(source) >= MAX_PER_SOURCE
    }

    /// Whether a further REQ of this caller's address must be deferred: the maximum number of
    /// acceptances wait, and the undecided requests need the room of all acceptances that may be
    /// ended.
    pub(super) fn must_defer(&self, source: IpAddr, now: Instant) -> bool {
        let Some(entry) = self.by_source.get(&network(source)) else { return false };
        let waiting = entry.waiting.len();
        let may_end = || entry.waiting.partition_point(|&(_, since)| is_evictable(since, now));
        waiting >= MAX_PER_SOURCE && waiting + entry.undecided - may_end() >= MAX_PER_SOURCE
    }

    /// Whether more acceptances of this caller's address wait than the limit allows.
    pub(super) fn is_overfull(&self, source: IpAddr) -> bool {
        self.waiting(source) > MAX_PER_SOURCE
    }

    /// The oldest acceptance of this address, if it has waited long enough to be ended.
    pub(super) fn evictable(&self, source: IpAddr, now: Instant) -> Option<u32> {
        let &(id, since) = self.by_source.get(&network(source))?.waiting.front()?;
        is_evictable(since, now).then_some(id)
    }

    /// The time for which the latest acceptance may wait for its RTU. `None`: it waits as long as
    /// the REP is repeated.
    pub(super) fn rtu_wait(&self) -> Option<Duration> {
        (self.total > 1).then(|| (SHARED_RTU_WAIT / self.total).max(MIN_RTU_WAIT))
    }

    /// Defers a REQ. A REQ that is already deferred keeps its position in the queue.
    pub(super) fn defer(
        &mut self,
        request: RequestKey,
        to: IpAddr,
        now: Instant,
        mad: impl FnOnce() -> [u8; MAD_SIZE],
    ) {
        let Some(entry) = self.by_source.get_mut(&network(request.0)) else { return };
        if let Some(known) = entry.deferred.iter_mut().find(|req| req.request == request) {
            known.repeated(now);
            return;
        }
        if entry.deferred.len() >= MAX_DEFERRED_PER_SOURCE || self.deferred >= MAX_DEFERRED {
            if entry.deferred.pop_front().is_none() {
                return;
            }
            self.deferred -= 1;
        }
        entry.deferred.push_back(DeferredReq::new(request, to, now, mad()));
        self.deferred += 1;
    }

    /// Takes the oldest deferred REQ of an address, if another acceptance of this address may wait.
    pub(super) fn next_deferred(&mut self, source: IpAddr, now: Instant) -> Option<DeferredReq> {
        if self.deferred == 0 || self.is_full(source) {
            return None;
        }
        let source = network(source);
        let entry = self.by_source.get_mut(&source)?;
        let mut next = None;
        while let Some(req) = entry.deferred.pop_front() {
            self.deferred -= 1;
            if req.is_current(now) {
                next = Some(req);
                break;
            }
        }
        self.remove_if_empty(source);
        next
    }

    /// Drops a deferred REQ, because it was admitted before its turn or its caller has given up.
    pub(super) fn drop_deferred(&mut self, request: &RequestKey) {
        if self.deferred == 0 {
            return;
        }
        let source = network(request.0);
        let Some(entry) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = entry.deferred.iter().position(|req| req.request == *request) {
            entry.deferred.remove(at);
            self.deferred -= 1;
        }
        self.remove_if_empty(source);
    }

    fn remove_if_empty(&mut self, source: IpAddr) {
        if self.by_source.get(&source).is_some_and(|entry| {
            entry.waiting.is_empty() && entry.undecided == 0 && entry.deferred.is_empty()
        }) {
            self.by_source.remove(&source);
        }
    }

    /// The number of deferred REQs.
    #[cfg(test)]
    pub(super) fn deferred_count(&self) -> usize {
        self.deferred
    }

    /// Whether no acceptance waits and no REQ is deferred.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0 && self.deferred == 0 && self.by_source.is_empty()
    }
}
