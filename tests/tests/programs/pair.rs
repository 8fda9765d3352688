//! Runs a server and its client, and checks their exit codes and output.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use opendat_tests::{Ended, Registry, Running};

use crate::guest::{Guest, GuestEnvironment};
use crate::host::{Host, Namespace};
use crate::packages::Debian;

/// The time after which a case counts as hanging. On an idle machine, no case takes 5 s. But where
/// both sides poll memory, as in dtest's ping-pong of writes, each message waits for a processor on
/// a machine that is busy with other work.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Where a server and its client run, and at which address the client reaches the server.
#[derive(Clone, Copy)]
pub(crate) struct Route<'p> {
    /// The server's address.
    pub(crate) to: &'p str,
    pub(crate) server: ProgramPlace<'p>,
    pub(crate) client: ProgramPlace<'p>,
}

/// Where a program runs.
#[derive(Clone, Copy)]
pub(crate) enum ProgramPlace<'p> {
    Here,
    /// The program runs on another host, with this host's registry.
    Host(&'p Namespace),
    /// The program runs in a clean Debian, which shares this host's network and has its own
    /// registry.
    Debian(&'p Debian),
    /// The program runs in a guest, with the registry of this environment.
    Guest(&'p Guest, GuestEnvironment),
}

impl<'p> Route<'p> {
    pub(crate) const LOOPBACK: Route<'static> =
        Route { to: "127.0.0.1", server: ProgramPlace::Here, client: ProgramPlace::Here };

    /// Returns a route for a server on this host and a client on another host.
    pub(crate) fn from(host: &'p Host) -> Self {
        Route {
            to: host.near(),
            server: ProgramPlace::Here,
            client: ProgramPlace::Host(host.namespace()),
        }
    }
}

impl ProgramPlace<'_> {
    /// Returns a command that starts the program at this place.
    pub(crate) fn command(&self, program: Command) -> Command {
        match self {
            ProgramPlace::Here => program,
            ProgramPlace::Host(host) => host.command(&program),
            ProgramPlace::Debian(debian) => debian.command(&program),
            ProgramPlace::Guest(guest, there) => guest.command(&program, *there),
        }
    }
}

/// The output of a server and of its client.
pub(crate) struct Pair {
    pub(crate) server: Ended,
    pub(crate) client: Ended,
}

impl Pair {
    /// Starts `server`, then the clients one after the other as soon as the server has printed
    /// `ready`, and waits for all to end. Every program must exit with 0. `client` is the output of
    /// the first client.
    pub(crate) fn run<'p>(
        registry: &Registry,
        route: &Route<'p>,
        server: Command,
        ready: impl FnOnce(&Running) -> Result<(), String>,
        clients: impl IntoIterator<Item = (&'static str, ProgramPlace<'p>, Command)>,
    ) -> Result<Self, String> {
        let (server, client) = Self::serve(registry, route, server, ready, clients)?;
        let with_client = |why: String| why + "--- output of client\n" + &client.text;
        let server = server.end().map_err(with_client)?;
        server.succeeded("server").map_err(with_client)?;
        Ok(Self { server, client })
    }

    /// Does the same as `run` with a server that keeps running.
    pub(crate) fn serve<'p>(
        registry: &Registry,
        route: &Route<'p>,
        server: Command,
        ready: impl FnOnce(&Running) -> Result<(), String>,
        clients: impl IntoIterator<Item = (&'static str, ProgramPlace<'p>, Command)>,
    ) -> Result<(Running, Ended), String> {
        let deadline = Instant::now() + LIMIT;
        let server = Running::start("server", route.server.command(server), registry, deadline)?;
        ready(&server)?;
        if let ProgramPlace::Here = route.server {
            registry.check_maps(&server.maps()).map_err(|why| server.report(&why))?;
        }

        let mut first = None;
        for (label, place, command) in clients {
            let client = Running::start(label, place.command(command), registry, deadline)?;
            let ended = client.end().map_err(|why| why + &server.report("served it"))?;
            ended.succeeded(label).map_err(|why| why + &server.report("served it"))?;
            first.get_or_insert(ended);
        }
        let client = first.expect("the pair has a client");
        Ok((server, client))
    }

    /// Returns the [verdict] about both programs.
    pub(crate) fn verdict(&self, complaints: &[String]) -> Result<(), String> {
        verdict(complaints, [("server", &self.server), ("client", &self.client)])
    }
}

/// Returns an error with the complaints and the output of both programs, or success if there are no
/// complaints.
pub(crate) fn verdict(complaints: &[String], programs: [(&str, &Ended); 2]) -> Result<(), String> {
    if complaints.is_empty() {
        return Ok(());
    }
    let mut why = complaints.join("\n");
    for (who, Ended { status, text, .. }) in programs {
        let _ = write!(why, "\n--- output of {who} ({status})\n{text}");
    }
    Err(why)
}

/// Returns the lines of `text` that contain one of `bad` and none of `harmless`.
pub(crate) fn bad_lines(who: &str, text: &str, bad: &[&str], harmless: &[&str]) -> Vec<String> {
    let contains = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    text.lines()
        .filter(|line| contains(line, bad) && !contains(line, harmless))
        .map(|line| format!("{who} printed: {}", line.trim()))
        .collect()
}

/// Returns a complaint for each text of `wanted` that the program has not printed.
pub(crate) fn missing_texts(who: &str, text: &str, wanted: &[&str]) -> Vec<String> {
    let missing = wanted.iter().filter(|wanted| !text.contains(**wanted));
    missing.map(|wanted| format!("{who} has not printed {wanted:?}")).collect()
}
