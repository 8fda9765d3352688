//! The thread that makes progress for consumers that make none themselves.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::set_current_timer_slack;
use telemetry::{complain, threads, trace};

use super::Reactor;
use super::schedule::{Action, ExitReason, Schedule, TickReport};
use super::thread_state::{ABSENT, ACTIVE, RESTING, TRACE_NAME, WATCHING};
use crate::progress::MakeProgress;
use crate::sync::lock;

/// The time that this thread may run before the scheduler switches to another thread. This is the
/// shortest time slice that Linux accepts.
const TIME_SLICE: Duration = Duration::from_micros(100);
/// If a consumer makes this many waits that find completions at once (ready waits) during one sleep
/// of the progress thread, the consumer takes completions and will make a pass itself. A consumer
/// that makes fewer ready waits may watch memory between them.
const MIN_READY_WAITS: u32 = 4;

/// Runs the body of an adapter's thread. If the body panics, ends the process, as for a panic on
/// the data path. After a panic the state of the adapter is unknown, and without its thread
/// consumers would wait for completions that never come.
pub fn abort_on_panic(provider: &str, f: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err() {
        complain(format_args!("{provider}: the progress thread panicked; the process ends"));
        std::process::abort();
    }
}

/// Asks the scheduler for short time slices, because this thread runs for some microseconds at a
/// time. Since Linux 6.12, a thread with a shorter slice preempts another one as soon as it is
/// woken. Without preemption, a consumer that watches memory on the same processor delays this
/// thread by some milliseconds, while the awaited data are still in the socket.
fn request_short_time_slices() {
    // SAFETY: zero is a valid value of the structure. The calls read and write this thread's own
    // attributes.
    unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) != 0
            || attr.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.sched_runtime = TIME_SLICE.as_nanos() as u64;
        // Older kernels refuse the call or ignore the time slice.
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
    }
}

/// The functions that start and stop the progress thread, and the function that it runs.
impl<E: MakeProgress> Reactor<E> {
    /// Starts the thread if it does not run yet.
    pub(crate) fn start_progress_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut thread = lock(&self.progress_thread.thread);
        if thread.is_none() {
            let this = Arc::clone(self);
            self.progress_thread.state.store(WATCHING, Ordering::SeqCst);
            let body = move || abort_on_panic(E::NAME, || this.run_progress_thread());
            let spawned = threads::spawn(E::NAME, body);
            match spawned {
                Ok(spawned) => *thread = Some(spawned),
                Err(e) => {
                    self.progress_thread.state.store(ABSENT, Ordering::SeqCst);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop_progress_thread(&self) {
        self.progress_thread.stop.store(true, Ordering::SeqCst);
        let thread = lock(&self.progress_thread.thread).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            self.shared.wake();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic ends the process");
        }
    }

    fn run_progress_thread(&self) {
        // By default the kernel delays a thread's wake-up by some 50 microseconds. If this slack
        // cannot be set, the delay stays.
        set_current_timer_slack(Some(NonZeroU64::MIN)).ok();
        request_short_time_slices();
        let mut schedule = Schedule::new();
        let mut passes = self.shared.consumer_passes();
        let mut ready_waits = self.shared.ready_waits();
        let mut leader_changes = self.leader_changes.load(Ordering::SeqCst);
        while !self.progress_thread.stop.load(Ordering::SeqCst) {
            let trace = trace::sleep(
                TRACE_NAME,
                std::ptr::from_ref(&self.progress_thread).addr(),
                Some(schedule.tick()),
            );
            std::thread::park_timeout(schedule.tick());
            drop(trace);
            let before = (passes, ready_waits, leader_changes);
            (passes, ready_waits) = (self.shared.consumer_passes(), self.shared.ready_waits());
            leader_changes = self.leader_changes.load(Ordering::SeqCst);
            let next = schedule.next_action(TickReport {
                passes: passes.wrapping_sub(before.0),
                ready_waits: ready_waits.wrapping_sub(before.1),
                waited: leader_changes != before.2,
                leader: leader_changes % 2 == 1,
                requested: self.progress_thread.requested.swap(false, Ordering::Relaxed),
                has_fd_waiters: self.progress_thread.has_fd_waiters(),
            });
            match next {
                Action::Wait => {}
                Action::Active => {
                    let (left, useful) = self.run_active();
                    self.progress_thread.was_useful.store(useful, Ordering::Relaxed);
                    schedule.was_active(left, useful, self.progress_thread.has_fd_waiters());
                    (passes, ready_waits) =
                        (self.shared.consumer_passes(), self.shared.ready_waits());
                }
                Action::Serve(_) if self.shared.has_work() => drop(self.engine.run_or_delegate()),
                Action::Serve(true) => self.rest(leader_changes),
                Action::Serve(false) => {}
            }
        }
        self.progress_thread.state.store(ABSENT, Ordering::SeqCst);
    }

    /// Serves the engine until a consumer takes over. Returns why the thread stopped, and whether
    /// data arrived that no consumer looked for.
    fn run_active(&self) -> (ExitReason, bool) {
        let Some(mut poller) = self.try_poller() else {
            let leader = self.leader_changes.load(Ordering::SeqCst) % 2 == 1;
            return (if leader { ExitReason::Leader } else { ExitReason::Busy }, false);
        };
        let mut useful = false;
        self.progress_thread.state.store(ACTIVE, Ordering::SeqCst);
        self.shared.announce_sleep();
        let seen = self.shared.consumer_passes();
        let mut ready_waits = self.shared.ready_waits();
        let left = loop {
            // If the engine is busy, a consumer's thread runs it. The progress thread may have
            // interrupted that thread, so the progress thread does not retry at once.
            let has_fd_waiters = self.progress_thread.has_fd_waiters();
            if !self.serve_as_sleeper() {
                break ExitReason::Busy;
            }
            if self.progress_thread.stop.load(Ordering::SeqCst) {
                break ExitReason::Leader;
            }
            let limit = match self.shared.has_work() {
                true => Some(Duration::ZERO),
                false => self.shared.until_deadline(),
            };
            let waited;
            (poller, waited) = self.wait(poller, limit);
            let before = std::mem::replace(&mut ready_waits, self.shared.ready_waits());
            let alone = self.shared.consumer_passes() == seen
                && ready_waits.wrapping_sub(before) < MIN_READY_WAITS;
            let posted = !has_fd_waiters && !self.shared.doorbells.is_empty();
            let mut partial = false;
            if waited.is_ok() {
                useful |= alone && !poller.events.is_empty();
                partial = self.deliver(&mut poller);
            }
            if posted {
                break ExitReason::Posted;
            }
            if self.has_followers() {
                break ExitReason::Leader;
            }
            // A consumer that makes progress ends this loop. There is one exception: if only a part
            // of a message has arrived, the consumer may watch memory for the rest instead of
            // calling again.
            if !has_fd_waiters && !alone && !partial {
                break ExitReason::Progress;
            }
        };
        self.progress_thread.state.store(WATCHING, Ordering::SeqCst);
        self.shared.end_sleep();
        drop(poller);
        if self.has_followers() {
            self.wake_next_leader();
        }
        (left, useful)
    }

    /// Sleeps until the consumer leaves the poller.
    fn rest(&self, leader_changes: u32) {
        self.progress_thread.state.store(RESTING, Ordering::SeqCst);
        // A consumer that leaves the poller or posts after this store sees the new state. The
        // condition of the loop detects what happened before the store.
        while self.progress_thread.state.load(Ordering::SeqCst) == RESTING
            && self.leader_changes.load(Ordering::SeqCst) == leader_changes
            && self.shared.doorbells.is_empty()
            && !self.progress_thread.stop.load(Ordering::SeqCst)
        {
            let _trace =
                trace::sleep(TRACE_NAME, std::ptr::from_ref(&self.progress_thread).addr(), None);
            std::thread::park();
        }
        self.progress_thread.state.store(WATCHING, Ordering::SeqCst);
    }
}
