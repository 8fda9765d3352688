//! Development tasks: `cargo xtask test | loom | dist`.
#![forbid(unsafe_code)]

mod cargo;
mod dist;
mod loom;
mod prerequisites;
mod tally;
mod test;
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
    /// Run every test, the unmodified Debian programs included
    Test(test::Options),
    /// Run only the tests that try every interleaving of the lock-free parts
    Loom,
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Dist => dist::build().map(|root| {
            println!("{}", root.display());
            true
        }),
        Task::Test(options) => test::run(&options),
        Task::Loom => loom::tests().and_then(|mut tests| test::run_only(&mut tests)),
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
