use super::*;

const RULES: Rules = Rules {
    rounds: DEFAULT_ROUNDS,
    duration: Duration::ZERO,
    min_trial_time: MIN_TRIAL_TIME,
    operations: MIN_OPERATIONS,
    max_trial_time: Duration::from_millis(60),
    attempts: 2,
};

/// A simulated machine. `each` contains the seconds that an operation of each part takes. `delay`
/// returns the additional seconds that a trial takes, by the number of the trial.
struct Machine<'a> {
    each: &'a [f64],
    delay: &'a dyn Fn(usize) -> f64,
    trials: Vec<(Step, f64)>,
}

impl Machine<'_> {
    /// Runs the schedule. The sample of each trial is its rate.
    fn run(&mut self, rules: Rules) -> Rounds<Value> {
        let mut schedule = Schedule::new(rules, self.each.len());
        while let Some(step) = schedule.next() {
            let number = self.trials.len();
            assert!(number < 10_000, "the measurement does not end");
            let seconds = step.operations as f64 * self.each[step.part] + (self.delay)(number);
            self.trials.push((step, seconds));
            schedule.record(Trial {
                operations: step.operations,
                seconds,
                sample: plain(step.operations as f64 / seconds),
            });
            assert!((0.0..=1.0).contains(&schedule.progress()));
        }
        schedule.rounds().cloned().expect("rounds")
    }

    fn total_seconds(&self) -> f64 {
        self.trials.iter().map(|(_, seconds)| seconds).sum()
    }
}

fn machine<'a>(each: &'a [f64], delay: &'a dyn Fn(usize) -> f64) -> Machine<'a> {
    Machine { each, delay, trials: Vec::new() }
}

fn plain(value: f64) -> Value {
    Value { value, tail: 1.0 }
}

/// Returns whether two values are equal except for interruptions of a few milliseconds.
fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.01
}

#[test]
fn every_trial_of_a_round_is_long_enough_and_has_enough_operations() {
    let rounds = machine(&[5e-6, 20e-6, 55e-6], &|_| 0.0).run(RULES);
    assert_eq!(rounds.count(), 5);
    for trial in rounds.parts.iter().flatten() {
        assert!(trial.seconds >= 0.05 && trial.operations >= 1000, "{trial:?}");
        assert!(trial.seconds <= 0.061, "{trial:?}");
    }
    assert_eq!(
        [0, 1, 2].map(|part| rounds.figure(part, |rate| rate.value).main.spread),
        [Some(0.0); 3]
    );
    assert!(!rounds.is_noisy());
}

#[test]
fn what_takes_long_has_as_many_operations_as_fit() {
    let rounds = machine(&[2e-3, 0.2], &|_| 0.0).run(RULES);
    let operations =
        |part: usize| rounds.parts[part].iter().map(|trial| trial.operations).collect::<Vec<_>>();
    assert!(
        operations(0).iter().all(|operations| (29..=30).contains(operations)),
        "a trial of 60 ms must have 29 or 30 operations of 2 ms each"
    );
    assert_eq!(operations(1), [1; 5], "an operation that is longer than a round must be alone");
    assert_eq!(rounds.operations(), 1);
}

/// Regression test: the first trial, which has two operations, is interrupted for as long as a
/// whole round.
#[test]
fn one_trial_that_is_interrupted_decides_nothing() {
    let true_rate = 1.0 / 5e-6;
    for interrupted in 0..60 {
        for pause in [0.004, 0.06, 0.4] {
            let delay = |number| if number == interrupted { pause } else { 0.0 };
            let rounds = machine(&[5e-6], &delay).run(RULES);
            assert!(
                rounds.operations() >= 10_000,
                "{interrupted}: {} operations",
                rounds.operations()
            );
            let rate = rounds.figure(0, |rate| rate.value);
            assert!(near(rate.main.median, true_rate), "{interrupted}, {pause} s: {rate:?}");
            assert!(!rounds.is_noisy(), "one slow round of five must not make the row noisy");
        }
    }
}

#[test]
fn every_size_of_trial_may_be_interrupted_once() {
    // The first trial of each part and size is interrupted.
    let each = [5e-6];
    let quiet = {
        let mut machine = machine(&each, &|_| 0.0);
        machine.run(RULES);
        machine.trials
    };
    let sizing = quiet.iter().filter(|(step, _)| step.operations < 10_000).count();
    let delay =
        |number: usize| if number < 2 * sizing && number.is_multiple_of(2) { 0.01 } else { 0.0 };
    let rounds = machine(&each, &delay).run(RULES);
    assert!(near(rounds.figure(0, |rate| rate.value).main.median, 1.0 / 5e-6), "{rounds:?}");
}

/// The number of seconds that a disturbance adds to each trial of a round, by the number of the
/// round. The times do not form two clusters, so they are not those of a machine with two states.
const DISTURBANCES: [f64; 5] = [0.0, 0.02, 0.05, 0.09, 0.14];

/// Returns the number of trials before the first round.
fn trials_before_the_rounds() -> usize {
    let mut machine = machine(&[5e-6], &|_| 0.0);
    machine.run(RULES);
    machine.trials.len() - DEFAULT_ROUNDS
}

#[test]
fn a_noisy_row_gets_more_rounds_and_all_rounds_count() {
    let before = trials_before_the_rounds();
    // Three of the first five rounds are disturbed.
    let delay = |number: usize| match number.checked_sub(before) {
        Some(round @ 1..=3) => DISTURBANCES[round],
        _ => 0.0,
    };
    let mut again = machine(&[5e-6], &delay);
    let rounds = again.run(RULES);
    assert_eq!(again.trials.len(), before + 2 * DEFAULT_ROUNDS, "{rounds:?}");
    assert_eq!(rounds.count(), 2 * DEFAULT_ROUNDS, "no round may be left out");
    assert!(near(rounds.figure(0, |rate| rate.value).main.median, 1.0 / 5e-6), "{rounds:?}");

    let mut once = machine(&[5e-6], &|number| DISTURBANCES[number % 5]);
    let rounds = once.run(Rules { attempts: 1, ..RULES });
    assert_eq!(rounds.count(), DEFAULT_ROUNDS);
    assert!(rounds.is_noisy(), "{rounds:?}");
}

/// The machine is four times as slow in every other round.
#[test]
fn a_machine_with_two_states_has_both_figures_and_is_not_noisy() {
    let before = trials_before_the_rounds();
    let delay = |number: usize| {
        if number.checked_sub(before).is_some_and(|round| round % 2 == 1) { 0.1575 } else { 0.0 }
    };
    let mut machine = machine(&[5e-6], &delay);
    let rounds = machine.run(RULES);
    assert_eq!(rounds.count(), DEFAULT_ROUNDS, "a row in two states needs no more rounds");
    assert!(!rounds.is_noisy(), "{rounds:?}");
    let rate = rounds.figure(0, |rate| rate.value);
    let other = rate.other_state.expect("a second state");
    assert_eq!((rate.main.rounds, other.rounds), (3, 2));
    assert!(near(rate.main.median, 1.0 / 5e-6) && near(other.median, 0.25 / 5e-6), "{rate:?}");
}

/// Regression test: a machine that changed its state during a run had one figure in some rows and a
/// four times larger one in others, each with a small spread.
#[test]
fn rounds_of_rows_take_turns_over_the_whole_run() {
    let mut rows = Interleaved::new(RULES, [1, 2, 1]);
    let (mut order, mut clock) = (Vec::new(), 0.0);
    while let Some((row, step)) = rows.next() {
        // The machine becomes slow after three rounds.
        let each = if clock < 0.66 { 5e-6 } else { 20e-6 };
        let seconds = step.operations as f64 * each;
        clock += seconds;
        let sample = plain(step.operations as f64 / seconds);
        if rows.record(Trial { operations: step.operations, seconds, sample }).is_some() {
            order.push(row);
        }
        assert!((0.0..=3.0).contains(&rows.progress()));
    }
    assert_eq!(order, [[0, 1, 2]; DEFAULT_ROUNDS].concat());
    assert_eq!(rows.progress(), 3.0);
    for row in &rows.rows {
        let rate = row.rounds().expect("rounds").figure(0, |rate| rate.value);
        let other = rate.other_state.expect("a second state");
        assert!(near(rate.main.median, 1.0 / 5e-6) && near(other.median, 1.0 / 20e-6), "{rate:?}");
    }
}

#[test]
fn a_row_that_is_done_has_no_further_turn() {
    let mut rows = Interleaved::new(Rules { rounds: 2, ..RULES }, [1, 1]);
    let mut order = Vec::new();
    while let Some((row, step)) = rows.next() {
        // The second row is noisy, so it gets more rounds.
        let disturbance = if row == 1 { DISTURBANCES[order.len() / 2 * 3 % 5] } else { 0.0 };
        let seconds = step.operations as f64 * 5e-6 + disturbance;
        let sample = plain(step.operations as f64 / seconds);
        if rows.record(Trial { operations: step.operations, seconds, sample }).is_some() {
            order.push(row);
        }
    }
    assert_eq!(order, [0, 1, 0, 1, 1, 1]);
    assert!(Interleaved::<Value>::new(RULES, []).next().is_none());
}

/// All rounds agree, but a few operations take nearly all of the time: the median is 3 µs, and the
/// rate 60,000 per second.
#[test]
fn a_row_whose_median_and_rate_contradict_each_other_is_noisy() {
    let of = |tail: f64| {
        let trial = Trial { operations: 3000, seconds: 0.05, sample: Value { value: 3e-6, tail } };
        Rounds::of(vec![vec![trial; DEFAULT_ROUNDS]])
    };
    assert!(!of(1.0).is_noisy() && !of(1.4).is_noisy());
    assert!(of(1.6).is_noisy() && of(5.0).is_noisy());
    let mut once = of(1.0);
    once.parts[0][2].sample.tail = 100.0;
    assert!(!once.is_noisy(), "one slow round of five must not make the row noisy");
}

#[test]
fn a_row_that_stays_noisy_ends_and_says_so() {
    let mut machine = machine(&[5e-6], &|number| DISTURBANCES[number % 5]);
    let rounds = machine.run(RULES);
    assert!(rounds.is_noisy(), "{rounds:?}");
    assert!(machine.trials.len() < 60, "{} trials", machine.trials.len());
}

#[test]
fn a_busy_machine_is_not_measured_for_ever() {
    // Each trial of a round takes an extra second.
    let delay = |number: usize| if number > 16 { 1.0 } else { 0.0 };
    let mut machine = machine(&[5e-6, 5e-6], &delay);
    let rounds = machine.run(RULES);
    // Five rounds of two parts of 60 ms take 0.6 s. The limit is four times that time, plus the
    // round that exceeds it.
    assert!(machine.total_seconds() < 4.0 * 0.6 + 2.2, "{} s", machine.total_seconds());
    assert!((1..DEFAULT_ROUNDS).contains(&rounds.count()), "{rounds:?}");
    assert!(rounds.is_noisy(), "a row of too few rounds must be noisy");
}

#[test]
fn rounds_that_turn_out_too_short_begin_anew() {
    // Operations become ten times as fast after the size was found. The reason may be that a
    // processor has left a power-saving state.
    let mut schedule = Schedule::new(RULES, 1);
    let mut settled = false;
    while let Some(step) = schedule.next() {
        settled |= step.operations >= MIN_OPERATIONS;
        let each = if settled { 5e-6 } else { 50e-6 };
        let seconds = step.operations as f64 * each;
        schedule.record(Trial { operations: step.operations, seconds, sample: plain(1.0 / each) });
    }
    let rounds = schedule.rounds().expect("rounds");
    assert_eq!(rounds.count(), 5);
    assert!(rounds.parts[0].iter().all(|trial| trial.seconds >= 0.05), "{rounds:?}");
}

#[test]
fn the_order_of_the_parts_is_turned_round_in_every_other_round() {
    let mut machine = machine(&[50e-6; 3], &|_| 0.0);
    machine.run(RULES);
    let parts: Vec<usize> =
        machine.trials.iter().rev().take(15).map(|(step, _)| step.part).collect();
    assert_eq!(parts, [2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]);
}

#[test]
fn a_duration_is_filled_with_rounds() {
    let rules = Rules { duration: Duration::from_secs(2), attempts: 1, ..RULES };
    let mut machine = machine(&[5e-6, 5e-6], &|_| 0.0);
    let rounds = machine.run(rules);
    // Each round has two trials of 52.5 ms.
    assert!((18..=21).contains(&rounds.count()), "{}", rounds.count());
    assert!(machine.total_seconds() >= 2.0);
}

#[test]
fn progress_does_not_go_beyond_the_row() {
    let mut schedule = Schedule::new(RULES, 1);
    assert_eq!(schedule.progress(), 0.0);
    while let Some(step) = schedule.next() {
        let seconds = step.operations as f64 * 5e-6;
        schedule.record(Trial { operations: step.operations, seconds, sample: plain(1.0) });
    }
    assert_eq!(schedule.progress(), 1.0);
    assert!(Schedule::<Value>::new(RULES, 0).rounds().is_none());
}

#[test]
fn a_spread_is_of_the_middle_half() {
    assert_eq!(spread(&[1.0]), None);
    assert_eq!(spread(&[10.0, 10.0]), Some(0.0));
    assert_eq!(
        spread(&[9.0, 10.0, 11.0, 8.0, 1000.0]),
        Some(0.1),
        "the slowest round must not count"
    );
    assert_eq!(
        spread(&[10.0, 10.0, 10.0, 20.0, 20.0]),
        Some(0.5),
        "two slow rounds of five must count"
    );
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert!(median(&[]).is_nan());
}

#[test]
fn a_remark_says_how_many_rows_are_noisy() {
    assert!(noise(0).is_empty());
    let several = noise(2);
    assert!(
        several.starts_with("2 rows are noisy (!): the rounds spread by more than ±15 %, "),
        "{several}"
    );
}

#[test]
fn a_noisy_row_shows_its_spread_with_a_mark() {
    let texts = [(Some(0.04), false), (Some(0.23), true), (Some(1.5), true), (None, true)]
        .map(|(spread, is_noisy)| spread_with_mark(spread, is_noisy));
    assert_eq!(texts, ["±4 %", "!±23 %", "!150%", "!"]);
}
