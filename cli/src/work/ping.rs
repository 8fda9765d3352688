//! The work of `dat ping`.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::measure::latency;
use crate::operation::Operation;
use crate::plain_sockets::PlainSockets;
use crate::times::Times;
use crate::wait::Role;

/// The maximum message size.
const MAX_MESSAGE_BYTES: u32 = 1 << 24;
/// The maximum number of messages.
pub(crate) const MAX_COUNT: u32 = 10_000_000;
/// The maximum time between two messages in seconds. The other process waits for the next message
/// no longer than 10 s.
pub(crate) const MAX_INTERVAL_SECONDS: f64 = 5.0;
/// If answers are not reported one by one, progress is reported after this number of answers.
const ANSWERS_PER_REPORT: usize = 1000;

/// The work of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) size: usize,
    pub(crate) count: usize,
    pub(crate) operation: Operation,
    /// The time between an answer and the next message, in seconds.
    pub(crate) interval: f64,
    /// Whether the client reports each answer.
    pub(crate) tells_each: bool,
}

impl Work {
    /// Returns whether the work is within the limits of the command line. A client of `dat serve`
    /// may send values beyond the limits.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MAX_MESSAGE_BYTES as usize).contains(&self.size)
            && (1..=MAX_COUNT as usize).contains(&self.count)
            && (0.0..=MAX_INTERVAL_SECONDS).contains(&self.interval)
    }

    /// Runs the work of one process. Returns the times of the round trips at the client, and
    /// nothing at the server. `report_progress` is called with the number of answers, and
    /// `report_answer` with the time of a round trip in seconds.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        report_progress: impl Fn(f64),
        report_answer: impl Fn(f64),
    ) -> Result<Option<Times>> {
        sockets.barrier()?;
        let warm = latency(connection, role, self.operation, self.size, self.count.min(100), 1)?;
        drop(warm);
        sockets.barrier()?;
        let interval = Duration::from_secs_f64(self.interval);
        // `latency` returns half a round trip, except for operations that complete after the whole
        // round trip.
        let whole = if self.operation.is_round_trip() { 1.0 } else { 2.0 };
        let slice = if self.tells_each || !interval.is_zero() { 1 } else { ANSWERS_PER_REPORT };
        let mut times = Vec::new();
        for done in (0..self.count).step_by(slice) {
            let count = slice.min(self.count - done);
            if role == Role::Client && done > 0 && !interval.is_zero() {
                sleep(interval);
            }
            times.extend(
                latency(connection, role, self.operation, self.size, count, 1)?
                    .iter()
                    .map(|time| time * whole),
            );
            match times.last() {
                Some(last) if self.tells_each => report_answer(*last),
                Some(_) => report_progress(times.len() as f64),
                None => {}
            }
        }
        Ok((role == Role::Client).then(|| Times::of(times)))
    }
}
