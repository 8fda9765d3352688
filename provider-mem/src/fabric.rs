//! A fabric, which consists of its objects with their lock, and of the delivery of upcalls.
//!
//! The objects queue upcalls while the lock is held. The thread that releases the lock then
//! delivers the queued upcalls, one at a time and without the lock. Only one thread at a time has
//! the right to deliver. Other threads, and calls from inside an upcall, leave their upcalls in the
//! queue for that thread. So upcalls arrive in the order of the events that they report, and a
//! method may return before its upcall was made.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Instant;

use super::objects::datagram::Failure;
use super::objects::{Id, Objects, OwnedUpcall, PendingUpcall};
use super::{Adapter, ConnectionRequest, Object};
use dat_core::provider::{RemoteQp, ResolveFailure, ServiceType, Sink, Upcall};
use waiting::{Wake, WakeReason};

static FABRICS: LazyLock<Mutex<HashMap<String, Weak<Fabric>>>> = LazyLock::new(Mutex::default);

pub(super) struct Fabric {
    state: Mutex<State>,
    /// A condition variable that is signalled when an upcall has returned.
    returned: Condvar,
}

#[derive(Default)]
struct State {
    objects: Objects,
    /// The object of the upcall that is being made, and the thread that makes the upcall. That
    /// thread has the right to deliver.
    in_flight: Option<(Id, ThreadId)>,
    sleepers: Vec<Sleeper>,
}

/// The `Wake` of a thread inside `Fabric::sleep`. The thread removes it from the list before it
/// returns.
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

    /// Runs `f` on the objects, then delivers the upcalls.
    pub(super) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Objects) -> R) -> R {
        let mut state = lock(&self.state);
        let timer = state.objects.next_timer();
        let result = f(&mut state.objects);
        if state.objects.next_timer().is_some_and(|new| timer.is_none_or(|old| new < old)) {
            // Wake the sleeping threads, because they would sleep until the time of the old timer.
            for sleeper in &state.sleepers {
                // SAFETY: the entry is in the list, so its thread is still inside `sleep`, where
                // the `Wake` exists.
                let _futex = unsafe { &*sleeper.0 }.signal();
            }
        }
        self.deliver(state);
        result
    }

    /// Runs `f` to remove an object. After this call the object gets no more upcalls (promise 3 of
    /// a transport).
    pub(super) fn retire(self: &Arc<Self>, object: Id, f: impl FnOnce(&mut Objects)) {
        let mut state = lock(&self.state);
        f(&mut state.objects);
        state.objects.upcalls.retain(|pending| pending.object != object);
        let me = thread::current().id();
        while state.in_flight.is_some_and(|(target, by)| target == object && by != me) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.deliver(state);
    }

    /// Sleeps as [`dat_core::provider::Transport::sleep`] specifies. Connection attempts also time
    /// out during the sleep.
    pub(super) fn sleep(self: &Arc<Self>, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        loop {
            self.with(Objects::expire);
            let mut state = lock(&self.state);
            let timer = state.objects.next_timer();
            state.sleepers.push(Sleeper(wake));
            drop(state);

            let wake_reason = wake.park(deadline.into_iter().chain(timer).min());

            let mut state = lock(&self.state);
            state.sleepers.retain(|s| *s != Sleeper(wake));
            drop(state);
            if wake_reason != WakeReason::TimedOut || deadline.is_some_and(|d| d <= Instant::now())
            {
                return wake_reason;
            }
        }
    }

    fn deliver<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        while state.in_flight.is_none() {
            let Some(PendingUpcall { object, sink, upcall }) = state.objects.upcalls.pop_front()
            else {
                return;
            };
            state.in_flight = Some((object, thread::current().id()));
            drop(state);
            let flight = InFlight {
                fabric: self,
                object,
                established: matches!(upcall, OwnedUpcall::Established { .. }),
            };
            self.call(sink, upcall);
            drop(flight);
            state = lock(&self.state);
        }
    }

    fn call(self: &Arc<Self>, sink: Sink<Adapter>, upcall: OwnedUpcall) {
        sink.call(match &upcall {
            OwnedUpcall::CqReady => Upcall::CqReady,
            OwnedUpcall::CqOverflow => Upcall::CqOverflow,
            OwnedUpcall::Request { call, datagrams, from, to, private } => Upcall::Request {
                request: ConnectionRequest(Object { fabric: self.clone(), id: *call }),
                service: if *datagrams { ServiceType::Datagram } else { ServiceType::Connection },
                from: *from,
                to: *to,
                private,
            },
            OwnedUpcall::Resolved { number, qpn, own_qpn, peer, private } => Upcall::Resolved {
                number: *number,
                remote: RemoteQp { address: peer.ip(), qpn: *qpn, own_qpn: *own_qpn },
                peer: *peer,
                private,
            },
            OwnedUpcall::Unresolved { number, why } => Upcall::Unresolved {
                number: *number,
                why: match why {
                    Failure::Rejected { private } => ResolveFailure::Rejected { private },
                    Failure::Refused => ResolveFailure::Refused { because: None },
                    Failure::Unreachable => ResolveFailure::Unreachable { because: None },
                    Failure::TimedOut => ResolveFailure::TimedOut,
                },
            },
            OwnedUpcall::Established { private, peer, local, depth } => {
                Upcall::Established { private, peer: *peer, local: *local, depth: *depth }
            }
            OwnedUpcall::Rejected { by_peer, private } => {
                Upcall::Rejected { by_peer: *by_peer, private }
            }
            OwnedUpcall::Unreachable => Upcall::Unreachable { because: None },
            OwnedUpcall::TimedOut => Upcall::TimedOut,
            OwnedUpcall::AcceptFailed => Upcall::AcceptFailed,
            OwnedUpcall::Disconnected => Upcall::Disconnected,
            OwnedUpcall::Broken => Upcall::Broken { because: Some(&"a request failed") },
            OwnedUpcall::LowWatermark => Upcall::LowWatermark,
            OwnedUpcall::HighWatermark => Upcall::HighWatermark,
            OwnedUpcall::Cause(cause) => Upcall::Cause(cause.clone()),
            &OwnedUpcall::ReceiverNotReady(octets) => {
                Upcall::ReceiverNotReady { octets, whole: true }
            }
        });
    }
}

/// The right to deliver upcalls. Dropping this value releases the right, even if the receiver of an
/// upcall panics.
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
            state.objects.mark_announced(self.object);
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
    fn a_sleeper_is_notified_of_timers_set_later() {
        const HOUR: Duration = Duration::from_secs(3600);
        let t = Mem.open("mem0", "sleeper").expect("the adapter opens");
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
            // The thread sleeps until the remaining five milliseconds have passed.
            assert!(matches!(sleeper.join().expect("the sleeper"), Event::TimedOut));
        });
    }
}
