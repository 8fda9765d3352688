//! What both processes do.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::link::Link;
use crate::measure::{Operation, Role, WORD, Wait, drive, latency, stream};
use crate::parent::say;
use crate::peer::Said;
use crate::raw::Raw;
use crate::rounds::{Figure, OPERATIONS, ROUNDS, Rounds, Rules, SHORTEST, Sample, Schedule, Trial};
use crate::times::Times;

/// A trial has fewer than [`OPERATIONS`] where they take longer than this.
pub(super) const LONGEST: Duration = Duration::from_millis(250);
/// A noisy row is measured at most so often.
const ATTEMPTS: usize = 3;

/// Bytes of a message.
pub(super) const LARGEST: usize = 16 << 20;
/// Operations outstanding on a connection.
pub(super) const DEEPEST: usize = 120;
/// Connections of an adapter.
pub(super) const MOST_CONNECTIONS: usize = 64;
/// Bytes that one process registers.
pub(super) const MOST_MEMORY: usize = 1 << 30;
/// What is asked for at once, how often, and for how long.
const MOST_POINTS: usize = 10_000;
pub(super) const MOST_ROUNDS: u32 = 1000;
pub(super) const MOST_SECONDS: f64 = 3600.0;

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
    /// Each point is measured for so many seconds at least, in more rounds if need be; 0 says nothing.
    pub(super) seconds: f64,
    pub(super) wait: Wait,
}

/// What came out for one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Which of the points.
    pub(super) point: usize,
    /// Of the adapters in turn.
    pub(super) figures: Vec<Figures>,
}

/// What came out for one point and adapter: medians of the rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// In seconds: half of the way there and back, or all of it where an operation is answered.
    pub(super) latency: Times,
    /// The spread of its `p50`.
    pub(super) latency_spread: Option<f64>,
    pub(super) operations_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// The spread of both.
    pub(super) rate_spread: Option<f64>,
    /// Processor time, in seconds for each operation.
    pub(super) client_cpu: f64,
    pub(super) server_cpu: f64,
    pub(super) rounds: usize,
    /// The fewest operations of a round.
    pub(super) operations: usize,
    /// See [`Rounds::is_noisy`].
    pub(super) noisy: bool,
}

/// What a trial measures.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// How long each operation takes.
    Latency,
    /// How many go through.
    Flow,
    /// Both in one: what is answered has been everywhere when it completes.
    Both,
}

/// What a trial has measured.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    times: Option<Times>,
    flow: Option<Flow>,
    /// See [`Sample::tail`].
    tail: f64,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    operations_per_second: f64,
    client_cpu: f64,
    server_cpu: f64,
}

impl Figures {
    /// The larger spread of latency and rate.
    pub(super) fn spread(&self) -> Option<f64> {
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
            && (0.0..=MOST_SECONDS).contains(&self.seconds)
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

    /// What is asked of the rounds of a point. Whoever says how long it is measured, or in how few rounds, wants it once.
    fn rules(&self, adapters: usize) -> Rules {
        Rules {
            rounds: self.rounds as usize,
            duration: Duration::from_secs_f64(self.seconds * adapters as f64),
            shortest: SHORTEST,
            operations: OPERATIONS,
            longest: LONGEST,
            attempts: if self.seconds > 0.0 || (self.rounds as usize) < ROUNDS {
                1
            } else {
                ATTEMPTS
            },
        }
    }

    /// The part of one process. The links are those of the first adapter, then those of the second.
    pub(crate) fn run(&self, links: &mut [Link], raw: &mut Raw, role: Role) -> Result<()> {
        let connections = self.connections();
        let mut adapters: Vec<&mut [Link]> = links.chunks_mut(connections).collect();
        let rules = self.rules(adapters.len());
        for (index, point) in self.points.iter().enumerate() {
            for links in &mut adapters {
                links.iter_mut().for_each(|link| link.set_wait(point.wait(self.wait)));
            }
            let kinds = point.kinds();
            let mut schedule = Schedule::new(rules, kinds.len() * adapters.len());
            let told = |share| say(&Said::Progress(index as f64 + share));
            drive(&mut schedule, raw, role, told, |raw, step| {
                let links = adapters.get_mut(step.part / kinds.len()).context(NO_PART)?;
                let links = links.get_mut(..point.connections).context("too few connections")?;
                point.trial(links, raw, role, kinds[step.part % kinds.len()], step.operations)
            })?;
            if role == Role::Client {
                let rounds = schedule.into_rounds().context("no round was measured")?;
                let figures = (0..adapters.len()).map(|adapter| point.figures(&rounds, adapter));
                let figures =
                    figures.collect::<Option<_>>().context("no operation was measured")?;
                say(&Said::Measured(Outcome { point: index, figures }));
            }
        }
        Ok(())
    }
}

/// A client on another host may ask for anything.
const NO_PART: &str = "the other process asks for an adapter that there is not";

impl Point {
    /// The trials of a round.
    fn kinds(self) -> &'static [Kind] {
        if self.operation.is_answered() { &[Kind::Both] } else { &[Kind::Latency, Kind::Flow] }
    }

    /// About so many operations, over all connections.
    fn trial(
        self,
        links: &mut [Link],
        raw: &mut Raw,
        role: Role,
        kind: Kind,
        operations: usize,
    ) -> Result<Trial<Measurement>> {
        let each = operations.div_ceil(self.connections);
        // Enough for the first ones, which find a shorter queue, to be left out of the times.
        let each = if kind == Kind::Flow { each } else { each.max(2 * self.depth) };
        raw.barrier()?;
        let (start, cpu) = (Instant::now(), cpu::time());
        let (times, seconds) = match kind {
            Kind::Flow => (Vec::new(), self.stream(links, role, each)?.as_secs_f64()),
            Kind::Latency | Kind::Both => {
                let times = self.latency(links, role, each)?;
                (times, start.elapsed().as_secs_f64())
            }
        };
        let cpu = cpu::time() - cpu;
        let operations = each.saturating_mul(self.connections);
        let flow = match kind {
            Kind::Latency => None,
            Kind::Flow | Kind::Both => {
                let server_cpu = raw.tell(Role::Server, role, cpu.as_nanos() as u64)?;
                Some(Flow {
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

    /// The threads of several connections share processors, so that some operations wait for long by themselves: nothing else
    /// need be at work there.
    fn tail(self, times: Times) -> f64 {
        if self.connections == 1 { times.mean / times.p50 } else { 1.0 }
    }

    /// Of one of the adapters; nothing if a round has no times.
    fn figures(self, rounds: &Rounds<Measurement>, adapter: usize) -> Option<Figures> {
        let kinds = self.kinds();
        let parts = adapter * kinds.len()..(adapter + 1) * kinds.len();
        let rounds = Rounds { parts: rounds.parts[parts].to_vec(), is_cut: rounds.is_cut };
        let times: Vec<Times> =
            rounds.parts[0].iter().filter_map(|trial| trial.sample.times).collect();
        let flow = rounds.parts.last()?.iter().filter_map(|trial| trial.sample.flow);
        let over = |value: fn(&Flow) -> f64| {
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
fn on_each<T: Send>(
    links: &mut [Link],
    work: impl Fn(&mut Link) -> Result<T> + Sync,
) -> Result<Vec<T>> {
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
        let work = |point| Work { points: vec![point], rounds: 1, seconds: 0.0, wait: Wait::Block };
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
        for seconds in [-1.0, MOST_SECONDS + 1.0, f64::NAN] {
            assert!(!Work { seconds, ..work(point) }.is_sound(1), "{seconds}");
        }
    }

    fn trial(times: &[f64], flow: Option<(f64, f64, f64)>) -> Trial<Measurement> {
        let flow = flow.map(|(operations_per_second, client_cpu, server_cpu)| Flow {
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
        // In one of five rounds everything was slow.
        let rounds = [1.0, 1.0, 50.0, 1.0, 1.0];
        let latency =
            rounds.map(|slow| trial(&[4e-6 * slow, 5e-6 * slow, 6e-6 * slow], None)).to_vec();
        let flow =
            rounds.map(|slow| trial(&[], Some((1e6 / slow, 1e-6 * slow, 2e-6 * slow)))).to_vec();
        let rounds = Rounds::of(vec![latency.clone(), flow.clone()]);
        let figures = point.figures(&rounds, 0).expect("figures");
        assert_eq!((figures.latency.p50, figures.operations_per_second), (5e-6, 1e6));
        assert_eq!(figures.bytes_per_second, 64.0 * figures.operations_per_second);
        assert_eq!((figures.client_cpu, figures.server_cpu), (1e-6, 2e-6));
        assert_eq!(
            (figures.latency_spread, figures.rate_spread, figures.noisy),
            (Some(0.0), Some(0.0), false)
        );
        assert_eq!((figures.rounds, figures.operations), (5, 1000));
        assert!(point.figures(&Rounds::of(vec![flow, latency]), 0).is_none(), "there are no times");
    }

    #[test]
    fn each_adapter_has_the_figures_of_its_own_rounds() {
        let point = Point { operation: Operation::RdmaRead, size: 4096, depth: 4, connections: 1 };
        let of = |rate: f64| trial(&[4.0 / rate], Some((rate, 0.0, 0.0)));
        let steady = vec![of(1e5); 5];
        let noisy = [1e5, 4e5, 1e5, 4e5, 2e5].map(of).to_vec();
        let rounds = Rounds::of(vec![steady, noisy]);
        let [first, second] =
            [0, 1].map(|adapter| point.figures(&rounds, adapter).expect("figures"));
        assert_eq!((first.operations_per_second, first.noisy), (1e5, false));
        assert_eq!((second.operations_per_second, second.noisy), (2e5, true));
        // One trial measured both: as many are under way as the depth says.
        assert_eq!(second.operations_per_second * second.latency.p50, 4.0);
    }
}
