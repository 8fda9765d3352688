//! The server on this host and the client on another one, with a wire in between that is not always as it should be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Provider, Registry, Stop, find_program};

use crate::host::{Family, Host, wait_for};
use crate::pair::{LIMIT, Way};
use crate::{Case, dapltest, dtest};

/// The MTU of Ethernet, and that of Ethernet with jumbo frames.
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
        // TCP believes in a silent peer for a quarter of an hour.
        if provider.packets {
            cases.push(address_is_gone(name, family));
        }
    }
    if provider.packets {
        cases.push(end_is_lost());
    }
    cases
}

fn programs(name: &'static str, family: Family, mtu: u32) -> Case {
    Case::new(name, move |registry| {
        let host = Host::new(family, mtu)?;
        let way = &Way::from(&host);
        // dtest cannot tell its client an address of IPv6.
        if let Family::V4 = family {
            dtest::between(registry, way)?;
        }
        for transaction in dapltest::BETWEEN {
            transaction.run(registry, way)?;
        }
        dapltest::PERFORMANCES.iter().try_for_each(|performance| performance.run(registry, way))
    })
}

fn bad_wire(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_bad_wire"), move |registry| {
        for (program, package) in [("nft", "nftables"), ("tc", "iproute2")] {
            find_program(program, package)?;
        }
        let host = Host::new(family, 1500)?;
        host.spoil()?;
        dapltest::BETWEEN[0].run(registry, &Way::from(&host))
    })
}

/// The client ends the connection and is gone a quarter of a second later, whether or not the server has
/// heard of the end; and the first that it says of it is lost. The server has nothing to send by which it
/// would find out.
fn end_is_lost() -> Case {
    Case::new("ipv4_end_is_lost", |registry| {
        find_program("nft", "nftables")?;
        let host = Host::new(Family::V4, 1500)?;
        host.lose_first_end()?;
        dtest::between(registry, &Way::from(&host))?;
        match Host::lost_ends() {
            1 => Ok(()),
            n => Err(format!("{n} DREQs were lost, not one").into()),
        }
    })
}

/// The server's address goes and comes back in mid-transfer: nothing is lost.
fn address_comes_back(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_address_comes_back"), move |registry| {
        let host = Host::new(family, 1500)?;
        let outage = || {
            host.take_address()?;
            thread::sleep(Duration::from_millis(1200));
            host.give_address()
        };
        through(&dapltest::LONG, registry, &Way::from(&host), outage)
    })
}

/// A transfer that goes on after an outage in the midst of it.
pub(crate) fn through(
    transfer: &dapltest::Transaction,
    registry: &Registry,
    way: &Way<'_>,
    outage: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), Stop> {
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let interruption = scope.spawn(|| {
            if !wait_for(SOME, LIMIT, is_over) {
                return Err("the transfer has hardly begun".to_owned());
            }
            outage()?;
            match wait_for(SOME, LIMIT, is_over) {
                true => Ok(()),
                false => Err("the transfer was over before the outage was".to_owned()),
            }
        });
        // Also where it panics: nobody waits for a transfer then that will not come.
        let end = Ends(&over);
        let outcome = transfer.run(registry, way);
        drop(end);
        outcome?;
        Ok(interruption.join().expect("no panic")?)
    })
}

/// Says so when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The server's address goes for good: who has something under way is told when the retries are used up.
/// (dapltest then waits for ever for its peer's word over another connection.)
fn address_is_gone(name: &str, family: Family) -> Case {
    Case::new(format!("{name}_address_is_gone"), move |registry| {
        let host = Host::new(family, 1500)?;
        let way = Way::from(&host);
        let (server, client) = dapltest::ENDLESS.start(registry, &way)?;
        if !wait_for(SOME, LIMIT, || false) {
            return Err(client.report(&server.report("has hardly begun")).into());
        }
        host.take_address()?;
        let start = Instant::now();
        while ![&server, &client].iter().any(|side| side.has_said("DTO problem")) {
            if start.elapsed() > BUDGET {
                return Err(client
                    .report(&server.report("has not been told of the end within two minutes"))
                    .into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    })
}

/// Seven retries of half a second each and the wait before the first, many times over: the machine may be busy.
const BUDGET: Duration = Duration::from_secs(120);
/// Octets that show that connections are made, and that a transfer is going on.
pub(crate) const SOME: u64 = 3_000_000;
