//! Calling cargo again, and the two directories that every task needs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The cargo that runs this task, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// Root of the source tree.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of a workspace")
}

/// The target directory in use. This program lies in `<target>/<profile>/`, whatever `CARGO_TARGET_DIR` or a
/// configuration file says.
pub(crate) fn target() -> Result<PathBuf> {
    let program = env::current_exe().context("where is this program?")?;
    let target = program.ancestors().nth(2).context("this program lies outside a target directory")?;
    Ok(target.to_owned())
}
