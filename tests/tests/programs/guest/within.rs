//! Both programs in the guest: over our provider for the kernel's rxe, and the matrix of registries and providers.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Dist, PROVIDERS, Provider, Registry, Skip, Stop, VERBS};

use super::behaviour::{self, Behaviour};
use super::endings::{self, Ending};
use super::machine::{APART, Guest, Machine, RXE, There};
use super::{PEERS, Peer};
use crate::connections::{self, Connections};
use crate::dapltest::{self, Performance, Transaction};
use crate::host::Family;
use crate::pair::{Place, Way};
use crate::{Case, dtest, dtestx};

/// A provider as it is in the guest, and where it serves.
struct Inhabitant {
    /// As tests name it.
    name: &'static str,
    provider: &'static Provider,
    address: &'static str,
    network: &'static str,
    /// The guest's RDMA device meanwhile.
    device: &'static str,
}

/// On the wire's rxe.
const fn on_rxe(name: &'static str, provider: &'static Provider) -> Inhabitant {
    Inhabitant { name, provider, address: RXE, network: "", device: "rxe" }
}

/// At its address of IPv6.
const IPV6: Provider = Provider { ia: "verbs-ipv6", ..VERBS };
/// softroce over the kernel's rxe, which is there.
const KERNEL: Provider = Provider { ia: "softroce-kernel", library: "libdat_softroce.so", ..VERBS };
/// Debian's own.
pub(super) const OFA: Provider = Provider { ia: "ofa", library: "libdaplofa.so.2", ..VERBS };

const INHABITANTS: &[Inhabitant] = &[
    on_rxe("verbs", &VERBS),
    Inhabitant { address: Family::V6.addresses()[1], ..on_rxe("ipv6", &IPV6) },
    on_rxe("softroce_kernel", &KERNEL),
    on_rxe("ofa", &OFA),
    on_rxe("tcp-emu", &PROVIDERS[0]),
    Inhabitant {
        address: APART,
        network: "ip netns exec apart",
        ..on_rxe("softroce", &PROVIDERS[1])
    },
    Inhabitant { device: "siw", ..on_rxe("siw", &VERBS) },
];

/// The file of both registries: each provider in both kinds of thread safety, for the conformance suite.
pub(super) fn conf() -> String {
    let mut conf = String::new();
    for Inhabitant { provider: Provider { ia, library, .. }, address, device, .. } in INHABITANTS {
        if *device == "siw" {
            // The same line as for rxe, whose address it has.
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

/// Ours, without what is built in, and Debian's.
pub(super) const REGISTRIES: [(&str, &str); 2] = [
    ("ours", "DAT_OVERRIDE=/tmp/dist/dat.within OPENDAT_BUILTIN=0 LD_LIBRARY_PATH=/tmp/dist/lib"),
    ("debian", "DAT_OVERRIDE=/tmp/dist/dat.within"),
];

/// provider-verbs behind the names of our other providers, for peers on the other side of the wire.
pub(super) fn as_ours(family: Family) -> There {
    let registry = match family {
        Family::V4 => {
            "DAT_OVERRIDE=/tmp/dist/dat.ipv4 OPENDAT_BUILTIN=0 LD_LIBRARY_PATH=/tmp/dist/lib"
        }
        Family::V6 => {
            "DAT_OVERRIDE=/tmp/dist/dat.ipv6 OPENDAT_BUILTIN=0 LD_LIBRARY_PATH=/tmp/dist/lib"
        }
    };
    There { registry, network: "" }
}

/// Its file.
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
}

/// Which libdat2 a program of the guest gets.
fn registry_is_loaded(
    machine: &Arc<Machine>,
    (name, variables): (&'static str, &'static str),
) -> Trial {
    let machine = Arc::clone(machine);
    opendat_tests::trial(format!("guest::matrix::{name}::is_loaded"), move || {
        let loaded = machine.run((INHABITANTS[0].device, 1500), true, |guest| {
            Ok(guest
                .run(&format!("{variables} LD_TRACE_LOADED_OBJECTS=1 dtest | grep libdat2.so.2"))?)
        })?;
        match (loaded.contains("=> "), loaded.contains("=> /tmp/dist/lib/libdat2.so.2 "), name) {
            (true, true, "ours") | (true, false, "debian") => Ok(()),
            _ => Err(format!("dtest gets {loaded}").into()),
        }
    })
}

/// Both ends of the stream are the kernel's siw. Where what it has sent itself is no iWARP, that is no verdict on us: a thread of
/// its own that sends sometimes takes the wrong SGE (`machine::DEATHS`). The test runs once more.
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
            println!("\nthe kernel's siw did not understand itself, once more:\n{why}");
            once()
        }
        ended => ended,
    }
}

/// What siw's receiver says then.
const NO_IWARP: &str = "siw: received ddp version unsupported";

pub(super) fn trials(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials: Vec<Trial> =
        REGISTRIES.into_iter().map(|registry| registry_is_loaded(machine, registry)).collect();
    for inhabitant in INHABITANTS {
        // For its name alone: what a program finds behind it is written in the guest.
        let registry = dist.clone().map(|dist| Registry::builtin(&dist, inhabitant.provider));
        let registry = Arc::new(registry);
        for (name, variables) in REGISTRIES {
            let there = There { registry: variables, network: inhabitant.network };
            // Ours on both sides, or on the one that calls or is called.
            let mut add = |prefix: String, program: Program, we_call: Option<bool>| {
                let (machine, dist) = (Arc::clone(machine), dist.clone());
                let &Inhabitant { address, device, .. } = inhabitant;
                let case = Case::new(program.title(), move |registry| {
                    let run = |guest: &Guest| {
                        let ours = Place::Guest(guest, there);
                        let theirs = Place::Guest(guest, There::debian(Family::V4));
                        let way = Way {
                            to: address,
                            server: if we_call == Some(true) { theirs } else { ours },
                            client: if we_call == Some(false) { theirs } else { ours },
                        };
                        program.run(&dist.clone()?, registry, &way)
                    };
                    if device == "siw" {
                        return between_kernels(&machine, run);
                    }
                    machine.run((device, 1500), true, run)
                });
                trials.push(case.trial(&prefix, Arc::clone(&registry)));
            };
            if inhabitant.name != "ipv6" && inhabitant.device == "rxe" {
                let matrix = [Program::Dtest, Program::Transaction(&dapltest::WITH_GUEST[0])];
                for program in matrix {
                    add(format!("guest::matrix::{name}::{}", inhabitant.name), program, None);
                }
            }
            if (inhabitant.name, name) == ("verbs", "ours") {
                for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
                    for program in with_ofa() {
                        add(format!("guest::verbs::with_ofa::{direction}"), program, Some(we_call));
                    }
                }
            }
            let (prefix, programs) = match (inhabitant.name, name) {
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

/// What the matrix has not.
fn all() -> Vec<Program> {
    let mut programs =
        vec![Program::Dtestx, Program::Transaction(&dapltest::WITH_GUEST[1]), Program::Limits];
    programs.extend(connections::IN_GUEST.iter().map(Program::Connections));
    programs.extend(dapltest::PERFORMANCES.iter().map(Program::Performance));
    programs.extend(dapltest::FEATURES.iter().map(Program::Functions));
    programs.push(Program::Functions(&dapltest::QUERYINFO));
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs.extend(behaviour::BEHAVIOURS.iter().map(Program::Behaviour));
    programs
}

/// OFED's provider on the other side.
fn with_ofa() -> Vec<Program> {
    let mut programs = vec![Program::Dtest, Program::Transaction(&dapltest::WITH_GUEST[0])];
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs
}

/// What may differ there. dtest and its like cannot tell their clients such an address.
fn over_ipv6() -> Vec<Program> {
    let mut programs: Vec<_> = dapltest::WITH_GUEST.iter().map(Program::Transaction).collect();
    programs.extend(endings::ENDINGS.iter().map(Program::Ending));
    programs.extend(behaviour::IPV6.iter().map(Program::Behaviour));
    programs
}

/// iWARP has no dtestx, and siw no windows, nor an end that its caller is not held up by (`calls_that_nobody_answers`).
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
        }
    }

    fn run(self, dist: &Dist, registry: &Registry, way: &Way<'_>) -> Result<(), Stop> {
        match self {
            Program::Dtest => dtest::between(registry, way),
            Program::Dtestx => dtestx::between(registry, way),
            Program::Connections(connections) => connections.run(registry, way),
            Program::Transaction(transaction) => transaction.run(registry, way),
            Program::Performance(performance) => performance.run(registry, way),
            Program::Limits => dapltest::limits_in_guest(registry, &way.client),
            Program::Functions((feature, cases)) => {
                dapltest::run_functions(registry, way, feature, &(0..*cases).collect::<Vec<_>>())
            }
            Program::Ending(ending) => ending.run(dist, registry, way),
            Program::Behaviour(behaviour) => behaviour.run(dist, registry, way),
        }
    }
}
