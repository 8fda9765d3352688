//! Who makes progress: whoever waits.
//!
//! - A consumer that polls drives the sockets itself ([`Reactor::poll`]).
//! - One that blocks polls for some microseconds, then sleeps in the poller itself ([`Reactor::sleep`]): a message
//!   costs one wake-up and no hand-over. There is one poller, so of several that block one leads and the others
//!   follow, asleep on their own [`Wake`]; a leader that leaves calls one of them to be the next.
//! - A background thread serves those whose consumer does neither:
//!
//! ```text
//! Active   in the poller, without limit        → Watching  when a consumer makes progress, or has posted something
//! Watching looks once in a tick                → Active    when no consumer has polled or waited since the last tick
//!                                              → Resting   when a consumer has been asleep in the poller for some ticks
//! Resting  asleep, without limit               → Watching  when that consumer leaves the poller, whoever follows
//! ```
//!
//! A consumer that polls looks again within a microsecond, and one that watches its memory may not call for
//! seconds. Nobody can tell in advance which of the two the next moment brings, so:
//!
//! - A consumer that calls less than once in 50 µs does not poll, and the thread does not wait for it.
//! - The thread learns from whether it was of use ([`schedule`]): after something came that no consumer looked for it
//!   is back in the poller within 10 µs of the consumer's last call, and if it was of no use it stays away twice as
//!   long as before.
//! - A pass that finds the first part of a message stays for the rest ([`LockedEngine::stay`]): what a program sees of
//!   it in memory may make it watch memory for the last octet. Where the rest is late, the pass calls the thread.
//!
//! While a consumer sleeps on a file descriptor of its own (dat_cno_fd_create), nobody can tell when it makes
//! progress: then the background thread stays active beside those who do.
//!
//! So, otherwise, no one polls a socket beside another, and a program that does nothing is not woken by anybody.

mod progress_thread;
mod schedule;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use dat_core::nesting;
use dat_core::wake::{Slept, Wake, trace};
use mio::{Events, Poll, Token};

pub use self::progress_thread::abort_on_panic;
use self::progress_thread::{ACTIVE, ProgressThread, RESTING};
pub(crate) use self::schedule::POLLING_INTERVAL_LIMIT;
use self::schedule::TICK;
use crate::engine::{Engine, Progress};
use crate::engine_lock::{Deferring, EngineLock};
use crate::locked::LockedEngine;
use crate::shared::{POLLER, SharedState};

/// The token of the poller's waker.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// Looks between two looks at the clock, while a blocking wait polls: each takes some hundred nanoseconds.
const LOOKS: u32 = 8;
/// Polls that find somebody else at work before one lets others have its processor.
const MISSES: u32 = 1000;
/// How long who sleeps leaves what is due to somebody else who is at work.
const MOMENT: Duration = Duration::from_micros(100);
/// Events taken from the poller at a time.
const EVENTS: usize = 256;

/// The engine, and who works on it.
pub(crate) struct Reactor<E: Engine> {
    pub(crate) engine: EngineLock<LockedEngine<E>>,
    pub(crate) shared: Arc<SharedState<E>>,
    poller: Mutex<Poller>,
    /// The descriptor to sleep on until there is something to ask the poller for.
    poller_fd: RawFd,
    /// The thread that sleeps there ([`nesting::thread`]): the poller is its own, though not locked. 0: none.
    sleeper: AtomicUsize,
    /// Those who sleep while another leads.
    followers: Mutex<Vec<Follower>>,
    /// Counts entries and exits of leaders: odd while there is one.
    leaders: AtomicU32,
    /// Counts polls that found somebody else at work.
    misses: AtomicU32,
    spin: Spin,
    background: ProgressThread,
}

struct Poller {
    poll: Poll,
    events: Events,
}

/// A follower's signal; valid while it is in the list.
struct Follower(*const Wake);

// SAFETY: a `Wake` is Sync; the followers' lock keeps it alive while it is used.
unsafe impl Send for Follower {}

/// How long a blocking wait polls.
struct Spin {
    longest: Duration,
    now_us: AtomicU32,
    /// One thread at a time: more of them would only be in each other's way.
    taken: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E: Engine> Reactor<E> {
    pub(crate) fn new(engine: E, shared: Arc<SharedState<E>>, poll: Poll, spin: Duration) -> Self {
        Reactor {
            engine: EngineLock::new(LockedEngine::new(engine, Arc::clone(&shared))),
            shared,
            poller_fd: poll.as_raw_fd(),
            sleeper: AtomicUsize::new(0),
            poller: Mutex::new(Poller { poll, events: Events::with_capacity(EVENTS) }),
            followers: Mutex::default(),
            leaders: AtomicU32::new(0),
            misses: AtomicU32::new(0),
            spin: Spin {
                longest: spin,
                now_us: AtomicU32::new(spin.as_micros() as u32),
                taken: AtomicBool::new(false),
            },
            background: ProgressThread::default(),
        }
    }

    /// One look at everything, without waiting for anybody.
    #[inline]
    pub(crate) fn poll(&self) {
        if !self.shared.has_sockets() {
            return;
        }
        let Some(mut locked) = self.engine.try_lock() else { return self.give_way() };
        let mut ask = locked.poll_pass() == Progress::AskPoller;
        if locked.engine.take_partial() {
            let stay = locked.stay();
            ask |= stay.ask;
            if !stay.complete {
                self.background.call();
            }
        }
        if !ask {
            return;
        }
        match self.try_poller() {
            Some(mut poller) => {
                poller.ask(&mut locked);
                if locked.engine.take_partial() && !locked.stay().complete {
                    self.background.call();
                }
            }
            None => {
                drop(locked);
                self.give_way();
            }
        }
    }

    /// Somebody else is at work. One that polls must not keep it from the processor for long: it may be the
    /// very one that has the news.
    #[cold]
    fn give_way(&self) {
        let misses = self.misses.load(Ordering::Relaxed).wrapping_add(1);
        self.misses.store(misses, Ordering::Relaxed);
        if misses.is_multiple_of(MISSES) {
            std::thread::yield_now();
        }
    }

    /// Sleeps until `wake` is signalled, making progress meanwhile.
    pub(crate) fn sleep(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        if self.spin(wake, deadline) {
            return Slept::Woken;
        }
        let asleep_since = (!self.spin.longest.is_zero()).then(Instant::now);
        let slept = self.lead_or_follow(wake, deadline);
        if let Some(since) = asleep_since {
            self.spin.learn(since.elapsed());
        }
        slept
    }

    /// See [`Transport::attend`](dat_core::provider::Transport::attend).
    pub(crate) fn attend(&self, on: bool) {
        match on {
            true => self.background.attended.fetch_add(1, Ordering::SeqCst),
            false => self.background.attended.fetch_sub(1, Ordering::SeqCst),
        };
        self.background.unpark();
    }

    /// Ends the sleep of the leader.
    pub(crate) fn interrupt(&self) {
        self.shared.wake();
    }

    /// Polls for a while. True: signalled.
    fn spin(&self, wake: &Wake, deadline: Option<Instant>) -> bool {
        let longest = Duration::from_micros(self.spin.now_us.load(Ordering::Relaxed).into());
        if longest.is_zero() || self.spin.taken.swap(true, Ordering::Relaxed) {
            return wake.is_signalled();
        }
        let end = Instant::now() + longest;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let signalled = 'spinning: loop {
            for _ in 0..LOOKS {
                self.poll();
                if wake.is_signalled() {
                    break 'spinning true;
                }
            }
            if Instant::now() >= end {
                break false;
            }
        };
        self.spin.taken.store(false, Ordering::Relaxed);
        signalled
    }

    /// Sleeps in the poller.
    fn lead<'a>(
        &'a self,
        mut poller: MutexGuard<'a, Poller>,
        wake: &Wake,
        deadline: Option<Instant>,
    ) -> Slept {
        self.leaders.fetch_add(1, Ordering::SeqCst);
        self.shared.announce_sleep();
        let slept = loop {
            // What is left over by another that is at work is its own; it says so when it leaves it
            // (`SharedState::leave`).
            let served = self.serve_as_sleeper();
            let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
                Some(None) if !wake.is_signalled() => break Slept::TimedOut,
                left => left.flatten(),
            };
            let work = served && self.shared.has_work();
            if !work && !wake.enter_poller() {
                break Slept::Woken;
            }
            let limit = match work {
                true => Some(Duration::ZERO),
                false => {
                    let due = self.shared.until_deadline();
                    // What is due is done by whoever is at work. If not, this thread does it soon, and does not
                    // take a processor from that one meanwhile.
                    let due = if served { due } else { due.map(|due| due.max(MOMENT)) };
                    [left, due].into_iter().flatten().min()
                }
            };
            let waited;
            (poller, waited) = self.wait(poller, limit);
            if !work && wake.leave_poller() {
                // What was reported must not get lost: edges are reported once.
                self.deliver(&mut poller);
                break Slept::Woken;
            }
            self.shared.consumer_made_progress();
            match waited {
                Ok(()) => drop(self.deliver(&mut poller)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => break Slept::Interrupted,
                // No poller, no progress here; the background thread's ticks make some.
                Err(_) => break wake.park(Some(Instant::now() + TICK)),
            }
            if wake.is_signalled() {
                break Slept::Woken;
            }
        };
        self.shared.end_sleep();
        self.leaders.fetch_add(1, Ordering::SeqCst);
        drop(poller);
        self.hand_over();
        slept
    }

    /// Waits for events; none: without limit. The poller is not locked while this thread sleeps: calls of a
    /// signal handler that interrupts it may need the poller.
    fn wait<'a>(
        &'a self,
        mut poller: MutexGuard<'a, Poller>,
        limit: Option<Duration>,
    ) -> (MutexGuard<'a, Poller>, io::Result<()>) {
        if limit != Some(Duration::ZERO) {
            let before = self.sleeper.swap(nesting::thread(), Ordering::SeqCst);
            drop(poller);
            let told = trace::sleep(POLLER, std::ptr::from_ref(&*self.shared).addr(), limit);
            let slept = sleep_on(self.poller_fd, limit);
            drop(told);
            poller = lock(&self.poller);
            self.sleeper.store(before, Ordering::SeqCst);
            if let Err(e) = slept {
                return (poller, Err(e));
            }
        }
        let taken = poller.take();
        (poller, taken)
    }

    /// Does what there is, for who then looks at what is left before it sleeps; false: somebody else does.
    fn serve_as_sleeper(&self) -> bool {
        let Some(mut locked) = self.engine.lock_or_delegate() else { return false };
        locked.is_sleepers = true;
        locked.run_deferred();
        true
    }

    /// Passes on what the poller reported, without waiting for the engine lock: else its holder handles it.
    /// True: a part of a message has come, and its rest has not.
    fn deliver(&self, poller: &mut Poller) -> bool {
        // No news is news, too, where a connection waits with its end for what else there is.
        if poller.events.is_empty() && !self.shared.has_work() {
            return false;
        }
        let partial = match self.engine.try_lock() {
            Some(mut locked) => {
                locked.is_sleepers = true;
                locked.deliver(&poller.events);
                if locked.engine.has_closed() {
                    poller.ask(&mut locked);
                }
                locked.engine.take_partial()
            }
            None => {
                self.shared.report(&poller.events);
                self.engine.run_or_delegate();
                false
            }
        };
        poller.events.clear();
        partial
    }

    /// Sleeps in the poller, or, as long as somebody else is there, on its own signal.
    fn lead_or_follow(&self, wake: &Wake, deadline: Option<Instant>) -> Slept {
        if let Some(poller) = self.try_poller() {
            return self.lead(poller, wake, deadline);
        }
        lock(&self.followers).push(Follower(wake));
        // The leader may have left before it could see this one in the list.
        let poller = self.try_poller();
        let slept = poller.is_none().then(|| wake.park(deadline));
        lock(&self.followers).retain(|f| !std::ptr::eq(f.0, wake));
        match poller {
            Some(poller) => self.lead(poller, wake, deadline),
            None => slept.unwrap_or(Slept::Woken),
        }
    }

    /// The poller is free: somebody else's turn.
    fn hand_over(&self) {
        let followers = lock(&self.followers);
        // SAFETY: they are in the list, and the list is locked.
        let mut wakes = followers.iter().map(|follower| unsafe { &*follower.0 });
        // Who has been signalled already may have what it waits for, and not come back.
        if let Some(next) = wakes.find(|wake| !wake.is_signalled()) {
            let in_poller = next.signal();
            debug_assert!(!in_poller, "a follower is not in the poller");
        }
        drop(followers);
        // Nor need the one that is called: its own signal may come a moment later. If nobody leads, this
        // thread sees to it.
        self.background.unpark_if_parked();
    }

    fn has_followers(&self) -> bool {
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

    /// Something was posted that waits for the next pass: sees to it that there is one soon.
    #[inline]
    pub(crate) fn nudge(&self) {
        match self.background.state.load(Ordering::SeqCst) {
            ACTIVE => self.shared.wake(),
            RESTING => self.background.unpark_if_parked(),
            _ => {}
        }
    }
}

impl Poller {
    /// Delivers what there is now. The holder of both poller and engine lock knows that nothing is under way
    /// elsewhere: what was over before may end. What is found to be over meanwhile is younger than the
    /// poller's answer, so that asks again.
    fn ask<E: Engine>(&mut self, locked: &mut LockedEngine<E>) {
        loop {
            let closed = locked.engine.take_closed();
            while self.take().is_ok() {
                let all = self.events.iter().count() < EVENTS;
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

    /// Takes what events there are.
    fn take(&mut self) -> io::Result<()> {
        self.poll.poll(&mut self.events, Some(Duration::ZERO))
    }
}

/// Sleeps until a descriptor is readable; no limit: for ever. Only a signal handler interrupts this: after a
/// signal without a handler, such as SIGCONT, ppoll(2) goes on by itself, and epoll_wait(2) does not. It
/// keeps limits to the nanosecond, too.
fn sleep_on(fd: RawFd, limit: Option<Duration>) -> io::Result<()> {
    let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let _asleep = nesting::sleep();
    // SAFETY: one pollfd, one timespec or none, alive during the call; no signal mask.
    match unsafe { libc::ppoll(&mut fd, 1, limit, std::ptr::null()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Spin {
    /// A sleep ended after `slept`: had it been worth while to poll on?
    fn learn(&self, slept: Duration) {
        let now = self.now_us.load(Ordering::Relaxed);
        let next = match slept < 2 * self.longest {
            true => self.longest.as_micros() as u32,
            false => now / 2,
        };
        self.now_us.store(next, Ordering::Relaxed);
    }
}
