//! Acceptances that wait for their RTU: how many may wait, and for how long. REQs beyond that
//! number are deferred.
//!
//! Each acceptance holds a queue pair of its consumer. A caller that never answers, or whose
//! address is forged, must not hold all queue pairs for as long as a REP is repeated, which is ten
//! seconds or a minute. A caller that answers with an MRA has received the REP, so its address is
//! not forged: its acceptance no longer counts.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::cm::MAD_SIZE;

use super::request::RequestKey;
use crate::allowance::network;

/// Acceptances of one caller's address that may wait at a time. A further REQ from there ends the
/// oldest of them if it has waited for [`EVICTED_AFTER`]. Otherwise the REQ is
/// [deferred](DeferredReq).
pub(super) const MOST_PER_SOURCE: usize = 64;
/// Longer than any way there and back: a caller that makes many connections at once answers within
/// this time.
pub(super) const EVICTED_AFTER: Duration = Duration::from_millis(250);
/// With `n` acceptances that wait, the latest waits for an `n`-th of this.
const SHARED_WAIT: Duration = Duration::from_secs(16);
/// An acceptance waits so long at least.
const LEAST: Duration = Duration::from_millis(500);
/// Deferred REQs of one caller's address at most. A further one replaces the oldest.
pub(super) const MAX_DEFERRED_PER_SOURCE: usize = 512;
/// Deferred REQs of all addresses at most. A further one replaces the oldest of its own address, or
/// is dropped.
pub(super) const MAX_DEFERRED: usize = 1024;
/// A deferred REQ is dropped if its caller has not repeated it for so long, since the caller has
/// given up. Linux repeats a REQ after 4.6 s.
pub(super) const DEFERRED_FOR: Duration = Duration::from_secs(5);

/// All acceptances that wait for their RTU, and the deferred REQs.
#[derive(Default)]
pub(super) struct HalfOpen {
    total: u32,
    deferred: usize,
    by_source: HashMap<IpAddr, Source>,
}

/// The same of one address.
#[derive(Default)]
struct Source {
    /// The acceptances, with their times, the oldest first.
    waiting: VecDeque<(u32, Instant)>,
    deferred: VecDeque<DeferredReq>,
}

/// A REQ that came when too many acceptances of its address waited. It is admitted when one of
/// these is established or ends, so its caller need not repeat it.
pub(super) struct DeferredReq {
    request: RequestKey,
    heard: Instant,
    pub(super) to: IpAddr,
    pub(super) mad: Box<[u8; MAD_SIZE]>,
}

impl DeferredReq {
    pub(super) fn from(&self) -> IpAddr {
        self.request.0
    }

    #[cfg(test)]
    pub(super) fn request(&self) -> RequestKey {
        self.request
    }
}

impl HalfOpen {
    pub(super) fn enter(&mut self, source: IpAddr, id: u32, now: Instant) {
        self.total += 1;
        self.by_source.entry(network(source)).or_default().waiting.push_back((id, now));
    }

    /// It waits no more, if it did.
    pub(super) fn leave(&mut self, source: IpAddr, id: u32) {
        let source = network(source);
        let Some(of) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = of.waiting.iter().position(|&(waits, _)| waits == id) {
            of.waiting.remove(at);
            self.total -= 1;
        }
        self.tidy(source);
    }

    /// The number of acceptances of this caller's address that wait.
    fn waiting(&self, source: IpAddr) -> usize {
        self.by_source.get(&network(source)).map_or(0, |of| of.waiting.len())
    }

    /// Whether no more of this caller's address may wait.
    pub(super) fn is_full(&self, source: IpAddr) -> bool {
        self.waiting(source) >= MOST_PER_SOURCE
    }

    /// Whether too many of this caller's address wait.
    pub(super) fn is_overfull(&self, source: IpAddr) -> bool {
        self.waiting(source) > MOST_PER_SOURCE
    }

    /// The oldest of this address, if it may be ended so that another can wait.
    pub(super) fn to_evict(&self, source: IpAddr, now: Instant) -> Option<u32> {
        let &(id, since) = self.by_source.get(&network(source))?.waiting.front()?;
        (now >= since + EVICTED_AFTER).then_some(id)
    }

    /// How long the latest may take for its RTU; none: as long as the REP is repeated.
    pub(super) fn time_for_rtu(&self) -> Option<Duration> {
        (self.total > 1).then(|| (SHARED_WAIT / self.total).max(LEAST))
    }

    /// Defers a REQ. One that is deferred already keeps its place.
    pub(super) fn defer(
        &mut self,
        request: RequestKey,
        to: IpAddr,
        now: Instant,
        mad: impl FnOnce() -> [u8; MAD_SIZE],
    ) {
        let Some(of) = self.by_source.get_mut(&network(request.0)) else { return };
        if let Some(known) = of.deferred.iter_mut().find(|req| req.request == request) {
            known.heard = now;
            return;
        }
        if of.deferred.len() >= MAX_DEFERRED_PER_SOURCE || self.deferred >= MAX_DEFERRED {
            if of.deferred.pop_front().is_none() {
                return;
            }
            self.deferred -= 1;
        }
        of.deferred.push_back(DeferredReq { request, heard: now, to, mad: Box::new(mad()) });
        self.deferred += 1;
    }

    /// Takes the oldest deferred REQ of an address, if another acceptance of this address may wait.
    pub(super) fn next_deferred(&mut self, source: IpAddr, now: Instant) -> Option<DeferredReq> {
        if self.deferred == 0 || self.is_full(source) {
            return None;
        }
        let source = network(source);
        let of = self.by_source.get_mut(&source)?;
        let mut next = None;
        while let Some(req) = of.deferred.pop_front() {
            self.deferred -= 1;
            if now < req.heard + DEFERRED_FOR {
                next = Some(req);
                break;
            }
        }
        self.tidy(source);
        next
    }

    /// Drops a deferred REQ that was admitted out of turn, or whose caller has given up.
    pub(super) fn drop_deferred(&mut self, request: &RequestKey) {
        if self.deferred == 0 {
            return;
        }
        let source = network(request.0);
        let Some(of) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = of.deferred.iter().position(|req| req.request == *request) {
            of.deferred.remove(at);
            self.deferred -= 1;
        }
        self.tidy(source);
    }

    fn tidy(&mut self, source: IpAddr) {
        if self
            .by_source
            .get(&source)
            .is_some_and(|of| of.waiting.is_empty() && of.deferred.is_empty())
        {
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
