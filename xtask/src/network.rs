//! `cargo xtask network`: moves messages through a simulated network, and prints what softroce's
//! engine and other protocols reach there (docs/softroce-design.md).

use anyhow::{Context, Result};

use crate::cargo::cargo;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The arguments of `workshop network`: the conditions, such as
    /// rate=200mbit,delay=1ms,queue=128K,flows=8, or --help
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = cargo();
    command.args(["run", "--release", "--quiet", "-p", "workshop", "--", "network"]);
    let status = command.args(&options.arguments).status();
    Ok(status.context("cargo does not start")?.success())
}
