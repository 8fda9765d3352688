//! A ring for one producer and one consumer, which may run on two threads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::wr::Segment;

/// The error when no memory is available for a queue of this depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a queue of {depth} entries")]
pub struct OutOfMemory {
    /// The requested number of entries.
    pub depth: usize,
}

/// The amount of heap memory that the creation of a ring leaves free for the object that owns the
/// ring. The other allocations of that object, such as boxes and reference counts, are smaller than
/// this reserve. If one of them failed, the process would end.
const HEAP_RESERVE_OCTETS: usize = 32 << 10;

/// Whether the heap still has [`HEAP_RESERVE_OCTETS`] of free memory. The result is a hint, because
/// another thread may allocate this memory directly afterwards.
fn heap_has_reserve() -> bool {
    let mut room: Vec<u8> = Vec::new();
    let has = room.try_reserve_exact(HEAP_RESERVE_OCTETS).is_ok();
    // Without this use, the compiler may remove the allocation.
    black_box(room.as_mut_ptr());
    has
}

/// A ring of slots, whose number is a power of two. Each slot holds a header `H` and up to
/// `max_segments` segments.
///
/// Positions are free-running counters: `head` is the oldest slot in use, `tail` the next free one.
/// The producer owns `tail` and the consumer owns `head`. Each side caches the last value that it
/// has read of the other side's counter. So the producer touches the consumer's cache line only
/// when the ring seems full, and the consumer touches the producer's only when it seems empty.
///
/// The consumer may keep slots in use as long as it wants, and may read and write all slots from
/// `head` to `tail` in any order: the requests of a send queue stay in their slots until they
/// complete.
pub(crate) struct Ring<H> {
    producer: Side,
    consumer: Side,
    _header: PhantomData<H>,
}

/// The state of the producer or of the consumer, which only that thread writes. It has a pair of
/// cache lines to itself, because processors prefetch adjacent lines together. Each side also keeps
/// a copy of the ring's shape in its cache lines, so that the shape needs no other cache line.
#[repr(align(128))]
struct Side {
    own: AtomicUsize,
    cached_other: UnsafeCell<usize>,
    shape: Shape,
}

/// Where the slots are in memory, and how large each of them is.
#[derive(Clone, Copy)]
struct Shape {
    slots: NonNull<u8>,
    stride: usize,
    mask: usize,
    max_segments: usize,
}

impl Shape {
    #[inline]
    fn slot<H>(&self, at: usize) -> RingSlot<H> {
        // SAFETY: the masked index is within the allocation.
        let memory = unsafe { self.slots.add((at & self.mask) * self.stride) };
        RingSlot { memory, _header: PhantomData }
    }
}

/// The alignment of the slots. Because malloc guarantees this alignment, zeroed memory comes fresh
/// from the system and is committed only when it is used.
const SLOTS_ALIGN: usize = 16;

// SAFETY: slots pass from the producer to the consumer and back by release and acquire on `tail`
// and `head`. The callers of the unsafe methods ensure that each role belongs to one thread at a
// time.
unsafe impl<H: Send> Send for Ring<H> {}
// SAFETY: slots pass from the producer to the consumer and back by release and acquire on `tail`
// and `head`. The callers of the unsafe methods ensure that each role belongs to one thread at a
// time.
unsafe impl<H: Send> Sync for Ring<H> {}

impl<H: Copy> Ring<H> {
    /// Creates a ring of at least `depth` slots with up to 255 segments each. Fails if the heap
    /// would have no reserve left for the rest of the owning object.
    pub(crate) fn new(depth: usize, max_segments: usize) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<H>() <= align_of::<Segment>() && size_of::<H>() > 0) };
        let no_memory = OutOfMemory { depth };
        let max_segments = max_segments.min(u8::MAX.into());
        let slots = depth.max(1).checked_next_power_of_two().ok_or(no_memory)?;
        let stride = max_segments
            .checked_mul(size_of::<Segment>())
            .and_then(|segments| segments.checked_add(Self::HEADER))
            .ok_or(no_memory)?;
        let layout = Self::layout(slots, stride).ok_or(no_memory)?;
        // SAFETY: the layout's size is not zero, because a header's is not.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
        let shape = Shape { slots: memory, stride, mask: slots - 1, max_segments };
        let side = || Side { own: AtomicUsize::new(0), cached_other: UnsafeCell::new(0), shape };
        let ring = Ring { producer: side(), consumer: side(), _header: PhantomData };
        if heap_has_reserve() { Ok(ring) } else { Err(no_memory) }
    }

    const HEADER: usize = size_of::<H>().next_multiple_of(align_of::<Segment>());

    fn layout(slots: usize, stride: usize) -> Option<Layout> {
        Layout::from_size_align(slots.checked_mul(stride)?, SLOTS_ALIGN).ok()
    }

    /// The total number of slots.
    pub(crate) fn capacity(&self) -> usize {
        self.producer.shape.mask + 1
    }

    /// The maximum number of segments in a slot.
    pub(crate) fn max_segments(&self) -> usize {
        self.producer.shape.max_segments
    }

    /// The number of slots in use. Any thread may call this. The result is exact for one side while
    /// the other side is idle.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let head = self.consumer.own.load(Ordering::Acquire);
        self.producer.own.load(Ordering::Acquire).wrapping_sub(head).min(self.capacity())
    }

    /// The number of slots that the consumer has released so far. Any thread may call this.
    pub(crate) fn released(&self) -> usize {
        self.consumer.own.load(Ordering::Acquire)
    }

    /// The next slot to fill. It belongs to the producer until [`publish`](Self::publish) passes it
    /// to the consumer. `None` while the ring is full. The slot still has the contents of its
    /// previous use.
    ///
    /// # Safety
    /// The caller must be the only producer.
    #[inline]
    pub(crate) unsafe fn vacant(&self) -> Option<RingSlot<H>> {
        let Side { own, cached_other, shape } = &self.producer;
        let tail = own.load(Ordering::Relaxed);
        // SAFETY: only the producer accesses its own `cached_other`.
        let head = unsafe { &mut *cached_other.get() };
        if tail.wrapping_sub(*head) > shape.mask {
            *head = self.consumer.own.load(Ordering::Acquire);
            if tail.wrapping_sub(*head) > shape.mask {
                return None;
            }
        }
        Some(shape.slot(tail))
    }

    /// Passes the slot that [`vacant`](Self::vacant) returned to the consumer.
    ///
    /// # Safety
    /// The caller must be the only producer and must have filled that slot.
    #[inline]
    pub(crate) unsafe fn publish(&self) {
        let tail = self.producer.own.load(Ordering::Relaxed);
        self.producer.own.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// The position of the oldest slot in use.
    ///
    /// # Safety
    /// The caller must be the only consumer.
    #[inline]
    pub(crate) unsafe fn head(&self) -> usize {
        self.consumer.own.load(Ordering::Relaxed)
    }

    /// Whether slot `at`, which is not older than the head, is in use. If it is, all older slots up
    /// to the head are in use, too.
    ///
    /// # Safety
    /// The caller must be the only consumer.
    #[inline]
    pub(crate) unsafe fn is_filled(&self, at: usize) -> bool {
        // SAFETY: only the consumer accesses its own `cached_other`.
        let tail = unsafe { &mut *self.consumer.cached_other.get() };
        if at.wrapping_sub(*tail) as isize >= 0 {
            *tail = self.producer.own.load(Ordering::Acquire);
        }
        (at.wrapping_sub(*tail) as isize) < 0
    }

    /// Whether slot `at` is in use, whatever `at` is.
    ///
    /// # Safety
    /// The caller must be the only consumer.
    #[inline]
    pub(crate) unsafe fn is_in_use(&self, at: usize) -> bool {
        // SAFETY: the caller is the only consumer.
        unsafe { at.wrapping_sub(self.head()) <= self.consumer.shape.mask && self.is_filled(at) }
    }

    /// Returns all slots before `head` to the producer.
    ///
    /// # Safety
    /// The caller must be the only consumer, must have seen these slots filled, and must not use
    /// them any more.
    #[inline]
    pub(crate) unsafe fn release(&self, head: usize) {
        self.consumer.own.store(head, Ordering::Release);
    }

    /// Makes the ring as it was when it was created: no slot is in use, and positions begin at 0.
    ///
    /// # Safety
    /// The caller must be the only producer and the only consumer, and must not use any slot any
    /// more.
    pub(crate) unsafe fn clear(&self) {
        for side in [&self.producer, &self.consumer] {
            side.own.store(0, Ordering::Release);
            // SAFETY: the caller is both sides, and nobody else accesses this value.
            unsafe { *side.cached_other.get() = 0 };
        }
    }

    /// The memory of a slot, for the consumer. The slot belongs to the consumer while it is filled,
    /// and to the producer between [`vacant`](Self::vacant) and [`publish`](Self::publish).
    #[inline]
    pub(crate) fn slot(&self, at: usize) -> RingSlot<H> {
        self.consumer.shape.slot(at)
    }
}

impl<H> Drop for Ring<H> {
    fn drop(&mut self) {
        let Shape { slots, stride, mask, .. } = self.producer.shape;
        // SAFETY: `new` allocated this memory with this layout, which was valid.
        unsafe {
            let layout = Layout::from_size_align_unchecked((mask + 1) * stride, SLOTS_ALIGN);
            dealloc(slots.as_ptr(), layout);
        }
    }
}

/// The memory of a slot.
#[derive(Clone, Copy)]
pub(crate) struct RingSlot<H> {
    memory: NonNull<u8>,
    _header: PhantomData<H>,
}

impl<H: Copy> RingSlot<H> {
    /// The header of the slot.
    #[inline]
    pub(crate) fn header(self) -> *mut H {
        self.memory.as_ptr().cast()
    }

    /// The first segment of the slot.
    #[inline]
    pub(crate) fn segments(self) -> *mut Segment {
        // SAFETY: the segments follow the header within the slot. Without segments, the pointer is
        // one past the end of the slot.
        unsafe { self.memory.as_ptr().add(Ring::<H>::HEADER).cast() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
