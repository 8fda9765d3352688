//! `dtestcm` (many connections) and `dtestsrq` (bursts over many endpoints).

use std::process::Command;

use opendat_tests::{Registry, Stop, find_program};

use crate::Case;
use crate::pair::{Pair, Route, bad_lines, missing_texts};

/// A run of `dtestcm` or `dtestsrq` with a set of options.
pub(crate) struct Connections {
    pub(crate) name: &'static str,
    program: &'static str,
    port: u16,
    args: &'static [&'static str],
    /// The line that the program prints if the whole test has succeeded.
    complete: &'static str,
}

const fn dtestcm(name: &'static str, port: u16, args: &'static [&'static str]) -> Connections {
    Connections { name, program: "dtestcm", port, args, complete: "DAPL Connection Test Complete." }
}

/// Returns options with which each endpoint has its own receive queue.
const fn own_queues(name: &'static str, port: u16, args: &'static [&'static str]) -> Connections {
    Connections { complete: "DAPL RC none SRQ Test Complete.", ..shared_queue(name, port, args) }
}

/// Returns options with which all endpoints share one receive queue.
const fn shared_queue(name: &'static str, port: u16, args: &'static [&'static str]) -> Connections {
    Connections { name, program: "dtestsrq", port, args, complete: "DAPL RC SRQ Test Complete." }
}

const CONNECTIONS: &[Connections] = &[
    dtestcm("dtestcm::polling", 21000, &["-c", "200", "-b", "50"]),
    dtestcm("dtestcm::waiting", 21100, &["-c", "200", "-b", "50", "-w"]),
    dtestcm("dtestcm::many_listeners", 21200, &["-c", "100", "-b", "50", "-m", "-w"]),
    own_queues(
        "dtestsrq::own_queue",
        21300,
        &["-S", "0", "-b", "2048", "-c", "1", "-B", "1", "-t", "100"],
    ),
    own_queues("dtestsrq::own_queues", 21302, &["-S", "0", "-c", "50", "-B", "20", "-t", "20"]),
    shared_queue("dtestsrq::one_endpoint", 21304, &["-c", "1", "-B", "1", "-t", "100"]),
    shared_queue(
        "dtestsrq::many_endpoints",
        21306,
        &["-b", "2048", "-c", "50", "-B", "20", "-t", "20"],
    ),
];

/// Sets of options with smaller numbers, for an adapter in the guest, which is emulated and slow.
pub(crate) const IN_GUEST: &[Connections] = &[
    dtestcm("dtestcm::polling", 21000, &["-c", "50", "-b", "25"]),
    dtestcm("dtestcm::waiting", 21100, &["-c", "50", "-b", "25", "-w"]),
    dtestcm("dtestcm::many_listeners", 21200, &["-c", "20", "-b", "10", "-m", "-w"]),
    own_queues("dtestsrq::own_queues", 21302, &["-S", "0", "-c", "10", "-B", "10", "-t", "10"]),
    shared_queue("dtestsrq::one_endpoint", 21304, &["-c", "1", "-B", "1", "-t", "50"]),
    shared_queue(
        "dtestsrq::many_endpoints",
        21306,
        &["-b", "2048", "-c", "10", "-B", "10", "-t", "10"],
    ),
];

pub(crate) fn each_program_once() -> Vec<Case> {
    let cases = cases().into_iter();
    cases
        .filter(|case| ["dtestcm::polling", "dtestsrq::many_endpoints"].contains(&&*case.name))
        .collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |connections: &'static Connections| {
        Case::new(connections.name, |registry| connections.run(registry, &Route::LOOPBACK))
    };
    CONNECTIONS.iter().map(case).collect()
}

impl Connections {
    pub(crate) const fn of_dtestcm(
        name: &'static str,
        port: u16,
        args: &'static [&'static str],
    ) -> Self {
        dtestcm(name, port, args)
    }

    pub(crate) const fn of_dtestsrq(
        name: &'static str,
        port: u16,
        complete: &'static str,
        args: &'static [&'static str],
    ) -> Self {
        Connections { complete, ..shared_queue(name, port, args) }
    }

    pub(crate) fn run(&self, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        let program = find_program(self.program, "dapl2-utils")?;
        let command = |role: &[&str]| {
            let mut command = Command::new(&program);
            command
                .args(["-P", registry.ia(), "-p", &self.port.to_string()])
                .args(self.args)
                .args(role);
            command
        };
        let ready = format!("ready on port {}", self.port);
        let pair = Pair::run(
            registry,
            route,
            command(&["-s"]),
            |server| server.wait_for(&ready).map(drop),
            [("client", route.client, command(&["-h", route.to]))],
        )?;
        let mut complaints = Vec::new();
        for (who, text) in [("server", &pair.server.text), ("client", &pair.client.text)] {
            complaints.extend(missing_texts(who, text, &["CONNECTED on", self.complete]));
            complaints.extend(bad_lines(who, text, &["Err", "ERR", "invalid"], &[]));
        }
        pair.verdict(&complaints).map_err(Stop::Fail)
    }
}
