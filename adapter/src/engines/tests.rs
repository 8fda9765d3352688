//! Tests of where queue pairs are placed, which engines a thread serves, and which thread becomes
//! the leader after a leader has left the poller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Poll, Waker};
use waiting::{Wake, WakeReason};

use super::{EngineSet, Engines};
use crate::engine_shared::{EngineShared, WAKER};
use crate::error::{Error, OpenError};
use crate::progress::{MakeProgress, Progress, Remaining};
use crate::reactor::thread_state::{ACTIVE, RESTING};
use crate::reactor::{Follower, Reactor};
use crate::sync::lock;

/// An engine that does nothing.
struct NullEngine;

impl MakeProgress for NullEngine {
    const NAME: &'static str = "nothing";
    type RequestData = ();

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

fn engines(limit: usize) -> Engines<NullEngine> {
    let create = || {
        let poll = Poll::new().expect("a poller");
        let waker = Waker::new(poll.registry(), WAKER).expect("a waker");
        let shared = Arc::new(EngineShared::new(waker));
        Ok(Arc::new(Reactor::new(NullEngine, shared, poll, Duration::ZERO)))
    };
    Engines::new(limit, Duration::ZERO, Arc::new(create)).expect("an engine")
}

fn set(numbers: &[usize]) -> EngineSet {
    numbers.iter().fold(EngineSet::EMPTY, |set, &number| set.with(EngineSet::of(number)))
}

#[test]
fn queue_pairs_are_spread_over_the_engines() {
    let engines = engines(3);
    let place = |bound| engines.place(bound, |_| {});
    assert_eq!([None, None, None, None].map(place), [0, 1, 2, 0]);
    assert_eq!(place(Some(1)), 1, "a queue pair joins the engine of its queues");
    engines.leave(2);
    assert_eq!([None, None].map(place), [2, 2], "the engine with the fewest is next");
    assert_eq!(engines.iter().count(), 3);
}

#[test]
fn an_engine_that_cannot_be_created_is_not_missed() {
    let engines = engines(3);
    let failing = Engines {
        create: Arc::new(|| {
            let error = Error::NoMemory;
            Err(OpenError::new(error, "no descriptors".to_owned()))
        }),
        ..engines
    };
    assert_eq!([None, None].map(|bound| failing.place(bound, |_| {})), [0, 0]);
}

#[test]
fn each_thread_serves_its_own_engines_and_those_that_nobody_serves() {
    let engines = engines(3);
    (0..3).for_each(|number| assert_eq!(engines.place(None, |_| {}), number));
    assert_eq!(engines.served_by_this_thread(set(&[])), set(&[0, 1, 2]));
    assert_eq!(engines.served_by_this_thread(set(&[1])), set(&[0, 1, 2]));
    let of_other = std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let own = engines.served_by_this_thread(set(&[2]));
            (own, engines.served_by_this_thread(set(&[])))
        });
        other.join().expect("no panic")
    });
    assert_eq!(of_other, (set(&[0, 2]), set(&[0, 2])), "engine 1 has a thread");
    assert_eq!(engines.served_by_this_thread(set(&[])), set(&[0, 1]));
    assert_eq!(engines.served_by_this_thread(set(&[2])), set(&[0, 1, 2]), "the thread changes");
}

#[test]
fn the_numbers_of_a_set_are_in_order() {
    assert!(set(&[5, 0, 63]).iter().eq([0, 5, 63]));
    assert_eq!((set(&[]).first(), set(&[9, 4]).first()), (None, Some(4)));
    assert!(set(&[63]).contains(63) && !set(&[63]).contains(62));
}

/// A thread that sleeps for a queue of one engine is woken by the poller of any engine that it
/// serves.
#[test]
fn a_thread_sleeps_in_the_pollers_of_all_engines_that_it_serves() {
    let engines = engines(3);
    (0..3).for_each(|number| assert_eq!(engines.place(None, |_| {}), number));
    for number in 0..3 {
        let changes = || engines.get(number).leader_changes.load(Ordering::SeqCst);
        let before = changes();
        let wake = Wake::new();
        std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| {
                // The other engines have had no thread, or this thread has the address of it.
                engines.iter().for_each(|reactor| reactor.served_by.store(0, Ordering::Relaxed));
                engines.sleep(set(&[0]), &wake, None)
            });
            assert!(becomes_true(|| changes() == before + 1), "the thread leads engine {number}");
            assert!(!wake.is_signalled());
            if wake.signal() {
                engines.get(number).shared.wake();
            }
            sleeper.join().expect("no panic");
        });
        assert_eq!(changes(), before + 2);
    }
}

/// Makes another thread sleep for events that no completion queue has, until `end`, which gets the
/// thread's `Wake`, has made it return.
fn while_a_thread_sleeps(engines: &Engines<NullEngine>, end: impl FnOnce(&Wake)) {
    let wake = Wake::new();
    std::thread::scope(|threads| {
        let sleeper = threads.spawn(|| engines.sleep(set(&[]), &wake, None));
        end(&wake);
        assert_eq!(sleeper.join().expect("no panic"), WakeReason::Woken);
    });
}

#[test]
fn a_leader_leaves_an_engine_to_the_thread_that_uses_it() {
    let engines = engines(2);
    (0..2).for_each(|number| assert_eq!(engines.place(None, |_| {}), number));
    let leads = |number: usize| engines.get(number).has_leader();
    while_a_thread_sleeps(&engines, |wake| {
        assert!(becomes_true(|| leads(0) && leads(1)), "no other thread serves them yet");
        engines.served_by_this_thread(set(&[1]));
        engines.get(1).shared.wake();
        assert!(becomes_true(|| !leads(1)));
        assert!(!wake.is_signalled());
    });
    while_a_thread_sleeps(&engines, |wake| {
        assert!(becomes_true(|| leads(0)));
        assert!(!leads(1), "this thread serves engine 1");
        if wake.signal() {
            engines.interrupt();
        }
    });
}

#[test]
fn a_thread_leads_the_engines_that_are_free() {
    let engines = engines(2);
    (0..2).for_each(|number| assert_eq!(engines.place(None, |_| {}), number));
    assert_eq!(engines.get(0).try_lead(), Some(false));
    while_a_thread_sleeps(&engines, |wake| {
        assert!(becomes_true(|| engines.get(1).has_leader()));
        if wake.signal() {
            engines.interrupt();
        }
    });
    engines.get(0).stop_leading(false);
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

/// A consumer that sleeps again and again while its event has not arrived.
struct Sleeper {
    wake: Wake,
    done: AtomicBool,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper { wake: Wake::new(), done: AtomicBool::new(false) }
    }

    fn sleep(&self, engines: &Engines<NullEngine>) {
        while !self.done.load(Ordering::SeqCst) {
            engines.sleep(set(&[0]), &self.wake, None);
            // A signal that arrives now is not lost, because the loop checks its condition next.
            self.wake.reset();
        }
    }

    fn leave(&self, engines: &Engines<NullEngine>) {
        self.done.store(true, Ordering::SeqCst);
        if self.wake.signal() {
            engines.interrupt();
        }
    }
}

/// Tests that some thread enters the poller after the leader has left it. The first of two
/// followers has got its event and does not enter. `signalled` says that this event came before the
/// leader left.
fn somebody_leads(signalled: bool) {
    let engines = engines(1);
    let reactor = engines.first();
    let (first, second, gone) = (Sleeper::new(), Sleeper::new(), Wake::new());
    let state = || reactor.progress_thread.state.load(Ordering::SeqCst);
    let leader_changes = || reactor.leader_changes.load(Ordering::SeqCst);
    let somebody = std::thread::scope(|threads| {
        threads.spawn(|| first.sleep(&engines));
        let leads = becomes_true(|| leader_changes() == 1);
        // The progress thread starts only now. If it were started earlier, it could become the
        // leader.
        reactor.start_progress_thread().expect("a thread");
        let rests = becomes_true(|| state() == RESTING);
        threads.spawn(|| second.sleep(&engines));
        let follows = becomes_true(|| reactor.has_followers());
        if signalled {
            let _ = gone.signal();
        }
        lock(&reactor.followers).insert(0, Follower(&gone));
        first.leave(&engines);
        // Now either the second follower or the progress thread is the leader.
        let somebody =
            becomes_true(|| leader_changes() == 3 || leader_changes() == 2 && state() == ACTIVE);
        lock(&reactor.followers).retain(|follower| !std::ptr::eq(follower.0, &gone));
        second.leave(&engines);
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
