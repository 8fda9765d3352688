//! Open IAs, and the handles that consumers have for them: small integers, starting at 1.
//!
//! OFED's registry also returns integers. Programs print and compare them, and use them as indices.
//! Providers translate them with `dats_get_ia_handle`.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use dat_sys::*;

use crate::dynamic::{self, FunctionTable};
use crate::handle;
use crate::load::Provider;
use crate::signal_lock::{SignalGuard, lock};
use crate::status::in_version;

/// Handles below this value are integers, and all others are pointers: the kernel places no memory
/// there unless a program asks for such an address. One more than the number of IAs that can be
/// open at the same time.
const INTEGER_HANDLES_END: usize = 1 << 15;

struct OpenIa {
    provider_ia: ProviderIa,
    /// The function table that the IA uses: the table that the provider registered, or another
    /// table of the same provider for another kind of adapter.
    table: FunctionTable,
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

/// The provider's handles of the open IAs. The index is the consumer's handle. Index 0 is never
/// used, and an unused place is null. Readers take no lock, because a signal handler may have
/// interrupted a thread that holds or waits for one.
static PROVIDER_IAS: [AtomicPtr<c_void>; INTEGER_HANDLES_END] =
    [const { AtomicPtr::new(null_mut()) }; INTEGER_HANDLES_END];
/// One more than the highest index of [`PROVIDER_IAS`] that was ever used.
static USED_END: AtomicUsize = AtomicUsize::new(1);

/// The open IAs, each at the index of its handle. [`PROVIDER_IAS`] changes under this lock.
fn open_ias() -> SignalGuard<Vec<Option<OpenIa>>> {
    static OPEN_IAS: Mutex<Vec<Option<OpenIa>>> = Mutex::new(Vec::new());
    lock(&OPEN_IAS)
}

/// Whether a handle is in the range of the integers. All other handles are pointers.
fn is_integer(handle: DAT_HANDLE) -> bool {
    handle.addr() < INTEGER_HANDLES_END
}

/// The provider's handle for a consumer's IA handle.
pub fn provider_ia(ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    let provider_ia = PROVIDER_IAS.get(ia.addr())?.load(Ordering::Acquire);
    (!provider_ia.is_null()).then_some(provider_ia)
}

/// The consumer's handle for a provider's IA handle.
pub fn consumer_ia(provider_ia: DAT_IA_HANDLE) -> Option<DAT_IA_HANDLE> {
    if provider_ia.is_null() {
        return None;
    }
    let used = &PROVIDER_IAS[..USED_END.load(Ordering::Acquire)];
    let index = used.iter().position(|ia| ia.load(Ordering::Acquire) == provider_ia)?;
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
/// the table of the IA's objects. From now on the handles of these objects are valid. If all
/// integers are in use, the provider is returned as the error.
pub(crate) fn insert(
    provider_ia: DAT_IA_HANDLE,
    provider: Provider,
) -> Result<(DAT_IA_HANDLE, FunctionTable), Provider> {
    let mut open = open_ias();
    let index = 1 + open.iter().skip(1).take_while(|ia| ia.is_some()).count();
    let Some(place) = PROVIDER_IAS.get(index) else { return Err(provider) };
    let table = handle::table_of_new(provider_ia).filter(|&table| handle::add_table(table));
    let table = table.unwrap_or(provider.table);
    dynamic::count_ia(provider.table, &provider.interface, true);
    if open.len() <= index {
        open.resize_with(index + 1, || None);
    }
    open[index] =
        Some(OpenIa { provider_ia: ProviderIa(provider_ia), table, provider: Some(provider) });
    place.store(provider_ia, Ordering::Release);
    USED_END.fetch_max(index + 1, Ordering::Release);
    Ok((std::ptr::without_provenance_mut(index), table))
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
        let mut open = open_ias();
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
        if let Some(Some(entry)) = open_ias().get_mut(ia.addr()) {
            entry.provider = Some(provider);
        }
        return status;
    }
    {
        let mut open = open_ias();
        open[ia.addr()] = None;
        PROVIDER_IAS[ia.addr()].store(null_mut(), Ordering::Release);
        // A table that is not registered is valid only as long as an IA uses it.
        if !dynamic::is_registered(table) && !open.iter().flatten().any(|ia| ia.table == table) {
            handle::remove_table(table);
        }
    }
    dynamic::count_ia(provider.table, &provider.interface, false);
    drop(provider);
    DAT_SUCCESS
}
