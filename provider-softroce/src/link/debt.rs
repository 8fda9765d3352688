//! When an acknowledgement leaves.
//!
//! Each costs both sides as much as a message. In a conversation, where a consumer answers at once and its peer goes on at
//! once, one for many messages will do (the engine sends it after 16), and none is in the way of an answer. But a peer that
//! waits for its send to complete before it goes on waits for the acknowledgement: so it is held back only as long as the
//! next message may well take, and not at all where that has been tried in vain.
//!
//! How long that is depends on who makes progress. A consumer that polls has answered by its next pass, or will not. Where somebody
//! sleeps in the poller, the consumer may not have had the processor yet: the acknowledgement would leave before its answer, and
//! the peer would be woken twice.

use std::time::{Duration, Instant};

/// How long an acknowledgement is held back: some round trips within a host, or one between neighbours.
const HOLD: Duration = Duration::from_micros(30);
/// The same where both sides have to be woken.
const HOLD_ASLEEP: Duration = Duration::from_micros(200);
/// Trust is lost when it was in vain so often, and gained again as slowly.
const TRUST: u16 = 8;
/// Without trust it is tried again after so many acknowledgements: each time costs the peer as long as it is held.
const RETRY: u16 = 64;
const RETRY_ASLEEP: u16 = 1024;

/// An acknowledgement that is owed, or not.
pub(super) struct Debt {
    /// When the first came that it is for, and the last.
    since: Option<(Instant, Instant)>,
    /// The consumer has sent something since then.
    answered: bool,
    awake: Trust,
    asleep: Trust,
}

/// Whether it was of use to wait.
struct Trust {
    level: u16,
    /// Acknowledgements sent without trust.
    untried: u16,
    retry: u16,
}

impl Default for Debt {
    fn default() -> Self {
        Debt { since: None, answered: false, awake: Trust::new(RETRY), asleep: Trust::new(RETRY_ASLEEP) }
    }
}

impl Debt {
    /// Something has come that is to be acknowledged.
    #[inline]
    pub(super) fn grows(&mut self, now: Instant) {
        match &mut self.since {
            // The peer has gone on without it.
            Some((_, last)) if self.answered => {
                *last = now;
                self.awake.gain();
                self.asleep.gain();
            }
            Some((_, last)) => *last = now,
            None => (self.since, self.answered) = (Some((now, now)), false),
        }
    }

    /// The consumer has sent something.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// Whether it has.
    #[inline]
    pub(super) fn has_answer(&self) -> bool {
        self.answered
    }

    /// Whether it can wait still; `asleep`: somebody sleeps in the poller.
    pub(super) fn holds(&mut self, now: Instant, asleep: bool) -> bool {
        match (self.end_of_hold(asleep), asleep) {
            (None, _) => false,
            (Some(end), true) => self.asleep.holds(now, end),
            (Some(end), false) => self.awake.holds(now, end),
        }
    }

    /// Until when it waits at most.
    pub(super) fn due(&self, asleep: bool) -> Option<Instant> {
        let trust = if asleep { &self.asleep } else { &self.awake };
        let (first, _) = self.since?;
        Some(self.end_of_hold(asleep).filter(|_| trust.level > 0).unwrap_or(first))
    }

    /// None: it is not held.
    #[inline]
    fn end_of_hold(&self, asleep: bool) -> Option<Instant> {
        let (first, last) = self.since?;
        match (asleep, self.answered) {
            // A peer that goes on without it does not wait for it.
            (true, true) => Some(last + HOLD_ASLEEP),
            (true, false) => Some(first + HOLD_ASLEEP),
            (false, true) => Some(first + HOLD),
            (false, false) => None,
        }
    }

    /// It has been sent.
    pub(super) fn paid(&mut self) {
        self.since = None;
    }
}

impl Trust {
    fn new(retry: u16) -> Self {
        Trust { level: TRUST, untried: 0, retry }
    }

    #[inline]
    fn gain(&mut self) {
        self.level = (self.level + 1).min(TRUST);
    }

    fn holds(&mut self, now: Instant, end: Instant) -> bool {
        if self.level == 0 {
            self.untried += 1;
            if self.untried >= self.retry {
                (self.untried, self.level) = (0, 1);
            }
            return false;
        }
        if now < end {
            return true;
        }
        self.level -= 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(12);

    #[test]
    fn a_consumer_that_does_not_answer_holds_nothing_back() {
        let (mut debt, now) = (Debt::default(), Instant::now());
        debt.grows(now);
        assert!(!debt.holds(now, false));
    }

    #[test]
    fn in_a_conversation_it_waits() {
        let (mut debt, mut now) = (Debt::default(), Instant::now());
        for _ in 0..100 {
            debt.grows(now);
            debt.answered();
            // The engine has sent it with something else, now and then.
            assert!(debt.holds(now, false));
            now += STEP;
            debt.paid();
        }
    }

    #[test]
    fn a_peer_that_waits_for_it_gets_it_at_once_after_some_trials() {
        let (mut debt, mut now) = (Debt::default(), Instant::now());
        let mut held = 0;
        for _ in 0..64 {
            debt.grows(now);
            debt.answered();
            while debt.holds(now, false) {
                now += STEP;
                held += 1;
            }
            debt.paid();
        }
        assert_eq!(held, 3 * u32::from(TRUST), "three steps each");
        for _ in 0..RETRY {
            debt.grows(now);
            debt.answered();
            debt.holds(now, false);
            debt.paid();
        }
        debt.grows(now);
        debt.answered();
        assert!(debt.holds(now, false), "it is tried again");
        debt.grows(now);
        debt.grows(now);
        assert_eq!(debt.awake.level, 3);
    }

    #[test]
    fn beside_a_sleeper_it_waits_for_an_answer_that_has_yet_to_come() {
        let (mut debt, mut now) = (Debt::default(), Instant::now());
        for _ in 0..100 {
            debt.grows(now);
            assert!(debt.holds(now, true));
            assert_eq!(debt.due(true), Some(now + HOLD_ASLEEP));
            debt.answered();
            // The peer is woken, and answers.
            now += 5 * STEP;
            assert!(debt.holds(now, true));
        }
        assert!(!debt.holds(now + HOLD_ASLEEP, true), "not longer than that");
    }

    #[test]
    fn messages_that_nobody_answers_do_not_show_that_the_peer_can_wait() {
        let (mut debt, mut now) = (Debt::default(), Instant::now());
        let mut held = 0;
        for _ in 0..64 {
            // Some at a time, and then it waits.
            (0..8).for_each(|_| debt.grows(now));
            while debt.holds(now, true) {
                now += STEP;
                held += 1;
            }
            assert!(debt.due(true) <= Some(now));
            debt.paid();
        }
        assert_eq!(held, 17 * u32::from(TRUST), "so many steps each");
    }
}
