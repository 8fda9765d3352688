//! One of the two processes: reads its plan from the parent, carries it out, and reports the
//! result. What there is to do is the program's own [`Task`].

use std::fmt::Debug;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use dat::{Adapter, Address, Attributes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::arguments::address_from_entry;
use crate::connection::{Connection, Listening};
use crate::cpu;
use crate::json_lines::{self, send};
use crate::plain_sockets::PlainSockets;
use crate::wait_mode::{Role, WaitMode};

/// The time that the client may take to start.
const CLIENT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// What the two processes of a program do.
pub trait Task: Clone + Serialize + DeserializeOwned {
    /// What a process reports to its parent besides the messages that all programs have.
    type Report: Clone + Debug + Serialize + DeserializeOwned + Send + 'static;

    /// Returns the size of the largest message in bytes.
    fn largest(&self) -> usize;

    /// Returns the number of connections per adapter.
    fn connections(&self) -> usize;

    /// Opens the adapters with these names.
    fn open(&self, names: &[String]) -> Result<Vec<Adapter>> {
        Ok(names.iter().map(|name| Adapter::open(name)).collect::<Result<_, _>>()?)
    }

    /// Carries out the task of one process. `report` sends a message to the parent.
    fn run(&self, ends: Ends<'_>, report: impl Fn(Message<Self::Report>)) -> Result<()>;
}

/// What one of the two processes works with.
pub struct Ends<'a> {
    /// The role of the process.
    pub role: Role,
    /// The address of the server.
    pub server: Address,
    /// The adapters, in the order of the plan.
    pub adapters: &'a [Adapter],
    /// The connections of the first adapter, then those of the second.
    pub connections: &'a mut [Connection],
    /// The plain sockets.
    pub sockets: &'a mut PlainSockets,
}

/// The plan of a process, which says what it must do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan<W> {
    /// The role of the process.
    pub role: Role,
    /// The names of the adapters: one, or two that are compared.
    pub adapters: Vec<String>,
    /// The address of the server.
    pub address: String,
    /// The ports at which the server listens. `None` in the server's own plan.
    pub server: Option<Ports>,
    /// The processor to which the process is pinned.
    pub cpu: Option<usize>,
    /// The way in which DAT waits.
    pub wait: WaitMode,
    /// The way in which the plain sockets wait.
    pub raw_wait: WaitMode,
    /// What the two processes do.
    pub task: W,
}

/// The ports at which the server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ports {
    /// The connection qualifiers, one for each connection: first those of the first adapter, then
    /// those of the second.
    pub qualifiers: Vec<u64>,
    /// The TCP port of the plain sockets.
    pub tcp: u16,
    /// The providers, one for each adapter.
    pub providers: Vec<String>,
}

/// A message from a process to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Message<R> {
    /// The server accepts connections.
    Listening(Ports),
    /// The connection is established, and private data were exchanged.
    Connected(ConnectionInfo),
    /// Progress was made. The value is the number of completed rows, with a fraction for the
    /// others.
    Progress(f64),
    /// Part of the task is complete.
    Report(R),
    /// The task is complete, and the connection was disconnected gracefully.
    Done,
    /// The process failed, for this reason.
    Failed(String),
    /// A signal with this number asks the parent to end. No process sends this message.
    #[serde(skip)]
    Interrupted(i32),
}

/// Properties of the connection that belong to the result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// The providers, one for each adapter.
    pub providers: Vec<String>,
    /// The congestion control of the plain TCP connection.
    pub congestion_control: String,
}

impl ConnectionInfo {
    /// Returns the provider of the first adapter.
    pub fn provider(&self) -> &str {
        self.providers.first().map_or("", String::as_str)
    }
}

/// Runs as one of the two processes.
pub fn run<W: Task>() -> ExitCode {
    dat::registry().read_silently();
    match run_plan::<W>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::<W>(Message::Failed(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Sends a message to the parent.
fn report<W: Task>(message: Message<W::Report>) {
    send(&message);
}

fn run_plan<W: Task>() -> Result<()> {
    let plan: Plan<W> = json_lines::receive_plan()?;
    json_lines::exit_with_parent()?;
    // Adapters are opened before pinning, because a provider may ask how many processors the
    // machine has.
    let adapters = plan.task.open(&plan.adapters)?;
    if let Some(cpu) = plan.cpu {
        cpu::pin(cpu).with_context(|| format!("staying on processor {cpu}"))?;
    }
    let (mut connections, mut sockets) = match plan.role {
        Role::Server => serve(&plan, &adapters)?,
        Role::Client => connect(&plan, &adapters)?,
    };
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let congestion_control = sockets.congestion_control();
    report::<W>(Message::Connected(ConnectionInfo { providers, congestion_control }));
    let ends = Ends {
        role: plan.role,
        server: plan.address.parse()?,
        adapters: &adapters,
        connections: &mut connections,
        sockets: &mut sockets,
    };
    plan.task.run(ends, report::<W>)?;
    sockets.barrier()?;
    connections.into_iter().try_for_each(Connection::disconnect)?;
    report::<W>(Message::Done);
    Ok(())
}

/// Listens and accepts connections. Returns the connections of the first adapter, then the
/// connections of the second.
fn serve<W: Task>(plan: &Plan<W>, adapters: &[Adapter]) -> Result<(Vec<Connection>, PlainSockets)> {
    let address: dat::Address = plan.address.parse()?;
    let tcp = TcpListener::bind(address.with_port(0))
        .with_context(|| format!("listening on {address} for plain TCP"))?;
    let listen = |adapter| Listening::new(adapter, plan.task.largest(), plan.wait);
    let listening = for_each_connection(plan, adapters).map(listen).collect::<Result<Vec<_>>>()?;
    let qualifiers = listening.iter().map(Listening::qualifier).collect();
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let ports = Ports { qualifiers, tcp: tcp.local_addr()?.port(), providers };
    report::<W>(Message::Listening(ports));
    // A client that never connects must not block the process for ever. An established connection
    // may stay silent.
    SockRef::from(&tcp).set_read_timeout(Some(CLIENT_START_TIMEOUT))?;
    let (stream, _) = tcp.accept().context("waiting for the client's plain TCP connection")?;
    stream.set_read_timeout(None)?;
    let sockets = PlainSockets::new(stream, plan.raw_wait, plan.task.largest())?;
    Ok((listening.into_iter().map(Listening::accept).collect::<Result<_>>()?, sockets))
}

/// Returns each adapter as many times as it has connections.
fn for_each_connection<'a>(
    plan: &Plan<impl Task>,
    adapters: &'a [Adapter],
) -> impl Iterator<Item = &'a Adapter> {
    let count = plan.task.connections();
    adapters.iter().flat_map(move |adapter| std::iter::repeat_n(adapter, count))
}

fn connect(
    plan: &Plan<impl Task>,
    adapters: &[Adapter],
) -> Result<(Vec<Connection>, PlainSockets)> {
    let address: dat::Address = plan.address.parse()?;
    let ports = plan.server.as_ref().context("the plan does not say where the server is")?;
    let stream = TcpStream::connect(address.with_port(ports.tcp)).with_context(|| {
        // In a new network namespace nothing is reachable, not even this host.
        let hint = match address.ip().is_loopback() {
            true => " (is the loopback interface up? `ip link set lo up`)",
            false => "",
        };
        format!("connecting to {address} with plain TCP{hint}")
    })?;
    let sockets = PlainSockets::new(stream, plan.raw_wait, plan.task.largest())?;
    let connect = |(adapter, qualifier): (&Adapter, &u64)| {
        let connection =
            Connection::connect(adapter, address, *qualifier, plan.task.largest(), plan.wait);
        let Attributes { adapter: name, provider, .. } = adapter.attributes();
        let there =
            adapters.iter().zip(&ports.providers).find(|(here, _)| std::ptr::eq(*here, adapter));
        connection.with_context(|| {
            if let Some((_, there)) = there.filter(|(_, there)| *there != provider) {
                return format!(
                    "the server at {address} uses provider {there}, but adapter {name} uses \
                     provider {provider}: run `dat serve --adapter {name}` there"
                );
            }
            // The hint applies only to an adapter that serves a single address of this host.
            let own = address_from_entry(name).ok().flatten().filter(|own| *own != address);
            match own.filter(|_| TcpListener::bind(address.with_port(0)).is_ok()) {
                Some(own) => format!("adapter {name} serves only {own}: use --address {own}"),
                None => format!("connecting to {address} over {name}"),
            }
        })
    };
    let connections = for_each_connection(plan, adapters)
        .zip(&ports.qualifiers)
        .map(connect)
        .collect::<Result<_>>()?;
    Ok((connections, sockets))
}
