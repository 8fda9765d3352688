//! The checks that cases make. The message of a failed check names the place of the check in the
//! source.

use std::fmt::{Debug, Display};
use std::panic::Location;

use dat_sys::describe::status_names;
use dat_sys::*;

/// The result of a case: the case has passed, or it has not for a reason.
pub(crate) type Outcome<T = ()> = Result<T, NotPassed>;

/// The reason for which a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPassed {
    /// The provider violates the requirement.
    Failed(String),
    /// The provider lacks the feature, which the standard makes optional.
    Unsupported(String),
}

/// Returns a failure. Its message names the place in the source from which this function was
/// called.
#[track_caller]
pub(crate) fn failed(why: impl Display) -> NotPassed {
    let place = Location::caller();
    let file = place.file().rsplit_once("src/").map_or(place.file(), |(_, file)| file);
    NotPassed::Failed(format!("{why} ({file}:{})", place.line()))
}

/// Returns the result of a case that needs an optional feature which the provider lacks.
pub(crate) fn unsupported<T>(why: impl Display) -> Outcome<T> {
    Err(NotPassed::Unsupported(why.to_string()))
}

/// Checks that the call has succeeded.
#[track_caller]
pub(crate) fn ok(status: DAT_RETURN) -> Outcome {
    answers(status, DAT_SUCCESS)
}

/// Checks that the call has succeeded, like [`ok`]. If the call reports that the provider does not
/// support it, the case is unsupported.
#[track_caller]
pub(crate) fn supported(status: DAT_RETURN) -> Outcome {
    match DAT_GET_TYPE(status) {
        DAT_MODEL_NOT_SUPPORTED => unsupported("the provider answers DAT_MODEL_NOT_SUPPORTED"),
        _ => ok(status),
    }
}

/// Checks that the call has returned this type of status. The subtype does not matter, because
/// providers may choose it.
#[track_caller]
pub(crate) fn answers(status: DAT_RETURN, kind: DAT_RETURN_TYPE) -> Outcome {
    one_of(status, &[kind])
}

/// Checks that the call has returned one of these types of status. The subtype does not matter.
#[track_caller]
pub(crate) fn one_of(status: DAT_RETURN, kinds: &[DAT_RETURN_TYPE]) -> Outcome {
    if kinds.contains(&DAT_GET_TYPE(status)) {
        return Ok(());
    }
    let wanted: Vec<_> = kinds.iter().map(|kind| name(*kind)).collect();
    Err(failed(format_args!("expected {}, got {}", wanted.join(" or "), name(status))))
}

/// Checks that the call has returned a status of this type and subtype.
#[track_caller]
pub(crate) fn answers_with(
    status: DAT_RETURN,
    kind: DAT_RETURN_TYPE,
    subtype: DAT_RETURN_SUBTYPE,
) -> Outcome {
    match (DAT_GET_TYPE(status), DAT_GET_SUBTYPE(status)) == (kind, subtype) {
        true => Ok(()),
        false => {
            Err(failed(format_args!("expected {}, got {}", name(kind | subtype), name(status))))
        }
    }
}

/// Checks a condition. If it does not hold, `otherwise` is the message of the failure.
#[track_caller]
pub(crate) fn ensure(holds: bool, otherwise: impl Display) -> Outcome {
    if holds { Ok(()) } else { Err(failed(otherwise)) }
}

/// Checks that two values are equal.
#[track_caller]
pub(crate) fn ensure_equal<V: PartialEq + Debug>(what: &str, is: V, should_be: V) -> Outcome {
    if is == should_be {
        return Ok(());
    }
    Err(failed(format_args!("{what} is {is:?}, not {should_be:?}")))
}

/// Returns the names of the status's type and subtype.
pub(crate) fn name(status: DAT_RETURN) -> String {
    match status_names(status) {
        Some((kind, "")) => kind.to_owned(),
        Some((kind, subtype)) => format!("{kind} {subtype}"),
        None => format!("{status:#010x}"),
    }
}
