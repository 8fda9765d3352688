//! Named attributes.

use std::ffi::{CStr, c_char};

use dat_sys::*;

use super::adapter::{Rig, text};
use crate::check::{Outcome, answers, ensure, failed, ok, one_of};

/// Reads an array of named attributes and returns their names and values.
#[track_caller]
pub(crate) fn named(
    what: &str,
    count: DAT_COUNT,
    array: *const DAT_NAMED_ATTR,
) -> Outcome<Vec<(String, String)>> {
    let Ok(count) = usize::try_from(count) else {
        return Err(failed(format_args!("the number of {what} is {count}")));
    };
    ensure(
        count == 0 || !array.is_null(),
        format_args!("there are {count} {what} behind a null pointer"),
    )?;
    let text = |text: *const c_char| {
        ensure(!text.is_null(), format_args!("a name or value of {what} is null"))?;
        // SAFETY: the pointer is not null, and the text belongs to the provider.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    (0..count)
        .map(|index| {
            // SAFETY: the provider's array has this length, and is valid while the adapter is open.
            let attr = unsafe { array.add(index).read() };
            Ok((text(attr.name)?, text(attr.value)?))
        })
        .collect()
}

impl Rig {
    /// Returns whether the adapter's named attribute `strict` is `on`. Returns `None` for an
    /// adapter without this attribute, such as an adapter of another vendor. An adapter with
    /// `strict=off` makes the exceptions that docs/compatibility.md lists.
    pub(crate) fn strict_attribute(&self) -> Outcome<Option<bool>> {
        let all =
            named("transport attributes", self.attr.num_transport_attr, self.attr.transport_attr)?;
        Ok(all.into_iter().find(|(name, _)| name == "strict").map(|(_, value)| value == "on"))
    }

    /// Returns whether the adapter must follow the letter of the standard. Every adapter must,
    /// except an adapter with `strict=off`.
    pub(crate) fn is_strict(&self) -> Outcome<bool> {
        Ok(self.strict_attribute()? != Some(false))
    }

    /// Checks that the call has returned `letter`, which is the type of status that the standard
    /// defines for the situation. On an adapter without the attribute `strict`, the call may also
    /// return one of `others`. The page in the standard defines these types for situations that are
    /// hard to distinguish from the tested one.
    #[track_caller]
    pub(crate) fn answers_or(
        &self,
        status: DAT_RETURN,
        letter: DAT_RETURN_TYPE,
        others: &[DAT_RETURN_TYPE],
    ) -> Outcome {
        match self.strict_attribute()? {
            Some(_) => answers(status, letter),
            None => one_of(status, &[&[letter], others].concat()),
        }
    }

    /// Checks a call that the standard forbids and that a program needs. If the adapter must follow
    /// the letter of the standard, the call must return this type of status. Otherwise the call
    /// must succeed.
    #[track_caller]
    pub(crate) fn relaxed(&self, status: DAT_RETURN, kind: DAT_RETURN_TYPE) -> Outcome {
        if self.is_strict()? { answers(status, kind) } else { ok(status) }
    }
}

/// Returns the names of all adapters that dat_registry_list_providers lists.
#[track_caller]
pub(crate) fn named_infos(rig: &Rig) -> Outcome<Vec<String>> {
    let mut infos = [DAT_PROVIDER_INFO::zeroed(); 64];
    let mut places = infos.each_mut().map(|info| info as *mut DAT_PROVIDER_INFO);
    let mut count = -1;
    ok(rig.api.dat_registry_list_providers(
        places.len() as DAT_COUNT,
        &mut count,
        places.as_mut_ptr(),
    ))?;
    let count = usize::try_from(count).unwrap_or(0);
    ensure(
        count <= infos.len(),
        format_args!("{count} adapters are listed, more than there was room for"),
    )?;
    Ok(infos[..count].iter().filter_map(|info| text(&info.ia_name)).collect())
}
