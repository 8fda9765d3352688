//! A relay: a process on this host that stands for a process in the guest. The relay prints the
//! output of that process and ends with its exit status. The other side is `tests/guest/serve`.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, ExitCode};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// The port at which the guest takes commands.
pub(super) const PORT: u16 = 1;

/// The times of keepalive probes. After a silence of `SILENCE`, probes ask the guest whether it is
/// still there: one every `PROBE_INTERVAL`, `PROBE_COUNT` times. One answer between two outages of
/// the wire is enough.
const SILENCE: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_COUNT: u32 = 50;

/// The first argument of a relay. The other arguments are the guest's address and the line of shell
/// to run.
const RELAY: &str = "--relay";

pub(super) fn command(to: SocketAddr, line: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a name"));
    command.args([RELAY, &to.to_string(), line]);
    command
}

/// Returns whether this process is a relay.
pub(crate) fn is_relay() -> bool {
    env::args().nth(1).is_some_and(|argument| argument == RELAY)
}

/// Runs this process as a relay for a command in the guest.
pub(crate) fn relay() -> ExitCode {
    let argument = |n| env::args().nth(n).unwrap_or_default();
    let run = || {
        let mut stream = TcpStream::connect(argument(2))?;
        // A guest that has died sends nothing, not even a reset.
        let probes = TcpKeepalive::new()
            .with_time(SILENCE)
            .with_interval(PROBE_INTERVAL)
            .with_retries(PROBE_COUNT);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        writeln!(stream, "{}", argument(3))?;
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

/// Returns the exit status in the last line of an answer.
pub(super) fn exit_status(line: &str) -> Option<u8> {
    line.strip_prefix("exit status ")?.parse().ok()
}
