//! Compares this project's providers with Debian's libdaplofa in the guest, with both sides of
//! `dapltest -T P` there: provider-verbs over the same rxe device, and provider-softroce in user
//! space.
//!
//! `cargo xtask guest` runs all measurements, without other tests. The test `guest::speed::` runs
//! one round of small operations. The guest then has one processor whose clock counts instructions,
//! one nanosecond each: other work on this host slows the guest down but hardly changes the
//! figures. The figures are printed and not judged. The test is that each operation is carried out
//! and measured.

use std::fs;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use opendat_tests::{Dist, Skip, Stop};

use super::machine::{APART, Guest, RXE};

/// Returns the number of rounds if the measurement is requested, else `None`.
pub(super) fn rounds() -> Option<usize> {
    opendat_tests::setting("guest-speed")?.parse().ok()
}

/// The number of octets of an operation, and the number of operations that are measured.
const SIZES: &[(u32, u32)] = &[(64, 10_000), (4096, 5000), (65536, 500), (262_144, 150)];
const OPERATIONS: [&str; 2] = ["RW", "RR"];
const MODES: [(&str, &str); 2] = [("blocking", "b"), ("polling", "p")];
const RUN_LIMIT: Duration = Duration::from_secs(240);

struct Contender {
    name: &'static str,
    library: &'static str,
    params: &'static str,
    address: &'static str,
    network: &'static str,
}

/// The providers that are measured. The first one is the reference for the others. softroce's
/// user-space engine needs RoCE's port, so it runs in a network namespace where the kernel's rxe
/// does not take the port.
const CONTENDERS: [Contender; 3] = [
    Contender {
        name: "libdaplofa",
        library: "libdaplofa.so.2",
        params: "wire 0",
        address: RXE,
        network: "",
    },
    Contender {
        name: "verbs",
        library: "/share/libdat_verbs.so",
        params: RXE,
        address: RXE,
        network: "",
    },
    Contender {
        name: "softroce",
        library: "/share/libdat_softroce.so",
        params: "wire engine=user",
        address: APART,
        network: "ip netns exec apart",
    },
];

/// The results of one run of dapltest.
#[derive(Clone, Copy)]
struct Figures {
    /// The number of operations per second.
    rate: f64,
    /// The processor time in ns that one operation takes in the kernel and in both processes
    /// together.
    cost: f64,
}

pub(super) const TRIAL: &str = "guest::speed::small_operations_beside_libdaplofa";

/// Measures small operations whose consumer sleeps. In these, the provider has the largest share of
/// an operation's cost.
pub(super) fn trial(image: &Path, dist: &Result<Dist, Skip>) -> Trial {
    let (image, dist) = (image.to_owned(), dist.clone());
    opendat_tests::trial(TRIAL.to_owned(), move || {
        let guest = Guest::boot_counting(&image)?;
        let [ofa, verbs, _] = &CONTENDERS;
        install_providers(&guest, &dist?, &[ofa, verbs])?;
        for operation in OPERATIONS {
            for (size, count) in [(64, 5000), (4096, 2500)] {
                let arguments = format!("-i {count} -m b -p 8 {operation} {size} 1");
                let [ofa, verbs] = [run(&guest, ofa, &arguments)?, run(&guest, verbs, &arguments)?];
                let (rate, cost) = (verbs.rate / ofa.rate, verbs.cost / ofa.cost);
                println!(
                    "{operation}, blocking, {size} octets: rate {rate:.2} and cost {cost:.2} of \
                     libdaplofa's"
                );
            }
        }
        Ok(())
    })
}

/// Copies the providers to the guest.
fn install_providers(guest: &Guest, dist: &Dist, contenders: &[&Contender]) -> Result<(), Stop> {
    for Contender { name, library, params, .. } in contenders {
        if let Some(plugin) = library.strip_prefix("/share/") {
            fs::copy(dist.lib().join(plugin), guest.share().join(plugin))
                .map_err(|error| format!("{plugin}: {error}"))?;
        }
        let version = if *name == "libdaplofa" { "dapl.2.0" } else { "opendat.0.1" };
        let entry =
            format!("speed u2.0 nonthreadsafe default {library} {version} \"{params}\" \"\"");
        guest.run(&format!("echo '{entry}' >/tmp/{name}.conf"))?;
    }
    guest.device("rxe", 1500)?;
    guest.run("/apart")?;
    Ok(())
}

/// Runs all measurements and prints the table.
pub(super) fn measure(guest: &Guest, dist: &Dist, rounds: usize) -> Result<(), Stop> {
    install_providers(guest, dist, &CONTENDERS.each_ref())?;
    let [_, others @ ..] = CONTENDERS.each_ref().map(|contender| contender.name);
    println!(
        "operation | mode | octets | libdaplofa: operations/s | ns of processor each | \
         relative to it: {others:?}"
    );
    for operation in OPERATIONS {
        for (mode, letter) in MODES {
            for &(size, count) in SIZES {
                let arguments = format!("-i {count} -m {letter} -p 8 {operation} {size} 1");
                let mut runs = Vec::new();
                for _ in 0..rounds {
                    let run = |contender| run(guest, contender, &arguments);
                    runs.push(CONTENDERS.iter().map(run).collect::<Result<Vec<_>, _>>()?);
                }
                let of = |who: usize| runs.iter().map(move |round| round[who]);
                print!(
                    "{operation} | {mode} | {size} | {:.0} | {:.0}",
                    median(of(0).map(|run| run.rate)),
                    median(of(0).map(|run| run.cost))
                );
                for who in 1..CONTENDERS.len() {
                    let both = || of(who).zip(of(0));
                    let rates = both().map(|(run, first)| run.rate / first.rate);
                    let costs = both().map(|(run, first)| run.cost / first.cost);
                    print!(
                        " | rate {:.2} ({}), cost {:.2}",
                        median(rates.clone()),
                        rates.map(|rate| format!("{rate:.2}")).collect::<Vec<_>>().join(", "),
                        median(costs)
                    );
                }
                println!();
            }
        }
    }
    Ok(())
}

fn run(guest: &Guest, contender: &Contender, arguments: &str) -> Result<Figures, Stop> {
    let Contender { name, address, network, .. } = contender;
    // dapltest's server does not print when it is ready, and its client tries only once.
    let output = guest.run_for(
        &format!(
            "export DAT_OVERRIDE=/tmp/{name}.conf; {network} dapltest -T S -D speed >/tmp/server & \
             for i in $(seq 100); do \
             {network} dapltest -T P -s {address} -D speed {arguments} >/tmp/client 2>&1; \
             grep -q ^raw: /tmp/client && break; sleep 0.05; done; cat /tmp/client; \
             {network} dapltest -T Q -s {address} -D speed >/tmp/quit; wait"
        ),
        RUN_LIMIT,
    )?;
    // The columns after `raw:` are: operation, count, octets, segments, pipeline, processor in use
    // (per cent), operations/s, ...
    let raw = output.lines().find_map(|line| line.strip_prefix("raw: "));
    let figure = |at| raw.and_then(|raw| raw.split(',').nth(at)?.trim().parse::<f64>().ok());
    match (figure(5), figure(6)) {
        (Some(busy), Some(rate)) => Ok(Figures { rate, cost: busy / 100.0 / rate * 1e9 }),
        _ => Err(format!("{name}, {arguments}: no rate in\n{output}").into()),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[middle] + values[(values.len() - 1) / 2]) / 2.0
}
