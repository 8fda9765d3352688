//! Endpoints, with sizes of 64 bits and without communicator; and shared receive queues, with other
//! state values.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Multi-path request of dat_ep_connect.
    pub type DAT_CONNECT_FLAGS = c_uint {
        DAT_CONNECT_MULTIPATH_FLAG = 1,
    }

    /// Fields of [`DAT_EP_PARAM`] wanted or set, dat_ep_query and dat_ep_modify. From
    /// `EP_ATTR_SERVICE_TYPE` on they are those of 2.0.
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

    /// Shared receive queue state.
    pub type DAT_SRQ_STATE = c_uint {
        DAT_SRQ_STATE_OPERATIONAL = 0,
        DAT_SRQ_STATE_ERROR = 1,
    }
}

records! {
    /// Attributes of an endpoint. Sizes are in bytes.
    #[derive(Debug)]
    pub struct DAT_EP_ATTR {
        /// Service type.
        pub service_type: DAT_SERVICE_TYPE,
        /// Bytes of a send.
        pub max_message_size: DAT_VLEN,
        /// Bytes of an RDMA operation.
        pub max_rdma_size: DAT_VLEN,
        /// Quality of service.
        pub qos: DAT_QOS,
        /// Completion flags allowed for receives.
        pub recv_completion_flags: DAT_COMPLETION_FLAGS,
        /// Completion flags allowed for requests.
        pub request_completion_flags: DAT_COMPLETION_FLAGS,
        /// Receives outstanding.
        pub max_recv_dtos: DAT_COUNT,
        /// Requests outstanding.
        pub max_request_dtos: DAT_COUNT,
        /// Segments of a receive.
        pub max_recv_iov: DAT_COUNT,
        /// Segments of a request.
        pub max_request_iov: DAT_COUNT,
        /// RDMA reads in progress as target.
        pub max_rdma_read_in: DAT_COUNT,
        /// RDMA reads in progress as initiator.
        pub max_rdma_read_out: DAT_COUNT,
        /// Soft high watermark: receives taken from the SRQ before an event is raised.
        pub srq_soft_hw: DAT_COUNT,
        /// Local segments of an RDMA read.
        pub max_rdma_read_iov: DAT_COUNT,
        /// Local segments of an RDMA write.
        pub max_rdma_write_iov: DAT_COUNT,
        /// Number of `ep_transport_specific`.
        pub ep_transport_specific_count: DAT_COUNT,
        /// Attributes of the transport.
        pub ep_transport_specific: *mut DAT_NAMED_ATTR,
        /// Number of `ep_provider_specific`.
        pub ep_provider_specific_count: DAT_COUNT,
        /// Attributes of the provider.
        pub ep_provider_specific: *mut DAT_NAMED_ATTR,
    }

    /// Parameters of an endpoint, for dat_ep_query and dat_ep_modify.
    #[derive(Debug)]
    pub struct DAT_EP_PARAM {
        /// Its IA.
        pub ia_handle: DAT_IA_HANDLE,
        /// State.
        pub ep_state: DAT_EP_STATE,
        /// Address of the local IA, owned by the provider.
        pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// Port qualifier of this end.
        pub local_port_qual: DAT_PORT_QUAL,
        /// Address of the peer, owned by the provider.
        pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// Port qualifier of the peer.
        pub remote_port_qual: DAT_PORT_QUAL,
        /// Its protection zone.
        pub pz_handle: DAT_PZ_HANDLE,
        /// EVD of receive completions.
        pub recv_evd_handle: DAT_EVD_HANDLE,
        /// EVD of request completions.
        pub request_evd_handle: DAT_EVD_HANDLE,
        /// EVD of connection events.
        pub connect_evd_handle: DAT_EVD_HANDLE,
        /// Its SRQ, or [`DAT_HANDLE_NULL`].
        pub srq_handle: DAT_SRQ_HANDLE,
        /// Attributes.
        pub ep_attr: DAT_EP_ATTR,
    }
}
