//! Providers that stay loaded for queries without an open IA (dat_extension_op with an open or
//! close operation).

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use crate::handle;
use crate::list::Wanted;
use crate::load::{self, Provider};
use crate::open::Registry;

fn queried() -> MutexGuard<'static, Vec<Provider>> {
    static QUERIED: Mutex<Vec<Provider>> = Mutex::new(Vec::new());
    QUERIED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Loads the provider of a name if needed and calls its extension function with the name in
    /// place of a handle. The provider stays loaded until [`close_query`]. Only uDAPL 2.0 entries
    /// are used.
    ///
    /// # Safety
    ///
    /// `args` must be a live `va_list` with the arguments of the operation.
    ///
    /// # Errors
    ///
    /// `DAT_PROVIDER_NOT_FOUND` if the provider of no entry can be loaded, `DAT_NOT_IMPLEMENTED` if
    /// the provider has no extensions. Any other status comes from the provider.
    pub unsafe fn open_query(
        &self,
        name: &CStr,
        op: DAT_EXTENDED_OP,
        args: DAT_VA_LIST,
    ) -> DAT_RETURN {
        let not_found = DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
        let Ok(text) = name.to_str() else { return not_found };
        let wanted = Wanted { name: text, major: 2, minor: 0, threadsafe: false };
        let candidates = self.list().find(&wanted).unwrap_or_default();
        // As in `open`, the next entry is tried only if the library of the current entry cannot be
        // loaded.
        let mut attempts = candidates.into_iter().map(load::acquire);
        let attempt =
            attempts.find(|attempt| !matches!(attempt, Err(error) if error.is_not_loaded()));
        let Some(Ok(provider)) = attempt else { return not_found };
        // SAFETY: the provider is loaded. The table of a provider without extensions ends before
        // this word. Whether it has extensions cannot be asked without an IA, but a consumer that
        // queries by name expects them.
        let Some(function) = (unsafe { (*provider.table.0).handle_extendedop_func }) else {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        };
        // SAFETY: the provider's function accepts the name in place of a handle. The caller
        // guarantees that `args` is a live `va_list` of the operation's arguments.
        let status = unsafe { function(name.as_ptr().cast_mut().cast(), op, args) };
        if status == DAT_SUCCESS {
            handle::set_has_extensions(provider.table);
            queried().push(provider);
        }
        status
    }
}

/// Releases a provider that [`Registry::open_query`] loaded.
pub fn close_query(table: *const DAT_PROVIDER) {
    let mut queried = queried();
    let found = queried.iter().position(|provider| std::ptr::eq(provider.table.0, table));
    let provider = found.map(|index| queried.swap_remove(index));
    drop(queried); // The provider's fini may take long and must not hold the lock.
    drop(provider);
}
