//! For a program that knows what has to come next: an event as what it should be, or an error that says what it is.

use std::fmt;

use crate::{ConnectionEvent, ConnectionRequest, Event};

/// An event other than the one that had to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    expected: &'static str,
    got: String,
}

impl Event {
    /// The connection request.
    ///
    /// # Errors
    ///
    /// It is another event.
    pub fn request(self) -> Result<ConnectionRequest, Unexpected> {
        match self {
            Event::ConnectionRequest(request) => Ok(request),
            other => Err(other.instead_of("a connection request")),
        }
    }

    /// That a connection is up: what the peer gave to its accept, empty on the accepting side.
    ///
    /// # Errors
    ///
    /// It is another event; most likely one that says why the connection did not come up.
    pub fn established(self) -> Result<Vec<u8>, Unexpected> {
        match self {
            Event::Connection { event: ConnectionEvent::Established { private_data }, .. } => {
                Ok(private_data)
            }
            other => Err(other.instead_of("a connection to come up")),
        }
    }

    /// That a connection was ended, by either side.
    ///
    /// # Errors
    ///
    /// It is another event.
    pub fn disconnected(self) -> Result<(), Unexpected> {
        match self {
            Event::Connection { event: ConnectionEvent::Disconnected, .. } => Ok(()),
            other => Err(other.instead_of("a connection to end")),
        }
    }

    #[cold]
    fn instead_of(self, expected: &'static str) -> Unexpected {
        Unexpected { expected, got: self.to_string() }
    }
}

impl std::error::Error for Unexpected {}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}; instead: {}", self.expected, self.got)
    }
}

/// Words for a person: `send 3: done, 4 bytes`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Completion(c) => {
                write!(f, "{} {}: {}, {} bytes", c.operation, c.cookie, c.status, c.length)
            }
            Event::ConnectionRequest(_) => f.write_str("connection request"),
            Event::Connection { event, .. } => event.fmt(f),
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
            result.map(drop).expect_err("another event").to_string()
        };
        assert_eq!(
            text(connection(ConnectionEvent::Unreachable).established()),
            "expected a connection to come up; instead: the peer cannot be reached"
        );
        assert_eq!(
            up().disconnected().expect_err("it is up").to_string(),
            "expected a connection to end; instead: established"
        );
        assert_eq!(
            Event::Asynchronous(AsynchronousError::Catastrophic)
                .request()
                .expect_err("lost")
                .to_string(),
            "expected a connection request; instead: the adapter is lost"
        );
        assert_eq!(Event::Other(0x40001).to_string(), "event 0x40001");
    }
}
