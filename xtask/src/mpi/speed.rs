//! `cargo xtask mpi`: measures MPI messages over our adapters, compared with the MPI library's own
//! TCP and shared memory.

use std::collections::BTreeMap;
use std::fmt;
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

/// What carries the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// A fabric of the library itself, by its name in `I_MPI_FABRICS`.
    Own(&'static str),
    /// One of our adapters.
    Adapter(&'static str),
}

const OWN_TCP: Carrier = Carrier::Own("tcp");
const OWN_SHM: Carrier = Carrier::Own("shm");
const TCP_EMU: Carrier = Carrier::Adapter("tcp-emu");
const SOFTROCE: Carrier = Carrier::Adapter("softroce");

const CARRIERS: [Carrier; 4] = [OWN_TCP, OWN_SHM, TCP_EMU, SOFTROCE];

/// The comparisons of an adapter with a fabric of the library, each with its bar: the minimum ratio
/// of the adapter's speed to that of the fabric. tcp-emu uses shared memory on one host.
const COMPARISONS: [(Carrier, Carrier, f64); 3] =
    [(TCP_EMU, OWN_TCP, 1.0), (TCP_EMU, OWN_SHM, 0.8), (SOFTROCE, OWN_TCP, 0.7)];

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
    let measure = |carrier| {
        let mut command = ranks_command(&mpi, &dist, &preload, carrier);
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
    let mut measured = CARRIERS.map(|_| Vec::new());
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for (carrier, rounds) in CARRIERS.into_iter().zip(&mut measured) {
            rounds.push(measure(carrier)?);
        }
    }
    println!("Half a round trip, and ratios of the speed of our adapters to that of the library's");
    println!(
        "own TCP and shared memory: median of {} rounds (smallest and largest).\n",
        options.rounds
    );
    print!("| octets |");
    CARRIERS.iter().for_each(|carrier| print!(" {carrier}, µs |"));
    COMPARISONS.iter().for_each(|(ours, own, bar)| print!(" {ours} : {own} ≥ {bar:.1} |"));
    println!("\n|{}", "---|".repeat(1 + CARRIERS.len() + COMPARISONS.len()));
    let of = |carrier| CARRIERS.iter().position(|&c| c == carrier).map(|at| &measured[at]);
    let mut met = true;
    for &size in measured[0].first().into_iter().flat_map(|times| times.keys()) {
        print!("| {size} |");
        for rounds in &measured {
            print!(" {:.1} |", Spread::of(rounds.iter().map(|times| times[&size])).median);
        }
        for (ours, own, bar) in COMPARISONS {
            let both = of(ours).into_iter().flatten().zip(of(own).into_iter().flatten());
            let ratio = Spread::of(both.map(|(ours, own)| own[&size] / ours[&size]));
            let missed = if ratio.median < bar { ", missed" } else { "" };
            met &= ratio.median >= bar;
            print!(" {ratio}{missed} |");
        }
        println!();
    }
    Ok(met || !options.check)
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Carrier::Own(fabric) => write!(f, "own {fabric}"),
            Carrier::Adapter(name) => f.write_str(name),
        }
    }
}

/// Returns the command that runs two ranks of Python.
fn ranks_command(mpi: &Path, dist: &Path, preload: &Path, carrier: Carrier) -> Command {
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
        .env("I_MPI_FALLBACK", "0");
    match carrier {
        Carrier::Own(fabric) => command.env("I_MPI_FABRICS", fabric),
        Carrier::Adapter(name) => {
            command.env("I_MPI_FABRICS", "dapl").env("I_MPI_DAPL_PROVIDER", name)
        }
    };
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
