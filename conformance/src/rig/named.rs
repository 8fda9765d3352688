//! Named attributes.

use std::ffi::{CStr, c_char};

use dat_sys::*;

use super::Rig;
use crate::case::Outcome;
use crate::check::{answers, failed, ok, one_of, that};

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
    that(
        count == 0 || !array.is_null(),
        format_args!("there are {count} {what} behind a null pointer"),
    )?;
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

impl Rig {
    /// What an adapter says about the letter of the standard, by its named attribute `strict`; none: it is another's and says
    /// nothing. One that says no lets programs do what OFED's library lets them do (docs/compatibility.md).
    pub(crate) fn says_strict(&self) -> Outcome<Option<bool>> {
        let all =
            named("transport attributes", self.attr.num_transport_attr, self.attr.transport_attr)?;
        Ok(all.into_iter().find(|(name, _)| name == "strict").map(|(_, value)| value == "on"))
    }

    /// Whether the letter of the standard holds: everywhere but where an adapter says that it does not.
    pub(crate) fn is_strict(&self) -> Outcome<bool> {
        Ok(self.says_strict()? != Some(false))
    }

    /// The call answered with the type that the standard has for it, `letter`. Where an adapter does not say that it keeps the
    /// letter, also one of `others`, which the page has for cases that are hard to tell from this one.
    #[track_caller]
    pub(crate) fn answers_or(
        &self,
        status: DAT_RETURN,
        letter: DAT_RETURN_TYPE,
        others: &[DAT_RETURN_TYPE],
    ) -> Outcome {
        match self.says_strict()? {
            Some(true) => answers(status, letter),
            _ => one_of(status, &[&[letter], others].concat()),
        }
    }

    /// A call that the standard forbids and OFED's library allows: answered with this type, or, where the letter of the standard
    /// does not hold, carried out.
    #[track_caller]
    pub(crate) fn forbidden(&self, status: DAT_RETURN, kind: DAT_RETURN_TYPE) -> Outcome {
        if self.is_strict()? { answers(status, kind) } else { ok(status) }
    }
}

/// The names that dat_registry_list_providers lists.
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
    that(count <= infos.len(), format_args!("{count} are listed"))?;
    Ok(infos[..count].iter().filter_map(|info| super::text(&info.ia_name)).collect())
}
