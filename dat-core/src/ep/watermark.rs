//! High watermarks: how many receive buffers an endpoint may hold.
//!
//! An endpoint *holds* the buffers that its messages have taken, from a shared receive queue or its own, until the
//! consumer has taken their completions (uDAPL 1.2, dat_srq_query: buffers in progress and completed ones on the EVD are
//! what the watermarks limit). A transport that receives in order has at most one in progress, so counting only those
//! would limit nothing.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use dat_sys::*;

use crate::srq::SrqShare;

/// The buffers that one queue pair holds, and how many it may. The transport counts what messages take, dat-core what
/// the consumer gets back: each counter has one writer.
#[derive(Debug)]
pub struct Holding {
    taken: AtomicU64,
    returned: AtomicU64,
    /// Armed once for each setting; [`DAT_WATERMARK_INFINITE`] when it has been told of.
    soft: AtomicI32,
    hard: AtomicI32,
    /// Nobody is told of completions.
    unheard: Option<Unheard>,
}

/// A buffer ends without an event: it is given back when a message takes it, to its shared receive queue where it is of one.
#[derive(Debug)]
struct Unheard(Option<SrqShare>);

/// Which watermarks are exceeded. They are independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceeded {
    /// For the first time since it was set: to be reported.
    pub soft: bool,
    /// The connection is to break.
    pub hard: bool,
}

impl Default for Holding {
    /// Nothing is held, anything may be.
    fn default() -> Self {
        Holding {
            taken: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            soft: AtomicI32::new(DAT_WATERMARK_INFINITE),
            hard: AtomicI32::new(DAT_WATERMARK_INFINITE),
            unheard: None,
        }
    }
}

impl Holding {
    /// For the next queue pair of the endpoint: the same watermarks, armed as they are.
    pub(super) fn successor(&self) -> Self {
        let copy = |mark: &AtomicI32| AtomicI32::new(mark.load(Ordering::Relaxed));
        Holding { soft: copy(&self.soft), hard: copy(&self.hard), ..Holding::default() }
    }

    /// The endpoint has no EVD for receives.
    pub(super) fn tell_nobody(&mut self, srq: Option<SrqShare>) {
        self.unheard = Some(Unheard(srq));
    }

    /// Sets a soft watermark: it is armed, whether or not the last one was exceeded.
    pub fn set_soft(&self, mark: DAT_COUNT) {
        self.soft.store(mark, Ordering::Relaxed);
    }

    /// Sets a hard watermark.
    pub fn set_hard(&self, mark: DAT_COUNT) {
        self.hard.store(mark, Ordering::Relaxed);
    }

    /// A message has taken a buffer. One thread at a time: the transport, under its engine lock.
    #[inline]
    pub fn took(&self) -> Exceeded {
        self.count();
        let exceeded = self.test();
        if let Some(Unheard(srq)) = &self.unheard {
            self.gave_back();
            srq.iter().for_each(SrqShare::retire);
        }
        exceeded
    }

    /// Counts a buffer that no message took, but whose completion will be counted back.
    pub(super) fn count(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// The consumer has the completion of a buffer. One thread at a time: who takes events from the receive EVD.
    #[inline]
    pub(super) fn gave_back(&self) {
        self.returned.store(self.returned.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Compares what is held with the watermarks; tells of the soft one at most once for each setting.
    #[inline]
    pub(super) fn test(&self) -> Exceeded {
        if !self.is_limited() {
            return Exceeded::default();
        }
        let soft = self.soft.load(Ordering::Relaxed);
        let hard = self.hard.load(Ordering::Relaxed);
        let held = self.held();
        let above = |mark| u64::try_from(mark).is_ok_and(|mark| held > mark);
        Exceeded {
            // Of those who see it exceeded one tells, and a new setting is not taken for the old one.
            soft: above(soft)
                && self
                    .soft
                    .compare_exchange(
                        soft,
                        DAT_WATERMARK_INFINITE,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    )
                    .is_ok(),
            hard: above(hard),
        }
    }

    /// There is a watermark: it matters when buffers are counted.
    pub fn is_limited(&self) -> bool {
        let none = |mark: &AtomicI32| mark.load(Ordering::Relaxed) == DAT_WATERMARK_INFINITE;
        !(none(&self.soft) && none(&self.hard))
    }

    /// Buffers held now.
    pub(super) fn held(&self) -> u64 {
        // In this order: what is returned has been taken.
        let returned = self.returned.load(Ordering::Acquire);
        self.taken.load(Ordering::Acquire).saturating_sub(returned)
    }
}

/// Whether dat_ep_set_watermark takes the value.
pub(super) fn is_valid(mark: DAT_COUNT) -> bool {
    mark >= 0 || mark == DAT_WATERMARK_INFINITE
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Exceeded = Exceeded { soft: false, hard: false };
    const SOFT: Exceeded = Exceeded { soft: true, hard: false };
    const HARD: Exceeded = Exceeded { soft: false, hard: true };

    #[test]
    fn a_soft_watermark_is_told_once_for_each_setting() {
        let holding = Holding::default();
        assert_eq!(holding.took(), FINE);
        holding.set_soft(2);
        assert_eq!(
            [holding.test(), holding.took(), holding.took(), holding.took()],
            [FINE, FINE, SOFT, FINE]
        );
        holding.set_soft(5);
        assert_eq!([holding.test(), holding.took(), holding.took()], [FINE, FINE, SOFT]);
        holding.set_soft(5);
        assert_eq!([holding.test(), holding.test()], [SOFT, FINE]);
    }

    #[test]
    fn what_was_given_back_is_not_held() {
        let holding = Holding::default();
        holding.set_hard(1);
        for _ in 0..4 {
            assert_eq!(holding.took(), FINE);
            holding.gave_back();
        }
        assert_eq!([holding.took(), holding.took(), holding.test()], [FINE, HARD, HARD]);
    }

    #[test]
    fn what_nobody_is_told_of_is_given_back_at_once() {
        let counts = std::sync::Arc::<crate::srq::SrqCounts>::default();
        let mut holding = Holding::default();
        holding.tell_nobody(Some(counts.share()));
        holding.set_hard(1);
        assert_eq!([holding.took(), holding.took(), holding.took()], [FINE; 3]);
        assert_eq!(holding.held(), 0);
        holding.set_hard(0);
        assert_eq!(holding.took(), HARD);
    }

    #[test]
    fn a_successor_is_armed_as_its_predecessor_and_holds_nothing() {
        let holding = Holding::default();
        holding.set_soft(0);
        holding.set_hard(1);
        assert_eq!(holding.took(), SOFT);
        let next = holding.successor();
        assert_eq!([next.took(), next.took()], [FINE, HARD]);
    }
}
