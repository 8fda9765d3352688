//! Finds the function table of a handle that a consumer passes, without trusting the handle.
//!
//! A handle points to an object whose first word is the address of its provider's table. Consumers
//! may pass handles that are null, freed, foreign or uninitialised. So this module checks first
//! that the first word is readable, and then that it is the table of a registered provider.
//!
//! The check of readability costs a system call, so its result is cached for each page: once a
//! valid object was seen on a page, reads from that page need no system call. For the providers of
//! this project the cache is sound, because their objects stay mapped for ever. For objects of
//! other providers, it is only known that the page was mapped.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use dat_sys::{DAT_HANDLE, DAT_PROVIDER};

use crate::dynamic::FunctionTable;
use crate::signal_lock::lock;

/// The number of bytes that one entry of the page cache covers. This is the smallest page size of
/// any machine, so an entry never covers more than one page.
const PAGE_BYTES: usize = 4096;
/// The number of entries of the page cache. Together they cover 4 MiB of objects.
const PAGE_CACHE_ENTRIES: usize = 1024;
/// The number of tables that can be registered at the same time.
const MAX_TABLES: usize = 256;

/// The numbers of the pages on which a valid object was seen. A page number determines the index at
/// which it is stored. 0 means "no page", because page 0 is never mapped.
static SEEN_PAGES: [AtomicUsize; PAGE_CACHE_ENTRIES] =
    [const { AtomicUsize::new(0) }; PAGE_CACHE_ENTRIES];

/// The tables of registered providers. Slots are filled from the front. A free slot is null.
static REGISTERED_TABLES: [AtomicPtr<DAT_PROVIDER>; MAX_TABLES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_TABLES];
/// Whether the provider in the same slot of [`REGISTERED_TABLES`] reported extensions.
static HAS_EXTENSIONS: [AtomicBool; MAX_TABLES] = [const { AtomicBool::new(false) }; MAX_TABLES];
/// One more than the highest index of [`REGISTERED_TABLES`] that was ever used.
static SLOTS_END: AtomicUsize = AtomicUsize::new(0);
/// Serialises changes to the three statics above. Readers take no lock.
static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// Returns the table of the provider that owns `handle`. Returns `None` if the handle is null,
/// misaligned or not readable, or if its first word is not the table of a registered provider.
///
/// For an object on a page seen before, this takes a few nanoseconds, no lock and no system call.
/// The pointer is valid as long as the provider stays loaded, which an open IA of it ensures.
///
/// Limitation: a freed object of another vendor's provider is detected only if its memory has been
/// overwritten. If the page of the object has been unmapped since, reading the object causes a
/// fault. Only that provider can prevent the fault.
#[inline]
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "any pointer may be passed, because the function checks it"
)]
pub fn table_of(handle: DAT_HANDLE) -> Option<*const DAT_PROVIDER> {
    let address = handle.addr();
    if address < PAGE_BYTES || !address.is_multiple_of(align_of::<usize>()) {
        return None;
    }
    let page = address / PAGE_BYTES;
    let seen = &SEEN_PAGES[page % PAGE_CACHE_ENTRIES];
    if seen.load(Ordering::Relaxed) == page {
        // SAFETY: the page was mapped when an object was found on it (see the module
        // documentation), and an aligned word does not extend into the next page.
        let table = unsafe { first_word(handle) };
        return is_registered(table).then_some(table);
    }
    table_of_unseen_page(handle)
}

#[cold]
fn table_of_unseen_page(handle: DAT_HANDLE) -> Option<*const DAT_PROVIDER> {
    if !is_readable(handle) {
        return None;
    }
    // SAFETY: the kernel has just read this word.
    let table = unsafe { first_word(handle) };
    if !is_registered(table) {
        return None; // Invalid handles must not fill the cache.
    }
    let page = handle.addr() / PAGE_BYTES;
    SEEN_PAGES[page % PAGE_CACHE_ENTRIES].store(page, Ordering::Relaxed);
    Some(table)
}

/// The table of an object that a provider has just created. The table need not be registered.
pub(crate) fn table_of_new(handle: DAT_HANDLE) -> Option<FunctionTable> {
    if handle.addr() < PAGE_BYTES
        || !handle.addr().is_multiple_of(align_of::<usize>())
        || !is_readable(handle)
    {
        return None;
    }
    // SAFETY: the kernel has just read this word.
    let table = unsafe { first_word(handle) };
    is_readable(table.cast_mut().cast()).then_some(FunctionTable(table))
}

/// Reads the first word of an object.
///
/// # Safety
///
/// `handle` is aligned for a word and readable.
#[inline]
unsafe fn first_word(handle: DAT_HANDLE) -> *const DAT_PROVIDER {
    // The load is atomic because another thread may be writing to the address of an invalid handle.
    // SAFETY: the caller guarantees an aligned and readable address. An atomic load is a plain load
    // on every target.
    unsafe { AtomicPtr::from_ptr(handle.cast::<*mut DAT_PROVIDER>()) }.load(Ordering::Relaxed)
}

/// Whether `table` is the table of a registered provider.
#[inline]
pub fn is_registered(table: *const DAT_PROVIDER) -> bool {
    slot_of(table).is_some()
}

#[inline]
fn slot_of(table: *const DAT_PROVIDER) -> Option<usize> {
    let end = SLOTS_END.load(Ordering::Acquire);
    let index = REGISTERED_TABLES
        .iter()
        .take(end)
        .position(|slot| ptr::eq(slot.load(Ordering::Relaxed), table))?;
    (!table.is_null()).then_some(index)
}

/// Whether a provider has the extension function. The table of a provider built without extensions
/// ends before that function.
#[inline]
pub fn has_extensions(table: *const DAT_PROVIDER) -> bool {
    slot_of(table).is_some_and(|slot| HAS_EXTENSIONS[slot].load(Ordering::Relaxed))
}

/// Records that a provider has extensions.
pub(crate) fn set_has_extensions(table: FunctionTable) {
    let _guard = lock(&WRITE_LOCK);
    if let Some(slot) = slot_of(table.0) {
        HAS_EXTENSIONS[slot].store(true, Ordering::Relaxed);
    }
}

/// Asks the kernel whether the aligned word at `address` can be read.
///
/// rt_sigprocmask copies the signal set from the caller before it checks `how`. With an invalid
/// `how` it changes nothing, and returns EFAULT for an unreadable address and EINVAL for a readable
/// one. Unlike process_vm_readv, the call needs no file descriptor, and no sandbox forbids it.
fn is_readable(address: DAT_HANDLE) -> bool {
    const NO_SUCH_OPERATION: libc::c_int = -1;
    const SIGSET_BYTES: usize = 8;
    // SAFETY: the kernel checks the address, writes nothing and leaves the signal mask unchanged.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            NO_SUCH_OPERATION,
            address,
            ptr::null_mut::<u64>(),
            SIGSET_BYTES,
        )
    };
    answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
}

/// Makes the objects of this provider valid. Returns `false` if there are too many providers. A
/// second call for the same table has no effect.
pub(crate) fn add_table(table: FunctionTable) -> bool {
    let _guard = lock(&WRITE_LOCK);
    if is_registered(table.0) {
        return true;
    }
    let Some(free) =
        REGISTERED_TABLES.iter().position(|slot| slot.load(Ordering::Relaxed).is_null())
    else {
        return false;
    };
    REGISTERED_TABLES[free].store(table.0.cast_mut(), Ordering::Relaxed);
    SLOTS_END.fetch_max(free + 1, Ordering::Release);
    true
}

/// Makes the objects of this provider invalid and clears the page cache, because the provider's
/// memory may be unmapped next.
pub(crate) fn remove_table(table: FunctionTable) {
    let _guard = lock(&WRITE_LOCK);
    if let Some(slot) = slot_of(table.0) {
        HAS_EXTENSIONS[slot].store(false, Ordering::Relaxed);
        REGISTERED_TABLES[slot].store(ptr::null_mut(), Ordering::Relaxed);
    }
    for page in &SEEN_PAGES {
        page.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
