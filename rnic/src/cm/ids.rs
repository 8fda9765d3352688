//! Communication and transaction IDs.

/// The low bits of a number, which are the same in all numbers of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowBits {
    /// The number of bits.
    pub count: u32,
    /// The value of the bits.
    pub value: u32,
}

impl LowBits {
    /// Returns a number whose low bits are these, and whose high bits are `rest`.
    #[inline]
    pub const fn append_to(self, rest: u32) -> u32 {
        rest << self.count | self.value
    }
}

/// A source of random numbers: the system's generator, or a seeded one in tests.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// Makes IDs. All are random, so a sender that has not seen a message of a connection has to guess
/// its IDs. IDs of earlier connections, which peers may remember and late datagrams may contain, do
/// not match.
pub(super) struct Ids {
    low_bits: LowBits,
    random: Random,
}

impl Ids {
    pub(super) fn new(low_bits: LowBits, random: Random) -> Self {
        assert!(low_bits.count < 32 && low_bits.value < 1 << low_bits.count, "{low_bits:?}");
        Ids { low_bits, random }
    }

    /// Makes an unused communication ID, which is not 0. All bits except `low_bits` are random.
    pub(super) fn communication(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let id = self.low_bits.append_to((self.random)() as u32);
            if id != 0 && !taken(id) {
                return id;
            }
        }
    }

    pub(super) fn transaction(&mut self) -> u64 {
        (self.random)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(value: u32, numbers: &'static [u64]) -> Ids {
        let mut numbers = numbers.iter().copied();
        Ids::new(
            LowBits { count: 7, value },
            Box::new(move || numbers.next().expect("another random number")),
        )
    }

    #[test]
    fn communication_ids_have_their_low_bits_and_pass_over_those_taken() {
        let mut ids = ids(77, &[5, 6, 5, 0x1FF_FFFF]);
        assert_eq!(ids.communication(|_| false), 5 << 7 | 77);
        assert_eq!(ids.communication(|id| id == 6 << 7 | 77), 5 << 7 | 77);
        assert_eq!(ids.communication(|_| false), 0xFFFF_FF80 | 77);
    }

    #[test]
    fn no_communication_id_is_zero() {
        assert_eq!(ids(0, &[0, 1 << 25, 3]).communication(|_| false), 3 << 7);
    }
}
