//! Running cases in processes of their own: one that hangs or crashes is one failure, and the next case gets a new
//! process.
//!
//! The parent writes the name of a case to the child's standard input, a line each; the child answers each with a
//! line on its standard output; a signal that ends it leaves a line that names the place (`death.rs`). Before the first
//! case it can be asked to open the adapter and no more. A case that needs a second process starts one of its own kind,
//! which is asked to be a peer (`rig/peer.rs`).

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use crate::case::{Case, Stop};
use crate::death;
use crate::door::Door;
use crate::patience;
use crate::report::{Record, Verdict};
use crate::rig::Rig;
use crate::rig::peer::{self, PEER};

/// What marks an answer, because libraries and providers may print too.
const MARK: &str = "conformance: ";

/// In place of the name of a case: whether the adapter opens.
const OPEN: &str = "open";

/// What is asked: a provider behind a door.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Target {
    /// How the functions are reached.
    pub door: Door,
    /// Name of the adapter in that door's registry.
    pub provider: String,
}

impl Target {
    /// For the command line of a worker; [`serve`] reads it.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} through {}", self.provider, self.door)
    }
}

/// A process that runs cases, started when needed and again when it has died.
pub struct Pool {
    command: Box<dyn Fn() -> Command + Send>,
    worker: Option<Worker>,
}

struct Worker {
    child: Child,
    asked: ChildStdin,
    said: Receiver<Said>,
}

/// A line of a worker.
enum Said {
    /// The verdict on a case.
    Answer(String),
    /// Where it is about to die.
    DiesIn(String),
}

impl Said {
    fn read(line: &str) -> Option<Said> {
        match line.split_once(MARK) {
            Some((_, answer)) => Some(Said::Answer(answer.to_owned())),
            None => line.strip_prefix(death::MARK).map(|place| Said::DiesIn(place.to_owned())),
        }
    }
}

impl Pool {
    /// `command` makes a process that calls [`serve`].
    pub fn new(command: impl Fn() -> Command + Send + 'static) -> Pool {
        Pool { command: Box::new(command), worker: None }
    }

    /// Opens the adapter and closes it: without that no case says anything.
    ///
    /// # Errors
    ///
    /// Why it cannot be opened.
    pub fn open(&mut self) -> Result<(), String> {
        match self.ask(OPEN)? {
            Verdict::Passed => Ok(()),
            Verdict::Failed { reason } | Verdict::Unsupported { reason } => Err(reason),
        }
    }

    /// Runs a case.
    pub fn run(&mut self, case: &Case) -> Record {
        let begun = Instant::now();
        let verdict = self.ask(&case.id).unwrap_or_else(|why| Verdict::Failed { reason: why });
        Record { case: case.clone(), verdict, took: begun.elapsed() }
    }

    fn ask(&mut self, what: &str) -> Result<Verdict, String> {
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => Worker::start(&mut (self.command)())
                .map_err(|error| format!("no process: {error}"))?,
        };
        // A process that has died meanwhile is noticed below.
        let _ = writeln!(worker.asked, "{what}");
        match worker.said.recv_timeout(patience::limit()) {
            Ok(Said::DiesIn(place)) => Err(worker.death(&place)),
            Ok(Said::Answer(line)) => {
                self.worker = Some(worker);
                serde_json::from_str(&line)
                    .map_err(|error| format!("unreadable answer {line:?}: {error}"))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("has not returned within {} s", patience::limit().as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(worker.death(death::UNTOLD)),
        }
    }
}

impl Worker {
    fn start(command: &mut Command) -> io::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(asked), Some(answered)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a child without pipes"));
        };
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(answered).split(b'\n').map_while(Result::ok) {
                let Some(said) = Said::read(&String::from_utf8_lossy(&line)) else { continue };
                if sender.send(said).is_err() {
                    break;
                }
            }
        });
        Ok(Worker { child, asked, said })
    }

    /// How the process ended, and where if it is of a fault.
    fn death(&mut self, place: &str) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) if death::DEADLY.contains(&signal) => {
                    format!("{} of signal {signal} in {place}", death::DIED)
                }
                Some(signal) => format!("{} of signal {signal}", death::DIED),
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

/// The other side: runs the cases that standard input names, until its end.
///
/// # Errors
///
/// The argument is not one of [`Target::to_argument`], or the pipes break.
pub fn serve(target: &str) -> io::Result<()> {
    let target: Target = serde_json::from_str(target)?;
    death::say_where();
    let api = target.door.api();
    let cases = crate::all();
    let mut asked = io::stdin().lines();
    while let Some(id) = asked.next() {
        let id = id?;
        if let (PEER, Ok(api)) = (&*id, &api) {
            return peer::serve(api, &target.provider, asked);
        }
        let outcome = match (&api, cases.iter().find(|case| case.id == id)) {
            (Err(why), _) => Err(Stop::Failed(why.clone())),
            (Ok(api), None) if id == OPEN => Rig::open(api, &target.provider).and_then(Rig::close),
            (_, None) => Err(Stop::Failed(format!("there is no case {id}"))),
            (Ok(api), Some(case)) => {
                catch_unwind(AssertUnwindSafe(|| case.run(api, &target.provider)))
                    .unwrap_or_else(|_| Err(Stop::Failed("the case panicked".into())))
            }
        };
        let answer = serde_json::to_string(&Verdict::from(outcome))?;
        let mut out = io::stdout().lock();
        // The line may begin after something that a library printed without ending it.
        writeln!(out, "{MARK}{answer}")?;
        out.flush()?;
    }
    Ok(())
}
