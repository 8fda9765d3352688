//! Events: their numbers, payloads, completion statuses and reasons.

use core::ffi::c_uint;
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

/// The outcome of an RMR bind.
pub type DAT_RMR_BIND_COMPLETION_STATUS = DAT_DTO_COMPLETION_STATUS;

constants! {
    /// The kind of an event. The kind selects the member of [`DAT_EVENT_DATA`] that is valid.
    pub type DAT_EVENT_NUMBER = c_uint {
        DAT_DTO_COMPLETION_EVENT = 0x1,
        DAT_RMR_BIND_COMPLETION_EVENT = 0x1001,
        DAT_CONNECTION_REQUEST_EVENT = 0x2001,
        DAT_CONNECTION_EVENT_ESTABLISHED = 0x4001,
        DAT_CONNECTION_EVENT_PEER_REJECTED = 0x4002,
        DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x4003,
        DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x4004,
        DAT_CONNECTION_EVENT_DISCONNECTED = 0x4005,
        DAT_CONNECTION_EVENT_BROKEN = 0x4006,
        DAT_CONNECTION_EVENT_TIMED_OUT = 0x4007,
        DAT_CONNECTION_EVENT_UNREACHABLE = 0x4008,
        DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x8001,
        DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x8002,
        DAT_ASYNC_ERROR_EP_BROKEN = 0x8003,
        DAT_ASYNC_ERROR_TIMED_OUT = 0x8004,
        DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x8005,
        DAT_HA_DOWN_TO_1 = 0x8101,
        DAT_HA_UP_TO_MULTI_PATH = 0x8102,
        DAT_SOFTWARE_EVENT = 0x1_0001,
        DAT_EXTENSION_EVENT = 0x2_0000,
        DAT_IB_EXTENSION_RANGE_BASE = 0x4_0000,
        DAT_IW_EXTENSION_RANGE_BASE = 0x8_0000,
    }

    /// The operation that a DTO completion reports.
    pub type DAT_DTOS = c_uint {
        DAT_DTO_SEND = 0,
        DAT_DTO_RDMA_WRITE = 1,
        DAT_DTO_RDMA_READ = 2,
        DAT_DTO_RECEIVE = 3,
        DAT_DTO_RECEIVE_WITH_INVALIDATE = 4,
        DAT_DTO_BIND_MW = 5,
        DAT_DTO_LMR_FMR = 6,
        DAT_DTO_LMR_INVALIDATE = 7,
        DAT_DTO_EXTENSION_BASE = 8,
    }

    /// The outcome of a DTO or RMR bind.
    pub type DAT_DTO_COMPLETION_STATUS = c_uint {
        DAT_DTO_SUCCESS = 0,
        DAT_DTO_ERR_FLUSHED = 1,
        DAT_DTO_ERR_LOCAL_LENGTH = 2,
        DAT_DTO_ERR_LOCAL_EP = 3,
        DAT_DTO_ERR_LOCAL_PROTECTION = 4,
        DAT_DTO_ERR_BAD_RESPONSE = 5,
        DAT_DTO_ERR_REMOTE_ACCESS = 6,
        DAT_DTO_ERR_REMOTE_RESPONDER = 7,
        DAT_DTO_ERR_TRANSPORT = 8,
        DAT_DTO_ERR_RECEIVER_NOT_READY = 9,
        DAT_DTO_ERR_PARTIAL_PACKET = 10,
        DAT_RMR_OPERATION_FAILED = 11,
        DAT_DTO_ERR_LOCAL_MM_ERROR = 12,
        /// The DAT 1.0 name of `DAT_DTO_ERR_LOCAL_LENGTH`.
        DAT_DTO_LENGTH_ERROR = DAT_DTO_ERR_LOCAL_LENGTH,
        /// The DAT 1.0 name of `DAT_DTO_ERR_FLUSHED`.
        DAT_DTO_FAILURE = DAT_DTO_ERR_FLUSHED,
        DAT_RMR_BIND_SUCCESS = DAT_DTO_SUCCESS,
        DAT_RMR_BIND_FAILURE = DAT_DTO_ERR_FLUSHED,
    }

    /// The reason in an asynchronous event of an IA.
    pub type DAT_IA_ASYNC_ERROR_REASON = c_uint {
        DAT_IA_CATASTROPHIC_ERROR = 0,
        DAT_IA_OTHER_ERROR = 1,
    }

    /// The reason in an asynchronous event of an EP.
    pub type DAT_EP_ASYNC_ERROR_REASON = c_uint {
        DAT_EP_TRANSFER_TO_ERROR = 0,
        DAT_EP_OTHER_ERROR = 1,
        DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2,
    }

    /// The reason in an asynchronous event of an EVD.
    pub type DAT_EVD_ASYNC_ERROR_REASON = c_uint {
        DAT_EVD_OVERFLOW_ERROR = 0,
        DAT_EVD_OTHER_ERROR = 1,
    }

    /// The reason in an asynchronous event of an SRQ.
    pub type DAT_SRQ_ASYNC_ERROR_REASON = c_uint {
        DAT_SRQ_TRANSFER_TO_ERROR = 0,
        DAT_SRQ_OTHER_ERROR = 1,
        DAT_SRQ_LOW_WATERMARK_EVENT = 2,
    }

    /// The reason in an asynchronous event of an LMR.
    pub type DAT_LMR_ASYNC_ERROR_REASON = c_uint {
        DAT_LMR_OTHER_ERROR = 0,
    }

    /// The reason in an asynchronous event of an RMR.
    pub type DAT_RMR_ASYNC_ERROR_REASON = c_uint {
        DAT_RMR_OTHER_ERROR = 0,
    }

    /// The reason in an asynchronous event of a PZ.
    pub type DAT_PZ_ASYNC_ERROR_REASON = c_uint {
        DAT_PZ_OTHER_ERROR = 0,
    }
}

records! {
    /// One event, with a size of 120 bytes.
    #[derive(Debug)]
    pub struct DAT_EVENT {
        /// The kind of the event.
        pub event_number: DAT_EVENT_NUMBER,
        /// The EVD that delivered the event.
        pub evd_handle: DAT_EVD_HANDLE,
        /// The payload of the event.
        pub event_data: DAT_EVENT_DATA,
        /// The payload of extended events.
        pub event_extension_data: [u64; 8],
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

    /// The payload of the completion event of a DTO.
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
        pub transfered_length: DAT_SEG_LENGTH,
        /// The operation that has completed.
        pub operation: DAT_DTOS,
        /// The RMR context that the peer invalidated. The value is undefined unless `status` is
        /// success.
        pub rmr_context: DAT_RMR_CONTEXT,
    }

    /// The payload of the event that an RMR bind has completed.
    #[derive(Debug)]
    pub struct DAT_RMR_BIND_COMPLETION_EVENT_DATA {
        /// The RMR that was bound.
        pub rmr_handle: DAT_RMR_HANDLE,
        /// The cookie that the consumer passed when it posted the operation.
        pub user_cookie: DAT_RMR_COOKIE,
        /// The outcome of the operation.
        pub status: DAT_RMR_BIND_COMPLETION_STATUS,
    }

    /// A service point of any kind.
    pub union DAT_SP_HANDLE {
        /// A reserved service point.
        pub rsp_handle: DAT_RSP_HANDLE,
        /// A public service point.
        pub psp_handle: DAT_PSP_HANDLE,
        /// A common service point.
        pub csp_handle: DAT_CSP_HANDLE,
    }

    /// The payload of the event that a connection request has arrived.
    #[derive(Debug)]
    pub struct DAT_CR_ARRIVAL_EVENT_DATA {
        /// The service point that received the connection request.
        pub sp_handle: DAT_SP_HANDLE,
        /// The address of the local IA. The provider owns the memory.
        pub local_ia_address_ptr: DAT_IA_ADDRESS_PTR,
        /// The connection qualifier.
        pub conn_qual: DAT_CONN_QUAL,
        /// The connection request, which the consumer accepts, rejects or hands off.
        pub cr_handle: DAT_CR_HANDLE,
        /// Whether the private data was truncated.
        pub truncate_flag: DAT_BOOLEAN,
    }

    /// The payload of an event of a connection.
    #[derive(Debug)]
    pub struct DAT_CONNECTION_EVENT_DATA {
        /// The endpoint of the connection.
        pub ep_handle: DAT_EP_HANDLE,
        /// The size of the private data in bytes.
        pub private_data_size: DAT_COUNT,
        /// The private data of the peer. The provider owns the memory.
        pub private_data: DAT_PVOID,
    }

    /// The payload of an asynchronous error, or of the event that a watermark was reached.
    #[derive(Debug)]
    pub struct DAT_ASYNCH_ERROR_EVENT_DATA {
        /// The object that the event concerns: an IA, EP, EVD, SRQ, LMR, RMR or PZ.
        pub dat_handle: DAT_HANDLE,
        /// One of the `DAT_..._ASYNC_ERROR_REASON` constants for the object's kind.
        pub reason: DAT_COUNT,
    }

    /// The payload of a software event, which dat_evd_post_se posts.
    #[derive(Debug)]
    pub struct DAT_SOFTWARE_EVENT_DATA {
        /// The pointer that the consumer passed to dat_evd_post_se.
        pub pointer: DAT_PVOID,
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
