//! Converts the arguments and results of C functions.

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_sys::*;
use waiting::nesting::{self, Activity};

use crate::allocate::{ADAPTER_BYTES, OBJECT_BYTES, check_room};
use crate::ep::post::MAX_SEGMENTS;
use crate::error::{Error, Result, no_memory};
use crate::evd::Evd;
use crate::handle::{self, Pin};
use crate::log;
use crate::provider::{Segment, Transport};

/// Defines control functions of the table, which are `extern "C"` and return a `DAT_RETURN`. The
/// body of such a function is an unsafe `Result<()>`, because it makes these assumptions:
///
/// - A handle may be any word.
/// - A pointer is NULL or leads to what the prototype says.
/// - Unless the adapter is thread-safe, nobody frees an object that another call is using.
///
/// On a thread-safe adapter, the body itself keeps objects alive. It first pins the objects that
/// all arguments except the first name. Then it uses the object of the first argument with
/// [`handle::with_object`], or frees that object with [`handle::with_exclusive`].
macro_rules! control_functions {
    ($(
        $(#[$attr:meta])*
        fn $name:ident<T $(, $safe:ident)?>($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* }
    )*) => {$(
        $(#[$attr])*
        #[allow(clippy::too_many_arguments)] // the standard's prototypes
        pub(super) unsafe extern "C" fn $name<T: Transport $(, const $safe: bool)?>(
            $($arg: $type),*
        ) -> DAT_RETURN {
            let call = &const { $crate::export::convert::Call::new(stringify!($name)) };
            let handle = $crate::export::convert::first_argument!($($arg),*);
            // SAFETY: C code that satisfies the standard's prototype also satisfies the assumptions
            // that the macro documents.
            $crate::export::convert::control_call(call, handle, || unsafe { $($body)* })
        }
    )*};
}
pub(super) use control_functions;

/// Defines control functions that wait, as `control_functions!` does. They are cancellation points
/// (see [`waiting::cancel`]). The body calls `cancel::begin_wait` before it sleeps.
macro_rules! waiting_functions {
    ($(
        $(#[$attr:meta])*
        fn $name:ident<T $(, $safe:ident)?>($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* }
    )*) => {$(
        $(#[$attr])*
        pub(super) unsafe extern "C-unwind" fn $name<T: Transport $(, const $safe: bool)?>(
            $($arg: $type),*
        ) -> DAT_RETURN {
            let call = &const { $crate::export::convert::Call::waiting(stringify!($name)) };
            let handle = $crate::export::convert::first_argument!($($arg),*);
            let make = || {
                // SAFETY: C code that satisfies the standard's prototype also satisfies the
                // assumptions that `control_functions!` documents.
                $crate::export::convert::control_call(call, handle, || unsafe { $($body)* })
            };
            // SAFETY: `make` captures only arguments of this function. This frame, and those of the
            // functions that forward a call of the consumer to this one, contain nothing that has a
            // destructor, and these functions are `extern "C-unwind"`.
            unsafe { ::waiting::cancel::cancellation_point(::dat_sys::DAT_SUCCESS, make) }
        }
    )*};
}
pub(super) use waiting_functions;

/// The handle that is the first argument of a control call.
macro_rules! first_argument {
    ($handle:ident $(, $rest:ident)*) => {
        $handle as usize
    };
}
pub(super) use first_argument;

/// A control call.
pub(super) struct Call {
    name: &'static str,
    /// The memory that must be free, in octets.
    room: Option<usize>,
    is_callable_in_handler: bool,
    /// Whether the call waits for an event. It then disables cancellation itself.
    waits: bool,
}

impl Call {
    /// Looks the call up in the lists below. This is done when the library is compiled, because
    /// dat_evd_wait is called for each event.
    pub(super) const fn new(name: &'static str) -> Self {
        let room = match name.as_bytes() {
            b"ia_open" => Some(ADAPTER_BYTES),
            _ if contains(ALLOCATING_CALLS, name) => Some(OBJECT_BYTES),
            _ => None,
        };
        let is_callable_in_handler = contains(CALLABLE_IN_HANDLER, name);
        Call { name, room, is_callable_in_handler, waits: false }
    }

    /// Looks up a call that waits.
    pub(super) const fn waiting(name: &'static str) -> Self {
        Call { waits: true, ..Self::new(name) }
    }
}

const fn contains(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        if is_equal(names[i].as_bytes(), name.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Runs a control call and logs its result. `handle` is the first argument of the call. A panic,
/// which would be a bug of this library, does not reach C.
pub(super) fn control_call(
    &Call { name, room, is_callable_in_handler, waits }: &Call,
    handle: usize,
    f: impl FnOnce() -> Result<()>,
) -> DAT_RETURN {
    let _call = nesting::enter(!waits);
    if nesting::interrupted_activity() == Activity::Work && !is_callable_in_handler {
        return refuse_in_handler(name, handle);
    }
    let room = room.map_or(Ok(()), check_room);
    // After a panic, locks are still usable (`PoisonError::into_inner`). So the consumer can at
    // least close the objects that the interrupted call used.
    let result = room.and_then(|()| {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or(Err(Error::of(DAT_INTERNAL_ERROR)))
    });
    log::log_call(name, handle, result);
    code(result)
}

/// Runs `f` on the handle in order to free or close its object. If the signal handler that makes
/// this call has interrupted work of this thread, `f` runs in another thread.
pub(super) fn defer_if_working(
    handle: *mut c_void,
    f: impl FnOnce(*mut c_void) -> Result<()> + Send + 'static,
) -> Result<()> {
    if nesting::interrupted_activity() != Activity::Work {
        return f(handle);
    }
    let handle = handle as usize;
    // Ignore the result of `f`, because there is no caller left to whom an error could be returned.
    let deferred = nesting::in_other_thread(move |_| {
        let _ = f(handle as *mut c_void);
    });
    deferred.map_err(no_memory)
}

/// The calls that allocate much memory in many places, because they create an object, end a
/// connection or close an adapter. dat_lmr_create is not in this list, because programs call it
/// often. Instead, each allocation of dat_lmr_create may fail.
const ALLOCATING_CALLS: &[&str] = &[
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

/// The calls that a signal handler may make if its signal has interrupted another call of the
/// library. If such a call frees an object, it takes effect when the interrupted call has ended.
/// The other calls in this list never wait. A call that is not in this list could wait forever for
/// a lock that the interrupted call holds.
const CALLABLE_IN_HANDLER: &[&str] = &[
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
fn refuse_in_handler(name: &str, handle: usize) -> DAT_RETURN {
    let error = Error::of(DAT_ABORT);
    log::log_call(name, handle, Err(error));
    error.code()
}

/// Returns the result as a status for C.
#[inline]
pub(in crate::export) fn code(result: Result<()>) -> DAT_RETURN {
    match result {
        Ok(()) => DAT_SUCCESS,
        Err(error) => error.code(),
    }
}

/// Returns the result of a call of the data path as a status for C. Logs the call only if it is
/// refused. Finding a queue empty is not a refusal.
#[inline]
pub(super) fn data_path_code((handle, name): (usize, &str), result: Result<()>) -> DAT_RETURN {
    if let Err(error) = result
        && error.kind() != DAT_QUEUE_EMPTY
    {
        log_refusal(name, handle, error);
    }
    code(result)
}

#[cold]
fn log_refusal(name: &str, handle: usize, error: Error) {
    log::log_call(name, handle, Err(error));
}

/// Runs `f` under the lock of the handle if the adapter is thread-safe. Posts and dequeues need
/// this lock. Calls that remove objects which a post or dequeue uses need it as well.
#[inline]
pub(super) fn with_lock<const THREAD_SAFE: bool, V>(
    handle: *mut c_void,
    f: impl FnOnce() -> Result<V>,
) -> Result<V> {
    match handle::slot(handle) {
        Some(slot) if THREAD_SAFE => slot.locked(f),
        _ => f(),
    }
}

/// Checks the pointer through which a call returns a result. `arg` is the position of this
/// argument.
///
/// # Safety
/// `ptr` is NULL or leads to memory that may be written.
pub(super) unsafe fn out<'a, V>(ptr: *mut V, arg: u32) -> Result<&'a mut MaybeUninit<V>> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { ptr.cast::<MaybeUninit<V>>().as_mut() }.ok_or(Error::arg(arg))
}

/// Implements a query. The mask of the requested fields is the argument at position `arg` and may
/// contain the bits of `all`. The record is the next argument and may be NULL if the mask is 0.
///
/// # Safety
/// `record` is NULL or leads to memory that may be written.
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
        // The standard permits providers to return fields that were not requested.
        let mut filled = blank;
        // SAFETY: the caller fulfils the contract of this function.
        let record = unsafe { out(record, arg + 1) }?;
        fill(&mut filled);
        record.write(filled);
    }
    Ok(())
}

/// Returns the private data that a consumer passes. The argument at position `arg` is its size, and
/// the next argument is the pointer.
///
/// # Safety
/// The pointer is NULL or leads to `size` bytes.
pub(super) unsafe fn private_slice<'a>(
    size: DAT_COUNT,
    data: DAT_PVOID,
    arg: u32,
) -> Result<&'a [u8]> {
    match usize::try_from(size) {
        Ok(0) => Ok(&[]),
        Ok(_) if data.is_null() => Err(Error::arg(arg + 1)),
        // SAFETY: the caller fulfils the contract of this function.
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

/// Space for a copy of segments that are not aligned. Some programs keep their segments in packed
/// records, because processors support unaligned access.
pub(super) struct AlignedSegments([MaybeUninit<Segment>; MAX_SEGMENTS]);

impl AlignedSegments {
    #[inline]
    pub(super) fn new() -> Self {
        AlignedSegments([const { MaybeUninit::uninit() }; MAX_SEGMENTS])
    }

    /// # Safety
    /// `iov` leads to `count` segments, which need not be aligned. `count` is at most
    /// `MAX_SEGMENTS`.
    #[cold]
    unsafe fn copy(&mut self, iov: *const Segment, count: usize) -> &[Segment] {
        // SAFETY: the caller guarantees that the source is readable. Octets have no alignment. The
        // copied segments are initialized.
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

/// Returns the segments of a post. The argument at position 2 is their number, and the argument at
/// position 3 is the pointer to them.
///
/// # Safety
/// If `count` is at most `MAX_SEGMENTS`: `iov` is NULL or leads to `count` triplets, which need not
/// be aligned.
#[inline]
pub(super) unsafe fn segments(
    count: DAT_COUNT,
    iov: *const DAT_LMR_TRIPLET,
    aligned: &mut AlignedSegments,
) -> Result<&[Segment]> {
    // A triplet has the layout of a segment, as asserted above.
    let iov = iov.cast::<Segment>();
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(1..=MAX_SEGMENTS) if iov.is_null() => Err(Error::arg(3)),
        Ok(count @ 1..=MAX_SEGMENTS) if !iov.is_aligned() => {
            // SAFETY: the caller fulfils the contract of this function.
            Ok(unsafe { aligned.copy(iov, count) })
        }
        // SAFETY: the caller guarantees that `iov` leads to `count` triplets. It is aligned here.
        Ok(count @ 1..=MAX_SEGMENTS) => Ok(unsafe { std::slice::from_raw_parts(iov, count) }),
        _ => Err(Error::arg(2)),
    }
}

/// Pins an EVD that a call names. If the handle is invalid, the error has the subtype `invalid`,
/// which says which argument is invalid.
///
/// # Safety
/// The requirements of [`handle::pin`] apply.
pub(super) unsafe fn pin_evd<T: Transport>(
    evd: DAT_EVD_HANDLE,
    invalid: DAT_RETURN,
) -> Result<Pin<Evd<T>>> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { handle::pin(evd) }.map_err(|error| error.with_subtype(invalid))
}
