//! Callers that have not said what they want, and which of them goes when there are too many.
//!
//! They may be strangers who hold descriptors on purpose. So the newest is let in, and the oldest goes of the
//! address that has the most: a caller that has something to say has said it long before.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use rustix::process::{Resource, getrlimit};

/// What strangers may hold of the process's descriptors: a quarter of its limit, 1,024 at most.
pub fn share_of_descriptors() -> usize {
    const SHARE: u64 = 4;
    const MOST: u64 = 1024;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MOST.min(limit / SHARE) as usize
}

/// HalfOpen callers, each with what its owner knows it by.
pub struct HalfOpen<T> {
    /// By address, the oldest first.
    by_address: HashMap<IpAddr, VecDeque<T>>,
    len: usize,
}

impl<T> Default for HalfOpen<T> {
    fn default() -> Self {
        HalfOpen { by_address: HashMap::new(), len: 0 }
    }
}

impl<T> HalfOpen<T> {
    /// One more has called from this address.
    pub fn add(&mut self, address: IpAddr, caller: T) {
        self.by_address.entry(origin(address)).or_default().push_back(caller);
        self.len += 1;
    }

    /// One has gone, or has said something; nothing happens if it is not among them.
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

    /// Takes out the caller that has to go, if there are more than `most`.
    pub fn take_one_too_many(&mut self, most: usize) -> Option<T> {
        if self.len <= most {
            return None;
        }
        let (&address, callers) =
            self.by_address.iter_mut().max_by_key(|(_, callers)| callers.len())?;
        let oldest = callers.pop_front()?;
        self.len -= 1;
        if callers.is_empty() {
            self.by_address.remove(&address);
        }
        Some(oldest)
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
        let mut silent = HalfOpen::default();
        assert_eq!(silent.take_one_too_many(0), None);
        for (address, caller) in [(b, 0), (a, 1), (a, 2), (b, 3), (a, 4)] {
            silent.add(address, caller);
        }
        assert_eq!((silent.take_one_too_many(5), silent.take_one_too_many(4)), (None, Some(1)));
        for caller in [1, 2, 2, 9] {
            silent.remove(a, |&of| of == caller);
        }
        assert_eq!((silent.take_one_too_many(3), silent.take_one_too_many(2)), (None, Some(0)));
        silent.remove(b, |&of| of == 3);
        assert_eq!((silent.by_address.len(), silent.len), (1, 1));
        assert_eq!(silent.take_one_too_many(0), Some(4));
        assert!(silent.by_address.is_empty() && silent.len == 0);
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
