//! Functions of the standard that are not built yet: each judges its handle and then says so.

use std::ffi::c_void;

use dat_sys::*;

use super::convert::code;
use crate::cno::Cno;
use crate::conn::cr::Cr;
use crate::ep::Ep;
use crate::error::Error;
use crate::handle::{self, Object};
use crate::ia::Ia;
use crate::mem::{Pz, Rmr};
use crate::provider::Transport;

/// Common service points: none can be created, so no handle is one.
enum Csp {}

impl Object for Csp {
    const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_CSP;
    const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_CSP;
}

macro_rules! missing {
    ($($name:ident($object:ty $(, $arg:ty)*);)*) => {$(
        #[doc = concat!("dat_", stringify!($name), ".")]
        #[allow(clippy::too_many_arguments, clippy::extra_unused_type_parameters)] // the standard's prototypes
        pub(super) unsafe extern "C" fn $name<T: Transport>(handle: *mut c_void $(, _: $arg)*) -> DAT_RETURN {
            // SAFETY: only whether it is one is asked.
            let judged = unsafe { handle::get::<$object>(handle) };
            code(judged.and(Err(Error::of(DAT_NOT_IMPLEMENTED))))
        }
    )*};
}

missing! {
    cr_handoff(Cr<T>, DAT_CONN_QUAL);
    rmr_create_for_ep(Pz<T>, *mut DAT_RMR_HANDLE);
    rmr_bind(
        Rmr<T>,
        DAT_LMR_HANDLE,
        *const DAT_LMR_TRIPLET,
        DAT_MEM_PRIV_FLAGS,
        DAT_VA_TYPE,
        DAT_EP_HANDLE,
        DAT_RMR_COOKIE,
        DAT_COMPLETION_FLAGS,
        *mut DAT_RMR_CONTEXT
    );
    csp_create(Ia<T>, *mut DAT_COMM, DAT_IA_ADDRESS_PTR, DAT_EVD_HANDLE, *mut DAT_CSP_HANDLE);
    csp_query(Csp, DAT_CSP_PARAM_MASK, *mut DAT_CSP_PARAM);
    csp_free(Csp);
    ep_common_connect(Ep<T>, DAT_IA_ADDRESS_PTR, DAT_TIMEOUT, DAT_COUNT, DAT_PVOID);
    ep_post_send_with_invalidate(
        Ep<T>,
        DAT_COUNT,
        *mut DAT_LMR_TRIPLET,
        DAT_DTO_COOKIE,
        DAT_COMPLETION_FLAGS,
        DAT_BOOLEAN,
        DAT_RMR_CONTEXT
    );
    ep_post_rdma_read_to_rmr(
        Ep<T>,
        *const DAT_RMR_TRIPLET,
        DAT_DTO_COOKIE,
        *const DAT_RMR_TRIPLET,
        DAT_COMPLETION_FLAGS
    );
    cno_fd_create(Ia<T>, *mut DAT_FD, *mut DAT_CNO_HANDLE);
    cno_trigger(Cno<T>, *mut DAT_EVD_HANDLE);
    ia_ha_related(Ia<T>, DAT_NAME_PTR, *mut DAT_BOOLEAN);
}

/// dat_extension_op: no provider here has extensions.
pub(super) unsafe extern "C" fn handle_extendedop(
    handle: DAT_HANDLE,
    _: DAT_EXTENDED_OP,
    _: DAT_VA_LIST,
) -> DAT_RETURN {
    code(handle::live(handle).and(Err(Error::of(DAT_NOT_IMPLEMENTED))))
}
