//! `dat bench`: latency, bandwidth, message rate and processor time, over operations, sizes, depths and connections, of one
//! adapter or of two side by side.

mod csv;
mod html;
mod text;
mod work;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use self::work::{
    DEEPEST, Figures, LARGEST, MOST_CONNECTIONS, MOST_MEMORY, MOST_ROUNDS, MOST_SECONDS, Point,
};
pub(crate) use self::work::{Outcome, Work};
use crate::machine::Circumstances;
use crate::measure::{Operation, Role, WORD, Wait};
use crate::output::{Output, print_json};
use crate::pair::{Pair, Setting};
use crate::peer::{self, Facts, Plan, Said};
use crate::progress::Progress;
use crate::rounds::{ROUNDS, SHORTEST};
use crate::{Common, cpu, ping, plain, units};

#[derive(Args)]
pub(crate) struct Options {
    /// The host, where `dat serve` runs, and its port after a colon if it is another than 7471; without it a process on this host
    #[arg(value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    common: Common,
    /// A second adapter, measured in turn with the first in the same two processes
    #[arg(long, value_name = "NAME")]
    vs: Option<String>,
    /// What is done, separated by commas; all that the adapters have
    #[arg(long, short, value_enum, value_delimiter = ',', value_name = "OPERATIONS")]
    operations: Vec<Operation>,
    /// Bytes of a message, as in 64,4K,1M; atomic operations are of 8 whatever this says
    #[arg(long, short, value_delimiter = ',', default_value = "64,4K,64K,1M", value_parser = size)]
    sizes: Vec<usize>,
    /// Operations outstanding on a connection
    #[arg(long, short, value_delimiter = ',', default_value = "1,16", value_parser = depth)]
    depths: Vec<usize>,
    /// Connections at a time, each with a thread of its own at both ends; more than one sleep while they wait
    #[arg(long, short, value_delimiter = ',', default_value = "1", value_parser = connections)]
    connections: Vec<usize>,
    /// Rounds of each row; what is printed is their median. 5, or 7 with --plain; of fewer than 5 little is known
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    rounds: Option<u32>,
    /// Measure each row for so many seconds, of each adapter, in as many rounds as fit
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "rounds")]
    duration: Option<f64>,
    /// The processors of the client and the server, as in 0,1; with HOST only that of the client. Without this, two different ones
    /// on this host if there are two
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    cpus: Vec<usize>,
    /// Sleep while waiting; the default is to poll if client and server have a processor each
    #[arg(long)]
    block: bool,
    /// Print a wider table, which also has the 99.9th percentile, the processor time of each end and the spread of each figure
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    wide: bool,
    /// Print comma-separated values in place of the table, in seconds and bytes
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write a page with plots, complete in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measure the rows of docs/performance.md beside plain sockets instead, with the bar that each has to meet
    #[arg(long, conflicts_with_all = ["host", "vs", "operations", "sizes", "depths", "connections", "duration", "block", "wide", "csv", "html"])]
    plain: bool,
    #[command(flatten)]
    rows: plain::Rows,
}

/// Bytes: `64`, `4K`, `1M`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let size = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| (1..=LARGEST).contains(size))
        .ok_or_else(|| format!("expected 1 to {} bytes, as in 64, 4K or 1M", LARGEST))
}

fn depth(text: &str) -> Result<usize, String> {
    number(text, DEEPEST)
}

fn connections(text: &str) -> Result<usize, String> {
    number(text, MOST_CONNECTIONS)
}

fn number(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {most}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let least = (2 * SHORTEST * ROUNDS as u32).as_secs_f64();
    let seconds = text.parse().ok().filter(|seconds| (least..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| {
        format!("expected {least} to {MOST_SECONDS} seconds: {ROUNDS} rounds take so long")
    })
}

/// An adapter, as the registry and its provider name it.
#[derive(Serialize)]
struct Subject {
    name: String,
    provider: String,
}

#[derive(Serialize)]
struct Measured {
    operation: Operation,
    size: usize,
    depth: usize,
    connections: usize,
    wait: Wait,
    /// Of the adapters in turn.
    figures: Vec<Figures>,
}

#[derive(Serialize)]
struct Document {
    adapters: Vec<Subject>,
    /// Where the peer is.
    address: String,
    #[serde(flatten)]
    circumstances: Circumstances,
    /// The processors of client and server.
    pinned: Option<[Option<usize>; 2]>,
    /// Rounds of each row, at least.
    rounds: u32,
    points: Vec<Measured>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::say_mistakes();
    let common = &options.common;
    let host = options.host.as_deref().map(ping::resolve).transpose()?;
    let processors = cpu::chosen(&options.cpus, host.is_none())?;
    if options.plain {
        return plain::run(common, options.rounds.unwrap_or(7), processors, &options.rows);
    }
    // Where one of those is given that --plain goes without, clap does not ask for it.
    ensure!(
        !options.rows.any(),
        "--check, --row and --watched are of what --plain measures: add it, and leave the others out"
    );
    let names: Vec<String> = std::iter::once(&common.adapter).chain(&options.vs).cloned().collect();
    let points = options.points(&names)?;
    let rounds = options.rounds.unwrap_or(ROUNDS as u32);
    let wait = if options.block || !cpu::may_poll(processors) { Wait::Block } else { Wait::Poll };
    let address = match host {
        None => common.address(&names[1..])?.to_string(),
        Some(host) => host.ip().to_string(),
    };
    let work =
        Work { points: points.clone(), rounds, seconds: options.duration.unwrap_or(0.0), wait };
    ensure!(
        work.memory(names.len()) <= MOST_MEMORY,
        "so many connections with messages of {} need {} of memory at each end; {} is the most",
        units::size(work.largest()),
        units::size(work.memory(names.len())),
        units::size(MOST_MEMORY)
    );
    let plan = Plan {
        role: Role::Server,
        adapters: names.clone(),
        address: address.clone(),
        server: None,
        cpu: None,
        wait,
        raw_wait: Wait::Block,
        work: peer::Work::Bench(work),
    };
    // A page that cannot be written is known before the work is done.
    let page = options.html.as_deref().map(Output::new).transpose()?;
    let circumstances = Circumstances::now();
    let mut pair = Pair::start_with(&plan, Setting { environment: &[], host, processors })?;
    let mut facts = Facts::default();
    options.print_head(&names)?;
    let mut measured = Vec::new();
    let progress = Progress::new(points.len());
    while let Some(said) = pair.next()? {
        match said {
            (Role::Client, Said::Connected(said)) => facts = said,
            (Role::Client, Said::Progress(done)) => progress.show(done),
            (Role::Client, Said::Measured(Outcome { point, figures })) => {
                let point = *points.get(point).context("a row that nobody has asked for")?;
                let row = Measured::new(point, point.wait(wait), figures);
                progress.aside(|| options.print_row(&names, &row))?;
                measured.push(row);
            }
            _ => {}
        }
    }
    drop(progress);
    ensure!(measured.len() == points.len(), "the two processes have not measured everything");
    let adapters = names.into_iter().zip(facts.providers);
    let document = Document {
        adapters: adapters.map(|(name, provider)| Subject { name, provider }).collect(),
        address,
        circumstances,
        pinned: processors.iter().any(Option::is_some).then_some(processors),
        rounds,
        points: measured,
    };
    if let Some(page) = page {
        page.fill(&html::page(&document))?;
    }
    match options {
        Options { common: Common { json: true, .. }, .. } => print_json(&document)?,
        Options { csv: true, .. } => {}
        _ => text::foot(&document)?,
    }
    Ok(true)
}

impl Options {
    fn print_head(&self, adapters: &[String]) -> Result<()> {
        match self {
            Options { common: Common { json: true, .. }, .. } => Ok(()),
            Options { csv: true, .. } => csv::head(),
            _ => text::head(adapters, self.wide),
        }
    }

    /// As it comes, while others are measured.
    fn print_row(&self, adapters: &[String], row: &Measured) -> Result<()> {
        match self {
            Options { common: Common { json: true, .. }, .. } => Ok(()),
            Options { csv: true, .. } => csv::row(adapters, row),
            _ => text::row(row, self.wide),
        }
    }

    /// What is measured, in the order in which it is.
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
            let sizes = if operation.is_atomic() { &[WORD][..] } else { &self.sizes[..] };
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

impl Measured {
    fn new(point: Point, wait: Wait, figures: Vec<Figures>) -> Self {
        let Point { operation, size, depth, connections } = point;
        Measured { operation, size, depth, connections, wait, figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::Times;

    /// A row with long figures.
    pub(super) fn measured(size: usize, depth: usize) -> Measured {
        let latency = Times {
            samples: 900,
            min: 900e-6,
            p50: 999.4e-6,
            p90: Some(1e-3),
            p99: Some(1.1e-3),
            p999: None,
            max: 2e-3,
            mean: 1e-3,
        };
        let figures = Figures {
            latency,
            latency_spread: Some(0.04),
            operations_per_second: 1e9,
            bytes_per_second: 1e9 * size as f64,
            rate_spread: Some(0.01),
            client_cpu: 300e-6,
            server_cpu: 400e-6,
            rounds: 5,
            operations: 1000,
            noisy: false,
        };
        let point = Point { operation: Operation::Send, size, depth, connections: 1 };
        Measured::new(point, Wait::Poll, vec![figures])
    }

    pub(super) fn document(points: Vec<Measured>) -> Document {
        Document {
            adapters: vec![Subject { name: "tcp-emu".to_owned(), provider: "tcp-emu".to_owned() }],
            address: "127.0.0.1".to_owned(),
            circumstances: Circumstances {
                date: "2026-11-25T07:03:04Z".to_owned(),
                version: "0.1.0",
                command: "dat bench --html 'a <b>'".to_owned(),
                cpu: "A CPU".to_owned(),
                processors: 2,
                kernel: "6.1".to_owned(),
            },
            pinned: Some([Some(0), Some(1)]),
            rounds: 5,
            points,
        }
    }

    #[test]
    fn a_duration_leaves_time_for_the_rounds() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!(seconds("20"), Ok(20.0));
        for text in ["0.4", "nan", "-1", "4000", "long"] {
            let why = seconds(text).expect_err(text);
            assert_eq!(why, "expected 0.5 to 3600 seconds: 5 rounds take so long", "{text}");
        }
    }
}
