//! `cargo xtask mpi`: how fast MPI messages are over our adapters, beside the same library's own TCP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{target, workspace};
use crate::dist;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each is measured, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Octets of the smallest message
    #[arg(long, default_value_t = 1)]
    smallest: u32,
    /// Octets of the largest: sizes double up to this
    #[arg(long, default_value_t = 4 << 20)]
    largest: u32,
    /// Libraries that `cargo xtask dist` has laid out before, in place of new ones
    #[arg(long, value_name = "DIR")]
    dist: Option<PathBuf>,
    /// Fail when a size misses its bar
    #[arg(long)]
    check: bool,
}

/// An adapter, and the least that its messages may be as fast as over the library's own TCP.
const ADAPTERS: [(&str, f64); 2] = [("tcp-emu", 1.0), ("softroce", 0.7)];

/// A run takes a minute on a busy machine.
const LIMIT: &str = "600";

/// Microseconds by octets: half of the time there and back.
type Times = BTreeMap<u32, f64>;

/// Measures, and prints a table; whether each size meets its bar, if that is asked.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mpi = super::provide().context("without Intel MPI there is nothing to measure")?;
    let dist = match &options.dist {
        Some(dist) => dist.canonicalize().with_context(|| format!("{}", dist.display()))?,
        None => dist::build(dist::Profile::Dist)?,
    };
    let preload = compile_preload()?;
    let measure = |adapter| {
        let mut command = job(&mpi, &dist, &preload, adapter);
        command.arg(workspace().join("tests/programs/pingpong.py"));
        command.args([options.smallest.to_string(), options.largest.to_string()]);
        let times = parse(command)?;
        ensure!(
            !times.is_empty(),
            "no size from {} to {} octets",
            options.smallest,
            options.largest
        );
        Ok(times)
    };
    let mut own = Vec::new();
    let mut ours = ADAPTERS.map(|_| Vec::new());
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        own.push(measure(None)?);
        for ((adapter, _), rounds) in ADAPTERS.iter().zip(&mut ours) {
            rounds.push(measure(Some(adapter))?);
        }
    }
    println!(
        "Half of the time there and back, and how many times as fast as the library's own TCP:"
    );
    println!("median of {} rounds (smallest and largest).\n", options.rounds);
    print!("| octets | own TCP, µs |");
    ADAPTERS.iter().for_each(|(name, bar)| print!(" {name}, µs | ≥ {bar:.1} |"));
    println!("\n|---|---|---|---|---|---|");
    let mut met = true;
    for &size in own.first().into_iter().flat_map(|times| times.keys()) {
        print!("| {size} | {:.1} |", median(own.iter().map(|times| times[&size]).collect()));
        for ((_, bar), rounds) in ADAPTERS.iter().zip(&ours) {
            let mut ratios: Vec<f64> =
                own.iter().zip(rounds).map(|(own, ours)| own[&size] / ours[&size]).collect();
            ratios.sort_by(f64::total_cmp);
            let (ratio, time) =
                (median(ratios.clone()), median(rounds.iter().map(|times| times[&size]).collect()));
            let missed = if ratio < *bar { ", missed" } else { "" };
            met &= ratio >= *bar;
            print!(
                " {time:.1} | {ratio:.2} ({:.2}–{:.2}){missed} |",
                ratios[0],
                ratios[ratios.len() - 1]
            );
        }
        println!();
    }
    Ok(met || !options.check)
}

/// Two ranks of Python; over an adapter of ours, or the library's own TCP.
fn job(mpi: &Path, dist: &Path, preload: &Path, adapter: Option<&str>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(mpi.join("bin/mpiexec.hydra"));
    let path =
        format!("{}:{}", mpi.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env("I_MPI_ROOT", mpi)
        .env("LD_LIBRARY_PATH", dist.join("lib"))
        // No entries but those that are built in.
        .env("DAT_OVERRIDE", "/dev/null")
        .env("LD_PRELOAD", preload)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("I_MPI_HYDRA_IFACE", "lo")
        .env("I_MPI_FALLBACK", "0")
        .env("I_MPI_FABRICS", if adapter.is_some() { "dapl" } else { "tcp" });
    if let Some(adapter) = adapter {
        command.env("I_MPI_DAPL_PROVIDER", adapter);
    }
    command.args(["-n", "2"]).arg(mpi.join("bin/python"));
    command
}

fn parse(mut command: Command) -> Result<Times> {
    let output = command.output().context("mpiexec.hydra does not start")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "{command:?} failed ({})\n{said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let line = |line: &str| {
        let (size, time) = line.split_once(' ')?;
        Some((size.parse().ok()?, time.trim().parse().ok()?))
    };
    Ok(said.lines().filter_map(line).collect())
}

/// Intel MPI asks how much memory may be locked.
fn compile_preload() -> Result<PathBuf> {
    let library = target()?.join("memlock.so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1"])
        .arg(workspace().join("tests/programs/memlock.c"))
        .arg("-o")
        .arg(&library)
        .status()
        .context("cc does not start")?;
    ensure!(status.success(), "cc failed ({status})");
    Ok(library)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
