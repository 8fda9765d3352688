//! Between C's arguments and ours.

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_sys::*;

use crate::allocate::{ADAPTER, OBJECT, find_room};
use crate::ep::post::MAX_SEGMENTS;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle::{self, Pin};
use crate::log;
use crate::nesting::{self, Doing};
use crate::provider::{Segment, Transport};

/// Defines control functions of the table: `extern "C"`, returning a `DAT_RETURN`, with a body that is a
/// `Result<()>` and unsafe by what all of them presume: a handle is any word, a pointer is NULL or leads to
/// what the prototype says, and, unless the adapter is thread-safe, nobody frees an object that another call
/// is using. The body keeps the objects of a thread-safe adapter: it pins those that are named beside the
/// first, and then uses the first by [`handle::on`], or frees it by [`handle::free`].
macro_rules! slots {
    ($($(#[$attr:meta])* fn $name:ident<T $(, $safe:ident)?>($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* })*) => {$(
        $(#[$attr])*
        #[allow(clippy::too_many_arguments)] // the standard's prototypes
        pub(super) unsafe extern "C" fn $name<T: Transport $(, const $safe: bool)?>($($arg: $type),*) -> DAT_RETURN {
            let called = ($crate::export::convert::first!($($arg),*), stringify!($name));
            // SAFETY: what the macro says all of them presume; C keeps to the standard or is told of its mistake.
            $crate::export::convert::call(called, || unsafe { $($body)* })
        }
    )*};
}
pub(super) use slots;

/// The first argument of a control call is a handle.
macro_rules! first {
    ($handle:ident $(, $rest:ident)*) => {
        $handle as usize
    };
}
pub(super) use first;

/// Runs a control call of that name on a handle. A panic, which is a mistake of ours, does not reach C.
pub(super) fn call((handle, name): (usize, &str), f: impl FnOnce() -> Result<()>) -> DAT_RETURN {
    let _call = nesting::enter();
    if nesting::below() == Doing::Work && !OVER_WORK.contains(&name) {
        return refused_over_work(name, handle);
    }
    let room = match name {
        "ia_open" => find_room(ADAPTER),
        _ if NEED_ROOM.contains(&name) => find_room(OBJECT),
        _ => Ok(()),
    };
    // Locks are used after a panic too (`PoisonError::into_inner`), so what was interrupted can at least be closed.
    let result = room.and_then(|()| {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or(Err(Error::of(DAT_INTERNAL_ERROR)))
    });
    log::called(name, handle, result);
    code(result)
}

/// The calls that allocate much in many places: they make something, or end a connection, or everything.
/// dat_lmr_create is not among them: programs call it often, so each of its allocations may fail.
const NEED_ROOM: &[&str] = &[
    "cno_create",
    "cno_fd_create",
    "cr_accept",
    "cr_handoff",
    "cr_reject",
    "csp_create",
    "ep_common_connect",
    "ep_connect",
    "ep_create",
    "ep_create_with_srq",
    "ep_disconnect",
    "ep_dup_connect",
    "ep_modify",
    "ep_reset",
    "evd_create",
    "evd_resize",
    "ia_close",
    "psp_create",
    "psp_create_any",
    "pz_create",
    "rmr_create",
    "rmr_create_for_ep",
    "rsp_create",
    "srq_create",
    "srq_resize",
];

/// What a signal handler may call while its thread is at work below it. What closes something is done when
/// that work has ended; the rest waits for nobody. All else would wait for ever.
const OVER_WORK: &[&str] = &[
    "ia_close",
    "evd_free",
    "cno_free",
    "evd_post_se",
    "evd_set_unwaitable",
    "evd_clear_unwaitable",
    "set_consumer_context",
    "get_consumer_context",
    "get_handle_type",
    "ia_query",
];

#[cold]
fn refused_over_work(name: &str, handle: usize) -> DAT_RETURN {
    let error = Error::of(DAT_ABORT);
    log::called(name, handle, Err(error));
    error.code()
}

/// The result as C wants it.
#[inline]
pub(in crate::export) fn code(result: Result<()>) -> DAT_RETURN {
    match result {
        Ok(()) => DAT_SUCCESS,
        Err(error) => error.code(),
    }
}

/// The same of the data path, where only what is refused is told. That a queue is empty is no refusal.
#[inline]
pub(super) fn hot_code((handle, name): (usize, &str), result: Result<()>) -> DAT_RETURN {
    if let Err(error) = result
        && error.kind() != DAT_QUEUE_EMPTY
    {
        refused(name, handle, error);
    }
    code(result)
}

#[cold]
fn refused(name: &str, handle: usize, error: Error) {
    log::called(name, handle, Err(error));
}

/// Runs `f` alone on a handle if the table is thread-safe: posts, dequeues, and whatever takes away what they use.
#[inline]
pub(super) fn alone<const SAFE: bool, V>(
    handle: *mut c_void,
    f: impl FnOnce() -> Result<V>,
) -> Result<V> {
    match handle::slot(handle) {
        Some(slot) if SAFE => slot.locked(f),
        _ => f(),
    }
}

/// An out argument; `arg` is its position.
///
/// # Safety
/// The pointer is NULL or may be written to.
pub(super) unsafe fn out<'a, V>(ptr: *mut V, arg: u32) -> Result<&'a mut MaybeUninit<V>> {
    // SAFETY: as the caller promised.
    unsafe { ptr.cast::<MaybeUninit<V>>().as_mut() }.ok_or(Error::arg(arg))
}

/// Answers a query. The mask, at position `arg`, may name the bits of `all`; the record follows it and may be NULL if
/// nothing is asked for.
///
/// # Safety
/// The pointer is NULL or may be written to.
pub(super) unsafe fn query<V>(
    (mask, all, arg): (u64, u64, u32),
    record: *mut V,
    blank: V,
    fill: impl FnOnce(&mut V),
) -> Result<()> {
    if mask & !all != 0 {
        return Err(Error::arg(arg));
    }
    if mask != 0 {
        // The standard lets providers return fields that were not asked for.
        let mut filled = blank;
        // SAFETY: as the caller promised.
        let record = unsafe { out(record, arg + 1) }?;
        fill(&mut filled);
        record.write(filled);
    }
    Ok(())
}

/// Private data at positions `arg` (its size) and `arg + 1`.
///
/// # Safety
/// The pointer is NULL or leads to `size` bytes.
pub(super) unsafe fn private<'a>(size: DAT_COUNT, data: DAT_PVOID, arg: u32) -> Result<&'a [u8]> {
    match usize::try_from(size) {
        Ok(0) => Ok(&[]),
        Ok(_) if data.is_null() => Err(Error::arg(arg + 1)),
        // SAFETY: as the caller promised.
        Ok(size) => Ok(unsafe { std::slice::from_raw_parts(data.cast_const().cast(), size) }),
        Err(_) => Err(Error::arg(arg)),
    }
}

const _: () = {
    assert!(size_of::<DAT_LMR_TRIPLET>() == size_of::<Segment>());
    assert!(align_of::<DAT_LMR_TRIPLET>() == align_of::<Segment>());
    assert!(offset_of!(DAT_LMR_TRIPLET, virtual_address) == offset_of!(Segment, addr));
    assert!(offset_of!(DAT_LMR_TRIPLET, segment_length) == offset_of!(Segment, len));
    assert!(offset_of!(DAT_LMR_TRIPLET, lmr_context) == offset_of!(Segment, key));
};

/// Room for the segments of a post that are not aligned: programs keep them in packed records of their own,
/// which processors do not mind.
pub(super) struct Aligned([MaybeUninit<Segment>; MAX_SEGMENTS]);

impl Aligned {
    #[inline]
    pub(super) fn new() -> Self {
        Aligned([const { MaybeUninit::uninit() }; MAX_SEGMENTS])
    }

    /// # Safety
    /// The pointer leads to `count` segments, at most `MAX_SEGMENTS`, at any address.
    #[cold]
    unsafe fn copy(&mut self, iov: *const Segment, count: usize) -> &[Segment] {
        // SAFETY: as the caller promised; octets have no alignment. What was copied is initialised.
        unsafe {
            let octets = count * size_of::<Segment>();
            std::ptr::copy_nonoverlapping(
                iov.cast::<u8>(),
                self.0.as_mut_ptr().cast::<u8>(),
                octets,
            );
            std::slice::from_raw_parts(self.0.as_ptr().cast(), count)
        }
    }
}

/// The segments of a post, at positions 2 (their number) and 3.
///
/// # Safety
/// The pointer is NULL or leads to `count` triplets, at any address, if these are not more than `MAX_SEGMENTS`.
#[inline]
pub(super) unsafe fn segments(
    count: DAT_COUNT,
    iov: *const DAT_LMR_TRIPLET,
    aligned: &mut Aligned,
) -> Result<&[Segment]> {
    // A triplet has the layout of a segment, see above.
    let iov = iov.cast::<Segment>();
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(1..=MAX_SEGMENTS) if iov.is_null() => Err(Error::arg(3)),
        // SAFETY: as the caller promised.
        Ok(count @ 1..=MAX_SEGMENTS) if !iov.is_aligned() => {
            Ok(unsafe { aligned.copy(iov, count) })
        }
        // SAFETY: likewise, and aligned.
        Ok(count @ 1..=MAX_SEGMENTS) => Ok(unsafe { std::slice::from_raw_parts(iov, count) }),
        _ => Err(Error::arg(2)),
    }
}

/// Pins an event dispatcher that a call names. `invalid` is the subtype of the error where the handle is invalid: it
/// says which of the call's arguments that is.
///
/// # Safety
/// As [`handle::pin`].
pub(super) unsafe fn evd<T: Transport>(
    evd: DAT_EVD_HANDLE,
    invalid: DAT_RETURN,
) -> Result<Pin<Evd<T>>> {
    // SAFETY: as the caller promised.
    unsafe { handle::pin(evd) }.map_err(|error| error.about(invalid))
}
