//! The state that threads read and write without the engine lock.
//!
//! A thread that goes to sleep first announces that (`asleep`) and then checks for work. A thread
//! that leaves work behind first publishes it and then checks for sleepers. All these accesses are
//! SeqCst, so that at least one of the two threads sees the other.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Token, Waker};
use telemetry::threads::Uncancellable;
use telemetry::trace;

use crate::doorbells::Doorbells;
use crate::sync::lock;

/// The state that threads read and write without the engine lock.
pub(crate) struct EngineShared<R> {
    /// The doorbells of queue pairs with new requests.
    pub(crate) doorbells: Doorbells,
    /// Counts the passes of progress. If a queue pair has posted nothing since the last pass, its
    /// next request is sent at once.
    passes: AtomicU32,
    /// Counts the passes that consumers' threads have made.
    consumer_passes: AtomicU32,
    /// Counts the *ready waits*: waits of consumers' threads that found completions and made no
    /// pass.
    ready_waits: AtomicU32,
    /// The number of sockets that the engine watches, including suspended sockets.
    sockets: AtomicI32,
    /// Whether a thread is asleep in the poller, or about to be.
    asleep: AtomicBool,
    /// Whether the engine can do more work at once.
    leftover: AtomicBool,
    /// The time at which the next timer expires, in nanoseconds since `epoch`, or `NEVER`.
    deadline_ns: AtomicU64,
    epoch: Instant,
    /// Work that arrived while another thread held the engine lock.
    deferred: Mutex<DeferredCalls<R>>,
    any_deferred: AtomicBool,
    waker: Waker,
}

/// Work for the holder of the engine lock.
pub(crate) struct DeferredCalls<R> {
    /// Connection requests that the consumer has dropped without an answer.
    pub(crate) refused: Vec<R>,
    /// Events that the poller has reported and that are not delivered to the engine yet.
    pub(crate) events: Vec<Event>,
}

impl<R> Default for DeferredCalls<R> {
    fn default() -> Self {
        DeferredCalls { refused: Vec::new(), events: Vec::new() }
    }
}

/// The token of the poller's waker.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// The name of the poller in the trace of wake-ups.
pub(crate) const POLLER: &str = "poller";

const NEVER: u64 = u64::MAX;

impl<R> EngineShared<R> {
    pub(crate) fn new(waker: Waker) -> Self {
        EngineShared {
            doorbells: Doorbells::default(),
            passes: AtomicU32::new(0),
            consumer_passes: AtomicU32::new(0),
            ready_waits: AtomicU32::new(0),
            sockets: AtomicI32::new(0),
            asleep: AtomicBool::new(false),
            leftover: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(NEVER),
            epoch: Instant::now(),
            deferred: Mutex::new(DeferredCalls::default()),
            any_deferred: AtomicBool::new(false),
            waker,
        }
    }

    /// The number of passes so far.
    #[inline]
    pub(crate) fn passes(&self) -> u32 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Counts a pass. The caller holds the engine lock.
    #[inline]
    pub(crate) fn begin_pass(&self) {
        self.passes.store(self.passes().wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of passes of consumers' threads so far.
    pub(crate) fn consumer_passes(&self) -> u32 {
        self.consumer_passes.load(Ordering::Relaxed)
    }

    /// Counts a pass of a consumer's thread. The caller holds the engine lock.
    #[inline]
    pub(crate) fn consumer_made_progress(&self) {
        self.consumer_passes.store(self.consumer_passes().wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of ready waits so far.
    pub(crate) fn ready_waits(&self) -> u32 {
        self.ready_waits.load(Ordering::Relaxed)
    }

    /// Counts a ready wait. If several threads call this at the same time, the count may miss waits
    /// or go back once. Then the progress thread may come one tick too early or too late.
    #[inline]
    pub(crate) fn count_ready_wait(&self) {
        self.ready_waits.store(self.ready_waits().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns whether the engine watches any socket, even a suspended one.
    #[inline]
    pub(crate) fn has_sockets(&self) -> bool {
        self.sockets.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn sockets_changed(&self, by: i32) {
        self.sockets.fetch_add(by, Ordering::Relaxed);
    }

    /// Defers the refusal of a request that its consumer has dropped. A sink may call this.
    pub(crate) fn refuse(&self, request: R) {
        self.deferred().refused.push(request);
        self.any_deferred.store(true, Ordering::Release);
    }

    /// Defers events that the poller has reported.
    pub(crate) fn defer_events<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        self.deferred().events.extend(events.into_iter().cloned());
        self.any_deferred.store(true, Ordering::Release);
    }

    /// Returns whether work was deferred since it was last taken.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.any_deferred.load(Ordering::Relaxed)
    }

    /// Returns the deferred work in `empty`, and puts the contents of `empty` in its place, so that
    /// both keep their memory.
    pub(crate) fn swap_deferred(&self, empty: &mut DeferredCalls<R>) {
        let mut deferred = self.deferred();
        self.any_deferred.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *deferred, empty);
    }

    fn deferred(&self) -> MutexGuard<'_, DeferredCalls<R>> {
        lock(&self.deferred)
    }

    /// Publishes the work that remains when the engine lock is released. If `holder_checks` is
    /// true, the holder checks this work itself before it sleeps. If it is false, this method wakes
    /// a thread that sleeps in the poller when there is more work than that thread knows of.
    #[inline]
    pub(crate) fn publish_remaining(
        &self,
        leftover: bool,
        deadline_ns: Option<Instant>,
        holder_checks: bool,
    ) {
        let mut more = leftover;
        if self.leftover.load(Ordering::Relaxed) != leftover {
            self.leftover.store(leftover, Ordering::SeqCst);
        }
        let deadline_ns = deadline_ns
            .map_or(NEVER, |at| at.saturating_duration_since(self.epoch).as_nanos() as u64);
        let before = self.deadline_ns.load(Ordering::Relaxed);
        if deadline_ns != before {
            self.deadline_ns.store(deadline_ns, Ordering::SeqCst);
            more |= deadline_ns < before;
        }
        if more && !holder_checks && self.is_asleep() {
            self.wake();
        }
    }

    /// Announces that the caller is about to enter the poller. After this call the caller must
    /// check for work once more.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Returns whether a thread is asleep in the poller, or about to be.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Announces that the caller has left the poller.
    pub(crate) fn end_sleep(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Returns whether there is work that can be done at once.
    pub(crate) fn has_work(&self) -> bool {
        self.leftover.load(Ordering::SeqCst) || !self.doorbells.is_empty()
    }

    /// The time until the next timer expires.
    pub(crate) fn until_deadline(&self) -> Option<Duration> {
        match self.deadline_ns.load(Ordering::SeqCst) {
            NEVER => None,
            at => Some(
                (self.epoch + Duration::from_nanos(at)).saturating_duration_since(Instant::now()),
            ),
        }
    }

    /// Wakes the thread that sleeps in the poller. If no thread does, the next thread that enters
    /// the poller does not sleep.
    pub(crate) fn wake(&self) {
        trace::log_wake(POLLER, std::ptr::from_ref(self).addr());
        let _uncancellable = Uncancellable::new();
        // The call fails only if the counter of the event fd overflows. The thread is woken in that
        // case, too.
        self.waker.wake().ok();
    }
}
