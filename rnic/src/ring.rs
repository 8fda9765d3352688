//! A ring for one producer and one consumer, which may be two threads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::wr::Segment;

/// There is no memory for a queue of this depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a queue of {depth} entries")]
pub struct OutOfMemory {
    /// Entries asked for.
    pub depth: usize,
}

/// Octets that a queue leaves for the object that it is a part of: more than the others take, in boxes and
/// reference counts, where an allocation that fails ends the process.
const OBJECT: usize = 32 << 10;

/// Whether there is that room. Another thread may take the last of it a moment later.
fn has_room() -> bool {
    let mut room: Vec<u8> = Vec::new();
    let has = room.try_reserve_exact(OBJECT).is_ok();
    // What nobody uses need not be allocated.
    black_box(room.as_mut_ptr());
    has
}

/// Slots of a header `H` and up to `max_segments` segments, a power of two of them.
///
/// Positions are free-running counters: `head` is the oldest slot in use, `tail` the next free one. Each side owns one
/// of the two and keeps the other as it last saw it, so that the cache line of the other side is touched only when the
/// ring seems full (producer) or empty (consumer).
///
/// The consumer may keep slots in use for as long as it wants and look at all of them (`head..tail`) in any order, also
/// write to them: a send queue's requests stay in their slots until they complete.
pub(crate) struct Ring<H> {
    slots: NonNull<u8>,
    stride: usize,
    mask: usize,
    max_segments: usize,
    producer: Side,
    consumer: Side,
    _header: PhantomData<H>,
}

/// What one side writes, alone in its pair of cache lines (adjacent lines are prefetched together).
#[repr(align(128))]
struct Side {
    own: AtomicUsize,
    other: UnsafeCell<usize>,
}

/// Not more than malloc aligns anyway, so that zeroed memory is fresh from the system and counts only when it is used.
const ALIGN: usize = 16;

// SAFETY: slots are handed from the producer to the consumer and back by release/acquire on `tail` and `head`; the
// callers of the unsafe methods keep each role to one thread at a time.
unsafe impl<H: Send> Send for Ring<H> {}
// SAFETY: as above.
unsafe impl<H: Send> Sync for Ring<H> {}

impl<H: Copy> Ring<H> {
    /// A ring of at least `depth` slots, for up to 65535 segments each. It leaves room for the rest of what
    /// it is made for.
    pub(crate) fn new(depth: usize, max_segments: usize) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<H>() <= align_of::<Segment>() && size_of::<H>() > 0) };
        let no_memory = OutOfMemory { depth };
        let max_segments = max_segments.min(u16::MAX.into());
        let slots = depth.max(1).checked_next_power_of_two().ok_or(no_memory)?;
        let stride = max_segments
            .checked_mul(size_of::<Segment>())
            .and_then(|segments| segments.checked_add(Self::HEADER))
            .ok_or(no_memory)?;
        let layout = Self::layout(slots, stride).ok_or(no_memory)?;
        // SAFETY: the layout is not of zero size, since a header is not.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
        let side = || Side { own: AtomicUsize::new(0), other: UnsafeCell::new(0) };
        let ring = Ring {
            slots: memory,
            stride,
            mask: slots - 1,
            max_segments,
            producer: side(),
            consumer: side(),
            _header: PhantomData,
        };
        if has_room() { Ok(ring) } else { Err(no_memory) }
    }

    const HEADER: usize = size_of::<H>().next_multiple_of(align_of::<Segment>());

    fn layout(slots: usize, stride: usize) -> Option<Layout> {
        Layout::from_size_align(slots.checked_mul(stride)?, ALIGN).ok()
    }

    /// Slots in all.
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }

    /// Segments that fit a slot.
    pub(crate) fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Slots in use, as seen from any thread: exact for the two sides if the other one rests.
    pub(crate) fn len(&self) -> usize {
        let head = self.consumer.own.load(Ordering::Acquire);
        self.producer.own.load(Ordering::Acquire).wrapping_sub(head).min(self.capacity())
    }

    /// Slots that the consumer has given back so far, as seen from any thread.
    pub(crate) fn released(&self) -> usize {
        self.consumer.own.load(Ordering::Acquire)
    }

    /// The slot to fill next, to be given away by [`publish`](Self::publish); `None` while the ring is full. Its
    /// contents are those of an earlier use.
    ///
    /// # Safety
    /// The caller is the only producer.
    #[inline]
    pub(crate) unsafe fn vacant(&self) -> Option<Slot<H>> {
        let tail = self.producer.own.load(Ordering::Relaxed);
        // SAFETY: only the producer touches its side's `other`.
        let head = unsafe { &mut *self.producer.other.get() };
        if tail.wrapping_sub(*head) > self.mask {
            *head = self.consumer.own.load(Ordering::Acquire);
            if tail.wrapping_sub(*head) > self.mask {
                return None;
            }
        }
        Some(self.slot(tail))
    }

    /// Hands the slot of [`vacant`](Self::vacant) to the consumer.
    ///
    /// # Safety
    /// The caller is the only producer and has filled that slot.
    #[inline]
    pub(crate) unsafe fn publish(&self) {
        let tail = self.producer.own.load(Ordering::Relaxed);
        self.producer.own.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// The oldest slot in use.
    ///
    /// # Safety
    /// The caller is the only consumer.
    #[inline]
    pub(crate) unsafe fn head(&self) -> usize {
        self.consumer.own.load(Ordering::Relaxed)
    }

    /// Whether slot `at`, no older than the head, is in use. All older ones then are, too.
    ///
    /// # Safety
    /// The caller is the only consumer.
    #[inline]
    pub(crate) unsafe fn is_filled(&self, at: usize) -> bool {
        // SAFETY: only the consumer touches its side's `other`.
        let tail = unsafe { &mut *self.consumer.other.get() };
        if at.wrapping_sub(*tail) as isize >= 0 {
            *tail = self.producer.own.load(Ordering::Acquire);
        }
        (at.wrapping_sub(*tail) as isize) < 0
    }

    /// Gives all slots before `head` back to the producer.
    ///
    /// # Safety
    /// The caller is the only consumer, has seen these slots filled and uses them no more.
    #[inline]
    pub(crate) unsafe fn release(&self, head: usize) {
        self.consumer.own.store(head, Ordering::Release);
    }

    /// The memory of a slot. Who may touch it is for the caller to know: the producer between
    /// [`vacant`](Self::vacant) and [`publish`](Self::publish), the consumer while it is filled.
    #[inline]
    pub(crate) fn slot(&self, at: usize) -> Slot<H> {
        // SAFETY: the masked index is within the allocation.
        let memory = unsafe { self.slots.add((at & self.mask) * self.stride) };
        Slot { memory, _header: PhantomData }
    }
}

impl<H> Drop for Ring<H> {
    fn drop(&mut self) {
        let size = (self.mask + 1) * self.stride;
        // SAFETY: allocated in `new` with this layout, which was valid.
        unsafe { dealloc(self.slots.as_ptr(), Layout::from_size_align_unchecked(size, ALIGN)) }
    }
}

/// A slot's memory.
#[derive(Clone, Copy)]
pub(crate) struct Slot<H> {
    memory: NonNull<u8>,
    _header: PhantomData<H>,
}

impl<H: Copy> Slot<H> {
    /// The header.
    #[inline]
    pub(crate) fn header(self) -> *mut H {
        self.memory.as_ptr().cast()
    }

    /// The first of the segments.
    #[inline]
    pub(crate) fn segments(self) -> *mut Segment {
        // SAFETY: the segments follow the header within the slot (possibly none: then one past its end).
        unsafe { self.memory.as_ptr().add(Ring::<H>::HEADER).cast() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
