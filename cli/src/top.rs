//! `dat top`: shows what the adapters of another process do, while it runs. The process answers on
//! its own sockets (`telemetry`, `stats.rs`).

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io::{IsTerminal, Read, Write, stdout};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use measurement::text_table::{Align::*, Colour, TextTable, colour};
use measurement::units::{self, plural};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::Serialize;
use telemetry::stats::{DIRECTORY, has_listener, sockets_in};
use telemetry::{printable, user_directory};

use crate::output::print_json_line;

#[derive(Args)]
pub(crate) struct Options {
    /// The process; by default, all processes that can be observed are listed
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Print the counters once instead of continuously
    #[arg(long)]
    once: bool,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one JSON document per update, in one line
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or("expected 0.1 to 3600 seconds")
}

/// The time that a process may take to answer. A stopped process does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Counter values by name.
type Counters = BTreeMap<String, u64>;

/// The maximum size of an answer in octets.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// An adapter of the process.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
struct Adapter {
    name: String,
    provider: String,
    handle: String,
    /// The counters of the adapter and its transport.
    ia: Counters,
    /// The sums of the counters of all endpoints and of all event dispatchers that exist now. Freed
    /// objects are not included.
    ep: Counters,
    evd: Counters,
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Default, PartialEq, Debug, Serialize)]
struct Endpoint {
    handle: String,
    state: String,
    counters: Counters,
}

#[derive(Serialize)]
struct Document<'a> {
    pid: u32,
    adapters: &'a [Adapter],
}

/// Prints updates until this program is killed or the process has ended.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let Some(pid) = options.pid else { return list(options.json) };
    let mut before: Option<(Instant, Vec<Adapter>)> = None;
    loop {
        let adapters = match query_process(pid)? {
            Some(adapters) => adapters,
            // The process has closed its last adapter.
            None if before.is_some() => return Ok(true),
            None => bail!("{}", no_answer_reason(pid)),
        };
        let now = Instant::now();
        if options.json {
            print_json_line(&Document { pid, adapters: &adapters })?;
        } else if options.once {
            write!(stdout(), "{}", totals(&adapters))?;
        } else if let Some((then, old)) = &before {
            let clear = if stdout().is_terminal() { "\x1b[H\x1b[J" } else { "" };
            write!(stdout(), "{clear}{}", rates(pid, &adapters, old, (now - *then).as_secs_f64()))?;
        }
        stdout().flush()?;
        if options.once {
            return Ok(true);
        }
        before = Some((now, adapters));
        sleep(Duration::from_secs_f64(options.interval));
    }
}

/// Lists the processes that can be observed.
fn list(json: bool) -> Result<bool> {
    let own = geteuid();
    let mut pids = Vec::new();
    for directory in directories((!own.is_root()).then_some(own.as_raw())) {
        for path in sockets_in(&directory).into_iter().flatten() {
            if let Some(pid) = pid_of(&path)
                && has_listener(&path)?
            {
                pids.push(pid);
            }
        }
    }
    pids.sort_unstable();
    pids.dedup();
    if json {
        print_json_line(&serde_json::json!({ "processes": pids }))?;
        return Ok(true);
    }
    ensure!(
        !pids.is_empty(),
        "no process publishes its adapters' counters: start one with OPENDAT_PARAMS=stats=on; if \
         one runs, OPENDAT_LOG=warn in its environment shows why it could not create its socket"
    );
    for pid in pids {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        writeln!(stdout(), "{pid:>8}  {}", printable(command.trim()))?;
    }
    Ok(true)
}

/// Returns the directories with the sockets of one user's processes, or of all users' processes for
/// `None`.
fn directories(user: Option<u32>) -> Vec<PathBuf> {
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_asked = |entry: &DirEntry| {
        let of = user_directory::user_of(&entry.path());
        of.is_some_and(|of| user.is_none_or(|user| user == of))
    };
    let of_users = user_directory::PLACES.into_iter().flat_map(|place| entries(Path::new(place)));
    let of_namespaces = of_users.filter(is_asked).flat_map(|entry| entries(&entry.path()));
    of_namespaces.map(|entry| entry.path().join(DIRECTORY)).collect()
}

/// Returns the process ID in a socket's name.
fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}

fn no_answer_reason(pid: u32) -> String {
    match std::path::Path::new(&format!("/proc/{pid}")).exists() {
        true => format!(
            "process {pid} does not publish its adapters' counters: it must have an adapter of \
             OpenDAT open, have been started with OPENDAT_PARAMS=stats=on, and belong to this user; \
             if all of that is so, it could not create its socket in /tmp or /dev/shm, and \
             OPENDAT_LOG=warn in its environment shows the reason"
        ),
        false => format!("there is no process {pid}"),
    }
}

/// Returns the effective user ID of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

/// Asks a process, which has one socket per loaded copy of dat-core. Returns `None` if no copy
/// answers.
fn query_process(pid: u32) -> Result<Option<Vec<Adapter>>> {
    let mut answered = None;
    let Some(user) = user_of(pid) else { return Ok(None) };
    let sockets =
        directories(Some(user)).into_iter().filter_map(|directory| sockets_in(&directory).ok());
    for path in sockets.flatten().filter(|path| pid_of(path) == Some(pid)) {
        let Ok(stream) = UnixStream::connect(&path) else { continue };
        // Another user may have created the directory. A process that has ended may have left the
        // socket to a child, and the process ID may belong to another process now. So the socket's
        // owner must be the process's user or root.
        let listener = socket_peercred(&stream)?;
        let (listener_pid, listener_user) =
            (listener.pid.as_raw_nonzero().get(), listener.uid.as_raw());
        let is_theirs = listener_user == 0 || listener_user == user;
        if listener_pid.unsigned_abs() != pid || !is_theirs {
            continue;
        }
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut text = Vec::new();
        let read = stream.take(MAX_ANSWER_BYTES).read_to_end(&mut text);
        read.with_context(|| format!("process {pid} does not answer"))?;
        // Control characters must not reach the terminal.
        let text =
            String::from_utf8_lossy(&text).replace(|c: char| c.is_control() && c != '\n', "?");
        let adapters = parse(&text);
        if !adapters.is_empty() {
            answered.get_or_insert_with(Vec::new).extend(adapters);
        }
    }
    Ok(answered)
}

fn parse(text: &str) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = Vec::new();
    let mut part = "";
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), adapters.last_mut()) {
            (["ia", name, provider, handle], _) => {
                let [name, provider, handle] =
                    [name, provider, handle].map(|word| (*word).to_owned());
                adapters.push(Adapter { name, provider, handle, ..Adapter::default() });
                part = "ia";
            }
            (["ep", handle, state], Some(adapter)) => {
                let (handle, state) = ((*handle).to_owned(), (*state).to_owned());
                adapter.endpoints.push(Endpoint { handle, state, ..Endpoint::default() });
                part = "endpoint";
            }
            (["sum", what], _) => part = if *what == "ep" { "ep" } else { "evd" },
            ([name, value], Some(adapter)) => {
                let counters = match part {
                    "ia" => &mut adapter.ia,
                    "ep" => &mut adapter.ep,
                    "evd" => &mut adapter.evd,
                    _ => match adapter.endpoints.last_mut() {
                        Some(endpoint) => &mut endpoint.counters,
                        None => continue,
                    },
                };
                counters.insert((*name).to_owned(), value.parse().unwrap_or(0));
            }
            _ => {}
        }
    }
    adapters
}

/// Formats all counters.
fn totals(adapters: &[Adapter]) -> String {
    let mut text = String::new();
    for Adapter { name, provider, ia, ep, evd, endpoints, .. } in adapters {
        let head = format!(
            "{name} (provider {provider}), {}",
            plural(endpoints.len(), "endpoint", "endpoints")
        );
        text += &format!("{}\n", colour(&head, Colour::Strong));
        for (name, value) in ia.iter().chain(ep).chain(evd) {
            text += &format!("  {name:<34} {value}\n");
        }
    }
    text
}

const RATES: TextTable<4> =
    TextTable { columns: [(Left, 24), (Right, 12), (Right, 12), (Right, 12)] };

/// For each operation: its name, the counter of its operations, and the counter of its octets.
const OPERATION_COUNTERS: [(&str, &str, &str); 6] = [
    ("send", "DCNT_EP_POST_SEND", "DCNT_EP_POST_SEND_DATA"),
    ("RDMA write", "DCNT_EP_POST_WRITE", "DCNT_EP_POST_WRITE_DATA"),
    ("write, immediate", "DCNT_EP_POST_WRITE_IMM", "DCNT_EP_POST_WRITE_IMM_DATA"),
    ("RDMA read", "DCNT_EP_POST_READ", "DCNT_EP_POST_READ_DATA"),
    ("fetch and add", "DCNT_EP_POST_FETCH_ADD", ""),
    ("compare and swap", "DCNT_EP_POST_CMP_SWAP", ""),
];

/// Formats the rates since the last answer.
fn rates(pid: u32, adapters: &[Adapter], old: &[Adapter], seconds: f64) -> String {
    let mut text = String::new();
    for adapter in adapters {
        let none = Adapter::default();
        let before = old
            .iter()
            .find(|old| old.handle == adapter.handle && old.name == adapter.name)
            .unwrap_or(&none);
        let Adapter { name, provider, ep, endpoints, .. } = adapter;
        let connected = endpoints.iter().filter(|endpoint| endpoint.state == "Connected").count();
        let head = format!(
            "process {pid}: {name} (provider {provider}), {}, {connected} connected",
            plural(endpoints.len(), "endpoint", "endpoints")
        );
        text += &format!("{}\n", colour(&head, Colour::Strong));
        text += &format!(
            "{}\n",
            colour(&RATES.row(["", "per second", "bandwidth", "total"]), Colour::Faint)
        );
        let difference = |counters: &Counters, before: &Counters, name: &str| {
            let value = counters.get(name).copied().unwrap_or(0);
            value.saturating_sub(before.get(name).copied().unwrap_or(0)) as f64 / seconds
        };
        let mut row = |what: &str, count: &str, data: &str| {
            let Some(all) = ep.get(count) else { return };
            text += &RATES.row([
                what.to_owned(),
                units::rate(difference(ep, &before.ep, count)),
                if data.is_empty() {
                    String::new()
                } else {
                    units::bandwidth(difference(ep, &before.ep, data))
                },
                all.to_string(),
            ]);
            text.push('\n');
        };
        for (what, count, data) in OPERATION_COUNTERS {
            row(what, count, data);
        }
        row("receive", "DCNT_EP_RECV", "DCNT_EP_RECV_DATA");
        row("failed", "failed", "");
        row("flushed", "flushed", "");
        for (name, value) in adapter.ia.iter().filter(|(name, _)| !name.starts_with("DCNT_")) {
            let rate = units::rate(difference(&adapter.ia, &before.ia, name));
            text += &format!(
                "{}\n",
                RATES.row([name.as_str(), rate.as_str(), "", value.to_string().as_str()])
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "ia tcp-emu tcp-emu 0x1\nDCNT_IA_PZ_CREATE 1\nresent 3\n\
                          ep 0x10 Connected\nDCNT_EP_POST_SEND 7\n\
                          ep 0x20 Unconnected\nsum ep\nDCNT_EP_POST_SEND 7\n\
                          DCNT_EP_POST_SEND_DATA 448\nsum evd\nDCNT_EVD_WAIT 2\n\
                          ia other tcp-emu 0x2\nsum ep\nsum evd\n";

    #[test]
    fn an_answer_is_understood() {
        let adapters = parse(ANSWER);
        assert_eq!(
            adapters.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(),
            ["tcp-emu", "other"]
        );
        let first = &adapters[0];
        assert_eq!((first.ia["DCNT_IA_PZ_CREATE"], first.ia["resent"]), (1, 3));
        assert_eq!((first.ep["DCNT_EP_POST_SEND_DATA"], first.evd["DCNT_EVD_WAIT"]), (448, 2));
        let states: Vec<_> =
            first.endpoints.iter().map(|endpoint| endpoint.state.as_str()).collect();
        assert_eq!(states, ["Connected", "Unconnected"]);
        assert_eq!(first.endpoints[0].counters["DCNT_EP_POST_SEND"], 7);
        assert_eq!(parse("rubbish\nmore of it 1 2 3\nlonely 1\n"), []);
    }

    #[test]
    fn the_user_of_a_process_is_its_effective_one() {
        assert_eq!(user_of(std::process::id()), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(user_of(u32::MAX), None);
    }

    #[test]
    fn rates_are_of_the_time_between_two_answers() {
        let old = parse(ANSWER);
        let new = parse(&ANSWER.replace("SEND 7", "SEND 10007").replace("448", "640448"));
        let text = rates(1, &new, &old, 2.0);
        let send = text.lines().find(|line| line.starts_with("send")).expect("a row");
        assert_eq!(
            send.split_whitespace().collect::<Vec<_>>(),
            ["send", "5.00", "k/s", "0.32", "MB/s", "10007"]
        );
        assert!(text.contains("2 endpoints, 1 connected") && text.contains("resent"), "{text}");
    }
}
