//! The datagram modes (`-u`, `-U`, `-m`) of `dtestx`, `dtestcm` and `dtestsrq`. Their datagrams must
//! not be lost: none of these programs sends a datagram again.

use std::process::Command;

use opendat_tests::{Provider, Registry, Stop, find_program};

use crate::Case;
use crate::connections::Connections;
use crate::pair::{Pair, Route, bad_lines, missing_texts};
use crate::rendezvous::{Answer, Rendezvous};

/// The line that a server of dtestx prints when it listens, if it runs with verbose output.
const LISTENS: &str = "Server waiting for connect[0] request";

/// The options of dtestx: four resolutions of one endpoint, fifty of them, and four endpoints at
/// the client with one at the server.
const DTESTX: &[(&str, &[&str])] =
    &[("dtestx::u", &["-u"]), ("dtestx::U", &["-U", "50"]), ("dtestx::m", &["-u", "-m"])];

const CONNECTIONS: &[Connections] = &[
    Connections::of_dtestcm("dtestcm::polling", 21400, &["-u", "-c", "200", "-b", "50"]),
    Connections::of_dtestcm("dtestcm::waiting", 21500, &["-u", "-c", "200", "-b", "50", "-w"]),
    Connections::of_dtestcm(
        "dtestcm::many_listeners",
        21600,
        &["-u", "-c", "100", "-b", "50", "-m", "-w"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::one_endpoint",
        21700,
        "DAPL UD SRQ Test Complete.",
        &["-u", "-c", "1", "-B", "1", "-t", "100"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::many_endpoints",
        21702,
        "DAPL UD SRQ Test Complete.",
        &["-u", "-c", "50", "-B", "10", "-t", "20"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::own_queues",
        21704,
        "DAPL UD none SRQ Test Complete.",
        &["-u", "-S", "0", "-c", "10", "-B", "5", "-t", "20"],
    ),
];

/// Returns the cases for a provider that supports datagrams.
pub(crate) fn cases(provider: &Provider) -> Vec<Case> {
    if !provider.datagrams {
        return Vec::new();
    }
    let dtestx = DTESTX.iter().map(|&(name, args)| {
        Case::new(format!("datagrams::{name}"), move |registry| {
            dtestx(registry, &Route::LOOPBACK, args)
        })
    });
    let connections = CONNECTIONS.iter().map(|connections| {
        Case::new(format!("datagrams::{}", connections.name), |registry| {
            connections.run(registry, &Route::LOOPBACK)
        })
    });
    dtestx.chain(connections).collect()
}

fn dtestx(registry: &Registry, route: &Route<'_>, args: &[&str]) -> Result<(), Stop> {
    let program = find_program("dtestx", "dapl2-utils")?;
    let command = |role: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-P", registry.ia()]).args(args).args(role);
        command
    };
    let rendezvous = Rendezvous::new(route, LISTENS, Answer::Echo);
    let pair = Pair::run(
        registry,
        route,
        command(&["-s", "-v"]),
        |server| rendezvous.relay_message(server),
        // In these modes, dtestx is a client only if it has the option -c.
        [("client", route.client, command(&["-c", "-h", rendezvous.at()]))],
    )?;
    let mut complaints = Vec::new();
    for (who, text) in [("server", &pair.server.text), ("client", &pair.client.text)] {
        complaints.extend(missing_texts(who, text, &["IB extension test - UD test PASSED"]));
        complaints.extend(bad_lines(who, text, &["ERR", "rror ", "unexpected"], &["DCNT_"]));
    }
    pair.verdict(&complaints).map_err(Stop::Fail)
}
