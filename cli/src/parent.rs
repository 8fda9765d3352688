//! How a process that this program starts talks with it: over one socket, which is the child's standard input, lines
//! of JSON both ways. Standard output is nobody's: a provider may print there what it likes.

use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// For the parent: gives a process to be its socket, and returns the other end. The process sees the end of its input
/// when that is closed, as it is when the parent ends, however it ends.
pub(crate) fn connect(child: &mut Command) -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair().context("making a pair of sockets")?;
    child.stdin(Stdio::from(OwnedFd::from(theirs)));
    Ok(ours)
}

/// For the parent: the one line that tells the process what to do.
pub(crate) fn instruct(mut child: &UnixStream, plan: &impl Serialize) -> Result<()> {
    Ok(writeln!(child, "{}", serde_json::to_string(plan)?)?)
}

/// For the child: what it is to do.
pub(crate) fn instructions<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    BufReader::new(socket()?).read_line(&mut line).context(WHAT)?;
    serde_json::from_str(&line).context(WHAT)
}

const WHAT: &str = "this command is for `dat` itself, which starts it with a socket and a line of JSON as its input";

/// For the child: tells the parent. Where there is none any more, nothing is left to be done.
pub(crate) fn say(said: &impl Serialize) {
    let line = serde_json::to_string(said).unwrap_or_default() + "\n";
    if socket().and_then(|mut socket| Ok(socket.write_all(line.as_bytes())?)).is_err() {
        std::process::exit(1);
    }
}

/// For the child: from here on it ends when its parent does. Nothing more is read from the parent.
pub(crate) fn end_with() -> Result<()> {
    let mut socket = socket()?;
    std::thread::spawn(move || {
        while socket.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        std::process::exit(1);
    });
    Ok(())
}

/// A descriptor of its own: what a provider does to standard input is of no consequence.
fn socket() -> Result<&'static UnixStream> {
    static SOCKET: OnceLock<UnixStream> = OnceLock::new();
    if let Some(socket) = SOCKET.get() {
        return Ok(socket);
    }
    let socket = stdin().as_fd().try_clone_to_owned().context("duplicating standard input")?;
    Ok(SOCKET.get_or_init(|| socket.into()))
}
