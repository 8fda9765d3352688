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
    /// Slots whose time has come, on their way to a lower level, or out.
    due: Vec<Entry>,
}

struct Level {
    /// Which slots have entries.
    occupied: u64,
    slots: [Vec<Entry>; SLOTS],
}

#[derive(Clone, Copy)]
struct Entry {
    key: usize,
    tick: u64,
}

impl Wheel {
    /// An empty wheel.
    pub fn new(now: Instant) -> Self {
        let level = || Level { occupied: 0, slots: [const { Vec::new() }; SLOTS] };
        Wheel {
            start: now,
            now: 0,
            levels: std::array::from_fn(|_| level()),
            armed: Vec::new(),
            due: Vec::new(),
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
        let tick = self.tick_after(at);
        if self.armed[key].is_none_or(|armed| tick < armed) {
            self.armed[key] = Some(tick);
            self.insert(Entry { key, tick });
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
            while let Some(entry) = self.due.pop() {
                if self.armed[entry.key] != Some(entry.tick) {
                    // Set to another time since, or cleared.
                    continue;
                }
                if entry.tick <= self.now {
                    self.armed[entry.key] = None;
                    return Some(entry.key);
                }
                self.insert(entry);
            }
            match self.next_slot() {
                Some((level, slot, tick)) if tick <= now => {
                    self.now = self.now.max(tick);
                    let level = &mut self.levels[level];
                    level.occupied &= !(1 << slot);
                    // Both keep their memory.
                    self.due.append(&mut level.slots[slot]);
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
        let (_, _, tick) = self.next_slot()?;
        Some(self.start + Duration::from_nanos(tick << TICK_BITS))
    }

    fn insert(&mut self, mut entry: Entry) {
        // One that is late, or very far away, keeps its own tick; its slot is that of the nearest possible.
        let at = entry.tick.clamp(self.now, self.now + MAX_TICKS - 1);
        if at != entry.tick {
            entry.tick = at;
            self.armed[entry.key] = Some(at);
        }
        let differ = (at ^ self.now) | 1;
        let level = ((differ.ilog2() / SLOT_BITS) as usize).min(LEVELS - 1);
        let slot = (at >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        self.levels[level].slots[slot].push(entry);
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
        u64::try_from(at.saturating_duration_since(self.start).as_nanos() >> TICK_BITS).unwrap_or(u64::MAX)
    }
}
