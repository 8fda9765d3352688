//! Each word by which two processes share a ring is overwritten during a transfer. The clock is a
//! number, so the tests hold how long a connection stops at most.

use rustix::net::{RecvFlags, recv};

use super::*;
use crate::shm::CORRUPT_ERRNO;
use crate::shm::WakeUp;
use crate::shm::tests::both_sides;
use crate::socket::IoOutcome;

/// How long a transfer may take, or the end of the connection, when a word was overwritten. The
/// timer may have been set for earlier octets. Then the first check, after [`EARLY`], finds that
/// the peer has read these, and the next check decides.
const LIMIT: Duration = Duration::from_millis(101);
const EARLY: Duration = Duration::from_millis(1);

/// The words of the memory, see segment.rs and adapter/src/octet_ring.rs.
const RING: usize = 512;
const POSITIONS_AND_FLAGS: [usize; 4] = [0, 128, 256, 384];
const OTHER_WORDS: [usize; 3] = [2 * RING, 2 * RING + 8, 2 * RING + 16];
const CAPACITY: u64 = adapter::octet_ring::CAPACITY as u64;

/// The number of octets of a message that fits in the ring, and of one that does not.
const SMALL: usize = 200;
const LARGE: usize = 300_000;
const READ: usize = 64 << 10;

/// What a connection does with its memory.
struct Side {
    memory: SharedMemory,
    watch: Option<RingWatch>,
    unsent: usize,
    is_blocked: bool,
    arrived: usize,
}

impl Side {
    fn new(memory: SharedMemory) -> Self {
        Side { memory, watch: None, unsent: 0, is_blocked: false, arrived: 0 }
    }

    fn send(&mut self, now: Instant) -> Result<(), Corrupt> {
        let octets = vec![0_u8; self.unsent];
        while self.unsent > 0 && !self.is_blocked {
            let iov =
                libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: self.unsent };
            // SAFETY: the vector names `octets`.
            match count(unsafe { self.memory.send(&[iov]) })? {
                0 => self.is_blocked = !self.memory.has_room(),
                sent => self.unsent -= sent,
            }
        }
        self.watch = self.watch.or_else(|| RingWatch::start(&mut self.memory, || now));
        Ok(())
    }

    fn receive_once(&mut self) -> Result<usize, Corrupt> {
        let mut octets = vec![0_u8; READ];
        let iov = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: READ };
        // SAFETY: the vector names `octets`.
        let n = count(unsafe { self.memory.receive(&[iov]) })?;
        self.arrived += n;
        Ok(n)
    }

    /// Does what follows an event of the wake-up socket and the end of a timer.
    fn go_on(&mut self, now: Instant) -> Result<(), Corrupt> {
        if self.is_blocked && self.memory.has_room() {
            self.is_blocked = false;
            self.send(now)?;
        }
        while self.receive_once()? > 0 {}
        Ok(())
    }

    fn is_woken(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.memory.wake_socket, &mut [0], flags).is_ok()
    }

    fn on_wake_up(&mut self, now: Instant) -> Result<(), Corrupt> {
        match self.memory.on_wake_up() {
            WakeUp::Corrupt => Err(Corrupt),
            _ => self.go_on(now),
        }
    }

    fn on_timer(&mut self, now: Instant) -> Result<(), Corrupt> {
        let Some(watch) = self.watch.take_if(|watch| watch.deadline() <= now) else {
            return Ok(());
        };
        self.go_on(now)?;
        self.watch = watch.check(&mut self.memory, now)?;
        Ok(())
    }
}

fn count(outcome: IoOutcome) -> Result<usize, Corrupt> {
    match outcome {
        IoOutcome::Octets(n) => Ok(n),
        IoOutcome::WouldBlock => Ok(0),
        IoOutcome::Failed(error) if error.raw_os_error() == Some(CORRUPT_ERRNO) => Err(Corrupt),
        other => panic!("{other:?}"),
    }
}

/// The two sides of a connection that has moved from TCP to the shared memory, and their clock.
struct Connection {
    sides: [Side; 2],
    now: Instant,
}

const A: usize = 0;
const B: usize = 1;

impl Connection {
    fn new() -> Self {
        let [mut offering, mut accepting] = both_sides();
        accepting.accept(50);
        assert!(offering.switch_if_accepted(100));
        assert!(offering.has_peer_switched(50) && accepting.has_peer_switched(100));
        let sides = [offering, accepting].map(Side::new);
        let mut connection = Connection { sides, now: Instant::now() };
        for _ in 0..10 {
            assert_eq!(connection.exchange(A, SMALL), Ok(Duration::ZERO));
            assert_eq!(connection.exchange(B, SMALL), Ok(Duration::ZERO));
        }
        connection
    }

    /// Turns the clock until no timer runs.
    fn end_timers(&mut self) -> Result<(), Corrupt> {
        self.now += RING_CHECK_DELAY;
        for side in &mut self.sides {
            side.on_timer(self.now)?;
            assert!(side.watch.is_none(), "everything has been read");
        }
        Ok(())
    }

    fn exchange(&mut self, from: usize, len: usize) -> Result<Duration, Corrupt> {
        self.post(from, len)?;
        self.finish(from, len)
    }

    fn post(&mut self, from: usize, len: usize) -> Result<(), Corrupt> {
        self.sides[1 - from].arrived = 0;
        self.sides[from].unsent += len;
        self.sides[from].send(self.now)
    }

    /// Turns the clock until the message has arrived. Returns how long that took.
    fn finish(&mut self, from: usize, len: usize) -> Result<Duration, Corrupt> {
        let start = self.now;
        loop {
            while let Some(side) = self.sides.iter_mut().find(|side| side.is_woken()) {
                side.on_wake_up(self.now)?;
            }
            if self.sides[1 - from].arrived >= len {
                return Ok(self.now - start);
            }
            let deadlines = self.sides.iter().filter_map(|side| side.watch);
            let next = deadlines.map(RingWatch::deadline).min();
            self.now = next.expect("a timer runs while octets are unread").max(self.now);
            assert!(self.now - start <= LIMIT, "the connection stops");
            for side in &mut self.sides {
                side.on_timer(self.now)?;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeSend,
    AfterSend,
    /// The sender has found the ring full and waits to be woken.
    Full,
    /// The same, when the receiver has read the first part.
    Draining,
}

const VALUES: [fn(u64) -> u64; 6] = [
    |_| 0,
    |_| u64::MAX,
    |value| value.wrapping_add(1),
    |value| value.wrapping_sub(1),
    |value| value.wrapping_add(CAPACITY / 2),
    |value| value.wrapping_sub(CAPACITY / 2),
];

/// Overwrites a word while A sends to B. `is_early` says whether a timer of A runs already.
/// Afterwards each side sends to the other, which finds out what the first message has left.
fn overwrite(
    moment: Moment,
    word: usize,
    value: fn(u64) -> u64,
    is_early: bool,
) -> Result<(), Corrupt> {
    let mut connection = Connection::new();
    connection.end_timers()?;
    if is_early {
        connection.exchange(A, SMALL)?;
        connection.now += RING_CHECK_DELAY - EARLY;
    }
    let len = match moment {
        Moment::BeforeSend | Moment::AfterSend => SMALL,
        Moment::Full | Moment::Draining => LARGE,
    };
    if moment == Moment::BeforeSend {
        connection.sides[A].memory.segment.overwrite(word, value);
    }
    connection.post(A, len)?;
    assert_eq!(connection.sides[A].is_blocked, len == LARGE);
    if moment == Moment::Draining {
        connection.sides[B].receive_once()?;
    }
    if moment != Moment::BeforeSend {
        connection.sides[A].memory.segment.overwrite(word, value);
    }
    connection.finish(A, len)?;
    connection.exchange(B, SMALL)?;
    connection.exchange(A, SMALL)?;
    Ok(())
}

#[test]
fn a_connection_goes_on_or_ends_in_time_whichever_word_is_overwritten() {
    let words = POSITIONS_AND_FLAGS.into_iter().flat_map(|word| [word, RING + word]);
    for word in words.chain(OTHER_WORDS) {
        for moment in [Moment::BeforeSend, Moment::AfterSend, Moment::Full, Moment::Draining] {
            for (n, &value) in VALUES.iter().enumerate() {
                for is_early in [false, true] {
                    println!("{moment:?}, word at {word}, value {n}, early: {is_early}");
                    // The value may be the right one.
                    let _ = overwrite(moment, word, value, is_early);
                }
            }
        }
    }
}
