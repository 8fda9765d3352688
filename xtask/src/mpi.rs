//! The MPI library for tests: Intel MPI 2018, with mpi4py and its tests, installed by pip in the
//! target directory.

pub(crate) mod speed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::target;

/// The packages that pip installs. Later versions of Intel MPI do not support DAPL.
const PACKAGES: [&str; 2] = ["impi==2018.0.3", MPI4PY];
const MPI4PY: &str = "mpi4py==4.1.2";

/// Returns the directory of the MPI library, and installs the library first if necessary. Returns
/// `None` after printing why the library is not available.
pub(crate) fn provide() -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("not installed: Intel MPI, which is for x86-64");
        return None;
    }
    match install() {
        Ok(root) => Some(root),
        Err(error) => {
            eprintln!("not installed: Intel MPI, with which MPI programs are tested: {error:#}");
            None
        }
    }
}

fn install() -> Result<PathBuf> {
    let root = target()?.join("mpi");
    let whole = root.join("whole");
    let versions = PACKAGES.join(" ");
    if fs::read_to_string(&whole).is_ok_and(|text| text == versions) {
        return Ok(root);
    }
    println!("installing {versions} in {}", root.display());
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&root))?;
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(root.join("bin/python"));
        command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]).args(arguments);
        command
    };
    run(pip(&["install"]).args(PACKAGES))?;
    // mpi4py's tests are in its source archive.
    let sources = root.join("sources");
    run(pip(&["download", "--no-deps", "--no-binary", "mpi4py", MPI4PY, "--dest"]).arg(&sources))?;
    unpack(&sources, &root.join("mpi4py"))?;
    fs::write(&whole, versions).with_context(|| format!("writing {}", whole.display()))?;
    Ok(root)
}

/// Unpacks the only archive in the directory `from`, without the archive's top-level directory.
fn unpack(from: &Path, into: &Path) -> Result<()> {
    let archive = fs::read_dir(from)?.next().context("pip has downloaded nothing")??.path();
    fs::create_dir_all(into)?;
    run(Command::new("tar")
        .args(["--strip-components=1", "-xzf"])
        .arg(&archive)
        .arg("-C")
        .arg(into))
}

fn run(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("{:?} does not start", command.get_program()))?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}
