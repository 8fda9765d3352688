//! The functions that the registry answers itself.

use std::ffi::{CStr, c_char};
use std::hint::black_box;

use dat_sys::*;
use registry::dynamic::Interface;
use registry::status::in_version;
use registry::{Builtin, Host, Registry, Request, Wanted, abi};

/// A C library: its registry, and the version of the API that its functions have.
#[derive(Debug)]
pub struct Library {
    /// Its registry.
    pub registry: Registry,
    /// Major version of its API. Only providers of that version can be called through its functions.
    major: u32,
}

/// DAT_INVALID_PARAMETER for an argument, in the numbers of 2.0.
pub const fn invalid(argument: DAT_RETURN_SUBTYPE) -> DAT_RETURN {
    DAT_ERROR(DAT_INVALID_PARAMETER, argument)
}

/// A name that a consumer passes: at most 255 bytes. `None` for null, a longer one, or one that is not UTF-8.
///
/// # Safety
///
/// Null or NUL-terminated.
pub unsafe fn ia_name<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as promised.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    (name.len() < DAT_NAME_MAX_LENGTH).then_some(name)
}

/// Room for what the registry allocates in a call, with its file and the adapter that it has a provider open:
/// more than they take. In what is made of boxes and strings an allocation that fails ends the process, so
/// this is asked before.
const ROOM: usize = 1 << 20;

/// Whether there is that room. Another thread may take the last of it a moment later.
fn has_room() -> bool {
    let mut room: Vec<u8> = Vec::new();
    let has = room.try_reserve_exact(ROOM).is_ok();
    // What nobody uses need not be allocated.
    black_box(room.as_mut_ptr());
    has
}

const NO_MEMORY: DAT_RETURN = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);

impl Library {
    /// The library of an API version, with the providers linked into it, which are tried after the entries of the
    /// registry file.
    pub const fn new(major: u32, builtins: &'static [Builtin]) -> Library {
        Library { registry: Registry::new(builtins), major }
    }

    /// A status in the numbers of 2.0, as this library's consumers know it.
    pub fn status(&self, status: DAT_RETURN) -> DAT_RETURN {
        in_version(self.major, status)
    }

    /// dat_ia_openv. A version with another major number than the library's is not found, whatever the registry has:
    /// its providers have other structures.
    ///
    /// # Safety
    ///
    /// C: `name` is NUL-terminated, the out arguments can be written; null is answered.
    #[allow(clippy::too_many_arguments)] // the standard's prototype
    pub unsafe fn open(
        &self,
        name: *const c_char,
        async_evd_qlen: DAT_COUNT,
        async_evd: *mut DAT_EVD_HANDLE,
        ia_handle: *mut DAT_IA_HANDLE,
        major: u32,
        minor: u32,
        threadsafe: DAT_BOOLEAN,
    ) -> DAT_RETURN {
        // SAFETY: null or NUL-terminated.
        let Some(name) = (unsafe { ia_name(name) }) else {
            return self.status(invalid(DAT_INVALID_ARG1));
        };
        if ia_handle.is_null() {
            return self.status(DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA));
        }
        if async_evd.is_null() {
            return self.status(invalid(DAT_INVALID_ARG3));
        }
        if major != self.major {
            return self.status(DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND));
        }
        if !has_room() {
            return self.status(NO_MEMORY);
        }
        let request = Request {
            wanted: Wanted { name, major, minor, threadsafe: threadsafe != DAT_FALSE },
            async_evd_qlen,
            // SAFETY: not null.
            async_evd: unsafe { async_evd.read() },
        };
        match self.registry.open(&request) {
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
    pub fn close(&self, ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        registry::close(ia, flags)
    }

    /// dat_registry_list_providers: the first `max` interfaces, those of this version first
    /// ([`registry::List::interfaces_for`]); `count` is how many, and how many there are if the call is
    /// refused.
    ///
    /// # Safety
    ///
    /// C: `count` can be written; `infos` holds `max` pointers to records; null is answered.
    pub unsafe fn list_providers(
        &self,
        max: DAT_COUNT,
        count: *mut DAT_COUNT,
        infos: *mut *mut DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        if count.is_null() {
            return self.status(invalid(DAT_INVALID_ARG2));
        }
        if !has_room() {
            return self.status(NO_MEMORY);
        }
        let interfaces = self.registry.list().interfaces_for(self.major, &Host::of_process());
        // What a refusal leaves there: how much room is needed.
        // SAFETY: not null.
        unsafe { count.write(interfaces.len().try_into().unwrap_or(DAT_COUNT::MAX)) };
        let Ok(max @ 1..) = usize::try_from(max) else {
            return self.status(invalid(DAT_INVALID_ARG1));
        };
        if infos.is_null() {
            return self.status(invalid(DAT_INVALID_ARG3));
        }
        let filled = max.min(interfaces.len());
        // SAFETY: `max` pointers, as the consumer says.
        let infos = unsafe { std::slice::from_raw_parts(infos, filled) };
        if infos.iter().any(|info| info.is_null()) {
            return self.status(invalid(DAT_INVALID_ARG3));
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

    /// dat_registry_add_provider.
    ///
    /// # Safety
    ///
    /// That of [`abi::add_provider`].
    pub unsafe fn add_provider(
        &self,
        table: *const DAT_PROVIDER,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        self.status(unsafe { abi::add_provider(table, info) })
    }

    /// dat_registry_remove_provider.
    ///
    /// # Safety
    ///
    /// That of [`abi::remove_provider`].
    pub unsafe fn remove_provider(
        &self,
        table: *const DAT_PROVIDER,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        self.status(unsafe { abi::remove_provider(table, info) })
    }

    /// dats_get_ia_handle: from a consumer's IA handle to the provider's, and back.
    ///
    /// # Safety
    ///
    /// That of [`abi::get_ia_handle`].
    pub unsafe fn get_ia_handle(
        &self,
        handle: DAT_IA_HANDLE,
        out: *mut DAT_IA_HANDLE,
    ) -> DAT_RETURN {
        // SAFETY: the caller's promise.
        self.status(unsafe { abi::get_ia_handle(handle, out) })
    }

    /// The names of a status's type and subtype.
    pub(crate) fn status_names(&self, status: DAT_RETURN) -> Option<(&'static str, &'static str)> {
        if self.major < 2 { v1::status_names(status) } else { describe::status_names(status) }
    }
}
