//! Decides when an acknowledgement is sent.
//!
//! An acknowledgement costs both sides as much as a message. If a consumer answers each message at
//! once and its peer continues at once, one acknowledgement for many messages is enough. The engine
//! sends it after 16 messages, and no answer has to wait for an acknowledgement.
//!
//! However, a peer may wait for its send to complete before it continues. Such a peer waits for the
//! acknowledgement. Therefore an acknowledgement is delayed only for about the time in which the
//! next message may arrive. It is not delayed on connections on which delays have proved useless.

use std::time::{Duration, Instant};

/// The maximum delay of an acknowledgement. This is the time of some round trips within a host, or
/// of one round trip between neighbouring hosts.
const DELAY_MAX: Duration = Duration::from_micros(30);
/// The number of useless delays after which acknowledgements are no longer delayed. Each useful
/// delay compensates for one useless delay.
const CONFIDENCE_MAX: u8 = 8;
/// While acknowledgements are not delayed, the engine delays one as a trial each time it has sent
/// this number of acknowledgements.
const RETRY_AFTER_ACKS: u8 = 64;

/// The state of the acknowledgement: whether it is owed, and whether to delay it.
pub(super) struct DelayedAck {
    owed_since: Option<Instant>,
    /// Whether the consumer has sent a message since the acknowledgement became due.
    consumer_sent: bool,
    confidence: u8,
    /// The number of acknowledgements that were not delayed since the last trial.
    undelayed: u8,
}

impl Default for DelayedAck {
    fn default() -> Self {
        DelayedAck {
            owed_since: None,
            consumer_sent: false,
            confidence: CONFIDENCE_MAX,
            undelayed: 0,
        }
    }
}

impl DelayedAck {
    /// Records that a packet has arrived that must be acknowledged.
    #[inline]
    pub(super) fn owe(&mut self, now: Instant) {
        match self.owed_since {
            // The peer has continued without the acknowledgement, so the delay was useful.
            Some(_) if self.consumer_sent => {
                self.confidence = (self.confidence + 1).min(CONFIDENCE_MAX)
            }
            Some(_) => {}
            None => (self.owed_since, self.consumer_sent) = (Some(now), false),
        }
    }

    /// Records that the consumer has sent a message.
    #[inline]
    pub(super) fn note_consumer_sent(&mut self) {
        self.consumer_sent = true;
    }

    /// Whether the consumer has sent a message since the acknowledgement became due.
    #[inline]
    pub(super) fn consumer_has_sent(&self) -> bool {
        self.consumer_sent
    }

    /// Whether the acknowledgement can be delayed further.
    pub(super) fn can_wait(&mut self, now: Instant) -> bool {
        let Some(owed_since) = self.owed_since.filter(|_| self.consumer_sent) else { return false };
        if self.confidence == 0 {
            self.undelayed += 1;
            if self.undelayed >= RETRY_AFTER_ACKS {
                (self.undelayed, self.confidence) = (0, 1);
            }
            return false;
        }
        if now < owed_since + DELAY_MAX {
            return true;
        }
        self.confidence -= 1;
        false
    }

    /// The latest time at which the acknowledgement must be sent.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let delay =
            if self.consumer_sent && self.confidence > 0 { DELAY_MAX } else { Duration::ZERO };
        self.owed_since.map(|owed_since| owed_since + delay)
    }

    /// Records that the acknowledgement has been sent.
    pub(super) fn sent(&mut self) {
        self.owed_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(12);

    #[test]
    fn a_consumer_that_does_not_answer_holds_nothing_back() {
        let (mut ack, now) = (DelayedAck::default(), Instant::now());
        ack.owe(now);
        assert!(!ack.can_wait(now));
    }

    #[test]
    fn in_a_conversation_it_waits() {
        let (mut ack, mut now) = (DelayedAck::default(), Instant::now());
        for _ in 0..100 {
            ack.owe(now);
            ack.note_consumer_sent();
            // The engine sends the waiting acknowledgement together with other packets.
            assert!(ack.can_wait(now));
            now += STEP;
            ack.sent();
        }
    }

    #[test]
    fn a_peer_that_waits_for_it_gets_it_at_once_after_some_trials() {
        let (mut ack, mut now) = (DelayedAck::default(), Instant::now());
        let mut waits = 0;
        for _ in 0..64 {
            ack.owe(now);
            ack.note_consumer_sent();
            while ack.can_wait(now) {
                now += STEP;
                waits += 1;
            }
            ack.sent();
        }
        assert_eq!(
            waits,
            3 * u32::from(CONFIDENCE_MAX),
            "each level of confidence must have three steps"
        );
        for _ in 0..RETRY_AFTER_ACKS {
            ack.owe(now);
            ack.note_consumer_sent();
            ack.can_wait(now);
            ack.sent();
        }
        ack.owe(now);
        ack.note_consumer_sent();
        assert!(ack.can_wait(now), "an acknowledgement must be delayed again after a while");
        ack.owe(now);
        ack.owe(now);
        assert_eq!(ack.confidence, 3);
    }
}
