//! Tests of the program `workshop`.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the program in an environment without any configuration of OpenDAT.
fn workshop(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_workshop"));
    // The variables that OpenDAT reads, and those that `cargo xtask test` sets for tests.
    let heeded =
        |name: &str| ["DAT_", "DAPL_", "OPENDAT_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(heeded)) {
        command.env_remove(name);
    }
    command.args(arguments).env("DAT_OVERRIDE", "/dev/null").stdin(Stdio::null());
    command.output().expect("the program starts")
}

/// Returns the rows that `workshop bench` has measured.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = workshop(&[&["bench", "--json"][..], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    document["rows"].as_array().expect("rows").clone()
}

/// Fails unless the program refuses its arguments and says why.
fn refuses(arguments: &[&str], exit_code: i32, why: &str) {
    let output = workshop(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}: {text}");
    assert!(text.contains(why), "{arguments:?}: {text}");
}

#[test]
fn a_row_has_the_ratios_of_its_rounds() {
    let rows = rows(&["--rounds", "5", "--row", "64 B ping-pong, polling"]);
    let [row] = &rows[..] else { panic!("the table must have one row: {rows:?}") };
    // On a very busy machine there are fewer rounds.
    let rounds = row["rounds"].as_array().expect("rounds").len();
    assert!((1..=5).contains(&rounds), "{row}");
    let number = |field: &str| row[field].as_f64().expect("a number");
    assert!(number("ratio_min") > 0.0 && number("ratio_min") <= number("ratio"), "{row}");
    assert!(number("ratio") <= number("ratio_max"), "{row}");
    refuses(&["bench", "--row", "no such row"], 1, "the rows are");
}

#[test]
fn a_row_has_each_kind_of_baseline() {
    for (arguments, name, unit, against) in [
        (&["--row"][..], "64 B requests, 16 conn.", "bytes_per_second", "tcp"),
        (&["--row"], "64 B sends, blocking", "bytes_per_second", "polling"),
        (&["--row"], "64 B blocking, 2 threads", "bytes_per_second", "one_thread"),
        (&["--row"], "64 B write, shm", "seconds", "local"),
        (&["--row"], "64 B write and send, shm", "seconds", "local"),
        (&["--watched", "--row"], "256 B, watched, 1/ms", "seconds", "tcp"),
        (&["--watched", "--udp", "--row"], "64 KiB, watched, 1/ms", "seconds", "udp"),
        (&["--adapter", "softroce", "--row"], "64 B ping-pong polling, UDP", "seconds", "udp"),
        (
            &["--adapter", "softroce", "--row"],
            "64 B sends, 64 outst., UDP",
            "bytes_per_second",
            "udp",
        ),
        (&["--adapter", "softroce", "--row"], "64 B datagrams, ping-pong", "seconds", "udp"),
        (
            &["--adapter", "softroce", "--row"],
            "64 B datagrams, 64 outst.",
            "bytes_per_second",
            "udp",
        ),
    ] {
        let rows = rows(&[arguments, &[name, "--rounds", "1"]].concat());
        let [row] = &rows[..] else { panic!("the table must have one row: {rows:?}") };
        assert_eq!([&row["name"], &row["unit"], &row["against"]], [name, unit, against]);
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
    }
}

#[test]
fn a_simulated_network_has_a_row_for_each_protocol() {
    let conditions = "rate=100mbit,delay=1ms,queue=64K,flows=3,size=64K,cubic=1";
    let output = workshop(&["network", conditions]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    for protocol in ["softroce", "CUBIC", "Reno", "rxe"] {
        let is_row = |line: &str| line.starts_with(protocol) && line.contains("bit/s");
        assert!(text.lines().any(is_row), "{protocol}: {text}");
    }
}

#[test]
fn conditions_that_are_invalid_are_refused() {
    let flows = "flows=0: expected a number of flows from 1 to 1000";
    refuses(&["network", "rate=100mbit,flows=0"], 2, flows);
    refuses(&["network", "delay=1ms,time=1s"], 2, "time: without a rate");
    refuses(&["network", "delay=1ms,"], 2, "an empty condition: expected key=value");
    refuses(&["bench", "--udp"], 2, "--watched");
}
