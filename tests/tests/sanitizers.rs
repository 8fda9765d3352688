//! Runs the C programs of `programs/` under the address and undefined-behaviour sanitizers, over
//! each provider. The library and the programs must use each other's memory correctly, and the
//! library must have freed all of its own memory when the programs end.
//!
//! Programs that end with open objects on purpose are left out (`exits`, and `forks`, whose
//! children do so). `allocations` is left out because it has an allocator of its own.
#![forbid(unsafe_code)]

use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Stop, c_program_sanitized, ends_with_ok, is_short_run,
    trial,
};

/// A program and its arguments.
struct Case {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// The name of the C library for the option `-l`.
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

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Trials run one at a time, because the sanitizers make them slow.
    arguments.test_threads = Some(1);
    let providers = if is_short_run() { &[] } else { PROVIDERS };
    let trials = providers.iter().flat_map(|provider| {
        let name = move |case: &Case| format!("{}::{}", provider.ia, case.name);
        CASES.iter().map(move |case| trial(name(case), || case.run(provider)))
    });
    opendat_tests::run(&arguments, trials.collect())
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
