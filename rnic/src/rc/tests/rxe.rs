//! Property tests: this implementation and the model of rxe use all kinds of requests in networks
//! that lose and duplicate packets. Each request is carried out once, and when it completes, all of
//! its octets are in place, on both sides.
//!
//! The networks do not reorder packets, because rxe treats a response that was overtaken as an
//! error (`check_ack` in rxe_comp.c).

use std::collections::VecDeque;

use netem::Probability;
use rxe_model::{Op, R_KEY, Rxe, RxeCfg, WorkRequest};

use super::order::{End, drive, rxe_cfg};
use super::*;
use crate::{Remote, WcStatus};

/// The number of requests of each end.
const REQUESTS: usize = 40;
/// The maximum length of a message.
const MAX: usize = 6 * OCTETS;

// The memory of each end: the data of SENDs and WRITEs, the target of the peer's WRITEs, the source
// of the peer's READs, which never changes, the target of the peer's atomic operations, the places
// of the data that the READs and atomic operations return, and the receive buffers.
const SOURCE: usize = 0;
const TARGET: usize = SOURCE + MAX;
const SHOWN: usize = TARGET + 2 * MAX;
const COUNTER: usize = SHOWN + 2 * MAX;
const SINKS: usize = COUNTER + 8;
const RECEIVES: usize = SINKS + REQUESTS * MAX;
const MEMORY: usize = RECEIVES + REQUESTS * MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Send,
    Write,
    Read,
    FetchAdd,
    /// Replaces this number by the next one.
    CompareSwap(u64),
}

/// A request. `at` is its place in the peer's memory.
#[derive(Clone, Copy, Debug)]
struct Post {
    kind: Kind,
    local: usize,
    at: usize,
    len: usize,
}

/// An end of a connection and its program.
trait Consumer: End {
    /// The octets of the whole memory.
    fn memory(&self) -> &[u8];
    fn post(&mut self, post: Post);
    /// The number of requests that have completed.
    fn completed(&mut self) -> usize;
    fn post_receive(&mut self);
    /// Takes the messages that have arrived.
    fn take_messages(&mut self) -> Vec<Vec<u8>>;
}

/// The model of rxe.
struct Theirs {
    rxe: Rxe,
    /// The memory of this implementation.
    peer: Remote,
}

impl End for Theirs {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        End::receive(&mut self.rxe, now, packet);
        assert_eq!(self.rxe.failure(), None);
    }

    fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        End::transmit(&mut self.rxe, now)
    }

    fn deadline(&self) -> Option<Instant> {
        End::deadline(&self.rxe)
    }

    fn expire(&mut self, now: Instant) {
        End::expire(&mut self.rxe, now);
    }

    fn is_ready(&self) -> bool {
        self.rxe.is_ready()
    }
}

impl Consumer for Theirs {
    fn memory(&self) -> &[u8] {
        self.rxe.memory()
    }

    fn post(&mut self, Post { kind, local, at, len }: Post) {
        let at = rxe_model::Remote { va: self.peer.addr + at as u64, r_key: self.peer.key };
        let op = match kind {
            Kind::Send => Op::Send,
            Kind::Write => Op::Write(at),
            Kind::Read => Op::Read(at),
            Kind::FetchAdd => Op::FetchAdd(at, 1),
            Kind::CompareSwap(value) => Op::CompareSwap(at, [value, value + 1]),
        };
        self.rxe.post(WorkRequest { op, local, len });
    }

    fn completed(&mut self) -> usize {
        self.rxe.completed()
    }

    // The model always has receive buffers.
    fn post_receive(&mut self) {}

    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.rxe.take_received()).collect()
    }
}

/// This implementation.
struct Ours {
    side: Side,
    memory: Buf,
    completed: usize,
    receives_posted: usize,
    messages: usize,
}

impl End for Ours {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        End::receive(&mut self.side, now, packet);
    }

    fn transmit(&mut self, now: Instant) -> Vec<Vec<u8>> {
        End::transmit(&mut self.side, now)
    }

    fn deadline(&self) -> Option<Instant> {
        End::deadline(&self.side)
    }

    fn expire(&mut self, now: Instant) {
        End::expire(&mut self.side, now);
    }
}

impl Consumer for Ours {
    fn memory(&self) -> &[u8] {
        self.memory.octets()
    }

    fn post(&mut self, Post { kind, local, at, len }: Post) {
        let (own, at) = ([self.memory.seg(local, len)], Remote { addr: at as u64, key: R_KEY });
        self.side.post(match kind {
            Kind::Send => send(0, &own),
            Kind::Write => write(0, &own, at),
            Kind::Read => read(0, &own, at),
            Kind::FetchAdd => fetch_add(0, &own, at, 1),
            Kind::CompareSwap(value) => compare_swap(0, &own, at, (value, value + 1)),
        });
    }

    fn completed(&mut self) -> usize {
        let done = self.side.completions();
        assert!(done.iter().all(|wc| wc.status == WcStatus::Success), "{done:?}");
        self.completed += done.len();
        self.completed
    }

    fn post_receive(&mut self) {
        let at = RECEIVES + self.receives_posted * MAX;
        if at < MEMORY {
            self.side.recv(0, &[self.memory.seg(at, MAX)]);
            self.receives_posted += 1;
        }
        if self.side.rc.is_peer_waiting_for_receive() {
            self.side.rc.announce_receive();
        }
    }

    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        let received = self.side.received();
        let from = |message: usize| RECEIVES + (self.messages + message) * MAX;
        let messages = received.iter().enumerate().map(|(message, wc)| {
            self.memory.octets()[from(message)..][..wc.bytes as usize].to_vec()
        });
        let messages = messages.collect();
        self.messages += received.len();
        messages
    }
}

/// The requests of one end.
struct Traffic {
    rng: Rng,
    posted: Vec<Post>,
    completed: usize,
    /// The SENDs that have not arrived.
    messages: VecDeque<Vec<u8>>,
    /// What the completed requests must have returned, at the places of [`Post::local`].
    returned: VecDeque<Vec<u8>>,
    /// The expected octets at [`TARGET`].
    target: Vec<u8>,
    counter: u64,
}

impl Traffic {
    fn new(seed: u64) -> Traffic {
        Traffic {
            rng: Rng(seed),
            posted: Vec::new(),
            completed: 0,
            messages: VecDeque::new(),
            returned: VecDeque::new(),
            target: vec![0; 2 * MAX],
            counter: 0,
        }
    }

    /// Posts the next request.
    fn post(&mut self, requester: &mut impl Consumer, responder: &impl Consumer) {
        let number = self.posted.len();
        let len = if self.rng.chance(3) { self.rng.below(MAX + 1) } else { self.rng.below(9) };
        let place = self.rng.below(MAX);
        let sink = SINKS + number * MAX;
        let (from, mut returned) = (SOURCE + self.rng.below(MAX - len + 1), Vec::new());
        let post = match self.rng.below(5) {
            0 => {
                self.messages.push_back(requester.memory()[from..from + len].to_vec());
                Post { kind: Kind::Send, local: from, at: 0, len }
            }
            1 => {
                let octets = &requester.memory()[from..from + len];
                self.target[place..place + len].copy_from_slice(octets);
                Post { kind: Kind::Write, local: from, at: TARGET + place, len }
            }
            2 => {
                returned = responder.memory()[SHOWN + place..][..len].to_vec();
                Post { kind: Kind::Read, local: sink, at: SHOWN + place, len }
            }
            atomic => {
                returned = self.counter.to_ne_bytes().to_vec();
                let swaps = Kind::CompareSwap(self.counter);
                self.counter += 1;
                let kind = if atomic == 3 { Kind::FetchAdd } else { swaps };
                Post { kind, local: sink, at: COUNTER, len: 8 }
            }
        };
        requester.post(post);
        self.posted.push(post);
        self.returned.push_back(returned);
    }

    /// Posts what the programs post now, and compares what has happened with what must happen.
    fn step(&mut self, requester: &mut impl Consumer, responder: &mut impl Consumer) {
        for message in responder.take_messages() {
            assert!(self.messages.pop_front() == Some(message), "a message is wrong");
        }
        let completed = requester.completed();
        assert!(completed <= self.posted.len(), "{completed} requests have completed");
        for post in &self.posted[self.completed..completed] {
            let expected = self.returned.pop_front().unwrap_or_default();
            let got = &requester.memory()[post.local..][..expected.len()];
            assert!(got == expected, "{post:?} has completed without its octets");
        }
        self.completed = completed;
        let is_idle = self.completed == self.posted.len();
        while self.posted.len() < REQUESTS && (is_idle || self.rng.chance(3)) {
            self.post(requester, responder);
        }
        if self.rng.chance(4) {
            responder.post_receive();
        }
    }

    fn is_done(&self) -> bool {
        self.completed == REQUESTS && self.messages.is_empty()
    }

    fn check_memory(&self, responder: &impl Consumer) {
        assert!(responder.memory()[TARGET..SHOWN] == self.target, "a WRITE is wrong");
        assert_eq!(responder.memory()[COUNTER..SINKS], self.counter.to_ne_bytes());
    }
}

/// Lets rxe and this implementation send requests to each other, both at once or only one of them.
fn run(seed: u64, (theirs_post, ours_posts): (bool, bool)) {
    let mut rng = Rng(seed);
    let mut evil = |max: usize| Probability::percent(rng.below(max) as u32);
    let conditions = Conditions {
        loss: evil(16),
        duplicate: evil(8),
        delay: Duration::from_micros(rng.below(300) as u64),
        seed,
        ..Conditions::default()
    };
    let depth = 1 + rng.below(4);
    let cfg = RcCfg {
        initiator_depth: depth as u32,
        responder_resources: depth as u32,
        window: 1 << rng.below(8),
        ..cfg(0)
    };
    let side = Side::new(cfg, Instant::now());
    let memory = side.buf(MEMORY).filled(&mut rng);
    memory.octets_mut()[TARGET..SHOWN].fill(0);
    memory.octets_mut()[COUNTER..].fill(0);
    let mut octets = vec![0; MEMORY];
    rng.fill(&mut octets);
    octets[TARGET..SHOWN].fill(0);
    octets[COUNTER..].fill(0);
    let rxe_cfg = RxeCfg { mtu: MTU, retry_cnt: 7, rd_atomic: depth, ..rxe_cfg(1) };
    let mut theirs = Theirs { rxe: Rxe::new(rxe_cfg, octets), peer: memory.remote(0) };
    let mut ours = Ours { side, memory, completed: 0, receives_posted: 0, messages: 0 };
    let (mut there, mut back) = (Traffic::new(seed << 1), Traffic::new(seed << 1 | 1));
    let (mut steps, mut is_done) = (0, false);
    drive((&mut theirs, &mut ours), &conditions, |theirs, ours| {
        if theirs_post {
            there.step(theirs, ours);
        }
        if ours_posts {
            back.step(ours, theirs);
        }
        steps += 1;
        assert!(steps < 100_000, "the transfer does not end");
        is_done = (!theirs_post || there.is_done()) && (!ours_posts || back.is_done());
        is_done
    });
    assert!(is_done, "{} and {} requests have completed", there.completed, back.completed);
    there.check_memory(&ours);
    back.check_memory(&theirs);
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn every_octet_arrives_on_both_sides() {
    for seed in 0..3000 {
        let posts = [(true, false), (false, true), (true, true)][seed as usize % 3];
        let result = std::panic::catch_unwind(|| run(seed, posts));
        assert!(result.is_ok(), "seed {seed}, (rxe posts, we post) = {posts:?}");
    }
}
