//! The properties of the emulated network.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::Probability;

/// The properties of a [`Channel`](crate::Channel). The default is [`OFF`](Self::OFF).
///
/// As text, in a parameter or an environment variable, they are `off` or a list of these keys,
/// separated by commas. If a key occurs more than once, its last value applies.
///
/// | key | value | default |
/// |---|---|---|
/// | `loss`, `duplicate`, `reorder` | a percentage in steps of 0.0001 %: `1%`, `0.5%` | `0%` |
/// | `delay`, `jitter` | a time in `ns`, `us`, `ms` or `s`, at most 1 hour: `200us`, `1.5ms` | `0ns` |
/// | `rate` | bits a second in `bit`, `kbit`, `mbit` or `gbit` (thousands): `1gbit` | no limit |
/// | `limit` | packets, at least 1 | 10000 |
/// | `seed` | a number | 0 |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// The probability that a packet does not arrive.
    pub loss: Probability,
    /// The probability that a packet arrives twice. Each copy takes its share of the rate, and each
    /// may be reordered.
    pub duplicate: Probability,
    /// The probability that a packet is reordered. A reordered packet is held back until 1 to
    /// [`MAX_OVERTAKERS`](crate::MAX_OVERTAKERS) later packets have overtaken it. Each of these
    /// numbers is equally likely. If too few packets follow, the reordered packet arrives
    /// [`OVERTAKING_TIME`](crate::OVERTAKING_TIME) after its regular arrival.
    pub reorder: Probability,
    /// The time that each packet travels.
    pub delay: Duration,
    /// The maximum additional time that a packet travels. All times up to this maximum are equally
    /// likely. Jitter alone does not reorder packets: if a packet catches up with an earlier
    /// packet, both arrive at the same time, the earlier one first.
    pub jitter: Duration,
    /// The number of bits per second. `None` means no limit.
    pub rate: Option<NonZeroU64>,
    /// The maximum number of packets in flight, including those that wait for the rate. Further
    /// packets are lost.
    pub limit: usize,
    /// The seed of the random numbers. The same seed and the same calls give the same result.
    pub seed: u64,
}

impl Conditions {
    /// A network in which all packets arrive at once, in order.
    pub const OFF: Self = Self {
        loss: Probability::NEVER,
        duplicate: Probability::NEVER,
        reorder: Probability::NEVER,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        rate: None,
        limit: 10_000,
        seed: 0,
    };

    /// Whether the conditions equal [`OFF`](Self::OFF), except for the seed.
    pub fn is_off(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::OFF }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::OFF
    }
}
