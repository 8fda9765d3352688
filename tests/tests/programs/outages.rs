//! A transfer between two hosts goes on after an outage: a link that is down, a direction that is lost, a firewall that refuses. Each
//! lasts for real seconds, since retries and time-outs of connections are counted in these; the verdict is the transfer's.

use std::thread;
use std::time::Duration;

use opendat_tests::{Provider, find_program};

use crate::between::through;
use crate::host::{Family, Host};
use crate::{Case, dapltest};

/// What a provider is told that is to outlast more than it does by itself: it takes 8 × 2 s of silence for the end.
pub(crate) const PATIENT: &str = "timeout=2000 retries=7";

struct Outage {
    name: &'static str,
    seconds: u64,
    begin: fn(&Host) -> Result<(), String>,
    end: fn(&Host) -> Result<(), String>,
}

/// Those that a connection outlasts with the usual parameters.
const USUAL: &[Outage] = &[
    Outage {
        name: "link_is_down_here_for_1_s",
        seconds: 1,
        begin: |host| host.set_link_here("down"),
        end: |host| host.set_link_here("up"),
    },
    Outage {
        name: "link_is_down_there_for_1_s",
        seconds: 1,
        begin: |host| host.set_link_there("down"),
        end: |host| host.set_link_there("up"),
    },
    Outage {
        name: "firewall_refuses_for_1_s",
        seconds: 1,
        begin: |host| host.filter("input", "iifname wire meta l4proto { tcp, udp } reject"),
        end: Host::filter_nothing,
    },
    // The host there still answers to whoever asks whether it lives.
    Outage {
        name: "port_hears_nothing_for_5_s",
        seconds: 5,
        begin: |host| host.filter("input", "iifname wire udp dport 4791 drop"),
        end: Host::filter_nothing,
    },
];

/// Those that take [`PATIENT`] ones.
const LONG: &[Outage] = &[
    Outage {
        name: "link_is_down_here_for_3_s",
        seconds: 3,
        begin: |host| host.set_link_here("down"),
        end: |host| host.set_link_here("up"),
    },
    Outage {
        name: "link_is_down_here_for_8_s",
        seconds: 8,
        begin: |host| host.set_link_here("down"),
        end: |host| host.set_link_here("up"),
    },
    Outage {
        name: "link_is_down_there_for_8_s",
        seconds: 8,
        begin: |host| host.set_link_there("down"),
        end: |host| host.set_link_there("up"),
    },
    Outage {
        name: "nothing_comes_in_for_5_s",
        seconds: 5,
        begin: |host| host.filter("input", "iifname wire drop"),
        end: Host::filter_nothing,
    },
    Outage {
        name: "nothing_goes_out_for_5_s",
        seconds: 5,
        begin: |host| host.filter("output", "oifname wire drop"),
        end: Host::filter_nothing,
    },
];

pub(crate) fn usual(provider: &Provider) -> Vec<Case> {
    USUAL
        .iter()
        .filter(|outage| provider.packets || outage.name != "port_hears_nothing_for_5_s")
        .map(case)
        .collect()
}

pub(crate) fn long() -> Vec<Case> {
    LONG.iter().map(case).collect()
}

fn case(outage: &'static Outage) -> Case {
    Case::new(outage.name, |registry| {
        find_program("nft", "nftables")?;
        let host = Host::new(Family::V4, 1500)?;
        let outage = || {
            (outage.begin)(&host)?;
            thread::sleep(Duration::from_secs(outage.seconds));
            (outage.end)(&host)
        };
        through(&dapltest::LONG, registry, &host, outage)
    })
}
