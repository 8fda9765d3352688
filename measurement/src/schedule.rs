//! Decides how many times a row is measured. The durations and values of trials are passed in as
//! numbers, so the tests need no clock.
//!
//! A row has parts, for example the latency of DAT and the latency of plain TCP. A [`Schedule`]
//! first finds by trials how many operations of each part make a round. Then it asks for rounds.
//! Each round has one trial of each part, so that all figures of a round come from the same period.
//! A noisy row gets more rounds. [`Interleaved`] lets the rounds of several rows take turns.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::states::{quantile, states};
use crate::units;

/// The requirements for the rounds of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// The minimum number of rounds.
    pub rounds: usize,
    /// The minimum duration of all rounds together.
    pub duration: Duration,
    /// The minimum duration of a round's trial.
    pub min_trial_time: Duration,
    /// The minimum number of operations in a round's trial, unless they take longer than
    /// `max_trial_time`.
    pub operations: usize,
    /// The maximum duration of a trial that has fewer than `operations`.
    pub max_trial_time: Duration,
    /// A noisy row gets further rounds, until it has this many times the minimum number of rounds.
    pub attempts: usize,
}

/// The default number of rounds. The median of fewer rounds is not reliable.
pub const DEFAULT_ROUNDS: usize = 5;
/// The default minimum duration of a round's trial.
pub const MIN_TRIAL_TIME: Duration = Duration::from_millis(50);
/// The default minimum number of operations in a round's trial.
pub const MIN_OPERATIONS: usize = 1000;
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
/// overdue row gets no further round.
const OVERDUE_FACTOR: f64 = 4.0;

/// The result of a trial.
pub trait Sample: Copy {
    /// Returns the values that must agree between rounds.
    fn values(&self) -> [f64; 2];

    /// Returns the ratio of mean and median latency, or 1 if the values are not latencies.
    fn tail(&self) -> f64;
}

/// A value, which is a latency or a bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Value {
    /// The value, in the unit of the row.
    pub value: f64,
    /// The ratio of mean and median latency: see [`Sample::tail`].
    pub tail: f64,
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
pub struct Trial<T> {
    /// The number of operations.
    pub operations: usize,
    /// The duration of the trial.
    pub seconds: f64,
    /// What the trial has measured.
    pub sample: T,
}

/// The next step: a trial of one part, with at least this many operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The index of the part.
    pub part: usize,
    /// The minimum number of operations.
    pub operations: usize,
}

/// The rounds of a row: the trials of each part, in the order of the rounds.
#[derive(Clone, PartialEq, Debug)]
pub struct Rounds<T> {
    /// The trials of each part.
    pub parts: Vec<Vec<Trial<T>>>,
    /// Whether there are fewer rounds than requested, because they took too long.
    pub is_incomplete: bool,
}

impl<T> Rounds<T> {
    /// Returns rounds with these trials of each part.
    pub fn of(parts: Vec<Vec<Trial<T>>>) -> Self {
        Rounds { parts, is_incomplete: false }
    }

    /// Returns a value for a row with this number of parts, of which no round has been measured.
    fn none(parts: usize) -> Self {
        Rounds::of((0..parts).map(|_| Vec::new()).collect())
    }
}

/// A value over all rounds. If the machine had two states (see `states.rs`), the value is that of
/// the state with more rounds, and the other state is beside it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The value of the state with more rounds.
    #[serde(flatten)]
    pub main: State,
    /// The value of the other state, if there are two.
    pub other_state: Option<State>,
}

/// A value over the rounds of one state of the machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// The number of rounds.
    pub rounds: usize,
    /// The median of the values.
    pub median: f64,
    /// The spread of the value: see [`spread`].
    pub spread: Option<f64>,
}

impl State {
    fn of(values: &[f64]) -> State {
        State { rounds: values.len(), median: median(values), spread: spread(values) }
    }
}

impl Figure {
    /// Returns the figure of the rounds with these values.
    pub fn of(values: &[f64]) -> Figure {
        let of = |rounds: &Vec<usize>| {
            State::of(&rounds.iter().map(|&round| values[round]).collect::<Vec<_>>())
        };
        let states: Vec<State> = states(values).iter().map(of).collect();
        Figure { main: states[0], other_state: states.get(1).copied() }
    }

    /// Returns the larger one of the spreads of the states.
    pub fn spread(&self) -> Option<f64> {
        let spreads = [self.main.spread, self.other_state.and_then(|state| state.spread)];
        spreads.into_iter().flatten().max_by(f64::total_cmp)
    }
}

impl<T: Sample> Rounds<T> {
    /// Returns a value of one part over all rounds.
    pub fn figure(&self, part: usize, value: impl Fn(&T) -> f64) -> Figure {
        let values: Vec<f64> = self.parts[part].iter().map(|trial| value(&trial.sample)).collect();
        Figure::of(&values)
    }

    /// Returns the number of rounds.
    pub fn count(&self) -> usize {
        self.parts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Returns the smallest number of operations in a trial.
    pub fn operations(&self) -> usize {
        self.parts.iter().flatten().map(|trial| trial.operations).min().unwrap_or(0)
    }

    /// Returns the noise of the row relative to the limit. A row with more than 1 is noisy.
    fn noise(&self) -> f64 {
        let of_part = |part: usize| {
            let spreads =
                [0, 1].map(|which| self.figure(part, |sample| sample.values()[which]).spread());
            let spread = spreads.into_iter().flatten().fold(0.0, f64::max);
            let tails: Vec<f64> =
                self.parts[part].iter().map(|trial| trial.sample.tail()).collect();
            let tail = median(&tails);
            (spread / MAX_SPREAD).max((tail - 1.0) / (MAX_TAIL_RATIO - 1.0))
        };
        let most = (0..self.parts.len()).map(of_part).fold(0.0, f64::max);
        if self.is_incomplete { f64::INFINITY } else { most }
    }

    /// Returns whether the row is noisy: a spread is above the limit, the mean latency is far above
    /// the median, or there are fewer rounds than requested.
    pub fn is_noisy(&self) -> bool {
        self.noise() > 1.0
    }
}

/// Decides what is measured next.
pub struct Schedule<T> {
    rules: Rules,
    sizes: Vec<TrialSize>,
    rounds: Rounds<T>,
    /// The duration of the rounds in seconds.
    rounds_seconds: f64,
    /// The duration of all trials in seconds.
    total_seconds: f64,
    /// How many times the minimum number of rounds is wanted.
    attempts: usize,
    resizes: usize,
    done: bool,
}

impl<T: Sample> Schedule<T> {
    /// Creates the schedule of a row with this number of parts.
    pub fn new(rules: Rules, parts: usize) -> Self {
        Schedule {
            rules,
            sizes: vec![TrialSize::probing(FIRST_PROBE_OPERATIONS); parts],
            rounds: Rounds::none(parts),
            rounds_seconds: 0.0,
            total_seconds: 0.0,
            attempts: 1,
            resizes: 0,
            done: parts == 0,
        }
    }

    /// Returns the next step, or `None` if there are enough rounds.
    pub fn next(&self) -> Option<Step> {
        if self.done {
            return None;
        }
        let unsettled = self.sizes.iter().position(|size| !size.is_settled);
        let part = unsettled.unwrap_or_else(|| {
            let (parts, complete) = (self.sizes.len(), self.rounds.count());
            let turn = self.rounds.parts.iter().filter(|trials| trials.len() > complete).count();
            // Every other round runs its parts in reverse order, because later trials may find a
            // warmer machine.
            if complete.is_multiple_of(2) { turn } else { parts - 1 - turn }
        });
        Some(Step { part, operations: self.sizes[part].operations })
    }

    /// Records the trial of the next step. Returns whether the trial ends a round.
    pub fn record(&mut self, trial: Trial<T>) -> bool {
        let Some(Step { part, .. }) = self.next() else { return false };
        self.total_seconds += trial.seconds;
        let size = &mut self.sizes[part];
        if !size.is_settled {
            size.record(trial.operations, trial.seconds, &self.rules);
            return false;
        }
        self.rounds_seconds += trial.seconds;
        self.rounds.parts[part].push(trial);
        let rounds = self.rounds.parts[0].len();
        let is_round_complete = self.rounds.parts.iter().all(|trials| trials.len() == rounds);
        if is_round_complete {
            self.end_round(rounds);
        }
        is_round_complete
    }

    /// Returns the completed share of the row.
    pub fn progress(&self) -> f64 {
        let Rules { rounds, duration, .. } = self.rules;
        let share = self.rounds.count() as f64 / rounds as f64;
        let of_time = self.rounds_seconds / duration.as_secs_f64();
        // Without a minimum duration, `of_time` is infinite or NaN, and `min` ignores it.
        if self.done { 1.0 } else { share.min(of_time).min(1.0) }
    }

    /// Returns the rounds that have ended, or `None` if there is none.
    pub fn rounds(&self) -> Option<&Rounds<T>> {
        (self.rounds.count() > 0).then_some(&self.rounds)
    }

    fn end_round(&mut self, rounds: usize) {
        let is_enough = rounds >= self.attempts * self.rules.rounds
            && self.rounds_seconds >= self.rules.duration.as_secs_f64();
        let is_overdue = self.total_seconds > self.time_limit();
        if (rounds == 1 || is_enough) && !is_overdue && self.resizes < MAX_RESIZES && self.resize()
        {
            self.resizes += 1;
            self.rounds_seconds = 0.0;
            self.rounds = Rounds::none(self.sizes.len());
        } else if is_enough && !is_overdue && self.attempts < self.rules.attempts {
            self.done = !self.rounds.is_noisy();
            self.attempts += 1;
        } else {
            self.done = is_enough || is_overdue;
            self.rounds.is_incomplete = is_overdue && !is_enough && self.attempts == 1;
        }
    }

    /// Gives more operations to the parts whose trials are too short. Returns whether there are
    /// such parts.
    fn resize(&mut self) -> bool {
        let mut any_resized = false;
        for (size, trials) in self.sizes.iter_mut().zip(&self.rounds.parts) {
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

/// The schedules of several rows, whose rounds take turns. First each row has a round, then each
/// row has another, and so on. So the rounds of a row are spread over the whole measurement, and
/// all rows find the machine in the same states.
pub struct Interleaved<T> {
    rows: Vec<Schedule<T>>,
    /// The row whose turn it is.
    row: usize,
}

impl<T: Sample> Interleaved<T> {
    /// Creates schedules of rows that have these numbers of parts.
    pub fn new(rules: Rules, parts: impl IntoIterator<Item = usize>) -> Self {
        let rows = parts.into_iter().map(|parts| Schedule::new(rules, parts)).collect();
        Interleaved { rows, row: 0 }
    }

    /// Returns the row whose turn it is and its next step, or `None` if all rows have enough
    /// rounds.
    pub fn next(&self) -> Option<(usize, Step)> {
        self.rows.get(self.row)?.next().map(|step| (self.row, step))
    }

    /// Records the trial of the next step. If the trial ends a round, returns the rounds of the row
    /// so far, and the next row has its turn.
    pub fn record(&mut self, trial: Trial<T>) -> Option<&Rounds<T>> {
        let row = self.row;
        if !self.rows.get_mut(row)?.record(trial) {
            return None;
        }
        let others = (row + 1..self.rows.len()).chain(0..=row);
        self.row = others.into_iter().find(|&other| !self.rows[other].done).unwrap_or(row);
        self.rows[row].rounds()
    }

    /// Returns the number of completed rows, with the completed shares of the others.
    pub fn progress(&self) -> f64 {
        self.rows.iter().map(Schedule::progress).sum()
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
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Returns half the distance between the quartiles as a share of the median: half of all rounds are
/// within the median plus or minus about this share. A single disturbed round hardly changes the
/// spread. Returns `None` for a single value.
pub fn spread(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let distance = quantile(&sorted, 0.75) - quantile(&sorted, 0.25);
    (sorted.len() > 1).then(|| distance / 2.0 / quantile(&sorted, 0.5))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns a remark on noisy rows, or an empty text if no row is noisy.
pub fn noise(rows: usize) -> String {
    let subject = match rows {
        0 => return String::new(),
        1 => "One row is".to_owned(),
        many => format!("{many} rows are"),
    };
    format!(
        "{subject} noisy ({NOISY_MARK}): the rounds spread by more than {}, the mean latency is \
         more than {MAX_TAIL_RATIO} times the median, or there was no time for all rounds. \
         Something else keeps the machine busy.",
        units::spread(MAX_SPREAD)
    )
}

/// The mark before the spread of a noisy row.
const NOISY_MARK: char = '!';

/// Formats the spread of a row, with a mark if the row is noisy. The text has at most six columns
/// if the spread is below 1,000 %.
pub fn spread_with_mark(spread: Option<f64>, is_noisy: bool) -> String {
    let spread = spread.map_or_else(String::new, units::spread);
    match (is_noisy, spread.chars().count()) {
        (false, _) => spread,
        (true, ..6) => format!("{NOISY_MARK}{spread}"),
        (true, _) => format!("{NOISY_MARK}{}", spread.replace(['±', ' '], "")),
    }
}

/// Returns a remark on a figure that has two states, or `None` if it has one. `format` formats a
/// value.
pub fn two_states(what: &str, figure: &Figure, format: impl Fn(f64) -> String) -> Option<String> {
    let (main, other) = (figure.main, figure.other_state?);
    let value = |state: &State| {
        let spread = state.spread.map_or_else(String::new, |s| format!(" {}", units::spread(s)));
        format!("{}{spread}", format(state.median))
    };
    Some(format!(
        "{what}: two states, {} in {} and {} in {}",
        value(&main),
        units::plural(main.rounds, "round", "rounds"),
        value(&other),
        other.rounds
    ))
}

#[cfg(test)]
mod tests;
