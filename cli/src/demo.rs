//! The program without a command: does DAT work here, and how fast.

use std::collections::VecDeque;
use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::Common;
use crate::link::Link;
use crate::measure::{Operation, Role, Wait, What};
use crate::output::print_json;
use crate::pair::Pair;
use crate::parent::say;
use crate::peer::{self, Facts, Plan, Said};
use crate::raw::Raw;
use crate::table::{Align::*, Colour, Table, colour};
use crate::{cpu, units, verify};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// Message sizes, in bytes.
const SIZES: [usize; 6] = [1, 64, 4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// How long one measurement takes; there are four for each row.
const BUDGET: Duration = Duration::from_millis(50);

/// What both processes do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) sizes: Vec<usize>,
}

/// What came out for one operation and size. Times in seconds, bandwidths in bytes a second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    operation: Operation,
    size: usize,
    latency: f64,
    raw_latency: f64,
    bandwidth: f64,
    raw_bandwidth: f64,
}

/// The result for machines.
#[derive(Serialize)]
struct Document<'a> {
    adapter: &'a str,
    address: String,
    provider: &'a str,
    congestion_control: &'a str,
    rows: Vec<VerifiedRow>,
    verified: bool,
}

#[derive(Serialize)]
struct VerifiedRow {
    #[serde(flatten)]
    row: Row,
    verified: bool,
}

const TABLE: Table<7> =
    Table { columns: [(Left, 12), (Right, 6), (Right, 9), (Right, 9), (Right, 9), (Right, 9), (Left, 8)] };

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
        work: peer::Work::Demo(Work { sizes: SIZES.to_vec() }),
    };
    let expected = SIZES.len() * Operation::ALL.len();
    let mut pair = Pair::start(&plan, &[])?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    // A row counts when both processes are through with it.
    let (mut measured, mut checked) = (VecDeque::new(), 0);
    while let Some(said) = pair.next()? {
        match said {
            (Role::Client, Said::Connected(said)) => {
                facts = said;
                if !json {
                    print_head(adapter, &address, &facts)?;
                }
            }
            (_, Said::Row(Some(row))) => measured.push_back(row),
            (_, Said::Row(None)) => checked += 1,
            _ => {}
        }
        while checked > 0
            && let Some(row) = measured.pop_front()
        {
            checked -= 1;
            if !json {
                print_row(&row)?;
            }
            rows.push(VerifiedRow { row, verified: true });
        }
    }
    let verified = rows.len() == expected;
    if *json {
        let address = address.to_string();
        let (provider, congestion_control) = (facts.provider(), &facts.congestion_control);
        let document = Document { adapter, address, provider, congestion_control, rows, verified };
        print_json(&document)?;
    } else {
        print_foot(verified, &facts)?;
    }
    Ok(verified)
}

fn print_head(adapter: &str, address: &dat::Address, facts: &Facts) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "Two processes on this host, {adapter} at {address} (provider {}).", facts.provider())?;
    writeln!(out, "Connected with private data both ways.\n")?;
    let strong = |line: String| colour(&line, Colour::Strong);
    writeln!(out, "{}", strong(TABLE.row(["", "", "latency", "", "bandwidth", "", ""])))?;
    let head = ["operation", "size", "DAT", "raw TCP", "DAT", "raw TCP", "content"];
    writeln!(out, "{}", strong(TABLE.row(head)))?;
    Ok(())
}

fn print_row(row: &Row) -> Result<()> {
    let cells = [
        row.operation.name().to_owned(),
        units::size(row.size),
        units::time(row.latency),
        units::time(row.raw_latency),
        units::bandwidth(row.bandwidth),
        units::bandwidth(row.raw_bandwidth),
        colour("verified", Colour::Good),
    ];
    writeln!(stdout(), "{}", TABLE.row(cells))?;
    Ok(())
}

fn print_foot(verified: bool, facts: &Facts) -> Result<()> {
    let mut out = stdout().lock();
    let verdict = if verified {
        colour("All data arrived as it was sent; disconnected in order.", Colour::Good)
    } else {
        colour("Not all rows were verified.", Colour::Bad)
    };
    writeln!(out, "\n{verdict}")?;
    let notes = format!(
        "Latency: half a round trip; an RDMA write with the send that announces it; all\n\
         of an RDMA read. Bandwidth: one way. Raw TCP: the same sizes in the same run,\n\
         both {}, congestion control {}.",
        if cpu::two().is_some() { "spinning" } else { "asleep while they wait (one processor)" },
        facts.congestion_control
    );
    writeln!(out, "{}", colour(&notes, Colour::Faint))?;
    Ok(())
}

impl Work {
    /// The part of one process.
    pub(crate) fn run(&self, link: &mut Link, raw: &mut Raw, role: Role) -> Result<()> {
        for &size in &self.sizes {
            for operation in Operation::ALL {
                let row = measure_row(link, raw, role, operation, size)?;
                say(&Said::Row((role == Role::Client).then_some(row)));
            }
        }
        Ok(())
    }
}

fn measure_row(link: &mut Link, raw: &mut Raw, role: Role, operation: Operation, size: usize) -> Result<Row> {
    verify::both_ways(link, raw, role, operation, size)?;
    let what = What::Latency { operation, size };
    let count = what.calibrate(link, raw, role, BUDGET)?;
    let latency = what.dat(link, raw, role, count.dat)?;
    let raw_latency = what.raw(raw, role, count.raw)?;

    let window = if size < 64 << 10 { 64 } else { 16 };
    let what = What::Stream { operation, size, window };
    let count = what.calibrate(link, raw, role, BUDGET)?;
    verify::prepare_stream(link, role, operation, size)?;
    let bandwidth = what.dat(link, raw, role, count.dat)?;
    verify::stream_arrived(link, role, operation, size)?;
    let raw_bandwidth = what.raw(raw, role, count.raw)?;
    Ok(Row { operation, size, latency, raw_latency, bandwidth, raw_bandwidth })
}
