//! Service points and connection requests.

use core::ffi::c_uint;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Who creates the endpoint for a connection request on a PSP.
    pub type DAT_PSP_FLAGS = c_uint {
        DAT_PSP_CONSUMER_FLAG = 0,
        DAT_PSP_PROVIDER_FLAG = 1,
    }

    /// A mask of the fields of [`DAT_PSP_PARAM`] that dat_psp_query returns.
    pub type DAT_PSP_PARAM_MASK = c_uint {
        DAT_PSP_FIELD_IA_HANDLE = 0x1,
        DAT_PSP_FIELD_CONN_QUAL = 0x2,
        DAT_PSP_FIELD_EVD_HANDLE = 0x4,
        DAT_PSP_FIELD_PSP_FLAGS = 0x8,
        DAT_PSP_FIELD_ALL = 0xf,
    }

    /// A mask of the fields of [`DAT_RSP_PARAM`] that dat_rsp_query returns.
    pub type DAT_RSP_PARAM_MASK = c_uint {
        DAT_RSP_FIELD_IA_HANDLE = 0x1,
        DAT_RSP_FIELD_CONN_QUAL = 0x2,
        DAT_RSP_FIELD_EVD_HANDLE = 0x4,
        DAT_RSP_FIELD_EP_HANDLE = 0x8,
        DAT_RSP_FIELD_ALL = 0xf,
    }

    /// A mask of the fields of [`DAT_CSP_PARAM`] that dat_csp_query returns.
    pub type DAT_CSP_PARAM_MASK = c_uint {
        DAT_CSP_FIELD_IA_HANDLE = 0x1,
        DAT_CSP_FIELD_COMM = 0x2,
        DAT_CSP_FIELD_IA_ADDRESS = 0x4,
        DAT_CSP_FIELD_EVD_HANDLE = 0x8,
        DAT_CSP_FIELD_ALL = 0xf,
    }

    /// A mask of the fields of [`DAT_CR_PARAM`] that dat_cr_query returns.
    pub type DAT_CR_PARAM_MASK = c_uint {
        DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 0x1,
        DAT_CR_FIELD_REMOTE_PORT_QUAL = 0x2,
        DAT_CR_FIELD_PRIVATE_DATA_SIZE = 0x4,
        DAT_CR_FIELD_PRIVATE_DATA = 0x8,
        DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
        DAT_CR_FIELD_ALL = 0x1f,
    }
}

records! {
    /// The result of dat_psp_query.
    #[derive(Debug)]
    pub struct DAT_PSP_PARAM {
        /// The IA of the service point.
        pub ia_handle: DAT_IA_HANDLE,
        /// The connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// The EVD that receives the events of the service point.
        pub evd_handle: DAT_EVD_HANDLE,
        /// Who creates the endpoints for connection requests.
        pub psp_flags: DAT_PSP_FLAGS,
    }

    /// The result of dat_rsp_query.
    #[derive(Debug)]
    pub struct DAT_RSP_PARAM {
        /// The IA of the service point.
        pub ia_handle: DAT_IA_HANDLE,
        /// The connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// The EVD that receives the events of the service point.
        pub evd_handle: DAT_EVD_HANDLE,
        /// The endpoint that is reserved for the connection.
        pub ep_handle: DAT_EP_HANDLE,
    }

    /// The result of dat_csp_query.
    #[derive(Debug)]
    pub struct DAT_CSP_PARAM {
        /// The IA of the service point.
        pub ia_handle: DAT_IA_HANDLE,
        /// The communicator on which the service point listens.
        pub comm: *mut DAT_COMM,
        /// The address on which the service point listens.
        pub address_ptr: DAT_IA_ADDRESS_PTR,
        /// The EVD that receives the events of the service point.
        pub evd_handle: DAT_EVD_HANDLE,
    }

    /// The result of dat_cr_query.
    #[derive(Debug)]
    pub struct DAT_CR_PARAM {
        /// The address of the peer. The provider owns the memory.
        pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The port qualifier of the peer.
        pub remote_port_qual: DAT_PORT_QUAL,
        /// The size of the private data in bytes.
        pub private_data_size: DAT_COUNT,
        /// The private data of the peer. The provider owns the memory.
        pub private_data: DAT_PVOID,
        /// The endpoint that must accept the connection request, or [`DAT_HANDLE_NULL`] if any
        /// endpoint may.
        pub local_ep_handle: DAT_EP_HANDLE,
    }
}
