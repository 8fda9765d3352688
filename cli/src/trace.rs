//! `dat trace`: runs a program and logs what its adapters do, line by line.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use clap::Args;
use telemetry::{log, printable};

use crate::programs;

#[derive(Args)]
#[command(after_help = TARGETS)]
pub(crate) struct Options {
    /// What to log: a level (warn, info, debug, trace), or levels of targets, as in
    /// dat::cm=debug,dat::ep=trace
    #[arg(long, value_name = "WHAT", default_value = log::DEFAULT_LEVEL, value_parser = log::check)]
    log: String,
    /// Log one JSON object per line, with the version of the program's library
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}
const TARGETS: &str = "\
Targets:
  dat::ia   adapters are opened and closed; asynchronous errors
  dat::cm   connections: requested, accepted, rejected, established, ended;
            addresses of peers for datagrams: requested, answered, resolved or
            unresolved
  dat::ep   state changes of endpoints
  dat::dto  operations that failed or were flushed; messages that wait for a
            receive
  dat::evd  events that did not fit into the queue
  dat::api  calls: debug logs those that are refused, trace also control calls
            that succeed
  dat::wake when a thread falls asleep, is woken and runs again; with trace
            only. slept_us is the time of the sleep; waited_us is the part of it
            in which the thread was runnable but had no processor, as the
            scheduler accounts for it

because= says in a sentence which mistake has ended a connection, failed an
operation, refused a post or makes a message wait, and what to do; detail= is
what the adapter's protocol says about it.

Each line has the process ID and the seconds since the log of the process
begins. The first line of a process says what two clocks showed at that moment,
in nanoseconds: monotonic_ns=, which is the same for all processes of a host,
and realtime_ns=, the time since 1970. The sum of monotonic_ns and the seconds
orders the lines of several processes. A forked child has the first line of its
parent. Each line is written by one call, so that lines do not mix.

The log goes to standard error and covers OpenDAT's adapters only: a program
that loads OFED's providers, or runs with more privileges than its caller, logs
nothing. Operations that complete with success are not logged; capture=FILE in
OPENDAT_PARAMS records what is on the wire.

The exit code is that of the program; 127 if there is no such program, 126 if it
cannot be run.";

/// Replaces this process by the program to trace.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let (program, arguments) =
        options.command.split_first().context("no program to trace was given")?;
    if let Some(library) = programs::foreign_library_of(program) {
        let remedy = programs::own_library_directory().map_or_else(
            || "set LD_LIBRARY_PATH to the directory of OpenDAT's library".to_owned(),
            |directory| format!("export LD_LIBRARY_PATH={}", directory.display()),
        );
        eprintln!(
            "dat: the library {} is not OpenDAT's, so its adapters log nothing; {remedy}",
            library.display()
        );
    }
    let mut command = Command::new(program);
    let format = if options.json { "json," } else { "" };
    command.args(arguments).env("OPENDAT_LOG", format!("{format}{}", options.log));
    // The log goes to standard error, as the help says.
    command.env_remove("DAPL_DBG_DEST");
    let error = command.exec();
    eprintln!("dat: {} cannot be run: {error}", printable(&program.to_string_lossy()));
    // The exit codes are the same as those of shells.
    std::process::exit(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}
