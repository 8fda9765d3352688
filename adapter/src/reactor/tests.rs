//! Who leads when a leader leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::Result;
use dat_core::provider::{Allocated, Close, Connect, Port, ReadDepth};
use dat_core::wake::Wake;
use mio::event::Event;
use mio::{Poll, Waker};
use rnic::Work;

use super::{ACTIVE, Engine, Follower, RESTING, Reactor, SharedState, WAKER, lock};
use crate::engine::{Progress, Remaining, Sink};
use crate::transport::Shared;

/// An adapter without anything.
struct Nothing;

// SAFETY: nothing is given to it.
unsafe impl Engine for Nothing {
    const NAME: &'static str = "nothing";
    type RequestId = ();

    fn poll(&mut self) -> Progress {
        Progress::Idle
    }
    fn on_event(&mut self, _: &Event) {}
    fn advance(&mut self) {}
    fn remaining(&mut self) -> Remaining {
        Remaining::default()
    }
    fn add_qp(&mut self, _: Sink<Self>, _: Work) -> Result<Arc<Shared>> {
        unreachable!()
    }
    fn remove_qp(&mut self, _: usize) {}
    fn transmit(&mut self, _: usize) {}
    fn connect(&mut self, _: usize, _: &Connect<'_>) -> Result<()> {
        unreachable!()
    }
    fn accept(&mut self, _: usize, (): (), _: &[u8], _: ReadDepth) -> Result<()> {
        unreachable!()
    }
    fn disconnect(&mut self, _: usize, _: Close) {}
    fn allocated(&mut self, _: usize) -> Allocated {
        unreachable!()
    }
    fn listen(&mut self, _: Port, _: usize, _: Sink<Self>) -> Result<(usize, u16)> {
        unreachable!()
    }
    fn close(&mut self, _: usize) {}
    fn reject(&mut self, (): (), _: &[u8]) -> Result<()> {
        unreachable!()
    }
    fn refuse(&mut self, (): ()) {}
}

fn reactor() -> Arc<Reactor<Nothing>> {
    let poll = Poll::new().expect("a poller");
    let shared = Arc::new(SharedState::new(Waker::new(poll.registry(), WAKER).expect("a waker")));
    let reactor = Arc::new(Reactor::new(Nothing, Arc::clone(&shared), poll, Duration::ZERO));
    shared.set_reactor(&reactor);
    reactor
}

/// Whether it comes about.
#[must_use]
fn comes(holds: impl Fn() -> bool) -> bool {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > limit {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// Sleeps again and again, as dat_evd_wait does that has not seen its event.
struct Sleeper {
    wake: Wake,
    done: AtomicBool,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper { wake: Wake::new(), done: AtomicBool::new(false) }
    }

    fn sleep(&self, reactor: &Reactor<Nothing>) {
        while !self.done.load(Ordering::SeqCst) {
            reactor.sleep(&self.wake, None);
            // A signal that comes now is not lost: what it is about is looked for next.
            self.wake.reset();
        }
    }

    fn leave(&self, reactor: &Reactor<Nothing>) {
        self.done.store(true, Ordering::SeqCst);
        if self.wake.signal() {
            reactor.interrupt();
        }
    }
}

/// Of two that follow, the first has an event of its own and does not come back: somebody is in the poller
/// nevertheless. `signalled`: it has it when the leader leaves.
fn somebody_leads(signalled: bool) {
    let reactor = reactor();
    let (first, second, gone) = (Sleeper::new(), Sleeper::new(), Wake::new());
    let state = || reactor.background.state.load(Ordering::SeqCst);
    let leaders = || reactor.leaders.load(Ordering::SeqCst);
    let somebody = std::thread::scope(|threads| {
        threads.spawn(|| first.sleep(&reactor));
        let leads = comes(|| leaders() == 1);
        // It would lead, were it there before.
        reactor.start_background().expect("a thread");
        let rests = comes(|| state() == RESTING);
        threads.spawn(|| second.sleep(&reactor));
        let follows = comes(|| reactor.has_followers());
        if signalled {
            let _ = gone.signal();
        }
        lock(&reactor.followers).insert(0, Follower(&gone));
        first.leave(&reactor);
        // The second, or the background thread.
        let somebody = comes(|| leaders() == 3 || leaders() == 2 && state() == ACTIVE);
        lock(&reactor.followers).retain(|follower| !std::ptr::eq(follower.0, &gone));
        second.leave(&reactor);
        [leads, rests, follows, somebody]
    });
    reactor.stop_background();
    assert_eq!(
        somebody, [true; 4],
        "one leads, the thread rests, one follows, and then somebody leads"
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
