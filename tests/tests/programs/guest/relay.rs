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

/// The environment variables of a relay: the guest's address, and the line of shell to run.
const ADDRESS_VARIABLE: &str = "OPENDAT_TEST_RELAY_TO";
const LINE_VARIABLE: &str = "OPENDAT_TEST_RELAY_LINE";

pub(super) fn command(to: SocketAddr, line: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a name"));
    command.env(ADDRESS_VARIABLE, to.to_string()).env(LINE_VARIABLE, line);
    command
}

/// Returns whether this process is a relay.
pub(crate) fn is_relay() -> bool {
    env::var_os(ADDRESS_VARIABLE).is_some()
}

/// Runs the relay.
pub(crate) fn relay() -> ExitCode {
    let variable = |name| env::var(name).map_err(io::Error::other);
    let run = || {
        let mut stream = TcpStream::connect(variable(ADDRESS_VARIABLE)?)?;
        // A guest that has died sends nothing, not even a reset.
        let probes = TcpKeepalive::new()
            .with_time(SILENCE)
            .with_interval(PROBE_INTERVAL)
            .with_retries(PROBE_COUNT);
        SockRef::from(&stream).set_tcp_keepalive(&probes)?;
        writeln!(stream, "{}", variable(LINE_VARIABLE)?)?;
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
