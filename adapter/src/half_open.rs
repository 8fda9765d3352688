//! The list of callers that have not sent a request yet. When there are too many, one of them is
//! evicted.
//!
//! A caller may be an attacker that holds descriptors on purpose. So the newest caller is admitted,
//! and the oldest caller of the address with the most callers is evicted: a genuine caller has sent
//! its request long before. Before the owner of the list evicts a caller, it reads what that caller
//! has sent.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use rustix::process::{Resource, getrlimit};

/// The number of descriptors that callers without a request may hold: a quarter of the process's
/// limit, at most 1,024.
pub fn share_of_descriptors() -> usize {
    const SHARE: u64 = 4;
    const MAX: u64 = 1024;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX.min(limit / SHARE) as usize
}

/// Callers that have not sent a request, each with the key by which its owner knows the caller.
pub struct HalfOpen<T> {
    /// The callers of each address, oldest first.
    by_address: HashMap<IpAddr, VecDeque<T>>,
    len: usize,
}

impl<T> Default for HalfOpen<T> {
    fn default() -> Self {
        HalfOpen { by_address: HashMap::new(), len: 0 }
    }
}

impl<T> HalfOpen<T> {
    /// Adds a caller from this address.
    pub fn add(&mut self, address: IpAddr, caller: T) {
        self.by_address.entry(origin(address)).or_default().push_back(caller);
        self.len += 1;
    }

    /// Removes a caller that has left or has sent its request. Does nothing if the caller is not in
    /// the list.
    pub fn remove(&mut self, address: IpAddr, is_it: impl FnMut(&T) -> bool) {
        let address = origin(address);
        let Some(callers) = self.by_address.get_mut(&address) else { return };
        if let Some(at) = callers.iter().position(is_it) {
            callers.remove(at);
            self.len -= 1;
        }
        if callers.is_empty() {
            self.by_address.remove(&address);
        }
    }

    /// Returns the caller to be evicted if there are more than `most`. It stays in the list.
    pub fn one_too_many(&self, most: usize) -> Option<&T> {
        if self.len <= most {
            return None;
        }
        self.by_address.values().max_by_key(|callers| callers.len())?.front()
    }
}

/// The address that callers are counted by. For IPv6 it is the /64 network, because a host that has
/// one address of such a network usually has all 2^64.
pub fn origin(address: IpAddr) -> IpAddr {
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
        let mut half_open = HalfOpen::default();
        assert_eq!(half_open.one_too_many(0), None);
        for (address, caller) in [(b, 0), (a, 1), (a, 2), (b, 3), (a, 4)] {
            half_open.add(address, caller);
        }
        assert_eq!(
            (half_open.one_too_many(5), half_open.one_too_many(4)),
            (None, Some(&1)),
            "it stays in the list until its owner removes it"
        );
        for caller in [1, 2, 2, 9] {
            half_open.remove(a, |&of| of == caller);
        }
        assert_eq!((half_open.one_too_many(3), half_open.one_too_many(2)), (None, Some(&0)));
        half_open.remove(b, |&of| of == 0);
        half_open.remove(b, |&of| of == 3);
        assert_eq!((half_open.by_address.len(), half_open.len), (1, 1));
        assert_eq!(half_open.one_too_many(0), Some(&4));
        half_open.remove(a, |&of| of == 4);
        assert!(half_open.by_address.is_empty() && half_open.len == 0);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1"]
            .map(|text| text.parse().expect(text));
        assert_eq!(origin(a), origin(b));
        assert_ne!(origin(a), origin(c));
        assert_eq!(
            origin("::ffff:10.0.0.1".parse().expect("an address")),
            IpAddr::from([10, 0, 0, 1])
        );
    }
}
