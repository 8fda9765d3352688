//! Debian's programs over this project's providers on this host, connected to Debian's own provider
//! (libdaplofa) and the kernel's RDMA drivers in a guest. rxe is the peer of RoCEv2, and siw is the
//! peer of iWARP. Other tests run entirely in the guest: provider-verbs on the guest's devices, the
//! matrix of registries and providers, and the conformance suite. `cargo xtask test guest::` builds
//! the guest and runs only these tests.
//!
//! | name | test |
//! |---|---|
//! | `guest::{rxe,siw}::` WIRE, caller, program | a program on this host, its peer in the guest |
//! | `guest::rxe::outages::` | transfers between rxe and softroce that go on after outages |
//! | `guest::rxe::loss::` | transfers between rxe and softroce on a wire that loses packets |
//! | `guest::{rxe,siw}::verbs::` family, caller, program | the peer in the guest uses verbs |
//! | `guest::matrix::` registry, provider, program | both programs in the guest |
//! | `guest::rights::` | the error messages for a user with fewer rights than root |
//! | `guest::engines::` | softroce's engine in the guest, and the devices that `dat list` shows |
//! | `guest::conformance::` provider, case | the conformance suite in the guest |
//! | `guest::speed::` | the cost of small operations, compared with libdaplofa |
//! | `guest::verbs::` program | both programs in the guest, over provider-verbs |
//!
//! The registry of a test in the matrix is `ours` or `debian`. All other tests in the guest use
//! this project's registry. `cargo xtask guest --loss` measures the transfers of `loss` and does
//! nothing else. `guest::verbs::` also contains `ipv6::`, `behaviour::` and tests of devices that
//! fail.

mod behaviour;
mod conformance;
mod devices;
mod endings;
mod engines;
mod in_guest;
mod loss;
mod machine;
mod perftest;
mod relay;
mod rights;
mod rping;
mod speed;
mod udaddy;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use opendat_tests::{Dist, PROVIDERS, Provider, Registry, SHARE, Skip, Stop, setting};

use crate::dapltest::Transaction;
use crate::host::Family;
use crate::pair::{ProgramPlace, Route};
use crate::{Case, dapltest, datagrams, dtest, dtestx, outages};
use endings::Ending;
use machine::Machine;
use perftest::Perftest;
use rping::Rping;
use udaddy::Udaddy;

pub(crate) use machine::{Guest, GuestEnvironment};
pub(crate) use relay::{is_relay, relay};

/// Returns the directory in which `tests/guest/build.sh` has built the guest, if these tests must
/// run.
pub(crate) fn image() -> Option<PathBuf> {
    setting("guest").map(PathBuf::from)
}

/// A driver of the kernel, and this project's provider of the same protocol.
struct Peer {
    device: &'static str,
    ia: &'static str,
    /// Whether the provider has immediate data and atomic operations.
    extended: bool,
}

const PEERS: &[Peer] = &[
    Peer { device: "rxe", ia: "softroce", extended: true },
    Peer { device: "siw", ia: "tcp-emu", extended: false },
];

impl Peer {
    fn provider(&self) -> &'static Provider {
        PROVIDERS
            .iter()
            .find(|provider| provider.ia == self.ia)
            .expect("the adapter belongs to a known provider")
    }

    /// Returns whether the driver supports the CRC setting of this wire. In RoCEv2 the ICRC is
    /// mandatory, so rxe has no such setting.
    fn supports(&self, wire: &GuestNetwork) -> bool {
        self.device == "siw" || wire.crc == Crc::Nobody
    }
}

/// The wire between this host and the guest.
struct GuestNetwork {
    name: &'static str,
    family: Family,
    mtu: u32,
    crc: Crc,
}

/// The side that asks for CRCs, which are optional in iWARP only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crc {
    Nobody,
    Kernel,
    Ours,
}

const fn wire(name: &'static str, family: Family, mtu: u32, crc: Crc) -> GuestNetwork {
    GuestNetwork { name, family, mtu, crc }
}

/// The wires between this host and the guest. The MTU is 1500 for normal Ethernet frames, and 9000
/// for jumbo frames.
const WIRES: &[GuestNetwork] = &[
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
    // This test has a guest of its own, so no other test may run in this process.
    if setting(SHARE).is_some_and(|share| share == speed::TRIAL) {
        return vec![speed::trial(image, dist)];
    }
    let machine = Arc::new(Machine::new(image, dist));
    if loss::is_measured() {
        return loss::measured(&machine, dist);
    }
    let mut trials = in_guest::trials(&machine, dist);
    trials.extend(engines::trials(&machine));
    trials.extend(rights::trials(&machine));
    trials.extend(conformance::trials(&machine, arguments));
    trials.extend(devices::trials(&machine, dist));
    trials.extend(across(&machine, dist));
    trials.extend(with_verbs(&machine, dist));
    trials.extend(through_outages(&machine, dist));
    trials.extend(loss::trials(&machine, dist));
    trials
}

/// Returns the tests with one program on this host, and its peer in the guest.
fn across(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for peer in PEERS {
        for wire in WIRES.iter().filter(|wire| peer.supports(wire)) {
            let &GuestNetwork { name, family, mtu, crc } = wire;
            // A device name in ia_params would select the device's IPv4 address.
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
                                program.run(
                                    &dist.clone()?,
                                    registry,
                                    &route(guest, family, we_call),
                                )
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

/// Returns the tests of transfers with rxe that go on after outages.
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
                    outages.run(registry, &route(guest, wire.family, we_call))
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

/// Returns the tests with one of this project's providers on this host, and provider-verbs on the
/// kernel's device in the guest.
fn with_verbs(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for peer in PEERS {
        for (family, wire) in [("ipv4", Family::V4), ("ipv6", Family::V6)] {
            let ([near, far], there) = (wire.addresses(), in_guest::as_ours(wire));
            let registry =
                dist.clone().map(|dist| Registry::plugin_at(&dist, peer.provider(), near));
            let registry = Arc::new(registry);
            for (direction, we_call) in [("we_call", true), ("we_are_called", false)] {
                for program in programs_of_verbs(peer, wire, we_call) {
                    let (machine, dist) = (Arc::clone(machine), dist.clone());
                    let case = Case::new(program.title(), move |registry| {
                        machine.run((peer.device, 1500), true, |guest| {
                            let there = ProgramPlace::Guest(guest, there);
                            let route = match we_call {
                                true => {
                                    Route { to: far, server: there, client: ProgramPlace::Here }
                                }
                                false => {
                                    Route { to: near, server: ProgramPlace::Here, client: there }
                                }
                            };
                            program.run(&dist.clone()?, registry, &route)
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
        // libdaplofa, which runs on siw elsewhere, supports neither IPv6 nor the private data of a
        // rejection when it is the caller.
        return match (family, we_call) {
            (_, true) => Vec::new(),
            (Family::V4, false) => vec![Program::Ending(&endings::ENDINGS[0])],
            (Family::V6, false) => {
                endings::ENDINGS.iter().map(Program::Ending).chain([transaction]).collect()
            }
        };
    }
    // If a process on this host is killed, its peer gets no packet, so rxe has to notice the death
    // by itself.
    let dies = Some(if we_call { "client" } else { "server" });
    let supported = endings::ENDINGS.iter().filter(|ending| ending.dies != dies);
    let busy = endings::BUSY.iter().filter(|ending| ending.dies == dies);
    // These programs cannot tell their clients an IPv6 address. dtestx is left out, because its
    // server calls its client too, and the relay tells the server its own address.
    let datagrams = datagrams::in_guest().filter(|program| {
        matches!((family, program), (Family::V4, datagrams::Program::Connections(_)))
    });
    supported
        .chain(busy)
        .map(Program::Ending)
        .chain([transaction])
        .chain(datagrams.map(Program::Datagrams))
        .collect()
}

/// Returns the route from a program on this host to a program in the guest, or from a program in
/// the guest to a program on this host.
fn route(guest: &Guest, family: Family, we_call: bool) -> Route<'_> {
    let [near, far] = family.addresses();
    let there = ProgramPlace::Guest(guest, GuestEnvironment::debian(family));
    match we_call {
        true => Route { to: far, server: there, client: ProgramPlace::Here },
        false => Route { to: near, server: ProgramPlace::Here, client: there },
    }
}

#[derive(Clone, Copy)]
enum Program {
    Dtest,
    Dtestx,
    Rping(&'static Rping),
    Udaddy(&'static Udaddy),
    Ending(&'static Ending),
    Perftest(&'static Perftest),
    Transaction(&'static Transaction),
    Datagrams(datagrams::Program),
}

fn programs(peer: &Peer, wire: &'static GuestNetwork, we_call: bool) -> Vec<Program> {
    let mut programs: Vec<Program> = rping::SIZES.iter().map(Program::Rping).collect();
    // Slow programs run with CRCs in only two of four cases: the kernel asks for CRCs and this
    // project's program is the caller, or this project's provider asks for CRCs and its program is
    // called.
    let runs_slow_programs = wire.crc == Crc::Nobody || (wire.crc == Crc::Kernel) == we_call;
    if wire.name == WIRES[0].name || (wire.crc != Crc::Nobody && runs_slow_programs) {
        programs.push(Program::Rping(&rping::CONNECTIONS));
    }
    if wire.mtu == 1500 && wire.crc == Crc::Nobody {
        // A killed process on this host sends nothing, and rxe sends no request unless one is under
        // way. With a retry count of 7, which libdaplofa requests as the caller, rxe then repeats
        // the request forever.
        let goes_unnoticed = |ending: &&Ending| {
            peer.device == "rxe" && ending.dies == Some(if we_call { "client" } else { "server" })
        };
        // libdaplofa cannot resolve an IPv6 address (its rdma_resolve_addr is refused).
        let can_be_called = we_call || matches!(wire.family, Family::V4);
        let supported = |ending: &&Ending| can_be_called && !goes_unnoticed(ending);
        programs.extend(endings::ENDINGS.iter().filter(supported).map(Program::Ending));
        programs.extend(
            endings::BUSY
                .iter()
                .filter(|ending| we_call && goes_unnoticed(ending))
                .map(Program::Ending),
        );
    }
    if peer.device == "rxe" && wire.mtu == 1500 {
        programs.extend(udaddy::PROGRAMS.iter().map(Program::Udaddy));
    }
    if wire.name == WIRES[0].name {
        // `programs/perftest.c` can only be the server, so the client in the guest must be the
        // caller.
        if !we_call {
            programs.extend(perftest::PROGRAMS.iter().map(Program::Perftest));
        }
    }
    // dtest and dtestx cannot tell their clients an IPv6 address.
    if let Family::V4 = wire.family
        && runs_slow_programs
    {
        // Both sides of dtest read into memory that the other side reads. siw computes a frame's
        // CRC over that memory before it sends the frame (siw_tx_hdt). If the memory changes in
        // between, the receiver sees a broken frame. dapltest reads from memory that does not
        // change.
        if wire.crc == Crc::Nobody {
            programs.push(Program::Dtest);
        }
        if peer.extended {
            programs.push(Program::Dtestx);
        }
    }
    // dapltest passes 16 octets of an address, of which Debian's provider reads 28.
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
            Program::Udaddy(udaddy) => udaddy.name.to_owned(),
            Program::Ending(ending) => format!("ending_{}", ending.name),
            Program::Perftest(perftest) => format!("perftest_{}", perftest.program),
            Program::Transaction(transaction) => transaction.title(),
            Program::Datagrams(program) => program.title(),
        }
    }

    fn run(self, dist: &Dist, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        match self {
            Program::Dtest => dtest::between(registry, route),
            Program::Dtestx => dtestx::between(registry, route),
            Program::Rping(rping) => rping.run(dist, registry, route),
            Program::Udaddy(udaddy) => udaddy.run(dist, registry, route),
            Program::Ending(ending) => ending.run(dist, registry, route),
            Program::Perftest(perftest) => perftest.run(dist, registry, route),
            Program::Transaction(transaction) => transaction.run(registry, route),
            Program::Datagrams(program) => program.run(registry, route),
        }
    }
}
