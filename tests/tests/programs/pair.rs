//! A server, its client, and the verdict over both.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use opendat_tests::{Ended, Registry, Running};

use crate::guest::{Guest, There};
use crate::host::Host;
use crate::packages::Debian;

/// How long any one case may take before it counts as hanging. Alone, none takes 5 s; but where both sides spin on memory,
/// as in dtest's ping-pong of writes, each message waits for its turn on a machine that has ten times as much to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// How a client comes to its server.
#[derive(Clone, Copy)]
pub(crate) struct Way<'p> {
    /// The server's address.
    pub(crate) to: &'p str,
    pub(crate) server: Place<'p>,
    pub(crate) client: Place<'p>,
}

/// Where a program runs.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    Here,
    /// On another host, as here.
    Host(&'p Host),
    /// In a clean Debian, whose network is that of here, and with whatever registry is there.
    Debian(&'p Debian),
    /// In a guest, with that registry.
    Guest(&'p Guest, There),
}

impl<'p> Way<'p> {
    pub(crate) const LOOPBACK: Way<'static> =
        Way { to: "127.0.0.1", server: Place::Here, client: Place::Here };

    /// From another host to this one.
    pub(crate) fn from(host: &'p Host) -> Self {
        Way { to: host.near(), server: Place::Here, client: Place::Host(host) }
    }
}

impl Place<'_> {
    /// The program, to be started there.
    pub(crate) fn command(&self, program: Command) -> Command {
        match self {
            Place::Here => program,
            Place::Host(host) => host.command(&program),
            Place::Debian(debian) => debian.command(&program),
            Place::Guest(guest, there) => guest.command(&program, *there),
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
    pub(crate) fn run<'p>(
        registry: &Registry,
        way: &Way<'p>,
        server: Command,
        ready: impl FnOnce(&Running) -> Result<(), String>,
        clients: impl IntoIterator<Item = (&'static str, Place<'p>, Command)>,
    ) -> Result<Self, String> {
        let (server, client) = Self::serve(registry, way, server, ready, clients)?;
        let with_client = |why: String| why + "--- output of client\n" + &client.text;
        let server = server.end().map_err(with_client)?;
        server.succeeded("server").map_err(with_client)?;
        Ok(Self { server, client })
    }

    /// The same with a server that goes on.
    pub(crate) fn serve<'p>(
        registry: &Registry,
        way: &Way<'p>,
        server: Command,
        ready: impl FnOnce(&Running) -> Result<(), String>,
        clients: impl IntoIterator<Item = (&'static str, Place<'p>, Command)>,
    ) -> Result<(Running, Ended), String> {
        let deadline = Instant::now() + LIMIT;
        let server = Running::start("server", way.server.command(server), registry, deadline)?;
        ready(&server)?;
        if let Place::Here = way.server {
            registry.check_maps(&server.maps()).map_err(|why| server.report(&why))?;
        }

        let mut said = None;
        for (label, place, command) in clients {
            let client = Running::start(label, place.command(command), registry, deadline)?;
            let ended = client.end().map_err(|why| why + &server.report("served it"))?;
            ended.succeeded(label).map_err(|why| why + &server.report("served it"))?;
            said.get_or_insert(ended);
        }
        let client = said.expect("there is a client");
        Ok((server, client))
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
