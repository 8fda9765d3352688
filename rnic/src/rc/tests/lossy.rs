//! Transfers over networks that lose, duplicate and reorder: every octet is right, every completion
//! comes once and in order, and no transfer stalls.

use std::collections::VecDeque;

use netem::Probability;

use super::*;
use crate::{SendOp, WcOp, WcStatus};

/// The number of requests of each end in each run.
const REQUESTS: usize = 30;
/// The maximum length of a message in octets.
const MAX: usize = 9 * OCTETS;

/// Returns a random length of a message, which is usually near a multiple of a packet's payload.
fn len(rng: &mut Rng) -> usize {
    match rng.below(4) {
        0 => rng.below(MAX),
        _ => (rng.below(8) * OCTETS + rng.below(3)).saturating_sub(1),
    }
}

/// The requests of one end, and the results that they must have.
struct Traffic {
    rng: Rng,
    /// The requester's memory.
    source: Buf,
    sinks: Buf,
    /// The responder's memory. `target` is for WRITEs and `counter` for atomic operations. `shown`
    /// is for READs, and never changes.
    target: Buf,
    shown: Buf,
    counter: Buf,
    receives: Buf,
    posted: usize,
    received: usize,
    /// The expected completions.
    completions: VecDeque<Wc>,
    arrivals: VecDeque<Arrival>,
    /// The expected memory at the end.
    target_octets: Vec<u8>,
    sink_octets: Vec<u8>,
    adds: u64,
}

/// A message that takes a receive buffer.
struct Arrival {
    octets: Vec<u8>,
    immediate: Option<u32>,
    op: WcOp,
}

impl Traffic {
    fn new(requester: &Side, responder: &Side, seed: u64) -> Traffic {
        let mut rng = Rng(seed);
        Traffic {
            source: requester.buf(MAX).filled(&mut rng),
            sinks: requester.buf(REQUESTS * MAX),
            target: responder.buf(2 * MAX),
            shown: responder.buf(2 * MAX).filled(&mut rng),
            counter: responder.buf(8),
            receives: responder.buf(REQUESTS * MAX),
            rng,
            posted: 0,
            received: 0,
            completions: VecDeque::new(),
            arrivals: VecDeque::new(),
            target_octets: vec![0; 2 * MAX],
            sink_octets: vec![0; REQUESTS * MAX],
            adds: 0,
        }
    }

    /// Posts the next request.
    fn post(&mut self, requester: &Side) {
        let id = self.posted as u64;
        let (len, sink) = (len(&mut self.rng), self.posted * MAX);
        let from = self.rng.below(MAX - len + 1);
        let cut = self.rng.below(len + 1);
        let segments = [self.source.seg(from, cut), self.source.seg(from + cut, len - cut)];
        let octets = &self.source.octets()[from..from + len];
        let to = self.rng.below(MAX);
        let (mut wr, op, total) = match self.rng.below(6) {
            0 => {
                self.arrive(octets.to_vec(), None, WcOp::Recv);
                (send(id, &segments), WcOp::Send, len)
            }
            1 => {
                let immediate = id as u32;
                self.arrive(octets.to_vec(), Some(immediate), WcOp::RecvMessageImm);
                (request(id, SendOp::SendImm { immediate }, &segments), WcOp::Send, len)
            }
            2 => {
                self.target_octets[to..to + len].copy_from_slice(octets);
                (write(id, &segments, self.target.remote(to)), WcOp::Write, len)
            }
            3 => {
                self.target_octets[to..to + len].copy_from_slice(octets);
                self.arrive(vec![0; len], Some(id as u32), WcOp::Recv);
                (write_imm(id, &segments, self.target.remote(to), id as u32), WcOp::WriteImm, len)
            }
            4 => {
                self.sink_octets[sink..sink + len]
                    .copy_from_slice(&self.shown.octets()[to..to + len]);
                let segments = [self.sinks.seg(sink, cut), self.sinks.seg(sink + cut, len - cut)];
                requester.post(read(id, &segments, self.shown.remote(to)));
                self.expect(id, WcOp::Read, len);
                return;
            }
            _ => {
                self.sink_octets[sink..sink + 8].copy_from_slice(&self.adds.to_ne_bytes());
                let segments = [self.sinks.seg(sink, 8)];
                let (op, wr) = match self.rng.chance(2) {
                    true => (WcOp::FetchAdd, fetch_add(id, &segments, self.counter.remote(0), 1)),
                    false => {
                        let change = (self.adds, self.adds + 1);
                        let at = self.counter.remote(0);
                        (WcOp::CompareSwap, compare_swap(id, &segments, at, change))
                    }
                };
                self.adds += 1;
                requester.post(wr);
                self.expect(id, op, 8);
                return;
            }
        };
        wr.fence = self.rng.chance(8);
        requester.post(wr);
        self.expect(id, op, total);
    }

    fn arrive(&mut self, octets: Vec<u8>, immediate: Option<u32>, op: WcOp) {
        self.arrivals.push_back(Arrival { octets, immediate, op });
    }

    fn expect(&mut self, id: u64, op: WcOp, octets: usize) {
        self.posted += 1;
        self.completions.push_back(wc(id, op, octets, WcStatus::Success));
    }

    /// Posts the next receive buffer.
    fn receive(&mut self, responder: &Side) {
        if self.received < REQUESTS {
            responder.recv(self.received as u64, &[self.receives.seg(self.received * MAX, MAX)]);
            self.received += 1;
        }
    }

    /// Compares the completions so far with the expected ones.
    fn check(&mut self, requester: &Side, responder: &Side, taken: &mut usize) {
        for wc in requester.completions() {
            assert_eq!(Some(wc), self.completions.pop_front());
        }
        for got in responder.received() {
            let Arrival { octets, immediate, op } =
                self.arrivals.pop_front().expect("a message must have been sent");
            let expected = wc(*taken as u64, op, octets.len(), WcStatus::Success);
            assert_eq!(got, Wc { immediate, ..expected });
            let placed = &self.receives.octets()[*taken * MAX..][..octets.len()];
            assert_eq!(
                placed, octets,
                "the buffer must hold the message of a SEND, and be unchanged after a WRITE"
            );
            *taken += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.posted == REQUESTS && self.completions.is_empty() && self.arrivals.is_empty()
    }

    fn check_memory(&self) {
        assert_eq!(self.target.octets(), self.target_octets);
        assert_eq!(self.sinks.octets(), self.sink_octets);
        assert_eq!(self.counter.number(0), self.adds);
    }
}

/// Runs the traffic of both ends over one network. Returns the counters of one end.
fn run(seed: u64) -> Stats {
    let mut rng = Rng(seed);
    let mut evil = || Probability::percent(if rng.chance(3) { 0 } else { rng.below(21) as u32 });
    let conditions = Conditions {
        loss: evil(),
        duplicate: evil(),
        reorder: evil(),
        delay: Duration::from_micros(rng.below(300) as u64),
        jitter: Duration::from_micros(rng.below(100) as u64),
        seed,
        ..Conditions::default()
    };
    let depth = 1 + rng.below(5) as u32;
    let window = 1 << rng.below(8);
    let mut pair = Pair::with(|cfg| {
        (cfg.initiator_depth, cfg.responder_resources, cfg.window) = (depth, depth, window);
    })
    .over(&conditions);
    let mut there = Traffic::new(&pair.a, &pair.b, seed << 1);
    let mut back = Traffic::new(&pair.b, &pair.a, seed << 1 | 1);
    let mut taken = [0; 2];
    while !there.is_done() || !back.is_done() {
        for (traffic, requester, responder) in
            [(&mut there, &pair.a, &pair.b), (&mut back, &pair.b, &pair.a)]
        {
            while traffic.posted < REQUESTS && rng.chance(3) {
                traffic.post(requester);
            }
            while traffic.received < REQUESTS && rng.chance(5) {
                traffic.receive(responder);
            }
        }
        if let Err((end, failure)) = pair.step() {
            panic!("seed {seed}, {conditions}: {end} failed: {failure}");
        }
        there.check(&pair.a, &pair.b, &mut taken[0]);
        back.check(&pair.b, &pair.a, &mut taken[1]);
        assert!(
            pair.elapsed() < Duration::from_secs(60),
            "seed {seed}, {conditions}: the transfer stalled"
        );
    }
    // Packets that are still under way must have no effect.
    pair.drive().unwrap();
    assert_eq!(all(&pair), [const { Vec::new() }; 4]);
    there.check_memory();
    back.check_memory();
    assert!(pair.a.rc.is_drained() && pair.b.rc.is_drained());
    pair.a.rc.stats()
}

#[test]
fn a_thousand_networks() {
    const SEEDS: u64 = if cfg!(miri) { 2 } else { 1000 };
    let mut sum = Stats::default();
    for seed in 0..SEEDS {
        let stats = run(seed);
        sum.sent_again += stats.sent_again;
        sum.duplicates += stats.duplicates;
        sum.timeouts += stats.timeouts;
        sum.probes += stats.probes;
        sum.tx_sequence_naks += stats.tx_sequence_naks;
        sum.rx_rnr_naks += stats.rx_rnr_naks;
    }
    if SEEDS == 1000 {
        // The test is useful only if the networks cause many of these events.
        assert!(sum.sent_again > 30_000 && sum.duplicates > 20_000, "{sum:?}");
        assert!(
            sum.probes > 2_000 && sum.tx_sequence_naks > 5_000 && sum.rx_rnr_naks > 200,
            "{sum:?}"
        );
        // Timeouts must be rare: one happens only if all packets of half a second are lost.
        assert!(sum.timeouts < 50, "{sum:?}");
    }
}

/// Measures the goodput in megabits per second when a few MB cross a gigabit link that loses
/// a part of the packets.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn goodput_against_loss() {
    use std::fmt::Write;

    const OCTETS: usize = 1 << 20;
    let mut table = String::from("loss    WRITE 1 MiB   READ 1 MiB   SEND 4 KiB   SEND 64 B\n");
    for loss in [0, 100, 1_000, 10_000, 50_000, 100_000, 200_000] {
        let conditions = Conditions {
            loss: Probability::per_million(loss),
            delay: Duration::from_micros(50),
            rate: std::num::NonZeroU64::new(1_000_000_000),
            seed: 1,
            ..Conditions::default()
        };
        write!(table, "{:<6} ", format!("{}%", f64::from(loss) / 10_000.0)).unwrap();
        for (kind, size, width) in [
            (WcOp::Write, OCTETS, 12),
            (WcOp::Read, OCTETS, 12),
            (WcOp::Send, 4096, 12),
            (WcOp::Send, 64, 11),
        ] {
            let mut pair = Pair::with(|cfg| {
                (cfg.mtu, cfg.ip_mtu, cfg.window) = (PathMtu::Octets1024, 1500, 256)
            });
            pair = pair.over(&conditions);
            let (near, far) = (pair.a.buf(OCTETS), pair.b.buf(OCTETS));
            let total = if size == 64 { OCTETS } else { 8 * OCTETS };
            let (mut posted, mut received, mut done) = (0, 0, 0);
            while done < total / size {
                while posted < (total / size).min(done + 64) {
                    let local = [near.seg(posted * size % OCTETS, size)];
                    pair.a.post(match kind {
                        WcOp::Write => write(0, &local, far.remote(0)),
                        WcOp::Read => read(0, &local, far.remote(0)),
                        _ => send(0, &local),
                    });
                    posted += 1;
                }
                while kind == WcOp::Send && received < done + 128 {
                    pair.b.recv(0, &[far.seg(0, size)]);
                    received += 1;
                }
                pair.step().unwrap();
                pair.b.received();
                done += pair.a.completions().len();
            }
            let megabits = (total * 8) as f64 / pair.elapsed().as_secs_f64() / 1e6;
            write!(table, " {megabits:>width$.1}").unwrap();
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}
