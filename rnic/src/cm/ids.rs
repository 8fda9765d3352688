//! Communication and transaction IDs.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Bits of a communication ID that name the adapter's slot.
const SLOT_BITS: u32 = 7;

/// Where IDs come from.
pub(super) struct Ids {
    slot: u32,
    /// The other 25 bits of the next communication ID. They start anywhere and run through all their values, so that
    /// neither a peer which believes in connections of an earlier process nor a late datagram meets one in use.
    next: u32,
    /// Transaction IDs must not be guessed by who has not seen them: they protect connections that have no other secret
    /// yet.
    secret: u64,
    transactions: u64,
}

impl Ids {
    pub(super) fn new(slot: u8, secret: u64) -> Self {
        assert!(u32::from(slot) < 1 << SLOT_BITS, "slot {slot}");
        let mut ids = Ids { slot: slot.into(), next: 0, secret, transactions: 0 };
        ids.next = ids.transaction() as u32;
        ids
    }

    /// A communication ID that is not taken; never 0.
    pub(super) fn communication(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let id = self.next << SLOT_BITS | self.slot;
            self.next = self.next.wrapping_add(1);
            if id != 0 && !taken(id) {
                return id;
            }
        }
    }

    pub(super) fn transaction(&mut self) -> u64 {
        self.transactions += 1;
        let mut hasher = DefaultHasher::new();
        (self.secret, self.transactions).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
impl Ids {
    /// The next communication ID; the slot is the same.
    pub(super) fn start_with(&mut self, id: u32) {
        self.next = id >> SLOT_BITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_ids_carry_the_slot_and_pass_over_those_taken() {
        let mut ids = Ids::new(77, 1);
        let first = ids.communication(|_| false);
        let third = ids.communication(|id| id == first.wrapping_add(1 << 7));
        assert_eq!([first & 0x7F, third & 0x7F], [77; 2]);
        assert_eq!(third, first.wrapping_add(2 << 7));
    }

    #[test]
    fn no_communication_id_is_zero() {
        let mut ids = Ids { next: 0, ..Ids::new(0, 1) };
        assert_eq!(ids.communication(|_| false), 1 << 7);
        let mut ids = Ids { next: 0x1FF_FFFF, ..Ids::new(0, 1) };
        assert_eq!([ids.communication(|_| false), ids.communication(|_| false)], [0xFFFF_FF80, 1 << 7]);
    }

    #[test]
    fn secrets_make_the_difference() {
        let [mut a, mut b, mut c] = [1, 1, 2].map(|secret| Ids::new(0, secret));
        let (a, b, c) = (a.transaction(), b.transaction(), c.transaction());
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}
