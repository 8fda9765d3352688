//! The work of the demonstration.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::measure::{Workload, run_schedule};
use crate::operation::Operation;
use crate::plain_sockets::PlainSockets;
use crate::rounds::{
    DEFAULT_ROUNDS, Figure, MIN_OPERATIONS, MIN_TRIAL_TIME, Rules, Schedule, Step,
};
use crate::verify;
use crate::wait::Role;

/// The sizes in bytes of messages that are measured and verified.
pub(crate) const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// The sizes in bytes of messages that are only verified.
pub(crate) const UNMEASURED: [usize; 2] = [1, 16 << 20];

/// The rules for the rounds of a row. A row has four figures of five rounds, so it takes a little
/// more than a second.
pub(crate) const RULES: Rules = Rules {
    rounds: DEFAULT_ROUNDS,
    duration: Duration::ZERO,
    min_trial_time: MIN_TRIAL_TIME,
    operations: MIN_OPERATIONS,
    max_trial_time: Duration::from_millis(55),
    attempts: 2,
};

/// The work of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) sizes: Vec<usize>,
    /// The sizes that are only verified.
    pub(crate) unmeasured: Vec<usize>,
    pub(crate) rounds: usize,
}

/// The result for one operation and size. The values are medians of the rounds, with the spread of
/// each. Times are in seconds, bandwidths in bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) size: usize,
    pub(crate) latency: f64,
    pub(crate) latency_spread: Option<f64>,
    pub(crate) raw_latency: f64,
    pub(crate) raw_latency_spread: Option<f64>,
    pub(crate) bandwidth: f64,
    pub(crate) bandwidth_spread: Option<f64>,
    pub(crate) raw_bandwidth: f64,
    pub(crate) raw_bandwidth_spread: Option<f64>,
    pub(crate) rounds: usize,
    /// The smallest number of operations in a round.
    pub(crate) operations: usize,
    /// Whether the row is noisy: see [`Rounds::is_noisy`](crate::rounds::Rounds::is_noisy).
    pub(crate) noisy: bool,
}

impl Work {
    /// Returns the size of the largest message in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.sizes.iter().chain(&self.unmeasured).copied().max().unwrap_or(1)
    }

    /// Runs the work of one process. `report_row` is called after each row, with the figures at the
    /// client and without any at the server.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
        report_row: impl Fn(Option<Row>),
    ) -> Result<()> {
        let rows =
            self.sizes.iter().flat_map(|&size| Operation::ALL.map(|operation| (operation, size)));
        for (index, (operation, size)) in rows.enumerate() {
            // With fewer rounds than the default, a noisy row is not measured again.
            let attempts = if self.rounds < DEFAULT_ROUNDS { 1 } else { RULES.attempts };
            let rules = Rules { rounds: self.rounds, attempts, ..RULES };
            let row = measure_row(rules, connection, sockets, role, (operation, size), |share| {
                report_progress(index as f64 + share);
            })?;
            report_row(row);
        }
        for &size in &self.unmeasured {
            for operation in Operation::ALL {
                verify::both_ways(connection, sockets, role, operation, size)?;
            }
        }
        Ok(())
    }
}

/// Returns a row at the client, and `None` at the server.
fn measure_row(
    rules: Rules,
    connection: &mut Connection,
    sockets: &mut PlainSockets,
    role: Role,
    (operation, size): (Operation, usize),
    report_progress: impl FnMut(f64),
) -> Result<Option<Row>> {
    verify::both_ways(connection, sockets, role, operation, size)?;
    let latency = Workload::Latency { operation, size };
    let stream =
        Workload::Stream { operation, size, window: if size < 64 << 10 { 64 } else { 16 } };
    let mut schedule = Schedule::new(rules, 4);
    run_schedule(
        &mut schedule,
        sockets,
        role,
        report_progress,
        |sockets, Step { part, operations }| match part {
            0 => latency.run_dat(connection, sockets, role, operations),
            1 => latency.run_plain(sockets, role, operations),
            2 => {
                verify::prepare_stream(connection, role, operation, size)?;
                let trial = stream.run_dat(connection, sockets, role, operations)?;
                verify::stream_arrived(connection, role, operation, size)?;
                Ok(trial)
            }
            _ => stream.run_plain(sockets, role, operations),
        },
    )?;
    if role == Role::Server {
        return Ok(None);
    }
    let rounds = schedule.into_rounds().context("no round was measured")?;
    let figures = [0, 1, 2, 3].map(|part| rounds.figure(part, |sample| sample.value));
    let [latency, raw_latency, bandwidth, raw_bandwidth] =
        figures.map(|figure: Figure| figure.median);
    let [latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread] =
        figures.map(|figure| figure.spread);
    Ok(Some(Row {
        operation,
        size,
        latency,
        latency_spread,
        raw_latency,
        raw_latency_spread,
        bandwidth,
        bandwidth_spread,
        raw_bandwidth,
        raw_bandwidth_spread,
        rounds: rounds.count(),
        operations: rounds.operations(),
        noisy: rounds.is_noisy(),
    }))
}

impl Row {
    /// Returns the largest spread of the row's figures.
    pub(crate) fn spread(&self) -> Option<f64> {
        let Row {
            latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread, ..
        } = self;
        let all = [latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread];
        all.into_iter().copied().flatten().max_by(f64::total_cmp)
    }
}
