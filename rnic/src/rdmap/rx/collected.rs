//! An FPDU under a CRC that has not come whole.

use wire::iwarp::mpa::fpdu::{self, fpdu_len};

/// The octets of it that are there, and room for others. That room is initialised memory too: the socket
/// fills it, and how much of it is filled need not be believed.
#[derive(Default)]
pub(super) struct Collected {
    memory: Vec<u8>,
    len: usize,
}

impl Collected {
    /// The octets that are there.
    #[inline]
    pub(super) fn octets(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds octets.
    pub(super) fn extend(&mut self, octets: &[u8]) {
        let end = self.len + octets.len();
        self.grow(end);
        self.memory[self.len..end].copy_from_slice(octets);
        self.len = end;
    }

    /// Where so many more octets go.
    pub(super) fn room(&mut self, octets: usize) -> *mut u8 {
        self.grow(self.len + octets);
        self.memory[self.len..].as_mut_ptr()
    }

    /// So many octets have been put there.
    pub(super) fn filled(&mut self, octets: usize) {
        self.len = self.memory.len().min(self.len + octets);
    }

    /// Its memory, for the next FPDU.
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
    use super::Collected;

    #[test]
    fn what_is_said_to_be_filled_is_initialised() {
        let mut fpdu = Collected::default();
        fpdu.extend(&[1, 2]);
        fpdu.room(3);
        fpdu.filled(2);
        assert_eq!(fpdu.octets(), [1, 2, 0, 0]);
        fpdu.filled(100);
        assert_eq!(fpdu.octets(), [1, 2, 0, 0, 0], "there was no more room");
        let mut next = fpdu.cleared();
        assert!(next.is_empty());
        next.filled(1);
        assert_eq!(next.octets(), [1], "of the one before");
    }
}
