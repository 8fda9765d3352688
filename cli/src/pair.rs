//! Two processes of this program, a server and a client, that end when their parent does; the server may be another host's
//! (`dat serve`).

use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::measure::{PATIENCE, Role};
use crate::peer::{Plan, Said};
use crate::{cpu, parent};

/// A process that works says something more often than this.
const SILENCE: Duration = Duration::from_secs(60);
/// When one process has failed, the other soon says what it saw.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Octets that a server on another host may say in all.
const LONGEST: u64 = 256 << 20;

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

/// Its socket, or the connection to it, stays open until it is to end.
enum Process {
    Here { child: Child, _socket: UnixStream },
    There(TcpStream),
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what we want.
        match self {
            Process::Here { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Process::There(stream) => {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Where the two processes run.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    /// Variables for the processes of this host.
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// The host where the server is, if it is another one: `dat serve` listens there.
    pub(crate) host: Option<SocketAddr>,
    /// The processors of client and server; one that has none of its own is not pinned.
    pub(crate) processors: [Option<usize>; 2],
}

impl Setting<'_> {
    /// Both on this host, each on a processor of its own where there are two.
    pub(crate) fn here() -> Self {
        Setting {
            environment: &[],
            host: None,
            processors: cpu::two().map_or([None; 2], |two| two.map(Some)),
        }
    }
}

impl Pair {
    /// Starts both on this host. `plan` is completed for each.
    pub(crate) fn start(plan: &Plan) -> Result<Self> {
        Pair::start_with(plan, Setting::here())
    }

    /// Starts both.
    pub(crate) fn start_with(plan: &Plan, setting: Setting<'_>) -> Result<Self> {
        let Setting { environment, host, processors: [client_cpu, server_cpu] } = setting;
        let (outbox, inbox) = channel();
        let plan = Plan { role: Role::Server, cpu: server_cpu, ..plan.clone() };
        let server = match host {
            None => spawn(&plan, environment, &outbox)?,
            Some(host) => call(host, &plan, &outbox)?,
        };
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

/// Has a server started on another host.
fn call(host: SocketAddr, plan: &Plan, outbox: &Sender<(Role, Heard)>) -> Result<Process> {
    let stream = TcpStream::connect_timeout(&host, PATIENCE).with_context(|| {
        format!(
            "calling {host}: does `dat serve` run there, and may this host connect to its port?"
        )
    })?;
    let lines = BufReader::new(stream.try_clone()?.take(LONGEST)).lines();
    writeln!(&stream, "{}", serde_json::to_string(plan)?)
        .with_context(|| format!("calling {host}"))?;
    listen(plan.role, lines, outbox);
    Ok(Process::There(stream))
}

/// Takes down what a process says, until it has said all.
fn listen(
    role: Role,
    lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
    outbox: &Sender<(Role, Heard)>,
) {
    let outbox = outbox.clone();
    std::thread::spawn(move || {
        let said = lines.map_while(Result::ok).map(|line| match serde_json::from_str(&line) {
            // It is printed, and may come from another host.
            Ok(Said::Failed(why)) => Heard::Said(Said::Failed(why.replace(is_for_terminals, "?"))),
            Ok(said) => Heard::Said(said),
            Err(_) => {
                let what = "which `dat` does not say: is that a `dat serve`, of this version?";
                Heard::Said(Said::Failed(format!("said {line:?}, {what}")))
            }
        });
        for heard in said.chain([Heard::Silence]) {
            let last = matches!(heard, Heard::Said(Said::Done));
            // When nobody listens any more, or nothing more is to be said, this ends too.
            if outbox.send((role, heard)).is_err() || last {
                return;
            }
        }
    });
}

fn is_for_terminals(c: char) -> bool {
    c.is_control() && c != '\n'
}

fn spawn(
    plan: &Plan,
    environment: &[(&str, &str)],
    outbox: &Sender<(Role, Heard)>,
) -> Result<Process> {
    let role = plan.role;
    let (child, socket) = command(environment)?;
    let lines = BufReader::new(socket.try_clone()?).lines();
    let instructed = parent::instruct(&socket, plan);
    let process = Process::Here { child, _socket: socket };
    instructed.with_context(|| format!("giving the {} its plan", name(role)))?;
    listen(role, lines, outbox);
    Ok(process)
}

/// Starts a process that waits for its plan.
pub(crate) fn command(environment: &[(&str, &str)]) -> Result<(Child, UnixStream)> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    // What its provider prints is for people, and not the result.
    command.arg("peer").stdout(stderr()).envs(environment.iter().copied());
    let socket = parent::connect(&mut command)?;
    let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    Ok((child, socket)) // our copy of the process's end of the socket goes with the command
}

fn hear(inbox: &Receiver<(Role, Heard)>) -> Result<(Role, Said)> {
    match inbox.recv_timeout(SILENCE) {
        Ok((role, Heard::Said(Said::Failed(error)))) => Err(failure(inbox, role, error)),
        Ok((role, Heard::Said(said))) => Ok((role, said)),
        Ok((role, Heard::Silence)) => Err(failure(inbox, role, "ended before it was done".into())),
        Err(RecvTimeoutError::Timeout) => {
            bail!("no word from the two processes for {} s", SILENCE.as_secs())
        }
        Err(RecvTimeoutError::Disconnected) => {
            bail!("both processes have ended before they were done")
        }
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
