//! Giving each of two processes a processor of its own.

use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

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

/// Processor time that this process has used, all of its threads.
pub(crate) fn time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // No clock of a process is before its beginning.
    Duration::new(spent.tv_sec.try_into().unwrap_or(0), spent.tv_nsec.try_into().unwrap_or(0))
}

/// Keeps this process on one processor: all of its threads, and those that they start from here on.
pub(crate) fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    for thread in std::fs::read_dir("/proc/self/task")? {
        let name = thread?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // One that has ended meanwhile is no matter.
        let _ = sched_setaffinity(thread, &set);
    }
    Ok(sched_setaffinity(None, &set)?)
}
