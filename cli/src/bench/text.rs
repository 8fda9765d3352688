//! The result for people, row by row as it comes.

use std::io::{Write, stdout};

use anyhow::Result;

use super::{Document, Figures, Measured};
use crate::measure::Wait;
use crate::table::{Align::*, Colour, Table, colour};
use crate::times::Times;
use crate::units;

/// Of one adapter.
const ALONE: Table<10> = Table {
    columns: [
        (Left, 16),
        (Right, 6),
        (Right, 5),
        (Right, 5),
        (Right, 8),
        (Right, 8),
        (Right, 8),
        (Right, 9),
        (Right, 8),
        (Right, 17),
    ],
};

/// Of two.
const COMPARED: Table<9> = Table {
    columns: [
        (Left, 16),
        (Right, 6),
        (Right, 5),
        (Right, 5),
        (Left, 9),
        (Right, 12),
        (Right, 12),
        (Right, 6),
        (Right, 9),
    ],
};

pub(super) fn head(adapters: &[String]) -> Result<()> {
    let lines = match adapters {
        [first, second] => vec![COMPARED.row([
            "operation",
            "size",
            "depth",
            "conns",
            "",
            first,
            second,
            "ratio",
            "CPU ratio",
        ])],
        _ => vec![
            ALONE.row(["", "", "", "", "latency", "", "", "", "", "CPU time, each"]),
            ALONE.row([
                "operation",
                "size",
                "depth",
                "conns",
                "p50",
                "p99",
                "p99.9",
                "bandwidth",
                "rate",
                "client + server",
            ]),
        ],
    };
    for line in lines {
        writeln!(stdout(), "{}", colour(&line, Colour::Strong))?;
    }
    Ok(())
}

pub(super) fn row(row: &Measured) -> Result<()> {
    let line = match &row.figures[..] {
        [one] => alone(row, one),
        [first, second] => compared(row, first, second),
        _ => return Ok(()),
    };
    writeln!(stdout(), "{line}")?;
    Ok(())
}

fn point(row: &Measured) -> [String; 4] {
    [
        row.operation.name().to_owned(),
        units::size(row.size),
        row.depth.to_string(),
        row.connections.to_string(),
    ]
}

fn alone(row: &Measured, figures: &Figures) -> String {
    let [operation, size, depth, connections] = point(row);
    let latency = |time: Option<f64>| time.map_or_else(String::new, units::time);
    let Times { p50, p99, p999, .. } = figures.latency;
    ALONE.row([
        operation,
        size,
        depth,
        connections,
        units::time(p50),
        latency(p99),
        latency(p999),
        units::bandwidth(figures.bytes_per_second),
        units::rate(figures.operations_per_second),
        format!("{} + {}", units::time(figures.client_cpu), units::time(figures.server_cpu)),
    ])
}

/// One of the figures: its name, how it is found and how it is written.
type Figure = (&'static str, fn(&Figures) -> f64, fn(f64) -> String);

/// What counts of a point: how long one takes where one is done at a time, else how much goes through.
fn compared(row: &Measured, first: &Figures, second: &Figures) -> String {
    let [operation, size, depth, connections] = point(row);
    let (what, value, text): Figure = match row {
        Measured { depth: 1, connections: 1, .. } => ("p50", |figures| figures.latency.p50, units::time),
        Measured { size: ..1024, .. } => ("rate", |figures| figures.operations_per_second, units::rate),
        _ => ("bandwidth", |figures| figures.bytes_per_second, units::bandwidth),
    };
    let (a, b) = (value(first), value(second));
    let cpu = |figures: &Figures| figures.client_cpu + figures.server_cpu;
    COMPARED.row([
        operation,
        size,
        depth,
        connections,
        what.to_owned(),
        text(a),
        text(b),
        format!("{:.2}", a / b),
        format!("{:.2}", cpu(first) / cpu(second)),
    ])
}

pub(super) fn foot(document: &Document) -> Result<()> {
    let text = format!("\n{}", notes(document));
    writeln!(stdout(), "{}", colour(&text, Colour::Faint))?;
    Ok(())
}

/// How it was measured.
pub(super) fn notes(document: &Document) -> String {
    let Document { adapters, address, kernel, processors, pinned, rounds, points } = document;
    let subject = |subject: &super::Subject| format!("{} (provider {})", subject.name, subject.provider);
    let subjects = adapters.iter().map(subject).collect::<Vec<_>>().join(" and ");
    let place = match pinned {
        Some([client, server]) => format!("pinned to processors {client} and {server} of {processors}"),
        None => format!("{processors} processors here"),
    };
    let polls = |point: &Measured| point.wait == Wait::Poll;
    let waits = match (points.iter().any(polls), points.iter().all(polls)) {
        (_, true) => "Who waits polls, so that it uses processor time while it waits",
        (true, false) => {
            "Who waits polls, so that it uses processor time while it waits; where there are\n\
             several connections it sleeps"
        }
        (false, false) => "Who waits sleeps",
    };
    let turns =
        if adapters.len() == 2 { ", the adapters in turn; ratio: the first to the second" } else { "" };
    format!(
        "{subjects} at {address}; {place}, Linux {kernel}.\n\
         Medians of {}{turns}. Latency: half of the way there and back, a write\n\
         with the send that announces it; all of it where an operation is answered; while\n\
         so many are on their way as the depth and the number of connections say. A\n\
         percentile that too few were measured for is left out.\n\
         {waits}.",
        units::plural(*rounds as usize, "round", "rounds")
    )
}
