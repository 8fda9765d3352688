//! Decides which thread makes progress. Preferably it is a thread that waits anyway:
//!
//! - A consumer that polls drives the sockets itself ([`Reactor::poll`]).
//! - A consumer that blocks polls for some microseconds, if that has made earlier waits shorter
//!   ([`Spin`]), and then sleeps in the poller itself (`engines::waits`). So a message costs one
//!   wake-up and no hand-over to another thread. An engine has one poller: of several threads that
//!   block, one is the leader and the others are followers, which sleep on their own [`Wake`]. A
//!   leader that leaves wakes a follower to be the next leader.
//! - The progress thread serves adapters whose consumer neither polls nor blocks:
//!
//! ```text
//! Active   in the poller, without limit
//!          → Watching  when a consumer makes progress, or has posted something
//! Watching looks once in a tick
//!          → Active    when no consumer has polled or waited since the last tick
//!          → Resting   when a consumer has been asleep in the poller for some ticks
//! Resting  asleep, without limit
//!          → Watching  when that consumer leaves the poller, even if another one enters it
//! ```
//!
//! A consumer that polls looks again within a microsecond, and one that watches its memory may not
//! call for seconds. It is unknown in advance whether a consumer polls or watches its memory, so
//! these rules apply:
//!
//! - A consumer that calls less often than every 50 µs does not count as polling, and the progress
//!   thread does not leave the work to it.
//! - The progress thread adapts to whether it was useful ([`schedule`]). If data arrived that no
//!   consumer looked for, the thread was useful, and next time it returns to the poller within 10
//!   µs of the consumer's last call. Otherwise it stays away twice as long as before.
//! - A consumer that takes completions makes a pass when it finds its queue empty. So the progress
//!   thread does not take over for half a millisecond while waits find completions.
//! - A pass that finds the beginning of a message waits for the rest
//!   ([`LockedEngine::wait_for_message`]): a program that sees the beginning in memory may then
//!   look only at memory, until the last octet is there. If the rest is late, the pass asks the
//!   progress thread to wait for it.
//!
//! While a consumer sleeps on a file descriptor of its own (`require_progress`), the adapter cannot
//! know when that consumer will make progress. So the progress thread stays active, even if other
//! consumers make progress.
//!
//! In all other cases only one thread polls the sockets, and an idle program is never woken.

pub(crate) mod progress_thread;
pub(crate) mod schedule;
mod spin;
pub(crate) mod thread_state;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use mio::{Events, Poll};
use telemetry::trace;
use waiting::{Wake, cancel, nesting};

use self::spin::Spin;
use self::thread_state::{ACTIVE, ProgressThread, RESTING};
use crate::engine_lock::{Deferring, EngineLock};
use crate::engine_shared::{EngineShared, POLLER};
use crate::locked_engine::LockedEngine;
use crate::progress::{MakeProgress, Progress};
use crate::sync::lock;

/// Of the polls that find another thread at work, one in this number yields the processor.
const MISSES_PER_YIELD: u32 = 1000;
/// The maximum number of events that one call takes from the poller.
const EVENT_CAPACITY: usize = 256;

/// The engine, and the threads that make progress with it.
pub(crate) struct Reactor<E: MakeProgress> {
    pub(crate) engine: EngineLock<LockedEngine<E>>,
    pub(crate) shared: Arc<EngineShared<E::RequestData>>,
    poller: Mutex<Poller>,
    /// The poller's descriptor, on which a thread sleeps until the poller has events.
    pub(crate) poller_fd: RawFd,
    /// The thread that sleeps on `poller_fd` or leads ([`nesting::thread`]), or 0. While this
    /// thread sleeps, the mutex of the poller is unlocked, but other threads must not use the
    /// poller.
    sleeper: AtomicUsize,
    /// The threads that sleep while another thread is the leader.
    pub(crate) followers: Mutex<Vec<Follower>>,
    /// Counts how often a leader has entered or left the poller. The number is odd while there is a
    /// leader.
    pub(crate) leader_changes: AtomicU32,
    /// Counts polls that found another thread at work.
    misses: AtomicU32,
    /// The lock is held by the thread that polls before it sleeps. There is only one at a time,
    /// because several would slow each other down.
    pub(crate) spin: Mutex<Spin>,
    /// The consumer's thread that makes progress with this engine ([`nesting::thread`]), or 0 if
    /// there was none yet. See [`crate::engines`].
    pub(crate) served_by: AtomicUsize,
    /// The number of queue pairs and shared receive queues that are placed with this engine.
    pub(crate) placed: AtomicUsize,
    pub(crate) progress_thread: ProgressThread,
}

struct Poller {
    poll: Poll,
    events: Events,
}

/// The signal on which a follower sleeps. The pointer is valid while the follower is in the list of
/// followers.
pub(crate) struct Follower(pub(crate) *const Wake);

// SAFETY: a `Wake` is Sync, and the lock of the list keeps it alive while it is used.
unsafe impl Send for Follower {}

impl<E: MakeProgress> Reactor<E> {
    pub(crate) fn new(
        engine: E,
        shared: Arc<EngineShared<E::RequestData>>,
        poll: Poll,
        spin: Duration,
    ) -> Self {
        Reactor {
            engine: EngineLock::new(LockedEngine::new(engine, Arc::clone(&shared))),
            shared,
            poller_fd: poll.as_raw_fd(),
            sleeper: AtomicUsize::new(0),
            poller: Mutex::new(Poller { poll, events: Events::with_capacity(EVENT_CAPACITY) }),
            followers: Mutex::default(),
            leader_changes: AtomicU32::new(0),
            misses: AtomicU32::new(0),
            spin: Mutex::new(Spin::new(spin)),
            served_by: AtomicUsize::new(0),
            placed: AtomicUsize::new(0),
            progress_thread: ProgressThread::default(),
        }
    }

    /// Makes one pass of progress. Does not wait if another thread holds the engine lock or the
    /// poller.
    #[inline]
    pub(crate) fn poll(&self) {
        if !self.shared.has_sockets() {
            return;
        }
        let Some(mut locked) = self.engine.try_lock() else { return self.count_miss() };
        let mut ask_poller = locked.poll_pass() == Progress::AskPoller;
        if locked.engine.take_partial() {
            let wait = locked.wait_for_message();
            ask_poller |= wait.ask_poller;
            if !wait.complete {
                self.progress_thread.request();
            }
        }
        if !ask_poller {
            return;
        }
        match self.try_poller() {
            Some(mut poller) => {
                poller.deliver_all(&mut locked);
                if locked.engine.take_partial() && !locked.wait_for_message().complete {
                    self.progress_thread.request();
                }
            }
            None => {
                drop(locked);
                self.count_miss();
            }
        }
    }

    /// Counts a poll that found another thread at work. Now and then yields the processor, which
    /// the other thread may need.
    #[cold]
    fn count_miss(&self) {
        let misses = self.misses.load(Ordering::Relaxed).wrapping_add(1);
        self.misses.store(misses, Ordering::Relaxed);
        if misses.is_multiple_of(MISSES_PER_YIELD) {
            std::thread::yield_now();
        }
    }

    /// Declares whether a consumer may sleep without calling the adapter: see
    /// [`Adapter::require_progress`](crate::Adapter::require_progress).
    pub(crate) fn require_progress(&self, on: bool) {
        match on {
            true => self.progress_thread.fd_waiters.fetch_add(1, Ordering::SeqCst),
            false => self.progress_thread.fd_waiters.fetch_sub(1, Ordering::SeqCst),
        };
        self.progress_thread.unpark();
    }

    /// Waits for events, without limit if `limit` is `None`. The poller is not locked while this
    /// thread sleeps, because a signal handler that interrupts the thread may need the poller.
    fn wait<'a>(
        &'a self,
        mut poller: MutexGuard<'a, Poller>,
        limit: Option<Duration>,
    ) -> (MutexGuard<'a, Poller>, io::Result<()>) {
        if limit != Some(Duration::ZERO) {
            let before = self.sleeper.swap(nesting::thread(), Ordering::SeqCst);
            drop(poller);
            let trace = trace::sleep(POLLER, std::ptr::from_ref(&*self.shared).addr(), limit);
            let slept = cancel::poll(&mut [pollfd(self.poller_fd)], limit);
            drop(trace);
            poller = lock(&self.poller);
            self.sleeper.store(before, Ordering::SeqCst);
            if let Err(e) = slept {
                return (poller, Err(e));
            }
        }
        let taken = poller.take();
        (poller, taken)
    }

    /// Does the pending work for a thread that then checks the remaining work before it sleeps.
    /// Returns false if another thread does the work.
    pub(crate) fn serve_as_sleeper(&self) -> bool {
        let Some(mut locked) = self.engine.lock_or_delegate() else { return false };
        locked.holder_checks = true;
        locked.run_deferred();
        true
    }

    /// Delivers the events of the poller without waiting for the engine lock. If another thread
    /// holds the lock, that thread handles the events. Returns true if a message has arrived only
    /// in part.
    fn deliver(&self, poller: &mut Poller) -> bool {
        // Without events there may still be closed connections to report, which count as work.
        if poller.events.is_empty() && !self.shared.has_work() {
            return false;
        }
        let partial = match self.engine.try_lock() {
            Some(mut locked) => {
                locked.holder_checks = true;
                locked.deliver(&poller.events);
                if locked.engine.has_closed() {
                    poller.deliver_all(&mut locked);
                }
                locked.engine.take_partial()
            }
            None => {
                self.shared.defer_events(&poller.events);
                self.engine.run_or_delegate();
                false
            }
        };
        poller.events.clear();
        partial
    }

    /// Makes this thread the leader. Returns `None` if another thread leads. Otherwise returns
    /// whether this thread was the leader before, because a signal handler has interrupted its
    /// wait.
    pub(crate) fn try_lead(&self) -> Option<bool> {
        let _poller = self.try_poller()?;
        let before = self.sleeper.swap(nesting::thread(), Ordering::SeqCst);
        if before != 0 {
            return Some(true);
        }
        self.leader_changes.fetch_add(1, Ordering::SeqCst);
        self.shared.announce_sleep();
        Some(false)
    }

    /// Ends what [`Reactor::try_lead`] has begun.
    pub(crate) fn stop_leading(&self, nested: bool) {
        if nested {
            return;
        }
        self.shared.end_sleep();
        self.leader_changes.fetch_add(1, Ordering::SeqCst);
        let poller = lock(&self.poller);
        self.sleeper.store(0, Ordering::SeqCst);
        drop(poller);
        self.wake_next_leader();
    }

    /// Whether a consumer's thread is the leader.
    pub(crate) fn has_leader(&self) -> bool {
        self.leader_changes.load(Ordering::SeqCst) % 2 == 1
    }

    /// Whether another thread of the consumer makes progress with this engine now.
    pub(crate) fn is_served_by_another_thread(&self) -> bool {
        !matches!(self.served_by.load(Ordering::Relaxed), by if by == 0 || by == nesting::thread())
    }

    /// Delivers the events that the poller has now. The caller is the leader.
    pub(crate) fn take_and_deliver(&self) {
        let mut poller = lock(&self.poller);
        // If the poller fails, the progress thread makes progress.
        poller.take().ok();
        self.deliver(&mut poller);
    }

    /// Wakes a follower, which becomes the next leader because the poller is free.
    fn wake_next_leader(&self) {
        let followers = lock(&self.followers);
        // SAFETY: the wakes are in the list, and the list is locked.
        let mut wakes = followers.iter().map(|follower| unsafe { &*follower.0 });
        // A follower that has been signalled may already have its event. Then it does not return to
        // the poller.
        if let Some(next) = wakes.find(|wake| !wake.is_signalled()) {
            let in_poller = next.signal();
            debug_assert!(!in_poller, "a follower is not in the poller");
        }
        drop(followers);
        // The woken follower does not always enter the poller, because the event that it waits for
        // may arrive a moment later. If no thread leads, the progress thread takes over.
        self.progress_thread.unpark_if_parked();
    }

    pub(crate) fn has_followers(&self) -> bool {
        !lock(&self.followers).is_empty()
    }

    fn try_poller(&self) -> Option<MutexGuard<'_, Poller>> {
        let poller = match self.poller.try_lock() {
            Ok(poller) => poller,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let sleeper = self.sleeper.load(Ordering::SeqCst);
        (sleeper == 0 || sleeper == nesting::thread()).then_some(poller)
    }

    /// Makes sure that some thread soon makes a pass, which a posted request waits for.
    #[inline]
    pub(crate) fn wake_for_post(&self) {
        match self.progress_thread.state.load(Ordering::SeqCst) {
            ACTIVE => self.shared.wake(),
            RESTING => self.progress_thread.unpark_if_parked(),
            _ => {}
        }
    }
}

impl Poller {
    /// Delivers all events that the poller has now, and then reports the end of closed connections.
    /// This thread holds both the poller and the engine lock, so no other thread has undelivered
    /// events. So the end of connections that were closed before this call can be reported. If a
    /// connection turns out to be closed during the delivery, the poller may have newer events, so
    /// this method asks the poller again.
    fn deliver_all<E: MakeProgress>(&mut self, locked: &mut LockedEngine<E>) {
        loop {
            let closed = locked.engine.take_closed();
            while self.take().is_ok() {
                let all = self.events.iter().count() < EVENT_CAPACITY;
                locked.deliver(&self.events);
                self.events.clear();
                if all {
                    break;
                }
            }
            locked.engine.finish_closed(closed);
            if !locked.engine.has_closed() {
                return;
            }
        }
    }

    /// Takes the events that the poller has now.
    fn take(&mut self) -> io::Result<()> {
        self.poll.poll(&mut self.events, Some(Duration::ZERO))
    }
}

/// The record by which ppoll(2) waits until a descriptor is readable.
pub(crate) fn pollfd(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}
