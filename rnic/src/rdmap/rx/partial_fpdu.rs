//! An FPDU with a CRC, of which only a part has arrived.

use wire::iwarp::mpa::fpdu::{self, fpdu_len};

/// The octets that have arrived, and room for more. The room is initialized memory as well. So a
/// wrong count of the octets that the socket has written exposes no uninitialized memory.
#[derive(Default)]
pub(super) struct PartialFpdu {
    memory: Vec<u8>,
    len: usize,
}

impl PartialFpdu {
    /// The octets that have arrived.
    #[inline]
    pub(super) fn octets(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends octets.
    pub(super) fn extend(&mut self, octets: &[u8]) {
        let end = self.len + octets.len();
        self.grow(end);
        self.memory[self.len..end].copy_from_slice(octets);
        self.len = end;
    }

    /// Returns the memory for the next `octets` octets.
    pub(super) fn room(&mut self, octets: usize) -> *mut u8 {
        self.grow(self.len + octets);
        self.memory[self.len..].as_mut_ptr()
    }

    /// Records that `octets` octets were written to the memory that `room` returned.
    pub(super) fn filled(&mut self, octets: usize) {
        self.len = self.memory.len().min(self.len + octets);
    }

    /// Empties the FPDU and keeps its memory for the next FPDU.
    pub(super) fn cleared(mut self) -> Self {
        const { assert!(fpdu_len(fpdu::MAX_ULPDU) < 1 << 17) };
        self.len = 0;
        self
    }

    fn grow(&mut self, to: usize) {
        if self.memory.len() < to {
            self.grow_now(to);
        }
    }

    #[cold]
    fn grow_now(&mut self, to: usize) {
        self.memory.reserve_exact(to - self.memory.len());
        self.memory.resize(to, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::PartialFpdu;

    #[test]
    fn octets_that_were_not_filled_are_initialized() {
        let mut fpdu = PartialFpdu::default();
        fpdu.extend(&[1, 2]);
        fpdu.room(3);
        fpdu.filled(2);
        assert_eq!(fpdu.octets(), [1, 2, 0, 0]);
        fpdu.filled(100);
        assert_eq!(
            fpdu.octets(),
            [1, 2, 0, 0, 0],
            "only octets for which there is room may be kept"
        );
        let mut next = fpdu.cleared();
        assert!(next.is_empty());
        next.filled(1);
        assert_eq!(next.octets(), [1], "the octet is left over from the previous FPDU");
    }
}
