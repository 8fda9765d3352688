//! The task of `dat bench`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use measurement::connection::Connection;
use measurement::cpu;
use measurement::measure::{agree_on_step, latency, on_each_connection, stream};
use measurement::operation::{ATOMIC_BYTES, Operation};
use measurement::plain_sockets::PlainSockets;
use measurement::schedule::{
    DEFAULT_ROUNDS, Figure, Interleaved, MIN_OPERATIONS, MIN_TRIAL_TIME, Rounds, Rules, Sample,
    State, Step, Trial, median,
};
use measurement::states::states;
use measurement::wait_mode::{Role, WaitMode};
use serde::{Deserialize, Serialize};

use crate::copying;
use crate::times::Times;

/// The maximum time of a trial. A trial has fewer than [`MIN_OPERATIONS`] operations if these would
/// take longer.
pub(crate) const MAX_TRIAL_TIME: Duration = Duration::from_millis(250);
/// A noisy row gets further rounds, until it has this many times the requested number.
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

/// The task of the whole benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) points: Vec<Point>,
    pub(crate) rounds: u32,
    /// Each point is measured for at least this many seconds, in more rounds if needed. 0 means no
    /// minimum.
    pub(crate) seconds: f64,
    pub(crate) wait: WaitMode,
    /// The processor of the server, if it is on the client's host and differs from the client's
    /// processor. The client then also measures how fast one copies what the other has written.
    pub(crate) server_cpu: Option<usize>,
}

/// The result for one point so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The index of the point.
    pub(crate) point: usize,
    /// The figures of each adapter, in order.
    pub(crate) figures: Vec<Figures>,
    /// The bytes per second of a copy between the two processors, after each round.
    pub(crate) copy: Option<Figure>,
}

/// The result for one point and adapter. The values are medians of the rounds. If the latency or
/// the rate has two states, its values are those of the state with more rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The latency in seconds: half of a round trip, or all of it if [`Operation::is_round_trip`].
    pub(crate) latency: Times,
    /// The spread of the latency's `p50`.
    pub(crate) latency_spread: Option<f64>,
    /// The latency's `p50` in the other state of the machine.
    pub(crate) latency_other_state: Option<State>,
    pub(crate) operations_per_second: f64,
    pub(crate) bytes_per_second: f64,
    /// The spread of both rates.
    pub(crate) rate_spread: Option<f64>,
    /// The operations per second in the other state of the machine.
    pub(crate) rate_other_state: Option<State>,
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
    /// Returns the largest spread of latency and rate, in both states of the machine.
    pub(crate) fn spread(&self) -> Option<f64> {
        let figures = [self.latency_figure(), self.rate_figure()];
        figures.iter().filter_map(Figure::spread).max_by(f64::total_cmp)
    }

    /// Returns the median latency, with both states of the machine.
    pub(crate) fn latency_figure(&self) -> Figure {
        self.figure(self.latency.p50, self.latency_spread, self.latency_other_state)
    }

    /// Returns the operations per second, with both states of the machine.
    pub(crate) fn rate_figure(&self) -> Figure {
        self.figure(self.operations_per_second, self.rate_spread, self.rate_other_state)
    }

    fn figure(&self, median: f64, spread: Option<f64>, other_state: Option<State>) -> Figure {
        let rounds = self.rounds - other_state.map_or(0, |state| state.rounds);
        Figure { main: State { rounds, median, spread }, other_state }
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
    pub(crate) fn wait(self, requested: WaitMode) -> WaitMode {
        if self.connections > 1 { WaitMode::Block } else { requested }
    }
}

impl Task {
    /// Returns whether the task is within the limits of the command line. A client of `dat serve`
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
    /// default, a noisy point gets no further rounds.
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

    /// Runs the task of one process. `connections` contains first the connections of the first
    /// adapter, then those of the second. The first round of every point comes first, then the
    /// second round of every point, and so on. At the client, `report_progress` is called with the
    /// number of completed points, and `report_outcome` with the outcome of a point after each of
    /// its rounds.
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
        let parts = self.points.iter().map(|point| point.kinds().len() * adapters.len());
        let mut rows = Interleaved::new(self.rules(adapters.len()), parts);
        let mut copies = vec![Vec::new(); self.points.len()];
        while let Some((row, step)) = agree_on_step(rows.next(), sockets, role)? {
            let trial = self.trial(row, step, &mut adapters, sockets, role)?;
            if role == Role::Server {
                continue;
            }
            if let Some(rounds) = rows.record(trial) {
                let speed = self.server_cpu.and_then(copying::speed);
                add_copy(&mut copies[row], rounds.count(), speed);
                report_outcome(self.outcome(row, rounds, adapters.len(), &copies[row])?);
            }
            report_progress(rows.progress());
        }
        Ok(())
    }

    /// Runs one trial of a point.
    fn trial(
        &self,
        row: usize,
        Step { part, operations }: Step,
        adapters: &mut [&mut [Connection]],
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<Trial<Measurement>> {
        let point = self.points.get(row).context("the other process asks for an unknown row")?;
        let kinds = point.kinds();
        let connections = adapters
            .get_mut(part / kinds.len())
            .context("the other process asks for an adapter that does not exist")?
            .get_mut(..point.connections)
            .context("there are fewer connections than the plan says")?;
        for connection in &mut *connections {
            connection.set_wait(point.wait(self.wait));
        }
        point.trial(connections, sockets, role, kinds[part % kinds.len()], operations)
    }

    /// Returns the result of a point from its rounds, and from the copies beside them.
    fn outcome(
        &self,
        point: usize,
        rounds: &Rounds<Measurement>,
        adapters: usize,
        copies: &[f64],
    ) -> Result<Outcome> {
        let figures = (0..adapters).map(|adapter| self.points[point].figures(rounds, adapter));
        let figures = figures.collect::<Option<_>>().context("no operation was measured")?;
        let copy = (!copies.is_empty()).then(|| Figure::of(copies));
        Ok(Outcome { point, figures, copy })
    }
}

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
        let flow: Vec<Throughput> =
            rounds.parts.last()?.iter().filter_map(|trial| trial.sample.flow).collect();
        let latencies: Vec<f64> = times.iter().map(|times| times.p50).collect();
        let rates: Vec<f64> = flow.iter().map(|flow| flow.operations_per_second).collect();
        let [latency, rate] = [&latencies, &rates].map(|values| Figure::of(values));
        // The processor time per operation and the other times belong to the same rounds.
        let times: Vec<Times> = main_rounds(&latencies).map(|round| times[round]).collect();
        let cpu = |value: fn(&Throughput) -> f64| {
            median(&main_rounds(&rates).map(|round| value(&flow[round])).collect::<Vec<_>>())
        };
        Some(Figures {
            latency: Times::median(&times)?,
            latency_spread: latency.main.spread,
            latency_other_state: latency.other_state,
            operations_per_second: rate.main.median,
            bytes_per_second: rate.main.median * self.size as f64,
            rate_spread: rate.main.spread,
            rate_other_state: rate.other_state,
            client_cpu: cpu(|flow| flow.client_cpu),
            server_cpu: cpu(|flow| flow.server_cpu),
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

/// Adds the speed of the copy after a round. `rounds` is the number of the row's rounds with this
/// one. If it is the first, the copies so far belong to rounds that were discarded because their
/// trials were too short.
fn add_copy(copies: &mut Vec<f64>, rounds: usize, speed: Option<f64>) {
    if rounds == 1 {
        copies.clear();
    }
    copies.extend(speed);
}

/// Returns the rounds of the state with more rounds.
fn main_rounds(values: &[f64]) -> impl Iterator<Item = usize> {
    states(values).swap_remove(0).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_asks_for_what_the_command_line_could_have() {
        let point = Point { operation: Operation::Send, size: 64, depth: 16, connections: 2 };
        let task = |point| Task {
            points: vec![point],
            rounds: 1,
            seconds: 0.0,
            wait: WaitMode::Block,
            server_cpu: None,
        };
        assert!(task(point).is_valid(1));
        assert!(task(Point { size: MAX_MESSAGE_BYTES, connections: 32, ..point }).is_valid(1));
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
            assert!(!task(point).is_valid(adapters), "{point:?} {adapters}");
        }
        assert!(!Task { points: Vec::new(), ..task(point) }.is_valid(1));
        assert!(!Task { rounds: 0, ..task(point) }.is_valid(1));
        for seconds in [-1.0, MAX_DURATION_SECONDS + 1.0, f64::NAN] {
            assert!(!Task { seconds, ..task(point) }.is_valid(1), "{seconds}");
        }
    }

    /// Regression test: the copies beside discarded rounds stayed among the copies of the row.
    #[test]
    fn each_copy_is_beside_a_round_that_counts() {
        let task = Task {
            points: Vec::new(),
            rounds: 5,
            seconds: 0.0,
            wait: WaitMode::Block,
            server_cpu: None,
        };
        let mut rows = Interleaved::new(task.rules(1), [1]);
        let (mut copies, mut trials, mut counts) = (Vec::new(), 0, Vec::new());
        while let Some((_, Step { operations, .. })) = rows.next() {
            // Operations become ten times as fast after the second round, so that the rounds begin
            // anew after the fifth.
            let each = if counts.len() < 2 { 50e-6 } else { 5e-6 };
            let seconds = operations as f64 * each;
            trials += 1;
            if let Some(rounds) = rows.record(Trial { operations, seconds, ..trial(&[each], None) })
            {
                counts.push(rounds.count());
                add_copy(&mut copies, rounds.count(), Some(f64::from(trials)));
                assert_eq!(copies.len(), rounds.count(), "{counts:?}: {copies:?}");
            }
        }
        assert_eq!(counts, [1, 2, 3, 4, 1, 2, 3, 4, 5], "the rounds must begin anew once");
        assert_eq!(copies.last(), Some(&f64::from(trials)));
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
        let noisy = [1e5, 4e5, 1e5, 3e5, 2e5].map(of).to_vec();
        let rounds = Rounds::of(vec![steady, noisy]);
        let [first, second] =
            [0, 1].map(|adapter| point.figures(&rounds, adapter).expect("the rounds have figures"));
        assert_eq!((first.operations_per_second, first.noisy), (1e5, false));
        assert_eq!((second.operations_per_second, second.noisy), (2e5, true));
        // Both figures come from the same trial, so their product is the queue depth (Little's
        // law).
        assert_eq!(second.operations_per_second * second.latency.p50, 4.0);
    }

    #[test]
    fn a_row_with_two_states_has_the_figures_of_both_and_is_not_noisy() {
        let point = Point { operation: Operation::RdmaRead, size: 65536, depth: 1, connections: 1 };
        let of = |latency: f64| trial(&[latency], Some((1.0 / latency, latency, latency)));
        let rounds = [8.6e-6, 32.0e-6, 32.1e-6, 8.7e-6, 31.9e-6].map(of).to_vec();
        let figures = point.figures(&Rounds::of(vec![rounds]), 0).expect("figures");
        assert_eq!((figures.latency.p50, figures.client_cpu), (32.0e-6, 32.0e-6));
        assert!(figures.spread().is_some_and(|spread| spread < 0.01), "{figures:?}");
        let other = figures.latency_other_state.expect("another state");
        assert_eq!((other.rounds, figures.latency_figure().main.rounds), (2, 3));
        assert!((8.6e-6..8.7e-6).contains(&other.median), "{other:?}");
        let other = figures.rate_other_state.expect("another state");
        assert_eq!((other.rounds, figures.rate_figure().main.rounds), (2, 3));
        assert!(!figures.noisy, "{figures:?}");
    }

    /// Regression test: a row was marked as noisy because of one state, but printed the spread of
    /// the other state. So a table had `!±0 %`.
    #[test]
    fn the_spread_of_a_noisy_row_is_above_the_limit_in_either_state() {
        let point = Point { operation: Operation::RdmaRead, size: 65536, depth: 1, connections: 1 };
        let of = |latency: f64| trial(&[latency], Some((1.0 / latency, latency, latency)));
        let rounds = [8e-6, 80e-6, 8e-6, 160e-6, 8e-6, 8e-6].map(of).to_vec();
        let figures = point.figures(&Rounds::of(vec![rounds]), 0).expect("figures");
        assert!(figures.noisy && figures.latency_spread == Some(0.0), "{figures:?}");
        assert!(figures.spread().is_some_and(|spread| spread > 0.15), "{figures:?}");
    }
}
