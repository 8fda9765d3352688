//! The buffer into which completions are polled, and the token that identifies the queue pair of a
//! completion.

use std::mem::MaybeUninit;

use super::Wc;
use crate::ep::Flow;

/// A buffer for completions, which is filled from its first slot on. Only pushed completions count,
/// so a transport cannot claim more completions than it has written.
#[derive(Debug)]
pub struct Polled<'a> {
    places: &'a mut [MaybeUninit<Wc>],
    filled: usize,
}

impl<'a> Polled<'a> {
    /// Creates an empty buffer.
    #[inline]
    pub fn new(places: &'a mut [MaybeUninit<Wc>]) -> Self {
        Polled { places, filled: 0 }
    }

    /// The number of completions that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.places.len() - self.filled
    }

    /// Adds a completion.
    ///
    /// # Panics
    /// The buffer has no room left.
    #[inline]
    pub fn push(&mut self, wc: Wc) {
        self.places[self.filled].write(wc);
        self.filled += 1;
    }

    /// The completions that were pushed, the oldest one first.
    #[inline]
    pub fn completions(&self) -> &[Wc] {
        // SAFETY: `push` has written each of the first `filled` places, and nothing else changes
        // `filled`.
        unsafe { self.places[..self.filled].assume_init_ref() }
    }
}

/// A number that identifies a queue pair to dat-core ([`QpCfg::token`](super::QpCfg::token)). Each
/// completion of the queue pair contains it ([`Wc::qp`]). The token is the address of dat-core's
/// data about the queue pair, so only dat-core creates tokens. A transport can copy a token and
/// store it as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(flow: &Flow) -> Self {
        Token(std::ptr::from_ref(flow).expose_provenance() as u64)
    }

    /// The token as a number, for queues that do not know the types of dat-core.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Converts a number to the token that it stands for.
    ///
    /// # Safety
    /// `bits` is the result of [`Token::to_bits`] for the queue pair whose completion gets the
    /// token. Another number is permitted only if no EVD takes this completion, for example in a
    /// test that polls the completion queue itself.
    #[inline]
    pub const unsafe fn from_bits(bits: u64) -> Self {
        Token(bits)
    }

    /// The flow that the token identifies.
    ///
    /// # Safety
    /// The token belongs to a completion that was just taken from the completion queue of an EVD.
    /// (The safety contracts of [`Queue`](super::Queue) and [`Completions`](super::Completions)
    /// guarantee that the flow still exists.)
    #[inline]
    pub(crate) unsafe fn flow<'a>(self) -> &'a Flow {
        // SAFETY: `Token::from_bits` only permits the address of a flow here, and the caller
        // guarantees the rest.
        unsafe { &*std::ptr::with_exposed_provenance(self.0 as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{WcOp, WcStatus};

    #[test]
    fn only_what_was_pushed_counts() {
        // SAFETY: no EVD takes this completion.
        let qp = unsafe { Token::from_bits(1) };
        let wc = |id| Wc {
            id,
            qp,
            bytes: 0,
            invalidated: None,
            immediate: None,
            op: WcOp::Send,
            status: WcStatus::Success,
        };
        let mut places = [const { MaybeUninit::uninit() }; 2];
        let mut polled = Polled::new(&mut places);
        assert_eq!((polled.room(), polled.completions()), (2, &[][..]));
        polled.push(wc(7));
        assert_eq!((polled.room(), polled.completions()), (1, &[wc(7)][..]));
        polled.push(wc(8));
        assert_eq!((polled.room(), polled.completions()), (0, &[wc(7), wc(8)][..]));
        let one_more =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| polled.push(wc(9))));
        assert!(one_more.is_err(), "a push without room must fail");
        assert_eq!(polled.completions(), &[wc(7), wc(8)]);
    }
}
