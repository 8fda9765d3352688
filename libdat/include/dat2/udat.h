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

/*
 * Opens an interface adapter (IA) by its name.
 * name: The name of the adapter in the registry, a text of 1 to 255 octets in UTF-8 that ends with
 *     a NUL, for example "tcp-emu". NULL is invalid.
 * async_evd_min_qlen: The minimum length, in entries, of the event dispatcher (EVD) for
 *     asynchronous events that the call creates. The value is ignored unless async_evd_handle is
 *     DAT_HANDLE_NULL.
 * async_evd_handle: Input and output: the EVD to which the IA reports asynchronous events, such as
 *     failures of the adapter. NULL is invalid. Before the call, the program sets async_evd_handle
 *     to one of the values in the description: DAT_HANDLE_NULL, the handle of an EVD, or
 *     DAT_EVD_ASYNC_EXISTS.
 * ia_handle: Output: the handle of the new IA. NULL is invalid.
 * dapl_major: The major version of uDAPL that the program uses: 2 with libdat2, and 1 with
 *     libdat.so.1.
 * dapl_minor: The minimum minor version of uDAPL.
 * thread_safety: DAT_TRUE if the program needs a thread-safe adapter, else DAT_FALSE.
 * See dat_ia_open(3dat).
 */
extern DAT_RETURN DAT_API dat_ia_openv(
    const DAT_NAME_PTR name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);

/*
 * Opens an interface adapter (IA) by its name.
 * name: The name of the adapter in the registry, a text of 1 to 255 octets in UTF-8 that ends with
 *     a NUL, for example "tcp-emu". NULL is invalid.
 * async_evd_min_qlen: The minimum length, in entries, of the event dispatcher (EVD) for
 *     asynchronous events that the call creates. The value is ignored unless async_evd_handle is
 *     DAT_HANDLE_NULL.
 * async_evd_handle: Input and output: the EVD to which the IA reports asynchronous events, such as
 *     failures of the adapter. NULL is invalid. Before the call, the program sets async_evd_handle
 *     to one of the values in the description: DAT_HANDLE_NULL, the handle of an EVD, or
 *     DAT_EVD_ASYNC_EXISTS.
 * ia_handle: Output: the handle of the new IA. NULL is invalid.
 * See dat_ia_open(3dat).
 */
#define dat_ia_open(name, async_evd_min_qlen, async_evd_handle, ia_handle) \
    dat_ia_openv((name), (async_evd_min_qlen), (async_evd_handle), (ia_handle), \
                 DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)

/*
 * Returns the attributes of an IA and of its provider.
 * ia_handle: The interface adapter (IA), as dat_ia_open returned it. DAT_HANDLE_NULL is invalid.
 * async_evd_handle: Output: the event dispatcher (EVD) to which the IA reports asynchronous events.
 *     NULL means that the program does not want it.
 * ia_attr_mask: The attributes of the adapter that the program wants, a union of the constants
 *     DAT_IA_FIELD_...
 * ia_attr: Output: the attributes of the adapter, in a structure of the program. NULL is allowed if
 *     ia_attr_mask is 0, and then nothing is written.
 * provider_attr_mask: The attributes of the provider that the program wants, a union of the
 *     constants DAT_PROVIDER_FIELD_...
 * provider_attr: Output: the attributes of the provider, in a structure of the program. NULL is
 *     allowed if provider_attr_mask is 0, and then nothing is written.
 * See dat_ia_query(3dat).
 */
extern DAT_RETURN DAT_API dat_ia_query(
    DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
    DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR *provider_attr);

/*
 * Closes an IA, and frees its objects if the program wants that.
 * ia_handle: The interface adapter (IA), as dat_ia_open returned it. DAT_HANDLE_NULL is invalid.
 * close_flags: How to close the IA.
 * See dat_ia_close(3dat).
 */
extern DAT_RETURN DAT_API dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS close_flags);

/* Any object. */

/*
 * Stores a value of the program with an object.
 * dat_handle: Any object: an interface adapter (IA), endpoint (EP), event dispatcher (EVD),
 *     consumer notification object (CNO), connection request (CR), public service point (PSP),
 *     reserved service point (RSP), common service point (CSP), protection zone (PZ), local memory
 *     region (LMR), remote memory region (RMR) or shared receive queue (SRQ). DAT_HANDLE_NULL is
 *     invalid.
 * context: The value, a DAT_CONTEXT. A NULL pointer, which is the value of a new object, means that
 *     the object has no context.
 * See dat_set_consumer_context(3dat).
 */
extern DAT_RETURN DAT_API dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);

/*
 * Returns the value that the program has stored with an object.
 * dat_handle: Any object: an interface adapter (IA), endpoint (EP), event dispatcher (EVD),
 *     consumer notification object (CNO), connection request (CR), public service point (PSP),
 *     reserved service point (RSP), common service point (CSP), protection zone (PZ), local memory
 *     region (LMR), remote memory region (RMR) or shared receive queue (SRQ). DAT_HANDLE_NULL is
 *     invalid.
 * context: Output: the context of the object, a DAT_CONTEXT in memory of the program. NULL is
 *     invalid.
 * See dat_get_consumer_context(3dat).
 */
extern DAT_RETURN DAT_API dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT *context);

/*
 * Returns the type of the object that a handle names.
 * dat_handle: Any object. DAT_HANDLE_NULL is invalid.
 * handle_type: Output: the type of the object, one of the values in the description. NULL is
 *     invalid.
 * See dat_get_handle_type(3dat).
 */
extern DAT_RETURN DAT_API dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

/* Memory: protection zones, local and remote memory regions. */

/*
 * Creates a protection zone (PZ).
 * ia_handle: The interface adapter (IA) to which the PZ belongs. DAT_HANDLE_NULL is invalid.
 * pz_handle: Output: the handle of the new PZ. NULL is invalid.
 * See dat_pz_create(3dat).
 */
extern DAT_RETURN DAT_API dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);

/*
 * Returns the parameters of a protection zone (PZ).
 * pz_handle: The PZ. DAT_HANDLE_NULL is invalid.
 * pz_param_mask: The parameters that the program wants.
 * pz_param: Output: the parameters, in a structure of the program. NULL is allowed if pz_param_mask
 *     is 0.
 * See dat_pz_query(3dat).
 */
extern DAT_RETURN DAT_API dat_pz_query(
    DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask, DAT_PZ_PARAM *pz_param);

/*
 * Frees a protection zone (PZ).
 * pz_handle: The PZ. DAT_HANDLE_NULL is invalid.
 * See dat_pz_free(3dat).
 */
extern DAT_RETURN DAT_API dat_pz_free(DAT_PZ_HANDLE pz_handle);

/*
 * Registers memory with an IA and creates a local memory region (LMR) for it.
 * ia_handle: The interface adapter (IA). DAT_HANDLE_NULL is invalid.
 * mem_type: What region_description describes: DAT_MEM_TYPE_VIRTUAL (a range of addresses),
 *     DAT_MEM_TYPE_LMR (the memory of another LMR) or DAT_MEM_TYPE_SHARED_VIRTUAL (a range of
 *     addresses that several processes share).
 * region_description: The memory, a union that is passed by value. No address and no pointer may be
 *     NULL.
 * length: The length of the memory in octets, at least 1.
 * pz_handle: The protection zone (PZ) of the LMR, which belongs to the same IA. DAT_HANDLE_NULL is
 *     invalid.
 * privileges: What the LMR permits, a union of the flags in the description.
 * va_type: How segments name the octets of the LMR: DAT_VA_TYPE_VA by their addresses in the memory
 *     of this process, or DAT_VA_TYPE_ZB by their distances from the first octet of the LMR
 *     (zero-based).
 * lmr_handle: Output: the handle of the LMR. NULL is invalid.
 * lmr_context: Output: the key with which this process names the LMR in local segments. NULL means
 *     that the program does not want it.
 * rmr_context: Output: the key with which peers name the LMR. NULL means that the program does not
 *     want it.
 * registered_length: Output: the length of the registered memory in octets. NULL means that the
 *     program does not want it.
 * registered_address: Output: the address of the first registered octet in the memory of this
 *     process, also for a zero-based LMR. NULL means that the program does not want it.
 * See dat_lmr_create(3dat).
 */
extern DAT_RETURN DAT_API dat_lmr_create(
    DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type,
    DAT_LMR_HANDLE *lmr_handle, DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context,
    DAT_VLEN *registered_length, DAT_VADDR *registered_address);

/*
 * Returns the parameters of a local memory region (LMR).
 * lmr_handle: The LMR. DAT_HANDLE_NULL is invalid.
 * lmr_param_mask: The parameters that the program wants, a union of the constants DAT_LMR_FIELD_...
 * lmr_param: Output: the parameters, in a structure of the program. NULL is allowed if
 *     lmr_param_mask is 0.
 * See dat_lmr_query(3dat).
 */
extern DAT_RETURN DAT_API dat_lmr_query(
    DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask, DAT_LMR_PARAM *lmr_param);

/*
 * Frees a local memory region (LMR).
 * lmr_handle: The LMR. DAT_HANDLE_NULL is invalid.
 * See dat_lmr_free(3dat).
 */
extern DAT_RETURN DAT_API dat_lmr_free(DAT_LMR_HANDLE lmr_handle);

/*
 * Makes memory of this process visible to the RDMA reads of peers.
 * ia_handle: The interface adapter (IA) to which the local memory regions (LMRs) of the segments
 *     belong. DAT_HANDLE_NULL is invalid.
 * local_segments: An array of segments, each with the address, the length in octets and the LMR
 *     context of a range of memory. NULL is allowed if num_segments is 0.
 * num_segments: The number of segments.
 * See dat_lmr_sync_rdma_read(3dat).
 */
extern DAT_RETURN DAT_API dat_lmr_sync_rdma_read(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

/*
 * Makes the RDMA writes of peers visible to this process.
 * ia_handle: The interface adapter (IA) to which the local memory regions (LMRs) of the segments
 *     belong. DAT_HANDLE_NULL is invalid.
 * local_segments: An array of segments, each with the address, the length in octets and the LMR
 *     context of a range of memory. NULL is allowed if num_segments is 0.
 * num_segments: The number of segments.
 * See dat_lmr_sync_rdma_write(3dat).
 */
extern DAT_RETURN DAT_API dat_lmr_sync_rdma_write(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments, DAT_VLEN num_segments);

/*
 * Creates a remote memory region (RMR) for all endpoints of a protection zone.
 * pz_handle: The protection zone (PZ) of the remote memory region (RMR). DAT_HANDLE_NULL is
 *     invalid.
 * rmr_handle: A pointer to the variable that receives the handle of the new RMR. NULL is invalid.
 * See dat_rmr_create(3dat).
 */
extern DAT_RETURN DAT_API dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

/*
 * Returns the parameters of a remote memory region (RMR) and its present binding.
 * rmr_handle: The remote memory region (RMR). DAT_HANDLE_NULL is invalid.
 * rmr_param_mask: A mask of the flags DAT_RMR_FIELD_... that names the requested members of
 *     rmr_param, or DAT_RMR_FIELD_ALL.
 * rmr_param: A pointer to a DAT_RMR_PARAM that the library fills. NULL is allowed only if
 *     rmr_param_mask is 0.
 * See dat_rmr_query(3dat).
 */
extern DAT_RETURN DAT_API dat_rmr_query(
    DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask, DAT_RMR_PARAM *rmr_param);

/*
 * Gives peers access to a part of a local memory region, or ends the access.
 * rmr_handle: The remote memory region (RMR) that is bound. DAT_HANDLE_NULL is invalid.
 * lmr_handle: The local memory region (LMR) that contains the memory. If segment_length is 0, the
 *     handle is ignored, and DAT_HANDLE_NULL is allowed. Otherwise DAT_HANDLE_NULL is invalid.
 * lmr_triplet: A pointer to one triplet that names the memory: virtual_address is the address of
 *     the first octet (or its offset, if the LMR is zero-based), segment_length is the length in
 *     octets, and lmr_context is the LMR context of lmr_handle. NULL is invalid.
 * mem_priv: The privileges that peers get: DAT_MEM_PRIV_REMOTE_READ_FLAG (0x02),
 *     DAT_MEM_PRIV_REMOTE_WRITE_FLAG (0x20), both, or DAT_MEM_PRIV_NONE_FLAG (0).
 * va_type: DAT_VA_TYPE_VA if peers address the memory by the addresses of this side, or
 *     DAT_VA_TYPE_ZB if they address its first octet as 0.
 * ep_handle: The endpoint (EP) to whose request queue the bind is posted. DAT_HANDLE_NULL is
 *     invalid.
 * user_cookie: 64 bits that the event of the bind returns unchanged.
 * completion_flags: A mask of completion flags.
 * rmr_context: A pointer to the variable that receives the new RMR context. NULL is invalid.
 * See dat_rmr_bind(3dat).
 */
extern DAT_RETURN DAT_API dat_rmr_bind(
    DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
    DAT_MEM_PRIV_FLAGS mem_priv, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);

/*
 * Frees a remote memory region (RMR), whether it is bound or not.
 * rmr_handle: The remote memory region (RMR). DAT_HANDLE_NULL is invalid.
 * See dat_rmr_free(3dat).
 */
extern DAT_RETURN DAT_API dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

/*
 * Creates a remote memory region (RMR) whose contexts only one peer can use.
 * pz_handle: The protection zone (PZ) of the remote memory region (RMR). DAT_HANDLE_NULL is
 *     invalid.
 * rmr_handle: A pointer to the variable that receives the handle of the new RMR. NULL is invalid.
 * See dat_rmr_create_for_ep(3dat).
 */
extern DAT_RETURN DAT_API dat_rmr_create_for_ep(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);

/* Event dispatchers and consumer notification objects. */

/*
 * Creates an event dispatcher.
 * ia_handle: The open interface adapter (IA) to which the event dispatcher (EVD) will belong.
 *     DAT_HANDLE_NULL is invalid.
 * evd_min_qlen: The number of events that the EVD must be able to hold, from 1 to the attribute
 *     max_evd_qlen of the IA (see dat_ia_attr).
 * cno_handle: The consumer notification object (CNO) that the EVD triggers when an event arrives,
 *     or DAT_HANDLE_NULL for none.
 * evd_flags: The streams of events that the EVD accepts: one or more of DAT_EVD_SOFTWARE_FLAG,
 *     DAT_EVD_CR_FLAG, DAT_EVD_DTO_FLAG, DAT_EVD_CONNECTION_FLAG, DAT_EVD_RMR_BIND_FLAG and
 *     DAT_EVD_ASYNC_FLAG, combined by OR.
 * evd_handle: Receives the handle of the new EVD. NULL is invalid.
 * See dat_evd_create(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_create(
    DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle, DAT_EVD_FLAGS evd_flags,
    DAT_EVD_HANDLE *evd_handle);

/*
 * Returns the parameters and the state of an event dispatcher.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * evd_param_mask: The members of evd_param that the program wants: values of
 *     DAT_EVD_FIELD_IA_HANDLE (0x01), DAT_EVD_FIELD_EVD_QLEN (0x02), DAT_EVD_FIELD_EVD_STATE
 *     (0x04), DAT_EVD_FIELD_CNO (0x08) and DAT_EVD_FIELD_EVD_FLAGS (0x10), combined by OR.
 * evd_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_evd_query(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_query(
    DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask, DAT_EVD_PARAM *evd_param);

/*
 * Changes the CNO that an event dispatcher triggers.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * cno_handle: The new consumer notification object (CNO), which must belong to the same interface
 *     adapter (IA), or DAT_HANDLE_NULL if the EVD is to trigger none.
 * See dat_evd_modify_cno(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);

/*
 * Lets the events of an event dispatcher trigger its CNO.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * See dat_evd_enable(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_enable(DAT_EVD_HANDLE evd_handle);

/*
 * Keeps the events of an event dispatcher from triggering its CNO.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * See dat_evd_disable(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_disable(DAT_EVD_HANDLE evd_handle);

/*
 * Waits for events on an event dispatcher and takes the first one.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * timeout: How long the call may wait, in microseconds.
 * threshold: How many events must be queued before the call returns successfully, from 1 to the
 *     length evd_qlen of the EVD (see dat_evd_query).
 * event: Receives the first event. NULL is invalid.
 * n_more_events: Receives the number of events that are still queued when the call returns. NULL is
 *     invalid.
 * See dat_evd_wait(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_wait(
    DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
    DAT_COUNT *n_more_events);

/*
 * Changes the number of events that an event dispatcher can hold.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * evd_min_qlen: The number of events that the EVD must be able to hold from now on, from 1 to the
 *     attribute max_evd_qlen of the interface adapter (IA) (see dat_ia_attr).
 * See dat_evd_resize(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);

/*
 * Posts a software event to an event dispatcher.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * event: The event. NULL is invalid.
 * See dat_evd_post_se(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);

/*
 * Takes the first event from an event dispatcher without waiting.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * event: Receives the event. NULL is invalid.
 * See dat_evd_dequeue(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);

/*
 * Frees an event dispatcher.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * See dat_evd_free(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_free(DAT_EVD_HANDLE evd_handle);

/*
 * Ends a wait on an event dispatcher and refuses further waits.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * See dat_evd_set_unwaitable(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle);

/*
 * Permits threads to wait on an event dispatcher again.
 * evd_handle: The event dispatcher (EVD). DAT_HANDLE_NULL is invalid.
 * See dat_evd_clear_unwaitable(3dat).
 */
extern DAT_RETURN DAT_API dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle);

/*
 * Creates a consumer notification object, on which threads wait for several EVDs.
 * ia_handle: The open interface adapter (IA) to which the consumer notification object (CNO) will
 *     belong. DAT_HANDLE_NULL is invalid.
 * agent: The proxy agent, passed by value: a function proxy_agent_func of the program, which the
 *     library calls at each trigger, and a pointer instance_data, which it passes to the function.
 *     DAT_OS_WAIT_PROXY_AGENT_NULL stands for no agent. So does any value whose function is NULL.
 * cno_handle: Receives the handle of the new CNO. NULL is invalid.
 * See dat_cno_create(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_create(
    DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);

/*
 * Sets, replaces or removes the proxy agent of a consumer notification object.
 * cno_handle: The consumer notification object (CNO). DAT_HANDLE_NULL is invalid.
 * agent: The new proxy agent, passed by value: see dat_cno_create. DAT_OS_WAIT_PROXY_AGENT_NULL, or
 *     any value whose function is NULL, removes the agent.
 * See dat_cno_modify_agent(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);

/*
 * Returns the parameters of a consumer notification object.
 * cno_handle: The consumer notification object (CNO). DAT_HANDLE_NULL is invalid.
 * cno_param_mask: The members of cno_param that the program wants: DAT_CNO_FIELD_IA_HANDLE (1),
 *     DAT_CNO_FIELD_PROXY_TYPE (2), DAT_CNO_FIELD_PROXY (3) or DAT_CNO_FIELD_ALL (4).
 * cno_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_cno_query(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_query(
    DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask, DAT_CNO_PARAM *cno_param);

/*
 * Frees a consumer notification object.
 * cno_handle: The consumer notification object (CNO). DAT_HANDLE_NULL is invalid.
 * See dat_cno_free(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_free(DAT_CNO_HANDLE cno_handle);

/*
 * Waits until an event dispatcher triggers a consumer notification object.
 * cno_handle: The consumer notification object (CNO). DAT_HANDLE_NULL is invalid.
 * timeout: How long the call may wait, in microseconds.
 * evd_handle: Receives the event dispatcher (EVD) that has triggered the CNO. NULL is invalid. If
 *     the wait ends without a trigger, it receives DAT_HANDLE_NULL.
 * See dat_cno_wait(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_wait(
    DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);

/*
 * Creates a consumer notification object with a file descriptor for poll(2).
 * ia_handle: The open interface adapter (IA) to which the consumer notification object (CNO) will
 *     belong. DAT_HANDLE_NULL is invalid.
 * file_descriptor: Receives the file descriptor of the CNO. NULL is invalid.
 * cno_handle: Receives the handle of the new CNO. NULL is invalid.
 * See dat_cno_fd_create(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_fd_create(
    DAT_IA_HANDLE ia_handle, DAT_FD *file_descriptor, DAT_CNO_HANDLE *cno_handle);

/*
 * Takes a trigger from a consumer notification object without waiting.
 * cno_handle: The consumer notification object (CNO). DAT_HANDLE_NULL is invalid.
 * evd_handle: Receives the event dispatcher (EVD) that has triggered the CNO. NULL is invalid. If
 *     there is no trigger, or the interface adapter (IA) is being closed, it receives
 *     DAT_HANDLE_NULL.
 * See dat_cno_trigger(3dat).
 */
extern DAT_RETURN DAT_API dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE *evd_handle);

/* Endpoints. */

/*
 * Creates an endpoint, one end of a connection.
 * ia_handle: The open interface adapter (IA) to which the endpoint (EP) belongs. DAT_HANDLE_NULL is
 *     invalid.
 * pz_handle: The protection zone (PZ) of the EP. DAT_HANDLE_NULL creates an EP that is not
 *     configured: set its PZ with dat_ep_modify before you use it.
 * recv_completion_evd_handle: The event dispatcher (EVD) that gets the completions of receives.
 *     DAT_HANDLE_NULL means that no event reports receives.
 * request_completion_evd_handle: The EVD that gets the completions of requests: sends, RDMA writes,
 *     RDMA reads, binds and atomic operations. DAT_HANDLE_NULL means that no event reports
 *     requests.
 * connect_evd_handle: The EVD that gets the connection events. DAT_HANDLE_NULL means that the
 *     program sets the EVD later with dat_ep_modify.
 * ep_attributes: A pointer to the requested attributes, which dat_ep_attr explains. NULL selects
 *     default attributes.
 * ep_handle: A pointer to the variable that receives the handle of the new EP. NULL is invalid.
 * See dat_ep_create(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

/*
 * Returns the parameters of an endpoint: objects, addresses, state, attributes.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * ep_param_mask: The members of ep_param that the program wants: constants DAT_EP_FIELD_...,
 *     combined by OR.
 * ep_param: A pointer to the structure that receives the parameters. NULL is allowed only if the
 *     mask is 0.
 * See dat_ep_query(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_query(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, DAT_EP_PARAM *ep_param);

/*
 * Changes the protection zone, the EVDs or attributes of an endpoint.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * ep_param_mask: The members of ep_param that the program wants to change: constants
 *     DAT_EP_FIELD_... of the list in the description, combined by OR.
 * ep_param: A pointer to the structure with the new values. NULL is invalid, also if the mask is 0.
 * See dat_ep_modify(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_modify(
    DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, const DAT_EP_PARAM *ep_param);

/*
 * Requests a connection from an endpoint to a service point of a peer.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * remote_ia_address: A pointer to the address of the peer: a struct sockaddr_in or struct
 *     sockaddr_in6, cast to DAT_IA_ADDRESS_PTR. NULL is invalid.
 * remote_conn_qual: The connection qualifier of the peer's service point: the number that the peer
 *     has passed to dat_psp_create or dat_rsp_create, or the port of dat_csp_create.
 * timeout: How long the attempt may last, in microseconds, from 1 to 4,294,967,294 (about 71
 *     minutes).
 * private_data_size: The number of octets of private data for the peer, from 0 to the attribute
 *     max_private_data_size of the provider (see dat_ia_attr).
 * private_data: The private data. NULL is allowed if private_data_size is 0.
 * quality_of_service: DAT_QOS_BEST_EFFORT (0), which is the default.
 * connect_flags: DAT_CONNECT_DEFAULT_FLAG (0), which is the default.
 * See dat_ep_connect(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_connect(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_CONN_QUAL remote_conn_qual,
    DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);

/*
 * Requests a connection to the peer to which another endpoint is connected.
 * ep_handle: The endpoint (EP) that will be connected. DAT_HANDLE_NULL is invalid.
 * ep_dup_handle: An EP of the same provider that is connected, and that this program has connected
 *     with dat_ep_connect, dat_ep_dup_connect or dat_ep_common_connect. DAT_HANDLE_NULL is invalid.
 * timeout: How long the attempt may last, in microseconds, from 1 to 4,294,967,294 (about 71
 *     minutes).
 * private_data_size: The number of octets of private data for the peer, from 0 to the attribute
 *     max_private_data_size of the provider (see dat_ia_attr).
 * private_data: The private data. NULL is allowed if private_data_size is 0.
 * quality_of_service: DAT_QOS_BEST_EFFORT (0), which is the default.
 * See dat_ep_dup_connect(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_dup_connect(
    DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE ep_dup_handle, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
    const DAT_PVOID private_data, DAT_QOS quality_of_service);

/*
 * Ends the connection of an endpoint, or its attempt to connect.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * close_flags: DAT_CLOSE_ABRUPT_FLAG (0), which is the default and has the other name
 *     DAT_CLOSE_DEFAULT: end the connection at once.
 * See dat_ep_disconnect(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);

/*
 * Returns the state of an endpoint, and whether its queues are idle.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * ep_state: A pointer to the variable that receives the state: see dat_ep_states. NULL means that
 *     the program does not need the state.
 * recv_idle: A pointer to the variable that receives DAT_TRUE if no receive of the EP is
 *     outstanding, and otherwise DAT_FALSE. NULL means that the program does not need this value.
 * request_idle: A pointer to the variable that receives DAT_TRUE if no request of the EP (send,
 *     RDMA write, RDMA read, bind or atomic operation) is outstanding, and otherwise DAT_FALSE.
 *     NULL means that the program does not need this value.
 * See dat_ep_get_status(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_get_status(
    DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state, DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);

/*
 * Frees an endpoint, and ends its connection.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * See dat_ep_free(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_free(DAT_EP_HANDLE ep_handle);

/*
 * Makes a disconnected endpoint ready for another connection.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * See dat_ep_reset(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_reset(DAT_EP_HANDLE ep_handle);

/*
 * Creates an endpoint that takes its receive buffers from a shared receive queue.
 * ia_handle: The open interface adapter (IA) to which the endpoint (EP) belongs. DAT_HANDLE_NULL is
 *     invalid.
 * pz_handle: The protection zone (PZ) of the EP. DAT_HANDLE_NULL creates an EP that is not
 *     configured: set its PZ with dat_ep_modify before you use it.
 * recv_completion_evd_handle: The event dispatcher (EVD) that gets the completions of receives.
 *     DAT_HANDLE_NULL means that no event reports receives.
 * request_completion_evd_handle: The EVD that gets the completions of requests: sends, RDMA writes,
 *     RDMA reads, binds and atomic operations. DAT_HANDLE_NULL means that no event reports
 *     requests.
 * connect_evd_handle: The EVD that gets the connection events. DAT_HANDLE_NULL means that the
 *     program sets the EVD later with dat_ep_modify.
 * srq_handle: The shared receive queue (SRQ) from which the EP takes its receive buffers.
 *     DAT_HANDLE_NULL is invalid.
 * ep_attributes: A pointer to the requested attributes, which dat_ep_attr explains. NULL is
 *     invalid.
 * ep_handle: A pointer to the variable that receives the handle of the new EP. NULL is invalid.
 * See dat_ep_create_with_srq(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_create_with_srq(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_completion_evd_handle,
    DAT_EVD_HANDLE request_completion_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
    DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);

/*
 * Counts the receive buffers that an endpoint is using now.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * nbufs_allocated: A pointer to the variable that receives the number of buffers that are allocated
 *     to the EP and that have not completed. NULL means that the program does not need this number.
 * bufs_alloc_span: A pointer to the variable that receives the span of these buffers, in messages.
 *     NULL means that the program does not need the span.
 * See dat_ep_recv_query(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_recv_query(
    DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated, DAT_COUNT *bufs_alloc_span);

/*
 * Limits the number of receive buffers that an endpoint may hold.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * ep_soft_high_watermark: The number of buffers above which an event is raised once: 0 or more, or
 *     DAT_WATERMARK_INFINITE (-1) for no event.
 * hard_high_watermark: The number of buffers above which the connection is broken: 0 or more, or
 *     DAT_WATERMARK_INFINITE (-1) for no limit, which is the default.
 * See dat_ep_set_watermark(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_set_watermark(
    DAT_EP_HANDLE ep_handle, DAT_COUNT ep_soft_high_watermark, DAT_COUNT hard_high_watermark);

/*
 * Requests a connection to a service point that an address and a port name.
 * ep_handle: The endpoint (EP). DAT_HANDLE_NULL is invalid.
 * remote_ia_address: A pointer to the address and port of the peer's service point: a struct
 *     sockaddr_in or struct sockaddr_in6, cast to DAT_IA_ADDRESS_PTR. NULL is invalid.
 * timeout: How long the attempt may last, in microseconds, from 1 to 4,294,967,294 (about 71
 *     minutes).
 * private_data_size: The number of octets of private data for the peer, from 0 to the attribute
 *     max_private_data_size of the provider (see dat_ia_attr).
 * private_data: The private data. NULL is allowed if private_data_size is 0.
 * See dat_ep_common_connect(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_common_connect(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const DAT_PVOID private_data);

/*
 * Data transfer. The segment arrays can be reused when the call returns, unless DAT_IOV_OWNERSHIP
 * says otherwise.
 */

/*
 * Sends a message to the peer, which receives it in a posted receive buffer.
 * ep_handle: The endpoint (EP) to which the request is posted. DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to the EP attribute max_request_iov
 *     (see dat_ep_attr).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the send returns unchanged.
 * completion_flags: A mask of completion flags.
 * See dat_ep_post_send(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_send(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

/*
 * Posts a buffer that receives one message of the peer.
 * ep_handle: The endpoint (EP) that receives the message. DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to the EP attribute max_recv_iov (see
 *     dat_ep_attr).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the receive returns unchanged.
 * completion_flags: DAT_COMPLETION_DEFAULT_FLAG (0), which is the default, or
 *     DAT_COMPLETION_UNSIGNALLED_FLAG (0x04).
 * See dat_ep_post_recv(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_recv(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags);

/*
 * Reads data directly from the memory of the peer into memory of this side.
 * ep_handle: The endpoint (EP) to which the request is posted. DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to the EP attribute max_rdma_read_iov
 *     (see dat_ep_attr).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the RDMA read returns unchanged.
 * remote_iov: A pointer to one triplet that names the memory of the peer. NULL is invalid.
 * completion_flags: A mask of completion flags.
 * See dat_ep_post_rdma_read(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_rdma_read(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

/*
 * Writes data of this side directly into the memory of the peer.
 * ep_handle: The endpoint (EP) to which the request is posted. DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to the EP attribute max_rdma_write_iov,
 *     or max_request_iov if that is 0 (see dat_ep_attr).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the RDMA write returns unchanged.
 * remote_iov: A pointer to one triplet that names the memory of the peer. NULL is invalid.
 * completion_flags: A mask of completion flags.
 * See dat_ep_post_rdma_write(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_rdma_write(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

/*
 * Sends a message that also invalidates an RMR context of the peer.
 * ep_handle: The endpoint (EP) to which the request is posted. DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to the EP attribute max_request_iov
 *     (see dat_ep_attr).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the send returns unchanged.
 * completion_flags: A mask of completion flags.
 * invalidate_flag: DAT_TRUE if the message invalidates rmr_context, or DAT_FALSE if it is an
 *     ordinary message.
 * rmr_context: The remote memory region (RMR) context that the peer has sent to this side and that
 *     becomes invalid.
 * See dat_ep_post_send_with_invalidate(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_send_with_invalidate(
    DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context);

/*
 * Reads data from the peer's memory into local memory that an RMR context names.
 * ep_handle: The endpoint (EP) to which the request is posted. DAT_HANDLE_NULL is invalid.
 * local_iov: A pointer to one DAT_RMR_TRIPLET that names memory of this side. NULL is invalid.
 * user_cookie: 64 bits that the event of the RDMA read returns unchanged.
 * remote_iov: A pointer to one triplet that names the memory of the peer. NULL is invalid.
 * completion_flags: A mask of completion flags.
 * See dat_ep_post_rdma_read_to_rmr(3dat).
 */
extern DAT_RETURN DAT_API dat_ep_post_rdma_read_to_rmr(
    DAT_EP_HANDLE ep_handle, const DAT_RMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie,
    const DAT_RMR_TRIPLET *remote_iov, DAT_COMPLETION_FLAGS completion_flags);

/* Shared receive queues. */

/*
 * Creates a shared receive queue (SRQ), whose buffers several endpoints use.
 * ia_handle: The open interface adapter (IA) to which the shared receive queue (SRQ) belongs.
 *     DAT_HANDLE_NULL is invalid.
 * pz_handle: The protection zone (PZ) of the SRQ. DAT_HANDLE_NULL is invalid.
 * srq_attributes: A pointer to a DAT_SRQ_ATTR with the requested attributes. NULL is invalid, and
 *     no member has a default.
 * srq_handle: A pointer to the variable that receives the handle of the new SRQ. NULL is invalid.
 * See dat_srq_create(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *srq_attributes,
    DAT_SRQ_HANDLE *srq_handle);

/*
 * Frees a shared receive queue (SRQ) that no endpoint uses.
 * srq_handle: The shared receive queue (SRQ). DAT_HANDLE_NULL is invalid.
 * See dat_srq_free(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_free(DAT_SRQ_HANDLE srq_handle);

/*
 * Posts a receive buffer that any endpoint of a shared receive queue can use.
 * srq_handle: The shared receive queue (SRQ). DAT_HANDLE_NULL is invalid.
 * num_segments: The number of segments in local_iov, from 0 to max_recv_iov of the SRQ (see
 *     dat_srq_create).
 * local_iov: An array of num_segments triplets. NULL is allowed only if num_segments is 0.
 * user_cookie: 64 bits that the event of the receive returns unchanged.
 * See dat_srq_post_recv(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_post_recv(
    DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie);

/*
 * Returns the parameters of a shared receive queue (SRQ) and counts its buffers.
 * srq_handle: The shared receive queue (SRQ). DAT_HANDLE_NULL is invalid.
 * srq_param_mask: A mask of the flags DAT_SRQ_FIELD_... that names the requested members of
 *     srq_param, or DAT_SRQ_FIELD_ALL.
 * srq_param: A pointer to a DAT_SRQ_PARAM that the library fills. NULL is allowed only if
 *     srq_param_mask is 0.
 * See dat_srq_query(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_query(
    DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask, DAT_SRQ_PARAM *srq_param);

/*
 * Changes the number of buffers that a shared receive queue (SRQ) can hold.
 * srq_handle: The shared receive queue (SRQ). DAT_HANDLE_NULL is invalid.
 * srq_max_recv_dto: The new number of buffers, from 1 to the interface adapter (IA) attribute
 *     max_recv_per_srq (see dat_ia_attr).
 * See dat_srq_resize(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);

/*
 * Requests an event when a shared receive queue (SRQ) has few buffers left.
 * srq_handle: The shared receive queue (SRQ). DAT_HANDLE_NULL is invalid.
 * low_watermark: The new low watermark in buffers, from 0 to max_recv_dtos of the SRQ.
 * See dat_srq_set_lw(3dat).
 */
extern DAT_RETURN DAT_API dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

/* Service points. */

/*
 * Creates a public service point, which receives connection requests.
 * ia_handle: The open interface adapter (IA) at which peers connect. DAT_HANDLE_NULL is invalid.
 * conn_qual: The connection qualifier on which the service point listens.
 * evd_handle: The event dispatcher (EVD) that gets the connection requests. DAT_HANDLE_NULL is
 *     invalid.
 * psp_flags: Who creates the endpoint for each request.
 * psp_handle: Receives the handle of the new service point. NULL is invalid.
 * See dat_psp_create(3dat).
 */
extern DAT_RETURN DAT_API dat_psp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

/*
 * Returns the parameters of a public service point.
 * psp_handle: The public service point (PSP). DAT_HANDLE_NULL is invalid.
 * psp_param_mask: The members of psp_param that the program wants: values of
 *     DAT_PSP_FIELD_IA_HANDLE (0x1), DAT_PSP_FIELD_CONN_QUAL (0x2), DAT_PSP_FIELD_EVD_HANDLE (0x4)
 *     and DAT_PSP_FIELD_PSP_FLAGS (0x8), combined by OR.
 * psp_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_psp_query(3dat).
 */
extern DAT_RETURN DAT_API dat_psp_query(
    DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask, DAT_PSP_PARAM *psp_param);

/*
 * Frees a public service point.
 * psp_handle: The public service point (PSP). DAT_HANDLE_NULL is invalid.
 * See dat_psp_free(3dat).
 */
extern DAT_RETURN DAT_API dat_psp_free(DAT_PSP_HANDLE psp_handle);

/*
 * Creates a public service point on a free connection qualifier.
 * ia_handle: The open interface adapter (IA) at which peers connect. DAT_HANDLE_NULL is invalid.
 * conn_qual: Receives the connection qualifier that the provider has chosen. NULL is invalid.
 * evd_handle: The event dispatcher (EVD) that gets the connection requests. DAT_HANDLE_NULL is
 *     invalid.
 * psp_flags: Who creates the endpoint for each request: DAT_PSP_CONSUMER_FLAG (0), the program, or
 *     DAT_PSP_PROVIDER_FLAG (1), the provider.
 * psp_handle: Receives the handle of the new service point. NULL is invalid.
 * See dat_psp_create_any(3dat).
 */
extern DAT_RETURN DAT_API dat_psp_create_any(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS psp_flags,
    DAT_PSP_HANDLE *psp_handle);

/*
 * Creates a reserved service point, which takes one request for one endpoint.
 * ia_handle: The open interface adapter (IA) at which the peer connects. DAT_HANDLE_NULL is
 *     invalid.
 * conn_qual: The connection qualifier on which the service point listens, as for dat_psp_create: a
 *     port from 1 to 65,535, or a greater value that is mapped to a port.
 * ep_handle: The endpoint that is reserved for the connection. DAT_HANDLE_NULL is invalid.
 * evd_handle: The event dispatcher (EVD) that gets the connection request. DAT_HANDLE_NULL is
 *     invalid.
 * rsp_handle: Receives the handle of the new service point. NULL is invalid.
 * See dat_rsp_create(3dat).
 */
extern DAT_RETURN DAT_API dat_rsp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
    DAT_RSP_HANDLE *rsp_handle);

/*
 * Returns the parameters of a reserved service point.
 * rsp_handle: The reserved service point (RSP). DAT_HANDLE_NULL is invalid.
 * rsp_param_mask: The members of rsp_param that the program wants: values of
 *     DAT_RSP_FIELD_IA_HANDLE (0x1), DAT_RSP_FIELD_CONN_QUAL (0x2), DAT_RSP_FIELD_EVD_HANDLE (0x4)
 *     and DAT_RSP_FIELD_EP_HANDLE (0x8), combined by OR.
 * rsp_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_rsp_query(3dat).
 */
extern DAT_RETURN DAT_API dat_rsp_query(
    DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask, DAT_RSP_PARAM *rsp_param);

/*
 * Frees a reserved service point.
 * rsp_handle: The reserved service point (RSP). DAT_HANDLE_NULL is invalid.
 * See dat_rsp_free(3dat).
 */
extern DAT_RETURN DAT_API dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

/*
 * Creates a common service point, which listens on an address and port.
 * ia_handle: The open interface adapter (IA) at which peers connect. DAT_HANDLE_NULL is invalid.
 * communicator: The kind of socket that the address belongs to: the three arguments of socket(2).
 *     NULL is invalid.
 * address: The address and the port on which the service point listens: a struct sockaddr_in or
 *     struct sockaddr_in6, cast to DAT_IA_ADDRESS_PTR. NULL is invalid.
 * evd_handle: The event dispatcher (EVD) that gets the connection requests. DAT_HANDLE_NULL is
 *     invalid.
 * csp_handle: Receives the handle of the new service point. NULL is invalid.
 * See dat_csp_create(3dat).
 */
extern DAT_RETURN DAT_API dat_csp_create(
    DAT_IA_HANDLE ia_handle, DAT_COMM *communicator, DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE evd_handle,
    DAT_CSP_HANDLE *csp_handle);

/*
 * Returns the parameters of a common service point.
 * csp_handle: The common service point (CSP). DAT_HANDLE_NULL is invalid.
 * csp_param_mask: The members of csp_param that the program wants: values of
 *     DAT_CSP_FIELD_IA_HANDLE (0x1), DAT_CSP_FIELD_COMM (0x2), DAT_CSP_FIELD_IA_ADDRESS (0x4) and
 *     DAT_CSP_FIELD_EVD_HANDLE (0x8), combined by OR.
 * csp_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_csp_query(3dat).
 */
extern DAT_RETURN DAT_API dat_csp_query(
    DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK csp_param_mask, DAT_CSP_PARAM *csp_param);

/*
 * Frees a common service point.
 * csp_handle: The common service point (CSP). DAT_HANDLE_NULL is invalid.
 * See dat_csp_free(3dat).
 */
extern DAT_RETURN DAT_API dat_csp_free(DAT_CSP_HANDLE csp_handle);

/* Connection requests. */

/*
 * Returns the peer, the private data and the endpoint of a connection request.
 * cr_handle: The connection request, from the event DAT_CONNECTION_REQUEST_EVENT. DAT_HANDLE_NULL
 *     is invalid.
 * cr_param_mask: The members of cr_param that the program wants: values of
 *     DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR (0x01), DAT_CR_FIELD_REMOTE_PORT_QUAL (0x02),
 *     DAT_CR_FIELD_PRIVATE_DATA_SIZE (0x04), DAT_CR_FIELD_PRIVATE_DATA (0x08) and
 *     DAT_CR_FIELD_LOCAL_EP_HANDLE (0x10), combined by OR.
 * cr_param: Receives the parameters. It may be NULL only if the mask is 0.
 * See dat_cr_query(3dat).
 */
extern DAT_RETURN DAT_API dat_cr_query(
    DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask, DAT_CR_PARAM *cr_param);

/*
 * Accepts a connection request with an endpoint.
 * cr_handle: The connection request, from the event DAT_CONNECTION_REQUEST_EVENT. DAT_HANDLE_NULL
 *     is invalid.
 * ep_handle: The endpoint that will be connected. If the request has an endpoint of its own (from a
 *     reserved service point (RSP), or from a PSP with DAT_PSP_PROVIDER_FLAG), this must be
 *     DAT_HANDLE_NULL.
 * private_data_size: The number of octets of private data for the peer, from 0 to the attribute
 *     max_private_data_size of the provider (see dat_ia_attr).
 * private_data: The private data. NULL is allowed if private_data_size is 0.
 * See dat_cr_accept(3dat).
 */
extern DAT_RETURN DAT_API dat_cr_accept(
    DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);

/*
 * Rejects a connection request.
 * cr_handle: The connection request, from the event DAT_CONNECTION_REQUEST_EVENT. DAT_HANDLE_NULL
 *     is invalid.
 * private_data_size: The number of octets of private data for the peer, from 0 to the attribute
 *     max_private_data_size of the provider (see dat_ia_attr).
 * private_data: The private data, for example the reason. NULL is allowed if private_data_size is
 *     0.
 * See dat_cr_reject(3dat).
 */
extern DAT_RETURN DAT_API dat_cr_reject(
    DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, const DAT_PVOID private_data);

/*
 * Passes a connection request to another service point of the same IA.
 * cr_handle: The connection request, from the event DAT_CONNECTION_REQUEST_EVENT. DAT_HANDLE_NULL
 *     is invalid.
 * handoff: The connection qualifier of the service point that gets the request.
 * See dat_cr_handoff(3dat).
 */
extern DAT_RETURN DAT_API dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

/* Registry, messages, extensions. */

/*
 * Lists the adapters that the registry knows.
 * max_to_return: The number of pointers in dat_provider_list, 1 or more.
 * entries_returned: Output: the number of entries that the call has written. NULL is invalid.
 * dat_provider_list: An array of max_to_return pointers, each to a DAT_PROVIDER_INFO of the
 *     program. Neither the array nor a pointer that the call uses may be NULL.
 * See dat_registry_list_providers(3dat).
 */
extern DAT_RETURN DAT_API dat_registry_list_providers(
    DAT_COUNT max_to_return, DAT_COUNT *entries_returned, DAT_PROVIDER_INFO *(dat_provider_list[]));

/*
 * Returns the names of the type and subtype of a status, or the name of an event.
 * value: The status that a DAT function has returned.
 * major_message: Output: the name of the type, for example DAT_INVALID_HANDLE. NULL is invalid.
 * minor_message: Output: the name of the subtype, for example DAT_INVALID_HANDLE_EP, or an empty
 *     text if the status has no subtype. NULL is invalid.
 * See dat_strerror(3dat).
 */
extern DAT_RETURN DAT_API dat_strerror(DAT_RETURN value, const char **major_message, const char **minor_message);

/*
 * Returns the name of an event, for example DAT_CONNECTION_EVENT_BROKEN, or "unknown event".
 * number: The member event_number of a DAT_EVENT.
 * See dat_strerror(3dat).
 */
static __inline__ const char *DAT_API dat_event_name(DAT_EVENT_NUMBER number)
{
    DAT_UINT32 value = number;
    switch (value) {
    case DAT_DTO_COMPLETION_EVENT:
        return "DAT_DTO_COMPLETION_EVENT";
    case DAT_RMR_BIND_COMPLETION_EVENT:
        return "DAT_RMR_BIND_COMPLETION_EVENT";
    case DAT_CONNECTION_REQUEST_EVENT:
        return "DAT_CONNECTION_REQUEST_EVENT";
    case DAT_CONNECTION_EVENT_ESTABLISHED:
        return "DAT_CONNECTION_EVENT_ESTABLISHED";
    case DAT_CONNECTION_EVENT_PEER_REJECTED:
        return "DAT_CONNECTION_EVENT_PEER_REJECTED";
    case DAT_CONNECTION_EVENT_NON_PEER_REJECTED:
        return "DAT_CONNECTION_EVENT_NON_PEER_REJECTED";
    case DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR:
        return "DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR";
    case DAT_CONNECTION_EVENT_DISCONNECTED:
        return "DAT_CONNECTION_EVENT_DISCONNECTED";
    case DAT_CONNECTION_EVENT_BROKEN:
        return "DAT_CONNECTION_EVENT_BROKEN";
    case DAT_CONNECTION_EVENT_TIMED_OUT:
        return "DAT_CONNECTION_EVENT_TIMED_OUT";
    case DAT_CONNECTION_EVENT_UNREACHABLE:
        return "DAT_CONNECTION_EVENT_UNREACHABLE";
    case DAT_ASYNC_ERROR_EVD_OVERFLOW:
        return "DAT_ASYNC_ERROR_EVD_OVERFLOW";
    case DAT_ASYNC_ERROR_IA_CATASTROPHIC:
        return "DAT_ASYNC_ERROR_IA_CATASTROPHIC";
    case DAT_ASYNC_ERROR_EP_BROKEN:
        return "DAT_ASYNC_ERROR_EP_BROKEN";
    case DAT_ASYNC_ERROR_TIMED_OUT:
        return "DAT_ASYNC_ERROR_TIMED_OUT";
    case DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR:
        return "DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR";
    case DAT_HA_DOWN_TO_1:
        return "DAT_HA_DOWN_TO_1";
    case DAT_HA_UP_TO_MULTI_PATH:
        return "DAT_HA_UP_TO_MULTI_PATH";
    case DAT_SOFTWARE_EVENT:
        return "DAT_SOFTWARE_EVENT";
    case DAT_EXTENSION_EVENT:
        return "DAT_EXTENSION_EVENT";
    /* The events of <dat2/dat_ib_extensions.h>, which includes this file. */
    case 0x40000:
        return "DAT_IB_DTO_EVENT";
    case 0x40001:
        return "DAT_IB_UD_CONNECTION_REQUEST_EVENT";
    case 0x40002:
        return "DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED";
    case 0x40003:
        return "DAT_IB_UD_CONNECTION_REJECT_EVENT";
    case 0x40004:
        return "DAT_IB_UD_CONNECTION_ERROR_EVENT";
    case 0x40005:
        return "DAT_IB_COLLECTIVE_EVENT";
    default:
        return "unknown event";
    }
}

/*
 * Carries out an operation that is not part of the standard.
 * handle: The object on which the operation works, as the page of the operation says.
 *     DAT_HANDLE_NULL is allowed only for operations that open an interface adapter (IA) by its
 *     name (DAT_IB_OPEN_QUERY_OP), which ignore the handle.
 * operation: The number of the operation, for example DAT_IB_FETCH_AND_ADD_OP.
 * See dat_extension_op(3dat).
 */
extern DAT_RETURN DAT_API dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);

#ifdef __cplusplus
}
#endif

#endif /* DAT2_UDAT_H */
