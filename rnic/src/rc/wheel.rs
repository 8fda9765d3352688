//! One timing wheel for all queue pairs of an adapter: setting and clearing a deadline takes constant time, whatever their
//! number.
//!
//! Six levels of 64 slots: a slot of the lowest is a tick of 65.536 µs, one of each other level is all of the level below it.
//! A deadline goes to the level where it and now are told apart, and comes down a level when its slot's time has come
//! (Varghese and Lauck, "Hashed and hierarchical timing wheels", scheme 7).

use std::time::{Duration, Instant};

/// Nanoseconds of a tick, as a power of two.
const TICK_BITS: u32 = 16;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// Ticks ahead at most: 51 days. A deadline beyond fires then. (One slot of the top level fewer than there are, so that none
/// comes around to where now is.)
const MAX_TICKS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS * (LEVELS as u32 - 1));

/// The wheel. Keys are small numbers: there is a word for each up to the largest.
pub struct Wheel {
    start: Instant,
    /// The ticks that have passed, as far as [`pop`](Self::pop) has looked.
    now: u64,
    levels: [Level; LEVELS],
    /// By key: the tick it fires at.
    armed: Vec<Option<u64>>,
    entries: Vec<Entry>,
    /// Entries of no slot.
    free: List,
    /// Those of slots whose time has come, on their way to a lower level, or out.
    due: List,
}

struct Level {
    /// Which slots have entries.
    occupied: u64,
    slots: [List; SLOTS],
}

/// A key that has been set. If it has been set to an earlier time since, or cleared, it is not armed for this one any more.
#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    tick: u64,
    next: List,
}

/// The place of a list's first entry.
type List = Option<u32>;

impl Wheel {
    /// An empty wheel.
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

    /// Sets the deadline of a key. A later one than before, or none, costs nothing: the key fires when it would have, and
    /// whoever gets it sees that it is not due and sets it again.
    #[inline]
    pub fn set(&mut self, key: usize, at: Option<Instant>) {
        let Some(at) = at else { return };
        if key >= self.armed.len() {
            self.armed.resize(key + 1, None);
        }
        // One that is very far away fires at the farthest time possible.
        let tick = self.tick_after(at).min(self.now + MAX_TICKS - 1);
        if self.armed[key].is_none_or(|armed| tick < armed) {
            self.armed[key] = Some(tick);
            let entry = self.take_free(Entry { key, tick, next: None });
            self.insert(entry);
        }
    }

    /// The key does not fire any more until it is set again.
    pub fn clear(&mut self, key: usize) {
        if let Some(armed) = self.armed.get_mut(key) {
            *armed = None;
        }
    }

    /// A key whose time has come, which then has no deadline any more. To be called until there is none.
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

    /// When to look again: no later than the next deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let tick = match self.due {
            Some(_) => self.now,
            None => self.next_slot()?.2,
        };
        Some(self.start + Duration::from_nanos(tick << TICK_BITS))
    }

    /// A place for an entry.
    fn take_free(&mut self, entry: Entry) -> u32 {
        if let Some(at) = self.free {
            self.free = std::mem::replace(&mut self.entries[at as usize], entry).next;
            return at;
        }
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Puts an entry into its slot, as seen from now; one that is late into the first.
    fn insert(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let tick = entry.tick.max(self.now);
        let differ = (tick ^ self.now) | 1;
        let level = ((differ.ilog2() / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        entry.next = self.levels[level].slots[slot].replace(at);
        self.levels[level].occupied |= 1 << slot;
    }

    /// The first slot with entries, and the tick that it begins with. Those of a lower level come before those of a higher.
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

    /// The first tick that does not begin before this time: nothing fires early.
    fn tick_after(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1 << TICK_BITS)).unwrap_or(u64::MAX)
    }

    /// The tick that this time is in.
    fn tick_before(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_nanos() >> TICK_BITS)
            .unwrap_or(u64::MAX)
    }
}
