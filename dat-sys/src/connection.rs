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

    /// Fields of [`DAT_PSP_PARAM`] wanted, dat_psp_query.
    pub type DAT_PSP_PARAM_MASK = c_uint {
        DAT_PSP_FIELD_IA_HANDLE = 0x1,
        DAT_PSP_FIELD_CONN_QUAL = 0x2,
        DAT_PSP_FIELD_EVD_HANDLE = 0x4,
        DAT_PSP_FIELD_PSP_FLAGS = 0x8,
        DAT_PSP_FIELD_ALL = 0xf,
    }

    /// Fields of [`DAT_RSP_PARAM`] wanted, dat_rsp_query.
    pub type DAT_RSP_PARAM_MASK = c_uint {
        DAT_RSP_FIELD_IA_HANDLE = 0x1,
        DAT_RSP_FIELD_CONN_QUAL = 0x2,
        DAT_RSP_FIELD_EVD_HANDLE = 0x4,
        DAT_RSP_FIELD_EP_HANDLE = 0x8,
        DAT_RSP_FIELD_ALL = 0xf,
    }

    /// Fields of [`DAT_CSP_PARAM`] wanted, dat_csp_query.
    pub type DAT_CSP_PARAM_MASK = c_uint {
        DAT_CSP_FIELD_IA_HANDLE = 0x1,
        DAT_CSP_FIELD_COMM = 0x2,
        DAT_CSP_FIELD_IA_ADDRESS = 0x4,
        DAT_CSP_FIELD_EVD_HANDLE = 0x8,
        DAT_CSP_FIELD_ALL = 0xf,
    }

    /// Fields of [`DAT_CR_PARAM`] wanted, dat_cr_query.
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
    /// Result of dat_psp_query.
    #[derive(Debug)]
    pub struct DAT_PSP_PARAM {
        /// Its IA.
        pub ia_handle: DAT_IA_HANDLE,
        /// Connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// EVD of its events.
        pub evd_handle: DAT_EVD_HANDLE,
        /// Who creates endpoints.
        pub psp_flags: DAT_PSP_FLAGS,
    }

    /// Result of dat_rsp_query.
    #[derive(Debug)]
    pub struct DAT_RSP_PARAM {
        /// Its IA.
        pub ia_handle: DAT_IA_HANDLE,
        /// Connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// EVD of its events.
        pub evd_handle: DAT_EVD_HANDLE,
        /// Endpoint reserved for the connection.
        pub ep_handle: DAT_EP_HANDLE,
    }

    /// Result of dat_csp_query.
    #[derive(Debug)]
    pub struct DAT_CSP_PARAM {
        /// Its IA.
        pub ia_handle: DAT_IA_HANDLE,
        /// Communicator it listens on.
        pub comm: *mut DAT_COMM,
        /// Address it listens on.
        pub address_ptr: DAT_IA_ADDRESS_PTR,
        /// EVD of its events.
        pub evd_handle: DAT_EVD_HANDLE,
    }

    /// Result of dat_cr_query.
    #[derive(Debug)]
    pub struct DAT_CR_PARAM {
        /// Address of the peer, owned by the provider.
        pub remote_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// Port qualifier of the peer.
        pub remote_port_qual: DAT_PORT_QUAL,
        /// Bytes of private data.
        pub private_data_size: DAT_COUNT,
        /// Private data of the peer, owned by the provider.
        pub private_data: DAT_PVOID,
        /// Endpoint that must accept, or [`DAT_HANDLE_NULL`] if any may.
        pub local_ep_handle: DAT_EP_HANDLE,
    }
}
