//! What is known of the hosts of peers that do not answer: whether they live.
//!
//! A host that lives says with ICMP that nobody has a port (see [`scout`](crate::scout)). Hosts limit how
//! often they say so.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A host is asked so often at most.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// An answer is worth something for so long: some answers are lost, or held back by the host's limit of one a second.
const VALID: Duration = Duration::from_millis(2500);
/// Hosts that are kept in mind.
const MOST: usize = 4096;

/// The hosts.
#[derive(Default)]
pub(crate) struct Hosts(HashMap<IpAddr, Host>);

struct Host {
    asked: Instant,
    lived: Option<Instant>,
    /// What the host is to repeat: who has not seen it cannot answer in its place.
    word: u64,
}

impl Hosts {
    /// The word to ask it with, if it is time, which is noted. None: it was asked a moment ago, or more hosts
    /// are being asked than can be kept in mind.
    pub(crate) fn word_to_ask(
        &mut self,
        ip: IpAddr,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> Option<u64> {
        if let Some(host) = self.0.get_mut(&ip) {
            let is_time = now >= host.asked + ASK_EVERY;
            return is_time.then(|| {
                host.asked = now;
                host.word
            });
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, host| now <= host.asked + VALID);
        }
        let word = random();
        (self.0.len() < MOST).then(|| self.0.insert(ip, Host { asked: now, lived: None, word }))?;
        Some(word)
    }

    /// It has answered with this word. The answer of a host that was not asked of late, or with another word,
    /// is ignored.
    pub(crate) fn has_answered(&mut self, ip: IpAddr, word: u64, now: Instant) {
        if let Some(host) =
            self.0.get_mut(&ip).filter(|host| host.word == word && now <= host.asked + VALID)
        {
            host.lived = Some(now);
        }
    }

    /// Whether it lives.
    pub(crate) fn lives(&self, ip: IpAddr, now: Instant) -> bool {
        let lived = self.0.get(&ip).and_then(|host| host.lived);
        lived.is_some_and(|lived| now <= lived + VALID)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_lives_for_a_while_after_its_answer() {
        let (ip, start) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        let mut hosts = Hosts::default();
        hosts.has_answered(ip, 7, start);
        assert!(!hosts.lives(ip, start), "it was not asked");
        assert_eq!(hosts.word_to_ask(ip, start, || 7), Some(7));
        assert_eq!(hosts.word_to_ask(ip, start + ASK_EVERY / 2, || 8), None);
        hosts.has_answered(ip, 8, start);
        assert!(!hosts.lives(ip, start), "it was asked with another word");
        let ms = Duration::from_millis(1);
        hosts.has_answered(ip, 7, start + VALID + ms);
        assert!(!hosts.lives(ip, start + VALID + ms), "it was asked long ago");
        hosts.has_answered(ip, 7, start);
        assert!(hosts.lives(ip, start + VALID));
        assert!(!hosts.lives(ip, start + VALID + ms));
        assert_eq!(hosts.word_to_ask(ip, start + ASK_EVERY, || 8), Some(7));
    }

    #[test]
    fn hosts_that_are_asked_are_kept() {
        let (start, mut hosts) = (Instant::now(), Hosts::default());
        let ip = |n: usize| IpAddr::from((0x0A00_0000 + n as u32).to_be_bytes());
        for n in 0..MOST {
            assert_eq!(hosts.word_to_ask(ip(n), start, || n as u64), Some(n as u64));
            hosts.has_answered(ip(n), n as u64, start);
        }
        // One that is known, and one too many.
        assert_eq!(hosts.word_to_ask(ip(0), start + ASK_EVERY, || 0), Some(0));
        assert_eq!(hosts.word_to_ask(ip(MOST), start + ASK_EVERY, || 0), None);
        assert!((0..MOST).all(|n| hosts.lives(ip(n), start + ASK_EVERY)));
        // Those that nobody asks any more make room.
        let later = start + ASK_EVERY + VALID;
        assert_eq!(hosts.word_to_ask(ip(MOST), later, || 9), Some(9));
        assert_eq!(hosts.0.len(), 2);
    }
}
