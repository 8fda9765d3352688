//! Batches that a sender's socket had no room for. They are sent again when the socket has room, in
//! the same order, so that a full socket buffer does not count as a loss.
//!
//! While batches wait here, the queue pairs of the sender create no further requests. Only answers
//! and messages of connection management join them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::socket::{MAX_BATCH_BYTES, Sent};

/// The time after which a socket without room is tried again.
const RETRY_INTERVAL: Duration = Duration::from_micros(50);
/// A batch that finds no room for this time is dropped. The kernel may lack memory for a batch of
/// this size, and then the batches behind it must not wait for ever.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(100);
/// The maximum number of octets that wait. Further batches are dropped. The protocol
/// retransmits their packets.
const OCTETS_MAX: usize = 256 << 10;

/// A batch of packets with their ICRCs.
pub(crate) struct Batch {
    pub(crate) to: SocketAddr,
    pub(crate) octets: Vec<u8>,
    /// The length of each packet, except that the last one may be shorter.
    pub(crate) size: usize,
}

/// The batches that wait for room.
#[derive(Default)]
pub(crate) struct UnsentBatches {
    batches: VecDeque<Batch>,
    octets: usize,
    retry_at: Option<Instant>,
    /// The time at which the first batch came to the front. `None` if no batch waits.
    first_since: Option<Instant>,
}

impl UnsentBatches {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether a batch of any length can be appended.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.octets + MAX_BATCH_BYTES <= OCTETS_MAX
    }

    /// The time at which [`retry`](Self::retry) is to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Appends a batch.
    #[cold]
    pub(crate) fn push(&mut self, now: Instant, batch: Batch) {
        if self.octets + batch.octets.len() <= OCTETS_MAX {
            self.octets += batch.octets.len();
            self.batches.push_back(batch);
            self.retry_at.get_or_insert(now + RETRY_INTERVAL);
            self.first_since.get_or_insert(now);
        }
    }

    /// Sends batches until the socket has no room again. Does nothing before the
    /// [`deadline`](Self::deadline). `send` sends one batch.
    pub(crate) fn retry(&mut self, now: Instant, mut send: impl FnMut(&Batch) -> Sent) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        while let Some(batch) = self.batches.front() {
            let waited = self.first_since.map_or(Duration::ZERO, |since| now - since);
            if send(batch) == Sent::NoRoom && waited < WAIT_MAX {
                self.retry_at = Some(now + RETRY_INTERVAL);
                return;
            }
            self.octets -= batch.octets.len();
            self.batches.pop_front();
            self.first_since = Some(now);
        }
        self.first_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u8, octets: usize) -> Batch {
        let to = SocketAddr::from(([192, 0, 2, 1], 4791));
        Batch { to, octets: vec![number; octets], size: 100 }
    }

    #[test]
    fn batches_leave_in_order_when_there_is_room() {
        let (mut unsent, start) = (UnsentBatches::default(), Instant::now());
        assert!(unsent.is_empty() && unsent.deadline().is_none());
        (0..4).for_each(|number| unsent.push(start, batch(number, 250)));
        let mut sent = Vec::new();
        let mut retry = |unsent: &mut UnsentBatches, now, room: usize| {
            let mut left = room;
            unsent.retry(now, |batch| match left {
                0 => Sent::NoRoom,
                _ => {
                    left -= 1;
                    sent.push(batch.octets[0]);
                    Sent::All
                }
            });
            sent.clone()
        };
        let early = start + RETRY_INTERVAL - Duration::from_nanos(1);
        assert_eq!(retry(&mut unsent, early, 9), [0; 0]);
        let due = start + RETRY_INTERVAL;
        assert_eq!(unsent.deadline(), Some(due));
        assert_eq!(retry(&mut unsent, due, 0), [0; 0]);
        assert_eq!(retry(&mut unsent, due + RETRY_INTERVAL, 3), [0, 1, 2]);
        assert!(!unsent.is_empty());
        assert_eq!(unsent.deadline(), Some(due + 2 * RETRY_INTERVAL));
        assert_eq!(retry(&mut unsent, due + 2 * RETRY_INTERVAL, 3), [0, 1, 2, 3]);
        assert!(unsent.is_empty() && unsent.deadline().is_none());
    }

    #[test]
    fn a_batch_that_cannot_be_sent_at_all_does_not_stop_the_others() {
        let (mut unsent, start) = (UnsentBatches::default(), Instant::now());
        (0..3).for_each(|number| unsent.push(start, batch(number, 250)));
        let mut sent = Vec::new();
        unsent.retry(start + RETRY_INTERVAL, |batch| {
            sent.push(batch.octets[0]);
            if batch.octets[0] == 1 { Sent::TooLong } else { Sent::All }
        });
        assert_eq!(sent, [0, 1, 2]);
        assert!(unsent.is_empty());
    }

    #[test]
    fn a_batch_that_never_fits_does_not_stop_the_others_for_ever() {
        let (mut unsent, start) = (UnsentBatches::default(), Instant::now());
        (0..3).for_each(|number| unsent.push(start, batch(number, 250)));
        let (mut now, mut sent) = (start, Vec::new());
        while let Some(at) = unsent.deadline() {
            now = at;
            unsent.retry(now, |batch| match batch.octets[0] {
                0 => Sent::NoRoom,
                number => {
                    sent.push(number);
                    Sent::All
                }
            });
        }
        assert_eq!(sent, [1, 2]);
        assert!(now - start >= WAIT_MAX && now - start < WAIT_MAX + 2 * RETRY_INTERVAL);
    }

    #[test]
    fn unsent_batches_have_a_bound() {
        let (mut unsent, now) = (UnsentBatches::default(), Instant::now());
        (0..3).for_each(|number| unsent.push(now, batch(number, 60_000)));
        assert!(unsent.has_room());
        (3..10).for_each(|number| unsent.push(now, batch(number, 60_000)));
        assert!(!unsent.has_room());
        let mut count = 0;
        unsent.retry(now + RETRY_INTERVAL, |_| {
            count += 1;
            Sent::All
        });
        assert_eq!(count, OCTETS_MAX / 60_000);
        // The room is free again.
        unsent.push(now, batch(0, OCTETS_MAX));
        assert!(!unsent.is_empty());
    }
}
