//! Endpoints and shared receive queues of uDAPL 1.2. Sizes of endpoints have 64 bits, endpoints
//! have no communicator, and the states of shared receive queues have other values than in 2.0.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Flags of dat_ep_connect that request several paths.
    pub type DAT_CONNECT_FLAGS = c_uint {
        DAT_CONNECT_MULTIPATH_FLAG = 1,
    }

    /// A mask of the fields of [`DAT_EP_PARAM`] that dat_ep_query returns or dat_ep_modify sets.
    /// From `EP_ATTR_SERVICE_TYPE` on, the constants are those of 2.0.
    pub type DAT_EP_PARAM_MASK = u64 {
        DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR = 0x4,
        DAT_EP_FIELD_LOCAL_PORT_QUAL = 0x8,
        DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR = 0x10,
        DAT_EP_FIELD_REMOTE_PORT_QUAL = 0x20,
        DAT_EP_FIELD_PZ_HANDLE = 0x40,
        DAT_EP_FIELD_RECV_EVD_HANDLE = 0x80,
        DAT_EP_FIELD_REQUEST_EVD_HANDLE = 0x100,
        DAT_EP_FIELD_CONNECT_EVD_HANDLE = 0x200,
        DAT_EP_FIELD_SRQ_HANDLE = 0x400,
        DAT_EP_FIELD_ALL = 0x7fff_f7ff,
    }

    /// The state of a shared receive queue.
    pub type DAT_SRQ_STATE = c_uint {
        DAT_SRQ_STATE_OPERATIONAL = 0,
        DAT_SRQ_STATE_ERROR = 1,
    }
}

records! {
    /// The attributes of an endpoint. Sizes are in bytes.
    #[derive(Debug)]
    pub struct DAT_EP_ATTR {
        /// The service type.
        pub service_type: DAT_SERVICE_TYPE,
        /// The maximum size of a send in bytes.
        pub max_message_size: DAT_VLEN,
        /// The maximum size of an RDMA operation in bytes.
        pub max_rdma_size: DAT_VLEN,
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
}
