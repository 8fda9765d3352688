//! `cargo xtask deny`: checks the licences and sources of everything that is linked into the
//! programs and libraries we ship, and looks for known advisories. The rules are in deny.toml.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::workspace;
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Do not check advisories, for a machine that cannot fetch them
    #[arg(long)]
    without_advisories: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let program = tools::DENY.provide()?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--workspace", "--locked"]).args(arguments).current_dir(workspace());
        command.status().context("cargo-deny does not start")
    };
    let rest = deny(&["check", "licenses", "bans", "sources"])?.success();
    if options.without_advisories {
        println!("not checked: advisories (--without-advisories)");
        return Ok(rest);
    }
    // Advisories are checked separately, because it is not a finding if their database cannot be
    // reached.
    ensure!(
        deny(&["fetch", "db"])?.success(),
        "the advisories cannot be fetched; --without-advisories checks the rest"
    );
    Ok(deny(&["check", "--disable-fetch", "advisories"])?.success() && rest)
}
