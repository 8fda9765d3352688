//! The connections of an adapter leave nothing behind, whatever its transport. The test runs alone
//! in its process, since it counts the resources of the whole process. A provider includes this
//! file in a test of its own (`#[path]`), which defines `PROVIDER`, its `NAME`, its `PARAMS`, and
//! `FDS`, the number of descriptors of two open adapters that have had connections with each other.

use std::time::{Duration, Instant};

use dat_core::provider::{Close, Provider, Queue, Transport};
use provider_loopback::contract::rig::{End, PATIENCE, Rig};

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

/// The octets that malloc has handed out, in all its arenas.
fn bytes_in_use() -> usize {
    // SAFETY: the function takes no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Less than a thousand connections would leave if each left one object.
const TOLERANCE_BYTES: usize = 32 << 10;

/// How long an ended connection may be remembered. Tables grow for that, and the next thousand uses
/// them again.
const FORGET_TIME: Duration = Duration::from_secs(4);
const MAX_THOUSANDS: usize = 5;

#[test]
fn a_thousand_connections_leave_nothing_behind() {
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
            // Each connection is ended by either side, abruptly or gracefully, or by freeing the
            // endpoint.
            match i % 4 {
                0 => a.qp.disconnect(Close::Graceful),
                1 => b.qp.disconnect(Close::Abrupt),
                2 => drop(a),
                _ => drop(b),
            }
        };
        (0..100).for_each(cycle);
        // The last connections may wait for their peers to close.
        let settled = |what: &str, wanted: &Footprint| {
            rig.until(what, || (footprint() == *wanted).then_some(()));
        };
        let open_adapters = Footprint { fds: at_first.fds + FDS, threads: at_first.threads + 2 };
        settled("the first connections to close", &open_adapters);
        let mut before = bytes_in_use();
        let takes_nothing = |_| {
            (0..1000).for_each(cycle);
            settled("all connections to close", &open_adapters);
            let (since, goal) = (Instant::now(), before + TOLERANCE_BYTES);
            while bytes_in_use() > goal && since.elapsed() < FORGET_TIME {
                ta.progress();
                tb.progress();
            }
            let now = bytes_in_use();
            println!("{before} octets are in use, then {now}");
            before = now;
            now <= goal
        };
        assert!((0..MAX_THOUSANDS).any(takes_nothing), "each thousand leaves something behind");
    }
    // Pollers, wakers and threads end with their adapters. The kernel lists a thread for a moment
    // after it was joined.
    let since = Instant::now();
    while footprint() != at_first && since.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    assert_eq!(footprint(), at_first, "both adapters were closed {PATIENCE:?} ago");
}
