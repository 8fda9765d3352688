//! Probabilities, and the reproducible random number generator.

/// A probability in steps of one in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// The probability of an event that never happens.
    pub const NEVER: Self = Self(0);
    /// The probability of an event that always happens.
    pub const ALWAYS: Self = Self(1_000_000);

    /// The probability of `times` out of a million, at most [`ALWAYS`](Self::ALWAYS).
    pub const fn per_million(times: u32) -> Self {
        if times < Self::ALWAYS.0 { Self(times) } else { Self::ALWAYS }
    }

    /// The probability of `times` out of a hundred, at most [`ALWAYS`](Self::ALWAYS).
    pub const fn percent(times: u32) -> Self {
        Self::per_million(times.saturating_mul(10_000))
    }

    /// The number of times out of a million that the event happens.
    pub const fn as_per_million(self) -> u32 {
        self.0
    }
}

/// The generator splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniformly distributed number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    pub(crate) fn happens(&mut self, probability: Probability) -> bool {
        self.below(Probability::ALWAYS.0.into()) < probability.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_always_is_always() {
        assert_eq!(Probability::percent(100), Probability::ALWAYS);
        assert_eq!(Probability::percent(u32::MAX), Probability::ALWAYS);
        assert_eq!(Probability::per_million(1_000_001), Probability::ALWAYS);
        assert_eq!(Probability::percent(1).as_per_million(), 10_000);
    }

    #[test]
    fn never_and_always_leave_nothing_to_chance() {
        let mut rng = SplitMix64::new(1);
        assert!(
            (0..100_000)
                .all(|_| !rng.happens(Probability::NEVER) && rng.happens(Probability::ALWAYS))
        );
    }

    /// The generator returns the first numbers of the published algorithm for seed 1234567.
    #[test]
    fn dice_are_splitmix64() {
        let mut rng = SplitMix64::new(1_234_567);
        let numbers = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
