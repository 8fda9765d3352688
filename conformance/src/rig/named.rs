//! Named attributes.

use std::ffi::{CStr, c_char};

use dat_sys::*;

use super::Rig;
use crate::case::Outcome;
use crate::check::{failed, ok, that};

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

/// The names that dat_registry_list_providers lists.
#[track_caller]
pub(crate) fn named_infos(rig: &Rig) -> Outcome<Vec<String>> {
    let mut infos = [DAT_PROVIDER_INFO::zeroed(); 64];
    let mut places = infos.each_mut().map(|info| info as *mut DAT_PROVIDER_INFO);
    let mut count = -1;
    ok(rig.api.dat_registry_list_providers(places.len() as DAT_COUNT, &mut count, places.as_mut_ptr()))?;
    let count = usize::try_from(count).unwrap_or(0);
    that(count <= infos.len(), format_args!("{count} are listed"))?;
    Ok(infos[..count].iter().filter_map(|info| super::text(&info.ia_name)).collect())
}
