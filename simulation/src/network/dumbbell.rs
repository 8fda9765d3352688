//! The usual network of experiments: sources, a bottleneck and a sink.

use std::num::NonZeroU64;
use std::time::Duration;

use netem::Conditions;
use netem::text::{parse_number, parse_octets, parse_time};

use super::queue::{Discipline, QueueLimits};
use super::{Balance, ChannelSpec, Topology};

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
/// have ten times the rate of the bottleneck.
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
pub(crate) const ACCESS_RATE_MULTIPLE: u64 = 10;

/// The numbers of the nodes and links of a dumbbell.
#[derive(Clone, Debug)]
pub(crate) struct DumbbellLayout {
    /// The sources.
    pub(crate) sources: Vec<Host>,
    /// The sinks.
    pub(crate) sinks: Vec<Host>,
    /// The links of the bottleneck in the direction from the sources to the sinks, one for each
    /// path.
    pub(crate) bottlenecks: Vec<usize>,
}

/// The numbers of a host's node and of the link by which it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// The node.
    pub(crate) node: usize,
    /// The link from the node to the switch.
    pub(crate) uplink: usize,
}

const EXPECTED_RED: &str = "expected two numbers of octets, the smaller one first, such as 30K-90K";
const EXPECTED_PATHS: &str = "expected a number from 1 to 16";
const EXPECTED_BALANCE: &str = "expected flow or packet";
const EXPECTED_MTU: &str = "expected a number of octets from 576 to 9216";

/// The valid numbers of paths of a dumbbell.
const PATHS: std::ops::RangeInclusive<usize> = 1..=16;
/// The valid sizes of an IP packet.
const MTUS: std::ops::RangeInclusive<usize> = 576..=9216;

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
    /// Sets the property with this key, one of the keys of a dumbbell or of [`Conditions`]. Returns
    /// false if there is no such key.
    ///
    /// # Errors
    /// If the value is wrong, returns a description of the valid values.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        match key {
            "queue" => self.queue_octets = parse_octets(value)?,
            "mark" => self.discipline = Discipline::Threshold { octets: parse_octets(value)? },
            "red" => {
                let (min, max) = value.split_once('-').ok_or(EXPECTED_RED)?;
                let [min, max] = [min, max].map(|text| parse_octets(text).ok());
                let (Some(min), Some(max)) = (min, max) else { return Err(EXPECTED_RED) };
                if min >= max {
                    return Err(EXPECTED_RED);
                }
                self.discipline = Discipline::Red { min, max };
            }
            "paths" => self.paths = parse_number(value, &PATHS).ok_or(EXPECTED_PATHS)?,
            "skew" => self.skew = parse_time(value)?,
            "balance" => {
                self.balance = match value {
                    "flow" => Balance::Flow,
                    "packet" => Balance::Packet,
                    _ => return Err(EXPECTED_BALANCE),
                }
            }
            "mtu" => self.mtu = parse_number(value, &MTUS).ok_or(EXPECTED_MTU)?,
            _ => return self.conditions.set(key, value),
        }
        Ok(true)
    }

    /// The topology for this number of sources, and as many sinks.
    pub(crate) fn topology(&self, pairs: usize) -> (Topology, DumbbellLayout) {
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
            let link = |from, to| ChannelSpec { from, to, conditions: conditions.clone(), queue };
            bottlenecks.push(topology.add(link(near, far)));
            topology.add(link(far, near));
        }
        let rate = self.conditions.rate.map(|rate| {
            NonZeroU64::new(rate.get().saturating_mul(ACCESS_RATE_MULTIPLE)).unwrap_or(rate)
        });
        let access = Conditions { rate, limit: usize::MAX, ..Conditions::OFF };
        let mut attach = |switch, node| {
            let link = |from, to| ChannelSpec {
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

#[cfg(test)]
mod tests {
    use netem::ConditionsError;
    use netem::text::parse_words;

    use super::*;

    const EXPECTED_OCTETS: &str =
        "expected a number of octets, at least 1, such as 1500, 128K or 1M";
    const EXPECTED_TIME: &str = "expected a time of at most 1 hour, such as 200us (ns, us, ms, s)";
    const EXPECTED_PERCENTAGE: &str =
        "expected a percentage from 0% to 100%, with at most 4 decimal places";

    fn dumbbell(text: &str) -> Result<Dumbbell, ConditionsError> {
        let mut dumbbell = Dumbbell::default();
        parse_words(text, "expected another key", |key, value| dumbbell.set(key, value))?;
        Ok(dumbbell)
    }

    #[test]
    fn a_dumbbell_has_keys_of_its_own_and_those_of_a_link() {
        let text = "rate=1gbit,queue=128K,mark=1500,paths=3,skew=5us,balance=packet,mtu=9000";
        let parsed = dumbbell(text).expect(text);
        assert_eq!(parsed.conditions, "rate=1gbit".parse().expect("the conditions are valid"));
        assert_eq!(parsed.queue_octets, 128 << 10);
        assert_eq!(parsed.discipline, Discipline::Threshold { octets: 1500 });
        assert_eq!((parsed.paths, parsed.skew), (3, Duration::from_micros(5)));
        assert_eq!((parsed.balance, parsed.mtu), (Balance::Packet, 9000));
        let red = dumbbell("red=30K-1.5M").expect("the conditions are valid").discipline;
        assert_eq!(red, Discipline::Red { min: 30 << 10, max: 3 << 19 });
    }

    #[test]
    fn errors_of_a_dumbbell_name_the_word() {
        for (text, expected) in [
            ("queue=0", EXPECTED_OCTETS),
            ("queue=1G", EXPECTED_OCTETS),
            ("queue=1.5", EXPECTED_OCTETS),
            ("mark=", EXPECTED_OCTETS),
            ("red=30K", EXPECTED_RED),
            ("red=30K-30K", EXPECTED_RED),
            ("red=0-30K", EXPECTED_RED),
            ("paths=0", EXPECTED_PATHS),
            ("paths=17", EXPECTED_PATHS),
            ("skew=1", EXPECTED_TIME),
            ("balance=", EXPECTED_BALANCE),
            ("mtu=575", EXPECTED_MTU),
            ("mtu=9217", EXPECTED_MTU),
            ("loss=1", EXPECTED_PERCENTAGE),
            ("flows=1", "expected another key"),
            ("queue", "expected another key"),
        ] {
            let why = dumbbell(text).expect_err(text).to_string();
            assert_eq!(why, format!("{text}: {expected}"));
        }
    }
}
