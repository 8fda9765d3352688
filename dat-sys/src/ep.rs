//! Endpoints and shared receive queues.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// The service type of an endpoint.
    pub type DAT_SERVICE_TYPE = c_uint {
        DAT_SERVICE_TYPE_RC = 0,
        DAT_SERVICE_TYPE_EXTENSION_BASE = 1,
    }

    /// The quality of service of a connection. As a provider attribute, the value is a mask of the
    /// supported qualities.
    pub type DAT_QOS = c_uint {
        DAT_QOS_BEST_EFFORT = 0x0,
        DAT_QOS_HIGH_THROUGHPUT = 0x1,
        DAT_QOS_LOW_LATENCY = 0x2,
        DAT_QOS_ECONOMY = 0x4,
        DAT_QOS_PREMIUM = 0x8,
    }

    /// Flags that choose how a posted operation completes and whether the completion notifies a
    /// waiter.
    pub type DAT_COMPLETION_FLAGS = c_uint {
        DAT_COMPLETION_DEFAULT_FLAG = 0x0,
        DAT_COMPLETION_SUPPRESS_FLAG = 0x1,
        DAT_COMPLETION_SOLICITED_WAIT_FLAG = 0x2,
        DAT_COMPLETION_UNSIGNALLED_FLAG = 0x4,
        DAT_COMPLETION_BARRIER_FENCE_FLAG = 0x8,
        DAT_COMPLETION_EVD_THRESHOLD_FLAG = 0x10,
        DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20,
    }

    /// Flags of dat_ep_connect that request several paths.
    pub type DAT_CONNECT_FLAGS = c_uint {
        DAT_CONNECT_DEFAULT_FLAG = 0,
        DAT_CONNECT_MULTIPATH_REQUESTED_FLAG = 1,
        DAT_CONNECT_MULTIPATH_REQUIRED_FLAG = 2,
        /// The DAT 1.2 name of `DAT_CONNECT_MULTIPATH_REQUESTED_FLAG`.
        DAT_CONNECT_MULTIPATH_FLAG = DAT_CONNECT_MULTIPATH_REQUESTED_FLAG,
    }

    /// The state of an endpoint, which dat_ep_get_status returns.
    pub type DAT_EP_STATE = c_uint {
        DAT_EP_STATE_UNCONNECTED = 0,
        DAT_EP_STATE_UNCONFIGURED_UNCONNECTED = 1,
        DAT_EP_STATE_RESERVED = 2,
        DAT_EP_STATE_UNCONFIGURED_RESERVED = 3,
        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING = 4,
        DAT_EP_STATE_UNCONFIGURED_PASSIVE = 5,
        DAT_EP_STATE_ACTIVE_CONNECTION_PENDING = 6,
        DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7,
        DAT_EP_STATE_UNCONFIGURED_TENTATIVE = 8,
        DAT_EP_STATE_CONNECTED = 9,
        DAT_EP_STATE_DISCONNECT_PENDING = 10,
        DAT_EP_STATE_DISCONNECTED = 11,
        DAT_EP_STATE_COMPLETION_PENDING = 12,
        DAT_EP_STATE_CONNECTED_SINGLE_PATH = 13,
        DAT_EP_STATE_CONNECTED_MULTI_PATH = 14,
        /// The old name of `DAT_EP_STATE_DISCONNECTED`.
        DAT_EP_STATE_ERROR = DAT_EP_STATE_DISCONNECTED,
    }

    /// A mask of the fields of [`DAT_EP_PARAM`] that dat_ep_query returns or dat_ep_modify sets.
    pub type DAT_EP_PARAM_MASK = u64 {
        DAT_EP_FIELD_IA_HANDLE = 0x1,
        DAT_EP_FIELD_EP_STATE = 0x2,
        DAT_EP_FIELD_COMM = 0x4,
        DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR = 0x8,
        DAT_EP_FIELD_LOCAL_PORT_QUAL = 0x10,
        DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR = 0x20,
        DAT_EP_FIELD_REMOTE_PORT_QUAL = 0x40,
        DAT_EP_FIELD_PZ_HANDLE = 0x80,
        DAT_EP_FIELD_RECV_EVD_HANDLE = 0x100,
        DAT_EP_FIELD_REQUEST_EVD_HANDLE = 0x200,
        DAT_EP_FIELD_CONNECT_EVD_HANDLE = 0x400,
        DAT_EP_FIELD_SRQ_HANDLE = 0x800,
        DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE = 0x1000,
        DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE = 0x2000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE = 0x4000,
        DAT_EP_FIELD_EP_ATTR_QOS = 0x8000,
        DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS = 0x1_0000,
        DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS = 0x2_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS = 0x4_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS = 0x8_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV = 0x10_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV = 0x20_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN = 0x40_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT = 0x80_0000,
        DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW = 0x100_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV = 0x200_0000,
        DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV = 0x400_0000,
        DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR = 0x800_0000,
        DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR = 0x1000_0000,
        DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR = 0x2000_0000,
        DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR = 0x4000_0000,
        DAT_EP_FIELD_EP_ATTR_ALL = 0x7fff_f000,
        DAT_EP_FIELD_ALL = 0x7fff_ffff,
    }

    /// The state of a shared receive queue. The values differ from those of uDAPL 1.2.
    pub type DAT_SRQ_STATE = c_uint {
        DAT_SRQ_STATE_ERROR = 0,
        DAT_SRQ_STATE_OPERATIONAL = 1,
        DAT_SRQ_STATE_SHUTDOWN = 2,
    }

    /// A mask of the fields of [`DAT_SRQ_PARAM`] that dat_srq_query returns.
    pub type DAT_SRQ_PARAM_MASK = c_uint {
        DAT_SRQ_FIELD_IA_HANDLE = 0x1,
        DAT_SRQ_FIELD_SRQ_STATE = 0x2,
        DAT_SRQ_FIELD_PZ_HANDLE = 0x4,
        DAT_SRQ_FIELD_MAX_RECV_DTO = 0x8,
        DAT_SRQ_FIELD_MAX_RECV_IOV = 0x10,
        DAT_SRQ_FIELD_LOW_WATERMARK = 0x20,
        DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x40,
        DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
        DAT_SRQ_FIELD_ALL = 0xff,
    }
}

records! {
    /// The attributes of an endpoint. Sizes are in bytes.
    #[derive(Debug)]
    pub struct DAT_EP_ATTR {
        /// The service type.
        pub service_type: DAT_SERVICE_TYPE,
        /// The maximum size of a send in bytes.
        pub max_message_size: DAT_SEG_LENGTH,
        /// The maximum size of an RDMA operation in bytes.
        pub max_rdma_size: DAT_SEG_LENGTH,
        /// The quality of service.
        pub qos: DAT_QOS,
        /// The completion flags that are allowed for receives.
        pub recv_completion_flags: DAT_COMPLETION_FLAGS,
        /// The completion flags that are allowed for requests.
        pub request_completion_flags: DAT_COMPLETION_FLAGS,
        /// The maximum number of outstanding receives.
        pub max_recv_dtos: DAT_COUNT,
        /// The maximum number of outstanding requests.
        pub max_request_dtos: DAT_COUNT,
        /// The maximum number of segments of a receive.
        pub max_recv_iov: DAT_COUNT,
        /// The maximum number of segments of a request.
        pub max_request_iov: DAT_COUNT,
        /// The maximum number of RDMA reads in progress as target.
        pub max_rdma_read_in: DAT_COUNT,
        /// The maximum number of RDMA reads in progress as initiator.
        pub max_rdma_read_out: DAT_COUNT,
        /// The soft high watermark: the number of receives that the endpoint may take from the SRQ
        /// before an event is raised.
        pub srq_soft_hw: DAT_COUNT,
        /// The maximum number of local segments of an RDMA read.
        pub max_rdma_read_iov: DAT_COUNT,
        /// The maximum number of local segments of an RDMA write.
        pub max_rdma_write_iov: DAT_COUNT,
        /// The number of elements of `ep_transport_specific`.
        pub ep_transport_specific_count: DAT_COUNT,
        /// The attributes of the transport.
        pub ep_transport_specific: *mut DAT_NAMED_ATTR,
        /// The number of elements of `ep_provider_specific`.
        pub ep_provider_specific_count: DAT_COUNT,
        /// The attributes of the provider.
        pub ep_provider_specific: *mut DAT_NAMED_ATTR,
    }

    /// The parameters of an endpoint, for dat_ep_query and dat_ep_modify.
    #[derive(Debug)]
    pub struct DAT_EP_PARAM {
        /// The IA of the endpoint.
        pub ia_handle: DAT_IA_HANDLE,
        /// The state of the endpoint.
        pub ep_state: DAT_EP_STATE,
        /// The communicator of a common connection.
        pub comm: DAT_COMM,
        /// The address of the local IA. The provider owns the memory.
        pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The port qualifier of this end of the connection.
        pub local_port_qual: DAT_PORT_QUAL,
        /// The address of the peer. The provider owns the memory.
        pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The port qualifier of the peer.
        pub remote_port_qual: DAT_PORT_QUAL,
        /// The protection zone of the endpoint.
        pub pz_handle: DAT_PZ_HANDLE,
        /// The EVD of receive completions.
        pub recv_evd_handle: DAT_EVD_HANDLE,
        /// The EVD of request completions.
        pub request_evd_handle: DAT_EVD_HANDLE,
        /// The EVD of connection events.
        pub connect_evd_handle: DAT_EVD_HANDLE,
        /// The SRQ of the endpoint, or [`DAT_HANDLE_NULL`] if it has no SRQ.
        pub srq_handle: DAT_SRQ_HANDLE,
        /// The attributes of the endpoint.
        pub ep_attr: DAT_EP_ATTR,
    }

    /// The attributes of a shared receive queue.
    #[derive(Debug)]
    pub struct DAT_SRQ_ATTR {
        /// The number of receives that the queue can hold.
        pub max_recv_dtos: DAT_COUNT,
        /// The maximum number of segments of a receive.
        pub max_recv_iov: DAT_COUNT,
        /// The low watermark: if fewer receives than this are left, an event is raised.
        pub low_watermark: DAT_COUNT,
    }

    /// The result of dat_srq_query.
    #[derive(Debug)]
    pub struct DAT_SRQ_PARAM {
        /// The IA of the queue.
        pub ia_handle: DAT_IA_HANDLE,
        /// The state of the queue.
        pub srq_state: DAT_SRQ_STATE,
        /// The protection zone of the queue.
        pub pz_handle: DAT_PZ_HANDLE,
        /// The number of receives that the queue can hold.
        pub max_recv_dtos: DAT_COUNT,
        /// The maximum number of segments of a receive.
        pub max_recv_iov: DAT_COUNT,
        /// The low watermark: if fewer receives than this are left, an event is raised.
        pub low_watermark: DAT_COUNT,
        /// The number of receives that were posted and not yet taken by an EP, or
        /// `DAT_VALUE_UNKNOWN`.
        pub available_dto_count: DAT_COUNT,
        /// The number of receives that were posted and whose events are not yet dequeued, or
        /// `DAT_VALUE_UNKNOWN`.
        pub outstanding_dto_count: DAT_COUNT,
    }
}
