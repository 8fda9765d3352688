//! The workloads of one connection.

use std::time::Instant;

use anyhow::Result;
use measurement::connection::{Connection, MAX_REQUESTS};
use measurement::measure::{
    self, bandwidth_trial, latency_trial, reap_if_many, run_pipelined, timeout_for,
};
use measurement::plain_sockets::PlainSockets;
use measurement::schedule::{Trial, Value};
use measurement::wait_mode::{Role, round_trips};
use serde::{Deserialize, Serialize};

use crate::udp::Udp;
use crate::watch::{self, Watcher};

/// A workload of one connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// A workload that `dat` measures, too.
    Usual(measure::Workload),
    /// Latency in seconds: half a round trip of RDMA writes. Each process finds a write by polling
    /// the last octet in its memory, and polls DAT for completions `calls` times per millisecond.
    Watch { size: usize, calls: u32 },
    /// Latency in seconds of one RDMA write: from the post to the completion.
    WriteCompletion { size: usize },
    /// Latency in seconds: half a round trip of an RDMA write that has a completion, and the
    /// notification behind it on the same connection.
    WriteAndNotify { size: usize },
}

impl Workload {
    pub(crate) fn size(self) -> usize {
        match self {
            Workload::Usual(workload) => workload.size(),
            Workload::Watch { size, .. }
            | Workload::WriteCompletion { size }
            | Workload::WriteAndNotify { size } => size,
        }
    }

    /// Returns whether the figures are times. Otherwise they are bytes per second.
    pub(crate) fn is_latency(self) -> bool {
        !matches!(self, Workload::Usual(measure::Workload::Stream { .. }))
    }

    /// Runs the workload with DAT. Returns the client's measurement.
    pub(crate) fn run_dat(
        self,
        connection: &mut Connection,
        watcher: &mut Watcher,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        let start = Instant::now();
        let times = match self {
            Workload::Usual(workload) => return workload.run_connection(connection, role, count),
            Workload::Watch { size, calls } => {
                watcher.round_trips(connection, role, size, calls, count)?
            }
            Workload::WriteCompletion { size } => write_completions(connection, role, size, count)?,
            Workload::WriteAndNotify { size } => {
                writes_and_notifications(connection, role, size, count)?
            }
        };
        Ok(latency_trial(start, &times))
    }

    /// Runs the workload with plain sockets: with UDP if `udp` is given. Returns the client's
    /// measurement.
    pub(crate) fn run_plain(
        self,
        sockets: &mut PlainSockets,
        udp: Option<&mut Udp>,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        let size = self.size();
        if let (Workload::Usual(workload), None) = (self, &udp) {
            return workload.run_plain(sockets, role, count);
        }
        sockets.barrier()?;
        let start = Instant::now();
        let times = match (self, udp) {
            (Workload::Usual(measure::Workload::Stream { .. }), Some(udp)) => {
                let (arrived, seconds) = udp.stream(sockets, role, size, count)?;
                return Ok(datagrams_trial(seconds, size, count, arrived));
            }
            (Workload::Watch { .. }, Some(udp)) => udp.watched(role, size, count)?,
            (Workload::Watch { .. }, None) => watch::tcp_round_trips(sockets, role, size, count)?,
            (_, Some(udp)) => udp.ping_pong(role, size, count)?,
            (_, None) => sockets.ping_pong(role, size, count)?,
        };
        Ok(latency_trial(start, &times))
    }
}

/// Returns a trial that sent `sent` datagrams, with the bytes per second of the `arrived` ones as
/// the value.
pub(crate) fn datagrams_trial(
    seconds: f64,
    size: usize,
    sent: usize,
    arrived: usize,
) -> Trial<Value> {
    Trial { operations: sent, ..bandwidth_trial(seconds, size, arrived) }
}

/// Runs `count` RDMA writes, one at a time. Returns the time from the post to the completion of
/// each at the client, in seconds.
fn write_completions(
    connection: &mut Connection,
    role: Role,
    size: usize,
    count: usize,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    match role {
        Role::Client => {
            let (write, wait) =
                (|connection: &mut Connection| connection.write(size), Connection::complete);
            run_pipelined(connection, (count, 1), write, wait, |time| times.push(time))?;
            connection.notify()?;
            connection.complete(0)?;
        }
        Role::Server => connection.receive_notification_within(timeout_for(count))?,
    }
    Ok(times)
}

/// Runs `count` round trips. Each way is an RDMA write that has a completion, and a notification.
/// Returns half of each round trip's time at the client, in seconds.
fn writes_and_notifications(
    connection: &mut Connection,
    role: Role,
    size: usize,
    count: usize,
) -> Result<Vec<f64>> {
    let send = |connection: &mut Connection| {
        connection.complete(MAX_REQUESTS - 2)?;
        connection.write(size)?;
        connection.notify()?;
        reap_if_many(connection)
    };
    let times = round_trips(role, count, connection, send, Connection::receive_notification)?;
    connection.complete(0)?;
    Ok(times)
}
