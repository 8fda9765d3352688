//! What threads know of the engine, and tell it, without the engine lock.
//!
//! Whoever sleeps says so first (`asleep`) and looks for work then; whoever leaves work behind writes that down first
//! and looks for sleepers then. All of these are SeqCst, so that one of the two sees the other.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_core::wake::trace;
use mio::Waker;
use mio::event::Event;

use crate::doorbells::Doorbells;
use crate::engine::Engine;
use crate::reactor::Reactor;

/// See above.
pub(crate) struct SharedState<E: Engine> {
    /// Queue pairs with new requests.
    pub(crate) doorbells: Doorbells,
    /// Counts passes over the engine. A queue pair that posts for the first time since the last is not in a
    /// hurry's way.
    passes: AtomicU32,
    /// Counts the passes that consumers' threads have made.
    consumer_passes: AtomicU32,
    /// Sockets that are open.
    sockets: AtomicI32,
    /// Somebody is in the poller, or about to enter it.
    asleep: AtomicBool,
    /// There is more to do at once.
    leftover: AtomicBool,
    /// When the next timer is due: nanoseconds since `epoch`; `NEVER`.
    alarm: AtomicU64,
    epoch: Instant,
    /// What came in while another thread held the engine lock.
    deferred: Mutex<DeferredWork<E::RequestId>>,
    any_deferred: AtomicBool,
    waker: Waker,
    /// Empty until it is set up.
    reactor: OnceLock<Weak<Reactor<E>>>,
}

/// Things for the engine to know.
pub(crate) struct DeferredWork<Call> {
    /// Requests whose consumers have dropped them.
    pub(crate) refused: Vec<Call>,
    /// What the poller reported.
    pub(crate) events: Vec<Event>,
}

impl<Call> Default for DeferredWork<Call> {
    fn default() -> Self {
        DeferredWork { refused: Vec::new(), events: Vec::new() }
    }
}

/// What the trace of wake-ups calls it.
pub(crate) const POLLER: &str = "poller";

const NEVER: u64 = u64::MAX;

impl<E: Engine> SharedState<E> {
    pub(crate) fn new(waker: Waker) -> Self {
        SharedState {
            doorbells: Doorbells::default(),
            passes: AtomicU32::new(0),
            consumer_passes: AtomicU32::new(0),
            sockets: AtomicI32::new(0),
            asleep: AtomicBool::new(false),
            leftover: AtomicBool::new(false),
            alarm: AtomicU64::new(NEVER),
            epoch: Instant::now(),
            deferred: Mutex::new(DeferredWork::default()),
            any_deferred: AtomicBool::new(false),
            waker,
            reactor: OnceLock::new(),
        }
    }

    /// Says to which reactor this belongs; once.
    pub(crate) fn set_reactor(&self, reactor: &Arc<Reactor<E>>) {
        let set = self.reactor.set(Arc::downgrade(reactor));
        debug_assert!(set.is_ok(), "it belongs to one reactor");
    }

    /// The reactor. None: it is being taken down, or not set up yet.
    pub(crate) fn reactor(&self) -> Option<Arc<Reactor<E>>> {
        self.reactor.get()?.upgrade()
    }

    /// Passes so far.
    #[inline]
    pub(crate) fn passes(&self) -> u32 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Counts one more. The caller holds the engine lock.
    #[inline]
    pub(crate) fn begin_pass(&self) {
        self.passes.store(self.passes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Passes of consumers' threads so far.
    pub(crate) fn consumer_passes(&self) -> u32 {
        self.consumer_passes.load(Ordering::Relaxed)
    }

    /// Counts one more. The caller holds the engine lock.
    #[inline]
    pub(crate) fn consumer_made_progress(&self) {
        self.consumer_passes.store(self.consumer_passes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether there is any socket to look at.
    #[inline]
    pub(crate) fn has_sockets(&self) -> bool {
        self.sockets.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn sockets_changed(&self, by: i32) {
        self.sockets.fetch_add(by, Ordering::Relaxed);
    }

    /// A consumer has dropped a request. Allowed inside upcalls.
    pub(crate) fn refuse(&self, call: E::RequestId) {
        self.deferred().refused.push(call);
        self.any_deferred.store(true, Ordering::Release);
    }

    /// The poller has reported something.
    pub(crate) fn report<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        self.deferred().events.extend(events.into_iter().cloned());
        self.any_deferred.store(true, Ordering::Release);
    }

    /// Whether anything came in since the last time.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.any_deferred.load(Ordering::Relaxed)
    }

    /// Takes what came in and leaves `empty`, for its memory.
    pub(crate) fn swap_deferred(&self, empty: &mut DeferredWork<E::RequestId>) {
        let mut deferred = self.deferred();
        self.any_deferred.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *deferred, empty);
    }

    fn deferred(&self) -> MutexGuard<'_, DeferredWork<E::RequestId>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what is still to do when the engine lock is released. `looks`: the holder looks at it itself
    /// before it sleeps. Else a thread that sleeps in the poller is woken where there is more to do than it
    /// knows of.
    #[inline]
    pub(crate) fn publish_remaining(&self, leftover: bool, alarm: Option<Instant>, looks: bool) {
        let mut news = leftover;
        if self.leftover.load(Ordering::Relaxed) != leftover {
            self.leftover.store(leftover, Ordering::SeqCst);
        }
        let alarm =
            alarm.map_or(NEVER, |at| at.saturating_duration_since(self.epoch).as_nanos() as u64);
        let before = self.alarm.load(Ordering::Relaxed);
        if alarm != before {
            self.alarm.store(alarm, Ordering::SeqCst);
            news |= alarm < before;
        }
        if news && !looks && self.is_asleep() {
            self.wake();
        }
    }

    /// Says that the caller is about to enter the poller; it must look for work after that.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Whether somebody is in the poller, or about to enter it.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// The caller has left the poller.
    pub(crate) fn end_sleep(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_work(&self) -> bool {
        self.leftover.load(Ordering::SeqCst) || !self.doorbells.is_empty()
    }

    /// How long until the next timer.
    pub(crate) fn until_deadline(&self) -> Option<Duration> {
        match self.alarm.load(Ordering::SeqCst) {
            NEVER => None,
            at => Some(
                (self.epoch + Duration::from_nanos(at)).saturating_duration_since(Instant::now()),
            ),
        }
    }

    /// Ends the sleep of whoever is in the poller, or else the next one.
    pub(crate) fn wake(&self) {
        trace::log_wake(POLLER, std::ptr::from_ref(self).addr());
        // It cannot fail but for a counter that overflows, which wakes just as well.
        self.waker.wake().ok();
    }
}
