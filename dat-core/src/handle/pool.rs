//! Allocation of slots.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::{MAX_HANDLES, Slot};

/// The region of slots, and the data about which slots are free.
pub(super) struct Pool {
    base: *const Slot,
    bytes: usize,
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

// SAFETY: `base` is a region that is only accessed through atomics.
unsafe impl Send for Pool {}
// SAFETY: `base` is a region that is only accessed through atomics.
unsafe impl Sync for Pool {}

/// The flag MAP_NORESERVE, which Miri's mmap does not support.
const MAP_NORESERVE: i32 = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

static POOL: OnceLock<Pool> = OnceLock::new();

pub(super) fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        let bytes = MAX_HANDLES * size_of::<Slot>();
        // SAFETY: this is a fresh anonymous mapping. Pages take no memory until they are touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_NORESERVE,
                -1,
                0,
            )
        };
        // If there is no address space for the 64 MiB, the pool is empty, so each allocation of a
        // slot fails. An error cannot be returned here, because not even a function table exists
        // through which it could be returned.
        let (bytes, fresh) = if base == libc::MAP_FAILED { (0, MAX_HANDLES) } else { (bytes, 0) };
        #[cfg(not(miri))]
        // SAFETY: `forget_all` may be called in any child. The registration ends when the library
        // that contains the function is unloaded.
        unsafe {
            // If there is no memory for the registration, the handles of a parent stay live in its
            // children.
            libc::pthread_atfork(None, None, Some(forget_all));
        }
        let free = Mutex::new(Free { used: 0, oldest: 0, newest: 0 });
        let (fresh, live) = (AtomicUsize::new(fresh), AtomicUsize::new(0));
        Pool { base: base.cast_const().cast(), bytes, fresh, free, live }
    })
}

/// Makes all handles of the parent stale in a child of fork(2). The child has none of the threads
/// that drive an adapter, and it shares with its parent all resources below an adapter.
#[cfg(not(miri))]
unsafe extern "C" fn forget_all() {
    let Some(pool) = POOL.get().filter(|pool| pool.bytes != 0) else { return };
    for index in 0..pool.fresh.load(Ordering::Relaxed) {
        pool.slot(index as u32).lock.reset_in_child();
    }
}

/// Returns the slot of a handle, whether the handle is live or stale. Returns `None` if the word is
/// not a handle of this process.
#[inline]
pub fn slot(handle: *mut c_void) -> Option<&'static Slot> {
    let pool = POOL.get()?;
    let offset = (handle as usize).wrapping_sub(pool.base as usize);
    let ours = offset < pool.bytes && offset.is_multiple_of(size_of::<Slot>());
    // SAFETY: the address is inside the region, which is never unmapped, and zeroed pages are valid
    // slots.
    ours.then(|| unsafe { &*pool.base.byte_add(offset) })
}

impl Pool {
    pub(super) fn allocate(&self) -> Option<&'static Slot> {
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

    pub(super) fn release(&self, slot: &'static Slot) {
        let index =
            ((std::ptr::from_ref(slot) as usize - self.base as usize) / size_of::<Slot>()) as u32;
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

    fn slot(&self, index: u32) -> &'static Slot {
        debug_assert!((index as usize) < MAX_HANDLES);
        // SAFETY: `allocate` and `release` use only indexes below MAX_HANDLES, so the slot is
        // inside the region. Zeroed or once-used memory is a valid slot.
        unsafe { &*self.base.add(index as usize) }
    }
}
