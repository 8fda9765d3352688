//! Errors. The standard calls them DAT_RETURN.

use std::fmt;

use dat_sys::*;

/// A failure, as the class, type and subtype of a `DAT_RETURN`. It is never success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(DAT_RETURN);

/// The result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Creates the error of a call that finds no memory.
pub fn no_memory<E>(_: E) -> Error {
    Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
}

impl Error {
    /// Replaces the subtype of an invalid-handle error by `subtype`, which names the role of the
    /// handle in the call. Other errors do not change.
    pub(crate) fn with_subtype(self, subtype: DAT_RETURN) -> Error {
        if self.kind() == DAT_INVALID_HANDLE { Error::handle(subtype) } else { self }
    }

    /// Creates an error of a type (`DAT_INVALID_STATE`, …) with a subtype (`DAT_NO_SUBTYPE`, …).
    ///
    /// `DAT_QUEUE_EMPTY` has no class bit, as in OFED's providers, because programs compare the
    /// whole value (dtest -p).
    pub const fn new(kind: DAT_RETURN, subtype: DAT_RETURN) -> Self {
        let class = if kind == DAT_QUEUE_EMPTY { DAT_CLASS_SUCCESS } else { DAT_CLASS_ERROR };
        Error(class | kind | subtype)
    }

    /// Creates an error without a subtype.
    pub const fn of(kind: DAT_RETURN) -> Self {
        Error::new(kind, DAT_NO_SUBTYPE)
    }

    /// Creates `DAT_INVALID_PARAMETER` for argument `n`, counted from 1 as in the standard's
    /// prototypes.
    pub const fn arg(n: u32) -> Self {
        Error::new(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1 + n - 1)
    }

    /// Creates `DAT_INVALID_HANDLE` with the subtype that names the type of handle.
    pub const fn handle(subtype: DAT_RETURN) -> Self {
        Error::new(DAT_INVALID_HANDLE, subtype)
    }

    /// Creates `DAT_INVALID_STATE` with the subtype that names the state.
    pub const fn state(subtype: DAT_RETURN) -> Self {
        Error::new(DAT_INVALID_STATE, subtype)
    }

    /// The whole `DAT_RETURN`: the class, the type and the subtype of the error.
    pub const fn code(self) -> DAT_RETURN {
        self.0
    }

    /// The type of the error, such as `DAT_INVALID_STATE`.
    pub const fn kind(self) -> DAT_RETURN {
        self.0 & DAT_TYPE_MASK
    }

    /// The subtype of the error, such as `DAT_INVALID_HANDLE_EP`.
    pub const fn subtype(self) -> DAT_RETURN {
        self.0 & DAT_SUBTYPE_MASK
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:#010x})", self.0)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match dat_sys::describe::status_names(self.0) {
            Some((kind, "")) => f.write_str(kind),
            Some((kind, subtype)) => write!(f, "{kind}, {subtype}"),
            None => write!(f, "undefined status {:#010x}", self.0),
        }
    }
}

impl std::error::Error for Error {}

/// Why an adapter could not be opened: the code for the consumer and the reason for the user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct OpenError {
    /// The code for the consumer.
    pub code: Error,
    /// What happened, and what to do about it.
    pub reason: String,
}

impl OpenError {
    /// Creates an error with a code and a reason.
    pub fn new(code: Error, reason: impl Into<String>) -> Self {
        OpenError { code, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_the_names_of_the_standard() {
        assert_eq!(
            Error::handle(DAT_INVALID_HANDLE_EP).to_string(),
            "DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP"
        );
        assert_eq!(Error::of(DAT_QUEUE_EMPTY).to_string(), "DAT_QUEUE_EMPTY");
        assert_eq!(Error::of(DAT_NOT_IMPLEMENTED).to_string(), "DAT_NOT_IMPLEMENTED");
        assert_eq!(Error::arg(3).code(), 0x8006_0027);
    }
}
