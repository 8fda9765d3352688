//! The IB extension's operations on an endpoint. They are posted as all requests are; only the positions of their
//! arguments are others.

use dat_sys::*;

use super::Ep;
use super::post::length;
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::provider::{Remote, Segment, SendOp, Transport};

/// Bytes that an atomic operation works on.
const ATOMIC_SIZE: u32 = size_of::<u64>() as u32;

/// What an atomic operation does.
#[derive(Clone, Copy, Debug)]
pub enum Atomic {
    /// Adds.
    FetchAdd(u64),
    /// Replaces what is as expected.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// The replacement.
        swap: u64,
    },
}

/// # Safety of all posts
/// As of those in [`post`](super::post).
impl<T: Transport> Node<Ep<T>> {
    /// dat_ib_post_rdma_write_immed. `room`: bytes of the remote segment.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn post_rdma_write_immed(
        &self,
        segments: &[Segment],
        cookie: u64,
        (to, room): (Remote, u32),
        immediate: u32,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        if length(segments) > room.into() {
            self.refuse_if_strict()?;
        }
        let op = SendOp::WriteImm { to, immediate };
        // SAFETY: as the caller promised.
        unsafe { self.post_request(op, segments, cookie, flags, 8) }
            .map_err(|error| moved(error, 3, 4))
    }

    /// dat_ib_post_fetch_and_add and dat_ib_post_cmp_and_swap: what the target held goes to the first eight bytes of `sink`.
    /// `size`: bytes of the remote segment.
    ///
    /// # Safety
    /// As above.
    pub unsafe fn post_atomic(
        &self,
        atomic: Atomic,
        sink: Segment,
        cookie: u64,
        (at, size): (Remote, u32),
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        // What a shorter sink names would be written past its end.
        if sink.len < ATOMIC_SIZE {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        if size < ATOMIC_SIZE {
            self.refuse_if_strict()?;
        }
        let sink = [Segment { len: ATOMIC_SIZE, ..sink }];
        let (op, sink_arg) = match atomic {
            Atomic::FetchAdd(add) => (SendOp::FetchAdd { at, add }, 4),
            Atomic::CompareSwap { compare, swap } => (SendOp::CompareSwap { at, compare, swap }, 5),
        };
        // SAFETY: as the caller promised.
        unsafe { self.post_request(op, &sink, cookie, flags, sink_arg + 3) }
            .map_err(|error| moved(error, sink_arg, sink_arg))
    }
}

/// An error about the number of segments or about a segment, at the positions that these have in dat_extension_op.
#[cold]
fn moved(error: Error, count_arg: u32, segments_arg: u32) -> Error {
    match error {
        _ if error == Error::arg(2) => Error::arg(count_arg),
        _ if error == Error::arg(3) => Error::arg(segments_arg),
        _ => error,
    }
}
