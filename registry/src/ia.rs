//! Open IAs and the handles that consumers know them by: small integers from 1.
//!
//! OFED's registry hands out integers, and programs print, compare and index with them; providers translate
//! with `dats_get_ia_handle`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dat_sys::*;

use crate::dynamic::{self, Table};
use crate::handle;
use crate::load::Provider;
use crate::status::in_version;

/// How much the range of integers grows by. It never meets pointers: the lowest 64 KiB are not mapped.
const STEP: usize = 64;

struct OpenIa {
    provider_ia: ProviderIa,
    /// Where its handle leads: the provider's table, or another one of the same provider, for adapters of another make.
    table: Table,
    /// Taken out while a close is under way, so that a second one finds nothing to close.
    provider: Option<Provider>,
}

/// The provider's own handle of an IA.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ProviderIa(DAT_IA_HANDLE);

// SAFETY: an address, handed back to the provider it came from.
unsafe impl Send for ProviderIa {}
// SAFETY: as above.
unsafe impl Sync for ProviderIa {}

/// Index is the consumer's handle; 0 is never used.
static OPEN: RwLock<Vec<Option<OpenIa>>> = RwLock::new(Vec::new());
/// Handles below this are integers, all others pointers: the size of the table, rounded up.
static INTEGERS: AtomicUsize = AtomicUsize::new(STEP);

fn open() -> RwLockReadGuard<'static, Vec<Option<OpenIa>>> {
    OPEN.read().unwrap_or_else(PoisonError::into_inner)
}

fn open_mut() -> RwLockWriteGuard<'static, Vec<Option<OpenIa>>> {
    OPEN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a handle is in the range of the integers; anything else is a pointer.
fn is_integer(handle: DAT_HANDLE) -> bool {
    handle.addr() < INTEGERS.load(Ordering::Relaxed)
}

/// The provider's handle of the IA that a consumer names.
pub fn provider_ia(ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    Some(open().get(ia.addr())?.as_ref()?.provider_ia.0)
}

/// The consumer's handle of the IA that a provider names.
pub fn consumer_ia(provider_ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    let wanted = ProviderIa(provider_ia);
    let index =
        open().iter().position(|slot| slot.as_ref().is_some_and(|ia| ia.provider_ia == wanted))?;
    Some(std::ptr::without_provenance_mut(index))
}

/// `dats_get_ia_handle`: an integer gives the provider's handle, a provider's handle the integer.
pub fn translate(handle: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    if is_integer(handle) { provider_ia(handle) } else { consumer_ia(handle) }
}

/// The object behind any handle: an IA's integer is translated, other handles are what they are.
#[inline]
pub fn object(handle: DAT_HANDLE) -> Option<DAT_HANDLE> {
    if is_integer(handle) { provider_ia(handle) } else { Some(handle) }
}

/// The open IAs of a name, as the provider's handles with their tables.
///
/// The tables stay valid only as long as the consumer keeps these IAs open.
pub fn open_under(name: &str) -> Vec<(DAT_IA_HANDLE, *const DAT_PROVIDER)> {
    let of_name = |ia: &OpenIa| match &ia.provider {
        Some(provider) if provider.interface.name == name => Some((ia.provider_ia.0, ia.table.0)),
        _ => None,
    };
    open().iter().flatten().filter_map(of_name).collect()
}

/// Enters an IA that a provider has opened; its handle is the lowest free integer. Answers the table of the IA's objects, too,
/// which from here on are valid.
pub(crate) fn enter(provider_ia: DAT_IA_HANDLE, provider: Provider) -> (DAT_IA_HANDLE, Table) {
    dynamic::count_ia(provider.table, &provider.interface, true);
    let mut open = open_mut();
    let table = handle::table_of_new(provider_ia).filter(|&table| handle::admit(table));
    let table = table.unwrap_or(provider.table);
    let entry = OpenIa { provider_ia: ProviderIa(provider_ia), table, provider: Some(provider) };
    if open.is_empty() {
        open.push(None);
    }
    let index = match open.iter().skip(1).position(Option::is_none) {
        Some(free) => free + 1,
        None => {
            open.push(None);
            INTEGERS.store(open.len().next_multiple_of(STEP), Ordering::Relaxed);
            open.len() - 1
        }
    };
    open[index] = Some(entry);
    (std::ptr::without_provenance_mut(index), table)
}

/// Closes an IA: asks its provider and, when that agrees, forgets the handle and lets the provider go.
///
/// # Errors
///
/// `DAT_INVALID_HANDLE` for what is not the handle of an open IA, also while another thread closes it; else what the
/// provider answers, and the IA stays open.
pub fn close(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
    let invalid = DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    // The provider is called without the lock: it may well translate handles while it closes.
    let (provider_ia, table, provider) = {
        let mut open = open_mut();
        let Some(Some(entry)) = open.get_mut(ia.addr()) else { return invalid };
        let Some(provider) = entry.provider.take() else { return invalid };
        (entry.provider_ia, entry.table, provider)
    };
    let missing =
        in_version(provider.interface.major, DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE));
    // SAFETY: the provider is loaded, which `provider` ensures, and its tables live as long.
    let close = unsafe { (*table.0).ia_close_func };
    // SAFETY: the provider's own function and its own handle.
    let status = close.map_or(missing, |close| unsafe { close(provider_ia.0, flags) });
    if status != DAT_SUCCESS {
        if let Some(Some(entry)) = open_mut().get_mut(ia.addr()) {
            entry.provider = Some(provider);
        }
        return status;
    }
    {
        let mut open = open_mut();
        open[ia.addr()] = None;
        // A table that is not registered is valid as long as an IA has it.
        if !dynamic::is_registered(table) && !open.iter().flatten().any(|ia| ia.table == table) {
            handle::expel(table);
        }
    }
    dynamic::count_ia(provider.table, &provider.interface, false);
    drop(provider);
    DAT_SUCCESS
}
