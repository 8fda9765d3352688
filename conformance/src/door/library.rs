//! A `libdat2.so.2` or `libdat.so.1` that is opened at run time.

use std::error::Error;
use std::ffi::c_void;
use std::path::Path;

use dat_sys::RegistryFns;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

use super::Version;
use crate::api::Api;

/// The functions of a library of 2.0.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    let library = stays(path)?;
    // SAFETY: a library of 2.0, by what it exports (`version`).
    Ok(Box::leak(Box::new(unsafe { Api::of(library) })))
}

/// A library that is loaded to be used and stays so: its providers have threads.
pub(super) fn stays(path: &Path) -> Result<&'static Library, String> {
    // Global, because OFED's libdat2 needs its own symbols there for its providers.
    // SAFETY: loading runs the library's initialisers, which is what the user asked for.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library: &Library = Box::leak(Box::new(library.map_err(|error| because(path, &error))?));
    // SAFETY: the library's own functions, whose types both versions share.
    let fns = unsafe {
        library.get(b"dat_registry_add_provider").and_then(|add_provider| {
            Ok(RegistryFns {
                add_provider: *add_provider,
                remove_provider: *library.get(b"dat_registry_remove_provider")?,
                get_ia_handle: *library.get(b"dats_get_ia_handle")?,
            })
        })
    };
    // SAFETY: those functions; the library stays.
    unsafe { registry::abi::forward_to(fns.map_err(|error| because(path, &error))?) };
    Ok(library)
}

/// Which version of the interface a library has.
pub(super) fn version(path: &Path) -> Result<Version, String> {
    // SAFETY: loading runs the library's initialisers, which is what the user asked for.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    let library = library.map_err(|error| because(path, &error))?;
    // SAFETY: only asked whether it is there.
    let exports = |name: &str| unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_ok();
    match (exports("dat_ia_openv"), exports("dat_extension_op")) {
        (true, true) => Ok(Version::V2_0),
        (true, false) => Ok(Version::V1_2),
        (false, _) => Err(format!(
            "{} does not export dat_ia_openv: it is neither a libdat2.so.2 nor a libdat.so.1 (a provider is named in \
             dat.conf)",
            path.display()
        )),
    }
}

/// What the dynamic linker says of it is the cause of the error, not the error.
fn because(path: &Path, error: &libloading::Error) -> String {
    let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    format!("cannot load {}: {reason}", path.display())
}
