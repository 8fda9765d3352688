//! Event dispatchers and consumer notification objects.

use core::ffi::c_uint;
use core::fmt;

use crate::describe::{constants, records};
use crate::*;

/// A function that a CNO calls when the CNO is triggered. The arguments are the instance data, and
/// the EVD that became ready.
pub type DAT_AGENT_FUNC =
    unsafe extern "C" fn(instance_data: DAT_PVOID, evd_handle: DAT_EVD_HANDLE);

/// The value that stands for no proxy agent.
pub const DAT_OS_WAIT_PROXY_AGENT_NULL: DAT_OS_WAIT_PROXY_AGENT = DAT_OS_WAIT_PROXY_AGENT::zeroed();

constants! {
    /// The event streams that an EVD accepts.
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

    /// The state of an EVD: three independent groups of bits (enabled, waitable, configuration).
    pub type DAT_EVD_STATE = c_uint {
        DAT_EVD_STATE_ENABLED = 0x1,
        DAT_EVD_STATE_DISABLED = 0x2,
        DAT_EVD_STATE_WAITABLE = 0x4,
        DAT_EVD_STATE_UNWAITABLE = 0x8,
        DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
        DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
        DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30,
    }

    /// A mask of the fields of [`DAT_EVD_PARAM`] that dat_evd_query returns.
    pub type DAT_EVD_PARAM_MASK = c_uint {
        DAT_EVD_FIELD_IA_HANDLE = 0x1,
        DAT_EVD_FIELD_EVD_QLEN = 0x2,
        DAT_EVD_FIELD_EVD_STATE = 0x4,
        DAT_EVD_FIELD_CNO = 0x8,
        DAT_EVD_FIELD_EVD_FLAGS = 0x10,
        DAT_EVD_FIELD_ALL = 0x1f,
    }

    /// The kind of agent that a CNO notifies besides its waiter.
    pub type DAT_PROXY_TYPE = c_uint {
        DAT_PROXY_TYPE_NONE = 0,
        DAT_PROXY_TYPE_AGENT = 1,
        DAT_PROXY_TYPE_FD = 2,
    }

    /// A mask of the fields of [`DAT_CNO_PARAM`] that dat_cno_query returns. The values are not
    /// separate bits: `PROXY` is 3 and `ALL` is 4.
    pub type DAT_CNO_PARAM_MASK = c_uint {
        DAT_CNO_FIELD_IA_HANDLE = 0x1,
        DAT_CNO_FIELD_PROXY_TYPE = 0x2,
        DAT_CNO_FIELD_PROXY = 0x3,
        DAT_CNO_FIELD_ALL = 0x4,
    }
}

records! {
    /// The result of dat_evd_query.
    #[derive(Debug)]
    pub struct DAT_EVD_PARAM {
        /// The IA of the EVD.
        pub ia_handle: DAT_IA_HANDLE,
        /// The number of events that the EVD can hold, which is at least the number that the
        /// consumer asked for.
        pub evd_qlen: DAT_COUNT,
        /// The state of the EVD.
        pub evd_state: DAT_EVD_STATE,
        /// The CNO that the EVD notifies, or [`DAT_HANDLE_NULL`].
        pub cno_handle: DAT_CNO_HANDLE,
        /// The event streams that the EVD accepts.
        pub evd_flags: DAT_EVD_FLAGS,
    }

    /// A function that a CNO calls when the CNO is triggered. The structure is passed by value.
    #[derive(Debug)]
    pub struct DAT_OS_WAIT_PROXY_AGENT {
        /// The first argument of the function.
        pub instance_data: DAT_PVOID,
        /// The function, if there is one.
        pub proxy_agent_func: Option<DAT_AGENT_FUNC>,
    }

    /// The result of dat_cno_query.
    #[derive(Debug)]
    pub struct DAT_CNO_PARAM {
        /// The IA of the CNO.
        pub ia_handle: DAT_IA_HANDLE,
        /// The kind of agent, which says which member of `proxy` is valid.
        pub proxy_type: DAT_PROXY_TYPE,
        /// The agent that the CNO notifies besides its waiter.
        pub proxy: DAT_CNO_PROXY,
    }

    /// The type of [`DAT_CNO_PARAM::proxy`], which has no name in C.
    pub union DAT_CNO_PROXY {
        /// The valid member if the type is `DAT_PROXY_TYPE_AGENT`.
        pub agent: DAT_OS_WAIT_PROXY_AGENT,
        /// The valid member if the type is `DAT_PROXY_TYPE_FD`.
        pub fd: DAT_FD,
        /// The valid member if the type is `DAT_PROXY_TYPE_NONE`.
        pub none: DAT_PVOID,
    }
}

impl fmt::Debug for DAT_CNO_PROXY {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DAT_CNO_PROXY { .. }")
    }
}
