//! The table of STags: which memory a key names, and who may touch it.

pub mod window;

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use work::Access;

use self::window::Windows;

/// A protection domain: keys and queue pairs of different ones do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(u32);

/// Who uses a key, or may: a queue pair of a protection domain, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u64);

impl Scope {
    /// The queue pair alone. Its number comes from [`Keys::qp_number`].
    pub(crate) fn of_qp(pd: Pd, number: u32) -> Self {
        Scope(u64::from(pd.0) << 32 | u64::from(number))
    }

    /// Whether one who acts as `self` may use what belongs to `owner`.
    #[inline]
    fn is_within(self, owner: u64) -> bool {
        owner == self.0 || owner == self.0 & !u64::from(u32::MAX)
    }
}

impl From<Pd> for Scope {
    fn from(pd: Pd) -> Self {
        Scope::of_qp(pd, 0)
    }
}

/// One of the kinds of access.
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
    /// Atomic operation by a peer.
    RemoteAtomic = 16,
}

/// The [`Right`]s in it, as bits.
const fn bits(access: Access) -> u32 {
    access.local_read as u32
        | (access.local_write as u32) << 1
        | (access.remote_read as u32) << 2
        | (access.remote_write as u32) << 3
        | (access.remote_atomic as u32) << 4
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither a region nor a bound window has this STag.
    #[error("invalid STag")]
    Invalid,
    /// The key belongs to another protection domain, or to another queue pair of this one.
    #[error("STag of another protection domain or queue pair")]
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
    /// [`Keys::MAX`] keys are in use, or there is no memory for one more.
    #[error("{} keys are in use, or there is no memory for one more", Keys::MAX)]
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
    qps: AtomicU32,
}

struct Registry {
    /// The table in use is the last; a look-up may still be in an older one.
    tables: Vec<*mut Table>,
    live: usize,
    random: RandomState,
    drawn: u64,
    windows: Windows,
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
    rights: AtomicU32,
    /// A [`Scope`].
    owner: AtomicU64,
    /// The tagged offset of the first byte.
    base: AtomicU64,
    len: AtomicU64,
    /// What makes a tagged offset an address, added to it: 0 unless the key's offsets count from zero.
    shift: AtomicU64,
}

/// What a key stands for.
#[derive(Clone, Copy)]
struct Entry {
    owner: u64,
    rights: u32,
    base: u64,
    len: u64,
    shift: u64,
}

impl Keys {
    /// Keys at most.
    pub const MAX: usize = 1 << 20;

    /// An empty table.
    pub fn new() -> Self {
        let table = Table::new(64).expect("the first table has 3 KiB");
        Keys {
            table: AtomicPtr::new(table),
            registry: Mutex::new(Registry {
                tables: vec![table],
                live: 0,
                random: RandomState::new(),
                drawn: 0,
                windows: Windows::default(),
            }),
            pds: AtomicU32::new(1),
            qps: AtomicU32::new(1),
        }
    }

    /// A new protection domain.
    pub fn pd(&self) -> Pd {
        Pd(self.pds.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a queue pair: not 0.
    pub(crate) fn qp_number(&self) -> u32 {
        match self.qps.fetch_add(1, Ordering::Relaxed) {
            0 => self.qps.fetch_add(1, Ordering::Relaxed),
            number => number,
        }
    }

    /// Keys in use now: of regions and of windows that are bound or about to be.
    pub fn live(&self) -> usize {
        self.registry().live
    }

    /// Whether `by` may access `len` bytes at the tagged offset `to` through `stag`; answers their address. Zero bytes may be
    /// accessed through any key that grants the right. The order of the checks is siw's, so that a peer is told the same
    /// cause.
    #[inline]
    pub fn check(
        &self,
        stag: u32,
        by: Scope,
        to: u64,
        len: u64,
        right: Right,
    ) -> Result<u64, KeyError> {
        self.look_up(stag)?.check(by, to, len, right as u32)
    }

    #[inline]
    fn look_up(&self, stag: u32) -> Result<Entry, KeyError> {
        // SAFETY: tables live as long as `self`.
        let table = unsafe { &*self.table.load(Ordering::Acquire) };
        let slot = table.slot(stag);
        if slot.stag.load(Ordering::Acquire) != stag || stag == 0 {
            return Err(KeyError::Invalid);
        }
        let entry = slot.entry();
        fence(Ordering::Acquire);
        if slot.stag.load(Ordering::Relaxed) != stag {
            return Err(KeyError::Invalid);
        }
        Ok(entry)
    }

    /// Makes a key for `len` bytes at `addr`; with `zero_based` they are at the tagged offsets from 0 on.
    pub(crate) fn register(
        &self,
        pd: Pd,
        addr: u64,
        len: u64,
        access: Access,
        zero_based: bool,
    ) -> Result<u32, RegisterError> {
        if addr.checked_add(len).is_none() {
            return Err(RegisterError::Range);
        }
        let owner = Scope::from(pd).0;
        self.registry().add(&self.table, Entry::new(owner, access, addr, len, zero_based))
    }

    /// Ends the life of a region's key, and of the keys of windows bound to it.
    pub(crate) fn deregister(&self, stag: u32) {
        let mut registry = self.registry();
        registry.remove(stag);
        registry.unbind_all(stag);
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

    /// Puts an entry into the table under a new STag.
    fn add(&mut self, table: &AtomicPtr<Table>, entry: Entry) -> Result<u32, RegisterError> {
        if self.live >= Keys::MAX {
            return Err(RegisterError::Exhausted);
        }
        if 2 * self.live >= self.current().slots.len() {
            self.tables.try_reserve(1).map_err(|_| RegisterError::Exhausted)?;
            let grown = self.current().doubled().ok_or(RegisterError::Exhausted)?;
            self.tables.push(grown);
            table.store(grown, Ordering::Release);
        }
        let stag = self.draw();
        self.live += 1;
        let slot = self.current().slot(stag);
        // Not before the marks of the slot's earlier use are gone (`remove`) may its fields change.
        fence(Ordering::Release);
        slot.set(entry);
        slot.stag.store(stag, Ordering::Release);
        Ok(stag)
    }

    /// Takes an STag out of the table.
    fn remove(&mut self, stag: u32) {
        let mut found = false;
        for slot in self.slots(stag) {
            slot.stag.store(0, Ordering::Release);
            found = true;
        }
        self.live -= usize::from(found);
    }

    /// Where an STag is found, also by look-ups which still are in an older table.
    fn slots(&self, stag: u32) -> impl Iterator<Item = &Slot> {
        // SAFETY: tables live as long as the registry.
        let slots = self.tables.iter().map(move |&table| unsafe { &*table }.slot(stag));
        slots.filter(move |slot| stag != 0 && slot.stag.load(Ordering::Relaxed) == stag)
    }
}

impl Table {
    /// `None`: there is no memory for it.
    fn new(slots: usize) -> Option<*mut Table> {
        let mut empty = Vec::new();
        empty.try_reserve_exact(slots).ok()?;
        empty.resize_with(slots, Slot::default);
        // A box of one: `Box::new` would end the process where there is no memory.
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(Table { mask: slots as u32 - 1, slots: empty.into_boxed_slice() });
        Some(Box::into_raw(one.into_boxed_slice()).cast())
    }

    fn doubled(&self) -> Option<*mut Table> {
        let grown = Table::new(2 * self.slots.len())?;
        for slot in &self.slots {
            let stag = slot.stag.load(Ordering::Relaxed);
            if stag != 0 {
                // SAFETY: just made, and nobody else has it.
                let copy = unsafe { &*grown }.slot(stag);
                copy.set(slot.entry());
                copy.stag.store(stag, Ordering::Relaxed);
            }
        }
        Some(grown)
    }

    #[inline]
    fn slot(&self, stag: u32) -> &Slot {
        // SAFETY: `mask` is the number of slots, a power of two, less one.
        unsafe { self.slots.get_unchecked((stag & self.mask) as usize) }
    }
}

impl Slot {
    #[inline]
    fn entry(&self) -> Entry {
        Entry {
            owner: self.owner.load(Ordering::Relaxed),
            rights: self.rights.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            shift: self.shift.load(Ordering::Relaxed),
        }
    }

    fn set(&self, entry: Entry) {
        self.owner.store(entry.owner, Ordering::Relaxed);
        self.rights.store(entry.rights, Ordering::Relaxed);
        self.base.store(entry.base, Ordering::Relaxed);
        self.len.store(entry.len, Ordering::Relaxed);
        self.shift.store(entry.shift, Ordering::Relaxed);
    }
}

impl Entry {
    /// For `len` bytes at `addr`.
    fn new(owner: u64, access: Access, addr: u64, len: u64, zero_based: bool) -> Self {
        let base = if zero_based { 0 } else { addr };
        Entry { owner, rights: bits(access), base, len, shift: addr - base }
    }

    /// `rights`: all of these are needed.
    #[inline]
    fn check(&self, by: Scope, to: u64, len: u64, rights: u32) -> Result<u64, KeyError> {
        if !by.is_within(self.owner) {
            return Err(KeyError::Domain);
        }
        if self.rights & rights != rights {
            return Err(KeyError::Access);
        }
        if to.checked_add(len).is_none() {
            return Err(KeyError::Wrap);
        }
        let offset = to.wrapping_sub(self.base);
        if offset > self.len || len > self.len - offset {
            return Err(KeyError::Bounds);
        }
        Ok(to.wrapping_add(self.shift))
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
