//! Nothing is left of what was closed: no handle and no memory. Alone in its process, because both are counted.

#[path = "table/client.rs"]
#[allow(dead_code)] // its other part is used in `table`
mod client;
#[path = "table/crowd.rs"]
mod crowd;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, counting bytes in use.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn closed_adapters_leave_nothing() {
    for thread_safe in [false, true] {
        let (table, name) = client::loopback(thread_safe);
        let handles = dat_core::handle::count();
        let mut bytes = 0;
        // Until the pool of handles has grown as far as it does before it reuses them.
        let warm = 40;
        for round in 0..2 * warm {
            drop(crowd::crowd(table, &name));
            assert_eq!(dat_core::handle::count(), handles, "handles after round {round}");
            if round == warm {
                bytes = BYTES.load(Ordering::Relaxed);
            }
        }
        // The test harness has a thread of its own, which may free what it had.
        let grown = BYTES.load(Ordering::Relaxed) - bytes;
        assert!(grown <= 0, "{grown} more bytes in use, from round {warm} on");
    }
}
