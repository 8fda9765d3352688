//! The work of `dat bench --plain`: one row.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::measure::{Workload, run_schedule};
use crate::plain_sockets::{Against, PlainSockets};
use crate::rounds::{MIN_OPERATIONS, Rules, Schedule, Step};
use crate::wait::Role;

/// The minimum time of one trial. Each round has two trials: one of DAT and one of the plain
/// socket.
pub(crate) const MIN_TRIAL_TIME: Duration = Duration::from_millis(250);
/// The maximum time of a trial. A trial has fewer than [`MIN_OPERATIONS`] operations if these would
/// take longer.
const MAX_TRIAL_TIME: Duration = Duration::from_millis(300);

/// The work of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) what: Workload,
    pub(crate) against: Against,
    pub(crate) rounds: u32,
}

/// The result of one round: half a round trip in seconds, or bytes per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) dat: f64,
    pub(crate) raw: f64,
}

impl Work {
    /// Runs the work of one process. Returns the rounds at the client, and nothing at the server.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
    ) -> Result<Vec<Round>> {
        sockets.against = self.against;
        let rules = Rules {
            rounds: self.rounds as usize,
            duration: Duration::ZERO,
            min_trial_time: MIN_TRIAL_TIME,
            operations: MIN_OPERATIONS,
            max_trial_time: MAX_TRIAL_TIME,
            // A noisy row is not measured again. Its result is the ratio of DAT to the plain
            // socket, and each round yields a ratio of its own.
            attempts: 1,
        };
        let mut schedule = Schedule::new(rules, 2);
        run_schedule(
            &mut schedule,
            sockets,
            role,
            report_progress,
            |sockets, Step { part, operations }| match part {
                0 => self.what.run_dat(connection, sockets, role, operations),
                _ => self.what.run_plain(sockets, role, operations),
            },
        )?;
        if role == Role::Server {
            return Ok(Vec::new());
        }
        let rounds = schedule.into_rounds().context("no round was measured")?;
        let both = rounds.parts[0].iter().zip(&rounds.parts[1]);
        Ok(both.map(|(dat, raw)| Round { dat: dat.sample.value, raw: raw.sample.value }).collect())
    }
}
