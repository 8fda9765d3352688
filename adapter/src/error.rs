//! The errors of the calls of an adapter and its engines.

/// The error of a call. The layer above translates it to the errors of its own interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// No memory, file descriptor or thread is left.
    #[error("no memory, file descriptor or thread is left")]
    NoMemory,
    /// An address of this host has no port left, or its sockets cannot be opened.
    #[error("the address has no port left, or its sockets cannot be opened")]
    NoLocalPort,
    /// An address of this host has no queue pair number left.
    #[error("no queue pair number is left")]
    NoQueuePair,
    /// This host has no such address.
    #[error("this host has no such address")]
    NoSuchAddress,
    /// Another listener has the port.
    #[error("another listener has the port")]
    PortTaken,
    /// Nobody can listen at the port, or no port is free.
    #[error("nobody can listen at the port")]
    PortUnavailable,
    /// The protocol or the engine does not support the call.
    #[error("not supported")]
    NotSupported,
    /// An argument is invalid.
    #[error("an argument is invalid")]
    InvalidArgument,
    /// The object is in a state in which the call is not allowed.
    #[error("not allowed in this state")]
    InvalidState,
}

/// The result of a call of an adapter or its engine.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call that finds no memory.
pub fn no_memory<E>(_: E) -> Error {
    Error::NoMemory
}

/// The error of a call for which there is no free file descriptor or no thread.
pub fn no_resources(_: std::io::Error) -> Error {
    Error::NoMemory
}

/// The reason why an adapter could not be opened: the error for the program and the reason for the
/// user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct OpenError {
    /// The error for the program.
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
