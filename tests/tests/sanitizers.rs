//! The C programs of `programs/` under the address and undefined-behaviour sanitizers, over each of our providers: what the
//! library does with their memory and they with its, and that it has given all of its own back when they end.
//!
//! Left out are programs that end with objects open on purpose (`exits`, and `forks`, whose children do), and `allocations`,
//! which has an allocator of its own.
//!
//! The thread sanitizer watches `anything`, the Rust program that makes any calls of any threads in any order: no two threads use
//! memory at the same time unless a lock or an atomic orders them. Rust's standard library has to be built for this, too, which takes
//! the nightly compiler.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Skip, Stop, c_program_sanitized, ends_with_ok, is_short_run, trial,
};

/// A program and its arguments.
struct Case {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// The C library, for `-l`.
    library: &'static str,
    registry: fn(&Dist, &Provider) -> Registry,
}

const CASES: &[Case] = &[
    case("wrong_handles", "bad_handles", &[]),
    case("connections", "connection_cycles", &[]),
    case("a_killed_target", "killed_peer", &["target"]),
    case("a_killed_writer", "killed_peer", &["writer"]),
    case("one_sided_operations", "one_sided", &["poll"]),
    case("interrupted_waits", "interrupted", &["waits"]),
    case("a_storm_of_signals", "interrupted", &["storm"]),
    case_1_2("a_consumer_of_1_2", &["builtin"], Registry::builtin_1_2),
    case_1_2("a_consumer_of_1_2_with_a_loaded_provider", &["plugin"], Registry::plugin_1_2),
];

const fn case(name: &'static str, program: &'static str, args: &'static [&'static str]) -> Case {
    Case { name, program, args, library: "dat2", registry: Registry::builtin }
}

const fn case_1_2(
    name: &'static str,
    args: &'static [&'static str],
    registry: fn(&Dist, &Provider) -> Registry,
) -> Case {
    Case { name, program: "udapl_1_2", args, library: "dat", registry }
}

/// Crates that have the program `anything`, and how many calls it makes: as many as take half a minute.
const ANYTHING: [(&str, u32); 3] =
    [("dat-core", 400_000), ("provider-tcp-emu", 100_000), ("provider-softroce", 100_000)];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One at a time: they are slower as it is.
    arguments.test_threads = Some(1);
    let providers = if is_short_run() { &[] } else { PROVIDERS };
    let mut trials: Vec<_> = providers
        .iter()
        .flat_map(|provider| {
            let name = move |case: &Case| format!("{}::{}", provider.ia, case.name);
            CASES.iter().map(move |case| trial(name(case), || case.run(provider)))
        })
        .collect();
    if !is_short_run() {
        let anything = ANYTHING
            .map(|(package, calls)| trial(format!("threads::{package}"), move || anything(package, calls)));
        trials.extend(anything);
    }
    opendat_tests::run(&arguments, trials)
}

/// Builds and runs the program of a crate under the thread sanitizer.
fn anything(package: &str, calls: u32) -> Result<(), Stop> {
    let missing = || {
        let install = "rustup toolchain install nightly --profile minimal --component rust-src";
        Skip(format!("the nightly compiler or the source of its library is missing: {install}"))
    };
    let sysroot = nightly("rustc").args(["--print", "sysroot"]).output().map_err(|_| missing())?;
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock").exists() {
        return Err(missing().into());
    }
    let program = env::current_exe().expect("the path of this program");
    let target = program.ancestors().nth(3).expect("this program is in target/PROFILE/deps").join("tsan");
    let host = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let ran = nightly("cargo")
        .args([
            "test",
            "--color=never",
            "-Zbuild-std",
            "--target",
            &host,
            "-p",
            package,
            "--test",
            "anything",
        ])
        .args(["--", "--color=never", "--nocapture"])
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .env("OPENDAT_CALLS", calls.to_string())
        .output()
        .map_err(|error| error.to_string())?;
    let text = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    if ran.status.success() { Ok(()) } else { Err(text.into()) }
}

/// A program of the nightly compiler, in the workspace.
fn nightly(program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", program]).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

impl Case {
    fn run(&self, provider: &Provider) -> Result<(), Stop> {
        let dist = Dist::locate()?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = c_program_sanitized(&dist, self.program, self.library, dir.path())?;
        let mut command = Command::new(program);
        command.args(self.args).env("ASAN_OPTIONS", "detect_leaks=1");
        command.env("UBSAN_OPTIONS", "print_stacktrace=1");
        let registry = (self.registry)(&dist, provider);
        Ok(ends_with_ok(self.program, command, &registry, Duration::from_secs(600))?)
    }
}
