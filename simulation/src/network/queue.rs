//! The queue in front of a link with a rate, and the disciplines by which it marks and drops.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use netem::SplitMix64;

/// A packet's ECN field (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Ecn {
    /// The sender does not react to marks, so a queue drops the packet instead of marking it.
    #[default]
    NotCapable,
    /// The sender reacts to marks.
    Capable,
    /// A queue has marked the packet.
    Marked,
}

/// The rule by which a queue marks packets, or drops them before it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// Packets are dropped only if the queue is full.
    #[default]
    DropTail,
    /// A packet that finds this number of octets or more in the queue is marked if it is
    /// capable of marks.
    Threshold {
        /// The number of octets.
        octets: u64,
    },
    /// Random early detection (Floyd and Jacobson, "Random early detection gateways for congestion
    /// avoidance", 1993), with a weight of 1/512. From `min` to `max` the probability grows to
    /// 10 %, and from there to twice `max` it grows to 100 % ("gentle RED").
    Red {
        /// The average number of octets above which packets are marked or dropped.
        min: u64,
        /// The average number of octets at which the probability is 10 %.
        max: u64,
    },
}

/// The probability of [`Discipline::Red`] at its upper threshold, per million.
const RED_PROBABILITY_MAX: u64 = 100_000;
/// The weight of a packet in the average of [`Discipline::Red`] is 1 / 2^9.
const RED_WEIGHT_BITS: u32 = 9;
/// The average of [`Discipline::Red`] is in units of 1 / 2^20 octets.
const RED_FRACTION_BITS: u32 = 20;
/// After an idle time of this number of packets, the average is practically 0.
const RED_IDLE_PACKETS_MAX: u64 = 20_000;
const MILLION: u64 = 1_000_000;

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueLimits {
    /// The maximum number of octets in the queue.
    pub(crate) octets: u64,
    /// The maximum number of packets in the queue.
    pub(crate) packets: usize,
    /// What the queue does before it is full.
    pub(crate) discipline: Discipline,
}

impl QueueLimits {
    /// A queue that takes everything.
    pub(crate) const NONE: Self =
        QueueLimits { octets: u64::MAX, packets: usize::MAX, discipline: Discipline::DropTail };
}

/// What has happened in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    /// Packets that arrived at the queue.
    pub(crate) arrived: u64,
    /// Packets dropped because the queue was full.
    pub(crate) overflowed: u64,
    /// Packets dropped by the discipline.
    pub(crate) dropped_early: u64,
    /// Packets marked by the discipline.
    pub(crate) marked: u64,
    /// The maximum number of octets in the queue, since the last
    /// [restart](Queue::restart_maximum).
    pub(crate) octets_max: u64,
    /// The sum of octets times nanoseconds.
    octet_nanos: u128,
}

impl QueueCounters {
    /// The mean number of octets in the queue, over this time.
    pub(crate) fn octets_mean(&self, time: Duration) -> u64 {
        self.octet_nanos.checked_div(time.as_nanos()).map_or(0, |octets| octets as u64)
    }
}

/// A queue of packets.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    limits: QueueLimits,
    packets: VecDeque<(P, u64)>,
    octets: u64,
    counters: QueueCounters,
    changed: Option<Instant>,
    red: Red,
}

/// The state of [`Discipline::Red`].
#[derive(Debug)]
struct Red {
    rng: SplitMix64,
    /// The average number of octets, in units of 1 / 2^[`RED_FRACTION_BITS`] octets.
    average: u64,
    /// The number of packets since the last one that was marked or dropped.
    since_last: u64,
    /// The time from which the queue was empty, and the time that a packet takes.
    idle: Option<(Instant, Duration)>,
}

/// What a discipline does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Mark,
}

impl<P> Queue<P> {
    pub(crate) fn new(limits: QueueLimits, seed: u64) -> Self {
        Queue {
            limits,
            packets: VecDeque::new(),
            octets: 0,
            counters: QueueCounters::default(),
            changed: None,
            red: Red { rng: SplitMix64::new(seed), average: 0, since_last: 0, idle: None },
        }
    }

    /// Adds a packet, unless the queue drops it. `mark` returns false if the packet cannot be
    /// marked, and is dropped instead.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        mut packet: P,
        octets: u64,
        mark: impl FnOnce(&mut P) -> bool,
    ) {
        self.counters.arrived += 1;
        let verdict = match self.limits.discipline {
            Discipline::DropTail => Verdict::Accept,
            Discipline::Threshold { octets } if self.octets >= octets => Verdict::Mark,
            Discipline::Threshold { .. } => Verdict::Accept,
            Discipline::Red { min, max } => self.red.decide(now, self.octets, min, max),
        };
        let is_full = self.packets.len() >= self.limits.packets
            || self.octets.saturating_add(octets) > self.limits.octets;
        if is_full {
            self.counters.overflowed += 1;
            return;
        }
        if verdict == Verdict::Mark {
            if mark(&mut packet) {
                self.counters.marked += 1;
            } else if matches!(self.limits.discipline, Discipline::Red { .. }) {
                self.counters.dropped_early += 1;
                return;
            }
        }
        self.account(now);
        self.octets += octets;
        self.counters.octets_max = self.counters.octets_max.max(self.octets);
        self.packets.push_back((packet, octets));
    }

    /// Removes the oldest packet. `packet_time` is the time that a packet takes at the link's rate.
    pub(crate) fn pop(&mut self, now: Instant, packet_time: Duration) -> Option<(P, u64)> {
        let (packet, octets) = self.packets.pop_front()?;
        self.account(now);
        self.octets -= octets;
        if self.packets.is_empty() {
            self.red.idle = Some((now, packet_time));
        }
        Some((packet, octets))
    }

    pub(crate) fn octets(&self) -> u64 {
        self.octets
    }

    pub(crate) fn counters(&self) -> QueueCounters {
        self.counters
    }

    /// Forgets the maximum number of octets until now.
    pub(crate) fn restart_maximum(&mut self) {
        self.counters.octets_max = self.octets;
    }

    /// Adds the time since the last change to the sum of octets times nanoseconds.
    fn account(&mut self, now: Instant) {
        if let Some(changed) = self.changed.replace(now) {
            let nanos = now.saturating_duration_since(changed).as_nanos();
            self.counters.octet_nanos += nanos * u128::from(self.octets);
        }
    }
}

impl Red {
    /// Decides about a packet that finds `octets` octets in the queue.
    fn decide(&mut self, now: Instant, octets: u64, min: u64, max: u64) -> Verdict {
        if let Some((since, packet_time)) = self.idle
            && octets == 0
        {
            self.idle = Some((now, packet_time));
            // The average falls as if small packets had arrived at an empty queue all the time.
            let idle = now.saturating_duration_since(since).as_nanos();
            let packets = idle.checked_div(packet_time.as_nanos()).unwrap_or(u128::MAX);
            for _ in 0..packets.min(RED_IDLE_PACKETS_MAX.into()) {
                self.average -= self.average >> RED_WEIGHT_BITS;
            }
        }
        let current = octets << RED_FRACTION_BITS;
        self.average =
            self.average - (self.average >> RED_WEIGHT_BITS) + (current >> RED_WEIGHT_BITS);
        let average = self.average >> RED_FRACTION_BITS;
        if average < min {
            self.since_last = 0;
            return Verdict::Accept;
        }
        if average >= max.saturating_mul(2) {
            self.since_last = 0;
            return Verdict::Mark;
        }
        self.since_last += 1;
        let share = match average < max {
            true => RED_PROBABILITY_MAX * (average - min) / (max - min).max(1),
            false => RED_PROBABILITY_MAX + (MILLION - RED_PROBABILITY_MAX) * (average - max) / max,
        };
        let rest = MILLION.saturating_sub((self.since_last - 1) * share).max(1);
        // The intervals between marks are spread evenly, as the paper proposes.
        let probability = (share * MILLION / rest).min(MILLION);
        if self.rng.below(MILLION) < probability {
            self.since_last = 0;
            return Verdict::Mark;
        }
        Verdict::Accept
    }
}

#[cfg(test)]
mod tests;
