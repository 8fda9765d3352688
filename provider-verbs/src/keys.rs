//! What local keys name, for whoever posts: looked up without a lock.
//!
//! Who copies data into a request instead of the device looks at neither key nor bounds, so what is copied has to be looked up
//! here; what is not found, or is not as it should be, is left to the device and to what that says.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use dat_core::provider::Segment;

use crate::pages::Pages;

/// By the 24 bits that are an index. Should a device use the last octet otherwise, only the latest of its keys with one index
/// is found.
pub(crate) struct Keys {
    slots: Pages<Slot>,
}

/// What is no key of a region.
const NONE: u32 = 0;

/// A region. Who reads while it changes posts what is being freed, and may see some of either.
#[derive(Default)]
struct Slot {
    key: AtomicU32,
    is_writable: AtomicBool,
    domain: AtomicUsize,
    start: AtomicU64,
    end: AtomicU64,
}

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The address of its domain.
    pub(crate) domain: usize,
    /// As segments name its first byte: the address, or 0.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_writable: bool,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Keys { slots: Pages::new() }
    }

    /// Bytes that this process finds where the segment says, inside of a region of the domain.
    #[inline]
    pub(crate) fn lend(&self, segment: &Segment, domain: usize) -> bool {
        segment.len == 0
            || self
                .find(segment.key)
                .is_some_and(|named| named.start != 0 && named.has(segment, domain))
    }

    /// Bytes of such a region, wherever they are, which may be written to if something `writes`.
    #[inline]
    pub(crate) fn knows(&self, segment: &Segment, domain: usize, writes: bool) -> bool {
        segment.len == 0
            || self
                .find(segment.key)
                .is_some_and(|named| (named.is_writable || !writes) && named.has(segment, domain))
    }

    #[inline]
    fn find(&self, key: u32) -> Option<Named> {
        let slot = self.slots.get(key >> 8)?;
        (slot.key.load(Ordering::Acquire) == key && key != NONE).then(|| Named {
            domain: slot.domain.load(Ordering::Relaxed),
            start: slot.start.load(Ordering::Relaxed),
            end: slot.end.load(Ordering::Relaxed),
            is_writable: slot.is_writable.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn insert(&self, key: u32, named: Named) {
        let slot = self.slots.make(key >> 8);
        slot.key.store(NONE, Ordering::Relaxed);
        slot.domain.store(named.domain, Ordering::Release);
        slot.start.store(named.start, Ordering::Release);
        slot.end.store(named.end, Ordering::Release);
        slot.is_writable.store(named.is_writable, Ordering::Release);
        slot.key.store(key, Ordering::Release);
    }

    pub(crate) fn remove(&self, key: u32) {
        if let Some(slot) = self.slots.get(key >> 8) {
            // Not if it is another's by now.
            let _ = slot.key.compare_exchange(key, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Named {
    #[inline]
    fn has(&self, segment: &Segment, domain: usize) -> bool {
        let end = segment.addr.checked_add(segment.len.into());
        self.domain == domain
            && segment.addr >= self.start
            && end.is_some_and(|end| end <= self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: usize = 7;

    fn named(start: u64, end: u64, is_writable: bool) -> Named {
        Named { domain: OWN, start, end, is_writable }
    }

    fn segment(addr: u64, len: u32, key: u32) -> Segment {
        Segment { addr, len, key }
    }

    #[test]
    fn a_segment_is_inside_of_a_region_of_its_domain_or_not_taken() {
        let keys = Keys::new();
        keys.insert(0x1234_5678, named(100, 200, false));
        let lend = |addr, len, key| keys.lend(&segment(addr, len, key), OWN);
        assert!(lend(100, 100, 0x1234_5678) && lend(199, 1, 0x1234_5678));
        for (addr, len) in [(99, 1), (100, 101), (200, 1), (0, 1), (u64::MAX, 2)] {
            assert!(!lend(addr, len, 0x1234_5678), "{addr} {len}");
        }
        assert!(!keys.lend(&segment(100, 1, 0x1234_5678), OWN + 1));
        // The same index, and none.
        assert!(!lend(100, 1, 0x1234_5679) && !lend(100, 1, 0x1334_5678) && !lend(100, 1, 0));
        assert!(lend(1, 0, 99), "nothing is anywhere");
    }

    #[test]
    fn what_counts_from_zero_is_known_and_not_lent() {
        let keys = Keys::new();
        keys.insert(0x100, named(0, 64, true));
        keys.insert(0x200, named(4096, 8192, false));
        let [zero, high] = [segment(8, 8, 0x100), segment(4096, 8, 0x200)];
        assert_eq!([&zero, &high].map(|at| keys.lend(at, OWN)), [false, true]);
        assert_eq!([&zero, &high].map(|at| keys.knows(at, OWN, true)), [true, false]);
        assert_eq!([&zero, &high].map(|at| keys.knows(at, OWN, false)), [true, true]);
    }

    #[test]
    fn a_key_of_the_same_index_takes_the_place_and_keeps_it() {
        let keys = Keys::new();
        keys.insert(0x101, named(10, 20, true));
        keys.insert(0x102, named(30, 40, true));
        keys.remove(0x101);
        assert_eq!([keys.find(0x101), keys.find(0x102)], [None, Some(named(30, 40, true))]);
        keys.remove(0x102);
        assert_eq!(keys.find(0x102), None);
    }
}
