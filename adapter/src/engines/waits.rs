//! How a consumer's thread waits: it makes progress itself, and sleeps in the pollers of all
//! engines that it serves.

use std::io;
use std::time::{Duration, Instant};

use telemetry::trace;
use waiting::{Wake, WakeReason, cancel};

use super::{EngineSet, Engines, MAX_ENGINES};
use crate::engine_shared::POLLER;
use crate::progress::MakeProgress;
use crate::reactor::schedule::DEFAULT_TICK;
use crate::reactor::{Follower, Reactor, pollfd};
use crate::sync::lock;

/// The number of polls of a blocking wait that share one reading of the clock, which takes some
/// hundred nanoseconds.
const POLLS_PER_CLOCK_READ: u32 = 8;
/// If a deadline has passed but another thread holds the engine lock, a thread sleeps at least this
/// long.
const MIN_SLEEP_WHILE_LOCKED: Duration = Duration::from_micros(100);

/// The engines that a waiting thread makes progress with.
struct Waited {
    /// The engines of the queue that the thread waits for. Empty if it waits for other events.
    of: EngineSet,
    /// All engines that the thread serves.
    served: EngineSet,
}

impl Waited {
    /// The engines without which the thread could not sleep in a poller.
    fn needed(&self) -> EngineSet {
        if self.of == EngineSet::EMPTY { self.served } else { self.of }
    }
}

/// The engines whose leader a thread is, until this value is dropped.
struct Leadership<'a, E: MakeProgress> {
    engines: &'a Engines<E>,
    led: EngineSet,
    /// The engines whose leader the thread was before, because a signal handler has interrupted its
    /// wait.
    nested: EngineSet,
}

impl<'a, E: MakeProgress> Leadership<'a, E> {
    /// Makes this thread the leader of some engines, as far as no other threads lead them. Returns
    /// `None` if other threads lead all engines that this thread waits for.
    fn begin(engines: &'a Engines<E>, set: &Waited) -> Option<Self> {
        let mut leadership =
            Leadership { engines, led: EngineSet::EMPTY, nested: EngineSet::EMPTY };
        let needed = set.needed();
        needed.iter().for_each(|number| leadership.lead(number));
        if leadership.led == EngineSet::EMPTY {
            return None;
        }
        let others = set.served.iter().filter(|&number| !needed.contains(number));
        others.for_each(|number| leadership.lead(number));
        Some(leadership)
    }

    fn lead(&mut self, number: usize) {
        if let Some(is_nested) = self.engines.get(number).try_lead() {
            let this = EngineSet::of(number);
            self.led = self.led.with(this);
            if is_nested {
                self.nested = self.nested.with(this);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &'a Reactor<E>> {
        let engines = self.engines;
        self.led.iter().map(move |number| &**engines.get(number))
    }
}

impl<E: MakeProgress> Drop for Leadership<'_, E> {
    fn drop(&mut self) {
        for number in self.led.iter() {
            self.engines.get(number).stop_leading(self.nested.contains(number));
        }
    }
}

impl<E: MakeProgress> Engines<E> {
    /// Makes progress until `wake` is signalled. Sleeps while there is nothing to do. The thread
    /// waits for a queue of the engines `of`.
    pub(crate) fn sleep(
        &self,
        of: EngineSet,
        wake: &Wake,
        deadline: Option<Instant>,
    ) -> WakeReason {
        let served = match self.count() {
            1 => EngineSet::of(0),
            _ => self.served_by_this_thread(of),
        };
        let set = Waited { of, served };
        // If other threads serve all engines, they signal `wake`.
        let Some(primary) = set.needed().first() else { return wake.park(deadline) };
        if self.spin_limit.is_zero() {
            return self.lead_or_follow(primary, &set, wake, deadline);
        }
        let spin = &self.get(primary).spin;
        let start = Instant::now();
        let mut polled = None;
        if let Ok(mut spin) = spin.try_lock() {
            let polls = spin.next_polls();
            if polls && self.poll_until(served, wake, start, deadline) {
                spin.record(polls, start.elapsed());
                return WakeReason::Woken;
            }
            polled = Some(polls);
        }
        let slept = self.lead_or_follow(primary, &set, wake, deadline);
        if let Some(polled) = polled
            && let Ok(mut spin) = spin.try_lock()
        {
            spin.record(polled, start.elapsed());
        }
        slept
    }

    /// Polls until `wake` is signalled, or until the deadline or `spin_limit` has passed. Returns
    /// whether `wake` is signalled.
    fn poll_until(
        &self,
        served: EngineSet,
        wake: &Wake,
        start: Instant,
        deadline: Option<Instant>,
    ) -> bool {
        let end = start + self.spin_limit;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        loop {
            for _ in 0..POLLS_PER_CLOCK_READ {
                served.iter().for_each(|number| self.get(number).poll());
                if wake.is_signalled() {
                    return true;
                }
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }

    /// Sleeps in the pollers as the leader or, while another thread leads, on `wake`.
    fn lead_or_follow(
        &self,
        primary: usize,
        set: &Waited,
        wake: &Wake,
        deadline: Option<Instant>,
    ) -> WakeReason {
        if let Some(leadership) = Leadership::begin(self, set) {
            return lead(&leadership, set, wake, deadline);
        }
        let followers = &self.get(primary).followers;
        lock(followers).push(Follower(wake));
        // The leader may have left before it could see this thread in the list.
        let leadership = Leadership::begin(self, set);
        let slept = leadership.is_none().then(|| wake.park(deadline));
        lock(followers).retain(|f| !std::ptr::eq(f.0, wake));
        match leadership {
            Some(leadership) => lead(&leadership, set, wake, deadline),
            None => slept.unwrap_or(WakeReason::Woken),
        }
    }
}

/// Sleeps in the pollers as their leader.
fn lead<E: MakeProgress>(
    leadership: &Leadership<'_, E>,
    set: &Waited,
    wake: &Wake,
    deadline: Option<Instant>,
) -> WakeReason {
    loop {
        // If another thread has an engine, that thread is responsible for the work that it leaves
        // over: it publishes this work when it releases the lock
        // (`EngineShared::publish_remaining`).
        let (mut has_work, mut due) = (false, None::<Duration>);
        for reactor in leadership.iter() {
            let served = reactor.serve_as_sleeper();
            has_work |= served && reactor.shared.has_work();
            let of_engine = reactor.shared.until_deadline();
            // The holder of the engine lock handles deadlines. This thread sleeps for a moment,
            // because polling would take processor time from the holder.
            let of_engine = match served {
                true => of_engine,
                false => of_engine.map(|due| due.max(MIN_SLEEP_WHILE_LOCKED)),
            };
            due = [due, of_engine].into_iter().flatten().min();
        }
        let left = match deadline.map(|d| d.checked_duration_since(Instant::now())) {
            Some(None) if !wake.is_signalled() => return WakeReason::TimedOut,
            left => left.flatten(),
        };
        if !has_work && !wake.enter_poller() {
            return WakeReason::Woken;
        }
        let waited = match has_work {
            true => Ok(()),
            false => wait(leadership, [left, due].into_iter().flatten().min()),
        };
        if !has_work && wake.leave_poller() {
            // The reported events must not get lost, because the pollers report each edge only
            // once.
            leadership.iter().for_each(Reactor::take_and_deliver);
            return WakeReason::Woken;
        }
        leadership.iter().for_each(|reactor| reactor.shared.consumer_made_progress());
        match waited {
            Ok(()) => leadership.iter().for_each(Reactor::take_and_deliver),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return WakeReason::Interrupted,
            // The call failed, so this thread cannot make progress. It sleeps for one tick, and the
            // progress threads make progress meanwhile.
            Err(_) => return wake.park(Some(Instant::now() + DEFAULT_TICK)),
        }
        // An engine that another thread serves by now needs that thread as its leader. The caller
        // waits again, for the remaining engines.
        let others = leadership.led.iter().filter(|&number| !set.of.contains(number));
        let engines = leadership.engines;
        let mut others = others.map(|number| engines.get(number));
        if wake.is_signalled() || others.any(|other| other.is_served_by_another_thread()) {
            return WakeReason::Woken;
        }
    }
}

/// Waits for events, without limit if `limit` is `None`.
fn wait<E: MakeProgress>(
    leadership: &Leadership<'_, E>,
    limit: Option<Duration>,
) -> io::Result<()> {
    if limit == Some(Duration::ZERO) {
        return Ok(());
    }
    let mut fds = [pollfd(-1); MAX_ENGINES];
    let mut count = 0;
    for (fd, reactor) in fds.iter_mut().zip(leadership.iter()) {
        *fd = pollfd(reactor.poller_fd);
        count += 1;
    }
    // The trace of the sleep names the poller of the first engine. If another thread wakes this
    // thread through the poller of a different engine, the trace of the wake-up names that poller.
    let first = leadership.iter().next().map(|reactor| std::ptr::from_ref(&*reactor.shared).addr());
    let _trace = first.map(|first| trace::sleep(POLLER, first, limit));
    cancel::poll(&mut fds[..count], limit).map(drop)
}
