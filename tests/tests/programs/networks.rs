//! Emulated networks, as a consumer enables them to test under bad conditions (docs/softroce.md).

use opendat_tests::{Dist, Provider, Registry, Skip};

use crate::pair::Route;
use crate::{Case, dapltest, dtest};

/// A function that creates a registry for a provider.
pub(crate) type MakeRegistry = fn(&Dist, &Provider) -> Result<Registry, Skip>;

/// The emulated networks: the name of each network, and the function that creates a registry whose
/// programs communicate over that network.
pub(crate) const NETWORKS: &[(&str, MakeRegistry)] = &[
    ("lossy", |dist, provider| with(dist, provider, "loss=2%,duplicate=1%,reorder=2%,seed=1")),
    ("lossy_and_far", |dist, provider| {
        with(dist, provider, "loss=1%,duplicate=1%,reorder=5%,delay=2ms,seed=2")
    }),
    ("narrow", |dist, provider| with(dist, provider, "rate=200mbit,delay=1ms,loss=0.5%,seed=3")),
];

fn with(dist: &Dist, provider: &Provider, conditions: &str) -> Result<Registry, Skip> {
    Ok(Registry::builtin(dist, provider).with_params(&format!("net={conditions}")))
}

pub(crate) fn cases() -> Vec<Case> {
    let transactions = dapltest::BETWEEN.iter().map(|transaction| {
        Case::new(transaction.title(), |registry| transaction.run(registry, &Route::LOOPBACK))
    });
    let dtest = Case::new("dtest", |registry| dtest::between(registry, &Route::LOOPBACK));
    transactions.chain([dtest]).collect()
}
