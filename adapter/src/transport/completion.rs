//! Completion queues.

use std::sync::Arc;

use dat_core::provider::{Completions, Polled, Token};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;

use crate::engine::Engine;
use crate::reactor::Reactor;
use dat_core::error::no_memory;

/// A completion queue.
pub struct Cq<E: Engine> {
    pub(super) cq: Arc<rnic::Cq>,
    pub(super) reactor: Arc<Reactor<E>>,
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
    unsafe fn arm(&self, solicited: bool) -> bool {
        // SAFETY: the caller is the one thread that polls.
        unsafe { self.cq.arm(solicited) }
    }

    unsafe fn resize(&self, depth: usize) -> Result<()> {
        let _lock = self.reactor.engine.lock();
        // SAFETY: the engine lock is held, and the caller guarantees that no other thread polls
        // during this call.
        match unsafe { self.cq.resize(depth) }.map_err(no_memory)? {
            true => Ok(()),
            false => Err(Error::of(DAT_INVALID_STATE)),
        }
    }
}
