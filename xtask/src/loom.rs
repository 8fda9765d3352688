//! loom: the lock-free parts, with every interleaving of their threads that takes few pre-emptions.

use anyhow::Result;

use crate::cargo::{cargo, target};
use crate::test::{Job, Load, Runs};

/// Crates with such parts; their `sync.rs` says which atomics they use.
const CRATES: [&str; 3] = ["adapter", "dat-core", "rnic"];
/// Pre-emptions in one interleaving. Without a limit some of the tests take hours.
const PREEMPTIONS: &str = "3";
/// The same in the short run.
const PREEMPTIONS_SHORT: &str = "2";

/// A compilation of its own: `--cfg loom` changes what the crates are made of.
pub(crate) fn job(everything: bool, filter: Option<&str>) -> Result<Job> {
    let mut command = cargo();
    command
        .args(["test", "--no-fail-fast", "--color=never", "--lib"])
        .args(CRATES.iter().flat_map(|name| ["-p", name]))
        .args(["--", "--color=never", "--show-output", filter.unwrap_or("loom_")])
        .env("CARGO_TARGET_DIR", target()?.join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        .env("LOOM_MAX_PREEMPTIONS", if everything { PREEMPTIONS } else { PREEMPTIONS_SHORT });
    Ok(Job { name: "loom".to_owned(), command, runs: Runs::Cargo, load: Load::Computes })
}
