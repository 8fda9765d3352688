//! The work of `dat bench --plain`: one row.

use std::time::Duration;

use anyhow::{Context, Result};
use dat::{Adapter, Address};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::datagrams::Datagrams;
use crate::measure::{Workload, run_schedule};
use crate::plain_sockets::PlainSockets;
use crate::requests::{Endpoints, Requests, WatchedSockets};
use crate::rounds::{MIN_OPERATIONS, Rules, Schedule, Step};
use crate::wait::{Role, Wait};

/// The minimum time of one trial. Each round has two trials: one of DAT and one of the baseline.
pub(crate) const MIN_TRIAL_TIME: Duration = Duration::from_millis(250);
/// The maximum time of a trial. A trial has fewer than [`MIN_OPERATIONS`] operations if these would
/// take longer.
const MAX_TRIAL_TIME: Duration = Duration::from_millis(300);
/// The number of threads, with a connection each, of [`What::Threads`].
const THREADS: usize = 2;

/// The work of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
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
    Threads(Workload),
    /// Requests over many connections.
    Many(Requests),
    /// A workload of two datagram endpoints.
    Datagrams(Workload),
}

impl What {
    pub(crate) fn size(self) -> usize {
        match self {
            What::One(workload) | What::Threads(workload) | What::Datagrams(workload) => {
                workload.size()
            }
            What::Many(requests) => requests.size,
        }
    }

    /// Returns whether the figures are times. Otherwise they are bytes per second.
    pub(crate) fn is_latency(self) -> bool {
        match self {
            What::One(workload) | What::Datagrams(workload) => {
                !matches!(workload, Workload::Stream { .. })
            }
            What::Threads(_) => false,
            What::Many(requests) => requests.is_latency(),
        }
    }

    /// Returns the number of connections between the two processes, without the connections that
    /// requests have.
    pub(crate) fn connections(self) -> usize {
        match self {
            What::Threads(_) => THREADS,
            What::One(_) | What::Many(_) => 1,
            // An idle connection could belong to another engine of the adapter, whose socket would
            // also be polled.
            What::Datagrams(_) => 0,
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
    /// Returns the ia_params of the baseline's adapter, if it needs an adapter of its own.
    pub(crate) fn adapter_params(self) -> Option<&'static str> {
        (self == Against::Local).then_some("completion=local")
    }
}

/// What is measured, with the connections that it needs besides those of the two processes.
enum Ready {
    One(Workload),
    Threads(Workload),
    Many(Requests, Box<Endpoints>, Box<WatchedSockets>),
    Datagrams(Workload, Box<Datagrams>),
}

/// The result of one round: half a round trip or a request in seconds, or bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) dat: f64,
    pub(crate) baseline: f64,
}

impl Work {
    /// Runs the work of one process. Returns the rounds at the client, and nothing at the server.
    pub(crate) fn run(
        &self,
        adapter: &Adapter,
        server: Address,
        connections: &mut [Connection],
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
    ) -> Result<Vec<Round>> {
        sockets.uses_udp = self.against == Against::Udp;
        let mut ready = match self.what {
            What::One(workload) => Ready::One(workload),
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
        let rules = Rules {
            rounds: self.rounds as usize,
            duration: Duration::ZERO,
            min_trial_time: MIN_TRIAL_TIME,
            operations: MIN_OPERATIONS,
            max_trial_time: MAX_TRIAL_TIME,
            // A noisy row gets no further rounds. Its result is the ratio of DAT to the baseline,
            // and each round yields a ratio of its own.
            attempts: 1,
        };
        let mut schedule = Schedule::new(rules, 2);
        run_schedule(
            &mut schedule,
            sockets,
            role,
            report_progress,
            |sockets, Step { part, operations }| match (&mut ready, part) {
                (Ready::One(workload), _) if self.against == Against::Polling => {
                    connections[0].set_wait(if part == 0 { Wait::Block } else { Wait::Poll });
                    workload.run_dat(&mut connections[0], sockets, role, operations)
                }
                (Ready::One(workload), part) if self.against == Against::Local => {
                    // Each of the two adapters has one connection.
                    workload.run_dat(&mut connections[part], sockets, role, operations)
                }
                (Ready::One(workload), 0) => {
                    workload.run_dat(&mut connections[0], sockets, role, operations)
                }
                (Ready::Datagrams(workload, datagrams), 0) => {
                    datagrams.run(*workload, sockets, role, operations)
                }
                (Ready::One(workload) | Ready::Datagrams(workload, _), _) => {
                    workload.run_plain(sockets, role, operations)
                }
                (Ready::Threads(workload), _) => {
                    let threads = if part == 0 { THREADS } else { 1 };
                    workload.run_dat_threads(&mut connections[..threads], sockets, role, operations)
                }
                (Ready::Many(requests, endpoints, _), 0) => {
                    requests.run(endpoints.as_mut(), sockets, role, operations)
                }
                (Ready::Many(requests, _, watched), _) => {
                    requests.run(watched.as_mut(), sockets, role, operations)
                }
            },
        )?;
        if role == Role::Server {
            return Ok(Vec::new());
        }
        let rounds = schedule.rounds().context("no round was measured")?;
        let both = rounds.parts[0].iter().zip(&rounds.parts[1]);
        let values = both.map(|(dat, baseline)| (dat.sample.value, baseline.sample.value));
        Ok(values.map(|(dat, baseline)| Round { dat, baseline }).collect())
    }
}
