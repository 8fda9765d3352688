//! A libdat.so.1 as a door: functions with the signatures of uDAPL 2.0 that call those of 1.2.
//!
//! Cases are written for 2.0. What they pass is converted to 1.2, what comes back to 2.0; what 1.2 has no words for is
//! left out, and the cases that are about it are not asked (`Case::is_in_1_2`).

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

/// The functions of the library in a process of its own.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    let library = super::library::stays(path)?;
    // SAFETY: a library of 1.2, by what it exports. Of the functions found with the signatures of 2.0, those that have
    // others in 1.2 are never called: `api` puts ours in their place.
    let (same, changed) = unsafe { (Api::of(library), Changed::of(library)) };
    let _ = (
        SAME.set(same),
        CHANGED.set(changed.map_err(|error| format!("{}: {error}", path.display()))?),
    );
    Ok(Box::leak(Box::new(wrapped())))
}

/// The functions that have the same arguments in both versions.
static SAME: OnceLock<Api> = OnceLock::new();
/// Those that do not.
static CHANGED: OnceLock<Changed> = OnceLock::new();

fn same() -> &'static Api {
    SAME.get().expect("the library was loaded before its functions were handed out")
}

fn changed() -> &'static Changed {
    CHANGED.get().expect("as above")
}

/// A status of 1.2 in the numbers of 2.0.
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

/// Has a record of 1.2 filled in, and gives it to the case as one of 2.0.
///
/// # Safety
///
/// `to` is null or can be written to.
unsafe fn filled<Old, New>(
    to: *mut New,
    mut record: Old,
    call: impl FnOnce(*mut Old) -> DAT_RETURN,
    convert: impl FnOnce(&Old) -> New,
) -> DAT_RETURN {
    let answer = status(call(if to.is_null() { null_mut() } else { &raw mut record }));
    if answer == DAT_SUCCESS && !to.is_null() {
        // SAFETY: as promised.
        unsafe { to.write(convert(&record)) };
    }
    answer
}

macro_rules! wrap {
    (
        registry { $($own:ident($($own_arg:ident: $own_type:ty),* $(,)?);)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        /// All functions: those with other arguments as they are below, of the others only the status is converted.
        fn wrapped() -> Api {
            let same = same();
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

macro_rules! changed {
    ($($name:ident: $type:ty = $ours:path;)*) => {
        /// The functions of 1.2 that have other arguments, or the same that lead to other structures.
        #[allow(missing_debug_implementations)] // pointers
        struct Changed {
            $($name: $type,)*
        }

        impl Changed {
            /// # Safety
            ///
            /// What the library exports under these names has the signatures of uDAPL 1.2.
            unsafe fn of(library: &Library) -> Result<Changed, libloading::Error> {
                // SAFETY: as promised.
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

/// A consumer of 2.0 is one of 1.2 here; one of another version stays what it is.
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

/// Without the private data: 1.2 takes none.
unsafe extern "C" fn reject(
    cr: DAT_HANDLE,
    _size: DAT_COUNT,
    _private_data: DAT_PVOID,
) -> DAT_RETURN {
    // SAFETY: the library's function; the handle is the case's word.
    status(unsafe { (changed().dat_cr_reject)(cr) })
}
