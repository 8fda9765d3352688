//! The list of callers that have not sent a request yet. When there are too many, one of them is
//! evicted.
//!
//! A caller may be an attacker that holds descriptors on purpose. A genuine caller sends its
//! request soon after it connects. So the newest caller is always admitted, and the oldest caller
//! of the address with the most callers is evicted. Before the owner of the list evicts a caller,
//! the owner reads what the caller has sent.
//!
//! Descriptors belong to the process, so the adapters of a process share one limit
//! ([`SharedHalfOpen`]). An adapter cannot evict the callers of another adapter. So an adapter that
//! admits a caller beyond the limit evicts callers of its own until the limit is kept or only the
//! newest is left. If the adapter still has more callers than its share of the limit, it evicts one
//! more caller, which makes room for the other adapters.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use rnic::rate_limit::network;
use rustix::process::{Resource, getrlimit};

/// The maximum number of descriptors for peers that have connected and not sent a request yet: a
/// quarter of the process's limit, at most 1,024.
pub fn share_of_descriptors() -> usize {
    const SHARE: u64 = 4;
    const MAX: u64 = 1024;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX.min(limit / SHARE) as usize
}

/// Callers that have not sent a request. The owner of the list identifies each caller by a key `T`.
pub struct HalfOpen<T> {
    /// The callers of each address, oldest first. The number of a caller says how many callers were
    /// added to the list before it.
    by_address: HashMap<IpAddr, VecDeque<(u64, T)>>,
    len: usize,
    added: u64,
}

impl<T> Default for HalfOpen<T> {
    fn default() -> Self {
        HalfOpen { by_address: HashMap::new(), len: 0, added: 0 }
    }
}

impl<T> HalfOpen<T> {
    /// Adds a caller from this address.
    pub fn add(&mut self, address: IpAddr, caller: T) {
        self.by_address.entry(network(address)).or_default().push_back((self.added, caller));
        self.added += 1;
        self.len += 1;
    }

    /// Removes a caller that has left or has sent its request. Does nothing if the caller is not in
    /// the list.
    pub fn remove(&mut self, address: IpAddr, mut is_it: impl FnMut(&T) -> bool) {
        let address = network(address);
        let Some(callers) = self.by_address.get_mut(&address) else { return };
        if let Some(at) = callers.iter().position(|(_, caller)| is_it(caller)) {
            callers.remove(at);
            self.len -= 1;
        }
        if callers.is_empty() {
            self.by_address.remove(&address);
        }
    }

    /// Returns the caller to evict if the list has more than `most` callers. The caller stays in
    /// the list. The newest caller is returned only if the list has no other caller.
    pub fn one_too_many(&self, most: usize) -> Option<&T> {
        if self.len <= most {
            return None;
        }
        let oldest = self.by_address.values().filter_map(|all| Some((all.len(), all.front()?)));
        let (_, (_, caller)) = oldest.max_by_key(|(len, (added, _))| (*len, Reverse(*added)))?;
        Some(caller)
    }
}

/// The numbers of callers and of lists for all lists that share a limit.
struct Total {
    callers: AtomicUsize,
    /// The number of lists that have at least one caller.
    lists: AtomicUsize,
}

impl Total {
    const fn new() -> Self {
        Total { callers: AtomicUsize::new(0), lists: AtomicUsize::new(0) }
    }
}

/// The total of all [`SharedHalfOpen`] lists of this process.
static PROCESS: Total = Total::new();

/// An adapter's list of callers that have not sent a request. All lists of a process share one
/// limit. After each [`SharedHalfOpen::add`], the owner of the list must evict callers until the
/// list has no more than [`SharedHalfOpen::limit`] says. If all owners do so, the total exceeds the
/// limit by at most one caller for each list.
pub struct SharedHalfOpen<T> {
    list: HalfOpen<T>,
    total: &'static Total,
}

impl<T> Default for SharedHalfOpen<T> {
    fn default() -> Self {
        SharedHalfOpen { list: HalfOpen::default(), total: &PROCESS }
    }
}

impl<T> SharedHalfOpen<T> {
    /// Adds a caller from this address.
    pub fn add(&mut self, address: IpAddr, caller: T) {
        if self.list.len == 0 {
            self.total.lists.fetch_add(1, Relaxed);
        }
        self.list.add(address, caller);
        self.total.callers.fetch_add(1, Relaxed);
    }

    /// Removes a caller, like [`HalfOpen::remove`].
    pub fn remove(&mut self, address: IpAddr, is_it: impl FnMut(&T) -> bool) {
        let before = self.list.len;
        self.list.remove(address, is_it);
        self.subtract(before);
    }

    /// Returns how many callers this list may have now if all lists together may have `most`.
    pub fn limit(&self, most: usize) -> usize {
        let too_many = self.total.callers.load(Relaxed).saturating_sub(most);
        if too_many == 0 {
            return self.list.len;
        }
        let part = most / self.total.lists.load(Relaxed).max(1);
        let limit = self.list.len.saturating_sub(too_many);
        let room_for_others = usize::from(limit > part);
        (limit - room_for_others).max(1)
    }

    /// Returns the caller to evict, like [`HalfOpen::one_too_many`].
    pub fn one_too_many(&self, most: usize) -> Option<&T> {
        self.list.one_too_many(most)
    }

    /// Corrects the total after this list has become shorter. `before` is the earlier length.
    fn subtract(&self, before: usize) {
        self.total.callers.fetch_sub(before - self.list.len, Relaxed);
        if before > 0 && self.list.len == 0 {
            self.total.lists.fetch_sub(1, Relaxed);
        }
    }
}

impl<T> Drop for SharedHalfOpen<T> {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.list).len;
        self.subtract(before);
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
            "the caller stays in the list until the owner of the list removes it"
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
    fn the_newest_goes_only_if_it_is_alone() {
        let mut half_open = HalfOpen::default();
        for n in 0..100 {
            half_open.add(IpAddr::from([10, 0, 0, n]), n);
        }
        assert_eq!(half_open.one_too_many(1), Some(&0));
    }

    #[test]
    fn lists_share_a_limit() {
        static TOTAL: Total = Total::new();
        const MOST: usize = 64;
        let totals = || (TOTAL.callers.load(Relaxed), TOTAL.lists.load(Relaxed));
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut next = 0;
        let mut admit = |list: &mut SharedHalfOpen<u32>| {
            next += 1;
            list.add(address, next);
            let limit = list.limit(MOST);
            while let Some(&oldest) = list.one_too_many(limit) {
                assert_ne!(oldest, next, "the newest caller must be admitted");
                list.remove(address, |&of| of == oldest);
            }
        };
        let mut lists: Vec<_> =
            (0..4).map(|_| SharedHalfOpen { list: HalfOpen::default(), total: &TOTAL }).collect();
        for _ in 0..2 * MOST {
            admit(&mut lists[0]);
        }
        assert_eq!(totals(), (MOST, 1), "one list may use up the whole limit");
        for _ in 0..2 * MOST {
            for list in &mut lists[1..] {
                admit(list);
                assert!(totals().0 < MOST + 4, "{:?}", totals());
            }
        }
        assert_eq!(totals(), (MOST + 3, 4));
        for _ in 0..2 * MOST {
            for list in &mut lists {
                admit(list);
                assert!(totals().0 < MOST + 4, "{:?}", totals());
            }
        }
        for list in &lists {
            assert!(list.list.len.abs_diff(MOST / 4) < 4, "{} callers", list.list.len);
        }
        let last = lists.pop();
        lists.clear();
        assert_eq!(totals(), (last.as_ref().map_or(0, |list| list.list.len), 1));
        drop(last);
        assert_eq!(totals(), (0, 0));
    }
}
