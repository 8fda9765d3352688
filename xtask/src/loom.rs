//! loom: tests the lock-free parts with every interleaving of their threads up to a number of
//! pre-emptions.

use anyhow::Result;

use crate::cargo::{cargo, target};
use crate::test::{Job, Load, Runs};

/// The crates with lock-free parts. The file `sync.rs` of each crate selects the atomics.
const CRATES: [&str; 4] = ["opendat-waiting", "opendat-adapter", "opendat-core", "opendat-rnic"];
/// The maximum number of pre-emptions in an interleaving. Without a limit, some tests take hours.
const MAX_PREEMPTIONS: &str = "3";
/// The maximum number of pre-emptions in the short run.
const MAX_PREEMPTIONS_SHORT: &str = "2";

/// Returns the job of the loom tests. The job has a build of its own, because `--cfg loom` changes
/// the crates.
pub(crate) fn job(everything: bool, filter: Option<&str>) -> Result<Job> {
    let mut command = cargo();
    command
        .args(["test", "--no-fail-fast", "--color=never", "--lib"])
        .args(CRATES.iter().flat_map(|name| ["-p", name]))
        .args(["--", "--color=never", "--show-output", filter.unwrap_or("loom_")])
        .env("CARGO_TARGET_DIR", target()?.join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        .env(
            "LOOM_MAX_PREEMPTIONS",
            if everything { MAX_PREEMPTIONS } else { MAX_PREEMPTIONS_SHORT },
        );
    Ok(Job { name: "loom".to_owned(), command, runs: Runs::Cargo, load: Load::Computes })
}
