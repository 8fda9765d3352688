//! The program `dat`. Without a command it runs a demonstration; `dat --help` lists the commands.
#![forbid(unsafe_code)]

// The layers, from top to bottom. First the commands:
mod bench;
mod check;
mod conformance;
mod convert;
mod demo;
mod doctor;
mod generate;
mod list;
mod ping;
mod plain;
mod query;
mod register;
mod serve;
mod top;
mod trace;

// The two processes of a measurement, and the conversation with their parent:
mod pair;
mod parent;
mod peer;

// Measuring, by DAT and by plain sockets:
mod connection;
mod measure;
mod plain_sockets;
mod rounds;
mod times;
mod verify;

// Facts about this host, its programs and its registry:
mod cpu;
mod machine;
mod parameters;
mod programs;

// What is printed:
mod output;
mod progress;
mod table;
mod units;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};
use registry::report::printable;
use rustix::io::Errno;

// Defines symbols that a provider in a shared library looks up in the program that loads it.
registry::export_symbols!();

/// Direct Access Transport: RDMA for programs, with or without an RDMA device.
///
/// Without a command: starts a server and a client process on this host, moves data between them
/// with every operation, verifies the data, and prints latency and bandwidth next to those of plain
/// TCP.
#[derive(Parser)]
#[command(name = "dat", version, args_conflicts_with_subcommands = true, after_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Options,
}

/// The environment variables that every adapter reads, in this program and in others.
const ENVIRONMENT: &str = "\
Environment:
  DAT_OVERRIDE=FILE     the registry file to use instead of /etc/dat.conf
  OPENDAT_PARAMS=WORDS  IA parameters without an address, the defaults of every
                        adapter; those of an entry win. Some of them:
                          capture=FILE   write what adapters send and receive to a
                                         pcapng file for Wireshark. %p in the name
                                         is the process id, %n the number of the
                                         adapter in the process. The file must not
                                         exist; append:FILE appends to one that does
                          net=CONDITIONS emulate a network under softroce, such as
                                         loss=1%,delay=200us: see docs/softroce.md
                          mtu=N          the maximum octets of payload in a softroce
                                         packet
                          spin=N         microseconds that a blocking wait polls
                                         before it sleeps
                          stats=on       let `dat top` show what the adapters do
                        builtin=off leaves out the built-in registry entries
  OPENDAT_LOG=WHAT      what adapters log to standard error, as for `dat trace`: a
                        level (warn, info, debug, trace), or levels of targets
                        (dat::cm=debug,dat::ep=trace). The word json among them
                        logs one JSON object per line. Without the variable, the
                        bits of DAPL_DBG_TYPE and DAPL_DBG_DEST apply, as with OFED";

#[derive(Subcommand)]
enum Command {
    /// List the registry's entries, where each comes from, and whether it opens; exits with 1 if
    /// the registry file has errors
    List(list::Options),
    /// Explain why RDMA does not work on this host and what to do: libraries, devices, limits,
    /// ports, the registry; exits with 1 if there is a problem
    Doctor(doctor::Options),
    /// Print all attributes of an adapter and its provider (dat_ia_query)
    Query(query::Options),
    /// Report errors and unusable entries in a registry file, each with its line and column; exits
    /// with 1 if there are errors, 2 if the file cannot be read
    Check(check::Options),
    /// Convert a registry file to its other format, dat.conf to TOML or TOML to dat.conf, and print
    /// it; comments are not kept
    Convert(convert::Options),
    /// Add an entry to a registry file
    Register(register::Register),
    /// Remove entries from a registry file
    Unregister(register::Unregister),
    /// Check that a peer answers and how long it takes: prints each answer as it arrives, then
    /// percentiles
    Ping(ping::Options),
    /// Answer `dat ping` and `dat bench` from other hosts, until killed
    Serve(serve::Options),
    /// Measure latency, bandwidth, message rate and processor time for operations, sizes, depths
    /// and numbers of connections
    Bench(bench::Options),
    /// Run the conformance suite against a provider, case by case; exits with 0 if nothing failed,
    /// 1 if something did, 2 if the provider could not be tested
    Conformance(conformance::Options),
    /// Show what the adapters of a running process do; the process must have been started with
    /// OPENDAT_PARAMS=stats=on
    Top(top::Options),
    /// Run a program and log what its adapters do: connections, states, refused calls, failed
    /// operations
    Trace(trace::Options),
    /// Print a completion script for a shell
    Completions(generate::Completions),
    /// Write the manual pages
    #[command(hide = true)]
    Manual(generate::Manual),
    /// Run one of the two processes of a demonstration or benchmark; the process that starts it
    /// sends the plan
    #[command(hide = true)]
    Peer,
    /// Open one entry of the registry and close it, and report why it does not open; the process
    /// that starts it sends the entry
    #[command(hide = true)]
    Probe,
    /// Start the provider of an entry, and report why its library is not a provider; the process
    /// that starts it sends the entry
    #[command(hide = true)]
    Inspect,
}

/// Options that several commands share: the adapter, its address, and the output format.
#[derive(Args)]
struct Common {
    /// The adapter, by its name in the registry
    #[arg(long, visible_alias = "ia", value_name = "NAME", default_value = "tcp-emu")]
    adapter: String,
    /// The address at which the adapter is reached on this host; by default the one that its entry
    /// names, else 127.0.0.1
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Option<dat::Address>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<dat::Address, &'static str> {
    text.parse()
        .map_err(|_| "expected an IPv4 or IPv6 address of this host, as in 127.0.0.1 or fe80::1%2")
}

/// Returns the address of an adapter whose entry names a device or an address. The adapter cannot
/// be reached at any other address.
fn address_from_entry(name: &str) -> anyhow::Result<Option<dat::Address>> {
    let candidates = dat::registry().list().candidates();
    let of_name = candidates.into_iter().find(|candidate| candidate.entry.ia_name == name);
    match of_name.and_then(|candidate| registry::host::device_parameter(&candidate.entry)) {
        Some(_) => Ok(dat::Adapter::open(name)?.attributes().address),
        None => Ok(None),
    }
}

impl Common {
    /// Returns the address at which this adapter and `others` are reached on this host.
    ///
    /// # Errors
    /// Fails if the address is unusable. The check runs before the two processes start, because the
    /// error is clearer here.
    fn address(&self, others: &[String]) -> anyhow::Result<dat::Address> {
        let address = match self.address {
            Some(address) => address,
            None => std::iter::once(&self.adapter)
                .chain(others)
                .find_map(|name| address_from_entry(name).transpose())
                .transpose()?
                .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST).into()),
        };
        match TcpListener::bind(address.with_port(0)) {
            Ok(_) => Ok(address),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => anyhow::bail!(
                "{address} is not an address of this host; `ip -brief address` lists its \
                  addresses; without --address it is 127.0.0.1"
            ),
            Err(error) if error.kind() == ErrorKind::InvalidInput => anyhow::bail!(
                "{address} does not say on which network device; append the number that \
                 `ip address` shows, as in {address}%2"
            ),
            Err(error) => {
                Err(error).with_context(|| format!("listening on {address} for plain TCP"))
            }
        }
    }
}

/// Reports errors in the registry file first and only once. Afterwards the registry prints no
/// errors: the reason for which an adapter does not open is part of the returned error.
fn report_registry_errors() {
    dat::registry().list();
    registry::report::leave_errors_to_the_caller();
}

/// Returns whether the command line asks for JSON. The arguments after `dat trace` belong to
/// another program.
fn wants_json() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().is_some_and(|first| first != "trace")
        && std::env::args_os().any(|argument| argument == "--json")
}

/// The exit code that a shell reports for a process that SIGPIPE has killed.
const SIGPIPE_EXIT_CODE: u8 = 128 + 13;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| with_option_hint(error).exit());
    let error_code = match &cli.command {
        // Exit code 1 is a verdict on the provider or the file. An error is not a verdict, so it
        // has the code that clap uses for a wrong command line.
        Some(Command::Conformance(_) | Command::Check(_)) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    };
    let outcome = match cli.command {
        None => demo::run(&cli.demo),
        Some(Command::List(options)) => list::run(&options),
        Some(Command::Doctor(options)) => doctor::run(&options),
        Some(Command::Query(options)) => query::run(&options),
        Some(Command::Check(options)) => check::run(&options),
        Some(Command::Inspect) => check::inspect(),
        Some(Command::Convert(options)) => convert::run(&options),
        Some(Command::Register(options)) => register::register(&options),
        Some(Command::Unregister(options)) => register::unregister(&options),
        Some(Command::Ping(options)) => ping::run(&options),
        Some(Command::Serve(options)) => serve::run(&options),
        Some(Command::Bench(options)) => bench::run(&options),
        Some(Command::Conformance(options)) => conformance::run(&options),
        Some(Command::Top(options)) => top::run(&options),
        Some(Command::Trace(options)) => trace::run(&options),
        Some(Command::Completions(options)) => generate::completions(&options),
        Some(Command::Manual(options)) => generate::manual(&options),
        Some(Command::Probe) => list::probe(),
        Some(Command::Peer) => {
            registry::report::leave_errors_to_the_caller();
            return peer::run();
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // The reader has closed the pipe, as in `dat bench | head -1`, before there was a verdict.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(SIGPIPE_EXIT_CODE),
        Err(error) => {
            let is_full = |cause: &(dyn std::error::Error + 'static)| {
                let code =
                    cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
                code == Some(Errno::MFILE.raw_os_error())
            };
            let remedy =
                if error.chain().any(is_full) { "; allow more with ulimit -n" } else { "" };
            let text = format!("{error:#}{remedy}");
            if wants_json() {
                // The error is also on standard error, so it does not matter if standard output is
                // closed.
                let _ = output::print_json(&serde_json::json!({ "error": text }));
            }
            eprintln!("dat: {}", printable(&text));
            error_code
        }
    }
}

/// Adds a hint to clap's error for `dat --json list`, which only says that the option and the
/// command cannot be combined. The hint says where the option belongs.
fn with_option_hint(mut error: clap::Error) -> clap::Error {
    let context =
        [ContextKind::PriorArg, ContextKind::InvalidSubcommand].map(|kind| error.get(kind));
    if let [Some(ContextValue::String(option)), Some(ContextValue::String(command))] = context {
        let tip = format!("write the option after the command: dat {command} {option}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
