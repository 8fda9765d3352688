//! The C interface of a provider: the function tables of uDAPL 2.0 and, in `v1`, of uDAPL 1.2, and
//! the functions that register the table for an entry.
//!
//! The code behind a table is generic over the transport, so the table's functions are as direct as
//! if they had been written for that transport. They do not trust their arguments: a handle may be
//! any word, a pointer may be NULL, and numbers may be out of range. They only trust that a pointer
//! that is not NULL leads to what the standard's prototype says.
//!
//! A panic in a control call is caught there and becomes the status `DAT_INTERNAL_ERROR`. The data
//! path, in [`post`](self), does not catch panics: posting and dequeuing are inlined completely
//! into the table's functions.
//!
//! A loadable provider calls [`export_provider!`](crate::export_provider). A program into which a
//! provider is linked calls [`register`], which returns the table.

mod any_provider;
mod conn;
mod convert;
mod counters;
mod ep;
mod evd;
mod extension;
mod function_table;
mod ia;
mod last_cause;
mod mem;
mod post;
mod register;
mod v1;
mod va_list;

pub use self::any_provider::{AnyProvider, OpenFn, Opened};
pub use self::register::{fini, init, register};

/// Makes a `cdylib` a loadable provider: defines `dat_provider_init`, `dat_provider_fini` and
/// `dapl_extensions`, which libdat looks up. The argument is an expression of type
/// [`AnyProvider`](crate::export::AnyProvider).
///
/// The library uses three functions of the registry that it does not define. The process that loads
/// the library must have them in its global scope.
#[macro_export]
macro_rules! export_provider {
    ($provider:expr) => {
        const _: () = {
            use $crate::export::symbols::*;

            unsafe extern "C" {
                fn dat_registry_add_provider(
                    table: *const DAT_PROVIDER,
                    info: *const DAT_PROVIDER_INFO,
                ) -> DAT_RETURN;
                fn dat_registry_remove_provider(
                    table: *const DAT_PROVIDER,
                    info: *const DAT_PROVIDER_INFO,
                ) -> DAT_RETURN;
                fn dats_get_ia_handle(
                    handle: DAT_IA_HANDLE,
                    mapped: *mut DAT_IA_HANDLE,
                ) -> DAT_RETURN;
            }

            const REGISTRY: RegistryFns = RegistryFns {
                add_provider: dat_registry_add_provider,
                remove_provider: dat_registry_remove_provider,
                get_ia_handle: dats_get_ia_handle,
            };

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dat_provider_init(
                info: *const DAT_PROVIDER_INFO,
                ia_params: *const c_char,
            ) {
                let provider: $crate::export::AnyProvider = $provider;
                // SAFETY: the registry that calls `dat_provider_init` passes what the standard
                // says, as `init` requires.
                unsafe { $crate::export::init(provider, REGISTRY, info, ia_params) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dat_provider_fini(info: *const DAT_PROVIDER_INFO) {
                // SAFETY: the registry that calls `dat_provider_fini` passes what the standard
                // says, as `fini` requires.
                unsafe { $crate::export::fini(REGISTRY, info) }
            }

            /// The existence of this function tells libdat that the provider supports uDAPL 2.0.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn dapl_extensions(
                _: DAT_HANDLE,
                _: DAT_EXTENDED_OP,
                _: DAT_VA_LIST,
            ) -> DAT_RETURN {
                DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE)
            }
        };
    };
}

#[doc(hidden)] // for export_provider!, so that its user needs no dependency on dat-sys
pub mod symbols {
    pub use core::ffi::c_char;
    pub use dat_sys::{
        DAT_ERROR, DAT_EXTENDED_OP, DAT_HANDLE, DAT_IA_HANDLE, DAT_NO_SUBTYPE, DAT_NOT_IMPLEMENTED,
        DAT_PROVIDER, DAT_PROVIDER_INFO, DAT_RETURN, DAT_VA_LIST, RegistryFns,
    };
}
