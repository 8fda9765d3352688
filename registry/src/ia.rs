//! Open IAs and the handles that consumers know them by: small integers from 1.
//!
//! OFED's registry hands out integers, and programs print, compare and index with them; providers translate
//! with `dats_get_ia_handle`.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dat_sys::*;

use crate::dynamic;
use crate::load::Provider;

/// Handles below this are integers, not pointers; the table grows by this much.
const STEP: usize = 64;

struct OpenIa {
    provider_ia: ProviderIa,
    extensions: bool,
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

fn open() -> RwLockReadGuard<'static, Vec<Option<OpenIa>>> {
    OPEN.read().unwrap_or_else(PoisonError::into_inner)
}

fn open_mut() -> RwLockWriteGuard<'static, Vec<Option<OpenIa>>> {
    OPEN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a handle is in the range of the integers; anything else is a pointer.
fn is_integer(handle: DAT_HANDLE, open: &[Option<OpenIa>]) -> bool {
    handle.addr() < open.len().max(1).next_multiple_of(STEP)
}

/// The provider's handle of the IA that a consumer names.
pub fn provider_ia(ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    Some(open().get(ia.addr())?.as_ref()?.provider_ia.0)
}

/// The consumer's handle of the IA that a provider names.
pub fn consumer_ia(provider_ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    let wanted = ProviderIa(provider_ia);
    let index = open().iter().position(|slot| slot.as_ref().is_some_and(|ia| ia.provider_ia == wanted))?;
    Some(std::ptr::without_provenance_mut(index))
}

/// `dats_get_ia_handle`: an integer gives the provider's handle, a provider's handle the integer.
pub fn translate(handle: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    let integer = is_integer(handle, &open());
    if integer { provider_ia(handle) } else { consumer_ia(handle) }
}

/// The object behind any handle: an IA's integer is translated, other handles are what they are.
pub fn object(handle: DAT_HANDLE) -> Option<DAT_HANDLE> {
    let integer = is_integer(handle, &open());
    if integer { provider_ia(handle) } else { Some(handle) }
}

/// Whether the provider behind an open IA said that it has extensions.
///
/// A provider built without them has a table that ends before the extension function.
pub fn has_extensions(table: *const DAT_PROVIDER) -> bool {
    open().iter().flatten().any(|ia| {
        ia.extensions && ia.provider.as_ref().is_some_and(|provider| std::ptr::eq(provider.table.0, table))
    })
}

/// Enters an IA that a provider has opened; its handle is the lowest free integer.
pub(crate) fn enter(provider_ia: DAT_IA_HANDLE, provider: Provider) -> DAT_IA_HANDLE {
    dynamic::count_ia(provider.table, &provider.interface, true);
    let entry = OpenIa { provider_ia: ProviderIa(provider_ia), extensions: false, provider: Some(provider) };
    let mut open = open_mut();
    if open.is_empty() {
        open.push(None);
    }
    let index = match open.iter().skip(1).position(Option::is_none) {
        Some(free) => free + 1,
        None => {
            open.push(None);
            open.len() - 1
        }
    };
    open[index] = Some(entry);
    std::ptr::without_provenance_mut(index)
}

pub(crate) fn set_extensions(ia: DAT_IA_HANDLE) {
    if let Some(Some(ia)) = open_mut().get_mut(ia.addr()) {
        ia.extensions = true;
    }
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
    let (provider_ia, provider) = {
        let mut open = open_mut();
        let Some(Some(entry)) = open.get_mut(ia.addr()) else { return invalid };
        let Some(provider) = entry.provider.take() else { return invalid };
        (entry.provider_ia, provider)
    };
    // SAFETY: the provider is loaded, which `provider` ensures, and its table lives as long.
    let close = unsafe { (*provider.table.0).ia_close_func };
    // SAFETY: the provider's own function and its own handle.
    let status = close.map_or(DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE), |close| unsafe {
        close(provider_ia.0, flags)
    });
    if status != DAT_SUCCESS {
        if let Some(Some(entry)) = open_mut().get_mut(ia.addr()) {
            entry.provider = Some(provider);
        }
        return status;
    }
    open_mut()[ia.addr()] = None;
    dynamic::count_ia(provider.table, &provider.interface, false);
    drop(provider);
    DAT_SUCCESS
}
