//! The dynamic registry: the providers that have registered themselves.
//!
//! A provider registers from its `dat_provider_init`. A program may also register a provider that
//! is linked into it.

use std::ffi::CStr;
use std::sync::Mutex;

use dat_sys::*;
use telemetry::{Category, report};

use crate::handle;
use crate::list::{Mismatch, Offer, Wanted};
use crate::signal_lock::{SignalGuard, lock};

/// One registration of a provider.
struct Registration {
    table: FunctionTable,
    interface: Interface,
    serial: u64,
    open_ias: usize,
}

/// The address of a provider's function table. The table of a uDAPL 1.2 provider has only the first
/// 70 words, some of which have other signatures. Code that calls through a table must therefore
/// know which version the provider was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionTable(pub *const DAT_PROVIDER);

// SAFETY: a `FunctionTable` is only an address. Each access through it justifies why the provider
// is still loaded.
unsafe impl Send for FunctionTable {}
// SAFETY: a `FunctionTable` is only an address. Each access through it justifies why the provider
// is still loaded.
unsafe impl Sync for FunctionTable {}

/// A DAT_PROVIDER_INFO with an owned name, which is the key of a provider. Keys match only if all
/// parts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The IA name.
    pub name: String,
    /// The API major version.
    pub major: u32,
    /// The API minor version.
    pub minor: u32,
    /// Whether the provider is thread-safe.
    pub threadsafe: bool,
}

impl Interface {
    /// Converts a record of C. Returns `None` if the name is not terminated, empty or not UTF-8.
    pub fn from_c(info: &DAT_PROVIDER_INFO) -> Option<Interface> {
        let name = info.ia_name.map(|c| c as u8);
        let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
        (!name.is_empty()).then(|| Interface {
            name: name.to_owned(),
            major: info.dapl_version_major,
            minor: info.dapl_version_minor,
            threadsafe: info.is_thread_safe != DAT_FALSE,
        })
    }

    /// Converts the key to a record of C. A name that does not fit is truncated. Names of entries
    /// are checked when the entries are read.
    pub fn to_c(&self) -> DAT_PROVIDER_INFO {
        let mut info = DAT_PROVIDER_INFO::zeroed();
        let room = info.ia_name.len() - 1;
        for (to, from) in info.ia_name[..room].iter_mut().zip(self.name.bytes()) {
            *to = from as _;
        }
        info.dapl_version_major = self.major;
        info.dapl_version_minor = self.minor;
        info.is_thread_safe = if self.threadsafe { DAT_TRUE } else { DAT_FALSE };
        info
    }
}

#[derive(Default)]
struct Registrations {
    all: Vec<Registration>,
    serial: u64,
}

fn registrations() -> SignalGuard<Registrations> {
    static REGISTRATIONS: Mutex<Registrations> =
        Mutex::new(Registrations { all: Vec::new(), serial: 0 });
    lock(&REGISTRATIONS)
}

/// Implements dat_registry_add_provider.
pub fn add(table: FunctionTable, interface: Interface) -> Result<(), DAT_RETURN> {
    let mut registrations = registrations();
    if registrations.all.iter().any(|r| r.interface == interface) {
        return Err(DAT_ERROR(DAT_PROVIDER_ALREADY_REGISTERED, DAT_NO_SUBTYPE));
    }
    if !handle::add_table(table) {
        return Err(DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY));
    }
    report(Category::DynamicRegistry, format_args!("provider {} registered", interface.name));
    registrations.serial += 1;
    let serial = registrations.serial;
    registrations.all.push(Registration { table, interface, serial, open_ias: 0 });
    Ok(())
}

/// Implements dat_registry_remove_provider. Fails with DAT_PROVIDER_IN_USE while an IA of the
/// registration is open.
pub fn remove(table: FunctionTable, interface: &Interface) -> Result<(), DAT_RETURN> {
    let mut registrations = registrations();
    let index = registrations
        .all
        .iter()
        .position(|r| r.interface == *interface && r.table == table)
        .ok_or(DAT_ERROR(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED))?;
    if registrations.all[index].open_ias > 0 {
        return Err(DAT_ERROR(DAT_PROVIDER_IN_USE, DAT_NO_SUBTYPE));
    }
    report(Category::DynamicRegistry, format_args!("provider {} unregistered", interface.name));
    registrations.all.swap_remove(index);
    if !registrations.all.iter().any(|r| r.table == table) {
        handle::remove_table(table);
    }
    Ok(())
}

/// Whether a provider is registered under this IA name.
pub fn has_name(name: &str) -> bool {
    registrations().all.iter().any(|r| r.interface.name == name)
}

/// Whether this table is registered under any name.
pub(crate) fn is_registered(table: FunctionTable) -> bool {
    registrations().all.iter().any(|r| r.table == table)
}

/// The number of the latest registration. Later registrations have higher numbers.
pub(crate) fn serial() -> u64 {
    registrations().serial
}

/// The table that was registered under this key after the registration number `serial`.
pub(crate) fn registered_since(interface: &Interface, serial: u64) -> Option<FunctionTable> {
    registrations()
        .all
        .iter()
        .find(|r| r.interface == *interface && r.serial > serial)
        .map(|r| r.table)
}

/// The registered providers that fit, exact matches first. The registry looks here only for names
/// that the static registry does not have.
pub(crate) fn find(wanted: &Wanted<'_>) -> Result<Vec<(FunctionTable, Interface)>, Mismatch> {
    let named: Vec<_> = registrations()
        .all
        .iter()
        .filter(|r| r.interface.name == wanted.name)
        .map(|r| (r.table, r.interface.clone()))
        .collect();
    let offer = |i: &Interface| Offer { major: i.major, minor: i.minor, threadsafe: i.threadsafe };
    let mut fitting = wanted.filter(named, |(_, interface)| offer(interface))?;
    fitting.sort_by_key(|(_, i)| !wanted.is_exact(&offer(i)));
    Ok(fitting)
}

/// Adds 1 to the number of open IAs of a provider, or subtracts 1 if `open` is false. Does nothing
/// if the provider is no longer registered.
pub(crate) fn count_ia(table: FunctionTable, interface: &Interface, open: bool) {
    let mut registrations = registrations();
    if let Some(r) =
        registrations.all.iter_mut().find(|r| r.table == table && r.interface == *interface)
    {
        r.open_ias = if open { r.open_ias + 1 } else { r.open_ias.saturating_sub(1) };
    }
}
