//! A fence in every thread of the process, made by one of them.
//!
//! Two threads that each write a flag and then read the other's flag need a fence between the two
//! steps, so that one of them sees the other. If one of the threads is on the data path and the
//! other does something rare, the rare one executes both fences: membarrier(2) of Linux 4.14
//! executes one on every processor where this process runs. The other thread only keeps the
//! compiler from changing the order (`compiler_fence`).

use std::sync::atomic::{Ordering, fence};

/// Announces to the kernel that this process will use [`fence_all_threads`]. Returns false if the
/// kernel does not support it.
pub fn prepare() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Orders the memory accesses of this thread and of all other threads of this process: what each of
/// them did before the call is visible to the others after it. Returns false if the kernel does not
/// support the call. Then only this thread has executed a fence.
#[must_use]
pub fn fence_all_threads() -> bool {
    fence(Ordering::SeqCst);
    // Miri does not support membarrier(2). In its scheduler the fence of this thread is enough.
    if cfg!(miri) {
        return true;
    }
    // The kernel refuses the call in a process that has not registered for it. Register and try
    // again.
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || (prepare() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier(2) reads and writes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
