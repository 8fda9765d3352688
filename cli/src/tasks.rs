//! What the two processes do for each command. The modules of the commands do not know how a
//! process reports to its parent: they call functions that they are given.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod ping;

use anyhow::{Context, Result};
use measurement::connection::Connection;
use measurement::peer::{self, Ends, Message};
use serde::{Deserialize, Serialize};

/// The task of the two processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Demo(demo::Task),
    Bench(bench::Task),
    Ping(ping::Task),
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

impl peer::Task for Task {
    type Report = Report;

    fn largest(&self) -> usize {
        match self {
            Task::Demo(task) => task.largest(),
            Task::Bench(task) => task.largest(),
            Task::Ping(task) => task.size,
        }
    }

    fn connections(&self) -> usize {
        match self {
            Task::Bench(task) => task.connections(),
            Task::Demo(_) | Task::Ping(_) => 1,
        }
    }

    fn run(&self, ends: Ends<'_>, report: impl Fn(Message<Report>)) -> Result<()> {
        let Ends { role, connections, sockets, .. } = ends;
        let progress = |done| report(Message::Progress(done));
        let report = |what| report(Message::Report(what));
        match self {
            Task::Demo(task) => task.run(first(connections)?, sockets, role, progress, |row| {
                report(Report::Row(row.map(Box::new)));
            }),
            Task::Bench(task) => {
                let measured = |outcome| report(Report::Measured(outcome));
                task.run(connections, sockets, role, progress, measured)
            }
            Task::Ping(task) => {
                let answered = |times| report(Report::Answered(times));
                task.run(first(connections)?, sockets, role, answered)
            }
        }
    }
}

fn first(connections: &mut [Connection]) -> Result<&mut Connection> {
    connections.first_mut().context("the plan names no connection")
}
