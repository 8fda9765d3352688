//! Development tasks: `cargo xtask test | loom | arm64 | mutants | miri | tsan | bench | network |
//! mpi | guest | attacks | dist | package | reference | deny`.
#![forbid(unsafe_code)]

mod arm64;
mod attacks;
mod bench;
mod cargo;
#[cfg(test)]
mod crate_graph;
mod deny;
mod dist;
#[cfg(test)]
mod glossary;
mod guest;
#[cfg(test)]
mod line_length;
mod loom;
mod miri;
#[cfg(test)]
mod module_files;
mod mpi;
mod mutants;
mod network;
mod notices;
mod package;
mod prerequisites;
mod reference;
mod spread;
mod test;
mod tools;
mod tsan;
#[cfg(test)]
mod unsafe_files;

use std::process::ExitCode;

use clap::Parser;

use dist::Profile;
use test::Stage;

/// Development tasks of OpenDAT
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Build the release artefacts and lay them out in target/dist/{lib,include,bin,share}
    Dist,
    /// Make the packages for users, in target/package: a tarball, and packages for Debian
    Package,
    /// Run the tests: the short run takes some minutes, --all runs everything
    Test(test::Options),
    /// Run only the tests that explore every interleaving of the lock-free parts
    Loom,
    /// Run only the tests of the C ABI on arm64, under an emulator
    Arm64,
    /// Change dat-core and rnic, one change at a time, and check whether the tests notice (not part
    /// of test)
    Mutants(mutants::Options),
    /// Run the tests of code that accesses only memory under Miri (not part of test)
    Miri,
    /// Run random calls in several threads under the thread sanitizer (not part of test)
    Tsan(tsan::Options),
    /// Compare DAT with plain sockets, and two threads with one thread, and check that each row
    /// meets its required ratio (not part of test)
    Bench(bench::Options),
    /// Move messages through a simulated network with softroce's engine, TCP and a model of the
    /// kernel's rxe, and compare the results (not part of test)
    Network(network::Options),
    /// Measure MPI messages over our adapters, compared with the MPI library's own TCP and shared
    /// memory (not part of test)
    Mpi(mpi::speed::Options),
    /// Measure small operations over the kernel's RDMA drivers in a virtual machine, compared with
    /// Debian's provider (not part of test)
    Guest(guest::Options),
    /// Measure transfers during attacks at full speed (not part of test)
    Attacks(attacks::Options),
    /// Copy the prototypes of the C headers to the pages in dat-sys/reference, and the comments of
    /// the pages to the headers
    Reference(reference::Options),
    /// Check our dependencies: licences, sources, advisories (not part of test)
    Deny(deny::Options),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Dist => dist::build(Profile::Dist).map(|root| {
            println!("{}", root.display());
            true
        }),
        Task::Package => package::run(),
        Task::Test(options) => test::run(&options),
        Task::Guest(options) => guest::measure(&options),
        Task::Attacks(options) => attacks::measure(&options),
        Task::Loom => {
            loom::job(true, None).and_then(|job| test::run_only(vec![Stage::of("loom", vec![job])]))
        }
        Task::Arm64 => test::run_only(vec![arm64::stage()]),
        Task::Mutants(options) => mutants::run(&options),
        Task::Tsan(options) => tsan::stage(&options).and_then(|stage| test::run_only(vec![stage])),
        Task::Miri => miri::stage().and_then(|stage| test::run_only(vec![stage])),
        Task::Bench(options) => bench::run(&options),
        Task::Network(options) => network::run(&options),
        Task::Mpi(options) => mpi::speed::run(&options),
        Task::Reference(options) => reference::run(&options),
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
