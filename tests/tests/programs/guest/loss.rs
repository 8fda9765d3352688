//! Transfers between rxe in the guest and softroce on this host, on a wire that loses packets: rxe
//! writes, reads and sends, as the caller and as the called side. A transfer must end without an
//! error, no connection may break, and all octets must arrive. A transfer that rxe does not end
//! runs again. The rates are printed and not judged.
//!
//! `cargo xtask guest --loss` measures these transfers at more rates of loss, and with softroce's
//! usual ACK timeout. For comparison, rxe then also writes to another rxe in the guest.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Dist, Registry, Skip, Stop, setting};

use super::machine::{Guest, GuestEnvironment, Machine};
use super::{PEERS, WIRES, route};
use crate::Case;
use crate::dapltest::{self, Transaction};
use crate::pair::{ProgramPlace, Route};

/// The percentages of packets that are lost in each direction in a test.
const LOSSES: &[u32] = &[1, 3, 5];
/// The number of times that a transfer runs until it ends.
const MAX_ATTEMPTS: usize = 3;
const MEASURED_LOSSES: &[u32] = &[1, 2, 3, 5];

/// The ia_params in a test. rxe waits for its whole ACK timeout after many of the losses, and takes
/// the timeout of softroce if softroce calls. With the usual 2.1 s, the tests would take minutes.
const SHORT_TIMEOUT: &str = "timeout=536";

/// Returns the tests.
pub(super) fn trials(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let transfers = Transfers::new(machine, dist, SHORT_TIMEOUT);
    LOSSES.iter().flat_map(|&loss| transfers.across(loss)).collect()
}

/// Returns whether this program must measure these transfers and do nothing else.
pub(super) fn is_measured() -> bool {
    setting("guest-loss").is_some()
}

/// Returns the transfers to measure.
pub(super) fn measured(machine: &Arc<Machine>, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let transfers = Transfers::new(machine, dist, "");
    let writes = &dapltest::OF_LOSSY_CLIENT[0];
    let pair = |loss| transfers.trial(loss, "between_two_rxes", writes, between_two_rxes);
    MEASURED_LOSSES
        .iter()
        .flat_map(|&loss| transfers.across(loss).into_iter().chain([pair(loss)]))
        .collect()
}

struct Transfers {
    machine: Arc<Machine>,
    registry: Arc<Result<Registry, Skip>>,
}

/// A function that runs a transaction with this percentage of losses and returns its seconds.
type Run = fn(&Guest, &Registry, &Transaction, u32) -> Result<f64, Stop>;

impl Transfers {
    /// `params` are further ia_params of softroce.
    fn new(machine: &Arc<Machine>, dist: &Result<Dist, Skip>, params: &str) -> Transfers {
        let [near, _] = WIRES[0].family.addresses();
        let params = format!("{near} {params}");
        let registry =
            dist.clone().map(|dist| Registry::plugin_at(&dist, PEERS[0].provider(), &params));
        Transfers { machine: Arc::clone(machine), registry: Arc::new(registry) }
    }

    /// Returns the transfers between this host and the guest.
    fn across(&self, loss: u32) -> Vec<Trial> {
        let we_call = dapltest::OF_LOSSY_SERVER.iter().map(|transaction| {
            self.trial(loss, "we_call", transaction, |guest, registry, transaction, loss| {
                across(guest, registry, transaction, loss, true)
            })
        });
        let we_are_called = dapltest::OF_LOSSY_CLIENT.iter().map(|transaction| {
            self.trial(loss, "we_are_called", transaction, |guest, registry, transaction, loss| {
                across(guest, registry, transaction, loss, false)
            })
        });
        we_call.chain(we_are_called).collect()
    }

    fn trial(&self, loss: u32, prefix: &str, transaction: &'static Transaction, run: Run) -> Trial {
        let machine = Arc::clone(&self.machine);
        let case = Case::new(transaction.title(), move |registry| {
            machine.run((PEERS[0].device, WIRES[0].mtu), false, |guest| {
                let seconds = until_it_ends(|| run(guest, registry, transaction, loss))?;
                println!("{loss} % lost: {:.2} MB/s", transaction.rate(seconds));
                Ok(())
            })
        });
        let prefix = format!("guest::rxe::loss::{loss}_percent::{prefix}");
        case.trial(&prefix, Arc::clone(&self.registry))
    }
}

/// Runs a transfer again if it does not end. After some losses, rxe waits forever for an
/// acknowledgement that it does not ask for, or for the end of a connection whose peer has gone
/// (rnic/src/rc/responder.rs). A transfer that fails otherwise does not run again.
fn until_it_ends(transfer: impl Fn() -> Result<f64, Stop>) -> Result<f64, Stop> {
    for _ in 1..MAX_ATTEMPTS {
        match transfer() {
            Err(Stop::Fail(why))
                if ["has not ended in time", "reached its deadline"]
                    .iter()
                    .any(|text| why.contains(text)) =>
            {
                println!("\nrxe waits forever, so the test runs once more:\n{why}");
            }
            ended => return ended,
        }
    }
    transfer()
}

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
        .map(|registry| ProgramPlace::Guest(guest, GuestEnvironment { registry, network: "" }));
    let seconds = transaction.time(registry, &Route { to: "10.79.0.2", server, client });
    guest.run("/lossy 0 one; rdma link delete rxe_one; rdma link delete rxe_two")?;
    seconds
}
