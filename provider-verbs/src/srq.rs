//! Shared receive queues.

use std::ops::{Index, Range};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use dat_core::provider::{PostError, Receives, RecvWr, Sink, Upcall};
use dat_core::{Error, Result, nesting};
use dat_sys::{
    DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_MODEL_NOT_SUPPORTED, DAT_RESOURCE_SRQ,
};
use rdma_core_sys::*;

use crate::Adapter;
use crate::cq;
use crate::mr::{Domain, Pd};
use crate::station::Station;
use crate::work::{self, post_error};

/// Shared receive queue.
pub struct Srq(pub(crate) Arc<Shared>);

/// What the queue pairs that draw from it keep.
pub(crate) struct Shared {
    domain: Arc<Domain>,
    srq: NonNull<ibv_srq>,
    slots: Slots,
    /// The first free slot, and so on; taken from by who posts, given back by who polls.
    free: AtomicU32,
    depth: AtomicUsize,
    posted: AtomicU64,
    taken: AtomicU64,
    sink: Mutex<Option<Sink<Adapter>>>,
    /// The queues of those who draw from it and have no consumer for that: each has room for all slots.
    unheard: Mutex<Vec<Weak<cq::Queue>>>,
}

struct Slot {
    id: AtomicU64,
    /// See [`Domain::is_unfit`].
    unfit: AtomicBool,
    next: AtomicU32,
}

const NONE: u32 = u32::MAX;

/// Slots that become more, while others use those that are there: each page has as many as all before it.
struct Slots {
    first: usize,
    pages: [OnceLock<Box<[Slot]>>; 24],
}

impl Slots {
    fn new(first: usize) -> Slots {
        let slots = Slots { first: first.max(1), pages: [const { OnceLock::new() }; 24] };
        slots.pages[0].get_or_init(|| Slot::row(slots.first));
        slots
    }

    /// How many there are with so many pages.
    fn with(&self, pages: usize) -> usize {
        if pages == 0 { 0 } else { self.first << (pages - 1) }
    }

    fn len(&self) -> usize {
        self.with(self.pages.iter().take_while(|page| page.get().is_some()).count())
    }

    /// Makes at least so many, if it can, and answers which are new.
    fn grow(&self, to: usize) -> Range<usize> {
        let before = self.len();
        for (n, page) in self.pages.iter().enumerate() {
            if self.with(n) >= to {
                break;
            }
            page.get_or_init(|| Slot::row(self.with(n)));
        }
        before..self.len()
    }
}

impl Index<usize> for Slots {
    type Output = Slot;

    #[inline]
    fn index(&self, at: usize) -> &Slot {
        let page = (at / self.first).checked_ilog2().map_or(0, |n| n as usize + 1);
        let start = if page == 0 { 0 } else { self.first << (page - 1) };
        &self.pages[page].get().expect("a slot that was given out")[at - start]
    }
}

impl Slot {
    fn row(count: usize) -> Box<[Slot]> {
        let slot = |_| Slot {
            id: AtomicU64::new(0),
            unfit: AtomicBool::new(false),
            next: AtomicU32::new(NONE),
        };
        (0..count).map(slot).collect()
    }
}

// SAFETY: the library locks what threads share.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Srq {
    pub(crate) fn new(
        station: &Station,
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
        // SAFETY: a live domain.
        let srq = NonNull::new(unsafe { (verbs.ibv_create_srq)(pd.0.pd.as_ptr(), &mut attr) })
            .ok_or_else(full)?;
        let shared = Arc::new(Shared {
            domain: Arc::clone(&pd.0),
            srq,
            slots: Slots::new((attr.attr.max_wr as usize).max(depth)),
            free: AtomicU32::new(NONE),
            depth: AtomicUsize::new(depth),
            posted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sink: Mutex::new(Some(sink)),
            unheard: Mutex::default(),
        });
        (0..shared.slots.len()).rev().for_each(|slot| shared.give(slot));
        station.add_srq(&shared);
        Ok(Srq(shared))
    }

    /// Buffers that are outstanding at most, until it grows.
    pub(crate) fn slots(&self) -> usize {
        self.0.slots.len()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        *self.0.sink.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: no queue pair draws from it any more.
        unsafe { (self.domain.device.core.verbs.ibv_destroy_srq)(self.srq.as_ptr()) };
    }
}

impl Shared {
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.srq.as_ptr()
    }

    /// A message has taken the buffer of this slot: its id, and whether it was unfit.
    pub(crate) fn took(&self, slot: usize) -> (u64, bool) {
        let Slot { id, unfit, .. } = &self.slots[slot];
        let taken = (id.load(Ordering::Relaxed), unfit.load(Ordering::Relaxed));
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.give(slot);
        taken
    }

    /// A queue with room for so many of the slots, which becomes longer with them.
    pub(crate) fn add_unheard(&self, queue: &Arc<cq::Queue>, room: usize) -> Result<()> {
        let mut unheard = self.unheard();
        match self.slots.len() - room {
            0 => {}
            new => queue.widen(new)?,
        }
        unheard.retain(|other| other.strong_count() > 0);
        unheard.push(Arc::downgrade(queue));
        Ok(())
    }

    fn unheard(&self) -> MutexGuard<'_, Vec<Weak<cq::Queue>>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot is free.
    fn give(&self, slot: usize) {
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

    /// The one thread that posts: so nothing that it sees first can go and come back.
    fn slot(&self) -> Option<u32> {
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

    /// An errno.
    fn modify(&self, attr: &mut ibv_srq_attr, mask: ibv_srq_attr_mask) -> i32 {
        // SAFETY: live.
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
        let slot = shared.slot().ok_or(PostError::Full)?;
        let Slot { id, unfit, .. } = &shared.slots[slot as usize];
        id.store(wr.id, Ordering::Relaxed);
        unfit.store(shared.domain.is_unfit(wr.segments, true), Ordering::Relaxed);
        let mut work =
            work::receive(wr, u64::from(slot) | work::SHARED, shared.domain.device.software);
        let mut bad = ptr::null_mut();
        shared.posted.fetch_add(1, Ordering::Release);
        // SAFETY: live, a list of one, its memory as the caller promised.
        let done = unsafe {
            shared.domain.device.core.verbs.ibv_post_srq_recv(
                shared.srq.as_ptr(),
                &mut work,
                &mut bad,
            )
        };
        if done != 0 {
            shared.took(slot as usize);
        }
        post_error(done)
    }

    fn set_low_watermark(&self, mark: usize) {
        if self.0.available() < mark {
            // So few already; a device would tell only when the next one is taken.
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
        // Not every device makes one larger; none need make one smaller.
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
            let unheard = shared.unheard();
            let new = shared.slots.grow(depth);
            let mut queues = unheard.iter().filter_map(Weak::upgrade);
            let widened = queues.try_for_each(|queue| queue.widen(new.len()));
            drop(unheard);
            new.for_each(|slot| shared.give(slot));
            widened?;
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
    fn slots_become_more_and_stay_where_they_are() {
        let slots = Slots::new(5);
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
