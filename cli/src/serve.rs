//! `dat serve`: the other side of `dat ping` and `dat bench` on another host. For each that calls, a process of its own does what
//! it asks for, and ends with the call.

use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use crate::measure::Role;
use crate::peer::{Plan, Said, Work};
use crate::{pair, parent};

/// The TCP port where calls come in; the data go over ports of their own.
pub(crate) const PORT: u16 = 7471;

/// Octets of a plan.
const PLAN: u64 = 64 << 10;
/// Calls that are served at a time.
const CALLS: usize = 32;
/// Somebody who calls knows what to ask for.
const HESITATION: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Options {
    /// The adapter, by its name in the registry; once more for `dat bench --vs`, which asks for two
    #[arg(long = "adapter", value_name = "NAME", default_value = "tcp-emu")]
    adapters: Vec<String>,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// Listen on this TCP port
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
}

/// Serves until it is killed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    for adapter in &options.adapters {
        drop(dat::Adapter::open(adapter)?);
    }
    let at = SocketAddr::new(options.bind, options.port);
    let listener = TcpListener::bind(at).with_context(|| format!("listening on {at}"))?;
    let names = options.adapters.join(" and ");
    let verb = if options.adapters.len() == 1 { "serves" } else { "serve" };
    writeln!(stdout(), "{names} {verb} at {}", listener.local_addr()?)?;
    let calls = Arc::new(());
    for call in listener.incoming() {
        let (Ok(call), adapters, token) = (call, options.adapters.clone(), Arc::clone(&calls)) else {
            continue;
        };
        let answer = move || {
            let served = match Arc::strong_count(&token) - 1 {
                ..=CALLS => serve(&call, adapters),
                _ => Err(anyhow!("{CALLS} others are served here at the moment")),
            };
            if let Err(error) = served {
                let said = serde_json::to_string(&Said::Failed(format!("{error:#}"))).unwrap_or_default();
                // Who has gone does not want to know.
                let _ = writeln!(&call, "{said}");
            }
            let _ = call.shutdown(Shutdown::Both);
        };
        // Where there is no thread for it, the call ends at once.
        let _ = thread::Builder::new().spawn(answer);
    }
    Ok(true)
}

fn serve(call: &TcpStream, mut adapters: Vec<String>) -> Result<()> {
    call.set_read_timeout(Some(HESITATION))?;
    let mut line = String::new();
    BufReader::new(call.take(PLAN)).read_line(&mut line)?;
    let asked: Plan =
        serde_json::from_str(&line).context("this is the port of `dat serve`, which dat ping calls")?;
    let is_sound = match &asked.work {
        Work::Ping(work) => work.is_sound(),
        Work::Bench(work) => work.is_sound(asked.adapters.len()),
        Work::Demo(_) | Work::Plain(_) => false,
    };
    ensure!(is_sound, "only what `dat ping` and `dat bench` ask for is served here");
    let (asks, has) = (asked.adapters.len(), adapters.len());
    ensure!(asks <= has, "asked for {asks} adapters, and {has} served: `dat serve` with --adapter once more");
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
