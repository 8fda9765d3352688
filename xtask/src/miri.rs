//! Miri: runs the parts with unsafe code that access only memory, and checks every access against
//! Rust's rules. `.github/workflows/miri.yml` runs it weekly with a limit of ten minutes, so tests
//! with large volumes do less under Miri (`cfg(miri)`), or are ignored.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{target, workspace};
use crate::test::{Job, Load, Runs, Stage};

/// How to install Miri.
const INSTALL: &str =
    "rustup toolchain install nightly --profile minimal --component miri,rust-src";

/// The crates that run under Miri, each with the tests to run; an empty list means all tests. The
/// table leaves out crates without unsafe code, code that calls C functions unknown to Miri, and
/// code that starts programs or reads the host's settings.
const PARTS: [(&str, &[&str]); 4] = [
    ("opendat-rnic", &[]),
    ("opendat-waiting", &["nesting::tests::a_call", "wake::"]),
    ("opendat-adapter", &["doorbells::", "engine_lock::", "slab::"]),
    (
        "opendat-core",
        &[
            "addr::",
            "counters::",
            "ep::flow::",
            "ep::request_cells::",
            "ep::watermark::",
            "handle::",
            "provider::",
            "srq::",
        ],
    ),
];

/// Returns the stage with a job per crate. Fails with instructions if Miri is not installed.
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
            // Isolation is off, because property tests write files. The provenance of pointers is
            // permissive, because the C interface passes addresses as numbers.
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
