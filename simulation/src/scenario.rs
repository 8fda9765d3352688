//! A network and its load.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use netem::ConditionsError;
use netem::text::{parse_number, parse_octets, parse_time, parse_words};
use wire::rocev2::PathMtu;

use crate::{Discipline, Dumbbell};

/// A network and its load. As text, a scenario is a list of the keys of [`Dumbbell`] and
/// [`Conditions`](netem::Conditions), and of these keys:
///
/// | key | value | default |
/// |---|---|---|
/// | `flows` | the number of connections under test, 1 to 1000 | 1 |
/// | `operation` | `write`, `read` or `send` | `write` |
/// | `size` | the octets of a message, at most 64M | `1M` |
/// | `messages` | how many messages each flow moves | 1, or no limit with `time` |
/// | `depth` | how many messages each flow has outstanding at most, 1 to 64 | 1 |
/// | `time` | the time after which the experiment ends | when all messages are done |
/// | `receives` | how many receives the peers of `send` post: `many`, `one` at a time, `none` | `many` |
/// | `peer` | the other end of OpenDAT's and rxe's flows: `same`, `opendat` or `rxe` | `same` |
/// | `cubic`, `reno`, `rxe` | the number of flows of cross traffic | 0 |
///
/// `loss`, `duplicate`, `reorder`, `delay`, `jitter` and `rate` apply to the bottleneck in each
/// direction, so a round trip takes at least twice the delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The network.
    pub dumbbell: Dumbbell,
    /// The number of flows under test.
    pub flows: usize,
    /// The operation that moves a message.
    pub operation: Operation,
    /// The number of octets of a message.
    pub size: u32,
    /// The number of messages of each flow. `None` means no limit.
    pub messages: Option<usize>,
    /// The maximum number of outstanding messages of each flow.
    pub depth: usize,
    /// The time after which the experiment ends.
    pub time: Option<Duration>,
    /// The receives that the peer of a sender posts.
    pub receives: Receives,
    /// The protocol at the other end of a flow, if it differs.
    pub peer: Option<Protocol>,
    /// The cross traffic: the numbers of flows of CUBIC, Reno and rxe that share the network with
    /// the flows under test. They write messages of 64 KiB until the end.
    pub cross_traffic: [(Protocol, usize); 3],
}

/// An operation that moves a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// A send.
    Send,
}

/// What moves the messages of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The engine of softroce.
    OpenDat,
    /// A model of the kernel's rxe.
    Rxe,
    /// TCP with CUBIC.
    Cubic,
    /// TCP with Reno.
    Reno,
}

/// The receives that the peer of a sender posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receives {
    /// Always enough.
    Many,
    /// One, and the next one 10 µs after a message has taken it.
    One,
    /// None.
    None,
}

const EXPECTED_KEY: &str = "expected key=value, with a key of the load: flows, operation, size, messages, depth, time, \
     receives, peer, cubic, reno or rxe; a key of the network: queue, mark, red, paths, skew, \
     balance or mtu; or one of its links: loss, duplicate, reorder, delay, jitter, rate, limit or \
     seed";
const EXPECTED_FLOWS: &str = "expected a number of flows from 1 to 1000";
const EXPECTED_CROSS: &str = "expected a number of flows from 0 to 1000";
const EXPECTED_OPERATION: &str = "expected write, read or send";
const EXPECTED_SIZE: &str = "expected 1 to 64M octets, such as 64K";
const EXPECTED_MESSAGES: &str = "expected a number from 1 to 1000000";
const EXPECTED_DEPTH: &str = "expected a number from 1 to 64";
const EXPECTED_RECEIVES: &str = "expected many, one or none";
const EXPECTED_PEER: &str = "expected same, opendat or rxe";
const EXPECTED_TIME: &str = "expected a time from 1us to 1 hour, such as 5s (ns, us, ms, s)";
const NEEDS_RATE: &str = "a queue needs the rate of the bottleneck: add a rate, such as rate=1gbit";
const TIME_NEEDS_RATE: &str =
    "without a rate, any number of messages fits into the time: add a rate, such as rate=1gbit";
const RXE_HAS_RECEIVES: &str = "the model of rxe always has receives posted: use receives=many";
const TOO_MANY_FLOWS: &str = "expected at most 1000 flows, with those of cross traffic";
const TOO_MANY_OCTETS: &str =
    "expected at most 64 GiB in all: use fewer or smaller messages, or a shorter time";
const NEEDS_TIME: &str =
    "a sender whose peer posts no receive never ends: add a time, such as time=1s";
const NEEDS_SEND: &str = "receives matter only for sends: add operation=send";

const FLOWS: RangeInclusive<usize> = 1..=1000;
const CROSS: RangeInclusive<usize> = 0..=1000;
const FLOWS_MAX: usize = 1000;
/// The maximum number of octets that pass the bottleneck. They take some minutes.
const OCTETS_MAX: u128 = 64 << 30;
const SIZE_MAX: u64 = 64 << 20;
const MESSAGES: RangeInclusive<usize> = 1..=1_000_000;
/// The maximum number of outstanding messages of a flow.
pub(crate) const DEPTH_MAX: usize = 64;

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            dumbbell: Dumbbell::default(),
            flows: 1,
            operation: Operation::Write,
            size: 1 << 20,
            messages: None,
            depth: 1,
            time: None,
            receives: Receives::Many,
            peer: None,
            cross_traffic: [Protocol::Cubic, Protocol::Reno, Protocol::Rxe]
                .map(|protocol| (protocol, 0)),
        }
    }
}

impl FromStr for Scenario {
    type Err = ConditionsError;

    fn from_str(text: &str) -> Result<Self, ConditionsError> {
        let mut scenario = Scenario::default();
        parse_words(text, EXPECTED_KEY, |key, value| scenario.set(key, value))?;
        scenario
            .check()
            .map_err(|(key, expected)| ConditionsError { word: key.into(), expected })?;
        if scenario.time.is_none() {
            scenario.messages.get_or_insert(1);
        }
        Ok(scenario)
    }
}

impl Scenario {
    fn set(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        match key {
            "flows" => self.flows = parse_number(value, &FLOWS).ok_or(EXPECTED_FLOWS)?,
            "operation" => {
                let all = [Operation::Write, Operation::Read, Operation::Send];
                let named = all.into_iter().find(|operation| operation.to_string() == value);
                self.operation = named.ok_or(EXPECTED_OPERATION)?;
            }
            "size" => {
                let octets = parse_octets(value).ok().filter(|&octets| octets <= SIZE_MAX);
                self.size = octets.ok_or(EXPECTED_SIZE)? as u32;
            }
            "messages" => {
                self.messages = Some(parse_number(value, &MESSAGES).ok_or(EXPECTED_MESSAGES)?)
            }
            "depth" => self.depth = parse_number(value, &(1..=DEPTH_MAX)).ok_or(EXPECTED_DEPTH)?,
            "time" => {
                let time = parse_time(value).map_err(|_| EXPECTED_TIME)?;
                if time < Duration::from_micros(1) {
                    return Err(EXPECTED_TIME);
                }
                self.time = Some(time);
            }
            "receives" => {
                self.receives = match value {
                    "many" => Receives::Many,
                    "one" => Receives::One,
                    "none" => Receives::None,
                    _ => return Err(EXPECTED_RECEIVES),
                }
            }
            "peer" => {
                self.peer = match value {
                    "same" => None,
                    "opendat" => Some(Protocol::OpenDat),
                    "rxe" => Some(Protocol::Rxe),
                    _ => return Err(EXPECTED_PEER),
                }
            }
            _ => {
                let cross =
                    self.cross_traffic.iter_mut().find(|(protocol, _)| protocol.word() == key);
                let Some((_, flows)) = cross else { return self.dumbbell.set(key, value) };
                *flows = parse_number(value, &CROSS).ok_or(EXPECTED_CROSS)?;
            }
        }
        Ok(true)
    }

    /// Checks the parts of the scenario against each other.
    ///
    /// # Errors
    /// Returns the key that does not go with the others, and what to do.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let has_rate = self.dumbbell.conditions.rate.is_some();
        let is_peer_rxe = self.peer == Some(Protocol::Rxe);
        let has_receives = self.receives == Receives::Many;
        let queue = match self.dumbbell.discipline {
            Discipline::Threshold { .. } => Some("mark"),
            Discipline::Red { .. } => Some("red"),
            Discipline::DropTail => (self.dumbbell.queue_octets != u64::MAX).then_some("queue"),
        };
        match queue {
            Some(key) if !has_rate => Err((key, NEEDS_RATE)),
            _ if !has_receives && self.operation != Operation::Send => {
                Err(("receives", NEEDS_SEND))
            }
            _ if self.receives == Receives::None && self.time.is_none() => {
                Err(("receives", NEEDS_TIME))
            }
            _ if self.time.is_some() && !has_rate => Err(("time", TIME_NEEDS_RATE)),
            _ if !has_receives && is_peer_rxe => Err(("receives", RXE_HAS_RECEIVES)),
            _ if self.all_flows() > FLOWS_MAX => Err(("flows", TOO_MANY_FLOWS)),
            _ if self.octets() > OCTETS_MAX => Err(("messages", TOO_MANY_OCTETS)),
            _ => Ok(()),
        }
    }

    /// The number of flows, with those that are not under test.
    fn all_flows(&self) -> usize {
        self.flows + self.cross_traffic.iter().map(|(_, flows)| flows).sum::<usize>()
    }

    /// An upper bound of the octets that pass the bottleneck.
    fn octets(&self) -> u128 {
        let messages = match (self.messages, self.time) {
            (Some(messages), _) => messages as u128,
            (None, Some(_)) => u128::MAX,
            (None, None) => 1,
        };
        let all = messages.saturating_mul(self.flows as u128 * u128::from(self.size));
        let rate = self.dumbbell.conditions.rate.map_or(u128::MAX, |rate| rate.get().into());
        let nanos = self.time.map_or(u128::MAX, |time| time.as_nanos());
        all.min(rate.saturating_mul(nanos) / 8_000_000_000)
    }

    /// Whether a protocol can carry the load.
    pub fn suits(&self, protocol: Protocol) -> bool {
        let any_receives = self.receives == Receives::Many;
        match protocol {
            Protocol::OpenDat => true,
            Protocol::Rxe | Protocol::Cubic | Protocol::Reno => any_receives,
        }
    }

    /// The maximum payload of a RoCE packet.
    pub(crate) fn path_mtu(&self) -> PathMtu {
        PathMtu::of_interface(self.dumbbell.mtu).unwrap_or(PathMtu::Octets256)
    }
}

impl Protocol {
    /// The protocol's name in one word.
    pub const fn word(self) -> &'static str {
        match self {
            Protocol::OpenDat => "opendat",
            Protocol::Rxe => "rxe",
            Protocol::Cubic => "cubic",
            Protocol::Reno => "reno",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Send => "send",
        })
    }
}
