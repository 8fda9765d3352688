//! The thread that makes progress for consumers who do not.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_core::threads;
use dat_core::wake::trace;
use rustix::thread::set_current_timer_slack;

use super::schedule::{Left, Next, Seen, Watch};
use super::{Reactor, lock};
use crate::engine::Engine;

/// How long it may run before another thread has its turn: the shortest that Linux takes.
const SLICE: Duration = Duration::from_micros(100);
#[derive(Default)]
pub(super) struct ProgressThread {
    pub(super) state: AtomicU8,
    pub(super) stop: AtomicBool,
    /// How many notification objects have a file descriptor that consumers may sleep on.
    pub(super) attended: AtomicU32,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// When it was active last, something came that no consumer looked for.
    helped: AtomicBool,
    /// It is to be active although consumers make progress.
    called: AtomicBool,
}

/// What the trace of wake-ups calls it.
const PLACE: &str = "progress thread";

const ABSENT: u8 = 0;
pub(super) const ACTIVE: u8 = 1;
const WATCHING: u8 = 2;
pub(super) const RESTING: u8 = 3;

impl ProgressThread {
    pub(super) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::SeqCst) > 0
    }

    /// Makes a thread that rests look again.
    pub(super) fn unpark_if_parked(&self) {
        if self.state.load(Ordering::SeqCst) == RESTING
            && self
                .state
                .compare_exchange(RESTING, WATCHING, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            self.unpark();
        }
    }

    /// A consumer that polls leaves a message that has come in part, and may watch memory for the rest. Where
    /// such a call was of no use, none is heard until the thread has been of use otherwise.
    #[cold]
    pub(super) fn call(&self) {
        if self.helped.load(Ordering::Relaxed) && !self.called.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    pub(super) fn unpark(&self) {
        trace::log_wake(PLACE, std::ptr::from_ref(self).addr());
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.thread().unpark();
        }
    }
}

/// What the thread of an adapter is run by. Ends the process if `f` panics, as a panic on the data path does:
/// nobody knows any more what state the adapter is in, and without its thread consumers would wait for
/// completions that never come.
pub fn abort_on_panic(provider: &str, f: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err() {
        let message =
            format!("dat: {provider}: the thread that makes progress panicked; the process ends\n");
        // A closed standard error is no reason to live on.
        let _ = io::stderr().write_all(message.as_bytes());
        std::process::abort();
    }
}

/// What this thread does at a time takes some microseconds. Linux, since 6.12, lets a thread that says so
/// interrupt one that has not said it as soon as it is woken: without that, a consumer that watches memory on
/// the same processor keeps it waiting for some milliseconds, while what the consumer watches for lies in the
/// socket.
fn ask_for_short_slices() {
    // SAFETY: all zeroes are values of it; this thread's own attributes are read, and written.
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) != 0
            || attr.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.sched_runtime = SLICE.as_nanos() as u64;
        // Older kernels refuse it, or do not heed it.
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
    }
}

/// The background thread.
impl<E: Engine> Reactor<E> {
    /// Starts it, if it does not run yet.
    pub(crate) fn start_background(self: &Arc<Self>) -> io::Result<()> {
        let mut thread = lock(&self.background.thread);
        if thread.is_none() {
            let this = Arc::clone(self);
            self.background.state.store(WATCHING, Ordering::SeqCst);
            let body = move || abort_on_panic(E::NAME, || this.background());
            let spawned = threads::spawn(E::NAME, body);
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
            self.shared.wake();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic ends the process");
        }
    }

    fn background(&self) {
        // By default a thread sleeps some 50 microseconds longer than it says. Where that cannot be had, it does.
        set_current_timer_slack(Some(NonZeroU64::MIN)).ok();
        ask_for_short_slices();
        let mut watch = Watch::new();
        let mut passes = self.shared.consumer_passes();
        let mut leaders = self.leaders.load(Ordering::SeqCst);
        while !self.background.stop.load(Ordering::SeqCst) {
            let told = trace::sleep(
                PLACE,
                std::ptr::from_ref(&self.background).addr(),
                Some(watch.tick()),
            );
            std::thread::park_timeout(watch.tick());
            drop(told);
            let before = (passes, leaders);
            (passes, leaders) =
                (self.shared.consumer_passes(), self.leaders.load(Ordering::SeqCst));
            let next = watch.look(Seen {
                passes: passes.wrapping_sub(before.0),
                waited: leaders != before.1,
                leader: leaders % 2 == 1,
                called: self.background.called.swap(false, Ordering::Relaxed),
                attended: self.background.is_attended(),
            });
            match next {
                Next::Wait => {}
                Next::Active => {
                    let (left, helped) = self.be_active();
                    self.background.helped.store(helped, Ordering::Relaxed);
                    watch.was_active(left, helped, self.background.is_attended());
                    passes = self.shared.consumer_passes();
                }
                Next::Serve(_) if self.shared.has_work() => drop(self.engine.run_or_delegate()),
                Next::Serve(true) => self.rest(leaders),
                Next::Serve(false) => {}
            }
        }
        self.background.state.store(ABSENT, Ordering::SeqCst);
    }

    /// Serves what comes until a consumer takes over; returns why it stopped, and whether something came that
    /// no consumer looked for.
    fn be_active(&self) -> (Left, bool) {
        let Some(mut poller) = self.try_poller() else {
            let leader = self.leaders.load(Ordering::SeqCst) % 2 == 1;
            return (if leader { Left::Leader } else { Left::Busy }, false);
        };
        let mut helped = false;
        self.background.state.store(ACTIVE, Ordering::SeqCst);
        self.shared.announce_sleep();
        let seen = self.shared.consumer_passes();
        let left = loop {
            // Somebody at work is a consumer. It may have been interrupted, by this very thread: no asking
            // again and again.
            let attended = self.background.is_attended();
            if !self.serve_as_sleeper() {
                break Left::Busy;
            }
            if self.background.stop.load(Ordering::SeqCst) {
                break Left::Leader;
            }
            let limit = match self.shared.has_work() {
                true => Some(Duration::ZERO),
                false => self.shared.until_deadline(),
            };
            let waited;
            (poller, waited) = self.wait(poller, limit);
            let alone = self.shared.consumer_passes() == seen;
            let posted = !attended && !self.shared.doorbells.is_empty();
            let mut partial = false;
            if waited.is_ok() {
                helped |= alone && !poller.events.is_empty();
                partial = self.deliver(&mut poller);
            }
            if posted {
                break Left::Posted;
            }
            if self.has_followers() {
                break Left::Leader;
            }
            // A consumer that has seen a part of a message may watch memory for the rest.
            if !attended && !alone && !partial {
                break Left::Progress;
            }
        };
        self.background.state.store(WATCHING, Ordering::SeqCst);
        self.shared.end_sleep();
        drop(poller);
        if self.has_followers() {
            self.hand_over();
        }
        (left, helped)
    }

    /// Sleeps until the consumer leaves the poller.
    fn rest(&self, leaders: u32) {
        self.background.state.store(RESTING, Ordering::SeqCst);
        // Whoever leaves, or posts, after this store sees it; what happened before is seen here.
        while self.background.state.load(Ordering::SeqCst) == RESTING
            && self.leaders.load(Ordering::SeqCst) == leaders
            && self.shared.doorbells.is_empty()
            && !self.background.stop.load(Ordering::SeqCst)
        {
            let _told = trace::sleep(PLACE, std::ptr::from_ref(&self.background).addr(), None);
            std::thread::park();
        }
        self.background.state.store(WATCHING, Ordering::SeqCst);
    }
}
