//! A network of nodes and links: packets enter at one node and leave at another.
//!
//! | file | what |
//! |---|---|
//! | `dumbbell` | the usual topology of experiments: sources, a bottleneck and sinks |
//! | `queue` | the queue in front of a link: drop tail, ECN threshold, RED |

mod dumbbell;
mod queue;

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use netem::{Bottleneck, Channel, Conditions, SplitMix64};

use crate::agenda::Agenda;
use queue::Queue;

pub use dumbbell::Dumbbell;
pub(crate) use dumbbell::{ACCESS_RATE_MULTIPLE, Host};
pub use queue::Discipline;
pub(crate) use queue::{Ecn, QueueCounters, QueueLimits};

/// The nodes and links of a network. Nodes have numbers from 0 on. A node is a host or a switch:
/// each node can send packets, receive packets, and forward packets for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    links: Vec<ChannelSpec>,
}

/// One direction of a link between two nodes.
#[derive(Clone, Debug)]
pub(crate) struct ChannelSpec {
    /// The node that sends.
    pub(crate) from: usize,
    /// The node that receives.
    pub(crate) to: usize,
    /// The properties of the link. `limit` is the maximum number of packets in the queue.
    pub(crate) conditions: Conditions,
    /// The queue in front of the link. It matters only if the link has a rate.
    pub(crate) queue: QueueLimits,
}

/// The choice among several shortest paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// All packets of a flow take the same path.
    #[default]
    Flow,
    /// Each packet takes a path at random.
    Packet,
}

/// A packet in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet<P> {
    /// The node that sends the packet.
    pub(crate) from: usize,
    /// The node that receives the packet.
    pub(crate) to: usize,
    /// The number by which switches that balance by [flow](Balance::Flow) choose the path. In a
    /// real network it is a hash of the addresses and ports.
    pub(crate) flow: u64,
    /// The size on the wire, which counts towards rates and queues.
    pub(crate) octets: usize,
    /// The ECN field.
    pub(crate) ecn: Ecn,
    /// The content.
    pub(crate) content: P,
}

impl Topology {
    /// A topology without links.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds one direction of a link. Returns the number of the link, counted from 0.
    pub(crate) fn add(&mut self, link: ChannelSpec) -> usize {
        self.links.push(link);
        self.links.len() - 1
    }

    fn nodes(&self) -> usize {
        self.links.iter().map(|link| link.from.max(link.to) + 1).max().unwrap_or(0)
    }

    /// For each node and each destination: the links that begin a shortest path.
    fn routes(&self) -> Vec<Vec<Vec<usize>>> {
        let nodes = self.nodes();
        let mut routes = vec![vec![Vec::new(); nodes]; nodes];
        let mut links_to = vec![Vec::new(); nodes];
        self.links.iter().for_each(|link| links_to[link.to].push(link.from));
        for destination in 0..nodes {
            // The number of links from each node to the destination.
            let mut distances = vec![None; nodes];
            distances[destination] = Some(0);
            let mut reached = VecDeque::from([destination]);
            while let Some(node) = reached.pop_front() {
                for &from in &links_to[node] {
                    if distances[from].is_none() {
                        distances[from] = distances[node].map(|distance: usize| distance + 1);
                        reached.push_back(from);
                    }
                }
            }
            for (number, link) in self.links.iter().enumerate() {
                if let (Some(from), Some(to)) = (distances[link.from], distances[link.to])
                    && from == to + 1
                {
                    routes[link.from][destination].push(number);
                }
            }
        }
        routes
    }
}

/// A network with a clock that the caller controls.
///
/// The caller passes each packet to [`send`](Self::send), and calls [`receive`](Self::receive) at
/// [`deadline`](Self::deadline) until it returns `None`.
#[derive(Debug)]
pub(crate) struct Network<P> {
    hops: Vec<Hop<P>>,
    routes: Vec<Vec<Vec<usize>>>,
    balance: Balance,
    rng: SplitMix64,
    agenda: Agenda,
    /// The packets that have arrived.
    arrived: VecDeque<Packet<P>>,
}

impl<P: Clone> Network<P> {
    /// A network without packets. `seed` is the seed of all random numbers: each link combines it
    /// with its number and with the seed in its conditions.
    pub(crate) fn new(topology: &Topology, balance: Balance, seed: u64) -> Self {
        let mut seeds = SplitMix64::new(seed);
        let hops: Vec<_> =
            topology.links.iter().map(|link| Hop::new(link, seeds.next_u64())).collect();
        Network {
            agenda: Agenda::new(hops.len()),
            hops,
            routes: topology.routes(),
            balance,
            rng: seeds,
            arrived: VecDeque::new(),
        }
    }

    /// Sends a packet from its node.
    ///
    /// # Panics
    /// Panics if the topology has no path for the packet.
    pub(crate) fn send(&mut self, now: Instant, packet: Packet<P>) {
        self.forward(now, packet.from, packet);
    }

    /// Returns the next packet that has arrived at its destination by now.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<Packet<P>> {
        while self.arrived.is_empty() {
            let (_, number) = self.agenda.first().filter(|&(at, _)| at <= now)?;
            let hop = &mut self.hops[number];
            let node = hop.to;
            let carried = hop.run(now);
            self.agenda.set(number, hop.deadline());
            for packet in carried {
                self.forward(now, node, packet);
            }
        }
        self.arrived.pop_front()
    }

    /// The time at which to call [`receive`](Self::receive) next. It may be earlier than the next
    /// arrival.
    pub(crate) fn deadline(&mut self) -> Option<Instant> {
        self.agenda.first().map(|(at, _)| at)
    }

    /// The counters of the queue of a link.
    pub(crate) fn queue_counters(&self, link: usize) -> QueueCounters {
        self.hops[link].queue.counters()
    }

    /// Forgets the maximum number of octets in the queue of a link until now.
    pub(crate) fn restart_queue_maximum(&mut self, link: usize) {
        self.hops[link].queue.restart_maximum();
    }

    /// The number of octets in the queue of a link.
    pub(crate) fn queued_octets(&self, link: usize) -> u64 {
        self.hops[link].queue.octets()
    }

    /// Passes a packet that is at a node to the next link.
    fn forward(&mut self, now: Instant, node: usize, packet: Packet<P>) {
        if node == packet.to {
            self.arrived.push_back(packet);
            return;
        }
        let choices = &self.routes[node][packet.to];
        assert!(!choices.is_empty(), "the topology must have a path for each packet");
        let choice = match self.balance {
            _ if choices.len() == 1 => 0,
            Balance::Flow => packet.flow % choices.len() as u64,
            Balance::Packet => self.rng.below(choices.len() as u64),
        };
        let number = choices[choice as usize];
        self.hops[number].send(now, packet);
        self.agenda.set(number, self.hops[number].deadline());
    }
}

/// A link with its queue.
#[derive(Debug)]
struct Hop<P> {
    to: usize,
    rate: Option<Rate>,
    queue: Queue<Packet<P>>,
    /// The packet that the link transmits, and the time at which its last octet leaves.
    transmitting: Option<(Instant, Packet<P>)>,
    /// The link behind the rate: delay, loss, and what else happens to packets under way.
    wire: Channel<Packet<P>>,
}

#[derive(Debug)]
struct Rate {
    bottleneck: Bottleneck,
    /// The time that a packet of typical size takes.
    packet_time: Duration,
}

/// The size of a typical packet, in octets.
const TYPICAL_PACKET: u64 = 1500;

impl Rate {
    fn new(rate: NonZeroU64) -> Self {
        let nanos = TYPICAL_PACKET * 8 * 1_000_000_000 / rate.get();
        Rate { bottleneck: Bottleneck::new(rate), packet_time: Duration::from_nanos(nanos) }
    }
}

impl<P: Clone> Hop<P> {
    fn new(spec: &ChannelSpec, seed: u64) -> Self {
        let seed = seed ^ spec.conditions.seed;
        // The queue has the rate and the limit, so the wire has none.
        let wire = Conditions { rate: None, limit: usize::MAX, seed, ..spec.conditions.clone() };
        let packets = spec.queue.packets.min(spec.conditions.limit);
        Hop {
            to: spec.to,
            rate: spec.conditions.rate.map(Rate::new),
            queue: Queue::new(QueueLimits { packets, ..spec.queue }, seed ^ 1),
            transmitting: None,
            wire: Channel::new(wire),
        }
    }

    fn send(&mut self, now: Instant, packet: Packet<P>) {
        let octets = packet.octets;
        if self.rate.is_none() {
            self.wire.send(now, packet, octets);
            return;
        }
        self.queue.push(now, packet, octets as u64, |packet| {
            let capable = packet.ecn != Ecn::NotCapable;
            if capable {
                packet.ecn = Ecn::Marked;
            }
            capable
        });
        if self.transmitting.is_none() {
            self.transmit_next(now);
        }
    }

    /// Begins to transmit the oldest packet of the queue.
    fn transmit_next(&mut self, now: Instant) {
        let Some(rate) = &mut self.rate else { return };
        if let Some((packet, octets)) = self.queue.pop(now, rate.packet_time) {
            self.transmitting = Some((rate.bottleneck.pass(now, octets as usize), packet));
        }
    }

    /// Does everything that is due by now. Returns the packets that have arrived at the end of the
    /// link.
    fn run(&mut self, now: Instant) -> Vec<Packet<P>> {
        while let Some((at, packet)) = self.transmitting.take_if(|(at, _)| *at <= now) {
            let octets = packet.octets;
            self.wire.send(at, packet, octets);
            self.transmit_next(at);
        }
        std::iter::from_fn(|| self.wire.receive(now)).collect()
    }

    fn deadline(&self) -> Option<Instant> {
        let transmitted = self.transmitting.as_ref().map(|&(at, _)| at);
        transmitted.into_iter().chain(self.wire.deadline()).min()
    }
}

#[cfg(test)]
mod tests;
