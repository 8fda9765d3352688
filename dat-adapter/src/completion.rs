//! Completion queues.

use adapter::Engine;
use dat_core::Result;
use dat_core::provider::{Completions, Polled, Token};

use crate::error::error;

/// A completion queue.
pub struct Cq<E: Engine>(pub(crate) adapter::Cq<E>);

// SAFETY: the promises of `Completions`, by their numbers:
// 1. The queue is a ring. It returns the completions that queue pairs of this adapter pushed, each
//    once, in the order of the pushes.
// 2. `poll_with` returns all published completions, and those of a queue pair were published before
//    the drop of `adapter::Qp` returned.
unsafe impl<E: Engine> Completions for Cq<E> {
    #[inline]
    unsafe fn poll(&self, out: &mut Polled<'_>) {
        // SAFETY: the caller is the one thread that polls. The closure does not call the queue. The
        // tokens in the queue come from `Transport::qp`.
        unsafe {
            self.0.poll_with(out.room(), |wc| out.push(wc.map_qp(|qp| Token::from_bits(qp))));
        }
    }

    #[inline]
    unsafe fn queued(&self) -> Option<usize> {
        // SAFETY: the caller is the one thread that polls.
        Some(unsafe { self.0.queued() })
    }

    #[inline]
    unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.0.arm(solicited) }
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.0.resize(depth) }.map_err(error)
    }
}
