//! A running job: its process, its output, and its current test.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::job::{Job, Load, Runs};
use super::kill;
use super::tally::{Tally, TestEnd};

/// The output of a job's process, and its end.
pub(crate) enum Output {
    Text(Vec<u8>),
    End(io::Result<ExitStatus>),
}

/// A job's process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) load: Load,
    /// The number of the job's tests. The next field is the number of tests that have ended.
    pub(crate) tests: usize,
    pub(crate) done: usize,
    /// The number of failed tests that the screen has shown.
    pub(crate) shown_failures: usize,
    pub(crate) began: Instant,
    /// The current test, if its name was printed. The next field is the time at which the test
    /// began.
    pub(crate) test: Option<String>,
    pub(crate) test_began: Instant,
    id: u32,
    runs: Runs,
    last_output: Instant,
    silence: HangState,
    tally: Tally,
    line: Vec<u8>,
    text: String,
    log: File,
    pub(crate) log_path: PathBuf,
}

/// What was done about a job that prints nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HangState {
    Watched,
    /// The processes that the job's tests had started were killed.
    ChildrenKilled,
    /// All processes of the job were killed.
    AllKilled,
}

/// A test that has ended.
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) failed: bool,
    /// The duration of the test, if the job runs its tests one after the other.
    pub(crate) took: Duration,
}

/// A job that prints nothing for this long is considered hung. Some tests take minutes on slow
/// machines.
const SILENCE_LIMIT: Duration = Duration::from_secs(1200);
/// The time that a job has to end after some of its processes were killed.
const AFTER_KILL_LIMIT: Duration = Duration::from_secs(60);

impl Process {
    /// Starts a job, whose output is written to a file in the directory `logs`. Another thread
    /// passes the output to `tell` until `tell` returns false.
    pub(crate) fn start(
        job: Job,
        logs: &Path,
        tell: impl Fn(Output) -> bool + Send + 'static,
    ) -> Result<Self> {
        let Job { name, command, runs, load } = job;
        let mut command = match load {
            // The job gets a low priority, because other jobs have programs and kernels that must
            // respond in time.
            Load::Computes => at_low_priority(&command),
            Load::Spins | Load::Guest => command,
        };
        fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let log_path = logs
            .join(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
            .with_extension("log");
        let log = File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        // One pipe for both streams keeps their lines in order.
        let (mut reader, writer) = io::pipe().context("no pipe")?;
        command.stdout(writer.try_clone().context("no second end of the pipe")?).stderr(writer);
        command.stdin(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("{name} does not start"))?;
        let id = child.id();
        // `command` holds write ends of the pipe. The reader ends only when all write ends are
        // closed.
        drop(command);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if !tell(Output::Text(buffer[..read].to_owned())) {
                    return;
                }
            }
            tell(Output::End(child.wait()));
        });
        let (tests, tally) = match runs {
            Runs::Program(tests) => (tests, Tally::of_program(&name)),
            Runs::Cargo => (0, Tally::default()),
        };
        let now = Instant::now();
        Ok(Self {
            name,
            load,
            tests,
            done: 0,
            shown_failures: 0,
            began: now,
            test: None,
            test_began: now,
            id,
            runs,
            last_output: now,
            silence: HangState::Watched,
            tally,
            line: Vec::new(),
            text: String::new(),
            log,
            log_path,
        })
    }

    /// Processes the next octets of the job's output. Returns the tests that these octets report as
    /// ended.
    pub(crate) fn take_output(&mut self, octets: &[u8]) -> Vec<Ended> {
        self.last_output = Instant::now();
        self.silence = HangState::Watched;
        // If the log cannot be written, the run continues.
        self.log.write_all(octets).ok();
        self.line.extend_from_slice(octets);
        let mut ended = Vec::new();
        while let Some(end) = self.line.iter().position(|octet| *octet == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line =
                String::from_utf8_lossy(&std::mem::replace(&mut self.line, rest)).into_owned();
            ended.extend(self.take_line(&line));
        }
        // An incomplete line `test NAME ... ` has no outcome yet, so NAME is the current test.
        let begun =
            std::str::from_utf8(&self.line).ok().and_then(|line| line.strip_prefix("test "));
        if let Some((name, "")) = begun.and_then(|line| line.split_once(" ... ")) {
            self.test = Some(name.trim().to_owned());
        }
        ended
    }

    fn take_line(&mut self, line: &str) -> Option<Ended> {
        self.text.push_str(line);
        if line.starts_with("running ") {
            // The time before this line includes the build. It is not part of the first test's
            // duration.
            self.test_began = Instant::now();
        }
        let (name, failed) = match self.tally.line(line)? {
            TestEnd::Ended(name) => (name, false),
            TestEnd::Failed(name) => (name, true),
        };
        let took = self.test_began.elapsed();
        self.test = None;
        self.test_began = Instant::now();
        self.done += 1;
        self.tests = self.tests.max(self.done);
        Some(Ended { name, failed, took })
    }

    /// Returns what the screen shows for the job: the name of the current test, or the job's name.
    pub(crate) fn label(&self) -> String {
        self.test.clone().unwrap_or_else(|| self.name.clone())
    }

    /// Kills processes of a job that hangs. Returns lines that report it.
    pub(crate) fn check_for_hang(&mut self) -> Vec<String> {
        let (limit, next) = match self.silence {
            HangState::Watched => (SILENCE_LIMIT, HangState::ChildrenKilled),
            HangState::ChildrenKilled => (AFTER_KILL_LIMIT, HangState::AllKilled),
            HangState::AllKilled => return Vec::new(),
        };
        if self.last_output.elapsed() < limit {
            return Vec::new();
        }
        (self.last_output, self.silence) = (Instant::now(), next);
        if next == HangState::AllKilled {
            return kill::descendants(self.id, 0);
        }
        let minutes = SILENCE_LIMIT.as_secs() / 60;
        let test = self.test.as_deref().unwrap_or("one of its tests");
        self.tally.hung(&format!("{test} printed nothing for {minutes} minutes"));
        let mut lines =
            vec![format!("{}: {test} printed nothing for {minutes} minutes; killed:", self.name)];
        // Test programs are children of cargo, so the processes that tests have started are one
        // generation further down.
        lines.extend(kill::descendants(self.id, if self.runs == Runs::Cargo { 2 } else { 1 }));
        lines
    }

    /// Returns whether the pipe is still open although all processes of the job were killed. Then a
    /// process that is no longer a descendant holds the pipe open and hides the end of the job.
    pub(crate) fn output_outlives_process(&self) -> bool {
        self.silence == HangState::AllKilled && self.last_output.elapsed() >= AFTER_KILL_LIMIT
    }

    /// Finishes the count of the job's tests. Returns the count, with the output of failed tests.
    pub(crate) fn end(mut self, status: &io::Result<ExitStatus>) -> (Tally, Option<String>) {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        self.take_line(&rest);
        let (success, status) = match status {
            Ok(status) => (status.success(), status.to_string()),
            Err(error) => (false, error.to_string()),
        };
        let log = self.log_path.display();
        if let Runs::Program(tests) = self.runs {
            self.tally.check_count(tests);
        }
        self.tally.finish(success, &format!("{status}, see {log}"));
        let failures = (self.tally.failed() > 0).then(|| failure_output(&self.text));
        (self.tally, failures)
    }
}

/// Returns the same command with the lower priority of nice(1).
fn at_low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice
}

/// The maximum number of lines of failed tests' output.
const MAX_FAILURE_LINES: usize = 300;

/// Returns the output of failed tests, which test programs print last. If the program crashed,
/// returns the last lines of its output.
fn failure_output(text: &str) -> String {
    let text = text.find("\nfailures:\n").map_or(text, |at| &text[at + 1..]);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(MAX_FAILURE_LINES);
    lines[from..].join("\n")
}
