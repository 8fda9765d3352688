//! The names of the functions that a loadable provider exports, and the functions that a provider
//! calls back.

use crate::describe::texts;
use crate::*;

texts! {
    /// The name of the exported function of type [`DAT_PROVIDER_INIT_FUNC`].
    pub const DAT_PROVIDER_INIT_FUNC_STR = c"dat_provider_init";
    /// The name of the exported function of type [`DAT_PROVIDER_FINI_FUNC`].
    pub const DAT_PROVIDER_FINI_FUNC_STR = c"dat_provider_fini";
}

/// A function that registers or unregisters a provider.
pub type RegistryFn =
    unsafe extern "C" fn(*const DAT_PROVIDER, *const DAT_PROVIDER_INFO) -> DAT_RETURN;

/// The functions of the registry that a provider calls. This structure is not part of the C
/// interface: a loadable provider finds the functions by symbol name, a built-in provider receives
/// this structure.
#[derive(Clone, Copy, Debug)]
pub struct RegistryFns {
    /// The function dat_registry_add_provider.
    pub add_provider: RegistryFn,
    /// The function dat_registry_remove_provider.
    pub remove_provider: RegistryFn,
    /// The function dats_get_ia_handle, which converts between the consumer's IA handle and the
    /// provider's.
    pub get_ia_handle: unsafe extern "C" fn(DAT_IA_HANDLE, *mut DAT_IA_HANDLE) -> DAT_RETURN,
}
