//! A binding to a `libdat2.so.2` or `libdat.so.1` that is loaded at run time.

use std::error::Error;
use std::ffi::c_void;
use std::path::Path;

use dat_sys::RegistryFns;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

use crate::api::Api;

/// The version of DAT that a C library implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Version {
    /// uDAPL 1.2, which a `libdat.so.1` implements.
    V1_2,
    /// uDAPL 2.0, which a `libdat2.so.2` implements.
    V2_0,
}

/// Returns the functions of a library of uDAPL 2.0.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    let library = load_forever(path)?;
    // SAFETY: the exports show that the library implements uDAPL 2.0 (`version`).
    Ok(Box::leak(Box::new(unsafe { Api::of(library) })))
}

/// Loads a library, which is never unloaded, because the providers that it loads have threads.
pub(super) fn load_forever(path: &Path) -> Result<&'static Library, String> {
    // The symbols are loaded into the global scope, because OFED's libdat2 looks up its own symbols
    // there for its providers. SAFETY: loading runs the library's initializers, which the user has
    // asked for.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library: &Library = Box::leak(Box::new(library.map_err(|error| load_error(path, &error))?));
    // SAFETY: these functions have the same types in both versions.
    let fns = unsafe {
        library.get(b"dat_registry_add_provider").and_then(|add_provider| {
            Ok(RegistryFns {
                add_provider: *add_provider,
                remove_provider: *library.get(b"dat_registry_remove_provider")?,
                get_ia_handle: *library.get(b"dats_get_ia_handle")?,
            })
        })
    };
    // SAFETY: the functions come from the library, which stays loaded.
    unsafe { registry::abi::forward_to(fns.map_err(|error| load_error(path, &error))?) };
    Ok(library)
}

/// Returns the version of DAT that a library implements.
pub(super) fn version(path: &Path) -> Result<Version, String> {
    // SAFETY: loading runs the library's initializers, which the user has asked for.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    let library = library.map_err(|error| load_error(path, &error))?;
    // SAFETY: the symbol is only looked up and not used.
    let exports = |name: &str| unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_ok();
    match (exports("dat_ia_openv"), exports("dat_extension_op")) {
        (true, true) => Ok(Version::V2_0),
        (true, false) => Ok(Version::V1_2),
        (false, _) => Err(format!(
            "{} does not export dat_ia_openv: it is neither a libdat2.so.2 nor a libdat.so.1 (a \
             provider is named in dat.conf)",
            path.display()
        )),
    }
}

/// Returns the message of the dynamic linker, which libloading's error contains as its source.
fn load_error(path: &Path, error: &libloading::Error) -> String {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("cannot load {}: {reason}", path.display())
}
