//! Tests of which thread makes progress: with targets that compute, with threads that block, and
//! with both at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::provider::{Provider, Queue, Region, SendOp, Transport, WcStatus};
use provider_mem::contract::rig::{EVENT_TIMEOUT, End, Rig, arm, pattern, poll};
use waiting::WakeReason;

use crate::{NAME, PROVIDER, Tested, WIRES};

fn open(params: &str) -> Tested {
    PROVIDER.open(NAME, params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

/// Waits for a receive to complete, like a consumer that blocks.
fn sleep_for_completion(end: &End<'_, Tested>) -> u64 {
    let wake = &end.recvs_log.wake;
    let deadline = Instant::now() + EVENT_TIMEOUT;
    loop {
        wake.reset();
        if let [wc] = poll::<Tested>(&end.recvs, 1)[..] {
            assert_eq!(wc.status, WcStatus::Success);
            return wc.id;
        }
        if arm::<Tested>(&end.recvs, false) {
            assert_ne!(
                end.t.sleep(wake, Some(deadline)),
                WakeReason::TimedOut,
                "no message arrived before the deadline"
            );
        }
    }
}

#[test]
fn sizes_up_to_16_mib_arrive() {
    const MAX: usize = 16 << 20;
    for params in WIRES {
        let (a, b) = (open(params), open(params));
        let rig = Rig { a: &a, b: &b };
        let (a, b) = (End::with(&a, 8, MAX), End::with(&b, 8, MAX));
        rig.join(&a, &b);
        for len in [1, 5, 64, 4096, 65536, 1 << 20, MAX - 3, MAX] {
            let there = pattern(len as u64, len);
            a.mem.write(0, &there);
            b.recv(1, &[b.mem.segment(0, MAX)]);
            a.send(2, &[a.mem.segment(0, len)]);
            assert_eq!(rig.completions(&b.recvs, 1)[0].bytes as usize, len);
            assert!(b.mem.read(0, len) == there, "send of {len} bytes");
            let back = pattern(len as u64 + 1, len);
            b.mem.write(0, &back);
            a.post(3, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(0, len)]);
            let done = rig.completions(&a.requests, 2);
            assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
            assert!(a.mem.read(0, len) == back, "read of {len} bytes");
            // The read follows the write on the same connection, so its completion proves that the
            // write has arrived.
            a.mem.write(0, &there);
            a.post(4, SendOp::Write(b.mem.remote(0)), &[a.mem.segment(0, len)]);
            a.post(5, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(0, 1)]);
            rig.completions(&a.requests, 2);
            assert!(b.mem.read(0, len) == there, "write of {len} bytes");
        }
    }
}

/// No consumer calls into the target's adapter, so its progress thread must serve reads and writes.
/// The transfers are so large that a thread which checks the sockets only from time to time would
/// not finish before the deadline.
#[test]
fn a_target_that_computes_serves_one_sided_operations() {
    const LEN: usize = 1 << 20;
    const ROUNDS: u64 = 100;
    for blocking in [false, true] {
        let (ta, tb) = (open("127.0.0.1"), open("127.0.0.1"));
        let (a, b) = (End::with(&ta, 8, 2 * LEN), End::with(&tb, 8, LEN));
        Rig { a: &ta, b: &tb }.join(&a, &b);
        // From here on, the target computes and does not call into its adapter.
        let start = Instant::now();
        for round in 0..ROUNDS {
            let bytes = pattern(round, LEN);
            a.mem.write(0, &bytes);
            a.post(1, SendOp::Write(b.mem.remote(0)), &[a.mem.segment(0, LEN)]);
            a.post(2, SendOp::Read(b.mem.remote(0)), &[a.mem.segment(LEN, LEN)]);
            let mut done = Vec::new();
            while done.len() < 2 {
                assert!(
                    start.elapsed() < EVENT_TIMEOUT,
                    "the target has served {round} rounds in {EVENT_TIMEOUT:?}"
                );
                let wake = &a.requests_log.wake;
                wake.reset();
                done.extend(poll::<Tested>(&a.requests, 2));
                if !blocking {
                    ta.progress();
                } else if done.len() < 2 && arm::<Tested>(&a.requests, false) {
                    ta.sleep(wake, Some(start + EVENT_TIMEOUT));
                }
            }
            assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
            assert!(a.mem.read(LEN, LEN) == bytes, "round {round}");
        }
    }
}

/// A request that was posted behind another request is sent even if the consumer makes no further
/// calls.
#[test]
fn a_deferred_request_leaves_by_itself() {
    let (ta, tb) = (open("127.0.0.1"), open("127.0.0.1"));
    let (a, b) = (End::new(&ta), End::new(&tb));
    let rig = Rig { a: &ta, b: &tb };
    rig.join(&a, &b);
    let only_target = Rig { a: &tb, b: &tb };
    for round in 0..100 {
        for i in 0..3 {
            b.recv(i, &[]);
        }
        for i in 0..3 {
            a.send(i, &[]);
        }
        only_target.completions(&b.recvs, 3);
        // The pause changes the point in the progress thread's tick at which the next round begins.
        if round % 10 == 0 {
            rig.completions(&a.requests, 3 * if round == 0 { 1 } else { 10 });
        }
    }
}

#[test]
fn many_threads_block_and_all_are_woken() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 300;
    for params in ["127.0.0.1", "127.0.0.1 spin=0"] {
        let (ta, tb) = (open(params), open(params));
        let rig = Rig { a: &ta, b: &tb };
        let pairs: Vec<_> = (0..THREADS).map(|_| rig.pair()).collect();
        std::thread::scope(|s| {
            for (a, b) in &pairs {
                a.recv(0, &[]);
                b.recv(0, &[]);
                let echo = |end: &End<'_, Tested>, first: bool| {
                    for i in 1..=ROUNDS {
                        if first {
                            end.send(i, &[]);
                        }
                        assert_eq!(sleep_for_completion(end), i - 1);
                        end.recv(i, &[]);
                        if !first {
                            end.send(i, &[]);
                        }
                        poll::<Tested>(&end.requests, 64);
                    }
                };
                s.spawn(move || echo(a, true));
                s.spawn(move || echo(b, false));
            }
        });
    }
}

#[test]
fn a_poller_and_a_sleeper_share_an_adapter() {
    let (ta, tb) = (open("127.0.0.1"), open("127.0.0.1"));
    let rig = Rig { a: &ta, b: &tb };
    let ((a1, b1), (a2, b2)) = (rig.pair(), rig.pair());
    let done = AtomicBool::new(false);
    for end in [&a1, &b1, &a2, &b2] {
        end.recv(0, &[]);
    }
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 1..=500 {
                a1.send(i, &[]);
                assert_eq!(sleep_for_completion(&a1), i - 1);
                a1.recv(i, &[]);
                rig.completions(&a1.requests, 1);
            }
            done.store(true, Ordering::Relaxed);
        });
        s.spawn(|| {
            for i in 1..=500 {
                assert_eq!(sleep_for_completion(&b1), i - 1);
                b1.recv(i, &[]);
                b1.send(i, &[]);
                rig.completions(&b1.requests, 1);
            }
        });
        // While the two other threads block, this thread polls both adapters without a pause.
        let mut i = 0;
        while !done.load(Ordering::Relaxed) {
            a2.send(i, &[]);
            rig.completions(&b2.recvs, 1);
            i += 1;
            b2.recv(i, &[]);
            // With some wire protocols a send completes only when the peer has acknowledged the
            // message.
            rig.completions(&a2.requests, 1);
        }
    });
}

#[test]
fn a_short_deadline_is_kept() {
    let t = open("127.0.0.1 spin=0");
    let rig = Rig { a: &t, b: &t };
    let (a, _b) = rig.pair();
    let wake = &a.recvs_log.wake;
    for us in [200, 2_000, 30_000] {
        let limit = Duration::from_micros(us);
        let start = Instant::now();
        loop {
            wake.reset();
            assert!(arm::<Tested>(&a.recvs, false));
            // A sleep may also end without a reason.
            match t.sleep(wake, Some(start + limit)) {
                WakeReason::Woken => {}
                reason => break assert_eq!(reason, WakeReason::TimedOut),
            }
        }
        assert!(start.elapsed() >= limit);
    }
}

#[test]
fn an_interrupt_ends_a_sleep() {
    let t = open("127.0.0.1");
    let rig = Rig { a: &t, b: &t };
    let (a, b) = rig.pair();
    b.recv(0, &[]);
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| sleep_for_completion(&b));
        // Another thread signals without an event, as dat_evd_set_unwaitable does. The sleeping
        // thread wakes, checks its condition and sleeps again.
        for _ in 0..200 {
            if b.recvs_log.wake.signal() {
                t.interrupt();
            }
            std::thread::yield_now();
        }
        assert!(!sleeper.is_finished());
        a.send(0, &[]);
        assert_eq!(sleeper.join().expect("the sleeper"), 0);
    });
}

/// A peer writes to a region while the consumer drops it. After `drop` has returned, the adapter
/// must not write to the memory.
#[test]
fn memory_is_left_alone_once_its_region_is_dropped() {
    const LEN: usize = 256 << 10;
    let (ta, tb) = (open("127.0.0.1"), open("127.0.0.1"));
    let rig = Rig { a: &ta, b: &tb };
    for round in 0..20 {
        let (a, b) = (End::with(&ta, 64, LEN), End::with(&tb, 64, 64));
        rig.join(&a, &b);
        let mut memory = vec![0u8; LEN];
        let mem =
            dat_core::provider::Mem { addr: memory.as_mut_ptr(), len: LEN, zero_based: false };
        let access = provider_mem::contract::rig::ALL;
        // SAFETY: the region is dropped before the memory.
        let mr = unsafe { tb.mr(&b.pd, mem, access) }.expect("region");
        let to = dat_core::provider::Remote { addr: mem.addr as u64, key: mr.rkey() };
        a.mem.write(0, &vec![0xAA; LEN]);
        for i in 0..32 {
            a.post(i, SendOp::Write(to), &[a.mem.segment(0, LEN)]);
        }
        // The peers' writes are in progress at this time.
        for _ in 0..round * 3 {
            ta.progress();
            tb.progress();
        }
        drop(mr);
        let before = memory.clone();
        a.post(32, SendOp::Write(to), &[a.mem.segment(0, LEN)]);
        let end = rig.next("the end", &b.log);
        assert_eq!(format!("{end:?}"), "Broken");
        assert!(memory == before, "the region was written to after it was dropped");
        a.qp.disconnect(dat_core::provider::Close::Abrupt);
    }
}
