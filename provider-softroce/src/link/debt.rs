//! When an acknowledgement leaves.
//!
//! Each costs both sides as much as a message. In a conversation, where a consumer answers at once and its peer goes on at
//! once, one for many messages will do (the engine sends it after 16), and none is in the way of an answer. But a peer that
//! waits for its send to complete before it goes on waits for the acknowledgement: so it is held back only as long as the
//! next message may well take, and not at all where that has been tried in vain.

use std::time::{Duration, Instant};

/// How long an acknowledgement is held back: some round trips within a host, or one between neighbours.
const HOLD: Duration = Duration::from_micros(30);
/// Trust is lost when it was in vain so often, and gained again as slowly.
const TRUST: u8 = 8;
/// Without trust it is tried again after so many acknowledgements.
const RETRY: u8 = 64;

/// An acknowledgement that is owed, or not.
pub(super) struct Debt {
    since: Option<Instant>,
    /// The consumer has sent something since then.
    answered: bool,
    trust: u8,
    /// Acknowledgements sent without trust.
    untried: u8,
}

impl Default for Debt {
    fn default() -> Self {
        Debt { since: None, answered: false, trust: TRUST, untried: 0 }
    }
}

impl Debt {
    /// Something has come that is to be acknowledged.
    #[inline]
    pub(super) fn grows(&mut self, now: Instant) {
        match self.since {
            // The peer has gone on without it.
            Some(_) if self.answered => self.trust = (self.trust + 1).min(TRUST),
            Some(_) => {}
            None => (self.since, self.answered) = (Some(now), false),
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

    /// Whether it can wait still.
    pub(super) fn holds(&mut self, now: Instant) -> bool {
        let Some(since) = self.since.filter(|_| self.answered) else { return false };
        if self.trust == 0 {
            self.untried += 1;
            if self.untried >= RETRY {
                (self.untried, self.trust) = (0, 1);
            }
            return false;
        }
        if now < since + HOLD {
            return true;
        }
        self.trust -= 1;
        false
    }

    /// Until when it waits at most.
    pub(super) fn due(&self) -> Option<Instant> {
        let hold = if self.answered && self.trust > 0 { HOLD } else { Duration::ZERO };
        self.since.map(|since| since + hold)
    }

    /// It has been sent.
    pub(super) fn paid(&mut self) {
        self.since = None;
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
        assert!(!debt.holds(now));
    }

    #[test]
    fn in_a_conversation_it_waits() {
        let (mut debt, mut now) = (Debt::default(), Instant::now());
        for _ in 0..100 {
            debt.grows(now);
            debt.answered();
            // The engine has sent it with something else, now and then.
            assert!(debt.holds(now));
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
            while debt.holds(now) {
                now += STEP;
                held += 1;
            }
            debt.paid();
        }
        assert_eq!(held, 3 * u32::from(TRUST), "three steps each");
        for _ in 0..RETRY {
            debt.grows(now);
            debt.answered();
            debt.holds(now);
            debt.paid();
        }
        debt.grows(now);
        debt.answered();
        assert!(debt.holds(now), "it is tried again");
        debt.grows(now);
        debt.grows(now);
        assert_eq!(debt.trust, 3);
    }
}
