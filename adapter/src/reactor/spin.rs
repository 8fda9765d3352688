//! Decides whether a blocking wait polls before it sleeps.
//!
//! A wait that polls catches an event without a wake-up. But a peer that needs this processor
//! cannot run while the wait polls, so the wait delays its own event. Neither the affinity nor a
//! quota of this process tells whether the peer has a processor of its own. So a [`Spin`] compares
//! the durations of waits that poll first with those of waits that sleep at once. It chooses the
//! shorter ones, and tries the others less and less often.
//!
//! If both take the same time, waits poll: the peer may do so as well, and then neither side has to
//! be woken up. If the events are far apart, waits sleep, because polling would not catch them.

use std::time::Duration;

/// A wait that takes this many times the polling limit is long: polling does not help it.
const LONG_WAIT_LIMITS: u32 = 4;
/// After this many long waits in a row, waits sleep at once until there is a wait that is not long.
const MAX_LONG_WAITS: u32 = 4;
/// The averages are exponential: the latest wait has one part in this many.
const AVERAGE_PARTS: u32 = 16;
/// Waits poll unless waits that poll take longer than waits that sleep by more than
/// 1/`TOLERANCE_PARTS`.
const TOLERANCE_PARTS: u32 = 8;
/// The minimum and the maximum number of waits between two trials of the other choice.
const MIN_TRIAL_INTERVAL: u32 = 4;
const MAX_TRIAL_INTERVAL: u32 = 1024;

/// The knowledge of earlier waits.
pub(crate) struct Spin {
    /// The time for which a wait polls before it sleeps.
    limit: Duration,
    /// The average durations of waits that polled first, and of waits that slept at once. Long
    /// waits are left out.
    polling: Option<Duration>,
    sleeping: Option<Duration>,
    /// The number of consecutive long waits.
    long_waits: u32,
    waits_until_trial: u32,
    trial_interval: u32,
}

impl Spin {
    pub(crate) fn new(limit: Duration) -> Self {
        Spin {
            limit,
            polling: None,
            sleeping: None,
            long_waits: 0,
            waits_until_trial: MIN_TRIAL_INTERVAL,
            trial_interval: MIN_TRIAL_INTERVAL,
        }
    }

    /// Decides whether the next wait polls before it sleeps.
    pub(crate) fn next_polls(&mut self) -> bool {
        if self.long_waits >= MAX_LONG_WAITS {
            return false;
        }
        if let Some(left) = self.waits_until_trial.checked_sub(1) {
            self.waits_until_trial = left;
            return self.prefers_polling();
        }
        self.trial_interval = (2 * self.trial_interval).min(MAX_TRIAL_INTERVAL);
        self.waits_until_trial = self.trial_interval;
        !self.prefers_polling()
    }

    /// Records the duration of a wait, and whether it polled before it slept.
    pub(crate) fn record(&mut self, polled: bool, took: Duration) {
        if took >= LONG_WAIT_LIMITS * self.limit {
            self.long_waits = self.long_waits.saturating_add(1);
            return;
        }
        self.long_waits = 0;
        let preferred = self.prefers_polling();
        let (average, other) = match polled {
            true => (&mut self.polling, self.sleeping),
            false => (&mut self.sleeping, self.polling),
        };
        let was_successful_trial = polled != preferred && other.is_some_and(|other| took < other);
        let add = |before| ((AVERAGE_PARTS - 1) * before + took) / AVERAGE_PARTS;
        *average = Some(average.map_or(took, add));
        if was_successful_trial || self.prefers_polling() != preferred {
            // It is uncertain which choice is the better one, so further trials follow soon.
            self.trial_interval = MIN_TRIAL_INTERVAL;
            self.waits_until_trial = MIN_TRIAL_INTERVAL;
        }
    }

    fn prefers_polling(&self) -> bool {
        match (self.polling, self.sleeping) {
            (Some(polling), Some(sleeping)) => polling <= sleeping + sleeping / TOLERANCE_PARTS,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(30);
    const WAITS: u32 = 4000;

    /// The times in µs that a wait takes if it polls, and if it sleeps.
    #[derive(Clone, Copy)]
    struct Durations {
        polling: u64,
        sleeping: u64,
    }

    /// The peer has a processor of its own.
    const OWN_PROCESSOR: Durations = Durations { polling: 9, sleeping: 17 };
    /// The peer needs this processor: it runs only when this thread sleeps.
    const SAME_PROCESSOR: Durations = Durations { polling: 30 + 22, sleeping: 22 };
    /// The peer has a processor of its own, and takes a millisecond.
    const SLOW: Durations = Durations { polling: 1000, sleeping: 1000 };

    impl Durations {
        fn of(self, polls: bool) -> Duration {
            Duration::from_micros(if polls { self.polling } else { self.sleeping })
        }
    }

    /// The sums over the waits of a run.
    #[derive(Default)]
    struct Run {
        took: Duration,
        polls: u32,
        /// The times that the same waits would take if all polled, and if all slept.
        all_polling: Duration,
        all_sleeping: Duration,
    }

    fn run(spin: &mut Spin, peer: impl Fn(u32) -> Durations) -> Run {
        let mut run = Run::default();
        for peer in (0..WAITS).map(peer) {
            let polls = spin.next_polls();
            spin.record(polls, peer.of(polls));
            run.took += peer.of(polls);
            run.polls += u32::from(polls);
            run.all_polling += peer.of(true);
            run.all_sleeping += peer.of(false);
        }
        run
    }

    #[test]
    fn on_one_processor_it_is_as_fast_as_without_polling() {
        let run = run(&mut Spin::new(LIMIT), |_| SAME_PROCESSOR);
        assert!(run.took < run.all_sleeping.mul_f64(1.05), "{:?}", run.took);
    }

    #[test]
    fn on_two_processors_it_is_as_fast_as_polling() {
        let run = run(&mut Spin::new(LIMIT), |_| OWN_PROCESSOR);
        assert!(run.took < run.all_polling.mul_f64(1.05), "{:?}", run.took);
    }

    #[test]
    fn it_follows_a_peer_that_moves() {
        let mut spin = Spin::new(LIMIT);
        for _ in 0..3 {
            let alone = run(&mut spin, |_| SAME_PROCESSOR);
            assert!(alone.took < alone.all_sleeping.mul_f64(1.05), "{:?}", alone.took);
            let moved = run(&mut spin, |_| OWN_PROCESSOR);
            assert!(moved.took < moved.all_polling.mul_f64(1.3), "{:?}", moved.took);
        }
    }

    /// A busy program takes the peer's processor now and then, so that the peer needs the processor
    /// of this side.
    #[test]
    fn beside_a_busy_program_it_is_as_fast_as_the_better_of_both() {
        for busy in [0, 1, 5, 10, 20, 30, 50, 70, 90, 99] {
            // A multiplicative hash decides for which waits of 100 the peer's processor is busy.
            let peer = |wait: u32| match (wait.wrapping_mul(2_654_435_761) >> 16) % 100 < busy {
                true => SAME_PROCESSOR,
                false => OWN_PROCESSOR,
            };
            let run = run(&mut Spin::new(LIMIT), peer);
            let better = run.all_polling.min(run.all_sleeping);
            assert!(run.took < better.mul_f64(1.1), "{busy}%: {:?}, {better:?}", run.took);
        }
    }

    #[test]
    fn it_does_not_poll_for_events_that_are_far_apart() {
        let mut spin = Spin::new(LIMIT);
        assert_eq!(run(&mut spin, |_| SLOW).polls, MAX_LONG_WAITS);
        spin.record(false, OWN_PROCESSOR.of(false));
        assert_eq!(spin.long_waits, 0, "waits poll again after one that is not long");
    }

    /// Two peers shared a processor and therefore slept; now they have two. Each side's wake-up
    /// takes longer than the other side polls, so the waits become short only if both sides poll.
    #[test]
    fn two_peers_begin_to_poll_together() {
        let (mut here, mut there) = (Spin::new(LIMIT), Spin::new(LIMIT));
        run(&mut here, |_| SAME_PROCESSOR);
        run(&mut there, |_| SAME_PROCESSOR);
        assert!(!here.prefers_polling() && !there.prefers_polling());
        const MESSAGE: Duration = Duration::from_micros(5);
        const WAKE_UP: Duration = Duration::from_micros(25);
        for _ in 0..WAITS {
            let polls = [here.next_polls(), there.next_polls()];
            let took = match polls {
                [true, true] => 2 * MESSAGE,
                [false, false] | [true, false] | [false, true] => 2 * (MESSAGE + WAKE_UP),
            };
            here.record(polls[0], took);
            there.record(polls[1], took);
        }
        assert!(here.next_polls() && there.next_polls());
    }
}
