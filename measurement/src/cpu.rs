//! Assigns a processor to each of two processes.

use std::time::Duration;

use anyhow::{Result, bail};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::units;

/// Returns the processors that this process may use.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Returns two processors, the first for the client and the second for the server, or `None` if
/// there is only one.
pub fn two_processors() -> Option<[usize; 2]> {
    match allowed()[..] {
        [first, second, ..] => Some([first, second]),
        _ => None,
    }
}

/// Returns the processors of client and server that `--cpus` names. Without the option, returns two
/// different processors if the host has two. For a server on another host, returns `None`, because
/// that host chooses the processor.
pub fn assign(cpus: &[usize], server_is_here: bool) -> Result<[Option<usize>; 2]> {
    let allowed = allowed();
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        bail!(
            "this process may not run on processor {cpu}; it may run on {}",
            units::ranges(&allowed)
        );
    }
    match (cpus, server_is_here) {
        ([], true) => Ok(two_processors().map_or([None; 2], |two| two.map(Some))),
        ([], false) => Ok([None; 2]),
        ([client, server], true) => Ok([Some(*client), Some(*server)]),
        ([client], false) => Ok([Some(*client), None]),
        (_, true) => {
            bail!("--cpus takes two processors, client and server, as in --cpus 0,1")
        }
        (_, false) => {
            bail!("with a server on another host, --cpus takes one processor, that of the client")
        }
    }
}

/// Returns whether both processes may poll without taking processor time from each other.
pub fn may_poll(processors: [Option<usize>; 2]) -> bool {
    match processors {
        [Some(client), Some(server)] => client != server,
        _ => two_processors().is_some(),
    }
}

/// Returns the processor time of all threads of this process.
pub fn time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // The clock of a process starts at zero, so it is never negative.
    Duration::new(spent.tv_sec.try_into().unwrap_or(0), spent.tv_nsec.try_into().unwrap_or(0))
}

/// Pins the calling thread to one processor.
pub fn pin_thread(cpu: usize) -> std::io::Result<()> {
    Ok(sched_setaffinity(None, &only(cpu))?)
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Pins this process to one processor: all of its threads, and those that they start later.
pub fn pin(cpu: usize) -> std::io::Result<()> {
    let set = only(cpu);
    for thread in std::fs::read_dir("/proc/self/task")? {
        let name = thread?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // If a thread has ended since the directory was read, the call fails, which does not
        // matter.
        let _ = sched_setaffinity(thread, &set);
    }
    pin_thread(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_chosen_for_the_processes_of_this_host() {
        let first = allowed()[0];
        assert_eq!(assign(&[first, first], true).expect("both processors exist"), [Some(first); 2]);
        assert_eq!(assign(&[first], false).expect("the processor exists"), [Some(first), None]);
        assert_eq!(assign(&[], false).expect("an empty choice is valid"), [None; 2]);
        assert!(!may_poll([Some(first); 2]) && may_poll([Some(0), Some(1)]));
        let why = |cpus: &[usize], here| {
            assign(cpus, here).expect_err("the processors must be refused").to_string()
        };
        assert!(
            why(&[100_000], true)
                .starts_with("this process may not run on processor 100000; it may run on ")
        );
        assert!(why(&[first], true).ends_with("as in --cpus 0,1"));
        assert!(why(&[first, first], false).ends_with("that of the client"));
    }
}
