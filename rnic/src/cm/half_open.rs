//! Acceptances that wait for their RTU: how many, and for how long; and REQs that wait until fewer
//! do.
//!
//! Each acceptance holds a queue pair of its consumer. A caller that never answers, or whose address
//! is forged, must not hold all of them for as long as a REP is repeated, which is ten seconds or a
//! minute. One that answers with an MRA has seen the REP, so that its address is its own: it counts
//! no more.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::cm::MAD_SIZE;

use super::request::RequestKey;
use crate::allowance::network;

/// Acceptances of one caller's address that may wait at a time when another REQ comes from there.
/// The REQ ends the oldest one if that has [waited](EVICTED_AFTER) for long enough; else it
/// [stands in line](Standing).
pub(super) const MOST_PER_SOURCE: usize = 64;
/// Longer than any way there and back: a caller that makes many connections at once answers within
/// this time.
pub(super) const EVICTED_AFTER: Duration = Duration::from_millis(250);
/// With `n` acceptances that wait, the latest waits for an `n`-th of this.
const SHARED_WAIT: Duration = Duration::from_secs(16);
/// An acceptance waits so long at least.
const LEAST: Duration = Duration::from_millis(500);
/// REQs of one caller's address that stand in line at most. The latest takes the place of the first.
pub(super) const MOST_IN_LINE: usize = 512;
/// REQs that stand in line at most, of all addresses. Further addresses get no line.
pub(super) const MOST_IN_ALL_LINES: usize = 1024;
/// A REQ whose caller has not repeated it for so long is not taken: the caller has given up.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Those that wait.
#[derive(Default)]
pub(super) struct HalfOpen {
    total: u32,
    in_line: usize,
    by_source: HashMap<IpAddr, Source>,
}

/// Of one address.
#[derive(Default)]
struct Source {
    /// With the time of the acceptance, the oldest first.
    waiting: VecDeque<(u32, Instant)>,
    line: VecDeque<Standing>,
}

/// A REQ that came when too many acceptances of its address waited. It is taken when one of these is
/// established or ends, so that its caller need not repeat it.
pub(super) struct Standing {
    request: RequestKey,
    heard: Instant,
    pub(super) to: IpAddr,
    pub(super) mad: Box<[u8; MAD_SIZE]>,
}

impl Standing {
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

    /// How many of this caller's address wait.
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

    /// Puts a REQ at the end of the line, or leaves it at its place there.
    pub(super) fn stand_in_line(
        &mut self,
        request: RequestKey,
        to: IpAddr,
        now: Instant,
        mad: impl FnOnce() -> [u8; MAD_SIZE],
    ) {
        let Some(of) = self.by_source.get_mut(&network(request.0)) else { return };
        if let Some(known) = of.line.iter_mut().find(|standing| standing.request == request) {
            known.heard = now;
            return;
        }
        if of.line.len() >= MOST_IN_LINE || self.in_line >= MOST_IN_ALL_LINES {
            if of.line.pop_front().is_none() {
                return;
            }
            self.in_line -= 1;
        }
        of.line.push_back(Standing { request, heard: now, to, mad: Box::new(mad()) });
        self.in_line += 1;
    }

    /// The next REQ in the line of an address, if another acceptance of this address may wait.
    pub(super) fn next_in_line(&mut self, source: IpAddr, now: Instant) -> Option<Standing> {
        if self.in_line == 0 || self.is_full(source) {
            return None;
        }
        let source = network(source);
        let of = self.by_source.get_mut(&source)?;
        let mut next = None;
        while let Some(standing) = of.line.pop_front() {
            self.in_line -= 1;
            if now < standing.heard + FORGOTTEN_AFTER {
                next = Some(standing);
                break;
            }
        }
        self.tidy(source);
        next
    }

    /// A REQ leaves its line: it was taken out of turn, or its caller has given up.
    pub(super) fn leave_line(&mut self, request: &RequestKey) {
        if self.in_line == 0 {
            return;
        }
        let source = network(request.0);
        let Some(of) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = of.line.iter().position(|standing| standing.request == *request) {
            of.line.remove(at);
            self.in_line -= 1;
        }
        self.tidy(source);
    }

    fn tidy(&mut self, source: IpAddr) {
        if self.by_source.get(&source).is_some_and(|of| of.waiting.is_empty() && of.line.is_empty())
        {
            self.by_source.remove(&source);
        }
    }

    /// How many REQs stand in line.
    #[cfg(test)]
    pub(super) fn in_line(&self) -> usize {
        self.in_line
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0 && self.in_line == 0 && self.by_source.is_empty()
    }
}
