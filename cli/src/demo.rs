//! The program without a command: does DAT work here, and how fast.

mod text;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::measure::{Operation, Role, Wait, What, drive};
use crate::output::print_json;
use crate::pair::Pair;
use crate::parent::say;
use crate::peer::{self, Facts, Plan, Said};
use crate::progress::Progress;
use crate::raw::Raw;
use crate::rounds::{Figure, OPERATIONS, ROUNDS, Rules, SHORTEST, Schedule, Step};
use crate::{Common, cpu, verify};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Rounds of each figure; what is printed is their median, and of fewer than 5 little is known
    #[arg(long, default_value_t = ROUNDS as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a wider table, with the spread of each figure
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

/// Message sizes that are measured and verified, in bytes.
const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// Message sizes that are verified only.
const UNMEASURED: [usize; 2] = [1, 16 << 20];

/// A row has four figures of five rounds, so that it takes a little more than a second.
const RULES: Rules = Rules {
    rounds: ROUNDS,
    duration: Duration::ZERO,
    shortest: SHORTEST,
    operations: OPERATIONS,
    longest: Duration::from_millis(55),
    attempts: 2,
};

/// What both processes do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    sizes: Vec<usize>,
    /// Sizes that are verified only.
    unmeasured: Vec<usize>,
    rounds: usize,
}

/// What came out for one operation and size: medians of the rounds, with the spread of each. Times are in seconds,
/// bandwidths in bytes a second.
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
    /// The fewest operations of a round.
    operations: usize,
    /// See [`Rounds::is_noisy`](crate::rounds::Rounds::is_noisy).
    noisy: bool,
}

/// The result for machines.
#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    address: String,
    provider: &'a str,
    congestion_control: &'a str,
    rows: Vec<VerifiedRow>,
    /// Sizes that were verified for each operation, but not measured.
    also_verified: [usize; UNMEASURED.len()],
    verified: bool,
}

#[derive(Serialize)]
struct VerifiedRow {
    #[serde(flatten)]
    row: Row,
    verified: bool,
}

/// Runs the two processes; true when all that was moved was right.
pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::say_mistakes();
    let Common { adapter, json, .. } = &options.common;
    let address = options.common.address(&[])?;
    // On one processor, who spins keeps the other from working.
    let wait = if cpu::two().is_some() { Wait::Poll } else { Wait::Block };
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
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    // A row counts when both processes are through with it.
    let (mut measured, mut checked) = (VecDeque::new(), 0);
    while let Some(said) = pair.next()? {
        match said {
            (Role::Client, Said::Connected(said)) => {
                facts = said;
                if !json {
                    progress.aside(|| text::head(adapter, &address, &facts, options.wide))?;
                }
            }
            (Role::Client, Said::Progress(done)) => progress.show(done),
            (_, Said::Row(Some(row))) => measured.push_back(row),
            (_, Said::Row(None)) => checked += 1,
            _ => {}
        }
        while checked > 0
            && let Some(row) = measured.pop_front()
        {
            checked -= 1;
            if !json {
                progress.aside(|| text::row(&row, options.wide))?;
            }
            rows.push(VerifiedRow { row, verified: true });
        }
    }
    drop(progress);
    let verified = rows.len() == expected;
    if *json {
        let address = address.to_string();
        let (provider, congestion_control) = (facts.provider(), &facts.congestion_control);
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
        text::foot(verified, &facts, &rows)?;
    }
    Ok(verified)
}

impl Work {
    /// Bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        self.sizes.iter().chain(&self.unmeasured).copied().max().unwrap_or(1)
    }

    /// The part of one process.
    pub(crate) fn run(&self, link: &mut Link, raw: &mut Raw, role: Role) -> Result<()> {
        let rows =
            self.sizes.iter().flat_map(|&size| Operation::ALL.map(|operation| (operation, size)));
        for (index, (operation, size)) in rows.enumerate() {
            // Whoever wants few rounds wants them once.
            let attempts = if self.rounds < ROUNDS { 1 } else { RULES.attempts };
            let rules = Rules { rounds: self.rounds, attempts, ..RULES };
            let row = measure_row(rules, link, raw, role, (operation, size), |share| {
                say(&Said::Progress(index as f64 + share));
            })?;
            say(&Said::Row(row));
        }
        for &size in &self.unmeasured {
            for operation in Operation::ALL {
                verify::both_ways(link, raw, role, operation, size)?;
            }
        }
        Ok(())
    }
}

/// A row at the client; nothing at the server.
fn measure_row(
    rules: Rules,
    link: &mut Link,
    raw: &mut Raw,
    role: Role,
    (operation, size): (Operation, usize),
    told: impl FnMut(f64),
) -> Result<Option<Row>> {
    verify::both_ways(link, raw, role, operation, size)?;
    let latency = What::Latency { operation, size };
    let stream = What::Stream { operation, size, window: if size < 64 << 10 { 64 } else { 16 } };
    let mut schedule = Schedule::new(rules, 4);
    drive(&mut schedule, raw, role, told, |raw, Step { part, operations }| match part {
        0 => latency.dat(link, raw, role, operations),
        1 => latency.raw(raw, role, operations),
        2 => {
            verify::prepare_stream(link, role, operation, size)?;
            let trial = stream.dat(link, raw, role, operations)?;
            verify::stream_arrived(link, role, operation, size)?;
            Ok(trial)
        }
        _ => stream.raw(raw, role, operations),
    })?;
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
    /// The largest spread of its figures.
    fn spread(&self) -> Option<f64> {
        let Row {
            latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread, ..
        } = self;
        let all = [latency_spread, raw_latency_spread, bandwidth_spread, raw_bandwidth_spread];
        all.into_iter().copied().flatten().max_by(f64::total_cmp)
    }
}
