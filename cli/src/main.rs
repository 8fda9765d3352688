//! The program `dat`. Without arguments it shows that DAT works here; `dat --help` has the rest.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod conformance;
mod convert;
mod cpu;
mod demo;
mod doctor;
mod generate;
mod link;
mod list;
mod machine;
mod measure;
mod output;
mod pair;
mod parameters;
mod parent;
mod peer;
mod ping;
mod plain;
mod programs;
mod progress;
mod query;
mod raw;
mod register;
mod rounds;
mod serve;
mod table;
mod times;
mod top;
mod trace;
mod units;
mod verify;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand};
use registry::report::printable;
use rustix::io::Errno;

// What a provider that is a shared library looks for in the program that loads it.
registry::export_symbols!();

/// Direct Access Transport: RDMA for programs, with or without an RDMA device.
///
/// Without a command: starts a server and a client process on this host, moves data between them in every way there
/// is, verifies it, and prints how fast that was, next to plain TCP.
#[derive(Parser)]
#[command(name = "dat", version, args_conflicts_with_subcommands = true, after_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Options,
}

/// What the adapters of every command heed, in programs other than this one, too.
const ENVIRONMENT: &str = "\
Environment:
  DAT_OVERRIDE=FILE     the registry's file, instead of /etc/dat.conf
  OPENDAT_BUILTIN=0     without the entries that are built in
  OPENDAT_CAPTURE=FILE  a pcapng file, for Wireshark, of what adapters send and
                        receive; %p in its name is the process id, %n the number
                        of the adapter in the process. The file must not be
                        there, or append:FILE goes on behind what it has. An
                        entry's IA parameters may say capture=FILE instead
  OPENDAT_LOG=WHAT      what adapters tell on standard error, as `dat trace` has
                        it: a level (warn, info, debug, trace), or levels of
                        targets (dat::cm=debug,dat::ep=trace). Else the bits of
                        DAPL_DBG_TYPE and DAPL_DBG_DEST count, as with OFED
  OPENDAT_LOG_FORMAT=json  one JSON object a line, instead of text
  OPENDAT_MTU=N         softroce's octets of payload in a packet, at most
  OPENDAT_NET=WORDS     an emulated network for softroce: loss=1%,delay=200us and
                        others, as docs/softroce.md says
  OPENDAT_STATS=1       tells `dat top` what the process's adapters do
  OPENDAT_SPIN_US=N     microseconds that a blocking wait polls before it sleeps";

#[derive(Subcommand)]
enum Command {
    /// List the entries of the registry, where each came from, and whether it opens; exits with 1 if the registry's file has
    /// mistakes
    List(list::Options),
    /// Say why RDMA does not work here, and what to do: libraries, devices, limits, ports, the registry; exits with 1 if there
    /// is a problem
    Doctor(doctor::Options),
    /// Print everything that an adapter and its provider say of themselves (dat_ia_query)
    Query(query::Options),
    /// Say what is wrong with a registry file, and what in it will never be of use, each with its place; exits with 1 if there
    /// are errors, 2 if it cannot be read
    Check(check::Options),
    /// Print a registry file in its other form: a dat.conf as TOML, TOML as a dat.conf; comments are not kept
    Convert(convert::Options),
    /// Put an entry into a registry file
    Register(register::Register),
    /// Take entries out of a registry file
    Unregister(register::Unregister),
    /// Say whether a peer answers and how long that takes: each answer as it comes, and percentiles
    Ping(ping::Options),
    /// Answer `dat ping` and `dat bench` of other hosts, until it is killed
    Serve(serve::Options),
    /// Measure latency, bandwidth, message rate and processor time, over operations, sizes, depths and connections
    Bench(bench::Options),
    /// Ask a provider everything that the standard requires of it, case by case; exits with 0 if nothing failed, 1 if
    /// something did, 2 if the provider could not be asked
    Conformance(conformance::Options),
    /// Show what the adapters of a process do, while it runs; it has to be started with OPENDAT_STATS=1
    Top(top::Options),
    /// Run a program, and print what its adapters do: connections, states, refused calls, failed operations
    Trace(trace::Options),
    /// Print what a shell has to know to complete the arguments of this program
    Completions(generate::Completions),
    /// Write the pages of the manual
    #[command(hide = true)]
    Manual(generate::Manual),
    /// One of the two processes of a demonstration or benchmark; takes its plan from the process that starts it
    #[command(hide = true)]
    Peer,
    /// Open one entry of the registry and close it, and say why not
    #[command(hide = true)]
    Probe(list::Probe),
    /// Load a library, and say why it is no provider
    #[command(hide = true)]
    Inspect(check::Inspection),
}

/// Which adapter the two processes use, and how the result is printed.
#[derive(Args)]
struct Common {
    /// The adapter, by its name in the registry
    #[arg(long, visible_alias = "ia", value_name = "NAME", default_value = "tcp-emu")]
    adapter: String,
    /// The address at which the adapter is reached on this host; without it that which its entry names, else 127.0.0.1
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

/// The address of an adapter whose entry names a place: it is not reached at any other.
fn served(name: &str) -> anyhow::Result<Option<dat::Address>> {
    let candidates = dat::registry().list().candidates();
    let of_name = candidates.into_iter().find(|candidate| candidate.entry.ia_name == name);
    match of_name.and_then(|candidate| registry::host::device_parameter(&candidate.entry)) {
        Some(_) => Ok(dat::Adapter::open(name)?.attributes().address),
        None => Ok(None),
    }
}

impl Common {
    /// The address at which this adapter and others are reached on this host.
    ///
    /// # Errors
    /// What can be said better before the two processes start: that the address is of no use.
    fn address(&self, others: &[String]) -> anyhow::Result<dat::Address> {
        let address = match self.address {
            Some(address) => address,
            None => std::iter::once(&self.adapter)
                .chain(others)
                .find_map(|name| served(name).transpose())
                .transpose()?
                .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST).into()),
        };
        match TcpListener::bind(address.with_port(0)) {
            Ok(_) => Ok(address),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => anyhow::bail!(
                "{address} is not an address of this host; `ip -brief address` lists those that are, and \
                 without --address it is 127.0.0.1"
            ),
            Err(error) if error.kind() == ErrorKind::InvalidInput => anyhow::bail!(
                "{address} does not say on which network device; add the number that `ip address` shows, as in \
                 {address}%2"
            ),
            Err(error) => {
                Err(error).with_context(|| format!("listening on {address} for plain TCP"))
            }
        }
    }
}

/// What is wrong with the registry's file is said first, once; why nothing opens comes with the error.
fn say_mistakes() {
    dat::registry().list();
    registry::report::leave_errors_to_the_caller();
}

/// Whether the result was to be a document. What stands behind `dat trace` is for another program.
fn for_machines() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().is_some_and(|first| first != "trace")
        && std::env::args_os().any(|argument| argument == "--json")
}

/// As a shell shows the end of a program by SIGPIPE.
const NOBODY_READS: u8 = 128 + 13;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| explained(error).exit());
    let trouble = match &cli.command {
        // 1 is a verdict on the provider or the file, this is none: as clap's for a wrong command line.
        Some(Command::Conformance(_) | Command::Check(_)) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    };
    let outcome = match cli.command {
        None => demo::run(&cli.demo),
        Some(Command::List(options)) => list::run(&options),
        Some(Command::Doctor(options)) => doctor::run(&options),
        Some(Command::Query(options)) => query::run(&options),
        Some(Command::Check(options)) => check::run(&options),
        Some(Command::Inspect(inspection)) => check::inspect(&inspection),
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
        Some(Command::Probe(probe)) => list::probe(&probe),
        Some(Command::Peer) => {
            registry::report::leave_errors_to_the_caller();
            return peer::run();
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Whoever reads our output has read enough (`dat bench | head -1`), before there was a verdict.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(NOBODY_READS),
        Err(error) => {
            let is_full = |cause: &(dyn std::error::Error + 'static)| {
                let code =
                    cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
                code == Some(Errno::MFILE.raw_os_error())
            };
            let remedy =
                if error.chain().any(is_full) { "; allow more with ulimit -n" } else { "" };
            let text = format!("{error:#}{remedy}");
            if for_machines() {
                // On standard error it is said, too: a closed standard output is not worth failing for.
                let _ = output::print_json(&serde_json::json!({ "error": text }));
            }
            eprintln!("dat: {}", printable(&text));
            trouble
        }
    }
}

/// What clap says of `dat --json list` is that the two do not go together.
fn explained(mut error: clap::Error) -> clap::Error {
    let context =
        [ContextKind::PriorArg, ContextKind::InvalidSubcommand].map(|kind| error.get(kind));
    if let [Some(ContextValue::String(option)), Some(ContextValue::String(command))] = context {
        let tip = format!("options of a command stand behind it: dat {command} {option}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
