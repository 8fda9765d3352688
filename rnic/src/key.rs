//! The table of STags: which memory a key names, and who may touch it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// A protection domain: keys and queue pairs of different ones do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(u32);

/// What a region allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The local side may gather from it.
    pub local_read: bool,
    /// The local side may receive and read into it.
    pub local_write: bool,
    /// Peers may RDMA read from it.
    pub remote_read: bool,
    /// Peers may RDMA write to it.
    pub remote_write: bool,
}

/// One of the four kinds of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Right {
    /// Gather from it.
    LocalRead = 1,
    /// Receive or read into it.
    LocalWrite = 2,
    /// RDMA read by a peer.
    RemoteRead = 4,
    /// RDMA write by a peer.
    RemoteWrite = 8,
}

const REMOTE: u32 = Right::RemoteRead as u32 | Right::RemoteWrite as u32;

impl Access {
    const fn bits(self) -> u32 {
        self.local_read as u32
            | (self.local_write as u32) << 1
            | (self.remote_read as u32) << 2
            | (self.remote_write as u32) << 3
    }

    /// Whether peers have any access.
    pub const fn is_remote(self) -> bool {
        self.remote_read || self.remote_write
    }
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No region has this STag.
    #[error("invalid STag")]
    Invalid,
    /// The region belongs to another protection domain.
    #[error("STag of another protection domain")]
    Domain,
    /// The region does not grant this access.
    #[error("access right missing")]
    Access,
    /// Not inside the region.
    #[error("base/bounds violation")]
    Bounds,
    /// The end lies beyond 2^64.
    #[error("tagged offset wraps")]
    Wrap,
}

/// Why memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Its end lies beyond 2^64.
    #[error("the region wraps around the address space")]
    Range,
    /// [`Keys::MAX`] regions are registered.
    #[error("{} regions are registered, no more are possible", Keys::MAX)]
    Exhausted,
}

/// The keys of an adapter. Looking one up takes no lock.
///
/// An STag is a random number, and its low bits are its place in a table with room for twice as many: so a peer that
/// guesses hits a live one with probability (live regions) / 2^32, and a look-up is one load. When the table doubles,
/// all keys stay valid, since places that differ in the low bits still do with one bit more.
pub struct Keys {
    table: AtomicPtr<Table>,
    registry: Mutex<Registry>,
    pds: AtomicU32,
}

struct Registry {
    /// The table in use is the last; a look-up may still be in an older one.
    tables: Vec<*mut Table>,
    live: usize,
    random: RandomState,
    drawn: u64,
}

// SAFETY: the tables are freed by the drop of `Keys` only.
unsafe impl Send for Registry {}

struct Table {
    mask: u32,
    slots: Box<[Slot]>,
}

/// A place for one key. The fields are valid while `stag` is what the reader looks for, before and after it reads them.
#[derive(Default)]
struct Slot {
    /// 0: free.
    stag: AtomicU32,
    pd: AtomicU32,
    rights: AtomicU32,
    base: AtomicU64,
    len: AtomicU64,
}

impl Keys {
    /// Regions at most.
    pub const MAX: usize = 1 << 20;

    /// An empty table.
    pub fn new() -> Self {
        let table = Table::new(64);
        Keys {
            table: AtomicPtr::new(table),
            registry: Mutex::new(Registry {
                tables: vec![table],
                live: 0,
                random: RandomState::new(),
                drawn: 0,
            }),
            pds: AtomicU32::new(1),
        }
    }

    /// A new protection domain.
    pub fn pd(&self) -> Pd {
        Pd(self.pds.fetch_add(1, Ordering::Relaxed))
    }

    /// Regions registered now.
    pub fn live(&self) -> usize {
        self.registry().live
    }

    /// Whether `pd` may access `len` bytes at `addr` through `stag`. Zero bytes may be accessed through any key that
    /// grants the right. The order of the checks is siw's, so that a peer is told the same cause.
    #[inline]
    pub fn check(&self, stag: u32, pd: Pd, addr: u64, len: u64, right: Right) -> Result<(), KeyError> {
        // SAFETY: tables live as long as `self`.
        let table = unsafe { &*self.table.load(Ordering::Acquire) };
        let slot = table.slot(stag);
        if slot.stag.load(Ordering::Acquire) != stag || stag == 0 {
            return Err(KeyError::Invalid);
        }
        let owner = slot.pd.load(Ordering::Relaxed);
        let rights = slot.rights.load(Ordering::Relaxed);
        let base = slot.base.load(Ordering::Relaxed);
        let size = slot.len.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if slot.stag.load(Ordering::Relaxed) != stag {
            return Err(KeyError::Invalid);
        }
        if owner != pd.0 {
            return Err(KeyError::Domain);
        }
        if rights & right as u32 == 0 {
            return Err(KeyError::Access);
        }
        if addr.checked_add(len).is_none() {
            return Err(KeyError::Wrap);
        }
        let offset = addr.wrapping_sub(base);
        if offset > size || len > size - offset {
            return Err(KeyError::Bounds);
        }
        Ok(())
    }

    /// Withdraws what peers may do through an STag, as a SEND with invalidate asks; local use goes on.
    /// `Invalid`: no region has it; `Access`: it grants peers nothing.
    pub fn invalidate(&self, stag: u32, pd: Pd) -> Result<(), KeyError> {
        let registry = self.registry();
        let mut result = Err(KeyError::Invalid);
        for slot in registry.slots(stag) {
            if slot.pd.load(Ordering::Relaxed) != pd.0 {
                return Err(KeyError::Domain);
            }
            let rights = slot.rights.fetch_and(!REMOTE, Ordering::Relaxed);
            result = if rights & REMOTE == 0 { Err(KeyError::Access) } else { Ok(()) };
        }
        result
    }

    /// Makes a key for `len` bytes at `base`.
    pub(crate) fn register(&self, pd: Pd, base: u64, len: u64, access: Access) -> Result<u32, RegisterError> {
        if base.checked_add(len).is_none() {
            return Err(RegisterError::Range);
        }
        let mut registry = self.registry();
        if registry.live >= Self::MAX {
            return Err(RegisterError::Exhausted);
        }
        if 2 * registry.live >= registry.current().slots.len() {
            let grown = registry.current().doubled();
            registry.tables.push(grown);
            self.table.store(grown, Ordering::Release);
        }
        let stag = registry.draw();
        registry.live += 1;
        let slot = registry.current().slot(stag);
        // Not before the marks of the slot's earlier use are gone (`deregister`) may its fields change.
        fence(Ordering::Release);
        slot.pd.store(pd.0, Ordering::Relaxed);
        slot.rights.store(access.bits(), Ordering::Relaxed);
        slot.base.store(base, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.stag.store(stag, Ordering::Release);
        Ok(stag)
    }

    /// Ends the life of a key.
    pub(crate) fn deregister(&self, stag: u32) {
        let mut registry = self.registry();
        let mut found = false;
        for slot in registry.slots(stag) {
            slot.stag.store(0, Ordering::Release);
            found = true;
        }
        registry.live -= usize::from(found);
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Registry {
    fn current(&self) -> &Table {
        // SAFETY: tables live as long as the registry; there is always one.
        unsafe { &**self.tables.last().expect("the first table is made in new") }
    }

    /// A random STag whose place is free; half of the places are, so two tries do on average.
    fn draw(&mut self) -> u32 {
        loop {
            // SipHash under a key of the operating system's randomness: one who sees some outputs cannot tell the next.
            let stag = self.random.hash_one(self.drawn) as u32;
            self.drawn += 1;
            if stag != 0 && self.current().slot(stag).stag.load(Ordering::Relaxed) == 0 {
                return stag;
            }
        }
    }

    /// Where an STag is found, also by look-ups which still are in an older table.
    fn slots(&self, stag: u32) -> impl Iterator<Item = &Slot> {
        // SAFETY: tables live as long as the registry.
        let slots = self.tables.iter().map(move |&table| unsafe { &*table }.slot(stag));
        slots.filter(move |slot| stag != 0 && slot.stag.load(Ordering::Relaxed) == stag)
    }
}

impl Table {
    fn new(slots: usize) -> *mut Table {
        let slots: Box<[Slot]> = (0..slots).map(|_| Slot::default()).collect();
        Box::into_raw(Box::new(Table { mask: slots.len() as u32 - 1, slots }))
    }

    fn doubled(&self) -> *mut Table {
        let grown = Table::new(2 * self.slots.len());
        for slot in &self.slots {
            let stag = slot.stag.load(Ordering::Relaxed);
            if stag != 0 {
                // SAFETY: just made, and nobody else has it.
                let copy = unsafe { &*grown }.slot(stag);
                copy.pd.store(slot.pd.load(Ordering::Relaxed), Ordering::Relaxed);
                copy.rights.store(slot.rights.load(Ordering::Relaxed), Ordering::Relaxed);
                copy.base.store(slot.base.load(Ordering::Relaxed), Ordering::Relaxed);
                copy.len.store(slot.len.load(Ordering::Relaxed), Ordering::Relaxed);
                copy.stag.store(stag, Ordering::Relaxed);
            }
        }
        grown
    }

    #[inline]
    fn slot(&self, stag: u32) -> &Slot {
        // SAFETY: `mask` is the number of slots, a power of two, less one.
        unsafe { self.slots.get_unchecked((stag & self.mask) as usize) }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        for &table in &self.registry().tables {
            // SAFETY: made by `Table::new`, freed here once; nobody looks up in a dropped `Keys`.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

#[cfg(test)]
mod tests;
