//! The memory that two processes share for one connection: two rings, one for each direction.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use adapter::octet_ring::{CAPACITY, Consumer, Header, Producer};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::process::{Resource, getrlimit};

/// The size of the part before the data of the rings.
const CONTROL_BYTES: usize = 4096;
const SIZE: usize = CONTROL_BYTES + 2 * CAPACITY;
/// With these seals, no process can make the memory smaller, which would end the other process at
/// its next access.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The side of the connection that this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This side has created the memory.
    Offering,
    /// This side was offered the memory.
    Accepting,
}

/// The first part of the memory. All of it is zero at first.
#[repr(C)]
struct Control {
    /// The rings of the octets that the offering side and the accepting side send.
    rings: [Header; 2],
    /// For each direction: 0 while octets are sent by TCP. Afterwards, 1 more than the number of
    /// octets that were sent by TCP.
    switched: [AtomicU64; 2],
    /// Whether the accepting side uses the memory.
    accepted: AtomicU32,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

/// The mapped memory.
pub(super) struct Segment {
    start: NonNull<Control>,
    side: Side,
}

// SAFETY: all members of `Control` are atomics, and each ring's data belongs to its two sides.
unsafe impl Send for Segment {}
// SAFETY: methods that take `&self` access only atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates the memory. Returns its file, which the other process maps.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        // ftruncate(2) ends a process that may not have a file of this size.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < SIZE as u64) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = memfd_create("opendat", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, SIZE as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok((Segment::map(file.as_fd(), Side::Offering)?, file))
    }

    /// Maps memory that another process has created, after checking that it cannot shrink.
    pub(super) fn open(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let seals = fcntl_get_seals(&file)?;
        if !seals.contains(SEALS) || file.metadata()?.len() != SIZE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Segment::map(file.as_fd(), Side::Accepting)
    }

    fn map(file: BorrowedFd<'_>, side: Side) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new, so it does not change any other memory.
        let start =
            unsafe { libc::mmap(null_mut(), SIZE, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child of fork(2) must not use the connection, which remains its parent's.
        // SAFETY: the range is the mapping.
        unsafe { libc::madvise(start, SIZE, libc::MADV_DONTFORK) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Segment { start, side })
    }

    fn control(&self) -> &Control {
        // SAFETY: the memory is mapped, and all members are atomics.
        unsafe { self.start.as_ref() }
    }

    /// The directions in which this side sends and receives.
    fn directions(&self) -> (usize, usize) {
        match self.side {
            Side::Offering => (0, 1),
            Side::Accepting => (1, 0),
        }
    }

    /// Creates this side's ends of the rings.
    ///
    /// # Safety
    /// The segment must be dropped after the ends. This function must be called only once.
    pub(super) unsafe fn ends(&self) -> (Producer, Consumer) {
        let data = |direction: usize| {
            self.start.as_ptr().cast::<u8>().wrapping_add(CONTROL_BYTES + direction * CAPACITY)
        };
        let (tx, rx) = self.directions();
        let rings = &self.control().rings;
        // SAFETY: the data lie behind the control part, and the caller keeps the memory mapped.
        unsafe { (Producer::new(&rings[tx], data(tx)), Consumer::new(&rings[rx], data(rx))) }
    }

    /// Announces that this side sends by the ring from now on, after `octets` octets by TCP.
    pub(super) fn switch(&self, octets: u64) {
        self.control().switched[self.directions().0].store(octets + 1, Ordering::Release);
    }

    /// Returns what this side has announced by [`Self::switch`]: 1 more than the number of octets.
    pub(super) fn announced(&self) -> u64 {
        self.control().switched[self.directions().0].load(Ordering::Relaxed)
    }

    /// Returns whether this side has accepted the offer, or the peer has announced that it sends by
    /// the ring. A side that accepts announces this at once, and the side that has offered may end
    /// before it notices the announcement.
    pub(super) fn is_acceptance_announced(&self) -> bool {
        let switched = self.control().switched[self.directions().1].load(Ordering::Acquire);
        matches!(self.side, Side::Accepting) || switched != 0
    }

    /// Returns whether the peer, which has sent `octets` octets by TCP, sends by the ring from now
    /// on.
    pub(super) fn has_peer_switched(&self, octets: u64) -> bool {
        self.control().switched[self.directions().1].load(Ordering::Acquire) == octets + 1
    }

    /// Announces that the accepting side uses the memory, and sends by the ring from now on, after
    /// `octets` octets by TCP. Whoever sees the acceptance also sees the other announcement, even
    /// if this process is killed at any point.
    pub(super) fn accept(&self, octets: u64) {
        self.switch(octets);
        self.control().accepted.store(1, Ordering::Release);
    }

    /// Stores that the accepting side uses the memory, but not that it sends by the ring.
    #[cfg(test)]
    pub(super) fn pretend_acceptance(&self) {
        self.control().accepted.store(1, Ordering::Release);
    }

    /// Overwrites a word, as a process that breaks the rules does. `at` is its place in octets.
    #[cfg(test)]
    pub(super) fn overwrite(&self, at: usize, value: impl FnOnce(u64) -> u64) {
        assert!(at.is_multiple_of(8) && at < size_of::<Control>());
        // SAFETY: the word lies in the mapped memory, which everybody accesses by atomics.
        unsafe {
            let word = self.start.as_ptr().cast::<u8>().add(at).cast::<u64>();
            word.write_volatile(value(word.read_volatile()));
        }
    }

    /// Returns whether the accepting side uses the memory.
    pub(super) fn is_accepted(&self) -> bool {
        self.control().accepted.load(Ordering::Acquire) != 0
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this segment's own, and the owner has dropped the ends.
        unsafe { libc::munmap(self.start.as_ptr().cast(), SIZE) };
    }
}
