//! The errors of futures.

use std::error::Error as StdError;
use std::{fmt, io};

use crate::{Completion, ConnectionEvent, Error, Status};

/// The reason for which an operation or a connection has failed. It converts to [`io::Error`].
///
/// ```
/// use dat::ConnectionEvent;
/// use dat::asynchronous::OperationError;
///
/// let error = OperationError::Connection(ConnectionEvent::TimedOut);
/// assert_eq!(error.to_string(), "not connected: no answer within the time limit");
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum OperationError {
    /// The call was refused.
    Refused(Error),
    /// The operation was posted, and has failed.
    Failed(Completion),
    /// The connection was not established.
    Connection(ConnectionEvent),
    /// The operation's endpoint or queue was dropped.
    Dropped,
    /// The events of the adapter cannot be taken any more, for this reason.
    Stopped(String),
}

/// `Debug` prints the same text as `Display`, because it is used when `main` returns the error.
impl fmt::Debug for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperationError::Refused(error) => fmt::Display::fmt(error, f),
            OperationError::Failed(completion) => {
                write!(f, "{} failed: {}", completion.operation, completion.status)
            }
            OperationError::Connection(event) => write!(f, "not connected: {event}"),
            OperationError::Dropped => {
                f.write_str("not performed: the endpoint or the queue was dropped")
            }
            OperationError::Stopped(why) => write!(f, "no events can be taken any more: {why}"),
        }
    }
}

impl StdError for OperationError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            OperationError::Refused(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        OperationError::Refused(error)
    }
}

impl From<OperationError> for io::Error {
    fn from(error: OperationError) -> Self {
        use io::ErrorKind as Io;
        let kind = match &error {
            OperationError::Refused(refused) => return refused.clone().into(),
            OperationError::Failed(completion) => match completion.status {
                Status::Flushed => Io::ConnectionAborted,
                Status::LocalLength => Io::InvalidInput,
                Status::LocalProtection | Status::RemoteAccess => Io::PermissionDenied,
                Status::Transport | Status::ReceiverNotReady => Io::ConnectionReset,
                _ => Io::Other,
            },
            OperationError::Connection(event) => match event {
                ConnectionEvent::PeerRejected { .. } | ConnectionEvent::NonPeerRejected => {
                    Io::ConnectionRefused
                }
                ConnectionEvent::TimedOut => Io::TimedOut,
                ConnectionEvent::Unreachable => Io::HostUnreachable,
                ConnectionEvent::Disconnected => Io::ConnectionAborted,
                ConnectionEvent::Broken => Io::ConnectionReset,
                _ => Io::Other,
            },
            OperationError::Dropped => Io::ConnectionAborted,
            OperationError::Stopped(_) => Io::Other,
        };
        io::Error::new(kind, error)
    }
}

/// The failure of a [`Transfer`](super::Transfer), with the buffer of the operation. It converts
/// to [`OperationError`] and [`io::Error`], which drop the buffer.
///
/// ```no_run
/// # async fn send(endpoint: &mut dat::asynchronous::AsyncEndpoint,
/// #     buffer: dat::MemoryRegion<'static>) -> std::io::Result<()> {
/// match endpoint.send(buffer, 0..5).await {
///     Ok((_buffer, completion)) => println!("{} bytes were sent", completion.length),
///     Err(failed) => println!("{failed}; the buffer has {} bytes", failed.buffer.len()),
/// }
/// # Ok(())
/// # }
/// ```
pub struct TransferError<B> {
    /// The buffer of the operation.
    pub buffer: B,
    /// The reason of the failure.
    pub error: OperationError,
}

impl<B> fmt::Debug for TransferError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for TransferError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> StdError for TransferError<B> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl<B> From<TransferError<B>> for OperationError {
    fn from(failed: TransferError<B>) -> Self {
        failed.error
    }
}

impl<B> From<TransferError<B>> for io::Error {
    fn from(failed: TransferError<B>) -> Self {
        failed.error.into()
    }
}
