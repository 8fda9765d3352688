//! Our verbs provider beside Debian's libdaplofa over the same rxe device: both sides of `dapltest -T P` in the guest.
//!
//! A measurement, not a test: `OPENDAT_GUEST_SPEED=ROUNDS cargo xtask guest` runs it, alone. The guest then has one processor,
//! whose clock counts its instructions, a nanosecond each: what else this host does slows it down, and hardly shows in the figures.

use std::fs;
use std::time::Duration;

use opendat_tests::{Dist, Stop};

use super::machine::Guest;
use crate::host::Family;

/// How many rounds, if it is to be run.
pub(super) fn rounds() -> Option<usize> {
    std::env::var("OPENDAT_GUEST_SPEED").ok()?.parse().ok()
}

/// Octets of an operation, and how many are measured.
const SIZES: &[(u32, u32)] = &[(64, 1000), (4096, 500), (65536, 200), (262_144, 100)];
const OPERATIONS: [&str; 2] = ["RW", "RR"];
const MODES: [(&str, &str); 2] = [("blocking", "b"), ("polling", "p")];
/// libdaplofa is what the other is compared with.
const PROVIDERS: [&str; 2] = ["libdaplofa", "ours"];
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints the table.
pub(super) fn measure(guest: &Guest, dist: &Dist, rounds: usize) -> Result<(), Stop> {
    let plugin = "libdat_verbs.so";
    fs::copy(dist.lib().join(plugin), guest.share().join(plugin))
        .map_err(|error| format!("{plugin}: {error}"))?;
    let [_, address] = Family::V4.addresses();
    for (name, library) in [("libdaplofa", "libdaplofa.so.2"), ("ours", "/share/libdat_verbs.so")] {
        let entry = format!(
            "speed u2.0 nonthreadsafe default {library} dapl.2.0 \"{address}{}\" \"\"",
            if name == "ours" { "" } else { " 0" }
        );
        guest.run(&format!("echo '{entry}' >/tmp/{name}.conf"))?;
    }
    guest.device("rxe", 1500)?;
    println!(
        "operation | mode | octets | libdaplofa, operations/s | ours | ours/libdaplofa | smallest and largest"
    );
    for operation in OPERATIONS {
        for (mode, letter) in MODES {
            for &(size, count) in SIZES {
                let mut rates = Vec::new();
                for _ in 0..rounds {
                    let run = |name| {
                        rate(
                            guest,
                            address,
                            name,
                            &format!("-i {count} -m {letter} -p 8 {operation} {size} 1"),
                        )
                    };
                    let [theirs, ours] = PROVIDERS.map(run);
                    rates.push([theirs?, ours?]);
                }
                let mut ratios: Vec<f64> = rates.iter().map(|[theirs, ours]| ours / theirs).collect();
                let [theirs, ours] = [0, 1].map(|who| median(rates.iter().map(|rates| rates[who]).collect()));
                ratios.sort_by(f64::total_cmp);
                println!(
                    "{operation} | {mode} | {size} | {theirs:.0} | {ours:.0} | {:.2} | {:.2}–{:.2}",
                    median(ratios.clone()),
                    ratios[0],
                    ratios[ratios.len() - 1]
                );
            }
        }
    }
    Ok(())
}

/// Operations a second.
fn rate(guest: &Guest, address: &str, provider: &str, arguments: &str) -> Result<f64, Stop> {
    let said = guest.run_for(
        &format!(
            "export DAT_OVERRIDE=/tmp/{provider}.conf; dapltest -T S -D speed >/tmp/server & \
             until rdma resource show cm_id | grep -q LISTEN; do sleep 0.05; done; \
             dapltest -T P -s {address} -D speed {arguments}; dapltest -T Q -s {address} -D speed >/tmp/quit; wait"
        ),
        PATIENCE,
    )?;
    // raw: operation, count, octets, segments, pipeline, processor in use, operations/s, ...
    let raw = said.lines().find_map(|line| line.strip_prefix("raw: "));
    let rate = raw.and_then(|raw| raw.split(',').nth(6)?.trim().parse().ok());
    rate.ok_or_else(|| format!("{provider}, {arguments}: no rate in\n{said}").into())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[middle] + values[(values.len() - 1) / 2]) / 2.0
}
