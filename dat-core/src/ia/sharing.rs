//! Adapters that report asynchronous errors to a dispatcher of another open of the same adapter.
//!
//! An adapter goes with all its dispatchers, whoever else uses them; so it must be possible to find those who do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::*;

use super::Ia;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Node, Pin, Ref};
use crate::provider::Transport;

/// A dispatcher, by its handle, and an adapter that reports to it but does not own it, by the address of its
/// `Node<Ia<T>>`. Both are made of the same transport.
struct Share {
    evd: usize,
    ia: usize,
}

/// Taken by every open, close and cascade that concerns a shared dispatcher; no lock but leaves is taken under it.
fn shares() -> MutexGuard<'static, Vec<Share>> {
    static SHARES: Mutex<Vec<Share>> = Mutex::new(Vec::new());
    SHARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A dispatcher for asynchronous errors of an adapter of that name.
///
/// # Safety
/// As [`handle::pin`].
pub(super) unsafe fn check<T: Transport>(evd: DAT_EVD_HANDLE, name: &str) -> Result<Pin<Evd<T>>> {
    let invalid = Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC);
    // SAFETY: as the caller promised.
    let evd = unsafe { handle::pin::<Evd<T>>(evd) };
    let evd = evd.map_err(|error| error.about(DAT_INVALID_HANDLE_EVD_ASYNC))?;
    if evd.flags & DAT_EVD_ASYNC_FLAG != 0 && evd.ia.name == name { Ok(evd) } else { Err(invalid) }
}

/// From here on `ia` reports to `evd`.
pub(super) fn join<T: Transport>(ia: &Node<Ia<T>>, evd: &Node<Evd<T>>) -> Result<()> {
    let mut shares = shares();
    // Its adapter has told everyone who reports to its dispatchers, or is about to.
    if evd.ia.is_closing() {
        return Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC));
    }
    shares.push(Share { evd: evd.handle() as usize, ia: std::ptr::from_ref(ia).addr() });
    ia.set_async_evd(Some(Ref::new(evd)));
    Ok(())
}

/// `ia` reports to nobody any more.
pub(super) fn leave<T: Transport>(ia: &Node<Ia<T>>) {
    let mut shares = shares();
    shares.retain(|share| share.ia != std::ptr::from_ref(ia).addr());
    ia.set_async_evd(None);
}

/// Nobody reports to the dispatchers of `ia` any more.
pub(super) fn expel<T: Transport>(ia: &Node<Ia<T>>) {
    let mut shares = shares();
    let evds = ia.objects(DAT_HANDLE_TYPE_EVD);
    shares.retain(|share| {
        let ours = evds.contains(&(share.evd as DAT_EVD_HANDLE));
        if ours {
            // SAFETY: an adapter leaves, under the lock held here, before it goes; it is of the dispatcher's transport.
            unsafe { &*(share.ia as *const Node<Ia<T>>) }.set_async_evd(None);
        }
        !ours
    });
}
