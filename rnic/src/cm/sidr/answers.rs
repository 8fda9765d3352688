//! The replies that are remembered, so that a repeated request gets the same reply.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{RequestKey, Transmit};
use crate::rate_limit::network;
use crate::shrinking_map;

/// The time for which a reply is remembered: longer than Linux repeats a request (65.5 s).
pub const REMEMBERED_FOR: Duration = Duration::from_secs(70);
/// The maximum number of replies that are remembered. A further reply replaces the oldest.
pub const ANSWERS_MAX: usize = 4096;
/// The maximum number of replies to one address that are remembered. A further reply replaces the
/// oldest of the same address, so a flood from one address leaves the replies to others alone.
pub const ANSWERS_MAX_PER_SOURCE: usize = 512;

/// A reply that was sent.
struct Answer {
    reply: Transmit,
    /// The port of the service.
    port: u16,
    serial: u64,
    until: Instant,
}

/// The replies that were sent.
#[derive(Default)]
pub(super) struct Answers {
    by_key: HashMap<RequestKey, Box<Answer>>,
    /// The requests by the serial numbers of their replies, the oldest first. All replies are
    /// remembered for the same time, so this is also the order in which they are forgotten.
    by_age: BTreeMap<u64, RequestKey>,
    /// The serial numbers of the replies to each address, the oldest first.
    by_source: HashMap<IpAddr, VecDeque<u64>>,
    next_serial: u64,
}

impl Answers {
    pub(super) fn find(&self, key: &RequestKey) -> Option<Transmit> {
        self.by_key.get(key).map(|answer| answer.reply)
    }

    pub(super) fn remember(&mut self, now: Instant, key: RequestKey, port: u16, reply: Transmit) {
        self.forget(now);
        self.remove(&key);
        let source = network(key.0);
        let of_source = self.by_source.get(&source);
        if of_source.is_some_and(|serials| serials.len() >= ANSWERS_MAX_PER_SOURCE) {
            let oldest = of_source.and_then(|serials| self.by_age.get(serials.front()?)).copied();
            oldest.into_iter().for_each(|oldest| self.remove(&oldest));
        } else if self.by_age.len() >= ANSWERS_MAX
            && let Some(oldest) = self.oldest()
        {
            self.remove(&oldest);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.by_age.insert(serial, key);
        self.by_source.entry(source).or_default().push_back(serial);
        let answer = Answer { reply, port, serial, until: now + REMEMBERED_FOR };
        self.by_key.insert(key, Box::new(answer));
    }

    fn remove(&mut self, key: &RequestKey) {
        let Some(answer) = shrinking_map::remove(&mut self.by_key, key) else { return };
        self.by_age.remove(&answer.serial);
        let source = network(key.0);
        if let Some(serials) = self.by_source.get_mut(&source) {
            if let Ok(at) = serials.binary_search(&answer.serial) {
                serials.remove(at);
            }
            if serials.is_empty() {
                shrinking_map::remove(&mut self.by_source, &source);
            }
        }
    }

    fn oldest(&self) -> Option<RequestKey> {
        self.by_age.first_key_value().map(|(_, &key)| key)
    }

    /// Forgets the replies that are too old.
    pub(super) fn forget(&mut self, now: Instant) {
        while let Some(oldest) = self.oldest()
            && self.by_key.get(&oldest).is_none_or(|answer| answer.until <= now)
        {
            self.remove(&oldest);
        }
    }

    /// Whether a reply of this port is remembered.
    pub(super) fn any_of(&self, port: u16) -> bool {
        self.by_key.values().any(|answer| answer.port == port)
    }

    /// The time at which the oldest reply is forgotten.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.by_key.get(&self.oldest()?).map(|answer| answer.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remembers `count` replies to an address, and returns the numbers of entries in the tables.
    fn flood(answers: &mut Answers, now: Instant, source: u8, count: u32) -> [usize; 4] {
        let from = [10, 0, 0, source].into();
        for id in 0..count {
            let reply = Transmit { from, to: from, mad: [source; 256] };
            answers.remember(now, (from, id, 0), source.into(), reply);
        }
        let of_sources = answers.by_source.values().map(VecDeque::len).sum();
        let by_source = answers.by_source.len();
        [answers.by_key.len(), answers.by_age.len(), of_sources, by_source]
    }

    #[test]
    fn replies_have_limits_and_are_forgotten() {
        let mut answers = Answers::default();
        let now = Instant::now();
        let per_source = ANSWERS_MAX_PER_SOURCE;
        assert_eq!(flood(&mut answers, now, 1, 2000), [per_source, per_source, per_source, 1]);
        // The latest replies are kept.
        let known = |answers: &Answers, id| answers.find(&([10, 0, 0, 1].into(), id, 0)).is_some();
        assert!(known(&answers, 1999) && known(&answers, 2000 - per_source as u32));
        assert!(!known(&answers, 1999 - per_source as u32));
        for source in 2..=20 {
            flood(&mut answers, now, source, 600);
        }
        // The oldest replies to other addresses have been replaced.
        let all = ANSWERS_MAX;
        assert_eq!(flood(&mut answers, now, 21, 1), [all, all, all, 9]);
        assert!(!answers.any_of(1) && answers.any_of(21));
        // The repetition of a reply changes nothing.
        assert_eq!(flood(&mut answers, now, 21, 1), [all, all, all, 9]);

        assert_eq!(answers.deadline(), Some(now + REMEMBERED_FOR));
        answers.forget(now + REMEMBERED_FOR - Duration::from_nanos(1));
        assert_eq!(answers.by_key.len(), all);
        answers.forget(now + REMEMBERED_FOR);
        assert_eq!(flood(&mut answers, now, 1, 0), [0; 4]);
        assert_eq!(answers.deadline(), None);
        assert!(answers.by_key.capacity() < 32 && answers.by_source.capacity() < 32);
    }
}
