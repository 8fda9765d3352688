//! A fence in every thread of the process, made by one of them.
//!
//! Two threads that each write a flag and then read the other's need a fence between the two, so that one of them sees
//! the other. Where one of the threads is on the data path and the other does something rare, the rare one makes both
//! fences: membarrier(2) of Linux 4.14 runs one on every processor where this process is. The other thread only keeps
//! the compiler from changing the order (`compiler_fence`).

use std::sync::atomic::{Ordering, fence};

/// Announces to the kernel that this process will use [`everywhere`]. False: it cannot.
pub fn prepare() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// What other threads of this process have done before is seen by this one, and the other way round. False: there is no
/// such call here, and this was a fence of this thread alone.
#[must_use]
pub fn everywhere() -> bool {
    fence(Ordering::SeqCst);
    // Miri knows no such call; its threads are told apart by the fence alone.
    if cfg!(miri) {
        return true;
    }
    // An unprepared process is refused, and then is.
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || (prepare() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
