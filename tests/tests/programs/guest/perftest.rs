//! Runs programs of perftest in the guest, with the option `-R`, and `programs/perftest.c` on this
//! host, which serves them.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Dist, Ended, Registry, Running, Stop, c_program};

use crate::pair::{LIMIT, ProgramPlace, Route, verdict};

const PORT: &str = "18515";

/// One of perftest's programs.
#[derive(Clone, Copy)]
pub(super) struct Perftest {
    pub(super) program: &'static str,
    size: u32,
    rounds: u32,
    does: ClientOperation,
}

/// The operation that the client of perftest measures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientOperation {
    Write,
    Read,
    /// The client sends messages and receives them back.
    Send,
}

pub(super) const PROGRAMS: &[Perftest] = &[
    Perftest { program: "ib_write_bw", size: 65536, rounds: 100, does: ClientOperation::Write },
    Perftest { program: "ib_read_bw", size: 65536, rounds: 100, does: ClientOperation::Read },
    Perftest { program: "ib_send_lat", size: 64, rounds: 200, does: ClientOperation::Send },
];

impl Perftest {
    /// Runs the client, which is in the guest, and the server.
    pub(super) fn run(
        &self,
        dist: &Dist,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(), Stop> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let program = c_program(dist, "perftest", dir.path())?;
        let [size, rounds] = [self.size, self.rounds].map(|number| number.to_string());
        let deadline = Instant::now() + LIMIT;
        let start = |label, place: &ProgramPlace<'_>, command| {
            Running::start(label, place.command(command), registry, deadline)
        };
        let mut ours = Command::new(program);
        ours.args([PORT, &size]);
        let server = start("ours", &route.server, ours)?;
        server.wait_for("listening")?;
        // With the option -F, perftest runs although the processor's clock frequency is not
        // constant.
        let mut theirs = Command::new(self.program);
        theirs.args(["-R", "-F", "-p", PORT, "-s", &size, "-n", &rounds, route.to]);
        let client = start("perftest", &route.client, theirs)?;
        let client = client.end().map_err(|why| why + &server.report("served it"))?;
        let server = server.end().map_err(|why| why + &client.text)?;
        Ok(self.judge(&server, &client)?)
    }

    fn judge(&self, ours: &Ended, theirs: &Ended) -> Result<(), String> {
        let mut complaints = Vec::new();
        let figures = [self.size, self.rounds].map(|number| number.to_string());
        let says = |line: &str| line.split_whitespace().take(2).eq(figures.iter());
        if !theirs.status.success() || !theirs.text.lines().any(says) {
            complaints.push("perftest has printed no figures".to_owned());
        }
        if ours.text.lines().last() != Some("ok") {
            complaints.push("the server on this host does not end with ok".to_owned());
        }
        let messages = if self.does == ClientOperation::Send { self.rounds } else { 0 };
        if !ours.text.contains(&format!("\n{messages} messages, ")) {
            complaints.push("the server did not count all messages".to_owned());
        }
        // The client of perftest fills its memory with random numbers. Sends and writes copy them
        // to the server's memory, and reads do not.
        if (self.does == ClientOperation::Read) != ours.text.contains(" messages, 0 octets") {
            complaints.push("the server's memory has the wrong contents".to_owned());
        }
        verdict(&complaints, [("perftest", theirs), ("ours", ours)])
    }
}
