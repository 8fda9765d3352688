//! One timer wheel for all queue pairs of an adapter. Setting and clearing a deadline takes
//! constant time, whatever the number of queue pairs.
//!
//! The wheel has six levels of 64 slots. A slot of the lowest level is one tick of 65.536 µs; a
//! slot of each higher level is as long as all slots of the level below it. A deadline goes to the
//! highest level on which its slot differs from the slot of the current time. When the time of that
//! slot has come, the deadline moves to a lower level (Varghese and Lauck, "Hashed and hierarchical
//! timing wheels", scheme 7).

use std::time::{Duration, Instant};

/// The binary logarithm of the number of nanoseconds in a tick.
const TICK_BITS: u32 = 16;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// The maximum distance of a deadline in ticks: 51 days. A later deadline fires after 51 days. One
/// slot of the top level is never used, so that no deadline gets into the current slot.
const MAX_TICKS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS * (LEVELS as u32 - 1));

/// The index of a list's first entry.
type List = Option<u32>;

/// The timer wheel. Keys are small numbers: the wheel has one word for each number up to the
/// largest key.
pub struct Wheel {
    start: Instant,
    /// The tick up to which [`pop`](Self::pop) has processed the slots.
    now: u64,
    levels: [Level; LEVELS],
    /// For each key, the tick at which it fires.
    armed: Vec<Option<u64>>,
    entries: Vec<Entry>,
    /// The list of unused entries.
    free: List,
    /// The list of entries whose slot's time has come. They move to a lower level or fire.
    due: List,
}

struct Level {
    /// A bit for each slot that has entries.
    occupied: u64,
    slots: [List; SLOTS],
}

/// An entry of a list: a key that has been set to fire at a tick. The entry is obsolete if the key
/// has been cleared or set to an earlier tick since.
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    tick: u64,
    /// The rest of the list.
    next: List,
}

impl Wheel {
    /// Creates an empty wheel.
    pub fn new(now: Instant) -> Self {
        Wheel {
            start: now,
            now: 0,
            levels: [const { Level { occupied: 0, slots: [None; SLOTS] } }; LEVELS],
            armed: Vec::new(),
            entries: Vec::new(),
            free: None,
            due: None,
        }
    }

    /// Sets the deadline of a key. Changes nothing if `at` is `None` or later than the previous
    /// deadline. In this case the key fires at the previous deadline. The caller then finds that
    /// its own deadline has not passed, and sets it again.
    #[inline]
    pub fn set(&mut self, key: usize, at: Option<Instant>) {
        let Some(at) = at else { return };
        if key >= self.armed.len() {
            self.armed.resize(key + 1, None);
        }
        // A deadline that is very far away fires at the farthest possible time.
        let tick = self.tick_after(at).min(self.now + MAX_TICKS - 1);
        if self.armed[key].is_none_or(|armed| tick < armed) {
            self.armed[key] = Some(tick);
            let entry = self.store(Entry { key, tick, next: None });
            self.insert(entry);
        }
    }

    /// Clears the deadline of a key, which then does not fire until it is set again.
    pub fn clear(&mut self, key: usize) {
        if let Some(armed) = self.armed.get_mut(key) {
            *armed = None;
        }
    }

    /// Returns a key whose deadline has passed. Afterwards the key has no deadline. Call this until
    /// it returns `None`.
    pub fn pop(&mut self, now: Instant) -> Option<usize> {
        let now = self.tick_before(now);
        loop {
            while let Some(at) = self.due {
                let Entry { key, tick, next } = self.entries[at as usize];
                self.due = next;
                let is_armed = self.armed[key] == Some(tick);
                if is_armed && tick > self.now {
                    self.insert(at);
                    continue;
                }
                self.entries[at as usize].next = self.free.replace(at);
                if is_armed {
                    self.armed[key] = None;
                    return Some(key);
                }
            }
            match self.next_slot() {
                Some((level, slot, tick)) if tick <= now => {
                    self.now = tick;
                    let level = &mut self.levels[level];
                    level.occupied &= !(1 << slot);
                    self.due = level.slots[slot].take();
                }
                _ => {
                    self.now = self.now.max(now);
                    return None;
                }
            }
        }
    }

    /// The time at which to call [`pop`](Self::pop) again. It is not later than the next deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let tick = match self.due {
            Some(_) => self.now,
            None => self.next_slot()?.2,
        };
        Some(self.start + Duration::from_nanos(tick << TICK_BITS))
    }

    /// Stores an entry and returns its index.
    fn store(&mut self, entry: Entry) -> u32 {
        if let Some(at) = self.free {
            self.free = std::mem::replace(&mut self.entries[at as usize], entry).next;
            return at;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Inserts an entry into the slot of its tick. An overdue entry goes into the current slot.
    fn insert(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let tick = entry.tick.max(self.now);
        let differ = (tick ^ self.now) | 1;
        let level = ((differ.ilog2() / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        entry.next = self.levels[level].slots[slot].replace(at);
        self.levels[level].occupied |= 1 << slot;
    }

    /// The level and index of the first slot with entries, and the tick at which it begins. Slots
    /// of a lower level come before slots of a higher level.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        self.levels.iter().enumerate().find_map(|(level, Level { occupied, .. })| {
            let shift = SLOT_BITS * level as u32;
            let at = (self.now >> shift) as u32 % SLOTS as u32;
            let ahead = occupied.rotate_right(at).trailing_zeros();
            (*occupied != 0).then(|| {
                let tick = ((self.now >> shift) + u64::from(ahead)) << shift;
                (level, ((at + ahead) as usize) % SLOTS, tick.max(self.now))
            })
        })
    }

    /// The first tick that does not begin before `at`, so that no key fires early.
    fn tick_after(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1 << TICK_BITS)).unwrap_or(u64::MAX)
    }

    /// The tick that contains the time `at`.
    fn tick_before(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_nanos() >> TICK_BITS)
            .unwrap_or(u64::MAX)
    }
}
