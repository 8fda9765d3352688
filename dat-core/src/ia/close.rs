//! dat_ia_close.

use std::ffi::c_void;

use dat_sys::*;
use tracing::info;

use super::{Ia, sharing};
use crate::cno::{self, Cno};
use crate::conn::cr::{self, Cr};
use crate::conn::csp::{self, Csp};
use crate::conn::psp::{self, Psp};
use crate::conn::rsp::{self, Rsp};
use crate::ep::{self, Ep};
use crate::error::{Error, Result};
use crate::evd::{self, Evd};
use crate::handle::{self, Node, Object};
use crate::log::Hex;
use crate::mem::lmr::{self, Lmr};
use crate::mem::pz::{self, Pz};
use crate::mem::rmr::{self, Rmr};
use crate::nesting::{self, Doing};
use crate::provider::Transport;
use crate::srq::{self, Srq};
use crate::stats;

/// dat_ia_close. Graceful: refused while the consumer has objects left. Abrupt: they go with the adapter.
/// Either way the asynchronous EVD that dat_ia_open made goes too. It waits for all threads that wait on objects of the adapter, unless
/// this may be one of them, in a signal handler.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds.
pub unsafe fn close<T: Transport>(ia: &Node<Ia<T>>, flags: DAT_CLOSE_FLAGS) -> Result<()> {
    match flags {
        DAT_CLOSE_GRACEFUL_FLAG => {
            if ia.object_count() > usize::from(ia.owns_async_evd()) {
                return Err(Error::state(DAT_INVALID_STATE_IA_IN_USE));
            }
        }
        DAT_CLOSE_ABRUPT_FLAG => {}
        _ => return Err(Error::arg(2)),
    }
    if nesting::below() == Doing::Nothing {
        finish(ia, flags, || ());
        return Ok(());
    }
    ia.set_closing();
    let handle = ia.handle() as usize;
    nesting::later(move |told| {
        // SAFETY: the standard leaves it to the consumer not to close an adapter twice.
        if let Ok(ia) = unsafe { handle::get::<Ia<T>>(handle as *mut c_void) } {
            finish(ia, flags, move || drop(told));
        }
    })
}

/// Closes it. `tell`s when the peers have been told, and only threads that wait are left.
fn finish<T: Transport>(ia: &Node<Ia<T>>, flags: DAT_CLOSE_FLAGS, tell: impl FnOnce()) {
    if flags == DAT_CLOSE_ABRUPT_FLAG {
        destroy_objects(ia);
    }
    tell();
    info!(target: "dat::ia", ia = ia.name, handle = %Hex(ia.handle() as usize), "closed");
    stats::leave(ia);
    sharing::expel(ia);
    sharing::leave(ia);
    each::<T, Evd<T>>(ia, evd::free);
    ia.transport.watch(None);
    // Only now: a dispatcher refers to its notification object.
    each::<T, Cno<T>>(ia, |cno| {
        cno.await_desertion();
        // SAFETY: as `each` has it.
        unsafe { cno::free(cno) }
    });
    ia.await_lingering();
    // SAFETY: nothing of the adapter is left, and the standard leaves a concurrent use to the consumer.
    if let Some(gone) = unsafe { handle::remove(ia) } {
        let unused = !gone.in_use();
        debug_assert!(unused, "an object of adapter {} outlived it", gone.name);
        if !unused {
            // Memory lost is better than memory used after it was freed.
            std::mem::forget(gone);
        }
    }
}

/// Everything but EVDs and CNOs, whose waiters are told to leave: users before what they use.
fn destroy_objects<T: Transport>(ia: &Node<Ia<T>>) {
    ia.set_closing();
    each::<T, Evd<T>>(ia, |evd| {
        evd.interrupt_waiter();
        Ok(())
    });
    each::<T, Cno<T>>(ia, |cno| {
        cno.abandon();
        Ok(())
    });
    each::<T, Psp<T>>(ia, psp::free);
    each::<T, Csp<T>>(ia, csp::free);
    each::<T, Rsp<T>>(ia, rsp::free);
    each::<T, Cr<T>>(ia, cr::abandon);
    each::<T, Ep<T>>(ia, ep::free);
    each::<T, Srq<T>>(ia, srq::free);
    each::<T, Rmr<T>>(ia, rmr::free);
    each::<T, Lmr<T>>(ia, lmr::free);
    each::<T, Pz<T>>(ia, pz::free);
}

/// Does something to every object of a kind, perhaps frees it.
fn each<T: Transport, O: Object>(ia: &Node<Ia<T>>, free: unsafe fn(&Node<O>) -> Result<()>) {
    for handle in ia.objects(O::KIND) {
        // SAFETY: the standard leaves it to the consumer not to use or free what is being closed.
        if let Ok(node) = unsafe { handle::get::<O>(handle) } {
            // SAFETY: as above.
            let freed = unsafe { free(node) };
            debug_assert!(freed.is_ok(), "{handle:p} of adapter {}: {freed:?}", ia.name);
        }
    }
}
