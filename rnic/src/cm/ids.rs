//! Communication and transaction IDs.

/// The number of bits of a communication ID that name the adapter's slot.
const SLOT_BITS: u32 = 7;

/// A source of random numbers: the system's generator, or a seeded one in tests.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// Makes IDs. All are random, so a sender that has not seen a message of a connection has to guess
/// its IDs. IDs of earlier connections, which peers may remember and late datagrams may contain, do
/// not match.
pub(super) struct Ids {
    slot: u32,
    random: Random,
}

impl Ids {
    pub(super) fn new(slot: u8, random: Random) -> Self {
        assert!(u32::from(slot) < 1 << SLOT_BITS, "slot {slot}");
        Ids { slot: slot.into(), random }
    }

    /// Makes an unused communication ID, which is not 0. 25 of its 32 bits are random.
    pub(super) fn communication(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let id = ((self.random)() as u32) << SLOT_BITS | self.slot;
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

    fn ids(slot: u8, numbers: &'static [u64]) -> Ids {
        let mut numbers = numbers.iter().copied();
        Ids::new(slot, Box::new(move || numbers.next().expect("another random number")))
    }

    #[test]
    fn communication_ids_carry_the_slot_and_pass_over_those_taken() {
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
