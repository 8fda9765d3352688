//! Completion queues.

use std::mem::MaybeUninit;
use std::sync::Arc;

use dat_core::provider::{Completions, Wc};
use dat_core::{Error, Result};
use dat_sys::DAT_INVALID_STATE;

use super::no_memory;
use crate::drive::Drive;
use crate::engine::Engine;
use crate::map;

/// Completion queue.
pub struct Cq<E: Engine> {
    pub(super) cq: Arc<rnic::Cq>,
    pub(super) drive: Arc<Drive<E>>,
}

impl<E: Engine> Completions for Cq<E> {
    #[inline]
    fn poll(&self, out: &mut [MaybeUninit<Wc>]) -> usize {
        let room = out.len();
        let mut places = out.iter_mut();
        let take = |wc| {
            if let Some(place) = places.next() {
                place.write(map::wc(wc));
            }
        };
        // SAFETY: dat-core polls and arms from one thread at a time; `take` does not call the queue.
        unsafe { self.cq.poll_with(room, take) }
    }

    #[inline]
    fn arm(&self, solicited: bool) -> bool {
        // SAFETY: as above.
        unsafe { self.cq.arm(solicited) }
    }

    fn resize(&self, depth: usize) -> Result<()> {
        let _lease = self.drive.desk.lock();
        // SAFETY: the lease is held, and dat-core does not poll meanwhile.
        match unsafe { self.cq.resize(depth) }.map_err(no_memory)? {
            true => Ok(()),
            false => Err(Error::of(DAT_INVALID_STATE)),
        }
    }
}
