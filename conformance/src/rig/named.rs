//! Named attributes.

use std::ffi::{CStr, c_char};

use dat_sys::*;

use crate::case::Outcome;
use crate::check::{failed, that};

/// The attributes of an array, as names and values.
#[track_caller]
pub(crate) fn named(
    what: &str,
    count: DAT_COUNT,
    array: *const DAT_NAMED_ATTR,
) -> Outcome<Vec<(String, String)>> {
    let Ok(count) = usize::try_from(count) else {
        return Err(failed(format_args!("the number of {what} is {count}")));
    };
    that(count == 0 || !array.is_null(), format_args!("there are {count} {what} behind a null pointer"))?;
    let text = |text: *const c_char| {
        that(!text.is_null(), format_args!("a name or value of {what} is null"))?;
        // SAFETY: not null; the provider's text.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    (0..count)
        .map(|index| {
            // SAFETY: the provider's array of that length, valid while the adapter is open.
            let attr = unsafe { array.add(index).read() };
            Ok((text(attr.name)?, text(attr.value)?))
        })
        .collect()
}
