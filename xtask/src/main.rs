//! Development tasks: `cargo xtask test | guest | loom | mutants | miri | mpi | dist | package | deny`.
#![forbid(unsafe_code)]

mod cargo;
mod deny;
mod dist;
mod guest;
mod loom;
mod miri;
mod mpi;
mod mutants;
mod notices;
mod package;
mod prerequisites;
mod standstill;
mod tally;
mod test;
mod tools;
#[cfg(test)]
mod unsafe_files;

use std::process::ExitCode;

use clap::Parser;

/// Development tasks of OpenDAT
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Build the release artefacts and lay them out in target/dist/{lib,include,bin,share}
    Dist,
    /// Make what others install, in target/package: a tarball, and packages for Debian
    Package(package::Options),
    /// Run every test, the unmodified Debian programs included
    Test(test::Options),
    /// Run only the tests with a virtual machine whose kernel has the other implementations
    Guest(guest::Options),
    /// Run only the tests that try every interleaving of the lock-free parts
    Loom,
    /// Break dat-core and rnic on purpose, change by change, and see whether the tests notice (not part of test)
    Mutants(mutants::Options),
    /// Run the tests of what talks to memory alone under Miri (not part of test)
    Miri,
    /// Measure MPI messages over our adapters, beside the MPI library's own TCP (not part of test)
    Mpi(mpi::speed::Options),
    /// Check what we depend on: licences, sources, advisories (not part of test)
    Deny(deny::Options),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Dist => dist::build().map(|root| {
            println!("{}", root.display());
            true
        }),
        Task::Package(options) => package::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Guest(options) => guest::run(&options),
        Task::Loom => loom::tests().and_then(|tests| test::run_only([tests])),
        Task::Mutants(options) => mutants::run(&options),
        Task::Miri => miri::tests().and_then(test::run_only),
        Task::Mpi(options) => mpi::speed::run(&options),
        Task::Deny(options) => deny::run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
