//! Measures the machine itself: how fast one processor reads what another has just written.
//!
//! All transfers within a host depend on this speed, with DAT and without. It is measured beside
//! them, so that a reader can tell a change of the machine from a property of an adapter.

use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use measurement::cpu;
use measurement::states::quantile;

/// The number of octets that are copied at a time. They fit into the caches of a processor.
pub(crate) const COPY_BYTES: usize = 64 << 10;
/// The number of copies before those that count.
const WARM_UP: usize = 20;
/// The number of copies that count, and the time after which no further copy begins.
const COPIES: usize = 200;
const TIME_LIMIT: Duration = Duration::from_millis(20);
/// The copy whose time counts, as a share of all copies in the order of their times. Slower copies
/// may have been interrupted.
const FASTER_SHARE: f64 = 0.25;

/// Returns the speed in bytes per second at which this thread fills a buffer and a thread on the
/// processor `other` copies it. The thread that calls must be pinned to another processor. Returns
/// `None` if no thread can be started there.
pub(crate) fn speed(other: usize) -> Option<f64> {
    let (to_other, filled) = channel();
    let (to_this, copied) = channel();
    let copier = move || {
        if cpu::pin_thread(other).is_ok() {
            copy_all(&filled, &to_this);
        }
    };
    thread::scope(|threads| {
        thread::Builder::new().spawn_scoped(threads, copier).ok()?;
        let times = fill_all(to_other, &copied)?;
        Some(COPY_BYTES as f64 / quantile(&times, FASTER_SHARE))
    })
}

/// Fills the buffer, gives it to the other thread, and takes it back after the copy, as often as
/// there is time. Returns the sorted times in seconds.
fn fill_all(to_other: Sender<Vec<u8>>, copied: &Receiver<Vec<u8>>) -> Option<Vec<f64>> {
    let source = vec![1; COPY_BYTES];
    let mut buffer = vec![0; COPY_BYTES];
    let mut times = Vec::with_capacity(COPIES);
    let mut begin = Instant::now();
    for copy in 0..WARM_UP + COPIES {
        if copy == WARM_UP {
            begin = Instant::now();
        }
        let start = Instant::now();
        buffer.copy_from_slice(&source);
        to_other.send(buffer).ok()?;
        buffer = poll(copied)?;
        if copy >= WARM_UP {
            times.push(start.elapsed().as_secs_f64());
        }
        if begin.elapsed() > TIME_LIMIT && !times.is_empty() {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    Some(times)
}

/// Copies each buffer that arrives and returns it, until the other thread ends.
fn copy_all(filled: &Receiver<Vec<u8>>, to_this: &Sender<Vec<u8>>) {
    let mut copy = vec![0; COPY_BYTES];
    while let Some(buffer) = poll(filled) {
        copy.copy_from_slice(&buffer);
        std::hint::black_box(&copy);
        if to_this.send(buffer).is_err() {
            return;
        }
    }
}

/// Polls until a buffer arrives. Returns `None` if the other thread has ended.
fn poll(from: &Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    loop {
        match from.try_recv() {
            Ok(buffer) => return Some(buffer),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_copies_what_another_has_written() {
        let here = thread::spawn(|| {
            let Some([first, second]) = cpu::two_processors() else { return };
            cpu::pin_thread(first).expect("the processor is allowed");
            let speed = speed(second).expect("a thread can be started");
            assert!(speed > 0.0 && speed.is_finite(), "{speed}");
        });
        here.join().expect("no panic");
    }

    #[test]
    fn a_processor_that_does_not_exist_has_no_speed() {
        assert_eq!(speed(rustix::thread::CpuSet::MAX_CPU - 1), None);
    }
}
