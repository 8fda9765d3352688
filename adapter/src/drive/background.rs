//! The thread that makes progress for consumers who do not.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;

use super::{Drive, lock};
use crate::engine::Engine;

/// How often the background thread looks whether consumers make progress. It looks less often while they do.
pub(super) const TICK: Duration = Duration::from_millis(1);
const LONGEST_TICK: Duration = Duration::from_millis(4);
/// How long a request that was posted after another may wait for its consumer's next call.
const SHORT_TICK: Duration = Duration::from_micros(50);
/// A tick after it was active. One with progress, one without, and it is active again: what a peer waits for whose message the
/// consumer does not look for, since it watches memory.
const FIRST_TICK: Duration = Duration::from_micros(10);
/// So many of these in a row with progress, and the consumer is one that polls. One that waits for its own operation and then
/// watches memory is not: were it to be left alone for as long as it has waited, its peer would wait for that long, too, and
/// be left alone as long, and so on.
const FIRST_TICKS: u32 = 200;
/// Ticks with the same sleeper in the poller after which the background thread rests.
const TICKS_TO_REST: u32 = 8;

#[derive(Default)]
pub(super) struct Background {
    pub(super) state: AtomicU8,
    pub(super) stop: AtomicBool,
    /// How many notification objects have a file descriptor that consumers may sleep on.
    pub(super) attended: AtomicU32,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

const ABSENT: u8 = 0;
pub(super) const ACTIVE: u8 = 1;
const WATCHING: u8 = 2;
pub(super) const RESTING: u8 = 3;

impl Background {
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst) > 0
    }

    /// Makes a thread that rests look again.
    pub(super) fn rouse(&self) {
        if self.state.load(Ordering::SeqCst) == RESTING
            && self.state.compare_exchange(RESTING, WATCHING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            self.unpark();
        }
    }

    pub(super) fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.thread().unpark();
        }
    }
}

/// What the thread of an adapter is run by. Ends the process if `f` panics, as a panic on the data path does: nobody knows any more
/// what state the adapter is in, and without its thread consumers would wait for completions that never come.
pub fn die_of_a_panic(provider: &str, f: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err() {
        let message = format!("dat: {provider}: the thread that makes progress panicked; the process ends\n");
        // A closed standard error is no reason to live on.
        let _ = io::stderr().write_all(message.as_bytes());
        std::process::abort();
    }
}

/// The background thread.
impl<E: Engine> Drive<E> {
    /// Starts it, if it does not run yet.
    pub(crate) fn start_background(self: &Arc<Self>) -> io::Result<()> {
        let mut thread = lock(&self.background.thread);
        if thread.is_none() {
            let this = Arc::clone(self);
            self.background.state.store(WATCHING, Ordering::SeqCst);
            let body = move || die_of_a_panic(E::NAME, || this.background());
            let spawned = std::thread::Builder::new().name(E::NAME.into()).spawn(body);
            match spawned {
                Ok(spawned) => *thread = Some(spawned),
                Err(e) => {
                    self.background.state.store(ABSENT, Ordering::SeqCst);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Ends it, and waits for that.
    pub(crate) fn stop_background(&self) {
        self.background.stop.store(true, Ordering::SeqCst);
        let thread = lock(&self.background.thread).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            self.board.wake();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic ends the process");
        }
    }

    fn background(&self) {
        // By default a thread sleeps some 50 microseconds longer than it says. Where that cannot be had, it does.
        set_current_timer_slack(Some(NonZeroU64::MIN)).ok();
        let mut tick = TICK;
        let mut first_ticks = 0_u32;
        let mut seen = self.board.consumer_passes();
        let mut leaders = self.leaders.load(Ordering::SeqCst);
        let mut same_leader = 0;
        while !self.background.stop.load(Ordering::SeqCst) {
            std::thread::park_timeout(tick);
            let (passes, leaders_now) = (self.board.consumer_passes(), self.leaders.load(Ordering::SeqCst));
            let progress = passes != seen || leaders_now != leaders;
            let leader = leaders_now % 2 == 1;
            same_leader = if leader && !progress { same_leader + 1 } else { 0 };
            (seen, leaders) = (passes, leaders_now);

            if progress && !self.background.is_attended() {
                tick = if first_ticks > 0 { FIRST_TICK } else { (tick * 2).min(LONGEST_TICK) };
                first_ticks = first_ticks.saturating_sub(1);
                continue;
            }
            if !leader {
                tick = self.be_active();
                first_ticks = FIRST_TICKS;
                seen = self.board.consumer_passes();
                continue;
            }
            // A consumer sleeps in the poller, and another one has posted something and not looked after it.
            tick = TICK;
            if self.board.has_work() {
                self.desk.serve();
            } else if same_leader >= TICKS_TO_REST {
                self.rest(leaders);
                same_leader = 0;
            }
        }
        self.background.state.store(ABSENT, Ordering::SeqCst);
    }

    /// Serves what comes until a consumer takes over; returns how long to watch it first.
    fn be_active(&self) -> Duration {
        let Some(mut poller) = self.try_poller() else { return TICK };
        self.background.state.store(ACTIVE, Ordering::SeqCst);
        self.board.fall_asleep();
        let seen = self.board.consumer_passes();
        let tick = loop {
            // Somebody at work is a consumer. It may have been interrupted, by this very thread: no asking again and again.
            let attended = self.background.is_attended();
            if !self.desk.serve() {
                break if attended { SHORT_TICK } else { TICK };
            }
            if self.background.stop.load(Ordering::SeqCst) {
                break TICK;
            }
            let limit = match self.board.has_work() {
                true => Some(Duration::ZERO),
                false => self.board.until_alarm(),
            };
            let waited = poller.wait(limit);
            if !attended && !self.board.dirty.is_empty() {
                // Posted while the consumer does something else: it may be back in a moment.
                self.deliver(&mut poller);
                break SHORT_TICK;
            }
            if waited.is_ok() {
                self.deliver(&mut poller);
            }
            if self.has_followers() {
                break TICK;
            }
            if !attended && self.board.consumer_passes() != seen {
                break FIRST_TICK;
            }
        };
        self.background.state.store(WATCHING, Ordering::SeqCst);
        self.board.wake_up();
        drop(poller);
        if self.has_followers() {
            self.hand_over();
        }
        tick
    }

    /// Sleeps until the consumer leaves the poller.
    fn rest(&self, leaders: u32) {
        self.background.state.store(RESTING, Ordering::SeqCst);
        // Whoever leaves, or posts, after this store sees it; what happened before is seen here.
        while self.background.state.load(Ordering::SeqCst) == RESTING
            && self.leaders.load(Ordering::SeqCst) == leaders
            && self.board.dirty.is_empty()
            && !self.background.stop.load(Ordering::SeqCst)
        {
            std::thread::park();
        }
        self.background.state.store(WATCHING, Ordering::SeqCst);
    }
}
