//! Starts two processes of this program, a server and a client. Both end with their parent. The
//! server may run on another host (`dat serve`).

use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;

use crate::peer::{Message, Plan, Task};
use crate::wait_mode::{CONNECT_TIMEOUT, PEER_TIMEOUT, Role};
use crate::{cpu, json_lines};

/// The maximum time between two messages from the processes. It is twice [`PEER_TIMEOUT`]: a
/// process that waits for the other in vain reports first what it waited for.
const MESSAGE_TIMEOUT: Duration = PEER_TIMEOUT.saturating_mul(2);
/// The time that a process has to report its own observations after the other process has failed.
const FAILURE_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of octets that a server on another host may send.
const MAX_SERVER_OUTPUT_BYTES: u64 = 256 << 20;

/// The two processes.
pub struct Pair<W: Task> {
    receiver: Receiver<Incoming<W::Report>>,
    /// The number of processes that have finished.
    done: usize,
    /// The processes, which are killed when this value is dropped.
    _processes: [Process; 2],
}

/// What has arrived, and the process that has sent it.
type Incoming<R> = (Role, Received<R>);

enum Received<R> {
    Message(Message<R>),
    /// The process has closed its socket.
    Closed,
}

/// A process. Its socket or connection stays open until the process must end.
enum Process {
    Here { child: Child, _socket: UnixStream },
    There(TcpStream),
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors are ignored, because the process may have ended already.
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

/// Where and how the two processes run.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// Parameters for OPENDAT_PARAMS of the processes on this host. They take precedence over the
    /// parameters in the environment of this process.
    pub params: &'a str,
    /// The host of the server, if it is another host. `dat serve` listens there.
    pub host: Option<SocketAddr>,
    /// The processors of the client and the server. `None` means that the process is not pinned.
    pub processors: [Option<usize>; 2],
}

impl Placement<'_> {
    /// Returns a placement with both processes on this host, each on its own processor if there are
    /// two.
    pub fn here() -> Self {
        Placement {
            params: "",
            host: None,
            processors: cpu::two_processors().map_or([None; 2], |two| two.map(Some)),
        }
    }
}

impl<W: Task> Pair<W> {
    /// Starts both processes on this host. Role, processor and ports in `plan` are set for each
    /// process.
    pub fn start(plan: &Plan<W>) -> Result<Self> {
        Pair::start_with(plan, Placement::here())
    }

    /// Starts both processes.
    pub fn start_with(plan: &Plan<W>, setting: Placement<'_>) -> Result<Self> {
        let (sender, receiver) = channel();
        Pair::start_and_report(plan, setting, sender, receiver)
    }

    /// Starts both processes. If a signal asks this process to end after this call has returned,
    /// [`next_message`](Self::next_message) returns [`Message::Interrupted`], so that the caller
    /// can print the result so far. An earlier signal, or a second one, ends this process at once,
    /// without running destructors. The two processes ignore these signals and end with this one.
    pub fn start_interruptible(plan: &Plan<W>, setting: Placement<'_>) -> Result<Self> {
        let (sender, receiver) = channel();
        let (interrupt, mut is_first) = (sender.clone(), true);
        let started = Arc::new(AtomicBool::new(false));
        let has_started = started.clone();
        telemetry::threads::watch_for_termination(move |signal| {
            let message = Received::Message(Message::Interrupted(signal));
            let is_repeated = !std::mem::replace(&mut is_first, false);
            if is_repeated
                || !has_started.load(Ordering::Acquire)
                || interrupt.send((Role::Client, message)).is_err()
            {
                std::process::exit(exit_code_of(signal));
            }
        })
        .context("waiting for signals")?;
        let pair = Pair::start_and_report(plan, setting, sender, receiver)?;
        started.store(true, Ordering::Release);
        Ok(pair)
    }

    fn start_and_report(
        plan: &Plan<W>,
        setting: Placement<'_>,
        sender: Sender<Incoming<W::Report>>,
        receiver: Receiver<Incoming<W::Report>>,
    ) -> Result<Self> {
        let Placement { params, host, processors: [client_cpu, server_cpu] } = setting;
        let plan = Plan { role: Role::Server, cpu: server_cpu, ..plan.clone() };
        let server = match host {
            None => spawn(&plan, params, &sender)?,
            Some(host) => connect_to_server(host, &plan, &sender)?,
        };
        let ports = match receive(&receiver)? {
            (_, Message::Listening(ports)) => ports,
            (_, other) => bail!("the server process did not listen, but sent {other:?}"),
        };
        let plan = Plan { role: Role::Client, cpu: client_cpu, server: Some(ports), ..plan };
        let client = spawn(&plan, params, &sender)?;
        Ok(Pair { receiver, done: 0, _processes: [server, client] })
    }

    /// Returns the next message of either process, or `None` when both have finished.
    ///
    /// # Errors
    ///
    /// A process failed, ended early, or sent no message for too long.
    pub fn next_message(&mut self) -> Result<Option<(Role, Message<W::Report>)>> {
        while self.done < 2 {
            match receive(&self.receiver)? {
                (_, Message::Done) => self.done += 1,
                message => return Ok(Some(message)),
            }
        }
        Ok(None)
    }
}

/// Makes `dat serve` on another host start a server.
fn connect_to_server<W: Task>(
    host: SocketAddr,
    plan: &Plan<W>,
    sender: &Sender<Incoming<W::Report>>,
) -> Result<Process> {
    let stream = TcpStream::connect_timeout(&host, CONNECT_TIMEOUT).with_context(|| {
        format!(
            "calling {host}: does `dat serve` run there, and may this host connect to its port?"
        )
    })?;
    let lines = BufReader::new(stream.try_clone()?.take(MAX_SERVER_OUTPUT_BYTES)).lines();
    writeln!(&stream, "{}", serde_json::to_string(plan)?)
        .with_context(|| format!("calling {host}"))?;
    forward_messages(plan.role, lines, sender);
    Ok(Process::There(stream))
}

/// Forwards the messages of a process from a thread of its own, until there are no more.
fn forward_messages<R: DeserializeOwned + Send + 'static>(
    role: Role,
    lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static,
    sender: &Sender<Incoming<R>>,
) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        let message = lines.map_while(Result::ok).map(|line| match serde_json::from_str(&line) {
            // The text of the failure is printed, and may come from another host. So it is made
            // printable.
            Ok(Message::Failed(why)) => {
                Received::Message(Message::Failed(why.replace(is_terminal_control, "?")))
            }
            Ok(message) => Received::Message(message),
            Err(_) => {
                let what = "which is not a message of `dat`: is the server a `dat serve` of this \
                            version?";
                Received::Message(Message::Failed(format!("sent {line:?}, {what}")))
            }
        });
        for received in message.chain([Received::Closed]) {
            let last = matches!(received, Received::Message(Message::Done));
            // The thread ends after the last message, or if there is no receiver any more.
            if sender.send((role, received)).is_err() || last {
                return;
            }
        }
    });
}

fn is_terminal_control(c: char) -> bool {
    c.is_control() && c != '\n'
}

fn spawn<W: Task>(
    plan: &Plan<W>,
    params: &str,
    sender: &Sender<Incoming<W::Report>>,
) -> Result<Process> {
    let role = plan.role;
    let (child, socket) = command(params)?;
    let lines = BufReader::new(socket.try_clone()?).lines();
    let instructed = json_lines::send_plan(&socket, plan);
    let process = Process::Here { child, _socket: socket };
    instructed.with_context(|| format!("giving the {} its plan", process_name(role)))?;
    forward_messages(role, lines, sender);
    Ok(process)
}

/// Starts a process that waits for its plan. `params` is [`Placement::params`].
pub fn command(params: &str) -> Result<(Child, UnixStream)> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    // A provider's output must not mix with the result, so it goes to standard error.
    command.arg("peer").stdout(stderr());
    if let Some((key, _)) = params.split_once('=') {
        let of_this_process = adapter::params::defaults();
        let others =
            of_this_process.split_whitespace().filter(|word| word.split('=').next() != Some(key));
        let all: Vec<_> = others.chain([params]).collect();
        command.env("OPENDAT_PARAMS", all.join(" "));
    }
    let socket = json_lines::connect(&mut command)?;
    let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    Ok((child, socket)) // dropping `command` closes our copy of the child's end of the socket
}

fn receive<R>(receiver: &Receiver<Incoming<R>>) -> Result<(Role, Message<R>)> {
    match receiver.recv_timeout(MESSAGE_TIMEOUT) {
        Ok((role, Received::Message(Message::Failed(error)))) => {
            Err(failure(receiver, role, error))
        }
        Ok((role, Received::Message(message))) => Ok((role, message)),
        Ok((role, Received::Closed)) => {
            Err(failure(receiver, role, "ended before it was done".into()))
        }
        Err(RecvTimeoutError::Timeout) => {
            bail!("the two processes have sent nothing for {} s", MESSAGE_TIMEOUT.as_secs())
        }
        Err(RecvTimeoutError::Disconnected) => {
            bail!("both processes ended before they were done")
        }
    }
}

/// Returns the errors of both processes, because either may be the cause.
fn failure<R>(receiver: &Receiver<Incoming<R>>, role: Role, error: String) -> anyhow::Error {
    let mut text = format!("the {}: {error}", process_name(role));
    while let Ok((role, received)) = receiver.recv_timeout(FAILURE_REPORT_TIMEOUT) {
        if let Received::Message(Message::Failed(error)) = received {
            text += &format!("\n     the {}: {error}", process_name(role));
            break;
        }
    }
    anyhow!(text)
}

/// Returns the exit code that a shell reports for a process that this signal has killed.
pub fn exit_code_of(signal: i32) -> i32 {
    128 + signal
}

fn process_name(role: Role) -> &'static str {
    match role {
        Role::Client => "client process",
        Role::Server => "server process",
    }
}
