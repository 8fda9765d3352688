//! A table that returns the registered memory of a local key. It is read without a lock.
//!
//! If a request has inline data, the device's library copies the data into the request, without
//! checking the key and the bounds of their segments. So this crate looks up the segments in this
//! table first. If a segment is not within the memory of its key, the request is posted without
//! inline data. The device then reads the memory and reports the error.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use dat_core::provider::Segment;

use crate::paged_table::PagedTable;

/// Registered memory, indexed by the upper 24 bits of its local key. Devices use the last octet of
/// a key for other purposes. If several keys have the same index, a lookup finds only the key that
/// was inserted last.
pub(crate) struct KeyTable {
    slots: PagedTable<KeySlot>,
}

/// A value that is never the key of a region.
const NONE: u32 = 0;

/// A region. A thread may read a mixture of two regions while the slot changes, but only if it
/// posts memory that another thread is deregistering.
#[derive(Default)]
struct KeySlot {
    key: AtomicU32,
    is_writable: AtomicBool,
    domain: AtomicUsize,
    start: AtomicU64,
    end: AtomicU64,
}

/// The memory that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRange {
    /// The identity of the region's protection domain.
    pub(crate) domain: usize,
    /// The address by which segments refer to the region's first byte: its memory address, or 0 for
    /// a zero-based region.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_writable: bool,
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        KeyTable { slots: PagedTable::new() }
    }

    /// Returns whether the segment lies in a region of the protection domain, and is given by
    /// memory addresses of this process and not by offsets in a zero-based region.
    #[inline]
    pub(crate) fn is_readable(&self, segment: &Segment, domain: usize) -> bool {
        segment.len == 0
            || self
                .find(segment.key)
                .is_some_and(|range| range.start != 0 && range.contains(segment, domain))
    }

    /// Returns whether the segment lies in a region of the protection domain. If `writes`, the
    /// region must also be writable.
    #[inline]
    pub(crate) fn is_accessible(&self, segment: &Segment, domain: usize, writes: bool) -> bool {
        segment.len == 0
            || self.find(segment.key).is_some_and(|range| {
                (range.is_writable || !writes) && range.contains(segment, domain)
            })
    }

    #[inline]
    fn find(&self, key: u32) -> Option<KeyedRange> {
        let slot = self.slots.get(key >> 8)?;
        (slot.key.load(Ordering::Acquire) == key && key != NONE).then(|| KeyedRange {
            domain: slot.domain.load(Ordering::Relaxed),
            start: slot.start.load(Ordering::Relaxed),
            end: slot.end.load(Ordering::Relaxed),
            is_writable: slot.is_writable.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn insert(&self, key: u32, range: KeyedRange) {
        let slot = self.slots.get_or_create(key >> 8);
        slot.key.store(NONE, Ordering::Relaxed);
        slot.domain.store(range.domain, Ordering::Release);
        slot.start.store(range.start, Ordering::Release);
        slot.end.store(range.end, Ordering::Release);
        slot.is_writable.store(range.is_writable, Ordering::Release);
        slot.key.store(key, Ordering::Release);
    }

    pub(crate) fn remove(&self, key: u32) {
        if let Some(slot) = self.slots.get(key >> 8) {
            // If another region uses the slot by now, the slot is not changed.
            let _ = slot.key.compare_exchange(key, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl KeyedRange {
    #[inline]
    fn contains(&self, segment: &Segment, domain: usize) -> bool {
        let end = segment.addr.checked_add(segment.len.into());
        self.domain == domain
            && segment.addr >= self.start
            && end.is_some_and(|end| end <= self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: usize = 7;

    fn range(start: u64, end: u64, is_writable: bool) -> KeyedRange {
        KeyedRange { domain: DOMAIN, start, end, is_writable }
    }

    fn segment(addr: u64, len: u32, key: u32) -> Segment {
        Segment { addr, len, key }
    }

    #[test]
    fn a_segment_has_to_lie_in_a_region_of_its_domain() {
        let keys = KeyTable::new();
        keys.insert(0x1234_5678, range(100, 200, false));
        let readable = |addr, len, key| keys.is_readable(&segment(addr, len, key), DOMAIN);
        assert!(readable(100, 100, 0x1234_5678) && readable(199, 1, 0x1234_5678));
        for (addr, len) in [(99, 1), (100, 101), (200, 1), (0, 1), (u64::MAX, 2)] {
            assert!(!readable(addr, len, 0x1234_5678), "{addr} {len}");
        }
        assert!(!keys.is_readable(&segment(100, 1, 0x1234_5678), DOMAIN + 1));
        // A lookup finds nothing for another key with the same index, for a key with another index,
        // and for the key 0.
        assert!(
            !readable(100, 1, 0x1234_5679)
                && !readable(100, 1, 0x1334_5678)
                && !readable(100, 1, 0)
        );
        assert!(readable(1, 0, 99), "an empty segment needs no region");
    }

    #[test]
    fn a_zero_based_region_is_accessible_but_has_no_readable_address() {
        let keys = KeyTable::new();
        keys.insert(0x100, range(0, 64, true));
        keys.insert(0x200, range(4096, 8192, false));
        let [zero, high] = [segment(8, 8, 0x100), segment(4096, 8, 0x200)];
        assert_eq!([&zero, &high].map(|at| keys.is_readable(at, DOMAIN)), [false, true]);
        assert_eq!([&zero, &high].map(|at| keys.is_accessible(at, DOMAIN, true)), [true, false]);
        assert_eq!([&zero, &high].map(|at| keys.is_accessible(at, DOMAIN, false)), [true, true]);
    }

    #[test]
    fn a_key_replaces_another_of_the_same_index() {
        let keys = KeyTable::new();
        keys.insert(0x101, range(10, 20, true));
        keys.insert(0x102, range(30, 40, true));
        keys.remove(0x101);
        assert_eq!([keys.find(0x101), keys.find(0x102)], [None, Some(range(30, 40, true))]);
        keys.remove(0x102);
        assert_eq!(keys.find(0x102), None);
    }
}
