//! Tests transfers while an attacker sends at full speed. No octet may be wrong, no connection may
//! be lost, and every newcomer must be served.
//!
//! The attacker (`programs/attacker.c`) is another user of the host, or a user of another host.
//! Only root can start such an attacker. With `cargo xtask attacks`, this program also measures how
//! much throughput the transfers lose.
#![forbid(unsafe_code)]

mod attack_run;
#[path = "../programs/host.rs"]
#[expect(dead_code, reason = "attacks need no outages")]
mod host;
mod measure;
mod transfer;

use std::env;
use std::process::ExitCode;

use libtest_mimic::Arguments;
use opendat_tests::{
    PROVIDERS, Provider, enter_network_of_all_users, enter_own_network, is_short_run, trial,
};

use attack_run::{AttackRun, AttackerLocation};

/// An attack and the attacker's location.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    /// The name of the attack in `attacker.c`.
    kind: &'static str,
    from: AttackerLocation,
    /// The maximum number of packets or attempts per second; 0 for no limit.
    rate: u32,
    /// The number of endpoints with which the server of the newcomers accepts requests. softroce
    /// keeps at most 64 half-open connections of one address.
    endpoints: u32,
    /// Whether the short run includes the attack.
    in_short_run: bool,
}

/// The attacks on providers that send packets.
const ON_PACKETS: &[Attack] = &[
    of_another_user("garbage"),
    Attack { in_short_run: true, ..of_another_user("requests") },
    Attack {
        name: "requests_from_another_host",
        from: AttackerLocation::AnotherHost,
        ..of_another_user("requests")
    },
    Attack {
        name: "accepted_requests",
        from: AttackerLocation::AnotherHost,
        ..of_another_user("accepted_requests")
    },
    Attack {
        name: "accepted_requests_for_16_endpoints",
        from: AttackerLocation::AnotherHost,
        rate: 4000,
        endpoints: 16,
        ..of_another_user("accepted_requests")
    },
    of_another_user("stale_requests"),
    of_another_user("injections"),
    of_another_user("sweep"),
    of_another_user("local_sockets"),
];

/// The attacks on providers that have a socket for each connection.
const ON_STREAMS: &[Attack] = &[
    of_another_user("silent_callers"),
    Attack { in_short_run: true, ..of_another_user("babbling_callers") },
    Attack { rate: 150, endpoints: 16, ..of_another_user("unconfirmed_callers") },
];

const fn of_another_user(kind: &'static str) -> Attack {
    Attack {
        name: kind,
        kind,
        from: AttackerLocation::AnotherUser,
        rate: 0,
        endpoints: 256,
        in_short_run: false,
    }
}

fn main() -> ExitCode {
    if let Some(seconds) = measure::requested_seconds() {
        enter_network();
        return measure::run(all(), &env::args().skip(1).collect::<Vec<_>>(), seconds);
    }
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_network();
    }
    // The attacks run one at a time, because each uses all processors.
    arguments.test_threads = Some(1);
    let wanted = all().filter(|(_, attack)| attack.in_short_run || !is_short_run());
    let trials = wanted.map(|(provider, attack)| {
        let name = format!("{}::beside_{}", provider.ia, attack.name);
        trial(name, move || AttackRun::new(provider, attack)?.run_test())
    });
    opendat_tests::run(&arguments, trials.collect())
}

/// Enters a network namespace, with a user namespace that has all users, if the system allows that.
fn enter_network() {
    enter_network_of_all_users();
    enter_own_network();
}

/// Returns all pairs of a provider and an attack on that provider.
fn all() -> impl Iterator<Item = (&'static Provider, Attack)> {
    PROVIDERS.iter().flat_map(|provider| {
        let attacks = if provider.packets { ON_PACKETS } else { ON_STREAMS };
        attacks.iter().map(move |&attack| (provider, attack))
    })
}
