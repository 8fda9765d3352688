//! The registry that is linked into this program. In this binding, it takes the place of libdat2
//! between a consumer and the function table of a provider.

use std::ffi::CStr;

use dat_core::export::{AnyProvider, register};
use dat_sys::*;
use provider_mem::Mem;
use registry::{Builtin, Builtins, OpenRequest, Registry, Wanted, ia, table_of};

use super::extension::ExtensionOp;
use crate::api::Api;
use crate::calls;
use crate::functions::functions;

/// The adapters that only the conformance suite has. The registry lists them before all other
/// adapters.
static ADAPTERS: &[Builtin] = &[
    Builtin { name: "mem", ..MEM },
    Builtin { name: "mem-strict", params: "conformance strict=on", ..MEM },
    Builtin { name: "tcp-emu-strict", params: "strict=on", ..builtin::TCP_EMU },
    Builtin { name: "softroce-strict", params: "strict=on", ..builtin::SOFTROCE },
];

const MEM: Builtin = Builtin {
    name: "mem",
    params: "conformance",
    table: |info, params| register(AnyProvider::of::<Mem>(), registry::FNS, info, params),
    discover: None,
};

const BUILTINS: Builtins = Builtins {
    adapters: &[ADAPTERS, builtin::ADAPTERS],
    api: registry::Api::U2_0,
    threadsafe: &[false, true],
};

/// The registry of this binding. The cases about the crate `dat` also use it.
pub(crate) static REGISTRY: Registry = Registry::new(BUILTINS).reporting_open_errors();

/// The type of object that a function expects as its first argument: a function that finds the
/// provider's object for a handle, and the subtype of the error if there is no such object.
type Kind = (fn(DAT_HANDLE) -> Option<DAT_HANDLE>, DAT_RETURN_SUBTYPE);

const IA: Kind = (ia::provider_ia, DAT_INVALID_HANDLE_IA);
const ANY: Kind = (ia::object, DAT_INVALID_HANDLE1);
const CNO: Kind = (Some, DAT_INVALID_HANDLE_CNO);
const CR: Kind = (Some, DAT_INVALID_HANDLE_CR);
const CSP: Kind = (Some, DAT_INVALID_HANDLE_CSP);
const EP: Kind = (Some, DAT_INVALID_HANDLE_EP);
const EVD: Kind = (Some, DAT_INVALID_HANDLE_EVD_REQUEST);
const LMR: Kind = (Some, DAT_INVALID_HANDLE_LMR);
const PSP: Kind = (Some, DAT_INVALID_HANDLE_PSP);
const PZ: Kind = (Some, DAT_INVALID_HANDLE_PZ);
const RMR: Kind = (Some, DAT_INVALID_HANDLE_RMR);
const RSP: Kind = (Some, DAT_INVALID_HANDLE_RSP);
const SRQ: Kind = (Some, DAT_INVALID_HANDLE_SRQ);

macro_rules! link {
    (
        registry { $($own:tt)* }
        forwarded { $($name:ident($kind:ident $(, $arg:ident: $type:ty)*) => $slot:ident;)* }
    ) => {
        pub(super) static API: Api = Api {
            dat_ia_openv: Some(dat_ia_openv),
            dat_ia_close: Some(dat_ia_close),
            dat_registry_add_provider: Some(registry::FNS.add_provider),
            dat_registry_remove_provider: Some(registry::FNS.remove_provider),
            // The following three functions exist only in the C library.
            dat_registry_list_providers: None,
            dat_registry_providers_related: None,
            dat_strerror: None,
            $($name: Some($name),)*
            dat_extension_op: Some(ExtensionOp::Linked),
            record: calls::record,
        };

        $(
            unsafe extern "C" fn $name(handle: DAT_HANDLE $(, $arg: $type)*) -> DAT_RETURN {
                let (object, subtype) = $kind;
                let found = object(handle).and_then(|object| Some((object, table_of(object)?)));
                let Some((object, table)) = found else {
                    return DAT_ERROR(DAT_INVALID_HANDLE, subtype);
                };
                // SAFETY: `table` is the table of a registered provider, which an open IA keeps in
                // memory.
                let Some(function) = (unsafe { (*table).$slot }) else {
                    return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
                };
                // SAFETY: the function and the object belong to the same provider. The case
                // guarantees the other arguments.
                unsafe { function(object $(, $arg)*) }
            }
        )*
    };
}

functions!(link);

unsafe extern "C" fn dat_ia_openv(
    name: DAT_NAME_PTR,
    async_evd_qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
    major: u32,
    minor: u32,
    threadsafe: DAT_BOOLEAN,
) -> DAT_RETURN {
    let invalid = |argument| DAT_ERROR(DAT_INVALID_PARAMETER, argument);
    // SAFETY: the case guarantees that the name is null or NUL-terminated.
    let name = unsafe { name.as_ref().map(|name| CStr::from_ptr(name)) };
    let Some(name) = name.and_then(|name| name.to_str().ok()) else {
        return invalid(DAT_INVALID_ARG1);
    };
    // SAFETY: the case guarantees that the pointers are null or writable.
    let (async_evd, ia_handle) = unsafe { (async_evd.as_mut(), ia_handle.as_mut()) };
    let Some(async_evd) = async_evd else { return invalid(DAT_INVALID_ARG3) };
    let Some(ia_handle) = ia_handle else {
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    };
    let wanted = Wanted { name, major, minor, threadsafe: threadsafe != DAT_FALSE };
    match REGISTRY.open(&OpenRequest { wanted, async_evd_qlen, async_evd: *async_evd }) {
        Ok(opened) => {
            (*async_evd, *ia_handle) = (opened.async_evd, opened.ia);
            DAT_SUCCESS
        }
        Err(error) => error.status(),
    }
}

unsafe extern "C" fn dat_ia_close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    registry::close(ia, flags)
}
