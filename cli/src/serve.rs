//! `dat serve`: the other side of `dat ping` and `dat bench` on another host. For each that calls, a process
//! of its own does what it asks for, and ends with the call.

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
use crate::peer::{Plan, Said, Work};
use crate::{pair, parent};

/// The TCP port where calls come in; the data go over ports of their own.
pub(crate) const PORT: u16 = 7471;

/// Octets of a plan.
const PLAN: u64 = 64 << 10;
/// Calls that are served at a time.
const CALLS: usize = 32;
/// Callers that have not said what they ask for, at a time.
const SILENT: usize = 64;
/// Somebody who calls knows what to ask for.
const HESITATION: Duration = Duration::from_secs(10);
/// When nothing has come for so long, the caller's host is asked whether it is there.
const LIFE: Duration = Duration::from_secs(20);

#[derive(Args)]
pub(crate) struct Options {
    /// The adapter, by its name in the registry; once more for `dat bench --vs`, which asks for two
    #[arg(long = "adapter", value_name = "NAME", default_value = "tcp-emu")]
    adapters: Vec<String>,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listen on this TCP port
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Say where it listens as a JSON document
    #[arg(long)]
    json: bool,
}

/// Where it listens, for machines.
#[derive(Serialize)]
struct Document<'a> {
    adapters: &'a [String],
    address: IpAddr,
    port: u16,
}

/// Reads what comes until then.
struct Timely<'a> {
    call: &'a TcpStream,
    until: Instant,
}

impl Read for Timely<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        // No time at all would be all the time there is.
        self.call.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        self.call.read(into)
    }
}

/// Callers that have not said what they ask for. If there are too many, one is sent away: so callers that never
/// say anything keep nobody else out.
#[derive(Default)]
struct Waiting(Mutex<HalfOpen<Arc<TcpStream>>>);

impl Waiting {
    fn enter(&self, address: IpAddr, call: &Arc<TcpStream>) {
        let mut half_open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        half_open.add(address, Arc::clone(call));
        if let Some(oldest) = half_open.take_one_too_many(SILENT) {
            // The thread that reads from it sees the end of the call, and ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }

    fn leave(&self, address: IpAddr, call: &Arc<TcpStream>) {
        let mut half_open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        half_open.remove(address, |of| Arc::ptr_eq(of, call));
    }
}

/// Serves until it is killed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    crate::say_mistakes();
    for adapter in &options.adapters {
        drop(dat::Adapter::open(adapter)?);
    }
    let listen = |address: IpAddr| {
        let at = SocketAddr::new(address, options.port);
        TcpListener::bind(at).with_context(|| format!("listening on {at} (--port names another)"))
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
    let (served, waiting) = (Arc::new(AtomicUsize::new(0)), Arc::new(Waiting::default()));
    for call in listener.incoming() {
        let Ok(call) = call.map(Arc::new) else { continue };
        // One that has gone already has no address.
        let Ok(address) = call.peer_addr().map(|peer| peer.ip()) else { continue };
        waiting.enter(address, &call);
        let (caller, silent) = (Arc::clone(&call), Arc::clone(&waiting));
        let (adapters, served) = (options.adapters.clone(), Arc::clone(&served));
        let answer = move || {
            let asked = hear(&caller);
            silent.leave(address, &caller);
            let result = asked.and_then(|asked| {
                let others = served.fetch_add(1, Ordering::Relaxed);
                let result = match others < CALLS {
                    true => serve(&caller, asked, adapters),
                    false => Err(anyhow!("{CALLS} others are served here at the moment")),
                };
                served.fetch_sub(1, Ordering::Relaxed);
                result
            });
            if let Err(error) = result {
                let said =
                    serde_json::to_string(&Said::Failed(format!("{error:#}"))).unwrap_or_default();
                // Who has gone does not want to know.
                let _ = writeln!(&*caller, "{said}");
            }
            let _ = caller.shutdown(Shutdown::Both);
        };
        // Where there is no thread for it, the call ends at once.
        if thread::Builder::new().spawn(answer).is_err() {
            waiting.leave(address, &call);
        }
    }
    Ok(true)
}

/// What a caller asks for.
fn hear(call: &TcpStream) -> Result<Plan> {
    // A caller whose host has gone says nothing, for ever.
    let probes = TcpKeepalive::new().with_time(LIFE).with_interval(LIFE).with_retries(3);
    SockRef::from(call).set_tcp_keepalive(&probes)?;
    let mut line = String::new();
    let timely = Timely { call, until: Instant::now() + HESITATION };
    BufReader::new(timely.take(PLAN)).read_line(&mut line)?;
    serde_json::from_str(&line).context("this is the port of `dat serve`, which dat ping calls")
}

fn serve(call: &TcpStream, asked: Plan, mut adapters: Vec<String>) -> Result<()> {
    let is_sound = match &asked.work {
        Work::Ping(work) => work.is_sound(),
        Work::Bench(work) => work.is_sound(asked.adapters.len()),
        Work::Demo(_) | Work::Plain(_) => false,
    };
    ensure!(is_sound, "only what `dat ping` and `dat bench` ask for is served here");
    let (asks, has) = (asked.adapters.len(), adapters.len());
    ensure!(
        asks <= has,
        "asked for {asks} adapters, and {has} served: `dat serve` with --adapter once more"
    );
    adapters.truncate(asks);
    // Where the caller has found this host is where it finds the adapter.
    let address = call.local_addr()?.ip().to_canonical().to_string();
    let plan = Plan { role: Role::Server, adapters, address, cpu: None, server: None, ..asked };
    let (mut child, socket) = pair::command(&[])?;
    parent::instruct(&socket, &plan)?;
    let served = relay(call, &socket);
    // With its socket it ends.
    drop(socket);
    let _ = child.kill();
    let _ = child.wait();
    served
}

/// What the process says goes to the caller, until either has gone.
fn relay(call: &TcpStream, socket: &UnixStream) -> Result<()> {
    call.set_read_timeout(None)?;
    let (watched, ending) = (call.try_clone()?, socket.try_clone()?);
    thread::Builder::new().spawn(move || {
        // Nothing more is to come but the end.
        let _ = (&watched).read(&mut [0]);
        let _ = ending.shutdown(Shutdown::Both);
    })?;
    std::io::copy(&mut &*socket, &mut &*call)?;
    Ok(())
}
