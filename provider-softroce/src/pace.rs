//! How often the strangers' socket is read: when the poller reports it, as a rule.
//!
//! A flood would have the poller report each datagram for itself, and each report costs more than the
//! datagram. So the socket leaves the poller when it is reported too often, or has more than one turn
//! can read. Then it is read once in a millisecond, many datagrams at a time, until little is found.

use std::time::{Duration, Instant};

use rnic::allowance::Allowance;

/// Reports in a second, and in a row, until the socket leaves the poller.
const REPORTS: (u32, u32) = (1000, 64);
/// Until it is read again.
const PAUSE: Duration = Duration::from_millis(1);
/// Datagrams found in that time that are little: the poller is as good.
const LITTLE: usize = 16;

/// The pace.
pub(crate) struct Pace {
    reports: Allowance,
    /// When to read it. None: when the poller reports it.
    due: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { reports: Allowance::new(REPORTS.0, REPORTS.1), due: None }
    }
}

impl Pace {
    /// The poller has reported the socket; `emptied`: all of it has been read. True: it is to leave
    /// the poller.
    pub(crate) fn is_flooded(&mut self, emptied: bool, now: Instant) -> bool {
        !self.reports.take(now) || !emptied
    }

    /// It has left the poller.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.due = Some(now + PAUSE);
    }

    /// Whether to read it.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// It has been read, and so many datagrams were found. True: it is to come back to the poller.
    pub(crate) fn is_over(&mut self, found: usize, now: Instant) -> bool {
        self.due = Some(now + PAUSE);
        found < LITTLE
    }

    /// It has come back.
    pub(crate) fn come_back(&mut self) {
        self.due = None;
    }

    /// When to read it.
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
        let mut pace = Pace::default();
        // A hundred thousand reports in a second.
        let at = |n: u32| start + n * Duration::from_micros(10);
        let flooded = (0..1000).find(|&n| pace.is_flooded(true, at(n))).expect("a flood");
        assert!((64..70).contains(&flooded), "{flooded} reports");
        let mut now = at(flooded);
        pace.leave(now);
        for _ in 0..1000 {
            assert!(!pace.is_due(now));
            now += PAUSE;
            assert_eq!((pace.deadline(), pace.is_due(now)), (Some(now), true));
            assert!(!pace.is_over(100, now));
        }
        // It ends.
        now += PAUSE;
        assert!(pace.is_over(LITTLE - 1, now));
        pace.come_back();
        assert_eq!((pace.deadline(), pace.is_due(now)), (None, false));
        assert!(!pace.is_flooded(true, now));
    }

    #[test]
    fn callers_are_no_flood() {
        let start = Instant::now();
        let mut pace = Pace::default();
        // Five hundred in a second, for a minute; and sixty at once.
        let flooded = |pace: &mut Pace, at| pace.is_flooded(true, at);
        assert!((0..30_000).all(|n| !flooded(&mut pace, start + n * 2 * PAUSE)));
        let later = start + 61_000 * PAUSE;
        assert!((0..60).all(|_| !flooded(&mut pace, later)));
        // More than a turn can read.
        assert!(pace.is_flooded(false, later + 1000 * PAUSE));
    }
}
