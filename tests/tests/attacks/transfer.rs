//! An endless transfer of Debian's dapltest that checks all octets. dapltest prints nothing before
//! its end, so the library's statistics show how much has been moved.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Instant;

use opendat_tests::{Registry, Running, Skip, Stop, find_program};

/// The port of dapltest's server. The server's endpoints use the ports after this one.
const PORT: u16 = 21950;
/// The operations of the transfer, which dapltest repeats.
const OPERATIONS: &str = "client SR 4096 1 server SR 1024 2 client RW 16384 2 server RR 16384 1";

/// A running server without a client.
pub(crate) struct Server(Running);

pub(crate) struct Transfer {
    server: Running,
    client: Running,
}

impl Server {
    pub(crate) fn port(&self) -> u16 {
        PORT
    }

    pub(crate) fn transfer(
        self,
        registry: &Registry,
        to: &str,
        deadline: Instant,
    ) -> Result<Transfer, Stop> {
        let mut client = dapltest(registry, "T")?;
        client.args(["-s", to, "-t", "1", "-w", "1", "-i", "1000000000", "-V"]);
        client.args(OPERATIONS.split_whitespace()).env("OPENDAT_PARAMS", "stats=on");
        let client = Running::start("client", client, registry, deadline)?;
        Ok(Transfer { server: self.0, client })
    }
}

impl Transfer {
    pub(crate) fn serve(registry: &Registry, deadline: Instant) -> Result<Server, Stop> {
        let server = Running::start("server", dapltest(registry, "S")?, registry, deadline)?;
        server.wait_for("Service Point Ready")?;
        Ok(Server(server))
    }

    /// Returns the octets that the client has sent, received, written and read.
    pub(crate) fn octets(&self) -> Result<u64, String> {
        let output = statistics(self.client.id()).map_err(|why| self.report(&why))?;
        let sum = output.lines().skip_while(|line| *line != "sum ep");
        let counters = sum.filter_map(|line| line.split_once(' '));
        let octets = counters.filter(|(name, _)| name.ends_with("_DATA"));
        Ok(octets.filter_map(|(_, number)| number.parse::<u64>().ok()).sum())
    }

    /// Returns the lines in which dapltest reports wrong octets.
    pub(crate) fn corruption_reports(&self) -> Vec<String> {
        self.lines(&["Expected "])
    }

    /// Returns the lines in which dapltest reports failures other than wrong octets, or reports
    /// that the server or the client has ended.
    pub(crate) fn failure_reports(&self) -> Vec<String> {
        let mut lost =
            self.lines(&["rror", "FAIL", "ail", "arning", "annot", "problem", "DISCONNECTED"]);
        for side in [&self.server, &self.client] {
            if side.has_ended() {
                lost.push(side.report("has ended"));
            }
        }
        lost
    }

    fn lines(&self, words: &[&str]) -> Vec<String> {
        let output = [self.server.said(), self.client.said()].concat();
        let bad = output.lines().filter(|line| words.iter().any(|word| line.contains(word)));
        bad.map(str::to_owned).collect()
    }

    /// Returns the output of dapltest's server and client.
    pub(crate) fn report(&self, complaint: &str) -> String {
        self.client.report(complaint) + &self.server.report("belongs to this transfer")
    }
}

fn dapltest(registry: &Registry, test: &str) -> Result<Command, Skip> {
    let mut command = Command::new(find_program("dapltest", "dapl2-utils")?);
    command.args(["-T", test, "-D", registry.ia(), "-n", &PORT.to_string()]);
    Ok(command)
}

/// Returns the statistics of a process's adapters, which `dat top` also shows.
fn statistics(process: u32) -> Result<String, String> {
    let mut output = String::new();
    let sockets = fs::read_dir("/tmp/opendat-0").into_iter().flatten().flatten();
    for directory in sockets.filter_map(|entry| fs::read_dir(entry.path().join("stats")).ok()) {
        for socket in directory.flatten() {
            if socket.file_name().to_string_lossy().starts_with(&format!("{process}-")) {
                let connected = UnixStream::connect(socket.path());
                let read = connected.and_then(|mut stream| stream.read_to_string(&mut output));
                read.map_err(|error| format!("{}: {error}", socket.path().display()))?;
            }
        }
    }
    Ok(output)
}
