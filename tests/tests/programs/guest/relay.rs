//! A process here that stands for one in the guest: prints what that one prints, and ends as it ends. The other side is
//! `tests/guest/serve`.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, ExitCode};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Where the guest takes commands.
pub(super) const PORT: u16 = 1;

/// After so long a silence the guest is asked whether it is still there, and then this often, so many times: one answer between
/// two outages of the wire is enough.
const SILENCE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(1);
const QUESTIONS: u32 = 50;

/// Set in such a process: the guest's address, and the line of shell that it is to run.
const TO: &str = "OPENDAT_TEST_RELAY_TO";
const LINE: &str = "OPENDAT_TEST_RELAY_LINE";

pub(super) fn command(to: SocketAddr, line: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a name"));
    command.env(TO, to.to_string()).env(LINE, line);
    command
}

/// Whether this process is one.
pub(crate) fn is_relay() -> bool {
    env::var_os(TO).is_some()
}

/// What it does.
pub(crate) fn relay() -> ExitCode {
    let variable = |name| env::var(name).map_err(io::Error::other);
    let run = || {
        let mut stream = TcpStream::connect(variable(TO)?)?;
        // A guest that has died says nothing, and not that either.
        let probes =
            TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_EVERY).with_retries(QUESTIONS);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        writeln!(stream, "{}", variable(LINE)?)?;
        let mut out = io::stdout();
        for line in BufReader::new(stream).split(b'\n') {
            let line = line?;
            if let Some(status) = exit_status(&String::from_utf8_lossy(&line)) {
                return Ok(status);
            }
            out.write_all(&[&line[..], b"\n"].concat())?;
            out.flush()?;
        }
        Err(io::Error::other("the guest has ended"))
    };
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the last line of an answer says.
pub(super) fn exit_status(line: &str) -> Option<u8> {
    line.strip_prefix("exit status ")?.parse().ok()
}
