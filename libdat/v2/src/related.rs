//! dat_registry_providers_related.

use std::ffi::c_char;

use dat_sys::*;
use libdat::{ia_name, invalid};
use registry::{dynamic, ia};

use crate::LIBRARY;

libdat::export! {
    "DAT_2.0";

    /// dat_registry_providers_related: whether two adapters share a point of failure, as far as
    /// their providers know. Only the providers of adapters that the consumer has opened are asked.
    ///
    /// # Safety
    ///
    /// The names are null or NUL-terminated. `related` is null or writable.
    fn dat_registry_providers_related(
        first: *const c_char,
        second: *const c_char,
        related: *mut DAT_HA_RELATIONSHIP,
    ) -> DAT_RETURN {
        // SAFETY: the caller guarantees that both names are null or NUL-terminated.
        let Some(one) = (unsafe { ia_name(first) }) else { return invalid(DAT_INVALID_ARG1) };
        // SAFETY: the caller guarantees that both names are null or NUL-terminated.
        let Some(two) = (unsafe { ia_name(second) }) else { return invalid(DAT_INVALID_ARG2) };
        if related.is_null() {
            return invalid(DAT_INVALID_ARG3);
        }
        let interfaces = LIBRARY.registry.list().interfaces();
        let is_known = |name: &str| {
            interfaces.iter().any(|entry| entry.ia_name == name) || dynamic::has_name(name)
        };
        if !is_known(one) || !is_known(two) {
            return DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED);
        }
        // SAFETY: both names are NUL-terminated.
        let answers = unsafe { [is_related(one, second), is_related(two, first)] };
        let relationship = match answers {
            [Some(a), Some(b)] if a != b => DAT_HA_CONFLICTING,
            [Some(answer), _] | [None, Some(answer)] => if answer { DAT_HA_TRUE } else { DAT_HA_FALSE },
            [None, None] => DAT_HA_UNKNOWN,
        };
        // SAFETY: `related` is not null, so the caller guarantees that it is writable.
        unsafe { related.write(relationship) };
        DAT_SUCCESS
    }
}

/// Asks the provider of an open IA with the name `name` whether this IA and the adapter `other`
/// share a point of failure. Returns `None` if no provider has an answer.
///
/// # Safety
///
/// `other` must be NUL-terminated.
unsafe fn is_related(name: &str, other: *const c_char) -> Option<bool> {
    ia::open_under(name).into_iter().find_map(|(provider_ia, table)| {
        let mut answer = DAT_FALSE;
        // SAFETY: an open IA keeps the table in memory.
        let function = unsafe { (*table).ia_ha_related_func }?;
        // SAFETY: the provider's function gets an IA of that provider. It only reads the name.
        let status = unsafe { function(provider_ia, other.cast_mut(), &mut answer) };
        (status == DAT_SUCCESS).then_some(answer != DAT_FALSE)
    })
}
