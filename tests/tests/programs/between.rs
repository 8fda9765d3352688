//! Tests with the server on this host and the client on another host. The wire between the hosts
//! works well, loses packets, or is interrupted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Provider, Registry, Stop, find_program};

use crate::host::{Family, Host, wait_for};
use crate::pair::{LIMIT, Route};
use crate::{Case, dapltest, dtest};

/// The wires between the two hosts. The MTU is 1500 for normal Ethernet frames, and 9000 for jumbo
/// frames.
const WIRES: &[(&str, Family, u32)] = &[
    ("ipv4_mtu_1500", Family::V4, 1500),
    ("ipv4_mtu_9000", Family::V4, 9000),
    ("ipv6_mtu_1500", Family::V6, 1500),
    ("ipv6_mtu_9000", Family::V6, 9000),
];

pub(crate) fn cases(provider: &Provider) -> Vec<Case> {
    let mut cases: Vec<Case> =
        WIRES.iter().map(|&(name, family, mtu)| programs(name, family, mtu)).collect();
    for (name, family, _) in [WIRES[0], WIRES[2]] {
        let name = &name[..4];
        cases.push(bad_wire(name, family));
        cases.push(address_comes_back(name, family));
        // Only providers that send packets run this case, because TCP waits for a silent peer for a
        // quarter of an hour.
        if provider.packets {
            cases.push(address_is_gone(name, family));
        }
    }
    if provider.packets {
        cases.push(first_dreq_is_lost());
        cases.push(mtus_differ());
    }
    cases
}

fn programs(name: &'static str, family: Family, mtu: u32) -> Case {
    Case::new(name, move |registry| {
        let host = Host::new(family, mtu)?;
        let route = &Route::from(&host);
        // dtest cannot tell its client an IPv6 address.
        if let Family::V4 = family {
            dtest::between(registry, route)?;
        }
        for transaction in dapltest::BETWEEN {
            transaction.run(registry, route)?;
        }
        dapltest::PERFORMANCES.iter().try_for_each(|performance| performance.run(registry, route))
    })
}

fn bad_wire(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_bad_wire"), move |registry| {
        for (program, package) in [("nft", "nftables"), ("tc", "iproute2")] {
            find_program(program, package)?;
        }
        let host = Host::new(family, 1500)?;
        host.make_unreliable()?;
        dapltest::BETWEEN[0].run(registry, &Route::from(&host))
    })
}

/// The client's end of the wire has jumbo frames, and the server's end does not. The server refuses
/// the client's path MTU, and the client calls again with less.
fn mtus_differ() -> Case {
    Case::new("ipv4_mtus_differ", |registry| {
        let host = Host::new(Family::V4, 9000)?;
        Host::set_mtu_here(1500)?;
        let route = &Route::from(&host);
        dapltest::BETWEEN.iter().try_for_each(|transaction| transaction.run(registry, route))
    })
}

/// The first DREQ is lost. The client disconnects and ends a quarter of a second later, whether or
/// not the server has received the DREQ. The server has nothing to send, so only a repeated DREQ
/// can tell it about the end.
fn first_dreq_is_lost() -> Case {
    Case::new("ipv4_end_is_lost", |registry| {
        find_program("nft", "nftables")?;
        let host = Host::new(Family::V4, 1500)?;
        host.drop_first_dreq()?;
        dtest::between(registry, &Route::from(&host))?;
        match Host::dropped_dreqs() {
            1 => Ok(()),
            n => Err(format!("{n} DREQs were lost instead of one").into()),
        }
    })
}

/// The server's address is removed in the middle of a transfer and added again. Nothing may be
/// lost.
fn address_comes_back(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_address_comes_back"), move |registry| {
        let host = Host::new(family, 1500)?;
        let outage = || {
            host.take_address()?;
            thread::sleep(Duration::from_millis(1200));
            host.give_address()
        };
        across_outage(&dapltest::LONG, registry, &Route::from(&host), outage)
    })
}

/// Runs a transfer that must go on after an outage in its middle.
pub(crate) fn across_outage(
    transfer: &dapltest::Transaction,
    registry: &Registry,
    route: &Route<'_>,
    outage: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), Stop> {
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let interruption = scope.spawn(|| {
            if !wait_for(TRANSFER_STARTED_BYTES, LIMIT, is_over) {
                return Err("the transfer has moved too little before the outage".to_owned());
            }
            outage()?;
            match wait_for(TRANSFER_STARTED_BYTES, LIMIT, is_over) {
                true => Ok(()),
                false => Err("the transfer ended before the outage did".to_owned()),
            }
        });
        // The guard sets the flag also in a panic, so that the other thread does not wait for a
        // transfer that has ended.
        let end = SetOnDrop(&over);
        let outcome = transfer.run(registry, route);
        drop(end);
        outcome?;
        Ok(interruption.join().expect("no panic")?)
    })
}

/// A guard that sets the flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The server's address is removed and not added again. A side that has requests under way gets an
/// event when its retries are used up. (dapltest then waits forever for its peer's message on
/// another connection.)
fn address_is_gone(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_address_is_gone"), move |registry| {
        let host = Host::new(family, 1500)?;
        let route = Route::from(&host);
        let (server, client) = dapltest::ENDLESS.start(registry, &route)?;
        if !wait_for(TRANSFER_STARTED_BYTES, LIMIT, || false) {
            return Err(client.report(&server.report("has transferred too little")).into());
        }
        host.take_address()?;
        let start = Instant::now();
        while ![&server, &client].iter().any(|side| side.has_said("DTO problem")) {
            if start.elapsed() > EVENT_LIMIT {
                return Err(client
                    .report(&server.report("has got no event for the end within two minutes"))
                    .into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    })
}

/// The time limit for the event. Seven retries of half a second each and the wait before the first
/// retry take far less, but the machine may be busy.
const EVENT_LIMIT: Duration = Duration::from_secs(120);
/// Once a host has received this many octets, all connections are established and a transfer is
/// under way.
pub(crate) const TRANSFER_STARTED_BYTES: u64 = 3_000_000;
