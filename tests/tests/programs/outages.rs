//! A transfer between two hosts goes on after an outage: a link that is down, a direction that is lost, a
//! firewall that refuses, a program that is stopped. Each lasts for real seconds, since retries and time-outs of connections are counted
//! in these; the verdict is the transfer's.

use std::thread;
use std::time::Duration;

use opendat_tests::{Provider, find_program};

use crate::between::through;
use crate::host::{Family, Host};
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
    /// The client, which runs here, is stopped.
    ClientStopped,
    /// The server, which runs there, is.
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
const OF_PACKETS: &[Outage] =
    &[outage("port_hears_nothing_for_5_s", 5, What::Rule("input", "iifname wire udp dport 4791 drop"))];

/// Those that take [`PATIENT`] ones.
const LONG: &[Outage] = &[
    outage("link_is_down_here_for_3_s", 3, What::LinkHere),
    outage("link_is_down_there_for_3_s", 3, What::LinkThere),
    outage("link_is_down_here_for_8_s", 8, What::LinkHere),
    outage("link_is_down_there_for_8_s", 8, What::LinkThere),
    outage("nothing_comes_in_for_5_s", 5, What::Rule("input", "iifname wire drop")),
    outage("nothing_goes_out_for_5_s", 5, What::Rule("output", "oifname wire drop")),
];

impl Outage {
    fn happen(&self, host: &Host) -> Result<(), String> {
        match self.what {
            What::LinkHere => host.set_link_here("down")?,
            What::LinkThere => host.set_link_there("down")?,
            What::ClientStopped => host.signal_here("STOP", PROGRAM)?,
            What::ServerStopped => host.signal_there("STOP", PROGRAM)?,
            What::Refused => host.refuse(self.seconds)?,
            What::Rule(hook, rule) => host.filter(hook, rule)?,
        }
        thread::sleep(Duration::from_secs(self.seconds));
        match self.what {
            What::LinkHere => host.set_link_here("up"),
            What::LinkThere => host.set_link_there("up"),
            What::ClientStopped => host.signal_here("CONT", PROGRAM),
            What::ServerStopped => host.signal_there("CONT", PROGRAM),
            What::Refused | What::Rule(..) => host.filter_nothing(),
        }
    }
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
        through(&dapltest::LONG, registry, &host, || outage.happen(&host))
    })
}
