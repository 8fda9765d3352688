//! What a completion queue is polled into, and what a completion says of its queue pair.

use std::mem::MaybeUninit;

use super::Wc;
use crate::ep::Flow;

/// Places for completions, filled from the first one on. Only what was pushed counts, so a transport cannot
/// claim more completions than it has written.
#[derive(Debug)]
pub struct Polled<'a> {
    places: &'a mut [MaybeUninit<Wc>],
    filled: usize,
}

impl<'a> Polled<'a> {
    /// None of these places is filled.
    #[inline]
    pub fn new(places: &'a mut [MaybeUninit<Wc>]) -> Self {
        Polled { places, filled: 0 }
    }

    /// Completions that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.places.len() - self.filled
    }

    /// Adds a completion.
    ///
    /// # Panics
    /// There is no room.
    #[inline]
    pub fn push(&mut self, wc: Wc) {
        self.places[self.filled].write(wc);
        self.filled += 1;
    }

    /// The completions that were pushed, the oldest one first.
    #[inline]
    pub fn completions(&self) -> &[Wc] {
        // SAFETY: `push` has written each of the first `filled` places, and nobody else can count.
        unsafe { self.places[..self.filled].assume_init_ref() }
    }
}

/// Names a queue pair to dat-core ([`QpCfg::token`](super::QpCfg::token)) and comes back in each of its
/// completions ([`Wc::qp`]). It is the address of what dat-core knows about the queue pair, so only dat-core
/// makes one. A transport can copy it, and keep it as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(flow: &Flow) -> Self {
        Token(std::ptr::from_ref(flow).expose_provenance() as u64)
    }

    /// As a number, for queues that know nothing of dat-core.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From a number.
    ///
    /// # Safety
    /// The number is [`Token::to_bits`] of the queue pair in whose completion the token is to be; or no EVD
    /// takes completions from the queue where that completion goes, as in a test that polls the queue itself.
    #[inline]
    pub const unsafe fn from_bits(bits: u64) -> Self {
        Token(bits)
    }

    /// What it names.
    ///
    /// # Safety
    /// It is that of a completion that was just taken from the completion queue of an EVD. (The
    /// [`Queue`](super::Queue) and the [`Completions`](super::Completions) have promised that the flow is
    /// still there.)
    #[inline]
    pub(crate) unsafe fn flow<'a>(self) -> &'a Flow {
        // SAFETY: `Token::from_bits` admits no other number than the address of a flow here, and the caller
        // has promised the rest.
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
        assert!(one_more.is_err(), "there is no room");
        assert_eq!(polled.completions(), &[wc(7), wc(8)]);
    }
}
