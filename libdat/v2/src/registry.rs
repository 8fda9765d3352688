//! The functions that the registry answers itself.

use std::ffi::{CStr, c_char};

use dat_sys::*;
use registry::abi;
use registry::dynamic::Interface;
use registry::{Request, Wanted, close, ia};

use crate::REGISTRY;

const fn invalid(argument: DAT_RETURN_SUBTYPE) -> DAT_RETURN {
    DAT_ERROR(DAT_INVALID_PARAMETER, argument)
}

/// A name that a consumer passes: at most 255 bytes. `None` for null, a longer one, or one that is not UTF-8.
///
/// # Safety
///
/// Null or NUL-terminated.
unsafe fn ia_name<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as promised.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    (name.len() < DAT_NAME_MAX_LENGTH).then_some(name)
}

export! {
    /// dat_ia_open, with the version and the thread safety that the consumer was compiled for.
    ///
    /// # Safety
    ///
    /// C: `name` is NUL-terminated, the out arguments can be written; null is answered.
    fn dat_ia_openv(
        name: DAT_NAME_PTR,
        async_evd_qlen: DAT_COUNT,
        async_evd: *mut DAT_EVD_HANDLE,
        ia_handle: *mut DAT_IA_HANDLE,
        major: u32,
        minor: u32,
        threadsafe: DAT_BOOLEAN,
    ) -> DAT_RETURN {
        // SAFETY: null or NUL-terminated.
        let Some(name) = (unsafe { ia_name(name) }) else { return invalid(DAT_INVALID_ARG1) };
        if ia_handle.is_null() {
            return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        }
        if async_evd.is_null() {
            return invalid(DAT_INVALID_ARG3);
        }
        let request = Request {
            wanted: Wanted { name, major, minor, threadsafe: threadsafe != DAT_FALSE },
            async_evd_qlen,
            // SAFETY: not null.
            async_evd: unsafe { async_evd.read() },
        };
        match REGISTRY.open(&request) {
            Ok(opened) => {
                // SAFETY: neither is null.
                unsafe {
                    async_evd.write(opened.async_evd);
                    ia_handle.write(opened.ia);
                }
                DAT_SUCCESS
            }
            Err(error) => error.status(),
        }
    }

    /// dat_ia_close.
    ///
    /// # Safety
    ///
    /// None of its own: any handle is answered.
    fn dat_ia_close(ia_handle: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        close(ia_handle, flags)
    }

    /// dat_registry_list_providers: the first `max` interfaces in the order of the registry; `count` is how many.
    ///
    /// # Safety
    ///
    /// C: `count` can be written; `infos` holds `max` pointers to records; null is answered.
    fn dat_registry_list_providers(
        max: DAT_COUNT,
        count: *mut DAT_COUNT,
        infos: *mut *mut DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        if count.is_null() {
            return invalid(DAT_INVALID_ARG2);
        }
        let interfaces = REGISTRY.list().interfaces();
        // SAFETY: not null.
        unsafe { count.write(0) };
        let Ok(max @ 1..) = usize::try_from(max) else {
            // How much room is needed, for a consumer that asks with none.
            // SAFETY: not null.
            unsafe { count.write(interfaces.len().try_into().unwrap_or(DAT_COUNT::MAX)) };
            return invalid(DAT_INVALID_ARG1);
        };
        if infos.is_null() {
            return invalid(DAT_INVALID_ARG3);
        }
        let filled = max.min(interfaces.len());
        // SAFETY: `max` pointers, as the consumer says.
        let infos = unsafe { std::slice::from_raw_parts(infos, filled) };
        if infos.iter().any(|info| info.is_null()) {
            return invalid(DAT_INVALID_ARG3);
        }
        for (&info, entry) in infos.iter().zip(interfaces) {
            let interface = Interface {
                name: entry.ia_name.clone(),
                major: entry.api.major,
                minor: entry.api.minor,
                threadsafe: entry.threadsafe,
            };
            // SAFETY: not null; a record, as the consumer says.
            unsafe { info.write(interface.to_c()) };
        }
        // SAFETY: not null.
        unsafe { count.write(filled.try_into().unwrap_or(DAT_COUNT::MAX)) };
        DAT_SUCCESS
    }

    /// dat_registry_add_provider: a provider announces itself.
    ///
    /// # Safety
    ///
    /// That of [`abi::add_provider`].
    fn dat_registry_add_provider(
        table: *const DAT_PROVIDER,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        unsafe { abi::add_provider(table, info) }
    }

    /// dat_registry_remove_provider: a provider takes its leave.
    ///
    /// # Safety
    ///
    /// That of [`abi::remove_provider`].
    fn dat_registry_remove_provider(
        table: *const DAT_PROVIDER,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        unsafe { abi::remove_provider(table, info) }
    }

    /// dats_get_ia_handle: the consumer's IA handle to the provider's, and back.
    ///
    /// # Safety
    ///
    /// That of [`abi::get_ia_handle`].
    fn dats_get_ia_handle(handle: DAT_IA_HANDLE, out: *mut DAT_IA_HANDLE) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        unsafe { abi::get_ia_handle(handle, out) }
    }

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
        let interfaces = REGISTRY.list().interfaces();
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
