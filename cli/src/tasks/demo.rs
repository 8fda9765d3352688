//! The task of the demonstration.

use std::time::Duration;

use anyhow::{Context, Result};
use measurement::connection::Connection;
use measurement::measure::{Workload, agree_on_step};
use measurement::operation::Operation;
use measurement::plain_sockets::PlainSockets;
use measurement::schedule::{
    DEFAULT_ROUNDS, Figure, Interleaved, MIN_OPERATIONS, MIN_TRIAL_TIME, Rounds, Rules, State,
    Step, Trial, Value,
};
use measurement::wait_mode::Role;
use serde::{Deserialize, Serialize};

use crate::verify;

/// The sizes in bytes of messages that are measured and verified.
pub(crate) const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// The sizes in bytes of messages that are only verified.
pub(crate) const UNMEASURED: [usize; 2] = [1, 16 << 20];

/// The rules for the rounds of a row. A row has four figures of five rounds, so its rounds take a
/// little more than a second together.
pub(crate) const RULES: Rules = Rules {
    rounds: DEFAULT_ROUNDS,
    duration: Duration::ZERO,
    min_trial_time: MIN_TRIAL_TIME,
    operations: MIN_OPERATIONS,
    max_trial_time: Duration::from_millis(55),
    attempts: 2,
};

/// The task of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) sizes: Vec<usize>,
    /// The sizes that are only verified.
    pub(crate) unmeasured: Vec<usize>,
    pub(crate) rounds: usize,
}

/// The result for one operation and size. The values are medians of the rounds, with the spread of
/// each. If a figure has two states, its value is that of the state with more rounds. Times are in
/// seconds, bandwidths in bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) size: usize,
    pub(crate) latency: f64,
    pub(crate) latency_spread: Option<f64>,
    pub(crate) latency_other_state: Option<State>,
    pub(crate) raw_latency: f64,
    pub(crate) raw_latency_spread: Option<f64>,
    pub(crate) raw_latency_other_state: Option<State>,
    pub(crate) bandwidth: f64,
    pub(crate) bandwidth_spread: Option<f64>,
    pub(crate) bandwidth_other_state: Option<State>,
    pub(crate) raw_bandwidth: f64,
    pub(crate) raw_bandwidth_spread: Option<f64>,
    pub(crate) raw_bandwidth_other_state: Option<State>,
    pub(crate) rounds: usize,
    /// The smallest number of operations in a round.
    pub(crate) operations: usize,
    /// Whether the row is noisy: see [`Rounds::is_noisy`](measurement::schedule::Rounds::is_noisy).
    pub(crate) noisy: bool,
}

impl Task {
    /// Returns the size of the largest message in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.sizes.iter().chain(&self.unmeasured).copied().max().unwrap_or(1)
    }

    /// Runs the task of one process. The rounds of the rows take turns. `report_row` is called for
    /// each row after the last round, with the figures at the client and without any at the server.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
        report_row: impl Fn(Option<Row>),
    ) -> Result<()> {
        let rows: Vec<(Operation, usize)> = self
            .sizes
            .iter()
            .flat_map(|&size| Operation::ALL.map(|operation| (operation, size)))
            .collect();
        for &(operation, size) in &rows {
            verify::both_ways(connection, sockets, role, operation, size)?;
            report_progress(0.0);
        }
        // With fewer rounds than the default, a noisy row gets no further rounds.
        let attempts = if self.rounds < DEFAULT_ROUNDS { 1 } else { RULES.attempts };
        let rules = Rules { rounds: self.rounds, attempts, ..RULES };
        let mut schedules = Interleaved::new(rules, rows.iter().map(|_| FIGURES));
        let mut results = vec![None; rows.len()];
        while let Some((row, step)) = agree_on_step(schedules.next(), sockets, role)? {
            let (operation, size) = *rows.get(row).context("the plan has no such row")?;
            let trial = trial(connection, sockets, role, (operation, size), step)?;
            if role == Role::Client {
                if let Some(rounds) = schedules.record(trial) {
                    results[row] = Some(Row::of(operation, size, rounds));
                }
                report_progress(schedules.progress());
            }
        }
        results.into_iter().for_each(report_row);
        for &size in &self.unmeasured {
            for operation in Operation::ALL {
                verify::both_ways(connection, sockets, role, operation, size)?;
            }
        }
        Ok(())
    }
}

/// The number of figures of a row: the latency and the bandwidth of DAT and of plain TCP.
const FIGURES: usize = 4;

/// Measures one figure of a row, and verifies the data of a stream.
fn trial(
    connection: &mut Connection,
    sockets: &mut PlainSockets,
    role: Role,
    (operation, size): (Operation, usize),
    Step { part, operations }: Step,
) -> Result<Trial<Value>> {
    let latency = Workload::Latency { operation, size };
    let stream =
        Workload::Stream { operation, size, window: if size < 64 << 10 { 64 } else { 16 } };
    match part {
        0 => latency.run_dat(connection, sockets, role, operations),
        1 => latency.run_plain(sockets, role, operations),
        2 => {
            verify::prepare_stream(connection, role, operation, size)?;
            let trial = stream.run_dat(connection, sockets, role, operations)?;
            verify::stream_arrived(connection, role, operation, size)?;
            Ok(trial)
        }
        _ => stream.run_plain(sockets, role, operations),
    }
}

impl Row {
    fn of(operation: Operation, size: usize, rounds: &Rounds<Value>) -> Row {
        let [latency, raw_latency, bandwidth, raw_bandwidth] =
            std::array::from_fn(|part| rounds.figure(part, |sample| sample.value));
        Row {
            operation,
            size,
            latency: latency.main.median,
            latency_spread: latency.main.spread,
            latency_other_state: latency.other_state,
            raw_latency: raw_latency.main.median,
            raw_latency_spread: raw_latency.main.spread,
            raw_latency_other_state: raw_latency.other_state,
            bandwidth: bandwidth.main.median,
            bandwidth_spread: bandwidth.main.spread,
            bandwidth_other_state: bandwidth.other_state,
            raw_bandwidth: raw_bandwidth.main.median,
            raw_bandwidth_spread: raw_bandwidth.main.spread,
            raw_bandwidth_other_state: raw_bandwidth.other_state,
            rounds: rounds.count(),
            operations: rounds.operations(),
            noisy: rounds.is_noisy(),
        }
    }

    /// Returns the latencies of DAT and of plain TCP, and the bandwidths of both, with both states
    /// of the machine.
    pub(crate) fn figures(&self) -> [Figure; FIGURES] {
        let figure = |median: f64, spread: Option<f64>, other_state: Option<State>| {
            let rounds = self.rounds - other_state.map_or(0, |state| state.rounds);
            Figure { main: State { rounds, median, spread }, other_state }
        };
        [
            figure(self.latency, self.latency_spread, self.latency_other_state),
            figure(self.raw_latency, self.raw_latency_spread, self.raw_latency_other_state),
            figure(self.bandwidth, self.bandwidth_spread, self.bandwidth_other_state),
            figure(self.raw_bandwidth, self.raw_bandwidth_spread, self.raw_bandwidth_other_state),
        ]
    }

    /// Returns the largest spread of the row's figures, in both states of the machine.
    pub(crate) fn spread(&self) -> Option<f64> {
        self.figures().iter().filter_map(Figure::spread).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the row was noisy because of the state with fewer rounds, but its spread
    /// was that of the other state.
    #[test]
    fn the_spread_of_a_noisy_row_is_above_the_limit_in_either_state() {
        let of = |value: f64| Trial {
            operations: 1000,
            seconds: 0.05,
            sample: Value { value, tail: 1.0 },
        };
        let steady = [1.0; 6].map(of).to_vec();
        for noisy in 0..FIGURES {
            let mut parts = vec![steady.clone(); FIGURES];
            parts[noisy] = [8.0, 80.0, 8.0, 160.0, 8.0, 8.0].map(of).to_vec();
            let row = Row::of(Operation::Send, 64, &Rounds::of(parts));
            assert!(row.noisy && row.figures()[noisy].main.spread == Some(0.0), "{row:?}");
            assert!(row.spread().is_some_and(|spread| spread > 0.15), "{row:?}");
        }
    }
}
