//! A memory fence in every thread of the process, which one thread executes for all.
//!
//! Suppose that two threads each write a flag of their own and then read the flag of the other
//! thread. Each thread needs a fence between these two steps, or both threads may miss the other's
//! flag. If the first thread is on the data path and the second thread rarely takes these steps,
//! the second thread executes the fence for both: membarrier(2) of Linux 4.14 executes a fence on
//! every processor where this process runs. The first thread then only keeps the compiler from
//! changing the order of its steps (`compiler_fence`).

use std::sync::atomic::{Ordering, fence};

/// Announces to the kernel that this process will use [`fence_all_threads`]. Returns false if the
/// kernel does not support it.
pub fn prepare() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Executes a fence in this thread and in all other threads of this process: memory accesses that
/// any thread makes before this call are visible to every thread after it. Returns false if the
/// kernel does not support the call. In that case only the calling thread has executed a fence.
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
