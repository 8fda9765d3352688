//! Communication with the processes that this program starts: lines of JSON in both directions over
//! one socket, which is the child's standard input. Standard output is not used, because a provider
//! may print to it.

use std::io::{self, BufRead, BufReader, Read, Write, stdin};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// In the parent: makes a pair of sockets, and gives one end to the new process as its standard
/// input. Returns the other end. When the parent ends in any way, the kernel closes that end, and
/// the process reads the end of its input.
pub fn connect(child: &mut Command) -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair().context("making a pair of sockets")?;
    child.stdin(Stdio::from(OwnedFd::from(theirs)));
    Ok(ours)
}

/// In the parent: sends the one line that tells the process what to do.
pub fn send_plan(mut child: &UnixStream, plan: &impl Serialize) -> Result<()> {
    Ok(writeln!(child, "{}", serde_json::to_string(plan)?)?)
}

/// How long a provider may take to start. Every known provider needs far less.
pub const START_LIMIT: Duration = Duration::from_secs(10);

/// In the parent: runs a process that starts a provider, because the provider may crash or hang.
/// Sends the plan to the process. The first value is the answer of the process, or `None` if it
/// sent none. The second value is the exit status, or `None` if the process still ran after `limit`
/// and was killed.
pub fn ask<T: DeserializeOwned>(
    mut command: Command,
    plan: &impl Serialize,
    limit: Duration,
) -> Result<(Option<T>, Option<ExitStatus>)> {
    let socket = connect(&mut command)?;
    let mut child = command.spawn().context("starting this program")?;
    drop(command); // closes our copy of the child's end of the socket
    // An error of the send is ignored: if the process has ended already, its exit status shows why.
    let _ = send_plan(&socket, plan);
    // If a library reads standard input, the read must end.
    let _ = socket.shutdown(Shutdown::Write);
    let status = wait_within(&mut child, limit).context("waiting for this program")?;
    // The read must not block. A process that the library has left running may keep the other end
    // of the socket open, so the end of the input may never come.
    socket.set_nonblocking(true)?;
    let mut answer = String::new();
    let _ = BufReader::new(socket).read_line(&mut answer);
    Ok((serde_json::from_str(&answer).ok(), status))
}

/// Waits until a process ends. A process that still runs after `limit` is killed; the result is
/// then `None`.
fn wait_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// In the child: reads its plan.
pub fn receive_plan<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    BufReader::new(socket()?).read_line(&mut line).context(WRONG_USE)?;
    serde_json::from_str(&line).context(WRONG_USE)
}

const WRONG_USE: &str = "this command is for internal use: its parent starts it with a socket \
                         and a line of JSON as its input";

/// In the child: sends a message to the parent. If the parent has ended, the process ends, too.
pub fn send(message: &impl Serialize) {
    let line = serde_json::to_string(message).unwrap_or_default() + "\n";
    if socket().and_then(|mut socket| Ok(socket.write_all(line.as_bytes())?)).is_err() {
        std::process::exit(1);
    }
}

/// In the child: ends the process when its parent ends. No other input is read from the parent.
pub fn exit_with_parent() -> Result<()> {
    let mut socket = socket()?;
    thread::spawn(move || {
        while socket.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        std::process::exit(1);
    });
    Ok(())
}

/// Returns the socket under a descriptor of its own, since a provider may close or redirect
/// standard input.
fn socket() -> Result<&'static UnixStream> {
    static SOCKET: OnceLock<UnixStream> = OnceLock::new();
    if let Some(socket) = SOCKET.get() {
        return Ok(socket);
    }
    let socket = stdin().as_fd().try_clone_to_owned().context("duplicating standard input")?;
    Ok(SOCKET.get_or_init(|| socket.into()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_process_that_is_stopped_is_reaped() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
        assert_eq!(
            wait_within(&mut child, Duration::ZERO).expect("the process can be killed"),
            None
        );
        assert!(!Path::new(&format!("/proc/{}", child.id())).exists());
    }
}
