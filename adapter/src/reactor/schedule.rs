//! How often the background thread looks whether consumers make progress, and what it does then.

use std::time::Duration;

/// How often it looks while nothing is known of the consumer.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// How often it looks at a consumer that has polled for long.
const LONGEST_TICK: Duration = Duration::from_millis(4);
/// How long a request that was posted after another waits for its consumer's next call, and how soon the
/// thread looks again after it was of use.
const SHORTEST_TICK: Duration = Duration::from_micros(10);
/// How long it leaves the engine to somebody who is at work there, while a consumer sleeps on a file descriptor.
const ATTENDED_TICK: Duration = Duration::from_micros(50);
/// A consumer that calls less often than this does not poll: what comes between two of its calls is the thread's.
pub(crate) const POLLING_INTERVAL_LIMIT: Duration = Duration::from_micros(50);
/// So many short ticks in a row with progress, and the consumer is one that polls. One that waits for its own
/// operation and then watches memory is not. If it were left alone for as long as it has waited, its peer
/// would wait for that long, too, and be left alone as long, and so on.
const SHORT_TICKS: u32 = 200;
/// Ticks with the same sleeper in the poller after which the thread rests.
const TICKS_TO_REST: u32 = 8;

/// What it knows of the consumers.
pub(super) struct Watch {
    tick: Duration,
    /// So many more of the shortest ticks.
    short: u32,
    /// Ticks with the same sleeper in the poller.
    same_leader: u32,
}

/// What has happened in a tick.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Consumers have made so many passes.
    pub(super) passes: u32,
    /// One of them has come to the poller, or has left it.
    pub(super) waited: bool,
    /// One of them sleeps in the poller.
    pub(super) leader: bool,
    /// One of them has called the thread.
    pub(super) called: bool,
    /// One of them sleeps on a file descriptor of its own.
    pub(super) attended: bool,
}

/// What it does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for another tick.
    Wait,
    /// It sleeps in the poller.
    Active,
    /// It looks after what a consumer has posted while another sleeps in the poller. True: if there is
    /// nothing, it rests.
    Serve(bool),
}

/// Why it has left the poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Somebody else is at work in the engine.
    Busy,
    /// A consumer has posted something, and may be back in a moment.
    Posted,
    /// A consumer makes progress.
    Progress,
    /// Somebody else is in the poller, or is to be.
    Leader,
}

impl Watch {
    pub(super) fn new() -> Self {
        Watch { tick: TICK, short: 0, same_leader: 0 }
    }

    /// How long until it looks.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// A tick is over.
    pub(super) fn look(&mut self, seen: Seen) -> Next {
        let progress = seen.waited
            || (seen.passes > 0 && POLLING_INTERVAL_LIMIT.saturating_mul(seen.passes) >= self.tick);
        self.same_leader = if seen.leader && !progress { self.same_leader + 1 } else { 0 };
        if progress && !seen.called && !seen.attended {
            self.tick = if self.short > 0 { SHORTEST_TICK } else { self.longer() };
            self.short = self.short.saturating_sub(1);
            return Next::Wait;
        }
        if !seen.leader {
            return Next::Active;
        }
        self.tick = TICK;
        let rests = self.same_leader >= TICKS_TO_REST;
        if rests {
            self.same_leader = 0;
        }
        Next::Serve(rests)
    }

    /// It was active. `helped`: something came that no consumer looked for.
    pub(super) fn was_active(&mut self, left: Left, helped: bool, attended: bool) {
        let before = self.longer();
        self.short = if helped { SHORT_TICKS } else { 0 };
        self.tick = match left {
            Left::Posted => SHORTEST_TICK,
            Left::Busy if attended => ATTENDED_TICK,
            Left::Leader => TICK,
            Left::Busy | Left::Progress if helped => SHORTEST_TICK,
            // The consumer was back before there was anything: it polls, and has other work in between.
            Left::Busy | Left::Progress => before,
        };
    }

    fn longer(&self) -> Duration {
        (self.tick * 2).min(LONGEST_TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Seen =
        Seen { passes: 0, waited: false, leader: false, called: false, attended: false };
    const PROGRESS: Seen = Seen { passes: 1000, ..NOTHING };

    #[test]
    fn a_consumer_that_polls_is_left_alone_longer_and_longer() {
        let mut watch = Watch::new();
        let ticks = [(); 4].map(|()| {
            assert_eq!(watch.look(PROGRESS), Next::Wait);
            watch.tick()
        });
        assert_eq!(ticks.map(|tick| tick.as_millis()), [2, 4, 4, 4]);
    }

    /// It would be served by its own calls alone, a few in each tick, for ever.
    #[test]
    fn a_consumer_that_calls_now_and_then_is_not_left_alone() {
        for calls_a_millisecond in [1, 10] {
            let mut watch = Watch::new();
            for _ in 0..8 {
                watch.look(PROGRESS);
            }
            let passes = calls_a_millisecond * watch.tick().as_millis() as u32;
            assert_eq!(watch.look(Seen { passes, ..NOTHING }), Next::Active);
            watch.was_active(Left::Progress, false, false);
            assert_eq!(watch.look(Seen { passes, ..NOTHING }), Next::Active);
        }
        let mut watch = Watch::new();
        watch.was_active(Left::Progress, true, false);
        assert_eq!(watch.look(Seen { passes: 1, ..NOTHING }), Next::Wait, "it was here just now");
    }

    #[test]
    fn a_thread_that_was_of_no_use_comes_later_next_time() {
        let mut watch = Watch::new();
        let ticks = [(); 3].map(|()| {
            assert_eq!(watch.look(NOTHING), Next::Active);
            watch.was_active(Left::Progress, false, false);
            watch.tick()
        });
        assert_eq!(ticks.map(|tick| tick.as_millis()), [2, 4, 4]);
        watch.was_active(Left::Busy, false, false);
        assert_eq!(watch.tick(), LONGEST_TICK, "whoever is at work is a consumer");
    }

    #[test]
    fn a_thread_that_was_of_use_is_back_at_once() {
        let mut watch = Watch::new();
        for left in [Left::Progress, Left::Busy] {
            watch.was_active(left, true, false);
            assert_eq!(watch.tick(), SHORTEST_TICK);
            assert_eq!(watch.look(NOTHING), Next::Active);
        }
        watch.was_active(Left::Progress, true, false);
        for _ in 0..SHORT_TICKS {
            assert_eq!(watch.look(PROGRESS), Next::Wait);
            assert_eq!(watch.tick(), SHORTEST_TICK);
        }
        assert_eq!(watch.look(PROGRESS), Next::Wait);
        assert_eq!(watch.tick(), 2 * SHORTEST_TICK, "that is one that polls");
    }

    #[test]
    fn what_is_posted_does_not_wait_for_a_thread_that_was_of_no_use() {
        let mut watch = Watch::new();
        for _ in 0..8 {
            watch.was_active(Left::Progress, false, false);
        }
        watch.was_active(Left::Posted, false, false);
        assert_eq!(watch.tick(), SHORTEST_TICK);
        assert_eq!(watch.look(NOTHING), Next::Active);
    }

    #[test]
    fn who_is_called_or_attended_comes_although_there_is_progress() {
        let mut watch = Watch::new();
        assert_eq!(watch.look(Seen { called: true, ..PROGRESS }), Next::Active);
        assert_eq!(watch.look(Seen { attended: true, ..PROGRESS }), Next::Active);
        watch.was_active(Left::Busy, false, true);
        assert_eq!(watch.tick(), ATTENDED_TICK);
    }

    #[test]
    fn it_rests_while_the_same_consumer_sleeps_in_the_poller() {
        let mut watch = Watch::new();
        let asleep = Seen { leader: true, ..NOTHING };
        for _ in 1..TICKS_TO_REST {
            assert_eq!(watch.look(asleep), Next::Serve(false));
        }
        assert_eq!(watch.look(asleep), Next::Serve(true));
        assert_eq!(watch.look(asleep), Next::Serve(false), "it counts anew");
        assert_eq!(watch.look(Seen { waited: true, ..asleep }), Next::Wait);
        assert_eq!(watch.same_leader, 0);
    }
}
