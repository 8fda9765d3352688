//! The data path. The functions of the table only convert their arguments and call `ep/post.rs`,
//! `evd/` and `srq.rs`.

use std::ffi::c_void;

use dat_sys::*;

use super::convert::{AlignedSegments, data_path_code, segments};
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Object};
use crate::provider::{Remote, Segment, Transport};
use crate::srq::Srq;

/// Defines functions of the data path, as `control_functions!` defines control functions. Each
/// function works on one object and does not catch panics. On a thread-safe adapter it holds the
/// lock of the object's handle.
macro_rules! data_path_functions {
    ($(
        $(#[$attr:meta])*
        fn $name:ident($node:ident: $object:ty, $($arg:ident: $type:ty),* $(,)?) { $($body:tt)* }
    )*) => {$(
        $(#[$attr])*
        // The tables of uDAPL 1.2 call this function instead of inlining it. So the body has only
        // one caller, and the compiler inlines the body here.
        #[inline(never)]
        pub(super) unsafe extern "C" fn $name<T: Transport, const THREAD_SAFE: bool>(
            handle: *mut c_void,
            $($arg: $type),*
        ) -> DAT_RETURN {
            // SAFETY: `control_functions!` documents the assumptions. The consumer keeps the memory
            // of the segments mapped. If only one thread at a time may call a function, the lock of
            // the handle ensures that on a thread-safe adapter. On other adapters the consumer
            // ensures it.
            unsafe { on::<$object, THREAD_SAFE>(handle, stringify!($name), |$node| { $($body)* }) }
        }
    )*};
}

/// # Safety
/// The requirements of [`handle::get`] apply.
#[inline(always)]
unsafe fn on<O: Object, const THREAD_SAFE: bool>(
    handle: *mut c_void,
    name: &str,
    f: impl FnOnce(&Node<O>) -> Result<()>,
) -> DAT_RETURN {
    let result = handle::slot(handle).ok_or(Error::handle(O::INVALID)).and_then(|slot| {
        // SAFETY: the caller fulfils the contract of this function.
        let call = || unsafe { slot.object::<O>() }.and_then(f);
        if THREAD_SAFE { slot.locked(call) } else { call() }
    });
    data_path_code((handle as usize, name), result)
}

data_path_functions! {
    /// dat_ep_post_send.
    fn ep_post_send(
        ep: Ep<T>,
        count: DAT_COUNT,
        iov: *mut DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        ep.post_send(segments(count, iov, &mut AlignedSegments::new())?, cookie.as_64, flags)
    }

    /// dat_ep_post_send_with_invalidate.
    fn ep_post_send_with_invalidate(
        ep: Ep<T>,
        count: DAT_COUNT,
        iov: *mut DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
        invalidate: DAT_BOOLEAN,
        context: DAT_RMR_CONTEXT,
    ) {
        let context = match (invalidate, context) {
            (DAT_FALSE, _) => None,
            // The context 0 names no region.
            (DAT_TRUE, 0) => return Err(Error::arg(7)),
            (DAT_TRUE, context) => Some(context),
            _ => return Err(Error::arg(6)),
        };
        let mut aligned = AlignedSegments::new();
        let segments = segments(count, iov, &mut aligned)?;
        ep.post_send_with_invalidate(segments, cookie.as_64, flags, context)
    }

    /// dat_ep_post_recv.
    fn ep_post_recv(
        ep: Ep<T>,
        count: DAT_COUNT,
        iov: *mut DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        ep.post_recv(segments(count, iov, &mut AlignedSegments::new())?, cookie.as_64, flags)
    }

    /// dat_ep_post_rdma_read.
    fn ep_post_rdma_read(
        ep: Ep<T>,
        count: DAT_COUNT,
        iov: *mut DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        let (at, size) = target(remote, 5)?;
        let mut aligned = AlignedSegments::new();
        let segments = segments(count, iov, &mut aligned)?;
        ep.post_rdma_read(segments, cookie.as_64, at, size.into(), flags)
    }

    /// dat_ep_post_rdma_read_to_rmr.
    fn ep_post_rdma_read_to_rmr(
        ep: Ep<T>,
        local: *const DAT_RMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        let (sink, len) = target(local, 2)?;
        let (at, size) = target(remote, 4)?;
        let sink = Segment { addr: sink.addr, len, key: sink.key };
        ep.post_rdma_read_to_rmr(sink, cookie.as_64, at, size, flags)
    }

    /// dat_ep_post_rdma_write.
    fn ep_post_rdma_write(
        ep: Ep<T>,
        count: DAT_COUNT,
        iov: *mut DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        let (at, room) = target(remote, 5)?;
        let mut aligned = AlignedSegments::new();
        let segments = segments(count, iov, &mut aligned)?;
        ep.post_rdma_write(segments, cookie.as_64, at, room.into(), flags)
    }

    /// dat_srq_post_recv.
    fn srq_post_recv(
        srq: Srq<T>, count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE
    ) {
        srq.post_recv(segments(count, iov, &mut AlignedSegments::new())?, cookie.as_64)
    }

    /// dat_evd_dequeue.
    fn evd_dequeue(evd: Evd<T>, event: *mut DAT_EVENT) {
        if event.is_null() {
            return Err(Error::arg(2));
        }
        evd.dequeue_into(event)
    }
}

/// Returns the remote memory that an RMR triplet names, and its length in bytes. The triplet is the
/// argument at position `arg`.
///
/// # Safety
/// `triplet` is NULL or leads to a triplet, which need not be aligned.
#[inline]
pub(super) unsafe fn target(triplet: *const DAT_RMR_TRIPLET, arg: u32) -> Result<(Remote, u32)> {
    if triplet.is_null() {
        return Err(Error::arg(arg));
    }
    // SAFETY: the caller fulfils the contract of this function.
    let triplet = unsafe { triplet.read_unaligned() };
    Ok((Remote { addr: triplet.virtual_address, key: triplet.rmr_context }, triplet.segment_length))
}
