//! The table of STags. It says which memory a key names, and who may access that memory.

pub mod window;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use work::Access;
use work::cause::LocalUse;

use self::window::Windows;

/// A protection domain. A queue pair can use only keys of its own domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(u32);

/// The owner or the user of a key: one queue pair of a protection domain, or all its queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u64);

impl Scope {
    /// The scope of a single queue pair. Its number comes from [`Keys::qp_number`].
    pub(crate) fn of_qp(pd: Pd, number: u32) -> Self {
        Scope(u64::from(pd.0) << 32 | u64::from(number))
    }

    /// Whether a user with the scope `self` may use a key that belongs to `owner`.
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

/// The number of low bits of an STag that are no part of its index.
const TAG_BITS: u32 = 8;

/// The largest table has two slots for each key, and the index of a slot fits the other bits.
const _: () = assert!(2 * Keys::MAX <= 1 << (u32::BITS - TAG_BITS));

/// One kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Right {
    /// The local side sends from the memory.
    LocalRead = 1,
    /// The local side receives or reads into the memory.
    LocalWrite = 2,
    /// A peer reads the memory (RDMA read).
    RemoteRead = 4,
    /// A peer writes to the memory (RDMA write).
    RemoteWrite = 8,
    /// A peer performs an atomic operation on the memory.
    RemoteAtomic = 16,
}

impl From<LocalUse> for Right {
    /// The right that segments need for this use.
    #[inline(always)]
    fn from(usage: LocalUse) -> Self {
        match usage {
            LocalUse::Source => Right::LocalRead,
            LocalUse::Sink | LocalUse::Receive => Right::LocalWrite,
            LocalUse::WindowSink => Right::RemoteWrite,
        }
    }
}

/// The [`Right`]s that `access` contains, as bits.
const fn bits(access: Access) -> u32 {
    access.local_read as u32
        | (access.local_write as u32) << 1
        | (access.remote_read as u32) << 2
        | (access.remote_write as u32) << 3
        | (access.remote_atomic as u32) << 4
}

/// The reason for which an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither a region nor a bound window has this STag.
    #[error("invalid STag")]
    Invalid,
    /// The key belongs to another protection domain, or to another queue pair of the same domain.
    #[error("STag of another protection domain or queue pair")]
    Domain,
    /// The region does not grant this kind of access.
    #[error("access right missing")]
    Access,
    /// The accessed range is not inside the region.
    #[error("base/bounds violation")]
    Bounds,
    /// The end of the accessed range lies beyond 2^64.
    #[error("tagged offset wraps")]
    Wrap,
}

/// The reason for which memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The end of the region lies beyond 2^64.
    #[error("the region wraps around the address space")]
    Range,
    /// [`Keys::MAX`] keys are in use, or there is no memory for one more.
    #[error("{} keys are in use, or there is no memory for one more", Keys::MAX)]
    Exhausted,
}

/// The keys of an adapter. A lookup takes no lock.
///
/// An STag is a random number. Its bits from bit 8 on are its index in a table that has at least
/// twice as many slots as keys. So a lookup is one load. A peer that guesses a key finds a live one
/// with the probability (live keys) / 2^32. When the table doubles, all keys stay valid: indices
/// that differ in the low bits still differ with one bit more.
///
/// The low 8 bits, the *tag*, are no part of the index, so no two keys have the same high 24 bits.
/// The owner of a key could therefore choose the tag freely, as the owners of windows of type 2 do
/// (IBA, section 10.6.7.2).
///
/// A key that was removed becomes valid again only if its 32 bits are drawn again: at each later
/// registration with a probability of at most 2^-31, because at least half of the slots are free.
pub struct Keys {
    table: AtomicPtr<KeyTable>,
    registry: Mutex<Registry>,
    pds: AtomicU32,
    qps: AtomicU32,
    /// What waits until no other engine uses memory that it has looked up: see
    /// [`Keys::set_wait_for_other_engines`].
    wait_for_other_engines: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Registry {
    /// The last table is the current table. A lookup may still use an older table.
    tables: Vec<*mut KeyTable>,
    live: usize,
    random: RandomState,
    stags_drawn: u64,
    windows: Windows,
}

// SAFETY: only the drop of `Keys` frees the tables.
unsafe impl Send for Registry {}

struct KeyTable {
    mask: u32,
    slots: Box<[KeySlot]>,
}

/// A slot for one key. A reader checks `stag` before and after it reads the other fields. The other
/// fields are valid if `stag` has the expected value both times.
#[derive(Default)]
struct KeySlot {
    /// The STag of the key, or 0 if the slot is free.
    stag: AtomicU32,
    rights: AtomicU32,
    /// The [`Scope`] that may use the key.
    owner: AtomicU64,
    /// The tagged offset of the first octet.
    base: AtomicU64,
    len: AtomicU64,
    /// The number that is added to a tagged offset to get an address. It is 0 if the tagged offsets
    /// are addresses.
    addr_shift: AtomicU64,
}

/// The memory that a key names, and who may access it.
#[derive(Clone, Copy)]
struct Entry {
    owner: u64,
    rights: u32,
    base: u64,
    len: u64,
    addr_shift: u64,
}

impl Keys {
    /// The maximum number of keys.
    pub const MAX: usize = 1 << 20;

    /// Creates an empty table.
    pub fn new() -> Self {
        let table = KeyTable::new(64).expect("the first table needs only 3 KiB");
        Keys {
            table: AtomicPtr::new(table),
            registry: Mutex::new(Registry {
                tables: vec![table],
                live: 0,
                random: RandomState::new(),
                stags_drawn: 0,
                windows: Windows::default(),
            }),
            pds: AtomicU32::new(1),
            qps: AtomicU32::new(1),
            wait_for_other_engines: OnceLock::new(),
        }
    }

    /// Sets what an engine calls after it has invalidated the key of a window, if other engines use
    /// the keys at the same time. The function returns when no other engine uses memory that it has
    /// looked up before.
    pub fn set_wait_for_other_engines(&self, wait: impl Fn() + Send + Sync + 'static) {
        self.wait_for_other_engines.set(Box::new(wait)).ok();
    }

    fn await_other_engines(&self) {
        self.wait_for_other_engines.get().iter().for_each(|wait| wait());
    }

    /// Creates a protection domain.
    pub fn pd(&self) -> Pd {
        Pd(self.pds.fetch_add(1, Ordering::Relaxed))
    }

    /// Assigns a number to a queue pair. The number is never 0.
    pub(crate) fn qp_number(&self) -> u32 {
        match self.qps.fetch_add(1, Ordering::Relaxed) {
            0 => self.qps.fetch_add(1, Ordering::Relaxed),
            number => number,
        }
    }

    /// The number of keys in use: the keys of regions, and the keys of windows that are bound or
    /// for which a bind is posted.
    pub fn live(&self) -> usize {
        self.registry().live
    }

    /// Checks whether `by` may access `len` octets at the tagged offset `to` through `stag`, and
    /// returns their address. Any key that grants the right allows an access of zero octets. The
    /// checks have the same order as in siw, so that a peer gets the same error.
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

    /// Creates a key for `len` octets at `addr`. With `zero_based`, the tagged offsets of these
    /// octets count from 0.
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

    /// Invalidates a region's key and the keys of windows bound to it.
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
    fn current(&self) -> &KeyTable {
        // SAFETY: tables live as long as the registry, and there is always at least one.
        unsafe { &**self.tables.last().expect("new creates the first table") }
    }

    /// A random STag whose slot is free. At least half of the slots are free, so on average at most
    /// two tries are needed.
    fn random_stag(&mut self) -> u32 {
        loop {
            // The STags come from SipHash with a key from the operating system's random numbers, so
            // a peer that has seen some STags cannot predict the next STag.
            let stag = self.random.hash_one(self.stags_drawn) as u32;
            self.stags_drawn += 1;
            // With another tag, the key must not be 0 either.
            let is_valid = stag >> TAG_BITS != 0;
            if is_valid && self.current().slot(stag).stag.load(Ordering::Relaxed) == 0 {
                return stag;
            }
        }
    }

    /// Adds an entry to the table under a new STag.
    fn add(&mut self, table: &AtomicPtr<KeyTable>, entry: Entry) -> Result<u32, RegisterError> {
        if self.live >= Keys::MAX {
            return Err(RegisterError::Exhausted);
        }
        if 2 * self.live >= self.current().slots.len() {
            self.tables.try_reserve(1).map_err(|_| RegisterError::Exhausted)?;
            let grown = self.current().doubled().ok_or(RegisterError::Exhausted)?;
            self.tables.push(grown);
            table.store(grown, Ordering::Release);
        }
        let stag = self.random_stag();
        self.live += 1;
        let slot = self.current().slot(stag);
        // `remove` stores 0 in the slot's `stag`. This store must be visible before the entry's
        // fields change.
        fence(Ordering::Release);
        slot.set(entry);
        slot.stag.store(stag, Ordering::Release);
        Ok(stag)
    }

    /// Removes an STag from the table.
    fn remove(&mut self, stag: u32) {
        let mut found = false;
        for slot in self.slots(stag) {
            slot.stag.store(0, Ordering::Release);
            found = true;
        }
        self.live -= usize::from(found);
    }

    /// The slots that hold an STag, in the current table and in older tables that lookups may still
    /// use.
    fn slots(&self, stag: u32) -> impl Iterator<Item = &KeySlot> {
        // SAFETY: tables live as long as the registry.
        let slots = self.tables.iter().map(move |&table| unsafe { &*table }.slot(stag));
        slots.filter(move |slot| stag != 0 && slot.stag.load(Ordering::Relaxed) == stag)
    }
}

impl KeyTable {
    /// Creates a table. Returns `None` if there is no memory for it.
    fn new(slots: usize) -> Option<*mut KeyTable> {
        let mut empty = Vec::new();
        empty.try_reserve_exact(slots).ok()?;
        empty.resize_with(slots, KeySlot::default);
        // The box is made from a vector of one element: `Box::new` would end the process if there
        // is no memory.
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(KeyTable { mask: slots as u32 - 1, slots: empty.into_boxed_slice() });
        Some(Box::into_raw(one.into_boxed_slice()).cast())
    }

    fn doubled(&self) -> Option<*mut KeyTable> {
        let grown = KeyTable::new(2 * self.slots.len())?;
        for slot in &self.slots {
            let stag = slot.stag.load(Ordering::Relaxed);
            if stag != 0 {
                // SAFETY: the table has just been created, and nobody else has a pointer to it.
                let copy = unsafe { &*grown }.slot(stag);
                copy.set(slot.entry());
                copy.stag.store(stag, Ordering::Relaxed);
            }
        }
        Some(grown)
    }

    #[inline]
    fn slot(&self, stag: u32) -> &KeySlot {
        // SAFETY: `mask` is the number of slots, a power of two, minus one.
        unsafe { self.slots.get_unchecked((stag >> TAG_BITS & self.mask) as usize) }
    }
}

impl KeySlot {
    #[inline]
    fn entry(&self) -> Entry {
        Entry {
            owner: self.owner.load(Ordering::Relaxed),
            rights: self.rights.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            addr_shift: self.addr_shift.load(Ordering::Relaxed),
        }
    }

    fn set(&self, entry: Entry) {
        self.owner.store(entry.owner, Ordering::Relaxed);
        self.rights.store(entry.rights, Ordering::Relaxed);
        self.base.store(entry.base, Ordering::Relaxed);
        self.len.store(entry.len, Ordering::Relaxed);
        self.addr_shift.store(entry.addr_shift, Ordering::Relaxed);
    }
}

impl Entry {
    /// An entry for `len` octets at `addr`.
    fn new(owner: u64, access: Access, addr: u64, len: u64, zero_based: bool) -> Self {
        let base = if zero_based { 0 } else { addr };
        Entry { owner, rights: bits(access), base, len, addr_shift: addr - base }
    }

    /// Checks an access that needs all of `rights`, and returns its address.
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
        Ok(to.wrapping_add(self.addr_shift))
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
            // SAFETY: `KeyTable::new` made the table, this loop frees it once, and nobody looks up
            // keys in a dropped `Keys`.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

#[cfg(test)]
mod tests;
