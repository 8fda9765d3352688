//! Measures the time that a message takes, and the maximum number of bytes or messages per second.
//! Both processes run the same code in step.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::connection::{Connection, MAX_REQUESTS, MESSAGES_PER_CREDIT, POSTED_RECEIVES};
use crate::operation::Operation;
use crate::plain_sockets::{Direction, PlainSockets};
use crate::rounds::{Sample, Schedule, Step, Trial, Value, median};
use crate::wait::{PEER_TIMEOUT, Role};

/// The maximum time per operation, even if both processes poll on a single shared processor.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(100);

/// A workload of one connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// Latency in seconds. It is half a round trip for a send, and for an RDMA write with the
    /// notification after it. It is the whole round trip for a read or an atomic operation.
    Latency { operation: Operation, size: usize },
    /// Bandwidth in bytes per second, with `window` operations outstanding.
    Stream { operation: Operation, size: usize, window: usize },
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
            Workload::Latency { size, .. }
            | Workload::Stream { size, .. }
            | Workload::Watch { size, .. }
            | Workload::WriteCompletion { size }
            | Workload::WriteAndNotify { size } => size,
        }
    }

    /// Runs the workload with DAT. Returns the client's measurement.
    pub(crate) fn run_dat(
        self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        let start = Instant::now();
        Ok(match self {
            Workload::Latency { operation, size } => {
                latency_trial(start, &latency(connection, role, operation, size, count, 1)?)
            }
            Workload::Stream { operation, size, window } => bandwidth_trial(
                stream(connection, role, operation, size, count, window)?,
                size,
                count,
            ),
            Workload::Watch { size, calls } => {
                latency_trial(start, &watched(connection, role, size, calls, count)?)
            }
            Workload::WriteCompletion { size } => {
                latency_trial(start, &write_completions(connection, role, size, count)?)
            }
            Workload::WriteAndNotify { size } => {
                latency_trial(start, &writes_and_notifications(connection, role, size, count)?)
            }
        })
    }

    /// Runs the workload with DAT on each connection, in a thread of its own if there are several.
    /// Returns the client's measurement of all connections together, in bytes per second.
    pub(crate) fn run_dat_threads(
        self,
        connections: &mut [Connection],
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        let each = count.div_ceil(connections.len());
        sockets.barrier()?;
        let start = Instant::now();
        on_each_connection(connections, |connection| match self {
            Workload::Latency { operation, size } => {
                latency(connection, role, operation, size, each, 1).map(drop)
            }
            Workload::Stream { operation, size, window } => {
                stream(connection, role, operation, size, each, window).map(drop)
            }
            Workload::Watch { size, calls } => {
                watched(connection, role, size, calls, each).map(drop)
            }
            Workload::WriteCompletion { size } => {
                write_completions(connection, role, size, each).map(drop)
            }
            Workload::WriteAndNotify { size } => {
                writes_and_notifications(connection, role, size, each).map(drop)
            }
        })?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(bandwidth_trial(seconds, self.size(), each * connections.len()))
    }

    /// Runs the workload with plain sockets. Returns the client's measurement.
    pub(crate) fn run_plain(
        self,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        let start = Instant::now();
        Ok(match self {
            Workload::Latency { operation, size } if operation.is_round_trip() => {
                latency_trial(start, &sockets.ask(role, size, count)?)
            }
            Workload::Latency { size, .. }
            | Workload::WriteCompletion { size }
            | Workload::WriteAndNotify { size } => {
                latency_trial(start, &sockets.ping_pong(role, size, count)?)
            }
            Workload::Watch { size, .. } => {
                latency_trial(start, &sockets.watched(role, size, count)?)
            }
            Workload::Stream { size, .. } if sockets.uses_udp => {
                let (arrived, seconds) = sockets.datagrams(role, size, count)?;
                datagrams_trial(seconds, size, count, arrived)
            }
            Workload::Stream { operation, size, .. } => {
                let direction = if operation.is_round_trip() {
                    Direction::ToClient
                } else {
                    Direction::ToServer
                };
                bandwidth_trial(sockets.stream(role, direction, size, count)?, size, count)
            }
        })
    }
}

/// Returns a trial that began at `start`, with the median of its latencies as the value.
pub(crate) fn latency_trial(start: Instant, times: &[f64]) -> Trial<Value> {
    let seconds = start.elapsed().as_secs_f64();
    let (value, mean) = (median(times), times.iter().sum::<f64>() / times.len() as f64);
    Trial { operations: times.len(), seconds, sample: Value { value, tail: mean / value } }
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

/// Returns a trial whose value is in bytes per second.
pub(crate) fn bandwidth_trial(seconds: f64, size: usize, count: usize) -> Trial<Value> {
    Trial {
        operations: count,
        seconds,
        sample: Value { value: (count * size) as f64 / seconds, tail: 1.0 },
    }
}

/// Runs `work` on each connection. If there are several connections, each has a thread of its own.
pub(crate) fn on_each_connection<T: Send>(
    connections: &mut [Connection],
    work: impl Fn(&mut Connection) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if let [connection] = connections {
        return Ok(vec![work(connection)?]);
    }
    thread::scope(|threads| {
        let all: Vec<_> =
            connections.iter_mut().map(|connection| threads.spawn(|| work(connection))).collect();
        let join = |thread: thread::ScopedJoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect()
    })
}

/// Runs the steps of the client's schedule at both processes until it has no further step.
/// `report_progress` is called with the completed share of the row.
pub(crate) fn run_schedule<T: Sample>(
    schedule: &mut Schedule<T>,
    sockets: &mut PlainSockets,
    role: Role,
    mut report_progress: impl FnMut(f64),
    mut run: impl FnMut(&mut PlainSockets, Step) -> Result<Trial<T>>,
) -> Result<()> {
    while let Some((_, step)) = agree_on_step(schedule.next().map(|step| (0, step)), sockets, role)?
    {
        let trial = run(sockets, step)?;
        if role == Role::Client {
            schedule.record(trial);
            report_progress(schedule.progress());
        }
    }
    Ok(())
}

/// Sends the number of the next row and the next step from the client to the server. Returns both
/// at both processes, or `None` after the last step. The server ignores its own `next`.
pub(crate) fn agree_on_step(
    next: Option<(usize, Step)>,
    sockets: &mut PlainSockets,
    role: Role,
) -> Result<Option<(usize, Step)>> {
    // A step has at least one operation, so 0 operations mean that there is no further step.
    let (row, Step { part, operations }) = next.unwrap_or((0, Step { part: 0, operations: 0 }));
    let mut tell = |number: usize| -> Result<usize> {
        Ok(usize::try_from(sockets.tell(Role::Client, role, number as u64)?)?)
    };
    let (row, part, operations) = (tell(row)?, tell(part)?, tell(operations)?);
    Ok((operations > 0).then_some((row, Step { part, operations })))
}

/// Returns how long a process waits for a notification that the other process sends after this
/// number of operations. The waiting process does not notice the operations themselves.
fn timeout_for(operations: usize) -> Duration {
    PEER_TIMEOUT
        .max(OPERATION_TIMEOUT.saturating_mul(u32::try_from(operations).unwrap_or(u32::MAX)))
}

/// Runs `count` operations, `depth` of them at a time. Returns the client's latencies in seconds,
/// and nothing at the server.
///
/// The latency is half a round trip for a send, and for an RDMA write with the notification after
/// it. It is the whole round trip for a read or an atomic operation.
pub(crate) fn latency(
    connection: &mut Connection,
    role: Role,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(if role == Role::Client { count } else { 0 });
    report_latencies(connection, role, operation, size, (count, depth), |time| times.push(time))?;
    Ok(times)
}

/// As [`latency`]. At the client, `report` is called with each latency as soon as it is known.
pub(crate) fn report_latencies(
    connection: &mut Connection,
    role: Role,
    operation: Operation,
    size: usize,
    (count, depth): (usize, usize),
    report: impl FnMut(f64),
) -> Result<()> {
    match (operation.is_round_trip(), role) {
        (true, Role::Client) => {
            round_trip_latencies(connection, operation, size, (count, depth), report)
        }
        (true, Role::Server) => connection.receive_notification_within(timeout_for(count)),
        (false, Role::Client) => {
            echoed_latencies(connection, operation, size, (count, depth), report)
        }
        (false, Role::Server) => echo(connection, operation, size, count),
    }
}

/// Runs the client's side of reads and atomic operations.
fn round_trip_latencies(
    connection: &mut Connection,
    operation: Operation,
    size: usize,
    (count, depth): (usize, usize),
    report: impl FnMut(f64),
) -> Result<()> {
    run_pipelined(
        connection,
        (count, depth),
        |connection| connection.post_read_or_atomic(operation, size),
        Connection::complete,
        report,
    )?;
    connection.notify()?;
    connection.complete(0)
}

/// Runs the client's side of sends and writes, each of which the server echoes.
fn echoed_latencies(
    connection: &mut Connection,
    operation: Operation,
    size: usize,
    (count, depth): (usize, usize),
    mut report: impl FnMut(f64),
) -> Result<()> {
    let back = |connection: &mut Connection, _| {
        // Completions are taken here, while the next message is on its way.
        reap_if_many(connection)?;
        connection.post_receives()?;
        receive_expected(connection, operation, size)
    };
    run_pipelined(
        connection,
        (count, depth),
        |connection| send_or_write(connection, operation, size),
        back,
        |time| report(time / 2.0),
    )?;
    connection.post_receives()?;
    connection.complete(0)
}

/// Posts `count` operations, at most `depth` at a time, and waits for each. `wait` gets the number
/// of operations that may stay outstanding. `report` gets each operation's time in seconds.
fn run_pipelined(
    connection: &mut Connection,
    (count, depth): (usize, usize),
    post: impl Fn(&mut Connection) -> Result<()>,
    wait: impl Fn(&mut Connection, usize) -> Result<()>,
    mut report: impl FnMut(f64),
) -> Result<()> {
    let mut started = VecDeque::with_capacity(depth);
    for done in 0..count {
        while started.len() < depth && done + started.len() < count {
            started.push_back(Instant::now());
            post(connection)?;
        }
        wait(connection, started.len() - 1)?;
        if let Some(start) = started.pop_front() {
            report(start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// Runs the server's side of sends and writes.
fn echo(
    connection: &mut Connection,
    operation: Operation,
    size: usize,
    count: usize,
) -> Result<()> {
    for _ in 0..count {
        receive_expected(connection, operation, size)?;
        send_or_write(connection, operation, size)?;
        connection.post_receives()?;
        reap_if_many(connection)?;
    }
    connection.complete(0)
}

#[inline]
fn receive_expected(connection: &mut Connection, operation: Operation, size: usize) -> Result<()> {
    let length = connection.take_message()?;
    let expected = if operation == Operation::Send { size } else { 0 };
    ensure!(length == expected, "expected {expected} bytes, got {length}");
    Ok(())
}

/// Takes the completions of requests if many requests are outstanding. The caller has just received
/// a message, which shows that some of them have completed.
#[inline]
fn reap_if_many(connection: &mut Connection) -> Result<()> {
    if connection.outstanding > 8 { connection.reap() } else { Ok(()) }
}

#[inline]
fn send_or_write(connection: &mut Connection, operation: Operation, size: usize) -> Result<()> {
    connection.complete(MAX_REQUESTS - 1)?;
    match operation {
        Operation::Send => connection.send(connection.outgoing(size)?),
        _ => connection.write_and_notify(size),
    }
}

/// Runs `count` round trips of RDMA writes that the processes find in their memory. Returns half of
/// each round trip's time at the client, in seconds.
fn watched(
    connection: &mut Connection,
    role: Role,
    size: usize,
    calls: u32,
    count: usize,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        match role {
            Role::Client => {
                let start = Instant::now();
                connection.write_numbered(size)?;
                connection.watch(size, calls)?;
                times.push(start.elapsed().as_secs_f64() / 2.0);
            }
            Role::Server => {
                connection.watch(size, calls)?;
                connection.write_numbered(size)?;
            }
        }
    }
    Ok(times)
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
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        if role == Role::Server {
            connection.receive_notification()?;
        }
        connection.complete(MAX_REQUESTS - 2)?;
        connection.write(size)?;
        connection.notify()?;
        reap_if_many(connection)?;
        if role == Role::Client {
            connection.receive_notification()?;
            times.push(start.elapsed().as_secs_f64() / 2.0);
        }
    }
    connection.complete(0)?;
    Ok(times)
}

/// Moves `count` messages of `size` bytes with `window` operations outstanding. Returns the seconds
/// until the client knows that all have arrived.
pub(crate) fn stream(
    connection: &mut Connection,
    role: Role,
    operation: Operation,
    size: usize,
    count: usize,
    window: usize,
) -> Result<f64> {
    let start = Instant::now();
    match (operation, role) {
        (Operation::Send, Role::Client) => {
            send_all(connection, size, count, window)?;
            connection.complete(0)?;
        }
        (Operation::Send, Role::Server) => {
            for received in 1..=count {
                let length = connection.receive()?;
                ensure!(length == size, "expected {size} bytes, got {length}");
                if received % MESSAGES_PER_CREDIT == 0 {
                    connection.notify()?;
                    connection.complete(1)?;
                }
            }
            connection.notify()?;
            connection.complete(0)?;
        }
        (Operation::RdmaWrite, Role::Client) => {
            for _ in 0..count {
                connection.complete(window - 1)?;
                connection.write(size)?;
            }
            connection.notify()?; // arrives after the written data
            connection.receive_notification()?;
            connection.complete(0)?;
        }
        (_, Role::Client) => {
            for _ in 0..count {
                connection.complete(window - 1)?;
                connection.post_read_or_atomic(operation, size)?;
            }
            connection.complete(0)?;
            let elapsed = start.elapsed().as_secs_f64();
            connection.notify()?;
            connection.receive_notification()?;
            connection.complete(0)?;
            return Ok(elapsed);
        }
        (_, Role::Server) => {
            connection.receive_notification_within(timeout_for(count))?;
            connection.notify()?;
            connection.complete(0)?;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Sends all messages until the receiver has confirmed all of them, but never more at a time than
/// the receiver has receives for.
fn send_all(connection: &mut Connection, size: usize, count: usize, window: usize) -> Result<()> {
    let data = connection.outgoing(size)?;
    let notifications = count / MESSAGES_PER_CREDIT + 1;
    // One of the peer's receives is reserved for a notification from this process.
    let (mut allowed, mut sent, mut notified) = (POSTED_RECEIVES - 1, 0, 0);
    while sent < count {
        while sent < count && sent < allowed && connection.outstanding < window {
            connection.send(data)?;
            sent += 1;
        }
        connection
            .complete(window.saturating_sub(1).min(connection.outstanding.saturating_sub(1)))?;
        if sent == allowed {
            connection.receive_notification()?;
            notified += 1;
            allowed += MESSAGES_PER_CREDIT;
        } else if sent + MESSAGES_PER_CREDIT > allowed
            && let Some(length) = connection.try_receive()?
        {
            ensure!(length == 0, "expected a notification, got a message of {length} bytes");
            notified += 1;
            allowed += MESSAGES_PER_CREDIT;
        }
    }
    while notified < notifications {
        connection.receive_notification()?;
        notified += 1;
    }
    Ok(())
}
