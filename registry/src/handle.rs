//! From a handle that a consumer passes to the function table behind it, without trusting the handle.
//!
//! A handle points to an object whose first word is the address of its provider's table. Consumers pass null,
//! freed, foreign and uninitialised ones, so before the first word is used it must be readable, and then it
//! must be the table of a provider that is registered now. Objects of our own providers stay mapped for ever;
//! those of others are only known by the page they are on: a page on which a valid object was once seen is
//! read without asking again, every other page is probed with one system call.

use std::ptr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use dat_sys::{DAT_HANDLE, DAT_PROVIDER};

use crate::dynamic::Table;

/// Bytes covered by one entry of the page cache: the smallest page of any machine, so never too much.
const PAGE: usize = 4096;
/// Entries of the page cache; each covers one page, so 4 MiB of objects are found without a probe.
const PAGES: usize = 1024;
/// Tables registered at the same time.
const TABLES: usize = 256;

/// Page numbers on which a valid object was seen, direct-mapped. Page 0 is never mapped, so 0 is "none".
static SEEN: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];

/// The tables of registered providers. Slots are filled from the front; a free slot is null.
static KNOWN: [AtomicPtr<DAT_PROVIDER>; TABLES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; TABLES];
/// Whether the provider in the same slot of [`KNOWN`] said that it has extensions.
static EXTENDED: [AtomicBool; TABLES] = [const { AtomicBool::new(false) }; TABLES];
/// One more than the highest slot ever used.
static KNOWN_END: AtomicUsize = AtomicUsize::new(0);
/// Held to change the three above; reading takes no lock.
static CHANGE: Mutex<()> = Mutex::new(());

/// The table of the provider behind `handle`, or `None` where the handle is none of a registered provider:
/// null, misaligned, not readable, or its first word is something else.
///
/// A few nanoseconds, no lock and no system call for an object on a page seen before. The pointer is valid as
/// long as the provider stays loaded, which an open IA of it ensures.
///
/// A freed object of a foreign provider can only be told from a live one while its memory keeps other
/// contents or its page stays mapped; that provider itself must answer for the rest.
#[inline]
#[expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "any pointer may be passed: to check it is the purpose"
)]
pub fn table_of(handle: DAT_HANDLE) -> Option<*const DAT_PROVIDER> {
    let address = handle.addr();
    if address < PAGE || !address.is_multiple_of(align_of::<usize>()) {
        return None;
    }
    let page = address / PAGE;
    let seen = &SEEN[page % PAGES];
    if seen.load(Ordering::Relaxed) == page {
        // SAFETY: the page was mapped when an object was found on it, see the module's documentation; an aligned
        // word does not reach into the next page.
        let table = unsafe { first_word(handle) };
        return is_known(table).then_some(table);
    }
    table_of_unseen(handle)
}

#[cold]
fn table_of_unseen(handle: DAT_HANDLE) -> Option<*const DAT_PROVIDER> {
    if !is_readable(handle) {
        return None;
    }
    // SAFETY: the kernel just read this word.
    let table = unsafe { first_word(handle) };
    if !is_known(table) {
        return None; // garbage must not fill the cache
    }
    let page = handle.addr() / PAGE;
    SEEN[page % PAGES].store(page, Ordering::Relaxed);
    Some(table)
}

/// The table of an object that a provider has just made, known or not.
pub(crate) fn table_of_new(handle: DAT_HANDLE) -> Option<Table> {
    if handle.addr() < PAGE
        || !handle.addr().is_multiple_of(align_of::<usize>())
        || !is_readable(handle)
    {
        return None;
    }
    // SAFETY: the kernel just read this word.
    let table = unsafe { first_word(handle) };
    is_readable(table.cast_mut().cast()).then_some(Table(table))
}

/// # Safety
///
/// `handle` is aligned for a word and readable.
#[inline]
unsafe fn first_word(handle: DAT_HANDLE) -> *const DAT_PROVIDER {
    // Atomic: for a handle that is not valid, another thread may be writing there.
    // SAFETY: aligned and readable, as the caller says; an atomic load is a plain load on every target.
    unsafe { AtomicPtr::from_ptr(handle.cast::<*mut DAT_PROVIDER>()) }.load(Ordering::Relaxed)
}

/// Whether this is the table of a provider that is registered now.
#[inline]
pub fn is_known(table: *const DAT_PROVIDER) -> bool {
    slot_of(table).is_some()
}

#[inline]
fn slot_of(table: *const DAT_PROVIDER) -> Option<usize> {
    let end = KNOWN_END.load(Ordering::Acquire);
    let index =
        KNOWN.iter().take(end).position(|slot| ptr::eq(slot.load(Ordering::Relaxed), table))?;
    (!table.is_null()).then_some(index)
}

/// Whether a provider has the extension function: the table of one built without extensions ends before it.
#[inline]
pub fn is_extended(table: *const DAT_PROVIDER) -> bool {
    slot_of(table).is_some_and(|slot| EXTENDED[slot].load(Ordering::Relaxed))
}

/// Notes that a provider has extensions.
pub(crate) fn set_extended(table: Table) {
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = slot_of(table.0) {
        EXTENDED[slot].store(true, Ordering::Relaxed);
    }
}

/// Whether the aligned word at `address` can be read, asked of the kernel.
///
/// rt_sigprocmask copies the set in before it looks at `how`, so a `how` that does not exist changes nothing and
/// tells EFAULT from EINVAL. It needs no file descriptor, and unlike process_vm_readv no sandbox forbids it.
fn is_readable(address: DAT_HANDLE) -> bool {
    const NO_SUCH_OPERATION: libc::c_int = -1;
    const SIGSET_BYTES: usize = 8;
    // SAFETY: the kernel checks the address; nothing is written, and the signal mask is not changed.
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

/// Makes objects of this provider valid; `false` where there are too many providers. Idempotent.
pub(crate) fn admit(table: Table) -> bool {
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    if is_known(table.0) {
        return true;
    }
    let Some(free) = KNOWN.iter().position(|slot| slot.load(Ordering::Relaxed).is_null()) else {
        return false;
    };
    KNOWN[free].store(table.0.cast_mut(), Ordering::Relaxed);
    KNOWN_END.fetch_max(free + 1, Ordering::Release);
    true
}

/// Ends the validity of a provider's objects, and forgets pages: its memory may be unmapped next.
pub(crate) fn expel(table: Table) {
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = slot_of(table.0) {
        EXTENDED[slot].store(false, Ordering::Relaxed);
        KNOWN[slot].store(ptr::null_mut(), Ordering::Relaxed);
    }
    for page in &SEEN {
        page.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
