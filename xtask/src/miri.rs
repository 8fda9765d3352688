//! Miri: the parts with unsafe code that talk to memory alone, with every access checked against Rust's
//! rules. `.github/workflows/miri.yml` runs it weekly, and gives it ten minutes: a test of great volume does
//! less of it under Miri (`cfg(miri)`), or is ignored there.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{target, workspace};
use crate::test::{Job, Load, Runs, Stage};

/// What it is, if it is missing.
const INSTALL: &str =
    "rustup toolchain install nightly --profile minimal --component miri,rust-src";

/// Crates, and which of their tests; none: all. Left out are crates that have no unsafe code of their own,
/// what calls C functions that Miri does not know, and what starts programs or reads the host's settings.
const PARTS: [(&str, &[&str]); 3] = [
    ("rnic", &[]),
    ("adapter", &["doorbells::", "engine_lock::", "table::"]),
    (
        "dat-core",
        &[
            "addr::",
            "counters::",
            "ep::flow::",
            "ep::requests::",
            "ep::watermark::",
            "handle::",
            "nesting::tests::a_call",
            "provider::",
            "srq::",
            "wake::",
        ],
    ),
];

/// A job for each crate. Fails, with what to do, if there is no Miri.
pub(crate) fn stage() -> Result<Stage> {
    let version = miri().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        version.is_ok_and(|status| status.success()),
        "there is no Miri, which comes with the nightly compiler: {INSTALL}"
    );
    let target = target()?.join("miri");
    let job = |(name, filters): (&str, &[&str])| {
        let mut command = miri();
        command
            .args(["test", "--no-fail-fast", "--color=never", "--lib", "-p", name])
            .args(["--", "--color=never", "--show-output"])
            .args(filters)
            .env("CARGO_TARGET_DIR", &target)
            // Property tests keep files. Addresses come as numbers over the C interface, so provenance is
            // exposed.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")
            .env("PROPTEST_CASES", "2");
        Job { name: format!("Miri of {name}"), command, runs: Runs::Cargo, load: Load::Computes }
    };
    Ok(Stage::of("Miri", PARTS.map(job).into()))
}

fn miri() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "miri"]).current_dir(workspace());
    command
}
