//! The three functions of the registry that a provider calls, as C functions.
//!
//! A built-in provider receives them as [`FNS`]. A loadable provider looks for the symbols
//! `dat_registry_add_provider`, `dat_registry_remove_provider` and `dats_get_ia_handle` in the
//! global scope of the process. libdat2 exports these symbols. A Rust program that loads providers
//! exports them with [`export_symbols!`](crate::export_symbols) at its crate root and this line for
//! each symbol in its build script:
//!
//! ```text
//! cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=dat_registry_add_provider
//! ```

use std::sync::OnceLock;

use dat_sys::*;

use crate::boundary::guard;
use crate::dynamic::{self, FunctionTable, Interface};
use crate::ia;

/// The functions for built-in providers.
pub const FNS: RegistryFns = RegistryFns { add_provider, remove_provider, get_ia_handle };

static FORWARDED_TO: OnceLock<RegistryFns> = OnceLock::new();

/// Forwards the symbols of [`export_symbols!`](crate::export_symbols) to a C library that this
/// program has loaded. Forwarding is needed because the library and its providers find the
/// program's symbols before the library's. Only the first call has an effect.
///
/// # Safety
///
/// The functions behave as their types require, and stay in memory.
pub unsafe fn forward_to(library: RegistryFns) {
    let _ = FORWARDED_TO.set(library);
}

#[doc(hidden)] // for export_symbols!
pub fn exported() -> &'static RegistryFns {
    FORWARDED_TO.get().unwrap_or(&FNS)
}

/// Implements dat_registry_add_provider.
///
/// # Safety
///
/// `info` is null or points to a complete DAT_PROVIDER_INFO. `table` stays in memory until it is
/// removed from the registry.
pub unsafe extern "C" fn add_provider(
    table: *const DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    // SAFETY: the caller guarantees that `info` is null or complete.
    guard(|| match unsafe { interface(table, info) } {
        Ok(interface) => status(dynamic::add(FunctionTable(table), interface)),
        Err(invalid) => invalid,
    })
}

/// Implements dat_registry_remove_provider.
///
/// # Safety
///
/// `info` is null or points to a complete DAT_PROVIDER_INFO.
pub unsafe extern "C" fn remove_provider(
    table: *const DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> DAT_RETURN {
    // SAFETY: the caller guarantees that `info` is null or complete.
    guard(|| match unsafe { interface(table, info) } {
        Ok(interface) => status(dynamic::remove(FunctionTable(table), &interface)),
        Err(invalid) => invalid,
    })
}

/// Implements dats_get_ia_handle: translates a consumer's IA handle (a small integer) to the
/// provider's handle, and a provider's handle to the consumer's.
///
/// # Safety
///
/// `out` is null or points to writable memory.
pub unsafe extern "C" fn get_ia_handle(
    handle: DAT_IA_HANDLE,
    out: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    guard(|| {
        if out.is_null() {
            return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
        }
        let Some(translated) = ia::translate(handle) else {
            return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        };
        // SAFETY: `out` is not null, so the caller guarantees that it is writable.
        unsafe { out.write(translated) };
        DAT_SUCCESS
    })
}

/// Converts the arguments that dat_registry_add_provider and dat_registry_remove_provider share.
///
/// # Safety
///
/// `info` is null or points to a complete DAT_PROVIDER_INFO.
unsafe fn interface(
    table: *const DAT_PROVIDER,
    info: *const DAT_PROVIDER_INFO,
) -> Result<Interface, DAT_RETURN> {
    if table.is_null() {
        return Err(DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1));
    }
    // SAFETY: the caller guarantees that `info` is null or complete.
    unsafe { info.as_ref() }
        .and_then(Interface::from_c)
        .ok_or(DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2))
}

fn status(result: Result<(), DAT_RETURN>) -> DAT_RETURN {
    result.err().unwrap_or(DAT_SUCCESS)
}

/// Defines the three symbols that loadable providers look for, in the program that uses this macro.
#[macro_export]
macro_rules! export_symbols {
    () => {
        #[doc(hidden)]
        mod dat_registry_symbols {
            use $crate::abi::{self, *};

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dat_registry_add_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of dat_registry_add_provider.
                unsafe { (abi::exported().add_provider)(table, info) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dat_registry_remove_provider(
                table: *const DAT_PROVIDER,
                info: *const DAT_PROVIDER_INFO,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of dat_registry_remove_provider.
                unsafe { (abi::exported().remove_provider)(table, info) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn dats_get_ia_handle(
                handle: DAT_IA_HANDLE,
                out: *mut DAT_IA_HANDLE,
            ) -> DAT_RETURN {
                // SAFETY: the caller fulfils the contract of dats_get_ia_handle.
                unsafe { (abi::exported().get_ia_handle)(handle, out) }
            }
        }
    };
}

#[doc(hidden)] // for export_symbols!, so that its user needs no dependency on dat-sys
pub use dat_sys::{DAT_IA_HANDLE, DAT_PROVIDER, DAT_PROVIDER_INFO, DAT_RETURN};
