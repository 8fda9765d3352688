//! `dat` without a command, which shows whether DAT works on this host, and how fast it is.

mod text;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::measure::{Operation, Role, Wait, Workload, run_schedule};
use crate::output::print_json;
use crate::pair::Pair;
use crate::parent::send;
use crate::peer::{self, ConnectionInfo, Message, Plan};
use crate::plain_sockets::PlainSockets;
use crate::progress::Progress;
use crate::rounds::{
    DEFAULT_ROUNDS, Figure, MIN_OPERATIONS, MIN_TRIAL_TIME, Rules, Schedule, Step,
};
use crate::{Common, cpu, verify};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Rounds of each figure, whose median is printed; fewer than 5 are not reliable
    #[arg(long, default_value_t = DEFAULT_ROUNDS as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a wider table, with the spread of each figure
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

/// The sizes in bytes of messages that are measured and verified.
const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// The sizes in bytes of messages that are only verified.
const UNMEASURED: [usize; 2] = [1, 16 << 20];

/// The rules for the rounds of a row. A row has four figures of five rounds, so it takes a little
/// more than a second.
const RULES: Rules = Rules {
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
    sizes: Vec<usize>,
    /// The sizes that are only verified.
    unmeasured: Vec<usize>,
    rounds: usize,
}

/// The result for one operation and size. The values are medians of the rounds, with the spread of
/// each. Times are in seconds, bandwidths in bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    operation: Operation,
    size: usize,
    latency: f64,
    latency_spread: Option<f64>,
    raw_latency: f64,
    raw_latency_spread: Option<f64>,
    bandwidth: f64,
    bandwidth_spread: Option<f64>,
    raw_bandwidth: f64,
    raw_bandwidth_spread: Option<f64>,
    rounds: usize,
    /// The smallest number of operations in a round.
    operations: usize,
    /// Whether the row is noisy: see [`Rounds::is_noisy`](crate::rounds::Rounds::is_noisy).
    noisy: bool,
}

/// The JSON output.
#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    address: String,
    provider: &'a str,
    congestion_control: &'a str,
    rows: Vec<VerifiedRow>,
    /// The sizes that were verified for each operation, but not measured.
    also_verified: [usize; UNMEASURED.len()],
    verified: bool,
}

#[derive(Serialize)]
struct VerifiedRow {
    #[serde(flatten)]
    row: Row,
    verified: bool,
}

/// Runs the two processes. Returns whether all data arrived unchanged.
pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::report_registry_errors();
    let Common { adapter, json, .. } = &options.common;
    let address = options.common.address(&[])?;
    // On a single processor, a process that polls would take processor time from the other.
    let wait = if cpu::two_processors().is_some() { Wait::Poll } else { Wait::Block };
    let plan = Plan {
        role: Role::Server,
        adapters: vec![adapter.clone()],
        address: address.to_string(),
        server: None,
        cpu: None,
        wait,
        raw_wait: wait,
        work: peer::Work::Demo(Work {
            sizes: SIZES.to_vec(),
            unmeasured: UNMEASURED.to_vec(),
            rounds: options.rounds as usize,
        }),
    };
    let expected = SIZES.len() * Operation::ALL.len();
    let mut pair = Pair::start(&plan)?;
    let progress = Progress::new(expected);
    let mut info = ConnectionInfo::default();
    let mut rows = Vec::new();
    // A row counts only when both processes have finished it.
    let (mut measured, mut checked) = (VecDeque::new(), 0);
    while let Some(message) = pair.next()? {
        match message {
            (Role::Client, Message::Connected(connected)) => {
                info = connected;
                if !json {
                    progress.suspend(|| text::head(adapter, &address, &info, options.wide))?;
                }
            }
            (Role::Client, Message::Progress(done)) => progress.show(done),
            (_, Message::Row(Some(row))) => measured.push_back(row),
            (_, Message::Row(None)) => checked += 1,
            _ => {}
        }
        while checked > 0
            && let Some(row) = measured.pop_front()
        {
            checked -= 1;
            if !json {
                progress.suspend(|| text::row(&row, options.wide))?;
            }
            rows.push(VerifiedRow { row, verified: true });
        }
    }
    drop(progress);
    let verified = rows.len() == expected;
    if *json {
        let address = address.to_string();
        let (provider, congestion_control) = (info.provider(), &info.congestion_control);
        print_json(&Document {
            adapter,
            address,
            provider,
            congestion_control,
            rows,
            also_verified: UNMEASURED,
            verified,
        })?;
    } else {
        let rows: Vec<Row> = rows.into_iter().map(|verified| verified.row).collect();
        text::foot(verified, &info, &rows)?;
    }
    Ok(verified)
}

impl Work {
    /// Returns the size of the largest message in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.sizes.iter().chain(&self.unmeasured).copied().max().unwrap_or(1)
    }

    /// Runs the work of one process.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<()> {
        let rows =
            self.sizes.iter().flat_map(|&size| Operation::ALL.map(|operation| (operation, size)));
        for (index, (operation, size)) in rows.enumerate() {
            // With fewer rounds than the default, a noisy row is not measured again.
            let attempts = if self.rounds < DEFAULT_ROUNDS { 1 } else { RULES.attempts };
            let rules = Rules { rounds: self.rounds, attempts, ..RULES };
            let row = measure_row(rules, connection, sockets, role, (operation, size), |share| {
                send(&Message::Progress(index as f64 + share));
            })?;
            send(&Message::Row(row));
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
    fn spread(&self) -> Option<f64> {
        let Row {
            latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread, ..
        } = self;
        let all = [latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread];
        all.into_iter().copied().flatten().max_by(f64::total_cmp)
    }
}
