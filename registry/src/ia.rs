//! Open IAs, and the handles that consumers have for them: small integers, starting at 1.
//!
//! OFED's registry also returns integers. Programs print and compare them, and use them as indices.
//! Providers translate them with `dats_get_ia_handle`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dat_sys::*;

use crate::dynamic::{self, Table};
use crate::handle;
use crate::load::Provider;
use crate::status::in_version;

/// The step by which the range of integer handles grows. The range never overlaps with pointers,
/// because the lowest 64 KiB of the address space are not mapped.
const HANDLE_RANGE_STEP: usize = 64;

struct OpenIa {
    provider_ia: ProviderIa,
    /// The function table that the IA uses: the table that the provider registered, or another
    /// table of the same provider for another kind of adapter.
    table: Table,
    /// `None` while a close is in progress, so that a second close finds nothing to close.
    provider: Option<Provider>,
}

/// The provider's own handle of an IA.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ProviderIa(DAT_IA_HANDLE);

// SAFETY: a `ProviderIa` is only an address, which is passed back to the provider that it came
// from.
unsafe impl Send for ProviderIa {}
// SAFETY: a `ProviderIa` is only an address, which is passed back to the provider that it came
// from.
unsafe impl Sync for ProviderIa {}

/// The open IAs. The index is the consumer's handle. Index 0 is never used.
static OPEN_IAS: RwLock<Vec<Option<OpenIa>>> = RwLock::new(Vec::new());
/// Handles below this value are integers, and all others are pointers. The value is the size of the
/// table of open IAs, rounded up.
static INTEGER_HANDLES_END: AtomicUsize = AtomicUsize::new(HANDLE_RANGE_STEP);

fn open_ias() -> RwLockReadGuard<'static, Vec<Option<OpenIa>>> {
    OPEN_IAS.read().unwrap_or_else(PoisonError::into_inner)
}

fn open_ias_mut() -> RwLockWriteGuard<'static, Vec<Option<OpenIa>>> {
    OPEN_IAS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a handle is in the range of the integers. All other handles are pointers.
fn is_integer(handle: DAT_HANDLE) -> bool {
    handle.addr() < INTEGER_HANDLES_END.load(Ordering::Relaxed)
}

/// The provider's handle for a consumer's IA handle.
pub fn provider_ia(ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    Some(open_ias().get(ia.addr())?.as_ref()?.provider_ia.0)
}

/// The consumer's handle for a provider's IA handle.
pub fn consumer_ia(provider_ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    let wanted = ProviderIa(provider_ia);
    let index = open_ias()
        .iter()
        .position(|slot| slot.as_ref().is_some_and(|ia| ia.provider_ia == wanted))?;
    Some(std::ptr::without_provenance_mut(index))
}

/// Implements `dats_get_ia_handle`: returns the provider's handle for an integer, and the integer
/// for a provider's handle.
pub fn translate(handle: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    if is_integer(handle) { provider_ia(handle) } else { consumer_ia(handle) }
}

/// Returns the address of a handle's object. The integer handle of an IA is translated to the
/// address. Other handles are addresses already.
#[inline]
pub fn object(handle: DAT_HANDLE) -> Option<DAT_HANDLE> {
    if is_integer(handle) { provider_ia(handle) } else { Some(handle) }
}

/// The open IAs of a name, each as the provider's handle and the function table.
///
/// The tables are valid only as long as the consumer keeps these IAs open.
pub fn open_under(name: &str) -> Vec<(DAT_IA_HANDLE, *const DAT_PROVIDER)> {
    let of_name = |ia: &OpenIa| match &ia.provider {
        Some(provider) if provider.interface.name == name => Some((ia.provider_ia.0, ia.table.0)),
        _ => None,
    };
    open_ias().iter().flatten().filter_map(of_name).collect()
}

/// Records an IA that a provider has opened, under the lowest free integer. Returns that handle and
/// the table of the IA's objects. From now on the handles of these objects are valid.
pub(crate) fn insert(provider_ia: DAT_IA_HANDLE, provider: Provider) -> (DAT_IA_HANDLE, Table) {
    dynamic::count_ia(provider.table, &provider.interface, true);
    let mut open = open_ias_mut();
    let table = handle::table_of_new(provider_ia).filter(|&table| handle::add_table(table));
    let table = table.unwrap_or(provider.table);
    let entry = OpenIa { provider_ia: ProviderIa(provider_ia), table, provider: Some(provider) };
    if open.is_empty() {
        open.push(None);
    }
    let index = match open.iter().skip(1).position(Option::is_none) {
        Some(free) => free + 1,
        None => {
            open.push(None);
            INTEGER_HANDLES_END
                .store(open.len().next_multiple_of(HANDLE_RANGE_STEP), Ordering::Relaxed);
            open.len() - 1
        }
    };
    open[index] = Some(entry);
    (std::ptr::without_provenance_mut(index), table)
}

/// Closes an IA. If the provider agrees, the handle becomes invalid and the provider is released.
///
/// # Errors
///
/// `DAT_INVALID_HANDLE` if `ia` is not the handle of an open IA, or if another thread is closing
/// it. Any other status comes from the provider, and the IA stays open.
pub fn close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    let invalid = DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    // The lock is not held while the provider is called, because the provider may translate handles
    // while it closes.
    let (provider_ia, table, provider) = {
        let mut open = open_ias_mut();
        let Some(Some(entry)) = open.get_mut(ia.addr()) else { return invalid };
        let Some(provider) = entry.provider.take() else { return invalid };
        (entry.provider_ia, entry.table, provider)
    };
    let missing =
        in_version(provider.interface.major, DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE));
    // SAFETY: `provider` keeps the provider loaded, and the provider's tables exist as long as it
    // is loaded.
    let close = unsafe { (*table.0).ia_close_func };
    // SAFETY: the call passes the provider's own handle to the provider's function.
    let status = close.map_or(missing, |close| unsafe { close(provider_ia.0, flags) });
    if status != DAT_SUCCESS {
        if let Some(Some(entry)) = open_ias_mut().get_mut(ia.addr()) {
            entry.provider = Some(provider);
        }
        return status;
    }
    {
        let mut open = open_ias_mut();
        open[ia.addr()] = None;
        // A table that is not registered is valid only as long as an IA uses it.
        if !dynamic::is_registered(table) && !open.iter().flatten().any(|ia| ia.table == table) {
            handle::remove_table(table);
        }
    }
    dynamic::count_ia(provider.table, &provider.interface, false);
    drop(provider);
    DAT_SUCCESS
}
