//! Events of the target `dat::wake`: which thread wakes which other thread, and when and for how
//! long each thread sleeps.
//!
//! The event at the end of a sleep also says for how long the thread was runnable without a
//! processor. If a thread was woken soon and still slept long, this time shows that the scheduler
//! was the reason.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use tracing::{Level, enabled, trace};

use crate::line::Hex;

/// A sleep of this thread. Dropping the value logs the end of the sleep.
#[must_use]
pub struct Sleep(#[expect(dead_code, reason = "its drop logs the end")] Option<SleepRecord>);

struct SleepRecord {
    place: &'static str,
    key: usize,
    began: Instant,
    waited_ns: Option<u64>,
}

/// Logs that this thread is about to sleep at `place`. The sleep ends when a thread wakes the
/// sleepers on `key`, or at the limit.
#[inline]
pub fn sleep(place: &'static str, key: usize, limit: Option<Duration>) -> Sleep {
    Sleep(
        enabled!(target: "dat::wake", Level::TRACE).then(|| SleepRecord::begin(place, key, limit)),
    )
}

/// Logs that this thread wakes the sleepers on `key` at `place`.
#[inline]
pub fn log_wake(place: &'static str, key: usize) {
    trace!(target: "dat::wake", thread = thread(), place, on = %Hex(key), "wakes");
}

impl SleepRecord {
    #[cold]
    fn begin(place: &'static str, key: usize, limit: Option<Duration>) -> SleepRecord {
        let limit = limit.map_or("none".to_owned(), |limit| format!("{limit:?}"));
        trace!(
            target: "dat::wake", thread = thread(), place, on = %Hex(key), limit, "falls asleep"
        );
        SleepRecord { place, key, began: Instant::now(), waited_ns: waited_for_a_processor() }
    }
}

impl Drop for SleepRecord {
    fn drop(&mut self) {
        let slept_us = self.began.elapsed().as_micros() as u64;
        let SleepRecord { place, key, waited_ns: before, .. } = *self;
        match before.zip(waited_for_a_processor()) {
            Some((before, now)) => {
                let waited_us = now.saturating_sub(before) / 1000;
                trace!(
                    target: "dat::wake", thread = thread(), place, on = %Hex(key), slept_us,
                    waited_us, "is awake"
                );
            }
            None => {
                trace!(
                    target: "dat::wake", thread = thread(), place, on = %Hex(key), slept_us,
                    "is awake"
                )
            }
        }
    }
}

fn thread() -> u64 {
    gettid().as_raw_nonzero().get() as u64
}

/// The total time for which this thread has been runnable without a processor, in nanoseconds, as
/// the scheduler counts it. `None` if the kernel does not count it.
fn waited_for_a_processor() -> Option<u64> {
    let mut text = [0; 64];
    let length = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
