//! The data path of uDAPL 1.2. Its conversions take no lock and allocate no memory: segments are
//! converted on the stack, and events while they are written to the consumer's record.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use dat_sys::*;

use super::convert::{convert_status, refuse, v1_functions};
use super::record::{TooLarge, lmr_triplet_to_2_0, write_event};
use crate::ep::Ep;
use crate::ep::post::MAX_SEGMENTS;
use crate::error::Error;
use crate::export::{evd, post};
use crate::handle::Object;
use crate::provider::Transport;
use crate::srq::Srq;

v1_functions! {
    /// dat_ep_post_send.
    fn ep_post_send<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        count: DAT_COUNT,
        iov: *mut v1::DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        with_segments::<Ep<T>>(ep, count, iov, |iov| {
            post::ep_post_send::<T, THREAD_SAFE>(ep, count, iov, cookie, flags)
        })
    }

    /// dat_ep_post_recv.
    fn ep_post_recv<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        count: DAT_COUNT,
        iov: *mut v1::DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        with_segments::<Ep<T>>(ep, count, iov, |iov| {
            post::ep_post_recv::<T, THREAD_SAFE>(ep, count, iov, cookie, flags)
        })
    }

    /// dat_ep_post_rdma_read. The whole remote segment is read, so a remote segment of 4 GiB or
    /// more is refused.
    fn ep_post_rdma_read<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        count: DAT_COUNT,
        iov: *mut v1::DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        remote: *const v1::DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        let max = DAT_SEG_LENGTH::MAX.into();
        if remote.as_ref().is_some_and(|remote| remote.segment_length > max) {
            return refuse::<Ep<T>>(ep, Error::of(DAT_LENGTH_ERROR));
        }
        with_segments::<Ep<T>>(ep, count, iov, |iov| {
            with_target(remote, |remote| {
                post::ep_post_rdma_read::<T, THREAD_SAFE>(ep, count, iov, cookie, remote, flags)
            })
        })
    }

    /// dat_ep_post_rdma_write. The remote segment may be longer than the longest message.
    fn ep_post_rdma_write<T, THREAD_SAFE>(
        ep: DAT_EP_HANDLE,
        count: DAT_COUNT,
        iov: *mut v1::DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
        remote: *const v1::DAT_RMR_TRIPLET,
        flags: DAT_COMPLETION_FLAGS,
    ) {
        with_segments::<Ep<T>>(ep, count, iov, |iov| {
            with_target(remote, |remote| {
                post::ep_post_rdma_write::<T, THREAD_SAFE>(ep, count, iov, cookie, remote, flags)
            })
        })
    }

    /// dat_srq_post_recv.
    fn srq_post_recv<T, THREAD_SAFE>(
        srq: DAT_SRQ_HANDLE,
        count: DAT_COUNT,
        iov: *mut v1::DAT_LMR_TRIPLET,
        cookie: DAT_DTO_COOKIE,
    ) {
        with_segments::<Srq<T>>(srq, count, iov, |iov| {
            post::srq_post_recv::<T, THREAD_SAFE>(srq, count, iov, cookie)
        })
    }

    /// dat_evd_dequeue.
    fn evd_dequeue<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE, event: *mut v1::DAT_EVENT) {
        deliver(event, |event| post::evd_dequeue::<T, THREAD_SAFE>(evd, event))
    }
}

/// dat_evd_wait. The stack may be unwound through this function (see [`cancel`](waiting::cancel)).
pub(super) unsafe extern "C-unwind" fn evd_wait<T: Transport, const THREAD_SAFE: bool>(
    evd: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut v1::DAT_EVENT,
    more: *mut DAT_COUNT,
) -> DAT_RETURN {
    // SAFETY: the contract of this function includes that of the 2.0 function.
    convert_status(|| unsafe {
        deliver(event, |event| {
            evd::evd_wait::<T, THREAD_SAFE>(evd, timeout, threshold, event, more)
        })
    })
}

/// Calls the post of uDAPL 2.0 with converted segments. The post itself refuses an invalid `count`
/// and a NULL pointer.
///
/// # Safety
/// `iov` is NULL or leads to `count` triplets, which need not be aligned. `handle` satisfies the
/// contract of [`handle::get`](crate::handle::get).
#[inline(always)]
unsafe fn with_segments<O: Object>(
    handle: *mut c_void,
    count: DAT_COUNT,
    iov: *mut v1::DAT_LMR_TRIPLET,
    post: impl FnOnce(*mut DAT_LMR_TRIPLET) -> DAT_RETURN,
) -> DAT_RETURN {
    let count = match usize::try_from(count) {
        Ok(count @ 1..=MAX_SEGMENTS) if !iov.is_null() => count,
        // SAFETY: the caller fulfils the contract of this function.
        Ok(count) if count > MAX_SEGMENTS => return refuse::<O>(handle, Error::arg(2)),
        _ => return post(iov.cast()),
    };
    let mut segments = [const { MaybeUninit::<DAT_LMR_TRIPLET>::uninit() }; MAX_SEGMENTS];
    for (at, segment) in segments.iter_mut().enumerate().take(count) {
        // SAFETY: this is one of the `count` triplets.
        match lmr_triplet_to_2_0(&unsafe { iov.add(at).read_unaligned() }) {
            Ok(converted) => segment.write(converted),
            // No adapter supports messages of that size.
            // SAFETY: the caller fulfils the contract of this function.
            Err(TooLarge) => return refuse::<O>(handle, Error::of(DAT_LENGTH_ERROR)),
        };
    }
    post(segments.as_mut_ptr().cast())
}

/// Calls the post of uDAPL 2.0 with the converted remote segment. A length of 4 GiB or more becomes
/// the largest length that 2.0 has, which is just below 4 GiB.
///
/// # Safety
/// `remote` is NULL or leads to a triplet, which need not be aligned.
#[inline(always)]
unsafe fn with_target(
    remote: *const v1::DAT_RMR_TRIPLET,
    post: impl FnOnce(*const DAT_RMR_TRIPLET) -> DAT_RETURN,
) -> DAT_RETURN {
    if remote.is_null() {
        return post(null());
    }
    // SAFETY: the caller fulfils the contract of this function.
    let remote = unsafe { remote.read_unaligned() };
    post(&DAT_RMR_TRIPLET {
        virtual_address: remote.target_address,
        segment_length: remote.segment_length.try_into().unwrap_or(DAT_SEG_LENGTH::MAX),
        rmr_context: remote.rmr_context,
    })
}

/// Takes an event in its 2.0 form and writes it to `event` in its 1.2 form.
///
/// # Safety
/// `event` is NULL or leads to memory in which an event may be written.
#[inline(always)]
unsafe fn deliver(
    event: *mut v1::DAT_EVENT,
    take: impl FnOnce(*mut DAT_EVENT) -> DAT_RETURN,
) -> DAT_RETURN {
    let mut taken = MaybeUninit::<DAT_EVENT>::uninit();
    let status = take(if event.is_null() { null_mut() } else { taken.as_mut_ptr() });
    if status == DAT_SUCCESS {
        // SAFETY: `take` has written the event. It would have refused a NULL pointer.
        unsafe { write_event(taken.as_ptr(), event) };
    }
    status
}
