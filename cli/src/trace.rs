//! `dat trace`: a program, and what its adapters do, line by line.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use clap::Args;
use dat_core::log;
use registry::report::printable;

use crate::programs;

#[derive(Args)]
#[command(after_help = TARGETS)]
pub(crate) struct Options {
    /// What is told: a level (warn, info, debug, trace), or levels of targets, as in dat::cm=debug,dat::ep=trace
    #[arg(long, value_name = "WHAT", default_value = "debug", value_parser = log::check)]
    log: String,
    /// Lines of JSON
    #[arg(long)]
    json: bool,
    /// The program, with its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

const TARGETS: &str = "\
Targets:
  dat::ia   adapters are opened and closed; asynchronous errors
  dat::cm   connections: asked for, accepted, rejected, established, ended
  dat::ep   endpoints go from one state to another
  dat::dto  operations that failed or were flushed; messages that wait for a receive
  dat::evd  events that found no room
  dat::api  calls: debug has those that are refused, trace also the control calls that
            are not
  dat::wake who falls asleep, is asked to wake up and is awake again; with trace alone.
            slept_us is how long, waited_us for how long of it the thread could run and
            had no processor, as the scheduler accounts for it

The lines go to standard error, from adapters of ours alone: a program that loads
OFED's providers, or runs with more rights than who starts it, says nothing. What
is posted and completes with success is not told; OPENDAT_CAPTURE writes down what
is on the wire.

Exits as the program does; with 127 if there is no such program, 126 if it cannot
be run.";

/// Becomes the program.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let (program, arguments) = options.command.split_first().context("a program is needed")?;
    if let Some(library) = programs::stranger_of(program) {
        let remedy = programs::directory_of_ours().map_or_else(
            || "LD_LIBRARY_PATH says where ours is".to_owned(),
            |directory| format!("export LD_LIBRARY_PATH={}", directory.display()),
        );
        eprintln!(
            "dat: {} is not OpenDAT's: its adapters say nothing here; {remedy}",
            library.display()
        );
    }
    let mut command = Command::new(program);
    command.args(arguments).env("OPENDAT_LOG", &options.log);
    // To where this help says.
    command.env_remove("DAPL_DBG_DEST");
    command.env("OPENDAT_LOG_FORMAT", if options.json { "json" } else { "text" });
    let error = command.exec();
    eprintln!("dat: {} cannot be run: {error}", printable(&program.to_string_lossy()));
    // As shells have it, so that it is told from what the program would say.
    std::process::exit(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}
