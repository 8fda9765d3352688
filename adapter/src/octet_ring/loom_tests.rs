//! Loom tests: neither side sleeps for ever, and each octet is read as it was written.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// A ring, and a wake-up for each side.
struct SharedRing {
    header: Header,
    data: *mut u8,
    wake_ups: [Notify; 2],
}

// SAFETY: the data belong to the two sides of the ring.
unsafe impl Send for SharedRing {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedRing {}

const CONSUMER: usize = 0;
const PRODUCER: usize = 1;

impl SharedRing {
    fn new() -> Arc<Self> {
        let data = Box::leak(vec![0; CAPACITY].into_boxed_slice()).as_mut_ptr();
        Arc::new(SharedRing {
            header: Header::default(),
            data,
            wake_ups: [Notify::new(), Notify::new()],
        })
    }

    fn wake(&self, side: usize) {
        self.wake_ups[side].notify();
    }

    /// Sleeps until the other side wakes this one. loom fails if that never happens.
    fn sleep(&self, side: usize) {
        self.wake_ups[side].wait();
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        let data = std::ptr::slice_from_raw_parts_mut(self.data, CAPACITY);
        // SAFETY: the memory comes from `Box::leak`, and both sides are gone.
        drop(unsafe { Box::from_raw(data) });
    }
}

fn element(octets: *const u8, len: usize) -> [iovec; 1] {
    [iovec { iov_base: octets.cast_mut().cast(), iov_len: len }]
}

#[test]
fn loom_a_consumer_that_sleeps_is_woken() {
    loom::model(|| {
        let shared = SharedRing::new();
        let writer = Arc::clone(&shared);
        let writing = thread::spawn(move || {
            // SAFETY: the memory lives as long as `writer`, and this is the only producer.
            let mut producer = unsafe { Producer::new(&writer.header, writer.data) };
            for octet in [1_u8, 2] {
                // SAFETY: the vector names one octet.
                let written =
                    unsafe { producer.write(&element(&octet, 1), || writer.wake(CONSUMER)) };
                assert_eq!(written, Ok(1));
            }
        });
        // SAFETY: the memory lives as long as `engine_shared`, and this is the only consumer.
        let mut consumer = unsafe { Consumer::new(&shared.header, shared.data) };
        let mut read = Vec::new();
        while read.len() < 2 {
            let octets = [0_u8; 2];
            // SAFETY: the vector names two octets.
            let n = unsafe { consumer.read(&element(octets.as_ptr(), 2), || ()) };
            let n = n.expect("the positions are right");
            read.extend_from_slice(&octets[..n]);
            if n == 0 && consumer.announce_sleep() {
                shared.sleep(CONSUMER);
            }
        }
        assert_eq!(read, [1, 2]);
        writing.join().unwrap();
    });
}

#[test]
fn loom_a_producer_that_sleeps_is_woken() {
    loom::model(|| {
        let shared = SharedRing::new();
        // SAFETY: the memory lives as long as `engine_shared`, and this is the only producer.
        let mut producer = unsafe { Producer::new(&shared.header, shared.data) };
        let full = vec![7_u8; CAPACITY];
        // SAFETY: the vector names the octets of `full`.
        let written = unsafe { producer.write(&element(full.as_ptr(), CAPACITY), || ()) };
        assert_eq!(written, Ok(CAPACITY));
        let reader = Arc::clone(&shared);
        let reading = thread::spawn(move || {
            // SAFETY: the memory lives as long as `reader`, and this is the only consumer.
            let mut consumer = unsafe { Consumer::new(&reader.header, reader.data) };
            let octets = vec![0_u8; CAPACITY];
            // SAFETY: the vector names the octets.
            let read = unsafe {
                consumer.read(&element(octets.as_ptr(), CAPACITY), || reader.wake(PRODUCER))
            };
            assert_eq!(read, Ok(CAPACITY));
        });
        while producer.announce_sleep() {
            shared.sleep(PRODUCER);
        }
        assert!(producer.has_room());
        reading.join().unwrap();
    });
}
