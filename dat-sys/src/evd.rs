//! Event dispatchers and consumer notification objects.

use core::ffi::c_uint;
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

/// Called in place of waking a waiter: instance data, then the EVD that became ready.
pub type DAT_AGENT_FUNC =
    unsafe extern "C" fn(instance_data: DAT_PVOID, evd_handle: DAT_EVD_HANDLE);

/// No proxy agent.
pub const DAT_OS_WAIT_PROXY_AGENT_NULL: DAT_OS_WAIT_PROXY_AGENT = DAT_OS_WAIT_PROXY_AGENT::zeroed();

constants! {
    /// Event streams that an EVD accepts.
    pub type DAT_EVD_FLAGS = c_uint {
        DAT_EVD_SOFTWARE_FLAG = 0x1,
        DAT_EVD_CR_FLAG = 0x10,
        DAT_EVD_DTO_FLAG = 0x20,
        DAT_EVD_CONNECTION_FLAG = 0x40,
        DAT_EVD_RMR_BIND_FLAG = 0x80,
        DAT_EVD_ASYNC_FLAG = 0x100,
        DAT_EVD_DEFAULT_FLAG = 0x1f0,
        DAT_EVD_EXTENSION_BASE = 0x200,
    }

    /// EVD state: three independent groups of bits (enabled, waitable, configuration).
    pub type DAT_EVD_STATE = c_uint {
        DAT_EVD_STATE_ENABLED = 0x1,
        DAT_EVD_STATE_DISABLED = 0x2,
        DAT_EVD_STATE_WAITABLE = 0x4,
        DAT_EVD_STATE_UNWAITABLE = 0x8,
        DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
        DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
        DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30,
    }

    /// Fields of [`DAT_EVD_PARAM`] wanted, dat_evd_query.
    pub type DAT_EVD_PARAM_MASK = c_uint {
        DAT_EVD_FIELD_IA_HANDLE = 0x1,
        DAT_EVD_FIELD_EVD_QLEN = 0x2,
        DAT_EVD_FIELD_EVD_STATE = 0x4,
        DAT_EVD_FIELD_CNO = 0x8,
        DAT_EVD_FIELD_EVD_FLAGS = 0x10,
        DAT_EVD_FIELD_ALL = 0x1f,
    }

    /// What a CNO notifies besides its waiter.
    pub type DAT_PROXY_TYPE = c_uint {
        DAT_PROXY_TYPE_NONE = 0,
        DAT_PROXY_TYPE_AGENT = 1,
        DAT_PROXY_TYPE_FD = 2,
    }

    /// Fields of [`DAT_CNO_PARAM`] wanted, dat_cno_query. The values are not separate bits: `PROXY`
    /// is 3 and `ALL` is 4.
    pub type DAT_CNO_PARAM_MASK = c_uint {
        DAT_CNO_FIELD_IA_HANDLE = 0x1,
        DAT_CNO_FIELD_PROXY_TYPE = 0x2,
        DAT_CNO_FIELD_PROXY = 0x3,
        DAT_CNO_FIELD_ALL = 0x4,
    }
}

records! {
    /// Result of dat_evd_query.
    #[derive(Debug)]
    pub struct DAT_EVD_PARAM {
        /// IA of the EVD.
        pub ia_handle: DAT_IA_HANDLE,
        /// Events it can hold, at least what the consumer asked for.
        pub evd_qlen: DAT_COUNT,
        /// State.
        pub evd_state: DAT_EVD_STATE,
        /// CNO it notifies, or [`DAT_HANDLE_NULL`].
        pub cno_handle: DAT_CNO_HANDLE,
        /// Streams it accepts.
        pub evd_flags: DAT_EVD_FLAGS,
    }

    /// A function to call when a CNO is triggered, passed by value.
    #[derive(Debug)]
    pub struct DAT_OS_WAIT_PROXY_AGENT {
        /// First argument of the function.
        pub instance_data: DAT_PVOID,
        /// The function, or none.
        pub proxy_agent_func: Option<DAT_AGENT_FUNC>,
    }

    /// Result of dat_cno_query.
    #[derive(Debug)]
    pub struct DAT_CNO_PARAM {
        /// IA of the CNO.
        pub ia_handle: DAT_IA_HANDLE,
        /// Which member of `proxy` counts.
        pub proxy_type: DAT_PROXY_TYPE,
        /// What it notifies besides its waiter.
        pub proxy: DAT_CNO_PROXY,
    }

    /// Type of [`DAT_CNO_PARAM::proxy`], which has no name in C.
    pub union DAT_CNO_PROXY {
        /// `DAT_PROXY_TYPE_AGENT`.
        pub agent: DAT_OS_WAIT_PROXY_AGENT,
        /// `DAT_PROXY_TYPE_FD`.
        pub fd: DAT_FD,
        /// `DAT_PROXY_TYPE_NONE`.
        pub none: DAT_PVOID,
    }
}

impl fmt::Debug for DAT_CNO_PROXY {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DAT_CNO_PROXY { .. }")
    }
}
