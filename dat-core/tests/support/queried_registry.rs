//! A registry that runs a function of the test in the middle of a call of the library.

use std::sync::Mutex;

use dat_sys::*;

use super::client::REGISTRY;

/// A registry that runs a function of the test when the library asks it for the consumer's handle
/// of an adapter. The library does so in the middle of dat_lmr_create, when the region already
/// exists.
pub(crate) const QUERIED_REGISTRY: RegistryFns = RegistryFns { get_ia_handle: ask, ..REGISTRY };

/// The function that the registry runs when the library asks it the next time.
pub(crate) static NEXT: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

unsafe extern "C" fn ask(ia: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    let next = NEXT.lock().unwrap().take();
    if let Some(next) = next {
        next();
    }
    // SAFETY: the provider passes a place to write to.
    unsafe { out.write(ia) };
    DAT_SUCCESS
}
