//! Builds the fuzz targets, which are a workspace of their own, and checks them with clippy. Then
//! runs each target for a short time, which must find nothing.
//!
//! `fuzz/.cargo/config.toml` lets the stable compiler report coverage to libFuzzer, so that even a
//! short run gets past magic numbers in the input. `fuzz/seeds/` has inputs found by long runs, one
//! for each path through the code. Long runs under cargo-fuzz look for memory errors.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opendat_tests::{Skip, find_program, is_short_run};

/// The number of inputs of a run, which takes a few seconds. Minutes more would find little that is
/// new.
const RUNS: u32 = 100_000;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The runs share one target directory, so cargo would make them wait for each other.
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
        // clippy and the fuzz targets build libFuzzer, which needs a C++ compiler.
        if let Err(Skip(reason)) = find_program("c++", "g++") {
            return Ok(Completion::ignored_with(reason));
        }
        run().map(|()| Completion::Completed).map_err(Failed::from)
    })
}

fn clippy() -> Result<(), String> {
    stderr_of(cargo().args(["clippy", "--release", "--all-targets", "--", "-D", "warnings"]))
        .map(drop)
}

fn fuzz(name: &str) -> Result<(), String> {
    // cargo-fuzz keeps artifacts in the same directory. libFuzzer does not create the directory.
    let artifacts = directory().join("artifacts").join(name);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    // The run starts from the inputs that long runs have found. Inputs that this run finds are
    // discarded.
    let new_inputs = tempfile::tempdir().map_err(|error| error.to_string())?;
    let seeds = directory().join("seeds").join(name);
    let text = stderr_of(
        cargo()
            .args(["run", "--release", "--bin", name, "--"])
            .arg(new_inputs.path())
            .args(seeds.is_dir().then_some(seeds))
            .args([format!("-runs={RUNS}"), format!("-artifact_prefix={}/", artifacts.display())])
            // The run is the same each time, and uses long inputs from the beginning. If an input
            // takes a minute, the test fails.
            .args(["-seed=1", "-len_control=0", "-max_len=600", "-timeout=60", "-print_funcs=0"]),
    )?;
    if text.contains(&format!("Done {RUNS} runs")) { Ok(()) } else { Err(text) }
}

/// Returns the names of the targets: one for each source file in `fuzz_targets`.
fn targets() -> Vec<String> {
    let sources = fs::read_dir(directory().join("fuzz_targets")).expect("fuzz/fuzz_targets");
    let mut names: Vec<String> = sources
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no fuzz targets");
    names
}

/// Returns a command for cargo in the directory with the fuzz workspace's configuration. The
/// command removes flags from the environment, because they would replace the configured ones.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory()).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// Returns the standard error of a command that must succeed. cargo and libFuzzer write all output
/// to standard error.
fn stderr_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{text}\n{}", output.status)) }
}
