//! What attacks at full speed cost transfers (`tests/tests/attacks/`); not part of `test`, which
//! has the same attacks for two seconds each, and judges no speed.

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::dist::{self, Profile};
use crate::prerequisites;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each attack goes on, and so long its packets go to a closed port
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The attacks, or providers, whose names contain one of these; without them, all
    names: Vec<String>,
}

/// Tells the program how long, and that nothing is to be tested.
const SECONDS: &str = "OPENDAT_ATTACK_SECONDS";

pub(crate) fn measure(options: &Options) -> Result<bool> {
    prerequisites::provide(false);
    let dist = dist::build(Profile::Release)?;
    let mut command = cargo();
    command.args(["test", "--release", "-p", "opendat-tests", "--test", "attacks", "--"]);
    command.args(&options.names);
    command.env("OPENDAT_DIST", dist).env(SECONDS, options.seconds.to_string());
    Ok(command.status().context("cargo does not start")?.success())
}
