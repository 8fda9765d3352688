//! The exchange by which dtest and dtestx find each other before they use DAT: over a TCP
//! connection on a fixed port the server sends its client the address to connect to.
//!
//! The server listens with DAT only after it has sent this message, so a quick client would find no
//! service. A relay between the two passes the message to the client only when the server listens.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::Running;

use crate::host::Family;
use crate::pair::{LIMIT, ProgramPlace, Route};

/// The TCP port on which dtest and dtestx exchange addresses.
const PORT: u16 = 15828;
const LOCALHOST: &str = "127.0.0.1";
/// The number of octets in the message with which a program sends its address.
const MESSAGE_BYTES: usize = 128;

/// Whether the client answers the server's message with its own address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The client of dtest does not answer, and the server goes on at once.
    None,
    /// The client of dtestx answers, and the server listens only after it has received that answer.
    /// Both sides use the same adapter, so the relay answers the server with the server's own
    /// message.
    Echo,
}

/// A relay between one server and its client. Dropping the relay ends its wait for a client.
pub(crate) struct Rendezvous {
    /// The address at which the server listens with TCP. The next member is the address to which
    /// the client connects.
    server: SocketAddr,
    at: String,
    listens: &'static str,
    answer: Answer,
    over: Arc<AtomicBool>,
}

impl Rendezvous {
    /// Returns a relay for a server that prints `listens` when it listens with DAT.
    pub(crate) fn new(route: &Route<'_>, listens: &'static str, answer: Answer) -> Self {
        // A server on this host occupies this port on every address of the host until it has sent
        // its message. The relay listens on the port only afterwards.
        let (server, at) = match (route.server, route.client) {
            (ProgramPlace::Here | ProgramPlace::Debian(_), _) => (LOCALHOST, route.to),
            (_, ProgramPlace::Here) => (route.to, LOCALHOST),
            // A guest reaches this host at this address.
            _ => (route.to, Family::V4.addresses()[0]),
        };
        let server = SocketAddr::new(server.parse().expect("an address"), PORT);
        Rendezvous { server, at: at.to_owned(), listens, answer, over: Arc::default() }
    }

    /// Returns the address to give to the client.
    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    /// Receives the server's message, waits until the server listens, and then offers the message
    /// to the client.
    pub(crate) fn relay_message(&self, server: &Running) -> Result<(), String> {
        let failed =
            |error: io::Error| server.report(&format!("did not send its address: {error}"));
        let mut message = [0; MESSAGE_BYTES];
        let mut stream = self.connect(server)?;
        stream.read_exact(&mut message).map_err(failed)?;
        if self.answer == Answer::Echo {
            stream.write_all(&message).map_err(failed)?;
        }
        drop(stream);
        server.wait_for(self.listens)?;

        let listener = TcpListener::bind((self.at.as_str(), PORT)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (over, answer) = (Arc::clone(&self.over), self.answer);
        thread::spawn(move || tell_client(&listener, &mut message, answer, &over));
        Ok(())
    }

    /// Connects to the server as soon as it listens with TCP.
    fn connect(&self, server: &Running) -> Result<TcpStream, String> {
        let start = Instant::now();
        loop {
            match TcpStream::connect(self.server) {
                Err(_) if start.elapsed() < LIMIT && !server.has_ended() => {
                    thread::sleep(Duration::from_millis(10));
                }
                connected => {
                    return connected.map_err(|error| {
                        server.report(&format!("does not listen with TCP: {error}"))
                    });
                }
            }
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Sends the server's message to the client. If the function returns an error, the client has
/// caused the error and prints it.
fn tell_client(
    listener: &TcpListener,
    message: &mut [u8; MESSAGE_BYTES],
    answer: Answer,
    over: &AtomicBool,
) -> io::Result<()> {
    while !over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.write_all(message)?;
                // If the relay closed the connection before the client has written, the client
                // would see a broken connection.
                return if answer == Answer::Echo { stream.read_exact(message) } else { Ok(()) };
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
