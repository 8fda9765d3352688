//! The functions of the 1.2 table that have the same arguments in 2.0. Only the status is
//! converted.

use std::ptr::null_mut;

use dat_sys::*;

use super::convert::status;
use crate::export::{conn, ep, evd, ia, mem};
use crate::provider::Transport;

macro_rules! same {
    ($($name:ident $(<$safe:ident>)?($($arg:ident: $type:ty),*) => $function:expr;)*) => {$(
        #[doc = concat!("dat_", stringify!($name), ".")]
        // All functions have the same generic parameters, whether they use them or not.
        #[allow(clippy::too_many_arguments, clippy::extra_unused_type_parameters)]
        pub(super) unsafe extern "C" fn $name<T: Transport $(, const $safe: bool)?>(
            $($arg: $type),*
        ) -> DAT_RETURN {
            // SAFETY: the contract of this function includes that of the 2.0 function.
            status(unsafe { $function($($arg),*) })
        }
    )*};
}

same! {
    ia_close(ia: DAT_IA_HANDLE, close_flags: DAT_CLOSE_FLAGS) => ia::ia_close::<T>;
    set_consumer_context(dat: DAT_HANDLE, context: DAT_CONTEXT) => ia::set_consumer_context;
    get_consumer_context(dat: DAT_HANDLE, context: *mut DAT_CONTEXT) => ia::get_consumer_context;
    get_handle_type(dat: DAT_HANDLE, handle_type: *mut DAT_HANDLE_TYPE) => ia::get_handle_type;
    cno_create(
        ia: DAT_IA_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT, cno: *mut DAT_CNO_HANDLE
    ) => evd::cno_create::<T>;
    cno_modify_agent(
        cno: DAT_CNO_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT
    ) => evd::cno_modify_agent::<T>;
    cno_free(cno: DAT_CNO_HANDLE) => evd::cno_free::<T>;
    cr_query(
        cr: DAT_CR_HANDLE, cr_param_mask: DAT_CR_PARAM_MASK, cr_param: *mut DAT_CR_PARAM
    ) => conn::cr_query::<T>;
    cr_accept(
        cr: DAT_CR_HANDLE, ep: DAT_EP_HANDLE, private_data_size: DAT_COUNT, private_data: DAT_PVOID
    ) => conn::cr_accept::<T>;
    cr_handoff(cr: DAT_CR_HANDLE, handoff: DAT_CONN_QUAL) => conn::cr_handoff::<T>;
    evd_create(
        ia: DAT_IA_HANDLE, evd_min_qlen: DAT_COUNT, cno: DAT_CNO_HANDLE, evd_flags: DAT_EVD_FLAGS,
        evd: *mut DAT_EVD_HANDLE
    ) => evd::evd_create::<T>;
    evd_query<THREAD_SAFE>(
        evd: DAT_EVD_HANDLE, evd_param_mask: DAT_EVD_PARAM_MASK, evd_param: *mut DAT_EVD_PARAM
    ) => evd::evd_query::<T, THREAD_SAFE>;
    evd_modify_cno<THREAD_SAFE>(
        evd: DAT_EVD_HANDLE, cno: DAT_CNO_HANDLE
    ) => evd::evd_modify_cno::<T, THREAD_SAFE>;
    evd_enable<THREAD_SAFE>(evd: DAT_EVD_HANDLE) => evd::evd_enable::<T, THREAD_SAFE>;
    evd_disable<THREAD_SAFE>(evd: DAT_EVD_HANDLE) => evd::evd_disable::<T, THREAD_SAFE>;
    evd_resize<THREAD_SAFE>(
        evd: DAT_EVD_HANDLE, evd_min_qlen: DAT_COUNT
    ) => evd::evd_resize::<T, THREAD_SAFE>;
    evd_free<THREAD_SAFE>(evd: DAT_EVD_HANDLE) => evd::evd_free::<T, THREAD_SAFE>;
    ep_connect(
        ep: DAT_EP_HANDLE, remote_ia_address: DAT_IA_ADDRESS_PTR, remote_conn_qual: DAT_CONN_QUAL,
        timeout: DAT_TIMEOUT, private_data_size: DAT_COUNT, private_data: DAT_PVOID,
        quality_of_service: DAT_QOS, connect_flags: DAT_CONNECT_FLAGS
    ) => ep::ep_connect::<T>;
    ep_dup_connect(
        ep: DAT_EP_HANDLE, ep_dup: DAT_EP_HANDLE, timeout: DAT_TIMEOUT,
        private_data_size: DAT_COUNT, private_data: DAT_PVOID, quality_of_service: DAT_QOS
    ) => ep::ep_dup_connect::<T>;
    ep_disconnect<THREAD_SAFE>(
        ep: DAT_EP_HANDLE, close_flags: DAT_CLOSE_FLAGS
    ) => ep::ep_disconnect::<T, THREAD_SAFE>;
    ep_free<THREAD_SAFE>(ep: DAT_EP_HANDLE) => ep::ep_free::<T, THREAD_SAFE>;
    lmr_free(lmr: DAT_LMR_HANDLE) => mem::lmr_free::<T>;
    rmr_create(pz: DAT_PZ_HANDLE, rmr: *mut DAT_RMR_HANDLE) => mem::rmr_create::<T>;
    rmr_free(rmr: DAT_RMR_HANDLE) => mem::rmr_free::<T>;
    psp_create(
        ia: DAT_IA_HANDLE, conn_qual: DAT_CONN_QUAL, evd: DAT_EVD_HANDLE, psp_flags: DAT_PSP_FLAGS,
        psp: *mut DAT_PSP_HANDLE
    ) => conn::psp_create::<T>;
    psp_query(
        psp: DAT_PSP_HANDLE, psp_param_mask: DAT_PSP_PARAM_MASK, psp_param: *mut DAT_PSP_PARAM
    ) => conn::psp_query::<T>;
    psp_free(psp: DAT_PSP_HANDLE) => conn::psp_free::<T>;
    rsp_create(
        ia: DAT_IA_HANDLE, conn_qual: DAT_CONN_QUAL, ep: DAT_EP_HANDLE, evd: DAT_EVD_HANDLE,
        rsp: *mut DAT_RSP_HANDLE
    ) => conn::rsp_create::<T>;
    rsp_query(
        rsp: DAT_RSP_HANDLE, rsp_param_mask: DAT_RSP_PARAM_MASK, rsp_param: *mut DAT_RSP_PARAM
    ) => conn::rsp_query::<T>;
    rsp_free(rsp: DAT_RSP_HANDLE) => conn::rsp_free::<T>;
    pz_create(ia: DAT_IA_HANDLE, pz: *mut DAT_PZ_HANDLE) => mem::pz_create::<T>;
    pz_query(
        pz: DAT_PZ_HANDLE, pz_param_mask: DAT_PZ_PARAM_MASK, pz_param: *mut DAT_PZ_PARAM
    ) => mem::pz_query::<T>;
    pz_free(pz: DAT_PZ_HANDLE) => mem::pz_free::<T>;
    psp_create_any(
        ia: DAT_IA_HANDLE, conn_qual: *mut DAT_CONN_QUAL, evd: DAT_EVD_HANDLE,
        psp_flags: DAT_PSP_FLAGS, psp: *mut DAT_PSP_HANDLE
    ) => conn::psp_create_any::<T>;
    ep_reset<THREAD_SAFE>(ep: DAT_EP_HANDLE) => ep::ep_reset::<T, THREAD_SAFE>;
    evd_set_unwaitable<THREAD_SAFE>(evd: DAT_EVD_HANDLE)
        => evd::evd_set_unwaitable::<T, THREAD_SAFE>;
    evd_clear_unwaitable<THREAD_SAFE>(evd: DAT_EVD_HANDLE)
        => evd::evd_clear_unwaitable::<T, THREAD_SAFE>;
    ep_recv_query<THREAD_SAFE>(
        ep: DAT_EP_HANDLE, nbufs_allocated: *mut DAT_COUNT, bufs_alloc_span: *mut DAT_COUNT
    ) => ep::ep_recv_query::<T, THREAD_SAFE>;
    ep_set_watermark<THREAD_SAFE>(
        ep: DAT_EP_HANDLE, ep_soft_high_watermark: DAT_COUNT, hard_high_watermark: DAT_COUNT
    ) => ep::ep_set_watermark::<T, THREAD_SAFE>;
    srq_create(
        ia: DAT_IA_HANDLE, pz: DAT_PZ_HANDLE, srq_attributes: *mut DAT_SRQ_ATTR,
        srq: *mut DAT_SRQ_HANDLE
    ) => mem::srq_create::<T>;
    srq_free<THREAD_SAFE>(srq: DAT_SRQ_HANDLE) => mem::srq_free::<T, THREAD_SAFE>;
    srq_resize<THREAD_SAFE>(
        srq: DAT_SRQ_HANDLE, srq_max_recv_dto: DAT_COUNT
    ) => mem::srq_resize::<T, THREAD_SAFE>;
    srq_set_lw(srq: DAT_SRQ_HANDLE, low_watermark: DAT_COUNT) => mem::srq_set_lw::<T>;
}

/// dat_cr_reject. In uDAPL 1.2 the consumer passes no private data with a rejection.
pub(super) unsafe extern "C" fn cr_reject<T: Transport>(cr: DAT_CR_HANDLE) -> DAT_RETURN {
    // SAFETY: the contract of this function includes that of the 2.0 function.
    status(unsafe { conn::cr_reject::<T>(cr, 0, null_mut()) })
}

/// dat_cno_wait. The stack may be unwound through this function (see [`cancel`](waiting::cancel)).
pub(super) unsafe extern "C-unwind" fn cno_wait<T: Transport>(
    cno: DAT_CNO_HANDLE,
    timeout: DAT_TIMEOUT,
    evd: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN {
    // SAFETY: the contract of this function includes that of the 2.0 function.
    status(unsafe { evd::cno_wait::<T>(cno, timeout, evd) })
}
