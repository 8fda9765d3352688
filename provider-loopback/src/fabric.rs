//! A fabric: the engine under its lock, and the way upcalls leave it.
//!
//! The engine queues upcalls while the lock is held. Whoever unlocks it delivers them, unlocked, one at a time: one
//! thread has the delivery right, the others (and calls made from inside an upcall) leave theirs in the queue for it.
//! So upcalls come in the order of what they report, and a method may return before its upcall was made.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Instant;

use super::engine::{Engine, Id, Note, Pending};
use super::{Adapter, Object, Request};
use dat_core::provider::{Sink, Upcall};
use dat_core::wake::{Slept, Wake};

static FABRICS: LazyLock<Mutex<HashMap<String, Weak<Fabric>>>> = LazyLock::new(Mutex::default);

pub(super) struct Fabric {
    state: Mutex<State>,
    /// Signalled when an upcall has returned.
    returned: Condvar,
}

#[derive(Default)]
struct State {
    engine: Engine,
    /// Whom the upcall in flight is about, and the thread that makes it: the holder of the delivery right.
    in_flight: Option<(Id, ThreadId)>,
    sleepers: Vec<Sleeper>,
}

/// The `Wake` of a thread inside `Fabric::sleep`, which takes it out of the list before it returns.
#[derive(PartialEq, Eq)]
struct Sleeper(*const Wake);
// SAFETY: a `Wake` may be signalled from any thread.
unsafe impl Send for Sleeper {}

impl Fabric {
    pub(super) fn open(name: &str) -> Arc<Self> {
        let mut fabrics = lock(&FABRICS);
        if let Some(fabric) = fabrics.get(name).and_then(Weak::upgrade) {
            return fabric;
        }
        fabrics.retain(|_, fabric| fabric.strong_count() != 0);
        let fabric = Arc::new(Fabric { state: Mutex::default(), returned: Condvar::new() });
        fabrics.insert(name.to_owned(), Arc::downgrade(&fabric));
        fabric
    }

    pub(super) fn find(name: &str) -> Option<Arc<Self>> {
        lock(&FABRICS).get(name).and_then(Weak::upgrade)
    }

    /// Does something to the engine, then delivers what came of it.
    pub(super) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Engine) -> R) -> R {
        let mut state = lock(&self.state);
        let timer = state.engine.next_timer();
        let result = f(&mut state.engine);
        if state.engine.next_timer().is_some_and(|new| timer.is_none_or(|old| new < old)) {
            // Whoever sleeps knows only the old one.
            for sleeper in &state.sleepers {
                // SAFETY: it is in the list, so its thread is still inside `sleep`.
                let _futex = unsafe { &*sleeper.0 }.signal();
            }
        }
        self.deliver(state);
        result
    }

    /// The same to remove an object, which gets no upcall any more once this returns (promise 3).
    pub(super) fn retire(self: &Arc<Self>, object: Id, f: impl FnOnce(&mut Engine)) {
        let mut state = lock(&self.state);
        f(&mut state.engine);
        state.engine.upcalls.retain(|pending| pending.object != object);
        let me = thread::current().id();
        while state.in_flight.is_some_and(|(whom, by)| whom == object && by != me) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.deliver(state);
    }

    /// Sleeps as [`dat_core::provider::Transport::sleep`] says; connection attempts time out meanwhile.
    pub(super) fn sleep(self: &Arc<Self>, wake: &Wake, deadline: Option<Instant>) -> Slept {
        loop {
            self.with(Engine::expire);
            let mut state = lock(&self.state);
            let timer = state.engine.next_timer();
            state.sleepers.push(Sleeper(wake));
            drop(state);

            let slept = wake.park(deadline.into_iter().chain(timer).min());

            let mut state = lock(&self.state);
            state.sleepers.retain(|s| *s != Sleeper(wake));
            drop(state);
            if slept != Slept::TimedOut || deadline.is_some_and(|d| d <= Instant::now()) {
                return slept;
            }
        }
    }

    fn deliver<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        while state.in_flight.is_none() {
            let Some(Pending { object, sink, note }) = state.engine.upcalls.pop_front() else {
                return;
            };
            state.in_flight = Some((object, thread::current().id()));
            drop(state);
            let flight = InFlight {
                fabric: self,
                object,
                established: matches!(note, Note::Established { .. }),
            };
            self.call(sink, note);
            drop(flight);
            state = lock(&self.state);
        }
    }

    fn call(self: &Arc<Self>, sink: Sink<Adapter>, note: Note) {
        sink.call(match &note {
            Note::CqReady => Upcall::CqReady,
            Note::CqOverflow => Upcall::CqOverflow,
            Note::Request { call, from, to, private } => Upcall::Request {
                request: Request(Object { fabric: self.clone(), id: *call }),
                from: *from,
                to: *to,
                private,
            },
            Note::Established { private, peer, local, depth } => {
                Upcall::Established { private, peer: *peer, local: *local, depth: *depth }
            }
            Note::Rejected { by_peer, private } => Upcall::Rejected { by_peer: *by_peer, private },
            Note::Unreachable => Upcall::Unreachable { because: None },
            Note::TimedOut => Upcall::TimedOut,
            Note::AcceptFailed => Upcall::AcceptFailed,
            Note::Disconnected => Upcall::Disconnected,
            Note::Broken => Upcall::Broken { because: &"a request failed" },
            Note::LowWatermark => Upcall::LowWatermark,
            Note::HighWatermark => Upcall::HighWatermark,
            &Note::ReceiverNotReady(octets) => Upcall::ReceiverNotReady { octets, whole: true },
        });
    }
}

/// Gives the delivery right back, also when the receiver panics.
struct InFlight<'a> {
    fabric: &'a Fabric,
    object: Id,
    established: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.fabric.state);
        state.in_flight = None;
        if self.established {
            state.engine.announced(self.object);
        }
        self.fabric.returned.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::contract::rig::{End, Event, Service};
    use super::super::{Mem, advance};
    use super::*;
    use dat_core::provider::{Provider, Transport};

    #[test]
    fn a_sleeper_learns_of_timers_set_later() {
        const HOUR: Duration = Duration::from_secs(3600);
        let t = Mem.open("mem0", "sleeper").expect("open");
        let service = Service::new(&t, 1);
        let caller = End::new(&t);
        thread::scope(|s| {
            let sleeper = s.spawn(|| {
                loop {
                    caller.log.wake.reset();
                    match caller.log.take() {
                        Some(event) => break event,
                        None => t.sleep(&caller.log.wake, None),
                    };
                }
            });
            let asleep = || {
                while lock(&t.fabric.state).sleepers.is_empty() {
                    thread::yield_now();
                }
            };
            asleep();
            caller.connect(service.port(&t), b"", Some(HOUR));
            asleep();
            advance("sleeper", HOUR - Duration::from_millis(5));
            // The rest passes by itself, in the sleep.
            assert!(matches!(sleeper.join().expect("the sleeper"), Event::TimedOut));
        });
    }
}
