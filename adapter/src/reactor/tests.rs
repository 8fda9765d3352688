//! Tests of which thread becomes the leader after a leader has left the poller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::wake::Wake;
use mio::event::Event;
use mio::{Poll, Waker};

use super::{ACTIVE, Follower, MakeProgress, RESTING, Reactor, SharedState, lock};
use crate::progress::{Progress, Remaining};
use crate::shared::WAKER;

/// An engine that does nothing.
struct NullEngine;

impl MakeProgress for NullEngine {
    const NAME: &'static str = "nothing";
    type Request = ();

    fn poll(&mut self) -> Progress {
        Progress::Idle
    }
    fn on_event(&mut self, _: &Event) {}
    fn advance(&mut self) {}
    fn remaining(&mut self) -> Remaining {
        Remaining::default()
    }
    fn transmit(&mut self, _: usize) {}
}

fn reactor() -> Arc<Reactor<NullEngine>> {
    let poll = Poll::new().expect("a poller");
    let shared = Arc::new(SharedState::new(Waker::new(poll.registry(), WAKER).expect("a waker")));
    Arc::new(Reactor::new(NullEngine, shared, poll, Duration::ZERO))
}

/// Waits until the condition holds. Returns false after a time limit.
#[must_use]
fn becomes_true(holds: impl Fn() -> bool) -> bool {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > limit {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A consumer that sleeps again and again, like dat_evd_wait while its event has not arrived.
struct Sleeper {
    wake: Wake,
    done: AtomicBool,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper { wake: Wake::new(), done: AtomicBool::new(false) }
    }

    fn sleep(&self, reactor: &Reactor<NullEngine>) {
        while !self.done.load(Ordering::SeqCst) {
            reactor.sleep(&self.wake, None);
            // A signal that arrives now is not lost, because the loop checks its condition next.
            self.wake.reset();
        }
    }

    fn leave(&self, reactor: &Reactor<NullEngine>) {
        self.done.store(true, Ordering::SeqCst);
        if self.wake.signal() {
            reactor.interrupt();
        }
    }
}

/// Tests that some thread enters the poller after the leader has left it. The first of two
/// followers has got its event and does not enter. `signalled` says that this event came before the
/// leader left.
fn somebody_leads(signalled: bool) {
    let reactor = reactor();
    let (first, second, gone) = (Sleeper::new(), Sleeper::new(), Wake::new());
    let state = || reactor.progress_thread.state.load(Ordering::SeqCst);
    let leader_changes = || reactor.leader_changes.load(Ordering::SeqCst);
    let somebody = std::thread::scope(|threads| {
        threads.spawn(|| first.sleep(&reactor));
        let leads = becomes_true(|| leader_changes() == 1);
        // The progress thread starts only now. If it were started earlier, it could become the
        // leader.
        reactor.start_progress_thread().expect("a thread");
        let rests = becomes_true(|| state() == RESTING);
        threads.spawn(|| second.sleep(&reactor));
        let follows = becomes_true(|| reactor.has_followers());
        if signalled {
            let _ = gone.signal();
        }
        lock(&reactor.followers).insert(0, Follower(&gone));
        first.leave(&reactor);
        // Now either the second follower or the progress thread is the leader.
        let somebody =
            becomes_true(|| leader_changes() == 3 || leader_changes() == 2 && state() == ACTIVE);
        lock(&reactor.followers).retain(|follower| !std::ptr::eq(follower.0, &gone));
        second.leave(&reactor);
        [leads, rests, follows, somebody]
    });
    reactor.stop_progress_thread();
    assert_eq!(
        somebody, [true; 4],
        "one thread leads, the progress thread rests, one follows, and then somebody leads"
    );
}

#[test]
fn a_follower_with_an_event_of_its_own_is_passed_over() {
    somebody_leads(true);
}

#[test]
fn a_follower_that_is_called_and_does_not_come_is_made_up_for() {
    somebody_leads(false);
}
