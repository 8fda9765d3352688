//! Each word by which two processes share a ring is overwritten while a transfer runs. The
//! connection continues, or ends and says why. iwarp/src/shm/ring_watch/tests.rs, which has its own
//! clock, holds how long that may take.
//!
//! This test program contains one test, because that test finds the memory of its connection in
//! /proc/self/maps.

use std::fs;

use dat_core::provider::{Cause, Provider, Transport, WcStatus};
use provider_mem::contract::rig::{End, Event, Rig, poll};
use provider_tcp_emu::{Tcp, TcpEmu};

/// The layout of the memory, see iwarp/src/shm/segment.rs and adapter/src/octet_ring.rs.
const CAPACITY: u64 = 256 << 10;
const RING: usize = 512;
const PRODUCED: usize = 0;
const CONSUMED: usize = 128;
const CONSUMER_SLEEPS: usize = 256;
const PRODUCER_SLEEPS: usize = 384;
const SWITCHED: usize = 2 * RING;
const ACCEPTED: usize = 2 * RING + 16;

/// The number of octets of the first message of each side. It moves the connection.
const SMALL: usize = 200;
/// The number and size of the messages that do not fit in the ring together.
const LARGE_COUNT: usize = 6;
const LARGE: usize = 50_000;
/// More passes than a side makes before it lets its peer wake it. Some make system calls only.
const PASSES: usize = 100_000;

/// The memory of the connection.
struct Words(*mut u8);

impl Words {
    fn find() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").expect("the maps can be read");
        let line = maps.lines().find(|line| line.contains("memfd:opendat")).expect("a mapping");
        let start = line.split('-').next().expect("an address");
        Words(usize::from_str_radix(start, 16).expect("a number") as *mut u8)
    }

    fn load(&self, at: usize) -> u64 {
        // SAFETY: the word lies in the mapping, whose users access it by atomics.
        unsafe { self.0.add(at).cast::<u64>().read_volatile() }
    }

    fn store(&self, at: usize, value: u64) {
        // SAFETY: as for `load`.
        unsafe { self.0.add(at).cast::<u64>().write_volatile(value) };
    }

    /// Makes the adapter pass until it has asked to be woken for octets, as the word says.
    fn until_asleep(&self, t: &Tcp, word: usize) {
        let asks = (0..PASSES).any(|_| {
            t.progress();
            self.load(word) == 1
        });
        assert!(asks, "the adapter does not ask to be woken");
    }

    /// Makes the offering adapter pass until it has asked to be woken for room. The other adapter
    /// has a thread of its own, which may read everything before. Then the ring is empty.
    fn until_blocked(&self, t: &Tcp) {
        let found = (0..PASSES).any(|_| {
            t.progress();
            self.load(PRODUCER_SLEEPS) == 1 || self.load(PRODUCED) == self.load(CONSUMED)
        });
        assert!(found, "the adapter does not ask to be woken");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Both sides wait to be woken, and the word is overwritten before one of them sends.
    BeforeSend,
    /// Both sides wait to be woken, and the word is overwritten after one of them has sent.
    AfterSend,
    /// The word is overwritten when the sender has found the ring full and waits to be woken.
    Full,
    /// The same, when the receiver has read the first part.
    Draining,
}

/// What is written in place of a word.
const VALUES: [fn(u64) -> u64; 6] = [
    |_| 0,
    |_| u64::MAX,
    |value| value.wrapping_add(1),
    |value| value.wrapping_sub(1),
    |value| value.wrapping_add(CAPACITY / 2),
    |value| value.wrapping_sub(CAPACITY / 2),
];

#[test]
fn no_word_of_the_memory_stalls_a_connection() {
    let ring_words = [PRODUCED, CONSUMED, CONSUMER_SLEEPS, PRODUCER_SLEEPS];
    let words: Vec<usize> =
        ring_words.into_iter().chain(ring_words.map(|word| RING + word)).collect();
    let words = [words, vec![SWITCHED, SWITCHED + 8, ACCEPTED]].concat();
    for moment in [Moment::BeforeSend, Moment::AfterSend, Moment::Full, Moment::Draining] {
        for &word in &words {
            for (n, value) in VALUES.iter().enumerate() {
                println!("{moment:?}, word at {word}, value {n}");
                overwrite(moment, word, value);
            }
        }
    }
}

/// Overwrites a word, and expects that the transfer and an exchange after it complete, or that both
/// sides learn that the connection has ended.
fn overwrite(moment: Moment, word: usize, value: &fn(u64) -> u64) {
    let [ta, tb] = ["127.0.0.1 threads=1", "127.0.0.1 threads=1"]
        .map(|params| TcpEmu.open("tcp-emu", params).expect("the adapter opens"));
    let rig = Rig { a: &ta, b: &tb };
    let (a, b) = rig.pair();
    for _ in 0..10 {
        assert!(exchange(&rig, &a, &b, 1, SMALL) && exchange(&rig, &b, &a, 1, SMALL));
    }
    let words = Words::find();
    rig.until("the move", || (words.load(SWITCHED + 8) != 0).then_some(()));
    let overwrite = || words.store(word, value(words.load(word)));
    words.until_asleep(&ta, RING + CONSUMER_SLEEPS);
    words.until_asleep(&tb, CONSUMER_SLEEPS);
    let (count, len) = match moment {
        Moment::BeforeSend | Moment::AfterSend => (1, SMALL),
        Moment::Full | Moment::Draining => (LARGE_COUNT, LARGE),
    };
    if moment == Moment::BeforeSend {
        overwrite();
    }
    post(&a, &b, count, len);
    match moment {
        Moment::BeforeSend => {}
        Moment::AfterSend => overwrite(),
        Moment::Full | Moment::Draining => {
            words.until_blocked(&ta);
            if moment == Moment::Draining {
                tb.progress();
            }
            overwrite();
        }
    }
    // The second exchange finds out what the first has left.
    let goes_on = arrives(&rig, &a, &b, count)
        && exchange(&rig, &b, &a, 1, SMALL)
        && exchange(&rig, &a, &b, 1, SMALL);
    if !goes_on {
        for end in [&a, &b] {
            rig.until("both sides to learn of the end", || has_ended(end).then_some(()));
        }
        let causes = [&a, &b].map(|end| end.log.causes());
        assert!(causes.iter().flatten().any(says_corrupt), "{causes:?}");
    }
}

/// Posts sends and the receives for them.
fn post(from: &End<'_, Tcp>, to: &End<'_, Tcp>, count: usize, len: usize) {
    for n in 0..count as u64 {
        to.recv(n, &[to.mem.segment(0, len)]);
    }
    for n in 0..count as u64 {
        from.send(n, &[from.mem.segment(0, len)]);
    }
}

/// Returns whether all receives complete. If not, a side has learnt that the connection has ended.
fn arrives(rig: &Rig<'_, Tcp>, from: &End<'_, Tcp>, to: &End<'_, Tcp>, count: usize) -> bool {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    rig.until("the transfer or the end of the connection", || {
        sent.extend(poll::<Tcp>(&from.requests, count - sent.len()));
        received.extend(poll::<Tcp>(&to.recvs, count - received.len()));
        let failed = sent.iter().chain(&received).any(|wc| wc.status != WcStatus::Success);
        let complete = sent.len() == count && received.len() == count;
        if failed { Some(false) } else { complete.then_some(true) }
    })
}

fn exchange(
    rig: &Rig<'_, Tcp>,
    from: &End<'_, Tcp>,
    to: &End<'_, Tcp>,
    count: usize,
    len: usize,
) -> bool {
    post(from, to, count, len);
    arrives(rig, from, to, count)
}

/// Whether a side has found a wrong word, or what a wrong word has made of the octets.
fn says_corrupt(cause: &Cause) -> bool {
    match cause {
        Cause::ConnectionLost { errno } => *errno == Some(libc::EPROTO),
        Cause::Protocol { by_peer, .. } => !by_peer,
        _ => false,
    }
}

fn has_ended(end: &End<'_, Tcp>) -> bool {
    matches!(end.log.take(), Some(Event::Broken | Event::Disconnected))
}
