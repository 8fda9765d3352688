//! A server, its client, and the verdict over both.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use opendat_tests::{Ended, Registry, Running};

use crate::host::Host;

/// How long any one case may take before it counts as hanging. Alone, none takes 5 s; but where both sides spin on memory,
/// as in dtest's ping-pong of writes, each message waits for its turn on a machine that has ten times as much to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// How a client comes to its server, which is on this host.
#[derive(Clone, Copy)]
pub(crate) struct Way<'h> {
    /// The server's address.
    pub(crate) to: &'h str,
    /// The client's host, if it is another one.
    pub(crate) from: Option<&'h Host>,
}

impl Way<'_> {
    pub(crate) const LOOPBACK: Way<'static> = Way { to: "127.0.0.1", from: None };

    /// The program, to be started where the client is.
    pub(crate) fn client(&self, program: Command) -> Command {
        match self.from {
            Some(host) => host.command(&program),
            None => program,
        }
    }
}

/// What both programs said.
pub(crate) struct Pair {
    pub(crate) server: Ended,
    pub(crate) client: Ended,
}

impl Pair {
    /// Starts `server`, the clients one after the other when it is `ready`, and waits for the end of all. Every
    /// program must exit with 0. `client` is what the first client said.
    pub(crate) fn run(
        registry: &Registry,
        server: Command,
        ready: impl FnOnce(&Running) -> Result<(), String>,
        clients: impl IntoIterator<Item = (&'static str, Command)>,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + LIMIT;
        let server = Running::start("server", server, registry, deadline)?;
        ready(&server)?;
        registry.check_maps(&server.maps()).map_err(|why| server.report(&why))?;

        let mut said = None;
        for (label, command) in clients {
            let client = Running::start(label, command, registry, deadline)?;
            let ended = client.end().map_err(|why| why + &server.report("served it"))?;
            ended.succeeded(label).map_err(|why| why + &server.report("served it"))?;
            said.get_or_insert(ended);
        }
        let client = said.expect("there is a client");
        let with_client = |why: String| why + "--- output of client\n" + &client.text;
        let server = server.end().map_err(with_client)?;
        server.succeeded("server").map_err(with_client)?;
        Ok(Self { server, client })
    }

    /// Fails with both outputs when there is something to complain about.
    pub(crate) fn verdict(&self, complaints: &[String]) -> Result<(), String> {
        if complaints.is_empty() {
            return Ok(());
        }
        let mut why = String::new();
        for complaint in complaints {
            let _ = writeln!(why, "{complaint}");
        }
        Err(format!(
            "{why}--- output of server\n{}--- output of client\n{}",
            self.server.text, self.client.text
        ))
    }
}

/// Lines of `text` that contain one of `bad` and none of `harmless`.
pub(crate) fn bad_lines(who: &str, text: &str, bad: &[&str], harmless: &[&str]) -> Vec<String> {
    let contains = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    text.lines()
        .filter(|line| contains(line, bad) && !contains(line, harmless))
        .map(|line| format!("{who} says: {}", line.trim()))
        .collect()
}

/// What of `wanted` the program has not said.
pub(crate) fn unsaid(who: &str, text: &str, wanted: &[&str]) -> Vec<String> {
    let missing = wanted.iter().filter(|wanted| !text.contains(**wanted));
    missing.map(|wanted| format!("{who} has not said {wanted:?}")).collect()
}
