//! One direction between two hosts.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::Conditions;
use crate::chance::Dice;

/// A packet that is reordered is overtaken by at most this many.
pub const MAX_OVERTAKERS: u32 = 8;
/// How long a packet that is reordered waits for others to overtake it: it is late, not lost.
pub const OVERTAKING_TIME: Duration = Duration::from_millis(1);
/// Longer delays and jitters are as this one.
pub const MAX_DELAY: Duration = Duration::from_secs(3600);

/// One direction of an emulated network.
///
/// It takes a few random numbers for each packet, whatever becomes of the packet. So with the same seed a network with more
/// of one evil differs from one with less only in that: the packets that 1 % loss takes are among those that 2 % take.
#[derive(Debug)]
pub struct Link<P> {
    conditions: Conditions,
    dice: Dice,
    counters: Counters,
    /// On their way, by time of arrival.
    coming: VecDeque<(Instant, P)>,
    /// Waiting to be overtaken.
    held: Vec<Held<P>>,
    bottleneck: Option<Bottleneck>,
    /// When the last packet that was not held back arrives.
    last_arrival: Option<Instant>,
}

/// What a link has done so far, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Given to it.
    pub sent: u64,
    /// Of these, taken away by chance.
    pub lost: u64,
    /// Lost because the link was full, second copies included.
    pub overflowed: u64,
    /// Second copies made.
    pub repeated: u64,
    /// Held back for others to overtake them, second copies included.
    pub reordered: u64,
}

#[derive(Debug)]
struct Held<P> {
    packet: P,
    /// How many must still overtake it.
    overtakers: u32,
    /// It arrives then at the latest.
    latest: Instant,
}

impl<P: Clone> Link<P> {
    /// A link without packets.
    pub fn new(conditions: Conditions) -> Self {
        Self {
            dice: Dice::new(conditions.seed),
            counters: Counters::default(),
            coming: VecDeque::new(),
            held: Vec::new(),
            bottleneck: conditions.rate.map(|rate| Bottleneck {
                rate: rate.get(),
                free: None,
                rest: 0,
            }),
            last_arrival: None,
            conditions,
        }
    }

    /// Sends a packet. `octets` is what it takes of the rate: its size on the wire.
    pub fn send(&mut self, now: Instant, packet: P, octets: usize) {
        self.counters.sent += 1;
        let is_lost = self.dice.happens(self.conditions.loss);
        let is_repeated = self.dice.happens(self.conditions.duplicate);
        let fates = [self.fate(), self.fate()];
        if is_lost {
            self.counters.lost += 1;
            return;
        }
        if is_repeated {
            self.counters.repeated += 1;
            self.enter(now, packet.clone(), octets, fates[1]);
        }
        self.enter(now, packet, octets, fates[0]);
    }

    /// The next packet that has arrived by now.
    pub fn receive(&mut self, now: Instant) -> Option<P> {
        self.let_go(|held| held.latest <= now, Held::latest);
        match self.coming.front() {
            Some(&(arrival, _)) if arrival <= now => {
                self.coming.pop_front().map(|(_, packet)| packet)
            }
            _ => None,
        }
    }

    /// When to call [`receive`](Self::receive) next: there is no packet before. `None`: no packet is on its way.
    pub fn deadline(&self) -> Option<Instant> {
        let coming = self.coming.front().map(|&(arrival, _)| arrival);
        coming.into_iter().chain(self.held.iter().map(Held::latest)).min()
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The conditions it was made with.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn fate(&mut self) -> Fate {
        let is_held = self.dice.happens(self.conditions.reorder);
        let overtakers = 1 + self.dice.below(MAX_OVERTAKERS.into()) as u32;
        let jitter = self.conditions.jitter.min(MAX_DELAY).as_nanos() as u64;
        let extra = Duration::from_nanos(self.dice.below(jitter + 1));
        Fate { overtakers: if is_held { overtakers } else { 0 }, extra }
    }

    /// A packet, or a copy of one, enters the network.
    fn enter(&mut self, now: Instant, packet: P, octets: usize, Fate { overtakers, extra }: Fate) {
        if self.coming.len() + self.held.len() >= self.conditions.limit {
            self.counters.overflowed += 1;
            return;
        }
        let departure =
            self.bottleneck.as_mut().map_or(now, |bottleneck| bottleneck.pass(now, octets));
        let arrival = later(departure, self.conditions.delay.min(MAX_DELAY) + extra);
        let arrival = self.last_arrival.map_or(arrival, |last| last.max(arrival));
        if overtakers > 0 {
            self.counters.reordered += 1;
            let latest = later(arrival, OVERTAKING_TIME);
            self.held.push(Held { packet, overtakers, latest });
            return;
        }
        self.last_arrival = Some(arrival);
        self.insert(arrival, packet);
        self.held.iter_mut().for_each(|held| held.overtakers -= 1);
        self.let_go(|held| held.overtakers == 0, |held| held.latest.min(arrival));
    }

    /// Those held back that need not wait any more arrive, each at its time.
    fn let_go(&mut self, which: impl Fn(&Held<P>) -> bool, at: impl Fn(&Held<P>) -> Instant) {
        let mut index = 0;
        while index < self.held.len() {
            if which(&self.held[index]) {
                let held = self.held.remove(index);
                self.insert(at(&held), held.packet);
            } else {
                index += 1;
            }
        }
    }

    /// Behind those that arrive at the same time.
    fn insert(&mut self, arrival: Instant, packet: P) {
        let behind = self.coming.partition_point(|&(at, _)| at <= arrival);
        self.coming.insert(behind, (arrival, packet));
    }
}

impl<P> Held<P> {
    fn latest(&self) -> Instant {
        self.latest
    }
}

/// What chance has in store for a copy of a packet.
#[derive(Clone, Copy)]
struct Fate {
    /// 0: it is not held back.
    overtakers: u32,
    /// Of the jitter.
    extra: Duration,
}

/// Where packets go one after the other, each for as long as its octets take.
#[derive(Debug)]
struct Bottleneck {
    /// Bits a second, not 0.
    rate: u64,
    /// When the last packet is through.
    free: Option<Instant>,
    /// Of a nanosecond, what rounding has left of the packets before: parts of `rate`.
    rest: u64,
}

impl Bottleneck {
    /// When a packet that comes now is through.
    fn pass(&mut self, now: Instant, octets: usize) -> Instant {
        let begin = match self.free {
            Some(free) if free > now => free,
            _ => {
                self.rest = 0;
                now
            }
        };
        let work = octets as u128 * 8 * 1_000_000_000 + u128::from(self.rest);
        self.rest = (work % u128::from(self.rate)) as u64;
        let nanos = u64::try_from(work / u128::from(self.rate)).unwrap_or(u64::MAX);
        let through = later(begin, Duration::from_nanos(nanos));
        self.free = Some(through);
        through
    }
}

/// The end of time counts as no time at all.
fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or(at)
}
