//! Tests of the ring in one thread, and with a hostile peer.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A ring in the memory of this process.
struct Ring {
    header: Box<Header>,
    data: Vec<u8>,
}

impl Ring {
    fn new() -> Self {
        Ring { header: Box::default(), data: vec![0; CAPACITY] }
    }

    fn ends(&mut self) -> (Producer, Consumer) {
        let (header, data) = (&raw const *self.header, self.data.as_mut_ptr());
        // SAFETY: the ring outlives the ends, which every test drops first.
        unsafe { (Producer::new(header, data), Consumer::new(header, data)) }
    }
}

/// A vector of pieces of these sizes.
fn pieces(memory: &mut [u8], sizes: &[usize]) -> Vec<iovec> {
    let mut rest = memory;
    let mut piece = |size: &usize| {
        let (first, others) = std::mem::take(&mut rest).split_at_mut(*size);
        rest = others;
        iovec { iov_base: first.as_mut_ptr().cast(), iov_len: *size }
    };
    sizes.iter().map(&mut piece).collect()
}

fn write(producer: &mut Producer, octets: &mut [u8], sizes: &[usize]) -> Result<usize, Corrupt> {
    let iov = pieces(octets, sizes);
    // SAFETY: the vector names parts of `octets`.
    unsafe { producer.write(&iov, || ()) }
}

fn read(consumer: &mut Consumer, octets: &mut [u8], sizes: &[usize]) -> Result<usize, Corrupt> {
    let iov = pieces(octets, sizes);
    // SAFETY: the vector names parts of `octets`.
    unsafe { consumer.read(&iov, || ()) }
}

/// The sizes of the pieces of a vector. Some exceed the ring.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![0..100_usize, 0..CAPACITY / 3, 0..CAPACITY + 9], 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    fn what_is_read_is_what_was_written(
        steps in prop::collection::vec((any::<bool>(), sizes()), 1..40),
    ) {
        let mut ring = Ring::new();
        let (mut producer, mut consumer) = ring.ends();
        let (mut inside, mut next) = (VecDeque::new(), 0_u8);
        for (writes, sizes) in steps {
            let total: usize = sizes.iter().sum();
            let mut octets = vec![0; total];
            if writes {
                let first = next;
                octets.iter_mut().enumerate().for_each(|(at, octet)| {
                    *octet = first.wrapping_mul(31).wrapping_add((at % 251) as u8);
                });
                let written = write(&mut producer, &mut octets, &sizes).expect("right positions");
                prop_assert_eq!(written, total.min(CAPACITY - inside.len()));
                inside.extend(octets[..written].iter().copied());
                next = next.wrapping_add(1);
            } else {
                let n = read(&mut consumer, &mut octets, &sizes).expect("right positions");
                prop_assert_eq!(n, total.min(inside.len()));
                prop_assert!(inside.drain(..n).eq(octets[..n].iter().copied()));
            }
            prop_assert_eq!(consumer.is_empty(), inside.is_empty());
            prop_assert_eq!(producer.has_room(), CAPACITY - inside.len() >= CAPACITY / 4);
        }
    }

    /// A peer stores any positions and flags. Each call moves octets inside the ring or fails.
    #[test]
    fn any_positions_are_survived(
        positions in prop::collection::vec((any::<u64>(), 0..2 * CAPACITY as u64, any::<u32>()), 1..20),
        sizes in sizes(),
    ) {
        let mut ring = Ring::new();
        let (mut producer, mut consumer) = ring.ends();
        let header = &*ring.header;
        let mut octets = vec![0; sizes.iter().sum()];
        for (at, (far, near, flag)) in positions.into_iter().enumerate() {
            let position = if at % 2 == 0 { near } else { far };
            header.produced.0.store(position, Ordering::Relaxed);
            header.consumed.0.store(position, Ordering::Relaxed);
            header.consumer_sleeps.0.store(flag, Ordering::Relaxed);
            header.producer_sleeps.0.store(flag, Ordering::Relaxed);
            let written = write(&mut producer, &mut octets, &sizes);
            header.produced.0.store(position, Ordering::Relaxed);
            let read = read(&mut consumer, &mut octets, &sizes);
            for moved in [written, read].into_iter().flatten() {
                prop_assert!(moved <= octets.len());
            }
            producer.announce_sleep();
            consumer.announce_sleep();
        }
    }
}

#[test]
fn a_position_outside_the_ring_is_noticed() {
    let mut ring = Ring::new();
    let (mut producer, mut consumer) = ring.ends();
    let mut octets = vec![0; CAPACITY];
    ring.header.produced.0.store(CAPACITY as u64 + 1, Ordering::Relaxed);
    assert_eq!(read(&mut consumer, &mut octets, &[1]), Err(Corrupt));
    ring.header.produced.0.store(0, Ordering::Relaxed);
    ring.header.consumed.0.store(1, Ordering::Relaxed);
    assert_eq!(write(&mut producer, &mut octets, &[CAPACITY]), Ok(CAPACITY), "not looked at yet");
    ring.header.consumed.0.store(CAPACITY as u64 + 1, Ordering::Relaxed);
    assert_eq!(write(&mut producer, &mut octets, &[1]), Err(Corrupt));
    // A consumer does not move backwards.
    ring.header.consumed.0.store(9, Ordering::Relaxed);
    assert_eq!(write(&mut producer, &mut octets, &[1]), Ok(1));
    ring.header.consumed.0.store(8, Ordering::Relaxed);
    assert_eq!(write(&mut producer, &mut octets, &[9]), Err(Corrupt));
}

/// The other side may have believed the wrong value and waited, so each side looks at its own.
#[test]
fn a_side_notices_that_its_own_position_was_changed() {
    for change in [1, CAPACITY as u64, u64::MAX] {
        let mut ring = Ring::new();
        let (mut producer, mut consumer) = ring.ends();
        let mut octets = [0; 9];
        assert_eq!(write(&mut producer, &mut octets, &[9]), Ok(9));
        assert_eq!((producer.check(), consumer.check()), (Ok(Some(0)), Ok(())));
        assert_eq!(read(&mut consumer, &mut octets, &[4]), Ok(4));
        assert_eq!(producer.check(), Ok(Some(4)));
        let header = &*ring.header;
        header.produced.0.fetch_add(change, Ordering::Relaxed);
        assert_eq!(producer.check(), Err(Corrupt));
        assert_eq!(write(&mut producer, &mut octets, &[1]), Err(Corrupt));
        header.produced.0.store(9, Ordering::Relaxed);
        header.consumed.0.fetch_add(change, Ordering::Relaxed);
        assert_eq!(consumer.check(), Err(Corrupt));
        assert_eq!(read(&mut consumer, &mut octets, &[1]), Err(Corrupt));
    }
}

#[test]
fn only_a_sleeper_is_woken_and_only_once() {
    let mut ring = Ring::new();
    let (mut producer, mut consumer) = ring.ends();
    let mut woken = 0;
    let octet = [iovec { iov_base: (&raw mut woken).cast(), iov_len: 1 }];
    let mut wakes = |sleeps: bool| {
        assert_eq!(sleeps, sleeps && consumer.announce_sleep());
        let mut woken = 0;
        for _ in 0..2 {
            // SAFETY: the vector names an octet.
            let written = unsafe { producer.write(&octet, || woken += 1) };
            assert_eq!(written, Ok(1));
        }
        assert!(!consumer.announce_sleep(), "there are octets");
        let mut two = [0; 2];
        assert_eq!(read(&mut consumer, &mut two, &[2]), Ok(2));
        woken
    };
    assert_eq!([wakes(false), wakes(true), wakes(false)], [0, 1, 0]);

    // A producer that found the ring full is woken when a quarter of it is free.
    let mut octets = vec![0; CAPACITY];
    assert_eq!(write(&mut producer, &mut octets, &[CAPACITY]), Ok(CAPACITY));
    assert!(producer.announce_sleep());
    for (len, expected) in [(CAPACITY / 4 - 1, 0), (1, 1), (1, 0)] {
        let iov = pieces(&mut octets, &[len]);
        let mut woken = 0;
        // SAFETY: the vector names a part of `octets`.
        assert_eq!(unsafe { consumer.read(&iov, || woken += 1) }, Ok(len));
        assert_eq!(woken, expected, "after {len} octets");
    }
    assert!(!producer.announce_sleep(), "there is room");
}
