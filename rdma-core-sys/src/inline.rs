//! What the C headers define as inline functions and macros: calls through the context of an object.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use libc::{EINVAL, EOPNOTSUPP, EPERM};

use crate::{
    IBV_MW_TYPE_1, Verbs, ibv_context, ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc,
};

/// The end of `struct verbs_context`, which grows at its start: the older a member, the nearer it is to the end.
#[repr(C)]
struct verbs_context {
    query_port:
        Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    /// From `advise_mr` to `_ABI_placeholder3`.
    others: [*mut c_void; 38],
    /// Bytes of the whole, as the library has it.
    sz: usize,
    context: ibv_context,
}

/// How far before its end, the [`ibv_context`], its members start.
pub(crate) const BEFORE_CONTEXT: &[(&str, usize)] = &[
    ("query_port", offset_of!(verbs_context, context) - offset_of!(verbs_context, query_port)),
    ("sz", offset_of!(verbs_context, context) - offset_of!(verbs_context, sz)),
];

impl Verbs {
    /// State and limits of a port.
    ///
    /// # Safety
    /// `context` is open.
    pub unsafe fn query_port(
        &self,
        context: *mut ibv_context,
        port: u8,
    ) -> Result<ibv_port_attr, c_int> {
        let mut attr = ibv_port_attr::zeroed();
        // SAFETY: the context is open.
        let done = match unsafe { extended(context) } {
            // SAFETY: the library has filled in the function.
            Some(query) => unsafe { query(context, port, &mut attr, size_of::<ibv_port_attr>()) },
            // SAFETY: this writes what there was of the structure in 2005, its first bytes.
            None => unsafe {
                (self.ibv_query_port)(context, port, ptr::from_mut(&mut attr).cast())
            },
        };
        if done == 0 { Ok(attr) } else { Err(done) }
    }

    /// Makes an unbound window; null with errno if it cannot.
    ///
    /// # Safety
    /// `pd` is live.
    pub unsafe fn ibv_alloc_mw(&self, pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
        // SAFETY: as the caller promised.
        match unsafe { (*(*pd).context).ops.alloc_mw } {
            // SAFETY: the driver has filled in the function.
            Some(alloc) => unsafe { alloc(pd, kind) },
            None => {
                // SAFETY: errno is this thread's.
                unsafe { *libc::__errno_location() = EOPNOTSUPP };
                ptr::null_mut()
            }
        }
    }

    /// Ends a window.
    ///
    /// # Safety
    /// `mw` is live.
    pub unsafe fn ibv_dealloc_mw(&self, mw: *mut ibv_mw) -> c_int {
        // SAFETY: as the caller promised.
        unsafe { (*(*mw).context).ops.dealloc_mw.map_or(EOPNOTSUPP, |dealloc| dealloc(mw)) }
    }

    /// Queues the bind of a window of type 1; its new key is in the window then.
    ///
    /// # Safety
    /// All are live and of one device.
    pub unsafe fn ibv_bind_mw(
        &self,
        qp: *mut ibv_qp,
        mw: *mut ibv_mw,
        bind: *mut ibv_mw_bind,
    ) -> c_int {
        // SAFETY: as the caller promised.
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

    /// Takes completions, oldest first: how many, or a negative number.
    ///
    /// # Safety
    /// `cq` is live, and there is room for `entries` at `wc`.
    #[inline]
    pub unsafe fn ibv_poll_cq(&self, cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: as the caller promised; the library lets no driver leave it out.
        unsafe { (*(*cq).context).ops.poll_cq.map_or(-EOPNOTSUPP, |f| f(cq, entries, wc)) }
    }

    /// Asks for one event on the channel at the next completion.
    ///
    /// # Safety
    /// `cq` is live.
    #[inline]
    pub unsafe fn ibv_req_notify_cq(&self, cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        // SAFETY: as the caller promised.
        unsafe { (*(*cq).context).ops.req_notify_cq.map_or(EOPNOTSUPP, |f| f(cq, solicited_only)) }
    }

    /// Queues requests; the first that was not is in `bad`.
    ///
    /// # Safety
    /// `qp` is live, `wr` a list, and its memory stays valid until the requests complete.
    #[inline]
    pub unsafe fn ibv_post_send(
        &self,
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: as the caller promised.
        unsafe { (*(*qp).context).ops.post_send.map_or(EOPNOTSUPP, |f| f(qp, wr, bad)) }
    }

    /// Queues receive buffers; as above.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn ibv_post_recv(
        &self,
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: as the caller promised.
        unsafe { (*(*qp).context).ops.post_recv.map_or(EOPNOTSUPP, |f| f(qp, wr, bad)) }
    }

    /// Queues shared receive buffers; as above.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub unsafe fn ibv_post_srq_recv(
        &self,
        srq: *mut ibv_srq,
        wr: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: as the caller promised.
        unsafe { (*(*srq).context).ops.post_srq_recv.map_or(EOPNOTSUPP, |f| f(srq, wr, bad)) }
    }
}

type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;

/// The extended function, if this context is the end of a `verbs_context` that is large enough to have it.
///
/// # Safety
/// `context` is open.
unsafe fn extended(context: *mut ibv_context) -> Option<QueryPort> {
    // SAFETY: as the caller promised.
    if unsafe { (*context).abi_compat }.addr() != usize::MAX {
        return None;
    }
    // SAFETY: `abi_compat` says that what lies before the context is the rest of a `verbs_context`, its size in front of it.
    let size = unsafe { *context.cast::<usize>().sub(1) };
    if size < size_of::<verbs_context>() {
        return None;
    }
    // SAFETY: and that rest is as long as ours.
    unsafe {
        (*context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>()).query_port
    }
}
