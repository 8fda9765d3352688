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

#[derive(Default)]
struct Host {
    asked: Option<Instant>,
    lived: Option<Instant>,
}

impl Host {
    fn was_asked(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| now <= asked + VALID)
    }
}

impl Hosts {
    /// Whether it is time to ask it, which is noted.
    pub(crate) fn may_ask(&mut self, ip: IpAddr, now: Instant) -> bool {
        if self.0.len() >= MOST && !self.0.contains_key(&ip) {
            self.0.retain(|_, host| host.was_asked(now));
            // More of them in so short a time than anybody has: some are asked again.
            if self.0.len() >= MOST {
                self.0.clear();
            }
        }
        let host = self.0.entry(ip).or_default();
        let is_time = host.asked.is_none_or(|asked| now >= asked + ASK_EVERY);
        if is_time {
            host.asked = Some(now);
        }
        is_time
    }

    /// It has answered. An answer of a host that was not asked just now is ignored.
    pub(crate) fn has_answered(&mut self, ip: IpAddr, now: Instant) {
        if let Some(host) = self.0.get_mut(&ip).filter(|host| host.was_asked(now)) {
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
        hosts.has_answered(ip, start);
        assert!(!hosts.lives(ip, start), "it was not asked");
        assert!(hosts.may_ask(ip, start) && !hosts.may_ask(ip, start + ASK_EVERY / 2));
        assert!(!hosts.lives(ip, start));
        hosts.has_answered(ip, start);
        assert!(hosts.lives(ip, start + VALID));
        assert!(!hosts.lives(ip, start + VALID + Duration::from_millis(1)));
        assert!(hosts.may_ask(ip, start + ASK_EVERY));
        hosts.has_answered(ip, start + ASK_EVERY + VALID + Duration::from_millis(1));
        assert!(!hosts.lives(ip, start + ASK_EVERY + VALID + Duration::from_millis(1)), "that is too late");
    }

    #[test]
    fn many_hosts_make_nobody_forget_those_that_were_asked_just_now() {
        let (ip, start) = (IpAddr::from([10, 0, 0, 1]), Instant::now());
        let other = |n: usize| IpAddr::from((n as u128).to_be_bytes());
        let mut hosts = Hosts::default();
        (1..MOST).for_each(|n| assert!(hosts.may_ask(other(n), start)));
        let later = start + VALID + Duration::from_millis(1);
        assert!(hosts.may_ask(ip, later));
        hosts.has_answered(ip, later);
        assert!(hosts.may_ask(other(MOST), later));
        assert!(hosts.lives(ip, later) && hosts.0.len() == 2, "the others are forgotten");
    }
}
