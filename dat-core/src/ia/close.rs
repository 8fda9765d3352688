//! dat_ia_close.

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
use crate::handle::{self, Node, Object, Retired};
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
    // SAFETY: as the caller promised.
    unsafe {
        end_close(handle::free(ia.handle(), |ia: &Node<Ia<T>>| begin_close(ia, flags))?, flags)
    }
}

/// The first half of dat_ia_close: the handle is stale, and no more objects are made.
///
/// # Safety
/// Nobody uses a reference to it any more, if this succeeds: on a thread-safe adapter [`handle::free`] calls this.
pub(crate) unsafe fn begin_close<T: Transport>(
    ia: &Node<Ia<T>>,
    flags: DAT_CLOSE_FLAGS,
) -> Result<Retired<Ia<T>>> {
    match flags {
        DAT_CLOSE_GRACEFUL_FLAG => {
            if ia.object_count() > usize::from(ia.owns_async_evd()) {
                return Err(Error::state(DAT_INVALID_STATE_IA_IN_USE));
            }
        }
        DAT_CLOSE_ABRUPT_FLAG => {}
        _ => return Err(Error::arg(2)),
    }
    // SAFETY: those who use its objects are waited for; the caller has promised the rest.
    let retired = unsafe { handle::retire(ia) }.ok_or(Error::handle(DAT_INVALID_HANDLE_IA))?;
    retired.set_closing();
    Ok(retired)
}

/// The second half, without any lock.
///
/// # Safety
/// As [`close`].
pub(crate) unsafe fn end_close<T: Transport>(
    ia: Retired<Ia<T>>,
    flags: DAT_CLOSE_FLAGS,
) -> Result<()> {
    if nesting::below() == Doing::Nothing {
        finish(ia, flags, || ());
        return Ok(());
    }
    nesting::later(move |told| finish(ia, flags, move || drop(told)))
}

/// Closes it. `tell`s when the peers have been told, and only threads that wait are left.
fn finish<T: Transport>(ia: Retired<Ia<T>>, flags: DAT_CLOSE_FLAGS, tell: impl FnOnce()) {
    if flags == DAT_CLOSE_ABRUPT_FLAG {
        destroy_objects(&ia);
    }
    tell();
    info!(target: "dat::ia", ia = ia.name, handle = %Hex(ia.handle() as usize), "closed");
    stats::leave(&ia);
    sharing::expel(&ia);
    sharing::leave(&ia);
    loop {
        // SAFETY: as `each` has it.
        each::<T, Evd<T>, _>(&ia, |evd| unsafe { evd::begin_free(evd) }, evd::finish);
        // Another adapter that has reported to one may be looking at it just now.
        if !ia.thread_safe || ia.objects(DAT_HANDLE_TYPE_EVD).is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    ia.transport.watch(None);
    // Only now: a dispatcher refers to its notification object.
    let free_cno = |cno: &Node<Cno<T>>| {
        cno.await_desertion();
        // SAFETY: as `each` has it.
        unsafe { cno::free(cno) }
    };
    each(&ia, free_cno, drop);
    ia.await_lingering();
    // Calls of other threads that have freed the last objects may be on their way out.
    while ia.object_count() == 0 && ia.in_use() {
        std::thread::yield_now();
    }
    // SAFETY: nothing of the adapter is left, and no call is in it; else as `close` was promised.
    let gone = unsafe { ia.reclaim() };
    let unused = !gone.in_use();
    debug_assert!(unused, "an object of adapter {} outlived it", gone.name);
    if !unused {
        // Memory lost is better than memory used after it was freed.
        std::mem::forget(gone);
    }
}

/// Everything but EVDs and CNOs, whose waiters are told to leave: users before what they use.
fn destroy_objects<T: Transport>(ia: &Node<Ia<T>>) {
    let interrupt = |evd: &Node<Evd<T>>| {
        evd.interrupt_waiter();
        Ok(())
    };
    each(ia, interrupt, drop);
    let abandon = |cno: &Node<Cno<T>>| {
        cno.abandon();
        Ok(())
    };
    each(ia, abandon, drop);
    // A call of another thread that was under way may have made one more object, or has one in use until it ends.
    loop {
        destroy_each(ia);
        let kinds = [DAT_HANDLE_TYPE_EVD, DAT_HANDLE_TYPE_CNO].map(|kind| ia.objects(kind).len());
        if !ia.thread_safe || ia.object_count() <= kinds.iter().sum() {
            return;
        }
        std::thread::yield_now();
    }
}

fn destroy_each<T: Transport>(ia: &Node<Ia<T>>) {
    // SAFETY: as `each` has it.
    unsafe {
        each::<T, Psp<T>, _>(ia, |psp| psp::free(psp), drop);
        each::<T, Csp<T>, _>(ia, |csp| csp::free(csp), drop);
        each::<T, Rsp<T>, _>(ia, |rsp| rsp::free(rsp), drop);
        // Its endpoint is freed without the lock of the request.
        each::<T, Cr<T>, _>(ia, |cr| Ok(cr::to_abandon(cr)), drop);
        each::<T, Ep<T>, _>(ia, |ep| ep::free(ep), drop);
        each::<T, Srq<T>, _>(ia, |srq| srq::free(srq), drop);
        each::<T, Rmr<T>, _>(ia, |rmr| rmr::free(rmr), drop);
        each::<T, Lmr<T>, _>(ia, |lmr| lmr::free(lmr), drop);
        each::<T, Pz<T>, _>(ia, |pz| pz::free(pz), drop);
    }
}

/// Does something to every object of a kind, perhaps frees it, when no other call uses it, and then something
/// without its lock.
fn each<T: Transport, O: Object, V>(
    ia: &Node<Ia<T>>,
    free: impl Fn(&Node<O>) -> Result<V>,
    then: impl Fn(V),
) {
    for handle in ia.objects(O::KIND) {
        // SAFETY: if the adapter is not thread-safe, the standard leaves it to the consumer not to use or
        // free what is being closed.
        let freed = unsafe { handle::free(handle, &free) }.map(&then);
        // Another thread may have freed it, or be in a call that has it in use.
        debug_assert!(
            freed.is_ok() || ia.thread_safe,
            "{handle:p} of adapter {}: {:?}",
            ia.name,
            freed.err()
        );
    }
}
