//! Development tasks: `cargo xtask test | dist`.
#![forbid(unsafe_code)]

mod cargo;
mod dist;
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
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Dist => dist::build().map(|root| {
            println!("{}", root.display());
            true
        }),
        Task::Test(options) => test::run(&options),
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
