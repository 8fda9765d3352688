//! Programs that poll their memory: with DAT, and with plain sockets that a second thread reads.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use dat::Flags;
use measurement::connection::Connection;
use measurement::plain_sockets::PlainSockets;
use measurement::wait_mode::{PEER_TIMEOUT, Role, WaitMode, round_trips};

/// A consumer that watches the incoming data of a connection.
pub(crate) struct Watcher {
    /// The latest sequence number that was written to the peer.
    sent: u8,
    /// The latest sequence number that was found in the memory of this process.
    seen: u8,
    call_counter: CallCounter,
}

/// Counts the calls of DAT that are due while a consumer watches memory. The count continues over
/// all messages, because most messages take less time than there is between two calls.
struct CallCounter {
    since: Instant,
    /// The number of calls that were due so far. Calls that were due while no consumer watched are
    /// replaced by a single call.
    due: u128,
}

impl CallCounter {
    /// Returns whether a call is due, at `calls` per millisecond.
    fn is_due(&mut self, now: Instant, calls: u32) -> bool {
        let due = (now - self.since).as_micros() * u128::from(calls) / 1000;
        std::mem::replace(&mut self.due, due) < due
    }
}

impl Watcher {
    pub(crate) fn new() -> Self {
        Watcher { sent: 0, seen: 0, call_counter: CallCounter { since: Instant::now(), due: 0 } }
    }

    /// Runs `count` round trips of RDMA writes that the processes find in their memory. Returns
    /// half of each round trip's time at the client, in seconds.
    pub(crate) fn round_trips(
        &mut self,
        connection: &mut Connection,
        role: Role,
        size: usize,
        calls: u32,
        count: usize,
    ) -> Result<Vec<f64>> {
        round_trips(
            role,
            count,
            &mut (self, connection),
            |(watcher, connection)| watcher.write(connection, size),
            |(watcher, connection)| watcher.watch(connection, size, calls),
        )
    }

    /// Posts a write with a new sequence number in the last octet. The write has no completion.
    fn write(&mut self, connection: &mut Connection, size: usize) -> Result<()> {
        self.sent = self.sent.wrapping_add(1);
        connection.memory.store(size - 1, &[self.sent])?;
        connection.post_write(size, Flags::SUPPRESS)
    }

    /// Polls the last octet of the incoming data until it is the next sequence number. Meanwhile,
    /// it also calls DAT `calls` times per millisecond to poll for completions, although no
    /// operation has a completion.
    fn watch(&mut self, connection: &mut Connection, size: usize, calls: u32) -> Result<()> {
        const POLLS_PER_CLOCK_CHECK: u32 = 32;
        self.seen = self.seen.wrapping_add(1);
        let start = Instant::now();
        let last_octet = connection.incoming_offset() + size - 1;
        let mut last = [0];
        loop {
            for _ in 0..POLLS_PER_CLOCK_CHECK {
                connection.memory.load(last_octet, &mut last)?;
                if last == [self.seen] {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            ensure!(
                now - start < PEER_TIMEOUT,
                "waited {} s for a write of the other process",
                PEER_TIMEOUT.as_secs()
            );
            if self.call_counter.is_due(now, calls) {
                ensure!(
                    connection.requests.dequeue()?.is_none(),
                    "the EVD has a completion, although all writes suppress their completions"
                );
            }
        }
    }
}

/// Like [`PlainSockets::ping_pong`], with a second thread as [`thread_round_trips`] has one.
pub(crate) fn tcp_round_trips(
    sockets: &PlainSockets,
    role: Role,
    size: usize,
    count: usize,
) -> Result<Vec<f64>> {
    ensure!(sockets.wait() == WaitMode::Block, "a thread of its own sleeps while it waits");
    let mut stream = sockets.socket();
    let write = |octets: &[u8]| stream.write_all(octets);
    thread_round_trips(role, size, count, write, |room| sockets.socket().read_exact(room))
}

/// Runs `count` round trips of `size` bytes. A second thread sleeps until data arrives and reads
/// it, while this thread polls the memory into which the second thread reads. Returns half of each
/// round trip's time at the client, in seconds.
pub(crate) fn thread_round_trips(
    role: Role,
    size: usize,
    count: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
    read: impl Fn(&mut [u8]) -> io::Result<()> + Sync,
) -> Result<Vec<f64>> {
    let message = vec![0; size];
    let received = AtomicUsize::new(0);
    let ended = AtomicBool::new(false);
    thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut room = vec![0; size];
            let read = (1..=count).try_for_each(|message| {
                read(&mut room)?;
                received.store(message, Ordering::Release);
                Ok(())
            });
            ended.store(true, Ordering::Release);
            read
        });
        let watch = |watched: &mut usize| {
            *watched += 1;
            while received.load(Ordering::Acquire) < *watched && !ended.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let times = round_trips(role, count, &mut 0, |_| Ok(write(&message)?), watch);
        let read: io::Result<()> =
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let times = times.and_then(|times| read.map(|()| times).map_err(Into::into));
        times.context("between two processes that watch memory")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the number of calls that are due if the clock is read `steps` times, once every
    /// `step` microseconds.
    fn calls(step: u64, steps: u32, calls: u32) -> usize {
        let since = Instant::now();
        let mut call_counter = CallCounter { since, due: 0 };
        (1..=steps)
            .filter(|&at| call_counter.is_due(since + at * Duration::from_micros(step), calls))
            .count()
    }

    #[test]
    fn calls_are_counted_over_all_messages() {
        assert_eq!(calls(7, 1000, 1), 7, "one call must be due for each of the 7 milliseconds");
        assert_eq!(calls(7, 1000, 100), 700);
        assert_eq!(calls(7, 1000, 0), 0);
        assert_eq!(
            calls(5000, 2, 1),
            2,
            "after each pause, one call must replace all calls that are overdue"
        );
    }
}
