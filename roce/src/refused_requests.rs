//! Logs the connection requests that were refused because of their path MTU. Any host can send such
//! requests, so the number of lines is limited.

use std::net::IpAddr;
use std::time::Instant;

use rnic::rate_limit::TokenBucket;
use wire::rocev2::PathMtu;

/// The number of lines per second, and the number of lines that may follow each other at once.
const LINES_PER_SECOND: u32 = 1;
const LINES_AT_ONCE: u32 = 4;

/// The log of refused requests.
pub(crate) struct RefusedRequests {
    lines: TokenBucket,
    /// The number of refused requests since the last line.
    omitted: u64,
}

impl Default for RefusedRequests {
    fn default() -> Self {
        RefusedRequests { lines: TokenBucket::new(LINES_PER_SECOND, LINES_AT_ONCE), omitted: 0 }
    }
}

impl RefusedRequests {
    /// Logs a refused request, unless the limit is reached.
    pub(crate) fn log(
        &mut self,
        now: Instant,
        from: IpAddr,
        proposed: Option<PathMtu>,
        largest: PathMtu,
    ) {
        let Some(proposed) = proposed else { return };
        let Some(omitted) = self.note(now) else { return };
        tracing::warn!(
            target: "dat::cm", omitted,
            "refused a request of {from}: its packets carry {proposed} octets, and this host's \
             interface or the path takes packets of {largest} octets. Give both interfaces the same \
             MTU, or set the path MTU of the caller (mtu={largest} in OpenDAT)"
        );
    }

    /// Records a refused request. If a line is due, returns the number of earlier requests that
    /// have no line.
    fn note(&mut self, now: Instant) -> Option<u64> {
        match self.lines.take(now) {
            true => Some(std::mem::take(&mut self.omitted)),
            false => {
                self.omitted += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_refused_requests_gets_few_lines() {
        let (mut refused, start) = (RefusedRequests::default(), Instant::now());
        let flood = 100_000;
        let at = |n: u32| start + n * Duration::from_micros(100);
        let omitted: Vec<u64> = (0..flood).filter_map(|n| refused.note(at(n))).collect();
        assert!((13..=14).contains(&omitted.len()), "{omitted:?}");
        assert_eq!(omitted[..4], [0; 4]);
        // Each request is counted once.
        let later = start + Duration::from_secs(60);
        let last = refused.note(later).expect("a line is due");
        assert_eq!(omitted.iter().sum::<u64>() + last + omitted.len() as u64, u64::from(flood));
        assert_eq!(refused.note(later), Some(0));
    }
}
