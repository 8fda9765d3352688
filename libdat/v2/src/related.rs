//! dat_registry_providers_related.

use std::ffi::c_char;

use dat_sys::*;
use libdat::{ia_name, invalid};
use registry::ia;

use crate::LIBRARY;

libdat::export! {
    "DAT_2.0";

    /// dat_registry_providers_related: whether two adapters share a point of failure, as far as their providers
    /// know; a provider is asked through an open IA of it.
    ///
    /// # Safety
    ///
    /// C: the names are NUL-terminated, `related` can be written; null is answered.
    fn dat_registry_providers_related(
        first: *const c_char,
        second: *const c_char,
        related: *mut DAT_HA_RELATIONSHIP,
    ) -> DAT_RETURN {
        // SAFETY: null or NUL-terminated.
        let Some(one) = (unsafe { ia_name(first) }) else { return invalid(DAT_INVALID_ARG1) };
        // SAFETY: as above.
        let Some(two) = (unsafe { ia_name(second) }) else { return invalid(DAT_INVALID_ARG2) };
        if related.is_null() {
            return invalid(DAT_INVALID_ARG3);
        }
        let interfaces = LIBRARY.registry.list().interfaces();
        if ![one, two].iter().all(|name| interfaces.iter().any(|entry| entry.ia_name == **name)) {
            return DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
        }
        // SAFETY: the names are NUL-terminated.
        let answers = unsafe { [ask(one, second), ask(two, first)] };
        let relationship = match answers {
            [Some(a), Some(b)] if a != b => DAT_HA_CONFLICTING,
            [Some(answer), _] | [None, Some(answer)] => if answer { DAT_HA_TRUE } else { DAT_HA_FALSE },
            [None, None] => DAT_HA_UNKNOWN,
        };
        // SAFETY: not null.
        unsafe { related.write(relationship) };
        DAT_SUCCESS
    }
}

/// What the provider of an open IA of this name says about another adapter.
///
/// # Safety
///
/// `other` is NUL-terminated.
unsafe fn ask(name: &str, other: *const c_char) -> Option<bool> {
    ia::open_under(name).into_iter().find_map(|(provider_ia, table)| {
        let mut answer = DAT_FALSE;
        // SAFETY: a table that an open IA keeps in memory.
        let function = unsafe { (*table).ia_ha_related_func }?;
        // SAFETY: the provider's own function and IA; it reads the name.
        let status = unsafe { function(provider_ia, other.cast_mut(), &mut answer) };
        (status == DAT_SUCCESS).then_some(answer != DAT_FALSE)
    })
}
