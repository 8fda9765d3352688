//! Statuses, and the ways of arguments that many functions share.

use std::ffi::c_void;
use std::ptr::null_mut;

use dat_sys::*;

use crate::error::Error;
use crate::export::convert::code;
use crate::handle::{self, Object};

/// Defines functions of the 1.2 table, with a body that is the status of 2.0. They presume what those of the 2.0
/// table presume (`slots!`, `hot!`).
macro_rules! functions {
    ($($(#[$attr:meta])* fn $name:ident<T $(, $safe:ident)?>($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* })*) => {$(
        $(#[$attr])*
        #[allow(clippy::too_many_arguments)] // the standard's prototypes
        pub(super) unsafe extern "C" fn $name<T: Transport $(, const $safe: bool)?>($($arg: $type),*) -> DAT_RETURN {
            // SAFETY: the consumer promises the function of 2.0 what it promised this one.
            $crate::export::v1::convert::converted(|| unsafe { $($body)* })
        }
    )*};
}
pub(super) use functions;

/// Runs a function of the 1.2 table; wherever its body returns, the status is converted.
#[inline(always)]
pub(super) fn converted(call: impl FnOnce() -> DAT_RETURN) -> DAT_RETURN {
    status(call())
}

/// A status of 2.0 in the numbers of 1.2.
#[inline]
pub(super) fn status(status: DAT_RETURN) -> DAT_RETURN {
    if status == DAT_SUCCESS { DAT_SUCCESS } else { v1::status(status) }
}

/// A status of 2.0 about arguments of a call that has other ones in 1.2: `argument` gives the position there.
pub(super) fn renumber(status: DAT_RETURN, argument: impl FnOnce(u32) -> u32) -> DAT_RETURN {
    let subtype = DAT_GET_SUBTYPE(status);
    match DAT_GET_TYPE(status) {
        DAT_INVALID_PARAMETER if (DAT_INVALID_ARG1..=DAT_INVALID_ARG10).contains(&subtype) => {
            Error::arg(argument(subtype - DAT_INVALID_ARG1 + 1)).code()
        }
        _ => status,
    }
}

/// The status of a call that 2.0 has no words for, so that it is refused here; a bad handle comes first, as ever.
#[cold]
pub(super) fn refuse<O: Object>(handle: *mut c_void, error: Error) -> DAT_RETURN {
    code(handle::check::<O>(handle).and(Err(error)))
}

/// Has a record of 2.0 filled in, and gives it to the consumer as `convert` makes it, if anything is `asked` for.
///
/// # Safety
/// `param` is NULL or may be written to.
pub(super) unsafe fn query<New, Old>(
    asked: bool,
    param: *mut Old,
    mut record: New,
    fill: impl FnOnce(*mut New) -> DAT_RETURN,
    convert: impl FnOnce(&New) -> Old,
) -> DAT_RETURN {
    let status = fill(if param.is_null() { null_mut() } else { &raw mut record });
    if status == DAT_SUCCESS && asked {
        // SAFETY: as the caller promised; a NULL would have been refused.
        unsafe { param.write(convert(&record)) };
    }
    status
}
