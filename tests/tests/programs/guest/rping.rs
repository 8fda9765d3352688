//! `rping` of rdmacm-utils in the guest, and `programs/rping.c` on this host: one side offers
//! memory, which the other side reads and writes back.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Dist, Ended, Registry, Running, Stop, c_program};

use crate::pair::{LIMIT, ProgramPlace, Route, bad_lines, verdict};

const PORT: &str = "7174";

/// The start of the line that rping prints for each round.
const ROUND: &str = "ping data: ";

/// Connections that follow one another, each with rounds of this size.
#[derive(Clone, Copy)]
pub(super) struct Rping {
    pub(super) name: &'static str,
    size: u32,
    rounds: usize,
    connections: usize,
}

/// rping's largest size is 64 KiB less one octet.
pub(super) const SIZES: &[Rping] = &[
    Rping { name: "rping_64", size: 64, rounds: 20, connections: 1 },
    Rping { name: "rping_5000", size: 5000, rounds: 20, connections: 1 },
    Rping { name: "rping_65535", size: 65535, rounds: 20, connections: 1 },
];
/// Many connections, each of which carries one round and ends.
pub(super) const CONNECTIONS: Rping =
    Rping { name: "rping_200_connections", size: 64, rounds: 1, connections: 200 };

impl Rping {
    pub(super) fn run(
        &self,
        dist: &Dist,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(), Stop> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let program = c_program(dist, "rping", dir.path())?;
        let ours = |role: &[&str]| {
            let numbers = [self.size as usize, self.rounds, self.connections]
                .map(|number| number.to_string());
            let mut command = Command::new(&program);
            command.args(role).arg(PORT).args(numbers);
            command
        };
        let deadline = Instant::now() + LIMIT;
        let start = |label, place: &ProgramPlace<'_>, command| {
            Running::start(label, place.command(command), registry, deadline)
        };
        let [ours, theirs] = match route.server {
            ProgramPlace::Guest(guest, _) => {
                // With -P the server serves one client after the other, forever.
                let server = start("rping", &route.server, self.theirs("-s -P", route.to))?;
                guest.wait_for_listener(PORT).map_err(|why| server.report(&why))?;
                let client = start("ours", &route.client, ours(&["client", route.to]))?;
                let client = client.end().map_err(|why| why + &server.report("served it"))?;
                // The server's output may still be on its way from the guest.
                server
                    .wait_for_times(ROUND, self.rounds * self.connections)
                    .map_err(|why| why + &client.text)?;
                [client, server.kill()?]
            }
            _ => {
                let server = start("ours", &route.server, ours(&["server"]))?;
                server.wait_for("listening")?;
                let client = start("rping", &route.client, self.theirs("-c", route.to))?;
                let client = client.end().map_err(|why| why + &server.report("served it"))?;
                [server.end().map_err(|why| why + &client.text)?, client]
            }
        };
        Ok(self.judge(&ours, &theirs)?)
    }

    fn theirs(&self, role: &str, to: &str) -> Command {
        let Rping { size, rounds, connections, .. } = self;
        let rping = format!("rping {role} -d -v -V -a {to} -p {PORT} -S {size} -C {rounds}");
        let script = match role {
            // The client sometimes ends with an error when everything is done, because one of its
            // threads closes a descriptor that another one reads.
            "-c" => format!("for i in $(seq {connections}); do {rping}; done; true"),
            _ => rping,
        };
        let mut command = Command::new("bash");
        command.args(["-c", &script]);
        command
    }

    /// rping exits with success even if its peer ends early, so the rounds are counted.
    fn judge(&self, ours: &Ended, theirs: &Ended) -> Result<(), String> {
        let rounds = theirs.text.lines().filter(|line| line.contains(ROUND)).count();
        let mut complaints =
            bad_lines("rping", &theirs.text, &["mismatch", "failed", "error"], &[]);
        if rounds != self.rounds * self.connections {
            complaints.push(format!("rping has printed {rounds} rounds"));
        }
        if ours.text.lines().last() != Some("ok") {
            complaints.push("the program on this host does not end with ok".to_owned());
        }
        verdict(&complaints, [("rping", theirs), ("ours", ours)])
    }
}
