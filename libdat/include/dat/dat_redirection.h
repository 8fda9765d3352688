/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * The functions of a provider: their signatures, and macros that call them without libdat.so.1 in
 * between.
 */

#ifndef DAT1_DAT_REDIRECTION_H
#define DAT1_DAT_REDIRECTION_H

#include <dat/udat.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dat_provider DAT_PROVIDER;

/* ---- Signatures of the functions ------------------------------------------------------------- */

typedef DAT_RETURN (DAT_API *DAT_IA_OPENV_FUNC)(
    const DAT_NAME_PTR name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);

typedef DAT_RETURN (DAT_API *DAT_IA_OPEN_FUNC)(
    const DAT_NAME_PTR provider, DAT_COUNT asynch_evd_min_qlen, DAT_EVD_HANDLE *asynch_evd_handle,
    DAT_IA_HANDLE *ia_handle);

typedef DAT_RETURN (DAT_API *DAT_IA_QUERY_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
    DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR *provider_attr);

typedef DAT_RETURN (DAT_API *DAT_IA_CLOSE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);

typedef DAT_RETURN (DAT_API *DAT_SET_CONSUMER_CONTEXT_FUNC)(DAT_HANDLE dat_handle, DAT_CONTEXT context);

typedef DAT_RETURN (DAT_API *DAT_GET_CONSUMER_CONTEXT_FUNC)(DAT_HANDLE dat_handle, DAT_CONTEXT *context);

typedef DAT_RETURN (DAT_API *DAT_GET_HANDLE_TYPE_FUNC)(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

typedef DAT_RETURN (DAT_API *DAT_CNO_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);

typedef DAT_RETURN (DAT_API *DAT_CNO_MODIFY_AGENT_FUNC)(
    DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);

typedef DAT_RETURN (DAT_API *DAT_CNO_QUERY_FUNC)(
    DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask, DAT_CNO_PARAM *cno_param);

typedef DAT_RETURN (DAT_API *DAT_CNO_FREE_FUNC)(DAT_CNO_HANDLE cno_handle);

typedef DAT_RETURN (DAT_API *DAT_CNO_WAIT_FUNC)(
    DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);

typedef DAT_RETURN (DAT_API *DAT_CR_QUERY_FUNC)(
    DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask, DAT_CR_PARAM *cr_param);

typedef DAT_RETURN (DAT_API *DAT_CR_ACCEPT_FUNC)(
    DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);

typedef DAT_RETURN (DAT_API *DAT_CR_REJECT_FUNC)(DAT_CR_HANDLE cr_handle);

typedef DAT_RETURN (DAT_API *DAT_CR_HANDOFF_FUNC)(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

typedef DAT_RETURN (DAT_API *DAT_EVD_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle, DAT_EVD_FLAGS evd_flags,
    DAT_EVD_HANDLE *evd_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_QUERY_FUNC)(
    DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask, DAT_EVD_PARAM *evd_param);

typedef DAT_RETURN (DAT_API *DAT_EVD_MODIFY_CNO_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_ENABLE_FUNC)(DAT_EVD_HANDLE evd_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_DISABLE_FUNC)(DAT_EVD_HANDLE evd_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_WAIT_FUNC)(
    DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
    DAT_COUNT *n_more_events);

typedef DAT_RETURN (DAT_API *DAT_EVD_RESIZE_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);

typedef DAT_RETURN (DAT_API *DAT_EVD_POST_SE_FUNC)(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);

typedef DAT_RETURN (DAT_API *DAT_EVD_DEQUEUE_FUNC)(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);

typedef DAT_RETURN (DAT_API *DAT_EVD_FREE_FUNC)(DAT_EVD_HANDLE evd_handle);

typedef DAT_RETURN (DAT_API *DAT_EP_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

typedef DAT_RETURN (DAT_API *DAT_EP_QUERY_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, DAT_EP_PARAM *ep_param);

typedef DAT_RETURN (DAT_API *DAT_EP_MODIFY_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, const DAT_EP_PARAM *ep_param);

typedef DAT_RETURN (DAT_API *DAT_EP_CONNECT_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_CONN_QUAL remote_conn_qual,
    DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_DUP_CONNECT_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE ep_dup_handle, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
    const DAT_PVOID private_data, DAT_QOS quality_of_service);

typedef DAT_RETURN (DAT_API *DAT_EP_DISCONNECT_FUNC)(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_POST_SEND_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_POST_RECV_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_POST_RDMA_READ_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_POST_RDMA_WRITE_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

typedef DAT_RETURN (DAT_API *DAT_EP_GET_STATUS_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state, DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);

typedef DAT_RETURN (DAT_API *DAT_EP_FREE_FUNC)(DAT_EP_HANDLE ep_handle);

typedef DAT_RETURN (DAT_API *DAT_LMR_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges, DAT_LMR_HANDLE *lmr_handle,
    DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_length,
    DAT_VADDR *registered_address);

typedef DAT_RETURN (DAT_API *DAT_LMR_QUERY_FUNC)(
    DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask, DAT_LMR_PARAM *lmr_param);

typedef DAT_RETURN (DAT_API *DAT_LMR_FREE_FUNC)(DAT_LMR_HANDLE lmr_handle);

typedef DAT_RETURN (DAT_API *DAT_RMR_CREATE_FUNC)(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

typedef DAT_RETURN (DAT_API *DAT_RMR_QUERY_FUNC)(
    DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask, DAT_RMR_PARAM *rmr_param);

typedef DAT_RETURN (DAT_API *DAT_RMR_BIND_FUNC)(
    DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet, DAT_MEM_PRIV_FLAGS mem_priv,
    DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags,
    DAT_RMR_CONTEXT *rmr_context);

typedef DAT_RETURN (DAT_API *DAT_RMR_FREE_FUNC)(DAT_RMR_HANDLE rmr_handle);

typedef DAT_RETURN (DAT_API *DAT_PSP_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

typedef DAT_RETURN (DAT_API *DAT_PSP_QUERY_FUNC)(
    DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask, DAT_PSP_PARAM *psp_param);

typedef DAT_RETURN (DAT_API *DAT_PSP_FREE_FUNC)(DAT_PSP_HANDLE psp_handle);

typedef DAT_RETURN (DAT_API *DAT_RSP_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
    DAT_RSP_HANDLE *rsp_handle);

typedef DAT_RETURN (DAT_API *DAT_RSP_QUERY_FUNC)(
    DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask, DAT_RSP_PARAM *rsp_param);

typedef DAT_RETURN (DAT_API *DAT_RSP_FREE_FUNC)(DAT_RSP_HANDLE rsp_handle);

typedef DAT_RETURN (DAT_API *DAT_PZ_CREATE_FUNC)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);

typedef DAT_RETURN (DAT_API *DAT_PZ_QUERY_FUNC)(
    DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask, DAT_PZ_PARAM *pz_param);

typedef DAT_RETURN (DAT_API *DAT_PZ_FREE_FUNC)(DAT_PZ_HANDLE pz_handle);

typedef DAT_RETURN (DAT_API *DAT_PSP_CREATE_ANY_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

typedef DAT_RETURN (DAT_API *DAT_EP_RESET_FUNC)(DAT_EP_HANDLE ep_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_SET_UNWAITABLE_FUNC)(DAT_EVD_HANDLE evd_handle);

typedef DAT_RETURN (DAT_API *DAT_EVD_CLEAR_UNWAITABLE_FUNC)(DAT_EVD_HANDLE evd_handle);

typedef DAT_RETURN (DAT_API *DAT_LMR_SYNC_RDMA_READ_FUNC)(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

typedef DAT_RETURN (DAT_API *DAT_LMR_SYNC_RDMA_WRITE_FUNC)(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

typedef DAT_RETURN (DAT_API *DAT_EP_CREATE_WITH_SRQ_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

typedef DAT_RETURN (DAT_API *DAT_EP_RECV_QUERY_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated, DAT_COUNT *bufs_alloc_span);

typedef DAT_RETURN (DAT_API *DAT_EP_SET_WATERMARK_FUNC)(
    DAT_EP_HANDLE ep_handle, DAT_COUNT ep_soft_high_watermark, DAT_COUNT hard_high_watermark);

typedef DAT_RETURN (DAT_API *DAT_SRQ_CREATE_FUNC)(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *srq_attributes,
    DAT_SRQ_HANDLE *srq_handle);

typedef DAT_RETURN (DAT_API *DAT_SRQ_FREE_FUNC)(DAT_SRQ_HANDLE srq_handle);

typedef DAT_RETURN (DAT_API *DAT_SRQ_POST_RECV_FUNC)(
    DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie);

typedef DAT_RETURN (DAT_API *DAT_SRQ_QUERY_FUNC)(
    DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask, DAT_SRQ_PARAM *srq_param);

typedef DAT_RETURN (DAT_API *DAT_SRQ_RESIZE_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);

typedef DAT_RETURN (DAT_API *DAT_SRQ_SET_LW_FUNC)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

/* ---- Calls through the table ----------------------------------------------------------------- */

/* The table behind a handle; a program linked with one provider may define it beforehand. */
#ifndef DAT_HANDLE_TO_PROVIDER
#define DAT_HANDLE_TO_PROVIDER(handle) (*(DAT_PROVIDER **)(handle))
#endif

/*
 * Like the functions in lower case, with two differences: they do not go through libdat.so.1, and
 * an IA handle must be the provider's (see dats_get_ia_handle).
 */
#define DAT_CALL_PROVIDER(handle, function, arguments) (*DAT_HANDLE_TO_PROVIDER(handle)->function) arguments

#define DAT_IA_QUERY(ia, async_evd, ia_attr_mask, ia_attr, provider_attr_mask, provider_attr) \
    DAT_CALL_PROVIDER(ia, ia_query_func, \
        ((ia), (async_evd), (ia_attr_mask), \
        (ia_attr), (provider_attr_mask), (provider_attr)))
#define DAT_SET_CONSUMER_CONTEXT(dat, context) \
    DAT_CALL_PROVIDER(dat, set_consumer_context_func, ((dat), (context)))
#define DAT_GET_CONSUMER_CONTEXT(dat, context) \
    DAT_CALL_PROVIDER(dat, get_consumer_context_func, ((dat), (context)))
#define DAT_GET_HANDLE_TYPE(dat, handle_type) \
    DAT_CALL_PROVIDER(dat, get_handle_type_func, ((dat), (handle_type)))
#define DAT_CNO_CREATE(ia, agent, cno) \
    DAT_CALL_PROVIDER(ia, cno_create_func, ((ia), (agent), (cno)))
#define DAT_CNO_MODIFY_AGENT(cno, agent) \
    DAT_CALL_PROVIDER(cno, cno_modify_agent_func, ((cno), (agent)))
#define DAT_CNO_QUERY(cno, cno_param_mask, cno_param) \
    DAT_CALL_PROVIDER(cno, cno_query_func, ((cno), (cno_param_mask), (cno_param)))
#define DAT_CNO_FREE(cno) \
    DAT_CALL_PROVIDER(cno, cno_free_func, ((cno)))
#define DAT_CNO_WAIT(cno, timeout, evd) \
    DAT_CALL_PROVIDER(cno, cno_wait_func, ((cno), (timeout), (evd)))
#define DAT_CR_QUERY(cr, cr_param_mask, cr_param) \
    DAT_CALL_PROVIDER(cr, cr_query_func, ((cr), (cr_param_mask), (cr_param)))
#define DAT_CR_ACCEPT(cr, ep, private_data_size, private_data) \
    DAT_CALL_PROVIDER(cr, cr_accept_func, ((cr), (ep), (private_data_size), (private_data)))
#define DAT_CR_REJECT(cr) \
    DAT_CALL_PROVIDER(cr, cr_reject_func, ((cr)))
#define DAT_CR_HANDOFF(cr, handoff) \
    DAT_CALL_PROVIDER(cr, cr_handoff_func, ((cr), (handoff)))
#define DAT_EVD_CREATE(ia, evd_min_qlen, cno, evd_flags, evd) \
    DAT_CALL_PROVIDER(ia, evd_create_func, ((ia), (evd_min_qlen), (cno), (evd_flags), (evd)))
#define DAT_EVD_QUERY(evd, evd_param_mask, evd_param) \
    DAT_CALL_PROVIDER(evd, evd_query_func, ((evd), (evd_param_mask), (evd_param)))
#define DAT_EVD_MODIFY_CNO(evd, cno) \
    DAT_CALL_PROVIDER(evd, evd_modify_cno_func, ((evd), (cno)))
#define DAT_EVD_ENABLE(evd) \
    DAT_CALL_PROVIDER(evd, evd_enable_func, ((evd)))
#define DAT_EVD_DISABLE(evd) \
    DAT_CALL_PROVIDER(evd, evd_disable_func, ((evd)))
#define DAT_EVD_WAIT(evd, timeout, threshold, event, n_more_events) \
    DAT_CALL_PROVIDER(evd, evd_wait_func, ((evd), (timeout), (threshold), (event), (n_more_events)))
#define DAT_EVD_RESIZE(evd, evd_min_qlen) \
    DAT_CALL_PROVIDER(evd, evd_resize_func, ((evd), (evd_min_qlen)))
#define DAT_EVD_POST_SE(evd, event) \
    DAT_CALL_PROVIDER(evd, evd_post_se_func, ((evd), (event)))
#define DAT_EVD_DEQUEUE(evd, event) \
    DAT_CALL_PROVIDER(evd, evd_dequeue_func, ((evd), (event)))
#define DAT_EVD_FREE(evd) \
    DAT_CALL_PROVIDER(evd, evd_free_func, ((evd)))
#define DAT_EP_CREATE(ia, pz, recv_completion_evd, request_completion_evd, connect_evd, ep_attributes, ep) \
    DAT_CALL_PROVIDER(ia, ep_create_func, \
        ((ia), (pz), (recv_completion_evd), \
        (request_completion_evd), (connect_evd), (ep_attributes), (ep)))
#define DAT_EP_QUERY(ep, ep_param_mask, ep_param) \
    DAT_CALL_PROVIDER(ep, ep_query_func, ((ep), (ep_param_mask), (ep_param)))
#define DAT_EP_MODIFY(ep, ep_param_mask, ep_param) \
    DAT_CALL_PROVIDER(ep, ep_modify_func, ((ep), (ep_param_mask), (ep_param)))
#define DAT_EP_CONNECT(ep, remote_ia_address, remote_conn_qual, timeout, private_data_size, \
    private_data, quality_of_service, connect_flags) \
    DAT_CALL_PROVIDER(ep, ep_connect_func, \
        ((ep), (remote_ia_address), (remote_conn_qual), (timeout), \
        (private_data_size), (private_data), (quality_of_service), (connect_flags)))
#define DAT_EP_DUP_CONNECT(ep, ep_dup, timeout, private_data_size, private_data, quality_of_service) \
    DAT_CALL_PROVIDER(ep, ep_dup_connect_func, \
        ((ep), (ep_dup), (timeout), \
        (private_data_size), (private_data), (quality_of_service)))
#define DAT_EP_DISCONNECT(ep, close_flags) \
    DAT_CALL_PROVIDER(ep, ep_disconnect_func, ((ep), (close_flags)))
#define DAT_EP_POST_SEND(ep, num_segments, local_iov, user_cookie, completion_flags) \
    DAT_CALL_PROVIDER(ep, ep_post_send_func, ((ep), (num_segments), (local_iov), (user_cookie), (completion_flags)))
#define DAT_EP_POST_RECV(ep, num_segments, local_iov, user_cookie, completion_flags) \
    DAT_CALL_PROVIDER(ep, ep_post_recv_func, ((ep), (num_segments), (local_iov), (user_cookie), (completion_flags)))
#define DAT_EP_POST_RDMA_READ(ep, num_segments, local_iov, user_cookie, remote_iov, completion_flags) \
    DAT_CALL_PROVIDER(ep, ep_post_rdma_read_func, \
        ((ep), (num_segments), (local_iov), \
        (user_cookie), (remote_iov), (completion_flags)))
#define DAT_EP_POST_RDMA_WRITE(ep, num_segments, local_iov, user_cookie, remote_iov, completion_flags) \
    DAT_CALL_PROVIDER(ep, ep_post_rdma_write_func, \
        ((ep), (num_segments), (local_iov), \
        (user_cookie), (remote_iov), (completion_flags)))
#define DAT_EP_GET_STATUS(ep, ep_state, recv_idle, request_idle) \
    DAT_CALL_PROVIDER(ep, ep_get_status_func, ((ep), (ep_state), (recv_idle), (request_idle)))
#define DAT_EP_FREE(ep) \
    DAT_CALL_PROVIDER(ep, ep_free_func, ((ep)))
#define DAT_LMR_CREATE(ia, mem_type, region_description, length, pz, privileges, \
    lmr, lmr_context, rmr_context, registered_length, registered_address) \
    DAT_CALL_PROVIDER(ia, lmr_create_func, \
        ((ia), (mem_type), (region_description), (length), (pz), (privileges), \
        (lmr), (lmr_context), (rmr_context), (registered_length), (registered_address)))
#define DAT_LMR_QUERY(lmr, lmr_param_mask, lmr_param) \
    DAT_CALL_PROVIDER(lmr, lmr_query_func, ((lmr), (lmr_param_mask), (lmr_param)))
#define DAT_LMR_FREE(lmr) \
    DAT_CALL_PROVIDER(lmr, lmr_free_func, ((lmr)))
#define DAT_RMR_CREATE(pz, rmr) \
    DAT_CALL_PROVIDER(pz, rmr_create_func, ((pz), (rmr)))
#define DAT_RMR_QUERY(rmr, rmr_param_mask, rmr_param) \
    DAT_CALL_PROVIDER(rmr, rmr_query_func, ((rmr), (rmr_param_mask), (rmr_param)))
#define DAT_RMR_BIND(rmr, lmr_triplet, mem_priv, ep, user_cookie, completion_flags, rmr_context) \
    DAT_CALL_PROVIDER(rmr, rmr_bind_func, \
        ((rmr), (lmr_triplet), (mem_priv), (ep), (user_cookie), (completion_flags), (rmr_context)))
#define DAT_RMR_FREE(rmr) \
    DAT_CALL_PROVIDER(rmr, rmr_free_func, ((rmr)))
#define DAT_PSP_CREATE(ia, conn_qual, evd, psp_flags, psp) \
    DAT_CALL_PROVIDER(ia, psp_create_func, ((ia), (conn_qual), (evd), (psp_flags), (psp)))
#define DAT_PSP_QUERY(psp, psp_param_mask, psp_param) \
    DAT_CALL_PROVIDER(psp, psp_query_func, ((psp), (psp_param_mask), (psp_param)))
#define DAT_PSP_FREE(psp) \
    DAT_CALL_PROVIDER(psp, psp_free_func, ((psp)))
#define DAT_RSP_CREATE(ia, conn_qual, ep, evd, rsp) \
    DAT_CALL_PROVIDER(ia, rsp_create_func, ((ia), (conn_qual), (ep), (evd), (rsp)))
#define DAT_RSP_QUERY(rsp, rsp_param_mask, rsp_param) \
    DAT_CALL_PROVIDER(rsp, rsp_query_func, ((rsp), (rsp_param_mask), (rsp_param)))
#define DAT_RSP_FREE(rsp) \
    DAT_CALL_PROVIDER(rsp, rsp_free_func, ((rsp)))
#define DAT_PZ_CREATE(ia, pz) \
    DAT_CALL_PROVIDER(ia, pz_create_func, ((ia), (pz)))
#define DAT_PZ_QUERY(pz, pz_param_mask, pz_param) \
    DAT_CALL_PROVIDER(pz, pz_query_func, ((pz), (pz_param_mask), (pz_param)))
#define DAT_PZ_FREE(pz) \
    DAT_CALL_PROVIDER(pz, pz_free_func, ((pz)))
#define DAT_PSP_CREATE_ANY(ia, conn_qual, evd, psp_flags, psp) \
    DAT_CALL_PROVIDER(ia, psp_create_any_func, ((ia), (conn_qual), (evd), (psp_flags), (psp)))
#define DAT_EP_RESET(ep) \
    DAT_CALL_PROVIDER(ep, ep_reset_func, ((ep)))
#define DAT_EVD_SET_UNWAITABLE(evd) \
    DAT_CALL_PROVIDER(evd, evd_set_unwaitable_func, ((evd)))
#define DAT_EVD_CLEAR_UNWAITABLE(evd) \
    DAT_CALL_PROVIDER(evd, evd_clear_unwaitable_func, ((evd)))
#define DAT_LMR_SYNC_RDMA_READ(ia, local_segments, num_segments) \
    DAT_CALL_PROVIDER(ia, lmr_sync_rdma_read_func, ((ia), (local_segments), (num_segments)))
#define DAT_LMR_SYNC_RDMA_WRITE(ia, local_segments, num_segments) \
    DAT_CALL_PROVIDER(ia, lmr_sync_rdma_write_func, ((ia), (local_segments), (num_segments)))
#define DAT_EP_CREATE_WITH_SRQ(ia, pz, recv_completion_evd, request_completion_evd, connect_evd, \
    srq, ep_attributes, ep) \
    DAT_CALL_PROVIDER(ia, ep_create_with_srq_func, \
        ((ia), (pz), (recv_completion_evd), (request_completion_evd), \
        (connect_evd), (srq), (ep_attributes), (ep)))
#define DAT_EP_RECV_QUERY(ep, nbufs_allocated, bufs_alloc_span) \
    DAT_CALL_PROVIDER(ep, ep_recv_query_func, ((ep), (nbufs_allocated), (bufs_alloc_span)))
#define DAT_EP_SET_WATERMARK(ep, ep_soft_high_watermark, hard_high_watermark) \
    DAT_CALL_PROVIDER(ep, ep_set_watermark_func, ((ep), (ep_soft_high_watermark), (hard_high_watermark)))
#define DAT_SRQ_CREATE(ia, pz, srq_attributes, srq) \
    DAT_CALL_PROVIDER(ia, srq_create_func, ((ia), (pz), (srq_attributes), (srq)))
#define DAT_SRQ_FREE(srq) \
    DAT_CALL_PROVIDER(srq, srq_free_func, ((srq)))
#define DAT_SRQ_POST_RECV(srq, num_segments, local_iov, user_cookie) \
    DAT_CALL_PROVIDER(srq, srq_post_recv_func, ((srq), (num_segments), (local_iov), (user_cookie)))
#define DAT_SRQ_QUERY(srq, srq_param_mask, srq_param) \
    DAT_CALL_PROVIDER(srq, srq_query_func, ((srq), (srq_param_mask), (srq_param)))
#define DAT_SRQ_RESIZE(srq, srq_max_recv_dto) \
    DAT_CALL_PROVIDER(srq, srq_resize_func, ((srq), (srq_max_recv_dto)))
#define DAT_SRQ_SET_LW(srq, low_watermark) \
    DAT_CALL_PROVIDER(srq, srq_set_lw_func, ((srq), (low_watermark)))

#ifdef __cplusplus
}
#endif

#endif /* DAT1_DAT_REDIRECTION_H */
