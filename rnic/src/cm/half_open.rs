//! Acceptances that wait for their RTU: how many, and for how long.
//!
//! Each holds a queue pair of its consumer. A caller that never answers, or whose address is forged, must not hold all
//! of them for as long as a REP is repeated, which is ten seconds or a minute. One that answers with an MRA has
//! seen the REP, so that its address is its own: it counts no more.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Acceptances of one caller's address that may wait at a time when another REQ comes from there. The REQ ends the
/// oldest one if that has [waited](EVICTED_AFTER) for long enough; else it is passed over, and its sender repeats it.
pub(super) const MOST_PER_SOURCE: usize = 64;
/// Longer than any way there and back: a caller that makes many connections at once answers within this time.
pub(super) const EVICTED_AFTER: Duration = Duration::from_millis(250);
/// With `n` acceptances that wait, the latest waits for an `n`-th of this.
const SHARED_WAIT: Duration = Duration::from_secs(16);
/// An acceptance waits so long at least.
const LEAST: Duration = Duration::from_millis(500);

/// Those that wait.
#[derive(Default)]
pub(super) struct HalfOpen {
    total: u32,
    /// With the time of the acceptance, the oldest first.
    by_source: HashMap<IpAddr, VecDeque<(u32, Instant)>>,
}

impl HalfOpen {
    pub(super) fn enter(&mut self, source: IpAddr, id: u32, now: Instant) {
        self.total += 1;
        self.by_source.entry(network(source)).or_default().push_back((id, now));
    }

    /// It waits no more, if it did.
    pub(super) fn leave(&mut self, source: IpAddr, id: u32) {
        let source = network(source);
        let Some(waiting) = self.by_source.get_mut(&source) else { return };
        if let Some(at) = waiting.iter().position(|&(of, _)| of == id) {
            waiting.remove(at);
            self.total -= 1;
        }
        if waiting.is_empty() {
            self.by_source.remove(&source);
        }
    }

    /// Whether no more of this caller's address may wait.
    pub(super) fn is_full(&self, source: IpAddr) -> bool {
        self.by_source.get(&network(source)).is_some_and(|waiting| waiting.len() >= MOST_PER_SOURCE)
    }

    /// The one to end so that another of this address can wait. None: none needs to be ended, or none may.
    pub(super) fn to_evict(&self, source: IpAddr, now: Instant) -> Option<u32> {
        let waiting = self.by_source.get(&network(source)).filter(|_| self.is_full(source))?;
        waiting.front().filter(|&&(_, since)| now >= since + EVICTED_AFTER).map(|&(id, _)| id)
    }

    /// How long the latest may take for its RTU; none: as long as the REP is repeated.
    pub(super) fn time_for_rtu(&self) -> Option<Duration> {
        (self.total > 1).then(|| (SHARED_WAIT / self.total).max(LEAST))
    }
}

/// What counts as one address: of IPv6 the first 64 bits, since whoever has one address has all that begin so. Not of
/// those that are valid on the link alone, where they are the same for all.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
            Ipv6Addr::from(u128::from(ip) >> 64 << 64).into()
        }
        other => other,
    }
}
