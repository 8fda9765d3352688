//! `udaddy` of rdmacm-utils in the guest, and `programs/udaddy.c` on this host: the client finds
//! the server's queue pair and sends datagrams to it, which the server answers.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Dist, Ended, Registry, Running, Stop, c_program};

use crate::pair::{LIMIT, ProgramPlace, Route, bad_lines, missing_texts, verdict};

/// The port of udaddy, which cannot be changed.
const PORT: &str = "7174";

/// Datagrams in each direction.
#[derive(Clone, Copy)]
pub(super) struct Udaddy {
    pub(super) name: &'static str,
    size: u32,
    count: u32,
}

pub(super) const PROGRAMS: &[Udaddy] = &[
    Udaddy { name: "udaddy_100", size: 100, count: 10 },
    Udaddy { name: "udaddy_1024", size: 1024, count: 50 },
];

impl Udaddy {
    pub(super) fn run(
        &self,
        dist: &Dist,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(), Stop> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let program = c_program(dist, "udaddy", dir.path())?;
        let ours = |role: &[&str]| {
            let mut command = Command::new(&program);
            command.args(role).args([PORT, &self.size.to_string(), &self.count.to_string()]);
            command
        };
        let deadline = Instant::now() + LIMIT;
        let start = |label, place: &ProgramPlace<'_>, command| {
            Running::start(label, place.command(command), registry, deadline)
        };
        let [ours, theirs] = match route.server {
            ProgramPlace::Guest(guest, _) => {
                let server = start("udaddy", &route.server, self.theirs("-b", route.to))?;
                guest.wait_for_listener(PORT).map_err(|why| server.report(&why))?;
                let client = start("ours", &route.client, ours(&["client", route.to]))?;
                let client = client.end().map_err(|why| why + &server.report("served it"))?;
                [client, server.end()?]
            }
            _ => {
                let server = start("ours", &route.server, ours(&["server"]))?;
                server.wait_for("listening")?;
                let client = start("udaddy", &route.client, self.theirs("-s", route.to))?;
                let client = client.end().map_err(|why| why + &server.report("served it"))?;
                [server.end().map_err(|why| why + &client.text)?, client]
            }
        };
        Ok(self.judge(&ours, &theirs)?)
    }

    /// The command of udaddy. `role` is `-b` for a server at this address, and `-s` for a client of
    /// a server there.
    fn theirs(&self, role: &str, address: &str) -> Command {
        let mut command = Command::new("udaddy");
        command.args([role, address, "-S", &self.size.to_string(), "-C", &self.count.to_string()]);
        command
    }

    fn judge(&self, ours: &Ended, theirs: &Ended) -> Result<(), String> {
        let done = ["data transfers complete", "return status 0"];
        let mut complaints = missing_texts("udaddy", &theirs.text, &done);
        complaints.extend(bad_lines("udaddy", &theirs.text, &["failed", "error"], &[]));
        if ours.text.lines().last() != Some("ok") {
            complaints.push("the program on this host does not end with ok".to_owned());
        }
        verdict(&complaints, [("udaddy", theirs), ("ours", ours)])
    }
}
