//! Shared receive queues.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dat_core::provider::{PostError, Receives, RecvWr, Sink, Upcall};
use dat_core::{Error, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_INVALID_STATE, DAT_RESOURCE_SRQ};
use rdma_core_sys::*;

use crate::Adapter;
use crate::mr::{Domain, Pd};
use crate::work::{self, post_error};

/// Shared receive queue.
pub struct Srq(pub(crate) Arc<Shared>);

/// What the queue pairs that draw from it keep.
pub(crate) struct Shared {
    domain: Arc<Domain>,
    srq: NonNull<ibv_srq>,
    slots: Box<[Slot]>,
    /// The first free slot, and so on; taken from by who posts, given back by who polls.
    free: AtomicU32,
    depth: AtomicUsize,
    posted: AtomicU64,
    taken: AtomicU64,
    sink: Mutex<Option<Sink<Adapter>>>,
}

struct Slot {
    id: AtomicU64,
    next: AtomicU32,
}

const NONE: u32 = u32::MAX;

// SAFETY: the library locks what threads share.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Srq {
    pub(crate) fn new(pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Adapter>) -> Result<Srq> {
        let full = || Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
        let mut attr = ibv_srq_init_attr::zeroed();
        attr.attr.max_wr = u32::try_from(depth).map_err(|_| full())?;
        attr.attr.max_sge = max_segments as u32;
        let verbs = &pd.0.device.core.verbs;
        // SAFETY: a live domain.
        let srq =
            NonNull::new(unsafe { (verbs.ibv_create_srq)(pd.0.pd.as_ptr(), &mut attr) }).ok_or_else(full)?;
        let slots = (attr.attr.max_wr as usize).max(depth) as u32;
        let slot = |n| Slot {
            id: AtomicU64::new(0),
            next: AtomicU32::new(if n + 1 < slots { n + 1 } else { NONE }),
        };
        Ok(Srq(Arc::new(Shared {
            domain: Arc::clone(&pd.0),
            srq,
            slots: (0..slots).map(slot).collect(),
            free: AtomicU32::new(0),
            depth: AtomicUsize::new(depth),
            posted: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sink: Mutex::new(Some(sink)),
        })))
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

    /// A message has taken the buffer of this slot: its id.
    pub(crate) fn took(&self, slot: usize) -> u64 {
        let slot_of = &self.slots[slot];
        let id = slot_of.id.load(Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        let mut first = self.free.load(Ordering::Relaxed);
        loop {
            slot_of.next.store(first, Ordering::Relaxed);
            match self.free.compare_exchange_weak(first, slot as u32, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return id,
                Err(now) => first = now,
            }
        }
    }

    /// The one thread that posts: so nothing that it sees first can go and come back.
    fn slot(&self) -> Option<u32> {
        let mut first = self.free.load(Ordering::Acquire);
        while first != NONE {
            let next = self.slots[first as usize].next.load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(first, next, Ordering::Acquire, Ordering::Acquire) {
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

    /// The device tells that its limit was reached.
    pub(crate) fn low(&self) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.call(Upcall::LowWatermark);
        }
    }

    fn modify(&self, attr: &mut ibv_srq_attr, mask: ibv_srq_attr_mask) -> bool {
        // SAFETY: live.
        unsafe { (self.domain.device.core.verbs.ibv_modify_srq)(self.srq.as_ptr(), attr, mask) == 0 }
    }
}

impl Receives for Srq {
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        let shared = &*self.0;
        if shared.available() >= shared.depth.load(Ordering::Relaxed) {
            return Err(PostError::Full);
        }
        let slot = shared.slot().ok_or(PostError::Full)?;
        shared.slots[slot as usize].id.store(wr.id, Ordering::Relaxed);
        let mut work = work::receive(wr, u64::from(slot) | work::SHARED);
        let mut bad = ptr::null_mut();
        shared.posted.fetch_add(1, Ordering::Release);
        // SAFETY: live, a list of one, its memory as the caller promised.
        let done = unsafe {
            shared.domain.device.core.verbs.ibv_post_srq_recv(shared.srq.as_ptr(), &mut work, &mut bad)
        };
        if done != 0 {
            shared.took(slot as usize);
        }
        post_error(done)
    }

    fn set_low_watermark(&self, mark: usize) {
        if self.0.available() < mark {
            // So few already; a device would tell only when the next one is taken.
            return self.0.low();
        }
        let mut attr = ibv_srq_attr { srq_limit: mark as u32, ..ibv_srq_attr::zeroed() };
        self.0.modify(&mut attr, IBV_SRQ_LIMIT);
    }

    fn resize(&self, depth: usize) -> Result<()> {
        if depth > self.0.slots.len() {
            return Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ));
        }
        if depth < self.0.available() {
            return Err(Error::of(DAT_INVALID_STATE));
        }
        self.0.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    fn available(&self) -> usize {
        self.0.available()
    }
}
