//! Decides when the engine reads the REQ socket.
//!
//! As a rule the engine reads the REQ socket when the poller reports it. During a flood the
//! poller would report each datagram, and a report costs more than a datagram. So the engine
//! removes the socket from the poller when reports are too frequent or one report leaves datagrams
//! unread. From then on it reads the socket once per millisecond, until a read finds few datagrams.

use std::time::{Duration, Instant};

use rnic::rate_limit::TokenBucket;

/// If the poller reports the socket more often than this per second, the reports are too frequent.
const REPORT_RATE: u32 = 1000;
/// The number of reports that may follow each other without a pause.
const REPORT_BURST: u32 = 64;
/// The time between two reads of a socket that is not in the poller.
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// A read that finds fewer datagrams than this ends the paced reading.
const MIN_DATAGRAMS: usize = 16;

/// The state of one socket.
pub(crate) struct ReadPacing {
    reports: TokenBucket,
    /// The time of the next read. `None` while the socket is in the poller.
    due: Option<Instant>,
}

impl Default for ReadPacing {
    fn default() -> Self {
        ReadPacing { reports: TokenBucket::new(REPORT_RATE, REPORT_BURST), due: None }
    }
}

impl ReadPacing {
    /// Records a report of the poller. Call this after the read that follows the report. `emptied`
    /// says that the read left no datagram in the socket. Returns whether to remove the socket from
    /// the poller.
    pub(crate) fn report(&mut self, emptied: bool, now: Instant) -> bool {
        !self.reports.take(now) || !emptied
    }

    /// Begins the paced reading: the socket is no longer in the poller.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due = Some(now + READ_INTERVAL);
    }

    /// Whether a read is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Records a paced read. Call this after each paced read, with the number of datagrams that the
    /// read found. Returns whether to put the socket back into the poller.
    pub(crate) fn after_read(&mut self, found: usize, now: Instant) -> bool {
        self.due = Some(now + READ_INTERVAL);
        found < MIN_DATAGRAMS
    }

    /// Ends the paced reading: the socket is in the poller again.
    pub(crate) fn end(&mut self) {
        self.due = None;
    }

    /// The time of the next read.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_read_once_in_a_millisecond() {
        let start = Instant::now();
        let mut pacing = ReadPacing::default();
        // The poller reports the socket once every 10 microseconds.
        let at = |n: u32| start + n * Duration::from_micros(10);
        let flooded = (0..1000).find(|&n| pacing.report(true, at(n))).expect("a flood");
        assert!(
            (64..70).contains(&flooded),
            "the flood was noticed after {flooded} reports; expected 64 to 69"
        );
        let mut now = at(flooded);
        pacing.begin(now);
        for _ in 0..1000 {
            assert!(!pacing.is_due(now));
            now += READ_INTERVAL;
            assert_eq!((pacing.deadline(), pacing.is_due(now)), (Some(now), true));
            assert!(!pacing.after_read(100, now));
        }
        // The flood ends.
        now += READ_INTERVAL;
        assert!(pacing.after_read(MIN_DATAGRAMS - 1, now));
        pacing.end();
        assert_eq!((pacing.deadline(), pacing.is_due(now)), (None, false));
        assert!(!pacing.report(true, now));
    }

    #[test]
    fn callers_are_no_flood() {
        let start = Instant::now();
        let mut pacing = ReadPacing::default();
        // There are 500 reports per second for a minute, then 60 at once.
        let flooded = |pacing: &mut ReadPacing, at| pacing.report(true, at);
        assert!((0..30_000).all(|n| !flooded(&mut pacing, start + n * 2 * READ_INTERVAL)));
        let later = start + 61_000 * READ_INTERVAL;
        assert!((0..60).all(|_| !flooded(&mut pacing, later)));
        // After this report, some of the datagrams were not read.
        assert!(pacing.report(false, later + 1000 * READ_INTERVAL));
    }
}
