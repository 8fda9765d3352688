//! Acceptances that wait for their RTU: how many, and for how long.
//!
//! Each holds a queue pair of its consumer. A caller that never answers, or whose address is forged, must not hold all
//! of them for as long as a REP is repeated, which is ten seconds or a minute.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Acceptances of one caller's address that may wait at a time. Further REQs from there are passed over, and are
/// repeated by their senders.
pub(super) const MOST_PER_SOURCE: usize = 64;
/// With `n` acceptances that wait, the latest waits for an `n`-th of this.
const SHARED_WAIT: Duration = Duration::from_secs(16);
/// An acceptance waits so long at least.
const LEAST: Duration = Duration::from_millis(500);

/// How many there are.
#[derive(Default)]
pub(super) struct HalfOpen {
    total: u32,
    by_source: HashMap<IpAddr, usize>,
}

impl HalfOpen {
    pub(super) fn enter(&mut self, source: IpAddr) {
        self.total += 1;
        *self.by_source.entry(source).or_default() += 1;
    }

    pub(super) fn leave(&mut self, source: IpAddr) {
        self.total -= 1;
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// Whether no more of this caller's address may wait.
    pub(super) fn is_full(&self, source: IpAddr) -> bool {
        self.by_source.get(&source).is_some_and(|&count| count >= MOST_PER_SOURCE)
    }

    /// How long the latest waits at most; none: as long as the REP is repeated.
    pub(super) fn wait_of_latest(&self) -> Option<Duration> {
        (self.total > 1).then(|| (SHARED_WAIT / self.total).max(LEAST))
    }
}
