//! Tests how connections are rejected, made with private data, and ended, with `programs/endings.c`
//! on both sides.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Dist, Registry, Running, Stop};

use crate::pair::{LIMIT, ProgramPlace, Route};

const PORT: &str = "7200";

/// A case of `endings.c`, and the side that is killed.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) name: &'static str,
    pub(super) dies: Option<&'static str>,
}

const fn ending(name: &'static str, dies: Option<&'static str>) -> Ending {
    Ending { name, dies }
}

pub(super) const ENDINGS: &[Ending] = &[
    ending("reject", None),
    ending("client_leaves", None),
    ending("server_leaves", None),
    ending("client_dies", Some("client")),
    ending("server_dies", Some("server")),
];

/// Cases for peers that notice the death of a process only while requests are under way.
pub(super) const BUSY: [Ending; 2] =
    [ending("client_dies_busy", Some("client")), ending("server_dies_busy", Some("server"))];

impl Ending {
    pub(super) fn run(
        &self,
        dist: &Dist,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(), Stop> {
        let guest = match (route.server, route.client) {
            (ProgramPlace::Guest(guest, _), _) | (_, ProgramPlace::Guest(guest, _)) => guest,
            _ => unreachable!("the server or the client is in the guest"),
        };
        let [here, there] = guest.c_program(dist, "endings")?;
        // OFED's provider does not pass the private data of a rejection to its consumer over iWARP.
        let is_ofeds = |place: &ProgramPlace<'_>| matches!(place, ProgramPlace::Guest(_, there) if there.is_debians());
        let mute = is_ofeds(&route.client) && registry.ia() == "tcp-emu" && self.name == "reject";
        let survivor = match self.dies {
            Some("client") => Some(&route.server),
            Some(_) => Some(&route.client),
            None => None,
        };
        let may_be_async =
            survivor.is_some_and(|place| is_ofeds(place) && registry.ia() == "tcp-emu");
        let case = match () {
            () if mute => "reject_mute".to_owned(),
            () if may_be_async => format!("{}_async", self.name),
            () => self.name.to_owned(),
        };
        let deadline = Instant::now() + LIMIT;
        let start = |label, place: &ProgramPlace<'_>, args: &[&str]| {
            let program = if let ProgramPlace::Guest(..) = place { &there } else { &here };
            let mut command = Command::new(program);
            command.args(args).args([PORT, &case]).env("OPENDAT_TEST_IA", registry.ia());
            Running::start(label, place.command(command), registry, deadline)
        };
        let server = start("server", &route.server, &["server"])?;
        server.wait_for("listening")?;
        let client = start("client", &route.client, &["client", route.to])?.end();
        let client = client.map_err(|why| why + &server.report("served it"))?;
        let server =
            server.end().map_err(|why| format!("{why}\n--- output of client\n{}", client.text))?;
        for (who, ended) in [("server", &server), ("client", &client)] {
            if (ended.text.trim_end().lines().last() == Some("ok")) == (self.dies == Some(who)) {
                let (server, client) = (&server.text, &client.text);
                return Err(Stop::Fail(format!(
                    "{who} ends with {}\n--- server\n{server}--- client\n{client}",
                    ended.status
                )));
            }
        }
        Ok(())
    }
}
