//! dat_provider_init and dat_provider_fini: which entries are registered, and with which
//! parameters.

use std::any::{Any, TypeId};
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::io::{self, Write};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use super::{table, v1};
use crate::environment;
use crate::ia::Entry;
use crate::log;
use crate::provider::{Provider, Transport};

/// The registry in which a provider registers.
pub trait Registry: 'static {
    /// The functions of the registry.
    const FNS: RegistryFns;
}

/// The version of uDAPL that an entry asks for. It determines the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1_2,
    V2_0,
}

/// A function table and its name. Tables are never freed, because freed handles still lead to them.
/// A name that is registered again gets its former table.
struct RegisteredTable {
    key: Key,
    name: CString,
    table: Table,
    /// `None` between fini and the next init.
    active: Mutex<Option<Active>>,
}

/// What identifies a table, besides its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    provider: TypeId,
    /// The transport of its adapters.
    transport: TypeId,
    version: Version,
    thread_safe: bool,
}

enum Table {
    V1(v1::Table),
    V2(DAT_PROVIDER),
}

struct Active {
    provider: Arc<dyn Any + Send + Sync>,
    params: Arc<str>,
    registry: RegistryFns,
}

/// A registered entry with its provider.
pub(super) struct RegisteredEntry<P> {
    pub(super) provider: Arc<P>,
    pub(super) params: Arc<str>,
    registered: &'static RegisteredTable,
    registry: RegistryFns,
}

/// `dat_provider_init` of a provider: registers a function table for the IA name that `info`
/// contains, whose adapters are opened with `ia_params`.
///
/// # Safety
/// Both pointers are NULL or lead to what the standard says. The registry's functions satisfy their
/// contracts.
pub unsafe extern "C" fn init<P: Provider + Default, R: Registry>(
    info: *const DAT_PROVIDER_INFO,
    ia_params: *const c_char,
) {
    // SAFETY: the caller guarantees this.
    let (info, params) = unsafe {
        let Some(info) = info.as_ref() else {
            return report_error(P::NAME, "?", &"dat_provider_init got no provider info");
        };
        let params = if ia_params.is_null() { c"" } else { CStr::from_ptr(ia_params) };
        (info, params)
    };
    let name = name_of(info).unwrap_or_default();
    log::start();
    // A panic must not reach C. The function has no return value for an error.
    let outcome = catch_unwind(|| register::<P>(info, params, R::FNS));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => report_error(P::NAME, &name, &reason),
        Err(_) => report_error(P::NAME, &name, &"the registration panicked"),
    }
}

/// `dat_provider_fini` of a provider: undoes [`init`].
///
/// # Safety
/// As for [`init`]. No adapter of the provider is open.
pub unsafe extern "C" fn fini<P: Provider, R: Registry>(info: *const DAT_PROVIDER_INFO) {
    // SAFETY: the caller guarantees this.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    let _ = catch_unwind(|| {
        let (Some(name), Ok(key)) = (name_of(info), key_of::<P>(info)) else { return };
        let Some(registered) = find_table(key, &name) else { return };
        let was = registered.active().take();
        if was.is_some() {
            // SAFETY: this is the registry's own function, with what was registered. A refusal
            // changes nothing, since the registry is about to unload the provider.
            unsafe { (R::FNS.remove_provider)(registered.table.address(), info) };
        }
    });
}

fn register<P: Provider + Default>(
    info: &DAT_PROVIDER_INFO,
    params: &CStr,
    registry: RegistryFns,
) -> Result<(), String> {
    let key = key_of::<P>(info)?;
    let name = name_of(info).ok_or("the IA name is not terminated or not UTF-8")?;
    let params: Arc<str> = params.to_str().map_err(|_| "the IA parameters are not UTF-8")?.into();
    let c_name = CString::new(name).map_err(|error| error.to_string())?;
    let registered = find_or_create_table::<P, P::Transport>(key, &c_name);
    {
        let mut active = registered.active();
        if active.is_some() {
            return Err("the name is registered already".into());
        }
        *active = Some(Active { provider: Arc::new(P::default()), params, registry });
    }
    // SAFETY: this is the registry's own function. The table and `info` are complete.
    match unsafe { (registry.add_provider)(registered.table.address(), info) } {
        DAT_SUCCESS => Ok(()),
        status => {
            *registered.active() = None;
            Err(format!("the registry refused the registration with status {status:#010x}"))
        }
    }
}

/// The registered entry with an IA name.
pub(super) fn find<P: Provider>(
    name: &str,
    version: Version,
    thread_safe: bool,
) -> Option<RegisteredEntry<P>> {
    let registered = find_table(key::<P, P::Transport>(version, thread_safe), name)?;
    let active = registered.active();
    let Active { provider, params, registry } = active.as_ref()?;
    let provider = Arc::clone(provider).downcast().ok()?;
    Some(RegisteredEntry { provider, params: Arc::clone(params), registered, registry: *registry })
}

impl<P: Provider> RegisteredEntry<P> {
    /// The entry for an adapter with that name.
    pub(super) fn entry<'a>(&self, name: &'a str) -> Entry<'a> {
        Entry {
            name,
            provider: P::NAME,
            table: self.registered.table.address(),
            registry: self.registry,
            thread_safe: self.registered.key.thread_safe,
        }
    }

    /// The same with the table of the provider's other transport. That table is not registered: the
    /// registry finds it through the adapter's handle.
    pub(super) fn entry_with_other_transport<'a>(&self, name: &'a str) -> Entry<'a> {
        let RegisteredTable { key: Key { version, thread_safe, .. }, name: registered, .. } =
            self.registered;
        let other = find_or_create_table::<P, P::Other>(
            key::<P, P::Other>(*version, *thread_safe),
            registered,
        );
        Entry { table: other.table.address(), ..self.entry(name) }
    }
}

impl RegisteredTable {
    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tables() -> MutexGuard<'static, Vec<&'static RegisteredTable>> {
    static TABLES: Mutex<Vec<&'static RegisteredTable>> = Mutex::new(Vec::new());
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find_table(key: Key, name: &str) -> Option<&'static RegisteredTable> {
    tables().iter().find(|registered| registered.matches(key, name)).copied()
}

/// As [`find_table`], but creates the table if there is none.
fn find_or_create_table<P: Provider, T: Transport>(
    key: Key,
    name: &CStr,
) -> &'static RegisteredTable {
    let mut tables = tables();
    if let Some(registered) =
        tables.iter().find(|registered| registered.key == key && *registered.name == *name)
    {
        return registered;
    }
    let name = name.to_owned();
    let table = match (key.version, key.thread_safe) {
        (Version::V1_2, true) => Table::V1(v1::table::<P, T, true>(name.as_ptr())),
        (Version::V1_2, false) => Table::V1(v1::table::<P, T, false>(name.as_ptr())),
        (Version::V2_0, true) => Table::V2(table::table::<P, T, true>(name.as_ptr())),
        (Version::V2_0, false) => Table::V2(table::table::<P, T, false>(name.as_ptr())),
    };
    let registered: &RegisteredTable =
        Box::leak(Box::new(RegisteredTable { key, name, table, active: Mutex::new(None) }));
    tables.push(registered);
    registered
}

fn key<P: Provider, T: Transport>(version: Version, thread_safe: bool) -> Key {
    Key { provider: TypeId::of::<P>(), transport: TypeId::of::<T>(), version, thread_safe }
}

impl RegisteredTable {
    fn matches(&self, key: Key, name: &str) -> bool {
        self.key == key && self.name.as_bytes() == name.as_bytes()
    }
}

impl Table {
    /// The type that registries and handles use, whatever the version. A caller of the table knows
    /// which version it has opened.
    fn address(&self) -> *const DAT_PROVIDER {
        match self {
            Table::V1(table) => std::ptr::from_ref(table).cast(),
            Table::V2(table) => table,
        }
    }
}

fn key_of<P: Provider>(info: &DAT_PROVIDER_INFO) -> Result<Key, String> {
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
    Ok(key::<P, P::Transport>(version, info.is_thread_safe != DAT_FALSE))
}

fn name_of(info: &DAT_PROVIDER_INFO) -> Option<String> {
    let bytes = info.ia_name.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok().map(str::to_owned)
}

/// Reports an error that C has no status for to the user, on standard error unless DAT_DBG_TYPE
/// excludes errors.
pub(super) fn report_error(provider: &str, ia: &str, reason: &dyn fmt::Display) {
    const ERRORS: u32 = 1;
    let wanted = environment::variable("DAT_DBG_TYPE")
        .and_then(|text| environment::number(&text))
        .unwrap_or(ERRORS);
    if wanted & ERRORS != 0 {
        // Written in one call, so that lines of several threads do not mix. A closed standard error
        // is no reason to fail.
        let line = format!("dat: {ia} ({provider}): {reason}\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
