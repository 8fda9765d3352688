//! The work of `dat bench`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::cpu;
use crate::measure::{latency, on_each_connection, run_schedule, stream};
use crate::operation::{ATOMIC_BYTES, Operation};
use crate::plain_sockets::PlainSockets;
use crate::rounds::{
    DEFAULT_ROUNDS, Figure, MIN_OPERATIONS, MIN_TRIAL_TIME, Rounds, Rules, Sample, Schedule, Trial,
};
use crate::times::Times;
use crate::wait::{Role, Wait};

/// The maximum time of a trial. A trial has fewer than [`MIN_OPERATIONS`] operations if these would
/// take longer.
pub(crate) const MAX_TRIAL_TIME: Duration = Duration::from_millis(250);
/// The maximum number of times that a noisy row is measured.
const MAX_ATTEMPTS: usize = 3;

/// The maximum message size.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// The maximum number of outstanding operations per connection.
pub(crate) const MAX_DEPTH: usize = 120;
/// The maximum number of connections per adapter.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// The maximum number of bytes that one process registers.
pub(crate) const MAX_MEMORY_BYTES: usize = 1 << 30;
/// The limits of one benchmark: points, rounds per point, and seconds per point.
const MAX_POINTS: usize = 10_000;
pub(crate) const MAX_ROUNDS: u32 = 1000;
pub(crate) const MAX_DURATION_SECONDS: f64 = 3600.0;

/// One combination of parameters to measure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) operation: Operation,
    pub(crate) size: usize,
    /// The number of outstanding operations per connection.
    pub(crate) depth: usize,
    pub(crate) connections: usize,
}

/// The work of the whole benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) points: Vec<Point>,
    pub(crate) rounds: u32,
    /// Each point is measured for at least this many seconds, in more rounds if needed. 0 means no
    /// minimum.
    pub(crate) seconds: f64,
    pub(crate) wait: Wait,
}

/// The result for one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The index of the point.
    pub(crate) point: usize,
    /// The figures of each adapter, in order.
    pub(crate) figures: Vec<Figures>,
}

/// The result for one point and adapter. The values are medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The latency in seconds: half of a round trip, or all of it if [`Operation::is_round_trip`].
    pub(crate) latency: Times,
    /// The spread of the latency's `p50`.
    pub(crate) latency_spread: Option<f64>,
    pub(crate) operations_per_second: f64,
    pub(crate) bytes_per_second: f64,
    /// The spread of both rates.
    pub(crate) rate_spread: Option<f64>,
    /// The processor time in seconds per operation.
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
    pub(crate) rounds: usize,
    /// The smallest number of operations in a round.
    pub(crate) operations: usize,
    /// Whether the row is noisy: see [`Rounds::is_noisy`].
    pub(crate) noisy: bool,
}

/// The kind of figure that a trial measures.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// The time of each operation.
    Latency,
    /// The number of operations that complete per second.
    Rate,
    /// Both figures at once, for operations that complete only after a round trip.
    Both,
}

/// The measurement of a trial.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    times: Option<Times>,
    flow: Option<Throughput>,
    /// The ratio of mean and median latency: see [`Sample::tail`].
    tail: f64,
}

#[derive(Clone, Copy, Debug)]
struct Throughput {
    operations_per_second: f64,
    client_cpu: f64,
    server_cpu: f64,
}

impl Figures {
    /// Returns the larger one of the spreads of latency and rate.
    pub(crate) fn spread(&self) -> Option<f64> {
        [self.latency_spread, self.rate_spread].into_iter().flatten().max_by(f64::total_cmp)
    }
}

impl Sample for Measurement {
    fn values(&self) -> [f64; 2] {
        let time = self.times.map(|times| times.p50);
        let rate = self.flow.map(|flow| flow.operations_per_second);
        let either = time.or(rate).unwrap_or(f64::NAN);
        [time.unwrap_or(either), rate.unwrap_or(either)]
    }

    fn tail(&self) -> f64 {
        self.tail
    }
}

impl Point {
    /// Returns how the connections of the point wait. With several connections there are several
    /// threads, which sleep so that they do not take processor time from each other.
    pub(crate) fn wait(self, requested: Wait) -> Wait {
        if self.connections > 1 { Wait::Block } else { requested }
    }
}

impl Work {
    /// Returns whether the work is within the limits of the command line. A client of `dat serve`
    /// may send values beyond the limits.
    pub(crate) fn is_valid(&self, adapters: usize) -> bool {
        let is_valid = |point: &Point| {
            (1..=MAX_MESSAGE_BYTES).contains(&point.size)
                && (!point.operation.is_atomic() || point.size == ATOMIC_BYTES)
                && (1..=MAX_DEPTH).contains(&point.depth)
                && (1..=MAX_CONNECTIONS).contains(&point.connections)
        };
        (1..=2).contains(&adapters)
            && (1..=MAX_POINTS).contains(&self.points.len())
            && (1..=MAX_ROUNDS).contains(&self.rounds)
            && (0.0..=MAX_DURATION_SECONDS).contains(&self.seconds)
            && self.points.iter().all(is_valid)
            && self.memory(adapters) <= MAX_MEMORY_BYTES
    }

    /// Returns the number of bytes that a process registers.
    pub(crate) fn memory(&self, adapters: usize) -> usize {
        (2 * self.largest()).saturating_mul(self.connections()).saturating_mul(adapters)
    }

    /// Returns the size of the largest message in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.points.iter().map(|point| point.size).max().unwrap_or(1)
    }

    /// Returns the number of connections per adapter.
    pub(crate) fn connections(&self) -> usize {
        self.points.iter().map(|point| point.connections).max().unwrap_or(1)
    }

    /// Returns the rules for the rounds of a point. With a duration, or with fewer rounds than the
    /// default, a noisy point is not measured again.
    fn rules(&self, adapters: usize) -> Rules {
        Rules {
            rounds: self.rounds as usize,
            duration: Duration::from_secs_f64(self.seconds * adapters as f64),
            min_trial_time: MIN_TRIAL_TIME,
            operations: MIN_OPERATIONS,
            max_trial_time: MAX_TRIAL_TIME,
            attempts: if self.seconds > 0.0 || (self.rounds as usize) < DEFAULT_ROUNDS {
                1
            } else {
                MAX_ATTEMPTS
            },
        }
    }

    /// Runs the work of one process. `connections` contains first the connections of the first
    /// adapter, then those of the second. At the client, `report_progress` is called with the
    /// number of completed points, and `report_outcome` after each point.
    pub(crate) fn run(
        &self,
        connections: &mut [Connection],
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
        report_outcome: impl Fn(Outcome),
    ) -> Result<()> {
        let per_adapter = self.connections();
        let mut adapters: Vec<&mut [Connection]> = connections.chunks_mut(per_adapter).collect();
        let rules = self.rules(adapters.len());
        for (index, point) in self.points.iter().enumerate() {
            for connections in &mut adapters {
                connections
                    .iter_mut()
                    .for_each(|connection| connection.set_wait(point.wait(self.wait)));
            }
            let kinds = point.kinds();
            let mut schedule = Schedule::new(rules, kinds.len() * adapters.len());
            let report_share = |share| report_progress(index as f64 + share);
            run_schedule(&mut schedule, sockets, role, report_share, |sockets, step| {
                let connections =
                    adapters.get_mut(step.part / kinds.len()).context(UNKNOWN_ADAPTER)?;
                let connections = connections
                    .get_mut(..point.connections)
                    .context("there are fewer connections than the plan says")?;
                point.trial(
                    connections,
                    sockets,
                    role,
                    kinds[step.part % kinds.len()],
                    step.operations,
                )
            })?;
            if role == Role::Client {
                let rounds = schedule.into_rounds().context("no round was measured")?;
                let figures = (0..adapters.len()).map(|adapter| point.figures(&rounds, adapter));
                let figures =
                    figures.collect::<Option<_>>().context("no operation was measured")?;
                report_outcome(Outcome { point: index, figures });
            }
        }
        Ok(())
    }
}

/// The error if a client on another host asks for an adapter that does not exist.
const UNKNOWN_ADAPTER: &str = "the other process asks for an adapter that does not exist";

impl Point {
    /// Returns the trials of a round.
    fn kinds(self) -> &'static [Kind] {
        if self.operation.is_round_trip() { &[Kind::Both] } else { &[Kind::Latency, Kind::Rate] }
    }

    /// Runs a trial of about this many operations, over all connections.
    fn trial(
        self,
        connections: &mut [Connection],
        sockets: &mut PlainSockets,
        role: Role,
        kind: Kind,
        operations: usize,
    ) -> Result<Trial<Measurement>> {
        let each = operations.div_ceil(self.connections);
        // The first `depth` operations find a shorter queue, so their times do not count. Therefore
        // there must be more than `depth` operations.
        let each = if kind == Kind::Rate { each } else { each.max(2 * self.depth) };
        sockets.barrier()?;
        let (start, cpu) = (Instant::now(), cpu::time());
        let (times, seconds) = match kind {
            Kind::Rate => (Vec::new(), self.stream(connections, role, each)?.as_secs_f64()),
            Kind::Latency | Kind::Both => {
                let times = self.latency(connections, role, each)?;
                (times, start.elapsed().as_secs_f64())
            }
        };
        let cpu = cpu::time() - cpu;
        let operations = each.saturating_mul(self.connections);
        let flow = match kind {
            Kind::Latency => None,
            Kind::Rate | Kind::Both => {
                let server_cpu = sockets.tell(Role::Server, role, cpu.as_nanos() as u64)?;
                Some(Throughput {
                    operations_per_second: operations as f64 / seconds,
                    client_cpu: cpu.as_secs_f64() / operations as f64,
                    server_cpu: server_cpu as f64 / 1e9 / operations as f64,
                })
            }
        };
        let times = (!times.is_empty()).then(|| Times::of(times));
        let tail = times.map_or(1.0, |times| self.tail(times));
        Ok(Trial { operations, seconds, sample: Measurement { times, flow, tail } })
    }

    /// Returns the ratio of mean and median latency. With several connections it is 1, because
    /// their threads share processors, so that some operations wait long even on an idle machine.
    fn tail(self, times: Times) -> f64 {
        if self.connections == 1 { times.mean / times.p50 } else { 1.0 }
    }

    /// Returns the figures of one adapter, or `None` if a round has no times.
    fn figures(self, rounds: &Rounds<Measurement>, adapter: usize) -> Option<Figures> {
        let kinds = self.kinds();
        let parts = adapter * kinds.len()..(adapter + 1) * kinds.len();
        let rounds =
            Rounds { parts: rounds.parts[parts].to_vec(), is_incomplete: rounds.is_incomplete };
        let times: Vec<Times> =
            rounds.parts[0].iter().filter_map(|trial| trial.sample.times).collect();
        let flow = rounds.parts.last()?.iter().filter_map(|trial| trial.sample.flow);
        let over = |value: fn(&Throughput) -> f64| {
            Figure::of(&flow.clone().map(|flow| value(&flow)).collect::<Vec<_>>())
        };
        let rate = over(|flow| flow.operations_per_second);
        Some(Figures {
            latency: Times::median(&times)?,
            latency_spread: rounds.figure(0, |sample| sample.values()[0]).spread,
            operations_per_second: rate.median,
            bytes_per_second: rate.median * self.size as f64,
            rate_spread: rate.spread,
            client_cpu: over(|flow| flow.client_cpu).median,
            server_cpu: over(|flow| flow.server_cpu).median,
            rounds: rounds.count(),
            operations: rounds.operations(),
            noisy: rounds.is_noisy(),
        })
    }

    /// Returns the time of each operation, on all connections, with `depth` operations outstanding
    /// on each.
    fn latency(self, connections: &mut [Connection], role: Role, count: usize) -> Result<Vec<f64>> {
        let Point { operation, size, depth, .. } = self;
        let times = on_each_connection(connections, |connection| {
            let mut times = latency(connection, role, operation, size, count, depth)?;
            times.drain(..times.len().min(depth - 1));
            Ok(times)
        })?;
        Ok(times.concat())
    }

    /// Returns the time of all operations together.
    fn stream(self, connections: &mut [Connection], role: Role, count: usize) -> Result<Duration> {
        let Point { operation, size, depth, .. } = self;
        let start = Instant::now();
        let took = on_each_connection(connections, |connection| {
            stream(connection, role, operation, size, count, depth)
        })?;
        match took[..] {
            // The message that ends the measurement at the other process is not part of the time.
            [seconds] => Ok(Duration::from_secs_f64(seconds)),
            _ => Ok(start.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_asks_for_what_the_command_line_could_have() {
        let point = Point { operation: Operation::Send, size: 64, depth: 16, connections: 2 };
        let work = |point| Work { points: vec![point], rounds: 1, seconds: 0.0, wait: Wait::Block };
        assert!(work(point).is_valid(1));
        assert!(work(Point { size: MAX_MESSAGE_BYTES, connections: 32, ..point }).is_valid(1));
        for (point, adapters) in [
            (Point { size: 0, ..point }, 1),
            (Point { size: MAX_MESSAGE_BYTES + 1, ..point }, 1),
            (Point { depth: 0, ..point }, 1),
            (Point { depth: MAX_DEPTH + 1, ..point }, 1),
            (Point { connections: 0, ..point }, 1),
            (Point { connections: MAX_CONNECTIONS + 1, ..point }, 1),
            (Point { operation: Operation::FetchAdd, ..point }, 1),
            (Point { size: MAX_MESSAGE_BYTES, connections: 32, ..point }, 2),
            (point, 0),
            (point, 3),
        ] {
            assert!(!work(point).is_valid(adapters), "{point:?} {adapters}");
        }
        assert!(!Work { points: Vec::new(), ..work(point) }.is_valid(1));
        assert!(!Work { rounds: 0, ..work(point) }.is_valid(1));
        for seconds in [-1.0, MAX_DURATION_SECONDS + 1.0, f64::NAN] {
            assert!(!Work { seconds, ..work(point) }.is_valid(1), "{seconds}");
        }
    }

    fn trial(times: &[f64], flow: Option<(f64, f64, f64)>) -> Trial<Measurement> {
        let flow = flow.map(|(operations_per_second, client_cpu, server_cpu)| Throughput {
            operations_per_second,
            client_cpu,
            server_cpu,
        });
        let times = (!times.is_empty()).then(|| Times::of(times.to_vec()));
        Trial { operations: 1000, seconds: 0.05, sample: Measurement { times, flow, tail: 1.0 } }
    }

    #[test]
    fn operations_of_one_connection_do_not_wait_for_each_other() {
        let of =
            |connections| Point { operation: Operation::Send, size: 64, depth: 1, connections };
        let times = Times::of(vec![1.0, 1.0, 1.0, 5.0]);
        assert_eq!((of(1).tail(times), of(4).tail(times)), (2.0, 1.0));
    }

    #[test]
    fn the_figures_of_a_row_are_of_the_same_rounds_and_agree() {
        let point = Point { operation: Operation::Send, size: 64, depth: 1, connections: 1 };
        // In one of the five rounds all operations were slow.
        let rounds = [1.0, 1.0, 50.0, 1.0, 1.0];
        let latency =
            rounds.map(|slow| trial(&[4e-6 * slow, 5e-6 * slow, 6e-6 * slow], None)).to_vec();
        let flow =
            rounds.map(|slow| trial(&[], Some((1e6 / slow, 1e-6 * slow, 2e-6 * slow)))).to_vec();
        let rounds = Rounds::of(vec![latency.clone(), flow.clone()]);
        let figures = point.figures(&rounds, 0).expect("the rounds have figures");
        assert_eq!((figures.latency.p50, figures.operations_per_second), (5e-6, 1e6));
        assert_eq!(figures.bytes_per_second, 64.0 * figures.operations_per_second);
        assert_eq!((figures.client_cpu, figures.server_cpu), (1e-6, 2e-6));
        assert_eq!(
            (figures.latency_spread, figures.rate_spread, figures.noisy),
            (Some(0.0), Some(0.0), false)
        );
        assert_eq!((figures.rounds, figures.operations), (5, 1000));
        assert!(
            point.figures(&Rounds::of(vec![flow, latency]), 0).is_none(),
            "without times there must be no figures"
        );
    }

    #[test]
    fn each_adapter_has_the_figures_of_its_own_rounds() {
        let point = Point { operation: Operation::RdmaRead, size: 4096, depth: 4, connections: 1 };
        let of = |rate: f64| trial(&[4.0 / rate], Some((rate, 0.0, 0.0)));
        let steady = vec![of(1e5); 5];
        let noisy = [1e5, 4e5, 1e5, 4e5, 2e5].map(of).to_vec();
        let rounds = Rounds::of(vec![steady, noisy]);
        let [first, second] =
            [0, 1].map(|adapter| point.figures(&rounds, adapter).expect("the rounds have figures"));
        assert_eq!((first.operations_per_second, first.noisy), (1e5, false));
        assert_eq!((second.operations_per_second, second.noisy), (2e5, true));
        // Both figures come from the same trial, so their product is the queue depth (Little's
        // law).
        assert_eq!(second.operations_per_second * second.latency.p50, 4.0);
    }
}
