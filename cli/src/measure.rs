//! What is measured: how long a message takes, and how much goes through. Both processes run the same code in step.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::link::{CREDIT, Link, RECEIVES, REQUESTS};
use crate::raw::{Direction, Raw};
use crate::rounds::{Sample, Schedule, Step, Trial, Value, median};

/// Nothing takes longer between two processes that work; longer than this and something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// One of many operations takes no longer, even where both processes poll on one processor that others use, too.
const OPERATION_LIMIT: Duration = Duration::from_millis(100);

/// Which of the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    Client,
    Server,
}

/// How a process waits: turning, or asleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Wait {
    Poll,
    Block,
}

impl Wait {
    /// Ends a loop that turns for longer than this.
    #[inline]
    pub(crate) fn patience(self, limit: Duration) -> Patience {
        Patience { turns: 0, since: None, limit }
    }
}

/// Looks at the clock every so many turns.
pub(crate) struct Patience {
    turns: u32,
    since: Option<Instant>,
    limit: Duration,
}

impl Patience {
    #[inline]
    pub(crate) fn spend(&mut self, what: &str) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(1 << 12)
            && self.since.get_or_insert_with(Instant::now).elapsed() > self.limit
        {
            bail!("waited {} s for {what}", self.limit.as_secs());
        }
        Ok(())
    }
}

/// A way to move data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Send,
    #[value(name = "write")]
    RdmaWrite,
    #[value(name = "read")]
    RdmaRead,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    /// Those of the standard, which every adapter has.
    pub(crate) const ALL: [Operation; 3] =
        [Operation::Send, Operation::RdmaWrite, Operation::RdmaRead];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Send => "send/receive",
            Operation::RdmaWrite => "RDMA write",
            Operation::RdmaRead => "RDMA read",
            Operation::FetchAdd => "fetch and add",
            Operation::CompareSwap => "compare and swap",
        }
    }

    /// As the command line has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::RdmaWrite => "write",
            Operation::RdmaRead => "read",
            Operation::FetchAdd => "fetch-add",
            Operation::CompareSwap => "compare-swap",
        }
    }

    /// A name of at most 12 characters.
    pub(crate) fn short(self) -> &'static str {
        if self.is_atomic() { self.word() } else { self.name() }
    }

    /// Whether it is one of the extension, on [`WORD`] bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }

    /// Whether it completes with something of the peer's, which has come all the way back.
    pub(crate) fn is_answered(self) -> bool {
        self == Operation::RdmaRead || self.is_atomic()
    }
}

/// Bytes of an atomic operation.
pub(crate) const WORD: usize = 8;

/// Something that is measured, with DAT and with plain TCP.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// In seconds: half a round trip of a send, or of an RDMA write with the note after it; all of what is answered.
    Latency { operation: Operation, size: usize },
    /// In bytes a second, with so many operations outstanding.
    Stream { operation: Operation, size: usize, window: usize },
    /// In seconds: half a round trip of RDMA writes, each of which the other process finds by reading the
    /// last octet in its memory again and again. Meanwhile it calls DAT so many times a millisecond, for
    /// another reason.
    Watch { size: usize, calls: u32 },
}

impl What {
    pub(crate) fn size(self) -> usize {
        match self {
            What::Latency { size, .. } | What::Stream { size, .. } | What::Watch { size, .. } => {
                size
            }
        }
    }

    /// With DAT; what the client measured.
    pub(crate) fn dat(
        self,
        link: &mut Link,
        raw: &mut Raw,
        role: Role,
        count: usize,
    ) -> Result<Trial<Value>> {
        raw.barrier()?;
        let start = Instant::now();
        Ok(match self {
            What::Latency { operation, size } => {
                of_times(start, &latency(link, role, operation, size, count, 1)?)
            }
            What::Stream { operation, size, window } => {
                of_stream(stream(link, role, operation, size, count, window)?, size, count)
            }
            What::Watch { size, calls } => {
                of_times(start, &watched(link, role, size, calls, count)?)
            }
        })
    }

    /// With plain TCP; what the client measured.
    pub(crate) fn raw(self, raw: &mut Raw, role: Role, count: usize) -> Result<Trial<Value>> {
        raw.barrier()?;
        let start = Instant::now();
        Ok(match self {
            What::Latency { operation, size } if operation.is_answered() => {
                of_times(start, &raw.ask(role, size, count)?)
            }
            What::Latency { size, .. } => of_times(start, &raw.ping_pong(role, size, count)?),
            What::Watch { size, .. } => of_times(start, &raw.watched(role, size, count)?),
            What::Stream { operation, size, .. } => {
                let direction =
                    if operation.is_answered() { Direction::ToClient } else { Direction::ToServer };
                of_stream(raw.stream(role, direction, size, count)?, size, count)
            }
        })
    }
}

/// How long each operation took since `start`; the value is the median.
fn of_times(start: Instant, times: &[f64]) -> Trial<Value> {
    let seconds = start.elapsed().as_secs_f64();
    let (value, mean) = (median(times), times.iter().sum::<f64>() / times.len() as f64);
    Trial { operations: times.len(), seconds, sample: Value { value, tail: mean / value } }
}

/// The value is in bytes a second.
fn of_stream(seconds: f64, size: usize, count: usize) -> Trial<Value> {
    Trial {
        operations: count,
        seconds,
        sample: Value { value: (count * size) as f64 / seconds, tail: 1.0 },
    }
}

/// Does what the schedule asks for until it asks for nothing more. The client's schedule decides, and the
/// server is told. `told` is given the share of the row that is done.
pub(crate) fn drive<T: Sample>(
    schedule: &mut Schedule<T>,
    raw: &mut Raw,
    role: Role,
    mut told: impl FnMut(f64),
    mut run: impl FnMut(&mut Raw, Step) -> Result<Trial<T>>,
) -> Result<()> {
    while let Some(step) = agree(schedule, raw, role)? {
        let trial = run(raw, step)?;
        if role == Role::Client {
            schedule.take(trial);
            told(schedule.progress());
        }
    }
    Ok(())
}

/// The next step, at both processes; nothing when there is none.
fn agree<T: Sample>(schedule: &Schedule<T>, raw: &mut Raw, role: Role) -> Result<Option<Step>> {
    let next = schedule.next();
    // A step has at least one operation.
    let operations = raw.tell(Role::Client, role, next.map_or(0, |step| step.operations as u64))?;
    let part = raw.tell(Role::Client, role, next.map_or(0, |step| step.part as u64))?;
    let (operations, part) = (usize::try_from(operations)?, usize::try_from(part)?);
    Ok((operations > 0).then_some(Step { part, operations }))
}

/// How long a process waits until the other one says that it has carried out so many operations. They are
/// invisible to the process itself.
fn limit_of(operations: usize) -> Duration {
    PATIENCE.max(OPERATION_LIMIT.saturating_mul(u32::try_from(operations).unwrap_or(u32::MAX)))
}

/// How long each of `count` operations took, `depth` of them at a time; the client's times in seconds, none
/// at the server.
///
/// A send, or an RDMA write with a note after it: half of the way there and back. What is answered: all of it.
pub(crate) fn latency(
    link: &mut Link,
    role: Role,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<Vec<f64>> {
    match (operation.is_answered(), role) {
        (true, Role::Client) => answers(link, operation, size, count, depth),
        (true, Role::Server) => link.receive_note_within(limit_of(count)).map(|()| Vec::new()),
        (false, Role::Client) => echoes(link, operation, size, count, depth),
        (false, Role::Server) => echo(link, operation, size, count).map(|()| Vec::new()),
    }
}

/// The client's part of what is answered.
fn answers(
    link: &mut Link,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<Vec<f64>> {
    let times = on_their_way(link, count, depth, |link| link.ask(operation, size), Link::complete)?;
    link.note()?;
    link.complete(0)?;
    Ok(times)
}

/// The client's part of what is not: each comes back.
fn echoes(
    link: &mut Link,
    operation: Operation,
    size: usize,
    count: usize,
    depth: usize,
) -> Result<Vec<f64>> {
    let back = |link: &mut Link, _| {
        // While it is on its way there is time.
        tidy(link)?;
        link.post_receives()?;
        take(link, operation, size)
    };
    let mut times = on_their_way(link, count, depth, |link| there(link, operation, size), back)?;
    link.post_receives()?;
    link.complete(0)?;
    times.iter_mut().for_each(|time| *time /= 2.0);
    Ok(times)
}

/// Posts `count`, never more than `depth` at a time, and waits for each, so that as many are left as it is
/// told; how long each took, in seconds.
fn on_their_way(
    link: &mut Link,
    count: usize,
    depth: usize,
    post: impl Fn(&mut Link) -> Result<()>,
    wait: impl Fn(&mut Link, usize) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    let mut started = VecDeque::with_capacity(depth);
    while times.len() < count {
        while started.len() < depth && times.len() + started.len() < count {
            started.push_back(Instant::now());
            post(link)?;
        }
        wait(link, started.len() - 1)?;
        times.extend(started.pop_front().map(|start| start.elapsed().as_secs_f64()));
    }
    Ok(times)
}

/// The server's part.
fn echo(link: &mut Link, operation: Operation, size: usize, count: usize) -> Result<()> {
    for _ in 0..count {
        take(link, operation, size)?;
        there(link, operation, size)?;
        link.post_receives()?;
        tidy(link)?;
    }
    link.complete(0)
}

#[inline]
fn take(link: &mut Link, operation: Operation, size: usize) -> Result<()> {
    let length = link.take()?;
    let expected = if operation == Operation::Send { size } else { 0 };
    ensure!(length == expected, "expected {expected} bytes, got {length}");
    Ok(())
}

/// What has come in has shown that some of ours are done.
#[inline]
fn tidy(link: &mut Link) -> Result<()> {
    if link.outstanding > 8 { link.reap() } else { Ok(()) }
}

#[inline]
fn there(link: &mut Link, operation: Operation, size: usize) -> Result<()> {
    link.complete(REQUESTS - 1)?;
    match operation {
        Operation::Send => link.send(link.outgoing(size)?),
        _ => link.write_and_note(size),
    }
}

/// Half of each of `count` round trips of RDMA writes that the processes find in their memory; the client's,
/// in seconds.
fn watched(link: &mut Link, role: Role, size: usize, calls: u32, count: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        match role {
            Role::Client => {
                let start = Instant::now();
                link.write_marked(size)?;
                link.watch(size, calls)?;
                times.push(start.elapsed().as_secs_f64() / 2.0);
            }
            Role::Server => {
                link.watch(size, calls)?;
                link.write_marked(size)?;
            }
        }
    }
    Ok(times)
}

/// Moves `count` times `size` bytes with `window` operations outstanding; seconds until the client knows that all of
/// it has arrived.
pub(crate) fn stream(
    link: &mut Link,
    role: Role,
    operation: Operation,
    size: usize,
    count: usize,
    window: usize,
) -> Result<f64> {
    let start = Instant::now();
    match (operation, role) {
        (Operation::Send, Role::Client) => {
            send_all(link, size, count, window)?;
            link.complete(0)?;
        }
        (Operation::Send, Role::Server) => {
            for received in 1..=count {
                let length = link.receive()?;
                ensure!(length == size, "expected {size} bytes, got {length}");
                if received % CREDIT == 0 {
                    link.note()?;
                    link.complete(1)?;
                }
            }
            link.note()?;
            link.complete(0)?;
        }
        (Operation::RdmaWrite, Role::Client) => {
            for _ in 0..count {
                link.complete(window - 1)?;
                link.write(size)?;
            }
            link.note()?; // arrives behind what was written
            link.receive_note()?;
            link.complete(0)?;
        }
        (_, Role::Client) => {
            for _ in 0..count {
                link.complete(window - 1)?;
                link.ask(operation, size)?;
            }
            link.complete(0)?;
            let elapsed = start.elapsed().as_secs_f64();
            link.note()?;
            link.receive_note()?;
            link.complete(0)?;
            return Ok(elapsed);
        }
        (_, Role::Server) => {
            link.receive_note_within(limit_of(count))?;
            link.note()?;
            link.complete(0)?;
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Sends, never more than the receiver has receives for, until the receiver says that it has all.
fn send_all(link: &mut Link, size: usize, count: usize, window: usize) -> Result<()> {
    let data = link.outgoing(size)?;
    let notes = count / CREDIT + 1;
    // One receive is kept for a note of ours.
    let (mut allowed, mut sent, mut noted) = (RECEIVES - 1, 0, 0);
    while sent < count {
        while sent < count && sent < allowed && link.outstanding < window {
            link.send(data)?;
            sent += 1;
        }
        link.complete(window.saturating_sub(1).min(link.outstanding.saturating_sub(1)))?;
        if sent == allowed {
            link.receive_note()?;
            noted += 1;
            allowed += CREDIT;
        } else if sent + CREDIT > allowed
            && let Some(length) = link.try_receive()?
        {
            ensure!(length == 0, "expected a note, got a message of {length} bytes");
            noted += 1;
            allowed += CREDIT;
        }
    }
    while noted < notes {
        link.receive_note()?;
        noted += 1;
    }
    Ok(())
}
