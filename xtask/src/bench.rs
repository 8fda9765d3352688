//! `cargo xtask bench`: measures DAT next to a baseline with `workshop bench`, and checks that each
//! row meets its bar, which is a required ratio (docs/performance.md).

mod peers;

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::{cargo, run_with_progress};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Instead, measure OpenDAT in turn with the programs of UCX and libfabric that are installed
    /// (Debian: ucx-utils, libfabric-bin), over shared memory and TCP; the bars are only printed
    #[arg(long, conflicts_with = "arguments")]
    peers: bool,
    /// Number of rounds; with --peers 3 by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Options of `workshop bench`, such as --adapter softroce or --watched
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The ratio of DAT to the baseline that a row must meet, as a maximum or a minimum.
#[derive(Clone, Copy)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// The row has no bar: it shows what a guarantee costs.
    None,
}

impl Bar {
    fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bar) => ratio <= bar,
            Self::AtLeast(bar) => ratio >= bar,
            Self::None => true,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bar) => write!(f, "≤ {bar:.2}"),
            Self::AtLeast(bar) => write!(f, "≥ {bar:.2}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The required ratio of each row, with the name of the row.
const BARS: [(&str, Bar); 54] = [
    ("64 B ping-pong, polling", Bar::AtMost(1.05)),
    ("64 B ping-pong, blocking", Bar::AtMost(1.15)),
    ("64 B, adaptive wait / spin", Bar::AtMost(1.20)),
    ("64 B blocking, one CPU", Bar::AtMost(1.70)),
    ("1 MiB RDMA write, window 16", Bar::AtLeast(0.90)),
    ("1 MiB RDMA read, window 16", Bar::AtLeast(0.85)),
    ("64 B sends, 64 outstanding", Bar::AtLeast(10.0)),
    ("64 B ping-pong polling, shm", Bar::AtMost(0.20)),
    ("64 B ping-pong block., shm", Bar::AtMost(1.00)),
    ("64 B adaptive / spin, shm", Bar::AtMost(0.25)),
    ("1 MiB RDMA write, shm", Bar::AtLeast(1.20)),
    ("1 MiB RDMA read, shm", Bar::AtLeast(1.20)),
    ("64 B sends, 64 outst., shm", Bar::AtLeast(15.0)),
    ("64 B requests, 16 conn.", Bar::AtLeast(2.0)),
    ("64 B requests, 64 conn.", Bar::AtLeast(1.0)),
    ("64 B requests, 256 conn.", Bar::AtLeast(1.0)),
    ("64 B requests, 1024 conn.", Bar::AtLeast(1.0)),
    ("64 B, 1024 conn., 1 request", Bar::AtMost(1.05)),
    ("64 B ping-pong polling, UDP", Bar::AtMost(1.20)),
    ("1 MiB RDMA write, MTU 4096", Bar::AtLeast(0.55)),
    ("1 MiB RDMA write, MTU 1024", Bar::AtLeast(0.40)),
    ("64 B sends, 64 outst., UDP", Bar::AtLeast(2.0)),
    ("64 B datagrams, ping-pong", Bar::AtMost(1.15)),
    ("64 B datagrams, 64 outst.", Bar::AtLeast(4.0)),
    ("64 B req., 16 conn., RoCE", Bar::AtLeast(2.0)),
    ("64 B req., 64 conn., RoCE", Bar::AtLeast(1.0)),
    ("64 B req., 256 conn., RoCE", Bar::AtLeast(1.0)),
    ("64 B adaptive, unpinned", Bar::AtMost(1.20)),
    ("64 B adaptive unpinned, shm", Bar::AtMost(0.25)),
    ("64 B adaptive unpinned, UDP", Bar::AtMost(1.20)),
    ("64 B sends, blocking", Bar::AtLeast(0.80)),
    ("64 B writes, blocking", Bar::AtLeast(0.80)),
    ("4 KiB writes, blocking", Bar::AtLeast(0.80)),
    ("64 B sends, adaptive", Bar::AtLeast(0.80)),
    ("64 B writes, adaptive", Bar::AtLeast(0.80)),
    ("4 KiB writes, adaptive", Bar::AtLeast(0.80)),
    ("64 B blocking, 2 threads", THREADS_BAR),
    ("64 B polling, 2 threads", THREADS_BAR),
    ("64 B sends, 2 threads", THREADS_BAR),
    ("64 KiB writes, 2 threads", THREADS_BAR),
    ("64 B block., 2 threads, shm", THREADS_BAR),
    ("64 B poll., 2 threads, shm", THREADS_BAR),
    ("64 B sends, 2 threads, shm", THREADS_BAR),
    ("64 KiB wr., 2 threads, shm", THREADS_BAR),
    ("64 B write", Bar::None),
    ("64 B write and send", Bar::AtMost(1.00)),
    ("64 B writes, 64 outstanding", Bar::None),
    ("64 KiB writes, window 16", Bar::AtLeast(0.95)),
    ("1 MiB writes, window 16", Bar::AtLeast(0.95)),
    ("64 B write, shm", Bar::None),
    ("64 B write and send, shm", Bar::AtMost(1.00)),
    ("64 B writes, 64 outst., shm", Bar::None),
    ("64 KiB wr., window 16, shm", Bar::AtLeast(0.95)),
    ("1 MiB writes, 16, shm", Bar::AtLeast(0.95)),
];
/// The required ratio of two threads to one thread.
const THREADS_BAR: Bar = Bar::AtLeast(1.70);
/// The required ratio of the rows of `--watched`, whose names contain [`WATCHED`].
const WATCHED_BAR: Bar = Bar::AtMost(1.30);
const WATCHED: &str = ", watched, ";

/// The minimum ratio between the bandwidth of a size and the bandwidth of the next smaller size,
/// for rows of `--watched`. A smaller ratio is a dip. If the baseline's bandwidth also falls, the
/// limit is multiplied by the baseline's ratio.
const MIN_STEP: f64 = 0.90;

const DEFAULT_PEER_ROUNDS: u32 = 3;

/// The output of `workshop bench --json`.
#[derive(Deserialize)]
struct Document {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    size: usize,
    /// Half a round trip in seconds, for rows of `--watched`.
    dat: f64,
    baseline: f64,
    /// The median, the minimum and the maximum of the ratios that the rounds have measured.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

/// Measures and prints a table. Returns whether each row meets its required ratio. The rows of
/// `--peers` have no required ratio.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.peers {
        peers::run(options.rounds.unwrap_or(DEFAULT_PEER_ROUNDS))?;
        return Ok(true);
    }
    let mut command = cargo();
    command.args(["run", "--release", "-p", "workshop", "--", "bench", "--json"]);
    if let Some(rounds) = options.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    let (status, text) = run_with_progress(command.args(&options.arguments), "measuring")?;
    ensure!(status.success(), "workshop bench failed ({status})");
    let Document { rows } =
        serde_json::from_str(&text).context("the JSON of workshop bench has an unexpected form")?;
    let mut all_met = true;
    println!("\n| row | ratio (min–max) | bar | |\n|---|---|---|---|");
    for (index, row) in rows.iter().enumerate() {
        let smaller = index.checked_sub(1).and_then(|index| rows.get(index));
        let (bar, verdict) = row.judge(smaller)?;
        all_met &= verdict == Verdict::Met;
        let Row { name, ratio, ratio_min, ratio_max, .. } = row;
        let verdict = format!("{verdict:?}").to_lowercase();
        println!("| {name} | {ratio:.2} ({ratio_min:.2}–{ratio_max:.2}) | {bar} | {verdict} |");
    }
    Ok(all_met)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// The row has less bandwidth than the row of the next smaller size.
    Dip,
}

impl Row {
    /// Returns the required ratio of the row, and whether the row meets it. `previous` is the row
    /// before this row.
    fn judge(&self, previous: Option<&Row>) -> Result<(Bar, Verdict)> {
        let is_watched = self.name.contains(WATCHED);
        let bar = match BARS.iter().find(|(name, _)| *name == self.name) {
            Some((_, bar)) => *bar,
            None if is_watched => WATCHED_BAR,
            None => {
                anyhow::bail!("the row {:?} has no required ratio in xtask/src/bench.rs", self.name)
            }
        };
        let meets_bar = bar.is_met_by(self.ratio);
        let smaller = previous.filter(|previous| is_watched && previous.size < self.size);
        Ok(match (smaller.is_some_and(|smaller| self.dips_after(smaller)), meets_bar) {
            (true, _) => (bar, Verdict::Dip),
            (false, true) => (bar, Verdict::Met),
            (false, false) => (bar, Verdict::Missed),
        })
    }

    /// Returns whether the row has less bandwidth than a row of a smaller size.
    fn dips_after(&self, smaller: &Row) -> bool {
        let more = self.size as f64 / smaller.size as f64;
        let step = more * smaller.dat / self.dat;
        let step_of_baseline = more * smaller.baseline / self.baseline;
        step < MIN_STEP * step_of_baseline.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, Verdict};

    fn row(name: &str, size: usize, dat: f64, baseline: f64) -> Row {
        let (name, ratio) = (name.to_owned(), dat / baseline);
        Row { name, size, dat, baseline, ratio, ratio_min: ratio, ratio_max: ratio }
    }

    fn verdict(row: &Row, previous: Option<&Row>) -> Verdict {
        row.judge(previous).expect("the row has a limit").1
    }

    #[test]
    fn a_ratio_meets_its_bar_or_misses_it() {
        let latency = |dat| verdict(&row("64 B ping-pong, polling", 64, dat, 1.0), None);
        assert_eq!([latency(1.05), latency(1.06)], [Verdict::Met, Verdict::Missed]);
        let rate = |dat| verdict(&row("64 B sends, 64 outstanding", 64, dat, 1.0), None);
        assert_eq!([rate(10.0), rate(9.9)], [Verdict::Met, Verdict::Missed]);
        let threads = |dat| verdict(&row("64 B sends, 2 threads", 64, dat, 1.0), None);
        assert_eq!([threads(1.70), threads(1.69)], [Verdict::Met, Verdict::Missed]);
        let watched = |dat| verdict(&row("64 B, watched, 1/ms", 64, dat, 1.0), None);
        assert_eq!([watched(1.30), watched(1.31)], [Verdict::Met, Verdict::Missed]);
        assert!(row("a new row", 64, 1.0, 1.0).judge(None).is_err());
    }

    #[test]
    fn a_larger_size_moves_at_least_as_much() {
        let of = |size, dat, baseline| row("1 KiB, watched, 0/ms", size, dat, baseline);
        let smaller = of(1024, 1.0, 1.0);
        let judge = |larger: &Row| verdict(larger, Some(&smaller));
        assert_eq!(judge(&of(2048, 2.0, 2.0)), Verdict::Met);
        assert_eq!(judge(&of(2048, 2.3, 2.0)), Verdict::Dip);
        assert_eq!(judge(&of(2048, 2.6, 2.6)), Verdict::Met, "the baseline dips as well");
        assert_eq!(judge(&of(64, 9.0, 9.0)), Verdict::Met, "the size is not larger");
    }
}
