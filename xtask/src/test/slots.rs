//! Decides which job starts next, and estimates the remaining time.

use std::time::Duration;

use super::job::Load;

/// The number of jobs of each kind that run in parallel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    computing: usize,
    spinning: usize,
    guests: usize,
}

impl Slots {
    /// Returns the slots for this number of processors. The number of computing jobs is one more
    /// than the number of processors, because jobs sometimes wait.
    pub(crate) fn of(processors: usize) -> Self {
        Self {
            computing: processors + 1,
            spinning: (processors / 2).max(1),
            guests: 2 * processors,
        }
    }

    fn count(self, load: Load) -> usize {
        match load {
            Load::Computes => self.computing,
            Load::Spins => self.spinning,
            Load::Guest => self.guests,
        }
    }

    /// Returns the index of the first waiting job that may start now. Jobs that busy-wait never run
    /// at the same time as jobs with a guest. The jobs that busy-wait start first.
    pub(crate) fn next(self, left: &[Load], running: &[Load]) -> Option<usize> {
        let room = |load| {
            let must_wait = match load {
                Load::Computes => false,
                Load::Spins => running.contains(&Load::Guest),
                Load::Guest => running.contains(&Load::Spins) || left.contains(&Load::Spins),
            };
            !must_wait && running.iter().filter(|other| **other == load).count() < self.count(load)
        };
        left.iter().position(|&load| room(load))
    }
}

/// The remaining part of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemainingJob {
    pub(crate) load: Load,
    pub(crate) tests: usize,
    pub(crate) done: usize,
    /// The duration of the job in the last complete run, if known.
    pub(crate) last_time: Option<Duration>,
    /// The time for which the job has been running.
    pub(crate) ran: Duration,
}

impl RemainingJob {
    fn time(&self, each: Duration) -> Duration {
        if self.tests == 0 {
            return self.last_time.unwrap_or_default().saturating_sub(self.ran);
        }
        let whole = self.last_time.unwrap_or(each * u32::try_from(self.tests).unwrap_or(u32::MAX));
        whole.mul_f64(self.tests.saturating_sub(self.done) as f64 / self.tests as f64)
    }
}

/// Estimates how long the remaining jobs take. The estimate is the time of the longest job, or the
/// sum of the times of all jobs divided by their slots, whichever is longer. If a job has no
/// previous time, its tests are assumed to take as long as the tests of other remaining jobs with
/// the same load. If those have no previous times either, each test is assumed to take the time
/// `each`.
pub(crate) fn remaining(left: &[RemainingJob], slots: Slots, each: Duration) -> Duration {
    let time = |job: &RemainingJob| job.time(time_of_test(left, job.load).unwrap_or(each));
    let sum = |load| left.iter().filter(|job| job.load == load).map(time).sum::<Duration>();
    let longest = left.iter().map(time).max().unwrap_or_default();
    let slot = |load| sum(load) / u32::try_from(slots.count(load)).unwrap_or(u32::MAX).max(1);
    longest.max(slot(Load::Computes)).max(slot(Load::Spins) + slot(Load::Guest))
}

/// Returns the mean time of a test in the last complete run, over the jobs with this load whose
/// times are known.
fn time_of_test(jobs: &[RemainingJob], load: Load) -> Option<Duration> {
    let (mut time, mut tests) = (Duration::ZERO, 0);
    for job in jobs.iter().filter(|job| job.load == load && job.tests > 0) {
        if let Some(last_time) = job.last_time {
            time += last_time;
            tests += job.tests;
        }
    }
    (tests > 0).then(|| time.div_f64(tests as f64))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RemainingJob, Slots, remaining};
    use crate::test::job::Load::{self, Computes, Guest, Spins};

    const TWO: Slots = Slots { computing: 3, spinning: 1, guests: 4 };

    #[test]
    fn full_slots_hold_up_their_own_kind_only() {
        assert_eq!(TWO.next(&[Computes, Spins], &[]), Some(0));
        assert_eq!(TWO.next(&[Computes, Spins], &[Computes; 3]), Some(1));
        assert_eq!(TWO.next(&[Computes, Spins, Computes], &[Computes, Spins]), Some(0));
        assert_eq!(TWO.next(&[Spins], &[Spins]), None);
        assert_eq!(TWO.next(&[], &[]), None);
    }

    #[test]
    fn a_guest_has_nothing_that_spins_beside_it() {
        assert_eq!(TWO.next(&[Guest, Spins], &[]), Some(1));
        assert_eq!(TWO.next(&[Guest], &[Spins]), None);
        assert_eq!(TWO.next(&[Spins], &[Guest]), None);
        assert_eq!(TWO.next(&[Guest], &[Guest; 3]), Some(0));
        assert_eq!(TWO.next(&[Guest, Computes], &[Guest; 4]), Some(1));
    }

    fn left(load: Load, tests: usize, done: usize, last_time: Option<u64>) -> RemainingJob {
        RemainingJob {
            load,
            tests,
            done,
            last_time: last_time.map(Duration::from_secs),
            ran: Duration::from_secs(10),
        }
    }

    #[test]
    fn what_is_left_is_the_longest_job_or_all_of_a_lane() {
        let each = Duration::from_secs(1);
        let time = |jobs: &[RemainingJob]| remaining(jobs, TWO, each).as_secs();
        assert_eq!(time(&[]), 0);
        assert_eq!(time(&[left(Computes, 10, 4, Some(100))]), 60);
        // The tests of a job without a previous time are assumed to take as long as tests of other
        // jobs.
        assert_eq!(time(&[left(Spins, 8, 0, None)]), 8);
        assert_eq!(time(&[left(Spins, 8, 0, None), left(Spins, 2, 0, Some(10))]), 50);
        assert_eq!(time(&[left(Spins, 8, 0, None), left(Computes, 2, 0, Some(6))]), 8);
        assert_eq!(time(&[left(Computes, 10, 0, Some(10)); 6]), 20);
        assert_eq!(time(&[left(Guest, 10, 0, Some(10)); 6]), 15);
    }

    #[test]
    fn of_a_job_without_listed_tests_the_time_alone_is_known() {
        let time = |last_time| {
            remaining(&[left(Computes, 0, 0, last_time)], TWO, Duration::ZERO).as_secs()
        };
        assert_eq!((time(Some(30)), time(Some(5)), time(None)), (20, 0, 0));
    }
}
