//! `dapltest`: transaction (`-T T`), performance (`P`), limit (`L`) and function (`F`) tests, and
//! quit (`Q`).
//!
//! `-T T -r` uses reserved service points, and `-P` polls. Debian's dapltest lists `-Q` among the
//! options of `-T T` and then refuses it, so there is no such variant. dapltest itself fails in two
//! other variants: `-T T -V` with several segments whose size is not a multiple of 256 reports
//! wrong data, even between two kernels, and `-T L -w N` gives endpoints of one adapter the EVD of
//! another.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use opendat_tests::{Ended, PROVIDERS, Registry, Running, Stop, find_program};

use crate::Case;
use crate::pair::{LIMIT, Pair, ProgramPlace, Route, bad_lines, missing_texts};

/// All cases of `-T F -f queryinfo`.
pub(crate) const QUERYINFO_CASES: &[u32] =
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];

/// The entry for the feature `queryinfo` in [`FEATURES`]: its name and the number of its cases.
pub(crate) const QUERYINFO: (&str, u32) = ("queryinfo", QUERYINFO_CASES.len() as u32);

/// The number of objects that `-T L -m 1000` creates, unless it fails earlier.
const MAX_OBJECTS: u32 = 1000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![quit(), small_transaction()];
    cases.extend(TRANSACTIONS.iter().map(Transaction::case));
    cases.extend(PERFORMANCES.iter().map(Performance::case));
    cases.push(limits());
    cases.extend(FEATURES.iter().copied().map(functions));
    cases
}

/// The features that `-T F` tests, each with the number of its cases.
pub(crate) const FEATURES: &[(&str, u32)] =
    &[("hwconn", 4), ("endpoint", 3), ("pz", 3), ("mem", 5), ("connmgt", 2)];

/// Returns a case that starts a server and runs no test. Its only client tells the server to quit.
pub(crate) fn quit() -> Case {
    Case::new("dapltest::quit", |registry| {
        let pair = with_server(registry, &Route::LOOPBACK, None)?;
        pair.verdict(&complaints_about_ends(&pair, &Route::LOOPBACK)).map_err(Stop::Fail)
    })
}

// ---- transactions -------------------------------------------------------------------------------

#[derive(Clone, Copy)]
pub(crate) struct Transaction {
    name: &'static str,
    options: &'static [&'static str],
    threads: u64,
    endpoints: u64,
    iterations: u64,
    validate: bool,
    operations: &'static [Op],
}

/// One operation: the side, the transfer, the octets in a segment, and the number of segments.
struct Op(&'static str, Transfer, u64, u64);

#[derive(Clone, Copy, PartialEq)]
enum Transfer {
    Send,
    /// A send whose completion the sender takes only when the answer arrives.
    SendReapedLate,
    Read,
    Write,
}

use Transfer::{Read, Send, SendReapedLate, Write};

const MIX: &[Op] = &[
    Op("client", Send, 4096, 2),
    Op("server", Send, 1024, 3),
    Op("client", Write, 4096, 4),
    Op("server", Write, 256, 2),
    Op("client", Read, 4096, 2),
    Op("server", Read, 1000, 1),
];
const LARGE: &[Op] = &[
    Op("client", Send, 65536, 4),
    Op("server", Send, 65536, 4),
    Op("client", Write, 131_072, 4),
    Op("server", Read, 131_072, 4),
];
const PING: &[Op] = &[Op("client", SendReapedLate, 256, 1), Op("server", SendReapedLate, 256, 1)];

const fn transaction(name: &'static str, options: &'static [&'static str]) -> Transaction {
    Transaction {
        name,
        options,
        threads: 4,
        endpoints: 8,
        iterations: 1000,
        validate: true,
        operations: MIX,
    }
}

const TRANSACTIONS: &[Transaction] = &[
    transaction("mix", &[]),
    transaction("mix_polling", &["-P"]),
    Transaction { iterations: 100, ..transaction("mix_reserved_service_points", &["-r"]) },
    Transaction { validate: false, ..transaction("mix_without_validation", &[]) },
    Transaction {
        threads: 2,
        endpoints: 2,
        iterations: 200,
        operations: LARGE,
        ..transaction("large", &[])
    },
    Transaction {
        threads: 1,
        endpoints: 1,
        iterations: 5000,
        operations: PING,
        ..transaction("ping", &[])
    },
];

pub(crate) fn small_transaction() -> Case {
    Transaction { threads: 1, endpoints: 1, iterations: 100, ..transaction("small", &[]) }.case()
}

/// Transactions for transfers between hosts and under slow networks.
pub(crate) const BETWEEN: &[Transaction] = &[
    Transaction { threads: 2, endpoints: 2, iterations: 200, ..transaction("mix", &[]) },
    Transaction {
        threads: 1,
        endpoints: 2,
        iterations: 50,
        operations: LARGE,
        ..transaction("large", &["-P"])
    },
];

/// A transfer with a guest that is long enough for several outages.
pub(crate) const LONG_WITH_GUEST: Transaction = Transaction { iterations: 1500, ..WITH_GUEST[0] };

/// Transactions for a peer in the guest, which is emulated and slow. A read on siw goes into one
/// segment, because siw accepts more segments but fills only the first.
pub(crate) const WITH_GUEST: &[Transaction] = &[
    Transaction {
        threads: 2,
        endpoints: 2,
        iterations: 50,
        operations: &[
            Op("client", Send, 4096, 2),
            Op("server", Send, 1024, 3),
            Op("client", Write, 4096, 4),
            Op("server", Write, 256, 2),
            Op("client", Read, 4096, 1),
            Op("server", Read, 1000, 1),
        ],
        ..transaction("mix", &[])
    },
    Transaction {
        threads: 1,
        endpoints: 2,
        iterations: 10,
        operations: &[
            Op("client", Send, 65536, 4),
            Op("server", Send, 65536, 4),
            Op("client", Write, 131_072, 4),
            Op("server", Read, 524_288, 1),
        ],
        ..transaction("large", &["-P"])
    },
];

/// Transfers with a guest that loses packets, each with one operation. In the first table, the
/// guest is the client.
pub(crate) const OF_LOSSY_CLIENT: &[Transaction] = &[
    of_lossy("write", &[Op("client", Write, 1 << 18, 1)]),
    of_lossy("read", &[Op("client", Read, 1 << 16, 1)]),
    of_lossy("send", &[Op("client", Send, 1 << 18, 1)]),
];
/// The same transfers for a guest that is the server.
pub(crate) const OF_LOSSY_SERVER: &[Transaction] = &[
    of_lossy("write", &[Op("server", Write, 1 << 18, 1)]),
    of_lossy("read", &[Op("server", Read, 1 << 16, 1)]),
    of_lossy("send", &[Op("server", Send, 1 << 18, 1)]),
];

const fn of_lossy(name: &'static str, operations: &'static [Op]) -> Transaction {
    Transaction { threads: 1, endpoints: 2, iterations: 4, operations, ..transaction(name, &[]) }
}

/// Transfers of eight endpoints at the same time, each with data in one direction.
pub(crate) const INCAST: Transaction = Transaction { iterations: 1, ..READS };
pub(crate) const READS: Transaction = of_one("reads", &[Op("client", Read, 1 << 20, 1)]);
pub(crate) const WRITES: Transaction = of_one("writes", &[Op("client", Write, 1 << 20, 1)]);
pub(crate) const SENDS: Transaction = of_one("sends", &[Op("client", Send, 1 << 20, 1)]);

/// The same for twenty endpoints.
pub(crate) const READS_OF_20: Transaction = Transaction {
    endpoints: 20,
    iterations: 1,
    ..of_one("reads_of_20", &[Op("client", Read, 1 << 18, 1)])
};
pub(crate) const WRITES_OF_20: Transaction =
    Transaction { endpoints: 20, iterations: 1, ..of_one("writes_of_20", WRITES.operations) };

const fn of_one(name: &'static str, operations: &'static [Op]) -> Transaction {
    Transaction { threads: 1, endpoints: 8, iterations: 4, operations, ..transaction(name, &[]) }
}

/// A transfer that is long enough for one outage.
pub(crate) const LONG: Transaction =
    Transaction { threads: 2, endpoints: 2, iterations: 2000, ..transaction("long", &[]) };

/// A transfer that does not end by itself.
pub(crate) const ENDLESS: Transaction = Transaction {
    threads: 1,
    endpoints: 1,
    iterations: 1_000_000,
    validate: false,
    ..transaction("endless", &[])
};

impl Transaction {
    fn case(&self) -> Case {
        let transaction = *self;
        Case::new(self.title(), move |registry| transaction.run(registry, &Route::LOOPBACK))
    }

    pub(crate) fn title(&self) -> String {
        format!("dapltest::transaction_{}", self.name)
    }

    pub(crate) fn run(&self, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        self.time(registry, route).map(drop)
    }

    /// Runs the transaction, and returns the seconds that dapltest has measured.
    pub(crate) fn time(&self, registry: &Registry, route: &Route<'_>) -> Result<f64, Stop> {
        let pair = with_server(registry, route, Some(&self.args()))?;
        let mut complaints = complaints_about_ends(&pair, route);
        let wanted = format!("----- Stats ---- : {} threads, {} EPs", self.threads, self.endpoints);
        complaints.extend(missing_texts("client", &pair.client.text, &[&wanted]));
        for (label, bytes) in self.totals() {
            let expected = bytes as f64 / 1e6;
            let found = total(&pair.client.text, label);
            // dapltest prints two decimals, so a small difference is allowed.
            if found.is_none_or(|found| (found - expected).abs() > 0.02) {
                complaints.push(format!(
                    "{label} is {found:?} MB, {expected:.2} MB were to be transferred"
                ));
            }
        }
        pair.verdict(&complaints)?;
        let seconds = total(&pair.client.text, "Total Time");
        seconds.ok_or_else(|| Stop::Fail(format!("no time in\n{}", pair.client.text)))
    }

    /// Returns the octets of all operations.
    pub(crate) fn octets(&self) -> u64 {
        let octets = self.operations.iter().map(|Op(_, _, size, segments)| size * segments);
        octets.sum::<u64>() * self.threads * self.endpoints * self.iterations
    }

    /// Returns the rate of a run that took this long, in MB/s.
    pub(crate) fn rate(&self, seconds: f64) -> f64 {
        self.octets() as f64 / seconds / 1e6
    }

    /// Starts the server and the client of dapltest, and does not wait until they end.
    pub(crate) fn start(
        &self,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(Running, Running), Stop> {
        let [server, client, _] = commands(registry, route, &self.args())?;
        let deadline = Instant::now() + LIMIT;
        let server = Running::start("server", route.server.command(server), registry, deadline)?;
        server.wait_for(READY)?;
        let client = Running::start("client", route.client.command(client), registry, deadline)?;
        Ok((server, client))
    }

    fn args(&self) -> Vec<String> {
        let mut args: Vec<String> = vec!["-T".into(), "T".into()];
        args.extend([
            "-t".into(),
            self.threads.to_string(),
            "-w".into(),
            self.endpoints.to_string(),
        ]);
        args.extend(["-i".into(), self.iterations.to_string()]);
        args.extend(self.options.iter().map(|&option| option.to_owned()));
        if self.validate {
            args.push("-V".into());
        }
        for Op(who, transfer, size, segments) in self.operations {
            let what = match transfer {
                Send | SendReapedLate => "SR",
                Read => "RR",
                Write => "RW",
            };
            args.extend([(*who).to_owned(), what.into(), size.to_string(), segments.to_string()]);
            if *transfer == SendReapedLate {
                args.push("-f".into());
            }
        }
        args
    }

    /// Returns the totals that the client's statistics must show, in octets. The totals count the
    /// work of the threads that finished.
    fn totals(&self) -> [(&'static str, u64); 4] {
        let mut totals =
            [("Total Send", 0), ("Total Recv", 0), ("Total RDMA Read", 0), ("Total RDMA Write", 0)];
        let validation =
            [Op("server", Send, 4096, 1), Op("client", Send, 4096, 1), Op("server", Send, 4096, 1)];
        let added = if self.validate { &validation[..] } else { &[] };
        for Op(who, transfer, size, segments) in self.operations.iter().chain(added) {
            let index = match transfer {
                Send | SendReapedLate => usize::from(*who == "server"),
                Read => 2,
                Write => 3,
            };
            totals[index].1 += size * segments * self.threads * self.endpoints * self.iterations;
        }
        totals
    }
}

/// Returns the number of MB in a line like `Total Send       :     131.07 MB - …`.
fn total(text: &str, label: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(label))?;
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

// ---- performance --------------------------------------------------------------------------------

#[derive(Clone, Copy)]
pub(crate) struct Performance {
    name: &'static str,
    mode: &'static str,
    pipeline: &'static str,
    operation: &'static [&'static str],
}

pub(crate) const PERFORMANCES: &[Performance] = &[
    Performance {
        name: "read_blocking",
        mode: "b",
        pipeline: "4",
        operation: &["RR", "4096", "1"],
    },
    Performance { name: "read_polling", mode: "p", pipeline: "4", operation: &["RR", "4096", "1"] },
    Performance {
        name: "write_blocking",
        mode: "b",
        pipeline: "8",
        operation: &["RW", "4096", "2"],
    },
    Performance {
        name: "write_polling",
        mode: "p",
        pipeline: "8",
        operation: &["RW", "65536", "2"],
    },
];

impl Performance {
    fn case(&self) -> Case {
        let performance = *self;
        Case::new(self.title(), move |registry| performance.run(registry, &Route::LOOPBACK))
    }

    pub(crate) fn title(&self) -> String {
        format!("dapltest::performance_{}", self.name)
    }

    pub(crate) fn run(&self, registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
        let args = ["-T", "P", "-i", "1000", "-m", self.mode, "-p", self.pipeline];
        let args: Vec<String> =
            args.iter().chain(self.operation).map(|&arg| arg.to_owned()).collect();
        let pair = with_server(registry, route, Some(&args))?;
        let mut complaints = complaints_about_ends(&pair, route);
        // dapltest prints these texts only after all operations of both phases have completed.
        let wanted = ["Statistics", "Operation Throughput", "Bandwidth"];
        complaints.extend(missing_texts("client", &pair.client.text, &wanted));
        pair.verdict(&complaints).map_err(Stop::Fail)
    }
}

// ---- limits -------------------------------------------------------------------------------------

/// Tests that `MAX_OBJECTS` objects of most types can be created. This project limits posted
/// receives and the size of an LMR below what dapltest tries, and for some providers the file
/// descriptors also limit open adapters. dapltest must reach each of these limits and must fail in
/// no other way.
///
/// The test does not use `-w`, with which the endpoints of the second adapter would get an EVD of
/// the first adapter.
fn limits() -> Case {
    Case::new("dapltest::limits", |registry| {
        let ended =
            alone(registry, &ProgramPlace::Here, &["-T", "L", "-m", &MAX_OBJECTS.to_string()])?;
        let counted = ["PZs", "CNOs", "EVDs", "EPs", "RSPs", "PSPs", "LMRs"];
        let mut wanted: Vec<String> =
            counted.iter().map(|what| format!("{what} created: {MAX_OBJECTS}")).collect();
        let provider = PROVIDERS.iter().find(|provider| provider.ia == registry.ia());
        let least_ias = provider.and_then(|provider| provider.least_ias).unwrap_or(MAX_OBJECTS);
        wanted.push("recv buffers posted per EP: ".into());
        wanted.push("LMR of 0x40000000 bytes OK".into());
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let mut complaints = missing_texts("dapltest", &ended.text, &wanted);
        let ias = ended.text.split_once("IAs opened: ").and_then(|(_, rest)| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<u32>().ok()
        });
        if ias.is_none_or(|ias| ias < least_ias) {
            complaints
                .push(format!("dapltest has opened {ias:?} IAs, expected {least_ias} or more"));
        }
        let full = "dat_ep_post_recv fails: DAT_INSUFFICIENT_RESOURCES";
        // A run that can open all adapters does not print this line.
        let all_open =
            format!("#{} fails: DAT_INSUFFICIENT_RESOURCES", ias.map_or(0, |ias| ias + 1));
        complaints.extend(bad_lines(
            "dapltest",
            &ended.text,
            &["fails", "error", "bogus", "o memory"],
            &[full, &all_open, "raise the limit of descriptors (ulimit -n)"],
        ));
        judge(&complaints, &ended)
    })
}

/// Runs the same test with fewer objects for an adapter in the guest, which is emulated and lacks
/// the memory for the largest region.
pub(crate) fn limits_in_guest(registry: &Registry, place: &ProgramPlace<'_>) -> Result<(), Stop> {
    const MAX_OBJECTS_IN_GUEST: &str = "100";
    let counted = ["ia", "pz", "cno", "evd", "ep", "rsp", "psp", "lmr"];
    let tests = counted.map(|what| format!("limit_{what}"));
    let mut args = vec!["-T", "L", "-m", MAX_OBJECTS_IN_GUEST, "limit_rpost"];
    args.extend(tests.iter().map(String::as_str));
    let ended = alone(registry, place, &args)?;
    let wanted = counted.map(|what| match what {
        "ia" => format!("IAs opened: {MAX_OBJECTS_IN_GUEST}"),
        what => format!("{}s created: {MAX_OBJECTS_IN_GUEST}", what.to_uppercase()),
    });
    let mut complaints =
        missing_texts("dapltest", &ended.text, &wanted.each_ref().map(String::as_str));
    complaints.extend(missing_texts("dapltest", &ended.text, &["recv buffers posted per EP: "]));
    let full = "dat_ep_post_recv fails: DAT_INSUFFICIENT_RESOURCES";
    complaints.extend(bad_lines(
        "dapltest",
        &ended.text,
        &["fails", "error", "bogus", "o memory"],
        &[full],
    ));
    judge(&complaints, &ended)
}

// ---- functions ----------------------------------------------------------------------------------

fn functions((feature, cases): (&'static str, u32)) -> Case {
    function_cases(&format!("fft_{feature}"), feature, &(0..cases).collect::<Vec<_>>())
}

pub(crate) fn queryinfo(name: &str, cases: &[u32]) -> Case {
    function_cases(name, "queryinfo", cases)
}

fn function_cases(name: &str, feature: &'static str, cases: &[u32]) -> Case {
    let cases = cases.to_vec();
    Case::new(format!("dapltest::{name}"), move |registry| {
        run_functions(registry, &Route::LOOPBACK, feature, &cases)
    })
}

/// Runs function tests (`-T F`), which need no server: the client's adapter connects to itself.
pub(crate) fn run_functions(
    registry: &Registry,
    route: &Route<'_>,
    feature: &str,
    cases: &[u32],
) -> Result<(), Stop> {
    let names: Vec<String> = cases.iter().map(|case| format!("case{case}")).collect();
    let mut args = vec!["-T", "F", "-f", feature, "-s", route.to];
    args.extend(names.iter().map(String::as_str));
    let ended = alone(registry, &route.client, &args)?;
    // dapltest may print PASS as the result although an assertion has failed, so the output is
    // searched for failed assertions.
    let mut complaints = bad_lines(
        "dapltest",
        &ended.text,
        &["failed in file", "Result: FAIL", "Warning", "ERROR"],
        &[],
    );
    for case in cases {
        let result = result_of(&ended.text, *case);
        // dapltest leaves out only case 5 of `queryinfo`: CRs cannot be queried without a peer.
        let expected = if feature == "queryinfo" && *case == 5 { "UNSUPP" } else { "PASS" };
        if result != Some(expected) {
            complaints.push(format!("case {case}: result {result:?} instead of {expected}"));
        }
    }
    judge(&complaints, &ended)
}

/// Returns the text after `Result: ` of a case.
fn result_of(text: &str, case: u32) -> Option<&str> {
    let header = format!("case: {case}");
    let mut lines = text.lines().skip_while(|line| !line.ends_with(&header));
    lines.find_map(|line| line.trim().strip_prefix("Result: "))
}

// ---- running ------------------------------------------------------------------------------------

/// The line that a server prints when it listens.
const READY: &str = "Service Point Ready";

/// Runs three programs: a server on ports of its own, a client that does `work` if there is any,
/// and a client that tells the server to quit.
fn with_server(
    registry: &Registry,
    route: &Route<'_>,
    work: Option<&[String]>,
) -> Result<Pair, Stop> {
    let [server, client, quit] = commands(registry, route, work.unwrap_or_default())?;
    let ready = |server: &Running| server.wait_for(READY).map(drop);
    let client = work.map(|_| ("client", route.client, client));
    if let ProgramPlace::Guest(..) = route.server {
        // A server in the guest is killed and not told to quit. A client that tells the server to
        // quit ends immediately after its message. At that time the kernel (siw) has perhaps not
        // noted yet that the server's first message was sent. Then siw fails this message, and the
        // server complains.
        let (server, client) = Pair::serve(registry, route, server, ready, client)?;
        // The server prints nothing about performance tests, so only other work is checked.
        if !work.is_some_and(|work| work.iter().any(|arg| arg == "P")) {
            server.wait_for("Finished for this client")?;
        }
        return Ok(Pair { server: server.kill()?, client });
    }
    // A client in the guest does not tell a server on this host to quit, because the client would
    // end as soon as it gets the answer. A client on this host does so instead.
    let teller =
        if let ProgramPlace::Guest(..) = route.client { route.server } else { route.client };
    let quit = ("quitting client", teller, quit);
    Ok(Pair::run(registry, route, server, ready, client.into_iter().chain([quit]))?)
}

/// Returns the commands of the server, of the client with its work, and of the client that tells
/// the server to quit.
fn commands(registry: &Registry, route: &Route<'_>, work: &[String]) -> Result<[Command; 3], Stop> {
    let program = find_program("dapltest", "dapl2-utils")?;
    let port = free_ports().to_string();
    let command = |test: &[&str]| {
        let mut command = Command::new(&program);
        command.args(test).args(["-D", registry.ia(), "-n", &port]);
        command
    };
    // The operations must be the last arguments.
    let options =
        work.iter().take_while(|arg| !["client", "server", "RR", "RW"].contains(&arg.as_str()));
    let options: Vec<&str> = options.map(String::as_str).collect();
    let mut client = command(&options);
    client.args(["-s", route.to]).args(&work[options.len()..]);
    let quit = command(&["-T", "Q", "-s", route.to]);
    Ok([command(&["-T", "S"]), client, quit])
}

/// Runs a test of dapltest that needs no server.
fn alone(registry: &Registry, place: &ProgramPlace<'_>, args: &[&str]) -> Result<Ended, Stop> {
    let program = find_program("dapltest", "dapl2-utils")?;
    let mut command = Command::new(program);
    command
        .args(&args[..2])
        .args(["-D", registry.ia(), "-n", &free_ports().to_string()])
        .args(&args[2..]);
    let ended =
        Running::start("dapltest", place.command(command), registry, Instant::now() + LIMIT)?
            .end()?;
    ended.succeeded("dapltest")?;
    Ok(ended)
}

fn judge(complaints: &[String], ended: &Ended) -> Result<(), Stop> {
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Stop::Fail(format!("{}\n--- output of dapltest\n{}", complaints.join("\n"), ended.text)))
}

/// Returns complaints about the output of a server and a client. Both should have ended in order.
fn complaints_about_ends(pair: &Pair, route: &Route<'_>) -> Vec<String> {
    let bad = [
        "rror", "FAIL", "ail", "ismatch", "arning", "bad ", "annot", "o memory", "etrying",
        "nvalid", "NOTICE",
    ];
    // siw fails a message and the queue pair if the peer disconnects as soon as it has received the
    // message, because siw has perhaps not noted that the message was sent. The peer of dapltest
    // disconnects after the last message.
    let harmless = |place| match place {
        ProgramPlace::Guest(guest, _) if guest.has_device("siw") => {
            &["DAT_CONNECTION_EVENT_BROKEN", "bad disconnect event"][..]
        }
        _ => &[],
    };
    let mut complaints = bad_lines("server", &pair.server.text, &bad, harmless(route.server));
    complaints.extend(bad_lines("client", &pair.client.text, &bad, harmless(route.client)));
    // A server that was killed after its work does not print this text.
    if pair.server.status.success() {
        complaints.extend(missing_texts("server", &pair.server.text, &["Exiting."]));
    }
    complaints.extend(missing_texts(
        "client",
        &pair.client.text,
        &["End of Work -- Client Exiting"],
    ));
    complaints
}

/// Returns the first of 100 free ports: one port for dapltest's control connection, and the next
/// ones for the endpoints of a test. All are below the range from which the system gives ports to
/// clients. A range is used again only after the 99 others, when the test that had the range has
/// long ended.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let tries =
        std::iter::repeat_with(|| 22_000 + 100 * (NEXT.fetch_add(1, Ordering::Relaxed) % 100));
    let free = |port: &u16| TcpListener::bind(("0.0.0.0", *port)).is_ok();
    tries.take(100).find(free).expect("free ports below 32000")
}
