//! Behaviour that takes processes of our own to see, in C (`programs/*.c`): a killed peer, leaks, one-sided progress,
//! wrong handles, allocations, signals, forks, the end of the process.
#![forbid(unsafe_code)]

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use opendat_tests::{Dist, Registry, Running, Skip, c_program, skip};

/// One at a time: these programs measure time, and some of them take all processors.
static PROCESSORS: Mutex<()> = Mutex::new(());

fn run(program: &str, args: &[&str], registry: fn(&Dist) -> Result<Registry, Skip>) {
    let _alone = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(reason) = try_run(program, args, registry) {
        skip(&reason);
    }
}

fn try_run(program: &str, args: &[&str], registry: fn(&Dist) -> Result<Registry, Skip>) -> Result<(), Skip> {
    let dist = Dist::locate()?;
    let registry = registry(&dist)?;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(c_program(&dist, program, dir.path())?);
    command.args(args);
    let deadline = Instant::now() + Duration::from_secs(90);
    let ended = Running::start(program, command, &registry, deadline).and_then(Running::end);
    let text = ended
        .and_then(|ended| ended.succeeded(program).map(|()| ended.text))
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(text.lines().last(), Some("ok"), "{text}");
    println!("{text}");
    Ok(())
}

fn builtin(dist: &Dist) -> Result<Registry, Skip> {
    Ok(Registry::builtin(dist))
}

fn plugin(dist: &Dist) -> Result<Registry, Skip> {
    Ok(Registry::plugin(dist))
}

#[test]
fn a_killed_target_disconnects_the_writer_within_a_second() {
    run("killed_peer", &["target"], builtin);
}

#[test]
fn a_killed_writer_disconnects_the_target_within_a_second() {
    run("killed_peer", &["writer"], builtin);
}

#[test]
fn a_killed_peer_is_noticed_under_debians_registry_too() {
    run("killed_peer", &["target"], Registry::debian);
}

#[test]
fn one_sided_operations_complete_while_the_target_computes() {
    run("one_sided", &["compute"], builtin);
}

#[test]
fn one_sided_operations_complete_while_the_target_sleeps() {
    run("one_sided", &["sleep"], builtin);
}

#[test]
fn one_sided_operations_of_a_polling_initiator_complete() {
    run("one_sided", &["poll"], builtin);
}

#[test]
fn one_sided_operations_complete_under_debians_registry_too() {
    run("one_sided", &["compute"], Registry::debian);
}

#[test]
fn connections_leave_nothing_behind() {
    run("connection_cycles", &[], builtin);
}

#[test]
fn wrong_handles_are_refused_by_every_function() {
    run("bad_handles", &[], builtin);
}

#[test]
fn moving_data_allocates_nothing() {
    run("allocations", &[], builtin);
}

#[test]
fn a_signal_interrupts_a_wait_and_loses_nothing() {
    run("interrupted", &["waits"], builtin);
}

#[test]
fn a_storm_of_signals_disturbs_no_transfer() {
    run("interrupted", &["storm"], builtin);
}

#[test]
fn children_of_a_connected_process_disturb_nothing() {
    run("forks", &["graceful"], builtin);
}

#[test]
fn a_child_does_not_keep_a_connection_open() {
    run("forks", &["abrupt"], builtin);
}

#[test]
fn a_process_may_end_at_any_moment() {
    run("exits", &["400"], builtin);
}

#[test]
fn a_process_with_a_loaded_provider_may_end_at_any_moment() {
    run("exits", &["400"], plugin);
}
