/* SPDX-License-Identifier: MIT OR Apache-2.0 */

/*
 * Types and constants of uDAPL 2.0, except those of events. Programs include <dat2/udat.h>, which
 * has the rest.
 *
 * "Fields of ... wanted" are the masks of the query calls, which fill in only these members.
 */

#ifndef DAT2_DAT_H
#define DAT2_DAT_H

#include <dat2/udat_config.h>
#include <dat2/dat_platform_specific.h>
#include <dat2/dat_error.h>

/* ---- Scalars and handles --------------------------------------------------------------------- */

/* Truth value; any foreign value other than DAT_FALSE is true. */
typedef enum dat_boolean {
    DAT_FALSE = 0,
    DAT_TRUE  = 1
} DAT_BOOLEAN;

typedef char *DAT_NAME_PTR;        /* NUL-terminated text of at most DAT_NAME_MAX_LENGTH bytes with the NUL */
typedef DAT_UINT32 DAT_TIMEOUT;    /* microseconds */
typedef DAT_UINT64 DAT_CONN_QUAL;  /* what a service point listens on */
typedef DAT_UINT64 DAT_PORT_QUAL;  /* port qualifier of one end of a connection */
typedef DAT_SOCK_ADDR *DAT_IA_ADDRESS_PTR;

#define DAT_NAME_MAX_LENGTH  256
#define DAT_TIMEOUT_INFINITE ((DAT_TIMEOUT)~0)

/* Counts with a meaning of their own. */
#define DAT_WATERMARK_INFINITE ((DAT_COUNT)~0)
#define DAT_HW_DEFAULT         DAT_WATERMARK_INFINITE
#define DAT_SRQ_LW_DEFAULT     0
#define DAT_VALUE_UNKNOWN      ((DAT_COUNT)~0 - 1)

/* Any DAT object. Null handle: DAT_HANDLE_NULL. */
typedef DAT_PVOID DAT_HANDLE;
typedef DAT_HANDLE DAT_IA_HANDLE;    /* interface adapter */
typedef DAT_HANDLE DAT_EP_HANDLE;    /* endpoint */
typedef DAT_HANDLE DAT_EVD_HANDLE;   /* event dispatcher */
typedef DAT_HANDLE DAT_CNO_HANDLE;   /* consumer notification object */
typedef DAT_HANDLE DAT_CR_HANDLE;    /* connection request */
typedef DAT_HANDLE DAT_LMR_HANDLE;   /* local memory region */
typedef DAT_HANDLE DAT_RMR_HANDLE;   /* remote memory region */
typedef DAT_HANDLE DAT_PSP_HANDLE;   /* public service point */
typedef DAT_HANDLE DAT_RSP_HANDLE;   /* reserved service point */
typedef DAT_HANDLE DAT_CSP_HANDLE;   /* common service point */
typedef DAT_HANDLE DAT_PZ_HANDLE;    /* protection zone */
typedef DAT_HANDLE DAT_SRQ_HANDLE;   /* shared receive queue */

#define DAT_HANDLE_NULL ((DAT_HANDLE)NULL)

/*
 * In place of an asynchronous EVD. Passed to dat_ia_open: another open of the IA has the EVD.
 * Returned by dat_ia_query: the IA was opened in that way, or the EVD that it shared is gone.
 */
#define DAT_EVD_ASYNC_EXISTS ((DAT_EVD_HANDLE)0x1)
#define DAT_EVD_OUT_OF_SCOPE ((DAT_EVD_HANDLE)0x2)

/* Kind of object behind a handle, dat_get_handle_type. */
typedef enum dat_handle_type {
    DAT_HANDLE_TYPE_CR             = 0,
    DAT_HANDLE_TYPE_EP             = 1,
    DAT_HANDLE_TYPE_EVD            = 2,
    DAT_HANDLE_TYPE_IA             = 3,
    DAT_HANDLE_TYPE_LMR            = 4,
    DAT_HANDLE_TYPE_PSP            = 5,
    DAT_HANDLE_TYPE_PZ             = 6,
    DAT_HANDLE_TYPE_RMR            = 7,
    DAT_HANDLE_TYPE_RSP            = 8,
    DAT_HANDLE_TYPE_CNO            = 9,
    DAT_HANDLE_TYPE_SRQ            = 10,
    DAT_HANDLE_TYPE_CSP            = 11,
    DAT_HANDLE_TYPE_EXTENSION_BASE = 12
} DAT_HANDLE_TYPE;

/* Consumer context or cookie, passed by value and returned unchanged. */
typedef union dat_context {
    DAT_PVOID as_ptr;       /* As a pointer. */
    DAT_UINT64 as_64;       /* As a number. */
    DAT_UVERYLONG as_index; /* As an index. */
} DAT_CONTEXT;

typedef DAT_CONTEXT DAT_DTO_COOKIE; /* returned in the completion of a DTO */
typedef DAT_CONTEXT DAT_RMR_COOKIE; /* returned in the completion of an RMR bind */

/* Name and value, both NUL-terminated text. */
typedef struct dat_named_attr {
    const char *name;  /* Name of the attribute. */
    const char *value; /* Value of the attribute. */
} DAT_NAMED_ATTR;

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef DAT_UINT32 DAT_LMR_CONTEXT; /* key for local access */
typedef DAT_UINT32 DAT_RMR_CONTEXT; /* key for remote access */
typedef DAT_UINT64 DAT_VADDR;       /* address in a region, host byte order */
typedef DAT_UINT64 DAT_VLEN;        /* bytes of a region */
typedef DAT_UINT32 DAT_SEG_LENGTH;  /* bytes of a segment */

/* Name of a shared memory region: the same DAT_LMR_COOKIE_SIZE bytes in every process. */
#define DAT_LMR_COOKIE_SIZE 40
typedef char (*DAT_LMR_COOKIE)[DAT_LMR_COOKIE_SIZE];

/*
 * What a DAT_REGION_DESCRIPTION describes; as a provider attribute, a mask of the types supported.
 */
typedef enum dat_mem_type {
    DAT_MEM_TYPE_VIRTUAL        = 0,
    DAT_MEM_TYPE_LMR            = 1,
    DAT_MEM_TYPE_SHARED_VIRTUAL = 2
} DAT_MEM_TYPE;

/* Memory access privileges. */
typedef enum dat_mem_priv_flags {
    DAT_MEM_PRIV_NONE_FLAG         = 0x00,
    DAT_MEM_PRIV_LOCAL_READ_FLAG   = 0x01,
    DAT_MEM_PRIV_REMOTE_READ_FLAG  = 0x02,
    DAT_MEM_PRIV_LOCAL_WRITE_FLAG  = 0x10,
    DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
    DAT_MEM_PRIV_ALL_FLAG          = 0x33,
    DAT_MEM_PRIV_EXTENSION_BASE    = 0x40
} DAT_MEM_PRIV_FLAGS;
#define DAT_MEM_PRIV_READ_FLAG (DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG)
#define DAT_MEM_PRIV_WRITE_FLAG (DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

/* Meaning of the addresses in a region: virtual or zero based. */
typedef enum dat_va_type {
    DAT_VA_TYPE_VA = 0,
    DAT_VA_TYPE_ZB = 1
} DAT_VA_TYPE;

/* Protection scope of an RMR. */
typedef enum dat_rmr_scope {
    DAT_RMR_SCOPE_EP  = 0,
    DAT_RMR_SCOPE_PZ  = 1,
    DAT_RMR_SCOPE_ANY = 2
} DAT_RMR_SCOPE;

/* One local segment of a DTO. With length 0 the other members are ignored. */
typedef struct dat_lmr_triplet {
    DAT_VADDR virtual_address;     /* Start, an address in the region. */
    DAT_SEG_LENGTH segment_length; /* Bytes. */
    DAT_LMR_CONTEXT lmr_context;   /* Key of the region. */
} DAT_LMR_TRIPLET;

/* One remote segment of an RDMA operation. */
typedef struct dat_rmr_triplet {
    DAT_VADDR virtual_address;     /* Start, an address in the remote region. */
    DAT_SEG_LENGTH segment_length; /* Bytes. */
    DAT_RMR_CONTEXT rmr_context;   /* Key of the remote region. */
} DAT_RMR_TRIPLET;

/* Memory that several processes register together. */
typedef struct dat_shared_memory {
    DAT_PVOID virtual_address;       /* Its address in this process. */
    DAT_LMR_COOKIE shared_memory_id; /* Its name. */
} DAT_SHARED_MEMORY;

/* The memory to register, passed by value; DAT_MEM_TYPE says which member counts. */
typedef union dat_region_description {
    DAT_PVOID for_va;                    /* DAT_MEM_TYPE_VIRTUAL: start address. */
    DAT_LMR_HANDLE for_lmr_handle;       /* DAT_MEM_TYPE_LMR: an existing region. */
    DAT_SHARED_MEMORY for_shared_memory; /* DAT_MEM_TYPE_SHARED_VIRTUAL. */
} DAT_REGION_DESCRIPTION;

/* Result of dat_pz_query. */
typedef struct dat_pz_param {
    DAT_IA_HANDLE ia_handle; /* IA of the protection zone. */
} DAT_PZ_PARAM;

/* Fields of DAT_PZ_PARAM wanted, dat_pz_query. */
typedef enum dat_pz_param_mask {
    DAT_PZ_FIELD_IA_HANDLE = 0x1,
    DAT_PZ_FIELD_ALL       = 0x1
} DAT_PZ_PARAM_MASK;

/* Result of dat_lmr_query. */
typedef struct dat_lmr_param {
    DAT_IA_HANDLE ia_handle;            /* IA of the region. */
    DAT_MEM_TYPE mem_type;              /* Kind of memory. */
    DAT_REGION_DESCRIPTION region_desc; /* The memory, as the consumer described it. */
    DAT_VLEN length;                    /* Bytes asked for. */
    DAT_PZ_HANDLE pz_handle;            /* Its protection zone. */
    DAT_MEM_PRIV_FLAGS mem_priv;        /* Privileges. */
    DAT_VA_TYPE va_type;                /* Meaning of addresses. */
    DAT_LMR_CONTEXT lmr_context;        /* Key for local segments. */
    DAT_RMR_CONTEXT rmr_context;        /* Key for remote peers. */
    DAT_VLEN registered_size;           /* Bytes registered; other libraries may round up to pages. */
    DAT_VADDR registered_address;       /* Start of the registered memory; others may round down. */
} DAT_LMR_PARAM;

/* Fields of DAT_LMR_PARAM wanted, dat_lmr_query. */
typedef enum dat_lmr_param_mask {
    DAT_LMR_FIELD_IA_HANDLE          = 0x001,
    DAT_LMR_FIELD_MEM_TYPE           = 0x002,
    DAT_LMR_FIELD_REGION_DESC        = 0x004,
    DAT_LMR_FIELD_LENGTH             = 0x008,
    DAT_LMR_FIELD_PZ_HANDLE          = 0x010,
    DAT_LMR_FIELD_MEM_PRIV           = 0x020,
    DAT_LMR_FIELD_VA_TYPE            = 0x040,
    DAT_LMR_FIELD_LMR_CONTEXT        = 0x080,
    DAT_LMR_FIELD_RMR_CONTEXT        = 0x100,
    DAT_LMR_FIELD_REGISTERED_SIZE    = 0x200,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
    DAT_LMR_FIELD_ALL                = 0x7ff
} DAT_LMR_PARAM_MASK;

/* Result of dat_rmr_query. */
typedef struct dat_rmr_param {
    DAT_IA_HANDLE ia_handle;     /* IA of the region. */
    DAT_PZ_HANDLE pz_handle;     /* Its protection zone. */
    DAT_LMR_TRIPLET lmr_triplet; /* The memory it is bound to. */
    DAT_MEM_PRIV_FLAGS mem_priv; /* Privileges it was bound with. */
    DAT_RMR_CONTEXT rmr_context; /* Key for remote peers. */
    DAT_RMR_SCOPE rmr_scope;     /* Protection scope. */
    DAT_VA_TYPE va_type;         /* Meaning of addresses. */
} DAT_RMR_PARAM;

/* Fields of DAT_RMR_PARAM wanted, dat_rmr_query. */
typedef enum dat_rmr_param_mask {
    DAT_RMR_FIELD_IA_HANDLE   = 0x01,
    DAT_RMR_FIELD_PZ_HANDLE   = 0x02,
    DAT_RMR_FIELD_LMR_TRIPLET = 0x04,
    DAT_RMR_FIELD_MEM_PRIV    = 0x08,
    DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
    DAT_RMR_FIELD_RMR_SCOPE   = 0x20,
    DAT_RMR_FIELD_VA_TYPE     = 0x40,
    DAT_RMR_FIELD_ALL         = 0x7f
} DAT_RMR_PARAM_MASK;

/* ---- Endpoints and shared receive queues ----------------------------------------------------- */

/* Quality of service of a connection; as an attribute, a mask. */
typedef enum dat_qos {
    DAT_QOS_BEST_EFFORT     = 0x0,
    DAT_QOS_HIGH_THROUGHPUT = 0x1,
    DAT_QOS_LOW_LATENCY     = 0x2,
    DAT_QOS_ECONOMY         = 0x4,
    DAT_QOS_PREMIUM         = 0x8
} DAT_QOS;

/* How a posted operation completes and notifies. */
typedef enum dat_completion_flags {
    DAT_COMPLETION_DEFAULT_FLAG              = 0x00,
    DAT_COMPLETION_SUPPRESS_FLAG             = 0x01,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG       = 0x02,
    DAT_COMPLETION_UNSIGNALLED_FLAG          = 0x04,
    DAT_COMPLETION_BARRIER_FENCE_FLAG        = 0x08,
    DAT_COMPLETION_EVD_THRESHOLD_FLAG        = 0x10,
    DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20
} DAT_COMPLETION_FLAGS;

/* Service type of an endpoint. */
typedef enum dat_service_type {
    DAT_SERVICE_TYPE_RC             = 0,
    DAT_SERVICE_TYPE_EXTENSION_BASE = 1
} DAT_SERVICE_TYPE;

/* Multi-path request of dat_ep_connect. */
typedef enum dat_connect_flags {
    DAT_CONNECT_DEFAULT_FLAG             = 0,
    DAT_CONNECT_MULTIPATH_REQUESTED_FLAG = 1,
    DAT_CONNECT_MULTIPATH_REQUIRED_FLAG  = 2
} DAT_CONNECT_FLAGS;
#define DAT_CONNECT_MULTIPATH_FLAG DAT_CONNECT_MULTIPATH_REQUESTED_FLAG

/* How dat_ia_close and dat_ep_disconnect treat work in progress. */
typedef enum dat_close_flags {
    DAT_CLOSE_ABRUPT_FLAG   = 0,
    DAT_CLOSE_GRACEFUL_FLAG = 1
} DAT_CLOSE_FLAGS;
#define DAT_CLOSE_DEFAULT DAT_CLOSE_ABRUPT_FLAG

/* Endpoint state, dat_ep_get_status. */
typedef enum dat_ep_state {
    DAT_EP_STATE_UNCONNECTED                  = 0,
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED     = 1,
    DAT_EP_STATE_RESERVED                     = 2,
    DAT_EP_STATE_UNCONFIGURED_RESERVED        = 3,
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING   = 4,
    DAT_EP_STATE_UNCONFIGURED_PASSIVE         = 5,
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING    = 6,
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7,
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE       = 8,
    DAT_EP_STATE_CONNECTED                    = 9,
    DAT_EP_STATE_DISCONNECT_PENDING           = 10,
    DAT_EP_STATE_DISCONNECTED                 = 11,
    DAT_EP_STATE_COMPLETION_PENDING           = 12,
    DAT_EP_STATE_CONNECTED_SINGLE_PATH        = 13,
    DAT_EP_STATE_CONNECTED_MULTI_PATH         = 14
} DAT_EP_STATE;
#define DAT_EP_STATE_ERROR DAT_EP_STATE_DISCONNECTED

/* Attributes of an endpoint. Sizes are in bytes. */
typedef struct dat_ep_attr {
    DAT_SERVICE_TYPE service_type;                 /* Service type. */
    DAT_SEG_LENGTH max_message_size;               /* Bytes of a send. */
    DAT_SEG_LENGTH max_rdma_size;                  /* Bytes of an RDMA operation. */
    DAT_QOS qos;                                   /* Quality of service. */
    DAT_COMPLETION_FLAGS recv_completion_flags;    /* Completion flags allowed for receives. */
    DAT_COMPLETION_FLAGS request_completion_flags; /* Completion flags allowed for requests. */
    DAT_COUNT max_recv_dtos;                       /* Receives outstanding. */
    DAT_COUNT max_request_dtos;                    /* Requests outstanding. */
    DAT_COUNT max_recv_iov;                        /* Segments of a receive. */
    DAT_COUNT max_request_iov;                     /* Segments of a request. */
    DAT_COUNT max_rdma_read_in;                    /* RDMA reads in progress as target. */
    DAT_COUNT max_rdma_read_out;                   /* RDMA reads in progress as initiator. */
    /* Soft high watermark: receives taken from the SRQ before an event is raised. */
    DAT_COUNT srq_soft_hw;
    DAT_COUNT max_rdma_read_iov;                   /* Local segments of an RDMA read. */
    DAT_COUNT max_rdma_write_iov;                  /* Local segments of an RDMA write. */
    DAT_COUNT ep_transport_specific_count;         /* Number of ep_transport_specific. */
    DAT_NAMED_ATTR *ep_transport_specific;         /* Attributes of the transport. */
    DAT_COUNT ep_provider_specific_count;          /* Number of ep_provider_specific. */
    DAT_NAMED_ATTR *ep_provider_specific;          /* Attributes of the provider. */
} DAT_EP_ATTR;

/* Parameters of an endpoint, for dat_ep_query and dat_ep_modify. */
typedef struct dat_ep_param {
    DAT_IA_HANDLE ia_handle;                  /* Its IA. */
    DAT_EP_STATE ep_state;                    /* State. */
    DAT_COMM comm;                            /* Communicator of a common connection. */
    DAT_IA_ADDRESS_PTR local_ia_address_ptr;  /* Address of the local IA, owned by the provider. */
    DAT_PORT_QUAL local_port_qual;            /* Port qualifier of this end. */
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr; /* Address of the peer, owned by the provider. */
    DAT_PORT_QUAL remote_port_qual;           /* Port qualifier of the peer. */
    DAT_PZ_HANDLE pz_handle;                  /* Its protection zone. */
    DAT_EVD_HANDLE recv_evd_handle;           /* EVD of receive completions. */
    DAT_EVD_HANDLE request_evd_handle;        /* EVD of request completions. */
    DAT_EVD_HANDLE connect_evd_handle;        /* EVD of connection events. */
    DAT_SRQ_HANDLE srq_handle;                /* Its SRQ, or DAT_HANDLE_NULL. */
    DAT_EP_ATTR ep_attr;                      /* Attributes. */
} DAT_EP_PARAM;

/* Fields of DAT_EP_PARAM wanted or set, dat_ep_query and dat_ep_modify. */
typedef DAT_UINT64 DAT_EP_PARAM_MASK;
#define DAT_EP_FIELD_IA_HANDLE                        UINT64_C(0x00000001)
#define DAT_EP_FIELD_EP_STATE                         UINT64_C(0x00000002)
#define DAT_EP_FIELD_COMM                             UINT64_C(0x00000004)
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR             UINT64_C(0x00000008)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL                  UINT64_C(0x00000010)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR            UINT64_C(0x00000020)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL                 UINT64_C(0x00000040)
#define DAT_EP_FIELD_PZ_HANDLE                        UINT64_C(0x00000080)
#define DAT_EP_FIELD_RECV_EVD_HANDLE                  UINT64_C(0x00000100)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE               UINT64_C(0x00000200)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE               UINT64_C(0x00000400)
#define DAT_EP_FIELD_SRQ_HANDLE                       UINT64_C(0x00000800)
#define DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE             UINT64_C(0x00001000)
#define DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE         UINT64_C(0x00002000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE            UINT64_C(0x00004000)
#define DAT_EP_FIELD_EP_ATTR_QOS                      UINT64_C(0x00008000)
#define DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS    UINT64_C(0x00010000)
#define DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS UINT64_C(0x00020000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS            UINT64_C(0x00040000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS         UINT64_C(0x00080000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV             UINT64_C(0x00100000)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV          UINT64_C(0x00200000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN         UINT64_C(0x00400000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT        UINT64_C(0x00800000)
#define DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW              UINT64_C(0x01000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV        UINT64_C(0x02000000)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV       UINT64_C(0x04000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR       UINT64_C(0x08000000)
#define DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR  UINT64_C(0x10000000)
#define DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR        UINT64_C(0x20000000)
#define DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR   UINT64_C(0x40000000)
#define DAT_EP_FIELD_EP_ATTR_ALL                      UINT64_C(0x7ffff000)
#define DAT_EP_FIELD_ALL                              UINT64_C(0x7fffffff)

/* Shared receive queue state. The values differ from uDAPL 1.2. */
typedef enum dat_srq_state {
    DAT_SRQ_STATE_ERROR       = 0,
    DAT_SRQ_STATE_OPERATIONAL = 1,
    DAT_SRQ_STATE_SHUTDOWN    = 2
} DAT_SRQ_STATE;

/* Attributes of a shared receive queue. */
typedef struct dat_srq_attr {
    DAT_COUNT max_recv_dtos; /* Receives it can hold. */
    DAT_COUNT max_recv_iov;  /* Segments of a receive. */
    DAT_COUNT low_watermark; /* Receives left that raise an event. */
} DAT_SRQ_ATTR;

/* Result of dat_srq_query. */
typedef struct dat_srq_param {
    DAT_IA_HANDLE ia_handle;         /* Its IA. */
    DAT_SRQ_STATE srq_state;         /* State. */
    DAT_PZ_HANDLE pz_handle;         /* Its protection zone. */
    DAT_COUNT max_recv_dtos;         /* Receives it can hold. */
    DAT_COUNT max_recv_iov;          /* Segments of a receive. */
    DAT_COUNT low_watermark;         /* Receives left that raise an event. */
    DAT_COUNT available_dto_count;   /* Receives posted and not yet taken by an EP, or DAT_VALUE_UNKNOWN. */
    DAT_COUNT outstanding_dto_count; /* Receives posted and not yet dequeued, or DAT_VALUE_UNKNOWN. */
} DAT_SRQ_PARAM;

/* Fields of DAT_SRQ_PARAM wanted, dat_srq_query. */
typedef enum dat_srq_param_mask {
    DAT_SRQ_FIELD_IA_HANDLE             = 0x01,
    DAT_SRQ_FIELD_SRQ_STATE             = 0x02,
    DAT_SRQ_FIELD_PZ_HANDLE             = 0x04,
    DAT_SRQ_FIELD_MAX_RECV_DTO          = 0x08,
    DAT_SRQ_FIELD_MAX_RECV_IOV          = 0x10,
    DAT_SRQ_FIELD_LOW_WATERMARK         = 0x20,
    DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT   = 0x40,
    DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
    DAT_SRQ_FIELD_ALL                   = 0xff
} DAT_SRQ_PARAM_MASK;

/* ---- Service points and connection requests -------------------------------------------------- */

/* Who creates the endpoint for a connection request on a PSP. */
typedef enum dat_psp_flags {
    DAT_PSP_CONSUMER_FLAG = 0,
    DAT_PSP_PROVIDER_FLAG = 1
} DAT_PSP_FLAGS;

/* Result of dat_psp_query. */
typedef struct dat_psp_param {
    DAT_IA_HANDLE ia_handle;   /* Its IA. */
    DAT_CONN_QUAL conn_qual;   /* Connection qualifier. */
    DAT_EVD_HANDLE evd_handle; /* EVD of its events. */
    DAT_PSP_FLAGS psp_flags;   /* Who creates endpoints. */
} DAT_PSP_PARAM;

/* Fields of DAT_PSP_PARAM wanted, dat_psp_query. */
typedef enum dat_psp_param_mask {
    DAT_PSP_FIELD_IA_HANDLE  = 0x1,
    DAT_PSP_FIELD_CONN_QUAL  = 0x2,
    DAT_PSP_FIELD_EVD_HANDLE = 0x4,
    DAT_PSP_FIELD_PSP_FLAGS  = 0x8,
    DAT_PSP_FIELD_ALL        = 0xf
} DAT_PSP_PARAM_MASK;

/* Result of dat_rsp_query. */
typedef struct dat_rsp_param {
    DAT_IA_HANDLE ia_handle;   /* Its IA. */
    DAT_CONN_QUAL conn_qual;   /* Connection qualifier. */
    DAT_EVD_HANDLE evd_handle; /* EVD of its events. */
    DAT_EP_HANDLE ep_handle;   /* Endpoint reserved for the connection. */
} DAT_RSP_PARAM;

/* Fields of DAT_RSP_PARAM wanted, dat_rsp_query. */
typedef enum dat_rsp_param_mask {
    DAT_RSP_FIELD_IA_HANDLE  = 0x1,
    DAT_RSP_FIELD_CONN_QUAL  = 0x2,
    DAT_RSP_FIELD_EVD_HANDLE = 0x4,
    DAT_RSP_FIELD_EP_HANDLE  = 0x8,
    DAT_RSP_FIELD_ALL        = 0xf
} DAT_RSP_PARAM_MASK;

/* Result of dat_csp_query. */
typedef struct dat_csp_param {
    DAT_IA_HANDLE ia_handle;        /* Its IA. */
    DAT_COMM *comm;                 /* Communicator it listens on. */
    DAT_IA_ADDRESS_PTR address_ptr; /* Address it listens on. */
    DAT_EVD_HANDLE evd_handle;      /* EVD of its events. */
} DAT_CSP_PARAM;

/* Fields of DAT_CSP_PARAM wanted, dat_csp_query. */
typedef enum dat_csp_param_mask {
    DAT_CSP_FIELD_IA_HANDLE  = 0x1,
    DAT_CSP_FIELD_COMM       = 0x2,
    DAT_CSP_FIELD_IA_ADDRESS = 0x4,
    DAT_CSP_FIELD_EVD_HANDLE = 0x8,
    DAT_CSP_FIELD_ALL        = 0xf
} DAT_CSP_PARAM_MASK;

/* Result of dat_cr_query. */
typedef struct dat_cr_param {
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr; /* Address of the peer, owned by the provider. */
    DAT_PORT_QUAL remote_port_qual;           /* Port qualifier of the peer. */
    DAT_COUNT private_data_size;              /* Bytes of private data. */
    DAT_PVOID private_data;                   /* Private data of the peer, owned by the provider. */
    DAT_EP_HANDLE local_ep_handle;            /* Endpoint that must accept, or DAT_HANDLE_NULL if any may. */
} DAT_CR_PARAM;

/* Fields of DAT_CR_PARAM wanted, dat_cr_query. */
typedef enum dat_cr_param_mask {
    DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 0x01,
    DAT_CR_FIELD_REMOTE_PORT_QUAL      = 0x02,
    DAT_CR_FIELD_PRIVATE_DATA_SIZE     = 0x04,
    DAT_CR_FIELD_PRIVATE_DATA          = 0x08,
    DAT_CR_FIELD_LOCAL_EP_HANDLE       = 0x10,
    DAT_CR_FIELD_ALL                   = 0x1f
} DAT_CR_PARAM_MASK;

/* ---- Interface adapters and providers -------------------------------------------------------- */

/* Transport extension an IA supports. */
typedef enum dat_extension {
    DAT_EXTENSION_NONE = 0,
    DAT_EXTENSION_IB   = 1,
    DAT_EXTENSION_IW   = 2
} DAT_EXTENSION;
#define DAT_IB_EXTENSION DAT_EXTENSION_IB
#define DAT_IW_EXTENSION DAT_EXTENSION_IW

/* Whether protection zones can be shared by the objects of several IAs. */
typedef enum dat_pz_support {
    DAT_PZ_UNIQUE    = 0,
    DAT_PZ_SHAREABLE = 1
} DAT_PZ_SUPPORT;

/* Who owns the segment array after a post returns. */
typedef enum dat_iov_ownership {
    DAT_IOV_CONSUMER       = 0,
    DAT_IOV_PROVIDER_NOMOD = 1,
    DAT_IOV_PROVIDER_MOD   = 2
} DAT_IOV_OWNERSHIP;

/* When the provider creates endpoints for service points. */
typedef enum dat_ep_creator_for_psp {
    DAT_PSP_CREATES_EP_NEVER   = 0,
    DAT_PSP_CREATES_EP_IFASKED = 1,
    DAT_PSP_CREATES_EP_ALWAYS  = 2
} DAT_EP_CREATOR_FOR_PSP;

/* Load balancing over several paths. */
typedef DAT_UINT32 DAT_HA_LB;
#define DAT_HA_LB_NONE      ((DAT_HA_LB)0)
#define DAT_HA_LB_INTERCOMM ((DAT_HA_LB)1)
#define DAT_HA_LB_INTRACOMM ((DAT_HA_LB)2)

/* Attributes of an interface adapter, dat_ia_query. Limits are maxima; sizes are in bytes. */
typedef struct dat_ia_attr {
    char adapter_name[DAT_NAME_MAX_LENGTH];          /* Name of the adapter, NUL-terminated. */
    char vendor_name[DAT_NAME_MAX_LENGTH];           /* Name of the vendor, NUL-terminated. */
    DAT_UINT32 hardware_version_major;               /* Hardware version, major. */
    DAT_UINT32 hardware_version_minor;               /* Hardware version, minor. */
    DAT_UINT32 firmware_version_major;               /* Firmware version, major. */
    DAT_UINT32 firmware_version_minor;               /* Firmware version, minor. */
    DAT_IA_ADDRESS_PTR ia_address_ptr;               /* Its address, owned by the provider. */
    DAT_COUNT max_eps;                               /* Endpoints. */
    DAT_COUNT max_dto_per_ep;                        /* DTOs outstanding on a work queue of an EP. */
    DAT_COUNT max_rdma_read_per_ep_in;               /* RDMA reads in progress on an EP as target. */
    DAT_COUNT max_rdma_read_per_ep_out;              /* RDMA reads in progress on an EP as initiator. */
    DAT_COUNT max_evds;                              /* Event dispatchers. */
    DAT_COUNT max_evd_qlen;                          /* Events in an EVD. */
    DAT_COUNT max_iov_segments_per_dto;              /* Segments of a send or receive. */
    DAT_COUNT max_lmrs;                              /* Local memory regions. */
    DAT_SEG_LENGTH max_lmr_block_size;               /* Bytes of a contiguous region. */
    DAT_VADDR max_lmr_virtual_address;               /* Highest address that can be registered. */
    DAT_COUNT max_pzs;                               /* Protection zones. */
    DAT_SEG_LENGTH max_message_size;                 /* Bytes of a send. */
    DAT_SEG_LENGTH max_rdma_size;                    /* Bytes of an RDMA operation. */
    DAT_COUNT max_rmrs;                              /* Remote memory regions. */
    DAT_VADDR max_rmr_target_address;                /* Highest address that an RMR can have. */
    DAT_COUNT max_srqs;                              /* Shared receive queues. */
    DAT_COUNT max_ep_per_srq;                        /* Endpoints of one SRQ. */
    DAT_COUNT max_recv_per_srq;                      /* Receives posted to one SRQ. */
    DAT_COUNT max_iov_segments_per_rdma_read;        /* Segments of an RDMA read. */
    DAT_COUNT max_iov_segments_per_rdma_write;       /* Segments of an RDMA write. */
    DAT_COUNT max_rdma_read_in;                      /* RDMA reads in progress on the IA as target. */
    DAT_COUNT max_rdma_read_out;                     /* RDMA reads in progress on the IA as initiator. */
    DAT_BOOLEAN max_rdma_read_per_ep_in_guaranteed;  /* Whether every EP can have its inbound maximum at once. */
    DAT_BOOLEAN max_rdma_read_per_ep_out_guaranteed; /* Whether every EP can have its outbound maximum at once. */
    DAT_BOOLEAN zb_supported;                        /* Whether zero-based regions are supported. */
    DAT_EXTENSION extension_supported;               /* Transport extension. */
    DAT_COUNT extension_version;                     /* Version of the extension. */
    DAT_COUNT num_transport_attr;                    /* Number of transport_attr. */
    DAT_NAMED_ATTR *transport_attr;                  /* Attributes of the transport, owned by the provider. */
    DAT_COUNT num_vendor_attr;                       /* Number of vendor_attr. */
    DAT_NAMED_ATTR *vendor_attr;                     /* Attributes of the vendor, owned by the provider. */
} DAT_IA_ATTR;

/* Fields of DAT_IA_ATTR wanted, dat_ia_query. */
typedef DAT_UINT64 DAT_IA_ATTR_MASK;
#define DAT_IA_FIELD_NONE                                   UINT64_C(0x0000000000)
#define DAT_IA_FIELD_IA_ADAPTER_NAME                        UINT64_C(0x0000000001)
#define DAT_IA_FIELD_IA_VENDOR_NAME                         UINT64_C(0x0000000002)
#define DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION              UINT64_C(0x0000000004)
#define DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION              UINT64_C(0x0000000008)
#define DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION              UINT64_C(0x0000000010)
#define DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION              UINT64_C(0x0000000020)
#define DAT_IA_FIELD_IA_ADDRESS_PTR                         UINT64_C(0x0000000040)
#define DAT_IA_FIELD_IA_MAX_EPS                             UINT64_C(0x0000000080)
#define DAT_IA_FIELD_IA_MAX_DTO_PER_EP                      UINT64_C(0x0000000100)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN             UINT64_C(0x0000000200)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT            UINT64_C(0x0000000400)
#define DAT_IA_FIELD_IA_MAX_EVDS                            UINT64_C(0x0000000800)
#define DAT_IA_FIELD_IA_MAX_EVD_QLEN                        UINT64_C(0x0000001000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO            UINT64_C(0x0000002000)
#define DAT_IA_FIELD_IA_MAX_LMRS                            UINT64_C(0x0000004000)
#define DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE                  UINT64_C(0x0000008000)
#define DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS             UINT64_C(0x0000010000)
#define DAT_IA_FIELD_IA_MAX_PZS                             UINT64_C(0x0000020000)
#define DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE                    UINT64_C(0x0000040000)
#define DAT_IA_FIELD_IA_MAX_RDMA_SIZE                       UINT64_C(0x0000080000)
#define DAT_IA_FIELD_IA_MAX_RMRS                            UINT64_C(0x0000100000)
#define DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS              UINT64_C(0x0000200000)
#define DAT_IA_FIELD_IA_MAX_SRQS                            UINT64_C(0x0000400000)
#define DAT_IA_FIELD_IA_MAX_EP_PER_SRQ                      UINT64_C(0x0000800000)
#define DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ                    UINT64_C(0x0001000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ      UINT64_C(0x0002000000)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE     UINT64_C(0x0004000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_IN                    UINT64_C(0x0008000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT                   UINT64_C(0x0010000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED  UINT64_C(0x0020000000)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED UINT64_C(0x0040000000)
#define DAT_IA_FIELD_IA_ZB_SUPPORTED                        UINT64_C(0x0080000000)
#define DAT_IA_FIELD_IA_EXTENSION                           UINT64_C(0x0100000000)
#define DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED                DAT_IA_FIELD_IA_EXTENSION
#define DAT_IA_FIELD_IA_EXTENSION_VERSION                   UINT64_C(0x0200000000)
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR                  UINT64_C(0x0400000000)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR                      UINT64_C(0x0800000000)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR                     UINT64_C(0x1000000000)
#define DAT_IA_FIELD_IA_VENDOR_ATTR                         UINT64_C(0x2000000000)
#define DAT_IA_FIELD_ALL                                    UINT64_C(0x3fffffffff)
#define DAT_IA_ALL                                          DAT_IA_FIELD_ALL
#define DAT_IA_FIELD_IA_MAX_MTU_SIZE                        DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE

/* Members of DAT_IA_ATTR by their DAT 1.0 names. */
#define max_rdma_read_per_ep max_rdma_read_per_ep_in
#define max_mtu_size         max_message_size

/* Attributes of a provider, dat_ia_query. */
typedef struct dat_provider_attr {
    char provider_name[DAT_NAME_MAX_LENGTH];         /* Name of the provider, NUL-terminated. */
    DAT_UINT32 provider_version_major;               /* Version of the provider, major. */
    DAT_UINT32 provider_version_minor;               /* Version of the provider, minor. */
    DAT_UINT32 dapl_version_major;                   /* Version of the API, major. */
    DAT_UINT32 dapl_version_minor;                   /* Version of the API, minor. */
    DAT_MEM_TYPE lmr_mem_types_supported;            /* Mask of memory types. */
    DAT_IOV_OWNERSHIP iov_ownership_on_return;       /* Who owns the segment array when a post returns. */
    DAT_QOS dat_qos_supported;                       /* Mask of qualities of service. */
    DAT_COMPLETION_FLAGS completion_flags_supported; /* Mask of completion flags. */
    DAT_BOOLEAN is_thread_safe;                      /* Whether calls need no locking by the consumer. */
    DAT_COUNT max_private_data_size;                 /* Bytes of private data that connection calls accept. */
    DAT_BOOLEAN supports_multipath;                  /* Whether connections can use several paths. */
    DAT_EP_CREATOR_FOR_PSP ep_creator;               /* When the provider creates endpoints for service points. */
    DAT_PZ_SUPPORT pz_support;                       /* Whether protection zones can be shared. */
    DAT_UINT32 optimal_buffer_alignment;             /* Buffer alignment in bytes with the best performance. */
    /*
     * Which streams may share an EVD. Rows and columns: software, CR, DTO, connection, RMR bind,
     * asynchronous.
     * (Not constant as elsewhere: C++ could have no variable of the structure.)
     */
    DAT_BOOLEAN evd_stream_merging_supported[6][6];
    DAT_BOOLEAN srq_supported;                       /* Whether shared receive queues are supported. */
    DAT_COUNT srq_watermarks_supported;              /* Mask: 0x1 low of an SRQ, 0x10 soft and 0x100 hard of an EP. */
    /* Whether an EP may have another protection zone than its SRQ. */
    DAT_BOOLEAN srq_ep_pz_difference_supported;
    DAT_COUNT srq_info_supported;                    /* Which counts dat_srq_query returns. */
    DAT_COUNT ep_recv_info_supported;                /* Which counts dat_ep_recv_query returns. */
    DAT_BOOLEAN lmr_sync_req;                        /* Whether dat_lmr_sync_rdma_read and _write are required. */
    DAT_BOOLEAN dto_async_return_guaranteed;         /* Whether a post never waits for the operation. */
    /* Whether the sink of an RDMA read needs remote write privilege. */
    DAT_BOOLEAN rdma_write_for_rdma_read_req;
    /* Whether an RDMA read exposes the context of its local sink to the peer. */
    DAT_BOOLEAN rdma_read_lmr_rmr_context_exposure;
    DAT_RMR_SCOPE rmr_scope_supported;               /* Protection scopes of RMRs. */
    DAT_BOOLEAN is_signal_safe;                      /* Whether calls can be made from signal handlers. */
    DAT_BOOLEAN ha_supported;                        /* Whether high availability is supported. */
    DAT_HA_LB ha_loadbalancing;                      /* Load balancing over several paths. */
    DAT_COUNT num_provider_specific_attr;            /* Number of provider_specific_attr. */
    DAT_NAMED_ATTR *provider_specific_attr;          /* Attributes of the provider, owned by it. */
} DAT_PROVIDER_ATTR;

/* Fields of DAT_PROVIDER_ATTR wanted, dat_ia_query. */
typedef DAT_UINT64 DAT_PROVIDER_ATTR_MASK;
#define DAT_PROVIDER_FIELD_PROVIDER_NAME                      UINT64_C(0x00000001)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR             UINT64_C(0x00000002)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR             UINT64_C(0x00000004)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR                 UINT64_C(0x00000008)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR                 UINT64_C(0x00000010)
#define DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED             UINT64_C(0x00000020)
#define DAT_PROVIDER_FIELD_IOV_OWNERSHIP                      UINT64_C(0x00000040)
#define DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED                  UINT64_C(0x00000080)
#define DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED         UINT64_C(0x00000100)
#define DAT_PROVIDER_FIELD_IS_THREAD_SAFE                     UINT64_C(0x00000200)
#define DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE              UINT64_C(0x00000400)
#define DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH                 UINT64_C(0x00000800)
#define DAT_PROVIDER_FIELD_EP_CREATOR                         UINT64_C(0x00001000)
#define DAT_PROVIDER_FIELD_PZ_SUPPORT                         UINT64_C(0x00002000)
#define DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT           UINT64_C(0x00004000)
#define DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED       UINT64_C(0x00008000)
#define DAT_PROVIDER_FIELD_SRQ_SUPPORTED                      UINT64_C(0x00010000)
#define DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED           UINT64_C(0x00020000)
#define DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED     UINT64_C(0x00040000)
#define DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED                 UINT64_C(0x00080000)
#define DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED             UINT64_C(0x00100000)
#define DAT_PROVIDER_FIELD_LMR_SYNC_REQ                       UINT64_C(0x00200000)
#define DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED        UINT64_C(0x00400000)
#define DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ       UINT64_C(0x00800000)
#define DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE UINT64_C(0x01000000)
#define DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED                UINT64_C(0x02000000)
#define DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE                     UINT64_C(0x04000000)
#define DAT_PROVIDER_FIELD_HA_SUPPORTED                       UINT64_C(0x08000000)
#define DAT_PROVIDER_FIELD_HA_LB                              UINT64_C(0x10000000)
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR         UINT64_C(0x20000000)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR             UINT64_C(0x40000000)
#define DAT_PROVIDER_FIELD_ALL                                UINT64_C(0x7fffffff)
#define DAT_PROVIDER_FIELD_NONE                               UINT64_C(0x00000000)

/* An entry of the registry: the name of an IA and the API of its provider. */
typedef struct dat_provider_info {
    char ia_name[DAT_NAME_MAX_LENGTH]; /* Name of the IA, NUL-terminated. */
    DAT_UINT32 dapl_version_major;     /* Major version of the API. */
    DAT_UINT32 dapl_version_minor;     /* Minor version of the API. */
    DAT_BOOLEAN is_thread_safe;        /* Whether calls need no locking by the consumer. */
} DAT_PROVIDER_INFO;

/* ---- Extensions ------------------------------------------------------------------------------ */

/* Operation number of dat_extension_op. */
typedef int DAT_EXTENDED_OP;

#define DAT_OPEN_EXTENSION_BASE  0x1000 /* from here on: operations that open an IA by name */
#define DAT_CLOSE_EXTENSION_BASE 0x2000 /* from here on: operations that close it again */

#endif /* DAT2_DAT_H */
