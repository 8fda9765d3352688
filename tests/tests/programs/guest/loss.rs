//! Transfers between rxe in the guest and softroce on this host, on a wire that loses packets: rxe
//! writes, reads and sends, as the caller and as the called side. For comparison, rxe also writes
//! to another rxe in the guest. A transfer must end without an error, and all octets must arrive.
//! The rates are printed and not judged.
//!
//! These transfers are not part of the tests: `cargo xtask guest --loss` runs them. With an earlier
//! responder of softroce, two of some sixty transfers did not end, with both sides connected and
//! idle, and only some twenty have run with the present one.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Dist, Registry, Skip, Stop, setting};

use super::machine::{Guest, GuestEnvironment, Machine};
use super::{PEERS, WIRES, route};
use crate::Case;
use crate::dapltest::{self, Transaction};
use crate::pair::{Place, Route};

/// The percentages of packets that are lost in each direction.
const LOSSES: [u32; 4] = [1, 2, 3, 5];

/// Returns whether this program must run these transfers and nothing else.
pub(super) fn is_measured() -> bool {
    setting("guest-loss").is_some()
}

pub(super) fn trials(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let (peer, wire) = (&PEERS[0], &WIRES[0]);
    let [near, _] = wire.family.addresses();
    let registry = dist.clone().map(|dist| Registry::plugin_at(&dist, peer.provider(), near));
    let registry = Arc::new(registry);
    let mut trials = Vec::new();
    for loss in LOSSES {
        let mut add = |prefix: &str, transaction: &'static Transaction, run: Run| {
            let machine = Arc::clone(machine);
            let case = Case::new(transaction.title(), move |registry| {
                machine.run((peer.device, wire.mtu), false, |guest| {
                    let seconds = run(guest, registry, transaction, loss)?;
                    println!("{loss} % lost: {:.2} MB/s", transaction.rate(seconds));
                    Ok(())
                })
            });
            let prefix = format!("guest::rxe::loss::{loss}_percent::{prefix}");
            trials.push(case.trial(&prefix, Arc::clone(&registry)));
        };
        for transaction in dapltest::OF_LOSSY_SERVER {
            add("we_call", transaction, |guest, registry, transaction, loss| {
                across(guest, registry, transaction, loss, true)
            });
        }
        for transaction in dapltest::OF_LOSSY_CLIENT {
            add("we_are_called", transaction, |guest, registry, transaction, loss| {
                across(guest, registry, transaction, loss, false)
            });
        }
        add("between_two_rxes", &dapltest::OF_LOSSY_CLIENT[0], between_two_rxes);
    }
    trials
}

/// A function that runs a transaction with this percentage of losses and returns its seconds.
type Run = fn(&Guest, &Registry, &Transaction, u32) -> Result<f64, Stop>;

fn across(
    guest: &Guest,
    registry: &Registry,
    transaction: &Transaction,
    loss: u32,
    we_call: bool,
) -> Result<f64, Stop> {
    guest.run(&format!("/lossy {loss}"))?;
    let seconds = transaction.time(registry, &route(guest, WIRES[0].family, we_call));
    guest.run("/lossy 0")?;
    seconds
}

fn between_two_rxes(
    guest: &Guest,
    registry: &Registry,
    transaction: &Transaction,
    loss: u32,
) -> Result<f64, Stop> {
    guest.run(&format!("/pair && /lossy {loss} one"))?;
    let [client, server] = ["DAT_OVERRIDE=/tmp/dat.one", "DAT_OVERRIDE=/tmp/dat.two"]
        .map(|registry| Place::Guest(guest, GuestEnvironment { registry, network: "" }));
    let seconds = transaction.time(registry, &Route { to: "10.79.0.2", server, client });
    guest.run("/lossy 0 one; rdma link delete rxe_one; rdma link delete rxe_two")?;
    seconds
}
