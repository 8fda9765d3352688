//! Allocation of slots.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use super::{HandleSlot, MAX_HANDLES};

/// The region of slots, and the data about which slots are free.
pub(super) struct Pool {
    /// The address of the region.
    base: AtomicPtr<HandleSlot>,
    /// The number of slots in the region. Before the region exists, this number is 0.
    slots: AtomicUsize,
    map_region: Once,
    /// The index of the first slot that was never used. All later slots were never used either.
    /// This field changes only under the lock of `free`.
    fresh: AtomicUsize,
    free: Mutex<Free>,
    pub(super) live: AtomicUsize,
}

struct Free {
    /// The number of released slots that are free now. `oldest` and `newest` are the indexes of the
    /// first and the last of them in the order of release.
    used: usize,
    oldest: u32,
    newest: u32,
}

/// The minimum number of free slots. A released slot is reused only if there are more free slots.
/// So a stale handle stays stale until at least this many more handles were freed. The slots that
/// are kept free occupy 4 MiB together.
pub(super) const MIN_FREE_SLOTS: usize = 1 << 16;

/// The flag MAP_NORESERVE, which Miri's mmap does not support.
const MAP_NORESERVE: i32 = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

static POOL: Pool = Pool {
    base: AtomicPtr::new(null_mut()),
    slots: AtomicUsize::new(0),
    map_region: Once::new(),
    fresh: AtomicUsize::new(0),
    free: Mutex::new(Free { used: 0, oldest: 0, newest: 0 }),
    live: AtomicUsize::new(0),
};

pub(super) fn pool() -> &'static Pool {
    POOL.map_region.call_once(|| {
        // SAFETY: this is a fresh anonymous mapping. Pages take no memory until they are touched.
        let base = unsafe {
            libc::mmap(
                null_mut(),
                MAX_HANDLES * size_of::<HandleSlot>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_NORESERVE,
                -1,
                0,
            )
        };
        // If there is no address space for the 64 MiB, the pool is empty, so each allocation of a
        // slot fails. An error cannot be returned here, because not even a function table exists
        // through which it could be returned.
        if base == libc::MAP_FAILED {
            POOL.fresh.store(MAX_HANDLES, Ordering::Relaxed);
        } else {
            POOL.base.store(base.cast(), Ordering::Relaxed);
            POOL.slots.store(MAX_HANDLES, Ordering::Release);
        }
        #[cfg(not(miri))]
        // SAFETY: `forget_all` may be called in any child. The registration ends when the library
        // that contains the function is unloaded.
        unsafe {
            // If there is no memory for the registration, the handles of a parent stay live in its
            // children.
            libc::pthread_atfork(None, None, Some(forget_all));
        }
    });
    &POOL
}

/// Makes all handles of the parent stale in a child of fork(2). The child has none of the threads
/// that drive an adapter, and it shares with its parent all resources below an adapter.
#[cfg(not(miri))]
unsafe extern "C" fn forget_all() {
    if POOL.slots.load(Ordering::Acquire) == 0 {
        return;
    }
    for index in 0..POOL.fresh.load(Ordering::Relaxed) {
        POOL.slot(index as u32).lock.reset_in_child();
    }
}

/// Returns the slot of a handle, whether the handle is live or stale. Returns `None` if the word is
/// not a handle of this process.
#[inline]
pub fn slot(handle: *mut c_void) -> Option<&'static HandleSlot> {
    const { assert!(size_of::<HandleSlot>().is_power_of_two()) };
    let slots = POOL.slots.load(Ordering::Acquire);
    let base = POOL.base.load(Ordering::Relaxed);
    let offset = handle.addr().wrapping_sub(base.addr());
    // If the offset is a multiple of the size of a slot, the rotation divides it by that size. If
    // it is not, the rotation moves a bit that is 1 to the upper end, so the result is too large.
    let index = offset.rotate_right(size_of::<HandleSlot>().ilog2());
    // SAFETY: the address is inside the region, which is never unmapped, and zeroed pages are valid
    // slots.
    (index < slots).then(|| unsafe { &*base.byte_add(offset) })
}

impl Pool {
    pub(super) fn allocate(&self) -> Option<&'static HandleSlot> {
        let mut free = self.free();
        let fresh = self.fresh.load(Ordering::Relaxed);
        let index = if free.used > MIN_FREE_SLOTS || (fresh == MAX_HANDLES && free.used != 0) {
            let index = free.oldest;
            free.oldest = self.slot(index).next.load(Ordering::Relaxed);
            free.used -= 1;
            index
        } else if fresh < MAX_HANDLES {
            self.fresh.store(fresh + 1, Ordering::Relaxed);
            fresh as u32
        } else {
            return None;
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(self.slot(index))
    }

    pub(super) fn release(&self, slot: &'static HandleSlot) {
        let base = self.base.load(Ordering::Relaxed).addr();
        let index = ((std::ptr::from_ref(slot).addr() - base) / size_of::<HandleSlot>()) as u32;
        let mut free = self.free();
        match free.used {
            0 => free.oldest = index,
            _ => self.slot(free.newest).next.store(index, Ordering::Relaxed),
        }
        free.newest = index;
        free.used += 1;
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, index: u32) -> &'static HandleSlot {
        debug_assert!((index as usize) < MAX_HANDLES);
        // SAFETY: `allocate` and `release` use only indexes below MAX_HANDLES, so the slot is
        // inside the region. Zeroed or once-used memory is a valid slot.
        unsafe { &*self.base.load(Ordering::Relaxed).add(index as usize) }
    }
}
