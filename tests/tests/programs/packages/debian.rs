//! A clean Debian: a root directory whose programs have a /proc of their own and share this host's
//! network.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::host::finish;

/// A Debian that belongs to one test. Dropping this structure removes the Debian.
pub(crate) struct Debian {
    root: TempDir,
}

/// The whole environment of a program that runs in the Debian installation.
const ENVIRONMENT: &[&str] = &[
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL=C.UTF-8",
    "HOME=/root",
    "DEBIAN_FRONTEND=noninteractive",
];

impl Debian {
    /// Unpacks a copy of the Debian that `tests/packages/build.sh` has built in `base`.
    pub(crate) fn unpack(base: &Path) -> Result<Self, String> {
        let root = TempDir::with_prefix_in("root-", base)
            .map_err(|error| format!("no directory: {error}"))?;
        let debian = Debian { root };
        debian.untar(&base.join("debian.tar"), "/")?;
        Ok(debian)
    }

    /// Returns the path on this host of a path in the Debian installation.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Unpacks an archive into a directory, which is created.
    pub(crate) fn untar(&self, file: &Path, into: &str) -> Result<(), String> {
        let into = self.at(into);
        fs::create_dir_all(&into).map_err(|error| format!("{}: {error}", into.display()))?;
        finish(Command::new("tar").args(["--numeric-owner", "-xpf"]).arg(file).arg("-C").arg(into))
    }

    /// Copies a file into a directory.
    pub(crate) fn put(&self, file: &Path, into: &str) -> Result<(), String> {
        let to = self.at(into).join(file.file_name().unwrap_or_default());
        fs::copy(file, &to)
            .map(drop)
            .map_err(|error| format!("{} to {}: {error}", file.display(), to.display()))
    }

    /// Returns a command that starts the same program in the Debian installation. The program's
    /// output is line-buffered, so that each line is seen at once.
    pub(crate) fn command(&self, program: &Command) -> Command {
        let line_buffered = ["stdbuf", "-oL", "-eL", "--"].map(OsStr::new);
        self.enter(
            line_buffered.into_iter().chain([program.get_program()]).chain(program.get_args()),
        )
    }

    /// Runs a line of sh in the Debian installation. The line must succeed. Returns its output.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        let mut command = self.enter(["sh", "-c", line].map(OsStr::new));
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                Err(format!("{line}\nended with {}\n{text}{stderr}", output.status))
            }
        }
    }

    fn enter<'a>(&self, words: impl IntoIterator<Item = &'a OsStr>) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--kill-child", "--mount-proc", "--root"])
            .arg(self.root.path());
        command.args(["--", "/usr/bin/env", "-i"]).args(ENVIRONMENT).args(words);
        command
    }
}
