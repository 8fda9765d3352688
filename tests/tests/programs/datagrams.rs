//! The datagram modes (`-u`, `-U`, `-m`) of `dtestx`, `dtestcm` and `dtestsrq`. Their datagrams
//! must not be lost: none of these programs sends a datagram again.

use std::process::Command;

use opendat_tests::{Provider, Registry, Stop, find_program};

use crate::Case;
use crate::connections::Connections;
use crate::pair::{Pair, Route, bad_lines, missing_texts};
use crate::rendezvous::{Answer, Rendezvous};

/// The line that a server of dtestx prints when it listens, if it runs with verbose output.
const LISTENS: &str = "Server waiting for connect[0] request";

/// A run of dtestx in one of its datagram modes.
pub(crate) struct Dtestx {
    name: &'static str,
    args: &'static [&'static str],
}

/// The options of dtestx: four resolutions of one endpoint, fifty of them, and four endpoints at
/// the client with one at the server.
const DTESTX: &[Dtestx] = &[
    Dtestx { name: "dtestx::u", args: &["-u"] },
    Dtestx { name: "dtestx::U", args: &["-U", "50"] },
    Dtestx { name: "dtestx::m", args: &["-u", "-m"] },
];

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

/// Sets of options with smaller numbers, for an adapter in the guest, which is emulated and slow.
const CONNECTIONS_IN_GUEST: &[Connections] = &[
    Connections::of_dtestcm("dtestcm::polling", 21400, &["-u", "-c", "50", "-b", "25"]),
    Connections::of_dtestcm("dtestcm::waiting", 21500, &["-u", "-c", "50", "-b", "25", "-w"]),
    Connections::of_dtestcm(
        "dtestcm::many_listeners",
        21600,
        &["-u", "-c", "20", "-b", "10", "-m", "-w"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::one_endpoint",
        21700,
        "DAPL UD SRQ Test Complete.",
        &["-u", "-c", "1", "-B", "1", "-t", "50"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::many_endpoints",
        21702,
        "DAPL UD SRQ Test Complete.",
        &["-u", "-c", "10", "-B", "10", "-t", "10"],
    ),
    Connections::of_dtestsrq(
        "dtestsrq::own_queues",
        21704,
        "DAPL UD none SRQ Test Complete.",
        &["-u", "-S", "0", "-c", "10", "-B", "5", "-t", "10"],
    ),
];

/// The number of times that a program runs in the guest until no datagram is lost.
const MAX_ATTEMPTS: usize = 3;

/// A program that runs with an adapter in the guest.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    Dtestx(&'static Dtestx),
    Connections(&'static Connections),
}

/// Returns the programs that run with an adapter in the guest.
pub(crate) fn in_guest() -> impl Iterator<Item = Program> {
    let connections = CONNECTIONS_IN_GUEST.iter().map(Program::Connections);
    DTESTX.iter().map(Program::Dtestx).chain(connections)
}

impl Program {
    pub(crate) fn title(self) -> String {
        let name = match self {
            Program::Dtestx(dtestx) => dtestx.name,
            Program::Connections(connections) => connections.name,
        };
        format!("datagrams::{name}")
    }

    /// Runs the program. These programs wait for each datagram and do not repeat it, and the
    /// kernel's rxe loses a datagram now and then if the emulator has little time. So a program
    /// that has waited in vain runs again.
    pub(crate) fn run(self, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        let once = || match self {
            Program::Dtestx(program) => dtestx(registry, route, program.args),
            Program::Connections(connections) => connections.run(registry, route),
        };
        for _ in 1..MAX_ATTEMPTS {
            match once() {
                Err(Stop::Fail(why)) if why.contains("DAT_TIMEOUT_EXPIRED") => {
                    println!("\na datagram was lost, so the test runs once more:\n{why}");
                }
                ended => return ended,
            }
        }
        once()
    }
}

/// Returns the cases for a provider that supports datagrams.
pub(crate) fn cases(provider: &Provider) -> Vec<Case> {
    if !provider.datagrams {
        return Vec::new();
    }
    let dtestx = DTESTX.iter().map(|&Dtestx { name, args }| {
        Case::new(format!("datagrams::{name}"), move |registry| {
            dtestx(registry, &Route::LOOPBACK, args)
        })
    });
    dtestx.chain(CONNECTIONS.iter().map(case)).collect()
}

/// The parameter of an adapter whose longest datagram is shorter than the max_message_size that
/// dtestcm asks for.
pub(crate) const SMALL_MTU: &str = "mtu=1024";

/// Returns the cases for adapters with [`SMALL_MTU`].
pub(crate) fn with_small_mtu(provider: &Provider) -> Vec<Case> {
    let is_dtestcm = |connections: &&Connections| connections.name == "dtestcm::polling";
    CONNECTIONS.iter().filter(|_| provider.datagrams).filter(is_dtestcm).map(case).collect()
}

fn case(connections: &'static Connections) -> Case {
    Case::new(format!("datagrams::{}", connections.name), |registry| {
        connections.run(registry, &Route::LOOPBACK)
    })
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
