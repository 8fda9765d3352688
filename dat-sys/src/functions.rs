//! Signatures of the provider functions, in the order of [`DAT_PROVIDER`].
//!
//! The signatures match those of C exactly. In C, `const DAT_PVOID` is a constant pointer to
//! non-constant data. Therefore the pointers to private data are `*mut` here, although no provider
//! writes to private data.

use core::ffi::c_char;

use crate::*;

/// The signature of a provider's implementation of dat_ia_openv. The version and the thread safety
/// are not among the arguments, because the registry evaluates them.
///
#[doc = include_str!("../reference/dat_ia_open.md")]
pub type DAT_IA_OPEN_FUNC = unsafe extern "C" fn(
    provider: DAT_NAME_PTR,
    asynch_evd_min_qlen: DAT_COUNT,
    asynch_evd_handle: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ia_query.
///
#[doc = include_str!("../reference/dat_ia_query.md")]
pub type DAT_IA_QUERY_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    async_evd_handle: *mut DAT_EVD_HANDLE,
    ia_attr_mask: DAT_IA_ATTR_MASK,
    ia_attr: *mut DAT_IA_ATTR,
    provider_attr_mask: DAT_PROVIDER_ATTR_MASK,
    provider_attr: *mut DAT_PROVIDER_ATTR,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ia_close.
///
#[doc = include_str!("../reference/dat_ia_close.md")]
pub type DAT_IA_CLOSE_FUNC =
    unsafe extern "C" fn(ia_handle: DAT_IA_HANDLE, close_flags: DAT_CLOSE_FLAGS) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_set_consumer_context.
///
#[doc = include_str!("../reference/dat_set_consumer_context.md")]
pub type DAT_SET_CONSUMER_CONTEXT_FUNC =
    unsafe extern "C" fn(dat_handle: DAT_HANDLE, context: DAT_CONTEXT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_get_consumer_context.
///
#[doc = include_str!("../reference/dat_get_consumer_context.md")]
pub type DAT_GET_CONSUMER_CONTEXT_FUNC =
    unsafe extern "C" fn(dat_handle: DAT_HANDLE, context: *mut DAT_CONTEXT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_get_handle_type.
///
#[doc = include_str!("../reference/dat_get_handle_type.md")]
pub type DAT_GET_HANDLE_TYPE_FUNC =
    unsafe extern "C" fn(dat_handle: DAT_HANDLE, handle_type: *mut DAT_HANDLE_TYPE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_create.
///
#[doc = include_str!("../reference/dat_cno_create.md")]
pub type DAT_CNO_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    agent: DAT_OS_WAIT_PROXY_AGENT,
    cno_handle: *mut DAT_CNO_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_modify_agent.
///
#[doc = include_str!("../reference/dat_cno_modify_agent.md")]
pub type DAT_CNO_MODIFY_AGENT_FUNC =
    unsafe extern "C" fn(cno_handle: DAT_CNO_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_query.
///
#[doc = include_str!("../reference/dat_cno_query.md")]
pub type DAT_CNO_QUERY_FUNC = unsafe extern "C" fn(
    cno_handle: DAT_CNO_HANDLE,
    cno_param_mask: DAT_CNO_PARAM_MASK,
    cno_param: *mut DAT_CNO_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_free.
///
#[doc = include_str!("../reference/dat_cno_free.md")]
pub type DAT_CNO_FREE_FUNC = unsafe extern "C" fn(cno_handle: DAT_CNO_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_wait. The stack is unwound through it if
/// the thread is cancelled.
///
#[doc = include_str!("../reference/dat_cno_wait.md")]
pub type DAT_CNO_WAIT_FUNC = unsafe extern "C-unwind" fn(
    cno_handle: DAT_CNO_HANDLE,
    timeout: DAT_TIMEOUT,
    evd_handle: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cr_query.
///
#[doc = include_str!("../reference/dat_cr_query.md")]
pub type DAT_CR_QUERY_FUNC = unsafe extern "C" fn(
    cr_handle: DAT_CR_HANDLE,
    cr_param_mask: DAT_CR_PARAM_MASK,
    cr_param: *mut DAT_CR_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cr_accept.
///
#[doc = include_str!("../reference/dat_cr_accept.md")]
pub type DAT_CR_ACCEPT_FUNC = unsafe extern "C" fn(
    cr_handle: DAT_CR_HANDLE,
    ep_handle: DAT_EP_HANDLE,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cr_reject.
///
#[doc = include_str!("../reference/dat_cr_reject.md")]
pub type DAT_CR_REJECT_FUNC = unsafe extern "C" fn(
    cr_handle: DAT_CR_HANDLE,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cr_handoff.
///
#[doc = include_str!("../reference/dat_cr_handoff.md")]
pub type DAT_CR_HANDOFF_FUNC =
    unsafe extern "C" fn(cr_handle: DAT_CR_HANDLE, handoff: DAT_CONN_QUAL) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_create.
///
#[doc = include_str!("../reference/dat_evd_create.md")]
pub type DAT_EVD_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    evd_min_qlen: DAT_COUNT,
    cno_handle: DAT_CNO_HANDLE,
    evd_flags: DAT_EVD_FLAGS,
    evd_handle: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_query.
///
#[doc = include_str!("../reference/dat_evd_query.md")]
pub type DAT_EVD_QUERY_FUNC = unsafe extern "C" fn(
    evd_handle: DAT_EVD_HANDLE,
    evd_param_mask: DAT_EVD_PARAM_MASK,
    evd_param: *mut DAT_EVD_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_modify_cno.
///
#[doc = include_str!("../reference/dat_evd_modify_cno.md")]
pub type DAT_EVD_MODIFY_CNO_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, cno_handle: DAT_CNO_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_enable.
///
#[doc = include_str!("../reference/dat_evd_enable.md")]
pub type DAT_EVD_ENABLE_FUNC = unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_disable.
///
#[doc = include_str!("../reference/dat_evd_disable.md")]
pub type DAT_EVD_DISABLE_FUNC = unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_wait. The stack is unwound through it if
/// the thread is cancelled.
///
#[doc = include_str!("../reference/dat_evd_wait.md")]
pub type DAT_EVD_WAIT_FUNC = unsafe extern "C-unwind" fn(
    evd_handle: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    n_more_events: *mut DAT_COUNT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_resize.
///
#[doc = include_str!("../reference/dat_evd_resize.md")]
pub type DAT_EVD_RESIZE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, evd_min_qlen: DAT_COUNT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_post_se.
///
#[doc = include_str!("../reference/dat_evd_post_se.md")]
pub type DAT_EVD_POST_SE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, event: *const DAT_EVENT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_dequeue.
///
#[doc = include_str!("../reference/dat_evd_dequeue.md")]
pub type DAT_EVD_DEQUEUE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE, event: *mut DAT_EVENT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_free.
///
#[doc = include_str!("../reference/dat_evd_free.md")]
pub type DAT_EVD_FREE_FUNC = unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_create.
///
#[doc = include_str!("../reference/dat_ep_create.md")]
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
///
#[doc = include_str!("../reference/dat_ep_query.md")]
pub type DAT_EP_QUERY_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *mut DAT_EP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_modify.
///
#[doc = include_str!("../reference/dat_ep_modify.md")]
pub type DAT_EP_MODIFY_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_param_mask: DAT_EP_PARAM_MASK,
    ep_param: *const DAT_EP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_connect.
///
#[doc = include_str!("../reference/dat_ep_connect.md")]
pub type DAT_EP_CONNECT_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    remote_ia_address: DAT_IA_ADDRESS_PTR,
    remote_conn_qual: DAT_CONN_QUAL,
    timeout: DAT_TIMEOUT,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
    quality_of_service: DAT_QOS,
    connect_flags: DAT_CONNECT_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_dup_connect.
///
#[doc = include_str!("../reference/dat_ep_dup_connect.md")]
pub type DAT_EP_DUP_CONNECT_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_dup_handle: DAT_EP_HANDLE,
    timeout: DAT_TIMEOUT,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
    quality_of_service: DAT_QOS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_disconnect.
///
#[doc = include_str!("../reference/dat_ep_disconnect.md")]
pub type DAT_EP_DISCONNECT_FUNC =
    unsafe extern "C" fn(ep_handle: DAT_EP_HANDLE, close_flags: DAT_CLOSE_FLAGS) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_send.
///
#[doc = include_str!("../reference/dat_ep_post_send.md")]
pub type DAT_EP_POST_SEND_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_recv.
///
#[doc = include_str!("../reference/dat_ep_post_recv.md")]
pub type DAT_EP_POST_RECV_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_rdma_read.
///
#[doc = include_str!("../reference/dat_ep_post_rdma_read.md")]
pub type DAT_EP_POST_RDMA_READ_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_rdma_write.
///
#[doc = include_str!("../reference/dat_ep_post_rdma_write.md")]
pub type DAT_EP_POST_RDMA_WRITE_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_get_status.
///
#[doc = include_str!("../reference/dat_ep_get_status.md")]
pub type DAT_EP_GET_STATUS_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_state: *mut DAT_EP_STATE,
    recv_idle: *mut DAT_BOOLEAN,
    request_idle: *mut DAT_BOOLEAN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_free.
///
#[doc = include_str!("../reference/dat_ep_free.md")]
pub type DAT_EP_FREE_FUNC = unsafe extern "C" fn(ep_handle: DAT_EP_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_create.
///
#[doc = include_str!("../reference/dat_lmr_create.md")]
pub type DAT_LMR_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    mem_type: DAT_MEM_TYPE,
    region_description: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz_handle: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    lmr_handle: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered_length: *mut DAT_VLEN,
    registered_address: *mut DAT_VADDR,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_query.
///
#[doc = include_str!("../reference/dat_lmr_query.md")]
pub type DAT_LMR_QUERY_FUNC = unsafe extern "C" fn(
    lmr_handle: DAT_LMR_HANDLE,
    lmr_param_mask: DAT_LMR_PARAM_MASK,
    lmr_param: *mut DAT_LMR_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_free.
///
#[doc = include_str!("../reference/dat_lmr_free.md")]
pub type DAT_LMR_FREE_FUNC = unsafe extern "C" fn(lmr_handle: DAT_LMR_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_create.
///
#[doc = include_str!("../reference/dat_rmr_create.md")]
pub type DAT_RMR_CREATE_FUNC =
    unsafe extern "C" fn(pz_handle: DAT_PZ_HANDLE, rmr_handle: *mut DAT_RMR_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_query.
///
#[doc = include_str!("../reference/dat_rmr_query.md")]
pub type DAT_RMR_QUERY_FUNC = unsafe extern "C" fn(
    rmr_handle: DAT_RMR_HANDLE,
    rmr_param_mask: DAT_RMR_PARAM_MASK,
    rmr_param: *mut DAT_RMR_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_bind.
///
#[doc = include_str!("../reference/dat_rmr_bind.md")]
pub type DAT_RMR_BIND_FUNC = unsafe extern "C" fn(
    rmr_handle: DAT_RMR_HANDLE,
    lmr_handle: DAT_LMR_HANDLE,
    lmr_triplet: *const DAT_LMR_TRIPLET,
    mem_priv: DAT_MEM_PRIV_FLAGS,
    va_type: DAT_VA_TYPE,
    ep_handle: DAT_EP_HANDLE,
    user_cookie: DAT_RMR_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
    rmr_context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_free.
///
#[doc = include_str!("../reference/dat_rmr_free.md")]
pub type DAT_RMR_FREE_FUNC = unsafe extern "C" fn(rmr_handle: DAT_RMR_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_psp_create.
///
#[doc = include_str!("../reference/dat_psp_create.md")]
pub type DAT_PSP_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: DAT_CONN_QUAL,
    evd_handle: DAT_EVD_HANDLE,
    psp_flags: DAT_PSP_FLAGS,
    psp_handle: *mut DAT_PSP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_psp_query.
///
#[doc = include_str!("../reference/dat_psp_query.md")]
pub type DAT_PSP_QUERY_FUNC = unsafe extern "C" fn(
    psp_handle: DAT_PSP_HANDLE,
    psp_param_mask: DAT_PSP_PARAM_MASK,
    psp_param: *mut DAT_PSP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_psp_free.
///
#[doc = include_str!("../reference/dat_psp_free.md")]
pub type DAT_PSP_FREE_FUNC = unsafe extern "C" fn(psp_handle: DAT_PSP_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rsp_create.
///
#[doc = include_str!("../reference/dat_rsp_create.md")]
pub type DAT_RSP_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: DAT_CONN_QUAL,
    ep_handle: DAT_EP_HANDLE,
    evd_handle: DAT_EVD_HANDLE,
    rsp_handle: *mut DAT_RSP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rsp_query.
///
#[doc = include_str!("../reference/dat_rsp_query.md")]
pub type DAT_RSP_QUERY_FUNC = unsafe extern "C" fn(
    rsp_handle: DAT_RSP_HANDLE,
    rsp_param_mask: DAT_RSP_PARAM_MASK,
    rsp_param: *mut DAT_RSP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rsp_free.
///
#[doc = include_str!("../reference/dat_rsp_free.md")]
pub type DAT_RSP_FREE_FUNC = unsafe extern "C" fn(rsp_handle: DAT_RSP_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_pz_create.
///
#[doc = include_str!("../reference/dat_pz_create.md")]
pub type DAT_PZ_CREATE_FUNC =
    unsafe extern "C" fn(ia_handle: DAT_IA_HANDLE, pz_handle: *mut DAT_PZ_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_pz_query.
///
#[doc = include_str!("../reference/dat_pz_query.md")]
pub type DAT_PZ_QUERY_FUNC = unsafe extern "C" fn(
    pz_handle: DAT_PZ_HANDLE,
    pz_param_mask: DAT_PZ_PARAM_MASK,
    pz_param: *mut DAT_PZ_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_pz_free.
///
#[doc = include_str!("../reference/dat_pz_free.md")]
pub type DAT_PZ_FREE_FUNC = unsafe extern "C" fn(pz_handle: DAT_PZ_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_psp_create_any.
///
#[doc = include_str!("../reference/dat_psp_create_any.md")]
pub type DAT_PSP_CREATE_ANY_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    conn_qual: *mut DAT_CONN_QUAL,
    evd_handle: DAT_EVD_HANDLE,
    psp_flags: DAT_PSP_FLAGS,
    psp_handle: *mut DAT_PSP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_reset.
///
#[doc = include_str!("../reference/dat_ep_reset.md")]
pub type DAT_EP_RESET_FUNC = unsafe extern "C" fn(ep_handle: DAT_EP_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_set_unwaitable.
///
#[doc = include_str!("../reference/dat_evd_set_unwaitable.md")]
pub type DAT_EVD_SET_UNWAITABLE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_evd_clear_unwaitable.
///
#[doc = include_str!("../reference/dat_evd_clear_unwaitable.md")]
pub type DAT_EVD_CLEAR_UNWAITABLE_FUNC =
    unsafe extern "C" fn(evd_handle: DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_sync_rdma_read.
///
#[doc = include_str!("../reference/dat_lmr_sync_rdma_read.md")]
pub type DAT_LMR_SYNC_RDMA_READ_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_lmr_sync_rdma_write.
///
#[doc = include_str!("../reference/dat_lmr_sync_rdma_write.md")]
pub type DAT_LMR_SYNC_RDMA_WRITE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    local_segments: *const DAT_LMR_TRIPLET,
    num_segments: DAT_VLEN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_create_with_srq.
///
#[doc = include_str!("../reference/dat_ep_create_with_srq.md")]
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
/// The signature of a provider's implementation of dat_ep_recv_query.
///
#[doc = include_str!("../reference/dat_ep_recv_query.md")]
pub type DAT_EP_RECV_QUERY_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    nbufs_allocated: *mut DAT_COUNT,
    bufs_alloc_span: *mut DAT_COUNT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_set_watermark.
///
#[doc = include_str!("../reference/dat_ep_set_watermark.md")]
pub type DAT_EP_SET_WATERMARK_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    ep_soft_high_watermark: DAT_COUNT,
    hard_high_watermark: DAT_COUNT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_create.
///
#[doc = include_str!("../reference/dat_srq_create.md")]
pub type DAT_SRQ_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    pz_handle: DAT_PZ_HANDLE,
    srq_attributes: *mut DAT_SRQ_ATTR,
    srq_handle: *mut DAT_SRQ_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_free.
///
#[doc = include_str!("../reference/dat_srq_free.md")]
pub type DAT_SRQ_FREE_FUNC = unsafe extern "C" fn(srq_handle: DAT_SRQ_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_post_recv.
///
#[doc = include_str!("../reference/dat_srq_post_recv.md")]
pub type DAT_SRQ_POST_RECV_FUNC = unsafe extern "C" fn(
    srq_handle: DAT_SRQ_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_query.
///
#[doc = include_str!("../reference/dat_srq_query.md")]
pub type DAT_SRQ_QUERY_FUNC = unsafe extern "C" fn(
    srq_handle: DAT_SRQ_HANDLE,
    srq_param_mask: DAT_SRQ_PARAM_MASK,
    srq_param: *mut DAT_SRQ_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_resize.
///
#[doc = include_str!("../reference/dat_srq_resize.md")]
pub type DAT_SRQ_RESIZE_FUNC =
    unsafe extern "C" fn(srq_handle: DAT_SRQ_HANDLE, srq_max_recv_dto: DAT_COUNT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_srq_set_lw.
///
#[doc = include_str!("../reference/dat_srq_set_lw.md")]
pub type DAT_SRQ_SET_LW_FUNC =
    unsafe extern "C" fn(srq_handle: DAT_SRQ_HANDLE, low_watermark: DAT_COUNT) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_csp_create.
///
#[doc = include_str!("../reference/dat_csp_create.md")]
pub type DAT_CSP_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    communicator: *mut DAT_COMM,
    address: DAT_IA_ADDRESS_PTR,
    evd_handle: DAT_EVD_HANDLE,
    csp_handle: *mut DAT_CSP_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_csp_query.
///
#[doc = include_str!("../reference/dat_csp_query.md")]
pub type DAT_CSP_QUERY_FUNC = unsafe extern "C" fn(
    csp_handle: DAT_CSP_HANDLE,
    csp_param_mask: DAT_CSP_PARAM_MASK,
    csp_param: *mut DAT_CSP_PARAM,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_csp_free.
///
#[doc = include_str!("../reference/dat_csp_free.md")]
pub type DAT_CSP_FREE_FUNC = unsafe extern "C" fn(csp_handle: DAT_CSP_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_common_connect.
///
#[doc = include_str!("../reference/dat_ep_common_connect.md")]
pub type DAT_EP_COMMON_CONNECT_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    remote_ia_address: DAT_IA_ADDRESS_PTR,
    timeout: DAT_TIMEOUT,
    private_data_size: DAT_COUNT,
    private_data: DAT_PVOID,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_rmr_create_for_ep.
///
#[doc = include_str!("../reference/dat_rmr_create_for_ep.md")]
pub type DAT_RMR_CREATE_FOR_EP_FUNC =
    unsafe extern "C" fn(pz_handle: DAT_PZ_HANDLE, rmr_handle: *mut DAT_RMR_HANDLE) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_send_with_invalidate.
///
#[doc = include_str!("../reference/dat_ep_post_send_with_invalidate.md")]
pub type DAT_EP_POST_SEND_WITH_INVALIDATE_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    num_segments: DAT_COUNT,
    local_iov: *mut DAT_LMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    completion_flags: DAT_COMPLETION_FLAGS,
    invalidate_flag: DAT_BOOLEAN,
    rmr_context: DAT_RMR_CONTEXT,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_ep_post_rdma_read_to_rmr.
///
#[doc = include_str!("../reference/dat_ep_post_rdma_read_to_rmr.md")]
pub type DAT_EP_POST_RDMA_READ_TO_RMR_FUNC = unsafe extern "C" fn(
    ep_handle: DAT_EP_HANDLE,
    local_iov: *const DAT_RMR_TRIPLET,
    user_cookie: DAT_DTO_COOKIE,
    remote_iov: *const DAT_RMR_TRIPLET,
    completion_flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_fd_create.
///
#[doc = include_str!("../reference/dat_cno_fd_create.md")]
pub type DAT_CNO_FD_CREATE_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    file_descriptor: *mut DAT_FD,
    cno_handle: *mut DAT_CNO_HANDLE,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_cno_trigger.
///
#[doc = include_str!("../reference/dat_cno_trigger.md")]
pub type DAT_CNO_TRIGGER_FUNC =
    unsafe extern "C" fn(cno_handle: DAT_CNO_HANDLE, evd_handle: *mut DAT_EVD_HANDLE) -> DAT_RETURN;
/// The signature of a provider's part of dat_registry_providers_related, which says whether
/// `provider` shares a point of failure with this IA.
///
#[doc = include_str!("../reference/dat_registry_providers_related.md")]
pub type DAT_IA_HA_RELATED_FUNC = unsafe extern "C" fn(
    ia_handle: DAT_IA_HANDLE,
    provider: DAT_NAME_PTR,
    answer: *mut DAT_BOOLEAN,
) -> DAT_RETURN;
/// The signature of a provider's implementation of dat_extension_op. The variable arguments are
/// passed as a list.
///
#[doc = include_str!("../reference/dat_extension_op.md")]
pub type DAT_HANDLE_EXTENDEDOP_FUNC = unsafe extern "C" fn(
    handle: DAT_HANDLE,
    extended_op: DAT_EXTENDED_OP,
    args: DAT_VA_LIST,
) -> DAT_RETURN;

/// The signature of `dat_provider_init`, which a loadable provider exports. The function registers
/// the provider of `provider_info`. `instance_data` is the ia_params field of the registry entry.
pub type DAT_PROVIDER_INIT_FUNC =
    unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO, instance_data: *const c_char);
/// The signature of `dat_provider_fini`, which a loadable provider exports. The function undoes
/// `dat_provider_init`.
pub type DAT_PROVIDER_FINI_FUNC = unsafe extern "C" fn(provider_info: *const DAT_PROVIDER_INFO);
