//! One of the two processes: reads its plan from the parent, carries it out, and reports the
//! result.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dat::{Adapter, Attributes};
use registry::Wanted;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};

use crate::arguments::address_from_entry;
use crate::connection::{Connection, Listening};
use crate::cpu;
use crate::parent::{self, send};
use crate::plain_sockets::PlainSockets;
use crate::wait::{Role, Wait};
use crate::work::{Work, bench, demo, plain};

/// The time that the client may take to start.
const CLIENT_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The plan of a process, which says what it must do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    /// The names of the adapters: one, or two that are compared.
    pub(crate) adapters: Vec<String>,
    /// The address of the server.
    pub(crate) address: String,
    /// The ports at which the server listens. `None` in the server's own plan.
    pub(crate) server: Option<Ports>,
    /// The processor to which the process is pinned.
    pub(crate) cpu: Option<usize>,
    /// The way in which DAT waits.
    pub(crate) wait: Wait,
    /// The way in which the plain sockets wait.
    pub(crate) raw_wait: Wait,
    pub(crate) work: Work,
}

/// The ports at which the server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// The connection qualifiers, one for each connection: first those of the first adapter, then
    /// those of the second.
    pub(crate) qualifiers: Vec<u64>,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    /// The providers, one for each adapter. An older server does not send this field.
    #[serde(default)]
    pub(crate) providers: Vec<String>,
}

/// A message from a process to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The server accepts connections.
    Listening(Ports),
    /// The connection is established, and private data were exchanged.
    Connected(ConnectionInfo),
    /// A row of the demonstration is complete. The server has verified the data. The client sends
    /// the figures.
    Row(Option<Box<demo::Row>>),
    /// A round of a row of `dat bench --plain` is complete.
    Round(plain::Round),
    /// A round of a row of the benchmark is complete. The value is the result of all its rounds.
    Measured(bench::Outcome),
    /// Progress was made. The value is the number of completed rows, with a fraction for the
    /// others.
    Progress(f64),
    /// Pings were answered. The values are the times of their round trips in seconds.
    Answered(Vec<f64>),
    /// All work is complete, and the connection was disconnected gracefully.
    Done,
    /// The process failed, for this reason.
    Failed(String),
    /// A signal with this number asks the parent to end. No process sends this message.
    #[serde(skip)]
    Interrupted(i32),
}

/// Properties of the connection that belong to the result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ConnectionInfo {
    /// The providers, one for each adapter.
    pub(crate) providers: Vec<String>,
    pub(crate) congestion_control: String,
}

impl ConnectionInfo {
    /// Returns the provider of the first adapter.
    pub(crate) fn provider(&self) -> &str {
        self.providers.first().map_or("", String::as_str)
    }
}

/// Runs as one of the two processes.
pub(crate) fn run() -> ExitCode {
    match run_plan() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            send(&Message::Failed(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run_plan() -> Result<()> {
    let plan: Plan = parent::receive_plan()?;
    parent::exit_with_parent()?;
    // Adapters are opened before pinning, because a provider may ask how many processors the
    // machine has.
    let mut adapters: Vec<Adapter> =
        plan.adapters.iter().map(|name| Adapter::open(name)).collect::<Result<_, _>>()?;
    if let Some(params) = plan.work.baseline_params() {
        adapters.push(open_with(&plan.adapters[0], params)?);
    }
    if let Some(cpu) = plan.cpu {
        cpu::pin(cpu).with_context(|| format!("staying on processor {cpu}"))?;
    }
    let (mut connections, mut sockets) = match plan.role {
        Role::Server => serve(&plan, &adapters)?,
        Role::Client => connect(&plan, &adapters)?,
    };
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let congestion_control = sockets.congestion_control();
    send(&Message::Connected(ConnectionInfo { providers, congestion_control }));
    let first = connections.first_mut().context("the plan names no connection");
    let progress = |done| send(&Message::Progress(done));
    match &plan.work {
        Work::Demo(work) => {
            work.run(first?, &mut sockets, plan.role, progress, |row| {
                send(&Message::Row(row.map(Box::new)))
            })?;
        }
        Work::Plain(work) => {
            let (adapter, server) = (&adapters[0], plan.address.parse()?);
            let connections = &mut connections;
            let rounds =
                work.run(adapter, server, connections, &mut sockets, plan.role, progress)?;
            rounds.into_iter().for_each(|round| send(&Message::Round(round)));
        }
        Work::Ping(work) => {
            let answered = |times| send(&Message::Answered(times));
            work.run(first?, &mut sockets, plan.role, answered)?;
        }
        Work::Bench(work) => {
            let measured = |outcome| send(&Message::Measured(outcome));
            work.run(&mut connections, &mut sockets, plan.role, progress, measured)?;
        }
    }
    sockets.barrier()?;
    connections.into_iter().try_for_each(Connection::disconnect)?;
    send(&Message::Done);
    Ok(())
}

/// Opens the adapter of this name with further ia_params.
fn open_with(name: &str, params: &str) -> Result<Adapter> {
    let wanted = Wanted { name, major: 2, minor: 0, threadsafe: false };
    let fitting = dat::registry().list().find(&wanted).ok();
    let candidate = fitting.and_then(|fitting| fitting.first().copied());
    let mut candidate =
        candidate.with_context(|| format!("no adapter has the name {name}"))?.clone();
    candidate.entry.ia_params += &format!(" {params}");
    // A name stands for one set of parameters.
    candidate.entry.ia_name += &format!(" {params}");
    Adapter::open_entry(&candidate).map_err(|why| anyhow!("opening {name} with {params}: {why}"))
}

/// Listens and accepts connections. Returns the connections of the first adapter, then the
/// connections of the second.
fn serve(plan: &Plan, adapters: &[Adapter]) -> Result<(Vec<Connection>, PlainSockets)> {
    let address: dat::Address = plan.address.parse()?;
    let tcp = TcpListener::bind(address.with_port(0))
        .with_context(|| format!("listening on {address} for plain TCP"))?;
    let datagrams = UdpSocket::bind(address.with_port(0))?;
    let listen = |adapter| Listening::new(adapter, plan.work.largest(), plan.wait);
    let listening = for_each_connection(plan, adapters).map(listen).collect::<Result<Vec<_>>>()?;
    let (tcp_port, udp) = (tcp.local_addr()?.port(), datagrams.local_addr()?.port());
    let qualifiers = listening.iter().map(Listening::qualifier).collect();
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let ports = Ports { qualifiers, tcp: tcp_port, udp, providers };
    send(&Message::Listening(ports));
    // A client that never connects must not block the process for ever. An established connection
    // may stay silent.
    SockRef::from(&tcp).set_read_timeout(Some(CLIENT_START_TIMEOUT))?;
    let (stream, client) = tcp.accept().context("waiting for the client's plain TCP connection")?;
    stream.set_read_timeout(None)?;
    // The client's UDP socket has the same port as its TCP socket.
    datagrams.connect(client)?;
    let connect_sockets = PlainSockets::new(stream, datagrams, plan.raw_wait, plan.work.largest())?;
    Ok((listening.into_iter().map(Listening::accept).collect::<Result<_>>()?, connect_sockets))
}

/// Returns each adapter as many times as it has connections.
fn for_each_connection<'a>(
    plan: &Plan,
    adapters: &'a [Adapter],
) -> impl Iterator<Item = &'a Adapter> {
    let count = plan.work.connections();
    adapters.iter().flat_map(move |adapter| std::iter::repeat_n(adapter, count))
}

/// Returns a TCP connection, and a UDP socket with the same local port. Finding a port that is free
/// for both may take several attempts.
fn connect_sockets(server: SocketAddr) -> std::io::Result<(TcpStream, UdpSocket)> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let attempt = || -> std::io::Result<(TcpStream, UdpSocket)> {
        let datagrams = UdpSocket::bind((any, 0))?;
        let stream = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        stream.bind(&datagrams.local_addr()?.into())?;
        stream.connect(&server.into())?;
        Ok((stream.into(), datagrams))
    };
    let mut attempts = 16;
    loop {
        attempts -= 1;
        match attempt() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && attempts > 0 => {}
            done => return done,
        }
    }
}

fn connect(plan: &Plan, adapters: &[Adapter]) -> Result<(Vec<Connection>, PlainSockets)> {
    let address: dat::Address = plan.address.parse()?;
    let ports = plan.server.as_ref().context("the plan does not say where the server is")?;
    let (stream, datagrams) = connect_sockets(address.with_port(ports.tcp)).with_context(|| {
        // In a new network namespace nothing is reachable, not even this host.
        let hint = match address.ip().is_loopback() {
            true => " (is the loopback interface up? `ip link set lo up`)",
            false => "",
        };
        format!("connecting to {address} with plain TCP{hint}")
    })?;
    datagrams.connect(address.with_port(ports.udp))?;
    let connect_sockets = PlainSockets::new(stream, datagrams, plan.raw_wait, plan.work.largest())?;
    let connect = |(adapter, qualifier): (&Adapter, &u64)| {
        let connection =
            Connection::connect(adapter, address, *qualifier, plan.work.largest(), plan.wait);
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
    Ok((connections, connect_sockets))
}
