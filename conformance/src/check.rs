//! Checks that cases make. A failed check names its place in the source.

use std::fmt::{Debug, Display};
use std::panic::Location;

use dat_sys::describe::status_names;
use dat_sys::*;

/// The result of a case: it has passed, or has not.
pub(crate) type Outcome<T = ()> = Result<T, NotPassed>;

/// The reason for which a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPassed {
    /// The provider violates the requirement.
    Failed(String),
    /// The standard makes the feature optional, and the provider lacks it.
    Unsupported(String),
}

/// Returns a failure with its place.
#[track_caller]
pub(crate) fn failed(why: impl Display) -> NotPassed {
    let place = Location::caller();
    let file = place.file().rsplit_once("src/").map_or(place.file(), |(_, file)| file);
    NotPassed::Failed(format!("{why} ({file}:{})", place.line()))
}

/// Returns that the provider lacks an optional feature.
pub(crate) fn unsupported<T>(why: impl Display) -> Outcome<T> {
    Err(NotPassed::Unsupported(why.to_string()))
}

/// Checks that the call has succeeded.
#[track_caller]
pub(crate) fn ok(status: DAT_RETURN) -> Outcome {
    answers(status, DAT_SUCCESS)
}

/// Like [`ok`], but the provider may also answer that it does not support the call.
#[track_caller]
pub(crate) fn supported(status: DAT_RETURN) -> Outcome {
    match DAT_GET_TYPE(status) {
        DAT_MODEL_NOT_SUPPORTED => unsupported("the provider answers DAT_MODEL_NOT_SUPPORTED"),
        _ => ok(status),
    }
}

/// Checks that the call has returned this type of status. Providers choose the subtype.
#[track_caller]
pub(crate) fn answers(status: DAT_RETURN, kind: DAT_RETURN_TYPE) -> Outcome {
    one_of(status, &[kind])
}

/// Checks that the call has returned one of these types of status.
#[track_caller]
pub(crate) fn one_of(status: DAT_RETURN, kinds: &[DAT_RETURN_TYPE]) -> Outcome {
    if kinds.contains(&DAT_GET_TYPE(status)) {
        return Ok(());
    }
    let wanted: Vec<_> = kinds.iter().map(|kind| name(*kind)).collect();
    Err(failed(format_args!("expected {}, got {}", wanted.join(" or "), name(status))))
}

/// Checks that the call has returned this type and subtype.
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

/// Checks a condition. `otherwise` describes the failure.
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

/// Returns the names of a status.
pub(crate) fn name(status: DAT_RETURN) -> String {
    match status_names(status) {
        Some((kind, "")) => kind.to_owned(),
        Some((kind, subtype)) => format!("{kind} {subtype}"),
        None => format!("{status:#010x}"),
    }
}
