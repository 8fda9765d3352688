//! Tests with both programs in the guest: over this project's provider for the kernel's devices,
//! and the matrix of registries and providers.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Dist, PROVIDERS, Provider, Registry, Skip, Stop, VERBS};

use super::behaviour::{self, Behaviour};
use super::endings::{self, Ending};
use super::machine::{APART, Guest, GuestEnvironment, Machine, RXE};
use super::{PEERS, Peer};
use crate::connections::{self, Connections};
use crate::dapltest::{self, Performance, Transaction};
use crate::host::Family;
use crate::pair::{ProgramPlace, Route};
use crate::{Case, datagrams, dtest, dtestx};

/// A provider in the guest, and the device that it uses.
struct GuestProvider {
    /// The name of this provider in the names of tests.
    name: &'static str,
    provider: &'static Provider,
    address: &'static str,
    network: &'static str,
    /// The guest's RDMA device during the test.
    device: &'static str,
}

/// Returns a provider that uses the rxe on the wire.
const fn on_rxe(name: &'static str, provider: &'static Provider) -> GuestProvider {
    GuestProvider { name, provider, address: RXE, network: "", device: "rxe" }
}

/// The provider provider-verbs at the device's IPv6 address.
const IPV6: Provider = Provider { ia: "verbs-ipv6", ..VERBS };
/// The provider softroce over the kernel's rxe, which exists already.
const KERNEL: Provider = Provider { ia: "softroce-kernel", library: "libdat_softroce.so", ..VERBS };
/// Debian's own provider.
pub(super) const OFA: Provider = Provider { ia: "ofa", library: "libdaplofa.so.2", ..VERBS };

const GUEST_PROVIDERS: &[GuestProvider] = &[
    on_rxe("verbs", &VERBS),
    GuestProvider { address: Family::V6.addresses()[1], ..on_rxe("ipv6", &IPV6) },
    on_rxe("softroce_kernel", &KERNEL),
    on_rxe("ofa", &OFA),
    on_rxe("tcp-emu", &PROVIDERS[0]),
    GuestProvider {
        address: APART,
        network: "ip netns exec apart",
        ..on_rxe("softroce", &PROVIDERS[1])
    },
    GuestProvider { device: "siw", ..on_rxe("siw", &VERBS) },
];

/// Returns the dat.conf of both registries. For the conformance suite, each provider has an entry
/// of both kinds of thread safety.
pub(super) fn conf() -> String {
    let mut conf = String::new();
    for GuestProvider { provider: Provider { ia, library, .. }, address, device, .. } in
        GUEST_PROVIDERS
    {
        if *device == "siw" {
            // The provider over siw has the same address as the provider over rxe, so one line of
            // dat.conf serves both.
            continue;
        }
        let (library, version, params) = match *ia {
            "ofa" => ((*library).to_owned(), "dapl.2.0", "wire 0".to_owned()),
            "verbs" | "verbs-ipv6" => {
                (format!("/tmp/dist/lib/{library}"), "opendat.0.1", (*address).to_owned())
            }
            "softroce-kernel" => {
                (format!("/tmp/dist/lib/{library}"), "opendat.0.1", "wire engine=kernel".to_owned())
            }
            _ => (format!("/tmp/dist/lib/{library}"), "opendat.0.1", String::new()),
        };
        for safety in ["nonthreadsafe", "threadsafe"] {
            conf += &format!("{ia} u2.0 {safety} default {library} {version} \"{params}\" \"\"\n");
        }
    }
    conf
}

/// The two registries: this project's, without the built-in entries, and Debian's.
pub(super) const REGISTRIES: [(&str, &str); 2] = [
    (
        "ours",
        "DAT_OVERRIDE=/tmp/dist/dat.within OPENDAT_PARAMS=builtin=off LD_LIBRARY_PATH=/tmp/dist/lib",
    ),
    ("debian", "DAT_OVERRIDE=/tmp/dist/dat.within"),
];

/// Returns an environment with provider-verbs under the names of this project's other providers,
/// for peers on the other side of the wire.
pub(super) fn as_ours(family: Family) -> GuestEnvironment {
    let registry = match family {
        Family::V4 => {
            "DAT_OVERRIDE=/tmp/dist/dat.ipv4 OPENDAT_PARAMS=builtin=off LD_LIBRARY_PATH=/tmp/dist/lib"
        }
        Family::V6 => {
            "DAT_OVERRIDE=/tmp/dist/dat.ipv6 OPENDAT_PARAMS=builtin=off LD_LIBRARY_PATH=/tmp/dist/lib"
        }
    };
    GuestEnvironment { registry, network: "" }
}

/// Returns the text of the dat.conf that the registry of [`as_ours`] reads.
pub(super) fn conf_as_ours(family: Family) -> String {
    let [_, address] = family.addresses();
    let line = |peer: &Peer| {
        let library = "/tmp/dist/lib/libdat_verbs.so";
        format!("{} u2.0 nonthreadsafe default {library} opendat.0.1 \"{address}\" \"\"\n", peer.ia)
    };
    PEERS.iter().map(line).collect()
}

#[derive(Clone, Copy)]
enum Program {
    Dtest,
    Dtestx,
    Connections(&'static Connections),
    Transaction(&'static Transaction),
    Performance(&'static Performance),
    Limits,
    Functions(&'static (&'static str, u32)),
    Ending(&'static Ending),
    Behaviour(&'static Behaviour),
    Datagrams(datagrams::Program),
}

/// Checks which libdat2 a program of the guest loads.
fn registry_is_loaded(
    machine: &Arc<Machine>,
    (name, variables): (&'static str, &'static str),
) -> Trial {
    let machine = Arc::clone(machine);
    opendat_tests::trial(format!("guest::matrix::{name}::is_loaded"), move || {
        let loaded = machine.run((GUEST_PROVIDERS[0].device, 1500), true, |guest| {
            Ok(guest
                .run(&format!("{variables} LD_TRACE_LOADED_OBJECTS=1 dtest | grep libdat2.so.2"))?)
        })?;
        match (loaded.contains("=> "), loaded.contains("=> /tmp/dist/lib/libdat2.so.2 "), name) {
            (true, true, "ours") | (true, false, "debian") => Ok(()),
            _ => Err(format!("dtest loads {loaded}").into()),
        }
    })
}

/// Runs a test in which both ends of the stream are the kernel's siw. siw's sending thread
/// sometimes takes the wrong SGE (`machine::MAX_CRASHES`), and siw then receives data from itself
/// that is not iWARP. Such a failure says nothing about this project, so the test runs once more.
fn between_kernels(
    machine: &Machine,
    run: impl Fn(&Guest) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let once = || {
        machine.run(("siw", 1500), true, |guest| {
            guest.run("dmesg -c >/dev/null")?;
            run(guest)
        })
    };
    match once() {
        Err(Stop::Fail(why)) if why.contains(NO_IWARP) => {
            println!(
                "\nthe kernel's siw received a malformed frame from itself, so the test runs once \
                 more:\n{why}"
            );
            once()
        }
        ended => ended,
    }
}

/// The message that siw's receiver logs if it receives data that is not iWARP.
const NO_IWARP: &str = "siw: received ddp version unsupported";

pub(super) fn trials(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials: Vec<Trial> =
        REGISTRIES.into_iter().map(|registry| registry_is_loaded(machine, registry)).collect();
    for guest_provider in GUEST_PROVIDERS {
        // The tests use only the IA name of this registry. The guest's own dat.conf has an entry
        // with that IA name.
        let registry = dist.clone().map(|dist| Registry::builtin(&dist, guest_provider.provider));
        let registry = Arc::new(registry);
        for (name, variables) in REGISTRIES {
            let there = GuestEnvironment { registry: variables, network: guest_provider.network };
            // Which programs use the registry `name`: both programs if `we_call` is `None`, only
            // the client if it is `Some(true)`, and only the server if it is `Some(false)`. The
            // other program uses Debian's registry.
            let mut add = |prefix: String, program: Program, we_call: Option<bool>| {
                let (machine, dist) = (Arc::clone(machine), dist.clone());
                let &GuestProvider { address, device, .. } = guest_provider;
                let case = Case::new(program.title(), move |registry| {
                    let run = |guest: &Guest| {
                        let ours = ProgramPlace::Guest(guest, there);
                        let theirs =
                            ProgramPlace::Guest(guest, GuestEnvironment::debian(Family::V4));
                        let route = Route {
                            to: address,
                            server: if we_call == Some(true) { theirs } else { ours },
                            client: if we_call == Some(false) { theirs } else { ours },
                        };
                        program.run(&dist.clone()?, registry, &route)
                    };
                    if device == "siw" {
                        return between_kernels(&machine, run);
                    }
                    machine.run((device, 1500), true, run)
                });
                trials.push(case.trial(&prefix, Arc::clone(&registry)));
            };
            if guest_provider.name != "ipv6" && guest_provider.device == "rxe" {
                let matrix = [Program::Dtest, Program::Transaction(&dapltest::WITH_GUEST[0])];
                for program in matrix {
                    add(format!("guest::matrix::{name}::{}", guest_provider.name), program, None);
                }
            }
            if (guest_provider.name, name) == ("verbs", "ours") {
                for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
                    for program in with_ofa() {
                        add(format!("guest::verbs::with_ofa::{direction}"), program, Some(we_call));
                    }
                }
            }
            let (prefix, programs) = match (guest_provider.name, name) {
                ("verbs", "ours") => ("guest::verbs", all()),
                ("ipv6", "ours") => ("guest::verbs::ipv6", over_ipv6()),
                ("siw", "ours") => ("guest::verbs::siw", over_siw()),
                _ => continue,
            };
            for program in programs {
                add(prefix.to_owned(), program, None);
            }
        }
    }
    trials
}

/// Returns the tests in the guest that do not belong to the matrix of registries and providers.
fn all() -> Vec<Program> {
    let mut programs =
        vec![Program::Dtestx, Program::Transaction(&dapltest::WITH_GUEST[1]), Program::Limits];
    programs.extend(connections::IN_GUEST.iter().map(Program::Connections));
    programs.extend(dapltest::PERFORMANCES.iter().map(Program::Performance));
    programs.extend(dapltest::FEATURES.iter().map(Program::Functions));
    programs.push(Program::Functions(&dapltest::QUERYINFO));
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs.extend(behaviour::BEHAVIOURS.iter().map(Program::Behaviour));
    programs.extend(datagrams::in_guest().map(Program::Datagrams));
    programs
}

/// Returns the tests in which OFED's provider is the peer of this project's provider.
fn with_ofa() -> Vec<Program> {
    let mut programs = vec![Program::Dtest, Program::Transaction(&dapltest::WITH_GUEST[0])];
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs
}

/// Returns the tests that may behave differently over IPv6. dtest and similar programs cannot tell
/// their clients an IPv6 address.
fn over_ipv6() -> Vec<Program> {
    let mut programs: Vec<_> = dapltest::WITH_GUEST.iter().map(Program::Transaction).collect();
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs.extend(behaviour::IPV6.iter().map(Program::Behaviour));
    programs
}

/// Returns the tests over siw. dtestx is left out because iWARP lacks the operations that it tests.
/// Tests of memory windows are left out because siw has no memory windows.
/// `calls_that_nobody_answers` is left out because siw holds up the caller.
fn over_siw() -> Vec<Program> {
    let mut programs = vec![Program::Dtest];
    programs.extend(dapltest::WITH_GUEST.iter().map(Program::Transaction));
    programs.extend(connections::IN_GUEST.iter().map(Program::Connections));
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs.extend(behaviour::SIW.iter().map(Program::Behaviour));
    programs
}

impl Program {
    fn title(self) -> String {
        match self {
            Program::Dtest => "dtest".to_owned(),
            Program::Dtestx => "dtestx".to_owned(),
            Program::Connections(connections) => connections.name.to_owned(),
            Program::Transaction(transaction) => transaction.title(),
            Program::Performance(performance) => performance.title(),
            Program::Limits => "dapltest::limits".to_owned(),
            Program::Functions((feature, _)) => format!("dapltest::fft_{feature}"),
            Program::Ending(ending) => format!("ending_{}", ending.name),
            Program::Behaviour(behaviour) => format!("behaviour::{}", behaviour.name),
            Program::Datagrams(program) => program.title(),
        }
    }

    fn run(self, dist: &Dist, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        match self {
            Program::Dtest => dtest::between(registry, route),
            Program::Dtestx => dtestx::between(registry, route),
            Program::Connections(connections) => connections.run(registry, route),
            Program::Transaction(transaction) => transaction.run(registry, route),
            Program::Performance(performance) => performance.run(registry, route),
            Program::Limits => dapltest::limits_in_guest(registry, &route.client),
            Program::Functions((feature, cases)) => {
                dapltest::run_functions(registry, route, feature, &(0..*cases).collect::<Vec<_>>())
            }
            Program::Ending(ending) => ending.run(dist, registry, route),
            Program::Behaviour(behaviour) => behaviour.run(dist, registry, route),
            Program::Datagrams(program) => program.run(registry, route),
        }
    }
}
