//! Status words of uDAPL 1.2. In 2.0, two subtypes were inserted, and "not implemented" got another
//! number.

use core::ffi::c_uint;

use crate::describe::{constants, status_names as names_2_0};
use crate::{DAT_RETURN, DAT_SUBTYPE_MASK};

/// Converts a status of 2.0 to the numbers of 1.2, regardless of the status's class. A status that
/// 1.2 does not have is converted to the most similar status of 1.2.
pub const fn status(status: DAT_RETURN) -> DAT_RETURN {
    let (rest, subtype) = (status & !DAT_SUBTYPE_MASK, status & DAT_SUBTYPE_MASK);
    let rest = match rest & crate::DAT_TYPE_MASK {
        crate::DAT_NOT_IMPLEMENTED => DAT_NOT_IMPLEMENTED,
        crate::DAT_RESERVED_LMR => crate::DAT_CLASS_ERROR | crate::DAT_PRIVILEGES_VIOLATION,
        crate::DAT_PORT_IN_USE => crate::DAT_CLASS_ERROR | crate::DAT_CONN_QUAL_IN_USE,
        crate::DAT_COMM_NOT_SUPPORTED => crate::DAT_CLASS_ERROR | crate::DAT_MODEL_NOT_SUPPORTED,
        _ => rest,
    };
    let subtype = match subtype {
        0..crate::DAT_INVALID_HANDLE_CSP => subtype,
        crate::DAT_INVALID_HANDLE_CSP => DAT_INVALID_HANDLE1,
        crate::DAT_INVALID_HANDLE1..crate::DAT_INVALID_STATE_SRQ_SHUTDOWN => subtype - 1,
        crate::DAT_INVALID_STATE_SRQ_SHUTDOWN => DAT_INVALID_STATE_SRQ_ERROR,
        _ => subtype - 2,
    };
    rest | subtype
}

/// Returns the names of a 1.2 status, as [`describe::status_names`](crate::describe::status_names)
/// does for a status of 2.0.
pub fn status_names(status: DAT_RETURN) -> Option<(&'static str, &'static str)> {
    let subtype = match status & DAT_SUBTYPE_MASK {
        subtype @ 0..DAT_INVALID_HANDLE1 => subtype,
        subtype @ DAT_INVALID_HANDLE1..=DAT_INVALID_STATE_SRQ_IN_USE => subtype + 1,
        subtype => subtype + 2,
    };
    // Types that 2.0 added are undefined in 1.2.
    let known = status & crate::DAT_TYPE_MASK <= crate::DAT_CONN_QUAL_UNAVAILABLE
        || status & crate::DAT_TYPE_MASK == crate::DAT_NOT_IMPLEMENTED;
    if known { names_2_0(status & !DAT_SUBTYPE_MASK | subtype) } else { None }
}

constants! {
    /// The type of a status. This list has only the constant whose value differs from 2.0.
    pub type DAT_RETURN_TYPE = c_uint {
        /// The status type "not implemented". The value includes the error class, so DAT_GET_TYPE
        /// of a status never equals this constant.
        DAT_NOT_IMPLEMENTED = 0xffff_0000,
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
        DAT_INVALID_HANDLE1 = 26,
        DAT_INVALID_HANDLE2 = 27,
        DAT_INVALID_HANDLE3 = 28,
        DAT_INVALID_HANDLE4 = 29,
        DAT_INVALID_HANDLE5 = 30,
        DAT_INVALID_HANDLE6 = 31,
        DAT_INVALID_HANDLE7 = 32,
        DAT_INVALID_HANDLE8 = 33,
        DAT_INVALID_HANDLE9 = 34,
        DAT_INVALID_HANDLE10 = 35,
        DAT_INVALID_ARG1 = 36,
        DAT_INVALID_ARG2 = 37,
        DAT_INVALID_ARG3 = 38,
        DAT_INVALID_ARG4 = 39,
        DAT_INVALID_ARG5 = 40,
        DAT_INVALID_ARG6 = 41,
        DAT_INVALID_ARG7 = 42,
        DAT_INVALID_ARG8 = 43,
        DAT_INVALID_ARG9 = 44,
        DAT_INVALID_ARG10 = 45,
        DAT_INVALID_STATE_EP_UNCONNECTED = 46,
        DAT_INVALID_STATE_EP_ACTCONNPENDING = 47,
        DAT_INVALID_STATE_EP_PASSCONNPENDING = 48,
        DAT_INVALID_STATE_EP_TENTCONNPENDING = 49,
        DAT_INVALID_STATE_EP_CONNECTED = 50,
        DAT_INVALID_STATE_EP_DISCONNECTED = 51,
        DAT_INVALID_STATE_EP_RESERVED = 52,
        DAT_INVALID_STATE_EP_COMPLPENDING = 53,
        DAT_INVALID_STATE_EP_DISCPENDING = 54,
        DAT_INVALID_STATE_EP_PROVIDERCONTROL = 55,
        DAT_INVALID_STATE_EP_NOTREADY = 56,
        DAT_INVALID_STATE_EP_RECV_WATERMARK = 57,
        DAT_INVALID_STATE_EP_PZ = 58,
        DAT_INVALID_STATE_EP_EVD_REQUEST = 59,
        DAT_INVALID_STATE_EP_EVD_RECV = 60,
        DAT_INVALID_STATE_EP_EVD_CONNECT = 61,
        DAT_INVALID_STATE_EP_UNCONFIGURED = 62,
        DAT_INVALID_STATE_EP_UNCONFRESERVED = 63,
        DAT_INVALID_STATE_EP_UNCONFPASSIVE = 64,
        DAT_INVALID_STATE_EP_UNCONFTENTATIVE = 65,
        DAT_INVALID_STATE_CNO_IN_USE = 66,
        DAT_INVALID_STATE_CNO_DEAD = 67,
        DAT_INVALID_STATE_EVD_OPEN = 68,
        DAT_INVALID_STATE_EVD_ENABLED = 69,
        DAT_INVALID_STATE_EVD_DISABLED = 70,
        DAT_INVALID_STATE_EVD_WAITABLE = 71,
        DAT_INVALID_STATE_EVD_UNWAITABLE = 72,
        DAT_INVALID_STATE_EVD_IN_USE = 73,
        DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = 74,
        DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = 75,
        DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = 76,
        DAT_INVALID_STATE_EVD_WAITER = 77,
        DAT_INVALID_STATE_EVD_ASYNC = 78,
        DAT_INVALID_STATE_IA_IN_USE = 79,
        DAT_INVALID_STATE_LMR_IN_USE = 80,
        DAT_INVALID_STATE_LMR_FREE = 81,
        DAT_INVALID_STATE_PZ_IN_USE = 82,
        DAT_INVALID_STATE_PZ_FREE = 83,
        DAT_INVALID_STATE_SRQ_OPERATIONAL = 84,
        DAT_INVALID_STATE_SRQ_ERROR = 85,
        DAT_INVALID_STATE_SRQ_IN_USE = 86,
        DAT_PRIVILEGES_READ = 87,
        DAT_PRIVILEGES_WRITE = 88,
        DAT_PRIVILEGES_RDMA_READ = 89,
        DAT_PRIVILEGES_RDMA_WRITE = 90,
        DAT_PROTECTION_READ = 91,
        DAT_PROTECTION_WRITE = 92,
        DAT_PROTECTION_RDMA_READ = 93,
        DAT_PROTECTION_RDMA_WRITE = 94,
        DAT_INVALID_ADDRESS_UNSUPPORTED = 95,
        DAT_INVALID_ADDRESS_UNREACHABLE = 96,
        DAT_INVALID_ADDRESS_MALFORMED = 97,
        DAT_NAME_NOT_REGISTERED = 98,
        DAT_MAJOR_NOT_FOUND = 99,
        DAT_MINOR_NOT_FOUND = 100,
        DAT_THREAD_SAFETY_NOT_FOUND = 101,
    }
}
