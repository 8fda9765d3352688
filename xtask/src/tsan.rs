//! Runs random calls in several threads on thread-safe adapters under the thread sanitizer. Two
//! threads may access the same memory at the same time only if a lock or an atomic orders the
//! accesses. Rust's standard library is instrumented, too.

use std::env::consts::ARCH;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::cargo::{target, workspace};
use crate::test::{Job, Load, Runs, Stage};

const INSTALL: &str = "rustup toolchain install nightly --profile minimal --component rust-src";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of calls over the provider mem; a quarter of this number is made over TCP, and
    /// also over RoCEv2. By default, each transport takes about half a minute
    #[arg(long, default_value_t = 400_000)]
    calls: u64,
}

/// The crates that have the test program `anything`, each with a divisor. A program makes the
/// requested number of calls divided by this divisor, so that all programs take about the same
/// time.
const PROGRAMS: [(&str, u64); 3] =
    [("opendat-core", 1), ("opendat-provider-tcp-emu", 4), ("opendat-provider-softroce", 4)];

/// Returns a job per program. Fails with instructions if there is no nightly compiler.
pub(crate) fn stage(options: &Options) -> Result<Stage> {
    let version = cargo().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        version.is_ok_and(|status| status.success()),
        "there is no nightly compiler: {INSTALL}"
    );
    let target = target()?.join("tsan");
    let job = |(name, divisor): (&str, u64)| {
        let mut command = cargo();
        command
            .args(["test", "--color=never", "-Zbuild-std", "--target"])
            .arg(format!("{ARCH}-unknown-linux-gnu"))
            .args(["-p", name, "--test", "anything", "--", "--color=never", "--show-output"])
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("TSAN_OPTIONS", "halt_on_error=1")
            .env("OPENDAT_TEST", format!("calls={}", options.calls / divisor));
        Job {
            name: format!("thread sanitizer, {name}"),
            command,
            runs: Runs::Cargo,
            load: Load::Computes,
        }
    };
    Ok(Stage::of("thread sanitizer", PROGRAMS.map(job).into()))
}

fn cargo() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).current_dir(workspace());
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}
