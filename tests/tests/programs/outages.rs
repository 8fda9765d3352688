//! A transfer between two hosts goes on after an outage: a link that is down, a direction in which
//! packets are lost, a firewall that refuses, or a program that is stopped. Each outage lasts for
//! real seconds, since retries and timeouts of connections are measured in real time. The
//! transfer's result is the verdict.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Dist, Provider, Registry, Running, Stop, c_program, find_program};

use crate::between::{TRANSFER_STARTED_BYTES, across_outage};
use crate::host::{Family, Host, wait_for};
use crate::pair::{LIMIT, ProgramPlace, Route};
use crate::{Case, dapltest};

/// The ia_params of a provider that ends a connection after 8 × 2 s of silence.
const LONG_TIMEOUT: &str = "timeout=2000 retries=7";

/// The program that runs on both hosts.
const PROGRAM: &str = "dapltest";

struct Outage {
    name: &'static str,
    seconds: u64,
    fault: Fault,
}

#[derive(Clone, Copy)]
enum Fault {
    /// This host's end of the wire is down.
    LinkHere,
    /// The other host's end of the wire is down.
    LinkThere,
    /// The client, which runs on the other host, is stopped.
    ClientStopped,
    /// The server, which runs on this host, is stopped.
    ServerStopped,
    /// This host's firewall refuses incoming packets.
    Refused,
    /// This host's firewall has a rule for incoming ("input") or outgoing ("output") packets.
    Rule(&'static str, &'static str),
}

const fn outage(name: &'static str, seconds: u64, fault: Fault) -> Outage {
    Outage { name, seconds, fault }
}

/// Outages that a connection outlasts with the default parameters.
const WITH_DEFAULT_PARAMS: &[Outage] = &[
    outage("link_is_down_here_for_1_s", 1, Fault::LinkHere),
    outage("link_is_down_there_for_1_s", 1, Fault::LinkThere),
    outage("firewall_refuses_for_1_s", 1, Fault::Refused),
    outage("client_is_stopped_for_6_s", 6, Fault::ClientStopped),
    outage("server_is_stopped_for_6_s", 6, Fault::ServerStopped),
    outage("link_is_down_here_for_3_s", 3, Fault::LinkHere),
    outage("link_is_down_there_for_3_s", 3, Fault::LinkThere),
    outage("link_is_down_here_for_8_s", 8, Fault::LinkHere),
    outage("link_is_down_there_for_8_s", 8, Fault::LinkThere),
    outage("nothing_comes_in_for_5_s", 5, Fault::Rule("input", "iifname wire drop")),
    outage("nothing_goes_out_for_5_s", 5, Fault::Rule("output", "oifname wire drop")),
];

/// Outages with the default parameters for providers that send packets. During such an outage the
/// other host still answers host probes.
const OF_PACKETS: &[Outage] = &[outage(
    "port_hears_nothing_for_5_s",
    5,
    Fault::Rule("input", "iifname wire udp dport 4791 drop"),
)];

/// Outages in one transfer with the kernel's driver in a guest.
///
/// Outages that this driver does not outlast (Linux 6.12) are left out: if its own end of the wire
/// is down, even for 1 s, a queue pair that has something to send fails at once. A kernel can
/// neither be stopped nor be told to send nothing.
pub(crate) struct WithKernel {
    pub(crate) name: &'static str,
    /// Further ia_params of the provider on this host.
    pub(crate) params: &'static str,
    outages: &'static [Outage],
}

pub(crate) const WITH_KERNEL: &[WithKernel] = &[
    WithKernel {
        name: "usual",
        params: "",
        outages: &[
            outage("firewall_refuses_for_1_s", 1, Fault::Refused),
            outage("link_is_down_for_1_s", 1, Fault::LinkHere),
            outage("link_is_down_for_3_s", 3, Fault::LinkHere),
            outage("link_is_down_for_8_s", 8, Fault::LinkHere),
        ],
    },
    WithKernel {
        name: "patient",
        params: LONG_TIMEOUT,
        outages: &[
            outage("link_is_down_for_3_s", 3, Fault::LinkHere),
            outage("link_is_down_for_8_s", 8, Fault::LinkHere),
            outage("nothing_comes_in_for_5_s", 5, Fault::Rule("input", "iifname wire drop")),
            outage("nothing_goes_out_for_5_s", 5, Fault::Rule("output", "oifname wire drop")),
        ],
    },
];

impl WithKernel {
    /// Runs a transfer with a guest, which must outlast all of these outages.
    pub(crate) fn run(&self, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        find_program("nft", "nftables")?;
        let ended = across_outage(&dapltest::LONG_WITH_GUEST, registry, route, || {
            self.outages.iter().try_for_each(|outage| {
                outage.inject(None)?;
                match wait_for(TRANSFER_STARTED_BYTES, LIMIT, || false) {
                    true => Ok(()),
                    false => Err(format!("no data is transferred after {}", outage.name)),
                }
            })
        });
        Host::filter_nothing().ok();
        // Bringing the link down removes its IPv6 addresses.
        Host::set_link_here("up").and_then(|()| Host::restore_address(Family::V6))?;
        ended
    }
}

impl Outage {
    /// Causes the outage and ends it. `host` is the other host, for outages that happen there.
    fn inject(&self, host: Option<&Host>) -> Result<(), String> {
        let there = || host.expect("an outage of the other host needs that host");
        match self.fault {
            Fault::LinkHere => Host::set_link_here("down")?,
            Fault::LinkThere => there().set_link_there("down")?,
            Fault::ClientStopped => there().signal_there("STOP", PROGRAM)?,
            Fault::ServerStopped => Host::signal_here("STOP", PROGRAM)?,
            Fault::Refused => Host::refuse(self.seconds)?,
            Fault::Rule(hook, rule) => Host::filter(hook, rule)?,
        }
        thread::sleep(Duration::from_secs(self.seconds));
        match self.fault {
            Fault::LinkHere => Host::set_link_here("up"),
            Fault::LinkThere => there().set_link_there("up"),
            Fault::ClientStopped => there().signal_there("CONT", PROGRAM),
            Fault::ServerStopped => Host::signal_here("CONT", PROGRAM),
            Fault::Refused | Fault::Rule(..) => Host::filter_nothing(),
        }
    }
}

/// The ia_params of a provider that gives up after 4 × 0.25 s of silence.
pub(crate) const SHORT_TIMEOUT: &str = "timeout=250 retries=3";

/// Returns the cases in which the network is cut permanently. Server and client must report the
/// same event.
pub(crate) fn permanent() -> Vec<Case> {
    let case = |name, client: &'static [&'static str], cut: fn() -> Result<(), String>| {
        Case::new(name, move |registry| {
            find_program("nft", "nftables")?;
            expect_same_event(registry, &Host::new(Family::V4, 1500)?, client, cut)
        })
    };
    let drop_all_incoming = || Host::filter("input", "iifname wire drop");
    vec![
        case("both_are_told_of_a_link_that_stays_down", &[], || Host::set_link_here("down")),
        case("both_are_told_of_what_is_lost_for_good", &[], drop_all_incoming),
        case("both_are_told_while_a_message_waits", &["stalled"], drop_all_incoming),
        case("both_are_told_where_a_firewall_refuses", &[], || Host::refuse(3600)),
    ]
}

/// Runs the program `cut` as server and as client (with `client_arguments`), and then cuts the
/// network with `cut`. Both programs must report the same event.
fn expect_same_event(
    registry: &Registry,
    host: &Host,
    client_arguments: &[&str],
    cut: fn() -> Result<(), String>,
) -> Result<(), Stop> {
    /// The line that the program `cut` prints when the connection has ended. The number is that of
    /// DAT_CONNECTION_EVENT_BROKEN in uDAPL 2.0.
    const BROKEN: &str = "the end: event 0x4006";
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = c_program(&Dist::locate()?, "cut", dir.path())?;
    let (deadline, route) = (Instant::now() + LIMIT, Route::from(host));
    let start = |side: &str, arguments: &[&str], place: &ProgramPlace<'_>| {
        let mut command = Command::new(&program);
        command.args([side, "33500"]).args(arguments).env("OPENDAT_TEST_ADDRESS", route.to);
        Running::start(side, place.command(command), registry, deadline)
    };
    let server = start("server", &[], &route.server)?;
    server.wait_for("ready")?;
    let client = start("client", client_arguments, &route.client)?;
    if !wait_for(100_000, LIMIT, || client.has_ended()) {
        return Err(client.report(&server.report("has transferred too little")).into());
    }
    if !client_arguments.is_empty() {
        // The server's sends fill the client's window. The verdict does not depend on how far they
        // get.
        wait_for(u64::MAX, Duration::from_secs(2), || client.has_ended());
    }
    cut()?;
    for side in [server, client] {
        let ended = side.end()?;
        ended.succeeded("a side")?;
        if !ended.text.contains(BROKEN) {
            return Err(format!("expected {BROKEN:?}:\n{}", ended.text).into());
        }
    }
    Ok(())
}

pub(crate) fn with_default_params(provider: &Provider) -> Vec<Case> {
    let of_packets = OF_PACKETS.iter().filter(|_| provider.packets);
    WITH_DEFAULT_PARAMS.iter().chain(of_packets).map(case).collect()
}

fn case(outage: &'static Outage) -> Case {
    Case::new(outage.name, |registry| {
        find_program("nft", "nftables")?;
        let host = Host::new(Family::V4, 1500)?;
        across_outage(&dapltest::LONG, registry, &Route::from(&host), || outage.inject(Some(&host)))
    })
}
