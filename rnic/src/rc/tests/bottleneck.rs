//! Several connections that share one bottleneck with a short queue. Time is emulated.

use std::collections::VecDeque;

use super::*;
use crate::WcOp;

/// A link with a rate and a queue. A packet that does not fit into the queue is lost.
struct Queue {
    bits_per_second: u64,
    limit_octets: usize,
    delay: Duration,
    /// The time from which the next packet can pass.
    free: Instant,
    /// For each packet in the queue, the time at which it has left the queue, and its length.
    queued: VecDeque<(Instant, usize)>,
    /// The packets that have not arrived: the time of arrival, the connection, and the packet.
    in_flight: VecDeque<(Instant, usize, Vec<u8>)>,
    /// The number of octets of all packets that were sent to this link, even if they were lost.
    offered_octets: usize,
}

impl Queue {
    fn new(limit_octets: usize, now: Instant) -> Queue {
        Queue {
            bits_per_second: 200_000_000,
            limit_octets,
            delay: Duration::from_micros(50),
            free: now,
            queued: VecDeque::new(),
            in_flight: VecDeque::new(),
            offered_octets: 0,
        }
    }

    fn send(&mut self, now: Instant, connection: usize, packet: Vec<u8>) {
        let octets = wire_octets(packet.len());
        self.offered_octets += octets;
        while self.queued.pop_front_if(|(left, _)| *left <= now).is_some() {}
        let backlog: usize = self.queued.iter().map(|(_, octets)| octets).sum();
        if backlog + octets > self.limit_octets {
            return;
        }
        let nanos = octets as u64 * 8 * 1_000_000_000 / self.bits_per_second;
        self.free = self.free.max(now) + Duration::from_nanos(nanos);
        self.queued.push_back((self.free, octets));
        self.in_flight.push_back((self.free + self.delay, connection, packet));
    }

    fn receive(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        let (_, connection, packet) = self.in_flight.pop_front_if(|(at, ..)| *at <= now)?;
        Some((connection, packet))
    }
}

/// The size of a packet on the wire, with the headers of Ethernet, IPv4 and UDP, and the ICRC.
fn wire_octets(packet: usize) -> usize {
    packet + 14 + 20 + 8 + 4
}

/// Connections between one host, whose sides are `a`, and several others.
struct Network {
    pairs: Vec<Pair>,
    /// The links to the host of `a` and from it.
    links: [Queue; 2],
    now: Instant,
    start: Instant,
}

const MTU: PathMtu = PathMtu::Octets1024;

impl Network {
    fn new(connections: usize, limit_octets: usize) -> Network {
        let pair = |n: usize| {
            Pair::with(|cfg| {
                (cfg.mtu, cfg.ip_mtu, cfg.window, cfg.retries) = (MTU, 1500, 1024, 6);
                cfg.peer_qpn += (n as u32) << 8;
            })
        };
        let pairs: Vec<_> = (0..connections).map(pair).collect();
        let now = Instant::now();
        let links = [(); 2].map(|()| Queue::new(limit_octets, now));
        Network { pairs, links, now, start: now }
    }

    /// Performs all actions that are possible now, then advances the clock to the next event.
    fn step(&mut self) {
        let Network { pairs, links, now, .. } = self;
        for to_a in [true, false] {
            while let Some((connection, packet)) = links[usize::from(!to_a)].receive(*now) {
                let Pair { a, b, .. } = &mut pairs[connection];
                let (side, back) = if to_a { (a, 1) } else { (b, 0) };
                side.take(*now, &packet).unwrap();
                side.act(*now, connection, &mut links[back]);
            }
        }
        for (connection, Pair { a, b, .. }) in pairs.iter_mut().enumerate() {
            a.act(*now, connection, &mut links[1]);
            b.act(*now, connection, &mut links[0]);
        }
        let deadlines = pairs.iter().flat_map(|pair| [pair.a.rc.deadline(), pair.b.rc.deadline()]);
        let arrivals = links.iter().map(|link| link.in_flight.front().map(|(at, ..)| *at));
        let next = deadlines.chain(arrivals).flatten().min();
        *now = next.map_or(*now, |at| at.max(*now + Duration::from_nanos(1)));
        assert!(*now - self.start < Duration::from_secs(60), "the transfer stalled");
    }

    /// Transfers a message to `a` in each connection.
    fn transfer(mut self, kind: WcOp, octets: usize) -> Outcome {
        let buffers: Vec<_> =
            self.pairs.iter().map(|pair| (pair.a.buf(octets), pair.b.buf(octets))).collect();
        for (pair, (near, far)) in self.pairs.iter().zip(&buffers) {
            match kind {
                WcOp::Read => pair.a.post(read(0, &[near.seg(0, octets)], far.remote(0))),
                _ => pair.b.post(write(0, &[far.seg(0, octets)], near.remote(0))),
            }
        }
        let mut done = vec![Duration::ZERO; self.pairs.len()];
        while done.contains(&Duration::ZERO) {
            self.step();
            for (pair, done) in self.pairs.iter().zip(&mut done) {
                let requester = if kind == WcOp::Read { &pair.a } else { &pair.b };
                if !requester.completions().is_empty() {
                    *done = self.now - self.start;
                }
            }
        }
        let packets = octets.div_ceil(MTU.octets());
        let needed = self.pairs.len() * (packets * wire_octets(12) + octets);
        let offered = self.links[0].offered_octets;
        let stats = |pair: &Pair| [pair.a.rc.stats(), pair.b.rc.stats()];
        let all: Vec<_> = self.pairs.iter().flat_map(stats).collect();
        Outcome {
            waste_percent: offered.saturating_sub(needed) * 100 / offered,
            done,
            timeouts: all.iter().map(|stats| stats.timeouts).sum(),
        }
    }
}

impl Side {
    /// Performs all actions that are possible at this time.
    fn act(&mut self, now: Instant, connection: usize, to: &mut Queue) {
        if self.rc.deadline().is_some_and(|at| at <= now) {
            self.rc.expire(now).unwrap();
        }
        while self.rc.wants_tx() {
            self.rc.transmit(now, &mut self.burst).unwrap();
            self.sent().into_iter().for_each(|packet| to.send(now, connection, packet));
        }
        self.rc.acknowledge(&mut self.burst);
        self.sent().into_iter().for_each(|packet| to.send(now, connection, packet));
    }
}

/// The result of transfers.
#[derive(Debug)]
struct Outcome {
    /// The share of octets that were sent in vain.
    waste_percent: usize,
    /// The time until each transfer was done.
    done: Vec<Duration>,
    timeouts: u64,
}

impl Outcome {
    /// The time until all transfers were done, in percent of the time that their octets take.
    fn time_percent(&self, octets: usize) -> u128 {
        let least = Duration::from_secs(8) * (self.done.len() * octets) as u32 / 200_000_000;
        let last = self.done.iter().max().unwrap();
        last.as_nanos() * 100 / least.as_nanos()
    }

    /// Jain's index of the rates of the transfers.
    fn fairness(&self) -> f64 {
        let rates: Vec<f64> = self.done.iter().map(|done| 1.0 / done.as_secs_f64()).collect();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares)
    }
}

/// Each line has the operation, the number of connections, the octets in each and in the queue, and
/// the bars: the maximum waste and the maximum time.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn many_senders_share_a_short_queue() {
    const KIB: usize = 1 << 10;
    for (kind, connections, octets, queue, waste, time) in [
        (WcOp::Read, 1, 1024 * KIB, 128 * KIB, 5, 115),
        (WcOp::Read, 8, 1024 * KIB, 128 * KIB, 10, 115),
        (WcOp::Read, 20, 256 * KIB, 128 * KIB, 25, 120),
        (WcOp::Read, 20, 256 * KIB, 64 * KIB, 25, 120),
        (WcOp::Write, 1, 1024 * KIB, 128 * KIB, 20, 130),
        (WcOp::Write, 10, 4096 * KIB, 128 * KIB, 20, 130),
        (WcOp::Write, 20, 1024 * KIB, 128 * KIB, 30, 140),
        (WcOp::Write, 20, 1024 * KIB, 64 * KIB, 45, 160),
    ] {
        let case = format!("{kind:?}: {connections} of {octets} octets, a queue of {queue}");
        let outcome = Network::new(connections, queue).transfer(kind, octets);
        let found = (outcome.waste_percent, outcome.time_percent(octets));
        println!("{case}: {found:?}, fairness {:.3}", outcome.fairness());
        assert!(found.0 <= waste && found.1 <= time, "{case}: {found:?}, {outcome:?}");
        assert!(outcome.timeouts <= 1, "{case}: {outcome:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn equal_senders_get_equal_shares() {
    let outcome = Network::new(10, 128 << 10).transfer(WcOp::Write, 4 << 20);
    assert!(outcome.fairness() >= 0.95, "{outcome:?}");
}
