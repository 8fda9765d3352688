//! The provider function table of uDAPL 1.2, and the signatures that differ from those of 2.0.
//! Three signatures have other arguments. In the others, the structures behind pointers differ.

use core::ffi::c_char;

use crate::describe::records;
use crate::v1::{
    DAT_CNO_PARAM, DAT_EP_ATTR, DAT_EP_PARAM, DAT_EVENT, DAT_IA_ATTR, DAT_LMR_PARAM,
    DAT_LMR_TRIPLET, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
use crate::*;

/// The signature of a provider's implementation of dat_ia_query.
pub type DAT_IA_QUERY_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    async_evd_handle: *mut DAT_EVD_HANDLE,
    ia_attr_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_query.
pub type DAT_CNO_QUERY_FUNC = unsafe extern "C" fn(
    cno_handle: DAT_CNO_HANDLE,
    cno_param_mask: DAT_CNO_PARAM_MASK,
    cno_param: *mut DAT_CNO_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cr_reject.
pub type DAT_CR_REJECT_FUNC = unsafe extern "C" fn(cr_handle: DAT_CR_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_wait. The stack is unwound through it if
/// the thread is cancelled.
pub type DAT_EVD_WAIT_FUNC = unsafe extern "C-unwind" fn(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    n_more_events: *mut DAT_COUNT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_post_se.
pub type DAT_EVD_POST_SE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, event: *const DAT_EVENT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_dequeue.
pub type DAT_EVD_DEQUEUE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, event: *mut DAT_EVENT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_create.
pub type DAT_EP_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    recv_completion_evd_handle: DAT_EVD_HANDLE,
    request_completion_evd_handle: DAT_EVD_HANDLE,
    connect_evd_handle: DAT_EVD_HANDLE,
    ep_attributes: *const DAT_EP_ATTR,
    ep_handle: *mut DAT_EP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_query.
pub type DAT_EP_QUERY_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *mut DAT_EP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_modify.
pub type DAT_EP_MODIFY_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *const DAT_EP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_send.
pub type DAT_EP_POST_SEND_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_recv.
pub type DAT_EP_POST_RECV_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_rdma_read.
pub type DAT_EP_POST_RDMA_READ_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_rdma_write.
pub type DAT_EP_POST_RDMA_WRITE_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_create.
pub type DAT_LMR_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    mem_type: DAT_MEM_TYPE,
    region_description: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz_handle: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    lmr_handle: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered_length: *mut DAT_VLEN,
    registered_address: *mut DAT_VADDR,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_query.
pub type DAT_LMR_QUERY_FUNC = unsafe extern "C" fn(
    lmr_handle: DAT_LMR_HANDLE,
    lmr_param_mask: DAT_LMR_PARAM_MASK,
    lmr_param: *mut DAT_LMR_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_query.
pub type DAT_RMR_QUERY_FUNC = unsafe extern "C" fn(
    rmr_handle: DAT_RMR_HANDLE,
    rmr_param_mask: DAT_RMR_PARAM_MASK,
    rmr_param: *mut DAT_RMR_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_bind.
pub type DAT_RMR_BIND_FUNC = unsafe extern "C" fn(
    rmr_handle: DAT_RMR_HANDLE,
    lmr_triplet: *const DAT_LMR_TRIPLET,
    mem_priv: DAT_MEM_PRIV_FLAGS,
    ep_handle: DAT_EP_HANDLE,
    user_cookie: DAT_RMR_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
    rmr_context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_sync_rdma_read.
pub type DAT_LMR_SYNC_RDMA_READ_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_sync_rdma_write.
pub type DAT_LMR_SYNC_RDMA_WRITE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_create_with_srq.
pub type DAT_EP_CREATE_WITH_SRQ_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    recv_completion_evd_handle: DAT_EVD_HANDLE,
    request_completion_evd_handle: DAT_EVD_HANDLE,
    connect_evd_handle: DAT_EVD_HANDLE,
    srq_handle: DAT_SRQ_HANDLE,
    ep_attributes: *const DAT_EP_ATTR,
    ep_handle: *mut DAT_EP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_post_recv.
pub type DAT_SRQ_POST_RECV_FUNC = unsafe extern "C" fn(
    srq_handle: DAT_SRQ_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
) -> DAT_RETURN;

records! {
    /// The function table behind every handle. The table has 70 words, at the offsets of the first
    /// 70 words of the table of 2.0.
    #[derive(Debug)]
    pub struct DAT_PROVIDER {
        /// The name of the IA, NUL-terminated.
        pub device_name: *const c_char,
        /// A pointer for the provider's own use.
        pub extension: DAT_PVOID,
        /// The provider's implementation of dat_ia_open.
        pub ia_open_func: Option<DAT_IA_OPEN_FUNC>,
        /// The provider's implementation of dat_ia_query.
        pub ia_query_func: Option<DAT_IA_QUERY_FUNC>,
        /// The provider's implementation of dat_ia_close.
        pub ia_close_func: Option<DAT_IA_CLOSE_FUNC>,
        /// The provider's implementation of dat_set_consumer_context.
        pub set_consumer_context_func: Option<DAT_SET_CONSUMER_CONTEXT_FUNC>,
        /// The provider's implementation of dat_get_consumer_context.
        pub get_consumer_context_func: Option<DAT_GET_CONSUMER_CONTEXT_FUNC>,
        /// The provider's implementation of dat_get_handle_type.
        pub get_handle_type_func: Option<DAT_GET_HANDLE_TYPE_FUNC>,
        /// The provider's implementation of dat_cno_create.
        pub cno_create_func: Option<DAT_CNO_CREATE_FUNC>,
        /// The provider's implementation of dat_cno_modify_agent.
        pub cno_modify_agent_func: Option<DAT_CNO_MODIFY_AGENT_FUNC>,
        /// The provider's implementation of dat_cno_query.
        pub cno_query_func: Option<DAT_CNO_QUERY_FUNC>,
        /// The provider's implementation of dat_cno_free.
        pub cno_free_func: Option<DAT_CNO_FREE_FUNC>,
        /// The provider's implementation of dat_cno_wait.
        pub cno_wait_func: Option<DAT_CNO_WAIT_FUNC>,
        /// The provider's implementation of dat_cr_query.
        pub cr_query_func: Option<DAT_CR_QUERY_FUNC>,
        /// The provider's implementation of dat_cr_accept.
        pub cr_accept_func: Option<DAT_CR_ACCEPT_FUNC>,
        /// The provider's implementation of dat_cr_reject.
        pub cr_reject_func: Option<DAT_CR_REJECT_FUNC>,
        /// The provider's implementation of dat_cr_handoff.
        pub cr_handoff_func: Option<DAT_CR_HANDOFF_FUNC>,
        /// The provider's implementation of dat_evd_create.
        pub evd_create_func: Option<DAT_EVD_CREATE_FUNC>,
        /// The provider's implementation of dat_evd_query.
        pub evd_query_func: Option<DAT_EVD_QUERY_FUNC>,
        /// The provider's implementation of dat_evd_modify_cno.
        pub evd_modify_cno_func: Option<DAT_EVD_MODIFY_CNO_FUNC>,
        /// The provider's implementation of dat_evd_enable.
        pub evd_enable_func: Option<DAT_EVD_ENABLE_FUNC>,
        /// The provider's implementation of dat_evd_disable.
        pub evd_disable_func: Option<DAT_EVD_DISABLE_FUNC>,
        /// The provider's implementation of dat_evd_wait.
        pub evd_wait_func: Option<DAT_EVD_WAIT_FUNC>,
        /// The provider's implementation of dat_evd_resize.
        pub evd_resize_func: Option<DAT_EVD_RESIZE_FUNC>,
        /// The provider's implementation of dat_evd_post_se.
        pub evd_post_se_func: Option<DAT_EVD_POST_SE_FUNC>,
        /// The provider's implementation of dat_evd_dequeue.
        pub evd_dequeue_func: Option<DAT_EVD_DEQUEUE_FUNC>,
        /// The provider's implementation of dat_evd_free.
        pub evd_free_func: Option<DAT_EVD_FREE_FUNC>,
        /// The provider's implementation of dat_ep_create.
        pub ep_create_func: Option<DAT_EP_CREATE_FUNC>,
        /// The provider's implementation of dat_ep_query.
        pub ep_query_func: Option<DAT_EP_QUERY_FUNC>,
        /// The provider's implementation of dat_ep_modify.
        pub ep_modify_func: Option<DAT_EP_MODIFY_FUNC>,
        /// The provider's implementation of dat_ep_connect.
        pub ep_connect_func: Option<DAT_EP_CONNECT_FUNC>,
        /// The provider's implementation of dat_ep_dup_connect.
        pub ep_dup_connect_func: Option<DAT_EP_DUP_CONNECT_FUNC>,
        /// The provider's implementation of dat_ep_disconnect.
        pub ep_disconnect_func: Option<DAT_EP_DISCONNECT_FUNC>,
        /// The provider's implementation of dat_ep_post_send.
        pub ep_post_send_func: Option<DAT_EP_POST_SEND_FUNC>,
        /// The provider's implementation of dat_ep_post_recv.
        pub ep_post_recv_func: Option<DAT_EP_POST_RECV_FUNC>,
        /// The provider's implementation of dat_ep_post_rdma_read.
        pub ep_post_rdma_read_func: Option<DAT_EP_POST_RDMA_READ_FUNC>,
        /// The provider's implementation of dat_ep_post_rdma_write.
        pub ep_post_rdma_write_func: Option<DAT_EP_POST_RDMA_WRITE_FUNC>,
        /// The provider's implementation of dat_ep_get_status.
        pub ep_get_status_func: Option<DAT_EP_GET_STATUS_FUNC>,
        /// The provider's implementation of dat_ep_free.
        pub ep_free_func: Option<DAT_EP_FREE_FUNC>,
        /// The provider's implementation of dat_lmr_create.
        pub lmr_create_func: Option<DAT_LMR_CREATE_FUNC>,
        /// The provider's implementation of dat_lmr_query.
        pub lmr_query_func: Option<DAT_LMR_QUERY_FUNC>,
        /// The provider's implementation of dat_lmr_free.
        pub lmr_free_func: Option<DAT_LMR_FREE_FUNC>,
        /// The provider's implementation of dat_rmr_create.
        pub rmr_create_func: Option<DAT_RMR_CREATE_FUNC>,
        /// The provider's implementation of dat_rmr_query.
        pub rmr_query_func: Option<DAT_RMR_QUERY_FUNC>,
        /// The provider's implementation of dat_rmr_bind.
        pub rmr_bind_func: Option<DAT_RMR_BIND_FUNC>,
        /// The provider's implementation of dat_rmr_free.
        pub rmr_free_func: Option<DAT_RMR_FREE_FUNC>,
        /// The provider's implementation of dat_psp_create.
        pub psp_create_func: Option<DAT_PSP_CREATE_FUNC>,
        /// The provider's implementation of dat_psp_query.
        pub psp_query_func: Option<DAT_PSP_QUERY_FUNC>,
        /// The provider's implementation of dat_psp_free.
        pub psp_free_func: Option<DAT_PSP_FREE_FUNC>,
        /// The provider's implementation of dat_rsp_create.
        pub rsp_create_func: Option<DAT_RSP_CREATE_FUNC>,
        /// The provider's implementation of dat_rsp_query.
        pub rsp_query_func: Option<DAT_RSP_QUERY_FUNC>,
        /// The provider's implementation of dat_rsp_free.
        pub rsp_free_func: Option<DAT_RSP_FREE_FUNC>,
        /// The provider's implementation of dat_pz_create.
        pub pz_create_func: Option<DAT_PZ_CREATE_FUNC>,
        /// The provider's implementation of dat_pz_query.
        pub pz_query_func: Option<DAT_PZ_QUERY_FUNC>,
        /// The provider's implementation of dat_pz_free.
        pub pz_free_func: Option<DAT_PZ_FREE_FUNC>,
        /// The provider's implementation of dat_psp_create_any.
        pub psp_create_any_func: Option<DAT_PSP_CREATE_ANY_FUNC>,
        /// The provider's implementation of dat_ep_reset.
        pub ep_reset_func: Option<DAT_EP_RESET_FUNC>,
        /// The provider's implementation of dat_evd_set_unwaitable.
        pub evd_set_unwaitable_func: Option<DAT_EVD_SET_UNWAITABLE_FUNC>,
        /// The provider's implementation of dat_evd_clear_unwaitable.
        pub evd_clear_unwaitable_func: Option<DAT_EVD_CLEAR_UNWAITABLE_FUNC>,
        /// The provider's implementation of dat_lmr_sync_rdma_read.
        pub lmr_sync_rdma_read_func: Option<DAT_LMR_SYNC_RDMA_READ_FUNC>,
        /// The provider's implementation of dat_lmr_sync_rdma_write.
        pub lmr_sync_rdma_write_func: Option<DAT_LMR_SYNC_RDMA_WRITE_FUNC>,
        /// The provider's implementation of dat_ep_create_with_srq.
        pub ep_create_with_srq_func: Option<DAT_EP_CREATE_WITH_SRQ_FUNC>,
        /// The provider's implementation of dat_ep_recv_query.
        pub ep_recv_query_func: Option<DAT_EP_RECV_QUERY_FUNC>,
        /// The provider's implementation of dat_ep_set_watermark.
        pub ep_set_watermark_func: Option<DAT_EP_SET_WATERMARK_FUNC>,
        /// The provider's implementation of dat_srq_create.
        pub srq_create_func: Option<DAT_SRQ_CREATE_FUNC>,
        /// The provider's implementation of dat_srq_free.
        pub srq_free_func: Option<DAT_SRQ_FREE_FUNC>,
        /// The provider's implementation of dat_srq_post_recv.
        pub srq_post_recv_func: Option<DAT_SRQ_POST_RECV_FUNC>,
        /// The provider's implementation of dat_srq_query.
        pub srq_query_func: Option<DAT_SRQ_QUERY_FUNC>,
        /// The provider's implementation of dat_srq_resize.
        pub srq_resize_func: Option<DAT_SRQ_RESIZE_FUNC>,
        /// The provider's implementation of dat_srq_set_lw.
        pub srq_set_lw_func: Option<DAT_SRQ_SET_LW_FUNC>,
    }
}

// SAFETY: `DAT_PROVIDER` is plain data, like the table of 2.0.
unsafe impl Send for DAT_PROVIDER {}
// SAFETY: `DAT_PROVIDER` is plain data, like the table of 2.0.
unsafe impl Sync for DAT_PROVIDER {}
