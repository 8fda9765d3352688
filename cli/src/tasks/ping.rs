//! The task of `dat ping`.

use std::mem::take;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use measurement::connection::Connection;
use measurement::measure::{latency, report_latencies};
use measurement::operation::Operation;
use measurement::plain_sockets::PlainSockets;
use measurement::wait_mode::Role;
use serde::{Deserialize, Serialize};

/// The maximum message size.
const MAX_MESSAGE_BYTES: u32 = 1 << 24;
/// The maximum number of messages.
pub(crate) const MAX_COUNT: u32 = 10_000_000;
/// The maximum time between two messages in seconds. The other process waits for the next message
/// no longer than 10 s.
pub(crate) const MAX_INTERVAL_SECONDS: f64 = 5.0;
/// If answers are not reported one by one, at most this number of answers is reported at a time.
const ANSWERS_PER_REPORT: usize = 1000;
/// Answers that are not reported one by one are reported together when their round trips have taken
/// this many seconds in total. So a signal that ends the program early finds some answers.
const SECONDS_PER_REPORT: f64 = 0.1;
/// The maximum number of round trips that are made after a pause and before the measured one. The
/// first round trips after a pause take up to a hundred times as long, because processors have to
/// leave a state in which they save power, and caches are empty.
const MAX_WARM_UP: usize = 100;
/// The maximum time that the round trips before a measured one should take, if they are more than
/// one.
const WARM_UP_TIME: Duration = Duration::from_millis(10);

/// The task of both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) size: usize,
    pub(crate) count: usize,
    pub(crate) operation: Operation,
    /// The time between an answer and the next message, in seconds.
    pub(crate) interval: f64,
    /// Whether the client reports each answer as it arrives.
    pub(crate) tells_each: bool,
}

impl Task {
    /// Returns whether the task is within the limits of the command line. A client of `dat serve`
    /// may send values beyond the limits.
    pub(crate) fn is_valid(&self) -> bool {
        (1..=MAX_MESSAGE_BYTES as usize).contains(&self.size)
            && (1..=MAX_COUNT as usize).contains(&self.count)
            && (0.0..=MAX_INTERVAL_SECONDS).contains(&self.interval)
    }

    /// Runs the task of one process. At the client, `report_answers` is called with the times of
    /// round trips in seconds.
    pub(crate) fn run(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
        report_answers: impl Fn(Vec<f64>),
    ) -> Result<()> {
        let Task { size, operation, .. } = *self;
        sockets.barrier()?;
        let interval = Duration::from_secs_f64(self.interval);
        let whole = self.latencies_per_round_trip();
        let warm_up = self.agree_on_warm_up(connection, sockets, role)?;
        let slice = if self.tells_each || !interval.is_zero() { 1 } else { ANSWERS_PER_REPORT };
        let mut answers = Answers::default();
        for done in (0..self.count).step_by(slice) {
            if role == Role::Client && done > 0 && !interval.is_zero() {
                sleep(interval);
            }
            if done == 0 || !interval.is_zero() {
                latency(connection, role, operation, size, warm_up, 1)?;
            }
            let count = slice.min(self.count - done);
            report_latencies(connection, role, operation, size, (count, 1), |time| {
                answers.add(time * whole).into_iter().for_each(&report_answers);
            })?;
            answers.take().into_iter().for_each(&report_answers);
        }
        Ok(())
    }

    /// Returns how many times a round trip is as long as a result of [`latency`]. That is half a
    /// round trip, except for operations that complete after the whole round trip.
    fn latencies_per_round_trip(&self) -> f64 {
        if self.operation.is_round_trip() { 1.0 } else { 2.0 }
    }

    /// Returns the number of round trips before a measured one. Both processes return the number
    /// that follows from the client's times.
    fn agree_on_warm_up(
        &self,
        connection: &mut Connection,
        sockets: &mut PlainSockets,
        role: Role,
    ) -> Result<usize> {
        let mut number = 1;
        // The first round trip may take much longer than later ones. So it only shows how many
        // further round trips fit, and the fastest of these further round trips decides.
        for _ in 0..2 {
            let times = latency(connection, role, self.operation, self.size, number, 1)?;
            let fastest = times.into_iter().fold(f64::INFINITY, f64::min);
            let nanoseconds = (fastest * self.latencies_per_round_trip() * 1e9) as u64;
            let nanoseconds = sockets.tell(Role::Client, role, nanoseconds)?;
            number = warm_up(Duration::from_nanos(nanoseconds));
        }
        Ok(number)
    }
}

/// Answers that have not been reported yet.
#[derive(Default)]
struct Answers {
    /// The times of their round trips in seconds.
    times: Vec<f64>,
    /// The sum of these times.
    seconds: f64,
}

impl Answers {
    /// Adds an answer. Returns all answers if it is time to report them.
    fn add(&mut self, time: f64) -> Option<Vec<f64>> {
        self.times.push(time);
        self.seconds += time;
        if self.seconds >= SECONDS_PER_REPORT { self.take() } else { None }
    }

    /// Returns the answers, if there are any.
    fn take(&mut self) -> Option<Vec<f64>> {
        let times = take(self).times;
        (!times.is_empty()).then_some(times)
    }
}

/// Returns the number of round trips before a measured one, if each takes this time.
fn warm_up(round_trip: Duration) -> usize {
    let fitting = WARM_UP_TIME.as_nanos() / round_trip.as_nanos().max(1);
    fitting.clamp(1, MAX_WARM_UP as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a hundred messages came before each measured message, even if each took a
    /// tenth of a second, or took longer than a process waits for a message of the other process.
    #[test]
    fn fewer_messages_warm_up_a_slow_connection() {
        let of = |microseconds| warm_up(Duration::from_micros(microseconds));
        assert_eq!([0, 10, 100].map(of), [100; 3]);
        assert_eq!([200, 1000, 5000, 9000].map(of), [50, 10, 2, 1]);
        assert_eq!([100_000, 3_000_000, u64::MAX].map(of), [1; 3]);
    }

    /// Regression test: a thousand answers were reported at a time, however long they took. So a
    /// signal before the first report ended `dat ping --quiet --interval 0` without a summary.
    #[test]
    fn answers_are_reported_when_they_have_taken_a_tenth_of_a_second() {
        let mut answers = Answers::default();
        let reported: Vec<_> = [0.04; 7].into_iter().filter_map(|time| answers.add(time)).collect();
        assert_eq!(reported, [[0.04; 3]; 2]);
        assert_eq!(answers.take(), Some(vec![0.04]));
        assert_eq!((answers.take(), answers.add(3.0)), (None, Some(vec![3.0])));
    }
}
