use std::collections::VecDeque;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn push(ring: &Ring<u64>, value: u64) -> bool {
    // SAFETY: the caller is the only producer.
    unsafe {
        let Some(slot) = ring.vacant() else { return false };
        slot.header().write(value);
        for n in 0..ring.max_segments() {
            let segment = Segment { addr: value, len: n as u32, key: !(value as u32) };
            slot.segments().add(n).write(segment);
        }
        ring.publish();
    }
    true
}

/// Takes the oldest value and checks its segments.
fn pop(ring: &Ring<u64>) -> Option<u64> {
    // SAFETY: the caller is the only consumer.
    unsafe {
        let head = ring.head();
        let value = peek(ring, head)?;
        ring.release(head.wrapping_add(1));
        Some(value)
    }
}

/// The value in a slot, or `None` if the slot is not filled.
///
/// # Safety
/// The caller must be the only consumer.
unsafe fn peek(ring: &Ring<u64>, at: usize) -> Option<u64> {
    // SAFETY: the caller guarantees that it is the only consumer, and `push` wrote the filled slot.
    unsafe {
        if !ring.is_filled(at) {
            return None;
        }
        let slot = ring.slot(at);
        let value = slot.header().read();
        for n in 0..ring.max_segments() {
            let segment = slot.segments().add(n).read();
            assert_eq!(segment, Segment { addr: value, len: n as u32, key: !(value as u32) });
        }
        Some(value)
    }
}

proptest! {
    /// Compares the ring with a queue of the standard library: pushes (positive) and pops
    /// (negative) in bursts.
    #[test]
    fn behaves_as_a_bounded_queue(
        depth in 0usize..40,
        segments in 0usize..5,
        start in prop_oneof![Just(0usize), Just(usize::MAX - 20)],
        bursts in vec(-50i32..50, 1..60),
    ) {
        let ring = Ring::<u64>::new(depth, segments).unwrap();
        prop_assert!(ring.capacity() >= depth && ring.capacity().is_power_of_two());
        // The counters may have any value, including one that is about to wrap.
        ring.producer.own.store(start, Ordering::Relaxed);
        ring.consumer.own.store(start, Ordering::Relaxed);
        // SAFETY: the test runs in one thread.
        unsafe {
            *ring.producer.cached_other.get() = start;
            *ring.consumer.cached_other.get() = start;
        }

        let (mut model, mut next) = (VecDeque::new(), 0);
        for burst in bursts {
            for _ in 0..burst {
                let room = model.len() < ring.capacity();
                prop_assert_eq!(push(&ring, next), room);
                if room {
                    model.push_back(next);
                    next += 1;
                }
            }
            for _ in burst..0 {
                prop_assert_eq!(pop(&ring), model.pop_front());
            }
            prop_assert_eq!(ring.len(), model.len());
            // All queued values can be read, and no others.
            for n in 0..=model.len() {
                // SAFETY: the test runs in one thread.
                let seen = unsafe { peek(&ring, ring.head().wrapping_add(n)) };
                prop_assert_eq!(seen, model.get(n).copied());
            }
        }
    }
}

#[test]
fn two_threads() {
    // With a depth of 1 or 2 the threads wait for each other at almost every value, which takes
    // long.
    for (depth, values) in [(1, 30_000), (2, 30_000), (64, 300_000)] {
        let values = if cfg!(miri) { 500 } else { values };
        let ring = Ring::<u64>::new(depth, 2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..values {
                    while !push(&ring, value) {
                        thread::yield_now();
                    }
                }
            });
            for expected in 0..values {
                loop {
                    match pop(&ring) {
                        Some(value) => break assert_eq!(value, expected),
                        None => thread::yield_now(),
                    }
                }
            }
        });
        assert_eq!(ring.len(), 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "not a test: Miri stops if an allocation fails")]
fn impossible_depths_are_refused() {
    for (depth, segments) in [(usize::MAX, 0), (1 << 62, 4), (1 << 40, 60_000)] {
        // Without `black_box` the compiler may remove the allocation.
        let ring = std::hint::black_box(Ring::<u64>::new(depth, segments));
        assert_eq!(ring.err(), Some(OutOfMemory { depth }));
    }
}
