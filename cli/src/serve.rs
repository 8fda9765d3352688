//! `dat serve`: the peer of `dat ping` and `dat bench` on other hosts. Each client gets a process
//! of its own, which ends with the client's connection.

mod permits;
mod waiting_clients;

use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use measurement::arguments::report_registry_errors;
use measurement::peer::{Message, Plan};
use measurement::wait_mode::Role;
use measurement::{json_lines, pair};
use serde::Serialize;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use self::permits::{Permit, Permits};
use self::waiting_clients::WaitingClients;
use crate::arguments::SERVE_PORT;
use crate::output::print_json_line;
use crate::tasks::{Report, Task};

/// The number of clients that the kernel queues until they are accepted.
const KERNEL_BACKLOG: i32 = 4096;
/// After this long without data, keepalive probes check whether the client's host still exists.
const KEEPALIVE_TIME: Duration = Duration::from_secs(20);

#[derive(Args)]
pub(crate) struct Options {
    /// The adapter, by its name in the registry; give the option twice for `dat bench --vs`, which
    /// uses two
    #[arg(long = "adapter", value_name = "NAME", default_value = "tcp-emu")]
    adapters: Vec<String>,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listen on this TCP port
    #[arg(long, value_name = "PORT", default_value_t = SERVE_PORT)]
    port: u16,
    /// Print a JSON document that says where the server listens
    #[arg(long)]
    json: bool,
}

/// The JSON output, which says where the server listens.
#[derive(Serialize)]
struct Document<'a> {
    adapters: &'a [String],
    address: IpAddr,
    port: u16,
}

/// Runs the server until this process is killed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    report_registry_errors();
    for adapter in &options.adapters {
        drop(dat::Adapter::open(adapter)?);
    }
    let listen = |address: IpAddr| {
        let at = SocketAddr::new(address, options.port);
        bind_and_listen(at)
            .with_context(|| format!("listening on {at} (use --port for another port)"))
    };
    let listener = match options.bind {
        Some(address) => listen(address)?,
        // On a host without IPv6, the server listens on all IPv4 addresses instead.
        None => listen(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| listen(Ipv4Addr::UNSPECIFIED.into()))?,
    };
    let here = listener.local_addr()?;
    if options.json {
        let document =
            Document { adapters: &options.adapters, address: here.ip(), port: here.port() };
        print_json_line(&document)?;
    } else {
        let names = options.adapters.join(" and ");
        let verb = if options.adapters.len() == 1 { "serves" } else { "serve" };
        writeln!(stdout(), "{names} {verb} at {here}")?;
    }
    let mut waiting = WaitingClients::new(listener)?;
    let permits = Arc::new(Permits::default());
    loop {
        let (client, received) = waiting.next()?;
        let (client, adapters) = (Arc::new(client), options.adapters.clone());
        let permits = Arc::clone(&permits);
        // If no thread can be started, the client is disconnected.
        let _ =
            thread::Builder::new().spawn(move || answer(&client, &received, adapters, &permits));
    }
}

fn bind_and_listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM.cloexec(), None)?;
    // With this option, the server can use a port that has connections in TIME_WAIT. A second
    // listener on the same port is still an error.
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(KERNEL_BACKLOG)?;
    Ok(socket.into())
}

/// Answers a client until its task is done.
fn answer(client: &Arc<TcpStream>, received: &[u8], adapters: Vec<String>, permits: &Permits) {
    let result = plan(client, received)
        .and_then(|requested| server_plan(client, requested, adapters))
        .and_then(|plan| serve(client, &plan, &permits.enter(client)?));
    if let Err(error) = result {
        let failure = serde_json::to_string(&Message::<Report>::Failed(format!("{error:#}")))
            .unwrap_or_default();
        // An error is ignored, because the client may have disconnected already.
        let _ = writeln!(&**client, "{failure}");
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// Parses a client's plan, which is the first line of what it has sent.
fn plan(client: &TcpStream, received: &[u8]) -> Result<Plan<Task>> {
    // Without keepalive, a client whose host has crashed would stay connected for ever.
    let probes =
        TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_TIME).with_retries(3);
    SockRef::from(client).set_tcp_keepalive(&probes)?;
    let line = received.split(|&octet| octet == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line)
        .context("this is the port of `dat serve`, for dat ping and dat bench")
}

/// Checks what a client requests, and returns the plan of the process that serves it.
fn server_plan(
    client: &TcpStream,
    requested: Plan<Task>,
    mut adapters: Vec<String>,
) -> Result<Plan<Task>> {
    let is_valid = match &requested.task {
        Task::Ping(task) => task.is_valid(),
        Task::Bench(task) => task.is_valid(requested.adapters.len()),
        Task::Demo(_) => false,
    };
    ensure!(is_valid, "only `dat ping` and `dat bench` are served here");
    let (asks, has) = (requested.adapters.len(), adapters.len());
    ensure!(
        asks <= has,
        "{asks} adapters requested, {has} served: run `dat serve` with --adapter once more"
    );
    adapters.truncate(asks);
    // The client has reached this host at this address, so it can also reach the adapter there.
    let address = client.local_addr()?.ip().to_canonical().to_string();
    Ok(Plan { role: Role::Server, adapters, address, cpu: None, server: None, ..requested })
}

fn serve(client: &TcpStream, plan: &Plan<Task>, permit: &Permit<'_>) -> Result<()> {
    let (mut child, socket) = pair::command("")?;
    let served = json_lines::send_plan(&socket, plan).and_then(|()| relay(client, &socket, permit));
    // The process ends when its socket is closed.
    drop(socket);
    let _ = child.kill();
    let _ = child.wait();
    served
}

/// Relays the process's messages to the client, until the process or the client's connection has
/// ended.
fn relay(client: &TcpStream, socket: &UnixStream, permit: &Permit<'_>) -> Result<()> {
    client.set_read_timeout(None)?;
    let (watched, ending) = (client.try_clone()?, socket.try_clone()?);
    thread::Builder::new().spawn(move || {
        // The client sends no more data. So this read returns when the client disconnects or loses
        // its permit (`permits.rs`).
        let _ = (&watched).read(&mut [0]);
        let _ = ending.shutdown(Shutdown::Both);
    })?;
    let mut messages = BufReader::new(socket);
    let mut line = String::new();
    while messages.read_line(&mut line)? > 0 {
        let is_connected =
            matches!(serde_json::from_str(&line), Ok(Message::<Report>::Connected(_)));
        if is_connected {
            permit.set_connected()?;
        }
        (&mut &*client).write_all(line.as_bytes())?;
        line.clear();
        if is_connected {
            std::io::copy(&mut messages, &mut &*client)?;
            return Ok(());
        }
    }
    permit.check()
}
