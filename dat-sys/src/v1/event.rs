//! Events of 48 bytes, and the result of dat_cno_query.

use core::ffi::c_uint;
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// Fields of [`DAT_CNO_PARAM`] wanted, dat_cno_query.
    pub type DAT_CNO_PARAM_MASK = c_uint {
        DAT_CNO_FIELD_AGENT = 0x2,
        DAT_CNO_FIELD_ALL = 0x3,
    }
}

records! {
    /// One event, 48 bytes.
    #[derive(Debug)]
    pub struct DAT_EVENT {
        /// What happened.
        pub event_number: DAT_EVENT_NUMBER,
        /// EVD that delivered it.
        pub evd_handle: DAT_EVD_HANDLE,
        /// Payload.
        pub event_data: DAT_EVENT_DATA,
    }

    /// Payload of an event; [`DAT_EVENT_NUMBER`] selects the member.
    pub union DAT_EVENT_DATA {
        /// `DAT_DTO_COMPLETION_EVENT`.
        pub dto_completion_event_data: DAT_DTO_COMPLETION_EVENT_DATA,
        /// `DAT_RMR_BIND_COMPLETION_EVENT`.
        pub rmr_completion_event_data: DAT_RMR_BIND_COMPLETION_EVENT_DATA,
        /// `DAT_CONNECTION_REQUEST_EVENT`.
        pub cr_arrival_event_data: DAT_CR_ARRIVAL_EVENT_DATA,
        /// `DAT_CONNECTION_EVENT_...`.
        pub connect_event_data: DAT_CONNECTION_EVENT_DATA,
        /// `DAT_ASYNC_ERROR_...`.
        pub asynch_error_event_data: DAT_ASYNCH_ERROR_EVENT_DATA,
        /// `DAT_SOFTWARE_EVENT`.
        pub software_event_data: DAT_SOFTWARE_EVENT_DATA,
    }

    /// A DTO completed.
    #[derive(Debug)]
    pub struct DAT_DTO_COMPLETION_EVENT_DATA {
        /// The endpoint.
        pub ep_handle: DAT_EP_HANDLE,
        /// The cookie it was posted with.
        pub user_cookie: DAT_DTO_COOKIE,
        /// Outcome.
        pub status: DAT_DTO_COMPLETION_STATUS,
        /// Bytes; undefined unless `status` is success. (The spelling is that of the standard.)
        pub transfered_length: DAT_VLEN,
    }

    /// A service point of either kind.
    pub union DAT_SP_HANDLE {
        /// A reserved service point.
        pub rsp_handle: DAT_RSP_HANDLE,
        /// A public service point.
        pub psp_handle: DAT_PSP_HANDLE,
    }

    /// A connection request arrived.
    #[derive(Debug)]
    pub struct DAT_CR_ARRIVAL_EVENT_DATA {
        /// Service point that received it; null if it was an RSP, which is gone.
        pub sp_handle: DAT_SP_HANDLE,
        /// Address of the local IA, owned by the provider.
        pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// Connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// The connection request, to accept, reject or hand off.
        pub cr_handle: DAT_CR_HANDLE,
    }

    /// Result of dat_cno_query.
    #[derive(Debug)]
    pub struct DAT_CNO_PARAM {
        /// IA of the CNO.
        pub ia_handle: DAT_IA_HANDLE,
        /// The function that it calls in addition to waking its waiter.
        pub agent: DAT_OS_WAIT_PROXY_AGENT,
    }
}

impl fmt::Debug for DAT_EVENT_DATA {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DAT_EVENT_DATA { .. }")
    }
}

impl fmt::Debug for DAT_SP_HANDLE {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: all members are handles.
        write!(f, "DAT_SP_HANDLE({:p})", unsafe { self.psp_handle })
    }
}
