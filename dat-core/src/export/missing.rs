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
    csp_create(Ia<T>, *mut DAT_COMM, DAT_IA_ADDRESS_PTR, DAT_EVD_HANDLE, *mut DAT_CSP_HANDLE);
    csp_query(Csp, DAT_CSP_PARAM_MASK, *mut DAT_CSP_PARAM);
    csp_free(Csp);
    ep_common_connect(Ep<T>, DAT_IA_ADDRESS_PTR, DAT_TIMEOUT, DAT_COUNT, DAT_PVOID);
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
