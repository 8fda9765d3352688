//! Two processes of this program, a server and a client, that end when their parent does.

use std::io::{BufRead, BufReader, stderr};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::measure::Role;
use crate::peer::{Plan, Said};
use crate::{cpu, parent};

/// A process that works says something more often than this.
const SILENCE: Duration = Duration::from_secs(60);
/// When one process has failed, the other soon says what it saw.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The two processes.
pub(crate) struct Pair {
    inbox: Receiver<(Role, Heard)>,
    /// How many have said that they are done.
    done: usize,
    /// Both are killed when this goes.
    _processes: [Process; 2],
}

enum Heard {
    Said(Said),
    /// It closed its socket.
    Silence,
}

/// With our end of its socket, which stays open until it is to end.
struct Process(Child, UnixStream);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pair {
    /// Starts both, each on a processor of its own where there are two. `plan` is completed for each.
    pub(crate) fn start(plan: &Plan, environment: &[(&str, &str)]) -> Result<Self> {
        let [client_cpu, server_cpu] = cpu::two().map_or([None; 2], |cpus| cpus.map(Some));
        let (outbox, inbox) = channel();
        let plan = Plan { role: Role::Server, cpu: server_cpu, ..plan.clone() };
        let server = spawn(&plan, environment, &outbox)?;
        let ports = match hear(&inbox)? {
            (_, Said::Listening(ports)) => ports,
            (_, other) => bail!("the server process did not listen, but said {other:?}"),
        };
        let plan = Plan { role: Role::Client, cpu: client_cpu, server: Some(ports), ..plan };
        let client = spawn(&plan, environment, &outbox)?;
        Ok(Pair { inbox, done: 0, _processes: [server, client] })
    }

    /// The next thing that either says; nothing when both are done.
    ///
    /// # Errors
    ///
    /// A process failed, ended early, or has been silent for too long.
    pub(crate) fn next(&mut self) -> Result<Option<(Role, Said)>> {
        while self.done < 2 {
            match hear(&self.inbox)? {
                (_, Said::Done) => self.done += 1,
                said => return Ok(Some(said)),
            }
        }
        Ok(None)
    }
}

fn spawn(plan: &Plan, environment: &[(&str, &str)], outbox: &Sender<(Role, Heard)>) -> Result<Process> {
    let role = plan.role;
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    // What its provider prints is for people, and not the result.
    command.arg("peer").stdout(stderr()).envs(environment.iter().copied());
    if std::env::var_os("DAT_DBG_TYPE").is_none() {
        command.env("DAT_DBG_TYPE", "0"); // what the registry has to say is in the errors that we print
    }
    let socket = parent::connect(&mut command)?;
    let lines = BufReader::new(socket.try_clone()?).lines();
    let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let process = Process(child, socket);
    drop(command); // and with it our copy of the process's end of the socket
    parent::instruct(&process.1, plan).with_context(|| format!("giving the {} its plan", name(role)))?;
    let outbox = outbox.clone();
    std::thread::spawn(move || {
        let said = lines.map_while(Result::ok).map(|line| match serde_json::from_str(&line) {
            Ok(said) => Heard::Said(said),
            Err(_) => Heard::Said(Said::Failed(format!("said {line:?}, which is not known here"))),
        });
        for heard in said.chain([Heard::Silence]) {
            let last = matches!(heard, Heard::Said(Said::Done));
            // When nobody listens any more, or nothing more is to be said, this ends too.
            if outbox.send((role, heard)).is_err() || last {
                return;
            }
        }
    });
    Ok(process)
}

fn hear(inbox: &Receiver<(Role, Heard)>) -> Result<(Role, Said)> {
    match inbox.recv_timeout(SILENCE) {
        Ok((role, Heard::Said(Said::Failed(error)))) => Err(failure(inbox, role, error)),
        Ok((role, Heard::Said(said))) => Ok((role, said)),
        Ok((role, Heard::Silence)) => Err(failure(inbox, role, "ended before it was done".into())),
        Err(RecvTimeoutError::Timeout) => bail!("no word from the two processes for {} s", SILENCE.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("both processes have ended before they were done"),
    }
}

/// What one process said, and what the other made of it: which is the cause, the reader sees best.
fn failure(inbox: &Receiver<(Role, Heard)>, role: Role, error: String) -> anyhow::Error {
    let mut text = format!("the {}: {error}", name(role));
    while let Ok((role, heard)) = inbox.recv_timeout(LAST_WORDS) {
        if let Heard::Said(Said::Failed(error)) = heard {
            text += &format!("\n     the {}: {error}", name(role));
            break;
        }
    }
    anyhow!(text)
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Client => "client process",
        Role::Server => "server process",
    }
}
