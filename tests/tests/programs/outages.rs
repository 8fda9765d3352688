//! A transfer between two hosts goes on after an outage: a link that is down, a direction that is lost, a
//! firewall that refuses, a program that is stopped. Each lasts for real seconds, since retries and time-outs
//! of connections are counted in these; the verdict is the transfer's.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Dist, Provider, Registry, Running, Stop, c_program, find_program};

use crate::between::{SOME, through};
use crate::host::{Family, Host, wait_for};
use crate::pair::{LIMIT, Place, Way};
use crate::{Case, dapltest};

/// What a provider is told that is to outlast more than it does by itself: it takes 8 × 2 s of silence for the end.
pub(crate) const PATIENT: &str = "timeout=2000 retries=7";

/// What runs on both hosts.
const PROGRAM: &str = "dapltest";

struct Outage {
    name: &'static str,
    seconds: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// This host's end of the wire is down.
    LinkHere,
    /// The other host's end is.
    LinkThere,
    /// The client, which runs on the other host, is stopped.
    ClientStopped,
    /// The server, which runs on this one, is.
    ServerStopped,
    /// This host's firewall refuses what comes in.
    Refused,
    /// A rule of this host's firewall, for what comes in ("input") or goes out ("output").
    Rule(&'static str, &'static str),
}

const fn outage(name: &'static str, seconds: u64, what: What) -> Outage {
    Outage { name, seconds, what }
}

/// Those that a connection outlasts with the usual parameters.
const USUAL: &[Outage] = &[
    outage("link_is_down_here_for_1_s", 1, What::LinkHere),
    outage("link_is_down_there_for_1_s", 1, What::LinkThere),
    outage("firewall_refuses_for_1_s", 1, What::Refused),
    outage("client_is_stopped_for_6_s", 6, What::ClientStopped),
    outage("server_is_stopped_for_6_s", 6, What::ServerStopped),
];

/// The same of providers that send packets: the host there still answers to whoever asks whether it lives.
const OF_PACKETS: &[Outage] = &[outage(
    "port_hears_nothing_for_5_s",
    5,
    What::Rule("input", "iifname wire udp dport 4791 drop"),
)];

/// Those that take [`PATIENT`] ones.
const LONG: &[Outage] = &[
    outage("link_is_down_here_for_3_s", 3, What::LinkHere),
    outage("link_is_down_there_for_3_s", 3, What::LinkThere),
    outage("link_is_down_here_for_8_s", 8, What::LinkHere),
    outage("link_is_down_there_for_8_s", 8, What::LinkThere),
    outage("nothing_comes_in_for_5_s", 5, What::Rule("input", "iifname wire drop")),
    outage("nothing_goes_out_for_5_s", 5, What::Rule("output", "oifname wire drop")),
];

/// With the kernel's driver in a guest, in one transfer.
///
/// Left out is what that driver does not outlast (Linux 6.12): where its own end of the wire is down, be it for 1 s, a queue pair
/// that has something to send fails at once. Nor can a kernel be stopped, or told to send nothing.
pub(crate) struct WithKernel {
    pub(crate) name: &'static str,
    /// What our provider is told besides.
    pub(crate) params: &'static str,
    outages: &'static [Outage],
}

pub(crate) const WITH_KERNEL: &[WithKernel] = &[
    WithKernel {
        name: "usual",
        params: "",
        outages: &[
            outage("firewall_refuses_for_1_s", 1, What::Refused),
            outage("link_is_down_for_1_s", 1, What::LinkHere),
        ],
    },
    WithKernel {
        name: "patient",
        params: PATIENT,
        outages: &[
            outage("link_is_down_for_3_s", 3, What::LinkHere),
            outage("link_is_down_for_8_s", 8, What::LinkHere),
            outage("nothing_comes_in_for_5_s", 5, What::Rule("input", "iifname wire drop")),
            outage("nothing_goes_out_for_5_s", 5, What::Rule("output", "oifname wire drop")),
        ],
    },
];

impl WithKernel {
    /// A transfer with a guest outlasts all of these.
    pub(crate) fn run(&self, registry: &Registry, way: &Way<'_>) -> Result<(), Stop> {
        find_program("nft", "nftables")?;
        let ended = through(&dapltest::LONG_WITH_GUEST, registry, way, || {
            self.outages.iter().try_for_each(|outage| {
                outage.happen(None)?;
                match wait_for(SOME, LIMIT, || false) {
                    true => Ok(()),
                    false => Err(format!("nothing moves after {}", outage.name)),
                }
            })
        });
        Host::filter_nothing().ok();
        // Addresses of IPv6 go with the link.
        Host::set_link_here("up").and_then(|()| Host::restore_address(Family::V6))?;
        ended
    }
}

impl Outage {
    /// `host`: the other one, of outages that happen there.
    fn happen(&self, host: Option<&Host>) -> Result<(), String> {
        let there = || host.expect("the outage is not of this host");
        match self.what {
            What::LinkHere => Host::set_link_here("down")?,
            What::LinkThere => there().set_link_there("down")?,
            What::ClientStopped => there().signal_there("STOP", PROGRAM)?,
            What::ServerStopped => Host::signal_here("STOP", PROGRAM)?,
            What::Refused => Host::refuse(self.seconds)?,
            What::Rule(hook, rule) => Host::filter(hook, rule)?,
        }
        thread::sleep(Duration::from_secs(self.seconds));
        match self.what {
            What::LinkHere => Host::set_link_here("up"),
            What::LinkThere => there().set_link_there("up"),
            What::ClientStopped => there().signal_there("CONT", PROGRAM),
            What::ServerStopped => Host::signal_here("CONT", PROGRAM),
            What::Refused | What::Rule(..) => Host::filter_nothing(),
        }
    }
}

/// What providers are told that are to give up soon: 4 × 0.25 s of silence.
pub(crate) const IMPATIENT: &str = "timeout=250 retries=3";

/// Where the network is cut for good, both sides are told by the same event.
pub(crate) fn for_good() -> Vec<Case> {
    let cut = |name, cut: fn() -> Result<(), String>| {
        Case::new(name, move |registry| {
            find_program("nft", "nftables")?;
            both_are_told(registry, &Host::new(Family::V4, 1500)?, cut)
        })
    };
    vec![
        cut("both_are_told_of_a_link_that_stays_down", || Host::set_link_here("down")),
        cut("both_are_told_of_what_is_lost_for_good", || {
            Host::filter("input", "iifname wire drop")
        }),
        cut("both_are_told_where_a_firewall_refuses", || Host::refuse(3600)),
    ]
}

fn both_are_told(
    registry: &Registry,
    host: &Host,
    cut: fn() -> Result<(), String>,
) -> Result<(), Stop> {
    /// Of the uDAPL 2.0 header.
    const BROKEN: &str = "the end: event 0x4006";
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = c_program(&Dist::locate()?, "cut", dir.path())?;
    let (deadline, way) = (Instant::now() + LIMIT, Way::from(host));
    let start = |side: &str, place: &Place<'_>| {
        let mut command = Command::new(&program);
        command.args([side, "33500"]).env("OPENDAT_TEST_ADDRESS", way.to);
        Running::start(side, place.command(command), registry, deadline)
    };
    let server = start("server", &way.server)?;
    server.wait_for("ready")?;
    let client = start("client", &way.client)?;
    if !wait_for(100_000, LIMIT, || client.has_ended()) {
        return Err(client.report(&server.report("has hardly begun")).into());
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

pub(crate) fn usual(provider: &Provider) -> Vec<Case> {
    let of_packets = OF_PACKETS.iter().filter(|_| provider.packets);
    USUAL.iter().chain(of_packets).map(case).collect()
}

pub(crate) fn long() -> Vec<Case> {
    LONG.iter().map(case).collect()
}

fn case(outage: &'static Outage) -> Case {
    Case::new(outage.name, |registry| {
        find_program("nft", "nftables")?;
        let host = Host::new(Family::V4, 1500)?;
        through(&dapltest::LONG, registry, &Way::from(&host), || outage.happen(Some(&host)))
    })
}
