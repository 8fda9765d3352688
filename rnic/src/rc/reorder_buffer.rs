//! Request packets that arrived early: a packet with a lower PSN of the connection is missing.
//!
//! A connection takes memory when the first packet arrives early, and returns it when no packet is
//! missing any more, or when the missing packet has not arrived for 3 s. The memory of all
//! connections of an adapter is limited, because peers decide how much of it is used. A connection
//! that gets none keeps no packets, as if the packets had been lost: the peer sends them again
//! after a NAK.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::rocev2::{Packet, PathMtu, Psn};

/// The number of PSNs from the missing packet to the last packet that is kept. The missing packet
/// counts, so at most 63 packets of a connection are kept.
pub(super) const EARLY_PSNS: u32 = u64::BITS;
/// The maximum time for which packets are kept although the missing packet does not arrive. A peer
/// that is alive sends the missing packet again after its ACK timeout. Adapters of OpenDAT ask
/// their peers for a timeout of 2.1 s.
const KEPT_MAX: Duration = Duration::from_secs(3);
/// The maximum number of octets that an adapter uses. With an MTU of 4096, 63 connections can keep
/// packets at the same time; with an MTU of 1024, 244 connections can. A packet is missing for
/// about one round trip, so many connections use the memory in turn. An adapter's sockets may have
/// as many octets in their receive buffers.
const POOL_OCTETS: usize = 16 << 20;
/// The maximum number of unused octets that an adapter holds back for the next missing packet.
const UNUSED_OCTETS_MAX: usize = 1 << 20;
/// The number of octets in the memory of a packet besides the payload: the packet's length, and
/// the headers with the pad, which have at most 43 octets.
const SLOT_OVERHEAD: usize = LEN_OCTETS + 46;
const LEN_OCTETS: usize = size_of::<u16>();

/// The memory in which the connections of an adapter keep packets that arrived early.
pub struct EarlyPool {
    max: usize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The number of octets that connections use.
    used: usize,
    unused: Vec<Memory>,
}

/// The memory of one connection.
#[derive(Default)]
struct Memory {
    /// The octets that have been used. Only these have been written, so that taking memory does not
    /// take the time for writing all of it.
    octets: Vec<u8>,
    /// The number of octets that are reserved.
    size: usize,
}

impl Memory {
    /// Reserves `size` octets. Returns `None` if the system has too little memory.
    fn reserve(size: usize) -> Option<Self> {
        let mut octets = Vec::new();
        octets.try_reserve_exact(size).ok()?;
        Some(Memory { octets, size })
    }
}

impl Default for EarlyPool {
    fn default() -> Self {
        EarlyPool::new(POOL_OCTETS)
    }
}

impl EarlyPool {
    /// Creates a pool of at most `max` octets. It takes no memory yet.
    pub fn new(max: usize) -> Self {
        EarlyPool { max, state: Mutex::default() }
    }

    /// The number of octets that connections use now.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory of `size` octets. Returns `None` if the pool or the system has none.
    fn take(&self, size: usize) -> Option<Memory> {
        let mut state = self.lock();
        if state.used + size > self.max {
            return None;
        }
        let memory = match state.unused.iter().position(|memory| memory.size == size) {
            Some(at) => state.unused.swap_remove(at),
            None => Memory::reserve(size)?,
        };
        state.used += size;
        Some(memory)
    }

    fn give_back(&self, memory: Memory) {
        let mut state = self.lock();
        state.used -= memory.size;
        let unused: usize = state.unused.iter().map(|memory| memory.size).sum();
        if unused + memory.size <= UNUSED_OCTETS_MAX {
            state.unused.push(memory);
        }
    }
}

/// What became of a packet that arrived early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    Kept,
    /// The packet was kept before.
    Duplicate,
    /// The packet is dropped: it is too far ahead or too long, or there is no memory.
    Dropped,
}

/// The packets of a connection that arrived early.
pub(super) struct EarlyPackets {
    pool: Arc<EarlyPool>,
    /// Bit n is set if the packet whose PSN is n after the expected PSN is kept.
    kept: u64,
    /// A slot for each of 64 PSNs in a row: the length of the packet and the packet.
    memory: Memory,
    /// The PSN whose packet is in the first slot. The PSNs follow each other in the slots, so that
    /// the first packets use the first slots.
    first: Psn,
    /// The time at which the packets are dropped if the missing packet has not arrived.
    drop_at: Instant,
}

impl EarlyPackets {
    /// Takes memory from the pool. `expected` is the PSN of the missing packet.
    pub(super) fn new(
        pool: &Arc<EarlyPool>,
        mtu: PathMtu,
        expected: Psn,
        now: Instant,
    ) -> Option<Self> {
        let memory = pool.take(EARLY_PSNS as usize * (SLOT_OVERHEAD + mtu.octets()))?;
        let (pool, drop_at) = (Arc::clone(pool), now + KEPT_MAX);
        Some(EarlyPackets { pool, kept: 0, memory, first: expected, drop_at })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Keeps a packet whose PSN is `ahead` after the expected PSN.
    pub(super) fn keep(&mut self, packet: &Packet<'_>, ahead: u32) -> Keeping {
        let (psn, len) = (packet.bth.psn, packet.len());
        if ahead >= EARLY_PSNS {
            return Keeping::Dropped;
        }
        if self.kept & 1 << ahead != 0 {
            return Keeping::Duplicate;
        }
        let (slot, octets) = (self.slot(psn), &mut self.memory.octets);
        if octets.len() < slot.end {
            octets.resize(slot.end, 0);
        }
        let (prefix, place) = octets[slot].split_at_mut(LEN_OCTETS);
        let Some(place) = place.get_mut(..len) else { return Keeping::Dropped };
        prefix.copy_from_slice(&(len as u16).to_ne_bytes());
        packet.emit(place);
        self.kept |= 1 << ahead;
        Keeping::Kept
    }

    /// The packet with the expected PSN, if it is kept.
    pub(super) fn next(&self, expected: Psn) -> Option<Packet<'_>> {
        if self.kept & 1 == 0 {
            return None;
        }
        let (prefix, place) = self.memory.octets.get(self.slot(expected))?.split_first_chunk()?;
        Packet::parse(place.get(..usize::from(u16::from_ne_bytes(*prefix)))?).ok()
    }

    /// The time at which the packets are to be dropped.
    pub(super) fn drop_at(&self) -> Instant {
        self.drop_at
    }

    /// Records that the expected PSN has advanced by `psns`.
    pub(super) fn advance(&mut self, psns: u32, now: Instant) {
        self.kept = self.kept.checked_shr(psns).unwrap_or(0);
        self.drop_at = now + KEPT_MAX;
    }

    fn slot(&self, psn: Psn) -> std::ops::Range<usize> {
        let len = self.memory.size / EARLY_PSNS as usize;
        let start = psn.distance(self.first).rem_euclid(EARLY_PSNS as i32) as usize * len;
        start..start + len
    }
}

impl Drop for EarlyPackets {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use wire::rocev2::{Bth, Extension, Opcode};

    use super::*;

    /// The memory of a connection is large, so only the part for the first packets is written when
    /// the first packets arrive.
    #[test]
    fn memory_is_written_as_packets_arrive() {
        let (pool, expected, now) = (Arc::default(), Psn::new(0xFF_FFF7), Instant::now());
        let keep = |early: &mut EarlyPackets, ahead, payload: &[u8]| {
            let bth = Bth::new(Opcode::SendMiddle, 1, expected + ahead);
            early.keep(&Packet { bth, extension: Extension::None, payload }, ahead)
        };
        let mtu = PathMtu::Octets256;
        let slot = SLOT_OVERHEAD + mtu.octets();
        let mut early = EarlyPackets::new(&pool, mtu, expected, now).expect("the pool has memory");
        assert_eq!(keep(&mut early, 2, &[2; 256]), Keeping::Kept);
        assert_eq!(early.memory.octets.len(), 3 * slot);
        assert_eq!(keep(&mut early, 63, &[63; 256]), Keeping::Kept);
        assert_eq!(keep(&mut early, 1, &[1; 256]), Keeping::Kept);
        assert_eq!(early.memory.octets.len(), 64 * slot);
        // The slots are used in turn.
        early.advance(1, now);
        for (ahead, payload) in [(1, 1), (2, 2)] {
            let packet = early.next(expected + ahead).expect("the packet is kept");
            assert_eq!(packet.payload, [payload; 256]);
            early.advance(1, now);
        }
        assert_eq!(early.next(expected + 3), None);
        early.advance(60, now);
        let packet = early.next(expected + 63).expect("the packet is kept");
        assert_eq!(packet.payload, [63; 256]);
        drop(early);
        // The next connection with this path MTU gets the same memory.
        let early = EarlyPackets::new(&pool, mtu, expected, now).expect("the pool has memory");
        assert_eq!((early.memory.octets.len(), pool.used()), (64 * slot, 64 * slot));
    }
}
