//! The C programs of `programs/` under the address and undefined-behaviour sanitizers: what the library does with their memory
//! and they with its, and that it has given all of its own back when they end.
//!
//! Left out are programs that end with objects open on purpose (`exits`, and `forks`, whose children do), and `allocations`,
//! which has an allocator of its own.
#![forbid(unsafe_code)]

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opendat_tests::{Dist, Registry, Running, Skip, c_program_sanitized, skip};

/// One at a time: they are slower as it is.
static PROCESSORS: Mutex<()> = Mutex::new(());

/// `library` is the name of the C library, for `-l`.
fn run(program: &str, args: &[&str], library: &str, registry: fn(&Dist) -> Registry) {
    let _alone = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(reason) = try_run(program, args, library, registry) {
        skip(&reason);
    }
}

fn try_run(program: &str, args: &[&str], library: &str, registry: fn(&Dist) -> Registry) -> Result<(), Skip> {
    let dist = Dist::locate()?;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(c_program_sanitized(&dist, program, library, dir.path())?);
    command.args(args).env("ASAN_OPTIONS", "detect_leaks=1").env("UBSAN_OPTIONS", "print_stacktrace=1");
    let deadline = Instant::now() + Duration::from_secs(120);
    let ended = Running::start(program, command, &registry(&dist), deadline).and_then(Running::end);
    let text = ended
        .and_then(|ended| ended.succeeded(program).map(|()| ended.text))
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(text.lines().last(), Some("ok"), "{text}");
    Ok(())
}

fn run_2_0(program: &str, args: &[&str]) {
    run(program, args, "dat2", Registry::builtin);
}

#[test]
fn wrong_handles() {
    run_2_0("bad_handles", &[]);
}

#[test]
fn connections() {
    run_2_0("connection_cycles", &[]);
}

#[test]
fn a_killed_target() {
    run_2_0("killed_peer", &["target"]);
}

#[test]
fn a_killed_writer() {
    run_2_0("killed_peer", &["writer"]);
}

#[test]
fn one_sided_operations() {
    run_2_0("one_sided", &["poll"]);
}

#[test]
fn interrupted_waits() {
    run_2_0("interrupted", &["waits"]);
}

#[test]
fn a_storm_of_signals() {
    run_2_0("interrupted", &["storm"]);
}

#[test]
fn a_consumer_of_1_2() {
    run("udapl_1_2", &["builtin"], "dat", Registry::builtin_1_2);
}

#[test]
fn a_consumer_of_1_2_with_a_loaded_provider() {
    run("udapl_1_2", &["plugin"], "dat", Registry::plugin_1_2);
}
