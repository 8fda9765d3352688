//! Finds out that the peer does not read the ring although it has octets to read.
//!
//! The other process may clear the flag by which a sleeping side asks to be woken. Then nothing but
//! a timer ends the sleep. The timer runs only while octets that this side has sent are not read,
//! because otherwise this side waits for nothing in the memory.

use std::time::{Duration, Instant};

use adapter::octet_ring::Corrupt;

use super::SharedMemory;

/// How long the peer may leave octets in the ring before this side checks the memory and wakes the
/// peer.
pub(crate) const RING_CHECK_DELAY: Duration = Duration::from_millis(100);

/// The next check of the memory. A connection has one while its peer has octets to read and passes
/// do not read this side's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingWatch {
    at: Instant,
    /// How far the peer had read when the timer was set.
    read: u64,
    /// Whether the peer was woken and has read nothing since.
    has_woken: bool,
}

impl RingWatch {
    /// Returns the first check, or `None` if the peer has read everything.
    #[inline]
    pub(crate) fn start(memory: &mut SharedMemory, now: impl FnOnce() -> Instant) -> Option<Self> {
        // A check that finds a wrong word here finds it again, and then the connection ends.
        let read = memory.check().unwrap_or(Some(0))?;
        Some(RingWatch { at: now() + RING_CHECK_DELAY, read, has_woken: false })
    }

    /// The time of the check.
    pub(crate) fn deadline(self) -> Instant {
        self.at
    }

    /// Checks the memory, and wakes a peer that has read nothing since the last check. Returns the
    /// next check, or `None` if the peer has read everything.
    pub(crate) fn check(
        self,
        memory: &mut SharedMemory,
        now: Instant,
    ) -> Result<Option<Self>, Corrupt> {
        let Some(read) = memory.check()? else { return Ok(None) };
        let has_moved = read != self.read;
        if !has_moved && !self.has_woken {
            memory.wake_peer();
        }
        Ok(Some(RingWatch { at: now + RING_CHECK_DELAY, read, has_woken: !has_moved }))
    }
}

#[cfg(test)]
mod tests;
