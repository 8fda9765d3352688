//! `workshop bench`: measures DAT against a baseline, row by row. The baseline is a plain socket,
//! or DAT used in another way. Each round measures both, one after the other, in the same two
//! processes. The result is the median of the rounds' ratios, because the speed of a machine
//! changes from one second to the next.

use std::borrow::Cow;
use std::io::{Write, stdout};

use anyhow::{Result, ensure};
use clap::Args;
use measurement::arguments::{CommonArguments, report_registry_errors};
use measurement::machine::MeasurementInfo;
use measurement::measure;
use measurement::operation::Operation;
use measurement::pair::{Pair, Placement};
use measurement::peer::{ConnectionInfo, Message, Plan};
use measurement::schedule::median;
use measurement::text_table::{Align::*, Colour, TextTable, colour, wrapped};
use measurement::wait_mode::{Role, WaitMode};
use measurement::{cpu, units};
use serde::Serialize;

use crate::request_answer::RequestAnswer;
use crate::task::{Against, MIN_TRIAL_TIME, Round, Task, What};
use crate::workload::Workload;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: CommonArguments,
    /// Rounds per row, whose median is printed; fewer than 5 are not reliable
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The processors on which the client and the server run, as in 0,1; the default is two
    /// different processors, if this host has two
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    cpus: Vec<usize>,
    /// Measure only rows whose name contains this text
    #[arg(long, value_name = "TEXT")]
    row: Option<String>,
    /// Instead of the other rows, measure consumers that poll their memory: all sizes, with 0, 1
    /// and 100 calls of DAT per millisecond
    #[arg(long)]
    watched: bool,
    /// Compare the rows of --watched with plain UDP instead of TCP; this is the least time that an
    /// adapter on top of UDP can take
    #[arg(long, requires = "watched")]
    udp: bool,
}

/// A row of the benchmark.
struct Row {
    name: Cow<'static, str>,
    /// The provider to which the row applies. `None` means every provider.
    provider: Option<&'static str>,
    what: What,
    against: Against,
    /// The way in which DAT waits, and the way in which the baseline waits.
    wait: WaitMode,
    baseline_wait: WaitMode,
    /// The parameter that both processes get in OPENDAT_PARAMS, if any. The registry entry does not
    /// change.
    params: &'static str,
    pinning: Pinning,
}

/// The processors on which the two processes run.
#[derive(Clone, Copy)]
enum Pinning {
    /// Each process has a processor of its own, if the host has two.
    Apart,
    /// Both processes have the processor of the client.
    Together,
    /// Both processes may run on all processors.
    Unpinned,
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

const ROUND_TRIPS: measure::Workload =
    measure::Workload::Latency { operation: Operation::Send, size: 64 };
const MANY_SENDS: measure::Workload =
    measure::Workload::Stream { operation: Operation::Send, size: 64, window: 64 };

const WRITE_COMPLETION: Workload = Workload::WriteCompletion { size: 64 };
const WRITE_AND_NOTIFY: Workload = Workload::WriteAndNotify { size: 64 };

const PING_PONG: What = one(ROUND_TRIPS);
const SENDS: What = one(MANY_SENDS);
const WRITES: What = one(many_writes(MIB, 16));
const READS: What =
    one(measure::Workload::Stream { operation: Operation::RdmaRead, size: MIB, window: 16 });

const fn one(workload: measure::Workload) -> What {
    What::One(Workload::Usual(workload))
}

const fn many_writes(size: usize, window: usize) -> measure::Workload {
    measure::Workload::Stream { operation: Operation::RdmaWrite, size, window }
}

const fn row(
    name: &'static str,
    provider: &'static str,
    what: What,
    against: Against,
    [wait, baseline_wait]: [WaitMode; 2],
    params: &'static str,
) -> Row {
    let (name, provider, pinning) = (Cow::Borrowed(name), Some(provider), Pinning::Apart);
    Row { name, provider, what, against, wait, baseline_wait, params, pinning }
}

/// Returns a row for a consumer that waits adaptively, against a plain socket that polls. The
/// processes are not pinned.
const fn unpinned_row(
    name: &'static str,
    provider: &'static str,
    against: Against,
    params: &'static str,
) -> Row {
    Row {
        name: Cow::Borrowed(name),
        provider: Some(provider),
        what: PING_PONG,
        against,
        wait: WaitMode::Block,
        baseline_wait: WaitMode::Poll,
        params,
        pinning: Pinning::Unpinned,
    }
}

/// Returns a row for a consumer that waits with dat_evd_wait, against a consumer that polls.
const fn blocking_row(
    name: &'static str,
    workload: measure::Workload,
    params: &'static str,
) -> Row {
    Row {
        name: Cow::Borrowed(name),
        provider: None,
        what: one(workload),
        against: Against::Polling,
        wait: WaitMode::Block,
        baseline_wait: WaitMode::Poll,
        params,
        pinning: Pinning::Apart,
    }
}

/// Returns a row of tcp-emu for RDMA writes that complete when they are placed, against RDMA writes
/// that complete when TCP or the shared memory has accepted them.
const fn placed_row(name: &'static str, workload: Workload, params: &'static str) -> Row {
    row(name, "tcp-emu", What::One(workload), Against::Local, [WaitMode::Poll; 2], params)
}

/// Returns a row for two threads against one. The processes are not pinned, so that the two threads
/// of a process can run at the same time.
const fn threads_row(
    name: &'static str,
    provider: Option<&'static str>,
    workload: measure::Workload,
    wait: WaitMode,
    params: &'static str,
) -> Row {
    Row {
        name: Cow::Borrowed(name),
        provider,
        what: What::Threads(workload),
        against: Against::OneThread,
        wait,
        baseline_wait: wait,
        params,
        pinning: Pinning::Unpinned,
    }
}

/// Returns a row of tcp-emu for requests over many connections.
const fn requests_row(name: &'static str, connections: usize, outstanding: usize) -> Row {
    row(
        name,
        "tcp-emu",
        requests(connections, outstanding),
        Against::Tcp,
        [WaitMode::Poll; 2],
        "shm=off",
    )
}

/// Returns a row of softroce for requests over many connections.
const fn softroce_requests_row(name: &'static str, connections: usize) -> Row {
    row(name, "softroce", requests(connections, 64), Against::Tcp, [WaitMode::Poll; 2], "")
}

/// Returns a row of softroce for datagram endpoints.
const fn datagrams_row(name: &'static str, workload: measure::Workload) -> Row {
    row(name, "softroce", What::Datagrams(workload), Against::Udp, [WaitMode::Poll; 2], "")
}

const fn requests(connections: usize, outstanding: usize) -> What {
    What::Many(RequestAnswer { size: 64, connections, outstanding })
}

/// Returns a row for a consumer that polls memory. The consumer is compared with a program whose
/// second thread sleeps in read(2).
fn watched_row(against: Against, size: usize, calls: u32) -> Row {
    Row {
        name: format!("{}, watched, {calls}/ms", units::size(size)).into(),
        provider: None,
        what: What::One(Workload::Watch { size, calls }),
        against,
        wait: WaitMode::Poll,
        baseline_wait: WaitMode::Block,
        params: "shm=off",
        pinning: Pinning::Apart,
    }
}

const ROWS: [Row; 54] = [
    row(
        "64 B ping-pong, polling",
        "tcp-emu",
        PING_PONG,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "shm=off",
    ),
    row(
        "64 B ping-pong, blocking",
        "tcp-emu",
        PING_PONG,
        Against::Tcp,
        [WaitMode::Block; 2],
        "shm=off spin=0",
    ),
    row(
        "64 B, adaptive wait / spin",
        "tcp-emu",
        PING_PONG,
        Against::Tcp,
        [WaitMode::Block, WaitMode::Poll],
        "shm=off",
    ),
    row(
        "1 MiB RDMA write, window 16",
        "tcp-emu",
        WRITES,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "shm=off",
    ),
    row(
        "1 MiB RDMA read, window 16",
        "tcp-emu",
        READS,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "shm=off",
    ),
    row(
        "64 B sends, 64 outstanding",
        "tcp-emu",
        SENDS,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "shm=off",
    ),
    row("64 B ping-pong polling, shm", "tcp-emu", PING_PONG, Against::Tcp, [WaitMode::Poll; 2], ""),
    row(
        "64 B ping-pong block., shm",
        "tcp-emu",
        PING_PONG,
        Against::Tcp,
        [WaitMode::Block; 2],
        "spin=0",
    ),
    row(
        "64 B adaptive / spin, shm",
        "tcp-emu",
        PING_PONG,
        Against::Tcp,
        [WaitMode::Block, WaitMode::Poll],
        "",
    ),
    row("1 MiB RDMA write, shm", "tcp-emu", WRITES, Against::Tcp, [WaitMode::Poll; 2], ""),
    row("1 MiB RDMA read, shm", "tcp-emu", READS, Against::Tcp, [WaitMode::Poll; 2], ""),
    row("64 B sends, 64 outst., shm", "tcp-emu", SENDS, Against::Tcp, [WaitMode::Poll; 2], ""),
    Row {
        name: Cow::Borrowed("64 B blocking, one CPU"),
        provider: Some("tcp-emu"),
        what: PING_PONG,
        against: Against::Tcp,
        wait: WaitMode::Block,
        baseline_wait: WaitMode::Block,
        params: "shm=off",
        pinning: Pinning::Together,
    },
    unpinned_row("64 B adaptive, unpinned", "tcp-emu", Against::Tcp, "shm=off"),
    unpinned_row("64 B adaptive unpinned, shm", "tcp-emu", Against::Tcp, ""),
    requests_row("64 B requests, 16 conn.", 16, 64),
    requests_row("64 B requests, 64 conn.", 64, 64),
    requests_row("64 B requests, 256 conn.", 256, 64),
    requests_row("64 B requests, 1024 conn.", 1024, 64),
    requests_row("64 B, 1024 conn., 1 request", 1024, 1),
    row(
        "64 B ping-pong polling, UDP",
        "softroce",
        PING_PONG,
        Against::Udp,
        [WaitMode::Poll; 2],
        "",
    ),
    row(
        "1 MiB RDMA write, MTU 4096",
        "softroce",
        WRITES,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "mtu=4096",
    ),
    row(
        "1 MiB RDMA write, MTU 1024",
        "softroce",
        WRITES,
        Against::Tcp,
        [WaitMode::Poll; 2],
        "mtu=1024",
    ),
    row("64 B sends, 64 outst., UDP", "softroce", SENDS, Against::Udp, [WaitMode::Poll; 2], ""),
    datagrams_row("64 B datagrams, ping-pong", ROUND_TRIPS),
    datagrams_row("64 B datagrams, 64 outst.", MANY_SENDS),
    softroce_requests_row("64 B req., 16 conn., RoCE", 16),
    softroce_requests_row("64 B req., 64 conn., RoCE", 64),
    softroce_requests_row("64 B req., 256 conn., RoCE", 256),
    unpinned_row("64 B adaptive unpinned, UDP", "softroce", Against::Udp, ""),
    blocking_row("64 B sends, blocking", MANY_SENDS, "shm=off spin=0"),
    blocking_row("64 B writes, blocking", many_writes(64, 64), "shm=off spin=0"),
    blocking_row("4 KiB writes, blocking", many_writes(4 * KIB, 64), "shm=off spin=0"),
    blocking_row("64 B sends, adaptive", MANY_SENDS, "shm=off"),
    blocking_row("64 B writes, adaptive", many_writes(64, 64), "shm=off"),
    blocking_row("4 KiB writes, adaptive", many_writes(4 * KIB, 64), "shm=off"),
    threads_row("64 B blocking, 2 threads", None, ROUND_TRIPS, WaitMode::Block, "shm=off spin=0"),
    threads_row("64 B polling, 2 threads", None, ROUND_TRIPS, WaitMode::Poll, "shm=off"),
    threads_row("64 B sends, 2 threads", None, MANY_SENDS, WaitMode::Block, "shm=off spin=0"),
    threads_row(
        "64 KiB writes, 2 threads",
        None,
        many_writes(64 * KIB, 16),
        WaitMode::Block,
        "shm=off spin=0",
    ),
    threads_row(
        "64 B block., 2 threads, shm",
        Some("tcp-emu"),
        ROUND_TRIPS,
        WaitMode::Block,
        "spin=0",
    ),
    threads_row("64 B poll., 2 threads, shm", Some("tcp-emu"), ROUND_TRIPS, WaitMode::Poll, ""),
    threads_row(
        "64 B sends, 2 threads, shm",
        Some("tcp-emu"),
        MANY_SENDS,
        WaitMode::Block,
        "spin=0",
    ),
    threads_row(
        "64 KiB wr., 2 threads, shm",
        Some("tcp-emu"),
        many_writes(64 * KIB, 16),
        WaitMode::Block,
        "spin=0",
    ),
    placed_row("64 B write", WRITE_COMPLETION, "shm=off"),
    placed_row("64 B write and send", WRITE_AND_NOTIFY, "shm=off"),
    placed_row("64 B writes, 64 outstanding", Workload::Usual(many_writes(64, 64)), "shm=off"),
    placed_row("64 KiB writes, window 16", Workload::Usual(many_writes(64 * KIB, 16)), "shm=off"),
    placed_row("1 MiB writes, window 16", Workload::Usual(many_writes(MIB, 16)), "shm=off"),
    placed_row("64 B write, shm", WRITE_COMPLETION, ""),
    placed_row("64 B write and send, shm", WRITE_AND_NOTIFY, ""),
    placed_row("64 B writes, 64 outst., shm", Workload::Usual(many_writes(64, 64)), ""),
    placed_row("64 KiB wr., window 16, shm", Workload::Usual(many_writes(64 * KIB, 16)), ""),
    placed_row("1 MiB writes, 16, shm", Workload::Usual(many_writes(MIB, 16)), ""),
];

/// The sizes in bytes of the rows with polled memory, in ascending order.
const WATCHED_SIZES: [usize; 11] =
    [1, 64, 256, 512, KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
/// Calls of DAT per millisecond in the rows with polled memory.
const CALLS_PER_MS: [u32; 3] = [0, 1, 100];

/// The result of a row in the JSON output.
#[derive(Serialize)]
struct Measured {
    name: String,
    size: usize,
    /// The unit: `seconds` (of half a round trip, or of a request) or `bytes_per_second`.
    unit: &'static str,
    against: Against,
    dat_wait: WaitMode,
    baseline_wait: WaitMode,
    rounds: Vec<Round>,
    dat: f64,
    baseline: f64,
    /// The median, the minimum and the maximum of the ratios of the rounds.
    ratio: f64,
    ratio_min: f64,
    ratio_max: f64,
}

/// The JSON output.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    circumstances: MeasurementInfo,
    adapter: &'a str,
    provider: &'a str,
    congestion_control: &'a str,
    /// The processors of the client and the server, in rows whose processes are pinned.
    pinned: Option<[usize; 2]>,
    rows: Vec<Measured>,
}

const TABLE: TextTable<4> = TextTable { columns: [(Left, 27), (Right, 9), (Right, 9), (Left, 16)] };

/// Runs all rows.
pub(crate) fn run(options: &Options) -> Result<()> {
    report_registry_errors();
    let CommonArguments { adapter, json, .. } = &options.common;
    let rounds = options.rounds;
    let processors = cpu::assign(&options.cpus, true)?;
    let address = options.common.address(&[])?;
    let circumstances = MeasurementInfo::now("workshop");
    let provider = dat::Adapter::open(adapter)?.attributes().provider.clone();
    let of_provider = match (options.watched, options.udp) {
        (false, _) => rows_of(&provider),
        (true, false) => rows_of_watchers(Against::Tcp),
        (true, true) => rows_of_watchers(Against::Udp),
    };
    let names =
        of_provider.iter().map(|row| format!("{:?}", row.name)).collect::<Vec<_>>().join(", ");
    let is_wanted =
        |row: &Row| options.row.as_ref().is_none_or(|text| row.name.contains(text.as_str()));
    let rows: Vec<Row> = of_provider.into_iter().filter(is_wanted).collect();
    ensure!(!rows.is_empty(), "no row has the text of --row in its name; the rows are: {names}");
    let mut info = ConnectionInfo::default();
    let mut measured: Vec<Measured> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let previous = index.checked_sub(1).map(|previous| head(rows[previous].against));
        let head = head(row.against);
        if !json && previous != Some(head) {
            let space = if previous.is_some() { "\n" } else { "" };
            writeln!(stdout(), "{space}{}", colour(&TABLE.row(head), Colour::Strong))?;
        }
        let (connected, rounds) = row.run(adapter, &address, rounds, processors)?;
        info = connected;
        let result = row.measured(rounds);
        if !json {
            writeln!(stdout(), "{}", line(&result))?;
        }
        measured.push(result);
    }
    let document = Document {
        circumstances,
        adapter,
        provider: info.provider(),
        congestion_control: &info.congestion_control,
        pinned: match processors {
            [Some(client), Some(server)] => Some([client, server]),
            _ => None,
        },
        rows: measured,
    };
    if *json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&document)?)?;
        return Ok(());
    }
    print_foot(&document, rounds)
}

/// Returns the rows of a provider. A provider without rows of its own gets those of tcp-emu, except
/// those whose baseline needs a parameter of tcp-emu.
fn rows_of(provider: &str) -> Vec<Row> {
    let has_own = ROWS.iter().any(|row| row.provider == Some(provider));
    let rows_of = if has_own { provider } else { "tcp-emu" };
    let is_measured = |row: &Row| {
        row.provider.is_none_or(|of| of == rows_of)
            && (has_own || row.against.adapter_params().is_none())
    };
    ROWS.into_iter().filter(is_measured).collect()
}

fn rows_of_watchers(against: Against) -> Vec<Row> {
    CALLS_PER_MS
        .into_iter()
        .flat_map(|calls| WATCHED_SIZES.map(|size| watched_row(against, size, calls)))
        .collect()
}

impl Row {
    fn run(
        &self,
        adapter: &str,
        address: &dat::Address,
        rounds: u32,
        processors: [Option<usize>; 2],
    ) -> Result<(ConnectionInfo, Vec<Round>)> {
        let plan = Plan {
            role: Role::Server,
            adapters: vec![adapter.to_owned()],
            address: address.to_string(),
            server: None,
            cpu: None,
            wait: self.wait,
            raw_wait: self.baseline_wait,
            task: Task { what: self.what, against: self.against, rounds },
        };
        let processors = match self.pinning {
            Pinning::Apart => processors,
            Pinning::Together => [processors[0]; 2],
            Pinning::Unpinned => [None; 2],
        };
        let setting = Placement { params: self.params, processors, ..Placement::here() };
        let mut pair = Pair::start_with(&plan, setting)?;
        let (mut info, mut rounds) = (ConnectionInfo::default(), Vec::new());
        while let Some(message) = pair.next_message()? {
            match message {
                (Role::Client, Message::Connected(connected)) => info = connected,
                (Role::Client, Message::Report(round)) => rounds.push(round),
                _ => {}
            }
        }
        Ok((info, rounds))
    }

    fn measured(&self, rounds: Vec<Round>) -> Measured {
        let ratios: Vec<f64> = rounds.iter().map(|round| round.dat / round.baseline).collect();
        let ratio = median(&ratios);
        let column =
            |value: fn(&Round) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
        Measured {
            name: self.name.to_string(),
            size: self.what.size(),
            unit: if self.what.is_latency() { "seconds" } else { "bytes_per_second" },
            against: self.against,
            dat_wait: self.wait,
            baseline_wait: self.baseline_wait,
            dat: column(|round| round.dat),
            baseline: column(|round| round.baseline),
            ratio,
            ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratio_max: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds,
        }
    }
}

/// Returns the head of the rows with this baseline.
fn head(against: Against) -> [&'static str; 4] {
    match against {
        Against::Tcp | Against::Udp => ["", "DAT", "raw", "ratio (min–max)"],
        Against::OneThread => ["", "2 threads", "1 thread", "2 to 1 thread, more is better"],
        Against::Polling => ["", "blocking", "polling", "ratio, more is better"],
        Against::Local => ["", "placed", "local", "ratio (min–max)"],
    }
}

/// Returns a row without its newline.
fn line(row: &Measured) -> String {
    let value = |value: f64| match row.unit {
        "seconds" => units::time(value),
        _ if row.size < 1024 => units::rate(value / row.size as f64),
        _ => units::bandwidth(value),
    };
    let digits = if row.ratio < 9.995 { 2 } else { 1 };
    TABLE.row([
        row.name.to_owned(),
        value(row.dat),
        value(row.baseline),
        format!("{:.digits$} ({:.digits$}–{:.digits$})", row.ratio, row.ratio_min, row.ratio_max),
    ])
}

fn print_foot(document: &Document<'_>, rounds: u32) -> Result<()> {
    let placement = match document.pinned {
        Some([client, server]) => format!("pinned to processors {client} and {server}"),
        None => "on one processor".to_owned(),
    };
    let text = format!(
        "Two processes {placement} (not in unpinned rows and rows with 2 threads), Linux {}. \
         {rounds} rounds of both, in turn; each lasts at least {} ms. Medians, and the median of \
         the rounds' ratios. Adapter {}, provider {}, compared with plain TCP, congestion control \
         {}, or plain UDP. Ping-pong: half a round trip. Requests: 64 outstanding, compared with \
         sockets that epoll watches; 1 request: the round trip. Blocking next to polling: 64 \
         outstanding. 2 threads: at each end, each with a connection of its own through the same \
         adapter; the messages or round trips of both, compared with those of one thread with one \
         connection. Placed next to local: RDMA writes, which complete when they are placed in the \
         peer's memory, compared with completion=local; \"write\": from the post to its \
         completion; \"write and send\": half a round trip of both on one connection.",
        document.circumstances.kernel,
        MIN_TRIAL_TIME.as_millis(),
        document.adapter,
        document.provider,
        document.congestion_control
    );
    writeln!(stdout(), "\n{}", colour(&wrapped(&text, ""), Colour::Faint))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal() {
        let rows = rows_of_watchers(Against::Udp).into_iter().chain(ROWS);
        for row in rows {
            // The results of the two systems differ here as much as any results can.
            let unit = if row.what.is_latency() { 1e-12 } else { 1.0 };
            let rounds = [(123.4e6, 12.34e6), (99e6, 12e6), (150e6, 14e6)];
            let rounds =
                rounds.map(|(dat, baseline)| Round { dat: dat * unit, baseline: baseline * unit });
            let measured = row.measured(rounds.to_vec());
            let line = line(&measured);
            assert!(line.chars().count() <= 80, "{line}");
            let (_, width) = TABLE.columns[0];
            assert!(row.name.chars().count() <= width, "{}", row.name);
            let head = TABLE.row(head(row.against));
            assert!(head.chars().count() <= 80, "{head}");
        }
    }

    #[test]
    fn threads_are_compared_with_one_thread() {
        for row in ROWS {
            let has_threads = matches!(row.what, What::Threads(_));
            assert_eq!(has_threads, row.against == Against::OneThread, "{}", row.name);
            assert_eq!(has_threads, row.name.contains("2 threads"), "{}", row.name);
        }
    }

    #[test]
    fn the_names_of_a_provider_differ() {
        for provider in ["tcp-emu", "softroce", "verbs"] {
            let mut names: Vec<_> = rows_of(provider).into_iter().map(|row| row.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{provider}: {names:?}");
        }
    }
}
