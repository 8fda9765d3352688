//! The functions of the C libraries that the registry, and not a provider, implements.

use std::ffi::{CStr, c_char};
use std::hint::black_box;

use dat_sys::*;
use registry::dynamic::Interface;
use registry::status::in_version;
use registry::{Api, Builtin, Builtins, Host, OpenRequest, Registry, Wanted, abi};

/// A C library: its registry and the API version of its functions.
#[derive(Debug)]
pub struct Library {
    /// The registry of the library.
    pub registry: Registry,
    /// The major version of the library's API. The library can call only providers of this version.
    major: u32,
}

/// Returns DAT_INVALID_PARAMETER with the subtype `argument`, as a status of uDAPL 2.0.
pub const fn invalid(argument: DAT_RETURN_SUBTYPE) -> DAT_RETURN {
    DAT_ERROR(DAT_INVALID_PARAMETER, argument)
}

/// Returns the name that a consumer has passed. Returns `None` if the name is null, longer than 255
/// bytes, or not UTF-8.
///
/// # Safety
///
/// `name` must be null or NUL-terminated.
pub unsafe fn ia_name<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: `name` is not null, so the caller guarantees that it is NUL-terminated.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    (name.len() < DAT_NAME_MAX_LENGTH).then_some(name)
}

/// The number of octets of memory that must be available before a call that allocates. The
/// registry, its file and the opened adapter allocate less than this. Boxes and strings abort the
/// process when an allocation fails, so the memory is checked for beforehand.
const MEMORY_RESERVE_BYTES: usize = 1 << 20;

/// Returns whether [`MEMORY_RESERVE_BYTES`] are available. Another thread may use this memory a
/// moment later.
fn has_memory() -> bool {
    let mut reserve: Vec<u8> = Vec::new();
    let has = reserve.try_reserve_exact(MEMORY_RESERVE_BYTES).is_ok();
    // If the pointer were not used, the compiler could remove the allocation.
    black_box(reserve.as_mut_ptr());
    has
}

const NO_MEMORY: DAT_RETURN = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);

impl Library {
    /// Creates the library of an API version, with the adapters that are built into it. Built-in
    /// adapters are tried after the entries of the registry file.
    pub const fn new(api: Api, adapters: &'static [&'static [Builtin]]) -> Library {
        let builtins = Builtins { adapters, api, threadsafe: &[false, true] };
        let registry = Registry::new(builtins).reporting_open_errors();
        Library { registry, major: api.major }
    }

    /// Converts a status of uDAPL 2.0 to the status numbers of this library's API version.
    pub fn status(&self, status: DAT_RETURN) -> DAT_RETURN {
        in_version(self.major, status)
    }

    /// dat_ia_openv. A version whose major number differs from the library's is never found,
    /// because providers of that version use other structures.
    ///
    /// # Safety
    ///
    /// `name` is null or NUL-terminated. The out arguments are null or writable.
    #[allow(clippy::too_many_arguments)] // The prototype is the standard's.
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
        // SAFETY: the caller guarantees that `name` is null or NUL-terminated.
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
            self.registry.report_other_version(name, (major, minor), self.major);
            return self.status(DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_MAJOR_NOT_FOUND));
        }
        if !has_memory() {
            return self.status(NO_MEMORY);
        }
        let request = OpenRequest {
            wanted: Wanted { name, major, minor, threadsafe: threadsafe != DAT_FALSE },
            async_evd_qlen,
            // SAFETY: `async_evd` is not null, so the caller guarantees that it can be read.
            async_evd: unsafe { async_evd.read() },
        };
        match self.registry.open(&request) {
            Ok(opened) => {
                // SAFETY: `async_evd` and `ia_handle` are not null, so the caller guarantees that
                // both are writable.
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

    /// dat_registry_list_providers: writes at most `max` interfaces, those of this version first
    /// ([`registry::List::interfaces_for`]). `count` receives the number of interfaces written, or
    /// the number of all interfaces if the call fails.
    ///
    /// # Safety
    ///
    /// `count` is null or writable. `infos` is null or holds `max` pointers, each null or to a
    /// record.
    pub unsafe fn list_providers(
        &self,
        max: DAT_COUNT,
        count: *mut DAT_COUNT,
        infos: *mut *mut DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        if count.is_null() {
            return self.status(invalid(DAT_INVALID_ARG2));
        }
        if !has_memory() {
            return self.status(NO_MEMORY);
        }
        let interfaces = self.registry.list().interfaces_for(self.major, &Host::of_process());
        // SAFETY: `count` is not null, so the caller guarantees that it is writable. If the call
        // fails, this number tells the caller how many records there are.
        unsafe { count.write(interfaces.len().try_into().unwrap_or(DAT_COUNT::MAX)) };
        let Ok(max @ 1..) = usize::try_from(max) else {
            return self.status(invalid(DAT_INVALID_ARG1));
        };
        if infos.is_null() {
            return self.status(invalid(DAT_INVALID_ARG3));
        }
        let filled = max.min(interfaces.len());
        // SAFETY: `infos` is not null, so the caller guarantees `max` pointers.
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
            // SAFETY: `info` is not null, so the caller guarantees that it points to a record.
            unsafe { info.write(interface.to_c()) };
        }
        // SAFETY: `count` is not null, so the caller guarantees that it is writable.
        unsafe { count.write(filled.try_into().unwrap_or(DAT_COUNT::MAX)) };
        DAT_SUCCESS
    }

    /// dat_registry_add_provider. `Table` is the DAT_PROVIDER of the library's version.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`abi::add_provider`].
    pub unsafe fn add_provider<Table>(
        &self,
        table: *const Table,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller fulfils the contract of this function.
        self.status(unsafe { abi::add_provider(table.cast(), info) })
    }

    /// dat_registry_remove_provider. `Table` is the DAT_PROVIDER of the library's version.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`abi::remove_provider`].
    pub unsafe fn remove_provider<Table>(
        &self,
        table: *const Table,
        info: *const DAT_PROVIDER_INFO,
    ) -> DAT_RETURN {
        // SAFETY: the caller fulfils the contract of this function.
        self.status(unsafe { abi::remove_provider(table.cast(), info) })
    }

    /// dats_get_ia_handle: converts between the consumer's IA handle and the provider's.
    ///
    /// # Safety
    ///
    /// The requirements are those of [`abi::get_ia_handle`].
    pub unsafe fn get_ia_handle(
        &self,
        handle: DAT_IA_HANDLE,
        out: *mut DAT_IA_HANDLE,
    ) -> DAT_RETURN {
        // SAFETY: the caller fulfils the contract of this function.
        self.status(unsafe { abi::get_ia_handle(handle, out) })
    }

    /// Returns the names of a status's type and subtype.
    pub(crate) fn status_names(&self, status: DAT_RETURN) -> Option<(&'static str, &'static str)> {
        if self.major < 2 { v1::status_names(status) } else { describe::status_names(status) }
    }
}
