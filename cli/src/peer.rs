//! One of the two processes: takes its plan from the parent, does it, and tells the parent what came out.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use dat::{Adapter, Attributes};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};

use crate::link::{Link, Listening};
use crate::measure::{Role, Wait};
use crate::parent::{self, say};
use crate::raw::Raw;
use crate::times::Times;
use crate::{bench, cpu, demo, ping, plain};

/// How long the client may take to start.
const ARRIVAL: Duration = Duration::from_secs(60);

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    /// The adapters' names: one, or two that are compared.
    pub(crate) adapters: Vec<String>,
    /// Where the server is.
    pub(crate) address: String,
    /// What the server said; for the client.
    pub(crate) server: Option<Ports>,
    /// The processor to stay on.
    pub(crate) cpu: Option<usize>,
    /// How DAT waits.
    pub(crate) wait: Wait,
    /// How plain TCP waits.
    pub(crate) raw_wait: Wait,
    pub(crate) work: Work,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    Demo(demo::Work),
    Plain(plain::Work),
    Bench(bench::Work),
    Ping(ping::Work),
}

/// Where the server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// Of the adapters in turn, for each of their connections.
    pub(crate) qualifiers: Vec<u64>,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
    /// Of the adapters in turn; an older server does not say.
    #[serde(default)]
    pub(crate) providers: Vec<String>,
}

/// What a process tells its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// The server can be connected to.
    Listening(Ports),
    /// The connection is up, with private data exchanged.
    Connected(Facts),
    /// A row of the demonstration is through: at the server what arrived was right, at the client there are numbers.
    Row(Option<demo::Row>),
    /// A round of a row against plain sockets is through.
    Round(plain::Round),
    /// A row of the benchmark is through.
    Measured(bench::Outcome),
    /// So much is through: rows or pings, with a fraction for what has begun.
    Progress(f64),
    /// A ping was answered, after so many seconds there and back.
    Answered(f64),
    /// All pings are through.
    Pinged(Times),
    /// All is done, and the connection was ended in order.
    Done,
    /// It did not work.
    Failed(String),
}

/// What the result is of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Of the adapters in turn.
    pub(crate) providers: Vec<String>,
    pub(crate) congestion_control: String,
}

impl Facts {
    /// Of the first adapter.
    pub(crate) fn provider(&self) -> &str {
        self.providers.first().map_or("", String::as_str)
    }
}

impl Work {
    /// Bytes of the largest message.
    fn largest(&self) -> usize {
        match self {
            Work::Demo(work) => work.largest(),
            Work::Plain(work) => work.what.size(),
            Work::Bench(work) => work.largest(),
            Work::Ping(work) => work.size,
        }
    }

    /// Connections of each adapter.
    fn connections(&self) -> usize {
        match self {
            Work::Bench(work) => work.connections(),
            Work::Demo(_) | Work::Plain(_) | Work::Ping(_) => 1,
        }
    }
}

/// Runs as one of the two processes.
pub(crate) fn run() -> ExitCode {
    match follow_plan() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&Said::Failed(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn follow_plan() -> Result<()> {
    let plan: Plan = parent::instructions()?;
    parent::end_with()?;
    // Opened first: a provider may ask how many processors there are, and this is about the machine.
    let adapters: Vec<Adapter> =
        plan.adapters.iter().map(|name| Adapter::open(name)).collect::<Result<_, _>>()?;
    if let Some(cpu) = plan.cpu {
        cpu::pin(cpu).with_context(|| format!("staying on processor {cpu}"))?;
    }
    let (mut links, mut raw) = match plan.role {
        Role::Server => serve(&plan, &adapters)?,
        Role::Client => connect(&plan, &adapters)?,
    };
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let congestion_control = raw.congestion_control();
    say(&Said::Connected(Facts { providers, congestion_control }));
    let first = links.first_mut().context("the plan names no adapter")?;
    match &plan.work {
        Work::Demo(work) => work.run(first, &mut raw, plan.role)?,
        Work::Plain(work) => work.run(first, &mut raw, plan.role)?,
        Work::Ping(work) => work.run(first, &mut raw, plan.role)?,
        Work::Bench(work) => work.run(&mut links, &mut raw, plan.role)?,
    }
    raw.barrier()?;
    links.into_iter().try_for_each(Link::disconnect)?;
    say(&Said::Done);
    Ok(())
}

/// The links of the first adapter, then those of the second.
fn serve(plan: &Plan, adapters: &[Adapter]) -> Result<(Vec<Link>, Raw)> {
    let address: dat::Address = plan.address.parse()?;
    let tcp = TcpListener::bind(address.with_port(0))
        .with_context(|| format!("listening on {address} for plain TCP"))?;
    let datagrams = UdpSocket::bind(address.with_port(0))?;
    let listen = |adapter| Listening::new(adapter, plan.work.largest(), plan.wait);
    let listening = of_each(plan, adapters).map(listen).collect::<Result<Vec<_>>>()?;
    let (tcp_port, udp) = (tcp.local_addr()?.port(), datagrams.local_addr()?.port());
    let qualifiers = listening.iter().map(Listening::qualifier).collect();
    let providers = adapters.iter().map(|adapter| adapter.attributes().provider.clone()).collect();
    let ports = Ports { qualifiers, tcp: tcp_port, udp, providers };
    say(&Said::Listening(ports));
    // Who has asked for a server and then does not come is not waited for for ever; the connection itself may be silent.
    SockRef::from(&tcp).set_read_timeout(Some(ARRIVAL))?;
    let (stream, client) = tcp.accept().context("waiting for the client's plain TCP connection")?;
    stream.set_read_timeout(None)?;
    // The client's socket for datagrams has the number of the one for its stream.
    datagrams.connect(client)?;
    let raw = Raw::new(stream, datagrams, plan.raw_wait, plan.work.largest())?;
    Ok((listening.into_iter().map(Listening::accept).collect::<Result<_>>()?, raw))
}

/// Each adapter, as often as it has connections.
fn of_each<'a>(plan: &Plan, adapters: &'a [Adapter]) -> impl Iterator<Item = &'a Adapter> {
    let connections = plan.work.connections();
    adapters.iter().flat_map(move |adapter| std::iter::repeat_n(adapter, connections))
}

/// A connection, and a socket for datagrams that has the number of the connection's here: one that nobody else has, which may take
/// some attempts.
fn sockets(server: SocketAddr) -> std::io::Result<(TcpStream, UdpSocket)> {
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

fn connect(plan: &Plan, adapters: &[Adapter]) -> Result<(Vec<Link>, Raw)> {
    let address: dat::Address = plan.address.parse()?;
    let ports = plan.server.as_ref().context("the plan does not say where the server is")?;
    let (stream, datagrams) = sockets(address.with_port(ports.tcp)).with_context(|| {
        // In a network namespace that was just made nothing is reachable, this host included.
        let hint = match address.ip().is_loopback() {
            true => " (is the loopback interface up? `ip link set lo up`)",
            false => "",
        };
        format!("connecting to {address} with plain TCP{hint}")
    })?;
    datagrams.connect(address.with_port(ports.udp))?;
    let raw = Raw::new(stream, datagrams, plan.raw_wait, plan.work.largest())?;
    let connect = |(adapter, qualifier): (&Adapter, &u64)| {
        let link = Link::connect(adapter, address, *qualifier, plan.work.largest(), plan.wait);
        let Attributes { adapter: name, provider, address: own, .. } = adapter.attributes();
        let there =
            adapters.iter().zip(&ports.providers).find(|(here, _)| std::ptr::eq(*here, adapter));
        link.with_context(|| match (there, own) {
            (Some((_, there)), _) if there != provider => {
                format!("{address} serves an adapter of {there}, and {name} is of {provider}: `dat serve --adapter {name}` there")
            }
            // Of no use for an address of another host.
            (_, Some(own)) if *own != address && TcpListener::bind(address.with_port(0)).is_ok() => {
                format!("adapter {name} gives its address as {own}, so --address {own} may help")
            }
            _ => format!("connecting to {address} over {name}"),
        })
    };
    let links =
        of_each(plan, adapters).zip(&ports.qualifiers).map(connect).collect::<Result<_>>()?;
    Ok((links, raw))
}
