//! `dtestcm` (many connections) and `dtestsrq` (bursts over many endpoints).

use std::process::Command;

use opendat_tests::{Registry, Stop, find_program};

use crate::Case;
use crate::pair::{Pair, Way, bad_lines, unsaid};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        dtestcm("polling", 21000, &["-c", "200", "-b", "50"]),
        dtestcm("waiting", 21100, &["-c", "200", "-b", "50", "-w"]),
        dtestcm("many_listeners", 21200, &["-c", "100", "-b", "50", "-m", "-w"]),
        dtestsrq("own_queue", 21300, "none ", &["-S", "0", "-b", "2048", "-c", "1", "-B", "1", "-t", "100"]),
        dtestsrq("own_queues", 21302, "none ", &["-S", "0", "-c", "50", "-B", "20", "-t", "20"]),
        dtestsrq("one_endpoint", 21304, "", &["-c", "1", "-B", "1", "-t", "100"]),
        dtestsrq("many_endpoints", 21306, "", &["-b", "2048", "-c", "50", "-B", "20", "-t", "20"]),
    ]
}

fn dtestcm(name: &str, port: u16, args: &'static [&'static str]) -> Case {
    Case::new(format!("dtestcm::{name}"), move |registry| {
        run(registry, "dtestcm", port, args, "DAPL Connection Test Complete.")
    })
}

/// `kind`: what the program calls the kind of receive queue.
fn dtestsrq(name: &str, port: u16, kind: &'static str, args: &'static [&'static str]) -> Case {
    Case::new(format!("dtestsrq::{name}"), move |registry| {
        run(registry, "dtestsrq", port, args, &format!("DAPL RC {kind}SRQ Test Complete."))
    })
}

fn run(registry: &Registry, name: &str, port: u16, args: &[&str], complete: &str) -> Result<(), Stop> {
    let program = find_program(name, "dapl2-utils")?;
    let command = |role: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-P", registry.ia(), "-p", &port.to_string()]).args(args).args(role);
        command
    };
    let ready = format!("ready on port {port}");
    let pair = Pair::run(
        registry,
        &Way::LOOPBACK,
        command(&["-s"]),
        |server| server.wait_for(&ready).map(drop),
        [("client", command(&["-h", "127.0.0.1"]))],
    )?;
    let mut complaints = Vec::new();
    for (who, text) in [("server", &pair.server.text), ("client", &pair.client.text)] {
        complaints.extend(unsaid(who, text, &["CONNECTED on", complete]));
        complaints.extend(bad_lines(who, text, &["Err", "ERR", "invalid"], &[]));
    }
    pair.verdict(&complaints).map_err(Stop::Fail)
}
