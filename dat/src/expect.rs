//! Methods for programs that know which event must come next. They return the contents of that
//! event, or an error that describes the event that came instead.

use std::{fmt, io};

use crate::{Completion, ConnectionEvent, ConnectionRequest, DatagramPeer, Event, Status};

/// An event other than the expected one. It converts to [`io::Error`].
///
/// ```
/// let event = dat::Event::Other(0x40001);
/// assert_eq!(
///     event.completion().unwrap_err().to_string(),
///     "expected a successful completion, but got: event 0x40001"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Unexpected {
    expected: &'static str,
    actual: String,
    cause: Option<String>,
}

impl Unexpected {
    /// The sentence that [`Endpoint::explain`](crate::Endpoint::explain) has added.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    pub(crate) fn with_cause(self, cause: Option<String>) -> Unexpected {
        Unexpected { cause, ..self }
    }
}

impl Event {
    /// Returns the connection request.
    ///
    /// # Errors
    ///
    /// The event is not a connection request.
    pub fn request(self) -> Result<ConnectionRequest, Unexpected> {
        match self {
            Event::ConnectionRequest(request) => Ok(request),
            other => Err(other.instead_of("a connection request")),
        }
    }

    /// Expects that a connection is established. Returns the private data of the peer's accept,
    /// which are empty on the accepting side.
    ///
    /// # Errors
    ///
    /// Fails if the event is a different one. That event usually contains the reason for which the
    /// connection was not established.
    pub fn established(self) -> Result<Vec<u8>, Unexpected> {
        match self {
            Event::Connection { event: ConnectionEvent::Established { private_data }, .. } => {
                Ok(private_data)
            }
            other => Err(other.instead_of("an established connection")),
        }
    }

    /// Expects that a datagram endpoint can send to a peer. Returns the peer.
    ///
    /// # Errors
    ///
    /// Fails if the event is a different one. That event usually contains the reason for which the
    /// peer was not found.
    pub fn peer(self) -> Result<DatagramPeer, Unexpected> {
        match self {
            Event::Peer(peer) => Ok(peer),
            other => Err(other.instead_of("a peer for datagrams")),
        }
    }

    /// Expects that a connection was ended by either side.
    ///
    /// # Errors
    ///
    /// The event is not the end of a connection.
    pub fn disconnected(self) -> Result<(), Unexpected> {
        match self {
            Event::Connection { event: ConnectionEvent::Disconnected, .. } => Ok(()),
            other => Err(other.instead_of("a disconnected connection")),
        }
    }

    /// Expects that an operation has completed successfully.
    ///
    /// # Errors
    ///
    /// The event is not a completion, or the operation has failed.
    pub fn completion(self) -> Result<Completion, Unexpected> {
        match self {
            Event::Completion(completion) if completion.status == Status::Success => Ok(completion),
            other => Err(other.instead_of("a successful completion")),
        }
    }

    #[cold]
    fn instead_of(self, expected: &'static str) -> Unexpected {
        Unexpected { expected, actual: self.to_string(), cause: None }
    }
}

impl std::error::Error for Unexpected {}

impl From<Unexpected> for io::Error {
    fn from(error: Unexpected) -> Self {
        io::Error::other(error)
    }
}

/// `Debug` prints the same text as `Display`, because it is used when `main` returns the error.
impl fmt::Debug for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, but got: {}", self.expected, self.actual)?;
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

/// Displays an event as a description, such as `send 3: done, 4 bytes`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Completion(c) => {
                write!(f, "{} {}: {}, {} bytes", c.operation, c.cookie, c.status, c.length)
            }
            Event::ConnectionRequest(_) => f.write_str("connection request"),
            Event::Connection { event, .. } => event.fmt(f),
            Event::Peer(_) => f.write_str("peer for datagrams"),
            Event::Asynchronous(error) => error.fmt(f),
            Event::Other(number) => write!(f, "event {number:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AsynchronousError, EndpointId};

    fn connection(event: ConnectionEvent) -> Event {
        Event::Connection { endpoint: EndpointId(0), event }
    }

    #[test]
    fn an_event_is_what_it_should_be_or_says_what_it_is() {
        let up = || connection(ConnectionEvent::Established { private_data: b"x".to_vec() });
        assert_eq!(up().established(), Ok(b"x".to_vec()));
        assert_eq!(connection(ConnectionEvent::Disconnected).disconnected(), Ok(()));
        let text = |result: Result<_, Unexpected>| {
            result.map(drop).expect_err("the event is not the expected one").to_string()
        };
        assert_eq!(
            text(connection(ConnectionEvent::Unreachable).established()),
            "expected an established connection, but got: the peer cannot be reached"
        );
        assert_eq!(
            up().disconnected()
                .expect_err("an established connection is not a disconnected one")
                .to_string(),
            "expected a disconnected connection, but got: established"
        );
        assert_eq!(
            Event::Asynchronous(AsynchronousError::Catastrophic)
                .request()
                .expect_err("an error of the adapter is not a connection request")
                .to_string(),
            "expected a connection request, but got: the adapter is lost"
        );
        assert_eq!(Event::Other(0x40001).to_string(), "event 0x40001");
    }
}
