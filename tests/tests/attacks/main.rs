//! Transfers beside attacks at full speed: no octet is wrong, no connection is lost, and everybody
//! who calls is served. The attacker (`programs/attacker.c`) is another user of the host, or
//! somebody on another host; only root can start it. Where this is `cargo xtask attacks`, what the
//! transfers lose is measured, too.
#![forbid(unsafe_code)]

#[path = "../programs/host.rs"]
#[expect(dead_code, reason = "attacks need no outages")]
mod host;
mod measure;
mod scene;
mod transfer;

use std::env;
use std::process::ExitCode;

use libtest_mimic::Arguments;
use opendat_tests::{
    PROVIDERS, Provider, enter_network_of_all_users, enter_own_network, is_short_run, trial,
};

use scene::{From, Scene};

/// What is attacked in which way.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    /// What the attacker calls it.
    kind: &'static str,
    from: From,
    /// The short run has it, too.
    short: bool,
}

/// Those on providers that send packets.
const ON_PACKETS: &[Attack] = &[
    of_another_user("garbage"),
    Attack { short: true, ..of_another_user("requests") },
    Attack {
        name: "requests_from_another_host",
        from: From::AnotherHost,
        ..of_another_user("requests")
    },
    of_another_user("stale_requests"),
    of_another_user("injections"),
    of_another_user("sweep"),
    of_another_user("local_sockets"),
];

/// Those on providers with a socket for each connection.
const ON_STREAMS: &[Attack] = &[
    of_another_user("silent_callers"),
    Attack { short: true, ..of_another_user("babbling_callers") },
];

const fn of_another_user(kind: &'static str) -> Attack {
    Attack { name: kind, kind, from: From::AnotherUser, short: false }
}

fn main() -> ExitCode {
    if let Some(seconds) = measure::wanted() {
        enter_network();
        return measure::run(all(), &env::args().skip(1).collect::<Vec<_>>(), seconds);
    }
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_network();
    }
    // One at a time: each takes all processors.
    arguments.test_threads = Some(1);
    let wanted = all().filter(|(_, attack)| attack.short || !is_short_run());
    let trials = wanted.map(|(provider, attack)| {
        let name = format!("{}::beside_{}", provider.ia, attack.name);
        trial(name, move || Scene::new(provider, attack)?.survives())
    });
    opendat_tests::run(&arguments, trials.collect())
}

/// One with all users, if that is allowed.
fn enter_network() {
    enter_network_of_all_users();
    enter_own_network();
}

/// Each attack, with whom it is on.
fn all() -> impl Iterator<Item = (&'static Provider, Attack)> {
    PROVIDERS.iter().flat_map(|provider| {
        let attacks = if provider.packets { ON_PACKETS } else { ON_STREAMS };
        attacks.iter().map(move |&attack| (provider, attack))
    })
}
