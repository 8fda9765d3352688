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
    /// The adapter, by its name in the registry
    #[arg(long, value_name = "NAME", default_value = "tcp-emu")]
    adapter: String,
    /// Listen on this address only
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// Listen on this TCP port
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
}

/// Serves until it is killed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let adapter = dat::Adapter::open(&options.adapter)?;
    drop(adapter);
    let at = SocketAddr::new(options.bind, options.port);
    let listener = TcpListener::bind(at).with_context(|| format!("listening on {at}"))?;
    writeln!(stdout(), "{} serves at {}", options.adapter, listener.local_addr()?)?;
    let calls = Arc::new(());
    for call in listener.incoming() {
        let (Ok(call), adapter, token) = (call, options.adapter.clone(), Arc::clone(&calls)) else {
            continue;
        };
        let answer = move || {
            let served = match Arc::strong_count(&token) - 1 {
                ..=CALLS => serve(&call, adapter),
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

fn serve(call: &TcpStream, adapter: String) -> Result<()> {
    call.set_read_timeout(Some(HESITATION))?;
    let mut line = String::new();
    BufReader::new(call.take(PLAN)).read_line(&mut line)?;
    let asked: Plan =
        serde_json::from_str(&line).context("this is the port of `dat serve`, which dat ping calls")?;
    let is_sound = matches!(&asked.work, Work::Ping(work) if work.is_sound());
    ensure!(is_sound, "only what `dat ping` asks for is served here");
    // Where the caller has found this host is where it finds the adapter.
    let address = call.local_addr()?.ip().to_canonical().to_string();
    let plan = Plan { role: Role::Server, adapter, address, cpu: None, server: None, ..asked };
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
