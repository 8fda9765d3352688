//! The error of a failed call: its type, its subtype, the call, and advice.

use std::{fmt, io};

use dat_sys::describe::status_names;
use dat_sys::*;
use registry::OpenError;

/// The result of a DAT call.
///
/// ```
/// fn provider(adapter: &str) -> dat::Result<String> {
///     Ok(dat::Adapter::open(adapter)?.attributes().provider.clone())
/// }
/// assert_eq!(provider("tcp-emu")?, "tcp-emu");
/// # Ok::<(), dat::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed DAT call (uDAPL 2.0, DAT_RETURN).
///
/// It is displayed as the call, the kind of failure, the numbers that explain it, and advice. It
/// converts to [`io::Error`].
///
/// ```
/// use dat::{ErrorKind, RemoteRegion};
///
/// let region = RemoteRegion { address: 0x1000, length: 64, key: 7 };
/// let error = region.segment(60..80).unwrap_err();
/// assert_eq!((error.kind(), error.call()), (ErrorKind::Length, "RemoteRegion::segment"));
/// assert_eq!(error.detail(), Some("bytes 60 to 80 of a region of 64 bytes"));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
/// ```
#[derive(Clone)]
pub struct Error {
    call: &'static str,
    status: DAT_RETURN,
    cause: Option<Box<Cause>>,
}

/// What explains an error beyond its status.
#[derive(Clone)]
enum Cause {
    /// Every entry that was tried, and the messages of the providers.
    Open(OpenError, Vec<String>),
    /// A text with the numbers that explain the error, such as a length and its limit.
    Detail(String),
}

/// Converts a status to a result. The class is ignored, because some providers omit it.
#[inline]
pub(crate) fn check(call: &'static str, status: DAT_RETURN) -> Result<()> {
    if DAT_GET_TYPE(status) == DAT_SUCCESS { Ok(()) } else { Err(Error::new(call, status)) }
}

#[cold]
pub(crate) fn not_implemented(call: &'static str) -> Error {
    Error::new(call, DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE))
}

impl Error {
    #[cold]
    pub(crate) fn new(call: &'static str, status: DAT_RETURN) -> Self {
        Error { call, status, cause: None }
    }

    pub(crate) fn open(open_error: OpenError, messages: Vec<String>) -> Self {
        Error {
            call: "dat_ia_open",
            status: open_error.status(),
            cause: Some(Box::new(Cause::Open(open_error, messages))),
        }
    }

    /// Adds the numbers that explain the error, if there are any.
    #[cold]
    pub(crate) fn explained(mut self, detail: Option<String>) -> Self {
        if let Some(detail) = detail {
            self.cause = Some(Box::new(Cause::Detail(detail)));
        }
        self
    }

    /// The name of what failed: a function of DAT such as `dat_ep_connect`, or a method of this
    /// crate that has called none.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The status word, as in C.
    pub fn status(&self) -> DAT_RETURN {
        self.status
    }

    /// The type of the status.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(self.status)
    }

    /// The subtype of the status, comparable with the constants of dat-sys. 0 if there is no
    /// subtype.
    pub fn subtype(&self) -> DAT_RETURN_SUBTYPE {
        DAT_GET_SUBTYPE(self.status)
    }

    /// Every entry that [`Adapter::open`](crate::Adapter::open) tried, with the reason of its
    /// failure.
    pub fn open_error(&self) -> Option<&OpenError> {
        match self.cause.as_deref() {
            Some(Cause::Open(error, _)) => Some(error),
            _ => None,
        }
    }

    /// The numbers that explain the error, such as a length and the limit that it exceeds.
    pub fn detail(&self) -> Option<&str> {
        match self.cause.as_deref() {
            Some(Cause::Detail(detail)) => Some(detail),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    /// The kind is the most similar one. The inner error ([`io::Error::get_ref`]) is the [`Error`].
    fn from(error: Error) -> Self {
        io::Error::new(error.kind().to_io(error.subtype()), error)
    }
}

impl std::error::Error for Error {}

/// `Debug` prints the same text as `Display`, because it is used when `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Cause::Open(open_error, messages)) = self.cause.as_deref() {
            open_error.fmt(f)?;
            for message in messages {
                write!(f, "\n    {message}")?;
            }
        } else {
            write!(f, "{}: {}", self.call, self.kind())?;
            match status_names(self.status) {
                Some((_, subtype)) if !subtype.is_empty() => write!(f, " ({subtype})")?,
                Some(_) => {}
                None => write!(f, " ({:#010x})", self.status)?,
            }
            if let Some(detail) = self.detail() {
                write!(f, ": {detail}")?;
            }
        }
        // The advice is omitted if libraries could not be loaded, because their errors contain
        // their own advice.
        let has_attempts =
            self.open_error().is_some_and(|open_error| !open_error.attempts.is_empty());
        match advice(self.status) {
            Some(advice) if !(has_attempts && self.kind() == ErrorKind::ProviderNotFound) => {
                write!(f, "; {advice}")
            }
            _ => Ok(()),
        }
    }
}

macro_rules! kinds {
    ($($name:ident = $value:ident: $description:literal,)*) => {
        /// The type of a status. It is displayed as a description.
        ///
        /// ```
        /// use dat::{Adapter, ErrorKind};
        ///
        /// let error = Adapter::open("no-such-adapter").unwrap_err();
        /// assert_eq!(error.kind(), ErrorKind::ProviderNotFound);
        /// assert_eq!(error.kind().to_string(), "no provider found");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $(#[doc = concat!("`", stringify!($value), "`: ", $description, ".")] $name,)*
            /// A type that the standard does not define.
            Other(DAT_RETURN_TYPE),
        }

        impl ErrorKind {
            fn of(status: DAT_RETURN) -> Self {
                match DAT_GET_TYPE(status) {
                    $($value => ErrorKind::$name,)*
                    other => ErrorKind::Other(other),
                }
            }
        }

        impl fmt::Display for ErrorKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(ErrorKind::$name => $description,)*
                    ErrorKind::Other(_) => "failed with a status that the standard does not define",
                })
            }
        }
    };
}

kinds! {
    Abort = DAT_ABORT: "aborted because the object or its adapter was destroyed",
    ConnectionQualifierInUse = DAT_CONN_QUAL_IN_USE: "the connection qualifier is in use",
    InsufficientResources = DAT_INSUFFICIENT_RESOURCES: "not enough resources",
    Internal = DAT_INTERNAL_ERROR: "internal error of the provider",
    InvalidHandle = DAT_INVALID_HANDLE: "invalid handle",
    InvalidParameter = DAT_INVALID_PARAMETER: "invalid parameter",
    InvalidState = DAT_INVALID_STATE: "not possible in this state",
    Length = DAT_LENGTH_ERROR: "invalid length",
    ModelNotSupported = DAT_MODEL_NOT_SUPPORTED: "not supported by this provider",
    ProviderNotFound = DAT_PROVIDER_NOT_FOUND: "no provider found",
    PrivilegesViolation = DAT_PRIVILEGES_VIOLATION: "the memory region does not grant this access",
    ProtectionViolation = DAT_PROTECTION_VIOLATION: "the memory region belongs to another \
        protection zone",
    QueueEmpty = DAT_QUEUE_EMPTY: "the queue is empty",
    QueueFull = DAT_QUEUE_FULL: "the queue is full",
    TimeoutExpired = DAT_TIMEOUT_EXPIRED: "the time limit expired",
    ProviderAlreadyRegistered = DAT_PROVIDER_ALREADY_REGISTERED: "the provider is registered \
        already",
    ProviderInUse = DAT_PROVIDER_IN_USE: "the provider is in use",
    InvalidAddress = DAT_INVALID_ADDRESS: "invalid address",
    InterruptedCall = DAT_INTERRUPTED_CALL: "interrupted by a signal",
    ConnectionQualifierUnavailable = DAT_CONN_QUAL_UNAVAILABLE: "no connection qualifier is \
        available",
    ReservedMemoryRegion = DAT_RESERVED_LMR: "the memory region is reserved",
    PortInUse = DAT_PORT_IN_USE: "the port is in use",
    CommunicatorNotSupported = DAT_COMM_NOT_SUPPORTED: "the communicator is not supported",
    NotImplemented = DAT_NOT_IMPLEMENTED: "not implemented by this provider",
}

impl ErrorKind {
    /// The most similar kind of an [`io::Error`].
    fn to_io(self, subtype: DAT_RETURN_SUBTYPE) -> io::ErrorKind {
        use io::ErrorKind as Io;
        match self {
            ErrorKind::ConnectionQualifierInUse | ErrorKind::PortInUse => Io::AddrInUse,
            ErrorKind::ConnectionQualifierUnavailable => Io::AddrNotAvailable,
            ErrorKind::InvalidAddress if subtype == DAT_INVALID_ADDRESS_UNREACHABLE => {
                Io::HostUnreachable
            }
            ErrorKind::InvalidAddress => Io::AddrNotAvailable,
            ErrorKind::InvalidHandle | ErrorKind::InvalidParameter | ErrorKind::Length => {
                Io::InvalidInput
            }
            ErrorKind::InvalidState
                if matches!(
                    subtype,
                    DAT_INVALID_STATE_EP_UNCONNECTED | DAT_INVALID_STATE_EP_DISCONNECTED
                ) =>
            {
                Io::NotConnected
            }
            ErrorKind::InsufficientResources
                if matches!(subtype, DAT_RESOURCE_MEMORY | DAT_RESOURCE_MEMORY_REGION) =>
            {
                Io::OutOfMemory
            }
            ErrorKind::InterruptedCall => Io::Interrupted,
            ErrorKind::ModelNotSupported
            | ErrorKind::NotImplemented
            | ErrorKind::CommunicatorNotSupported => Io::Unsupported,
            ErrorKind::PrivilegesViolation | ErrorKind::ProtectionViolation => Io::PermissionDenied,
            ErrorKind::ProviderNotFound => Io::NotFound,
            ErrorKind::QueueEmpty => Io::WouldBlock,
            ErrorKind::TimeoutExpired => Io::TimedOut,
            _ => Io::Other,
        }
    }
}

/// Advice for the usual failures. The first row that fits an error applies.
const ADVICE: &[(DAT_RETURN_TYPE, Option<DAT_RETURN_SUBTYPE>, &str)] = &[
    (DAT_PROVIDER_NOT_FOUND, None, "`dat list` shows all names, and why an entry does not open"),
    (
        DAT_CONN_QUAL_IN_USE,
        None,
        "choose another qualifier, or end the program that listens on this one",
    ),
    (DAT_CONN_QUAL_UNAVAILABLE, None, "choose another qualifier: those below 1024 need privileges"),
    (DAT_INVALID_ADDRESS, Some(DAT_INVALID_ADDRESS_UNREACHABLE), "check the route to this address"),
    (DAT_INVALID_ADDRESS, Some(DAT_INVALID_ADDRESS_UNSUPPORTED), "give an IPv4 or IPv6 address"),
    (DAT_INVALID_STATE, Some(DAT_INVALID_STATE_EP_UNCONNECTED), "connect the endpoint first"),
    (DAT_INVALID_STATE, Some(DAT_INVALID_STATE_EP_CONNECTED), "disconnect the endpoint first"),
    (DAT_INVALID_STATE, Some(DAT_INVALID_STATE_EP_DISCONNECTED), "reset the endpoint first"),
    (
        DAT_INVALID_STATE,
        Some(DAT_INVALID_STATE_EP_ACTCONNPENDING),
        "wait for the connection event first",
    ),
    (
        DAT_INVALID_STATE,
        Some(DAT_INVALID_STATE_EP_COMPLPENDING),
        "wait for the connection event first",
    ),
    (
        DAT_INVALID_STATE,
        Some(DAT_INVALID_STATE_EP_DISCPENDING),
        "wait for the disconnected event first",
    ),
    (DAT_INVALID_STATE, Some(DAT_INVALID_STATE_EP_PZ), "give the endpoint a protection zone"),
    (
        DAT_INVALID_STATE,
        Some(DAT_INVALID_STATE_EP_EVD_CONNECT),
        "give the endpoint a dispatcher for connections",
    ),
    (
        DAT_INVALID_STATE,
        Some(DAT_INVALID_STATE_EP_NOTREADY),
        "give the endpoint dispatchers for completions",
    ),
    (DAT_INSUFFICIENT_RESOURCES, Some(DAT_RESOURCE_TEVD), "ask for a shorter queue"),
    (
        DAT_INSUFFICIENT_RESOURCES,
        Some(DAT_RESOURCE_MEMORY),
        "free memory, or raise the limit of locked memory: `ulimit -l`",
    ),
    (
        DAT_INSUFFICIENT_RESOURCES,
        Some(DAT_RESOURCE_MEMORY_REGION),
        "free registered memory, or raise the limit of locked memory: `ulimit -l`",
    ),
    (
        DAT_INSUFFICIENT_RESOURCES,
        Some(DAT_RESOURCE_DEVICE),
        "`dat doctor` shows what is in use, and by which process",
    ),
    (
        DAT_INSUFFICIENT_RESOURCES,
        None,
        "for a post, wait for completions, or create the endpoint with more requests or receives",
    ),
    (DAT_LENGTH_ERROR, None, "compare offset and length with those of the registered memory"),
    (
        DAT_PRIVILEGES_VIOLATION,
        None,
        "register the memory with the access that the operation needs",
    ),
    (DAT_PROTECTION_VIOLATION, None, "register the memory in the endpoint's protection zone"),
    (DAT_INTERRUPTED_CALL, None, "call again"),
];

fn advice(status: DAT_RETURN) -> Option<&'static str> {
    let (kind, subtype) = (DAT_GET_TYPE(status), DAT_GET_SUBTYPE(status));
    let row =
        ADVICE.iter().find(|row| row.0 == kind && row.1.is_none_or(|wanted| wanted == subtype));
    row.map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_and_what_to_do() {
        let text =
            |kind, subtype| Error::new("dat_ep_connect", DAT_ERROR(kind, subtype)).to_string();
        assert_eq!(
            text(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED),
            "dat_ep_connect: not possible in this state (DAT_INVALID_STATE_EP_CONNECTED); \
             disconnect the endpoint first"
        );
        assert_eq!(
            text(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE),
            "dat_ep_connect: invalid length; compare offset and length with those of the \
             registered memory"
        );
        assert_eq!(
            text(0x18_0000, DAT_NO_SUBTYPE),
            "dat_ep_connect: failed with a status that the standard does not define (0x80180000)"
        );
    }

    #[test]
    fn the_class_does_not_matter() {
        assert!(check("x", DAT_CLASS_WARNING).is_ok());
        let error = check("x", DAT_QUEUE_EMPTY).expect_err("a failure without its class");
        assert_eq!((error.kind(), error.subtype()), (ErrorKind::QueueEmpty, 0));
    }

    #[test]
    fn every_type_has_its_kind() {
        for kind in (1..=0x17).map(|n| n << 16).chain([DAT_NOT_IMPLEMENTED]) {
            assert!(
                !matches!(ErrorKind::of(DAT_CLASS_ERROR | kind), ErrorKind::Other(_)),
                "{kind:#x}"
            );
        }
    }
}
