//! What both processes do.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::link::Link;
use crate::measure::{Operation, Role, WORD, Wait, latency, settle, stream};
use crate::parent::say;
use crate::peer::Said;
use crate::raw::Raw;
use crate::times::Times;

/// How long one measurement takes.
const BUDGET: Duration = Duration::from_millis(200);
/// Of more, percentiles are no better.
const MOST_TIMES: usize = 100_000;

/// Bytes of a message.
pub(super) const LARGEST: usize = 16 << 20;
/// Operations outstanding on a connection.
pub(super) const DEEPEST: usize = 120;
/// Connections of an adapter.
pub(super) const MOST_CONNECTIONS: usize = 64;
/// Bytes that one process registers.
pub(super) const MOST_MEMORY: usize = 1 << 30;
/// What is asked for at once, and how often.
const MOST_POINTS: usize = 10_000;
const MOST_ROUNDS: u32 = 1000;

/// Something to measure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(super) operation: Operation,
    pub(super) size: usize,
    /// Operations outstanding on each connection.
    pub(super) depth: usize,
    pub(super) connections: usize,
}

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(super) points: Vec<Point>,
    pub(super) rounds: u32,
    pub(super) wait: Wait,
}

/// A round of one point.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Which of the adapters.
    pub(super) adapter: usize,
    /// Which of the points.
    pub(super) point: usize,
    pub(super) operations: usize,
    /// How long they took.
    pub(super) seconds: f64,
    /// Processor time of this process meanwhile.
    pub(super) cpu_seconds: f64,
    /// How long each took, in a measurement of its own; the client's.
    pub(super) times: Option<Times>,
}

impl Point {
    /// How its connections wait: those of several threads sleep, or they would keep each other from working.
    pub(super) fn wait(self, asked: Wait) -> Wait {
        if self.connections > 1 { Wait::Block } else { asked }
    }
}

impl Work {
    /// As the command line lets it be; a caller of `dat serve` may say anything.
    pub(crate) fn is_sound(&self, adapters: usize) -> bool {
        let is_sound = |point: &Point| {
            (1..=LARGEST).contains(&point.size)
                && (!point.operation.is_atomic() || point.size == WORD)
                && (1..=DEEPEST).contains(&point.depth)
                && (1..=MOST_CONNECTIONS).contains(&point.connections)
        };
        (1..=2).contains(&adapters)
            && (1..=MOST_POINTS).contains(&self.points.len())
            && (1..=MOST_ROUNDS).contains(&self.rounds)
            && self.points.iter().all(is_sound)
            && self.memory(adapters) <= MOST_MEMORY
    }

    /// Bytes that a process registers.
    pub(super) fn memory(&self, adapters: usize) -> usize {
        (2 * self.largest()).saturating_mul(self.connections()).saturating_mul(adapters)
    }

    /// Bytes of the largest message.
    pub(crate) fn largest(&self) -> usize {
        self.points.iter().map(|point| point.size).max().unwrap_or(1)
    }

    /// Connections of each adapter.
    pub(crate) fn connections(&self) -> usize {
        self.points.iter().map(|point| point.connections).max().unwrap_or(1)
    }

    /// The part of one process. The links are those of the first adapter, then those of the second.
    pub(crate) fn run(&self, links: &mut [Link], raw: &mut Raw, role: Role) -> Result<()> {
        let connections = self.connections();
        let mut adapters: Vec<&mut [Link]> = links.chunks_mut(connections).collect();
        for (index, point) in self.points.iter().enumerate() {
            let mut counts = Vec::new();
            for links in &mut adapters {
                let links = links.get_mut(..point.connections).context("too few connections")?;
                links.iter_mut().for_each(|link| link.set_wait(point.wait(self.wait)));
                counts.push(point.calibrate(links, raw, role)?);
            }
            for round in 0..self.rounds {
                for turn in 0..adapters.len() {
                    // Who is second may find the machine warmer: they take turns.
                    let adapter = (turn + round as usize) % adapters.len();
                    let links = &mut adapters[adapter][..point.connections];
                    let sample = point.sample(links, raw, role, counts[adapter])?;
                    say(&Said::Sample(Sample { adapter, point: index, ..sample }));
                }
            }
        }
        Ok(())
    }
}

/// How often it is done in one measurement.
#[derive(Clone, Copy)]
struct Count {
    /// On each connection.
    streamed: usize,
    timed: usize,
}

impl Point {
    fn calibrate(self, links: &mut [Link], raw: &mut Raw, role: Role) -> Result<Count> {
        let streamed = settle(raw, role, BUDGET, |raw, count| {
            raw.barrier()?;
            Ok(self.stream(links, role, count)?.as_secs_f64())
        })?;
        let timed = settle(raw, role, BUDGET, |raw, count| {
            raw.barrier()?;
            self.latency(links, role, count).map(|_| 0.0)
        })?;
        // Enough for the first ones, which find a shorter queue, to be left out.
        let timed = timed.min(MOST_TIMES / self.connections).max(2 * self.depth);
        Ok(Count { streamed, timed })
    }

    fn sample(self, links: &mut [Link], raw: &mut Raw, role: Role, count: Count) -> Result<Sample> {
        raw.barrier()?;
        let times = self.latency(links, role, count.timed)?;
        raw.barrier()?;
        let before = cpu::time();
        let took = self.stream(links, role, count.streamed)?;
        Ok(Sample {
            adapter: 0,
            point: 0,
            operations: count.streamed * self.connections,
            seconds: took.as_secs_f64(),
            cpu_seconds: (cpu::time() - before).as_secs_f64(),
            times: (role == Role::Client).then(|| Times::of(times)),
        })
    }

    /// How long each took, on all connections, while so many were on their way as the depth says.
    fn latency(self, links: &mut [Link], role: Role, count: usize) -> Result<Vec<f64>> {
        let Point { operation, size, depth, .. } = self;
        let times = on_each(links, |link| {
            let mut times = latency(link, role, operation, size, count, depth)?;
            times.drain(..times.len().min(depth - 1));
            Ok(times)
        })?;
        Ok(times.concat())
    }

    /// How long all took.
    fn stream(self, links: &mut [Link], role: Role, count: usize) -> Result<Duration> {
        let Point { operation, size, depth, .. } = self;
        let start = Instant::now();
        let took = on_each(links, |link| stream(link, role, operation, size, count, depth))?;
        match took[..] {
            // What ends the measurement at the other process is not part of it.
            [seconds] => Ok(Duration::from_secs_f64(seconds)),
            _ => Ok(start.elapsed()),
        }
    }
}

/// The same on each connection, by a thread of its own if there are several.
fn on_each<T: Send>(links: &mut [Link], work: impl Fn(&mut Link) -> Result<T> + Sync) -> Result<Vec<T>> {
    if let [link] = links {
        return Ok(vec![work(link)?]);
    }
    thread::scope(|threads| {
        let all: Vec<_> = links.iter_mut().map(|link| threads.spawn(|| work(link))).collect();
        let join = |thread: thread::ScopedJoinHandle<_>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_asks_for_what_the_command_line_could_have() {
        let point = Point { operation: Operation::Send, size: 64, depth: 16, connections: 2 };
        let work = |point| Work { points: vec![point], rounds: 1, wait: Wait::Block };
        assert!(work(point).is_sound(1));
        assert!(work(Point { size: LARGEST, connections: 32, ..point }).is_sound(1));
        for (point, adapters) in [
            (Point { size: 0, ..point }, 1),
            (Point { size: LARGEST + 1, ..point }, 1),
            (Point { depth: 0, ..point }, 1),
            (Point { depth: DEEPEST + 1, ..point }, 1),
            (Point { connections: 0, ..point }, 1),
            (Point { connections: MOST_CONNECTIONS + 1, ..point }, 1),
            (Point { operation: Operation::FetchAdd, ..point }, 1),
            (Point { size: LARGEST, connections: 32, ..point }, 2),
            (point, 0),
            (point, 3),
        ] {
            assert!(!work(point).is_sound(adapters), "{point:?} {adapters}");
        }
        assert!(!Work { points: Vec::new(), ..work(point) }.is_sound(1));
        assert!(!Work { rounds: 0, ..work(point) }.is_sound(1));
    }
}
