//! Callers that have not said what they want: whose turn it is to go when there are too many.
//!
//! They may be strangers who hold descriptors on purpose. So the newest is let in, and the oldest goes of the address that
//! has the most: a caller that has something to say has said it long before.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use rustix::process::{Resource, getrlimit};

/// Silent callers, in all.
const MOST: u64 = 1024;
/// Strangers have no more than one of so many descriptors.
const SHARE: u64 = 4;
/// Of the last so many descriptors of the process, strangers have one at most.
const RESERVE: u64 = 64;

/// Those of one process, by the places of an engine.
#[derive(Default)]
pub(crate) struct Silent {
    /// By address, the oldest first.
    by_address: HashMap<IpAddr, VecDeque<usize>>,
    len: usize,
}

impl Silent {
    pub(crate) fn add(&mut self, address: IpAddr, caller: usize) {
        self.by_address.entry(origin(address)).or_default().push_back(caller);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, address: IpAddr, caller: usize) {
        let address = origin(address);
        let Some(callers) = self.by_address.get_mut(&address) else { return };
        if let Some(at) = callers.iter().position(|&of| of == caller) {
            callers.remove(at);
            self.len -= 1;
        }
        if callers.is_empty() {
            self.by_address.remove(&address);
        }
    }

    /// Who goes, if somebody has to; `descriptor`: the newest caller's.
    pub(crate) fn one_too_many(&self, descriptor: i32) -> Option<usize> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // The kernel gives the lowest number that is free.
        let is_in_reserve = descriptor as u64 >= limit.saturating_sub(RESERVE);
        let most = if is_in_reserve { 1 } else { MOST.min(limit / SHARE) };
        if self.len as u64 > most { self.oldest_of_the_most() } else { None }
    }

    fn oldest_of_the_most(&self) -> Option<usize> {
        let most = self.by_address.values().max_by_key(|callers| callers.len())?;
        most.front().copied()
    }
}

/// Of an IPv6 address, its network: who has one address there has 2^64.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_the_most_goes() {
        let [a, b] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let mut silent = Silent::default();
        assert_eq!(silent.oldest_of_the_most(), None);
        for (address, caller) in [(b, 0), (a, 1), (a, 2), (b, 3), (a, 4)] {
            silent.add(address, caller);
        }
        assert_eq!(silent.oldest_of_the_most(), Some(1));
        silent.remove(a, 1);
        silent.remove(a, 1);
        silent.remove(a, 2);
        assert_eq!((silent.oldest_of_the_most(), silent.len), (Some(0), 3));
        for (address, caller) in [(b, 0), (b, 3), (a, 4)] {
            silent.remove(address, caller);
        }
        assert!(silent.by_address.is_empty() && silent.len == 0);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let [a, b, c] =
            ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1"].map(|text| text.parse().expect(text));
        assert_eq!(origin(a), origin(b));
        assert_ne!(origin(a), origin(c));
        assert_eq!(origin("::ffff:10.0.0.1".parse().expect("an address")), IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn strangers_have_a_share_and_the_process_keeps_some() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = MOST.min(limit / SHARE) as usize;
        let mut silent = Silent::default();
        (0..most).for_each(|caller| silent.add(IpAddr::from([10, 0, 0, 1]), caller));
        assert_eq!(silent.one_too_many(100), None);
        silent.add(IpAddr::from([10, 0, 0, 1]), most);
        assert_eq!(silent.one_too_many(100), Some(0));
        silent.remove(IpAddr::from([10, 0, 0, 1]), 0);
        if let Ok(last) = i32::try_from(limit - 1) {
            assert_eq!(silent.one_too_many(last), Some(1));
        }
    }
}
