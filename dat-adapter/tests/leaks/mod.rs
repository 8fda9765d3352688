//! Checks that the connections of an adapter leak no memory, descriptors or threads, whatever the
//! wire protocol is. The test counts resources of the whole process, so it must be alone in its
//! process. A provider includes it in a test of its own (`#[path]`), which defines `PROVIDER`, its
//! `NAME`, its `PARAMS`, and `FDS`: the number of descriptors of two open adapters that have had
//! connections with each other.

mod usage;

use std::time::{Duration, Instant};

use dat_core::provider::{Close, Provider, Queue, Transport};
use provider_mem::contract::rig::{EVENT_TIMEOUT, End, Rig};

use self::usage::{Footprint, bytes_in_use, footprint};
use super::{FDS, NAME, PARAMS, PROVIDER};

/// If each of a thousand connections leaked one small object, the process would use more additional
/// memory than this.
const LEAK_THRESHOLD_BYTES: usize = 32 << 10;

/// The maximum time for which an adapter remembers ended connections. When it forgets them, the
/// next thousand connections reuse their memory.
const CLEANUP_TIME: Duration = Duration::from_secs(4);
const THOUSANDS: usize = 5;

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
            // Either side ends the connection in one of the possible ways, or just drops the
            // endpoint.
            match i % 4 {
                0 => a.qp.disconnect(Close::Graceful),
                1 => b.qp.disconnect(Close::Abrupt),
                2 => drop(a),
                _ => drop(b),
            }
        };
        (0..100).for_each(cycle);
        // The last connections may still wait for their peers to close.
        let settled = |what: &str, wanted: &Footprint| {
            rig.until(what, || (footprint() == *wanted).then_some(()));
        };
        let open_adapters = Footprint { fds: at_first.fds + FDS, threads: at_first.threads + 2 };
        settled("the first connections to close", &open_adapters);
        let mut before = bytes_in_use();
        let leaks_nothing = |_| {
            (0..1000).for_each(cycle);
            settled("all connections to close", &open_adapters);
            let (since, goal) = (Instant::now(), before + LEAK_THRESHOLD_BYTES);
            while bytes_in_use() > goal && since.elapsed() < CLEANUP_TIME {
                ta.progress();
                tb.progress();
            }
            let now = bytes_in_use();
            println!("{before} bytes are in use, then {now}");
            before = now;
            now <= goal
        };
        assert!((0..THOUSANDS).any(leaks_nothing), "each thousand connections leaked memory");
    }
    // Pollers, wakers and threads end with their adapters. A joined thread stays listed for a
    // moment.
    let since = Instant::now();
    while footprint() != at_first && since.elapsed() < EVENT_TIMEOUT {
        std::thread::yield_now();
    }
    assert_eq!(footprint(), at_first, "both adapters were closed {EVENT_TIMEOUT:?} ago");
}
