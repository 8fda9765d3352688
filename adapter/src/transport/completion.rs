//! Completion queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_core::provider::{Completions, Polled, Token};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;

use crate::engine::Engine;
use crate::engines::{EngineSet, Engines};
use dat_core::error::no_memory;

/// A completion queue.
pub struct Cq<E: Engine> {
    pub(super) cq: Arc<rnic::Cq>,
    /// The engines whose queue pairs use the queue, as an [`EngineSet`].
    pub(super) used_by: AtomicU64,
    pub(super) engines: Arc<Engines<E>>,
}

impl<E: Engine> Cq<E> {
    /// The engines whose queue pairs use the queue.
    #[inline]
    pub(super) fn used_by(&self) -> EngineSet {
        EngineSet(self.used_by.load(Ordering::Acquire))
    }

    /// Prepares the queue for a queue pair of this engine. Only one thread at a time calls this.
    pub(super) fn prepare_for(&self, number: usize) {
        let before = self.used_by();
        let after = before.with(EngineSet::of(number));
        if before != EngineSet::EMPTY && after != before {
            // SAFETY: the locks of all engines whose queue pairs use the queue are held.
            self.engines.with_locks(before, || unsafe { self.cq.share() });
        }
        self.used_by.store(after.0, Ordering::Release);
    }
}

// SAFETY: the promises of `Completions`, by their numbers:
// 1. The queue is a ring. It returns the completions that queue pairs of this adapter pushed, each
//    once, in the order of the pushes.
// 2. `poll_with` returns all published completions, and those of a queue pair were published before
//    `Qp::drop` returned.
unsafe impl<E: Engine> Completions for Cq<E> {
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        // SAFETY: the caller is the one thread that polls. The closure does not call the queue. The
        // tokens in the queue come from `Transport::qp`.
        unsafe {
            self.cq.poll_with(out.room(), |wc| out.push(wc.map_qp(|qp| Token::from_bits(qp))))
        };
    }

    #[inline]
    unsafe fn queued(&self) -> Option<usize> {
        // SAFETY: the caller is the one thread that polls.
        Some(unsafe { self.cq.queued() })
    }

    #[inline]
    unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.cq.arm(solicited) }
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        // SAFETY: the locks of all engines are held whose queue pairs use the queue, and the caller
        // guarantees that no other thread polls during this call.
        let resize = || unsafe { self.cq.resize(depth) };
        match self.engines.exclude(|| self.used_by(), resize).map_err(no_memory)? {
            true => Ok(()),
            false => Err(Error::of(DAT_INVALID_STATE)),
        }
    }
}
