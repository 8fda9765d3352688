//! The functions that only uDAPL 2.0 has, or that have other arguments in 2.0 than in 1.2.
//! [`libdat::functions!`] defines the functions that both versions have with the same arguments.

use dat_sys::*;

libdat::functions!("DAT_2.0");

libdat::forward! {
    "DAT_2.0";
    dat_cno_fd_create(IA, fd: *mut DAT_FD, cno: *mut DAT_CNO_HANDLE) => cno_fd_create_func;
    dat_cno_trigger(CNO, evd: *mut DAT_EVD_HANDLE) => cno_trigger_func;
    dat_cr_reject(CR, size: DAT_COUNT, private_data: DAT_PVOID) => cr_reject_func;
    dat_ep_common_connect(EP, address: DAT_IA_ADDRESS_PTR, timeout: DAT_TIMEOUT, size: DAT_COUNT,
        private_data: DAT_PVOID) => ep_common_connect_func;
    dat_ep_post_send_with_invalidate(EP, segments: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS, invalidate: DAT_BOOLEAN,
        rmr_context: DAT_RMR_CONTEXT) => ep_post_send_with_invalidate_func;
    dat_ep_post_rdma_read_to_rmr(EP, local: *const DAT_RMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS) => ep_post_rdma_read_to_rmr_func;
    dat_lmr_create(IA, mem_type: DAT_MEM_TYPE, region: DAT_REGION_DESCRIPTION, length: DAT_VLEN,
        pz: DAT_PZ_HANDLE, privileges: DAT_MEM_PRIV_FLAGS, va_type: DAT_VA_TYPE, lmr: *mut DAT_LMR_HANDLE,
        lmr_context: *mut DAT_LMR_CONTEXT, rmr_context: *mut DAT_RMR_CONTEXT, registered_length: *mut DAT_VLEN,
        registered_address: *mut DAT_VADDR) => lmr_create_func;
    dat_rmr_create_for_ep(PZ, rmr: *mut DAT_RMR_HANDLE) => rmr_create_for_ep_func;
    dat_rmr_bind(RMR, lmr: DAT_LMR_HANDLE, triplet: *const DAT_LMR_TRIPLET, privileges: DAT_MEM_PRIV_FLAGS,
        va_type: DAT_VA_TYPE, ep: DAT_EP_HANDLE, cookie: DAT_RMR_COOKIE, flags: DAT_COMPLETION_FLAGS,
        context: *mut DAT_RMR_CONTEXT) => rmr_bind_func;
    dat_csp_create(IA, comm: *mut DAT_COMM, address: DAT_IA_ADDRESS_PTR, evd: DAT_EVD_HANDLE,
        csp: *mut DAT_CSP_HANDLE) => csp_create_func;
    dat_csp_query(CSP, mask: DAT_CSP_PARAM_MASK, param: *mut DAT_CSP_PARAM) => csp_query_func;
    dat_csp_free(CSP) => csp_free_func;
}
