//! Events of uDAPL 1.2, which have 48 bytes, and the result of dat_cno_query.

use core::ffi::c_uint;
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

constants! {
    /// A mask of the fields of [`DAT_CNO_PARAM`] that dat_cno_query returns.
    pub type DAT_CNO_PARAM_MASK = c_uint {
        DAT_CNO_FIELD_AGENT = 0x2,
        DAT_CNO_FIELD_ALL = 0x3,
    }
}

records! {
    /// One event, with a size of 48 bytes.
    #[derive(Debug)]
    pub struct DAT_EVENT {
        /// The kind of the event.
        pub event_number: DAT_EVENT_NUMBER,
        /// The EVD that delivered the event.
        pub evd_handle: DAT_EVD_HANDLE,
        /// The payload of the event.
        pub event_data: DAT_EVENT_DATA,
    }

    /// The payload of an event. [`DAT_EVENT_NUMBER`] selects the member.
    pub union DAT_EVENT_DATA {
        /// The payload of `DAT_DTO_COMPLETION_EVENT`.
        pub dto_completion_event_data: DAT_DTO_COMPLETION_EVENT_DATA,
        /// The payload of `DAT_RMR_BIND_COMPLETION_EVENT`.
        pub rmr_completion_event_data: DAT_RMR_BIND_COMPLETION_EVENT_DATA,
        /// The payload of `DAT_CONNECTION_REQUEST_EVENT`.
        pub cr_arrival_event_data: DAT_CR_ARRIVAL_EVENT_DATA,
        /// The payload of `DAT_CONNECTION_EVENT_...`.
        pub connect_event_data: DAT_CONNECTION_EVENT_DATA,
        /// The payload of `DAT_ASYNC_ERROR_...`.
        pub asynch_error_event_data: DAT_ASYNCH_ERROR_EVENT_DATA,
        /// The payload of `DAT_SOFTWARE_EVENT`.
        pub software_event_data: DAT_SOFTWARE_EVENT_DATA,
    }

    /// The payload of the event that a DTO has completed.
    #[derive(Debug)]
    pub struct DAT_DTO_COMPLETION_EVENT_DATA {
        /// The endpoint that posted the operation.
        pub ep_handle: DAT_EP_HANDLE,
        /// The cookie that the consumer passed when it posted the operation.
        pub user_cookie: DAT_DTO_COOKIE,
        /// The outcome of the operation.
        pub status: DAT_DTO_COMPLETION_STATUS,
        /// The number of bytes that were transferred. The value is undefined unless `status` is
        /// success. (The misspelt name is that of the standard.)
        pub transfered_length: DAT_VLEN,
    }

    /// A service point of either kind.
    pub union DAT_SP_HANDLE {
        /// A reserved service point.
        pub rsp_handle: DAT_RSP_HANDLE,
        /// A public service point.
        pub psp_handle: DAT_PSP_HANDLE,
    }

    /// The payload of the event that a connection request has arrived.
    #[derive(Debug)]
    pub struct DAT_CR_ARRIVAL_EVENT_DATA {
        /// The service point that received the connection request. The handle is null if an RSP
        /// received it, because the RSP is gone then.
        pub sp_handle: DAT_SP_HANDLE,
        /// The address of the local IA. The provider owns the memory.
        pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// The connection request, which the consumer accepts, rejects or hands off.
        pub cr_handle: DAT_CR_HANDLE,
    }

    /// The result of dat_cno_query.
    #[derive(Debug)]
    pub struct DAT_CNO_PARAM {
        /// The IA of the CNO.
        pub ia_handle: DAT_IA_HANDLE,
        /// The function that the CNO calls in addition to waking its waiter.
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
        // SAFETY: all members are handles, which are raw pointers of one size, so `psp_handle` can
        // always be read.
        write!(f, "DAT_SP_HANDLE({:p})", unsafe { self.psp_handle })
    }
}
