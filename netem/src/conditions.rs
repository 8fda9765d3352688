//! How bad the network is.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::Probability;

/// What a [`Link`](crate::Link) does to packets. The default is [`OFF`](Self::OFF).
///
/// As text, for a parameter or an environment variable, it is `off` or any of these, separated by commas; the last one
/// of a key counts:
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
    /// A packet does not arrive.
    pub loss: Probability,
    /// A packet arrives twice. Both copies take their turn at the rate, and either may be reordered.
    pub duplicate: Probability,
    /// A packet is held back until 1 to [`MAX_OVERTAKERS`](crate::MAX_OVERTAKERS) of those sent after it have overtaken
    /// it, all of these numbers alike; if fewer than that follow, until
    /// [`OVERTAKING_TIME`](crate::OVERTAKING_TIME) after it would have arrived.
    pub reorder: Probability,
    /// How long a packet travels.
    pub delay: Duration,
    /// How much longer a packet may travel, each duration up to this alike. Alone it changes no order: who catches up
    /// with the packet before arrives together with it, behind it.
    pub jitter: Duration,
    /// Bits a second; `None`: no limit.
    pub rate: Option<NonZeroU64>,
    /// Packets on their way at one time, those waiting for the rate included; one more is lost.
    pub limit: usize,
    /// The same seed and the same calls give the same network.
    pub seed: u64,
}

impl Conditions {
    /// All packets arrive at once, in order.
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

    /// Whether it is [`OFF`](Self::OFF), whatever the seed.
    pub fn is_off(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::OFF }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::OFF
    }
}
