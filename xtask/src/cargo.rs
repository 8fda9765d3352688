//! Runs cargo, and finds the source directory and the target directory, which every task needs.

use std::env;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Returns a command for the cargo that started this program. The command runs in the workspace's
/// root directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// Returns the root of the source tree.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of a workspace")
}

/// Returns the target directory in use. `CARGO_TARGET_DIR` or a configuration file may have moved
/// the directory, but this program is always in `<target>/<profile>/`.
pub(crate) fn target() -> Result<PathBuf> {
    let program = env::current_exe().context("where is this program?")?;
    let target =
        program.ancestors().nth(2).context("this program lies outside a target directory")?;
    Ok(target.to_owned())
}

/// The interval between progress reports for a running command, if cargo shows no progress of its
/// own.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a command to its end and returns its standard output. If cargo does not draw its own
/// progress, the elapsed time is printed regularly.
pub(crate) fn run_with_progress(command: &mut Command, what: &str) -> Result<(ExitStatus, String)> {
    let began = Instant::now();
    println!("{what}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{what}: the command cannot be started"))?;
    let mut stdout = child.stdout.take().context("the command has no standard output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        sender.send(stdout.read_to_string(&mut text).map(|_| text)).ok();
    });
    let text = loop {
        match receiver.recv_timeout(PROGRESS_INTERVAL) {
            Ok(text) => {
                break text.with_context(|| format!("{what}: its output cannot be read"))?;
            }
            Err(RecvTimeoutError::Timeout) if io::stderr().is_terminal() => {}
            Err(RecvTimeoutError::Timeout) => println!("{what}: {} s", began.elapsed().as_secs()),
            Err(RecvTimeoutError::Disconnected) => break String::new(),
        }
    };
    let status = child.wait().with_context(|| format!("{what}: no end"))?;
    println!("{what}: done after {} s", began.elapsed().as_secs());
    Ok((status, text))
}
