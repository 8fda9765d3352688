//! Lets a hostile process store positions, flags and data in a ring of shared memory. Checks:
//!
//! - Neither side panics, and neither accesses memory outside the ring (address sanitizer).
//! - Neither side moves more octets than it was asked to.
#![no_main]

use std::sync::atomic::{AtomicU8, Ordering};

use adapter::octet_ring::{CAPACITY, Consumer, Header, Producer};
use libfuzzer_sys::fuzz_target;

/// A step: what is done, a value, and a size.
const STEP: usize = 11;

fuzz_target!(|data: &[u8]| {
    let mut header = Box::new(Header::default());
    let mut ring = vec![0_u8; CAPACITY];
    let header: *mut Header = &raw mut *header;
    // SAFETY: the memory outlives both sides.
    let (mut producer, mut consumer) = unsafe {
        (Producer::new(header, ring.as_mut_ptr()), Consumer::new(header, ring.as_mut_ptr()))
    };
    let mut own = vec![0_u8; 2 * CAPACITY];
    for step in data.chunks_exact(STEP) {
        let value = u64::from_le_bytes(step[1..9].try_into().unwrap());
        let size = usize::from(u16::from_le_bytes([step[9], step[10]])) * 8;
        let iov = [libc::iovec { iov_base: own.as_mut_ptr().cast(), iov_len: size }];
        match step[0] % 8 {
            // SAFETY: the vector names the program's own memory.
            0 => drop(unsafe { producer.write(&iov, || ()) }.map(|n| assert!(n <= size))),
            // SAFETY: the vector names the program's own memory.
            1 => drop(unsafe { consumer.read(&iov, || ()) }.map(|n| assert!(n <= size))),
            2 => drop(producer.announce_sleep()),
            3 => drop(consumer.announce_sleep()),
            4 => drop(producer.has_room()),
            5 => drop(producer.check()),
            6 => drop(consumer.check()),
            _ => {
                for (at, octet) in value.to_le_bytes().into_iter().enumerate() {
                    let at = (size + at) % size_of::<Header>();
                    // SAFETY: the octet lies in the header, all of which are atomics.
                    unsafe { AtomicU8::from_ptr(header.cast::<u8>().add(at)) }
                        .store(octet, Ordering::Relaxed);
                }
            }
        }
    }
});
