//! The parts of uDAPL 1.2 that differ from 2.0. Layouts are those of `libdat.so.1` on LP64 Linux.
//!
//! Everything else is the same as in the crate's root. Names whose layout, value or signature 2.0
//! changed are defined here again; [`ADDED_IN_2_0`] lists the names that 2.0 added.

mod ep;
mod error;
mod event;
mod ia;
mod memory;
mod provider;

#[cfg(test)]
mod layout_tests;

pub use ep::*;
pub use error::*;
pub use event::*;
pub use ia::*;
pub use memory::*;
pub use provider::*;

use crate::describe::{Constant, Record};

/// The constants that differ from 2.0, grouped by file; see [`constants`].
const CONSTANTS: &[&[Constant]] =
    &[error::CONSTANTS, ia::CONSTANTS, memory::CONSTANTS, ep::CONSTANTS, event::CONSTANTS];

/// The structures and unions that differ from 2.0, grouped by file; see [`records`].
const RECORDS: &[&[Record]] =
    &[ia::RECORDS, memory::RECORDS, ep::RECORDS, event::RECORDS, provider::RECORDS];

/// The names in the crate's root that 1.2 does not have.
pub const ADDED_IN_2_0: &[&str] = &[
    // Status words
    "DAT_RESERVED_LMR",
    "DAT_PORT_IN_USE",
    "DAT_COMM_NOT_SUPPORTED",
    "DAT_EXTENSION_BASE",
    "DAT_INVALID_HANDLE_CSP",
    "DAT_INVALID_STATE_SRQ_SHUTDOWN",
    // Common service points
    "DAT_HANDLE_TYPE_CSP",
    "DAT_CSP_FIELD_IA_HANDLE",
    "DAT_CSP_FIELD_COMM",
    "DAT_CSP_FIELD_IA_ADDRESS",
    "DAT_CSP_FIELD_EVD_HANDLE",
    "DAT_CSP_FIELD_ALL",
    "DAT_EP_FIELD_COMM",
    "DAT_COMM",
    "DAT_CSP_PARAM",
    // Notification through a file descriptor
    "DAT_PROXY_TYPE_NONE",
    "DAT_PROXY_TYPE_AGENT",
    "DAT_PROXY_TYPE_FD",
    "DAT_CNO_FIELD_PROXY_TYPE",
    "DAT_CNO_FIELD_PROXY",
    "DAT_CNO_PROXY",
    // Memory: zero-based addresses, scope, invalidation
    "DAT_VA_TYPE_VA",
    "DAT_VA_TYPE_ZB",
    "DAT_LMR_FIELD_VA_TYPE",
    "DAT_RMR_SCOPE_EP",
    "DAT_RMR_SCOPE_PZ",
    "DAT_RMR_SCOPE_ANY",
    "DAT_RMR_FIELD_RMR_SCOPE",
    "DAT_RMR_FIELD_VA_TYPE",
    "DAT_IA_FIELD_IA_ZB_SUPPORTED",
    "DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG",
    "DAT_DTO_ERR_LOCAL_MM_ERROR",
    "DAT_DTO_SEND",
    "DAT_DTO_RDMA_WRITE",
    "DAT_DTO_RDMA_READ",
    "DAT_DTO_RECEIVE",
    "DAT_DTO_RECEIVE_WITH_INVALIDATE",
    "DAT_DTO_BIND_MW",
    "DAT_DTO_LMR_FMR",
    "DAT_DTO_LMR_INVALIDATE",
    "DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE",
    "DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED",
    "DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE",
    // Several paths
    "DAT_CONNECT_MULTIPATH_REQUESTED_FLAG",
    "DAT_CONNECT_MULTIPATH_REQUIRED_FLAG",
    "DAT_EP_STATE_CONNECTED_SINGLE_PATH",
    "DAT_EP_STATE_CONNECTED_MULTI_PATH",
    "DAT_HA_DOWN_TO_1",
    "DAT_HA_UP_TO_MULTI_PATH",
    "DAT_HA_LB_NONE",
    "DAT_HA_LB_INTERCOMM",
    "DAT_HA_LB_INTRACOMM",
    "DAT_HA_FALSE",
    "DAT_HA_TRUE",
    "DAT_HA_UNKNOWN",
    "DAT_HA_CONFLICTING",
    "DAT_HA_EXTENSION_BASE",
    "DAT_PROVIDER_FIELD_HA_SUPPORTED",
    "DAT_PROVIDER_FIELD_HA_LB",
    // Shared receive queues
    "DAT_SRQ_STATE_SHUTDOWN",
    // Extensions
    "DAT_HANDLE_TYPE_EXTENSION_BASE",
    "DAT_MEM_PRIV_EXTENSION_BASE",
    "DAT_SERVICE_TYPE_EXTENSION_BASE",
    "DAT_EVD_EXTENSION_BASE",
    "DAT_DTO_EXTENSION_BASE",
    "DAT_EXTENSION_EVENT",
    "DAT_IB_EXTENSION_RANGE_BASE",
    "DAT_IW_EXTENSION_RANGE_BASE",
    "DAT_OPEN_EXTENSION_BASE",
    "DAT_CLOSE_EXTENSION_BASE",
    "DAT_EXTENSION_NONE",
    "DAT_EXTENSION_IB",
    "DAT_EXTENSION_IW",
    "DAT_IB_EXTENSION",
    "DAT_IW_EXTENSION",
    "DAT_IA_FIELD_IA_EXTENSION",
    "DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED",
    "DAT_IA_FIELD_IA_EXTENSION_VERSION",
    "DAT_SOCK_ADDR6",
];

/// Returns every constant of uDAPL 1.2: the constants of 2.0 except the additions of 2.0. A
/// constant that differs has its 1.2 value.
pub fn constants() -> impl Iterator<Item = &'static Constant> {
    let kept = crate::describe::CONSTANTS.iter().copied().flatten();
    kept.filter(|constant| is_kept(constant.name)).chain(CONSTANTS.iter().copied().flatten())
}

/// Returns every structure and union of uDAPL 1.2: those of 2.0 except the additions of 2.0. A type
/// that differs has its 1.2 layout.
pub fn records() -> impl Iterator<Item = &'static Record> {
    let kept = crate::describe::RECORDS.iter().copied().flatten();
    kept.filter(|record| is_kept(record.name)).chain(RECORDS.iter().copied().flatten())
}

/// Returns whether a name of 2.0 means the same in 1.2.
fn is_kept(name: &str) -> bool {
    let constants = CONSTANTS.iter().copied().flatten().map(|constant| constant.name);
    let records = RECORDS.iter().copied().flatten().map(|record| record.name);
    let extension = crate::ib::CONSTANTS.iter().map(|constant| constant.name);
    let extension = extension.chain(crate::ib::RECORDS.iter().map(|record| record.name));
    !ADDED_IN_2_0.contains(&name)
        && !constants.chain(records).chain(extension).any(|other| other == name)
}
