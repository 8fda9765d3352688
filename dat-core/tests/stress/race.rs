//! A race of several threads on both sides of a connection. In each round, some threads make
//! numbered events of three kinds. At the same time, other threads take the events in every
//! possible way, and further threads change the EVD. At the end of a round both sides disconnect
//! while requests are still being posted. Every event must be taken exactly once.
//!
//! Only a few events are outstanding at a time, so a missed wake-up stops the round. The watchdog
//! then ends the process and prints the seed of the round. `OPENDAT_TEST=seed=N` repeats a round.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use dat_sys::*;

use crate::client::{self, ProviderTable, Side, cookie, dat};
use crate::freed_objects;
use crate::random::{Random, setting};

/// The number of events of each kind that each side makes before the disconnect, and again after
/// it.
const EVENTS: u64 = 60;
/// The maximum number of outstanding events of one kind.
const WINDOW: u64 = 4;
/// The time after which a round is assumed to hang. On an idle machine no round takes a second.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn rounds(count: u64, table: ProviderTable, name: &str) {
    let seeds = setting("seed").map_or(1..=count, |seed| seed..=seed);
    println!("seeds {seeds:?}");
    for seed in seeds {
        let (done, ended) = channel::<()>();
        let watchdog = thread::spawn(move || {
            if ended.recv_timeout(ROUND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                eprintln!("seed {seed}: no end after {ROUND_TIMEOUT:?}");
                std::process::abort();
            }
        });
        let before = ResourceUse::now();
        round(seed, table, name);
        before.await_same(seed);
        drop(done);
        watchdog.join().expect("the watchdog ends without a panic");
    }
}

/// The process's resources that a round uses and must release.
#[derive(Debug)]
struct ResourceUse {
    handles: usize,
    fds: usize,
    threads: usize,
}

impl ResourceUse {
    fn now() -> Self {
        let count = |dir| std::fs::read_dir(dir).expect("procfs").count();
        ResourceUse {
            handles: dat_core::handle::live_count(),
            fds: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    /// Waits until the process uses as many resources as `self` says. The kernel may list a thread
    /// for a moment after it was joined, both now and when `self` was recorded.
    fn await_same(&self, seed: u64) {
        let start = Instant::now();
        loop {
            let now = ResourceUse::now();
            if (now.handles, now.fds) == (self.handles, self.fds) && now.threads <= self.threads {
                return;
            }
            assert!(
                start.elapsed() < ROUND_TIMEOUT / 2,
                "seed {seed}: {self:?} has become {now:?}"
            );
            thread::yield_now();
        }
    }
}

impl Random {
    fn pause(&mut self) {
        (0..self.below(4)).for_each(|_| thread::yield_now());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Software,
    Receive,
    Send,
}

/// How a thread takes the events of a side. All combinations of these ways must work.
#[derive(Clone, Copy, Debug)]
enum EventReader {
    /// Blocks in dat_evd_wait.
    Waits,
    /// Blocks in dat_cno_wait, then empties the dispatcher.
    Notified,
    /// Calls dat_evd_dequeue, and dat_evd_wait with a timeout of 0.
    Polls,
}

const READER_SETS: [&[EventReader]; 5] = [
    &[EventReader::Waits],
    &[EventReader::Notified],
    &[EventReader::Notified, EventReader::Notified],
    &[EventReader::Waits, EventReader::Polls],
    &[EventReader::Waits, EventReader::Notified, EventReader::Polls, EventReader::Waits],
];

/// One side of the connection, with the state that its threads share.
struct SharedSide {
    side: Side,
    ep: DAT_EP_HANDLE,
    cno: DAT_CNO_HANDLE,
    made: [AtomicU64; 3],
    taken: [AtomicU64; 3],
    disconnected: AtomicUsize,
    /// Whether all events were made and taken.
    over: AtomicBool,
}

// SAFETY: handles of a thread-safe adapter may be used from any thread.
unsafe impl Send for SharedSide {}
// SAFETY: handles of a thread-safe adapter may be used from any thread.
unsafe impl Sync for SharedSide {}

/// The numbers of events, with the kind of each event.
type Numbers = Vec<(Kind, u64)>;

fn round(seed: u64, table: ProviderTable, name: &str) {
    let mut random = Random(seed);
    let arenas = client::connected_by(table, name).map(|(side, ep)| {
        let cno = side.new_cno();
        dat!(table, evd_modify_cno_func(side.evd, cno)).unwrap();
        let [made, taken] = [(); 2].map(|()| [0; 3].map(AtomicU64::new));
        SharedSide {
            side,
            ep,
            cno,
            made,
            taken,
            disconnected: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    });
    let mixtures = [(); 2].map(|()| READER_SETS[random.below(READER_SETS.len() as u64) as usize]);
    println!("seed {seed}: {mixtures:?}");
    thread::scope(|s| {
        let mut readers = Vec::new();
        let mut makers = Vec::new();
        let mut others = Vec::new();
        for (index, arena) in arenas.iter().enumerate() {
            let peer = &arenas[1 - index];
            let mut seed = || Random(random.below(u64::MAX));
            for reader in mixtures[index] {
                let mut random = seed();
                readers.push((index, s.spawn(move || arena.take_all(*reader, &mut random))));
            }
            let (mut a, mut b, mut c, mut d, mut e) = (seed(), seed(), seed(), seed(), seed());
            makers.push((index, s.spawn(move || arena.make(Kind::Software, peer, &mut a))));
            makers.push((index, s.spawn(move || arena.make(Kind::Receive, peer, &mut b))));
            makers.push((index, s.spawn(move || arena.make(Kind::Send, peer, &mut c))));
            others.push(s.spawn(move || arena.change_evd(&mut d)));
            others.push(s.spawn(move || freed_objects::race(&arena.side, &mut e)));
        }
        let mut made = [Numbers::new(), Numbers::new()];
        for (index, maker) in makers {
            made[index]
                .extend(maker.join().expect("the thread that makes objects ends without a panic"));
        }
        others
            .into_iter()
            .for_each(|other| other.join().expect("the other threads end without a panic"));
        for arena in &arenas {
            arena.until(|| {
                let all =
                    |count: &[AtomicU64; 3]| count.each_ref().map(|n| n.load(Ordering::SeqCst));
                all(&arena.made) == all(&arena.taken)
                    && arena.disconnected.load(Ordering::SeqCst) > 0
            });
            arena.over.store(true, Ordering::SeqCst);
        }
        let mut taken = [Numbers::new(), Numbers::new()];
        for (index, reader) in readers {
            while !reader.is_finished() {
                // The reader may sleep and must notice the end of the round, so post an event for
                // it. If the queue is full, it refuses the event, which is harmless.
                let _ = arenas[index].post_se(0);
                thread::yield_now();
            }
            taken[index]
                .extend(reader.join().expect("the thread that takes objects ends without a panic"));
        }
        for index in 0..2 {
            made[index].sort_unstable();
            taken[index].sort_unstable();
            assert_eq!(made[index], taken[index], "seed {seed}, side {index}");
            assert_eq!(
                arenas[index].disconnected.load(Ordering::SeqCst),
                1,
                "seed {seed}, side {index}"
            );
        }
    });
    for arena in &arenas {
        let mut event = DAT_EVENT::zeroed();
        let error = dat!(table, evd_dequeue_func(arena.side.async_evd, &mut event)).unwrap_err();
        assert_eq!(error.kind(), DAT_QUEUE_EMPTY, "seed {seed}: asynchronous event");
        arena.side.close();
    }
}

impl SharedSide {
    fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    fn count(counts: &[AtomicU64; 3], kind: Kind) -> u64 {
        counts[kind as usize].load(Ordering::SeqCst)
    }

    fn post_se(&self, number: u64) -> Result<(), dat_core::Error> {
        let mut event = DAT_EVENT::zeroed();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data =
            DAT_SOFTWARE_EVENT_DATA { pointer: number as *mut c_void };
        dat!(self.side.table, evd_post_se_func(self.side.evd, &event))
    }

    /// Makes events of one kind. One of the threads also disconnects at a random time.
    fn make(&self, kind: Kind, peer: &SharedSide, random: &mut Random) -> Numbers {
        let mut made = Numbers::new();
        let Side { table, .. } = self.side;
        for number in 1..=2 * EVENTS {
            if number == EVENTS && kind == Kind::Software {
                // Both sides disconnect. The second call may report that the connection has already
                // ended.
                let _ = dat!(table, ep_disconnect_func(self.ep, DAT_CLOSE_ABRUPT_FLAG));
            }
            let gone = || self.disconnected.load(Ordering::SeqCst) > 0;
            match kind {
                // Make sure that a receive is posted, because a message without a receive would
                // break the connection.
                Kind::Send => self.until(|| {
                    Self::count(&self.made, kind) < Self::count(&peer.made, Kind::Receive) || gone()
                }),
                // The peer must take all messages that this side has sent to it.
                Kind::Receive => self.until(|| {
                    Self::count(&self.made, kind) < Self::count(&self.taken, kind) + WINDOW
                        || gone()
                }),
                Kind::Software => {}
            }
            self.until(|| {
                kind == Kind::Receive
                    || Self::count(&self.made, kind) < Self::count(&self.taken, kind) + WINDOW
            });
            let answer = match kind {
                Kind::Software => self.post_se(number),
                Kind::Receive => {
                    dat!(table, ep_post_recv_func(self.ep, 0, null_mut(), cookie(number), 0))
                }
                Kind::Send => {
                    dat!(table, ep_post_send_func(self.ep, 0, null_mut(), cookie(number), 0))
                }
            };
            match answer {
                Ok(()) => {
                    made.push((kind, number));
                    self.made[kind as usize].fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    let full = error.kind() == DAT_INSUFFICIENT_RESOURCES && gone();
                    assert!(
                        kind != Kind::Software
                            && (full || gone() || error.kind() == DAT_INVALID_STATE)
                    );
                }
            }
            random.pause();
        }
        made
    }

    fn take_all(&self, reader: EventReader, random: &mut Random) -> Numbers {
        let mut taken = Numbers::new();
        let Side { table, .. } = self.side;
        while !self.over.load(Ordering::SeqCst) {
            match reader {
                EventReader::Waits => {
                    let patience = [DAT_TIMEOUT_INFINITE, DAT_TIMEOUT_INFINITE, 50, 0]
                        [random.below(4) as usize];
                    self.take(Some(patience), &mut taken);
                }
                EventReader::Polls => {
                    self.take((random.below(2) == 0).then_some(0), &mut taken);
                    random.pause();
                }
                EventReader::Notified => {
                    let mut evd = null_mut();
                    dat!(table, cno_wait_func(self.cno, DAT_TIMEOUT_INFINITE, &mut evd)).unwrap();
                    assert_eq!(evd, self.side.evd);
                    while self.take(None, &mut taken) {}
                }
            }
        }
        taken
    }

    /// Takes an event with dat_evd_wait or, if there is no timeout, with dat_evd_dequeue. Returns
    /// false if this thread gets no event.
    fn take(&self, timeout: Option<DAT_TIMEOUT>, taken: &mut Numbers) -> bool {
        let Side { table, evd, .. } = self.side;
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        let answer = match timeout {
            None => dat!(table, evd_dequeue_func(evd, &mut event)),
            Some(timeout) => dat!(table, evd_wait_func(evd, timeout, 1, &mut event, &mut more)),
        };
        if let Err(error) = answer {
            let none = if timeout.is_some() { DAT_TIMEOUT_EXPIRED } else { DAT_QUEUE_EMPTY };
            // Another thread waits at this moment, or the EVD is unwaitable.
            assert!([none, DAT_INVALID_STATE].contains(&error.kind()), "{timeout:?}: {error:?}");
            return false;
        }
        let (kind, number) = match event.event_number {
            // SAFETY: the number of the event says that this member of the union is valid.
            DAT_SOFTWARE_EVENT => unsafe {
                (Kind::Software, event.event_data.software_event_data.pointer as u64)
            },
            DAT_DTO_COMPLETION_EVENT => {
                // SAFETY: the number of the event says that this member of the union is valid. A
                // cookie may have any 64 bits.
                let (operation, number) = unsafe {
                    let data = &event.event_data.dto_completion_event_data;
                    (data.operation, data.user_cookie.as_64)
                };
                (if operation == DAT_DTO_RECEIVE { Kind::Receive } else { Kind::Send }, number)
            }
            DAT_CONNECTION_EVENT_DISCONNECTED => {
                self.disconnected.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            other => panic!("event {other:#x}"),
        };
        if number != 0 {
            taken.push((kind, number));
            self.taken[kind as usize].fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    /// Changes the EVD while other threads use it. At the end the EVD has its original settings
    /// again.
    fn change_evd(&self, random: &mut Random) {
        let Side { table, evd, .. } = self.side;
        let mut seen = BTreeMap::new();
        for _ in 0..EVENTS {
            let what = random.below(5);
            *seen.entry(what).or_insert(0) += 1;
            match what {
                0 => {
                    // The call is refused while another thread waits.
                    let answer =
                        dat!(table, evd_resize_func(evd, 128 + random.below(128) as DAT_COUNT));
                    assert!(
                        answer.is_ok_and(|()| true)
                            || answer.is_err_and(|e| e.kind() == DAT_INVALID_STATE)
                    );
                }
                1 => {
                    dat!(table, evd_modify_cno_func(evd, null_mut())).unwrap();
                    random.pause();
                    dat!(table, evd_modify_cno_func(evd, self.cno)).unwrap();
                }
                2 => {
                    dat!(table, evd_set_unwaitable_func(evd)).unwrap();
                    random.pause();
                    dat!(table, evd_clear_unwaitable_func(evd)).unwrap();
                }
                3 => {
                    dat!(table, evd_disable_func(evd)).unwrap();
                    random.pause();
                    dat!(table, evd_enable_func(evd)).unwrap();
                }
                _ => {
                    let mut param = DAT_EVD_PARAM::zeroed();
                    dat!(table, evd_query_func(evd, DAT_EVD_FIELD_ALL, &mut param)).unwrap();
                    assert!((128..=512).contains(&param.evd_qlen));
                }
            }
        }
    }
}
