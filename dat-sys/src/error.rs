//! Status words: the class, type and subtype of a [`DAT_RETURN`], as uDAPL 2.0 defines them.

use core::ffi::c_uint;

use crate::describe::constants;

/// The status of every DAT call. The class is in bits 31 and 30, the type in bits 29 to 16, and the
/// subtype in the bits below.
pub type DAT_RETURN = u32;

/// Returns the status word of a failed call.
pub const fn DAT_ERROR(kind: DAT_RETURN_TYPE, subtype: DAT_RETURN_SUBTYPE) -> DAT_RETURN {
    DAT_CLASS_ERROR | kind | subtype
}

/// Returns the type of a status, for comparison with the constants of [`DAT_RETURN_TYPE`].
///
/// Compare the type instead of the whole word, because OFED's providers return failures without the
/// class bit.
pub const fn DAT_GET_TYPE(status: DAT_RETURN) -> DAT_RETURN_TYPE {
    status & DAT_TYPE_MASK
}

/// Returns the subtype of a status, for comparison with the constants of [`DAT_RETURN_SUBTYPE`].
pub const fn DAT_GET_SUBTYPE(status: DAT_RETURN) -> DAT_RETURN_SUBTYPE {
    status & DAT_SUBTYPE_MASK
}

/// Returns whether the class of the status is "warning".
pub const fn DAT_IS_WARNING(status: DAT_RETURN) -> bool {
    status & DAT_CLASS_WARNING != 0
}

constants! {
    /// The class of a status, bits 31 and 30 of a [`DAT_RETURN`](crate::DAT_RETURN), and the masks
    /// of the other parts.
    pub type DAT_RETURN_CLASS = c_uint {
        DAT_CLASS_ERROR = 0x8000_0000,
        DAT_CLASS_WARNING = 0x4000_0000,
        DAT_CLASS_SUCCESS = 0,
        DAT_TYPE_MASK = 0x3fff_0000,
        DAT_SUBTYPE_MASK = 0xffff,
    }

    /// The type of a status, bits 29 to 16 of a [`DAT_RETURN`](crate::DAT_RETURN).
    pub type DAT_RETURN_TYPE = c_uint {
        DAT_SUCCESS = 0x0,
        DAT_ABORT = 0x1_0000,
        DAT_CONN_QUAL_IN_USE = 0x2_0000,
        DAT_INSUFFICIENT_RESOURCES = 0x3_0000,
        DAT_INTERNAL_ERROR = 0x4_0000,
        DAT_INVALID_HANDLE = 0x5_0000,
        DAT_INVALID_PARAMETER = 0x6_0000,
        DAT_INVALID_STATE = 0x7_0000,
        DAT_LENGTH_ERROR = 0x8_0000,
        DAT_MODEL_NOT_SUPPORTED = 0x9_0000,
        DAT_PROVIDER_NOT_FOUND = 0xa_0000,
        DAT_PRIVILEGES_VIOLATION = 0xb_0000,
        DAT_PROTECTION_VIOLATION = 0xc_0000,
        DAT_QUEUE_EMPTY = 0xd_0000,
        DAT_QUEUE_FULL = 0xe_0000,
        DAT_TIMEOUT_EXPIRED = 0xf_0000,
        DAT_PROVIDER_ALREADY_REGISTERED = 0x10_0000,
        DAT_PROVIDER_IN_USE = 0x11_0000,
        DAT_INVALID_ADDRESS = 0x12_0000,
        DAT_INTERRUPTED_CALL = 0x13_0000,
        DAT_CONN_QUAL_UNAVAILABLE = 0x14_0000,
        DAT_RESERVED_LMR = 0x15_0000,
        DAT_PORT_IN_USE = 0x16_0000,
        DAT_COMM_NOT_SUPPORTED = 0x17_0000,
        DAT_EXTENSION_BASE = 0x1000_0000,
        DAT_NOT_IMPLEMENTED = 0x3fff_0000,
        /// The name of this constant in DAT 1.0.
        DAT_NAME_NOT_FOUND = DAT_PROVIDER_NOT_FOUND,
    }

    /// The subtype of a status, bits 15 to 0 of a [`DAT_RETURN`](crate::DAT_RETURN). Each subtype
    /// belongs to one type.
    pub type DAT_RETURN_SUBTYPE = c_uint {
        DAT_NO_SUBTYPE = 0,
        DAT_SUB_INTERRUPTED = 1,
        DAT_RESOURCE_MEMORY = 2,
        DAT_RESOURCE_DEVICE = 3,
        DAT_RESOURCE_TEP = 4,
        DAT_RESOURCE_TEVD = 5,
        DAT_RESOURCE_PROTECTION_DOMAIN = 6,
        DAT_RESOURCE_MEMORY_REGION = 7,
        DAT_RESOURCE_ERROR_HANDLER = 8,
        DAT_RESOURCE_CREDITS = 9,
        DAT_RESOURCE_SRQ = 10,
        DAT_INVALID_HANDLE_IA = 11,
        DAT_INVALID_HANDLE_EP = 12,
        DAT_INVALID_HANDLE_LMR = 13,
        DAT_INVALID_HANDLE_RMR = 14,
        DAT_INVALID_HANDLE_PZ = 15,
        DAT_INVALID_HANDLE_PSP = 16,
        DAT_INVALID_HANDLE_RSP = 17,
        DAT_INVALID_HANDLE_CR = 18,
        DAT_INVALID_HANDLE_CNO = 19,
        DAT_INVALID_HANDLE_EVD_CR = 20,
        DAT_INVALID_HANDLE_EVD_REQUEST = 21,
        DAT_INVALID_HANDLE_EVD_RECV = 22,
        DAT_INVALID_HANDLE_EVD_CONN = 23,
        DAT_INVALID_HANDLE_EVD_ASYNC = 24,
        DAT_INVALID_HANDLE_SRQ = 25,
        DAT_INVALID_HANDLE_CSP = 26,
        DAT_INVALID_HANDLE1 = 27,
        DAT_INVALID_HANDLE2 = 28,
        DAT_INVALID_HANDLE3 = 29,
        DAT_INVALID_HANDLE4 = 30,
        DAT_INVALID_HANDLE5 = 31,
        DAT_INVALID_HANDLE6 = 32,
        DAT_INVALID_HANDLE7 = 33,
        DAT_INVALID_HANDLE8 = 34,
        DAT_INVALID_HANDLE9 = 35,
        DAT_INVALID_HANDLE10 = 36,
        DAT_INVALID_ARG1 = 37,
        DAT_INVALID_ARG2 = 38,
        DAT_INVALID_ARG3 = 39,
        DAT_INVALID_ARG4 = 40,
        DAT_INVALID_ARG5 = 41,
        DAT_INVALID_ARG6 = 42,
        DAT_INVALID_ARG7 = 43,
        DAT_INVALID_ARG8 = 44,
        DAT_INVALID_ARG9 = 45,
        DAT_INVALID_ARG10 = 46,
        DAT_INVALID_STATE_EP_UNCONNECTED = 47,
        DAT_INVALID_STATE_EP_ACTCONNPENDING = 48,
        DAT_INVALID_STATE_EP_PASSCONNPENDING = 49,
        DAT_INVALID_STATE_EP_TENTCONNPENDING = 50,
        DAT_INVALID_STATE_EP_CONNECTED = 51,
        DAT_INVALID_STATE_EP_DISCONNECTED = 52,
        DAT_INVALID_STATE_EP_RESERVED = 53,
        DAT_INVALID_STATE_EP_COMPLPENDING = 54,
        DAT_INVALID_STATE_EP_DISCPENDING = 55,
        DAT_INVALID_STATE_EP_PROVIDERCONTROL = 56,
        DAT_INVALID_STATE_EP_NOTREADY = 57,
        DAT_INVALID_STATE_EP_RECV_WATERMARK = 58,
        DAT_INVALID_STATE_EP_PZ = 59,
        DAT_INVALID_STATE_EP_EVD_REQUEST = 60,
        DAT_INVALID_STATE_EP_EVD_RECV = 61,
        DAT_INVALID_STATE_EP_EVD_CONNECT = 62,
        DAT_INVALID_STATE_EP_UNCONFIGURED = 63,
        DAT_INVALID_STATE_EP_UNCONFRESERVED = 64,
        DAT_INVALID_STATE_EP_UNCONFPASSIVE = 65,
        DAT_INVALID_STATE_EP_UNCONFTENTATIVE = 66,
        DAT_INVALID_STATE_CNO_IN_USE = 67,
        DAT_INVALID_STATE_CNO_DEAD = 68,
        DAT_INVALID_STATE_EVD_OPEN = 69,
        DAT_INVALID_STATE_EVD_ENABLED = 70,
        DAT_INVALID_STATE_EVD_DISABLED = 71,
        DAT_INVALID_STATE_EVD_WAITABLE = 72,
        DAT_INVALID_STATE_EVD_UNWAITABLE = 73,
        DAT_INVALID_STATE_EVD_IN_USE = 74,
        DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = 75,
        DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 76,
        DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 77,
        DAT_INVALID_STATE_EVD_WAITER = 78,
        DAT_INVALID_STATE_EVD_ASYNC = 79,
        DAT_INVALID_STATE_IA_IN_USE = 80,
        DAT_INVALID_STATE_LMR_IN_USE = 81,
        DAT_INVALID_STATE_LMR_FREE = 82,
        DAT_INVALID_STATE_PZ_IN_USE = 83,
        DAT_INVALID_STATE_PZ_FREE = 84,
        DAT_INVALID_STATE_SRQ_OPERATIONAL = 85,
        DAT_INVALID_STATE_SRQ_ERROR = 86,
        DAT_INVALID_STATE_SRQ_IN_USE = 87,
        DAT_INVALID_STATE_SRQ_SHUTDOWN = 88,
        DAT_PRIVILEGES_READ = 89,
        DAT_PRIVILEGES_WRITE = 90,
        DAT_PRIVILEGES_RDMA_READ = 91,
        DAT_PRIVILEGES_RDMA_WRITE = 92,
        DAT_PROTECTION_READ = 93,
        DAT_PROTECTION_WRITE = 94,
        DAT_PROTECTION_RDMA_READ = 95,
        DAT_PROTECTION_RDMA_WRITE = 96,
        DAT_INVALID_ADDRESS_UNSUPPORTED = 97,
        DAT_INVALID_ADDRESS_UNREACHABLE = 98,
        DAT_INVALID_ADDRESS_MALFORMED = 99,
        DAT_NAME_NOT_REGISTERED = 100,
        DAT_MAJOR_NOT_FOUND = 101,
        DAT_MINOR_NOT_FOUND = 102,
        DAT_THREAD_SAFETY_NOT_FOUND = 103,
    }
}
