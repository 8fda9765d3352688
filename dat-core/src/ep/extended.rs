//! The IB extension's operations on an endpoint. They are posted like other requests, but their
//! arguments have other positions.

use dat_sys::*;

use super::Ep;
use super::post::length;
use crate::error::{Error, Result};
use crate::handle::Node;
use crate::provider::{ATOMIC_SIZE, Remote, Segment, SendOp, Transport};

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub enum Atomic {
    /// Adds this value to the target.
    FetchAdd(u64),
    /// Replaces the target's value by `swap` if it equals `compare`.
    CompareSwap {
        /// The value that the target is expected to have.
        compare: u64,
        /// The new value of the target.
        swap: u64,
    },
}

/// # Safety of all posts
/// The requirements of all posts in [`post`](super::post) apply.
impl<T: Transport> Node<Ep<T>> {
    /// Implements dat_ib_post_rdma_write_immed. `room` is the length of the remote segment in
    /// bytes.
    ///
    /// # Safety
    /// The requirements of all posts in [`post`](super::post) apply.
    pub unsafe fn post_rdma_write_immed(
        &self,
        segments: &[Segment],
        cookie: u64,
        (to, room): (Remote, u32),
        immediate: u32,
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        if length(segments) > room.into() {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let op = SendOp::WriteImm { to, immediate };
        // SAFETY: the caller keeps the rules of all posts (see `post`).
        unsafe { self.post_request(op, segments, cookie, flags, 8) }
            .map_err(|error| renumber_arguments(error, 3, 4))
    }

    /// Implements dat_ib_post_fetch_and_add and dat_ib_post_cmp_and_swap. The old value of the
    /// target goes to the first eight bytes of `sink`. `size` is the length of the remote segment
    /// in bytes.
    ///
    /// # Safety
    /// The requirements of all posts in [`post`](super::post) apply.
    pub unsafe fn post_atomic(
        &self,
        atomic: Atomic,
        sink: Segment,
        cookie: u64,
        (at, size): (Remote, u32),
        flags: DAT_COMPLETION_FLAGS,
    ) -> Result<()> {
        // A sink that is too short must be refused, because the old value would be written past its
        // end.
        if sink.len < ATOMIC_SIZE || size < ATOMIC_SIZE {
            return Err(Error::of(DAT_LENGTH_ERROR));
        }
        let sink = [Segment { len: ATOMIC_SIZE, ..sink }];
        let (op, sink_arg) = match atomic {
            Atomic::FetchAdd(add) => (SendOp::FetchAdd { at, add }, 4),
            Atomic::CompareSwap { compare, swap } => (SendOp::CompareSwap { at, compare, swap }, 5),
        };
        // SAFETY: the caller keeps the rules of all posts (see `post`).
        unsafe { self.post_request(op, &sink, cookie, flags, sink_arg + 3) }
            .map_err(|error| renumber_arguments(error, sink_arg, sink_arg))
    }
}

/// Corrects the argument position in an error about the segments or their number. A post and
/// dat_extension_op have these arguments at different positions.
#[cold]
fn renumber_arguments(error: Error, count_arg: u32, segments_arg: u32) -> Error {
    match error {
        _ if error == Error::arg(2) => Error::arg(count_arg),
        _ if error == Error::arg(3) => Error::arg(segments_arg),
        _ => error,
    }
}
