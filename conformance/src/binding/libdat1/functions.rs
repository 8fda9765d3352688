//! The functions of the loaded libdat.so.1, and the conversion of their results to uDAPL 2.0.

use std::ptr::null_mut;
use std::sync::OnceLock;

use dat_sys::*;
use libloading::os::unix::Library;

use crate::api::Api;

/// Looks up the functions of a library. A process can use only one such library.
pub(super) fn load(library: &Library) -> Result<(), libloading::Error> {
    // SAFETY: the exports show that the library implements uDAPL 1.2. The binding replaces the
    // functions whose signatures differ between 1.2 and 2.0, so these are not called with a wrong
    // signature.
    let (same, changed) = unsafe { (Api::of(library), Changed::of(library)) };
    // The record contains the statuses of 2.0, which this binding returns to the case.
    let same = Api { record: |_, status| status, ..same };
    let _ = (SAME.set(same), CHANGED.set(changed?));
    Ok(())
}

/// The functions that have the same arguments in both versions.
static SAME: OnceLock<Api> = OnceLock::new();
/// The functions that have different arguments in the two versions.
static CHANGED: OnceLock<Changed> = OnceLock::new();

pub(super) fn same() -> &'static Api {
    SAME.get().expect("the library was loaded before its functions were handed out")
}

pub(super) fn changed() -> &'static Changed {
    CHANGED.get().expect("the library was loaded before its functions were handed out")
}

macro_rules! changed {
    ($($name:ident: $type:ty;)*) => {
        /// The functions of uDAPL 1.2 whose arguments, or the structures to which the arguments
        /// point, differ from those of 2.0.
        #[allow(missing_debug_implementations)] // pointers
        pub(super) struct Changed {
            $(pub(super) $name: $type,)*
        }

        impl Changed {
            /// Looks up the functions whose arguments differ between the versions.
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
    };
}

changed! {
    dat_ia_query: v1::DAT_IA_QUERY_FUNC;
    dat_cno_query: v1::DAT_CNO_QUERY_FUNC;
    dat_cr_reject: v1::DAT_CR_REJECT_FUNC;
    dat_evd_wait: v1::DAT_EVD_WAIT_FUNC;
    dat_evd_dequeue: v1::DAT_EVD_DEQUEUE_FUNC;
    dat_evd_post_se: v1::DAT_EVD_POST_SE_FUNC;
    dat_ep_create: v1::DAT_EP_CREATE_FUNC;
    dat_ep_create_with_srq: v1::DAT_EP_CREATE_WITH_SRQ_FUNC;
    dat_ep_query: v1::DAT_EP_QUERY_FUNC;
    dat_ep_modify: v1::DAT_EP_MODIFY_FUNC;
    dat_ep_post_send: v1::DAT_EP_POST_SEND_FUNC;
    dat_ep_post_recv: v1::DAT_EP_POST_RECV_FUNC;
    dat_ep_post_rdma_read: v1::DAT_EP_POST_RDMA_READ_FUNC;
    dat_ep_post_rdma_write: v1::DAT_EP_POST_RDMA_WRITE_FUNC;
    dat_srq_post_recv: v1::DAT_SRQ_POST_RECV_FUNC;
    dat_srq_query: DAT_SRQ_QUERY_FUNC;
    dat_lmr_create: v1::DAT_LMR_CREATE_FUNC;
    dat_lmr_query: v1::DAT_LMR_QUERY_FUNC;
    dat_lmr_sync_rdma_read: v1::DAT_LMR_SYNC_RDMA_READ_FUNC;
    dat_lmr_sync_rdma_write: v1::DAT_LMR_SYNC_RDMA_WRITE_FUNC;
    dat_rmr_query: v1::DAT_RMR_QUERY_FUNC;
    dat_rmr_bind: v1::DAT_RMR_BIND_FUNC;
}

/// Converts a status of uDAPL 1.2 to uDAPL 2.0, which numbers some statuses differently.
pub(super) fn status(status: DAT_RETURN) -> DAT_RETURN {
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

/// Calls `call` with a pointer to a structure of 1.2, which `call` fills in. Converts the structure
/// to 2.0 and stores it in `to`.
///
/// # Safety
///
/// `to` must be null or writable.
pub(super) unsafe fn filled<Old, New>(
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
