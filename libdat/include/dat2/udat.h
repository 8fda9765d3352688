/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * uDAPL 2.0: events, and the functions of libdat2. This is the file that programs include.
 */

#ifndef DAT2_UDAT_H
#define DAT2_UDAT_H

#include <dat2/udat_config.h>
#include <dat2/dat_platform_specific.h>
#include <dat2/dat.h>
#include <dat2/udat_vendor_specific.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Event dispatchers and consumer notification objects ------------------------------------- */

/* Event streams that an EVD accepts. */
typedef enum dat_evd_flags {
    DAT_EVD_SOFTWARE_FLAG   = 0x001,
    DAT_EVD_CR_FLAG         = 0x010,
    DAT_EVD_DTO_FLAG        = 0x020,
    DAT_EVD_CONNECTION_FLAG = 0x040,
    DAT_EVD_RMR_BIND_FLAG   = 0x080,
    DAT_EVD_ASYNC_FLAG      = 0x100,
    DAT_EVD_DEFAULT_FLAG    = 0x1f0,
    DAT_EVD_EXTENSION_BASE  = 0x200
} DAT_EVD_FLAGS;

/* EVD state: three independent groups of bits (enabled, waitable, configuration). */
typedef enum dat_evd_state {
    DAT_EVD_STATE_ENABLED          = 0x01,
    DAT_EVD_STATE_DISABLED         = 0x02,
    DAT_EVD_STATE_WAITABLE         = 0x04,
    DAT_EVD_STATE_UNWAITABLE       = 0x08,
    DAT_EVD_STATE_CONFIG_NOTIFY    = 0x10,
    DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
    DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30
} DAT_EVD_STATE;

/* Result of dat_evd_query. */
typedef struct dat_evd_param {
    DAT_IA_HANDLE ia_handle;   /* IA of the EVD. */
    DAT_COUNT evd_qlen;        /* Events it can hold, at least what the consumer asked for. */
    DAT_EVD_STATE evd_state;   /* State. */
    DAT_CNO_HANDLE cno_handle; /* CNO it notifies, or DAT_HANDLE_NULL. */
    DAT_EVD_FLAGS evd_flags;   /* Streams it accepts. */
} DAT_EVD_PARAM;

/* Fields of DAT_EVD_PARAM wanted, dat_evd_query. */
typedef enum dat_evd_param_mask {
    DAT_EVD_FIELD_IA_HANDLE = 0x01,
    DAT_EVD_FIELD_EVD_QLEN  = 0x02,
    DAT_EVD_FIELD_EVD_STATE = 0x04,
    DAT_EVD_FIELD_CNO       = 0x08,
    DAT_EVD_FIELD_EVD_FLAGS = 0x10,
    DAT_EVD_FIELD_ALL       = 0x1f
} DAT_EVD_PARAM_MASK;

/* Called when a CNO is triggered: its instance data, then the EVD that became ready. */
typedef void (DAT_API *DAT_AGENT_FUNC)(DAT_PVOID instance_data, DAT_EVD_HANDLE evd_handle);

/* A function to call when a CNO is triggered, passed by value. */
typedef struct dat_os_wait_proxy_agent {
    DAT_PVOID instance_data;         /* First argument of the function. */
    DAT_AGENT_FUNC proxy_agent_func; /* The function, or none. */
} DAT_OS_WAIT_PROXY_AGENT;

#ifdef __cplusplus
#define DAT_OS_WAIT_PROXY_AGENT_NULL (DAT_OS_WAIT_PROXY_AGENT())
#else
#define DAT_OS_WAIT_PROXY_AGENT_NULL ((DAT_OS_WAIT_PROXY_AGENT){NULL, NULL})
#endif

/* What a CNO notifies besides its waiter. */
typedef enum dat_proxy_type {
    DAT_PROXY_TYPE_NONE  = 0,
    DAT_PROXY_TYPE_AGENT = 1,
    DAT_PROXY_TYPE_FD    = 2
} DAT_PROXY_TYPE;

/* Result of dat_cno_query. */
typedef struct dat_cno_param {
    DAT_IA_HANDLE ia_handle;   /* IA of the CNO. */
    DAT_PROXY_TYPE proxy_type; /* Which member of proxy counts. */
    union {
        DAT_OS_WAIT_PROXY_AGENT agent;
        DAT_FD fd;
        DAT_PVOID none;
    } proxy;                   /* What it notifies besides its waiter. */
} DAT_CNO_PARAM;

/*
 * Fields of DAT_CNO_PARAM wanted, dat_cno_query. The values are not separate bits: PROXY is 3 and
 * ALL is 4.
 */
typedef enum dat_cno_param_mask {
    DAT_CNO_FIELD_IA_HANDLE  = 0x1,
    DAT_CNO_FIELD_PROXY_TYPE = 0x2,
    DAT_CNO_FIELD_PROXY      = 0x3,
    DAT_CNO_FIELD_ALL        = 0x4
} DAT_CNO_PARAM_MASK;

/* ---- Events ---------------------------------------------------------------------------------- */

/* The kind of event; selects the member of DAT_EVENT_DATA that is valid. */
typedef enum dat_event_number {
    DAT_DTO_COMPLETION_EVENT                     = 0x00001,
    DAT_RMR_BIND_COMPLETION_EVENT                = 0x01001,
    DAT_CONNECTION_REQUEST_EVENT                 = 0x02001,
    DAT_CONNECTION_EVENT_ESTABLISHED             = 0x04001,
    DAT_CONNECTION_EVENT_PEER_REJECTED           = 0x04002,
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED       = 0x04003,
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x04004,
    DAT_CONNECTION_EVENT_DISCONNECTED            = 0x04005,
    DAT_CONNECTION_EVENT_BROKEN                  = 0x04006,
    DAT_CONNECTION_EVENT_TIMED_OUT               = 0x04007,
    DAT_CONNECTION_EVENT_UNREACHABLE             = 0x04008,
    DAT_ASYNC_ERROR_EVD_OVERFLOW                 = 0x08001,
    DAT_ASYNC_ERROR_IA_CATASTROPHIC              = 0x08002,
    DAT_ASYNC_ERROR_EP_BROKEN                    = 0x08003,
    DAT_ASYNC_ERROR_TIMED_OUT                    = 0x08004,
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR      = 0x08005,
    DAT_HA_DOWN_TO_1                             = 0x08101,
    DAT_HA_UP_TO_MULTI_PATH                      = 0x08102,
    DAT_SOFTWARE_EVENT                           = 0x10001,
    DAT_EXTENSION_EVENT                          = 0x20000,
    DAT_IB_EXTENSION_RANGE_BASE                  = 0x40000,
    DAT_IW_EXTENSION_RANGE_BASE                  = 0x80000
} DAT_EVENT_NUMBER;

/* Operation that a DTO completion reports. */
typedef enum dat_dtos {
    DAT_DTO_SEND                    = 0,
    DAT_DTO_RDMA_WRITE              = 1,
    DAT_DTO_RDMA_READ               = 2,
    DAT_DTO_RECEIVE                 = 3,
    DAT_DTO_RECEIVE_WITH_INVALIDATE = 4,
    DAT_DTO_BIND_MW                 = 5,
    DAT_DTO_LMR_FMR                 = 6,
    DAT_DTO_LMR_INVALIDATE          = 7,
    DAT_DTO_EXTENSION_BASE          = 8
} DAT_DTOS;

/* Outcome of a DTO or RMR bind. */
typedef enum dat_dto_completion_status {
    DAT_DTO_SUCCESS                = 0,
    DAT_DTO_ERR_FLUSHED            = 1,
    DAT_DTO_ERR_LOCAL_LENGTH       = 2,
    DAT_DTO_ERR_LOCAL_EP           = 3,
    DAT_DTO_ERR_LOCAL_PROTECTION   = 4,
    DAT_DTO_ERR_BAD_RESPONSE       = 5,
    DAT_DTO_ERR_REMOTE_ACCESS      = 6,
    DAT_DTO_ERR_REMOTE_RESPONDER   = 7,
    DAT_DTO_ERR_TRANSPORT          = 8,
    DAT_DTO_ERR_RECEIVER_NOT_READY = 9,
    DAT_DTO_ERR_PARTIAL_PACKET     = 10,
    DAT_RMR_OPERATION_FAILED       = 11,
    DAT_DTO_ERR_LOCAL_MM_ERROR     = 12
} DAT_DTO_COMPLETION_STATUS;
#define DAT_DTO_LENGTH_ERROR DAT_DTO_ERR_LOCAL_LENGTH
#define DAT_DTO_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_SUCCESS DAT_DTO_SUCCESS
#define DAT_RMR_BIND_FAILURE DAT_DTO_ERR_FLUSHED

typedef DAT_DTO_COMPLETION_STATUS DAT_RMR_BIND_COMPLETION_STATUS;

/* Reason in an asynchronous event of an IA. */
typedef enum ia_async_error_reason {
    DAT_IA_CATASTROPHIC_ERROR = 0,
    DAT_IA_OTHER_ERROR        = 1
} DAT_IA_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of an EP. */
typedef enum ep_async_error_reason {
    DAT_EP_TRANSFER_TO_ERROR          = 0,
    DAT_EP_OTHER_ERROR                = 1,
    DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2
} DAT_EP_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of an EVD. */
typedef enum evd_async_error_reason {
    DAT_EVD_OVERFLOW_ERROR = 0,
    DAT_EVD_OTHER_ERROR    = 1
} DAT_EVD_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of an SRQ. */
typedef enum srq_async_error_reason {
    DAT_SRQ_TRANSFER_TO_ERROR   = 0,
    DAT_SRQ_OTHER_ERROR         = 1,
    DAT_SRQ_LOW_WATERMARK_EVENT = 2
} DAT_SRQ_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of an LMR. */
typedef enum lmr_async_error_reason {
    DAT_LMR_OTHER_ERROR = 0
} DAT_LMR_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of an RMR. */
typedef enum rmr_async_error_reason {
    DAT_RMR_OTHER_ERROR = 0
} DAT_RMR_ASYNC_ERROR_REASON;

/* Reason in an asynchronous event of a PZ. */
typedef enum pz_async_error_reason {
    DAT_PZ_OTHER_ERROR = 0
} DAT_PZ_ASYNC_ERROR_REASON;

/* A DTO completed. */
typedef struct dat_dto_completion_event_data {
    DAT_EP_HANDLE ep_handle;          /* The endpoint. */
    DAT_DTO_COOKIE user_cookie;       /* The cookie it was posted with. */
    DAT_DTO_COMPLETION_STATUS status; /* Outcome. */
    /* Bytes; undefined unless status is success. (The spelling is that of the standard.) */
    DAT_SEG_LENGTH transfered_length;
    DAT_DTOS operation;               /* Which operation completed. */
    DAT_RMR_CONTEXT rmr_context;      /* RMR context that the peer invalidated; undefined unless status is success. */
} DAT_DTO_COMPLETION_EVENT_DATA;

/* An RMR bind completed. */
typedef struct dat_rmr_bind_completion_event_data {
    DAT_RMR_HANDLE rmr_handle;             /* The RMR. */
    DAT_RMR_COOKIE user_cookie;            /* The cookie it was posted with. */
    DAT_RMR_BIND_COMPLETION_STATUS status; /* Outcome. */
} DAT_RMR_BIND_COMPLETION_EVENT_DATA;

/* A service point of any kind. */
typedef union dat_sp_handle {
    DAT_RSP_HANDLE rsp_handle; /* A reserved service point. */
    DAT_PSP_HANDLE psp_handle; /* A public service point. */
    DAT_CSP_HANDLE csp_handle; /* A common service point. */
} DAT_SP_HANDLE;

/* A connection request arrived. */
typedef struct dat_cr_arrival_event_data {
    /* Service point that received it. */
    DAT_SP_HANDLE sp_handle;
    DAT_IA_ADDRESS_PTR local_ia_address_ptr; /* Address of the local IA, owned by the provider. */
    DAT_CONN_QUAL conn_qual;                 /* Connection qualifier. */
    DAT_CR_HANDLE cr_handle;                 /* The connection request, to accept, reject or hand off. */
    DAT_BOOLEAN truncate_flag;               /* Whether private data was cut. */
} DAT_CR_ARRIVAL_EVENT_DATA;

/* A connection changed. */
typedef struct dat_connection_event_data {
    DAT_EP_HANDLE ep_handle;     /* The endpoint. */
    DAT_COUNT private_data_size; /* Bytes of private data. */
    DAT_PVOID private_data;      /* Private data of the peer, owned by the provider. */
} DAT_CONNECTION_EVENT_DATA;

/* An asynchronous error or watermark. */
typedef struct dat_asynch_error_event_data {
    DAT_HANDLE dat_handle; /* The object concerned: IA, EP, EVD, SRQ, LMR, RMR or PZ. */
    DAT_COUNT reason;      /* One of the DAT_..._ASYNC_ERROR_REASON of the object's kind. */
} DAT_ASYNCH_ERROR_EVENT_DATA;

/* A software event, dat_evd_post_se. */
typedef struct dat_software_event_data {
    DAT_PVOID pointer; /* The consumer's pointer. */
} DAT_SOFTWARE_EVENT_DATA;

/* Payload of an event; DAT_EVENT_NUMBER selects the member. */
typedef union dat_event_data {
    DAT_DTO_COMPLETION_EVENT_DATA dto_completion_event_data;      /* DAT_DTO_COMPLETION_EVENT. */
    DAT_RMR_BIND_COMPLETION_EVENT_DATA rmr_completion_event_data; /* DAT_RMR_BIND_COMPLETION_EVENT. */
    DAT_CR_ARRIVAL_EVENT_DATA cr_arrival_event_data;              /* DAT_CONNECTION_REQUEST_EVENT. */
    DAT_CONNECTION_EVENT_DATA connect_event_data;                 /* DAT_CONNECTION_EVENT_.... */
    DAT_ASYNCH_ERROR_EVENT_DATA asynch_error_event_data;          /* DAT_ASYNC_ERROR_.... */
    DAT_SOFTWARE_EVENT_DATA software_event_data;                  /* DAT_SOFTWARE_EVENT. */
} DAT_EVENT_DATA;

/* One event, 120 bytes. */
typedef struct dat_event {
    DAT_EVENT_NUMBER event_number;      /* What happened. */
    DAT_EVD_HANDLE evd_handle;          /* EVD that delivered it. */
    DAT_EVENT_DATA event_data;          /* Payload. */
    DAT_UINT64 event_extension_data[8]; /* Payload of extended events. */
} DAT_EVENT;

/* ---- Functions ------------------------------------------------------------------------------- */

/*
 * Interface adapters. dat_ia_open requests the version and thread safety of <dat2/udat_config.h>.
 */

extern DAT_RETURN DAT_API dat_ia_openv(
    const DAT_NAME_PTR name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);

#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)

extern DAT_RETURN DAT_API dat_ia_query(
    DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
    DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR *provider_attr);

extern DAT_RETURN DAT_API dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);

/* Any object. */

extern DAT_RETURN DAT_API dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);

extern DAT_RETURN DAT_API dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT *context);

extern DAT_RETURN DAT_API dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

/* Memory: protection zones, local and remote memory regions. */

extern DAT_RETURN DAT_API dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);

extern DAT_RETURN DAT_API dat_pz_query(
    DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask, DAT_PZ_PARAM *pz_param);

extern DAT_RETURN DAT_API dat_pz_free(DAT_PZ_HANDLE pz_handle);

extern DAT_RETURN DAT_API dat_lmr_create(
    DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type,
    DAT_LMR_HANDLE *lmr_handle, DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context,
    DAT_VLEN *registered_length, DAT_VADDR *registered_address);

extern DAT_RETURN DAT_API dat_lmr_query(
    DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask, DAT_LMR_PARAM *lmr_param);

extern DAT_RETURN DAT_API dat_lmr_free(DAT_LMR_HANDLE lmr_handle);

extern DAT_RETURN DAT_API dat_lmr_sync_rdma_read(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

extern DAT_RETURN DAT_API dat_lmr_sync_rdma_write(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

extern DAT_RETURN DAT_API dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

extern DAT_RETURN DAT_API dat_rmr_query(
    DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask, DAT_RMR_PARAM *rmr_param);

extern DAT_RETURN DAT_API dat_rmr_bind(
    DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
    DAT_MEM_PRIV_FLAGS mem_priv, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);

extern DAT_RETURN DAT_API dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

extern DAT_RETURN DAT_API dat_rmr_create_for_ep(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

/* Event dispatchers and consumer notification objects. */

extern DAT_RETURN DAT_API dat_evd_create(
    DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle, DAT_EVD_FLAGS evd_flags,
    DAT_EVD_HANDLE *evd_handle);

extern DAT_RETURN DAT_API dat_evd_query(
    DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask, DAT_EVD_PARAM *evd_param);

extern DAT_RETURN DAT_API dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);

extern DAT_RETURN DAT_API dat_evd_enable(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_evd_disable(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_evd_wait(
    DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
    DAT_COUNT *n_more_events);

extern DAT_RETURN DAT_API dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);

extern DAT_RETURN DAT_API dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);

extern DAT_RETURN DAT_API dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);

extern DAT_RETURN DAT_API dat_evd_free(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle);

extern DAT_RETURN DAT_API dat_cno_create(
    DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);

extern DAT_RETURN DAT_API dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);

extern DAT_RETURN DAT_API dat_cno_query(
    DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask, DAT_CNO_PARAM *cno_param);

extern DAT_RETURN DAT_API dat_cno_free(DAT_CNO_HANDLE cno_handle);

extern DAT_RETURN DAT_API dat_cno_wait(
    DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);

extern DAT_RETURN DAT_API dat_cno_fd_create(
    DAT_IA_HANDLE ia_handle, DAT_FD *file_descriptor, DAT_CNO_HANDLE *cno_handle);

extern DAT_RETURN DAT_API dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE *evd_handle);

/* Endpoints. */

extern DAT_RETURN DAT_API dat_ep_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

extern DAT_RETURN DAT_API dat_ep_query(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, DAT_EP_PARAM *ep_param);

extern DAT_RETURN DAT_API dat_ep_modify(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, const DAT_EP_PARAM *ep_param);

extern DAT_RETURN DAT_API dat_ep_connect(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_CONN_QUAL remote_conn_qual,
    DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);

extern DAT_RETURN DAT_API dat_ep_dup_connect(
    DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE ep_dup_handle, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
    const DAT_PVOID private_data, DAT_QOS quality_of_service);

extern DAT_RETURN DAT_API dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);

extern DAT_RETURN DAT_API dat_ep_get_status(
    DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state, DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);

extern DAT_RETURN DAT_API dat_ep_free(DAT_EP_HANDLE ep_handle);

extern DAT_RETURN DAT_API dat_ep_reset(DAT_EP_HANDLE ep_handle);

extern DAT_RETURN DAT_API dat_ep_create_with_srq(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

extern DAT_RETURN DAT_API dat_ep_recv_query(
    DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated, DAT_COUNT *bufs_alloc_span);

extern DAT_RETURN DAT_API dat_ep_set_watermark(
    DAT_EP_HANDLE ep_handle, DAT_COUNT ep_soft_high_watermark, DAT_COUNT hard_high_watermark);

extern DAT_RETURN DAT_API dat_ep_common_connect(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const DAT_PVOID private_data);

/*
 * Data transfer. The segment arrays can be reused when the call returns, unless DAT_IOV_OWNERSHIP
 * says otherwise.
 */

extern DAT_RETURN DAT_API dat_ep_post_send(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

extern DAT_RETURN DAT_API dat_ep_post_recv(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

extern DAT_RETURN DAT_API dat_ep_post_rdma_read(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

extern DAT_RETURN DAT_API dat_ep_post_rdma_write(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

extern DAT_RETURN DAT_API dat_ep_post_send_with_invalidate(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context);

extern DAT_RETURN DAT_API dat_ep_post_rdma_read_to_rmr(
    DAT_EP_HANDLE ep_handle, const DAT_RMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

/* Shared receive queues. */

extern DAT_RETURN DAT_API dat_srq_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *srq_attributes,
    DAT_SRQ_HANDLE *srq_handle);

extern DAT_RETURN DAT_API dat_srq_free(DAT_SRQ_HANDLE srq_handle);

extern DAT_RETURN DAT_API dat_srq_post_recv(
    DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie);

extern DAT_RETURN DAT_API dat_srq_query(
    DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask, DAT_SRQ_PARAM *srq_param);

extern DAT_RETURN DAT_API dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);

extern DAT_RETURN DAT_API dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

/* Service points. */

extern DAT_RETURN DAT_API dat_psp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

extern DAT_RETURN DAT_API dat_psp_query(
    DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask, DAT_PSP_PARAM *psp_param);

extern DAT_RETURN DAT_API dat_psp_free(DAT_PSP_HANDLE psp_handle);

extern DAT_RETURN DAT_API dat_psp_create_any(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

extern DAT_RETURN DAT_API dat_rsp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
    DAT_RSP_HANDLE *rsp_handle);

extern DAT_RETURN DAT_API dat_rsp_query(
    DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask, DAT_RSP_PARAM *rsp_param);

extern DAT_RETURN DAT_API dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

extern DAT_RETURN DAT_API dat_csp_create(
    DAT_IA_HANDLE ia_handle, DAT_COMM *communicator, DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE evd_handle,
    DAT_CSP_HANDLE *csp_handle);

extern DAT_RETURN DAT_API dat_csp_query(
    DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK csp_param_mask, DAT_CSP_PARAM *csp_param);

extern DAT_RETURN DAT_API dat_csp_free(DAT_CSP_HANDLE csp_handle);

/* Connection requests. */

extern DAT_RETURN DAT_API dat_cr_query(
    DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask, DAT_CR_PARAM *cr_param);

extern DAT_RETURN DAT_API dat_cr_accept(
    DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);

extern DAT_RETURN DAT_API dat_cr_reject(
    DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, const DAT_PVOID private_data);

extern DAT_RETURN DAT_API dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

/* Registry, messages, extensions. */

/*
 * Fills at most max_to_return of the structures that the array points to; *entries_returned is
 * their number.
 */
extern DAT_RETURN DAT_API dat_registry_list_providers(
    DAT_COUNT max_to_return, DAT_COUNT *entries_returned, DAT_PROVIDER_INFO *(dat_provider_list[]));

/* The names of the type and of the subtype of a status; the texts are static. */
extern DAT_RETURN DAT_API dat_strerror(DAT_RETURN value, const char **major_message, const char **minor_message);

/* The arguments depend on the operation: see the macros of <dat2/dat_ib_extensions.h>. */
extern DAT_RETURN DAT_API dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);

#ifdef __cplusplus
}
#endif

#endif /* DAT2_UDAT_H */
