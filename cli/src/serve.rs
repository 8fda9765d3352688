//! `dat serve`: the peer of `dat ping` and `dat bench` on other hosts. Each client gets a process
//! of its own, which ends with the client's connection.

use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use adapter::half_open::HalfOpen;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;
use socket2::{SockRef, TcpKeepalive};

use crate::measure::Role;
use crate::peer::{Message, Plan, Work};
use crate::{pair, parent};

/// The TCP port at which clients' requests arrive. The data use other ports.
pub(crate) const PORT: u16 = 7471;

/// The maximum size of a plan in octets.
const MAX_PLAN_BYTES: u64 = 64 << 10;
/// The maximum number of clients that are served at a time.
const MAX_CLIENTS: usize = 32;
/// The maximum number of clients that have not sent their plan yet.
const MAX_WAITING_CLIENTS: usize = 64;
/// The time that a client may take to send its plan.
const PLAN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without data after which keepalive probes check whether the client's host still exists.
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
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Print where it listens as a JSON document
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

/// A reader of a client's data that fails after a deadline.
struct DeadlineReader<'a> {
    client: &'a TcpStream,
    until: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        // A timeout of zero would mean no timeout.
        self.client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.client.read(into)
    }
}

/// Clients that have not sent their plan yet. If there are too many, one of them is disconnected,
/// so that silent clients do not block others.
#[derive(Default)]
struct WaitingClients(Mutex<HalfOpen<Arc<TcpStream>>>);

impl WaitingClients {
    fn enter(&self, address: IpAddr, client: &Arc<TcpStream>) {
        let mut half_open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        half_open.add(address, Arc::clone(client));
        if let Some(oldest) = half_open.take_one_too_many(MAX_WAITING_CLIENTS) {
            // The thread that reads from this client then reads the end of the stream, and ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }

    fn leave(&self, address: IpAddr, client: &Arc<TcpStream>) {
        let mut half_open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        half_open.remove(address, |of| Arc::ptr_eq(of, client));
    }
}

/// Serves clients until the process is killed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::report_registry_errors();
    for adapter in &options.adapters {
        drop(dat::Adapter::open(adapter)?);
    }
    let listen = |address: IpAddr| {
        let at = SocketAddr::new(address, options.port);
        TcpListener::bind(at)
            .with_context(|| format!("listening on {at} (use --port for another port)"))
    };
    let listener = match options.bind {
        Some(address) => listen(address)?,
        // Some hosts have no IPv6.
        None => listen(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| listen(Ipv4Addr::UNSPECIFIED.into()))?,
    };
    let here = listener.local_addr()?;
    if options.json {
        let document =
            Document { adapters: &options.adapters, address: here.ip(), port: here.port() };
        writeln!(stdout(), "{}", serde_json::to_string(&document)?)?;
    } else {
        let names = options.adapters.join(" and ");
        let verb = if options.adapters.len() == 1 { "serves" } else { "serve" };
        writeln!(stdout(), "{names} {verb} at {here}")?;
    }
    let (served, waiting) = (Arc::new(AtomicUsize::new(0)), Arc::new(WaitingClients::default()));
    for client in listener.incoming() {
        let Ok(client) = client.map(Arc::new) else { continue };
        // A client that has disconnected already has no address.
        let Ok(address) = client.peer_addr().map(|peer| peer.ip()) else { continue };
        waiting.enter(address, &client);
        let (stream, waiting_clients) = (Arc::clone(&client), Arc::clone(&waiting));
        let (adapters, served) = (options.adapters.clone(), Arc::clone(&served));
        let answer = move || {
            let requested = read_plan(&stream);
            waiting_clients.leave(address, &stream);
            let result = requested.and_then(|requested| {
                let others = served.fetch_add(1, Ordering::Relaxed);
                let result = match others < MAX_CLIENTS {
                    true => serve(&stream, requested, adapters),
                    false => {
                        Err(anyhow!("the limit of {MAX_CLIENTS} clients at a time is reached"))
                    }
                };
                served.fetch_sub(1, Ordering::Relaxed);
                result
            });
            if let Err(error) = result {
                let failure = serde_json::to_string(&Message::Failed(format!("{error:#}")))
                    .unwrap_or_default();
                // The write fails if the client has disconnected already.
                let _ = writeln!(&*stream, "{failure}");
            }
            let _ = stream.shutdown(Shutdown::Both);
        };
        // If no thread can be started, the client is disconnected.
        if thread::Builder::new().spawn(answer).is_err() {
            waiting.leave(address, &client);
        }
    }
    Ok(true)
}

/// Reads a client's plan.
fn read_plan(client: &TcpStream) -> Result<Plan> {
    // Without keepalive, a client whose host has crashed would stay connected for ever.
    let probes =
        TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_TIME).with_retries(3);
    SockRef::from(client).set_tcp_keepalive(&probes)?;
    let mut line = String::new();
    let reader = DeadlineReader { client, until: Instant::now() + PLAN_TIMEOUT };
    BufReader::new(reader.take(MAX_PLAN_BYTES)).read_line(&mut line)?;
    serde_json::from_str(&line)
        .context("this is the port of `dat serve`, for dat ping and dat bench")
}

fn serve(client: &TcpStream, requested: Plan, mut adapters: Vec<String>) -> Result<()> {
    let is_valid = match &requested.work {
        Work::Ping(work) => work.is_valid(),
        Work::Bench(work) => work.is_valid(requested.adapters.len()),
        Work::Demo(_) | Work::Plain(_) => false,
    };
    ensure!(is_valid, "only `dat ping` and `dat bench` are served here");
    let (asks, has) = (requested.adapters.len(), adapters.len());
    ensure!(
        asks <= has,
        "{asks} adapters requested, {has} served: run `dat serve` with --adapter once more"
    );
    adapters.truncate(asks);
    // The client can reach the adapter at the address at which it has reached this host.
    let address = client.local_addr()?.ip().to_canonical().to_string();
    let plan = Plan { role: Role::Server, adapters, address, cpu: None, server: None, ..requested };
    let (mut child, socket) = pair::command("")?;
    parent::send_plan(&socket, &plan)?;
    let served = relay(client, &socket);
    // The process ends when its socket is closed.
    drop(socket);
    let _ = child.kill();
    let _ = child.wait();
    served
}

/// Relays the process's messages to the client, until either has ended.
fn relay(client: &TcpStream, socket: &UnixStream) -> Result<()> {
    client.set_read_timeout(None)?;
    let (watched, ending) = (client.try_clone()?, socket.try_clone()?);
    thread::Builder::new().spawn(move || {
        // The client sends no more data, so this read returns when it disconnects.
        let _ = (&watched).read(&mut [0]);
        let _ = ending.shutdown(Shutdown::Both);
    })?;
    std::io::copy(&mut &*socket, &mut &*client)?;
    Ok(())
}
