//! Tests that work which is posted after the end of a connection is flushed by the post itself.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use dat_core::provider::*;
use provider_mem::contract::rig::{self, End, Rig, Service, poll};

use crate::{PROVIDER, Tested};

/// A receiver whose upcalls, which are made under the engine lock, last until it is released.
#[derive(Default)]
struct Busy {
    has_begun: AtomicBool,
    is_released: AtomicBool,
}

impl Receiver<Tested> for Busy {
    fn upcall(&self, _: Upcall<'_, Tested>) {
        self.has_begun.store(true, Ordering::Release);
        while !self.is_released.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

/// Whether the kernel reports a thread of this process as sleeping.
fn is_sleeping(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

/// Posts, and returns the number of completions that are in the queue then. While this thread
/// posts, another thread is in an upcall of the same engine. The upcall ends when this thread
/// sleeps or has returned from the post.
fn completions_while_busy(
    t: &Tested,
    cq: &<Tested as Transport>::Cq,
    post: impl FnOnce(),
) -> usize {
    let (busy, tid, is_done) = (Busy::default(), AtomicI32::new(0), AtomicBool::new(false));
    // SAFETY: `busy` lives longer than the queue pair below.
    let sink = unsafe { Sink::new(&busy) };
    let (pd, caller) = (t.pd().expect("a protection domain"), End::new(t));
    let cfg = QpCfg { pd: &pd, ..rig::cfg::<Tested>(&pd, &caller.requests, &caller.recvs, None) };
    let qp = t.qp(cfg, sink).expect("a queue pair");
    let nobody_listens = Service::new(t, 1).port(t);
    let (addr, timeout) = (t.attrs().address, None);
    let to = Connect { addr, port: nobody_listens, private: b"", timeout, depth: rig::DEPTH };
    thread::scope(|threads| {
        threads.spawn(|| {
            qp.connect(&to).expect("the attempt to connect begins");
            while !busy.has_begun.load(Ordering::Acquire) {
                t.progress();
            }
        });
        while !busy.has_begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        threads.spawn(|| {
            while !is_done.load(Ordering::Acquire) && !is_sleeping(tid.load(Ordering::Acquire)) {
                thread::yield_now();
            }
            busy.is_released.store(true, Ordering::Release);
        });
        // SAFETY: gettid takes no arguments.
        tid.store(unsafe { libc::gettid() }, Ordering::Release);
        post();
        is_done.store(true, Ordering::Release);
        poll::<Tested>(cq, 8).len()
    })
}

#[test]
fn a_post_after_the_end_is_flushed_at_once_although_another_thread_makes_progress() {
    // An adapter that does not know this parameter has one engine.
    let t = PROVIDER
        .open("lo", "127.0.0.1 threads=1")
        .or_else(|_| PROVIDER.open("lo", "127.0.0.1"))
        .expect("the adapter opens");
    let rig = Rig { a: &t, b: &t };
    let (a, _b) = rig.pair();
    a.qp.disconnect(Close::Abrupt);
    rig.next("the end", &a.log);
    let segment = a.mem.segment(0, 8);
    assert_eq!(completions_while_busy(&t, &a.requests, || a.send(1, &[segment])), 1);
    assert_eq!(completions_while_busy(&t, &a.recvs, || a.recv(2, &[segment])), 1);
}
