//! A binding to a libdat.so.1: functions with the signatures of uDAPL 2.0 that call those of 1.2.
//!
//! Cases are written for 2.0. Their arguments are converted to 1.2, and their results back to 2.0.
//! What 1.2 cannot express is left out, and cases about it do not run (`Case::is_in_1_2`).

mod mask;
mod post;
mod record;

use std::ffi::c_char;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use dat_sys::*;
use libloading::os::unix::Library;

use crate::api::Api;
use crate::functions::functions;

/// Returns the library's functions. A process can use only one library.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    let library = super::library::load_forever(path)?;
    // SAFETY: the exports show that the library is one of 1.2. `api` replaces the functions whose
    // signatures differ between 1.2 and 2.0, so those are never called with a wrong signature.
    let (same, changed) = unsafe { (Api::of(library), Changed::of(library)) };
    let _ = (
        SAME.set(same),
        CHANGED.set(changed.map_err(|error| format!("{}: {error}", path.display()))?),
    );
    Ok(Box::leak(Box::new(wrapped())))
}

/// The functions that have the same arguments in both versions.
static SAME: OnceLock<Api> = OnceLock::new();
/// The functions that have different arguments in the two versions.
static CHANGED: OnceLock<Changed> = OnceLock::new();

fn ensure_equal() -> &'static Api {
    SAME.get().expect("the library was loaded before its functions were handed out")
}

fn changed() -> &'static Changed {
    CHANGED.get().expect("as above")
}

/// Converts a status of 1.2 to the numbering of 2.0.
fn status(status: DAT_RETURN) -> DAT_RETURN {
    let (rest, subtype) = (status & !DAT_SUBTYPE_MASK, status & DAT_SUBTYPE_MASK);
    let rest = match rest {
        v1::DAT_NOT_IMPLEMENTED => DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED,
        rest => rest,
    };
    let subtype = match subtype {
        0..v1::DAT_INVALID_HANDLE1 => subtype,
        v1::DAT_INVALID_HANDLE1..=v1::DAT_INVALID_STATE_SRQ_IN_USE => subtype + 1,
        _ => subtype + 2,
    };
    rest | subtype
}

/// Lets `call` fill in a structure of 1.2, and stores its conversion to 2.0 in `to`.
///
/// # Safety
///
/// `to` must be null or writable.
unsafe fn filled<Old, New>(
    to: *mut New,
    mut record: Old,
    call: impl FnOnce(*mut Old) -> DAT_RETURN,
    convert: impl FnOnce(&Old) -> New,
) -> DAT_RETURN {
    let answer = status(call(if to.is_null() { null_mut() } else { &raw mut record }));
    if answer == DAT_SUCCESS && !to.is_null() {
        // SAFETY: the caller guarantees that `to` is null or writable.
        unsafe { to.write(convert(&record)) };
    }
    answer
}

macro_rules! wrap {
    (
        registry { $($own:ident($($own_arg:ident: $own_type:ty),* $(,)?);)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        /// Returns all functions of the binding. Those whose arguments differ convert them. The
        /// others only convert the status.
        fn wrapped() -> Api {
            let same = ensure_equal();
            let plain = Api {
                $($own: same.$own.map(|_| plain::$own as _),)*
                $($name: same.$name.map(|_| plain::$name as _),)*
                dat_extension_op: None,
            };
            with_changes(plain)
        }

        mod plain {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $own($($own_arg: $own_type),*) -> DAT_RETURN {
                    status(ensure_equal().$own($($own_arg),*))
                }
            )*
            $(
                #[allow(clippy::too_many_arguments)] // the standard's prototypes
                pub(super) unsafe extern "C" fn $name(handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                    status(ensure_equal().$name(handle $(, $arg)*))
                }
            )*
        }
    };
}

functions!(wrap);

macro_rules! changed {
    ($($name:ident: $type:ty = $ours:path;)*) => {
        /// The functions of 1.2 whose arguments differ, or the structures to which these point.
        #[allow(missing_debug_implementations)] // pointers
        struct Changed {
            $($name: $type,)*
        }

        impl Changed {
            /// Looks up the functions.
            ///
            /// # Safety
            ///
            /// The functions that the library exports under these names must have the signatures of
            /// uDAPL 1.2.
            unsafe fn of(library: &Library) -> Result<Changed, libloading::Error> {
                // SAFETY: the caller guarantees the signatures of uDAPL 1.2.
                unsafe { Ok(Changed { $($name: *library.get(stringify!($name).as_bytes())?,)* }) }
            }
        }

        fn with_changes(plain: Api) -> Api {
            Api {
                dat_ia_openv: Some(openv),
                dat_strerror: Some(strerror),
                $($name: Some($ours),)*
                ..plain
            }
        }
    };
}

changed! {
    dat_ia_query: v1::DAT_IA_QUERY_FUNC = record::ia_query;
    dat_cno_query: v1::DAT_CNO_QUERY_FUNC = record::cno_query;
    dat_cr_reject: v1::DAT_CR_REJECT_FUNC = reject;
    dat_evd_wait: v1::DAT_EVD_WAIT_FUNC = post::evd_wait;
    dat_evd_dequeue: v1::DAT_EVD_DEQUEUE_FUNC = post::evd_dequeue;
    dat_evd_post_se: v1::DAT_EVD_POST_SE_FUNC = post::evd_post_se;
    dat_ep_create: v1::DAT_EP_CREATE_FUNC = record::ep_create;
    dat_ep_create_with_srq: v1::DAT_EP_CREATE_WITH_SRQ_FUNC = record::ep_create_with_srq;
    dat_ep_query: v1::DAT_EP_QUERY_FUNC = record::ep_query;
    dat_ep_modify: v1::DAT_EP_MODIFY_FUNC = record::ep_modify;
    dat_ep_post_send: v1::DAT_EP_POST_SEND_FUNC = post::ep_post_send;
    dat_ep_post_recv: v1::DAT_EP_POST_RECV_FUNC = post::ep_post_recv;
    dat_ep_post_rdma_read: v1::DAT_EP_POST_RDMA_READ_FUNC = post::ep_post_rdma_read;
    dat_ep_post_rdma_write: v1::DAT_EP_POST_RDMA_WRITE_FUNC = post::ep_post_rdma_write;
    dat_srq_post_recv: v1::DAT_SRQ_POST_RECV_FUNC = post::srq_post_recv;
    dat_srq_query: DAT_SRQ_QUERY_FUNC = record::srq_query;
    dat_lmr_create: v1::DAT_LMR_CREATE_FUNC = record::lmr_create;
    dat_lmr_query: v1::DAT_LMR_QUERY_FUNC = record::lmr_query;
    dat_lmr_sync_rdma_read: v1::DAT_LMR_SYNC_RDMA_READ_FUNC = post::lmr_sync_rdma_read;
    dat_lmr_sync_rdma_write: v1::DAT_LMR_SYNC_RDMA_WRITE_FUNC = post::lmr_sync_rdma_write;
    dat_rmr_query: v1::DAT_RMR_QUERY_FUNC = record::rmr_query;
    dat_rmr_bind: v1::DAT_RMR_BIND_FUNC = post::rmr_bind;
}

/// Opens an adapter. Version 2.0 becomes 1.2; any other version is passed unchanged.
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
    status(ensure_equal().dat_ia_openv(name, async_qlen, async_evd, ia, major, minor, threadsafe))
}

unsafe extern "C" fn strerror(
    of: DAT_RETURN,
    major: *mut *const c_char,
    minor: *mut *const c_char,
) -> DAT_RETURN {
    status(ensure_equal().dat_strerror(v1::status(of), major, minor))
}

/// Calls dat_cr_reject without the private data, because 1.2 has no such argument.
unsafe extern "C" fn reject(
    cr: DAT_HANDLE,
    _size: DAT_COUNT,
    _private_data: DAT_PVOID,
) -> DAT_RETURN {
    // SAFETY: the function is the library's. The conformance case passes a valid handle.
    status(unsafe { (changed().dat_cr_reject)(cr) })
}
