//! dat_ia_close.

use std::ffi::c_void;

use dat_sys::*;
use telemetry::Hex;
use tracing::info;
use waiting::nesting::{self, Activity, OtherThread};

use super::{Ia, sharing};
use crate::cno::{self, Cno};
use crate::conn::cr::{self, Cr};
use crate::conn::csp::{self, Csp};
use crate::conn::psp::{self, Psp};
use crate::conn::rsp::{self, Rsp};
use crate::ep::{self, Ep};
use crate::error::{Error, Result, no_memory};
use crate::evd::{self, Evd};
use crate::handle::{self, Node, Object, Retired};
use crate::mem::lmr::{self, Lmr};
use crate::mem::pz::{self, Pz};
use crate::mem::rmr::{self, Rmr};
use crate::provider::Transport;
use crate::srq::{self, Srq};
use crate::stats;

/// Implements dat_ia_close.
///
/// - A graceful close is refused while the consumer has objects left.
/// - An abrupt close also frees the objects of the adapter.
///
/// Both kinds of close also free the asynchronous EVD that dat_ia_open created. The call waits for
/// all threads that wait on objects of the adapter. If the call is made in a signal handler, this
/// very thread may be one of them. Then another thread waits and closes the adapter.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the adapter after the call.
pub unsafe fn close<T: Transport>(ia: &Node<Ia<T>>, flags: DAT_CLOSE_FLAGS) -> Result<()> {
    // SAFETY: the caller guarantees that nobody uses a reference to the adapter after this call if
    // it succeeds.
    unsafe { close_handle::<T>(ia.handle(), flags) }
}

/// Like [`close`], for the adapter with this handle.
///
/// # Safety
/// The requirements of [`close`] apply.
pub(crate) unsafe fn close_handle<T: Transport>(
    ia: *mut c_void,
    flags: DAT_CLOSE_FLAGS,
) -> Result<()> {
    // If no thread can be started, the adapter stays open.
    let other_thread = match nesting::interrupted_activity() {
        Activity::Nothing => None,
        Activity::Sleep | Activity::Work => Some(OtherThread::start().map_err(no_memory)?),
    };
    // SAFETY: the caller guarantees that nobody uses a reference to the adapter after this call if
    // it succeeds.
    let ia = unsafe { handle::with_exclusive(ia, |ia: &Node<Ia<T>>| begin_close(ia, flags)) }?;
    match other_thread {
        None => finish_close(ia, flags, || ()),
        Some(thread) => {
            thread.run(move |disconnected| finish_close(ia, flags, move || drop(disconnected)))
        }
    }
    Ok(())
}

/// The first half of dat_ia_close: makes the adapter's handle stale. After that, no more objects
/// are created.
///
/// # Safety
/// If this call succeeds, nobody uses a reference to the adapter after the call. On a thread-safe
/// adapter [`handle::with_exclusive`] calls this.
unsafe fn begin_close<T: Transport>(
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
    // SAFETY: `finish_close` waits for the threads that use its objects. The caller guarantees the
    // rest.
    let retired = unsafe { handle::retire(ia) }.ok_or(Error::handle(DAT_INVALID_HANDLE_IA))?;
    retired.set_closing();
    Ok(retired)
}

/// The second half of dat_ia_close: frees the adapter. The caller holds no lock. Calls
/// `disconnected` when the peers have been disconnected. From then on this function may wait for
/// other threads.
fn finish_close<T: Transport>(
    ia: Retired<Ia<T>>,
    flags: DAT_CLOSE_FLAGS,
    disconnected: impl FnOnce(),
) {
    if flags == DAT_CLOSE_ABRUPT_FLAG {
        destroy_objects(&ia);
    }
    disconnected();
    info!(target: "dat::ia", ia = ia.name, handle = %Hex(ia.handle() as usize), "closed");
    stats::remove_adapter(&ia);
    sharing::remove_reporters_to(&ia);
    sharing::remove_reporter(&ia);
    loop {
        // SAFETY: nobody uses the EVD during this call (see `for_each_object`).
        for_each_object::<T, Evd<T>, _>(
            &ia,
            |evd| unsafe { evd::begin_free(evd) },
            evd::finish_free,
        );
        // Another adapter that reports to one of these EVDs may be using the EVD at this moment. If
        // so, try again.
        if !ia.thread_safe || ia.objects(DAT_HANDLE_TYPE_EVD).is_empty() {
            break;
        }
        std::thread::yield_now();
    }
    ia.transport.watch(None);
    // Free the CNOs after the EVDs, because an EVD refers to its CNO.
    let free_cno = |cno: &Node<Cno<T>>| {
        cno.await_no_waiters();
        // SAFETY: nobody uses the CNO during this call (see `for_each_object`).
        unsafe { cno::free(cno) }
    };
    for_each_object(&ia, free_cno, drop);
    if !ia.pending_frees.finish() {
        // An object that could not be freed refers to the adapter for ever, so the memory of both
        // stays allocated.
        return;
    }
    // Wait for calls of other threads that have freed the last objects but have not returned yet.
    while ia.object_count() == 0 && ia.in_use() {
        std::thread::yield_now();
    }
    // SAFETY: no object of the adapter is left, and no call uses it. If the adapter is not
    // thread-safe, the caller of `close` guarantees that.
    let removed = unsafe { ia.reclaim() };
    let unused = !removed.in_use();
    debug_assert!(unused, "a call or object still uses adapter {}", removed.name);
    if !unused {
        // Leaking the memory is better than using it after it was freed.
        std::mem::forget(removed);
    }
}

/// Frees all objects except EVDs and CNOs. Frees each object before the objects on which it
/// depends. Makes the threads that wait on EVDs and CNOs leave.
fn destroy_objects<T: Transport>(ia: &Node<Ia<T>>) {
    let interrupt = |evd: &Node<Evd<T>>| {
        evd.interrupt_waiter();
        Ok(())
    };
    for_each_object(ia, interrupt, drop);
    let shut_down = |cno: &Node<Cno<T>>| {
        cno.shut_down();
        Ok(())
    };
    for_each_object(ia, shut_down, drop);
    // A call of another thread that is in progress may have created one more object, or may still
    // use an object. If so, try again.
    loop {
        destroy_other_objects(ia);
        let kinds = [DAT_HANDLE_TYPE_EVD, DAT_HANDLE_TYPE_CNO].map(|kind| ia.objects(kind).len());
        if !ia.thread_safe || ia.object_count() <= kinds.iter().sum() {
            return;
        }
        std::thread::yield_now();
    }
}

fn destroy_other_objects<T: Transport>(ia: &Node<Ia<T>>) {
    // SAFETY: nobody uses the objects during this call (see `for_each_object`).
    unsafe {
        for_each_object::<T, Psp<T>, _>(ia, |psp| psp::free(psp), drop);
        for_each_object::<T, Csp<T>, _>(ia, |csp| csp::free(csp), drop);
        for_each_object::<T, Rsp<T>, _>(ia, |rsp| rsp::free(rsp), drop);
        // Dropping the withdrawn request frees the request's endpoint, so drop it without the lock
        // of the request.
        for_each_object::<T, Cr<T>, _>(ia, |cr| Ok(cr::begin_abandon(cr)), drop);
        for_each_object::<T, Ep<T>, _>(ia, |ep| ep::free(ep), drop);
        for_each_object::<T, Srq<T>, _>(ia, |srq| srq::free(srq), drop);
        for_each_object::<T, Rmr<T>, _>(ia, |rmr| rmr::free(rmr), drop);
        for_each_object::<T, Lmr<T>, _>(ia, |lmr| lmr::free(lmr), drop);
        for_each_object::<T, Pz<T>, _>(ia, |pz| pz::free(pz), drop);
    }
}

/// Calls `free` for every object of a type. No other call uses the object during `free`. Then calls
/// `then` with the result, without the lock of the object.
fn for_each_object<T: Transport, O: Object, V>(
    ia: &Node<Ia<T>>,
    free: impl Fn(&Node<O>) -> Result<V>,
    then: impl Fn(V),
) {
    for handle in ia.objects(O::KIND) {
        // SAFETY: if the adapter is not thread-safe, the standard makes the consumer responsible
        // for not using or freeing what is being closed.
        let freed = unsafe { handle::with_exclusive(handle, &free) }.map(&then);
        // Another thread may have freed the object, or may be in a call that uses it.
        debug_assert!(
            freed.is_ok() || ia.thread_safe,
            "{handle:p} of adapter {}: {:?}",
            ia.name,
            freed.err()
        );
    }
}
