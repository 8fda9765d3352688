//! One of the two processes: takes its plan from the parent, does it, and tells the parent what came out.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;

use anyhow::{Context, Result};
use dat::Adapter;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::link::{Link, Listening};
use crate::measure::{Role, Wait};
use crate::parent::{self, say};
use crate::raw::Raw;
use crate::{bench, cpu, demo, ping};

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    /// The adapter's name.
    pub(crate) adapter: String,
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
    Bench(bench::Work),
    Ping(ping::Work),
}

/// Where the server listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) qualifier: u64,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
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
    /// A round of the benchmark is through.
    Round(bench::Round),
    /// The pings are through.
    Pinged(ping::Times),
    /// All is done, and the connection was ended in order.
    Done,
    /// It did not work.
    Failed(String),
}

/// What the result is of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) provider: String,
    pub(crate) congestion_control: String,
}

impl Work {
    /// Bytes of the largest message.
    fn largest(&self) -> usize {
        match self {
            Work::Demo(work) => work.sizes.iter().copied().max().unwrap_or(1),
            Work::Bench(work) => work.what.size(),
            Work::Ping(work) => work.size,
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
    let adapter = Adapter::open(&plan.adapter)?;
    if let Some(cpu) = plan.cpu {
        cpu::pin(cpu).with_context(|| format!("staying on processor {cpu}"))?;
    }
    let (mut link, mut raw) = match plan.role {
        Role::Server => serve(&plan, &adapter)?,
        Role::Client => connect(&plan, &adapter)?,
    };
    let provider = &adapter.attributes().provider;
    let congestion_control = raw.congestion_control();
    say(&Said::Connected(Facts { provider: provider.clone(), congestion_control }));
    match &plan.work {
        Work::Demo(work) => work.run(&mut link, &mut raw, plan.role)?,
        Work::Bench(work) => work.run(&mut link, &mut raw, plan.role)?,
        Work::Ping(work) => work.run(&mut link, &mut raw, plan.role)?,
    }
    raw.barrier()?;
    link.disconnect()?;
    say(&Said::Done);
    Ok(())
}

fn serve(plan: &Plan, adapter: &Adapter) -> Result<(Link, Raw)> {
    let address: dat::Address = plan.address.parse()?;
    let tcp = TcpListener::bind(address.with_port(0))
        .with_context(|| format!("listening on {address} for plain TCP"))?;
    let datagrams = UdpSocket::bind(address.with_port(0))?;
    let listening = Listening::new(adapter, plan.work.largest(), plan.wait)?;
    let (tcp_port, udp) = (tcp.local_addr()?.port(), datagrams.local_addr()?.port());
    let ports = Ports { qualifier: listening.qualifier(), tcp: tcp_port, udp };
    say(&Said::Listening(ports));
    let (stream, client) = tcp.accept().context("waiting for the client's plain TCP connection")?;
    // The client's socket for datagrams has the number of the one for its stream.
    datagrams.connect(client)?;
    let raw = Raw::new(stream, datagrams, plan.raw_wait, plan.work.largest())?;
    Ok((listening.accept()?, raw))
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

fn connect(plan: &Plan, adapter: &Adapter) -> Result<(Link, Raw)> {
    let address: dat::Address = plan.address.parse()?;
    let ports = plan.server.context("the plan does not say where the server is")?;
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
    let link = Link::connect(adapter, address, ports.qualifier, plan.work.largest(), plan.wait);
    let link = match adapter.attributes().address {
        Some(own) if own != address => link.with_context(|| {
            format!("adapter {} gives its address as {own}, so --address {own} may help", plan.adapter)
        })?,
        _ => link?,
    };
    Ok((link, raw))
}
