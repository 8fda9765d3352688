//! A ring of octets in memory that two processes share, for one producer and one consumer.
//!
//! The other process may store any value in this memory at any time. So each side keeps its own
//! position in private memory, checks what it reads of the other side's position, and accesses
//! nothing outside the ring. A side also checks that its own position in this memory is still the
//! value that it has stored, and reports a difference: the other side may have read the wrong
//! value, and may wait because of it.
//!
//! A side that is about to sleep sets its flag and then looks at the other side's position once
//! more. The other side moves its position and then looks at the flag. Each side has a fence
//! between its two steps, so at least one side sees what the other side did, and no wake-up is
//! lost.

use libc::iovec;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The size of a ring in octets. It is small enough for the caches of the two processors.
pub const CAPACITY: usize = 256 << 10;
/// A side publishes its position after this many octets. So the other side copies the beginning of
/// a large message while this side still copies the rest.
const PUBLISH_OCTETS: usize = 32 << 10;
/// A producer that found the ring full continues when this many octets are free.
const MIN_FREE_OCTETS: u64 = CAPACITY as u64 / 4;

/// The positions and flags of a ring. Positions count octets since the ring was created.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    /// Written by the producer.
    produced: Line<AtomicU64>,
    /// Written by the consumer.
    consumed: Line<AtomicU64>,
    /// Whether the consumer wants to be woken. The producer clears it.
    consumer_sleeps: Line<AtomicU32>,
    /// Whether the producer wants to be woken. The consumer clears it.
    producer_sleeps: Line<AtomicU32>,
}

/// A value that has a pair of cache lines alone, because adjacent lines are prefetched together.
#[repr(C, align(128))]
#[derive(Debug, Default)]
struct Line<T>(T);

/// The addresses of a ring. They stay valid as long as the owner of a [`Producer`] or [`Consumer`]
/// keeps the memory mapped.
#[derive(Clone, Copy, Debug)]
struct Memory {
    header: *const Header,
    data: *mut u8,
}

/// A position in the memory cannot be right, or is not what the side that owns it has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position in a ring of shared memory is wrong")]
pub struct Corrupt;

/// The side that writes.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    produced: u64,
    /// The consumer's position when it was last read.
    consumed: u64,
}

/// The side that reads.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    consumed: u64,
}

// SAFETY: the positions are shared by atomics. The data are copied only between two checked
// positions.
unsafe impl Send for Producer {}
// SAFETY: methods that take `&self` access only atomics.
unsafe impl Sync for Producer {}
// SAFETY: as for `Producer`.
unsafe impl Send for Consumer {}
// SAFETY: methods that take `&self` access only atomics.
unsafe impl Sync for Consumer {}

impl Memory {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the owner keeps the memory mapped. All members are atomics.
        unsafe { &*self.header }
    }

    /// The part of the data that begins at a position and has at most `len` octets. It ends at the
    /// end of the ring's memory.
    #[inline]
    fn part(&self, position: u64, len: usize) -> (*mut u8, usize) {
        let offset = position as usize % CAPACITY;
        // SAFETY: the offset lies inside the data.
        (unsafe { self.data.add(offset) }, len.min(CAPACITY - offset))
    }
}

/// Wakes a side that sleeps, after its peer has moved a position.
#[inline]
fn wake(sleeps: &AtomicU32, wake_peer: &mut impl FnMut()) {
    fence(Ordering::SeqCst);
    if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::AcqRel) != 0 {
        wake_peer();
    }
}

/// Stores a side's own position, which has moved on by `octets` octets since it was last stored.
#[inline]
fn move_position(place: &AtomicU64, position: u64, octets: usize) -> Result<(), Corrupt> {
    check_position(place, position - octets as u64)?;
    place.store(position, Ordering::Release);
    Ok(())
}

/// Checks that a side's own position is what this side last stored.
#[inline]
fn check_position(place: &AtomicU64, stored: u64) -> Result<(), Corrupt> {
    if place.load(Ordering::Relaxed) == stored { Ok(()) } else { Err(Corrupt) }
}

/// Announces that a side is about to sleep. Returns false if it must not sleep, because its
/// condition has become true.
fn announce_sleep(sleeps: &AtomicU32, must_stay_awake: impl FnOnce() -> bool) -> bool {
    sleeps.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if must_stay_awake() {
        sleeps.store(0, Ordering::Relaxed);
        return false;
    }
    true
}

impl Producer {
    /// Creates the producer of a new ring.
    ///
    /// # Safety
    /// `header` and the [`CAPACITY`] octets from `data` on must stay mapped as long as the producer
    /// exists. The ring must have no other producer in this process.
    pub unsafe fn new(header: *const Header, data: *mut u8) -> Self {
        Producer { memory: Memory { header, data }, produced: 0, consumed: 0 }
    }

    /// Writes as much of a gather vector as there is room for. Returns the number of octets.
    ///
    /// # Safety
    /// Each element of the vector must name readable memory.
    #[inline]
    pub unsafe fn write(
        &mut self,
        iov: &[iovec],
        mut wake_peer: impl FnMut(),
    ) -> Result<usize, Corrupt> {
        let mut written = 0;
        let mut unpublished = 0;
        let mut free = CAPACITY - (self.produced - self.consumed) as usize;
        'elements: for element in iov {
            let (mut from, mut left) = (element.iov_base.cast::<u8>(), element.iov_len);
            while left > 0 {
                if free < left {
                    free = self.free()?;
                    if free == 0 {
                        break 'elements;
                    }
                }
                let len = left.min(free).min(PUBLISH_OCTETS - unpublished);
                let (to, len) = self.memory.part(self.produced, len);
                // SAFETY: the caller guarantees readable memory. The target lies inside the ring,
                // between the producer's position and the consumer's.
                unsafe {
                    from.copy_to_nonoverlapping(to, len);
                    from = from.add(len);
                }
                self.produced += len as u64;
                (left, free) = (left - len, free - len);
                (written, unpublished) = (written + len, unpublished + len);
                if unpublished == PUBLISH_OCTETS {
                    self.publish(unpublished, &mut wake_peer)?;
                    unpublished = 0;
                }
            }
        }
        if unpublished > 0 {
            self.publish(unpublished, &mut wake_peer)?;
        }
        Ok(written)
    }

    /// Publishes the position after `octets` more octets.
    #[inline]
    fn publish(&self, octets: usize, wake_peer: &mut impl FnMut()) -> Result<(), Corrupt> {
        let header = self.memory.header();
        move_position(&header.produced.0, self.produced, octets)?;
        wake(&header.consumer_sleeps.0, wake_peer);
        Ok(())
    }

    /// Reads the consumer's position. Returns the number of octets for which there is room.
    #[inline]
    fn free(&mut self) -> Result<usize, Corrupt> {
        let consumed = self.memory.header().consumed.0.load(Ordering::Acquire);
        // A consumer's position never moves backwards and never passes the producer's.
        if consumed.wrapping_sub(self.consumed) > self.produced - self.consumed {
            return Err(Corrupt);
        }
        self.consumed = consumed;
        Ok(CAPACITY - (self.produced - consumed) as usize)
    }

    /// Returns whether a producer that found the ring full can continue.
    pub fn has_room(&mut self) -> bool {
        // A wrong position is reported by the next write.
        self.free().is_ok_and(|free| free as u64 >= MIN_FREE_OCTETS) || self.free().is_err()
    }

    /// Checks both positions. Returns how far the consumer has come, or `None` if it has read
    /// everything.
    pub fn check(&mut self) -> Result<Option<u64>, Corrupt> {
        check_position(&self.memory.header().produced.0, self.produced)?;
        self.free()?;
        Ok((self.consumed != self.produced).then_some(self.consumed))
    }

    /// Announces that this side, which found the ring full, is about to sleep. Returns false if
    /// there is room now.
    pub fn announce_sleep(&mut self) -> bool {
        let memory = self.memory;
        announce_sleep(&memory.header().producer_sleeps.0, || self.has_room())
    }
}

impl Consumer {
    /// Creates the consumer of a new ring.
    ///
    /// # Safety
    /// As for [`Producer::new`].
    pub unsafe fn new(header: *const Header, data: *mut u8) -> Self {
        Consumer { memory: Memory { header, data }, consumed: 0 }
    }

    /// Reads octets into a scatter vector, until the vector is full or the ring is empty. Returns
    /// the number of octets.
    ///
    /// # Safety
    /// Each element of the vector must name writable memory.
    #[inline]
    pub unsafe fn read(
        &mut self,
        iov: &[iovec],
        mut wake_peer: impl FnMut(),
    ) -> Result<usize, Corrupt> {
        let mut available = self.available()?;
        let (mut read, mut unpublished) = (0, 0);
        'elements: for element in iov {
            let (mut to, mut left) = (element.iov_base.cast::<u8>(), element.iov_len);
            while left > 0 {
                if available == 0 {
                    if unpublished > 0 {
                        self.publish(unpublished, &mut wake_peer)?;
                        unpublished = 0;
                    }
                    available = self.available()?;
                    if available == 0 {
                        break 'elements;
                    }
                }
                let len = left.min(available).min(PUBLISH_OCTETS - unpublished);
                let (from, len) = self.memory.part(self.consumed, len);
                // SAFETY: the caller guarantees writable memory. The source lies inside the ring.
                unsafe {
                    rnic::place(to, from, len);
                    to = to.add(len);
                }
                self.consumed += len as u64;
                (left, available) = (left - len, available - len);
                (read, unpublished) = (read + len, unpublished + len);
                if unpublished == PUBLISH_OCTETS {
                    self.publish(unpublished, &mut wake_peer)?;
                    unpublished = 0;
                }
            }
        }
        if unpublished > 0 {
            self.publish(unpublished, &mut wake_peer)?;
        }
        Ok(read)
    }

    /// Publishes the position after `octets` more octets.
    #[inline]
    fn publish(&self, octets: usize, wake_peer: &mut impl FnMut()) -> Result<(), Corrupt> {
        let header = self.memory.header();
        move_position(&header.consumed.0, self.consumed, octets)?;
        let produced = header.produced.0.load(Ordering::Relaxed);
        if CAPACITY as u64 - produced.wrapping_sub(self.consumed).min(CAPACITY as u64)
            >= MIN_FREE_OCTETS
        {
            wake(&header.producer_sleeps.0, wake_peer);
        }
        Ok(())
    }

    /// Returns the number of octets that can be read.
    #[inline]
    fn available(&self) -> Result<usize, Corrupt> {
        let produced = self.memory.header().produced.0.load(Ordering::Acquire);
        match produced.wrapping_sub(self.consumed) {
            available if available <= CAPACITY as u64 => Ok(available as usize),
            _ => Err(Corrupt),
        }
    }

    /// Returns whether the ring is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.available() == Ok(0)
    }

    /// Checks both positions.
    pub fn check(&self) -> Result<(), Corrupt> {
        check_position(&self.memory.header().consumed.0, self.consumed)?;
        self.available().map(drop)
    }

    /// Announces that this side is about to sleep. Returns false if there are octets now.
    pub fn announce_sleep(&self) -> bool {
        announce_sleep(&self.memory.header().consumer_sleeps.0, || !self.is_empty())
    }

    /// Withdraws the announcement, because this side polls the ring from now on.
    pub fn stay_awake(&self) {
        self.memory.header().consumer_sleeps.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
