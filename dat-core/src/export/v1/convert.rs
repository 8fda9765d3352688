//! Converts statuses of uDAPL 2.0 to 1.2, and arguments that many functions of 1.2 have.

use std::ffi::c_void;
use std::ptr::null_mut;

use dat_sys::*;

use crate::error::Error;
use crate::export::convert::code;
use crate::handle::{self, Object};

/// Defines functions of the 1.2 table. The body returns a status of 2.0, which is then converted.
/// The functions make the same assumptions as the functions of the 2.0 table (`control_functions!`,
/// `data_path_functions!`).
macro_rules! v1_functions {
    ($(
        $(#[$attr:meta])*
        fn $name:ident<T $(, $safe:ident)?>($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* }
    )*) => {$(
        $(#[$attr])*
        #[allow(clippy::too_many_arguments)] // the standard's prototypes
        pub(super) unsafe extern "C" fn $name<T: Transport $(, const $safe: bool)?>(
            $($arg: $type),*
        ) -> DAT_RETURN {
            // SAFETY: the contract of this function includes that of the 2.0 function.
            $crate::export::v1::convert::convert_status(|| unsafe { $($body)* })
        }
    )*};
}
pub(super) use v1_functions;

/// Runs the body of a function of the 1.2 table and converts the status, no matter where the body
/// returns.
#[inline(always)]
pub(super) fn convert_status(call: impl FnOnce() -> DAT_RETURN) -> DAT_RETURN {
    status(call())
}

/// Converts a status of uDAPL 2.0 to a status of uDAPL 1.2.
#[inline]
pub(super) fn status(status: DAT_RETURN) -> DAT_RETURN {
    if status == DAT_SUCCESS { DAT_SUCCESS } else { v1::status(status) }
}

/// Converts the argument position in a status of uDAPL 2.0, for a call whose arguments have other
/// positions in 1.2. `argument` returns the position in 1.2.
pub(super) fn renumber(status: DAT_RETURN, argument: impl FnOnce(u32) -> u32) -> DAT_RETURN {
    let subtype = DAT_GET_SUBTYPE(status);
    match DAT_GET_TYPE(status) {
        DAT_INVALID_PARAMETER if (DAT_INVALID_ARG1..=DAT_INVALID_ARG10).contains(&subtype) => {
            Error::arg(argument(subtype - DAT_INVALID_ARG1 + 1)).code()
        }
        _ => status,
    }
}

/// Refuses a call that uDAPL 2.0 cannot express. If the handle is invalid, the error about the
/// handle takes precedence, as in other calls.
#[cold]
pub(super) fn refuse<O: Object>(handle: *mut c_void, error: Error) -> DAT_RETURN {
    code(handle::check::<O>(handle).and(Err(error)))
}

/// Lets `fill` write a record of uDAPL 2.0. If any field was `requested`, converts the record with
/// `convert` and writes the result to `param`.
///
/// # Safety
/// `param` is NULL or may be written to.
pub(super) unsafe fn query<New, Old>(
    requested: bool,
    param: *mut Old,
    mut record: New,
    fill: impl FnOnce(*mut New) -> DAT_RETURN,
    convert: impl FnOnce(&New) -> Old,
) -> DAT_RETURN {
    let status = fill(if param.is_null() { null_mut() } else { &raw mut record });
    if status == DAT_SUCCESS && requested {
        // SAFETY: the caller guarantees that `param` is NULL or may be written to. `fill` has
        // refused NULL.
        unsafe { param.write(convert(&record)) };
    }
    status
}
