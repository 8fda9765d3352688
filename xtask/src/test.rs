//! `cargo xtask test`: every test of the workspace, counted as one run.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::tally::Tally;
use crate::{dist, guest, loom, mpi, package, prerequisites, standstill};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A skipped test is a failure
    #[arg(long)]
    strict: bool,
    /// Leave out the tests with a virtual machine (`cargo xtask guest`)
    #[arg(long)]
    without_guest: bool,
    /// Run the tests whose name contains this
    filter: Option<String>,
}

/// Prints what the tests print and, as the last line, `N passed, N failed, N skipped` over all of them. Answers
/// whether that is good enough.
pub(crate) fn run(options: &Options) -> Result<bool> {
    prerequisites::provide();
    let mut tally = match dist::build() {
        Ok(root) => {
            let mut tally = of_workspace(&root, options.filter.as_deref())?;
            if options.filter.is_none() {
                let packages = package::tests(&root);
                tally.add(
                    packages.unwrap_or_else(|error| Tally::of_failure("packages", &format!("{error:#}"))),
                );
            }
            if options.without_guest {
                println!("left out: the tests with a virtual machine (--without-guest)");
            } else if options.filter.is_none() {
                tally.add(guest::tests(&root, None)?);
            }
            tally
        }
        Err(error) => Tally::of_failure("cargo xtask dist", &format!("{error:#}")),
    };
    if options.filter.is_none() {
        tally.add(count(&mut loom::tests()?)?);
    }
    Ok(verdict(&tally, options.strict))
}

/// Runs the tests of these commands only.
pub(crate) fn run_only(commands: impl IntoIterator<Item = Command>) -> Result<bool> {
    let mut tally = Tally::default();
    for mut command in commands {
        tally.add(count(&mut command)?);
    }
    Ok(verdict(&tally, false))
}

pub(crate) fn verdict(tally: &Tally, strict: bool) -> bool {
    let complaint = if tally.failed() > 0 {
        Some("a test failed")
    } else if strict && tally.skipped() > 0 {
        Some("a test was skipped, which --strict forbids")
    } else if tally.passed() == 0 {
        Some("no test ran")
    } else {
        None
    };
    if let Some(complaint) = complaint {
        println!("\nnot good: {complaint}");
    }
    println!("\n{tally}");
    complaint.is_none()
}

/// Debian's programs mostly wait. Over this provider they do so beside all other tests, in a network of their own.
const BESIDE: &str = "softroce::";

fn of_workspace(dist: &Path, filter: Option<&str>) -> Result<Tally> {
    // What the compiler says comes before what the tests say.
    if !cargo().args(["test", "--workspace", "--no-run"]).status().context("cargo does not start")?.success()
    {
        return Ok(Tally::of_failure("the tests", "they are not compiled, see above"));
    }
    let mut all = cargo();
    all.args(["test", "--workspace"]);
    count_all([tests(all, dist, filter, &format!("!{BESIDE}")), programs(dist, filter, BESIDE)])
}

/// Its share of the tests with Debian's programs, as `tests/tests/programs/main.rs` knows it.
pub(crate) fn programs(dist: &Path, filter: Option<&str>, share: &str) -> Command {
    let mut command = cargo();
    // With the features that the workspace has together: nothing is compiled again.
    command.args(["test", "--workspace", "--test", "programs"]);
    tests(command, dist, filter, share)
}

fn tests(mut command: Command, dist: &Path, filter: Option<&str>, share: &str) -> Command {
    // Once: what cannot be had is said once.
    static MPI: LazyLock<Option<PathBuf>> = LazyLock::new(mpi::provide);
    command.envs(MPI.iter().map(|root| (mpi::VARIABLE, root)));
    command
        .args(["--no-fail-fast", "--color=never", "--", "--color=never", "--show-output"])
        .args(filter)
        .env("OPENDAT_DIST", dist)
        .env("OPENDAT_PROGRAMS", share);
    command
}

/// Runs a `cargo test`, prints what it prints, and counts.
pub(crate) fn count(command: &mut Command) -> Result<Tally> {
    count_into(&mut io::stdout().lock(), command)
}

/// The same of several at a time: what the first prints comes at once, the rest when those before have ended.
pub(crate) fn count_all(commands: impl IntoIterator<Item = Command>) -> Result<Tally> {
    let mut commands = commands.into_iter();
    let first = commands.next();
    let others: Vec<_> = commands
        .map(|mut command| {
            thread::spawn(move || {
                let mut printed = Vec::new();
                count_into(&mut printed, &mut command).map(|tally| (printed, tally))
            })
        })
        .collect();
    let mut tally = first.map_or_else(|| Ok(Tally::default()), |mut first| count(&mut first))?;
    for other in others {
        let (printed, counted) = other.join().expect("no panic")?;
        io::stdout().write_all(&printed)?;
        tally.add(counted);
    }
    Ok(tally)
}

fn count_into(out: &mut impl Write, command: &mut Command) -> Result<Tally> {
    // One pipe for both streams: cargo names the binary on stderr, the binary reports on stdout.
    let (reader, writer) = io::pipe().context("no pipe")?;
    command.stdout(writer.try_clone().context("no second end of the pipe")?).stderr(writer);
    let mut child = command.spawn().context("cargo does not start")?;
    // The command holds the writing ends; the pipe ends only when the last of them is closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(reader).split(b'\n').try_for_each(|line| sender.send(line).map_err(drop)).ok()
    });
    let mut tally = Tally::default();
    let mut silent = false;
    loop {
        match lines.recv_timeout(if silent { LAST_WORDS } else { PATIENCE }) {
            Ok(line) => {
                let line = line.context("the output of cargo test cannot be read")?;
                let line = String::from_utf8_lossy(&line);
                writeln!(out, "{line}")?;
                tally.line(&line);
                silent = false;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A test waits for a process that hangs. Without what it has started it fails, and the others go on.
            Err(RecvTimeoutError::Timeout) if !silent => {
                let minutes = PATIENCE.as_secs() / 60;
                tally.stood_still(&format!("nothing was said for {minutes} minutes"));
                writeln!(out, "nothing was said for {minutes} minutes; ended:")?;
                for process in standstill::end_what_tests_started(child.id()) {
                    writeln!(out, "{process}")?;
                }
                silent = true;
            }
            // The test itself hangs, or something that has left the family has the pipe.
            Err(RecvTimeoutError::Timeout) => {
                for process in standstill::end_all(child.id()) {
                    writeln!(out, "{process}")?;
                }
                child.kill().ok();
                break;
            }
        }
    }
    let status = child.wait().context("cargo test cannot be waited for")?;
    tally.finish(status.success(), &status.to_string());
    Ok(tally)
}

/// So long a run may say nothing before it is taken for one that hangs: some tests take minutes, on slow machines.
const PATIENCE: Duration = Duration::from_secs(1200);
/// So long after it was helped.
const LAST_WORDS: Duration = Duration::from_secs(60);
