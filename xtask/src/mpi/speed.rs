//! `cargo xtask mpi`: measures MPI messages over our adapters, compared with the MPI library's own
//! TCP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{target, workspace};
use crate::dist;
use crate::spread::Spread;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; each round measures every adapter once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Size of the smallest message in octets
    #[arg(long, default_value_t = 1)]
    smallest: u32,
    /// Size of the largest message in octets; each size is twice the size before it
    #[arg(long, default_value_t = 4 << 20)]
    largest: u32,
    /// Use libraries that `cargo xtask dist` has laid out instead of building new ones
    #[arg(long, value_name = "DIR")]
    dist: Option<PathBuf>,
    /// Fail if a message size misses its required ratio
    #[arg(long)]
    check: bool,
}

/// The adapters, each with its bar: the minimum ratio of its speed to the speed of the library's
/// own TCP.
const ADAPTERS: [(&str, f64); 2] = [("tcp-emu", 1.0), ("softroce", 0.7)];

/// The time limit of a run in seconds. On a busy machine, a run takes a minute.
const TIME_LIMIT_SECONDS: &str = "600";

/// Half a round trip in microseconds, by message size in octets.
type LatencyBySize = BTreeMap<u32, f64>;

/// Measures and prints a table. With `--check`, returns whether each message size meets its
/// required ratio.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mpi = super::provide().context("without Intel MPI there is nothing to measure")?;
    let dist = match &options.dist {
        Some(dist) => dist.canonicalize().with_context(|| format!("{}", dist.display()))?,
        None => dist::build(dist::Profile::Dist)?,
    };
    let preload = compile_preload()?;
    let measure = |adapter| {
        let mut command = ranks_command(&mpi, &dist, &preload, adapter);
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
    println!("Half a round trip, and the ratio of the speed to that of the library's own TCP:");
    println!("median of {} rounds (smallest and largest).\n", options.rounds);
    print!("| octets | own TCP, µs |");
    ADAPTERS.iter().for_each(|(name, bar)| print!(" {name}, µs | ≥ {bar:.1} |"));
    println!("\n|---|---|---|---|---|---|");
    let mut met = true;
    for &size in own.first().into_iter().flat_map(|times| times.keys()) {
        print!("| {size} | {:.1} |", Spread::of(own.iter().map(|times| times[&size])).median);
        for ((_, bar), rounds) in ADAPTERS.iter().zip(&ours) {
            let ratio =
                Spread::of(own.iter().zip(rounds).map(|(own, ours)| own[&size] / ours[&size]));
            let time = Spread::of(rounds.iter().map(|times| times[&size])).median;
            let missed = if ratio.median < *bar { ", missed" } else { "" };
            met &= ratio.median >= *bar;
            print!(" {time:.1} | {ratio}{missed} |");
        }
        println!();
    }
    Ok(met || !options.check)
}

/// Returns the command that runs two ranks of Python over one of our adapters, or over the
/// library's own TCP.
fn ranks_command(mpi: &Path, dist: &Path, preload: &Path, adapter: Option<&str>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(TIME_LIMIT_SECONDS).arg(mpi.join("bin/mpiexec.hydra"));
    let path =
        format!("{}:{}", mpi.join("bin").display(), std::env::var("PATH").unwrap_or_default());
    command
        .env("PATH", path)
        .env("I_MPI_ROOT", mpi)
        .env("LD_LIBRARY_PATH", dist.join("lib"))
        // Only the built-in entries are used.
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

fn parse(mut command: Command) -> Result<LatencyBySize> {
    let output = command.output().context("mpiexec.hydra does not start")?;
    let output_text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!(
            "{command:?} failed ({})\n{output_text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let line = |line: &str| {
        let (size, time) = line.split_once(' ')?;
        Some((size.parse().ok()?, time.trim().parse().ok()?))
    };
    Ok(output_text.lines().filter_map(line).collect())
}

/// Compiles a library that reports an unlimited memory lock limit, since Intel MPI asks for it.
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
