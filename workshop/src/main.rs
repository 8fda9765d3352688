//! The program of this project's own tuning. `cargo xtask bench` and `cargo xtask network` run it;
//! it is not installed.
#![forbid(unsafe_code)]

// The commands:
mod network;
mod rows;

// What the two processes of a row do:
mod task;

// The workloads, and their baselines:
mod datagrams;
mod request_answer;
mod udp;
mod watch;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use measurement::text_table::TERMINAL_WIDTH;

// Defines symbols that a provider in a shared library looks up in the program that loads it.
registry::export_symbols!();

/// Measurements for the tuning of OpenDAT.
#[derive(Parser)]
#[command(name = "workshop", max_term_width = TERMINAL_WIDTH)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the rows of docs/performance.md: each compares DAT with plain sockets, two threads
    /// with one, or a consumer that blocks with one that polls
    Bench(rows::Options),
    /// Move messages through a simulated network with softroce's engine, TCP (CUBIC, Reno) and a
    /// model of the kernel's rxe, and compare the results
    Network(network::Options),
    /// Run one of the two processes of a row; the parent process sends the plan
    #[command(hide = true)]
    Peer,
}

fn main() -> ExitCode {
    let outcome: Result<()> = match Cli::parse().command {
        Command::Bench(options) => rows::run(&options),
        Command::Network(options) => network::run(&options),
        Command::Peer => return measurement::peer::run::<task::Task>(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workshop: {error:#}");
            ExitCode::FAILURE
        }
    }
}
