//! `dat bench`: measures latency, bandwidth, message rate and processor time for operations, sizes,
//! depths and numbers of connections. It measures one adapter, or two side by side.

mod csv;
mod html;
mod result;
mod text;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use measurement::arguments::{CommonArguments, report_registry_errors};
use measurement::machine::MeasurementInfo;
use measurement::operation::{ATOMIC_BYTES, Operation};
use measurement::pair::{Pair, Placement, exit_code_of};
use measurement::peer::{ConnectionInfo, Message, Plan};
use measurement::schedule::{DEFAULT_ROUNDS, MIN_TRIAL_TIME};
use measurement::wait_mode::{Role, WaitMode};
use measurement::{cpu, units};

use self::result::{Document, Measured, Subject};
use crate::arguments::{resolve, size};
use crate::output::{Output, print_json};
use crate::progress::Progress;
use crate::tasks::bench::{
    self, MAX_CONNECTIONS, MAX_DEPTH, MAX_DURATION_SECONDS, MAX_MEMORY_BYTES, MAX_ROUNDS, Point,
};
use crate::tasks::{Report, Task};

#[derive(Args)]
pub(crate) struct Options {
    /// The host where `dat serve` runs, with the port after a colon if it is not 7471; without
    /// HOST, the peer is a process on this host
    #[arg(value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    common: CommonArguments,
    /// A second adapter, measured alternately with the first in the same two processes
    #[arg(long, value_name = "NAME")]
    vs: Option<String>,
    /// The operations to measure, separated by commas; by default all that the adapters support
    #[arg(long, short, value_enum, value_delimiter = ',', value_name = "OPERATIONS")]
    operations: Vec<Operation>,
    /// Message sizes in bytes, as in 64,4K,1M; atomic operations always use 8 bytes
    #[arg(long, short, value_delimiter = ',', default_value = "64,4K,64K,1M", value_parser = size)]
    sizes: Vec<usize>,
    /// Outstanding operations per connection
    #[arg(long, short, value_delimiter = ',', default_value = "1,16", value_parser = depth)]
    depths: Vec<usize>,
    /// Simultaneous connections, each with its own thread at both ends; with more than one, threads
    /// sleep while they wait
    #[arg(long, short, value_delimiter = ',', default_value = "1", value_parser = connections)]
    connections: Vec<usize>,
    /// Rounds per row, whose median is printed; fewer than 5 are not reliable
    #[arg(
        long,
        default_value_t = DEFAULT_ROUNDS as u32,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)),
    )]
    rounds: u32,
    /// Measure each row for this many seconds per adapter, in as many rounds as fit
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "rounds")]
    duration: Option<f64>,
    /// The processors on which the client and the server run, as in 0,1; with HOST, only the
    /// client's processor. Without HOST, the default is two different processors, if this host has
    /// two
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    cpus: Vec<usize>,
    /// Sleep while waiting; the default is to poll if client and server have different processors
    #[arg(long)]
    block: bool,
    /// Print a wider table, with the 99.9th percentile, the processor time of each end and the
    /// spread of each figure
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    wide: bool,
    /// Print comma-separated values instead of the table, in seconds and bytes
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write a self-contained HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn depth(text: &str) -> Result<usize, String> {
    number(text, MAX_DEPTH)
}

fn connections(text: &str) -> Result<usize, String> {
    number(text, MAX_CONNECTIONS)
}

fn number(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let least = (2 * MIN_TRIAL_TIME * DEFAULT_ROUNDS as u32).as_secs_f64();
    let seconds =
        text.parse().ok().filter(|seconds| (least..=MAX_DURATION_SECONDS).contains(seconds));
    seconds.ok_or_else(|| {
        format!(
            "expected {least} to {MAX_DURATION_SECONDS} seconds: {DEFAULT_ROUNDS} rounds \
             need at least {least} s"
        )
    })
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let common = &options.common;
    report_registry_errors();
    let host = options.host.as_deref().map(resolve).transpose()?;
    let processors = cpu::assign(&options.cpus, host.is_none())?;
    let names: Vec<String> = std::iter::once(&common.adapter).chain(&options.vs).cloned().collect();
    let points = options.points(&names)?;
    let wait =
        if options.block || !cpu::may_poll(processors) { WaitMode::Block } else { WaitMode::Poll };
    let address = match host {
        None => common.address(&names[1..])?.to_string(),
        Some(host) => host.ip().to_string(),
    };
    let task = bench::Task {
        points: points.clone(),
        rounds: options.rounds,
        seconds: options.duration.unwrap_or(0.0),
        wait,
        server_cpu: processors[1].filter(|_| processors[0] != processors[1]),
    };
    ensure!(
        task.memory(names.len()) <= MAX_MEMORY_BYTES,
        "that many connections with messages of {} need {} of memory at each end; the limit is {}",
        units::size(task.largest()),
        units::size(task.memory(names.len())),
        units::size(MAX_MEMORY_BYTES)
    );
    let plan = Plan {
        role: Role::Server,
        adapters: names.clone(),
        address: address.clone(),
        server: None,
        cpu: None,
        wait,
        raw_wait: WaitMode::Block,
        task: Task::Bench(task),
    };
    let circumstances = MeasurementInfo::now("dat");
    let mut pair = Pair::start_interruptible(&plan, Placement { params: "", host, processors })?;
    // The page is opened before the first round, so that a file that cannot be written is an error
    // at once. It is opened after the processes have started: a signal that ends this program
    // before that leaves no temporary file behind.
    let page = options.html.as_deref().map(Output::new).transpose()?;
    let mut info = ConnectionInfo::default();
    let (requested, mut interrupted) = (points.len(), None);
    // The result of each point, after as many of its rounds as have ended.
    let mut measured: Vec<Option<Measured>> = points.iter().map(|_| None).collect();
    let progress = Progress::new(points.len());
    while let Some(message) = pair.next_message()? {
        match message {
            (Role::Client, Message::Connected(connected)) => info = connected,
            (Role::Client, Message::Progress(done)) => progress.show(done),
            (Role::Client, Message::Report(Report::Measured(outcome))) => {
                let point = *points
                    .get(outcome.point)
                    .context("the client measured a row that was not requested")?;
                let row = outcome.point;
                measured[row] = Some(Measured::new(point, point.wait(wait), outcome));
            }
            (_, Message::Interrupted(signal)) => {
                interrupted = Some(signal);
                break;
            }
            _ => {}
        }
    }
    drop(progress);
    let points: Vec<Measured> = measured.into_iter().flatten().collect();
    match interrupted {
        Some(signal) if points.is_empty() => {
            drop(page); // `exit` would leave its temporary file behind
            std::process::exit(exit_code_of(signal));
        }
        None if points.len() < requested => bail!("the two processes have not measured all rows"),
        _ => {}
    }
    let adapters = names.into_iter().zip(info.providers);
    let document = Document {
        adapters: adapters.map(|(name, provider)| Subject { name, provider }).collect(),
        address,
        circumstances,
        pinned: processors.iter().any(Option::is_some).then_some(processors),
        rounds: options.rounds,
        interrupted: interrupted.is_some(),
        points,
    };
    if let Some(page) = page {
        page.fill(&html::page(&document))?;
    }
    match options {
        Options { common: CommonArguments { json: true, .. }, .. } => print_json(&document)?,
        Options { csv: true, .. } => csv::print(&document)?,
        _ => text::print(&document, options.wide)?,
    }
    if let Some(signal) = interrupted {
        std::process::exit(exit_code_of(signal));
    }
    Ok(true)
}

impl Options {
    /// Returns the points to measure, in the order of measurement.
    fn points(&self, adapters: &[String]) -> Result<Vec<Point>> {
        let mut extended = true;
        for name in adapters {
            extended &= dat::Adapter::open(name)?.attributes().extended;
        }
        let chosen = |operation: &Operation| match self.operations.is_empty() {
            true => extended || !operation.is_atomic(),
            false => self.operations.contains(operation),
        };
        let operations =
            Operation::ALL.into_iter().chain([Operation::FetchAdd, Operation::CompareSwap]);
        let operations: Vec<Operation> = operations.filter(chosen).collect();
        ensure!(
            extended || !operations.iter().any(|operation| operation.is_atomic()),
            "{} has no atomic operations",
            adapters.join(" or ")
        );
        let mut points = Vec::new();
        for &operation in &operations {
            let sizes = if operation.is_atomic() { &[ATOMIC_BYTES][..] } else { &self.sizes[..] };
            for &size in sizes {
                for &depth in &self.depths {
                    points.extend(self.connections.iter().map(|&connections| Point {
                        operation,
                        size,
                        depth,
                        connections,
                    }));
                }
            }
        }
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_duration_leaves_time_for_the_rounds() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!(seconds("20"), Ok(20.0));
        for text in ["0.4", "nan", "-1", "4000", "long"] {
            let why = seconds(text).expect_err(text);
            assert_eq!(why, "expected 0.5 to 3600 seconds: 5 rounds need at least 0.5 s", "{text}");
        }
    }
}
