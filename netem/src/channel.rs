//! One direction of the network between two hosts.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::Conditions;
use crate::random::SplitMix64;

/// The maximum number of packets that overtake a reordered packet.
pub const MAX_OVERTAKERS: u32 = 8;
/// The maximum time that a reordered packet waits for other packets to overtake it.
pub const OVERTAKING_TIME: Duration = Duration::from_millis(1);
/// The maximum delay and jitter. A longer time is reduced to this maximum.
pub const MAX_DELAY: Duration = Duration::from_secs(3600);

/// One direction of an emulated network.
///
/// Each packet consumes the same number of random numbers, whatever happens to it. Therefore, if
/// two networks have the same seed and differ in one property, only the effects of that property
/// differ. For example, the packets lost at 1 % are among those lost at 2 %.
#[derive(Debug)]
pub struct Channel<P> {
    conditions: Conditions,
    rng: SplitMix64,
    counters: Counters,
    /// The packets in flight, by time of arrival.
    in_flight: VecDeque<(Instant, P)>,
    /// The packets that are held back until other packets overtake them.
    held: Vec<Held<P>>,
    bottleneck: Option<Bottleneck>,
    /// The arrival time of the last packet that was not held back.
    last_arrival: Option<Instant>,
}

/// Counters of a channel, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets passed to [`send`](Channel::send).
    pub sent: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Copies of packets lost because the channel was full. A duplicated packet has two copies.
    pub overflowed: u64,
    /// Packets duplicated.
    pub repeated: u64,
    /// Copies of packets held back to be overtaken. A duplicated packet has two copies.
    pub reordered: u64,
}

#[derive(Debug)]
struct Held<P> {
    packet: P,
    /// The number of packets that must still overtake this packet.
    overtakers: u32,
    /// The latest time at which the packet arrives.
    latest: Instant,
}

impl<P: Clone> Channel<P> {
    /// A channel without packets.
    pub fn new(conditions: Conditions) -> Self {
        Self {
            rng: SplitMix64::new(conditions.seed),
            counters: Counters::default(),
            in_flight: VecDeque::new(),
            held: Vec::new(),
            bottleneck: conditions.rate.map(Bottleneck::new),
            last_arrival: None,
            conditions,
        }
    }

    /// Sends a packet. `octets` is its size on the wire, which counts towards the rate.
    pub fn send(&mut self, now: Instant, packet: P, octets: usize) {
        self.counters.sent += 1;
        let is_lost = self.rng.happens(self.conditions.loss);
        let is_repeated = self.rng.happens(self.conditions.duplicate);
        let choices = [self.choose(), self.choose()];
        if is_lost {
            self.counters.lost += 1;
            return;
        }
        if is_repeated {
            self.counters.repeated += 1;
            self.enqueue(now, packet.clone(), octets, choices[1]);
        }
        self.enqueue(now, packet, octets, choices[0]);
    }

    /// Returns the next packet that has arrived by now.
    pub fn receive(&mut self, now: Instant) -> Option<P> {
        self.release_held(|held| held.latest <= now, Held::latest);
        match self.in_flight.front() {
            Some(&(arrival, _)) if arrival <= now => {
                self.in_flight.pop_front().map(|(_, packet)| packet)
            }
            _ => None,
        }
    }

    /// The time at which to call [`receive`](Self::receive) next. No packet arrives earlier. `None`
    /// if no packet is in flight.
    pub fn deadline(&self) -> Option<Instant> {
        let in_flight = self.in_flight.front().map(|&(arrival, _)| arrival);
        in_flight.into_iter().chain(self.held.iter().map(Held::latest)).min()
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The channel's conditions.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn choose(&mut self) -> PacketChoices {
        let is_held = self.rng.happens(self.conditions.reorder);
        let overtakers = 1 + self.rng.below(MAX_OVERTAKERS.into()) as u32;
        let jitter = self.conditions.jitter.min(MAX_DELAY).as_nanos() as u64;
        let extra = Duration::from_nanos(self.rng.below(jitter + 1));
        PacketChoices { overtakers: if is_held { overtakers } else { 0 }, extra }
    }

    /// Adds a packet, or a copy of one, to the network.
    fn enqueue(
        &mut self,
        now: Instant,
        packet: P,
        octets: usize,
        PacketChoices { overtakers, extra }: PacketChoices,
    ) {
        if self.in_flight.len() + self.held.len() >= self.conditions.limit {
            self.counters.overflowed += 1;
            return;
        }
        let departure =
            self.bottleneck.as_mut().map_or(now, |bottleneck| bottleneck.pass(now, octets));
        let arrival = saturating_add(departure, self.conditions.delay.min(MAX_DELAY) + extra);
        let arrival = self.last_arrival.map_or(arrival, |last| last.max(arrival));
        if overtakers > 0 {
            self.counters.reordered += 1;
            let latest = saturating_add(arrival, OVERTAKING_TIME);
            self.held.push(Held { packet, overtakers, latest });
            return;
        }
        self.last_arrival = Some(arrival);
        self.insert(arrival, packet);
        self.held.iter_mut().for_each(|held| held.overtakers -= 1);
        self.release_held(|held| held.overtakers == 0, |held| held.latest.min(arrival));
    }

    /// Releases the held packets that `which` selects. `at` returns the time at which a released
    /// packet arrives.
    fn release_held(&mut self, which: impl Fn(&Held<P>) -> bool, at: impl Fn(&Held<P>) -> Instant) {
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

    /// Inserts a packet after those with the same arrival time.
    fn insert(&mut self, arrival: Instant, packet: P) {
        let behind = self.in_flight.partition_point(|&(at, _)| at <= arrival);
        self.in_flight.insert(behind, (arrival, packet));
    }
}

impl<P> Held<P> {
    fn latest(&self) -> Instant {
        self.latest
    }
}

/// The random choices for one copy of a packet.
#[derive(Clone, Copy)]
struct PacketChoices {
    /// The number of packets that must overtake this packet. 0 if the packet is not held back.
    overtakers: u32,
    /// The packet's share of the jitter.
    extra: Duration,
}

/// The rate limit. Packets pass the channel one after the other. A packet occupies the channel for
/// the time that its octets take at this rate.
#[derive(Debug)]
pub struct Bottleneck {
    /// The rate in bits per second, not 0.
    rate: u64,
    /// The time from which the next packet can pass, because the last packet has passed.
    free: Option<Instant>,
    /// The fraction of a nanosecond that was rounded off the passing times of earlier packets, in
    /// units of 1/`rate` nanoseconds.
    remainder: u64,
}

impl Bottleneck {
    /// A limit of `rate` bits per second, which no packet has passed yet.
    pub fn new(rate: NonZeroU64) -> Self {
        Self { rate: rate.get(), free: None, remainder: 0 }
    }

    /// Returns the time at which a packet that arrives now has passed the bottleneck.
    pub fn pass(&mut self, now: Instant, octets: usize) -> Instant {
        let begin = match self.free {
            Some(free) if free > now => free,
            _ => {
                self.remainder = 0;
                now
            }
        };
        let work = octets as u128 * 8 * 1_000_000_000 + u128::from(self.remainder);
        self.remainder = (work % u128::from(self.rate)) as u64;
        let nanos = u64::try_from(work / u128::from(self.rate)).unwrap_or(u64::MAX);
        let through = saturating_add(begin, Duration::from_nanos(nanos));
        self.free = Some(through);
        through
    }
}

/// Adds a duration. If the sum would overflow, returns `at` unchanged.
fn saturating_add(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or(at)
}
