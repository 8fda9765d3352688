//! A libdat2.so.2 that is opened at run time.

use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::api::Api;

/// The functions of a library, which stays loaded: its providers have threads.
pub(super) fn api(path: &Path) -> Result<&'static Api, String> {
    // Global, because OFED's libdat2 needs its own symbols there for its providers.
    // SAFETY: loading runs the library's initialisers, which is what the user asked for.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.map_err(|error| format!("cannot load {}: {error}", path.display()))?;
    // SAFETY: a libdat2.so.2, as the user says.
    let api = unsafe { Api::of(&library) };
    if api.dat_ia_openv.is_none() {
        return Err(format!("{} does not export dat_ia_openv: it is no libdat2.so.2", path.display()));
    }
    std::mem::forget(library);
    Ok(Box::leak(Box::new(api)))
}
