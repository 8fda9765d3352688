//! The operation of dat_extension_op that returns the last cause of an endpoint.

use std::ffi::c_void;

use dat_sys::DAT_COUNT;

use super::va_list::VaList;
use crate::ep::Ep;
use crate::error::{Error, Result};
use crate::handle;
use crate::provider::Transport;

/// Copies the last cause of an endpoint as a C string. The arguments are `buffer, size`. A sentence
/// that does not fit is cut off. Without a cause the string is empty.
///
/// # Safety
/// The requirements of [`handle_extendedop`](super::extension::handle_extendedop) apply. `buffer`
/// is NULL or has `size` octets.
pub(super) unsafe fn copy<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller fulfils the contract of this function.
    let (ep, buffer, size) = unsafe {
        let ep = handle::get::<Ep<T>>(handle)?;
        (ep, args.pointer::<u8>(), args.next() as DAT_COUNT)
    };
    if buffer.is_null() {
        return Err(Error::arg(3));
    }
    let Some(room) = usize::try_from(size).ok().and_then(|size| size.checked_sub(1)) else {
        return Err(Error::arg(4));
    };
    let sentence = ep.last_cause().sentence().unwrap_or_default();
    let octets = &sentence.as_bytes()[..sentence.floor_char_boundary(room)];
    // SAFETY: the buffer has `room` octets and one more, and the sentence is at most `room` long.
    unsafe {
        buffer.copy_from_nonoverlapping(octets.as_ptr(), octets.len());
        buffer.add(octets.len()).write(0);
    }
    Ok(())
}
