//! Measures what attacks at full speed cost transfers (`tests/tests/attacks/`). `cargo xtask test`
//! runs the same attacks for two seconds each and does not judge their speed.

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::dist::{self, Profile};
use crate::prerequisites;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds that each attack lasts, and also the packets to a closed port
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Attacks or providers to measure, by a part of their names; all if none is given
    names: Vec<String>,
}

/// The environment variable that makes the test program measure each attack for this many seconds
/// and run no tests.
const SECONDS_VARIABLE: &str = "OPENDAT_ATTACK_SECONDS";

pub(crate) fn measure(options: &Options) -> Result<bool> {
    prerequisites::provide(false);
    let dist = dist::build(Profile::Release)?;
    let mut command = cargo();
    command.args(["test", "--release", "-p", "opendat-tests", "--test", "attacks", "--"]);
    command.args(&options.names);
    command.env("OPENDAT_DIST", dist).env(SECONDS_VARIABLE, options.seconds.to_string());
    Ok(command.status().context("cargo does not start")?.success())
}
