//! Debian's programs over our providers here, and over its own provider (libdaplofa) and the kernel's RDMA drivers in a
//! guest: rxe is RoCEv2's peer, siw is iWARP's. And everything in the guest: our provider for its devices, the matrix of
//! registries and providers, the conformance suite. `cargo xtask test guest::` builds the guest and runs these, and only these.
//!
//! | name | what |
//! |---|---|
//! | `guest::rxe::`, `guest::siw::` WIRE, who calls, program | a program here and its peer there, over the wire |
//! | `guest::rxe::verbs::`, `guest::siw::verbs::` family, who calls, program | the same with provider-verbs there |
//! | `guest::matrix::` registry, provider, program | both there; registry `ours` or `debian` |
//! | `guest::rights::` | what a user is told who may do less than root |
//! | `guest::engines::` | which engine serves softroce there, and which devices are listed |
//! | `guest::conformance::` provider, case | the suite there, through our registry |
//! | `guest::speed::` | what small operations take over provider-verbs, beside libdaplofa |
//! | `guest::verbs::` program | both there, over our registry and provider-verbs; `ipv6::`, `behaviour::`, devices that fail |

mod behaviour;
mod conformance;
mod devices;
mod endings;
mod engines;
mod machine;
mod perftest;
mod relay;
mod rights;
mod rping;
mod speed;
mod within;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use opendat_tests::{Dist, PROVIDERS, Provider, Registry, SHARE, Skip, Stop};

use crate::dapltest::Transaction;
use crate::host::Family;
use crate::pair::{Place, Way};
use crate::{Case, dapltest, dtest, dtestx, outages};
use endings::Ending;
use machine::Machine;
use perftest::Perftest;
use rping::Rping;

pub(crate) use machine::{Guest, There};
pub(crate) use relay::{is_relay, relay};

/// Where `tests/guest/build.sh` has built it, if these tests are to be run.
pub(crate) fn image() -> Option<PathBuf> {
    env::var_os("OPENDAT_GUEST").map(PathBuf::from)
}

/// A driver of the kernel, and the provider of ours that speaks its language.
struct Peer {
    device: &'static str,
    ia: &'static str,
    /// It has immediate data and atomic operations.
    extended: bool,
}

const PEERS: &[Peer] = &[
    Peer { device: "rxe", ia: "softroce", extended: true },
    Peer { device: "siw", ia: "tcp-emu", extended: false },
];

impl Peer {
    fn provider(&self) -> &'static Provider {
        PROVIDERS.iter().find(|provider| provider.ia == self.ia).expect("one of ours")
    }

    /// Whether there is such a wire for it: RoCEv2 always has its ICRC.
    fn knows(&self, wire: &Wire) -> bool {
        self.device == "siw" || wire.crc == Crc::Nobody
    }
}

/// What is between them.
struct Wire {
    name: &'static str,
    family: Family,
    mtu: u32,
    crc: Crc,
}

/// Who asks for CRCs, which only iWARP can do without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crc {
    Nobody,
    Kernel,
    Ours,
}

const fn wire(name: &'static str, family: Family, mtu: u32, crc: Crc) -> Wire {
    Wire { name, family, mtu, crc }
}

/// As between two hosts of ours: the MTU of Ethernet, and that of jumbo frames.
const WIRES: &[Wire] = &[
    wire("ipv4_mtu_1500", Family::V4, 1500, Crc::Nobody),
    wire("ipv4_mtu_9000", Family::V4, 9000, Crc::Nobody),
    wire("ipv6_mtu_1500", Family::V6, 1500, Crc::Nobody),
    wire("ipv6_mtu_9000", Family::V6, 9000, Crc::Nobody),
    wire("ipv4_kernel_wants_crc", Family::V4, 1500, Crc::Kernel),
    wire("ipv4_we_want_crc", Family::V4, 1500, Crc::Ours),
];

pub(crate) fn trials(image: &Path, dist: &Result<Dist, Skip>, arguments: &Arguments) -> Vec<Trial> {
    if let Some(rounds) = speed::rounds() {
        let (image, dist) = (image.to_owned(), dist.clone());
        return vec![opendat_tests::trial("guest::speed".to_owned(), move || {
            speed::measure(&Guest::boot_counting(&image)?, &dist?, rounds)
        })];
    }
    // With a guest of its own, it has to have this process for itself.
    if env::var(SHARE).is_ok_and(|share| share == speed::TRIAL) {
        return vec![speed::trial(image, dist)];
    }
    let machine = Arc::new(Machine::new(image, dist));
    let mut trials = within::trials(&machine, dist);
    trials.extend(engines::trials(&machine));
    trials.extend(rights::trials(&machine));
    trials.extend(conformance::trials(&machine, arguments));
    trials.extend(devices::trials(&machine, dist));
    trials.extend(across(&machine, dist));
    trials.extend(with_verbs(&machine, dist));
    trials.extend(through_outages(&machine, dist));
    trials
}

/// One program here, and one there.
fn across(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for peer in PEERS {
        for wire in WIRES.iter().filter(|wire| peer.knows(wire)) {
            let &Wire { name, family, mtu, crc } = wire;
            // The device would stand for its IPv4 address.
            let [near, _] = family.addresses();
            let params = if crc == Crc::Ours { format!("{near} crc=on") } else { near.to_owned() };
            let registry =
                dist.clone().map(|dist| Registry::plugin_at(&dist, peer.provider(), &params));
            let registry = Arc::new(registry);
            for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
                for program in programs(peer, wire, we_call) {
                    let (machine, dist) = (Arc::clone(machine), dist.clone());
                    let case =
                        Case::new(format!("{direction}::{}", program.title()), move |registry| {
                            machine.run((peer.device, mtu), false, |guest| {
                                guest.want_crc(crc == Crc::Kernel)?;
                                program.run(&dist.clone()?, registry, &way(guest, family, we_call))
                            })
                        });
                    let prefix = format!("guest::{}::{name}", peer.device);
                    trials.push(case.trial(&prefix, Arc::clone(&registry)));
                }
            }
        }
    }
    trials
}

/// A transfer that goes on after outages, with rxe.
fn through_outages(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let (peer, wire) = (&PEERS[0], &WIRES[0]);
    let mut trials = Vec::new();
    for outages in outages::WITH_KERNEL {
        let params = format!("{} {}", wire.family.addresses()[0], outages.params);
        let registry =
            dist.clone().map(|dist| Registry::plugin_at(&dist, peer.provider(), &params));
        let registry = Arc::new(registry);
        for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
            let machine = Arc::clone(machine);
            let case = Case::new(direction, move |registry| {
                machine.run((peer.device, wire.mtu), false, |guest| {
                    outages.run(registry, &way(guest, wire.family, we_call))
                })
            });
            trials.push(
                case.trial(
                    &format!("guest::rxe::outages::{}", outages.name),
                    Arc::clone(&registry),
                ),
            );
        }
    }
    trials
}

/// A provider of ours here, and provider-verbs on the kernel's device there.
fn with_verbs(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for peer in PEERS {
        for (family, wire) in [("ipv4", Family::V4), ("ipv6", Family::V6)] {
            let ([near, far], there) = (wire.addresses(), within::as_ours(wire));
            let registry =
                dist.clone().map(|dist| Registry::plugin_at(&dist, peer.provider(), near));
            let registry = Arc::new(registry);
            for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
                for program in programs_of_verbs(peer, wire, we_call) {
                    let (machine, dist) = (Arc::clone(machine), dist.clone());
                    let case = Case::new(program.title(), move |registry| {
                        machine.run((peer.device, 1500), true, |guest| {
                            let there = Place::Guest(guest, there);
                            let way = match we_call {
                                true => Way { to: far, server: there, client: Place::Here },
                                false => Way { to: near, server: Place::Here, client: there },
                            };
                            program.run(&dist.clone()?, registry, &way)
                        })
                    });
                    let prefix = format!("guest::{}::verbs::{family}::{direction}", peer.device);
                    trials.push(case.trial(&prefix, Arc::clone(&registry)));
                }
            }
        }
    }
    trials
}

fn programs_of_verbs(peer: &Peer, family: Family, we_call: bool) -> Vec<Program> {
    let transaction = Program::Transaction(&dapltest::WITH_GUEST[0]);
    if peer.device == "siw" {
        // What libdaplofa, which is beside siw elsewhere, cannot do when it calls: IPv6, and the private data of a refusal.
        return match (family, we_call) {
            (_, true) => Vec::new(),
            (Family::V4, false) => vec![Program::Ending(&endings::ENDINGS[0])],
            (Family::V6, false) => {
                endings::ENDINGS.iter().map(Program::Ending).chain([transaction]).collect()
            }
        };
    }
    // Of who is killed here nobody tells: rxe has to miss it.
    let dies = Some(if we_call { "client" } else { "server" });
    let said = endings::ENDINGS.iter().filter(|ending| ending.dies != dies);
    let busy = endings::BUSY.iter().filter(|ending| ending.dies == dies);
    said.chain(busy).map(Program::Ending).chain([transaction]).collect()
}

/// Our program is the client of the kernel's, or the other way round.
fn way(guest: &Guest, family: Family, we_call: bool) -> Way<'_> {
    let [near, far] = family.addresses();
    let there = Place::Guest(guest, There::debian(family));
    match we_call {
        true => Way { to: far, server: there, client: Place::Here },
        false => Way { to: near, server: Place::Here, client: there },
    }
}

#[derive(Clone, Copy)]
enum Program {
    Dtest,
    Dtestx,
    Rping(&'static Rping),
    Ending(&'static Ending),
    Perftest(&'static Perftest),
    Transaction(&'static Transaction),
}

fn programs(peer: &Peer, wire: &'static Wire, we_call: bool) -> Vec<Program> {
    let mut programs: Vec<Program> = rping::SIZES.iter().map(Program::Rping).collect();
    // What takes its time: under CRC each role once, and each who may want it.
    let takes_time = wire.crc == Crc::Nobody || (wire.crc == Crc::Kernel) == we_call;
    if wire.name == WIRES[0].name || (wire.crc != Crc::Nobody && takes_time) {
        programs.push(Program::Rping(&rping::CONNECTIONS));
    }
    if wire.mtu == 1500 && wire.crc == Crc::Nobody {
        // Nobody says so for a process here that is killed, and rxe does not ask unless something is under way; it asks for ever
        // where the caller, which is libdaplofa then, has said 7 times.
        let unsaid = |ending: &&Ending| {
            peer.device == "rxe" && ending.dies == Some(if we_call { "client" } else { "server" })
        };
        // libdaplofa finds no way to an address of IPv6 (its rdma_resolve_addr is refused).
        let can_be_called = we_call || matches!(wire.family, Family::V4);
        let said = |ending: &&Ending| can_be_called && !unsaid(ending);
        programs.extend(endings::ENDINGS.iter().filter(said).map(Program::Ending));
        programs.extend(
            endings::BUSY.iter().filter(|ending| we_call && unsaid(ending)).map(Program::Ending),
        );
    }
    if wire.name == WIRES[0].name {
        // Its server's part can be played by a program of ours.
        if !we_call {
            programs.extend(perftest::PROGRAMS.iter().map(Program::Perftest));
        }
    }
    // Neither can tell its client an address of IPv6.
    if let Family::V4 = wire.family
        && takes_time
    {
        // Both sides of dtest read into what the other reads from; siw computes a frame's CRC of that memory before it sends it
        // (siw_tx_hdt), and where it has changed in between, the frame is a broken one to its receiver. dapltest reads from memory
        // that stays as it is.
        if wire.crc == Crc::Nobody {
            programs.push(Program::Dtest);
        }
        if peer.extended {
            programs.push(Program::Dtestx);
        }
    }
    // dapltest hands over 16 octets of an address, of which Debian's provider takes 28.
    if we_call || matches!(wire.family, Family::V4) {
        programs.extend(dapltest::WITH_GUEST.iter().map(Program::Transaction));
    }
    programs
}

impl Program {
    fn title(self) -> String {
        match self {
            Program::Dtest => "dtest".to_owned(),
            Program::Dtestx => "dtestx".to_owned(),
            Program::Rping(rping) => rping.name.to_owned(),
            Program::Ending(ending) => format!("ending_{}", ending.name),
            Program::Perftest(perftest) => format!("perftest_{}", perftest.program),
            Program::Transaction(transaction) => transaction.title(),
        }
    }

    fn run(self, dist: &Dist, registry: &Registry, way: &Way<'_>) -> Result<(), Stop> {
        match self {
            Program::Dtest => dtest::between(registry, way),
            Program::Dtestx => dtestx::between(registry, way),
            Program::Rping(rping) => rping.run(dist, registry, way),
            Program::Ending(ending) => ending.run(dist, registry, way),
            Program::Perftest(perftest) => perftest.run(dist, registry, way),
            Program::Transaction(transaction) => transaction.run(registry, way),
        }
    }
}
