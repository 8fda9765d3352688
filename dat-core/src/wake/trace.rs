//! Who is asked to wake up, who sleeps, when and for how long: events of the target `dat::wake`. A sleep that
//! took long although its thread was asked at once is the scheduler's: it says for how long the thread could
//! have run, and had no processor.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use tracing::{Level, enabled, trace};

use crate::log::Hex;

/// A sleep of this thread. It tells of its end when it is dropped.
#[must_use]
pub struct Sleep(#[expect(dead_code, reason = "it tells when it is dropped")] Option<Told>);

struct Told {
    place: &'static str,
    key: usize,
    began: Instant,
    waited_ns: Option<u64>,
}

/// This thread is about to sleep at `place`, until somebody asks whoever sleeps on `key`, or until the limit.
#[inline]
pub fn sleep(place: &'static str, key: usize, limit: Option<Duration>) -> Sleep {
    Sleep(enabled!(target: "dat::wake", Level::TRACE).then(|| Told::begin(place, key, limit)))
}

/// Somebody asks whoever sleeps on `key` at `place` to wake up.
#[inline]
pub fn ask(place: &'static str, key: usize) {
    trace!(target: "dat::wake", thread = thread(), place, on = %Hex(key), "asks");
}

impl Told {
    #[cold]
    fn begin(place: &'static str, key: usize, limit: Option<Duration>) -> Told {
        let limit = limit.map_or("none".to_owned(), |limit| format!("{limit:?}"));
        trace!(target: "dat::wake", thread = thread(), place, on = %Hex(key), limit, "falls asleep");
        Told { place, key, began: Instant::now(), waited_ns: waited_for_a_processor() }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let slept_us = self.began.elapsed().as_micros() as u64;
        let Told { place, key, waited_ns: before, .. } = *self;
        match before.zip(waited_for_a_processor()) {
            Some((before, now)) => {
                let waited_us = now.saturating_sub(before) / 1000;
                trace!(target: "dat::wake", thread = thread(), place, on = %Hex(key), slept_us, waited_us, "is awake");
            }
            None => {
                trace!(target: "dat::wake", thread = thread(), place, on = %Hex(key), slept_us, "is awake")
            }
        }
    }
}

fn thread() -> u64 {
    gettid().as_raw_nonzero().get() as u64
}

/// How long this thread has been able to run without a processor to run on, in nanoseconds: the scheduler's
/// own account. None: the kernel keeps none.
fn waited_for_a_processor() -> Option<u64> {
    let mut text = [0; 64];
    let length = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}
