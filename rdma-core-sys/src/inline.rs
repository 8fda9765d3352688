//! The inline functions and macros of the C headers: calls through the context of an object.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use libc::{EINVAL, EOPNOTSUPP, EPERM};

use crate::{
    IBV_MW_TYPE_1, Verbs, ibv_context, ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc,
};

/// The end of `struct verbs_context`. New releases add members at the start of the structure, so
/// the distance of a member from the end never changes.
#[repr(C)]
struct verbs_context {
    query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    /// The members from `advise_mr` to `_ABI_placeholder3`.
    others: [*mut c_void; 38],
    /// The size in bytes of the whole structure in the library.
    sz: usize,
    context: ibv_context,
}

/// The distance in bytes of some members of `verbs_context` from its last member, the
/// [`ibv_context`].
pub(crate) const OFFSETS_BEFORE_CONTEXT: &[(&str, usize)] = &[
    ("query_port", offset_of!(verbs_context, context) - offset_of!(verbs_context, query_port)),
    ("sz", offset_of!(verbs_context, context) - offset_of!(verbs_context, sz)),
];

impl Verbs {
    /// Queries the state and the limits of a port.
    ///
    /// # Safety
    /// `context` must be open.
    pub unsafe fn query_port(
        &self,
        context: *mut ibv_context,
        port: u8,
    ) -> Result<ibv_port_attr, c_int> {
        let mut attr = ibv_port_attr::zeroed();
        // SAFETY: the caller guarantees that `context` is open.
        let done = match unsafe { extended_query_port(context) } {
            // SAFETY: the library has set `query`, and `context` is open.
            Some(query) => unsafe { query(context, port, &mut attr, size_of::<ibv_port_attr>()) },
            // SAFETY: the function writes only the first bytes of the structure, which existed
            // already in 2005.
            None => unsafe {
                (self.ibv_query_port)(context, port, ptr::from_mut(&mut attr).cast())
            },
        };
        if done == 0 { Ok(attr) } else { Err(done) }
    }

    /// Creates an unbound window. Returns null and sets errno on failure.
    ///
    /// # Safety
    /// `pd` must be live.
    pub unsafe fn ibv_alloc_mw(&self, pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
        // SAFETY: the caller guarantees that `pd` is live.
        match unsafe { (*(*pd).context).ops.alloc_mw } {
            // SAFETY: the driver has set `alloc`, and the caller guarantees that `pd` is live.
            Some(alloc) => unsafe { alloc(pd, kind) },
            None => {
                // SAFETY: the pointer is valid, because errno belongs to this thread.
                unsafe { *libc::__errno_location() = EOPNOTSUPP };
                ptr::null_mut()
            }
        }
    }

    /// Frees a window.
    ///
    /// # Safety
    /// `mw` must be live.
    pub unsafe fn ibv_dealloc_mw(&self, mw: *mut ibv_mw) -> c_int {
        // SAFETY: the caller guarantees that `mw` is live.
        unsafe { (*(*mw).context).ops.dealloc_mw.map_or(EOPNOTSUPP, |dealloc| dealloc(mw)) }
    }

    /// Posts the bind of a window of type 1. When the function returns, the window has its new key.
    ///
    /// # Safety
    /// All objects must be live and belong to one device.
    pub unsafe fn ibv_bind_mw(
        &self,
        qp: *mut ibv_qp,
        mw: *mut ibv_mw,
        bind: *mut ibv_mw_bind,
    ) -> c_int {
        // SAFETY: the caller guarantees that all objects are live and belong to one device.
        unsafe {
            let info = &(*bind).bind_info;
            if (*mw).r#type != IBV_MW_TYPE_1
                || (info.mr.is_null() && (info.addr != 0 || info.length != 0))
            {
                return EINVAL;
            }
            if !info.mr.is_null() && (*mw).pd != (*info.mr).pd {
                return EPERM;
            }
            (*(*mw).context).ops.bind_mw.map_or(EOPNOTSUPP, |f| f(qp, mw, bind))
        }
    }

    /// Takes the oldest completions. Returns their number, or a negative number on failure.
    ///
    /// # Safety
    /// `cq` must be live, and `wc` must have room for `entries`.
    #[inline]
    pub unsafe fn ibv_poll_cq(&self, cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: the caller guarantees that `cq` is live and that `wc` has room for `entries`;
        // every driver sets the function.
        unsafe { (*(*cq).context).ops.poll_cq.map_or(-EOPNOTSUPP, |f| f(cq, entries, wc)) }
    }

    /// Requests that the next completion cause one event on the channel.
    ///
    /// # Safety
    /// `cq` must be live.
    #[inline]
    pub unsafe fn ibv_req_notify_cq(&self, cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        // SAFETY: the caller guarantees that `cq` is live.
        unsafe { (*(*cq).context).ops.req_notify_cq.map_or(EOPNOTSUPP, |f| f(cq, solicited_only)) }
    }

    /// Posts requests. On failure `bad` points to the first request that was not posted.
    ///
    /// # Safety
    /// `qp` must be live and `wr` a list whose memory stays valid until the requests complete.
    #[inline]
    pub unsafe fn ibv_post_send(
        &self,
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the caller guarantees that `qp` is live and that the memory of the list `wr`
        // stays valid until the requests complete.
        unsafe { (*(*qp).context).ops.post_send.map_or(EOPNOTSUPP, |f| f(qp, wr, bad)) }
    }

    /// Posts receives, like [`ibv_post_send`](Self::ibv_post_send).
    ///
    /// # Safety
    /// The requirements are those of [`ibv_post_send`](Self::ibv_post_send).
    #[inline]
    pub unsafe fn ibv_post_recv(
        &self,
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the caller guarantees that `qp` is live and that the memory of the list `wr`
        // stays valid until the receives complete.
        unsafe { (*(*qp).context).ops.post_recv.map_or(EOPNOTSUPP, |f| f(qp, wr, bad)) }
    }

    /// Posts receives to a shared receive queue, like [`ibv_post_send`](Self::ibv_post_send).
    ///
    /// # Safety
    /// The requirements are those of [`ibv_post_send`](Self::ibv_post_send).
    #[inline]
    pub unsafe fn ibv_post_srq_recv(
        &self,
        srq: *mut ibv_srq,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the caller guarantees that `srq` is live and that the memory of the list `wr`
        // stays valid until the receives complete.
        unsafe { (*(*srq).context).ops.post_srq_recv.map_or(EOPNOTSUPP, |f| f(srq, wr, bad)) }
    }
}

type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;

/// Returns the function `query_port` of the `verbs_context`, if this context is the end of a
/// sufficiently large `verbs_context`.
///
/// # Safety
/// `context` must be open.
unsafe fn extended_query_port(context: *mut ibv_context) -> Option<QueryPort> {
    // SAFETY: the caller guarantees that `context` is open.
    if unsafe { (*context).abi_compat }.addr() != usize::MAX {
        return None;
    }
    // SAFETY: `abi_compat` states that the rest of a `verbs_context` precedes the context, with its
    // size directly before it.
    let size = unsafe { *context.cast::<usize>().sub(1) };
    if size < size_of::<verbs_context>() {
        return None;
    }
    // SAFETY: according to `size`, the rest of the `verbs_context` is at least as long as the
    // structure here.
    unsafe {
        (*context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>()).query_port
    }
}
