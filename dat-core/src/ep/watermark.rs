//! High watermarks: limits on the number of receive buffers that an endpoint may hold.
//!
//! An endpoint *holds* a receive buffer from the time when a message takes the buffer until the
//! consumer has taken the buffer's completion. The buffer may come from a shared receive queue or
//! from the endpoint's own queue. So the watermarks limit both the buffers in progress and the
//! completed buffers on the EVD (uDAPL 1.2, dat_srq_query). A transport that receives in order has
//! at most one buffer in progress, so a limit on buffers in progress alone would limit nothing.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use dat_sys::*;

use crate::srq::SrqShare;

/// The number of buffers that one queue pair holds, and the limits of this number. The transport
/// counts the buffers that messages take. dat-core counts the buffers whose completions the
/// consumer has taken. Each counter has one writer.
#[derive(Debug)]
pub struct HeldBuffers {
    taken: AtomicU64,
    returned: AtomicU64,
    /// The soft watermark. When it has been reported once, it becomes [`DAT_WATERMARK_INFINITE`]
    /// until it is set again.
    soft: AtomicI32,
    hard: AtomicI32,
    /// Present if completions of receives are not reported.
    unreported: Option<UnreportedReceives>,
}

/// Says that the receives of an endpoint complete without events. A buffer then counts as returned
/// as soon as a message takes it. If the endpoint uses a shared receive queue, the buffer counts as
/// returned to that queue as well.
#[derive(Debug)]
struct UnreportedReceives(Option<SrqShare>);

/// Which watermarks are exceeded. The two watermarks are independent of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceeded {
    /// The soft watermark is exceeded for the first time since it was set, and must be reported.
    pub soft: bool,
    /// The hard watermark is exceeded, and the connection must be broken.
    pub hard: bool,
}

impl Default for HeldBuffers {
    /// Creates counters that hold no buffers and have no limits.
    fn default() -> Self {
        HeldBuffers {
            taken: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            soft: AtomicI32::new(DAT_WATERMARK_INFINITE),
            hard: AtomicI32::new(DAT_WATERMARK_INFINITE),
            unreported: None,
        }
    }
}

impl HeldBuffers {
    /// Creates the counters for the next queue pair of the endpoint, with the same watermarks. A
    /// soft watermark that was already reported is not reported again.
    pub(super) fn for_next_qp(&self) -> Self {
        let copy = |mark: &AtomicI32| AtomicI32::new(mark.load(Ordering::Relaxed));
        HeldBuffers { soft: copy(&self.soft), hard: copy(&self.hard), ..HeldBuffers::default() }
    }

    /// Declares that the endpoint has no EVD for receives.
    pub(super) fn set_unreported(&mut self, srq: Option<SrqShare>) {
        self.unreported = Some(UnreportedReceives(srq));
    }

    /// Sets the soft watermark. The new watermark is reported once when it is exceeded, even if the
    /// former watermark was already reported.
    pub fn set_soft(&self, mark: DAT_COUNT) {
        self.soft.store(mark, Ordering::Relaxed);
    }

    /// Sets a hard watermark.
    pub fn set_hard(&self, mark: DAT_COUNT) {
        self.hard.store(mark, Ordering::Relaxed);
    }

    /// Counts a buffer that a message has taken. The transport calls this under its engine lock, so
    /// only one thread at a time calls it.
    #[inline]
    pub fn buffer_taken(&self) -> Exceeded {
        self.count_taken();
        let exceeded = self.check();
        if let Some(UnreportedReceives(srq)) = &self.unreported {
            self.buffer_returned();
            srq.iter().for_each(SrqShare::retire);
        }
        exceeded
    }

    /// Counts a buffer as taken although no message has taken it. The completion of the receive
    /// then counts the buffer as returned.
    pub(super) fn count_taken(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts a buffer whose completion the consumer has taken. Only one thread at a time calls
    /// this function: the thread that takes events from the receive EVD or, if there is no receive
    /// EVD, the transport.
    #[inline]
    pub(super) fn buffer_returned(&self) {
        self.returned.store(self.returned.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Compares the number of held buffers with the watermarks. Reports the soft watermark at most
    /// once each time it is set.
    #[inline]
    pub(super) fn check(&self) -> Exceeded {
        if !self.is_limited() {
            return Exceeded::default();
        }
        let soft = self.soft.load(Ordering::Relaxed);
        let hard = self.hard.load(Ordering::Relaxed);
        let held = self.held();
        let above = |mark| u64::try_from(mark).is_ok_and(|mark| held > mark);
        Exceeded {
            // Exactly one thread succeeds in this exchange and reports the watermark. If another
            // thread has set a new watermark since this thread read the old watermark, the exchange
            // fails and the new watermark stays.
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

    /// Whether a watermark is set. If none is set, it does not matter when buffers are counted.
    pub fn is_limited(&self) -> bool {
        let none = |mark: &AtomicI32| mark.load(Ordering::Relaxed) == DAT_WATERMARK_INFINITE;
        !(none(&self.soft) && none(&self.hard))
    }

    /// The number of buffers that are held now.
    pub(super) fn held(&self) -> u64 {
        // Read `returned` first: each returned buffer was counted as taken before, so `taken`
        // cannot be the smaller number.
        let returned = self.returned.load(Ordering::Acquire);
        self.taken.load(Ordering::Acquire).saturating_sub(returned)
    }
}

/// Whether dat_ep_set_watermark accepts the value.
pub(super) fn is_valid(mark: DAT_COUNT) -> bool {
    mark >= 0 || mark == DAT_WATERMARK_INFINITE
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE_EXCEEDED: Exceeded = Exceeded { soft: false, hard: false };
    const SOFT_EXCEEDED: Exceeded = Exceeded { soft: true, hard: false };
    const HARD_EXCEEDED: Exceeded = Exceeded { soft: false, hard: true };

    #[test]
    fn a_soft_watermark_is_reported_once_for_each_setting() {
        let holding = HeldBuffers::default();
        assert_eq!(holding.buffer_taken(), NONE_EXCEEDED);
        holding.set_soft(2);
        assert_eq!(
            [
                holding.check(),
                holding.buffer_taken(),
                holding.buffer_taken(),
                holding.buffer_taken()
            ],
            [NONE_EXCEEDED, NONE_EXCEEDED, SOFT_EXCEEDED, NONE_EXCEEDED]
        );
        holding.set_soft(5);
        assert_eq!(
            [holding.check(), holding.buffer_taken(), holding.buffer_taken()],
            [NONE_EXCEEDED, NONE_EXCEEDED, SOFT_EXCEEDED]
        );
        holding.set_soft(5);
        assert_eq!([holding.check(), holding.check()], [SOFT_EXCEEDED, NONE_EXCEEDED]);
    }

    #[test]
    fn returned_buffers_are_not_held() {
        let holding = HeldBuffers::default();
        holding.set_hard(1);
        for _ in 0..4 {
            assert_eq!(holding.buffer_taken(), NONE_EXCEEDED);
            holding.buffer_returned();
        }
        assert_eq!(
            [holding.buffer_taken(), holding.buffer_taken(), holding.check()],
            [NONE_EXCEEDED, HARD_EXCEEDED, HARD_EXCEEDED]
        );
    }

    #[test]
    fn unreported_receives_are_returned_at_once() {
        let counts = std::sync::Arc::<crate::srq::SrqCounts>::default();
        let mut holding = HeldBuffers::default();
        holding.set_unreported(Some(counts.share()));
        holding.set_hard(1);
        assert_eq!(
            [holding.buffer_taken(), holding.buffer_taken(), holding.buffer_taken()],
            [NONE_EXCEEDED; 3]
        );
        assert_eq!(holding.held(), 0);
        holding.set_hard(0);
        assert_eq!(holding.buffer_taken(), HARD_EXCEEDED);
    }

    #[test]
    fn the_next_queue_pair_keeps_the_watermarks_and_holds_nothing() {
        let holding = HeldBuffers::default();
        holding.set_soft(0);
        holding.set_hard(1);
        assert_eq!(holding.buffer_taken(), SOFT_EXCEEDED);
        let next = holding.for_next_qp();
        assert_eq!([next.buffer_taken(), next.buffer_taken()], [NONE_EXCEEDED, HARD_EXCEEDED]);
    }
}
