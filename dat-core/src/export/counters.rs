//! The operations of dat_extension_op that query, print, start and stop counters.

use std::ffi::c_void;

use dat_sys::ib::*;
use dat_sys::*;

use super::va_list::VaList;
use crate::counters::{self, CounterQuery};
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::handle;
use crate::ia::Ia;
use crate::provider::Transport;

/// The result of a query: the indexes of the requested counters, the values of all counters, and
/// the name of counter 0.
type QueriedCounters = (std::ops::Range<usize>, Vec<u64>, &'static str);

/// Reads the counter with the number `counter`, or all counters if `counter` is the number of
/// counters. If `reset` is true, also resets the counters that it reads.
///
/// # Safety
/// The requirements of [`handle::get`] apply.
unsafe fn counters<T: Transport>(
    handle: *mut c_void,
    counter: i32,
    reset: bool,
) -> Result<QueriedCounters> {
    let ask = |number: usize| match usize::try_from(counter) {
        Ok(all) if all == number => Ok((CounterQuery { which: None, reset }, 0..number)),
        Ok(one) if one < number => Ok((CounterQuery { which: Some(one), reset }, one..one + 1)),
        _ => Err(Error::arg(3)),
    };
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        match handle::live_slot(handle)?.kind() {
            DAT_HANDLE_TYPE_IA => {
                let (ask, range) = ask(counters::IA)?;
                let values = handle::get::<Ia<T>>(handle)?.counters.read(ask).to_vec();
                Ok((range, values, "DCNT_IA_PZ_CREATE"))
            }
            DAT_HANDLE_TYPE_EP => {
                let (ask, range) = ask(counters::EP)?;
                let values = handle::get::<Ep<T>>(handle)?.counters.read(ask).to_vec();
                Ok((range, values, "DCNT_EP_CONNECT"))
            }
            DAT_HANDLE_TYPE_EVD => {
                let (ask, range) = ask(counters::EVD)?;
                let values = handle::get::<Evd<T>>(handle)?.counters(ask).to_vec();
                Ok((range, values, "DCNT_EVD_WAIT"))
            }
            _ => Err(Error::handle(DAT_INVALID_HANDLE1)),
        }
    }
}

/// Queries counters. The arguments are `counter, values, reset`. Writes each requested counter to
/// the element of `values` whose index is the counter's number.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply.
pub(super) unsafe fn query<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let (counter, out, reset) =
            (args.next() as i32, args.pointer::<u64>(), args.next() as i32 != 0);
        if out.is_null() {
            return Err(Error::arg(4));
        }
        let (range, values, _) = counters::<T>(handle, counter, reset)?;
        range.for_each(|i| out.add(i).write(values[i]));
        Ok(())
    }
}

/// Prints a line for each requested counter. The arguments are `counter, reset`. The lines go
/// through C's stdout, so that they are in order with lines that the program prints.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply.
pub(super) unsafe fn print<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let (counter, reset) = (args.next() as i32, args.next() as i32 != 0);
        let (range, values, first) = counters::<T>(handle, counter, reset)?;
        let process = std::process::id();
        for (i, name) in counters::names(first).enumerate().take(range.end).skip(range.start) {
            let line = format!(" {process:#x}: {name} = {}", values[i]);
            // The text contains no NUL, so this does not fail.
            if let Ok(line) = std::ffi::CString::new(line) {
                libc::puts(line.as_ptr());
            }
        }
        Ok(())
    }
}

/// Sets the counters of connection management to 0 and lets them count again. The argument is
/// `type`.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply.
pub(super) unsafe fn start<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let ia = handle::get::<Ia<T>>(handle)?;
        check_is_cm(args).map(|()| ia.counters.start_cm())
    }
}

/// Stops the counters of connection management. The argument is `type`.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply.
pub(super) unsafe fn stop<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let ia = handle::get::<Ia<T>>(handle)?;
        check_is_cm(args).map(|()| ia.counters.stop_cm())
    }
}

/// Checks that the argument `type` selects the counters of connection management. The other types
/// select counters of a device, which no provider of this project offers.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply.
unsafe fn check_is_cm(args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    match unsafe { args.next() } as DAT_IA_COUNTER_TYPE {
        DCNT_IA_CM => Ok(()),
        DCNT_IA_LNK | DCNT_IA_DIAG => Err(Error::of(DAT_MODEL_NOT_SUPPORTED)),
        _ => Err(Error::arg(3)),
    }
}
