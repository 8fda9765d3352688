//! Giving each of two processes a processor of its own.

use std::time::Duration;

use anyhow::{Result, bail};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::units;

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

/// The processors of client and server as `--cpus` names them; without it, two that are different where there are two. The server may
/// be on another host, whose processors are not ours to choose.
pub(crate) fn chosen(cpus: &[usize], server_is_here: bool) -> Result<[Option<usize>; 2]> {
    let allowed = allowed();
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        bail!("this process may not run on processor {cpu}; it may on {}", units::ranges(&allowed));
    }
    match (cpus, server_is_here) {
        ([], true) => Ok(two().map_or([None; 2], |two| two.map(Some))),
        ([], false) => Ok([None; 2]),
        ([client, server], true) => Ok([Some(*client), Some(*server)]),
        ([client], false) => Ok([Some(*client), None]),
        (_, true) => {
            bail!("--cpus takes two processors, of the client and of the server, as in --cpus 0,1")
        }
        (_, false) => {
            bail!("with a server on another host, --cpus takes one processor, of the client here")
        }
    }
}

/// Whether two processes there may poll, each without keeping the other from working.
pub(crate) fn may_poll(processors: [Option<usize>; 2]) -> bool {
    match processors {
        [Some(client), Some(server)] => client != server,
        _ => two().is_some(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_chosen_for_the_processes_of_this_host() {
        let first = allowed()[0];
        assert_eq!(chosen(&[first, first], true).expect("both are there"), [Some(first); 2]);
        assert_eq!(chosen(&[first], false).expect("it is there"), [Some(first), None]);
        assert_eq!(chosen(&[], false).expect("nothing is chosen"), [None; 2]);
        assert!(!may_poll([Some(first); 2]) && may_poll([Some(0), Some(1)]));
        let why = |cpus: &[usize], here| chosen(cpus, here).expect_err("no choice").to_string();
        assert!(
            why(&[100_000], true)
                .starts_with("this process may not run on processor 100000; it may on ")
        );
        assert!(why(&[first], true).ends_with("as in --cpus 0,1"));
        assert!(why(&[first, first], false).ends_with("of the client here"));
    }
}
