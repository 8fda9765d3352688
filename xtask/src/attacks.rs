//! Measures what attacks at full speed cost transfers (`tests/tests/attacks/`). `cargo xtask test`
//! runs the same attacks for two seconds each and does not judge their speed.

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::dist::{self, Profile};
use crate::prerequisites;
use crate::test::Environment;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Duration in seconds of each attack, and of the stream of packets to a closed port
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Measure only attacks and providers whose names contain one of these words
    names: Vec<String>,
}

pub(crate) fn measure(options: &Options) -> Result<bool> {
    prerequisites::provide(false);
    let dist = dist::build(Profile::Release)?;
    let mut command = cargo();
    command.args(["test", "--release", "-p", "opendat-tests", "--test", "attacks", "--"]);
    command.args(&options.names);
    // With `attack-seconds`, the test program measures each attack for this time and runs no tests.
    Environment { dist, settings: Vec::new() }
        .with("attack-seconds", options.seconds.to_string())
        .apply(&mut command);
    Ok(command.status().context("cargo does not start")?.success())
}
