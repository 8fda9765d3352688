//! Runs cases in separate processes. So a case that hangs or crashes is a single failure, and the
//! next case gets a new process.
//!
//! The parent process writes the names of cases to the standard input of a worker process, one per
//! line. The worker answers each with a line on its standard output. If the worker crashes, its
//! last line names the place of the crash (`crash.rs`). Before the first case, the parent can ask
//! the worker to only open the adapter. A case that needs a second process starts another worker,
//! and makes it a peer by a command (`rig/peer.rs`).

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::binding::Binding;
use crate::calls::{self, Calls};
use crate::case::Case;
use crate::check::NotPassed;
use crate::report::{Record, Verdict};
use crate::rig::Rig;
use crate::rig::peer::{self, PEER_COMMAND};
use crate::time_limits;
use crate::{cases, crash};

/// The prefix of each answer of a worker. It is needed because libraries and providers may also
/// print to standard output.
const ANSWER_PREFIX: &str = "conformance: ";

/// The command that makes a worker only open the adapter. It is sent in place of the name of a
/// case.
const OPEN_COMMAND: &str = "open";

/// The target of the tests: a provider, and the binding through which the suite calls it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Target {
    /// The way in which the suite calls the functions of DAT.
    pub binding: Binding,
    /// The name of the adapter in the registry of the binding.
    pub provider: String,
    /// The time that a case waits for each event that must happen.
    pub event_timeout: Duration,
}

impl Target {
    /// Returns the command-line argument of a worker, which [`serve`] reads.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} through {}", self.provider, self.binding)
    }
}

/// Runs cases in a worker process. The pool starts the process when it needs it, and starts a new
/// process after a crash.
pub struct Pool {
    command: Box<dyn Fn() -> Command + Send>,
    case_timeout: Duration,
    worker: Option<Worker>,
}

struct Worker {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<WorkerLine>,
}

/// A worker's answer to the name of a case.
#[derive(serde::Serialize, serde::Deserialize)]
struct Answer {
    verdict: Verdict,
    calls: Calls,
}

/// A line that a worker prints for its parent.
enum WorkerLine {
    /// An [`Answer`] as JSON.
    Answer(String),
    /// The place of the crash that is about to end the worker process.
    CrashIn(String),
}

impl WorkerLine {
    fn read(line: &str) -> Option<WorkerLine> {
        match line.split_once(ANSWER_PREFIX) {
            Some((_, answer)) => Some(WorkerLine::Answer(answer.to_owned())),
            None => line
                .strip_prefix(crash::LINE_PREFIX)
                .map(|place| WorkerLine::CrashIn(place.to_owned())),
        }
    }
}

impl Pool {
    /// Creates a pool. `command` returns the command that starts a worker process, which calls
    /// [`serve`] with the target.
    pub fn new(target: &Target, command: impl Fn() -> Command + Send + 'static) -> Pool {
        let case_timeout = time_limits::case_timeout(target.event_timeout);
        Pool { command: Box::new(command), case_timeout, worker: None }
    }

    /// Opens and closes the adapter. If the adapter cannot be opened, no case can run.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the adapter cannot be opened.
    pub fn open(&mut self) -> Result<(), String> {
        match self.request(OPEN_COMMAND)?.verdict {
            Verdict::Passed => Ok(()),
            Verdict::Failed { reason } | Verdict::Unsupported { reason } => Err(reason),
        }
    }

    /// Runs a case in the worker process and returns the verdict.
    pub fn run(&mut self, case: &Case) -> Record {
        let begun = Instant::now();
        let answer = self.request(&case.id).unwrap_or_else(|reason| Answer {
            verdict: Verdict::Failed { reason },
            calls: Calls::new(),
        });
        let Answer { verdict, calls } = answer;
        Record { case: case.clone(), verdict, calls, took: begun.elapsed() }
    }

    fn request(&mut self, what: &str) -> Result<Answer, String> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&mut (self.command)())
                .map_err(|error| format!("no process: {error}"))?,
        };
        // If the process has ended, the write fails, and the code below detects that.
        let _ = writeln!(worker.commands, "{what}");
        match worker.lines.recv_timeout(self.case_timeout) {
            Ok(WorkerLine::CrashIn(place)) => Err(worker.describe_end(&place)),
            Ok(WorkerLine::Answer(line)) => {
                self.worker = Some(worker);
                serde_json::from_str(&line)
                    .map_err(|error| format!("unreadable answer {line:?}: {error}"))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("the case has not ended within {} s", self.case_timeout.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(worker.describe_end(crash::UNREPORTED_PLACE))
            }
        }
    }
}

impl Worker {
    fn start(command: &mut Command) -> io::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child without pipes"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let Some(line) = WorkerLine::read(&String::from_utf8_lossy(&line)) else {
                    continue;
                };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { child, commands, lines })
    }

    /// Describes how the process ended. After a crash, also names the place of the crash.
    fn describe_end(&mut self, place: &str) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) if crash::FATAL_SIGNALS.contains(&signal) => {
                    format!("{} of signal {signal} in {place}", crash::DIED)
                }
                Some(signal) => format!("{} of signal {signal}", crash::DIED),
                None => format!("the process ended ({status})"),
            },
            Err(error) => format!("the process is gone ({error})"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs in a worker process: runs the cases whose names arrive on standard input, until standard
/// input ends.
///
/// # Errors
///
/// Fails if the argument is not from [`Target::to_argument`], or if the pipes break.
pub fn serve(target: &str) -> io::Result<()> {
    let target: Target = serde_json::from_str(target)?;
    time_limits::set_event_timeout(target.event_timeout);
    crash::report_crashes();
    let api = target.binding.api();
    let cases = cases::all();
    let mut commands = io::stdin().lines();
    while let Some(id) = commands.next() {
        let id = id?;
        if let (PEER_COMMAND, Ok(api)) = (&*id, &api) {
            return peer::serve(api, &target.provider, commands);
        }
        let outcome = match (&api, cases.iter().find(|case| case.id == id)) {
            (Err(why), _) => Err(NotPassed::Failed(why.clone())),
            (Ok(api), None) if id == OPEN_COMMAND => {
                Rig::open(api, &target.provider).and_then(Rig::close)
            }
            (_, None) => Err(NotPassed::Failed(format!("there is no case {id}"))),
            (Ok(api), Some(case)) => {
                catch_unwind(AssertUnwindSafe(|| case.run(api, &target.provider)))
                    .unwrap_or_else(|_| Err(NotPassed::Failed("the case panicked".into())))
            }
        };
        let answer = Answer { verdict: outcome.into(), calls: calls::take() };
        let answer = serde_json::to_string(&answer)?;
        let mut out = io::stdout().lock();
        // A library may have printed an unfinished line, so the prefix need not be at the beginning
        // of the line.
        writeln!(out, "{ANSWER_PREFIX}{answer}")?;
        out.flush()?;
    }
    Ok(())
}
