//! The usual network of experiments: sources, a bottleneck and a sink.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::queue::{Discipline, QueueLimits};
use crate::{Balance, Conditions, LinkSpec, Topology};

/// A dumbbell: each source has a link to a switch, the bottleneck leads from this switch to another
/// switch, and each sink has a link to the other switch.
///
/// ```text
/// source 0 ──┐                     ┌── sink 0
/// source 1 ──┤ switch ═════ switch ├── sink 1
/// source 2 ──┘     bottleneck      └── sink 2
/// ```
///
/// The bottleneck has the [conditions](Self::conditions), in both directions, and so has each of
/// several [paths](Self::paths). The links of sources and sinks lose nothing, have no delay, and
/// have [`ACCESS_RATE_MULTIPLE`] times the rate of the bottleneck.
///
/// As text, a dumbbell is a list of keys like [`Conditions`], with these keys in addition:
///
/// | key | value | default |
/// |---|---|---|
/// | `queue` | octets in front of the bottleneck, in each direction: `1500`, `128K`, `1M` | no limit |
/// | `mark` | the octets in the queue from which packets are marked (ECN) | no marks |
/// | `red` | random early detection between two averages, in octets: `30K-90K` | off |
/// | `paths` | the number of parallel bottlenecks, 1 to 16 | 1 |
/// | `skew` | the additional delay of each path after the first, against the previous one | `0ns` |
/// | `balance` | `flow` or `packet`: whether flows or packets are spread over the paths | `flow` |
/// | `mtu` | the octets of an IP packet, 576 to 9216 | 1500 |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumbbell {
    /// The properties of the bottleneck.
    pub conditions: Conditions,
    /// The maximum number of octets in the queue of the bottleneck.
    pub queue_octets: u64,
    /// What the queue of the bottleneck does before it is full.
    pub discipline: Discipline,
    /// The number of parallel bottlenecks.
    pub paths: usize,
    /// The additional delay of each path after the first, against the previous path.
    pub skew: Duration,
    /// How packets are spread over the paths.
    pub balance: Balance,
    /// The maximum number of octets of an IP packet.
    pub mtu: usize,
}

/// The rate of the links of sources and sinks, as a multiple of the rate of the bottleneck.
pub const ACCESS_RATE_MULTIPLE: u64 = 10;

/// The numbers of the nodes and links of a dumbbell.
#[derive(Clone, Debug)]
pub struct DumbbellLayout {
    /// The sources.
    pub sources: Vec<Host>,
    /// The sinks.
    pub sinks: Vec<Host>,
    /// The links of the bottleneck in the direction from the sources to the sinks, one for each
    /// path.
    pub bottlenecks: Vec<usize>,
}

/// The numbers of a host's node and of the link by which it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node.
    pub node: usize,
    /// The link from the node to the switch.
    pub uplink: usize,
}

impl Default for Dumbbell {
    fn default() -> Self {
        Dumbbell {
            conditions: Conditions::OFF,
            queue_octets: u64::MAX,
            discipline: Discipline::DropTail,
            paths: 1,
            skew: Duration::ZERO,
            balance: Balance::Flow,
            mtu: 1500,
        }
    }
}

impl Dumbbell {
    /// The topology for this number of sources, and as many sinks.
    pub fn topology(&self, pairs: usize) -> (Topology, DumbbellLayout) {
        const SWITCHES: [usize; 2] = [0, 1];
        let mut topology = Topology::new();
        let queue = QueueLimits {
            octets: self.queue_octets,
            packets: self.conditions.limit,
            discipline: self.discipline,
        };
        let [near, far] = SWITCHES;
        let mut bottlenecks = Vec::new();
        for path in 0..self.paths {
            let delay = self.conditions.delay + self.skew * path as u32;
            let conditions = Conditions { delay, ..self.conditions.clone() };
            let link = |from, to| LinkSpec { from, to, conditions: conditions.clone(), queue };
            bottlenecks.push(topology.add(link(near, far)));
            topology.add(link(far, near));
        }
        let rate = self.conditions.rate.map(|rate| {
            NonZeroU64::new(rate.get().saturating_mul(ACCESS_RATE_MULTIPLE)).unwrap_or(rate)
        });
        let access = Conditions { rate, limit: usize::MAX, ..Conditions::OFF };
        let mut attach = |switch, node| {
            let link = |from, to| LinkSpec {
                from,
                to,
                conditions: access.clone(),
                queue: QueueLimits::NONE,
            };
            topology.add(link(switch, node));
            Host { node, uplink: topology.add(link(node, switch)) }
        };
        let sources = (0..pairs).map(|pair| attach(near, 2 + 2 * pair)).collect();
        let sinks = (0..pairs).map(|pair| attach(far, 3 + 2 * pair)).collect();
        (topology, DumbbellLayout { sources, sinks, bottlenecks })
    }
}
