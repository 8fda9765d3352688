//! The fuzz targets, which are a workspace of their own, are built and clean, and a short run of each finds nothing.
//!
//! `fuzz/.cargo/config.toml` gives libFuzzer its coverage on the stable compiler, so that even a short run comes past the
//! magic words; `fuzz/seeds/` has inputs of long runs, one for each way through the code. Memory errors are for the long
//! runs, under cargo-fuzz.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Skip, find_program, is_short_run};

/// A few seconds; afterwards little that is new is found for minutes.
const RUNS: u32 = 100_000;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One target directory: cargo would let them wait for each other anyway.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    if !is_short_run() {
        trials.push(trial("clippy".to_owned(), clippy));
        trials.extend(targets().into_iter().map(|name| trial(name.clone(), move || fuzz(&name))));
    }
    opendat_tests::run(&arguments, trials)
}

fn trial(name: String, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::ignorable_test(format!("fuzz::{name}"), || {
        // Both build libFuzzer, which is C++.
        if let Err(Skip(reason)) = find_program("c++", "g++") {
            return Ok(Completion::ignored_with(reason));
        }
        run().map(|()| Completion::Completed).map_err(Failed::from)
    })
}

fn clippy() -> Result<(), String> {
    said(cargo().args(["clippy", "--release", "--all-targets", "--", "-D", "warnings"])).map(drop)
}

fn fuzz(name: &str) -> Result<(), String> {
    // Where cargo-fuzz keeps them too. libFuzzer does not create the directory.
    let artifacts = directory().join("artifacts").join(name);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    // What long runs have found is where this one starts; what it finds itself is forgotten.
    let finds = tempfile::tempdir().map_err(|error| error.to_string())?;
    let seeds = directory().join("seeds").join(name);
    let text = said(
        cargo()
            .args(["run", "--release", "--bin", name, "--"])
            .arg(finds.path())
            .args(seeds.is_dir().then_some(seeds))
            .args([format!("-runs={RUNS}"), format!("-artifact_prefix={}/", artifacts.display())])
            // Always the same run; long inputs from the beginning; an input that takes a minute is a finding.
            .args(["-seed=1", "-len_control=0", "-max_len=600", "-timeout=60", "-print_funcs=0"]),
    )?;
    if text.contains(&format!("Done {RUNS} runs")) { Ok(()) } else { Err(text) }
}

/// Each source file in `fuzz_targets` is one.
fn targets() -> Vec<String> {
    let sources = fs::read_dir(directory().join("fuzz_targets")).expect("fuzz/fuzz_targets");
    let mut names: Vec<String> = sources
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no fuzz targets");
    names
}

/// In the directory whose configuration holds. What is set outside would replace the flags there.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory()).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// What a command that must succeed said on standard error: cargo and libFuzzer use nothing else.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{text}\n{}", output.status)) }
}
