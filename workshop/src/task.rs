//! The task of the two processes: one row.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dat::Adapter;
use measurement::connection::Connection;
use measurement::measure::{self, agree_on_step, bandwidth_trial, on_each_connection};
use measurement::peer::{self, Ends, Message};
use measurement::plain_sockets::PlainSockets;
use measurement::schedule::{MIN_OPERATIONS, Rules, Schedule, Step, Trial, Value};
use measurement::wait_mode::{Role, WaitMode};
use registry::Wanted;
use serde::{Deserialize, Serialize};

use crate::datagrams::Datagrams;
use crate::request_answer::{Endpoints, RequestAnswer, WatchedSockets};
use crate::udp::Udp;
use crate::watch::Watcher;
use crate::workload::Workload;

/// The minimum time of one trial. Each round has two trials: one of DAT and one of the baseline.
pub(crate) const MIN_TRIAL_TIME: Duration = Duration::from_millis(250);
/// The maximum time of a trial. A trial has fewer than [`MIN_OPERATIONS`] operations if these would
/// take longer.
const MAX_TRIAL_TIME: Duration = Duration::from_millis(300);
/// The number of threads, with a connection each, of [`What::Threads`].
const THREADS: usize = 2;

/// The task of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) what: What,
    pub(crate) against: Against,
    pub(crate) rounds: u32,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// A workload of one connection.
    One(Workload),
    /// A workload of [`THREADS`] connections through one adapter, each in a thread of its own at
    /// both ends.
    Threads(measure::Workload),
    /// Requests over many connections.
    Many(RequestAnswer),
    /// A workload of two datagram endpoints.
    Datagrams(measure::Workload),
}

impl What {
    pub(crate) fn size(self) -> usize {
        match self {
            What::One(workload) => workload.size(),
            What::Threads(workload) | What::Datagrams(workload) => workload.size(),
            What::Many(requests) => requests.size,
        }
    }

    /// Returns whether the figures are times. Otherwise they are bytes per second.
    pub(crate) fn is_latency(self) -> bool {
        match self {
            What::One(workload) => workload.is_latency(),
            What::Datagrams(workload) => Workload::Usual(workload).is_latency(),
            What::Threads(_) => false,
            What::Many(requests) => requests.is_latency(),
        }
    }
}

/// The baseline, which DAT is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Against {
    /// A TCP stream.
    Tcp,
    /// UDP datagrams, one call per message.
    Udp,
    /// DAT, with one thread and one connection instead of [`What::Threads`].
    OneThread,
    /// DAT, whose consumer polls instead of blocking.
    Polling,
    /// DAT over a second adapter, whose RDMA writes complete as soon as TCP or the shared memory
    /// has accepted them.
    Local,
}

impl Against {
    /// Returns further ia_params of the baseline's adapter, if it needs an adapter of its own.
    pub(crate) fn adapter_params(self) -> Option<&'static str> {
        (self == Against::Local).then_some("completion=local")
    }
}

/// What is measured, with the connections that it needs besides those of the two processes.
enum Ready {
    One(Workload, Watcher),
    Threads(measure::Workload),
    Many(RequestAnswer, Box<Endpoints>, Box<WatchedSockets>),
    Datagrams(measure::Workload, Box<Datagrams>),
}

/// The result of one round: half a round trip or a request in seconds, or bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) dat: f64,
    pub(crate) baseline: f64,
}

impl peer::Task for Task {
    type Report = Round;

    fn largest(&self) -> usize {
        self.what.size()
    }

    /// Returns the number of connections between the two processes, without the connections that
    /// requests have.
    fn connections(&self) -> usize {
        match self.what {
            What::Threads(_) => THREADS,
            What::One(_) | What::Many(_) => 1,
            // An idle connection could belong to another engine of the adapter, whose socket would
            // also be polled.
            What::Datagrams(_) => 0,
        }
    }

    fn open(&self, names: &[String]) -> Result<Vec<Adapter>> {
        let mut adapters: Vec<Adapter> =
            names.iter().map(|name| Adapter::open(name)).collect::<Result<_, _>>()?;
        if let Some(params) = self.against.adapter_params() {
            adapters.push(open_with(&names[0], params)?);
        }
        Ok(adapters)
    }

    fn run(&self, ends: Ends<'_>, report: impl Fn(Message<Round>)) -> Result<()> {
        let Ends { role, server, adapters, connections, sockets } = ends;
        let adapter = &adapters[0];
        let mut udp =
            (self.against == Against::Udp).then(|| Udp::connect(sockets, role)).transpose()?;
        let mut ready = match self.what {
            What::One(workload) => Ready::One(workload, Watcher::new()),
            What::Threads(workload) => Ready::Threads(workload),
            What::Many(requests) => Ready::Many(
                requests,
                Endpoints::connect(requests, adapter, server, sockets, role)?.into(),
                WatchedSockets::connect(requests, sockets, role)?.into(),
            ),
            What::Datagrams(workload) => Ready::Datagrams(
                workload,
                Datagrams::connect(workload.size(), adapter, server, sockets, role)?.into(),
            ),
        };
        let mut schedule = Schedule::new(self.rules(), 2);
        let next = |schedule: &Schedule<_>| schedule.next().map(|step| (0, step));
        while let Some((_, step)) = agree_on_step(next(&schedule), sockets, role)? {
            let trial = self.trial(&mut ready, connections, sockets, udp.as_mut(), role, step)?;
            if role == Role::Client {
                schedule.record(trial);
                report(Message::Progress(schedule.progress()));
            }
        }
        if role == Role::Server {
            return Ok(());
        }
        let rounds = schedule.rounds().context("no round was measured")?;
        for (dat, baseline) in rounds.parts[0].iter().zip(&rounds.parts[1]) {
            let round = Round { dat: dat.sample.value, baseline: baseline.sample.value };
            report(Message::Report(round));
        }
        Ok(())
    }
}

impl Task {
    fn rules(&self) -> Rules {
        Rules {
            rounds: self.rounds as usize,
            duration: Duration::ZERO,
            min_trial_time: MIN_TRIAL_TIME,
            operations: MIN_OPERATIONS,
            max_trial_time: MAX_TRIAL_TIME,
            // A noisy row gets no further rounds. Its result is the ratio of DAT to the baseline,
            // and each round yields a ratio of its own.
            attempts: 1,
        }
    }

    /// Runs a trial: part 0 is that of DAT, part 1 that of the baseline.
    fn trial(
        &self,
        ready: &mut Ready,
        connections: &mut [Connection],
        sockets: &mut PlainSockets,
        udp: Option<&mut Udp>,
        role: Role,
        Step { part, operations }: Step,
    ) -> Result<Trial<Value>> {
        match (ready, part) {
            (Ready::One(workload, watcher), part) => {
                // Each of the two adapters of `Against::Local` has one connection.
                let connection = match (self.against, part) {
                    (Against::Local, part) => &mut connections[part],
                    (Against::Polling, part) => {
                        connections[0].set_wait(if part == 0 {
                            WaitMode::Block
                        } else {
                            WaitMode::Poll
                        });
                        &mut connections[0]
                    }
                    (_, 0) => &mut connections[0],
                    _ => return workload.run_plain(sockets, udp, role, operations),
                };
                workload.run_dat(connection, watcher, sockets, role, operations)
            }
            (Ready::Datagrams(workload, datagrams), 0) => {
                datagrams.run(*workload, sockets, role, operations)
            }
            (Ready::Datagrams(workload, _), _) => {
                Workload::Usual(*workload).run_plain(sockets, udp, role, operations)
            }
            (Ready::Threads(workload), part) => {
                let threads = if part == 0 { THREADS } else { 1 };
                run_threads(*workload, &mut connections[..threads], sockets, role, operations)
            }
            (Ready::Many(requests, endpoints, _), 0) => {
                requests.run(endpoints.as_mut(), sockets, role, operations)
            }
            (Ready::Many(requests, _, watched), _) => {
                requests.run(watched.as_mut(), sockets, role, operations)
            }
        }
    }
}

/// Runs the workload on each connection, in a thread of its own if there are several. Returns the
/// client's measurement of all connections together, in bytes per second.
fn run_threads(
    workload: measure::Workload,
    connections: &mut [Connection],
    sockets: &mut PlainSockets,
    role: Role,
    count: usize,
) -> Result<Trial<Value>> {
    let each = count.div_ceil(connections.len());
    sockets.barrier()?;
    let start = Instant::now();
    on_each_connection(connections, |connection| workload.run_connection(connection, role, each))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(bandwidth_trial(seconds, workload.size(), each * connections.len()))
}

/// Opens the adapter of this name with further ia_params.
fn open_with(name: &str, params: &str) -> Result<Adapter> {
    let wanted = Wanted { name, major: 2, minor: 0, threadsafe: false };
    let fitting = dat::registry().list().find(&wanted).ok();
    let candidate = fitting.and_then(|fitting| fitting.first().copied());
    let mut candidate =
        candidate.with_context(|| format!("no adapter has the name {name}"))?.clone();
    candidate.entry.ia_params += &format!(" {params}");
    // The registry keeps one set of parameters for each name, so this adapter needs another name.
    candidate.entry.ia_name += &format!(" {params}");
    Adapter::open_entry(&candidate).map_err(|why| anyhow!("opening {name} with {params}: {why}"))
}
