//! A job that runs: its process, what it has said, and which of its tests is under way.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::job::{Job, Load, Runs};
use super::standstill;
use super::tally::{Tally, Told};

/// What is heard of a job.
pub(crate) enum Heard {
    Said(Vec<u8>),
    Ended(io::Result<ExitStatus>),
}

/// A job's process.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) load: Load,
    /// Listed tests, and how many of them are over.
    pub(crate) tests: usize,
    pub(crate) done: usize,
    /// Failed tests that were told of.
    pub(crate) told: usize,
    pub(crate) began: Instant,
    /// The test that is under way, as far as is known, and since when.
    pub(crate) test: Option<String>,
    pub(crate) test_began: Instant,
    id: u32,
    runs: Runs,
    heard: Instant,
    silence: Silence,
    tally: Tally,
    line: Vec<u8>,
    text: String,
    log: File,
    pub(crate) log_path: PathBuf,
}

/// What was done about a job that says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silence {
    Borne,
    /// What its tests have started was ended.
    Helped,
    /// They were, too.
    Ended,
}

/// A test that is over.
pub(crate) struct Over {
    pub(crate) name: String,
    pub(crate) failed: bool,
    /// How long it took, where the tests of the job run one after the other.
    pub(crate) took: Duration,
}

/// So long a job may say nothing before it is taken for one that hangs: some tests take minutes, on slow machines.
const PATIENCE: Duration = Duration::from_secs(1200);
/// So long after something was done about it.
const LAST_WORDS: Duration = Duration::from_secs(60);

impl Process {
    /// Starts a job. What it says is written into a file of `logs`; `tell` is told of it by another thread, until it answers
    /// that nobody listens.
    pub(crate) fn start(
        job: Job,
        logs: &Path,
        tell: impl Fn(Heard) -> bool + Send + 'static,
    ) -> Result<Self> {
        let Job { name, command, runs, load } = job;
        let mut command = match load {
            // Those that wait do so for programs and a kernel that are to answer in time.
            Load::Computes => after_others(&command),
            Load::Spins | Load::Guest => command,
        };
        fs::create_dir_all(logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let log_path = logs
            .join(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
            .with_extension("log");
        let log = File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        // One pipe for both streams, so that what is said stays in its order.
        let (mut reader, writer) = io::pipe().context("no pipe")?;
        command.stdout(writer.try_clone().context("no second end of the pipe")?).stderr(writer);
        command.stdin(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("{name} does not start"))?;
        let id = child.id();
        // The command holds the writing ends; the pipe ends only when the last of them is closed.
        drop(command);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                if !tell(Heard::Said(buffer[..read].to_owned())) {
                    return;
                }
            }
            tell(Heard::Ended(child.wait()));
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
            told: 0,
            began: now,
            test: None,
            test_began: now,
            id,
            runs,
            heard: now,
            silence: Silence::Borne,
            tally,
            line: Vec::new(),
            text: String::new(),
            log,
            log_path,
        })
    }

    /// Takes what it has said; answers which tests are over with that.
    pub(crate) fn said(&mut self, octets: &[u8]) -> Vec<Over> {
        self.heard = Instant::now();
        self.silence = Silence::Borne;
        // A log that cannot be written is no reason to stop.
        self.log.write_all(octets).ok();
        self.line.extend_from_slice(octets);
        let mut over = Vec::new();
        while let Some(end) = self.line.iter().position(|octet| *octet == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = String::from_utf8_lossy(&std::mem::replace(&mut self.line, rest)).into_owned();
            over.extend(self.take(&line));
        }
        // `test NAME ... `, and not yet how it ended.
        let begun = std::str::from_utf8(&self.line).ok().and_then(|line| line.strip_prefix("test "));
        if let Some((name, "")) = begun.and_then(|line| line.split_once(" ... ")) {
            self.test = Some(name.trim().to_owned());
        }
        over
    }

    fn take(&mut self, line: &str) -> Option<Over> {
        self.text.push_str(line);
        if line.starts_with("running ") {
            // What came before was building it.
            self.test_began = Instant::now();
        }
        let (name, failed) = match self.tally.line(line)? {
            Told::Ended(name) => (name, false),
            Told::Failed(name) => (name, true),
        };
        let took = self.test_began.elapsed();
        self.test = None;
        self.test_began = Instant::now();
        self.done += 1;
        self.tests = self.tests.max(self.done);
        Some(Over { name: name.to_owned(), failed, took })
    }

    /// What the screen shows of it: the test that is under way, or else its own name.
    pub(crate) fn shows(&self) -> String {
        self.test.clone().unwrap_or_else(|| self.name.clone())
    }

    /// Ends what hangs; answers what there is to say of that.
    pub(crate) fn watch(&mut self) -> Vec<String> {
        let (limit, next) = match self.silence {
            Silence::Borne => (PATIENCE, Silence::Helped),
            Silence::Helped => (LAST_WORDS, Silence::Ended),
            Silence::Ended => return Vec::new(),
        };
        if self.heard.elapsed() < limit {
            return Vec::new();
        }
        (self.heard, self.silence) = (Instant::now(), next);
        if next == Silence::Ended {
            return standstill::end(self.id, 0);
        }
        let minutes = PATIENCE.as_secs() / 60;
        let test = self.test.as_deref().unwrap_or("one of its tests");
        self.tally.stood_still(&format!("{test} said nothing for {minutes} minutes"));
        let mut lines = vec![format!("{}: {test} said nothing for {minutes} minutes; ended:", self.name)];
        // cargo's children are the programs with tests.
        lines.extend(standstill::end(self.id, if self.runs == Runs::Cargo { 2 } else { 1 }));
        lines
    }

    /// Whether something that has left its family has its pipe, so that its end is not told.
    pub(crate) fn is_lost(&self) -> bool {
        self.silence == Silence::Ended && self.heard.elapsed() >= LAST_WORDS
    }

    /// Ends the count; answers it, and what its failed tests said.
    pub(crate) fn end(mut self, status: &io::Result<ExitStatus>) -> (Tally, Option<String>) {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        self.take(&rest);
        let (success, status) = match status {
            Ok(status) => (status.success(), status.to_string()),
            Err(error) => (false, error.to_string()),
        };
        let log = self.log_path.display();
        self.tally.finish(success, &format!("{status}, see {log}"));
        let said = (self.tally.failed() > 0).then(|| of_failures(&self.text));
        (self.tally, said)
    }
}

/// The same command, to be given the processor when nobody else wants it much.
fn after_others(command: &Command) -> Command {
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

/// So many lines at the end of what a job has said are shown.
const LINES: usize = 300;

/// What failed tests have said, which programs with tests say last; of those that died, the end of what they said.
fn of_failures(text: &str) -> String {
    let text = text.find("\nfailures:\n").map_or(text, |at| &text[at + 1..]);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].join("\n")
}
