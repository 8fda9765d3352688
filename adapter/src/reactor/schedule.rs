//! Decides how often the progress thread checks whether consumers make progress, and what it does
//! after each check.

use std::time::Duration;

use crate::locked_engine::POLLING_INTERVAL_LIMIT;

/// The time between two checks while nothing is known of the consumer.
pub(crate) const DEFAULT_TICK: Duration = Duration::from_millis(1);
/// The maximum time between two checks, for a consumer that has polled for long.
const MAX_TICK: Duration = Duration::from_millis(4);
/// The shortest time between two checks. It applies after a consumer has posted a request, because
/// the consumer may call again in a moment, and after the thread was useful.
const MIN_TICK: Duration = Duration::from_micros(10);
/// The time between two checks if another thread is at work in the engine while a consumer sleeps
/// on a file descriptor. For this time, the progress thread leaves the engine to the other thread.
const FD_WAITER_TICK: Duration = Duration::from_micros(50);
/// A consumer counts as polling after it has made progress in this many consecutive ticks of
/// [`MIN_TICK`]. A consumer that waits only for its own operation and then watches memory must not
/// count as polling. If the progress thread stayed away for as long as this consumer has waited,
/// the peer would have to wait equally long. Then the peer's progress thread would stay away
/// equally long, and so on.
const MIN_TICK_COUNT: u32 = 200;
/// A consumer that takes completions from its queue at least this often makes a pass soon, when the
/// queue is empty. So the progress thread leaves the engine to it, for some time.
const READY_WAIT_INTERVAL_LIMIT: Duration = Duration::from_micros(10);
/// The maximum time between two checks while a consumer takes completions.
const MAX_READY_WAIT_TICK: Duration = Duration::from_micros(100);
/// The maximum time for which the progress thread stays away because a consumer takes completions.
/// Another thread may keep the queue filled with completions of another engine.
const MAX_TIME_OF_READY_WAITS: Duration = Duration::from_micros(500);
/// The number of ticks with the same leader in the poller after which the thread rests.
const TICKS_BEFORE_REST: u32 = 8;

/// What the progress thread knows about the consumers, and the time until its next check.
pub(super) struct Schedule {
    tick: Duration,
    /// The number of ticks of [`MIN_TICK`] that follow before the tick may grow.
    min_ticks_left: u32,
    /// The number of consecutive ticks for which the same thread has been the leader.
    same_leader: u32,
    /// The time for which the thread has stayed away because of ready waits.
    ready_wait_time: Duration,
}

/// A report of what has happened during a tick.
#[derive(Clone, Copy, Default)]
pub(super) struct TickReport {
    /// The number of passes that consumers have made.
    pub(super) passes: u32,
    /// The number of ready waits of consumers.
    pub(super) ready_waits: u32,
    /// Whether a consumer has entered or left the poller.
    pub(super) waited: bool,
    /// Whether a consumer is asleep in the poller.
    pub(super) leader: bool,
    /// Whether a consumer has asked the thread to wait for the rest of a message.
    pub(super) requested: bool,
    /// Whether a consumer sleeps on a file descriptor of its own.
    pub(super) has_fd_waiters: bool,
}

/// The next action of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The thread waits for another tick.
    Wait,
    /// The thread sleeps in the poller.
    Active,
    /// The thread serves the requests that one consumer has posted while another consumer sleeps in
    /// the poller. If the value is true and there are no such requests, the thread rests.
    Serve(bool),
}

/// The reason for which the thread has left the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// Another thread holds the engine or the poller.
    Busy,
    /// A consumer has posted a request, and may call again in a moment.
    Posted,
    /// A consumer makes progress itself.
    Progress,
    /// Another thread is in the poller, or is about to enter it.
    Leader,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Schedule {
            tick: DEFAULT_TICK,
            min_ticks_left: 0,
            same_leader: 0,
            ready_wait_time: Duration::ZERO,
        }
    }

    /// The time until the next check.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// Decides what to do at the end of a tick.
    pub(super) fn next_action(&mut self, seen: TickReport) -> Action {
        let progress = seen.waited
            || (seen.passes > 0 && POLLING_INTERVAL_LIMIT.saturating_mul(seen.passes) >= self.tick);
        self.same_leader = if seen.leader && !progress { self.same_leader + 1 } else { 0 };
        if !seen.requested && !seen.has_fd_waiters {
            if progress {
                self.ready_wait_time = Duration::ZERO;
                self.tick = if self.min_ticks_left > 0 { MIN_TICK } else { self.doubled_tick() };
                self.min_ticks_left = self.min_ticks_left.saturating_sub(1);
                return Action::Wait;
            }
            if self.takes_completions(seen) {
                return Action::Wait;
            }
        }
        if !seen.leader {
            return Action::Active;
        }
        self.tick = DEFAULT_TICK;
        let rests = self.same_leader >= TICKS_BEFORE_REST;
        if rests {
            self.same_leader = 0;
        }
        Action::Serve(rests)
    }

    /// Whether a consumer takes completions and will make a pass soon. Sets the time until the next
    /// check if so. While a thread sleeps in the poller, the progress thread serves what others
    /// post, so it does not wait.
    fn takes_completions(&mut self, seen: TickReport) -> bool {
        let often = seen.ready_waits > 0
            && READY_WAIT_INTERVAL_LIMIT.saturating_mul(seen.ready_waits) >= self.tick;
        let left = MAX_TIME_OF_READY_WAITS.saturating_sub(self.ready_wait_time + self.tick);
        if seen.leader || !often || left.is_zero() {
            return false;
        }
        self.ready_wait_time += self.tick;
        self.tick = (self.tick * 2).min(MAX_READY_WAIT_TICK).min(left);
        true
    }

    /// Records that the thread was active, and why it stopped. `useful` says whether data arrived
    /// that no consumer looked for.
    pub(super) fn was_active(&mut self, left: ExitReason, useful: bool, has_fd_waiters: bool) {
        self.ready_wait_time = Duration::ZERO;
        let before = self.doubled_tick();
        self.min_ticks_left = if useful { MIN_TICK_COUNT } else { 0 };
        self.tick = match left {
            ExitReason::Posted => MIN_TICK,
            ExitReason::Busy if has_fd_waiters => FD_WAITER_TICK,
            ExitReason::Leader => DEFAULT_TICK,
            ExitReason::Busy | ExitReason::Progress if useful => MIN_TICK,
            // The consumer called again before data arrived, so it polls, and does other work
            // between its calls.
            ExitReason::Busy | ExitReason::Progress => before,
        };
    }

    fn doubled_tick(&self) -> Duration {
        (self.tick * 2).min(MAX_TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: TickReport = TickReport {
        passes: 0,
        ready_waits: 0,
        waited: false,
        leader: false,
        requested: false,
        has_fd_waiters: false,
    };
    const PROGRESS: TickReport = TickReport { passes: 1000, ..NOTHING };

    #[test]
    fn a_consumer_that_polls_is_left_alone_longer_and_longer() {
        let mut schedule = Schedule::new();
        let ticks = [(); 4].map(|()| {
            assert_eq!(schedule.next_action(PROGRESS), Action::Wait);
            schedule.tick()
        });
        assert_eq!(ticks.map(|tick| tick.as_millis()), [2, 4, 4, 4]);
    }

    /// A consumer that makes only a few calls per tick needs the progress thread. Without the
    /// thread, these few calls would be the only progress.
    #[test]
    fn a_consumer_that_calls_now_and_then_is_not_left_alone() {
        for calls_a_millisecond in [1, 10] {
            let mut schedule = Schedule::new();
            for _ in 0..8 {
                schedule.next_action(PROGRESS);
            }
            let passes = calls_a_millisecond * schedule.tick().as_millis() as u32;
            assert_eq!(schedule.next_action(TickReport { passes, ..NOTHING }), Action::Active);
            schedule.was_active(ExitReason::Progress, false, false);
            assert_eq!(schedule.next_action(TickReport { passes, ..NOTHING }), Action::Active);
        }
        let mut schedule = Schedule::new();
        schedule.was_active(ExitReason::Progress, true, false);
        assert_eq!(
            schedule.next_action(TickReport { passes: 1, ..NOTHING }),
            Action::Wait,
            "the thread must wait, because a consumer called just now"
        );
    }

    #[test]
    fn a_thread_that_was_of_no_use_comes_later_next_time() {
        let mut schedule = Schedule::new();
        let ticks = [(); 3].map(|()| {
            assert_eq!(schedule.next_action(NOTHING), Action::Active);
            schedule.was_active(ExitReason::Progress, false, false);
            schedule.tick()
        });
        assert_eq!(ticks.map(|tick| tick.as_millis()), [2, 4, 4]);
        schedule.was_active(ExitReason::Busy, false, false);
        assert_eq!(
            schedule.tick(),
            MAX_TICK,
            "the interval must be the maximum, because a consumer is at work in the engine"
        );
    }

    #[test]
    fn a_thread_that_was_of_use_is_back_at_once() {
        let mut schedule = Schedule::new();
        for left in [ExitReason::Progress, ExitReason::Busy] {
            schedule.was_active(left, true, false);
            assert_eq!(schedule.tick(), MIN_TICK);
            assert_eq!(schedule.next_action(NOTHING), Action::Active);
        }
        schedule.was_active(ExitReason::Progress, true, false);
        for _ in 0..MIN_TICK_COUNT {
            assert_eq!(schedule.next_action(PROGRESS), Action::Wait);
            assert_eq!(schedule.tick(), MIN_TICK);
        }
        assert_eq!(schedule.next_action(PROGRESS), Action::Wait);
        assert_eq!(
            schedule.tick(),
            2 * MIN_TICK,
            "the interval must grow, because this consumer polls"
        );
    }

    #[test]
    fn what_is_posted_does_not_wait_for_a_thread_that_was_of_no_use() {
        let mut schedule = Schedule::new();
        for _ in 0..8 {
            schedule.was_active(ExitReason::Progress, false, false);
        }
        schedule.was_active(ExitReason::Posted, false, false);
        assert_eq!(schedule.tick(), MIN_TICK);
        assert_eq!(schedule.next_action(NOTHING), Action::Active);
    }

    /// A consumer may post requests between two waits. If the progress thread took over after each
    /// of them, each wait would cost two thread switches.
    #[test]
    fn a_consumer_that_takes_completions_is_left_alone_for_a_while() {
        let mut schedule = Schedule::new();
        for taking in [
            TickReport { ready_waits: 1000, ..NOTHING },
            // One pass is not enough to count as polling.
            TickReport { ready_waits: 1000, passes: 1, ..NOTHING },
        ] {
            schedule.was_active(ExitReason::Posted, false, false);
            schedule.next_action(TickReport { waited: true, ..NOTHING });
            schedule.tick = MIN_TICK;
            let mut waited = schedule.tick();
            while schedule.next_action(TickReport { passes: 0, ..taking }) == Action::Wait {
                assert!(schedule.tick() <= MAX_READY_WAIT_TICK);
                waited += schedule.tick();
            }
            assert_eq!(waited, MAX_TIME_OF_READY_WAITS);
        }
    }

    #[test]
    fn a_consumer_that_takes_a_completion_now_and_then_is_not_left_alone() {
        let mut schedule = Schedule::new();
        schedule.tick = MAX_READY_WAIT_TICK;
        let (rare, asleep) = (
            TickReport { ready_waits: 9, passes: 1, ..NOTHING },
            TickReport { ready_waits: 1000, leader: true, ..NOTHING },
        );
        assert_eq!(schedule.next_action(rare), Action::Active);
        assert_eq!(schedule.next_action(asleep), Action::Serve(false));
    }

    #[test]
    fn a_requested_thread_is_active_although_there_is_progress() {
        let mut schedule = Schedule::new();
        assert_eq!(
            schedule.next_action(TickReport { requested: true, ..PROGRESS }),
            Action::Active
        );
        assert_eq!(
            schedule.next_action(TickReport { has_fd_waiters: true, ..PROGRESS }),
            Action::Active
        );
        schedule.was_active(ExitReason::Busy, false, true);
        assert_eq!(schedule.tick(), FD_WAITER_TICK);
    }

    #[test]
    fn it_rests_while_the_same_consumer_sleeps_in_the_poller() {
        let mut schedule = Schedule::new();
        let asleep = TickReport { leader: true, ..NOTHING };
        for _ in 1..TICKS_BEFORE_REST {
            assert_eq!(schedule.next_action(asleep), Action::Serve(false));
        }
        assert_eq!(schedule.next_action(asleep), Action::Serve(true));
        assert_eq!(
            schedule.next_action(asleep),
            Action::Serve(false),
            "the count must start again"
        );
        assert_eq!(schedule.next_action(TickReport { waited: true, ..asleep }), Action::Wait);
        assert_eq!(schedule.same_leader, 0);
    }
}
