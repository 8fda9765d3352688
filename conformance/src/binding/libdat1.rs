//! A binding to a libdat.so.1: functions with the signatures of uDAPL 2.0 that call the functions
//! of 1.2.
//!
//! Cases are written for 2.0. The binding converts their arguments to 1.2, and the results back to
//! 2.0. Arguments that 1.2 does not have are left out, and cases about such arguments do not run
//! (`Case::is_in_1_2`).

mod functions;
mod mask;
mod post;
mod record;

use std::ffi::c_char;
use std::path::Path;

use dat_sys::*;

use self::functions::{changed, same, status};
use super::library;
use crate::api::Api;
use crate::calls;
use crate::functions::functions;

/// Returns the functions of the library at this path. A process can use only one such library.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    let library = library::load_forever(path)?;
    functions::load(library).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Box::leak(Box::new(wrapped())))
}

macro_rules! wrap {
    (
        registry { $($own:ident($($own_arg:ident: $own_type:ty),* $(,)?);)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        /// Returns all functions of the binding. A function whose arguments differ between the
        /// versions converts them. Every other function converts only the status.
        fn wrapped() -> Api {
            let library = same();
            let plain = Api {
                $($own: library.$own.map(|_| plain::$own as _),)*
                $($name: library.$name.map(|_| plain::$name as _),)*
                dat_extension_op: None,
                record: calls::record,
            };
            with_changes(plain)
        }

        mod plain {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $own($($own_arg: $own_type),*) -> DAT_RETURN {
                    status(same().$own($($own_arg),*))
                }
            )*
            $(
                #[allow(clippy::too_many_arguments)] // the standard's prototypes
                pub(super) unsafe extern "C" fn $name(handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                    status(same().$name(handle $(, $arg)*))
                }
            )*
        }
    };
}

functions!(wrap);

/// Replaces each function whose arguments differ between the versions by a function that converts
/// the arguments.
fn with_changes(plain: Api) -> Api {
    Api {
        dat_ia_openv: Some(openv),
        dat_strerror: Some(strerror),
        dat_ia_query: Some(record::ia_query),
        dat_cno_query: Some(record::cno_query),
        dat_cr_reject: Some(reject),
        dat_evd_wait: Some(post::evd_wait),
        dat_evd_dequeue: Some(post::evd_dequeue),
        dat_evd_post_se: Some(post::evd_post_se),
        dat_ep_create: Some(record::ep_create),
        dat_ep_create_with_srq: Some(record::ep_create_with_srq),
        dat_ep_query: Some(record::ep_query),
        dat_ep_modify: Some(record::ep_modify),
        dat_ep_post_send: Some(post::ep_post_send),
        dat_ep_post_recv: Some(post::ep_post_recv),
        dat_ep_post_rdma_read: Some(post::ep_post_rdma_read),
        dat_ep_post_rdma_write: Some(post::ep_post_rdma_write),
        dat_srq_post_recv: Some(post::srq_post_recv),
        dat_srq_query: Some(record::srq_query),
        dat_lmr_create: Some(record::lmr_create),
        dat_lmr_query: Some(record::lmr_query),
        dat_lmr_sync_rdma_read: Some(post::lmr_sync_rdma_read),
        dat_lmr_sync_rdma_write: Some(post::lmr_sync_rdma_write),
        dat_rmr_query: Some(record::rmr_query),
        dat_rmr_bind: Some(post::rmr_bind),
        ..plain
    }
}

/// Opens an adapter. A request for version 2.0 becomes a request for 1.2. Any other version is
/// passed unchanged.
unsafe extern "C" fn openv(
    name: DAT_NAME_PTR,
    async_qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia: *mut DAT_IA_HANDLE,
    major: u32,
    minor: u32,
    threadsafe: DAT_BOOLEAN,
) -> DAT_RETURN {
    let (major, minor) = if (major, minor) == (2, 0) { (1, 2) } else { (major, minor) };
    status(same().dat_ia_openv(name, async_qlen, async_evd, ia, major, minor, threadsafe))
}

unsafe extern "C" fn strerror(
    of: DAT_RETURN,
    major: *mut *const c_char,
    minor: *mut *const c_char,
) -> DAT_RETURN {
    status(same().dat_strerror(v1::status(of), major, minor))
}

/// Calls dat_cr_reject without the private data, because uDAPL 1.2 does not have this argument.
unsafe extern "C" fn reject(
    cr: DAT_HANDLE,
    _size: DAT_COUNT,
    _private_data: DAT_PVOID,
) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes a valid
    // handle.
    status(unsafe { (changed().dat_cr_reject)(cr) })
}
