//! How often something is measured, and when that is enough. This file only decides: how long a trial took and what it
//! measured comes in as numbers, so that the tests need no clock.
//!
//! A row has parts, for example the latency of DAT and the latency of plain TCP. A [`Schedule`] first finds by trials how
//! many operations of each part make a round. Then it asks for rounds. Each round has one trial of each part, so that all
//! figures of a row come from the same stretch of time. The schedule keeps a row whose rounds agree, and measures a noisy
//! row again.

use std::time::Duration;

/// What is asked of the rounds of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rules {
    /// There are at least so many rounds.
    pub(crate) rounds: usize,
    /// The rounds take at least so long together.
    pub(crate) duration: Duration,
    /// A trial of a round lasts at least so long.
    pub(crate) shortest: Duration,
    /// A trial of a round has at least so many operations, unless they take longer than `longest`.
    pub(crate) operations: usize,
    /// A trial has as many operations as fit into this, where `operations` do not fit.
    pub(crate) longest: Duration,
    /// A row is measured at most so often.
    pub(crate) attempts: usize,
}

/// The median of so many rounds is the least that is believed.
pub(crate) const ROUNDS: usize = 5;
/// A trial of a round lasts at least so long.
pub(crate) const SHORTEST: Duration = Duration::from_millis(50);
/// A trial of a round has at least so many operations, unless they take too long.
pub(crate) const OPERATIONS: usize = 1000;
/// A row is noisy when the rounds of one of its values spread by more than this share of their median (see [`spread`]).
pub(crate) const NOISY: f64 = 0.15;
/// A row is noisy, too, when the mean of its latencies is more than so many times their median: then so much time goes to the few
/// that were interrupted that the median and the rate contradict each other.
pub(crate) const TAIL: f64 = 1.5;

/// A trial that shows how long an operation takes lasts at least this share of a round.
const ENOUGH: f64 = 1.0 / 25.0;
/// The fastest of so many trials of one size counts: others may have been interrupted.
const TRIES: usize = 3;
/// The first trial has so many operations, each following one [`GROWTH`] times as many.
const FIRST: usize = 2;
const GROWTH: usize = 4;
/// A round has more operations than would last just long enough, since a later one may be faster.
const MARGIN: f64 = 1.05;
/// So often the rounds begin anew because they turned out to be too short.
const RESIZES: usize = 3;
/// A row that takes so many times as long as its rounds should is not measured again, and gets no further round.
const PATIENCE: f64 = 4.0;

/// What a trial measured.
pub(crate) trait Sample: Copy {
    /// The values that have to agree between rounds.
    fn values(&self) -> [f64; 2];

    /// The mean of the latencies as a multiple of their median; 1 of what is no latency.
    fn tail(&self) -> f64;
}

/// One value: a latency or a bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Value {
    pub(crate) value: f64,
    /// See [`Sample::tail`].
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
    /// How long it took.
    pub(crate) seconds: f64,
    pub(crate) sample: T,
}

/// What is to be done next: a trial of one part, with so many operations or a few more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) part: usize,
    pub(crate) operations: usize,
}

/// The rounds of a row: the trials of each part, in the order of the rounds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rounds<T> {
    pub(crate) parts: Vec<Vec<Trial<T>>>,
    /// There are fewer than were asked for, since they took too long.
    pub(crate) is_cut: bool,
}

impl<T> Rounds<T> {
    pub(crate) fn of(parts: Vec<Vec<Trial<T>>>) -> Self {
        Rounds { parts, is_cut: false }
    }

    /// None yet, of so many parts.
    fn none(parts: usize) -> Self {
        Rounds::of((0..parts).map(|_| Vec::new()).collect())
    }
}

/// A value over all rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    /// See [`spread`].
    pub(crate) spread: Option<f64>,
}

impl Figure {
    pub(crate) fn of(values: &[f64]) -> Figure {
        Figure { median: median(values), spread: spread(values) }
    }
}

impl<T: Sample> Rounds<T> {
    /// A value of one part over all rounds.
    pub(crate) fn figure(&self, part: usize, value: impl Fn(&T) -> f64) -> Figure {
        let values: Vec<f64> = self.parts[part].iter().map(|trial| value(&trial.sample)).collect();
        Figure::of(&values)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.parts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// The fewest operations of a trial.
    pub(crate) fn operations(&self) -> usize {
        self.parts.iter().flatten().map(|trial| trial.operations).min().unwrap_or(0)
    }

    /// How far the row is from one that is believed: more than 1 is noisy.
    fn unrest(&self) -> f64 {
        let of_part = |part: usize| {
            let spreads =
                [0, 1].map(|which| self.figure(part, |sample| sample.values()[which]).spread);
            let spread = spreads.into_iter().flatten().fold(0.0, f64::max);
            let tail = self.figure(part, Sample::tail).median;
            (spread / NOISY).max((tail - 1.0) / (TAIL - 1.0))
        };
        let most = (0..self.parts.len()).map(of_part).fold(0.0, f64::max);
        if self.is_cut { f64::INFINITY } else { most }
    }

    pub(crate) fn is_noisy(&self) -> bool {
        self.unrest() > 1.0
    }
}

/// Decides what is measured next.
pub(crate) struct Schedule<T> {
    rules: Rules,
    sizes: Vec<Size>,
    /// The rounds of this attempt so far.
    now: Rounds<T>,
    /// The seconds that they took.
    spent_now: f64,
    /// The seconds of all trials.
    spent: f64,
    /// The steadiest of the attempts before this one.
    best: Option<Rounds<T>>,
    attempts: usize,
    resizes: usize,
    done: bool,
}

impl<T: Sample> Schedule<T> {
    pub(crate) fn new(rules: Rules, parts: usize) -> Self {
        Schedule {
            rules,
            sizes: vec![Size::trying(FIRST); parts],
            now: Rounds::none(parts),
            spent_now: 0.0,
            spent: 0.0,
            best: None,
            attempts: 1,
            resizes: 0,
            done: parts == 0,
        }
    }

    /// The next step; nothing when there are enough rounds.
    pub(crate) fn next(&self) -> Option<Step> {
        if self.done {
            return None;
        }
        let unsettled = self.sizes.iter().position(|size| !size.is_settled);
        let part = unsettled.unwrap_or_else(|| {
            let (parts, complete) = (self.sizes.len(), self.now.count());
            let turn = self.now.parts.iter().filter(|trials| trials.len() > complete).count();
            // A later trial may find the machine warmer: each round has the order of the one before turned round.
            if complete.is_multiple_of(2) { turn } else { parts - 1 - turn }
        });
        Some(Step { part, operations: self.sizes[part].operations })
    }

    /// Takes what came of the next step.
    pub(crate) fn take(&mut self, trial: Trial<T>) {
        let Some(Step { part, .. }) = self.next() else { return };
        self.spent += trial.seconds;
        let size = &mut self.sizes[part];
        if !size.is_settled {
            size.take(trial.operations, trial.seconds, &self.rules);
            return;
        }
        self.spent_now += trial.seconds;
        self.now.parts[part].push(trial);
        let rounds = self.now.parts[0].len();
        if self.now.parts.iter().all(|trials| trials.len() == rounds) {
            self.end_round(rounds);
        }
    }

    /// How much of the row is done, as a share.
    pub(crate) fn progress(&self) -> f64 {
        let Rules { rounds, duration, .. } = self.rules;
        let share = self.now.count() as f64 / rounds as f64;
        let of_time = self.spent_now / duration.as_secs_f64();
        // Where no duration is asked for, the second is infinite or no number.
        if self.done { 1.0 } else { share.min(of_time).min(1.0) }
    }

    /// The result, when there is nothing more to be done; nothing if the schedule never ran.
    pub(crate) fn into_rounds(self) -> Option<Rounds<T>> {
        self.best
    }

    fn end_round(&mut self, rounds: usize) {
        let is_enough =
            rounds >= self.rules.rounds && self.spent_now >= self.rules.duration.as_secs_f64();
        let is_overdue = self.spent > self.patience();
        if (rounds == 1 || is_enough) && !is_overdue && self.resizes < RESIZES && self.resize() {
            self.resizes += 1;
            self.begin_anew();
        } else if is_enough || is_overdue {
            self.end_attempt(is_enough, is_overdue);
        }
    }

    /// Keeps the steadier of this attempt and those before, and decides whether there is another attempt.
    fn end_attempt(&mut self, is_complete: bool, is_overdue: bool) {
        let now = Rounds { is_cut: !is_complete, ..self.begin_anew() };
        let is_better = match &self.best {
            None => true,
            Some(best) => is_complete && now.unrest() < best.unrest(),
        };
        if is_better {
            self.best = Some(now);
        }
        let is_noisy = self.best.as_ref().is_some_and(Rounds::is_noisy);
        self.done = !is_noisy || is_overdue || self.attempts >= self.rules.attempts;
        self.attempts += 1;
    }

    /// Returns the rounds so far.
    fn begin_anew(&mut self) -> Rounds<T> {
        self.spent_now = 0.0;
        std::mem::replace(&mut self.now, Rounds::none(self.sizes.len()))
    }

    /// Gives the parts whose trials are too short more operations; whether there are such parts.
    fn resize(&mut self) -> bool {
        let mut is_any = false;
        for (size, trials) in self.sizes.iter_mut().zip(&self.now.parts) {
            let seconds: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
            if median(&seconds) < self.rules.shortest.as_secs_f64() {
                let each: Vec<f64> =
                    trials.iter().map(|trial| trial.seconds / trial.operations as f64).collect();
                size.settle(median(&each), &self.rules);
                is_any = true;
            }
        }
        is_any
    }

    /// In seconds.
    fn patience(&self) -> f64 {
        let Rules { rounds, duration, longest, .. } = self.rules;
        let rounds = longest.as_secs_f64() * (rounds * self.sizes.len()) as f64;
        PATIENCE * rounds.max(duration.as_secs_f64())
    }
}

/// How many operations a part is tried with.
#[derive(Clone, Copy)]
struct Size {
    operations: usize,
    /// A round has so many.
    is_settled: bool,
    /// The trials with so many: how many there were, and the seconds of the fastest.
    tries: usize,
    fastest: f64,
}

impl Size {
    fn trying(operations: usize) -> Size {
        Size { operations, is_settled: false, tries: 0, fastest: f64::INFINITY }
    }

    /// One trial that was interrupted decides nothing: the fastest of several has to be long enough.
    fn take(&mut self, operations: usize, seconds: f64, rules: &Rules) {
        self.tries += 1;
        self.fastest = self.fastest.min(seconds);
        if self.fastest < ENOUGH * rules.shortest.as_secs_f64() {
            *self = Size::trying(operations.saturating_mul(GROWTH));
        } else if self.tries == TRIES {
            self.settle(self.fastest / operations as f64, rules);
        }
    }

    /// So many operations of so many seconds each that they make a round.
    fn settle(&mut self, each: f64, rules: &Rules) {
        let wanted = (MARGIN * rules.shortest.as_secs_f64() / each).max(rules.operations as f64);
        let fitting = rules.longest.as_secs_f64() / each;
        self.operations = wanted.ceil().min(fitting.floor()).max(1.0) as usize;
        self.is_settled = true;
    }
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Half of the distance between the quartiles, as a share of the median: half of all rounds are within the median plus or
/// minus about this share. A single round that was disturbed does not change it much. One value has no spread.
pub(crate) fn spread(values: &[f64]) -> Option<f64> {
    let distance = quantile(values, 0.75) - quantile(values, 0.25);
    (values.len() > 1).then(|| distance / 2.0 / median(values))
}

/// The value that this share of all is below, between two values in proportion.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests;
