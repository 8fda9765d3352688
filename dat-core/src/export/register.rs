//! dat_provider_init and dat_provider_fini: what is registered, and with which parameters.

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

/// The registry that a provider registers with.
pub trait Registry: 'static {
    /// Its functions.
    const FNS: RegistryFns;
}

/// The version of uDAPL that an entry asks for, and with it the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1_2,
    V2_0,
}

/// A table with the name in it. They are never freed: freed handles still lead to them, so a name that is registered
/// again gets the table it had.
struct Listed {
    key: Key,
    name: CString,
    table: Table,
    /// None between fini and the next init.
    active: Mutex<Option<Active>>,
}

/// What a table is for, besides a name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    provider: TypeId,
    /// What its adapters are made of.
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
pub(super) struct Registered<P> {
    pub(super) provider: Arc<P>,
    pub(super) params: Arc<str>,
    listed: &'static Listed,
    registry: RegistryFns,
}

/// `dat_provider_init` of a provider: registers a function table for the IA name that `info` gives, to be opened with
/// `ia_params`.
///
/// # Safety
/// Both pointers are NULL or lead to what the standard says; the registry's functions are what they claim to be.
pub unsafe extern "C" fn init<P: Provider + Default, R: Registry>(
    info: *const DAT_PROVIDER_INFO,
    ia_params: *const c_char,
) {
    // SAFETY: as the caller promised.
    let (info, params) = unsafe {
        let Some(info) = info.as_ref() else { return complain(P::NAME, "?", &"no provider info") };
        let params = if ia_params.is_null() { c"" } else { CStr::from_ptr(ia_params) };
        (info, params)
    };
    let name = name_of(info).unwrap_or_default();
    log::start();
    // A panic must not reach C, which has no answer to give here.
    let outcome = catch_unwind(|| register::<P>(info, params, R::FNS));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => complain(P::NAME, &name, &reason),
        Err(_) => complain(P::NAME, &name, &"panicked while it registered"),
    }
}

/// `dat_provider_fini` of a provider: takes back what [`init`] did.
///
/// # Safety
/// As [`init`], with no adapter of the provider open.
pub unsafe extern "C" fn fini<P: Provider, R: Registry>(info: *const DAT_PROVIDER_INFO) {
    // SAFETY: as the caller promised.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    let _ = catch_unwind(|| {
        let (Some(name), Ok(key)) = (name_of(info), key_of::<P>(info)) else { return };
        let Some(listed) = listed(key, &name) else { return };
        let was = listed.active().take();
        if was.is_some() {
            // SAFETY: the registry's own function with what was registered. A refusal changes nothing: the registry
            // is about to unload the provider.
            unsafe { (R::FNS.remove_provider)(listed.table.address(), info) };
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
    let listed = list::<P, P::Transport>(key, &c_name);
    {
        let mut active = listed.active();
        if active.is_some() {
            return Err("registered already".into());
        }
        *active = Some(Active { provider: Arc::new(P::default()), params, registry });
    }
    // SAFETY: the registry's own function; table and info are complete.
    match unsafe { (registry.add_provider)(listed.table.address(), info) } {
        DAT_SUCCESS => Ok(()),
        status => {
            *listed.active() = None;
            Err(format!("the registry refused it with {status:#010x}"))
        }
    }
}

/// The entry that is registered for an IA name.
pub(super) fn find<P: Provider>(
    name: &str,
    version: Version,
    thread_safe: bool,
) -> Option<Registered<P>> {
    let listed = listed(key::<P, P::Transport>(version, thread_safe), name)?;
    let active = listed.active();
    let Active { provider, params, registry } = active.as_ref()?;
    let provider = Arc::clone(provider).downcast().ok()?;
    Some(Registered { provider, params: Arc::clone(params), listed, registry: *registry })
}

impl<P: Provider> Registered<P> {
    /// For an adapter of that name.
    pub(super) fn entry<'a>(&self, name: &'a str) -> Entry<'a> {
        Entry {
            name,
            provider: P::NAME,
            table: self.listed.table.address(),
            registry: self.registry,
            thread_safe: self.listed.key.thread_safe,
        }
    }

    /// The same with the table of what the provider leaves entries to. That one is not registered: the registry finds it
    /// where the adapter's handle leads.
    pub(super) fn other_entry<'a>(&self, name: &'a str) -> Entry<'a> {
        let Listed { key: Key { version, thread_safe, .. }, name: listed, .. } = self.listed;
        let other = list::<P, P::Other>(key::<P, P::Other>(*version, *thread_safe), listed);
        Entry { table: other.table.address(), ..self.entry(name) }
    }
}

impl Listed {
    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tables() -> MutexGuard<'static, Vec<&'static Listed>> {
    static TABLES: Mutex<Vec<&'static Listed>> = Mutex::new(Vec::new());
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listed(key: Key, name: &str) -> Option<&'static Listed> {
    tables().iter().find(|listed| listed.is(key, name)).copied()
}

/// As [`listed`], made if there is none.
fn list<P: Provider, T: Transport>(key: Key, name: &CStr) -> &'static Listed {
    let mut tables = tables();
    if let Some(listed) = tables.iter().find(|listed| listed.key == key && *listed.name == *name) {
        return listed;
    }
    let name = name.to_owned();
    let table = match (key.version, key.thread_safe) {
        (Version::V1_2, true) => Table::V1(v1::table::<P, T, true>(name.as_ptr())),
        (Version::V1_2, false) => Table::V1(v1::table::<P, T, false>(name.as_ptr())),
        (Version::V2_0, true) => Table::V2(table::table::<P, T, true>(name.as_ptr())),
        (Version::V2_0, false) => Table::V2(table::table::<P, T, false>(name.as_ptr())),
    };
    let listed: &Listed =
        Box::leak(Box::new(Listed { key, name, table, active: Mutex::new(None) }));
    tables.push(listed);
    listed
}

fn key<P: Provider, T: Transport>(version: Version, thread_safe: bool) -> Key {
    Key { provider: TypeId::of::<P>(), transport: TypeId::of::<T>(), version, thread_safe }
}

impl Listed {
    fn is(&self, key: Key, name: &str) -> bool {
        self.key == key && self.name.as_bytes() == name.as_bytes()
    }
}

impl Table {
    /// As registries and handles have it, whatever the version: whoever calls through it knows which one it opened.
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
                "the entry asks for uDAPL {major}.{minor}; this provider speaks 1.2 and 2.0 (write u1.2 or u2.0)"
            ));
        }
    };
    Ok(key::<P, P::Transport>(version, info.is_thread_safe != DAT_FALSE))
}

fn name_of(info: &DAT_PROVIDER_INFO) -> Option<String> {
    let bytes = info.ia_name.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok().map(str::to_owned)
}

/// Tells people what C has no words for, on standard error unless DAT_DBG_TYPE leaves errors out.
pub(super) fn complain(provider: &str, ia: &str, reason: &dyn fmt::Display) {
    const ERRORS: u32 = 1;
    let wanted = environment::variable("DAT_DBG_TYPE")
        .and_then(|text| environment::number(&text))
        .unwrap_or(ERRORS);
    if wanted & ERRORS != 0 {
        // In one piece, so that lines of several threads stay lines; a closed standard error is not worth failing for.
        let line = format!("dat: {ia} ({provider}): {reason}\n");
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
