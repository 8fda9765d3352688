//! Giving each of two processes a processor of its own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this process may use.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Two processors, the first for the client and the second for the server; none where there is but one.
pub(crate) fn two() -> Option<[usize; 2]> {
    match allowed()[..] {
        [first, second, ..] => Some([first, second]),
        _ => None,
    }
}

/// Keeps this thread, and those that it starts from here on, on one processor.
pub(crate) fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
