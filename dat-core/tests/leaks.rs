//! Checks that an adapter leaves no handle and no memory behind when it is closed. This test is
//! alone in its process, because it counts the handles and the memory of the process.

#[path = "table/client.rs"]
#[allow(dead_code)] // its other part is used in `table`
mod client;
#[path = "table/one_of_everything.rs"]
mod one_of_everything;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, with a count of the bytes in use.
struct Counting;

static ALLOCATED_BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: every call is passed to the system's allocator unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: every call is passed to the system's allocator unchanged.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn closed_adapters_leave_nothing() {
    for thread_safe in [false, true] {
        let (table, name) = client::mem(thread_safe);
        let handles = dat_core::handle::live_count();
        let mut bytes = 0;
        // After this number of rounds, the library reuses handles.
        let warm = 40;
        for round in 0..2 * warm {
            drop(one_of_everything::one_of_everything(table, &name));
            assert_eq!(dat_core::handle::live_count(), handles, "handles after round {round}");
            if round == warm {
                bytes = ALLOCATED_BYTES.load(Ordering::Relaxed);
            }
        }
        // The count may also fall, because the test harness has its own thread, which may free
        // memory during the test.
        let grown = ALLOCATED_BYTES.load(Ordering::Relaxed) - bytes;
        assert!(grown <= 0, "{grown} more bytes in use, from round {warm} on");
    }
}
