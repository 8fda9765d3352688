//! `dat bench`: latency, bandwidth, message rate and processor time, over operations, sizes, depths and connections, of one
//! adapter or of two side by side.

mod html;
mod text;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use self::work::{DEEPEST, LARGEST, MOST_CONNECTIONS, MOST_MEMORY, Point};
pub(crate) use self::work::{Sample, Work};
use crate::measure::{Operation, Role, WORD, Wait, median};
use crate::output::{Output, print_json};
use crate::pair::Pair;
use crate::peer::{self, Facts, Plan, Said};
use crate::progress::Progress;
use crate::times::Times;
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
    /// How often each is measured; what is printed is the median. 3, or 7 with --plain
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Sleep while waiting, where the default is to poll if there are two processors
    #[arg(long)]
    block: bool,
    /// Write a page with plots, complete in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measure the rows of docs/performance.md beside plain sockets instead, with the bar that each has to meet
    #[arg(long, conflicts_with_all = ["host", "vs", "operations", "sizes", "depths", "connections", "block", "html"])]
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

/// An adapter, as the registry and its provider name it.
#[derive(Serialize)]
struct Subject {
    name: String,
    provider: String,
}

/// What came out for one point and adapter: medians of the rounds.
#[derive(Clone, Copy, Serialize)]
struct Figures {
    /// In seconds: half of the way there and back, or all of it where an operation is answered.
    latency: Times,
    operations_per_second: f64,
    bytes_per_second: f64,
    /// Processor time, in seconds for each operation.
    client_cpu: f64,
    server_cpu: f64,
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
    kernel: String,
    processors: usize,
    /// The processors of client and server.
    pinned: Option<[usize; 2]>,
    rounds: u32,
    points: Vec<Measured>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::say_mistakes();
    let common = &options.common;
    if options.plain {
        return plain::run(common, options.rounds.unwrap_or(7), &options.rows);
    }
    // Where one of those is given that --plain goes without, clap does not ask for it.
    ensure!(
        !options.rows.any(),
        "--check, --row and --watched are of what --plain measures: add it, and leave the others out"
    );
    let host = options.host.as_deref().map(ping::resolve).transpose()?;
    let names: Vec<String> = std::iter::once(&common.adapter).chain(&options.vs).cloned().collect();
    let points = options.points(&names)?;
    let rounds = options.rounds.unwrap_or(3);
    let wait = if options.block || cpu::two().is_none() { Wait::Block } else { Wait::Poll };
    let address = match host {
        None => common.address(&names[1..])?.to_string(),
        Some(host) => host.ip().to_string(),
    };
    let work = Work { points: points.clone(), rounds, wait };
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
    let mut pair = Pair::start_with(&plan, &[], host)?;
    let (mut facts, mut samples) = (Facts::default(), Samples::default());
    if !common.json {
        text::head(&names)?;
    }
    let mut measured = Vec::new();
    let progress = Progress::new(points.len());
    while let Some((role, said)) = pair.next()? {
        match said {
            Said::Connected(said) if role == Role::Client => facts = said,
            Said::Sample(sample) => {
                let asked = sample.point < points.len() && sample.adapter < names.len();
                ensure!(asked && samples.take(role, sample, rounds), "{NOT_ASKED}");
            }
            _ => {}
        }
        while let Some(point) = points.get(measured.len())
            && let Some(figures) = samples.figures(measured.len(), *point, names.len(), rounds)
        {
            let row = Measured::new(*point, point.wait(wait), figures);
            if !common.json {
                progress.aside(|| text::row(&row))?;
            }
            measured.push(row);
            progress.show(measured.len());
        }
    }
    drop(progress);
    ensure!(measured.len() == points.len(), "the two processes have not measured everything");
    let adapters = names.into_iter().zip(facts.providers);
    let document = Document {
        adapters: adapters.map(|(name, provider)| Subject { name, provider }).collect(),
        address,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        processors: cpu::allowed().len(),
        pinned: cpu::two().filter(|_| host.is_none()),
        rounds,
        points: measured,
    };
    if let Some(page) = page {
        page.fill(&html::page(&document))?;
    }
    match common.json {
        true => print_json(&document)?,
        false => text::foot(&document)?,
    }
    Ok(true)
}

impl Options {
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
        let operations = Operation::ALL.into_iter().chain([Operation::FetchAdd, Operation::CompareSwap]);
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

/// What has come in, by point and adapter.
#[derive(Default)]
struct Samples(BTreeMap<(usize, usize), [Vec<Sample>; 2]>);

/// A server on another host may say anything.
const NOT_ASKED: &str = "the other process says what it was not asked for";

impl Samples {
    /// False: there was one for each round already.
    fn take(&mut self, role: Role, sample: Sample, rounds: u32) -> bool {
        let both = self.0.entry((sample.point, sample.adapter)).or_default();
        let samples = &mut both[usize::from(role == Role::Server)];
        let is_one = samples.len() < rounds as usize;
        if is_one {
            samples.push(sample);
        }
        is_one
    }

    /// Of the adapters in turn, once all rounds of the point are there.
    fn figures(&self, index: usize, point: Point, adapters: usize, rounds: u32) -> Option<Vec<Figures>> {
        let figures = |adapter| {
            let both = self.0.get(&(index, adapter))?;
            let complete = both.iter().all(|samples| samples.len() == rounds as usize);
            complete.then(|| Figures::of(point, both)).flatten()
        };
        (0..adapters).map(figures).collect()
    }
}

impl Figures {
    /// None: the client has not said how long its operations took.
    fn of(point: Point, [client, server]: &[Vec<Sample>; 2]) -> Option<Figures> {
        let middle = |samples: &[Sample], value: &dyn Fn(&Sample) -> f64| {
            median(&samples.iter().map(value).collect::<Vec<_>>())
        };
        let operations_per_second = middle(client, &|sample| sample.operations as f64 / sample.seconds);
        let cpu = |samples| middle(samples, &|sample: &Sample| sample.cpu_seconds / sample.operations as f64);
        let times: Vec<Times> = client.iter().filter_map(|sample| sample.times).collect();
        Some(Figures {
            latency: Times::median(&times)?,
            operations_per_second,
            bytes_per_second: operations_per_second * point.size as f64,
            client_cpu: cpu(client),
            server_cpu: cpu(server),
        })
    }
}

impl Measured {
    fn new(point: Point, wait: Wait, figures: Vec<Figures>) -> Self {
        let Point { operation, size, depth, connections } = point;
        Measured { operation, size, depth, connections, wait, figures }
    }
}
