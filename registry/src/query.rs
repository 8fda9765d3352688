//! Providers that are in memory for a query without an open IA (dat_extension_op with an open or close operation).

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
    /// Brings in the provider of a name, if need be, and calls its extension function with the name as handle; the
    /// provider stays until [`close_query`]. Entries are those for uDAPL 2.0.
    ///
    /// # Safety
    ///
    /// `args` is a live `va_list` with what the operation wants.
    ///
    /// # Errors
    ///
    /// `DAT_PROVIDER_NOT_FOUND` where no entry can be brought in, `DAT_NOT_IMPLEMENTED` where its provider has no
    /// extensions; else what the provider answers.
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
        // The next entry of the name is tried for the same reason as in `open`, and for no other.
        let mut attempts = candidates.into_iter().map(load::acquire);
        let attempt =
            attempts.find(|attempt| !matches!(attempt, Err(error) if error.is_not_loaded()));
        let Some(Ok(provider)) = attempt else { return not_found };
        // SAFETY: the provider is in memory. A table without the function ends before it; whoever queries by name
        // asks for a provider with extensions, and there is no IA yet to ask about them.
        let Some(function) = (unsafe { (*provider.table.0).handle_extendedop_func }) else {
            return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
        };
        // SAFETY: the provider's own function; it takes the name in place of a handle. `args` as promised.
        let status = unsafe { function(name.as_ptr().cast_mut().cast(), op, args) };
        if status == DAT_SUCCESS {
            handle::set_extended(provider.table);
            queried().push(provider);
        }
        status
    }
}

/// Lets go of a provider that [`Registry::open_query`] brought in.
pub fn close_query(table: *const DAT_PROVIDER) {
    let mut queried = queried();
    let found = queried.iter().position(|provider| std::ptr::eq(provider.table.0, table));
    let provider = found.map(|index| queried.swap_remove(index));
    drop(queried); // the provider's fini may take its time
    drop(provider);
}
