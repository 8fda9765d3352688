//! Third-party programs that a task needs. A missing program is built in `target/tools`, in a
//! version that is known to work.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, target};

/// A subcommand of cargo.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    /// The arguments that make the tool print its version.
    version_arguments: &'static [&'static str],
}

pub(crate) const DEB: Tool =
    Tool { name: "cargo-deb", version: "3.8.0", version_arguments: &["--version"] };
pub(crate) const MUTANTS: Tool =
    Tool { name: "cargo-mutants", version: "27.1.0", version_arguments: &["mutants", "--version"] };
pub(crate) const DENY: Tool =
    Tool { name: "cargo-deny", version: "0.20.2", version_arguments: &["--version"] };

impl Tool {
    /// Returns the path of the tool, and installs the tool first if necessary. The build takes
    /// minutes and needs the network.
    pub(crate) fn provide(&self) -> Result<PathBuf> {
        let Tool { name, version, version_arguments } = self;
        let root = target()?.join("tools");
        let program = root.join("bin").join(name);
        let version_output = Command::new(&program).args(*version_arguments).output();
        if version_output.is_ok_and(|version_output| {
            String::from_utf8_lossy(&version_output.stdout).trim() == format!("{name} {version}")
        }) {
            return Ok(program);
        }
        println!("installing {name} {version} in {}", root.display());
        let installed = cargo()
            .args([
                "install",
                "--quiet",
                "--locked",
                "--force",
                "--version",
                version,
                name,
                "--root",
            ])
            .arg(&root)
            // The build directory is not needed any more.
            .env_remove("CARGO_TARGET_DIR")
            .status()
            .context("cargo does not start")?;
        ensure!(
            installed.success(),
            "{name} {version} cannot be installed in {}, see above",
            root.display()
        );
        Ok(program)
    }
}
