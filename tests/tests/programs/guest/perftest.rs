//! Programs of perftest in the guest, called with `-R`, and `programs/perftest.c` here, which answers them.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Dist, Ended, Registry, Running, Stop, c_program};

use crate::pair::{LIMIT, Place, Way};

const PORT: &str = "18515";

/// One of its programs.
#[derive(Clone, Copy)]
pub(super) struct Perftest {
    pub(super) program: &'static str,
    size: u32,
    rounds: u32,
    does: Does,
}

/// What the client does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Write,
    Read,
    /// Sends messages, which come back.
    Send,
}

pub(super) const PROGRAMS: &[Perftest] = &[
    Perftest { program: "ib_write_bw", size: 65536, rounds: 100, does: Does::Write },
    Perftest { program: "ib_read_bw", size: 65536, rounds: 100, does: Does::Read },
    Perftest { program: "ib_send_lat", size: 64, rounds: 200, does: Does::Send },
];

impl Perftest {
    /// The client is in the guest.
    pub(super) fn run(&self, dist: &Dist, registry: &Registry, way: &Way<'_>) -> Result<(), Stop> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let program = c_program(dist, "perftest", dir.path())?;
        let [size, rounds] = [self.size, self.rounds].map(|number| number.to_string());
        let deadline = Instant::now() + LIMIT;
        let start = |label, place: &Place<'_>, command| {
            Running::start(label, place.command(command), registry, deadline)
        };
        let mut ours = Command::new(program);
        ours.args([PORT, &size]);
        let server = start("ours", &way.server, ours)?;
        server.wait_for("listening")?;
        // -F: whether the processor's clock is steady does not matter.
        let mut theirs = Command::new(self.program);
        theirs.args(["-R", "-F", "-p", PORT, "-s", &size, "-n", &rounds, way.to]);
        let client = start("perftest", &way.client, theirs)?;
        let client = client.end().map_err(|why| why + &server.report("served it"))?;
        let server = server.end().map_err(|why| why + &client.text)?;
        Ok(self.judge(&server, &client)?)
    }

    fn judge(&self, ours: &Ended, theirs: &Ended) -> Result<(), String> {
        let mut complaints = Vec::new();
        let figures = [self.size, self.rounds].map(|number| number.to_string());
        let says = |line: &str| line.split_whitespace().take(2).eq(figures.iter());
        if !theirs.status.success() || !theirs.text.lines().any(says) {
            complaints.push("perftest has no figures");
        }
        if ours.text.lines().last() != Some("ok") {
            complaints.push("ours does not end with ok");
        }
        let messages = if self.does == Does::Send { self.rounds } else { 0 };
        if !ours.text.contains(&format!("\n{messages} messages, ")) {
            complaints.push("messages are missing");
        }
        // perftest fills its memory with random numbers.
        if (self.does == Does::Read) != ours.text.contains(" messages, 0 octets") {
            complaints.push("the server's memory is not as it should be");
        }
        match complaints.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{}\n--- perftest ({})\n{}--- ours ({})\n{}",
                complaints.join("\n"),
                theirs.status,
                theirs.text,
                ours.status,
                ours.text
            )),
        }
    }
}
