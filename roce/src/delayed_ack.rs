//! Decides whether an acknowledgement waits for an answer of the consumer.
//!
//! An acknowledgement that leaves with other packets to the peer costs little, because one system
//! call sends all of them. An acknowledgement that leaves alone costs both sides as much as a
//! message. Therefore an acknowledgement waits until the consumer sends a message to the peer, or
//! returns to the engine without a message: the consumer polls again, or is about to sleep.
//!
//! Meanwhile the consumer may do something else that takes long, and the peer may wait for its send
//! to complete. So acknowledgements wait only if the consumer has always returned soon.

use std::time::{Duration, Instant};

/// The time within which the consumer must return.
pub(crate) const ACK_DELAY_MAX: Duration = Duration::from_micros(50);
/// If the consumer has answered a message late, acknowledgements do not wait for its answers until
/// it has answered this number of messages in a row in time.
const TIMELY_RETURNS_MIN: u8 = 16;

/// What is known of the consumer of a connection.
pub(crate) struct DelayedAck {
    /// The time at which a packet has arrived, if the consumer has not returned to the engine
    /// since.
    arrived_at: Option<Instant>,
    /// The number of times in a row that the consumer has returned in time. It grows to
    /// [`TIMELY_RETURNS_MIN`].
    timely_returns: u8,
}

impl Default for DelayedAck {
    fn default() -> Self {
        DelayedAck { arrived_at: None, timely_returns: TIMELY_RETURNS_MIN }
    }
}

impl DelayedAck {
    /// Records that a packet has arrived that must be acknowledged. Returns whether the
    /// acknowledgement may wait.
    #[inline]
    pub(crate) fn owe(&mut self, now: Instant) -> bool {
        let may_wait = self.timely_returns == TIMELY_RETURNS_MIN;
        if !may_wait || self.arrived_at.is_none() {
            self.arrived_at = Some(now);
        }
        may_wait
    }

    /// Records that the consumer has sent a message, or has returned to the engine without one. The
    /// acknowledgement has been sent.
    #[inline]
    pub(crate) fn consumer_returned(&mut self, now: Instant) {
        if let Some(arrived_at) = self.arrived_at.take() {
            self.timely_returns = match now < arrived_at + ACK_DELAY_MAX {
                true => (self.timely_returns + 1).min(TIMELY_RETURNS_MIN),
                false => 0,
            };
        }
    }

    /// Records that the acknowledgement was sent for another reason.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.arrived_at = None;
    }
}

/// The queue pairs whose acknowledgements wait for an answer of the consumer.
pub(crate) struct PendingAcks {
    links: Vec<usize>,
    /// The time at which the first of them was added.
    since: Instant,
}

impl PendingAcks {
    pub(crate) fn new(now: Instant) -> Self {
        PendingAcks { links: Vec::new(), since: now }
    }

    /// Adds a queue pair, which is not in the list.
    pub(crate) fn push(&mut self, link: usize, now: Instant) {
        if self.links.is_empty() {
            self.since = now;
        }
        self.links.push(link);
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        self.links.pop()
    }

    pub(crate) fn remove(&mut self, link: usize) {
        self.links.retain(|&of| of != link);
    }

    /// The time from which on acknowledgements wait. `None` if none waits.
    #[inline]
    pub(crate) fn since(&self) -> Option<Instant> {
        (!self.links.is_empty()).then_some(self.since)
    }

    /// Whether the acknowledgements must not wait any longer, not even for the end of other work.
    #[inline]
    pub(crate) fn are_due(&self, now: Instant) -> bool {
        self.since().is_some_and(|since| now >= since + ACK_DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(49);

    #[test]
    fn it_waits_for_a_consumer_that_returns_soon() {
        let (mut ack, mut now) = (DelayedAck::default(), Instant::now());
        for _ in 0..100 {
            assert!(ack.owe(now));
            now += SOON;
            ack.consumer_returned(now);
        }
    }

    /// More packets arrive, but the consumer does not return. The first packet counts.
    #[test]
    fn it_does_not_wait_for_a_consumer_that_has_returned_late() {
        let (mut ack, mut now) = (DelayedAck::default(), Instant::now());
        for _ in 0..2 {
            assert!(ack.owe(now));
            now += ACK_DELAY_MAX / 2;
        }
        ack.consumer_returned(now);
        for _ in 0..TIMELY_RETURNS_MIN {
            assert!(!ack.owe(now));
            now += ACK_DELAY_MAX;
            assert!(!ack.owe(now));
            now += SOON;
            ack.consumer_returned(now);
        }
        assert!(ack.owe(now), "the consumer has returned in time again");
    }

    #[test]
    fn an_acknowledgement_that_was_sent_for_another_reason_says_nothing_of_the_consumer() {
        let (mut ack, now) = (DelayedAck::default(), Instant::now());
        assert!(ack.owe(now));
        ack.sent();
        ack.consumer_returned(now + ACK_DELAY_MAX);
        assert!(ack.owe(now));
    }

    #[test]
    fn all_acknowledgements_are_due_when_the_first_one_has_waited_long_enough() {
        let start = Instant::now();
        let mut pending = PendingAcks::new(start);
        assert!(pending.since().is_none() && !pending.are_due(start + ACK_DELAY_MAX));
        let first = start + ACK_DELAY_MAX;
        pending.push(1, first);
        pending.push(2, first + SOON);
        assert_eq!(pending.since(), Some(first));
        assert!(!pending.are_due(first + SOON) && pending.are_due(first + ACK_DELAY_MAX));
        assert_eq!([pending.pop(), pending.pop(), pending.pop()], [Some(2), Some(1), None]);
        assert!(!pending.are_due(first + ACK_DELAY_MAX), "nothing is owed any more");
        pending.push(1, first + ACK_DELAY_MAX);
        assert!(!pending.are_due(first + ACK_DELAY_MAX), "the time starts anew");
        pending.remove(1);
        assert_eq!(pending.since(), None);
    }
}
