//! Adapters that report asynchronous errors to an EVD of another open of the same adapter.
//!
//! When an adapter is closed, all its EVDs are freed, even if other adapters report to them.
//! Therefore this module keeps a list of those other adapters, by which they are found and
//! detached.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use super::Ia;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Pin, Ref};
use crate::provider::Transport;

/// An adapter that reports to an EVD of another adapter. `evd` is the handle of the EVD, and `ia`
/// is the address of the `Node<Ia<T>>` of the adapter that reports. Both adapters have the same
/// transport.
struct Reporter {
    evd: usize,
    ia: usize,
}

/// Locks the list of reporters. Every open, close and removal that concerns a shared EVD takes this
/// lock. A thread that holds it takes only locks under which no other lock is taken.
fn reporters() -> MutexGuard<'static, Vec<Reporter>> {
    static REPORTERS: Mutex<Vec<Reporter>> = Mutex::new(Vec::new());
    REPORTERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that `evd` is an EVD for asynchronous errors that belongs to an adapter with this name,
/// and pins the EVD.
///
/// # Safety
/// The requirements of [`handle::pin`] apply.
pub(super) unsafe fn check<T: Transport>(evd: DAT_EVD_HANDLE, name: &str) -> Result<Pin<Evd<T>>> {
    let invalid = Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC);
    // SAFETY: the caller guarantees that nobody frees the EVD during this call, unless its adapter
    // is thread-safe.
    let evd = unsafe { handle::pin::<Evd<T>>(evd) };
    let evd = evd.map_err(|error| error.with_subtype(DAT_INVALID_HANDLE_EVD_ASYNC))?;
    if evd.flags & DAT_EVD_ASYNC_FLAG != 0 && evd.ia.name == name { Ok(evd) } else { Err(invalid) }
}

/// Makes `ia` report its asynchronous errors to `evd` from now on.
pub(super) fn add_reporter<T: Transport>(ia: &Node<Ia<T>>, evd: &Node<Evd<T>>) -> Result<()> {
    let mut reporters = reporters();
    // An adapter that is being closed has already detached the adapters that report to its EVDs, or
    // is about to do so. So no adapter may be added.
    if evd.ia.is_closing() {
        return Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC));
    }
    reporters.push(Reporter { evd: evd.handle() as usize, ia: std::ptr::from_ref(ia).addr() });
    ia.set_async_evd(Some(Ref::new(evd)));
    Ok(())
}

/// Makes `ia` stop reporting its asynchronous errors to any EVD.
pub(super) fn remove_reporter<T: Transport>(ia: &Node<Ia<T>>) {
    let mut reporters = reporters();
    reporters.retain(|reporter| reporter.ia != std::ptr::from_ref(ia).addr());
    ia.set_async_evd(None);
}

/// Detaches all adapters that report to the EVDs of `ia`.
pub(super) fn remove_reporters_to<T: Transport>(ia: &Node<Ia<T>>) {
    let mut reporters = reporters();
    let evds = ia.objects(DAT_HANDLE_TYPE_EVD);
    reporters.retain(|reporter| {
        let ours = evds.contains(&(reporter.evd as DAT_EVD_HANDLE));
        if ours {
            // SAFETY: the lock is held here. An adapter removes itself from the list under this
            // lock before it is freed. Its transport is the transport of the EVD.
            unsafe { &*(reporter.ia as *const Node<Ia<T>>) }.set_async_evd(None);
        }
        !ours
    });
}
