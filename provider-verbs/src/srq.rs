//! Shared receive queues.

use std::ops::{Index, Range};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use dat_core::provider::{PostError, Receives, RecvWr, Sink, Upcall};
use dat_core::{Error, Result};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_SRQ,
};
use rdma_core_sys::*;
use waiting::nesting;

use crate::Adapter;
use crate::cq;
use crate::mr::{Domain, Pd};
use crate::progress::ProgressContext;
use crate::work_request::{self, post_error};

/// A shared receive queue.
pub struct Srq(pub(crate) Arc<SrqShared>);

/// The part of a shared receive queue that its queue pairs share.
pub(crate) struct SrqShared {
    domain: Arc<Domain>,
    srq: NonNull<ibv_srq>,
    slots: ReceiveSlots,
    /// The first free slot. Each free slot contains the index of the next free slot. The posting
    /// thread takes slots, and polling threads return them.
    free: AtomicU32,
    depth: AtomicUsize,
    posted: AtomicU64,
    taken: AtomicU64,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// The completion queues that hold receives of this queue and that no consumer polls. Each has
    /// room for the completions of all slots.
    unpolled: Mutex<Vec<Weak<cq::CqShared>>>,
}

struct ReceiveSlot {
    id: AtomicU64,
    /// Whether the device cannot access the buffer: see [`Domain::is_inaccessible`].
    inaccessible: AtomicBool,
    next: AtomicU32,
}

const NONE: u32 = u32::MAX;

/// A table of slots. It can grow while other threads use the existing slots. Each page has as many
/// slots as all pages before it.
struct ReceiveSlots {
    first: usize,
    pages: [OnceLock<Box<[ReceiveSlot]>>; 24],
}

impl ReceiveSlots {
    fn new(first: usize) -> ReceiveSlots {
        let slots = ReceiveSlots { first: first.max(1), pages: [const { OnceLock::new() }; 24] };
        slots.pages[0].get_or_init(|| ReceiveSlot::page(slots.first));
        slots
    }

    /// The number of slots in the first `pages` pages.
    fn len_with(&self, pages: usize) -> usize {
        if pages == 0 { 0 } else { self.first << (pages - 1) }
    }

    fn len(&self) -> usize {
        self.len_with(self.pages.iter().take_while(|page| page.get().is_some()).count())
    }

    /// Grows to at least `to` slots, if possible, and returns the range of the new slots.
    fn grow(&self, to: usize) -> Range<usize> {
        let before = self.len();
        for (n, page) in self.pages.iter().enumerate() {
            if self.len_with(n) >= to {
                break;
            }
            page.get_or_init(|| ReceiveSlot::page(self.len_with(n)));
        }
        before..self.len()
    }
}

impl Index<usize> for ReceiveSlots {
    type Output = ReceiveSlot;

    #[inline]
    fn index(&self, at: usize) -> &ReceiveSlot {
        let page = (at / self.first).checked_ilog2().map_or(0, |n| n as usize + 1);
        let start = if page == 0 { 0 } else { self.first << (page - 1) };
        &self.pages[page].get().expect("a slot is used only after its page was created")[at - start]
    }
}

impl ReceiveSlot {
    fn page(count: usize) -> Box<[ReceiveSlot]> {
        let slot = |_| ReceiveSlot {
            id: AtomicU64::new(0),
            inaccessible: AtomicBool::new(false),
            next: AtomicU32::new(NONE),
        };
        (0..count).map(slot).collect()
    }
}

// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Send for SrqShared {}
// SAFETY: several threads may call libibverbs with this object, because libibverbs locks what they
// share.
unsafe impl Sync for SrqShared {}

impl Srq {
    pub(crate) fn new(
        progress: &ProgressContext,
        pd: &Pd,
        depth: usize,
        max_segments: usize,
        sink: Sink<Adapter>,
    ) -> Result<Srq> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
        let mut attr = ibv_srq_init_attr::zeroed();
        attr.attr.max_wr = u32::try_from(depth).map_err(|_| full())?;
        attr.attr.max_sge = max_segments as u32;
        let verbs = &pd.0.device.core.verbs;
        // SAFETY: the domain is live.
        let srq = NonNull::new(unsafe { (verbs.ibv_create_srq)(pd.0.pd.as_ptr(), &mut attr) })
            .ok_or_else(full)?;
        let shared = Arc::new(SrqShared {
            domain: Arc::clone(&pd.0),
            srq,
            slots: ReceiveSlots::new((attr.attr.max_wr as usize).max(depth)),
            free: AtomicU32::new(NONE),
            depth: AtomicUsize::new(depth),
            posted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sink: Mutex::new(Some(sink)),
            unpolled: Mutex::default(),
        });
        (0..shared.slots.len()).rev().for_each(|slot| shared.free_slot(slot));
        progress.add_srq(&shared);
        Ok(Srq(shared))
    }

    /// The maximum number of outstanding buffers, until the queue grows.
    pub(crate) fn slots(&self) -> usize {
        self.0.slots.len()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        *self.0.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for SrqShared {
    fn drop(&mut self) {
        // SAFETY: no queue pair takes buffers from the queue any more.
        unsafe { (self.domain.device.core.verbs.ibv_destroy_srq)(self.srq.as_ptr()) };
    }
}

impl SrqShared {
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }

    /// Frees the slot of a buffer that a message has taken. Returns the ID of the receive, and
    /// whether the device could not access its buffer.
    pub(crate) fn take_buffer(&self, slot: usize) -> (u64, bool) {
        let ReceiveSlot { id, inaccessible, .. } = &self.slots[slot];
        let taken = (id.load(Ordering::Relaxed), inaccessible.load(Ordering::Relaxed));
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.free_slot(slot);
        taken
    }

    /// Adds a completion queue that no consumer polls and that has room for `room` slots. It grows
    /// now to the current number of slots, and later whenever that number grows.
    pub(crate) fn add_unpolled_cq(&self, queue: &Arc<cq::CqShared>, room: usize) -> Result<()> {
        let mut unpolled = self.unpolled();
        match self.slots.len() - room {
            0 => {}
            new => queue.grow(new)?,
        }
        unpolled.retain(|other| other.strong_count() > 0);
        unpolled.push(Arc::downgrade(queue));
        Ok(())
    }

    fn unpolled(&self) -> MutexGuard<'_, Vec<Weak<cq::CqShared>>> {
        self.unpolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a slot to the free list.
    fn free_slot(&self, slot: usize) {
        let slot_of = &self.slots[slot];
        let mut first = self.free.load(Ordering::Relaxed);
        loop {
            slot_of.next.store(first, Ordering::Relaxed);
            match self.free.compare_exchange_weak(
                first,
                slot as u32,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes a slot from the free list. Only the one posting thread takes slots. So the first slot
    /// cannot leave the list and return to it during this function (no ABA problem).
    fn allocate_slot(&self) -> Option<u32> {
        let mut first = self.free.load(Ordering::Acquire);
        while first != NONE {
            let next = self.slots[first as usize].next.load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(first, next, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(first),
                Err(now) => first = now,
            }
        }
        None
    }

    fn available(&self) -> usize {
        let taken = self.taken.load(Ordering::Acquire);
        self.posted.load(Ordering::Acquire).saturating_sub(taken) as usize
    }

    pub(crate) fn call(&self, up: Upcall<'_, Adapter>) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(up);
        }
    }

    /// Modifies the device's queue. Returns an errno, or 0.
    fn modify(&self, attr: &mut ibv_srq_attr, mask: ibv_srq_attr_mask) -> i32 {
        // SAFETY: the queue is live.
        unsafe { (self.domain.device.core.verbs.ibv_modify_srq)(self.srq.as_ptr(), attr, mask) }
    }
}

impl Receives for Srq {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        let _work = nesting::work();
        let shared = &*self.0;
        if shared.available() >= shared.depth.load(Ordering::Relaxed) {
            return Err(PostError::Full);
        }
        let slot = shared.allocate_slot().ok_or(PostError::Full)?;
        let ReceiveSlot { id, inaccessible, .. } = &shared.slots[slot as usize];
        id.store(wr.id, Ordering::Relaxed);
        inaccessible.store(shared.domain.is_inaccessible(wr.segments, true), Ordering::Relaxed);
        let mut work = work_request::receive(
            wr,
            u64::from(slot) | work_request::SHARED,
            shared.domain.device.kernel_driver,
        );
        let mut bad = ptr::null_mut();
        shared.posted.fetch_add(1, Ordering::Release);
        // SAFETY: the queue and the list of one receive are live. The caller keeps the memory of
        // the segments valid.
        let done = unsafe {
            shared.domain.device.core.verbs.ibv_post_srq_recv(
                shared.srq.as_ptr(),
                &mut work,
                &mut bad,
            )
        };
        if done != 0 {
            shared.take_buffer(slot as usize);
        }
        post_error(done)
    }

    fn set_low_watermark(&self, mark: usize) {
        if self.0.available() < mark {
            // The queue already has fewer buffers than the watermark. A device would report that
            // only when the next buffer is taken.
            return self.0.call(Upcall::LowWatermark);
        }
        let mut attr = ibv_srq_attr { srq_limit: mark as u32, ..ibv_srq_attr::zeroed() };
        self.0.modify(&mut attr, IBV_SRQ_LIMIT);
    }

    fn resize(&self, depth: usize) -> Result<()> {
        let shared = &*self.0;
        if depth < shared.available() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        // The device's queue is enlarged if necessary, which not every device supports. It never
        // shrinks.
        if depth > shared.slots.len() {
            let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
            let max_wr = u32::try_from(depth).map_err(|_| full())?;
            match shared
                .modify(&mut ibv_srq_attr { max_wr, ..ibv_srq_attr::zeroed() }, IBV_SRQ_MAX_WR)
            {
                0 => {}
                libc::EOPNOTSUPP | libc::ENOSYS => return Err(Error::of(DAT_MODEL_NOT_SUPPORTED)),
                _ => return Err(full()),
            }
            let unpolled = shared.unpolled();
            let new = shared.slots.grow(depth);
            let mut queues = unpolled.iter().filter_map(Weak::upgrade);
            let grown = queues.try_for_each(|queue| queue.grow(new.len()));
            drop(unpolled);
            new.for_each(|slot| shared.free_slot(slot));
            grown?;
            if depth > shared.slots.len() {
                return Err(full());
            }
        }
        self.0.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    fn available(&self) -> usize {
        self.0.available()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_in_place_when_the_queue_grows() {
        let slots = ReceiveSlots::new(5);
        assert_eq!((slots.len(), slots.grow(5)), (5, 5..5));
        for at in 0..5 {
            slots[at].id.store(at as u64, Ordering::Relaxed);
        }
        assert_eq!(slots.grow(6), 5..10);
        assert_eq!(slots.grow(21), 10..40);
        for at in 5..40 {
            slots[at].id.store(at as u64, Ordering::Relaxed);
        }
        let ids: Vec<_> = (0..40).map(|at| slots[at].id.load(Ordering::Relaxed)).collect();
        assert_eq!(ids, (0..40).collect::<Vec<_>>());
    }
}
