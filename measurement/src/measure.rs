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
use crate::schedule::{Step, Trial, Value, median};
use crate::wait_mode::{PEER_TIMEOUT, Role};

/// The maximum time per operation, even if both processes poll on a single shared processor.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(100);

/// A workload of one connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Workload {
    /// Latency in seconds. It is half a round trip for a send, and for an RDMA write with the
    /// notification after it. It is the whole round trip for a read or an atomic operation.
    Latency {
        /// The operation.
        operation: Operation,
        /// The size of a message in bytes.
        size: usize,
    },
    /// Bandwidth in bytes per second, with `window` operations outstanding.
    Stream {
        /// The operation.
        operation: Operation,
        /// The size of a message in bytes.
        size: usize,
        /// The number of outstanding operations.
        window: usize,
    },
}

impl Workload {
    /// Returns the size of a message in bytes.
    pub fn size(self) -> usize {
        match self {
            Workload::Latency { size, .. } | Workload::Stream { size, .. } => size,
        }
    }

    /// Runs the workload with DAT, when both processes are ready. Returns the client's measurement.
    pub fn run_dat(
        self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        sockets.barrier()?;
        self.run_connection(connection, role, count)
    }

    /// As [`run_dat`](Self::run_dat), without waiting for the other process.
    pub fn run_connection(
        self,
        connection: &mut Connection,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
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
        })
    }

    /// Runs the workload with plain sockets. Returns the client's measurement.
    pub fn run_plain(
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
            Workload::Latency { size, .. } => {
                latency_trial(start, &sockets.ping_pong(role, size, count)?)
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
pub fn latency_trial(start: Instant, times: &[f64]) -> Trial<Value> {
    let seconds = start.elapsed().as_secs_f64();
    let (value, mean) = (median(times), times.iter().sum::<f64>() / times.len() as f64);
    Trial { operations: times.len(), seconds, sample: Value { value, tail: mean / value } }
}

/// Returns a trial whose value is in bytes per second.
pub fn bandwidth_trial(seconds: f64, size: usize, count: usize) -> Trial<Value> {
    Trial {
        operations: count,
        seconds,
        sample: Value { value: (count * size) as f64 / seconds, tail: 1.0 },
    }
}

/// Runs `work` on each connection. If there are several connections, each has a thread of its own.
pub fn on_each_connection<T: Send>(
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

/// Sends the number of the next row and the next step from the client to the server. Returns both
/// at both processes, or `None` after the last step. The server ignores its own `next`.
pub fn agree_on_step(
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
pub fn timeout_for(operations: usize) -> Duration {
    PEER_TIMEOUT
        .max(OPERATION_TIMEOUT.saturating_mul(u32::try_from(operations).unwrap_or(u32::MAX)))
}

/// Runs `count` operations, `depth` of them at a time. Returns the client's latencies in seconds,
/// and nothing at the server.
///
/// The latency is half a round trip for a send, and for an RDMA write with the notification after
/// it. It is the whole round trip for a read or an atomic operation.
pub fn latency(
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
pub fn report_latencies(
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
pub fn run_pipelined(
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
pub fn reap_if_many(connection: &mut Connection) -> Result<()> {
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

/// Moves `count` messages of `size` bytes with `window` operations outstanding. Returns the seconds
/// until the client knows that all have arrived.
pub fn stream(
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
