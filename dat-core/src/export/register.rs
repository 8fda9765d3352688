//! The registered entries with their function tables, and the functions dat_provider_init and
//! dat_provider_fini.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::*;
use telemetry::{Category, log, report};

use super::any_provider::{AnyProvider, ProviderTable, ProviderTables};

/// The version of uDAPL that an entry asks for. The version determines the function table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1_2,
    V2_0,
}

/// What identifies a registered entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryKey {
    name: CString,
    version: Version,
    thread_safe: bool,
}

/// A registered entry.
#[derive(Clone)]
pub(super) struct Registered {
    key: EntryKey,
    pub(super) provider: AnyProvider,
    pub(super) params: Arc<str>,
    pub(super) registry: RegistryFns,
}

/// The function table that a transport has for the adapters of an entry.
struct EntryTable {
    key: EntryKey,
    of: ProviderTables,
    table: ProviderTable,
}

/// Registers an entry of a provider that is linked into the program, and returns the function table
/// for the entry. Adapters of the entry are opened with the parameters `params`. Another call with
/// an equal `info` changes the parameters and returns the same table.
///
/// # Errors
/// Fails if the entry asks for a version of uDAPL other than 1.2 and 2.0, or if its name is not
/// UTF-8.
pub fn register(
    provider: AnyProvider,
    registry: RegistryFns,
    info: &DAT_PROVIDER_INFO,
    params: &str,
) -> Result<*const DAT_PROVIDER, String> {
    enter(provider, registry, info, params, true)
}

/// Registers an entry as [`register`] does. `again` says whether the entry may already be
/// registered.
fn enter(
    provider: AnyProvider,
    registry: RegistryFns,
    info: &DAT_PROVIDER_INFO,
    params: &str,
    again: bool,
) -> Result<*const DAT_PROVIDER, String> {
    log::start();
    let entry = Registered { key: EntryKey::of(info)?, provider, params: params.into(), registry };
    let table = entry.table(provider.tables);
    let mut entries = entries();
    match entries.iter_mut().find(|former| former.key == entry.key) {
        Some(_) if !again => return Err("the name is registered already".into()),
        Some(former) => *former = entry,
        None => entries.push(entry),
    }
    Ok(table)
}

/// Removes an entry from the registered entries, and returns it.
fn remove(info: &DAT_PROVIDER_INFO) -> Option<Registered> {
    let key = EntryKey::of(info).ok()?;
    entries().extract_if(.., |entry| entry.key == key).next()
}

/// Implements `dat_provider_init` of a provider: registers a function table for the IA name in
/// `info`. Adapters of this name are opened with the parameters `ia_params`.
///
/// # Safety
/// Both pointers are NULL or lead to what the standard says. The registry's functions satisfy their
/// contracts.
pub unsafe fn init(
    provider: AnyProvider,
    registry: RegistryFns,
    info: *const DAT_PROVIDER_INFO,
    ia_params: *const c_char,
) {
    // SAFETY: the caller fulfils the contract of this function.
    let (info, params) = unsafe {
        let Some(info) = info.as_ref() else {
            return report_error(provider.name, "?", "dat_provider_init got no provider info");
        };
        let params = if ia_params.is_null() { c"" } else { CStr::from_ptr(ia_params) };
        (info, params)
    };
    // A panic must not reach C. The function cannot return an error, so it reports the reason to
    // the user.
    let reason = match catch_unwind(|| add_to_registry(provider, registry, info, params)) {
        Ok(Ok(())) => return,
        Ok(Err(reason)) => reason,
        Err(_) => "the registration panicked".to_owned(),
    };
    report_error(provider.name, &name_of(info).unwrap_or_default(), &reason);
}

fn add_to_registry(
    provider: AnyProvider,
    registry: RegistryFns,
    info: &DAT_PROVIDER_INFO,
    params: &CStr,
) -> Result<(), String> {
    let params = params.to_str().map_err(|_| "the IA parameters are not UTF-8")?;
    let table = enter(provider, registry, info, params, false)?;
    // SAFETY: this is the registry's own function. The table and `info` are complete.
    match unsafe { (registry.add_provider)(table, info) } {
        DAT_SUCCESS => {
            keep_this_library();
            Ok(())
        }
        status => {
            remove(info);
            Err(format!("the registry refused the registration with status {status:#010x}"))
        }
    }
}

/// Keeps this library in memory until the process ends. When the last adapter is closed, another
/// thread may still be in the last instructions of a function of the library. Such a thread cannot
/// keep the library itself: the thread that waits for its end may hold the lock of the loader.
fn keep_this_library() {
    if cfg!(miri) {
        return;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = keep_this_library as fn() as *const c_void;
    // SAFETY: dladdr accepts any address, and initializes `info` if it knows the address. The name
    // is a string that the linker keeps. RTLD_NOLOAD loads nothing new.
    unsafe {
        if libc::dladdr(here, info.as_mut_ptr()) != 0 && !(*info.as_ptr()).dli_fname.is_null() {
            libc::dlopen(
                (*info.as_ptr()).dli_fname,
                libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
            );
        }
    }
}

/// Implements `dat_provider_fini` of a provider, which undoes [`init`].
///
/// # Safety
/// The requirements of [`init`] apply. No adapter of the provider is open.
pub unsafe fn fini(registry: RegistryFns, info: *const DAT_PROVIDER_INFO) {
    // SAFETY: the caller fulfils the contract of this function.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    let _ = catch_unwind(|| {
        if let Some(entry) = remove(info) {
            // SAFETY: this is the registry's own function. The table and `info` are those that were
            // registered. A refusal changes nothing, since the registry is about to unload the
            // provider.
            unsafe { (registry.remove_provider)(entry.table(entry.provider.tables), info) };
        }
    });
}

/// Returns the registered entry with this IA name, version and thread safety.
pub(super) fn find(name: &CStr, version: Version, thread_safe: bool) -> Option<Registered> {
    let key = EntryKey { name: name.to_owned(), version, thread_safe };
    entries().iter().find(|entry| entry.key == key).cloned()
}

impl Registered {
    /// Returns the table that a transport has for the adapters of this entry. The first call
    /// creates the table. It is never freed, because freed handles still lead to it.
    pub(super) fn table(&self, of: ProviderTables) -> *const DAT_PROVIDER {
        let mut tables = tables();
        let is_same =
            |made: &&&EntryTable| made.of.transport == of.transport && made.key == self.key;
        if let Some(made) = tables.iter().find(is_same) {
            return made.table.address();
        }
        let key = self.key.clone();
        let table = (of.make)(key.version, key.thread_safe, key.name.as_ptr());
        let made: &EntryTable = Box::leak(Box::new(EntryTable { key, of, table }));
        tables.push(made);
        made.table.address()
    }
}

/// Returns the uDAPL 2.0 function table of an adapter's own transport. The adapter's handle may
/// lead to another table, the registered one.
pub(super) fn table_of_transport(ia: DAT_IA_HANDLE) -> Option<&'static DAT_PROVIDER> {
    tables().iter().find_map(|made| match &made.table {
        ProviderTable::V2(table) if (made.of.has_adapter)(ia) => Some(table),
        _ => None,
    })
}

fn entries() -> MutexGuard<'static, Vec<Registered>> {
    static ENTRIES: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tables() -> MutexGuard<'static, Vec<&'static EntryTable>> {
    static TABLES: Mutex<Vec<&'static EntryTable>> = Mutex::new(Vec::new());
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EntryKey {
    fn of(info: &DAT_PROVIDER_INFO) -> Result<Self, String> {
        let version = match (info.dapl_version_major, info.dapl_version_minor) {
            (1, 2) => Version::V1_2,
            (2, 0) => Version::V2_0,
            (major, minor) => {
                return Err(format!(
                    "the entry asks for uDAPL {major}.{minor}; \
                     this provider supports 1.2 and 2.0 (write u1.2 or u2.0)"
                ));
            }
        };
        let name = name_of(info).ok_or("the IA name is not terminated or not UTF-8")?;
        let name = CString::new(name).map_err(|error| error.to_string())?;
        Ok(EntryKey { name, version, thread_safe: info.is_thread_safe != DAT_FALSE })
    }
}

fn name_of(info: &DAT_PROVIDER_INFO) -> Option<String> {
    let bytes = info.ia_name.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok().map(str::to_owned)
}

/// Reports to the user an error for which C has no status.
pub(super) fn report_error(provider: &str, ia: &str, reason: &str) {
    report(Category::Error, format_args!("{ia} ({provider}): {reason}"));
}
