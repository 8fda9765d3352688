//! How dtest and dtestx find each other before DAT comes in: over a TCP connection on a fixed port the server tells its
//! one client how to reach it.
//!
//! They listen with DAT only afterwards, so that a client that is quick enough finds nobody there. A relay in between lets
//! the client have the message when the server listens.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::Running;

use crate::host::Family;
use crate::pair::{LIMIT, Place, Way};

/// The port of both programs.
const PORT: u16 = 15828;
const HERE: &str = "127.0.0.1";
/// What a side tells has this many bytes.
const MESSAGE: usize = 128;

/// Whether the client says in the same form where it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It does not, and the server goes on at once (dtest).
    None,
    /// It does, and the server listens only then (dtestx). Both are on one adapter: the server is given its own message.
    Echo,
}

/// A relay between one server and its client. Dropped, it no longer waits for a client.
pub(crate) struct Rendezvous {
    /// Where the server is first, and where the client looks for it.
    server: SocketAddr,
    at: String,
    listens: &'static str,
    answer: Answer,
    over: Arc<AtomicBool>,
}

impl Rendezvous {
    /// For a server that says this when it listens with DAT.
    pub(crate) fn new(way: &Way<'_>, listens: &'static str, answer: Answer) -> Self {
        // A server that is here is itself at this port of every address, until it has told.
        let (server, at) = match (way.server, way.client) {
            (Place::Here | Place::Debian(_), _) => (HERE, way.to),
            (_, Place::Here) => (way.to, HERE),
            // How a guest knows this host.
            _ => (way.to, Family::V4.addresses()[0]),
        };
        let server = SocketAddr::new(server.parse().expect("an address"), PORT);
        Rendezvous { server, at: at.to_owned(), listens, answer, over: Arc::default() }
    }

    /// The address to give to the client.
    pub(crate) fn at(&self) -> &str {
        &self.at
    }

    /// Takes the server's message, waits until it listens, and has the message ready for the client.
    pub(crate) fn arrange(&self, server: &Running) -> Result<(), String> {
        let said =
            |error: io::Error| server.report(&format!("cannot be asked for its address: {error}"));
        let mut message = [0; MESSAGE];
        let mut stream = self.connect(server)?;
        stream.read_exact(&mut message).map_err(said)?;
        if self.answer == Answer::Echo {
            stream.write_all(&message).map_err(said)?;
        }
        drop(stream);
        server.wait_for(self.listens)?;

        let listener = TcpListener::bind((self.at.as_str(), PORT)).map_err(said)?;
        listener.set_nonblocking(true).map_err(said)?;
        let (over, answer) = (Arc::clone(&self.over), self.answer);
        thread::spawn(move || tell_client(&listener, &mut message, answer, &over));
        Ok(())
    }

    /// To the server, as soon as it listens with TCP.
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

/// An error here is one of the client's: it says so itself.
fn tell_client(
    listener: &TcpListener,
    message: &mut [u8; MESSAGE],
    answer: Answer,
    over: &AtomicBool,
) -> io::Result<()> {
    while !over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.write_all(message)?;
                // Closed before the client has written, the connection would be one that breaks.
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
