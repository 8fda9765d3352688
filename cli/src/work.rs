//! What the two processes do for each command. The modules of the commands do not know how a
//! process reports to its parent: they call functions that they are given.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod ping;

use anyhow::{Context, Result};
use measurement::connection::Connection;
use measurement::peer::{self, Ends, Message};
use serde::{Deserialize, Serialize};

/// The work of the two processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Demo(demo::Work),
    Bench(bench::Work),
    Ping(ping::Work),
}

/// What a process reports besides its progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A row of the demonstration is complete. The server has verified the data. The client sends
    /// the figures.
    Row(Option<Box<demo::Row>>),
    /// A round of a row of the benchmark is complete. The value is the result of all its rounds.
    Measured(bench::Outcome),
    /// Pings were answered. The values are the times of their round trips in seconds.
    Answered(Vec<f64>),
}

impl peer::Work for Work {
    type Report = Report;

    fn largest(&self) -> usize {
        match self {
            Work::Demo(work) => work.largest(),
            Work::Bench(work) => work.largest(),
            Work::Ping(work) => work.size,
        }
    }

    fn connections(&self) -> usize {
        match self {
            Work::Bench(work) => work.connections(),
            Work::Demo(_) | Work::Ping(_) => 1,
        }
    }

    fn run(&self, ends: Ends<'_>, report: impl Fn(Message<Report>)) -> Result<()> {
        let Ends { role, connections, sockets, .. } = ends;
        let progress = |done| report(Message::Progress(done));
        let report = |what| report(Message::Report(what));
        match self {
            Work::Demo(work) => work.run(first(connections)?, sockets, role, progress, |row| {
                report(Report::Row(row.map(Box::new)));
            }),
            Work::Bench(work) => {
                let measured = |outcome| report(Report::Measured(outcome));
                work.run(connections, sockets, role, progress, measured)
            }
            Work::Ping(work) => {
                let answered = |times| report(Report::Answered(times));
                work.run(first(connections)?, sockets, role, answered)
            }
        }
    }
}

fn first(connections: &mut [Connection]) -> Result<&mut Connection> {
    connections.first_mut().context("the plan names no connection")
}
