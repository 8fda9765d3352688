//! What connections of an adapter leave behind: nothing, whatever its wire. Alone in its process, since it counts what the whole
//! process has: a provider includes it in a test of its own (`#[path]`), which says `PROVIDER`, its `NAME`, its `PARAMS`, and
//! `FDS`, the descriptors that two open adapters have which have had connections with each other.

use std::time::{Duration, Instant};

use dat_core::mem_transport::contract::rig::{End, Rig};
use dat_core::provider::{Close, Provider, Queue};

use super::{FDS, NAME, PARAMS, PROVIDER};

#[derive(Debug, PartialEq)]
struct Footprint {
    fds: usize,
    threads: usize,
}

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("procfs").count()
}

fn footprint() -> Footprint {
    Footprint { fds: count("/proc/self/fd"), threads: count("/proc/self/task") }
}

fn mapped_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').next().and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    // Else each thread maps 64 MiB for itself when it first allocates, which may be at any moment.
    // SAFETY: no memory is involved, and this is the only test.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    let at_first = footprint();
    {
        let open = || PROVIDER.open(NAME, PARAMS).expect("adapter");
        let (ta, tb) = (open(), open());
        let rig = Rig { a: &ta, b: &tb };
        let cycle = |i: usize| {
            let (a, b) = (End::with(&ta, 8, 4096), End::with(&tb, 8, 4096));
            rig.join(&a, &b);
            b.recv(0, &[b.mem.segment(0, 64)]);
            a.send(0, &[a.mem.segment(0, 64)]);
            rig.completions(&b.recvs, 1);
            // Either side, in any manner, or just by freeing the endpoint.
            match i % 4 {
                0 => a.qp.disconnect(Close::Graceful),
                1 => b.qp.disconnect(Close::Abrupt),
                2 => drop(a),
                _ => drop(b),
            }
        };
        (0..100).for_each(cycle);
        // The last ones may wait for their peers to close.
        let settled = |what: &str, wanted: &Footprint| {
            rig.until(what, || (footprint() == *wanted).then_some(()));
        };
        let open_adapters = Footprint { fds: at_first.fds + FDS, threads: at_first.threads + 2 };
        settled("the first connections to close", &open_adapters);
        let mapped = mapped_bytes();
        (0..1000).for_each(cycle);
        settled("all connections to close", &open_adapters);
        let grown = mapped_bytes().saturating_sub(mapped);
        assert!(grown <= 1 << 20, "{grown} bytes more are mapped");
    }
    // Pollers, wakers and threads go with their adapters; a thread that was waited for is listed a moment longer.
    let since = Instant::now();
    while footprint() != at_first && since.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert_eq!(footprint(), at_first);
}
