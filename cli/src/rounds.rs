//! Decides how many times a row is measured. The durations and values of trials are passed in as
//! numbers, so the tests need no clock.
//!
//! A row has parts, for example the latency of DAT and the latency of plain TCP. A [`Schedule`]
//! first finds by trials how many operations of each part make a round. Then it asks for rounds.
//! Each round has one trial of each part, so that all figures of a row come from the same period.
//! The schedule keeps a row whose rounds agree, and measures a noisy row again.

use std::time::Duration;

use crate::units;

/// The requirements for the rounds of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rules {
    /// The minimum number of rounds.
    pub(crate) rounds: usize,
    /// The minimum duration of all rounds together.
    pub(crate) duration: Duration,
    /// The minimum duration of a round's trial.
    pub(crate) min_trial_time: Duration,
    /// The minimum number of operations in a round's trial, unless they take longer than
    /// `max_trial_time`.
    pub(crate) operations: usize,
    /// The maximum duration of a trial that has fewer than `operations`.
    pub(crate) max_trial_time: Duration,
    /// The maximum number of times that a row is measured.
    pub(crate) attempts: usize,
}

/// The default number of rounds. The median of fewer rounds is not reliable.
pub(crate) const DEFAULT_ROUNDS: usize = 5;
/// The default minimum duration of a round's trial.
pub(crate) const MIN_TRIAL_TIME: Duration = Duration::from_millis(50);
/// The default minimum number of operations in a round's trial.
pub(crate) const MIN_OPERATIONS: usize = 1000;
/// The maximum spread (see [`spread`]). A row is noisy if one of its values has a larger spread.
const MAX_SPREAD: f64 = 0.15;
/// The maximum ratio of mean and median latency. A row with a larger ratio is also noisy, because a
/// few interrupted operations take so much time that median latency and rate contradict each other.
const MAX_TAIL_RATIO: f64 = 1.5;

/// The minimum duration of a trial that shows how long an operation takes, as a share of the
/// duration of a round's trial.
const MIN_PROBE_SHARE: f64 = 1.0 / 25.0;
/// The number of trials of each size. Only the fastest of these trials counts, because the others
/// may have been interrupted.
const PROBES_PER_SIZE: usize = 3;
/// The number of operations of the first trial, and the factor by which the number grows from trial
/// to trial.
const FIRST_PROBE_OPERATIONS: usize = 2;
const PROBE_GROWTH: usize = 4;
/// The factor by which the computed number of operations of a trial is increased, because later
/// operations may be faster.
const OPERATIONS_MARGIN: f64 = 1.05;
/// The maximum number of times that the rounds are restarted because their trials were too short.
const MAX_RESIZES: usize = 3;
/// A row is overdue when it has taken this many times the planned duration of its rounds. An
/// overdue row gets no further round and is not measured again.
const OVERDUE_FACTOR: f64 = 4.0;

/// The result of a trial.
pub(crate) trait Sample: Copy {
    /// Returns the values that must agree between rounds.
    fn values(&self) -> [f64; 2];

    /// Returns the ratio of mean and median latency, or 1 if the values are not latencies.
    fn tail(&self) -> f64;
}

/// A value, which is a latency or a bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Value {
    pub(crate) value: f64,
    /// The ratio of mean and median latency: see [`Sample::tail`].
    pub(crate) tail: f64,
}

impl Sample for Value {
    fn values(&self) -> [f64; 2] {
        [self.value; 2]
    }

    fn tail(&self) -> f64 {
        self.tail
    }
}

/// One trial of a part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trial<T> {
    pub(crate) operations: usize,
    /// The duration of the trial.
    pub(crate) seconds: f64,
    pub(crate) sample: T,
}

/// The next step: a trial of one part, with at least this many operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) part: usize,
    pub(crate) operations: usize,
}

/// The rounds of a row: the trials of each part, in the order of the rounds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rounds<T> {
    pub(crate) parts: Vec<Vec<Trial<T>>>,
    /// Whether there are fewer rounds than requested, because they took too long.
    pub(crate) is_incomplete: bool,
}

impl<T> Rounds<T> {
    pub(crate) fn of(parts: Vec<Vec<Trial<T>>>) -> Self {
        Rounds { parts, is_incomplete: false }
    }

    /// Returns a value for a row with this number of parts, of which no round has been measured.
    fn none(parts: usize) -> Self {
        Rounds::of((0..parts).map(|_| Vec::new()).collect())
    }
}

/// A value over all rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    /// The spread of the value: see [`spread`].
    pub(crate) spread: Option<f64>,
}

impl Figure {
    pub(crate) fn of(values: &[f64]) -> Figure {
        Figure { median: median(values), spread: spread(values) }
    }
}

impl<T: Sample> Rounds<T> {
    /// Returns a value of one part over all rounds.
    pub(crate) fn figure(&self, part: usize, value: impl Fn(&T) -> f64) -> Figure {
        let values: Vec<f64> = self.parts[part].iter().map(|trial| value(&trial.sample)).collect();
        Figure::of(&values)
    }

    /// Returns the number of rounds.
    pub(crate) fn count(&self) -> usize {
        self.parts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Returns the smallest number of operations in a trial.
    pub(crate) fn operations(&self) -> usize {
        self.parts.iter().flatten().map(|trial| trial.operations).min().unwrap_or(0)
    }

    /// Returns the noise of the row relative to the limit. A row with more than 1 is noisy.
    fn noise(&self) -> f64 {
        let of_part = |part: usize| {
            let spreads =
                [0, 1].map(|which| self.figure(part, |sample| sample.values()[which]).spread);
            let spread = spreads.into_iter().flatten().fold(0.0, f64::max);
            let tail = self.figure(part, Sample::tail).median;
            (spread / MAX_SPREAD).max((tail - 1.0) / (MAX_TAIL_RATIO - 1.0))
        };
        let most = (0..self.parts.len()).map(of_part).fold(0.0, f64::max);
        if self.is_incomplete { f64::INFINITY } else { most }
    }

    pub(crate) fn is_noisy(&self) -> bool {
        self.noise() > 1.0
    }
}

/// Decides what is measured next.
pub(crate) struct Schedule<T> {
    rules: Rules,
    sizes: Vec<TrialSize>,
    /// The rounds of the current attempt.
    now: Rounds<T>,
    /// The duration of the current rounds in seconds.
    attempt_seconds: f64,
    /// The duration of all trials in seconds.
    total_seconds: f64,
    /// The least noisy of the previous attempts.
    best: Option<Rounds<T>>,
    attempts: usize,
    resizes: usize,
    done: bool,
}

impl<T: Sample> Schedule<T> {
    pub(crate) fn new(rules: Rules, parts: usize) -> Self {
        Schedule {
            rules,
            sizes: vec![TrialSize::probing(FIRST_PROBE_OPERATIONS); parts],
            now: Rounds::none(parts),
            attempt_seconds: 0.0,
            total_seconds: 0.0,
            best: None,
            attempts: 1,
            resizes: 0,
            done: parts == 0,
        }
    }

    /// Returns the next step, or `None` if there are enough rounds.
    pub(crate) fn next(&self) -> Option<Step> {
        if self.done {
            return None;
        }
        let unsettled = self.sizes.iter().position(|size| !size.is_settled);
        let part = unsettled.unwrap_or_else(|| {
            let (parts, complete) = (self.sizes.len(), self.now.count());
            let turn = self.now.parts.iter().filter(|trials| trials.len() > complete).count();
            // Every other round runs its parts in reverse order, because later trials may find a
            // warmer machine.
            if complete.is_multiple_of(2) { turn } else { parts - 1 - turn }
        });
        Some(Step { part, operations: self.sizes[part].operations })
    }

    /// Records the trial of the next step.
    pub(crate) fn record(&mut self, trial: Trial<T>) {
        let Some(Step { part, .. }) = self.next() else { return };
        self.total_seconds += trial.seconds;
        let size = &mut self.sizes[part];
        if !size.is_settled {
            size.record(trial.operations, trial.seconds, &self.rules);
            return;
        }
        self.attempt_seconds += trial.seconds;
        self.now.parts[part].push(trial);
        let rounds = self.now.parts[0].len();
        if self.now.parts.iter().all(|trials| trials.len() == rounds) {
            self.end_round(rounds);
        }
    }

    /// Returns the completed share of the row.
    pub(crate) fn progress(&self) -> f64 {
        let Rules { rounds, duration, .. } = self.rules;
        let share = self.now.count() as f64 / rounds as f64;
        let of_time = self.attempt_seconds / duration.as_secs_f64();
        // Without a minimum duration, `of_time` is infinite or NaN, and `min` ignores it.
        if self.done { 1.0 } else { share.min(of_time).min(1.0) }
    }

    /// Returns the result when there is no further step, or `None` if the schedule never ran.
    pub(crate) fn into_rounds(self) -> Option<Rounds<T>> {
        self.best
    }

    fn end_round(&mut self, rounds: usize) {
        let is_enough = rounds >= self.rules.rounds
            && self.attempt_seconds >= self.rules.duration.as_secs_f64();
        let is_overdue = self.total_seconds > self.time_limit();
        if (rounds == 1 || is_enough) && !is_overdue && self.resizes < MAX_RESIZES && self.resize()
        {
            self.resizes += 1;
            self.restart();
        } else if is_enough || is_overdue {
            self.end_attempt(is_enough, is_overdue);
        }
    }

    /// Compares this attempt with the best previous attempt, keeps the less noisy of the two, and
    /// decides whether there is another attempt.
    fn end_attempt(&mut self, is_complete: bool, is_overdue: bool) {
        let now = Rounds { is_incomplete: !is_complete, ..self.restart() };
        let is_better = match &self.best {
            None => true,
            Some(best) => is_complete && now.noise() < best.noise(),
        };
        if is_better {
            self.best = Some(now);
        }
        let is_noisy = self.best.as_ref().is_some_and(Rounds::is_noisy);
        self.done = !is_noisy || is_overdue || self.attempts >= self.rules.attempts;
        self.attempts += 1;
    }

    /// Discards the rounds of this attempt and returns them.
    fn restart(&mut self) -> Rounds<T> {
        self.attempt_seconds = 0.0;
        std::mem::replace(&mut self.now, Rounds::none(self.sizes.len()))
    }

    /// Gives more operations to the parts whose trials are too short. Returns whether there are
    /// such parts.
    fn resize(&mut self) -> bool {
        let mut any_resized = false;
        for (size, trials) in self.sizes.iter_mut().zip(&self.now.parts) {
            let seconds: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
            if median(&seconds) < self.rules.min_trial_time.as_secs_f64() {
                let each: Vec<f64> =
                    trials.iter().map(|trial| trial.seconds / trial.operations as f64).collect();
                size.settle(median(&each), &self.rules);
                any_resized = true;
            }
        }
        any_resized
    }

    /// Returns the time limit of the row in seconds.
    fn time_limit(&self) -> f64 {
        let Rules { rounds, duration, max_trial_time, .. } = self.rules;
        let rounds = max_trial_time.as_secs_f64() * (rounds * self.sizes.len()) as f64;
        OVERDUE_FACTOR * rounds.max(duration.as_secs_f64())
    }
}

/// The number of operations in the trials of a part.
#[derive(Clone, Copy)]
struct TrialSize {
    operations: usize,
    /// Whether the number of operations is final.
    is_settled: bool,
    /// The number of trials of this size, and the duration of the fastest one in seconds.
    tries: usize,
    fastest: f64,
}

impl TrialSize {
    fn probing(operations: usize) -> TrialSize {
        TrialSize { operations, is_settled: false, tries: 0, fastest: f64::INFINITY }
    }

    /// Records a trial that looks for the right size. The fastest of several trials must be long
    /// enough, so that a single interrupted trial does not decide the size.
    fn record(&mut self, operations: usize, seconds: f64, rules: &Rules) {
        self.tries += 1;
        self.fastest = self.fastest.min(seconds);
        if self.fastest < MIN_PROBE_SHARE * rules.min_trial_time.as_secs_f64() {
            *self = TrialSize::probing(operations.saturating_mul(PROBE_GROWTH));
        } else if self.tries == PROBES_PER_SIZE {
            self.settle(self.fastest / operations as f64, rules);
        }
    }

    /// Sets the number of operations of a round, each of which takes `each` seconds.
    fn settle(&mut self, each: f64, rules: &Rules) {
        let wanted = (OPERATIONS_MARGIN * rules.min_trial_time.as_secs_f64() / each)
            .max(rules.operations as f64);
        let fitting = rules.max_trial_time.as_secs_f64() / each;
        self.operations = wanted.ceil().min(fitting.floor()).max(1.0) as usize;
        self.is_settled = true;
    }
}

/// Returns the median.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns half the distance between the quartiles as a share of the median: half of all rounds are
/// within the median plus or minus about this share. A single disturbed round hardly changes the
/// spread. Returns `None` for a single value.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let distance = quantile(values, 0.75) - quantile(values, 0.25);
    (values.len() > 1).then(|| distance / 2.0 / median(values))
}

/// Returns a quantile, interpolated between two values.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Returns a remark on noisy rows, or an empty text if no row is noisy.
pub(crate) fn noise(rows: usize) -> String {
    let subject = match rows {
        0 => return String::new(),
        1 => "One row".to_owned(),
        many => format!("{many} rows"),
    };
    format!(
        "{subject} stayed noisy: the rounds spread by more than {}, the mean latency is more than \
         {MAX_TAIL_RATIO} times the median, or there was no time for all rounds. Something \
         else keeps the machine busy.",
        units::spread(MAX_SPREAD)
    )
}

#[cfg(test)]
mod tests;
