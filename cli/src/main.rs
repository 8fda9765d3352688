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
mod query;
mod register;
mod serve;
mod top;
mod trace;

// The arguments that several commands have:
mod arguments;

// What the two processes of a measurement do. The crate `measurement` starts them:
mod tasks;

// Further measurements:
mod copying;
mod times;
mod verify;

// Facts about this host, its programs and its registry:
mod parameters;
mod programs;

// The output of all commands:
mod output;
mod progress;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};
use measurement::text_table;
use rustix::io::Errno;
use telemetry::printable;

// Defines symbols that a provider in a shared library looks up in the program that loads it.
registry::export_symbols!();

/// Direct Access Transport: RDMA for programs, with or without an RDMA device.
///
/// Without a command: starts a server and a client process on this host, moves data between them
/// with every operation, verifies the data, and prints latency and bandwidth next to those of plain
/// TCP.
#[derive(Parser)]
#[command(name = "dat", version, args_conflicts_with_subcommands = true, after_help = ENVIRONMENT)]
#[command(max_term_width = text_table::TERMINAL_WIDTH)]
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
  OPENDAT_PARAMS=WORDS  default IA parameters of every adapter, but no address;
                        those of a registry entry take precedence. Some are:
    capture=FILE        write what adapters send and receive to a pcapng file
                        for Wireshark. %p in the name is the process id, %n the
                        number of the adapter in the process. The file must not
                        exist; append:FILE appends to an existing file.
                        FILE,max=100M ends the capture at this size
    net=CONDITIONS      emulate a network under softroce, such as
                        loss=1%,delay=200us: see docs/softroce.md
    mtu=N               the maximum octets of payload in a softroce packet
    spin=N              microseconds that a blocking wait polls before it sleeps
    stats=on            let `dat top` show what the adapters do
    builtin=off         leave out the built-in registry entries
  OPENDAT_LOG=WHAT      what adapters log to standard error, as for `dat trace`:
                        a level (warn, info, debug, trace), or levels of targets
                        (dat::cm=debug,dat::ep=trace). The word json among them
                        logs one JSON object per line. Without the variable, the
                        bits of DAPL_DBG_TYPE apply, as with OFED. The bits of
                        DAPL_DBG_DEST choose the destination: 1 standard output,
                        2 the system log";

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
    /// Run one of the two processes of a demonstration or benchmark; the parent process sends the
    /// plan
    #[command(hide = true)]
    Peer,
    /// Open and close one entry of the registry, and report why the entry does not open; the parent
    /// process sends the entry
    #[command(hide = true)]
    OpenEntry,
    /// Start the provider of an entry, and report why its library is not a provider; the parent
    /// process sends the entry
    #[command(hide = true)]
    Inspect,
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
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let error = with_option_hint(error);
        // Help and the version also arrive here. They are no errors.
        if error.use_stderr() && wants_json() {
            print_error_document(error.to_string().trim_start_matches("error: ").trim_end());
        }
        error.exit()
    });
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
        Some(Command::Completions(options)) => generate::completions(&options, &Cli::command()),
        Some(Command::Manual(options)) => generate::manual(&options, Cli::command()),
        Some(Command::OpenEntry) => list::open_received(),
        Some(Command::Peer) => return measurement::peer::run::<tasks::Task>(),
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
                print_error_document(&text);
            }
            eprintln!("dat: {}", printable(&text));
            error_code
        }
    }
}

/// Prints an error as a JSON document. The error is also on standard error, so it does not matter
/// if standard output is closed.
fn print_error_document(error: &str) {
    let _ = output::print_json(&serde_json::json!({ "error": error }));
}

/// Adds a hint to clap's error for `dat --json list`, which only says that the option and the
/// command cannot be combined. The hint says where the option belongs, if there is such a command.
fn with_option_hint(mut error: clap::Error) -> clap::Error {
    let context =
        [ContextKind::PriorArg, ContextKind::InvalidSubcommand].map(|kind| error.get(kind));
    if let [Some(ContextValue::String(option)), Some(ContextValue::String(command))] = context
        && Cli::command().find_subcommand(command).is_some()
    {
        let tip = format!("write the option after the command: dat {command} {option}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
